"""From texts to tokens: loading a tokenizer, choosing an engine, encoding and decoding.

Imports nothing: worker processes load only the modules they need.
"""
