"""Store -> rows: every sequence length and packing is a view, and says what it costs."""

from tokenmill.packing.stats import Stats
from tokenmill.packing.view import View, pack

__all__ = ["Stats", "View", "pack"]
