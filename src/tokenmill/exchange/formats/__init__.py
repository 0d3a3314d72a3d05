"""The formats: each is a class in a module of its own, listed in `tokenmill.exchange.registry`."""
