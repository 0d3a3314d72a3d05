"""Publishing shards that no build wrote, such as tokens from another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.building.publish import ShardEntry, publish, tokenizer_facts, write_tokenizer
from tokenmill.documents import Tokens
from tokenmill.store.manifest import Manifest
from tokenmill.store.shard import ShardWriter

TEXTS = [f"document {number} of a corpus, {'with some words ' * number}" for number in range(40)]
NAME = "0123456789abcdef01234567"


@pytest.fixture
def built(jsonl, tokenizer_path, tmp_path) -> tm.Store:
    return tm.build(jsonl(TEXTS), tokenizer_path, tmp_path / "built", engine="reference", workers=0)


def write_shard(folder: Path, documents: list[list[int]], dtype: str, name: str = NAME, **facts: Any) -> ShardEntry:
    """A shard written by hand, its documents from one file."""
    writer = ShardWriter(folder / "shards", name, np.dtype(dtype))
    for ids in documents:
        writer.append(Tokens(np.array(ids, np.uint32), np.array([len(ids)])))
    piece = {"content": None, "rows": writer.documents, "documents": writer.documents, "tokens": writer.tokens}
    receipt = writer.commit(name, pieces=[{**piece, "text_bytes": 0, **facts}], text_bytes=0)
    return ShardEntry(name, ["elsewhere.bin"], receipt)


def begin_store(folder: Path, like: tm.Store, tokenizer_path: Path) -> Manifest:
    """The manifest of a store with the tokenizer of another, and no shard yet."""
    tokenizer = tm.load_tokenizer(tokenizer_path, "reference")
    options = like._manifest.options
    folder.mkdir()
    return Manifest(
        options=options,
        source={"inputs": ["elsewhere.bin"], "files": 1, "on_error": "quarantine"},
        tokenizer=tokenizer_facts(tokenizer, options["bos"], options["eos"]),
        columns=like._manifest.columns,
        files=write_tokenizer(folder, tokenizer),
    )


def test_tokens_from_elsewhere_become_a_store(built, tokenizer_path, tmp_path):
    """The store opens, verifies, knows its rows, and has the fingerprint of a build of the same tokens."""
    folder = tmp_path / "imported"
    manifest = begin_store(folder, built, tokenizer_path)
    entry = write_shard(folder, [ids.tolist() for ids in built], manifest.dtype)
    publish(folder, manifest, [entry])
    store = tm.open(folder)
    assert store.complete
    assert [ids.tolist() for ids in store] == [ids.tolist() for ids in built]
    assert store.fingerprint == built.fingerprint
    assert store.verify() == []
    assert tuple(store.locate(7)) == ("elsewhere.bin", 7)
    assert tm.load_tokenizer(folder / "tokenizer").fingerprint == built._manifest.tokenizer["fingerprint"]
    assert {path.stem.removesuffix(".ends") for path in (folder / "shards").iterdir()} == {NAME}


def test_shards_are_listed_in_the_order_given(built, tokenizer_path, tmp_path):
    """Rows are counted on through the shards of a file, and skipped documents are listed by their rows."""
    folder = tmp_path / "imported"
    manifest = begin_store(folder, built, tokenizer_path)
    skips = {"rows": 3, "skips": [[1, 1, "not text", "a reason"]]}
    names = ["f" * 24, "0" * 24]
    entries = [write_shard(folder, [[1, 2], [3]], manifest.dtype, name, **skips) for name in names]
    publish(folder, manifest, iter(entries), [{"file": "gone.bin", "error": "gone.bin: no such file"}])
    with pytest.warns(UserWarning, match="not complete"):
        store = tm.open(folder)
    assert [ids.tolist() for ids in store] == [[1, 2], [3]] * 2
    assert store._manifest.shard_ids == names
    assert store._manifest.row_starts == [0, 3]
    assert [tuple(store.locate(i)) for i in range(4)] == [("elsewhere.bin", row) for row in (0, 2, 3, 5)]
    assert store._manifest.quarantined == {"not text": 2}
    lines = (folder / "quarantine.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [1, 4]
    assert [entry["file"] for entry in store.failed] == ["gone.bin"]
    assert store.verify() == []


def test_every_piece_needs_the_name_of_its_file(built, tokenizer_path, tmp_path):
    """Nothing is published if one is missing."""
    folder = tmp_path / "imported"
    manifest = begin_store(folder, built, tokenizer_path)
    entry = write_shard(folder, [[1], [2]], manifest.dtype)
    with pytest.raises((ValueError, IndexError)):
        publish(folder, manifest, [ShardEntry(entry.shard_id, [], entry.receipt)])
    assert not (folder / "manifest.json").exists()
    assert not list(folder.glob("*.tmp"))
