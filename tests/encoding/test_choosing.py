"""The choice of an engine: the reference for little text, the proved engine for more, and why, in words."""

from __future__ import annotations

import json
import re
from importlib.metadata import version

import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.selection import choosing, proof
from tokenmill.encoding.selection.choosing import Choice, choose
from tokenmill.encoding.selection.proof import refuse, remembered
from tokenmill.errors import TokenizerError
from tokenmill.events import EngineProof, Finished, Planned
from tokenmill.store.facts import info

MB = 1_000_000
CRASHING = {"gigatoken": ("crashes", "."), "tokenizers": ("crashes", ".")}


@pytest.fixture(autouse=True)
def _nothing_is_proved(known_characters, few_texts):
    """Nothing but characters is known at the start of a test, and a proof is short."""


@pytest.fixture
def proved_now(monkeypatch) -> list[str]:
    """The engines that are proved, in order."""
    engines: list[str] = []
    prove = proof.prove

    def noted(definition, engine):
        engines.append(engine)
        return prove(definition, engine)

    monkeypatch.setattr(choosing, "prove", noted)
    return engines


# How much text there is.


def test_little_text_is_encoded_by_the_reference(tokenizer_path, reference, proved_now):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    chosen = tokenizer._for_corpus(1 * MB)
    assert chosen.engine == "tokenizers"
    assert "the reference, which encodes this little text before a faster engine would be proved" in chosen.proof
    assert not tokenizer._needs_proof(1 * MB)
    assert tokenizer._leaves_to_reference(1 * MB)
    assert tokenizer.encode("a few words") == reference.encode("a few words", add_special_tokens=False).ids
    assert proved_now == []


def test_more_text_is_encoded_by_the_engine_that_is_proved(tokenizer_path, proved_now):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert tokenizer._needs_proof(100 * MB)
    assert not tokenizer._leaves_to_reference(100 * MB)
    chosen = tokenizer._for_corpus(100 * MB)
    assert (chosen.engine, chosen.engine_version) == ("gigatoken", version("gigatoken"))
    assert chosen.proof.startswith("proved to give the ids of tokenizers")
    assert not tokenizer._needs_proof(100 * MB)
    assert tokenizer._for_corpus(1).engine == "gigatoken"
    assert not tokenizer._leaves_to_reference(1)
    assert tokenizer.choose_engine() == "gigatoken"
    assert proved_now == ["gigatoken"]


def test_an_engine_that_is_refused_leaves_all_to_the_reference(plant, definition, small, proved_now):
    """The reason is said, and kept; wanted by name, it is an error that says the same."""
    plant(gigatoken=("drops", "Hello"))
    choice = choose(definition, text_bytes=100 * MB)
    assert (choice.engine, choice.version, choice.guard) == ("tokenizers", version("tokenizers"), ())
    assert choice.proof is not None
    assert choice.why == f"it is the reference; refused: gigatoken {choice.proof.why}"
    assert choice.proof.why.startswith("differs from tokenizers on 'Hello")
    plant()
    assert choose(definition, text_bytes=100 * MB) == choice
    assert choosing.known_engine(definition, 100 * MB) == "tokenizers"
    with pytest.raises(TokenizerError, match="engine='gigatoken' cannot be used.*" + re.escape(choice.proof.why)):
        tm.load_tokenizer(small, engine="gigatoken")
    assert tm.load_tokenizer(small).choose_engine() == "tokenizers"
    assert proved_now == ["gigatoken"]


def test_what_a_refused_engine_would_have_got_wrong_is_right(plant, small, definition):
    """With whatever engine is chosen."""
    plant(gigatoken=("swaps", "Hello"))
    tokenizer = tm.load_tokenizer(small)._for_corpus(100 * MB)
    right = tm.load_tokenizer(small, engine="reference")
    assert tokenizer.encode("Hello world") == right.encode("Hello world")
    assert tokenizer._runs_reference


def test_a_store_begun_with_little_text_grows_with_a_fast_engine(tokenizer_path, tmp_path, monkeypatch, proved_now):
    """And says that it compares engines, once."""
    data = tmp_path / "data"
    data.mkdir()

    def add(name: str) -> None:
        rows = [json.dumps({"text": f"{name} {i}: some words" + "\U000f0000" * (i < 7)}) for i in range(300)]
        (data / name).write_text("\n".join(rows))

    def build() -> tuple[str, list[EngineProof]]:
        seen: list[object] = []
        tm.build(data, tokenizer_path, tmp_path / "store", workers=0, progress=seen.append)
        [planned] = [event for event in seen if isinstance(event, Planned)]
        [finished] = [event for event in seen if isinstance(event, Finished)]
        engine = planned.engine.split()[0]
        assert finished.by_reference == (7 if engine == "gigatoken" else 0)
        facts = info(tmp_path / "store")
        assert (facts["by_reference"], facts["spot_checked"]) == (finished.by_reference, finished.spot_checked)
        return engine, [event for event in seen if isinstance(event, EngineProof)]

    add("a.jsonl")
    assert build() == ("tokenizers", [])
    add("b.jsonl")
    rates = dict.fromkeys(choosing.REFERENCE_RATE, 100.0)  # bytes per second
    monkeypatch.setattr(choosing, "REFERENCE_RATE", rates)
    engine, proofs = build()
    assert engine == "gigatoken"
    assert len(proofs) == 1
    assert proofs[0].seconds > 1
    add("c.jsonl")
    assert build() == ("gigatoken", [])
    assert proved_now == ["gigatoken"]
    once = tm.build(data, tokenizer_path, tmp_path / "once", engine="reference", workers=0)
    assert once.fingerprint == tm.open(tmp_path / "store").fingerprint


def test_what_the_reference_did_is_told(tokenizer_path, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a", "b \U000f0000", "c")))
    tm.load_tokenizer(tokenizer_path, engine="gigatoken")
    command = ["build", str(tmp_path / "a.jsonl"), "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-v"]
    assert main([*command, "--workers", "0"]) == 0
    assert "left to the reference: 1 document" in capsys.readouterr().err
    assert main(["info", str(tmp_path / "store")]) == 0
    assert "in the last build 1 document left to the reference, " in capsys.readouterr().out


def test_a_proof_is_part_of_the_time_that_is_promised(tokenizer_path, tmp_path, capsys, proved_now):
    """And is not made for it."""
    text = tmp_path / "a.txt"
    text.write_bytes(b"some words " * 900_000)
    assert main(["cache", "why", str(text), "-t", str(tokenizer_path)]) == 0
    said = re.search(r"building 1 file, 9\.9 MB, about (\d+) s", capsys.readouterr().out)
    assert said
    assert int(said[1]) >= 1  # and not 0.1 s
    assert proved_now == []


# What was proved is remembered.


def test_a_proof_holds_for_a_version(plant, definition, monkeypatch):
    """Engines that would crash by now are not asked again, until one comes in another version."""
    first = choose(definition)
    assert first.engine == "gigatoken"
    plant(**CRASHING)
    assert choose(definition) == first
    assert choose(definition, wanted="gigatoken") == first
    plant(gigatoken=("crashes", "."))
    monkeypatch.setattr(
        "tokenmill.encoding.engines.installed_version", lambda name: version(name) + "0" * (name == "gigatoken")
    )
    again = choose(definition)
    assert again.engine == "tokenizers"
    assert again.proof is not None
    assert again.proof.version == version("gigatoken") + "0"
    assert "crashed" in again.proof.why


def test_another_version_of_the_reference_is_another_proof(definition, monkeypatch):
    choose(definition)
    monkeypatch.setattr(
        "tokenmill.encoding.engines.installed_version", lambda name: version(name) + "0" * (name == "tokenizers")
    )
    assert remembered(definition, "gigatoken") is None
    assert choosing.known_engine(definition, 100 * MB) is None


def test_an_engine_that_was_caught_is_not_chosen_again(definition, small, plant):
    """From then on, and for everybody with this cache; there is no appeal by naming it."""
    assert choose(definition).engine == "gigatoken"
    refuse(definition, "gigatoken", "was caught: differs in document 7")
    plant(**CRASHING)
    assert choose(definition).why == "it is the reference; refused: gigatoken was caught: differs in document 7"
    with pytest.raises(TokenizerError, match="was caught: differs in document 7; leave the choice to engine='auto'"):
        tm.load_tokenizer(small, engine="gigatoken")


def test_a_cache_that_cannot_be_written_is_no_error(plant, tmp_path, definition, small, known_characters, monkeypatch):
    """Then everything is found out again each time."""
    monkeypatch.setattr("tokenmill.user_cache.disk.open_to_write", _read_only)
    refuse(definition, "gigatoken", "was caught")
    assert tm.load_tokenizer(small, engine="gigatoken").choose_engine() == "gigatoken"
    assert remembered(definition, "gigatoken") is None
    plant(gigatoken=("raises", "."))
    with pytest.raises(TokenizerError, match="planted"):
        tm.load_tokenizer(small, engine="gigatoken")


def _read_only(*_: object, **__: object):
    raise PermissionError(13, "Permission denied")


# Where only the reference is left.


@pytest.mark.parametrize("kind", ["word_piece", "unigram"])
def test_a_tokenizer_that_no_fast_engine_runs(kinds, kind, monkeypatch, reference):
    """The reference encodes it, is not examined, and is said to be the only one."""
    monkeypatch.setattr(proof, "Examined", lambda *_, **__: pytest.fail("an engine is examined"))
    tokenizer = tm.load_tokenizer(kinds[kind])
    assert (tokenizer.choose_engine(), tokenizer.engine_version) == ("tokenizers", version("tokenizers"))
    assert tokenizer.proof == "it is the reference, and no faster engine runs this tokenizer"
    assert tokenizer._for_corpus(100 << 30).engine == "tokenizers"
    assert not tokenizer._needs_proof(100 << 30)
    assert tokenizer._leaves_to_reference(100 << 30)
    with pytest.raises(TokenizerError, match="engine='gigatoken' cannot run this tokenizer; these may: tokenizers"):
        tm.load_tokenizer(kinds[kind], engine="gigatoken")


def test_words_of_a_unigram_that_tie(kinds, tmp_path):
    """Two ways to split a text that are equally likely: engines have taken the other one than the reference."""
    body = json.loads(kinds["unigram"].read_text("utf-8"))
    pieces = ["▁", "a", "b", "ab", "ba", "aa", "▁a", "▁b"]
    body["model"]["vocab"] = [["<unk>", 0.0], ["</s>", 0.0], *([piece, -1.0 * len(piece)] for piece in pieces)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))
    texts = ["aaa", "abab", "baab a b", "aabaaba"]
    chosen, right = (tm.load_tokenizer(tmp_path, engine=engine) for engine in ("auto", "reference"))
    found = chosen._for_corpus(100 << 30).encode(texts)
    assert found == right.encode(texts)


def test_where_nothing_else_is_installed(definition, small, monkeypatch):
    monkeypatch.setattr(
        "tokenmill.encoding.engines.installed_version", lambda name: "" if name == "gigatoken" else version(name)
    )
    why = "it is the reference, and no faster engine runs this tokenizer"
    assert choose(definition) == Choice("tokenizers", why)
    with pytest.raises(TokenizerError, match="engine='gigatoken' cannot run this tokenizer; these may: tokenizers"):
        tm.load_tokenizer(small, engine="gigatoken")


def test_a_reference_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("tokenmill.encoding.engines.installed_version", lambda name: "")
    with pytest.raises(TokenizerError, match=r"needs sentencepiece: pip install 'tokenmill\[sentencepiece\]'"):
        choose(Definition(None, "sentencepiece", {"tokenizer.model": b""}))


@pytest.mark.parametrize("wanted", ["reference", "tokenizers"])
def test_the_reference_wanted_by_name_needs_no_proof(plant, definition, wanted):
    plant(tokenizers=("crashes", "."))
    assert choose(definition, wanted=wanted) == Choice("tokenizers", "chosen by hand; it is the reference")


def test_bytes_are_encoded_by_the_engine_for_bytes():
    """It is taken before another that runs the same tokenizer.json."""
    assert choosing.fast_engine(bytes_definition()) == "bytes"
