"""The rules for a GPU give the pretokens that `tokenizers` gives: with numpy, and in C++ as it is compiled for a GPU."""

from __future__ import annotations

import itertools
from dataclasses import replace

import host_marks
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pretokens import (
    PRE_TOKENIZERS,
    REGEXES,
    assert_same,
    by_rules,
    by_tokenizers,
    byte_level,
    packed,
    pattern_of,
    sequence,
    split,
    splitter,
    tokenizer_json,
)
from tokenizers import Regex, normalizers, pre_tokenizers

from tokenmill.encoding.definition import bytes_definition
from tokenmill.encoding.gpu import classes
from tokenmill.encoding.gpu.patterns import recognise
from tokenmill.encoding.gpu.pretoken_rules import character_roles
from tokenmill.encoding.gpu.starts import not_normalized
from tokenmill.encoding.selection.suite import texts as suite_texts

NFC = {"type": "NFC"}
# Every role, the letters of contractions, and characters of which only one library may know what they are.
ALPHABET = [
    *"'/!.-1 \n\r\tabstrelvmdSTRELVMDZ",
    *(
        "\u00a0",
        "\u2028",
        "\u0301",
        "\u3099",
        "é",
        "É",
        "ǅ",
        "ʰ",
        "中",
        "文",
        "あ",
        "・",
        "ー",
        "゛",
        "ا",
        "ſ",
        "½",
        "Ⅷ",
    ),
    *("٣", "\u200b", "\x00", "€", "’", "👍", "\U00010d40", "\U0001ccf0", "\u1c89", "\u0897", "\U000323b0"),
]
ONE_OF_EACH = ["a", "B", "s", "'", "/", "!", "1", " ", "\t", "\n", "é", "中", "\u0301", "\u200b", "・", "€"]
SMALL = ["a", "B", "中", "\u0301", "'", "s", "/", "!", " ", "\n"]
LONG = [
    "a",
    "B",
    "'",
    "'s",
    "1",
    " ",
    "\n",
    "\t ",
    " \n",
    "\n ",
    "!",
    "/",
    "\n/",
    "中",
    "\u0301",
    "中B",
    "\u200b",
    "!\u0301",
    "é'll",
]
# Runs on which the state at their end depends on their beginning.
FAR = ["1", "\n", "\n/", "\n/!\u0301", "中", "\u0301", "a's's", "'s", "\r"]

CONTRACTIONS = [
    f"{before}'{letters}{after}"
    for before in ("", "a", "B", "1", " ", "\t", "\n", "'", "!", "é", "\u0301", "!!\u0301", "a's", "a'll'")
    for letters in (
        "s",
        "t",
        "re",
        "ve",
        "m",
        "ll",
        "d",
        "S",
        "Re",
        "lL",
        "VE",
        "ſ",
        "r",
        "l",
        "rſ",
        "x",
        "é",
        "\u0301",
    )
    for after in ("", "a", "B", "'s", "1", " ", "\u0301")
]

documents = st.lists(st.text(st.sampled_from(ALPHABET), max_size=40) | st.text(max_size=12), max_size=8)
each_pattern = pytest.mark.parametrize("name", PRE_TOKENIZERS)


@each_pattern
@given(texts=documents)
@settings(max_examples=60, deadline=None)
@example(texts=[])
@example(texts=["", "", ""])
@example(texts=["'", "s", " ", "a", "1", "2", "\n", "\n"])
def test_random_text(name, texts):
    assert_same(PRE_TOKENIZERS[name], texts)


@each_pattern
def test_all_short_texts(name):
    assert_same(PRE_TOKENIZERS[name], ["".join(text) for text in itertools.product(ONE_OF_EACH, repeat=3)])


@pytest.mark.parametrize("name", ["cl100k", "o200k", "deepseek3"])
def test_all_longer_texts_of_the_characters_with_the_most_rules(name):
    assert_same(PRE_TOKENIZERS[name], ["".join(text) for text in itertools.product(SMALL, repeat=4)])


@each_pattern
def test_contractions(name):
    assert_same(PRE_TOKENIZERS[name], CONTRACTIONS)


@pytest.fixture(scope="module")
def probe_suite() -> list[str]:
    """What engines are tried on, with a part of the characters."""
    return [text[:1000] for text in suite_texts(bytes_definition(), 40)]


@each_pattern
def test_the_probe_suite(name, probe_suite):
    assert_same(PRE_TOKENIZERS[name], probe_suite)


@each_pattern
def test_real_text(name, real_texts):
    assert_same(PRE_TOKENIZERS[name], [text[:20_000] for text in real_texts[::12]])


@each_pattern
def test_long_runs(name):
    texts = [
        before + unit * 700 + after for unit in LONG for before, after in (("", ""), ("x", "y"), (".", "Z"), (" ", "1"))
    ]
    assert_same(PRE_TOKENIZERS[name], texts)


@pytest.mark.stress
@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "deepseek3"])
def test_runs_of_a_megabyte(name):
    units = ["a", "1", " ", "\n ", "中", "\n/"]
    assert_same(PRE_TOKENIZERS[name], ["x" + unit * ((1 << 20) // len(unit.encode())) + "Z" for unit in units])


@pytest.mark.parametrize("name", ["gpt2", "o200k", "deepseek3", "digits, gpt2"])
def test_characters_of_all_of_unicode(name):
    every = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200))]
    texts = ["".join(every[first : first + 997]) for first in range(0, len(every), 997)]
    texts += ["".join(f"{c}a {c}'s1{c}B" for c in every[first::1499]) for first in range(0, 1499, 7)]
    assert_same(PRE_TOKENIZERS[name], texts)


@pytest.mark.stress
def test_the_classes_are_those_of_every_character():
    """In the planes of which the table asks for one character in 64, too."""
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    codes = np.array([ord(character) for character in text])
    table = classes.character_classes()[codes]
    for regex, members in (
        (r"\p{L}", range(5, 10)),
        (r"\p{N}", [11]),
        (r"\s", range(12, 15)),
        (r"\p{M}", [10]),
        (r"[\p{P}\p{S}]", range(1, 5)),
    ):
        expected = np.ones(len(text), bool)
        for first in range(0, len(text), 4096):
            parts = pre_tokenizers.Split(Regex(regex + "+"), "removed").pre_tokenize_str(text[first : first + 4096])
            for _, (start, end) in parts:
                expected[first + start : first + end] = False
        assert (np.isin(table & classes.CLASS, list(members)) == expected).all(), regex


def test_what_is_a_contraction_for_the_regular_expression():
    """Nothing but the ASCII letters and the long s is equal to a letter of a contraction if case is ignored."""
    every = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    found = set()
    for first in range(0, len(every), 2048):
        parts = pre_tokenizers.Split(Regex("(?i:[strevmld])"), "isolated").pre_tokenize_str(
            " ".join(every[first : first + 2048])
        )
        found |= {part for part, _ in parts if len(part) == 1} - {" "}
    assert found == {*"strevmldSTREVMLD", "ſ"}


combining = st.text(
    st.sampled_from(
        [
            *"aeA가각ᄀ",
            "\u1161",
            "\u11a8",
            "\u0301",
            "\u0323",
            "\u0345",
            "\u093c",
            "\u0915",
            "\u094d",
            "\u0e38",
            "\u0e48",
            "\u1100",
        ]
    ),
    max_size=6,
)


@given(texts=st.lists(combining, max_size=20))
@settings(max_examples=60, deadline=None)
def test_text_without_marks_for_nfc_is_normalized(texts):
    pattern = pattern_of(PRE_TOKENIZERS["qwen2"], NFC)
    data, ends = packed(texts)
    marked = not_normalized(data, ends, character_roles(pattern))
    for text, part in zip(texts, np.split(marked, ends)[:-1], strict=True):
        assert part.any() or normalizers.NFC().normalize_str(text) == text, ascii(text)


def test_usual_text_is_normalized_and_few_characters_are_not():
    pattern = pattern_of(PRE_TOKENIZERS["qwen2"], NFC)
    roles = character_roles(pattern)
    usual = ["Größe, naïve café: 中文 한국어 日本語が русский العربية ไทย हिन्दी", "кит\u0301", "\u0301"]
    data, ends = packed(usual)
    assert [bool(part.any()) for part in np.split(not_normalized(data, ends, roles), ends)[:-1]] == [False, True, True]


@pytest.mark.parametrize(("name", "pre_tokenizer"), PRE_TOKENIZERS.items())
def test_a_pattern_is_recognised(name, pre_tokenizer):
    assert pattern_of(pre_tokenizer).name == name
    assert not pattern_of(pre_tokenizer).nfc
    assert pattern_of(pre_tokenizer, {"type": "Sequence", "normalizers": []}) == pattern_of(pre_tokenizer)
    assert pattern_of(pre_tokenizer, NFC) == replace(pattern_of(pre_tokenizer), nfc=True)


def test_other_spellings_are_recognised():
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    removed = split(REGEXES["cl100k"][0], "Removed", invert=True)
    assert pattern_of(sequence(split(gpt2), byte_level())).name == "gpt2"
    assert pattern_of(sequence(removed, byte_level())).name == "cl100k"
    assert pattern_of({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}).name == "gpt2"


CL100K = REGEXES["cl100k"][0]


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer", "why"),
    [
        (PRE_TOKENIZERS["gpt2"], {"type": "NFKC"}, "it normalizes text (NFKC)"),
        (None, None, "not a byte-level"),
        ({"type": "Metaspace"}, None, "not a byte-level"),
        (byte_level(add_prefix_space=True, use_regex=True), None, "adds a space"),
        ({"type": "ByteLevel"}, None, "adds a space"),
        (byte_level(), None, "not at all"),
        (sequence(split(CL100K, "Removed"), byte_level()), None, "no rules are known"),
        (sequence(split(CL100K, invert=True), byte_level()), None, "no rules are known"),
        (sequence(split(CL100K + "|x"), byte_level()), None, "no rules are known for how it splits text: (?i:'s"),
        (sequence(split(CL100K), split(CL100K), byte_level()), None, "no rules are known"),
        (sequence(split(CL100K), byte_level(use_regex=True)), None, "no rules are known"),
        (sequence({"type": "Digits", "individual_digits": False}, byte_level(use_regex=True)), None, "Digits"),
        (sequence({"type": "Punctuation"}, byte_level()), None, "Punctuation"),
        (sequence(*map(split, REGEXES["deepseek3"][1:]), byte_level()), None, "no rules are known"),
    ],
)
def test_what_is_refused_and_why(pre_tokenizer, normalizer, why):
    pattern, said = recognise(tokenizer_json(pre_tokenizer, normalizer))
    assert pattern is None
    assert why in said


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if host_marks.compiler() is None:
        pytest.skip("there is no C++ compiler (g++ or clang++)")
    patterns = [pattern_of(each) for each in PRE_TOKENIZERS.values()]
    return host_marks.compile_for_host(
        tmp_path_factory.mktemp("marks"), [*patterns, pattern_of(PRE_TOKENIZERS["qwen2"], NFC)]
    )


def marks(library, pattern, texts):
    return host_marks.marks(library, pattern, [text.encode() for text in texts])


@each_pattern
@given(texts=documents)
@settings(max_examples=60, deadline=None)
@example(texts=[])
@example(texts=["", "", ""])
def test_in_c_short_documents_are_exact(library, name, texts):
    pattern = pattern_of(PRE_TOKENIZERS[name])
    starts, unsure = marks(library, pattern, texts)
    assert ((starts == by_rules(pattern, texts)) | unsure).all()
    assert not unsure.any() or max(len(text.encode()) for text in texts) > 128


@each_pattern
def test_in_c_contractions_and_runs_within_the_bound_are_exact(library, name):
    pattern, texts = pattern_of(PRE_TOKENIZERS[name]), CONTRACTIONS + [f"a{unit * 30}Bc." for unit in LONG]
    starts, unsure = marks(library, pattern, texts)
    assert (starts == by_rules(pattern, texts)).all()
    assert not unsure.any()


@each_pattern
def test_in_c_the_probe_suite(library, name, probe_suite):
    pattern = pattern_of(PRE_TOKENIZERS[name])
    starts, unsure = marks(library, pattern, probe_suite)
    assert ((starts == by_rules(pattern, probe_suite)) | unsure).all()


@each_pattern
def test_in_c_real_text_is_exact(library, name, real_texts):
    pattern, texts = pattern_of(PRE_TOKENIZERS[name]), [text[:20_000] for text in real_texts[::12]]
    starts, unsure = marks(library, pattern, texts)
    assert (starts == by_tokenizers(splitter(PRE_TOKENIZERS[name]), texts)).all()
    assert not unsure.any()


@each_pattern
@given(
    beginning=st.text(st.sampled_from(ALPHABET), max_size=6),
    unit=st.sampled_from(LONG + FAR),
    bytes_of_run=st.integers(100, 400),
    end=st.text(st.sampled_from(ALPHABET), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_in_c_what_is_beyond_the_bound_is_unsure_or_exact(library, name, beginning, unit, bytes_of_run, end):
    pattern, text = pattern_of(PRE_TOKENIZERS[name]), beginning + unit * (bytes_of_run // len(unit.encode())) + end
    starts, unsure = marks(library, pattern, [text, "x", text])
    assert ((starts == by_rules(pattern, [text, "x", text])) | unsure).all()


@pytest.mark.parametrize(
    ("name", "text"),
    [("cl100k", "1" * 300), ("cl100k", "x\n" + " " * 300 + "\n"), ("o200k", "A" + "中" * 90 + "Bc")],
    ids=range(3),
)
def test_in_c_the_bound_is_noticed(library, name, text):
    assert marks(library, pattern_of(PRE_TOKENIZERS[name]), [text])[1].any()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("cl100k", "a"),
        ("cl100k", " "),
        ("o200k", "中"),
        ("o200k", "ก็"),
        ("deepseek3", "a"),
        ("qwen2", "1"),
        ("gpt2", "\n"),
    ],
)
def test_in_c_usual_long_runs_are_within_the_bound(library, name, unit):
    assert not marks(library, pattern_of(PRE_TOKENIZERS[name]), ["x" + unit * 500 + ". x"])[1].any()


@given(texts=st.lists(combining, max_size=20))
@settings(max_examples=40, deadline=None)
def test_in_c_text_that_nfc_may_change_is_unsure(library, texts):
    pattern = pattern_of(PRE_TOKENIZERS["qwen2"], NFC)
    data, ends = packed(texts)
    assert (marks(library, pattern, texts)[1] == not_normalized(data, ends, character_roles(pattern))).all()
