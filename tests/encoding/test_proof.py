"""The proof of an engine: one that is wrong is found out, however it is wrong, or is kept from what it is wrong for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import unicodedata
from ast import literal_eval
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_engines import BYTE_LEVEL, PATTERNS, demo_bases
from tokenizer_checks import ids_of
from tokenizer_kinds import KINDS
from wrong_engines import planted

import tokenmill as tm
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines import ENGINES, make_engine
from tokenmill.encoding.engines.guarded import guarded, guards, outside
from tokenmill.encoding.selection import characters, proof, suite
from tokenmill.encoding.selection.characters import PICTOGRAPHS, not_asked
from tokenmill.encoding.selection.proof import Proof, prove, refuse, remembered
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.encoding.tokenizer_json import BYTE_TOKENS, added_token, byte_alphabet
from tokenmill.errors import TokenizerError
from tokenmill.user_cache import cache_folder, read_cached, write_cached

CONSTRAINTS = Path(__file__).parent.parent.parent / "constraints.txt"
PLAIN = "plain text, 中文, é's, ш's, 😀 and ٣\n"


def encoded(engine, texts: list[str]) -> list[list[int]]:
    ids, offsets = engine.encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(ids, offsets[1:-1])] if texts else []


def assert_exact(definition: Definition, texts: list[str]) -> Proof:
    """Proved, gigatoken behind its guard gives the reference's ids; refused, it has a reason."""
    found = remembered(definition, "gigatoken") or prove(definition, "gigatoken")
    if found.agrees:
        engine = guarded(make_engine("gigatoken", definition), definition, found.guard)
        expected = encoded(make_engine(definition.reference, definition), texts)
        for text, ids, right in zip(texts, encoded(engine, texts), expected, strict=True):
            assert ids == right, ascii(text)
    else:
        assert re.match("differs from|cannot run it: ", found.why)
    return found


# Wrong engines are refused.

WRONG = [
    ("changes", "[A-Z]"),
    ("drops", "[0-9]"),
    ("swaps", "[一-鿿]"),
    ("doubles", "[\U0001f300-\U0001faff]"),
    ("drops", "^Hello  world$"),
    ("swaps", r"\w\n\n\n?\w"),
    ("changes", r"\|><\|"),
]


@pytest.mark.usefixtures("known_characters")
@pytest.mark.parametrize(("way", "pattern"), WRONG, ids=[f"{way} {pattern!a}" for way, pattern in WRONG])
def test_one_differing_id_and_an_engine_is_refused(plant, definition, way, pattern):
    """The reason shows a text it differs on. Nothing is guarded: people write such text."""
    plant(gigatoken=(way, pattern))
    found = prove(definition, "gigatoken")
    assert not found.agrees
    shown = re.match(r"differs from tokenizers on ('.*?'|\".*?\")(, and on [\d,]+ more of [\d,]+ texts)?$", found.why)
    assert shown, found.why
    start = literal_eval(shown[1])
    assert any(text.startswith(start) and re.search(pattern, text) for text in suite_texts(definition))
    assert remembered(definition, "gigatoken") == found


REASONS = {
    "raises": "RuntimeError: planted",
    "panics": "Panic: index out of bounds: planted",
    "crashes": "it crashed (SIGSEGV)",
    "loses documents": "gigatoken {version} gave {fewer} documents for {count}",
    "falls": "gigatoken {version} gave {count} ids with offsets that do not span them",
}


@pytest.mark.usefixtures("known_characters", "few_texts")
@pytest.mark.parametrize("way", REASONS)
def test_an_engine_that_fails_is_refused_and_hurts_nobody(plant, definition, way):
    """The reason is kept, in a line."""
    plant(gigatoken=(way, "Hello"))
    found = prove(definition, "gigatoken")
    assert not found.agrees
    reason = re.escape(REASONS[way])
    for name, form in {"version": r"\S+", "fewer": r"(\d+)", "count": r"\d+"}.items():
        reason = reason.replace(rf"\{{{name}\}}", form)
    assert re.fullmatch(f"cannot run it: {reason}", found.why), found.why
    assert remembered(definition, "gigatoken") == found


@pytest.mark.usefixtures("cache", "few_texts")
def test_an_engine_that_crashes_for_one_rare_character_is_refused(plant, definition):
    plant(gigatoken=("crashes", "\u2e3a"))
    assert prove(definition, "gigatoken").why == "cannot run it: it crashed (SIGSEGV)"


SHORT = {
    "finds no room": "OSError: [Errno 28] No space left on device",
    "finds no memory": "OSError: [Errno 12] Cannot allocate memory",
    "is killed": "it crashed (SIGKILL)",
}


@pytest.mark.usefixtures("known_characters", "few_texts")
@pytest.mark.parametrize("way", SHORT)
def test_a_machine_that_is_short_of_something_says_nothing_about_an_engine(plant, definition, way):
    """It is not used this time, and proved the next time."""
    plant(gigatoken=(way, "Hello"))
    found = prove(definition, "gigatoken")
    assert (found.agrees, found.why) == (False, f"cannot run it: {SHORT[way]}")
    assert remembered(definition, "gigatoken") is None
    plant()
    assert prove(definition, "gigatoken").agrees


@pytest.mark.usefixtures("known_characters")
def test_without_room_for_its_files_nothing_is_proved(tmp_path, definition, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    found = prove(definition, "gigatoken")
    assert not found.agrees
    assert found.why.startswith("cannot be examined here: ")
    assert remembered(definition, "gigatoken") is None


@pytest.mark.usefixtures("known_characters")
def test_an_engine_that_hangs_is_refused_and_gone(plant, definition, monkeypatch):
    """After a while nobody waits for it any more, and it does not go on alone."""
    monkeypatch.setattr("tokenmill.child_process.LIMIT_SECONDS", 6.0)
    monkeypatch.setattr(suite, "texts", lambda definition, every=1: ["a short suite", "Hello"])  # others are in time
    plant(gigatoken=("hangs", "Hello"))
    assert prove(definition, "gigatoken").why == "cannot run it: it gave no answer in 6 s"
    assert remembered(definition, "gigatoken") is None
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in running if "tokenmill.encoding.selection.examination" in child.cmdline()]


@pytest.mark.usefixtures("known_characters", "few_texts")
def test_what_an_engine_prints_is_not_an_answer(plant, definition):
    plant(gigatoken=("prints", "e"))
    assert prove(definition, "gigatoken").agrees


@pytest.mark.usefixtures("known_characters", "few_texts")
def test_a_reference_that_fails_on_some_texts_is_used_alone(plant, definition):
    """As AddedVocabulary panics for some tokens. A build quarantines what it cannot encode."""
    plant(tokenizers=("raises", "Hello"))
    found = prove(definition, "gigatoken")
    assert not found.agrees
    assert found.why.startswith("cannot be compared: tokenizers fails on some texts: ")
    assert remembered(definition, "gigatoken") == found


@pytest.mark.usefixtures("known_characters", "few_texts")
@pytest.mark.parametrize("way", ["crashes", "finds no memory"])
def test_a_reference_that_fails_is_an_error(plant, definition, way):
    plant(tokenizers=(way, "Hello"))
    with pytest.raises(
        TokenizerError, match=r"^the reference, tokenizers, cannot run this tokenizer: .*try again later"
    ):
        prove(definition, "gigatoken")
    assert remembered(definition, "gigatoken") is None


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
@pytest.mark.usefixtures("known_characters")
def test_an_engine_that_mistakes_a_flag_of_an_added_token(plant, definition, flag):
    """Next to some character, as single_word next to a combining mark: no character explains that, it is out."""
    plant(gigatoken=("swaps", {"single_word": "the\u0300", "lstrip": "\u2028 the", "rstrip": "the \u0b01"}[flag]))
    found = prove(with_token(definition, "the", **{flag: True}), "gigatoken")
    assert not found.agrees
    assert "differs from tokenizers" in found.why


def with_token(definition: Definition, name: str, **flags: bool) -> Definition:
    body = json.loads(definition.json or "")
    body["added_tokens"].append({**added_token(len(body["model"]["vocab"]) + 9, name), **flags})
    return replace(definition, json=json.dumps(body))


@pytest.mark.usefixtures("known_characters", "few_texts")
def test_names_of_special_tokens_as_text(plant, definition):
    """An engine that is right for one policy may be wrong for the other: each has its own proof."""
    as_text = replace(definition, special_tokens="text")
    plant(gigatoken=("changes", r"^<\|endoftext\|>$"))
    assert not prove(as_text, "gigatoken").agrees
    assert remembered(definition, "gigatoken") is None
    plant()
    names = ["<|endoftext|>", "a<|im_start|>b", "tokenmill", "<|endoftext|><|im_start|> tokenmill"]
    assert assert_exact(definition, names).agrees
    special = {token["id"] for token in definition.added if token["special"]}
    engine = make_engine("gigatoken", as_text)
    assert encoded(engine, names) == encoded(make_engine("tokenizers", as_text), names)
    assert not special & {i for ids in encoded(engine, names) for i in ids}


# Characters hardly any text has.


@pytest.mark.usefixtures("cache", "few_texts")
def test_an_engine_that_is_wrong_for_rare_characters_is_used_for_all_others(plant, definition, small, monkeypatch):
    """Documents that have one are left to the reference."""
    rare, none = "\u0898\u2e3a\U00010348", "\U000f0000\U0010fffd"  # those are private: they are not asked for
    pattern = f"[{rare}{none}]"
    plant(gigatoken=("doubles", pattern))
    found = prove(definition, "gigatoken")
    assert found.agrees, found.why
    assert all(guards(found.guard, character) for character in rare + none)
    assert not guards(found.guard, PLAIN)
    shown = re.search(r"documents with ([\d,]+) rare characters \((U\+.*)\) are left to tokenizers$", found.why)
    assert shown
    assert int(shown[1]) < 1000
    made = ENGINES["gigatoken"]
    monkeypatch.setattr(made, "encode", planted(made.encode, "doubles", pattern))
    tokenizer = tm.load_tokenizer(small, engine="gigatoken")
    assert tokenizer.choose_engine() == "gigatoken"
    texts = ["plain", *(f"a{c} {c}" for c in rare + none), "", rare + none, "\U000e0080 中", "more"]
    assert ids_of(tokenizer, texts) == encoded(make_engine("tokenizers", definition), texts)


@pytest.mark.usefixtures("cache", "few_texts")
@pytest.mark.parametrize("pattern", ["\u0001", "X"])
def test_ascii_is_never_guarded(plant, definition, pattern):
    plant(gigatoken=("drops", pattern))
    found = prove(definition, "gigatoken")
    assert (found.agrees, found.guard) == (False, ())
    assert re.match(rf"differs from tokenizers on the characters '.*{re.escape(repr(pattern)[1:-1])}", found.why)


@pytest.mark.usefixtures("cache", "few_texts")
def test_an_engine_that_is_wrong_for_a_script_is_refused(plant, definition):
    """A guard of twenty thousand characters would leave a corpus to the reference."""
    plant(gigatoken=("swaps", "[一-鿿]"))
    found = prove(definition, "gigatoken")
    assert re.match(r"differs from tokenizers on 2\d,\d{3} characters$", found.why), found.why


@pytest.mark.parametrize("composes", [True, False])
def test_every_character_is_asked_for_or_guarded(composes, definition):
    """Whether it is assigned is known from this Python's Unicode. It matters only to normalizers."""
    left = {code for low, high in not_asked(composes=composes) for code in range(low, high + 1)}
    known = [chr(code) for code in range(0x110000) if code not in left]
    asked = set().union(*(text for _, text in characters.questions(definition, known, [])))
    planes = {code for low, high in characters._PLANES for code in range(low, high + 1)}
    for c in map(chr, range(0x110000)):
        category = unicodedata.category(c)
        if category not in ("Cs", "Co"):  # surrogates are no text
            unknown = category == "Cn" and ord(c) not in PICTOGRAPHS and (composes or ord(c) not in planes)
            assert (ord(c) in left) == unknown, ascii(c)
            assert (c in asked) == (ord(c) not in left), ascii(c)


def test_questions_do_not_depend_on_the_unicode_of_this_python(definition, monkeypatch):
    """The answers to them come with tokenmill."""
    known = characters.trusted(not_asked(composes=True))
    marks = [c for c in known if unicodedata.category(c)[0] == "M"]
    asked = characters.questions(definition, known, marks)
    category = unicodedata.category
    older = {c for c in known if unicodedata.ucd_3_2_0.category(c) == "Cn"}
    monkeypatch.setattr(unicodedata, "category", lambda c: "Cn" if c in older else category(c))
    assert characters.questions(definition, known, marks) == asked


# What engines have got wrong, with the tokenizers they got it wrong with.

YOUNG = (
    "\u0c5c\u0c5d\u1c89\u1c8a\ua7cb\ua7da\ua7dc\U00010d6a\U0001e5f0\U00010d40\U0002ebf0\U00011f02\U0001df25\U00010efd"
)


@pytest.fixture(scope="session")
def qwen(tmp_path_factory) -> tuple[Path, Definition]:
    """A tokenizer with NFC and the pattern of Qwen, and a cache in which gigatoken is proved for it."""
    body = json.loads(demo_bases()["qwen"])
    made = Definition(json.dumps({**body, "added_tokens": body["added_tokens"][:1]}))
    folder = tmp_path_factory.mktemp("qwen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENMILL_CACHE", str(folder))
        assert prove(made, "gigatoken").agrees
    return folder, made


@pytest.fixture(params=["GPT-2", "Qwen"])
def well_known(request, proved, tokenizer_path, monkeypatch) -> Definition:
    """A tokenizer for which gigatoken is proved."""
    if request.param == "GPT-2":
        folder, made = proved, tm.load_tokenizer(tokenizer_path)._definition
    else:
        folder, made = request.getfixturevalue("qwen")
    monkeypatch.setenv("TOKENMILL_CACHE", str(folder))
    return made


def test_the_mongolian_vowel_separator(well_known):
    """Unicode no longer takes it for white space; some libraries do."""
    assert_exact(
        well_known, ["\u180e", "a\u180eb", " \u180e a", "a \u180e", "\u180e\n\u180e\n", "\u180e\u180e's 1\u180e2"]
    )


def test_characters_younger_than_an_engines_unicode(well_known):
    """Letters, digits and marks that came with Unicode 15 to 17, of which libraries know different ones."""
    contexts = ("a{}b", "{0}'s {0}", " {0}1{0}.{0}\n{0}", "e{}\u0301", "{0}{0}a\u0323{0}")
    unknown = [c for c in map(chr, range(0x323B0)) if unicodedata.category(c) == "Cn" and ord(c) not in PICTOGRAPHS]
    assert len(unknown) > 1000
    found = assert_exact(well_known, [context.format(c) for c in (*YOUNG, *unknown[::29]) for context in contexts])
    if characters.normalizes(well_known):
        assert all(guards(found.guard, c) for c in unknown)
    assert not guards(found.guard, PLAIN)


def test_new_pictographs_are_left_to_no_one(well_known):
    """Text is full of them within a year."""
    texts = ["\U0001fae8", "so \U0001fac3\U0001fae8!", "\U0001fac3\u200d\U0001fae8 \U0001fae8's"]
    assert not any(guards(assert_exact(well_known, texts).guard, text) for text in texts)


def test_a_mark_whose_class_an_engine_does_not_know(qwen, monkeypatch):
    """U+0C3C came with Unicode 14. A normalizer that does not know its class leaves it where it is."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(qwen[0]))
    found = assert_exact(qwen[1], ["\u0c15\u0301\u0c3c", "a\u0c3c\u0301 \u0c3c", "\u0c15\u0c3c\u0301"])
    assert guards(found.guard, "\u0c15\u0301\u0c3c")
    assert not guards(found.guard, "\u0c15\u0301")


@pytest.mark.usefixtures("known_characters")
@pytest.mark.parametrize("flags", [("lstrip",), ("rstrip",), ("lstrip", "rstrip"), ("single_word",), ("normalized",)])
def test_flags_of_added_tokens(definition, flags):
    """gigatoken may be refused for them, and is never used wrongly."""
    made = with_token(definition, "quokka", **dict.fromkeys(flags, True))
    near = ["", " ", "  ", "\n", "\u3000", "\u180e", "\x1c", "a", "_", "1", "é", "\u0301", "中", "."]
    assert_exact(made, [f"x{a}quokka{b}y quokka" for a in near for b in near])


def test_an_added_token_that_is_found_after_normalizing(qwen, cache):
    """A name in another normal form than the text's."""
    folder, made = qwen
    shutil.copytree(folder / "characters", cache / "characters")
    texts = ["cafe\u0301", "caf\u00e9", "a cafe\u0301 b", "xcaf\u00e9y", "cafe\u0301\u0323", "cafe"]
    assert_exact(with_token(made, "cafe\u0301", normalized=True), texts)


# What was found is remembered.


@pytest.mark.usefixtures("known_characters", "few_texts")
def test_a_proof_is_remembered(definition):
    found = prove(definition, "gigatoken")
    assert found.agrees
    assert remembered(definition, "gigatoken") == found
    assert remembered(replace(definition, special_tokens="text"), "gigatoken") is None
    assert re.match(r"proved to give the ids of tokenizers \S+: ", found.why)


@pytest.mark.usefixtures("known_characters", "few_texts")
def test_a_refusal_is_final(definition):
    """Also where another process proves the engine at the same time."""
    prove(definition, "gigatoken")
    refuse(definition, "gigatoken", "was caught: differs in document 7")
    refused = remembered(definition, "gigatoken")
    assert refused is not None
    assert (refused.agrees, refused.why) == (False, "was caught: differs in document 7")
    assert prove(definition, "gigatoken") == refused
    assert remembered(definition, "gigatoken") == refused


@pytest.mark.usefixtures("few_texts", "nothing_shipped")
def test_a_damaged_memory_only_costs_time(known_characters, definition):
    """It is not believed, and is no error: what is known of the tokenizer, and what is known of characters."""
    before = prove(definition, "gigatoken")
    for name in ("proofs", "characters"):
        [path] = (known_characters / name).iterdir()
        whole = path.read_bytes()
        path.write_bytes(
            whole.replace(b'"agrees": true', b'"agrees": false').replace(b'"marks": []', b'"marks": [[1, 2]]')
        )
        assert path.read_bytes() != whole
    assert remembered(definition, "gigatoken") is None
    again = prove(definition, "gigatoken")
    assert (again.agrees, again.guard) == (before.agrees, before.guard)
    assert again.texts > before.texts  # those about characters
    assert prove(definition, "gigatoken") == before


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damage_to_what_is_kept_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("kept") / "a" / "b.json"
    value = {"agrees": True, "guard": [[1, 2]], "why": "é"}
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


PROVES = """
import sys
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.selection.proof import prove
print(prove(load_tokenizer(sys.argv[1])._definition, "gigatoken").why)
"""


def test_two_processes_prove_at_once(known_characters, small, definition):
    command = [sys.executable, "-c", PROVES, small]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].strip() for process in both]
    found = remembered(definition, "gigatoken")
    assert found is not None
    assert found.agrees
    assert said == [found.why] * 2
    assert len(list((known_characters / "proofs").iterdir())) == 1


# Tables of characters that come with tokenmill.


def shipping(tables: dict[str, Any], same_answers: dict[str, str] | None = None) -> dict[str, Any]:
    """What comes with tokenmill, but for characters that are not asked for."""
    return {"not_asked": [], "private": [], "same_answers": same_answers or {}, "tables": tables}


@pytest.fixture
def nothing_shipped(monkeypatch) -> None:
    """No table comes with tokenmill."""
    monkeypatch.setattr(proof, "_shipped", lambda: shipping({}))


@pytest.fixture
def shipped(proved, cache, definition, monkeypatch) -> proof.Table:
    """A table for the tokenizer's pattern comes with tokenmill. The cache is empty."""
    [path] = (proved / "characters").iterdir()
    body = read_cached(path)
    assert body is not None
    key = proof.table_key(definition, "gigatoken")
    monkeypatch.setattr(proof, "_shipped", lambda: shipping({key: body}))
    return proof._as_table(body, ())


@pytest.mark.usefixtures("few_texts")
def test_a_table_that_came_along_is_confirmed(shipped, definition):
    """The engine is asked, the reference is not."""
    found = prove(definition, "gigatoken")
    assert (found.agrees, found.shipped, found.guard) == (True, True, shipped.guard)
    assert "compared with its answers that come with tokenmill" in found.why
    assert prove(definition, "gigatoken") == found


@pytest.mark.usefixtures("few_texts")
def test_a_table_of_another_version_with_the_same_answers_is_confirmed(shipped, definition, monkeypatch):
    own = f"tokenizers {proof.engine_version('tokenizers')}"
    [(key, body)] = proof._shipped()["tables"].items()
    tables = {key.replace(f", {own}, ", ", tokenizers 0.0.1, "): body}
    monkeypatch.setattr(proof, "_shipped", lambda: shipping(tables))
    assert not prove(definition, "gigatoken").shipped
    for path in cache_folder().rglob("*.json"):
        path.unlink()
    monkeypatch.setattr(proof, "_shipped", lambda: shipping(tables, {own: "tokenizers 0.0.1"}))
    found = prove(definition, "gigatoken")
    assert (found.agrees, found.shipped, found.guard) == (True, True, shipped.guard)


@pytest.mark.usefixtures("few_texts", "shipped")
def test_an_engine_that_goes_wrong_here_is_not_believed(plant, definition):
    """Another machine, another build of the library: whatever the reason, the reference is asked here."""
    plant(gigatoken=("doubles", "\u2e3a"))
    found = prove(definition, "gigatoken")
    assert (found.agrees, found.shipped) == (True, False)
    assert guards(found.guard, "\u2e3a")


def test_tables_hold_for_the_versions_they_were_made_with(definition, monkeypatch):
    keys, version = {proof.table_key(definition, "gigatoken")}, proof.engine_version
    for changed in ("gigatoken", "tokenizers"):
        with monkeypatch.context() as patch:
            patch.setattr(proof, "engine_version", lambda name, own=changed: version(name) + "0" * (name == own))
            keys.add(proof.table_key(definition, "gigatoken"))
    for module in (characters, suite):
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", 99)
            keys.add(proof.table_key(definition, "gigatoken"))
    assert len(keys) == 5


def test_the_tables_are_of_the_pinned_versions():
    """If an engine is upgraded, scripts/character_tables.py has to be run."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", CONSTRAINTS.read_text(), re.M))
    body = json.loads(files("tokenmill").joinpath("data", proof.TABLES).read_text("utf-8"))
    assert len(body["tables"]) >= 10
    for key, table in body["tables"].items():
        named = dict(part.split(" ") for part in re.findall(r"[a-z]+ [\w.]+(?=,)", key))
        assert named["gigatoken"] == pins["gigatoken"], "run scripts/character_tables.py"
        assert named.keys() & {"tokenizers", "tiktoken"}, key
        assert key.endswith(f" {characters.VERSION}.{suite.VERSION}"), "run scripts/character_tables.py"
        assert table["members"]
    references = {key.split(" ", 3)[3] for key in body["tables"]}
    assert any(reference.startswith(f"tokenizers {pins['tokenizers']},") for reference in references)


def test_what_comes_along_guards_what_this_python_does_not_know():
    body = json.loads(files("tokenmill").joinpath("data", proof.TABLES).read_text("utf-8"))
    for name, composes in (("not_asked", True), ("private", False)):
        always = tuple((low, high) for low, high in body[name])
        assert outside(not_asked(composes=composes), always) == ()


# The texts.


def said(definition: Definition) -> set[str]:
    """The texts of the suite, and the lines of those."""
    texts = suite_texts(definition)
    return {*texts, *(line for text in texts for line in text.split("\n"))}


def test_the_suite_has_every_token(definition, kinds):
    """Added tokens and the vocabulary, as the text they stand for."""
    texts = said(definition)
    to_byte = {character: byte for byte, character in enumerate(byte_alphabet())}
    spoken = 0
    for name in json.loads(definition.json or "")["model"]["vocab"]:
        try:
            text = bytes(to_byte[character] for character in name).decode()
        except (UnicodeDecodeError, KeyError):
            continue  # a part of a character, or an added token
        spoken += 1
        assert text in texts
    assert spoken > 600
    for kind, mark in (("unigram", "▁"), ("sentence_piece", "▁"), ("word_piece", "##")):
        tokenizer = tm.load_tokenizer(kinds[kind])
        texts = said(tokenizer._definition)
        model = json.loads(KINDS[kind].read_text("utf-8"))["model"]["vocab"]
        names = [entry[0] for entry in model] if isinstance(model, list) else list(model)
        spoken_names = {name.replace(mark, " " if mark == "▁" else "") for name in names if name not in BYTE_TOKENS}
        assert spoken_names - texts <= {""}
        for name in tokenizer.added:
            assert {name, f"a {name} b", f"a{name}{name}b", name[:-1], f" {name}"} <= texts


def test_the_suite_has_every_added_token_of_many(definition):
    body = json.loads(definition.json or "")
    names = [f"<|extra {i}|>" for i in range(2000)]
    body["added_tokens"] += [added_token(1000 + i, name, special=True) for i, name in enumerate(names)]
    assert set(names) <= set(suite_texts(Definition(json.dumps(body))))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_small_vocabulary_shows_where_text_is_split(name):
    """Two tokenizers that split or normalize a text in two ways give two answers to the questions."""
    made = characters.question_definition(Definition(demo_bases()[name]))
    assert made is not None
    body = json.loads(made.json or "")
    wrong = {**body, "pre_tokenizer": {**BYTE_LEVEL, "use_regex": False}}
    texts = characters.class_strings(("a", "1", " ", "\n", ".", "'", "é"))[:3000]
    right, other = (encoded(make_engine("tokenizers", Definition(json.dumps(each))), texts) for each in (body, wrong))
    assert sum(a != b for a, b in zip(right, other, strict=True)) > 1000


@pytest.mark.usefixtures("cache")
def test_bytes_are_proved_like_any_other(plant):
    assert prove(bytes_definition(), "bytes").agrees
    plant(bytes=("swaps", "[a-z]"))
    assert not prove(replace(bytes_definition(), special_tokens="text"), "bytes").agrees
