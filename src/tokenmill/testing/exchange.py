"""The conformance suite of formats for tokens.

    class TestMegatron(ExchangeTests):
        format = "megatron"

        def documents(self, folder, part):
            ...

`documents` reads an export back without tokenmill, best with the format's own library.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.errors import TokenmillError
from tokenmill.exchange.api import export
from tokenmill.exchange.importing import import_tokens
from tokenmill.exchange.output import JOURNAL, RECEIPT
from tokenmill.exchange.registry import FORMATS
from tokenmill.io import disk
from tokenmill.store.store import Store

DEATHS, FEWER_DEATHS = 20, 4
PATIENCE = 20.0  # seconds
EOS = 7
LARGEST = {"uint16": 250, "uint32": 200_000}


def some_documents(largest: int, count: int = 300) -> list[list[int]]:
    """Documents of many lengths that end with eos, which is nowhere else in them."""
    draw = random.Random(largest)
    words = [number for number in range(largest) if number != EOS] if largest < 1000 else range(8, largest)
    return [[*draw.choices(words, k=draw.choice((0, 1, 2, 30, 500))), EOS] for _ in range(count)]


def make_store(folder: Path, documents: list[list[int]], dtype: str, shard_tokens: int = 3000) -> Store:
    """A store of these documents, in many shards."""
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32()))})
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "tokens.parquet")
    tokenizer = "bytes" if dtype == "uint16" else None
    return import_tokens(
        folder / "tokens.parquet", folder / "store", tokenizer=tokenizer, eos=EOS, shard_tokens=shard_tokens
    )


def contents(folder: Path) -> dict[str, bytes]:
    """The files of an export, without what only tokenmill reads."""
    own = (RECEIPT, JOURNAL, ".lock")
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in own]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


class ExchangeTests:
    """Inherit from this class, set `format` and implement `documents`."""

    format: ClassVar[Any]  # its name
    dtypes: ClassVar[tuple[str, ...]] = ("uint16", "uint32")

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        """The documents of a part of an export, read without tokenmill. For a format without borders: one list."""
        raise NotImplementedError

    @pytest.fixture(scope="class", params=LARGEST)
    @classmethod
    def case(cls, request: Any, tmp_path_factory: Any) -> tuple[Store, list[list[int]], str]:
        dtype: str = request.param
        if dtype not in cls.dtypes:
            pytest.skip(f"{cls.format} has no ids of {dtype}")
        documents = some_documents(LARGEST[dtype])
        return make_store(tmp_path_factory.mktemp("case") / "made", documents, dtype), documents, dtype

    def _expected(self, documents: list[list[int]]) -> list[list[int]]:
        return documents if FORMATS[self.format].keeps_borders else [[i for each in documents for i in each]]

    def test_every_token_is_there(self, case: Any, tmp_path: Path) -> None:
        store, documents, dtype = case
        export(store, tmp_path / "out", format=self.format)
        assert self.documents(tmp_path / "out", "train", dtype) == self._expected(documents)

    def test_several_files(self, case: Any, tmp_path: Path) -> None:
        store, documents, dtype = case
        export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000)
        assert self.documents(tmp_path / "out", "train", dtype) == self._expected(documents)

    def test_back_again(self, case: Any, tmp_path: Path) -> None:
        """An export becomes the store it was."""
        store, documents, _ = case
        export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000)
        again = import_tokens(tmp_path / "out", tmp_path / "again")
        assert again.fingerprint == store.fingerprint
        assert [ids.tolist() for ids in again] == documents
        assert again.verify() == []
        assert again.tokenizer.eos_id == EOS

    def test_without_the_receipt(self, case: Any, tmp_path: Path) -> None:
        """As if another tool had written it: borders from the format, or from eos."""
        store, documents, dtype = case
        export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000)
        (tmp_path / "out" / RECEIPT).unlink()
        again = import_tokens(
            tmp_path / "out", tmp_path / "again", format=self.format, eos=EOS, dtype=self._dtype(dtype)
        )
        assert [ids.tolist() for ids in again] == documents

    def _dtype(self, dtype: str) -> Any:
        return dtype

    def test_splits(self, case: Any, tmp_path: Path) -> None:
        store, documents, dtype = case
        export(store, tmp_path / "out", format=self.format, shares="train=0.8,val=0.2")
        parts = [self.documents(tmp_path / "out", part, dtype) for part in ("train", "val")]
        assert all(parts)
        both = list(chain(*parts))
        assert sorted(chain(*both)) == sorted(chain(*documents))
        if FORMATS[self.format].keeps_borders:
            assert sorted(both) == sorted(documents)
            assert 0 < len(parts[1]) < len(parts[0])

    def test_once_is_enough(self, case: Any, tmp_path: Path) -> None:
        """The second time nothing is written; a file that was changed or lost is made again."""
        store, _, _ = case
        first = export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000)
        before = contents(tmp_path / "out")
        assert first.written == first.files == len(before)
        assert export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000).written == 0
        name = max(before, key=lambda name: len(before[name]))
        (tmp_path / "out" / name).write_bytes(b"")
        assert 0 < export(store, tmp_path / "out", format=self.format, tokens_per_file=10_000).written <= first.files
        assert contents(tmp_path / "out") == before

    def test_killed_at_any_moment(self, case: Any, tmp_path: Path) -> None:
        """What has its name is whole, and the next run makes what is missing: the same bytes."""
        store, _, dtype = case
        write = _exporter(store, self.format)
        write(tmp_path / "whole")
        right = contents(tmp_path / "whole")
        calls = count_calls(lambda: write(tmp_path / "counted"), tmp_path / "counted")
        draw = random.Random(0)
        deaths = DEATHS if dtype == "uint16" else FEWER_DEATHS
        for turn, moment in enumerate(sorted(draw.sample(range(1, calls + 1), min(deaths, calls)))):
            folder = tmp_path / str(turn)
            die_at(moment, partial(write, folder), folder)
            found = contents(folder) if folder.exists() else {}
            for name, raw in found.items():
                assert name.endswith(".tmp") or raw == right[name], (moment, name)
            write(folder)
            assert contents(folder) == right, moment
            assert (folder / RECEIPT).exists()

    def test_another_folder_is_left_alone(self, case: Any, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(TokenmillError, match="not empty"):
            export(case[0], tmp_path, format=self.format)
        assert contents(tmp_path) == {"mine.txt": b"mine"}


def _exporter(store: Store, format: Any) -> Callable[[Path], Any]:
    return lambda folder: export(store, folder, format=format, tokens_per_file=10_000)


def _hook(folder: Path, at: int) -> tuple[Callable[..., Any], list[int]]:
    count = [0]

    def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        path = getattr(arguments[0], "name", arguments[0])
        if str(path).startswith(str(folder)):
            count[0] += 1
            if count[0] == at:
                os._exit(9)
        return function(*arguments)

    return call, count


def count_calls(run: Callable[[], Any], folder: Path) -> int:
    """How many calls on files of the folder are made."""
    disk.hook, count = _hook(folder, -1)
    try:
        run()
    finally:
        disk.hook = None
    return count[0]


def die_at(moment: int, run: Callable[[], Any], folder: Path) -> None:
    """Run in a child process that ends at the given call on files of the folder.

    The child is a copy of a process that may have had other threads: if it waits for one of them, it is killed where it is.
    """
    child = os.fork()
    if not child:
        try:
            disk.hook, _ = _hook(folder, moment)
            run()
        finally:
            os._exit(0)
    until = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.002)


def flat_file(path: Path, dtype: str, skip: int = 0) -> list[int]:
    """The ids of a flat file, as numpy reads them."""
    ids: list[int] = np.memmap(path, dtype, "r", skip).tolist()
    return ids
