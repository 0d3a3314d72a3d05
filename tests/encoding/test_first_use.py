"""The first use of a tokenizer: little text does not wait for a trial, and more text waits for one engine, not for all."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.selection import choosing, judging
from tokenmill.encoding.selection.probes import probes
from tokenmill.encoding.selection.verdicts import VerdictCache, differing, refuse
from tokenmill.events import EngineTrial, Planned

MB = 1_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is known at the start of a test, and a trial is short."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tokenmill.encoding.selection.probes.probes", lambda definition: probes(definition, 200))


@pytest.fixture
def tried(monkeypatch) -> list[list[str]]:
    """The engines of each trial that is held, in order."""
    trials: list[list[str]] = []
    hold = judging.hold_trials

    def noted(definition, cache, cached, corpus, texts, **options):
        verdicts, rates = hold(definition, cache, cached, corpus, texts, **options)
        trials.append([verdict.engine for verdict in verdicts])
        return verdicts, rates

    monkeypatch.setattr(judging, "hold_trials", noted)
    return trials


def test_little_text_is_encoded_by_the_reference(tokenizer_path, reference, tried):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    chosen = tokenizer.for_corpus(1 * MB)
    assert chosen.engine == "tokenizers"
    assert "the reference, which encodes this little text before a faster engine would be proved" in chosen.proof
    assert not tokenizer.needs_trial(1 * MB)
    assert tokenizer.encode("a few words").tolist() == reference.encode("a few words", add_special_tokens=False).ids
    assert tried == []


def test_more_text_is_encoded_by_the_first_engine_that_agrees(tokenizer_path, tried):
    """The others are tried when there is so much text that it pays."""
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert tokenizer.needs_trial(100 * MB)
    assert tokenizer.for_corpus(100 * MB).engine == "gigatoken"
    assert tried == [["gigatoken"]]
    assert not tokenizer.needs_trial(100 * MB)
    assert tokenizer.for_corpus(100 * MB).engine == "gigatoken"
    assert tokenizer.for_corpus(1).engine == "gigatoken"
    assert len(tried) == 1
    tokenizer.for_corpus(choosing.RACE_BYTES, "corpus", lambda: ["some words"] * 100)
    assert set(tried[1]) >= {"gigatoken", "fastokens", "tokie"}
    assert len(tried) == 2


def test_an_engine_that_is_refused_is_followed_by_the_next(tokenizer_path, tried):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    definition = tokenizer.definition
    choosing.choose(definition, text_bytes=100 * MB)
    refuse(definition, "gigatoken", "was caught")
    assert choosing.needs_trial(definition, 100 * MB)
    assert choosing.choose(definition, text_bytes=100 * MB).engine == "fastokens"
    assert tried[1] == ["gigatoken", "fastokens"]
    assert VerdictCache(definition).verdict("tokie") is None


def test_a_store_begun_with_little_text_grows_with_a_fast_engine(tokenizer_path, tmp_path, monkeypatch, tried):
    """And says that it compares engines, once."""
    data = tmp_path / "data"
    data.mkdir()

    def add(name: str) -> None:
        rows = [json.dumps({"text": f"{name} {i}: some words"}) for i in range(300)]
        (data / name).write_text("\n".join(rows))

    def build() -> tuple[str, list[EngineTrial]]:
        seen: list[object] = []
        tm.build(data, tokenizer_path, tmp_path / "store", workers=0, progress=seen.append)
        [planned] = [event for event in seen if isinstance(event, Planned)]
        return planned.engine.split()[0], [event for event in seen if isinstance(event, EngineTrial)]

    add("a.jsonl")
    assert build() == ("tokenizers", [])
    add("b.jsonl")
    monkeypatch.setattr(choosing, "REFERENCE_RATE", 100)  # bytes per second
    engine, trials = build()
    assert engine == "gigatoken"
    assert len(trials) == 1
    assert trials[0].seconds > 1
    add("c.jsonl")
    assert build() == ("gigatoken", [])
    assert len(tried) == 1
    monkeypatch.undo()
    once = tm.build(data, tokenizer_path, tmp_path / "once", engine="reference", workers=0)
    assert once.fingerprint == tm.open(tmp_path / "store").fingerprint


def test_a_trial_is_part_of_the_time_that_is_promised(tokenizer_path, tmp_path, capsys):
    text = tmp_path / "a.txt"
    text.write_bytes(b"some words " * 900_000)
    assert main(["cache", "why", str(text), "-t", str(tokenizer_path)]) == 0
    said = capsys.readouterr().out
    assert "building 1 file, 9.9 MB, about 2 s" in said  # and not 0.1 s


@pytest.mark.parametrize("seed", range(20))
def test_documents_that_differ(seed):
    """As a comparison of one document after the other finds them."""
    draw = random.Random(seed)

    def encoded(documents: list[list[int]]):
        lengths = [len(document) for document in documents]
        return np.array([i for document in documents for i in document], np.uint32), np.cumsum([0, *lengths])

    right = [[draw.randrange(3) for _ in range(draw.choice([0, 0, 1, 2, 5]))] for _ in range(draw.randrange(12))]
    found = [list(document) for document in right]
    for document in found:
        if draw.random() < 0.3:
            document[draw.randrange(len(document) + 1) :] = [draw.randrange(3)] * draw.randrange(3)
    expected = [i for i, (a, b) in enumerate(zip(right, found, strict=True)) if a != b]
    assert differing(encoded(right), encoded(found)) == expected
