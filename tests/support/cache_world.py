"""A corpus, a tokenizer and a cache to try changes on, and the changes."""

from __future__ import annotations

import gzip
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import tokenizers

import tokenmill as tm
from tokenmill.events import Event

SETTLED_SECONDS = 0.35  # files that were touched later than this are looked into at every build of a test
MEMORY = (
    "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
)  # quicker than a disk; None: wherever temporary files go
EPOCH = 1_600_000_000 * 10**9


class Mapped:
    """A file that is written through memory: its content changes, and nothing that stat tells does."""

    def __init__(self, path: Path, word: bytes) -> None:
        self.path = path
        self.file = open(path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 0)
        self.at = bytes(self.memory).index(word)
        self.put(self.memory[self.at : self.at + 1])  # dates change with the first write, and not with those after it

    def put(self, byte: bytes) -> None:
        self.memory[self.at : self.at + 1] = byte

    def put_unseen(self, byte: bytes) -> None:
        before = self.stat()
        self.put(byte)
        if self.stat() != before:
            pytest.skip("this file system notices")

    def stat(self) -> tuple[int, ...]:
        info = os.stat(self.path)
        return info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino

    def close(self) -> None:
        self.memory.close()
        self.file.close()


@dataclass
class World:
    """A corpus, a tokenizer and how they are asked for; a row of the table changes some of it."""

    root: Path
    tokenizer: Any
    source: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    store: tm.Store | None = None  # the first one
    mapped: Any = None  # f1.jsonl, where a test writes to it unseen

    @property
    def data(self) -> Path:
        return self.root / "data"

    def build(self, cache: str = "cache", **more: Any) -> tuple[tm.Store, list[dict[str, Any]]]:
        events: list[Event] = []
        options = {"workers": 0, "engine": "reference", "cache_dir": self.root / cache, **self.options, **more}
        store = tm.build(self.source or str(self.data), self.tokenizer, progress=events.append, **options)
        return store, events

    def edit_tokenizer(self, change: Callable[[dict[str, Any]], Any], **writing: Any) -> None:
        path = Path(self.tokenizer) / "tokenizer.json"
        body = json.loads(path.read_text("utf-8"))
        change(body)
        path.write_text(json.dumps(body, **writing), "utf-8")


def names_of(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def all_of(store: tm.Store) -> dict[str, Any]:
    """Everything that two builds of the same thing have in common."""
    return {
        "fingerprint": store.fingerprint,
        "shards": store._manifest.shard_ids,
        "ids": [ids.tolist() for ids in store],
        "locations": [tuple(store.locate(i)) for i in range(len(store))],
        "bytes": {path.name: path.read_bytes() for path in (store.path / "shards").iterdir()},
        "complete": store.complete,
        "failed": [entry["file"] for entry in store.failed],
        "left out": store._manifest.quarantined,
        "damage": store.verify(),
    }


def scratch(world: World, **options: Any) -> dict[str, Any]:
    """The same of a build that knows nothing of earlier ones."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store, _ = world.build(**{**options, "out": None, "cache_dir": folder})
        return all_of(store)


# What is done. Files are f0.jsonl to f3.jsonl, of equal sizes, unless a row prepares others.


def json_lines(number: int, rows: int = 3) -> bytes:
    lines = [
        {"title": f"title {number}{row}", "text": f"text {row} of file {number}", "body": f"body {number}"}
        for row in range(rows)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def jsonl_files(w: World) -> None:
    for number in range(4):
        (w.data / f"f{number}.jsonl").write_bytes(json_lines(number))


def text_files(w: World) -> None:
    for number in range(3):
        (w.data / f"f{number}.txt").write_text(f"first part {number}\n##\nsecond part {number}\n")


def gzip_files(w: World) -> None:
    for number in range(2):
        (w.data / f"f{number}.jsonl.gz").write_bytes(gzip.compress(json_lines(number), 9, mtime=0))


def bad_rows(w: World) -> None:
    jsonl_files(w)
    with open(w.data / "f1.jsonl", "ab") as out:
        out.write(b"not json\n" + json_lines(8, 1))


def special_names(w: World) -> None:
    (w.data / "f0.jsonl").write_text('{"text": "one <|endoftext|> two"}\n')


def table(word: str = "text", other: str = "other") -> pa.Table:
    rows = range(40)
    return pa.table({"text": [f"{word} {row}" for row in rows], "other": [f"{other} {row}" for row in rows]})


def write_csv(path: Path, **words: str) -> None:
    pyarrow.csv.write_csv(table(**words), path)


def write_parquet(path: Path, **words: str) -> None:
    pyarrow.parquet.write_table(table(**words), path, compression="none", use_dictionary=False, write_statistics=False)


def write_arrow(path: Path, **words: str) -> None:
    pyarrow.feather.write_feather(table(**words), str(path), compression="uncompressed")


def write_nested(path: Path, word: str = "text", other: str = "other") -> None:
    """The text is a field within a column, in a dictionary."""
    body = [pa.array([f"{name} {row}" for row in range(40)]).dictionary_encode() for name in (word, other)]
    nested = pa.table({"in": pa.StructArray.from_arrays(body, ["text", "other"])})
    pyarrow.feather.write_feather(nested, str(path), compression="uncompressed")


TABLES = {"csv": write_csv, "parquet": write_parquet, "arrow": write_arrow, "feather": write_nested}


def one_table(kind: str) -> Callable[[World], None]:
    return lambda w: TABLES[kind](w.data / f"t.{kind}")


def rewritten_table(kind: str, **words: str) -> Callable[[World], None]:
    """The same table with other words of the same length; size and times are what they were."""

    def rewrite(w: World) -> None:
        path = w.data / f"t.{kind}"
        info = os.stat(path)
        TABLES[kind](path, **words)
        assert path.stat().st_size == info.st_size
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    return rewrite


def write(name: str, change: Callable[[bytes], bytes], keep_times: bool = False) -> Callable[[World], None]:
    """Change a file's bytes in place."""

    def rewrite(w: World) -> None:
        path = w.data / name
        info = os.stat(path)
        path.write_bytes(change(path.read_bytes()))
        if keep_times:
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    return rewrite


def other_word(data: bytes) -> bytes:
    assert b"text 1 of" in data
    return data.replace(b"text 1 of", b"text 7 of")


def replaced(name: str, change: Callable[[bytes], bytes]) -> Callable[[World], None]:
    """Another inode in its place, of the same size and date."""

    def replace(w: World) -> None:
        path, beside = w.data / name, w.root / "beside"
        info = os.stat(path)
        beside.write_bytes(change(path.read_bytes()))
        os.utime(beside, ns=(info.st_atime_ns, info.st_mtime_ns))
        os.replace(beside, path)

    return replace


def renamed(old: str, new: str) -> Callable[[World], None]:
    def rename(w: World) -> None:
        (w.data / new).parent.mkdir(exist_ok=True)
        os.rename(w.data / old, w.data / new)

    return rename


def added(name: str, data: bytes) -> Callable[[World], Any]:
    return lambda w: (w.data / name).write_bytes(data)


def swapped_contents(w: World) -> None:
    one, two = w.data / "f0.jsonl", w.data / "f1.jsonl"
    times = [os.stat(path) for path in (one, two)]
    first, second = one.read_bytes(), two.read_bytes()
    assert len(first) == len(second)
    one.write_bytes(second)
    two.write_bytes(first)
    for path, info in zip((one, two), times, strict=True):
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def swapped_names(w: World) -> None:
    os.rename(w.data / "f0.jsonl", w.root / "beside")
    os.rename(w.data / "f1.jsonl", w.data / "f0.jsonl")
    os.rename(w.root / "beside", w.data / "f1.jsonl")


def swapped_lines(w: World) -> None:
    lines = [(w.data / name).read_bytes().splitlines(keepends=True) for name in ("f0.jsonl", "f1.jsonl")]
    lines[0][1], lines[1][1] = lines[1][1], lines[0][1]
    for name, content in zip(("f0.jsonl", "f1.jsonl"), lines, strict=True):
        (w.data / name).write_bytes(b"".join(content))


def copied(w: World) -> None:
    shutil.copytree(w.data, w.root / "elsewhere" / "copy")
    for number, path in enumerate(sorted((w.root / "elsewhere" / "copy").iterdir())):
        os.utime(path, ns=(EPOCH, EPOCH + number))
    w.source = str(w.root / "elsewhere" / "copy")


def moved(w: World) -> None:
    os.rename(w.data, w.root / "moved")
    w.source = str(w.root / "moved")


def linked(make: Callable[[Path, Path], Any], ask: bool) -> Callable[[World], None]:
    def link(w: World) -> None:
        (w.root / "links").mkdir()
        for path in w.data.iterdir():
            make(path, w.root / "links" / path.name)
        if ask:
            w.source = str(w.root / "links")

    return link


def linked_file(w: World) -> None:
    jsonl_files(w)
    for number in range(2):
        (w.root / f"{number}").write_bytes(json_lines(number + 5))
        os.utime(w.root / f"{number}", ns=(EPOCH, EPOCH))
    os.symlink(w.root / "0", w.data / "link.jsonl")


def relinked(w: World) -> None:
    os.unlink(w.data / "link.jsonl")
    os.symlink(w.root / "1", w.data / "link.jsonl")


def linked_folder(w: World) -> None:
    os.symlink(w.data, w.root / "link")
    w.source = str(w.root / "link")


def asked(source: Callable[[World], Any]) -> Callable[[World], None]:
    def ask(w: World) -> None:
        w.source = source(w)

    return ask


def listed(w: World) -> str:
    (w.root / "files.list").write_text("\n".join(map(str, sorted(w.data.iterdir(), reverse=True))))
    return f"@{w.root / 'files.list'}"


def optioned(**options: Any) -> Callable[[World], None]:
    return lambda w: w.options.update(options)


def tokenizer(change: Callable[[dict[str, Any]], Any], **writing: Any) -> Callable[[World], None]:
    return lambda w: w.edit_tokenizer(change, **writing)


def swap_merges(body: dict[str, Any]) -> None:
    """Two merges near the start, which real text meets."""
    merges = body["model"]["merges"]
    merges[5], merges[6] = merges[6], merges[5]


def swap_merges_unseen(w: World) -> None:
    path = Path(w.tokenizer) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))), "utf-8")
    w.store, _ = w.build()
    info = path.stat()
    w.edit_tokenizer(swap_merges)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert path.stat().st_size == info.st_size


def add_token(body: dict[str, Any], **flags: Any) -> None:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    body["added_tokens"].append({"id": len(body["model"]["vocab"]), "content": "file", **usual, **flags})


def with_added_token(w: World) -> None:
    jsonl_files(w)
    w.edit_tokenizer(add_token)


def set_flag(name: str, value: bool) -> Callable[[dict[str, Any]], Any]:
    return lambda body: body["added_tokens"][-1].update({name: value})


def cut_and_pad(body: dict[str, Any]) -> None:
    body["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    body["padding"] = {
        "strategy": {"Fixed": 16},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }


def tokenizer_elsewhere(w: World) -> None:
    shutil.copytree(w.tokenizer, w.root / "another name")
    w.tokenizer = w.root / "another name"


def tokenizer_file(w: World) -> None:
    w.tokenizer = str(Path(w.tokenizer) / "tokenizer.json")


def tokenizer_object(w: World) -> None:
    w.tokenizer = tokenizers.Tokenizer.from_file(str(Path(w.tokenizer) / "tokenizer.json"))


def another_eos_in_config(w: World) -> None:
    (Path(w.tokenizer) / "tokenizer_config.json").write_text('{"eos_token": "!"}')


def packed(w: World) -> None:
    assert w.store is not None
    views = [tm.pack(w.store, length, strategy=name) for length, name in ((8, "concat"), (16, "best_fit"), (4, "pad"))]
    assert all(len(view) for view in views)


def recompressed(w: World) -> None:
    path = w.data / "f0.jsonl.gz"
    before = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(before), 1, mtime=7))
    assert path.read_bytes() != before


def nothing(w: World) -> None:
    pass


def in_environment(w: World) -> None:
    """The cache by its other name; see the test, which sets TOKENMILL_CACHE to the same folder."""
    w.options["cache_dir"] = None


def quarantine(store: tm.Store) -> list[tuple[str, int, str]]:
    return [(entry["file"], entry["row"], entry["reason"]) for entry in store.quarantine()]
