"""The benchmark of whole builds, on a small corpus: whether the bars are met on so little text is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.stress
def test_builds(tmp_path):
    corpus = tmp_path / "words.txt"
    corpus.write_text("some words of text to measure with, and then some more of them\n" * 2000)
    results = tmp_path / "results" / "builds.json"
    command = ["builds", "--corpus", corpus, "--size", "1MB", "--rounds", "1", "--work", tmp_path / "work", "--json"]
    command += ["--output", results]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, command)], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == json.loads(results.read_text("utf-8"))
    bars = json.loads(ran.stdout)["bars"]
    assert len(bars) > 5
    assert [bar for bar in bars if bar["met"] and bar["ratio"] <= 0] == []  # a bar is not met by a nonsense number


@pytest.mark.stress
def test_engines(tmp_path, tokenizer_path):
    command = ["engines", str(tokenizer_path), "--size", "1.2MB", "--rounds", "1", "--json"]
    ran = subprocess.run([sys.executable, "-m", "benchmarks", *command], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)
    methods = {row["method"]: row for row in result["rows"]}
    assert methods["tokenizers, one at a time"]["speedup"] == pytest.approx(1)
    assert methods[result["auto"]]["mb_per_second"] > 0
