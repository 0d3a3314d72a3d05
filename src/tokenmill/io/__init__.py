"""Writing to the local file system: atomic writes and locks."""
