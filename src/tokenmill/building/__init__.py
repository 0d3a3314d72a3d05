"""source x tokenizer -> store. A pure plan, one task at a time, and a manifest over the receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.building.api import build as build

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    if name != "build":  # a worker is part of this room too, and should not load the whole of it
        raise AttributeError(name)
    from tokenmill.building.api import build

    return build
