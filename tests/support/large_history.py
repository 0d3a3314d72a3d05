"""The log of a build of 24 hours, and a store of 10,000 small shards, made in seconds: what the page has to stay quick with."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from handmade_stores import as_tokens

import tokenmill as tm
from tokenmill import events
from tokenmill.building.reporting import EventLog
from tokenmill.demo_data import demo_tokenizer
from tokenmill.io.atomic import digest
from tokenmill.store.manifest import read_manifest, store_fingerprint
from tokenmill.store.shard import ShardWriter, content_digest
from tokenmill.store.sources import SOURCES, Sources

HOURS = 24
WORKERS = 64
SHARDS = 10_000
FILES = 100_000
FAILED = 1_000
GiB = 1 << 30


def write_large_history(folder: Path, ends_at: float, pid: int | None = None, *, is_finished: bool) -> Path:
    """events.jsonl as the real log writes it, thinned out as usual. `ends_at` is the time of the last event.

    One worker in a hundred shards is replaced, and one in five hundred dies.
    """
    seconds = HOURS * 3600
    now = ends_at - seconds
    log = EventLog(folder / "events.jsonl", clock=lambda: now)
    draw = random.Random(7)
    log(events.Begun(folder=str(folder), pid=pid or os.getpid(), host=socket.gethostname()))
    log(events.Explained(reasons=["first build of these inputs"]))
    log(_planned())
    log(events.Started(source_bytes=500 * GiB))
    workers = list(range(1000, 1000 + WORKERS))
    shards = failed = 0
    for second in range(seconds):
        now = ends_at - seconds + second
        while shards < SHARDS * (second + 1) // seconds:
            shards += 1
            place = draw.randrange(WORKERS)
            log(_shard(shards, workers[place], draw))
            if shards % 100 == 0:
                is_dead = shards % 500 == 0
                pid_then, workers[place] = workers[place], max(workers) + 1
                log(
                    events.WorkerDied(pid=pid_then, code=-9, at=(10, 20))
                    if is_dead
                    else events.WorkerRecycled(pid=pid_then)
                )
        while failed < FAILED * (second + 1) // seconds:
            failed += 1
            name = f"corpus/broken-{failed:04}.parquet"
            log(events.FileFailed(file=name, error=f"{name}: not a parquet file"))
        log(_progress(second + 1, seconds, shards, failed, draw))
    if is_finished:
        log(_finished(seconds))
    log.close()
    return folder


def _planned() -> events.Planned:
    return events.Planned(
        files=FILES, streams=0, source_bytes=500 * GiB, ignored={}, shards=SHARDS, done=0, linked=0, tasks=SHARDS,
        tokenizer="demo", vocab_size=8192, dtype="uint16", eos="<|endoftext|>", engine="gigatoken 0.10.0",
        proof="equal to the reference", workers=f"{WORKERS} workers",
    )  # fmt: skip


def _shard(number: int, pid: int, draw: random.Random) -> events.ShardDone:
    busy = draw.uniform(100, 500)
    seconds = events.StageSeconds(
        read=0.1 * busy, parse=0.1 * busy, encode=0.7 * busy, write=0.05 * busy, sync=0.05 * busy
    )
    reasons = {"invalid JSON": 3, "empty": 1} if number % 10 == 0 else {}
    return events.ShardDone(
        id=f"{number:032x}", documents=25_000, tokens=8_000_000, text_bytes=32 << 20, source_bytes=51 << 20,
        quarantined=sum(reasons.values()), reasons=reasons, pid=pid, seconds=seconds,
    )  # fmt: skip


def _progress(second: int, seconds: int, shards: int, failed: int, draw: random.Random) -> events.Progress:
    share = second / seconds
    rate = draw.uniform(3.5, 4.5) * (1 << 20)
    return events.Progress(
        seconds=float(second), source_bytes=int(500 * GiB * share), total_source_bytes=500 * GiB,
        text_bytes=int(310 * GiB * share), documents=int(250_000_000 * share), tokens=int(80_000_000_000 * share),
        source_bytes_per_second=1.6 * rate, text_bytes_per_second=rate, tokens_per_second=rate / 4,
        memory_bytes=int(draw.uniform(40, 60) * GiB), memory_budget=64 * GiB, workers=WORKERS, shards_done=shards,
        shards=SHARDS, failed_files=failed, quarantined=shards // 10 * 4, eta_seconds=float(seconds - second),
    )  # fmt: skip


def _finished(seconds: int) -> events.Finished:
    return events.Finished(
        seconds=float(seconds), setup_seconds=30.0, source_bytes=500 * GiB, documents=250_000_000,
        tokens=80_000_000_000, quarantined={"invalid JSON": 3000, "empty": 1000}, failed_files=FAILED,
        special_documents=0, special_tokens="parse", spot_checked=100_000, spot_check_seconds=500.0, fingerprint="f" * 32,
    )  # fmt: skip


def write_large_store(folder: Path, shards: int = SHARDS, files: int = FILES, failed: int = FAILED) -> Path:
    """A store of many small shards with its tokenizer: every file has two documents of some words."""
    source = folder.parent / "small"
    source.mkdir()
    (source / "one.txt").write_text("text")
    tm.build(source / "one.txt", demo_tokenizer(), out=folder, engine="reference", workers=0, progress="quiet")
    manifest = read_manifest(folder)
    vocabulary, draw = manifest.tokenizer["vocab_size"], np.random.default_rng(5)
    per_shard = files // shards
    receipts = []
    for number in range(shards):
        lengths = draw.integers(5, 60, 2 * per_shard)
        documents = np.split(draw.integers(256, vocabulary, lengths.sum()), np.cumsum(lengths)[:-1])
        receipts.append(_write_shard(folder, f"{number:032x}", documents, manifest.dtype))
    names = [f"corpus/{number // 1000:03}/part-{number:06}.jsonl" for number in range(shards * per_shard)]
    sources = Sources(names, [1] * len(names), [per_shard] * shards)
    (folder / SOURCES).write_bytes(sources.as_bytes())
    raw = [(folder / "shards" / f"{receipt['id']}.json").read_bytes() for receipt in receipts]
    documents, tokens = ([receipt[key] for receipt in receipts] for key in ("documents", "tokens"))
    replace(
        manifest,
        documents=sum(documents),
        tokens=sum(tokens),
        text_bytes=sum(receipt["text_bytes"] for receipt in receipts),
        source={**manifest.source, "files": len(names), "inputs": ["corpus"]},
        complete=not failed,
        failed=[
            {"file": f"corpus/broken-{number:04}.parquet", "error": "not a parquet file"} for number in range(failed)
        ],
        shard_ids=[receipt["id"] for receipt in receipts],
        shard_documents=documents,
        shard_tokens=tokens,
        row_starts=[0] * shards,
        receipts=[digest(one) for one in raw],
        files={SOURCES: digest((folder / SOURCES).read_bytes())},
        fingerprint=store_fingerprint(
            manifest.tokenizer["fingerprint"], [None, 0], manifest.dtype, [content_digest(each) for each in receipts]
        ),
    ).write(folder)
    return folder


def _write_shard(folder: Path, name: str, documents: list[Any], dtype: str) -> dict[str, Any]:
    """Two documents of each file."""
    writer = ShardWriter(folder / "shards", name, dtype)
    writer.append(as_tokens(documents, dtype))
    pairs = [documents[at : at + 2] for at in range(0, len(documents), 2)]
    pieces = [
        {
            "content": None,
            "rows": 2,
            "documents": 2,
            "tokens": sum(map(len, pair)),
            "text_bytes": 3 * sum(map(len, pair)),
        }
        for pair in pairs
    ]
    return writer.commit(pieces=pieces, text_bytes=sum(piece["text_bytes"] for piece in pieces))
