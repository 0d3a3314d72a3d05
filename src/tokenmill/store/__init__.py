"""Tokens at rest: shards with receipts, a manifest over them, and the proof that no bit changed."""

from tokenmill.store.integrity import verify_store
from tokenmill.store.manifest import Manifest, read_manifest, store_fingerprint
from tokenmill.store.shard import Damage, ShardWriter, check_shard, content_digest, is_done, open_column, read_receipt
from tokenmill.store.store import Location, Store, StoredTokenizer, open_store

__all__ = [
    "Damage",
    "Location",
    "Manifest",
    "ShardWriter",
    "Store",
    "StoredTokenizer",
    "check_shard",
    "content_digest",
    "is_done",
    "open_column",
    "open_store",
    "read_manifest",
    "read_receipt",
    "store_fingerprint",
    "verify_store",
]
