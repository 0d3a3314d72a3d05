"""Memory stays where it was asked to stay, whatever the text does to an engine's caches."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from build_helpers import large_tokenizer, worker_processes

import tokenmill as tm
from tokenmill.building.machine import proportional_bytes, resident_bytes


class Peak:
    """The most memory this process's children held at one time, together and each."""

    together = 0
    largest = 0

    def look(self) -> None:
        sizes = [resident_bytes(child.pid) for child in worker_processes()]
        self.together = max(self.together, sum(sizes))
        self.largest = max([self.largest, *sizes])


@contextmanager
def watching() -> Iterator[Peak]:
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def diverse(tmp_path_factory) -> Path:
    """100 MB of made-up words, of which hardly one comes twice: each is new to an engine's caches."""
    folder = tmp_path_factory.mktemp("diverse")
    draw = random.Random(1)
    letters = bytes(97 + i % 26 for i in range(256))
    for number in range(4):
        with open(folder / f"{number}.jsonl", "w") as out:
            for _ in range(500):
                some = draw.randbytes(42_000).translate(letters).decode()
                out.write(json.dumps({"text": " ".join(some[i : i + 7] for i in range(0, len(some), 7))}) + "\n")
    assert sum(path.stat().st_size for path in folder.iterdir()) > 95e6
    return folder


@pytest.mark.stress
def test_the_budget_is_kept(diverse, tokenizer_path, tmp_path):
    """Workers told to stay within 600 MB together do, whatever the text does to the caches of their engines.

    A worker looks at itself after each block, and loads its engine anew when another block might take more than its share.
    """
    options = {"workers": 2, "engine": "gigatoken", "progress": "quiet"}
    with watching() as peak:
        small = tm.build(diverse, tokenizer_path, tmp_path / "small", memory="600MB", **options)
    assert peak.together > 100e6, "nobody was watched"
    assert peak.together < 600e6
    with watching() as free:
        large = tm.build(diverse, tokenizer_path, tmp_path / "free", memory="20GB", **options)
    assert free.together > 1.2 * peak.together, "this corpus does not make caches grow, and proves nothing"
    assert small.fingerprint == large.fingerprint


@pytest.mark.stress
def test_one_document_of_200_mb(tokenizer_path, tmp_path, real_texts):
    """A document far larger than memory allows is encoded in parts: a worker never holds it whole."""
    text = "\n".join(real_texts).encode()
    path = tmp_path / "one.txt"
    with open(path, "wb") as out:
        while out.tell() < 200e6:
            out.write(text)
    tokenizer = tm.load_tokenizer(tokenizer_path)
    tokenizer.choose_engine()  # a first proof takes more memory
    with watching() as peak:
        store = tm.build(path, tokenizer, tmp_path / "store", workers=1, memory="400MB", progress="quiet")
    assert len(store) == 1
    assert store[0][-1] == store.tokenizer.eos_id
    assert 50e6 < peak.largest < 450e6
    # The first part of it is what the first part alone would be, up to where the two differ: its last words.
    head = tokenizer.encode(text[:1_000_000].decode("utf-8", "ignore"))
    assert store[0][: len(head) - 10].tolist() == head[:-10]


def peak_of(command: list[str]) -> int:
    """The most memory, in MiB, that a command and all its processes held at one time. Pages they share count once."""
    peak = 0
    with psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as root:
        while root.poll() is None:
            with suppress(psutil.Error):
                pids = [root.pid, *(child.pid for child in root.children(recursive=True))]
                peak = max(peak, sum(map(proportional_bytes, pids)))
        assert root.returncode == 0, root.stderr.read()
    return peak >> 20


@pytest.mark.stress
def test_the_least_memory_of_a_tokenizer_is_kept(diverse, tmp_path, monkeypatch):
    """With all processes and all tables, also while its engine is proved, and with the reference: within 5%."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    large = large_tokenizer(tmp_path / "large.json", 100_000)
    lines = (diverse / "0.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(lines[:250]))
    build = [sys.executable, "-m", "tokenmill", "build", str(tmp_path / "some.jsonl"), "-t", str(large), "-o"]
    accepted = []
    for turn, options in enumerate(([], [], ["--engine", "reference"])):  # the second knows that the engine is right
        command = [*build, str(tmp_path / f"store{turn}"), "--quiet", "--workers", "1", *options, "--memory"]
        refused = subprocess.run([*command, "336MiB"], capture_output=True, text=True)
        assert refused.returncode == 2
        least = int(re.search(r"it needs (\d+)MiB", refused.stderr)[1])
        assert peak_of([*command, f"{least}MiB"]) <= 1.05 * least
        accepted.append(least)
    assert accepted[0] > accepted[1]
