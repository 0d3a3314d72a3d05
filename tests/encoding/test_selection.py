"""The proof and the race: a wrong engine is found out, however it is wrong, and the fastest of the right ones is chosen."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from ast import literal_eval
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import psutil
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import ids_of
from tokenizers import models, pre_tokenizers, trainers
from wrong_engines import planted, site

import tokenmill as tm
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines import ENGINES, check_shape
from tokenmill.encoding.engines.guarded import guards, outside, without
from tokenmill.encoding.selection import trial
from tokenmill.encoding.selection.choosing import choose
from tokenmill.encoding.selection.probes import probes, vocabulary_characters
from tokenmill.encoding.selection.rare_characters import explain_differences, unassigned
from tokenmill.encoding.selection.verdicts import Choice, Difference, Encoded, Verdict, differing, refuse
from tokenmill.encoding.tokenizer_json import byte_alphabet
from tokenmill.errors import EncodingError, TokenizerError
from tokenmill.user_cache import read_cached, write_cached

NO_TEXTS: list[str] = []  # no corpus: the suite alone, and no race
ALL_CRASH = dict.fromkeys(("gigatoken", "fastokens", "tokie", "tokenizers"), ("crashes", "."))
ENGLISH = ["The quick brown fox jumps over the lazy dog. " * 40] * 20
CHINESE = ["敏捷的棕色狐狸跳过了懒狗。今天天气很好，我们去散步吧。" * 40] * 20


@pytest.fixture(scope="session")
def small(tmp_path_factory, real_texts):
    """A byte-level tokenizer, which all engines can run, with hardly any words: trials of it are quick."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([text[:4000] for text in real_texts[:10]], trainer)
    path = tmp_path_factory.mktemp("small") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture(scope="session")
def definition(small) -> Definition:
    return tm.load_tokenizer(small).definition


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is known at the start of a test."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Make engines go wrong in their trials, from now on: engine -> (way, pattern)."""

    def put(at_start: str = "", **plants: tuple[str, str]) -> None:
        folder = site(tmp_path / "site", {engine: list(way) for engine, way in plants.items()}, at_start)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    return put


@pytest.fixture
def few_probes(monkeypatch):
    """Trials on a part of the suite, with few characters and tokens, for tests that are not about the probes."""
    monkeypatch.setattr("tokenmill.encoding.selection.probes.probes", lambda definition: probes(definition, 50))


@pytest.fixture
def three_engines(monkeypatch):
    """Only two fast engines beside the reference, for tests to which a third makes no difference."""
    names = ["gigatoken", "fastokens", "tokenizers"]
    monkeypatch.setattr("tokenmill.encoding.selection.choosing.runners", lambda definition: names)


def verdicts(choice: Choice) -> dict[str, Verdict]:
    return {verdict.engine: verdict for verdict in choice.verdicts}


LARGE = 100 << 30  # bytes of text: all engines are tried and raced

# Wrong engines are out.

EMOJI = "[\U0001f300-\U0001faff]"
SOME = {"gigatoken": ("changes", "[A-Z]"), "fastokens": ("drops", "[0-9]")}
MORE = {"gigatoken": ("changes", "[а-яА-Я]"), "fastokens": ("swaps", "[一-鿿]"), "tokie": ("doubles", EMOJI)}
ODD = {
    "gigatoken": ("drops", "^Hello  world$"),
    "fastokens": ("swaps", r"\w\n\n\n?\w"),
    "tokie": ("changes", r"\|><\|"),
}


@pytest.mark.parametrize("plants", [SOME, MORE, ODD], ids=["letters and digits", "scripts", "here and there"])
def test_one_differing_id_and_an_engine_is_out(plant, definition, small, plants):
    """The verdict shows a text it differs on; another engine is chosen; wanted by name, it is an error that says so."""
    plant(**plants)
    choice = choose(definition, NO_TEXTS)
    assert choice.engine == ("tokie" if "tokie" not in plants else "tokenizers")
    suite = probes(definition)
    for engine, (_, pattern) in plants.items():
        verdict = verdicts(choice)[engine]
        assert not verdict.agrees
        shown = re.match(r"differs from tokenizers on ('.*?'|\".*?\"), at token \d+", verdict.why)
        assert shown, verdict.why
        start = literal_eval(shown[1])
        assert any(text.startswith(start) and re.search(pattern, text) for text in suite)
        assert f"{engine} {verdict.why}" in choice.why
        with pytest.raises(TokenizerError, match=f"engine='{engine}'.*" + re.escape(verdict.why)):
            tm.load_tokenizer(small, engine=engine)


@pytest.mark.usefixtures("few_probes")
def test_an_engine_that_fails_is_out_and_hurts_nobody(plant, definition, small):
    """It may raise, panic or crash: the reason is kept, in a line, and the reference does the work."""
    plant(gigatoken=("raises", "Hello"), fastokens=("panics", "[0-9]"), tokie=("crashes", "<|endoftext|>"))
    choice = choose(definition, NO_TEXTS)
    reasons = {
        "gigatoken": "cannot run it: RuntimeError: planted",
        "fastokens": "cannot run it: Panic: index out of bounds: planted",
        "tokie": "cannot run it: it crashed (signal 11)",
    }
    assert {engine: verdict.why for engine, verdict in verdicts(choice).items()} == reasons
    assert choice.engine == "tokenizers"
    assert all(f"{engine} {why}" in choice.why for engine, why in reasons.items())
    for engine, why in reasons.items():
        with pytest.raises(TokenizerError, match=re.escape(why)):
            tm.load_tokenizer(small, engine=engine)


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_an_engine_that_loses_documents_is_out(plant, definition, small):
    plant(gigatoken=("loses documents", "^Hello$|^Hello "), fastokens=("falls", "^Hello "))
    found = verdicts(choose(definition, NO_TEXTS))
    assert re.search(r"EncodingError: gigatoken \S+ gave (\d+) documents for (?!\1)", found["gigatoken"].why)
    assert "EncodingError: fastokens" in found["fastokens"].why
    assert "offsets that do not span them" in found["fastokens"].why
    with pytest.raises(TokenizerError, match="documents for"):
        tm.load_tokenizer(small, engine="gigatoken")


@pytest.mark.usefixtures("three_engines")
def test_an_engine_that_hangs_is_out_and_gone(plant, definition, monkeypatch):
    """After a while nobody waits for it any more, and it does not go on alone."""
    monkeypatch.setattr(trial, "TIMEOUT", 6.0)
    monkeypatch.setattr(
        "tokenmill.encoding.selection.probes.probes", lambda *_: ["a short suite", "Hello"]
    )  # others have to be in time
    plant(gigatoken=("hangs", "Hello"))
    choice = choose(definition, NO_TEXTS)
    assert verdicts(choice)["gigatoken"].why == "cannot run it: no answer in 6 s"
    assert choice.engine == "fastokens"
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in running if "tokenmill.encoding.selection.trial_worker" in child.cmdline()]


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_what_an_engine_prints_is_not_an_answer(plant, definition):
    """Nor what is printed before it is even loaded."""
    plant("print('{\"encoded\": true}', 'welcome', '\\n[]\\nnull\\n', flush=True)", gigatoken=("prints", "e"))
    choice = choose(definition, ENGLISH)
    assert verdicts(choice)["gigatoken"].why.startswith("agrees with tokenizers")
    assert re.search(r"MB/s per core: gigatoken \d", choice.why)  # in the race too


@pytest.mark.usefixtures("few_probes")
def test_a_reference_that_fails_is_an_error(plant, definition):
    plant(tokenizers=("raises", "Hello"))
    with pytest.raises(TokenizerError, match=r"the reference, tokenizers, cannot run this tokenizer.*planted"):
        choose(definition, wanted="gigatoken")


# Characters hardly any text holds.

RARE = {
    "gigatoken": ("changes", "\u0001"),  # a control character
    "fastokens": ("doubles", "\u0898"),  # a mark that came with Unicode 14
    "tokie": ("drops", "[\u0378\u0379\U000e0080]"),  # nobody has assigned these: they are guarded without a trial
}


def test_an_engine_that_is_wrong_for_rare_characters_is_used_for_all_others(plant, definition, small, monkeypatch):
    """Documents that hold one are left to the reference."""
    plant(**RARE)
    found = verdicts(choose(definition, NO_TEXTS))
    texts = [
        "plain",
        "a\u0001",
        "\u0898",
        "x\u0898y \u0001",
        "\u0378",
        "",
        "a\u0379b",
        "\U000e0080 中",
        "\x0b\x0c",
        "more",
    ]
    expected = ids_of(tokenizers.Tokenizer.from_file(str(small)), texts)
    for engine, (way, pattern) in RARE.items():
        verdict = found[engine]
        assert verdict.agrees, verdict.why
        assert all(guards(verdict.guard, character) for character in pattern.strip("[]"))
        assert not guards(verdict.guard, "plain text, 中文 and é\n")
        said = re.search(r"but for those with \d+ rare characters? \(U\+.*left to tokenizers", verdict.why)
        assert bool(said) == (engine != "tokie")
        made = ENGINES[engine]
        monkeypatch.setattr(made, "encode", planted(made.encode, way, pattern))
        encoder = tm.load_tokenizer(small, engine=engine).encoder()
        assert encoder.engine.name == engine
        tokens = encoder.encode(pa.array(texts, pa.large_string()))
        assert [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]] == expected


NEWER = "[\u0c5d\u1c8a\ua7da\U00010d6a\U0001e5f0]"  # letters and a digit that not every version of Unicode knows


@pytest.mark.usefixtures("three_engines")
def test_an_engine_of_another_unicode_version(plant, definition, small, monkeypatch):
    """It takes newer characters for letters, which shows only before an apostrophe: their documents go to the reference.

    Characters that Python does not know are guarded whatever the trial finds; those it knows, because of what it finds.
    """
    pattern = f"{NEWER}'s"
    plant(gigatoken=("swaps", pattern))
    verdict = verdicts(choose(definition, NO_TEXTS))["gigatoken"]
    assert verdict.agrees, verdict.why
    assert all(guards(verdict.guard, character) for character in NEWER.strip("[]"))
    assert not guards(verdict.guard, "plain text, 中文, é's, ш's, 😀 and ٣\n")
    made = ENGINES["gigatoken"]
    monkeypatch.setattr(made, "encode", planted(made.encode, "swaps", pattern))
    texts = [f"the letter {character}'s shape" for character in NEWER.strip("[]")] + ["plain's"]
    tokens = tm.load_tokenizer(small, engine="gigatoken").encoder().encode(pa.array(texts, pa.large_string()))
    expected = ids_of(tokenizers.Tokenizer.from_file(str(small)), texts)
    assert [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]] == expected


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
@pytest.mark.usefixtures("few_probes", "three_engines")
def test_an_engine_that_mistakes_a_flag_of_an_added_token(plant, small, tmp_path, flag):
    """Next to some character, as single_word next to a combining mark: no character explains that, the engine is out."""
    body = json.loads(small.read_text())
    token = {"id": 300, "content": "the", "special": False, "normalized": False}
    token |= {name: name == flag for name in ("single_word", "lstrip", "rstrip")}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**body, "added_tokens": [*body["added_tokens"], token]}))
    plant(gigatoken=("swaps", {"single_word": "the\u0300", "lstrip": "\u2028 the", "rstrip": "the\t\u0300"}[flag]))
    found = verdicts(choose(tm.load_tokenizer(path, engine="reference").definition, NO_TEXTS))
    assert not found["gigatoken"].agrees
    assert "differs from tokenizers" in found["gigatoken"].why


def test_ranges_outside_of_others():
    assert outside(((1, 9), (20, 20), (30, 40)), ((0, 2), (4, 5), (20, 35))) == ((3, 3), (6, 9), (36, 40))
    assert outside(((1, 9),), ()) == ((1, 9),)
    assert outside((), ((1, 9),)) == ()


def attributed(texts, is_wrong, vocabulary=frozenset()):
    """What explains why some of the texts differ, for an engine that is wrong where `is_wrong` says so."""

    def which(texts):
        return [i for i, text in enumerate(texts) if is_wrong(text)]

    return explain_differences(texts, which(texts), set(vocabulary), which)


ORDINARY = ["plain words", "1234", "中文。", "Ω é", "a\u0301 \u0300b", "😀"]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("\u0007", "ring \u0007 bell", ((7, 7),)),
        ("[\u0007\u0008]", "a\u0007b\u0008", ((7, 8),)),
        ("\u0007", "é中Ω\u0007", ((7, 7),)),
        (r"1\u0898", "a1\u08982", ((0x898, 0x898),)),
        ("\u2e3a", "⸺", ((0x2E3A, 0x2E3A),)),  # a sign that is in no vocabulary
        ("\u0487\u0488", "\u0487\u0488", ((0x487, 0x488),)),  # it takes both, and no other text has any
        ("𐍈", "𐍈 x", ((0x10348, 0x10348),)),  # a letter nobody has written for long
    ],
)
def test_rare_characters_are_found_guilty(pattern, text, found):
    assert attributed([*ORDINARY, text], re.compile(pattern).search) == found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[0-9]", "a 1"),
        ("X", "X\u0007"),
        (" $", "a "),
        ("\n\n", "a\n\n\u0898b"),
        ("é", "é"),
        ("ш", "шш"),
        ("中", "中\u0007"),
        ("٣", "٣"),
        ("😀", "😀"),
        ("\u0007|b", "\u0007 b"),
        (".", ""),
    ],
)
def test_what_people_write_is_never_guarded(pattern, text):
    """An engine that differs there is wrong, whatever else is in the text."""
    assert attributed([*ORDINARY, text, text + " x"], re.compile(pattern).search) is None


def test_what_the_vocabulary_spells_is_not_rare():
    assert attributed([*ORDINARY, "⸺"], re.compile("⸺").search, "⸺") is None


def test_no_exception_is_made_for_thousands_of_texts():
    assert attributed([f"\u0007 {i}" for i in range(3000)], re.compile("\u0007").search) is None


def test_of_characters_that_nobody_assigned_one_stands_for_all():
    found = attributed([*ORDINARY, "\u0378"], re.compile("\u0378").search)
    assert all(guards(found, chr(point)) for point in (0x378, 0x379, 0x2FFFF, 0x10FFFF))
    assert not guards(found, "".join(c for c in map(chr, range(0x500)) if unicodedata.category(c) != "Cn"))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 300)), max_size=4), st.text())
def test_guards_and_without_agree(ranges, text):
    spans = tuple((low, min(low + size, 0x10FFFF)) for low, size in ranges)
    kept = "".join(c for c in text if not any(low <= ord(c) <= high for low, high in spans))
    assert without(text, spans) == kept
    assert guards(spans, text) == (kept != text)


# What was found is remembered.


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_a_trial_is_held_once_for_a_version(plant, definition, monkeypatch):
    """Engines that would crash by now are not asked again, until one comes in another version."""
    first = choose(definition, NO_TEXTS)
    assert first.engine == "gigatoken"
    plant(**dict.fromkeys(("gigatoken", "fastokens", "tokie", "tokenizers"), ("crashes", ".")))
    assert choose(definition, NO_TEXTS) == first
    assert choose(definition, wanted="fastokens").engine == "fastokens"
    plant(gigatoken=("crashes", "."))
    monkeypatch.setattr(
        "tokenmill.encoding.engines.installed_version", lambda name: version(name) + "0" * (name == "gigatoken")
    )
    again = choose(definition, NO_TEXTS)
    assert again.engine == "fastokens"
    assert verdicts(again)["gigatoken"].version == first.version + "0"
    assert "crashed" in verdicts(again)["gigatoken"].why
    assert verdicts(again)["fastokens"] == verdicts(first)["fastokens"]


@pytest.mark.usefixtures("few_probes")
def test_damaged_memory_is_forgotten_and_made_anew(plant, definition, cache):
    """It is not believed, and is no error."""
    before = choose(definition, wanted="gigatoken")
    [path] = cache.rglob(f"{definition.fingerprint}.json")
    path.write_bytes(path.read_bytes().replace(b"agrees with", b"differs from"))
    assert choose(definition, wanted="gigatoken") == before
    plant(**ALL_CRASH)
    assert choose(definition, wanted="gigatoken") == before  # kept again


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damage_to_what_is_kept_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("kept") / "a" / "b.json"
    value = {"verdicts": {"é": [1, 2.5, None]}, "races": {}}
    write_cached(path, value)
    assert read_cached(path) == value
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[place:]
    else:
        whole[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    assert read_cached(path) is None


@pytest.mark.usefixtures("few_probes")
def test_a_cache_that_cannot_be_written_is_no_error(plant, tmp_path, definition, small, monkeypatch):
    """Then everything is found out again each time."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "file" / "cache"))
    refuse(definition, "gigatoken", "was caught")
    assert tm.load_tokenizer(small, engine="gigatoken").engine == "gigatoken"
    plant(gigatoken=("raises", "."))
    with pytest.raises(TokenizerError, match="planted"):
        tm.load_tokenizer(small, engine="gigatoken")


@pytest.mark.usefixtures("few_probes")
def test_an_engine_that_was_caught_is_not_chosen_again(plant, definition, small):
    """From then on, and for everybody with this cache; there is no appeal by naming it."""
    assert choose(definition, NO_TEXTS).engine == "gigatoken"
    refuse(definition, "gigatoken", "was caught: differs in document 7")
    plant(**ALL_CRASH)
    choice = choose(definition, NO_TEXTS)
    assert choice.engine == "fastokens"
    assert verdicts(choice)["gigatoken"].why == "was caught: differs in document 7"
    refuse(definition, "fastokens", "was caught as well")
    assert choose(definition, NO_TEXTS).engine == "tokie"
    with pytest.raises(TokenizerError, match="was caught: differs in document 7"):
        tm.load_tokenizer(small, engine="gigatoken")


# The corpus decides.


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_the_fastest_on_the_corpus_is_chosen(plant, small):
    """Two engines, one slow on letters and one on Chinese: what there is to encode settles it."""
    plant(gigatoken=("slow", "[a-z]"), fastokens=("slow", "[一-鿿]"), tokenizers=("slow", "[a-z一-鿿]"))
    tokenizer = tm.load_tokenizer(small)
    english = tokenizer.for_corpus(LARGE, "en", lambda: ENGLISH)
    chinese = tokenizer.for_corpus(LARGE, "zh", lambda: CHINESE)
    assert (english.engine, chinese.engine) == ("fastokens", "gigatoken")
    for chosen in (english, chinese):
        assert re.search(rf"fastest on a sample of this corpus \(.*{chosen.engine} \d", chosen.proof)
    plant(**dict.fromkeys(("gigatoken", "fastokens", "tokie", "tokenizers"), ("crashes", ".")))
    again = tokenizer.for_corpus(LARGE, "en", lambda: pytest.fail("the race is remembered: no sample is needed"))
    assert again.choice == english.choice


@pytest.mark.usefixtures("few_probes")
def test_an_engine_wanted_by_name_need_not_be_the_fastest(plant, definition):
    plant(gigatoken=("slow", "[a-z]"))
    assert choose(definition, ENGLISH, wanted="gigatoken").engine == "gigatoken"


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_the_corpus_is_part_of_the_proof(plant, definition, small):
    """A word that is in no suite: an engine that is wrong for it passes, until it meets a corpus that has it."""
    plant(gigatoken=("swaps", "quokka-crossing"))
    before = choose(definition, NO_TEXTS)
    assert before.engine == "gigatoken"
    choice = choose(definition, ["some text", "mind the quokka-crossing ahead", "more"])
    assert choice.engine != "gigatoken"
    why = "differs from tokenizers on 'mind the quokka-cros', at token 0"
    assert verdicts(choice)["gigatoken"].why == why
    assert choose(definition, NO_TEXTS).engine != "gigatoken"
    with pytest.raises(TokenizerError, match=why):
        tm.load_tokenizer(small, engine="gigatoken")


@pytest.mark.usefixtures("few_probes", "three_engines")
def test_a_corpus_can_add_to_a_guard(plant, definition):
    """Characters the suite does not have together."""
    plant(gigatoken=("drops", "\u0001|\u0483\u0591"))
    before = verdicts(choose(definition, NO_TEXTS, wanted="gigatoken"))["gigatoken"]
    assert outside(before.guard, unassigned()) == ((1, 1),)
    after = verdicts(choose(definition, ["plain", "a\u0483\u0591b", "\u0001"]))["gigatoken"]
    assert after.agrees, after.why
    assert outside(after.guard, unassigned()) == ((1, 1), (0x483, 0x483), (0x591, 0x591))


@pytest.mark.usefixtures("few_probes", "three_engines")
@pytest.mark.parametrize("before", [[], ENGLISH], ids=["at once", "late"])
def test_an_engine_that_fails_in_the_race_does_not_win_it(plant, definition, before):
    """However fast it was until then: here it fails on a document too long for the proof."""
    slow = ("slow", "[a-z]")
    plant(gigatoken=("crashes", "^(quick ){10000}"), fastokens=slow, tokenizers=slow)
    choice = choose(definition, [*before, "quick " * 10_000])
    assert choice.engine != "gigatoken"
    assert verdicts(choice)["gigatoken"].agrees


# Where only the reference is left.


@pytest.mark.usefixtures("few_probes")
def test_a_tokenizer_that_only_the_reference_can_run(kinds):
    """The proof says of every other engine why it is not it; tokie, which tries, gives other ids for a Unigram."""
    tokenizer = tm.load_tokenizer(kinds["unigram"])
    assert (tokenizer.engine, tokenizer.engine_version) == ("tokenizers", version("tokenizers"))
    found = verdicts(tokenizer.choice)
    assert [*found] == ["gigatoken", "fastokens", "tokie"]
    assert found["tokie"].why.startswith("differs from tokenizers on ")
    for engine, verdict in found.items():
        assert not verdict.agrees
        assert f"{engine} {verdict.why}" in tokenizer.proof
    assert tokenizer.proof.startswith("no other engine can run it (gigatoken cannot run it: ")
    assert "\n" not in tokenizer.proof


def test_where_nothing_else_is_installed(definition, small, monkeypatch):
    def only_the_reference(name: str) -> str:
        if name in ("gigatoken", "fastokens", "tokie"):
            return ""
        return version(name)

    monkeypatch.setattr("tokenmill.encoding.engines.installed_version", only_the_reference)
    assert choose(definition) == Choice("tokenizers", version("tokenizers"), "it is the reference")
    with pytest.raises(TokenizerError, match="engine='gigatoken' cannot run this tokenizer; these may: tokenizers"):
        tm.load_tokenizer(small, engine="gigatoken")


def test_a_reference_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("tokenmill.encoding.engines.installed_version", lambda name: "")
    with pytest.raises(TokenizerError, match=r"needs sentencepiece: pip install 'tokenmill\[sentencepiece\]'"):
        choose(Definition(None, "sentencepiece", {"tokenizer.model": b""}))


@pytest.mark.parametrize("wanted", ["reference", "tokenizers"])
def test_the_reference_wanted_by_name_needs_no_proof(plant, definition, wanted):
    plant(tokenizers=("crashes", "."))
    assert choose(definition, wanted=wanted) == Choice(
        "tokenizers", version("tokenizers"), "chosen by hand; it is the reference"
    )


# The suite.


@pytest.mark.parametrize("policy", ["parse", "text"])
def test_the_suite_holds_every_character(definition, policy):
    """Every assigned one, and of the private ones some. Documents with unassigned ones are left to the reference."""
    held = set().union(*probes(replace(definition, special_tokens=policy)))
    categories: dict[str, set[str]] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        categories.setdefault(unicodedata.category(character), set()).add(character)
    del categories["Cs"]  # surrogates are no text
    assert len(categories.pop("Co") & held) > 10
    unknown = categories.pop("Cn")
    pictographs = {character for character in unknown if "\U0001f000" <= character < "\U0001fc00"}
    assert pictographs <= held
    guarded = {chr(point) for low, high in unassigned() for point in range(low, high + 1)}
    assert guarded == unknown - pictographs
    for category, characters in categories.items():
        assert not characters - held, category


def test_the_suite_holds_every_token(definition, kinds):
    """Added tokens and the vocabulary, as the text they stand for."""
    suite = set(probes(definition))
    to_byte = {character: byte for byte, character in enumerate(byte_alphabet())}
    spoken = 0
    for name in json.loads(definition.json)["model"]["vocab"]:
        try:
            text = bytes(to_byte[character] for character in name).decode()
        except UnicodeDecodeError:
            continue  # a part of a character
        spoken += 1
        assert text in suite
        assert vocabulary_characters(definition) >= {*text}
    assert spoken > 150
    for kind, mark in (("unigram", "▁"), ("sentence_piece", "▁"), ("word_piece", "##")):
        tokenizer = tm.load_tokenizer(kinds[kind])
        suite = set(probes(tokenizer.definition))
        vocabulary = tokenizers.Tokenizer.from_file(str(kinds[kind])).get_vocab()
        assert {name.replace(mark, " " if mark == "▁" else "") for name in vocabulary} - suite <= {""}
        for name in tokenizer.added:
            assert {name, f"a {name} b", f"a{name}{name}b", name[:-1], f" {name}"} <= suite


def test_the_suite_holds_every_added_token_of_many(tmp_path, small):
    made = tokenizers.Tokenizer.from_file(str(small))
    names = [f"<|extra {i}|>" for i in range(2000)]
    made.add_special_tokens(names)
    made.save(str(tmp_path / "tokenizer.json"))
    assert set(names) <= set(probes(tm.load_tokenizer(tmp_path).definition))


# Parts.


def answer(*documents: list[int]) -> Encoded:
    ids = np.array([token for document in documents for token in document], np.uint32)
    return ids, np.cumsum([0, *map(len, documents)])


def test_the_first_difference_is_shown():
    right, found = answer([1, 2], [], [*range(40)], [5]), answer([1, 2], [], [*range(20), 7, *range(21, 40)], [5, 6])
    assert differing(right, right) == []
    assert differing(right, found) == [2, 3]
    texts = ["a", "", "b", "c"]
    one, other = (Difference.of(texts, right, found, i) for i in (2, 3))
    assert (one.text, one.position) == ("b", 20)
    assert str(one) == (
        "first at token 20: [... 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 ...] by the reference,"
        " [... 16, 17, 18, 19, 7, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 ...] by the engine"
    )
    assert str(other) == "first at token 1: [5] by the reference, [5, 6] by the engine"


def test_shifted_borders_differ():
    """The same ids in a row are not the same documents."""
    assert differing(answer([1, 2], [3]), answer([1], [2, 3])) == [0, 1]


@pytest.mark.parametrize(
    ("count", "offsets"), [(2, []), (2, [0, 4]), (2, [0, 1, 2, 4]), (2, [1, 2, 4]), (2, [0, 2, 3]), (2, [0, 5, 4])]
)
def test_offsets_that_are_none(count, offsets):
    with pytest.raises(EncodingError, match="gigatoken"):
        check_shape("gigatoken", count, np.zeros(4, np.uint32), np.array(offsets, np.int64))


@pytest.mark.usefixtures("few_probes")
def test_bytes_are_proved_like_any_other():
    choice = choose(bytes_definition(), ENGLISH * 10)
    assert choice.engine == "bytes"
    assert verdicts(choice)["bytes"].agrees
