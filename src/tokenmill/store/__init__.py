"""Token stores: shards with receipts, the manifest over them, and their verification."""

from tokenmill.store.columns import ColumnSpec, columns_with, shard_of_file
from tokenmill.store.integrity import files_are_complete, verify_store
from tokenmill.store.manifest import Manifest, read_manifest, store_fingerprint
from tokenmill.store.reuse import PieceReader, link_shard
from tokenmill.store.shard import Damage, ShardWriter, content_digest, has_columns, is_done, read_receipt
from tokenmill.store.store import Location, Store, StoredTokenizer, open_store

__all__ = [
    "ColumnSpec",
    "Damage",
    "Location",
    "Manifest",
    "PieceReader",
    "ShardWriter",
    "Store",
    "StoredTokenizer",
    "columns_with",
    "content_digest",
    "files_are_complete",
    "has_columns",
    "is_done",
    "link_shard",
    "open_store",
    "read_manifest",
    "read_receipt",
    "shard_of_file",
    "store_fingerprint",
    "verify_store",
]
