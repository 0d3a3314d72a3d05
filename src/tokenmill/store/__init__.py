"""Token stores: shards with receipts, the manifest over them, and their verification.

Imports nothing: worker processes load only the modules they need.
"""
