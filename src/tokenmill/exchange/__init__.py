"""Stores and views to the token formats of other tools, and back. `formats/` has one module per format."""
