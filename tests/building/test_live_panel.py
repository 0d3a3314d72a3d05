"""The live view of a build: what it shows, in 80 columns, and what it leaves behind."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tokenmill import events
from tokenmill.building.live_panel import LivePanel
from tokenmill.formatting import in_short

PROGRESS = events.Progress(
    seconds=12.0,
    source_bytes=600_000_000,
    total_source_bytes=1_000_000_000,
    text_bytes=590_000_000,
    documents=123_456,
    tokens=150_000_000,
    source_bytes_per_second=5e7,
    text_bytes_per_second=4.9e7,
    tokens_per_second=1.25e7,
    memory_bytes=800 << 20,
    memory_budget=4 << 30,
    workers=2,
    shards_done=19,
    shards=32,
    failed_files=1,
    quarantined=7,
    eta_seconds=8.0,
)


def shard(pid: int, **seconds: float) -> events.ShardDone:
    stages = events.StageSeconds(**seconds)
    return events.ShardDone(
        id="s", documents=1, tokens=1, text_bytes=32_000_000, source_bytes=1, quarantined=0, pid=pid, seconds=stages
    )


@pytest.fixture
def shown(monkeypatch):
    """What a terminal of 80 columns shows of a build, as plain lines."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show(progress: events.Progress, shards: list[events.ShardDone], total: int = 1_000_000_000) -> list[str]:
        out = io.StringIO()
        panel = LivePanel(Console(file=out, force_terminal=True, width=80, height=40), total)
        for one in shards:
            panel.add_shard(one)
        panel.show(progress)
        out.truncate(0)
        out.seek(0)
        panel.show(progress)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "")
        panel.close()
        return text.splitlines()

    return show


def test_a_build_with_two_workers(shown):
    lines = shown(PROGRESS, [shard(4711, encode=0.3, read=0.1), shard(4712, encode=0.5), shard(4711, encode=0.3)])
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("━━━")
    assert lines[0].rstrip().endswith("60% of 1.0 GB, 8 s left")
    assert lines[1].startswith("1 file failed   49.0 MB/s of text   12.5 Mtok/s   123,456 documents   19 of")
    assert lines[2].startswith("memory 838.9 MB of 4.3 GB   CPU-bound: 92% of the time in encode")
    assert lines[3].strip() == "worker 4711   2 shards   91.4 MB/s   86% encoding, 14% reading"
    assert lines[4].strip() == "worker 4712   1 shard   64.0 MB/s   100% encoding"


def test_one_worker_needs_no_line_of_its_own(shown):
    assert len(shown(PROGRESS, [shard(1, encode=1.0)])) == 3


def test_many_workers(shown):
    lines = shown(PROGRESS, [shard(pid, encode=1.0) for pid in range(20)])
    assert lines[-1].strip() == "and 12 more workers"
    assert len(lines) == 3 + 8 + 1


def test_a_stream_has_no_end_in_sight(shown):
    lines = shown(replace(PROGRESS, total_source_bytes=0, shards=0, eta_seconds=None), [], total=0)
    assert lines[0].rstrip().endswith("600.0 MB, 12 s")


def test_it_leaves_nothing_behind(monkeypatch):
    """And has no colour if NO_COLOR is set."""
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    panel = LivePanel(Console(file=out, force_terminal=True, width=80), 1_000_000_000)
    panel.show(PROGRESS)
    panel.close()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", out.getvalue())
    assert out.getvalue().endswith("\x1b[?25h") or "\x1b[2K" in out.getvalue()


def test_a_proof_in_short():
    long = "proved to give the ids of tokenizers 1.0: the properties of 9 characters compared; documents with 3 are left to it"
    assert in_short(long) == "proved to give the ids of tokenizers 1.0"
    assert in_short("it is the reference; refused: gigatoken differs") == "it is the reference"
