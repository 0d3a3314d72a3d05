"""Verdicts that come with tokenmill are confirmed by a short suite, and not believed where an engine goes wrong on it."""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
from wrong_engines import site

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.selection import choosing, judging, probes, shipped
from tokenmill.encoding.selection.rare_characters import unassigned
from tokenmill.encoding.selection.verdicts import VerdictCache

BODY = json.loads(files("tokenmill").joinpath("data", shipped.FILE).read_text("utf-8"))
CONSTRAINTS = Path(__file__).parent.parent.parent / "constraints.txt"
LARGE = 100_000_000  # bytes of text: more than the reference is used for


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is known at the start of a test."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def definition(tokenizer_path, monkeypatch):
    """A tokenizer of which tokenmill has brought along that gigatoken agrees, except where the guard is."""
    definition = tm.load_tokenizer(tokenizer_path).definition
    entry = {"agrees": True, "why": "agrees, as was found before", "knows_unicode": True, "guard": [[0xE000, 0xE001]]}
    known = {definition.fingerprint: {shipped.versions(definition, "gigatoken"): entry}}
    monkeypatch.setattr(shipped, "_shipped", lambda: {**BODY, "verdicts": known})
    return definition


@pytest.fixture
def suites(monkeypatch) -> list[int]:
    """How many texts each trial is held on."""
    sizes: list[int] = []
    begin = judging._Judge.__init__

    def counted(self, definition, suite, *rest):
        sizes.append(len(suite))
        begin(self, definition, suite, *rest)

    monkeypatch.setattr(judging._Judge, "__init__", counted)
    return sizes


def test_a_short_suite_confirms(definition, suites):
    assert not choosing.needs_trial(definition, LARGE)
    choice = choosing.choose(definition, text_bytes=LARGE)
    assert (choice.engine, choice.why) == ("gigatoken", "agrees, as was found before")
    assert any(low <= 0xE000 <= high for low, high in choice.guard)
    assert 1000 < suites[0] < 10_000
    assert choosing.choose(definition, text_bytes=LARGE) == choice
    assert len(suites) == 1


def test_what_a_build_would_cost_is_said_without_a_trial(definition, suites, tokenizer_path, tmp_path, capsys):
    """Also where a short suite would have to confirm a verdict first."""
    text = tmp_path / "a.txt"
    text.write_bytes(b"some words " * 900_000)
    assert main(["cache", "why", str(text), "-t", str(tokenizer_path)]) == 0
    assert "building 1 file, 9.9 MB, about 1 s" in capsys.readouterr().out
    assert suites == []


def test_an_engine_that_goes_wrong_here_is_not_believed(definition, tmp_path, monkeypatch):
    """Another machine, another build of the library: whatever the reason, the next engine is tried."""
    folder = site(tmp_path / "site", {"gigatoken": ["changes", "[a-z]"]}, "")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(probes, "probes", lambda definition, every=1: [f"some words {i}" for i in range(200)])
    assert choosing.choose(definition, text_bytes=LARGE).engine == "fastokens"
    verdict = VerdictCache(definition).verdict("gigatoken")
    assert verdict is not None
    assert not verdict.agrees


def test_other_versions_are_tried(definition, monkeypatch):
    monkeypatch.setattr(shipped, "engine_version", lambda engine: "99")
    assert shipped.shipped_verdict(definition, "gigatoken") is None
    assert choosing.needs_trial(definition, LARGE)


def test_other_probes_are_tried(definition, monkeypatch):
    monkeypatch.setattr(probes, "VERSION", 99)
    assert shipped.shipped_verdict(definition, "gigatoken") is None


def test_the_file_is_of_the_pinned_versions():
    """If an engine is upgraded, `make conformance` has to be run, which writes the file."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", CONSTRAINTS.read_text(), re.M))
    entries = [versions for entry in BODY["verdicts"].values() for versions in entry if versions != "name"]
    assert BODY["suite"] == probes.VERSION
    assert len({entry["name"].partition(",")[0] for entry in BODY["verdicts"].values()}) >= 35
    for part in {part for versions in entries for part in versions.split(", ")}:
        library, version = part.split(" ")
        assert pins.get(library, version) == version, "run make conformance"
    assert {"gigatoken", "tokenizers"} <= pins.keys()


def test_the_guard_of_a_shipped_verdict_covers_what_this_python_does_not_know():
    assert unassigned()
    for low, high in unassigned():
        assert any(start <= low and high <= stop for start, stop in BODY["unassigned"])
