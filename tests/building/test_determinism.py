"""The same input gives the same bytes, whatever else is different: everything that must not matter is changed here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tokenmill as tm

BUILD = """
import sys, tokenmill as tm
tm.build(tm.read(*sys.argv[3:]), sys.argv[1], sys.argv[2], shard_bytes="4KB", workers=int({workers}), engine="reference",
         progress="quiet")
"""
# Files of a store that say how and when it was built.
OWN_STORY = {"events.jsonl", "seen.json", "listing.json", ".lock"}


def write_files(folder: Path, names: list[str]) -> None:
    """Files with text of their own, in the order of their names, with a broken row each."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        number = sorted(NAMES).index(name)
        rows = [json.dumps({"text": f"row {i} of {number} ı İ é {'words ' * (i % 7)}"}) for i in range(60)]
        rows[5] = "{broken"
        path.write_text("\n".join(rows) + "\n", "utf-8")


NAMES = ["b/2.jsonl", "a/1.jsonl", "a/Ä.jsonl", "a/z.jsonl", "a/Z.jsonl", "c.jsonl", "b/10.jsonl"]


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    write_files(folder, NAMES)
    (folder / "d").symlink_to("b")
    return folder


def contents(store: Path) -> dict[str, bytes]:
    """The files of a store that depend on nothing but its input."""
    files = {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}
    kept = {name: raw for name, raw in files.items() if name not in OWN_STORY and not name.startswith("seen.")}
    kept["manifest.json"] = b"\n".join(
        line for line in kept["manifest.json"].splitlines() if not line.startswith((b'"source"', b'"checksum"'))
    )
    return kept


def built(out: Path, *inputs: object, tokenizer: Path, workers: int = 0, prefix: tuple[str, ...] = (), **how) -> dict:
    code = BUILD.format(workers=workers)
    command = [*prefix, sys.executable, "-c", code, str(tokenizer), str(out), *map(str, inputs)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, **how)
    assert ran.returncode == 0, ran.stderr
    return contents(out)


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory, tokenizer_path) -> Path:
    return Path(shutil.copytree(tokenizer_path, tmp_path_factory.mktemp("tokenizer") / "one"))


@pytest.fixture
def expected(data, plain_tokenizer, tmp_path) -> dict[str, bytes]:
    store = tm.build(
        data, plain_tokenizer, tmp_path / "expected", shard_bytes="4KB", workers=0, engine="reference", progress="quiet"
    )
    assert store.num_shards > 5
    assert sum(store._manifest.quarantined.values()) == len(NAMES)
    return contents(store.path)


ENVIRONMENTS: dict[str, dict[str, str]] = {
    "C locale": {"LC_ALL": "C", "LANG": "C"},
    "Turkish locale": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
    "far time zone": {"TZ": "Pacific/Kiritimati"},
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "hash seed 2": {"PYTHONHASHSEED": "2"},
    "another home and cache": {
        "HOME": "/nonexistent",
        "TOKENMILL_CACHE": "elsewhere",
        "XDG_CACHE_HOME": "/nonexistent",
    },
    "threads": {"RAYON_NUM_THREADS": "3", "OMP_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true"},
    "no bytecode, optimized": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONOPTIMIZE": "1"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments(data, expected, plain_tokenizer, tmp_path, name):
    changed = ENVIRONMENTS[name]
    if changed.get("TOKENMILL_CACHE"):
        changed = {**changed, "TOKENMILL_CACHE": str(tmp_path / "elsewhere")}
    assert built(tmp_path / "store", data, tokenizer=plain_tokenizer, env={**os.environ, **changed}) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_counts(data, expected, plain_tokenizer, tmp_path, workers):
    assert built(tmp_path / "store", data, tokenizer=plain_tokenizer, workers=workers) == expected


def test_one_core(data, expected, plain_tokenizer, tmp_path):
    one = {min(os.sched_getaffinity(0))}
    how = {"preexec_fn": lambda: os.sched_setaffinity(0, one)}
    assert built(tmp_path / "store", data, tokenizer=plain_tokenizer, **how) == expected


def test_umask(data, expected, plain_tokenizer, tmp_path):
    for mask in (0o077, 0o000):
        assert built(tmp_path / f"{mask}", data, tokenizer=plain_tokenizer, umask=mask) == expected


def test_other_owners_and_modes(data, expected, plain_tokenizer, tmp_path):
    """Files of somebody else, that may only be read."""
    for path in data.rglob("*.jsonl"):
        path.chmod(0o444)
        if os.geteuid() == 0:
            shutil.chown(path, 65534, 65534)
    assert built(tmp_path / "store", data, tokenizer=plain_tokenizer) == expected


ORDERS: dict[str, Callable[[Path], list[Path]]] = {
    "folders": lambda data: [data / "c.jsonl", data / "b", data / "a"],
    "files": lambda data: [data / name for name in sorted(NAMES, reverse=True)],
    "twice": lambda data: [data / "b", data, data / "b"],
    "with dots": lambda data: [data / "a" / ".." / "c.jsonl", data / "b" / "." / "..", data / "a"],
}


@pytest.mark.filterwarnings("ignore:given more than once")
@pytest.mark.parametrize("order", ORDERS)
def test_order_and_spelling_of_inputs(data, expected, plain_tokenizer, tmp_path, order):
    inputs = ORDERS[order](data)
    store = tm.build(
        tm.read(*inputs), plain_tokenizer, tmp_path / "store", shard_bytes="4KB", workers=0, engine="reference",
        progress="quiet",
    )  # fmt: skip
    assert contents(store.path) == expected


def test_another_working_folder(data, expected, plain_tokenizer, tmp_path):
    assert built(tmp_path / "store", "../data", tokenizer=plain_tokenizer, cwd=data.parent / "data") == expected


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_inodes_dates_and_the_order_of_creation(data, expected, plain_tokenizer, tmp_path, order):
    """The same tree, written again in another order: other inodes, other dates, another order in its folders."""
    before = {path: path.stat().st_ino for path in data.rglob("*.jsonl")}
    shutil.rmtree(data)
    (data / "b").mkdir(parents=True)
    if order == "backwards":
        (data / "d").symlink_to("b")
    write_files(data, sorted(NAMES, reverse=order == "backwards"))
    if order == "forwards":
        (data / "d").symlink_to("b")
    for path in data.rglob("*.jsonl"):
        os.utime(path, (1, 1))
    assert {path: path.stat().st_ino for path in data.rglob("*.jsonl")} != before or order == "forwards"
    store = tm.build(
        data, plain_tokenizer, tmp_path / "store", shard_bytes="4KB", workers=0, engine="reference", progress="quiet"
    )
    assert contents(store.path) == expected


def test_hard_links_and_copies(data, expected, plain_tokenizer, tmp_path):
    """A file that has another name elsewhere is the same file."""
    for number, name in enumerate(NAMES):
        os.link(data / name, tmp_path / f"{number}.link")
    store = tm.build(
        data, plain_tokenizer, tmp_path / "store", shard_bytes="4KB", workers=0, engine="reference", progress="quiet"
    )
    assert contents(store.path) == expected
