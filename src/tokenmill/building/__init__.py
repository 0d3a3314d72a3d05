"""source x tokenizer -> store. A pure plan, one task at a time, and a manifest over the receipts."""

from tokenmill.building.build import build

__all__ = ["build"]
