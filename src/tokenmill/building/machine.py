"""What this process may use of the machine: cores and memory, as CPU affinity and cgroups allow."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size

PARENT_BYTES = 80 << 20  # memory of the calling process itself
WORKER_BYTES = 256 << 20  # a worker with less would spend its time reloading the engine
BLOCK_MEMORY = 64 << 20  # memory that one block needs at least


def usable_cores() -> int:
    """Physical cores this process may run on; two hyperthreads of one core count once."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # only on Linux
        return max(1, os.cpu_count() or 1)
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(cpu))
    quota = _cpu_quota()
    return max(1, min(len(cores), int(quota + 0.5)) if quota else len(cores))


def available_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that are free, on the machine and within the limits of its container."""
    import psutil

    free = int(psutil.virtual_memory().available)
    for limit_file, usage_file in (
        (cgroup / "memory.max", cgroup / "memory.current"),
        (cgroup / "memory" / "memory.limit_in_bytes", cgroup / "memory" / "memory.usage_in_bytes"),
    ):
        limit, usage = _number(limit_file), _number(usage_file)
        if limit is not None and usage is not None:
            cached = _inactive_files(limit_file.with_name("memory.stat"))
            free = min(free, max(0, limit - usage + cached))
    return free


class Needs(NamedTuple):
    """The most memory a tokenizer takes: in the calling process, in a worker, and in all while an engine is proved."""

    parent: int = PARENT_BYTES
    worker: int = WORKER_BYTES
    proof: int = 0


def needs_of(characters: int, *, by_reference: bool, is_unigram: bool, proof: bool, normalizes: bool) -> Needs:
    """By the characters of the tokenizer.json, who encodes, and whether an engine is proved before.

    Fitted to the peaks of ten real tokenizers of 0.5 to 12 million characters, with ordinary and with random text.
    """
    proved = (700 if normalizes else 480, 65) if proof else (0, 0)  # MiB, and bytes per character
    encodes = (420 if is_unigram else 256, 30) if by_reference else (200, 10)
    sizes = ((64, 12 if by_reference else 35), encodes, proved)
    return Needs(*((base << 20) + each * characters for base, each in sizes))


def worker_count(workers: int | str | None, cores: int) -> int:
    """A number of workers as it is given: itself, a share of the cores such as "80%", or None for all of them."""
    if isinstance(workers, str):
        return max(1, cores * int(workers.rstrip("%")) // 100)
    return cores if workers is None else workers


def share_out(workers: int | str | None, memory: str | int | None, needs: Needs | None = None) -> tuple[int, int]:
    """The number of workers and the bytes each may use. Little memory means fewer workers, but at least one.

    With `needs` of a tokenizer, less `memory` than that raises UsageError.
    """
    budget = parse_size(memory, "memory") if memory is not None else available_memory() // 2
    if needs is not None:
        work = max(needs.parent + needs.worker, PARENT_BYTES + WORKER_BYTES)
        if budget < max(work, needs.proof):
            once = f"{_mib(needs.proof)} once, to prove its fast engine, then " if needs.proof > work else ""
            raise UsageError(f"memory={memory} is too little for this tokenizer: it needs {once}{_mib(work)}")
    needs = needs or Needs()
    budget -= needs.parent
    count = max(1, min(worker_count(workers, usable_cores()), budget // max(WORKER_BYTES, needs.worker)))
    return count, max(budget // count, min(WORKER_BYTES, needs.worker))


def _mib(size: int) -> str:
    return f"{-(-size >> 20)}MiB"


def reload_at(share: int) -> int:
    """The memory from which on a worker reloads its engine, so that its share is enough for another block. The caches of an
    engine double when they are full: a block of words that are all new adds two fifths."""
    return share - max(BLOCK_MEMORY, share * 2 // 5)


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process; 0 if it does not exist."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import psutil

        try:
            return int(psutil.Process(None if pid == "self" else int(pid)).memory_info().rss)
        except psutil.Error:
            return 0


def thread_count() -> int:
    """Threads of this process; on Linux only."""
    return len(os.listdir("/proc/self/task"))


def proportional_bytes(pid: int) -> int:
    """Memory of a process, a page that it shares with others counted in parts. 0 if it does not exist."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return resident_bytes(pid)


def machine_facts() -> dict[str, Any]:
    """What figures depend on: processor, cores, memory, system, and versions."""
    import platform
    from importlib.metadata import version

    import psutil

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return {
        "cpu": model,
        "cores": usable_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("tokenmill", "gigatoken", "tokenizers", "pyarrow", "numpy")},
    }


def release_memory() -> None:
    """Return free memory of the allocators to the system. Costs page faults, so not for every task."""
    import ctypes

    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only in glibc
        ctypes.CDLL(None).malloc_trim(0)


def _cpu_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    period_us = _number("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _inactive_files(path: Path) -> int:
    """Bytes of page cache, which the kernel drops when memory is needed."""
    try:
        facts = dict(line.split() for line in path.read_text().splitlines())
        return int(facts.get("total_inactive_file") or facts["inactive_file"])
    except (OSError, ValueError, KeyError):
        return 0


def _number(path: str | Path) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
