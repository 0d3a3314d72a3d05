"""A streaming dataset is read on from where a killed build was, if its states allow that; else from its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import datasets
import pytest
from build_helpers import shard_files

import tokenmill as tm
from tokenmill.building.stream_progress import FILE
from tokenmill.errors import InputError
from tokenmill.reading import spool

OPTIONS = {"engine": "reference", "shard_bytes": "1KiB", "workers": 0, "progress": "quiet"}
SHARDS, ROWS, BATCH = 6, 100, 50
CODE = f"""
import os, datasets
pulled = []
def rows(shards):
    for shard in shards:
        for i in range({ROWS}):
            if os.environ.get("STOP_AT") == f"{{shard}} {{i}}":
                if os.environ["STOP_BY"] == "kill":
                    os._exit(9)
                raise ConnectionError("the line is dead")
            pulled.append((shard, i))
            yield {{"text": f"text {{i}} of {{shard}}, {{'word ' * (10 + i % 7)}}"}}
def dataset():
    return datasets.IterableDataset.from_generator(rows, gen_kwargs={{"shards": list(range({SHARDS}))}})
"""


@pytest.fixture
def pulls(tmp_path, monkeypatch) -> Iterator[Any]:
    """A module with a dataset of six shards, and the list of rows that were asked for."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/rows_to_pull.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setattr(spool, "BATCH_ROWS", BATCH)
    import rows_to_pull

    yield rows_to_pull
    del sys.modules["rows_to_pull"]


@pytest.fixture
def stopped(tmp_path, tokenizer_path, monkeypatch):
    """Build a dataset that breaks off in its fifth shard."""

    def build(dataset: datasets.IterableDataset, **options: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("STOP_AT", "4 80")
            patch.setenv("STOP_BY", "error")
            with pytest.raises(InputError, match="broke off"):
                tm.build(dataset, tokenizer_path, tmp_path / "store", **{**OPTIONS, **options})

    return build


@pytest.mark.stress
def test_killed_and_repeated(pulls, tmp_path, tokenizer_path):
    """The shards of the dataset that are encoded are not read again, and the store is that of an undisturbed build."""
    code = f"""
import sys, tokenmill as tm, rows_to_pull
from tokenmill.reading import spool
spool.BATCH_ROWS = {BATCH}
tm.build(rows_to_pull.dataset(), sys.argv[1], sys.argv[2], **{OPTIONS})
"""
    path = os.pathsep.join([str(tmp_path / "modules"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "STOP_AT": "4 80", "STOP_BY": "kill"}
    command = [sys.executable, "-c", code, str(tokenizer_path), str(tmp_path / "store")]
    assert subprocess.run(command, env=environment, timeout=60).returncode == 9
    store = tm.build(pulls.dataset(), tokenizer_path, tmp_path / "store", **OPTIONS)
    assert {shard for shard, _ in pulls.pulled} == {3, 4, 5}
    assert len(pulls.pulled) <= 3 * ROWS
    whole = tm.build(pulls.dataset(), tokenizer_path, tmp_path / "whole", **OPTIONS)
    assert store.fingerprint == whole.fingerprint
    assert shard_files(tmp_path / "store") == shard_files(tmp_path / "whole")
    assert store._manifest.source == whole._manifest.source
    assert store._manifest.source_bytes == whole._manifest.source_bytes
    assert [store.locate(i) for i in (0, 300, 599)] == [whole.locate(i) for i in (0, 300, 599)]
    assert not (tmp_path / "store" / FILE).exists()


def test_stopped_twice(pulls, stopped, tmp_path, tokenizer_path):
    """The same without a process of its own."""
    stopped(pulls.dataset())
    stopped(pulls.dataset())
    pulls.pulled.clear()
    store = tm.build(pulls.dataset(), tokenizer_path, tmp_path / "store", **OPTIONS)
    assert {shard for shard, _ in pulls.pulled} == {3, 4, 5}
    whole = tm.build(pulls.dataset(), tokenizer_path, tmp_path / "whole", **OPTIONS)
    assert store.fingerprint == whole.fingerprint
    assert store._manifest.source_bytes == whole._manifest.source_bytes
    assert store.verify() == []


def test_a_shuffle_buffer(pulls, stopped, tmp_path, tokenizer_path):
    """Its states lead to other rows, which is noticed: the dataset is read from its start."""
    stopped(pulls.dataset().shuffle(seed=3, buffer_size=100))
    store = tm.build(pulls.dataset().shuffle(seed=3, buffer_size=100), tokenizer_path, tmp_path / "store", **OPTIONS)
    whole = tm.build(pulls.dataset().shuffle(seed=3, buffer_size=100), tokenizer_path, tmp_path / "whole", **OPTIONS)
    assert store.fingerprint == whole.fingerprint


def shouted(row: dict[str, str]) -> dict[str, str]:
    return {"text": row["text"].replace("text 7 of 0", "TEXT 7 OF 0")}


def test_a_dataset_that_is_defined_otherwise(pulls, stopped, tmp_path, tokenizer_path):
    """A change of one of the first rows is not overlooked."""
    stopped(pulls.dataset())
    store = tm.build(pulls.dataset().map(shouted), tokenizer_path, tmp_path / "store", **OPTIONS)
    whole = tm.build(pulls.dataset().map(shouted), tokenizer_path, tmp_path / "whole", **OPTIONS)
    assert store.fingerprint == whole.fingerprint


@pytest.mark.parametrize("fault", ["not json", "no states", "not understood"])
def test_states_that_cannot_be_used(pulls, stopped, tmp_path, tokenizer_path, monkeypatch, fault):
    """All rows are asked for again, and the store is right."""

    def refuse(*_: Any) -> None:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        if fault == "not json":
            patch.setattr(datasets.IterableDataset, "state_dict", lambda self: {"at": {1, 2}})
        elif fault == "no states":
            patch.setattr(datasets.IterableDataset, "state_dict", refuse)
        else:
            patch.setattr(datasets.IterableDataset, "load_state_dict", refuse)
        stopped(pulls.dataset())
        pulls.pulled.clear()
        store = tm.build(pulls.dataset(), tokenizer_path, tmp_path / "store", **OPTIONS)
    assert len(pulls.pulled) == len(store) == SHARDS * ROWS
    assert store.verify() == []


def test_several_segments_in_a_batch(pulls, stopped, tmp_path, tokenizer_path):
    """States are after batches; a segment of fewer rows ends between two."""
    stopped(pulls.dataset())
    noted = [json.loads(line) for line in (tmp_path / "store" / FILE).read_text().splitlines()]
    assert noted[0]["resume"] is None
    assert noted[-1]["resume"]["row"] > noted[-1]["resume"]["state_row"] > 0
