"""Store -> rows: any sequence length and packing strategy as a view over the store, with exact statistics."""

from tokenmill.packing.stats import Stats
from tokenmill.packing.view import View, pack

__all__ = ["Stats", "View", "pack"]
