"""The modules of the standard library as text: every machine has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def source_texts() -> Iterator[str]:
    """The modules of the standard library, as text."""
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        with suppress(OSError):
            yield path.read_text("utf-8", errors="ignore")
