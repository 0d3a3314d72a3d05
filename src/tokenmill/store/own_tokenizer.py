"""The tokenizer that a store was built with and keeps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tokenmill.display import one_line, shown
from tokenmill.errors import StoreError
from tokenmill.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class StoredTokenizer:
    """The tokenizer a store was built with. `load` loads it, as `tm.load_tokenizer(store.tokenizer.path)` does."""

    name: str
    fingerprint: str
    vocab_size: int
    eos_id: int | None
    bos_id: int | None
    engine: str
    path: Path

    def __repr__(self) -> str:
        return one_line("StoredTokenizer", shown(self.name), f"vocab_size={self.vocab_size:,}", shown(str(self.path)))

    def load(self) -> Any:
        """The tokenizer as an object that encodes and decodes."""
        from tokenmill.encoding.api import load_tokenizer

        if not self.path.is_dir():
            raise StoreError(
                f"{self.path.parent} has no tokenizer to decode with: {self.path} is missing; run its build again,"
                " import its ids with their tokenizer, or decode them with tm.load_tokenizer"
            )
        return load_tokenizer(self.path)


def stored_tokenizer(folder: Path, manifest: Manifest) -> StoredTokenizer:
    facts = {each.name: manifest.tokenizer[each.name] for each in fields(StoredTokenizer) if each.name != "path"}
    return StoredTokenizer(**facts, path=folder / "tokenizer")
