"""What Ray costs on one machine: the same build with workers of this machine and with workers of a Ray cluster on it.

The text is real, in JSON lines, all of it different: what is repeated gets other first words. Builds are run by the command
line, each in a new process, into a new folder, with as many workers and the same engine. The cluster is running before the
clock starts, as a cluster is; connecting to it counts. Rounds go through both in turns, the first of a round in turns too.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.corpus import saved_tokenizer, write_corpus
from benchmarks.harness import Result, against_bar, bar_lines, figure, machine_line, say
from tokenmill.building.machine import machine_facts, usable_cores
from tokenmill.store.manifest import read_manifest

PORT = 6397
START_SECONDS = 60.0
BAR = 1.1  # times the seconds of local workers


def measure_ray_overhead(
    work: Path, inputs: list[str], spec: str | None, size: int, rounds: int, *, engine: str = "gigatoken"
) -> Result:
    """Seconds of both, over `size` bytes of text. Needs Ray. The folder `work` is empty again afterwards."""
    load = os.getloadavg()[0]
    tokenizer = saved_tokenizer(spec, work / "tokenizer")
    say(f"writing {size / 1e6:.0f} MB of text")
    text_bytes = write_corpus(work / "corpus", inputs, size)
    workers = usable_cores()
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    fingerprints: set[str] = set()
    cluster = _start_cluster(workers)
    try:
        for turn in range(-1, rounds):  # the first round tries out the engine, and fills the caches of the system
            say(f"round {turn + 1} of {rounds}" if turn >= 0 else "warming up")
            for backend in ("local", "ray") if turn % 2 else ("ray", "local"):
                spent = _build(work, backend, workers, engine)
                fingerprints.add(read_manifest(work / "store").fingerprint)
                shutil.rmtree(work / "store")
                if turn >= 0:
                    seconds[backend].append(spent)
    finally:
        cluster.terminate()  # `ray stop` would stop other clusters of this machine, too
        cluster.wait()
        for name in ("corpus", "tokenizer", "cache", "store"):
            shutil.rmtree(work / name, ignore_errors=True)
    if len(fingerprints) != 1:
        raise RuntimeError(f"the stores differ: {fingerprints}")
    ratios = [ray / local for ray, local in zip(seconds["ray"], seconds["local"], strict=True)]
    return {
        "machine": machine_facts(),
        "load": round(load, 2),
        "tokenizer": f"{tokenizer.name} ({tokenizer.vocab_size:,} ids)",
        "text_bytes": text_bytes,
        "workers": workers,
        "rounds": rounds,
        "runs": [{"what": backend, "seconds": spent} for backend, spent in seconds.items()],
        "bars": [
            against_bar("Ray / local, best of each", min(seconds["ray"]) / min(seconds["local"]), "x", "<=", BAR),
            figure("Ray / local, median of the rounds", statistics.median(ratios), "x"),
        ],
        "notes": ["Ratios of the rounds: " + ", ".join(f"{ratio:.2f}" for ratio in ratios) + "."],
    }


def _build(work: Path, backend: str, workers: int, engine: str) -> float:
    """The seconds of `tokenmill build`."""
    command = [sys.executable, "-P", "-m", "tokenmill.cli", "build", str(work / "corpus"), "-q"]
    command += ["-t", str(work / "tokenizer"), "-o", str(work / "store"), "--engine", engine]
    command += ["--workers", str(workers), "--backend", backend]
    command += ["--address", f"127.0.0.1:{PORT}"] if backend == "ray" else []
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENMILL_CACHE": str(work / "cache")}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[3:])} failed: {done.stderr[-2000:]}")
    os.sync()  # the next run does not pay for what this one left to write
    return seconds


def _start_cluster(workers: int) -> subprocess.Popen[bytes]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # the cluster of another user of Ray may have left a token
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={PORT}"]
    command += [f"--num-cpus={workers}", "--include-dashboard=false", "--disable-usage-stats"]
    cluster = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and cluster.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
            time.sleep(5)  # until its node is there, too
            return cluster
        time.sleep(0.2)
    cluster.kill()
    raise RuntimeError(f"the Ray cluster does not start: {' '.join(command[1:])}")


def ray_overhead_table(result: Result) -> str:
    """The figures as text."""
    lines = [
        machine_line(result),
        f"{result['text_bytes'] / 1e6:.0f} MB of text; {result['tokenizer']}; {result['workers']} workers;"
        f" {result['rounds']} rounds; load {result['load']} at the start",
        "",
    ]
    lines += [f"{run['what']:<10}" + "".join(f"{each:9.2f} s" for each in run["seconds"]) for run in result["runs"]]
    return "\n".join([*lines, *bar_lines(result)])
