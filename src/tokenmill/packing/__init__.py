"""Store -> rows: any sequence length and packing strategy as a view over the store, with exact statistics."""

from tokenmill.packing.api import pack
from tokenmill.packing.stats import Stats
from tokenmill.packing.view import View

__all__ = ["Stats", "View", "pack"]
