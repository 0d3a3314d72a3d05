"""A store whose parts contradict each other, although every checksum is right, does not pass as whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade_stores import write_forged_manifest

import tokenmill as tm
from tokenmill.errors import TokenmillError
from tokenmill.io.atomic import digest
from tokenmill.store.facts import info
from tokenmill.store.integrity import verify_store
from tokenmill.store.shard import sealed

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory, tokenizer_path) -> Path:
    """Two files in several shards, with bad rows and special tokens."""
    folder = tmp_path_factory.mktemp("pristine")
    for number in range(2):
        rows = [json.dumps({"text": f"document {i} of {number} " + "words " * i}) for i in range(40)]
        rows[7], rows[9] = "{broken", json.dumps({"text": "a <|endoftext|> b"})
        (folder / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    tm.build(
        folder, tokenizer_path, folder / "store", shard_bytes="2KB", workers=0, engine="reference", progress="quiet"
    )
    return folder / "store"


@pytest.fixture
def store(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def change_manifest(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    body = json.loads((store / "manifest.json").read_bytes())
    change(body)
    write_forged_manifest(store / "manifest.json", body)


def change_file(store: Path, name: str, content: bytes) -> None:
    """Write a file of the store, and its checksum into the manifest."""
    (store / name).write_bytes(content)
    change_manifest(store, lambda body: body["files"].update({name: digest(content)}))


def change_receipt(store: Path, change: Callable[[dict[str, Any]], object], number: int = 1) -> None:
    name = json.loads((store / "manifest.json").read_bytes())["shard_ids"][number]
    path = store / "shards" / f"{name}.json"
    body = json.loads(path.read_bytes())
    del body["checksum"]
    change(body)
    path.write_bytes(sealed(body))

    def update(manifest: dict[str, Any]) -> None:
        manifest["receipts"][number] = digest(path.read_bytes())

    change_manifest(store, update)


def test_the_store_itself_agrees(store):
    assert verify_store(store) == []


def swap(values: list[Any]) -> None:
    values[0], values[1] = values[1], values[0]


MANIFEST = {
    "documents moved between shards": lambda body: (
        body["shard_documents"].__setitem__(0, body["shard_documents"][0] + 1),
        body["shard_documents"].__setitem__(1, body["shard_documents"][1] - 1),
    ),
    "tokens moved between shards": lambda body: (
        body["shard_tokens"].__setitem__(0, body["shard_tokens"][0] + 1),
        body["shard_tokens"].__setitem__(1, body["shard_tokens"][1] - 1),
    ),
    "text_bytes": lambda body: body.update(text_bytes=body["text_bytes"] + 1),
    "special_documents": lambda body: body.update(special_documents=0),
    "quarantined": lambda body: body.update(quarantined={}),
    "another reason": lambda body: body.update(quarantined={"another": 2}),
    "fingerprint": lambda body: body.update(fingerprint="0" * 32),
    "row_starts": lambda body: body["row_starts"].__setitem__(1, body["row_starts"][1] + 1),
    "eos of the tokenizer": lambda body: body["tokenizer"].update(eos_id=5),
    "a smaller vocabulary": lambda body: body["tokenizer"].update(vocab_size=100),
    "a larger vocabulary than the dtype holds": lambda body: body["tokenizer"].update(vocab_size=70_000),
    "complete, though a file failed": lambda body: body.update(failed=[{"file": "a", "error": "b"}]),
    "the order of the shards": lambda body: [
        swap(body[name]) for name in ("shard_ids", "shard_documents", "shard_tokens", "receipts")
    ],
}


@pytest.mark.parametrize("what", MANIFEST)
def test_a_manifest_that_contradicts_its_shards(store, what):
    change_manifest(store, MANIFEST[what])
    assert verify_store(store)


MALFORMED = {
    "a count beyond what a number holds": lambda body: (
        body["shard_tokens"].__setitem__(0, 2**70),
        body.update(tokens=sum(body["shard_tokens"])),
    ),
    "tokenizer without a size": lambda body: body["tokenizer"].update(vocab_size=None),
    "a size in words": lambda body: body["tokenizer"].update(vocab_size="many"),
    "eos in words": lambda body: body["tokenizer"].update(eos_id="end"),
    "quarantined in words": lambda body: body.update(quarantined={"bad": "some"}),
    "failed in words": lambda body: body.update(failed=["a"]),
    "files in numbers": lambda body: body.update(files={"a": 1}),
    "complete in words": lambda body: body.update(complete="yes"),
    "text in words": lambda body: body.update(text_bytes="all"),
    "a column without a dtype": lambda body: body["columns"][0].update(dtype="none"),
    "a column twice": lambda body: body["columns"].append(body["columns"][0]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_manifest_is_an_error_that_names_it(store, what):
    change_manifest(store, MALFORMED[what])
    [damage] = verify_store(store)
    assert damage.file == "manifest.json"
    for use in (tm.open, info):
        with pytest.raises(TokenmillError, match="manifest"):
            use(store)


RECEIPT = {
    "documents": lambda body: body.update(documents=body["documents"] + 1),
    "tokens": lambda body: body.update(tokens=body["tokens"] - 1),
    "text_bytes": lambda body: body.update(text_bytes=0),
    "rows of a piece": lambda body: body["pieces"][0].update(rows=body["pieces"][0]["rows"] + 1),
    "documents of a piece": lambda body: body["pieces"][0].update(documents=0),
    "tokens of a piece": lambda body: body["pieces"][0].update(tokens=0),
    "a piece less": lambda body: body.update(pieces=[]),
    "a piece more": lambda body: body["pieces"].append({"rows": 0, "documents": 0, "tokens": 0, "text_bytes": 0}),
    "no pieces": lambda body: body.pop("pieces"),
    "pieces in words": lambda body: body.update(pieces="some"),
    "a piece that is a number": lambda body: body.update(pieces=[1]),
    "rows beyond what a number holds": lambda body: body["pieces"][0].update(rows=2**70, documents=2**70),
    "skips in words": lambda body: body["pieces"][0].update(skips=["some"]),
    "no columns": lambda body: body.pop("columns"),
    "no id": lambda body: body.pop("id"),
    "no version": lambda body: body.pop("version"),
    "no text_bytes": lambda body: body.pop("text_bytes"),
}


@pytest.mark.parametrize("what", RECEIPT)
def test_a_receipt_that_contradicts_its_shard(store, what):
    change_receipt(store, RECEIPT[what])
    damages = verify_store(store)
    assert damages
    opened = tm.open(store)
    name = opened._manifest.shard_ids[1]
    assert any(name in damage.file or damage.file in ("manifest.json", "sources.json") for damage in damages)
    document = opened._manifest.shard_documents[0]
    with suppress(TokenmillError):  # and nothing else
        opened.locate(document)


SOURCES = {
    "a shard less": lambda body: body["shards"].pop(),
    "another number of pieces": lambda body: body["shards"].__setitem__(0, body["shards"][0] + 1),
    "a file less": lambda body: body["files"].pop(),
    "no files": lambda body: body.pop("files"),
    "files in numbers": lambda body: body.update(files=[1] * len(body["files"])),
    "pieces in words": lambda body: body.update(pieces="some"),
    "pieces of another shard": lambda body: (
        body["shards"].__setitem__(0, body["shards"][0] - 1),
        body["shards"].__setitem__(1, body["shards"][1] + 1),
    ),
}


@pytest.mark.parametrize("what", SOURCES)
def test_sources_that_contradict_the_shards(store, what):
    body = json.loads((store / "sources.json").read_bytes())
    del body["checksum"]
    SOURCES[what](body)
    change_file(store, "sources.json", sealed(body))
    assert "sources.json" in {damage.file for damage in verify_store(store)}


def test_a_quarantine_that_lacks_a_line(store):
    lines = (store / "quarantine.jsonl").read_bytes().splitlines(keepends=True)
    change_file(store, "quarantine.jsonl", b"".join(lines[:-1]))
    [damage] = verify_store(store)
    assert "quarantine.jsonl has 1 lines, quarantined documents are 2" in damage.what


@pytest.mark.parametrize(
    ("column", "change", "what"),
    [
        ("ends", lambda ends: ends[::-1].copy(), "do not add up"),
        ("ends", lambda ends: np.append(ends[:-1], ends[-1] - 1), "do not add up"),
        ("ends", lambda ends: np.append(-ends[:1], ends[1:]), "do not add up"),
        ("ids", lambda ids: np.append(np.array([65_000], ids.dtype), ids[1:]), "it has the id 65000"),
    ],
)
def test_columns_that_make_no_sense(store, column, change, what):
    """Written as they are, with right checksums."""
    import xxhash

    name = json.loads((store / "manifest.json").read_bytes())["shard_ids"][1]
    path = store / "shards" / (f"{name}.npy" if column == "ids" else f"{name}.ends.npy")
    values = change(np.load(path))
    np.save(path, values)
    raw = path.read_bytes()[128:]
    change_receipt(store, lambda body: body["columns"][column].update(checksums=[xxhash.xxh3_64_hexdigest(raw)]))
    damages = verify_store(store)
    assert any(what in damage.what and damage.file.endswith(path.name) for damage in damages), damages
