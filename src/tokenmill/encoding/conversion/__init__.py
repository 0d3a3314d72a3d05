"""Other tokenizer formats, converted to a tokenizer.json so that fast engines can run them."""
