"""What a build may use of the machine: sizes as people write them, cores as the kernel allows, memory as asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from build_helpers import large_tokenizer
from hypothesis import given
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.building.machine import (
    PARENT_BYTES,
    WORKER_BYTES,
    Needs,
    available_memory,
    needs_of,
    resident_bytes,
    share_out,
    usable_cores,
    worker_count,
)
from tokenmill.cli import main
from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size
from tokenmill.option_types import declared
from tokenmill.options import LEAST_MEMORY, RunOptions


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1),
        (10**15, 10**15),
        ("1000000", 10**6),
        ("64MB", 64_000_000),
        ("64mb", 64_000_000),
        ("64 MB", 64_000_000),
        ("  64MB  ", 64_000_000),
        ("64M", 64_000_000),
        ("1k", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("1.5GiB", 3 << 29),
        ("0.5MB", 500_000),
        ("4GB", 4 * 10**9),
        ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40),
        ("300b", 300),
    ],
)
def test_sizes(written, size):
    """Decimal units, binary units, in any case, with or without a space."""
    assert parse_size(written, "memory") == size


@pytest.mark.parametrize("number", ["1", "100", "999999"])
def test_a_small_number_without_a_unit(number):
    """Nobody means 100 bytes. The message has what is meant."""
    remedy = (
        f"memory='{number}' has no unit: {number} means {number} bytes; write {number}MB or {number}GB, or {number}B"
    )
    with pytest.raises(UsageError, match=remedy):
        parse_size(number, "memory")
    assert parse_size(f"{number}B", "memory") == parse_size(int(number), "memory") == int(number)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "MB",
        "lots",
        "-1",
        "-64MB",
        "0",
        "0MB",
        "1.2.3MB",
        "1e6",
        "64XB",
        "64MBit",
        "1,000",
        "½GB",
        "0.5",
        "0.0004KB",
        0,
        -5,
        True,
        None,
    ],
)
def test_what_is_not_a_size(written):
    """A usage error names the option, what was given, and how to write it."""
    with pytest.raises(UsageError) as caught:
        parse_size(written, "shard_bytes")
    assert f"shard_bytes={written!r}" in str(caught.value)
    assert "64MB" in str(caught.value)


@given(st.integers(1, 10**9), st.sampled_from(["b", "kb", "MB", "GiB"]))
def test_whole_numbers_are_exact(number, unit):
    """A whole number of any unit loses nothing."""
    factor = {"b": 1, "kb": 10**3, "MB": 10**6, "GiB": 1 << 30}[unit]
    assert parse_size(f"{number}{unit}", "memory") == number * factor


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_usage_error(text):
    """Nothing else ever comes out."""
    try:
        assert parse_size(text, "memory") > 0
    except UsageError:
        pass


def test_cores_follow_the_affinity():
    """A process pinned to one core uses one, however many the machine has."""
    script = """
import os
import re
from tokenmill.building.machine import share_out, usable_cores
before = usable_cores()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(before, usable_cores(), share_out(None, "64GB")[0])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    before, pinned, workers = map(int, ran.stdout.split())
    assert 1 <= before <= len(os.sched_getaffinity(0))
    assert pinned == workers == 1


@pytest.mark.parametrize("memory", ["1MB", "100MB", "600MB", "1GB", "10GB", "1TB"])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_memory_is_shared_out(workers, memory):
    """Never more workers than asked for, at least one, and together within the budget where one worker fits in it."""
    count, share = share_out(workers, memory)
    budget = parse_size(memory, "memory")
    assert 1 <= count <= workers
    assert share > 0
    if count > 1:
        assert count * share <= budget
    fewer, less = share_out(workers, max(1, budget // 4))
    assert fewer <= count
    assert less <= share or fewer < count


def test_little_memory_means_fewer_workers():
    """Workers too small to be of use are not started."""
    assert share_out(16, "1GB")[0] < share_out(16, "100GB")[0] == 16
    assert share_out(16, "1MB")[0] == 1


@pytest.mark.parametrize(
    ("workers", "cores", "count"),
    [
        (None, 10, 10),
        (3, 10, 3),
        (0, 10, 0),
        ("80%", 10, 8),
        ("80%", 2, 1),
        ("1%", 10, 1),
        ("100%", 3, 3),
        ("50%", 5, 2),
    ],
)
def test_workers_are_a_number_or_a_share_of_the_cores(workers, cores, count, monkeypatch):
    assert worker_count(workers, cores) == count
    monkeypatch.setattr("tokenmill.building.machine.usable_cores", lambda: cores)
    assert share_out(workers, "64GB")[0] == max(1, count)


@pytest.mark.parametrize("workers", ["0%", "101%", "8.5%", "80", "%", "-1", "auto", -1, 1.5])
def test_other_workers_are_refused(workers, capsys):
    remedy = "is not a whole number from 0 to 4096, or a share of the cores such as 80%; leave it out for one per core"
    with pytest.raises(UsageError, match=re.escape(f"workers={workers!r} {remedy}")):
        tm.build("x", "bytes", "y", workers=workers)
    with pytest.raises(UsageError, match=r"build\.workers: .* is not a whole number from 0 to 4096, or a share"):
        tm.recipe({"sources": {"a": "x"}, "tokenizer": "bytes", "pack": {"seq_len": 8}, "build": {"workers": workers}})


def test_a_share_of_the_cores_builds(tmp_path):
    """On the command line, in Python and in a recipe, with the same store."""
    (tmp_path / "a.txt").write_text("some words")
    command = ["build", str(tmp_path / "a.txt"), "-t", "bytes", "-o", str(tmp_path / "b"), "--workers", "50%", "-q"]
    assert main(command) == 0
    store = tm.build(tmp_path / "a.txt", "bytes", tmp_path / "c", workers="50%", progress="quiet")
    assert store.fingerprint == tm.open(tmp_path / "b").fingerprint
    source = {"sources": {"a": str(tmp_path / "a.txt")}, "tokenizer": "bytes", "pack": {"seq_len": 8}}
    assert tm.recipe(source, set=["build.workers=50%"]).config.build == {"workers": "50%"}


def test_without_options_the_machine_decides():
    """One worker a core, unless memory is short; about half of the free memory among them."""
    count, share = share_out(None, None)
    assert 1 <= count <= usable_cores()
    assert count * share <= max(available_memory(), 1 << 30)


def test_memory_is_a_usage_error_by_name():
    with pytest.raises(UsageError, match="memory='plenty'"):
        share_out(2, "plenty")


@pytest.mark.parametrize("memory", ["1MB", "335MiB", 2, 10**6])
def test_too_little_memory_is_refused_with_the_least(memory):
    """Less than one worker needs would be exceeded at once."""
    with pytest.raises(
        UsageError, match=f"memory={memory!r} is less than 336MiB, the least that works; write 336MiB or more"
    ):
        tm.build("x", "bytes", "y", memory=memory)


def test_the_least_memory_is_what_one_worker_needs():
    assert PARENT_BYTES + WORKER_BYTES == LEAST_MEMORY
    assert share_out(8, "336MiB") == share_out(1, LEAST_MEMORY) == (1, WORKER_BYTES)
    assert "at least 336MiB" in declared(RunOptions)["memory"].help_line


# Characters of the tokenizer.json, as it is kept; peaks of a build, in MiB: of the calling process and of a worker with a fast
# engine, of both with the reference, and of all processes while the fast engine is proved.
MEASURED = {
    "llama2": (1_236_764, False, (89, 230), (49, 272), 371),
    "gpt2": (1_483_633, False, (97, 211), (62, 304), 532),
    "deepseek": (4_038_131, False, (168, 219), (66, 357), 656),
    "qwen3": (4_576_139, True, (208, 224), (106, 369), 965),
    "mistral-nemo": (6_228_476, False, (245, 250), (84, 389), 817),
    "gpt4o": (6_286_398, False, (268, 246), (134, 388), 770),
    "llama3.2": (6_314_873, False, (260, 244), (132, 386), 808),
    "gemma3": (12_045_494, False, (459, 316), (182, 598), 1160),
}


@pytest.mark.parametrize("name", MEASURED)
def test_what_real_tokenizers_need(name):
    """The least that is accepted is what was measured, or up to a half more."""
    characters, normalizes, fast, reference, proof = MEASURED[name]
    options = {"is_unigram": False, "normalizes": normalizes}
    for measured, by_reference in ((fast, False), (reference, True)):
        needs = needs_of(characters, by_reference=by_reference, proof=False, **options)
        assert sum(measured) <= 1.05 * ((needs.parent + needs.worker) >> 20) <= 1.5 * sum(measured)
        assert needs.proof == 0
    needs = needs_of(characters, by_reference=False, proof=True, **options)
    assert proof <= 1.05 * (needs.proof >> 20) <= 1.6 * proof


def test_memory_that_is_too_little_for_a_tokenizer():
    """The error names the least; with that, one worker gets what it needs, and with more there are more workers."""
    needs = Needs(200 << 20, 300 << 20)
    with pytest.raises(UsageError, match=r"^memory=400MiB is too little for this tokenizer: it needs 500MiB$"):
        share_out(4, "400MiB", needs)
    assert share_out(4, "500MiB", needs) == (1, 300 << 20)
    assert share_out(4, "800MiB", needs) == (2, 300 << 20)
    proved = "it needs 700MiB once, to prove its fast engine, then 500MiB"
    with pytest.raises(UsageError, match=f"^memory=699MiB is too little for this tokenizer: {proved}$"):
        share_out(4, "699MiB", needs._replace(proof=700 << 20))
    with pytest.raises(UsageError, match=r"then 336MiB$"):
        share_out(4, "336MiB", Needs(64 << 20, 200 << 20, 572 << 20))


def test_a_build_is_refused_before_it_takes_too_much(jsonl, tmp_path):
    """By command and in Python; nothing is left behind. What is enough is accepted."""
    large = large_tokenizer(tmp_path / "large.json", 20_000)
    source, out = jsonl(["one"] * 9), tmp_path / "store"
    with pytest.raises(UsageError, match="memory=336MiB is too little for this tokenizer: it needs ") as caught:
        tm.build(source, large, memory="336MiB", cache_dir=tmp_path / "cache", progress="quiet")
    words = ["build", str(source), "-t", str(large), "-o", str(out), "--memory", "336MiB", "-q"]
    assert main(words) == 2
    assert not out.exists()
    least = str(caught.value).split()[-1]
    assert 336 < int(least.removesuffix("MiB")) < 500
    words[words.index("336MiB")] = least
    assert main(words) == 0
    assert main(["build", str(source), "-t", "bytes", "-o", str(tmp_path / "small"), "--memory", "336MiB", "-q"]) == 0


def test_memory_without_a_unit(tmp_path, capsys):
    assert main(["build", "x", "-t", "bytes", "--memory", "2"]) == 2
    assert "memory='2' has no unit: 2 means 2 bytes; write 2MB or 2GB, or 2B" in capsys.readouterr().err


def test_resident_bytes():
    """What a process holds grows by what it takes; a process that is gone holds nothing."""
    before = resident_bytes()
    assert 10 << 20 < before < 64 << 30
    block = b"x" * (64 << 20)
    assert resident_bytes() - before > 48 << 20
    del block
    script = "print('here', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert resident_bytes(child.pid) > 1 << 20
        child.kill()
    assert resident_bytes(child.pid) == 0


def test_available_memory_is_plausible():
    assert 16 << 20 < available_memory() < 1 << 50


def test_page_cache_is_not_used_memory(tmp_path):
    """In a container nearly all of the limit may be files read a while ago: that memory is still to be had."""
    (tmp_path / "memory.max").write_text(str(1 << 30))
    (tmp_path / "memory.current").write_text(str(1 << 30))
    assert available_memory(tmp_path) == 0
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {600 << 20}\n")
    assert available_memory(tmp_path) == 600 << 20
