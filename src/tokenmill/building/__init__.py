"""source x tokenizer -> store. A pure plan, one task at a time, and a manifest over the receipts.

Imports nothing: worker processes load only the modules they need.
"""
