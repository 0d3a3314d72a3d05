"""Helpers of the tests of builds: write a corpus, build in a cache, look at what a build left behind."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.demo_data import demo_tokenizer
from tokenmill.events import Event


def write_jsonl(path: Path, texts: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def write_random_words(folder: Path, lines: int) -> None:
    """Four files of so many lines of random words each, the same every time."""
    draw = random.Random(3)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    for number in range(4):
        write_jsonl(folder / f"{number}.jsonl", (" ".join(draw.choices(words, k=110)) for _ in range(lines)))


def large_tokenizer(path: Path, tokens: int) -> Path:
    """The shipped tokenizer with so many tokens, made by merging any two. Their names are in the tokenizer.json twice or more."""
    body, draw = json.loads((demo_tokenizer() / "tokenizer.json").read_bytes()), random.Random(1)
    vocabulary, merges = body["model"]["vocab"], body["model"]["merges"]
    names = [name for name in vocabulary if len(name) < 9]
    while len(vocabulary) < tokens:
        pair = draw.choices(names, k=2)
        if "".join(pair) not in vocabulary:
            vocabulary["".join(pair)] = len(vocabulary)
            merges.append(pair)
    path.write_text(json.dumps(body), "utf-8")
    return path


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> bool:
    """Poll until something holds; False if it never did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.005)
    return False


def shard_files(store: Path) -> dict[str, bytes]:
    """The content of each file of the shards."""
    return {path.name: path.read_bytes() for path in sorted((store / "shards").iterdir())}


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


def leftovers(cache: Path) -> list[str]:
    """Files of a cache that a finished build should have removed: temporary ones, spools, stores in progress, journals."""
    names = [path.relative_to(cache).as_posix() for path in cache.rglob("*")]
    entries = [name for name in names if name.startswith("builds/")]
    return [name for name in names if name.endswith(".tmp")] + [
        name for name in entries if "spool-" in name or name.endswith(("/store", ".jsonl"))
    ]


class CachedBuilds:
    """Builds in one cache, or in a folder. Counts the documents that the last build encoded and the bytes it read for that."""

    def __init__(self, cache: Path, tokenizer: Path, **options: Any) -> None:
        self.cache, self.tokenizer = cache, tokenizer
        self.options = {"engine": "reference", "workers": 0, **options}
        self.documents = self.read = 0

    def __call__(self, source: Any, out: Path | None = None, **options: Any) -> tm.Store:
        self.documents = self.read = 0
        where = {} if out else {"cache_dir": self.cache}
        options = {"tokenizer": self.tokenizer, **self.options, **where, **options}
        return tm.build(source, out=out, progress=self.listen, **options)

    def listen(self, event: Event) -> None:
        if event.name == "progress":  # the counts of this build so far
            self.documents, self.read = event.documents, event.source_bytes

    @property
    def stores(self) -> list[Path]:
        return sorted((self.cache / "stores").iterdir())

    @property
    def store_names(self) -> list[str]:
        return [path.name for path in self.stores]

    @property
    def entries(self) -> list[Path]:
        return sorted((self.cache / "builds").iterdir())

    def leftovers(self) -> list[str]:
        return leftovers(self.cache)

    def command(self, *words: str) -> int:
        """The exit code of `tokenmill cache ...` on this cache."""
        return main(["cache", *words, "--cache-dir", str(self.cache)])


TEMPLATE = "tokenmill.building.executors.worker_template"


def worker_processes() -> list[psutil.Process]:
    """The workers of this process: forked from a template, or processes of their own."""
    workers = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            parent = child.parent()
            is_forked = parent is not None and TEMPLATE in parent.cmdline()
            if is_forked or "tokenmill.building.executors.worker" in child.cmdline():
                workers.append(child)
    return workers


def what_it_says(store: Path) -> dict[str, object]:
    """The manifest, but for the engine: engines may have been proved between two builds."""
    body = json.loads((store / "manifest.json").read_bytes())
    for name in ("engine", "engine_version", "proof"):
        del body["tokenizer"][name]
    return {name: value for name, value in body.items() if name != "checksum"}
