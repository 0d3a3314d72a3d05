"""Traits: what a build has to know about an engine, instead of its name."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from transformers import ByT5Tokenizer

import tokenmill as tm
from tokenmill.encoding.engines import ENGINES, Engine, EngineTraits, engine_traits
from tokenmill.encoding.engines.base import BATCH_BYTES
from tokenmill.encoding.engines.guarded import GuardedEngine
from tokenmill.encoding.selection import choosing
from tokenmill.encoding.selection.race import race
from tokenmill.encoding.selection.trial import write_texts
from tokenmill.encoding.selection.trial_worker import measure

WAIT = 0.2


class Waiting(Engine):
    """An engine that waits for another device: much wall time, hardly any CPU time."""

    name = "waiting"

    def __init__(self, device) -> None:
        self.traits = EngineTraits(device=device)

    def encode(self, values):
        time.sleep(WAIT)
        return np.zeros(len(values), np.uint32), np.arange(len(values) + 1)


@pytest.mark.parametrize(("device", "counts"), [("cpu", "cpu"), ("cuda", "wall")])
def test_the_device_decides_which_time_counts(tmp_path, device, counts):
    write_texts(tmp_path / "texts.arrow", ["some", "text"])
    timing = measure(Waiting(device), str(tmp_path / "texts.arrow"))
    assert timing["wall"] >= WAIT > timing["cpu"]
    assert timing["seconds"] == timing[counts]
    guarded = GuardedEngine(Waiting(device), lambda: Waiting("cpu"), ((1, 1),))
    timing = measure(guarded, str(tmp_path / "texts.arrow"))
    assert timing["seconds"] == timing[counts]


class Timed:
    """A trial whose engine takes a fixed time per byte."""

    def __init__(self, engine: str, seconds_per_byte: float) -> None:
        self.engine, self._seconds_per_byte = engine, seconds_per_byte
        self.files: list[str] = []

    def time(self, path):
        self.files.append(path.name)
        return {"bytes": 1e6, "cpu": 0.0, "wall": 1.0, "seconds": 1e6 * self._seconds_per_byte}


def test_a_race_counts_the_seconds_of_the_traits_and_uses_their_batches(tmp_path, monkeypatch):
    """An engine without CPU time is not infinitely fast, and each engine gets blocks of its own size."""
    gpu = EngineTraits(device="cuda", best_batch_bytes=4 * BATCH_BYTES)
    monkeypatch.setattr(ENGINES["tokie"], "traits", gpu)
    trials = Timed("gigatoken", 1e-8), Timed("tokie", 2e-8), Timed("tokenizers", 9e-8)
    rates = race(trials[2], list(trials[:2]), ["text " * 1000] * 3000, tmp_path)
    assert rates["gigatoken"] == pytest.approx(1e8)
    assert rates["tokie"] == pytest.approx(5e7)
    shared = race(trials[2], list(trials[:2]), ["text " * 1000] * 3000, tmp_path, processes=4)
    assert shared == {**rates, "tokie": pytest.approx(5e7 / 4)}, "processes share a device, and have a core each"
    assert set(trials[0].files) == {f"part-{BATCH_BYTES}.arrow"}
    assert set(trials[1].files) == {f"part-{4 * BATCH_BYTES}.arrow"}
    said = choosing._race_result("gigatoken", ["gigatoken", "tokie"], rates, "a sample")
    assert said == "; fastest on a sample (MB/s per core: gigatoken 100, tokie 50 on cuda, by wall time)"


def test_only_python_tokenizers_are_slow():
    assert [name for name in ENGINES if engine_traits(name).is_slow] == ["python"]
    assert engine_traits("live") == EngineTraits(is_slow=True, processes=0)
    assert engine_traits("live").in_process_only
    assert not any(engine_traits(name).in_process_only for name in ENGINES)


def test_a_fast_tokenizer(tokenizer_path):
    """Whether it is slow is known before an engine is chosen."""
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert not tokenizer.reference_traits.is_slow
    assert "choice" not in tokenizer.__dict__
    assert tokenizer.traits == engine_traits(tokenizer.engine) == EngineTraits()
    assert not tokenizer.runs_reference
    assert tm.load_tokenizer(tokenizer_path, engine="reference").runs_reference


def test_slow_tokenizers():
    """One that can be loaded from its files runs in worker processes; one whose class is only here does not."""

    class Local(ByT5Tokenizer):
        pass

    copied, local = tm.load_tokenizer(ByT5Tokenizer()), tm.load_tokenizer(Local())
    assert copied.reference_traits.is_slow
    assert local.reference_traits.is_slow
    assert (copied.engine, copied.traits.in_process_only, copied.runs_reference) == ("python", False, True)
    assert (local.engine, local.traits.in_process_only, local.runs_reference) == ("live", True, True)
    assert local.encode("é").tolist() == copied.encode("é").tolist()


def test_the_package_does_not_import_its_test_suites():
    code = (
        "import sys, tokenmill, tokenmill.encoding; tokenmill.load_tokenizer\n"
        "sys.exit('pytest' in sys.modules or 'tokenmill.testing' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
