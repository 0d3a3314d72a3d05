"""Datasets on a Hub on this machine, for tests: files of them, and a process that takes that machine for the Hub."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import Hub, Repo, hub_server

from tokenmill.child_process import end_idle_children

TOKEN = "hf_aSecretThatNobodyMaySee"


def jsonl(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def parquet(*texts: str) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), out)
    return out.getvalue()


def corpus(part: int) -> bytes:
    """A file of some documents."""
    return jsonl(*(f"document {number} of part {part} " * 30 for number in range(20)))


def numbered(count: int) -> dict[str, bytes]:
    """Files of a dataset that fill about a shard each, with `shard_bytes=8 << 10`."""
    return {f"data/train-{number:05}-of-{count:05}.jsonl": corpus(number) for number in range(count)}


def publish(hub: Hub, name: str, files: dict[str, bytes], **facts: object) -> Repo:
    """A dataset on the Hub with one commit on main."""
    repo = hub.repos[f"datasets/{name}"] = Repo(**facts)
    repo.commit(files, "main")
    return repo


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """The same files in a local folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@contextmanager
def as_the_hub(hub: Hub, folder: Path) -> Iterator[None]:
    """This process takes a server for the Hub. It has no token, and the library does not wait before it tries again."""
    from huggingface_hub import constants

    end_idle_children()  # readers that were started with another address
    patch = pytest.MonkeyPatch()
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setenv("HF_ENDPOINT", hub.address)
    patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield
    finally:
        patch.undo()
        end_idle_children()


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """How long this process would have waited before it tried again. It does not."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture(scope="module")
def hub_of_module(tmp_path_factory) -> Iterator[Hub]:
    with hub_server({}) as server, as_the_hub(server, tmp_path_factory.mktemp("home")):
        yield server


@pytest.fixture(name="empty_hub")
def make_empty_hub(hub_of_module, tmp_path, monkeypatch) -> Hub:
    """A Hub without datasets, and an empty cache."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    hub_of_module.repos.clear()
    hub_of_module.trouble = lambda method, path: None
    hub_of_module.page = 1000
    hub_of_module.requests.clear()
    hub_of_module.tokens.clear()
    return hub_of_module
