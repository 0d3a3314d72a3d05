"""What watching costs: the same build without a dashboard, with one that nobody looks at, and with one whose page is open.

The page is a client that reads the stream of the panel, as a browser does; what a browser spends on drawing is not counted. CPU
seconds are those of the builder, its workers and the process of the dashboard, until the build is over. That process starts when
the page is opened; if nobody opens it, when the build is over, and what it spends then, 0.2 s, is not counted. Rounds go through
all three in turns, in another order each time.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.corpus import saved_tokenizer, write_corpus
from benchmarks.harness import Result, against_bar, bar_lines, figure, machine_line, say
from tokenmill.building.machine import machine_facts
from tokenmill.store.manifest import read_manifest

PROCESS = "tokenmill.dashboard.following"
WAYS = ("no dashboard", "dashboard", "dashboard, page open")
BAR = 1.01  # times the seconds without


class Spent(NamedTuple):
    """Seconds of one build."""

    wall: float
    cpu: float  # of the builder and its workers
    dashboard_cpu: float
    events: int  # that the page has received

    @property
    def all_cpu(self) -> float:
        return self.cpu + self.dashboard_cpu


def measure_dashboard(work: Path, inputs: list[str], spec: str | None, size: int, rounds: int) -> Result:
    """Seconds of all three, over `size` bytes of text. The folder `work` is empty again afterwards."""
    load = os.getloadavg()[0]
    tokenizer = saved_tokenizer(spec, work / "tokenizer")
    say(f"writing {size / 1e6:.0f} MB of text")
    text_bytes = write_corpus(work / "corpus", inputs, size)
    spent: dict[str, list[Spent]] = {way: [] for way in WAYS}
    fingerprints: set[str] = set()
    try:
        for turn in range(-1, rounds):  # the first round tries out the engine, and fills the caches of the system
            say(f"round {turn + 1} of {rounds}" if turn >= 0 else "warming up")
            first = turn % len(WAYS)
            for way in (*WAYS[first:], *WAYS[:first]):
                one = _build(work, way)
                fingerprints.add(read_manifest(work / "store").fingerprint)
                shutil.rmtree(work / "store")
                if turn >= 0:
                    spent[way].append(one)
    finally:
        for name in ("corpus", "tokenizer", "cache", "store"):
            shutil.rmtree(work / name, ignore_errors=True)
    if len(fingerprints) != 1:
        raise RuntimeError(f"the stores differ: {fingerprints}")
    return {
        "machine": machine_facts(),
        "load": round(load, 2),
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids)",
        "text_bytes": text_bytes,
        "rounds": rounds,
        "runs": [{"what": way, **each._asdict()} for way, all_of_it in spent.items() for each in all_of_it],
        "bars": _bars(spent),
        "notes": ["CPU seconds are those of the builder, its workers and the dashboard's process together."],
    }


def _bars(spent: dict[str, list[Spent]]) -> list[Result]:
    bars = []
    for way in WAYS[1:]:
        for what in ("wall", "all_cpu"):
            name = f"{way}: {'wall-clock' if what == 'wall' else 'CPU'} seconds, times those without"
            without, with_it = ([getattr(each, what) for each in spent[key]] for key in (WAYS[0], way))
            ratios = [one / other for one, other in zip(with_it, without, strict=True)]
            bars.append(against_bar(f"{name}, best of each", min(with_it) / min(without), "x", "<=", BAR))
            bars.append(figure(f"{name}, median of the rounds", statistics.median(ratios), "x"))
        bars.append(
            figure(f"{way}: CPU seconds of its process", statistics.median(e.dashboard_cpu for e in spent[way]), "s")
        )
    return bars


def _build(work: Path, way: str) -> Spent:
    """What `tokenmill build` takes, in one of these ways."""
    command = [sys.executable, "-P", "-m", "tokenmill", "build", str(work / "corpus"), "-q"]
    command += ["-t", str(work / "tokenizer"), "-o", str(work / "store")]
    command += ["--dashboard"] if way != WAYS[0] else []
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENMILL_CACHE": str(work / "cache")}
    began = time.perf_counter()
    builder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    assert builder.stderr is not None
    page = _Page(builder.stderr.readline(), is_open=way == WAYS[2]) if way != WAYS[0] else None
    _, status, usage = os.wait4(builder.pid, 0)
    wall = time.perf_counter() - began
    builder.returncode = os.waitstatus_to_exitcode(status)
    dashboard_cpu = page.close() if page is not None else 0.0
    said = builder.stderr.read()
    builder.stderr.close()
    if builder.returncode:
        raise RuntimeError(f"{' '.join(command[3:])} failed: {said[-2000:]}")
    os.sync()  # the next run does not pay for what this one left to write
    return Spent(wall, usage.ru_utime + usage.ru_stime, dashboard_cpu, page.events if page is not None else 0)


class _Page:
    """What looks at a build: it reads the stream of the panel until it is closed, if it is open at all."""

    def __init__(self, said: str, *, is_open: bool) -> None:
        found = re.search(r"http://([^:]+):(\d+)/", said)
        if found is None:
            raise RuntimeError(f"no dashboard: {said}")
        self.events, self.port = 0, int(found[2])
        self.connection = http.client.HTTPConnection(found[1], int(found[2]))
        self.reader = threading.Thread(target=self._read, daemon=True)
        if is_open:
            self.reader.start()

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException, AttributeError, ValueError):  # closed while it reads
            self.connection.request("GET", "/live")
            for line in self.connection.getresponse():
                self.events += line.startswith(b"data:")

    def close(self) -> float:
        """Ends the process of the dashboard. Returns the CPU seconds it has spent for its page."""
        process = _server(self.port)
        times = process.cpu_times()
        process.kill()
        with suppress(psutil.TimeoutExpired):
            process.wait(5)
        if self.reader.ident is None:  # nobody has looked
            return 0.0
        self.reader.join()
        self.connection.close()
        return float(times.user + times.system)


def _server(port: int) -> psutil.Process:
    """The process of its own that shows the build."""
    for process in psutil.process_iter(["cmdline"]):
        if PROCESS in (process.info["cmdline"] or []):
            with suppress(psutil.Error):
                if port in [each.laddr.port for each in process.net_connections()]:
                    return process
    raise RuntimeError(f"no process serves port {port}")


def dashboard_table(result: Result) -> str:
    """The figures as text."""
    lines = [
        machine_line(result),
        f"{result['text_bytes'] / 1e6:.0f} MB of text; {result['tokenizer']}; {result['rounds']} rounds;"
        f" load {result['load']} at the start",
        "",
        f"{'build':<24}{'wall':>10}{'CPU of build':>14}{'of dashboard':>14}{'updates':>9}",
    ]
    lines += [
        f"{run['what']:<24}{run['wall']:>8.2f} s{run['cpu']:>12.2f} s{run['dashboard_cpu']:>12.2f} s{run['events']:>9}"
        for run in result["runs"]
    ]
    return "\n".join([*lines, *bar_lines(result)])
