"""Every engine of the package passes the conformance suite, with each kind of tokenizer it is proved for."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
import tiktoken
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers
from transformers import ByT5Tokenizer

import tokenmill as tm
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.engines import Engine, make_engine
from tokenmill.encoding.engines.guarded import GuardedEngine
from tokenmill.encoding.selection.choosing import EVERY
from tokenmill.encoding.tokenizer_json import byte_alphabet
from tokenmill.testing.engines import EngineCase, EngineContract, encode, suite_texts, texts_with

# What is proved for which kind of tokenizer. "shipped" is of the same kind as "byte_level", and large: one policy is enough.
PROVED = {
    "shipped": ("gigatoken",),
    "word_piece": (),
    "unigram": (),
    "sentence_piece": ("gigatoken",),
    "byte_level": ("gigatoken",),
}
POLICIES = ("parse", "text")
FEW = 20  # each 20th character and token, for a library held against itself, and for a second policy
KINDS = [(kind, policy) for kind in PROVED for policy in POLICIES if (kind, policy) != ("shipped", "text")]
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def some(real_texts: list[str], step: int, size: int) -> list[str]:
    return [text[:size] for text in real_texts[::step]]


# What runs a tokenizer.json, held against tokenizers itself.


@pytest.fixture(scope="session")
def asked(kinds, real_texts):
    """kind, policy, every -> (its tokenizer, texts, what tokenizers makes of them); each once. `every` is for the suite."""

    @cache
    def ask(kind: str, policy: str, every: int = 1) -> tuple[tm.Tokenizer, list[str], list[list[int] | None]]:
        tokenizer = tm.load_tokenizer(kinds[kind], special_tokens=policy)
        texts = [
            *suite_texts(tokenizer._definition, every),
            *texts_with(list(tokenizer.added)),
            *some(real_texts, 9, 8000),
        ]
        reference = tokenizers.Tokenizer.from_file(str(kinds[kind]))
        reference.encode_special_tokens = policy == "text"
        return tokenizer, texts, judged(tokenizer, reference, texts)

    return ask


def judged(tokenizer, reference: tokenizers.Tokenizer, texts: list[str]) -> list[list[int] | None]:
    """The reference's ids; None where it may find the id of a special token in the vocabulary, against the policy."""
    ids = [encoding.ids for encoding in reference.encode_batch_fast(texts, add_special_tokens=False)]
    if tokenizer.special_tokens == "parse":
        return ids
    special = set(tokenizer.special_ids)
    named = [any(name in text for name in tokenizer._produced_names) for text in texts]
    return [None if special & {*found} or is_named else found for found, is_named in zip(ids, named, strict=True)]


class TestFastEngines(EngineContract):
    """Those that are proved for a kind of tokenizer, with the guard they were given, if any.

    Nothing about characters depends on the policy: one proof for each kind, and all texts with one policy, are enough.
    """

    @pytest.fixture(
        scope="class", params=[(*kind, engine) for kind in KINDS for engine in PROVED[kind[0]]], ids="-".join
    )
    @classmethod
    def case(cls, request, asked, kinds):
        kind, policy, engine = request.param
        tokenizer, texts, expected = asked(kind, policy, 1 if policy == "parse" else FEW)
        choice = tm.load_tokenizer(kinds[kind])._choice
        assert choice.engine == engine, choice.why

        def make() -> Engine:
            fast = make_engine(engine, tokenizer._definition)
            return GuardedEngine(fast, lambda: make_engine("tokenizers", tokenizer._definition), choice.guard)

        return EngineCase(make, texts, expected, tokenizer.vocab_size, set(tokenizer.special_ids))


class TestTokenizersEngine(EngineContract):
    """The reference itself, both ways it can be called."""

    @pytest.fixture(
        scope="class",
        params=[
            *((*kind, "one by one") for kind in KINDS),
            *((kind, "text", "in batches") for kind in ("byte_level", "unigram")),
        ],
        ids="-".join,
    )
    @classmethod
    def case(cls, request, asked):
        kind, policy, way = request.param
        tokenizer, texts, expected = asked(kind, policy, FEW)
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("TOKENIZERS_PARALLELISM", raising=False)
            if way == "in batches":
                patch.setenv("TOKENIZERS_PARALLELISM", "false")
            yield EngineCase(
                lambda: make_engine("tokenizers", tokenizer._definition),
                texts,
                expected,
                tokenizer.vocab_size,
                set(tokenizer.special_ids),
            )


# Libraries that are the reference for their own files, held against themselves.


@pytest.fixture(scope="session")
def encoding(tokenizer_path) -> tiktoken.Encoding:
    """The demo tokenizer as an encoding of tiktoken."""
    body = json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))
    special = {token["content"]: token["id"] for token in body["added_tokens"]} | {"<|fim|>": 4096, "<|fim|>x": 4097}
    to_byte = {character: byte for byte, character in enumerate(byte_alphabet())}
    ordinary = {name: number for name, number in body["model"]["vocab"].items() if name not in special}
    ranks = {bytes(to_byte[character] for character in name): number for name, number in ordinary.items()}
    return tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)


class TestTiktokenEngine(EngineContract):
    @pytest.fixture(scope="class", params=POLICIES)
    @classmethod
    def case(cls, request, encoding, real_texts):
        tokenizer = tm.load_tokenizer(encoding, special_tokens=request.param)
        texts = suite_texts(tokenizer._definition, FEW)
        texts += [*texts_with(["<|endoftext|>", "<|fim|>", "<|fim|>x"]), *some(real_texts, 9, 8000)]
        if request.param == "parse":
            expected = [encoding.encode(text, allowed_special="all") for text in texts]
        else:
            expected = [encoding.encode_ordinary(text) for text in texts]
        return EngineCase(
            lambda: make_engine("tiktoken", tokenizer._definition),
            texts,
            expected,
            encoding.n_vocab,
            set(tokenizer.special_ids),
        )


@pytest.fixture(scope="session")
def sentencepiece_model(real_texts) -> bytes:
    lines = [line for text in real_texts[:12] for line in text.splitlines() if line.strip()]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:2500]),
        model_writer=out,
        model_type="bpe",
        vocab_size=500,
        byte_fallback=True,
        control_symbols=["<2ja>", "<2ja>x"],
        user_defined_symbols=["<sep>"],
        minloglevel=3,
        num_threads=1,
    )
    return out.getvalue()


class TestSentencePieceEngine(EngineContract):
    """Control symbols are not for text to sentencepiece itself. With "parse" a text is split at their names."""

    @pytest.fixture(scope="class", params=POLICIES)
    @classmethod
    def case(cls, request, sentencepiece_model, real_texts):
        definition = Definition(None, "sentencepiece", {"tokenizer.model": sentencepiece_model}, request.param)
        processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model)
        control = {"<unk>": 0, "<s>": 1, "</s>": 2, "<2ja>": 3, "<2ja>x": 4}
        assert all(processor.id_to_piece(number) == name for name, number in control.items())
        texts = [*suite_texts(definition, FEW), *texts_with([*control, "<sep>"]), *some(real_texts, 9, 8000)]

        def ids(text: str) -> list[int]:
            """Each name where it first stands, the longest of several; between them sentencepiece decides."""
            places = [(text.find(name), -len(name), name) for name in control if name in text]
            if request.param == "text" or not places:
                return processor.encode(text)
            at, _, name = min(places)
            before, after = text[:at], text[at + len(name) :]
            return [*(processor.encode(before) if before else []), control[name], *(ids(after) if after else [])]

        return EngineCase(
            lambda: make_engine("sentencepiece", definition),
            texts,
            [ids(text) for text in texts],
            processor.get_piece_size(),
            {1, 2, 3, 4},
        )


class TestPythonEngine(EngineContract):
    """ByT5's: bytes, after its three special tokens. Slow, so of the suite it gets what slow references get."""

    @pytest.fixture(scope="class", params=POLICIES)
    @classmethod
    def case(cls, request, real_texts):
        slow = ByT5Tokenizer()
        definition = tm.load_tokenizer(slow, special_tokens=request.param)._definition
        texts = suite_texts(definition, EVERY) + texts_with(["</s>", "<pad>", "<extra_id_0>", "<extra_id_124>"])
        texts += some(real_texts, 60, 2000)
        if request.param == "parse":
            expected = [slow.encode(text, add_special_tokens=False) for text in texts]
        else:
            expected = [[byte + 3 for byte in text.encode()] for text in texts]
        return EngineCase(
            lambda: make_engine("python", definition), texts, expected, 259 + 125, {0, 1, *range(259, 384)}
        )


# Bytes.

BYTE_NAMES = {"<|endoftext|>": 256, "<|startoftext|>": 257, "<|pad|>": 258}


def byte_ids(text: str, policy: str) -> list[int]:
    if policy == "text":
        return [*text.encode()]
    parts = re.split(r"(<\|endoftext\|>|<\|startoftext\|>|<\|pad\|>)", text)
    return [i for part in parts for i in ([BYTE_NAMES[part]] if part in BYTE_NAMES else part.encode())]


class TestBytesEngine(EngineContract):
    @pytest.fixture(scope="class", params=POLICIES)
    @classmethod
    def case(cls, request, real_texts):
        definition = replace(bytes_definition(), special_tokens=request.param)
        texts = [*suite_texts(definition), *texts_with(list(BYTE_NAMES)), *some(real_texts, 9, 8000)]
        expected = [byte_ids(text, request.param) for text in texts]
        return EngineCase(lambda: make_engine("bytes", definition), texts, expected, 259, {256, 257, 258})

    @pytest.mark.parametrize("policy", POLICIES)
    def test_names_are_found_within_documents_and_not_across(self, policy):
        """Text is one buffer to this engine, but a name belongs to the document it stands in."""
        engine = make_engine("bytes", replace(bytes_definition(), special_tokens=policy))
        pieces = [*BYTE_NAMES, "<|end", "oftext|>", "<|", "pad", "|>", "<", "a", "é中👍", ""]

        @settings(max_examples=100, deadline=None)
        @given(st.lists(st.lists(st.sampled_from(pieces), max_size=4).map("".join) | st.text(max_size=8), max_size=8))
        @example(["<|endoft", "ext|>"])
        @example(["<|pad", "", "|><|pad|>", "<|pad|>", "", "<", "|pad|>"])
        def check(texts):
            assert encode(engine, texts, 259) == [byte_ids(text, policy) for text in texts]

        check()


# The names of special tokens as text, where a model looks whole words up.


@pytest.mark.parametrize("batches", [False, True])
def test_a_model_of_whole_words_finds_no_special_token_in_text(tmp_path, monkeypatch, batches):
    """The vocabulary holds them: to tokenizers alone a text that says [CLS] is [CLS], whatever it is told."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if batches:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    made = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "<new>"])
    made.add_tokens(["plain"])
    made.save(str(tmp_path / "tokenizer.json"))
    texts = ["a [CLS] b", "[SEP]", "<new> a", "[UNK] plain b", "aplain[CLS]"]
    parsed, as_text = (
        encode(make_engine("tokenizers", tm.load_tokenizer(tmp_path, special_tokens=policy)._definition), texts)
        for policy in POLICIES
    )
    assert parsed == [[3, 1, 4], [2], [5, 3], [0, 6, 4], [3, 6, 1]]
    assert as_text == [[3, 0, 4], [0], [0, 3], [0, 6, 4], [3, 6, 0]]


# A fast engine with a guard.


class Letters(Engine):
    """Every character's id is its code point; wrong for a text with characters for which `wrong` is true."""

    name = "letters"

    def __init__(self, wrong=lambda point: False) -> None:
        self.wrong = wrong

    def encode(self, values):
        texts = [[*map(ord, text)] for text in values.to_pylist()]
        texts = [[7, *text[::2]] if any(map(self.wrong, text)) else text for text in texts]
        offsets = np.concatenate(([0], np.cumsum([len(text) for text in texts], dtype=np.int64)))
        return np.array([point for text in texts for point in text], np.uint32), offsets.astype(np.int64)


def guarded(ranges: list[tuple[int, int]]) -> GuardedEngine:
    ordered = tuple(sorted(ranges))
    return GuardedEngine(Letters(lambda point: any(low <= point <= high for low, high in ordered)), Letters, ordered)


class TestGuardedEngine(EngineContract):
    """Wrong for a character of one byte, of two, three and four in UTF-8, and for ranges of such."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, real_texts):
        ranges = [(0x01, 0x02), (0x7F, 0x9F), (0x301, 0x301), (0x430, 0x4A0), (0x2028, 0x2029), (0x1F44D, 0x1F468)]
        texts = [*suite_texts(bytes_definition()), *some(real_texts, 9, 8000)]
        return EngineCase(lambda: guarded(ranges), texts, [[*map(ord, text)] for text in texts], 0x110000, set())


EDGES = (0, 1, 0x1F, 0x20, 0x7F, 0x80, 0xBF, 0xC0, 0xFF, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000)
points = st.sampled_from(EDGES) | st.integers(0, 0x10FFFF) | st.integers(0, 0x3000)
spans = st.sampled_from((0, 0, 1, 62, 63, 64, 65, 66, 200, 5000, 0x10FFFF))


@st.composite
def guard_ranges(draw) -> list[tuple[int, int]]:
    """Ranges apart from each other, both ends included."""
    found: list[tuple[int, int]] = []
    for low in sorted(draw(st.sets(points, min_size=1, max_size=5))):
        if not found or low > found[-1][1] + 1:
            found.append((low, min(low + draw(spans), 0x10FFFF)))
    return found


@settings(max_examples=120, deadline=None)
@given(guard_ranges(), st.data())
def test_any_guard_and_any_documents(ranges, data):
    """Documents with guarded characters and without, in any order: the ids are those of the reference."""
    near = [point + step for low, high in ranges for point in (low, high, (low + high) // 2) for step in (-1, 0, 1)]
    near = [chr(point) for point in near if 0 <= point <= 0x10FFFF and not 0xD800 <= point < 0xE000]
    letter = st.sampled_from([*near, "a", "é", "中", "👍", "\n"]) | st.characters(exclude_categories=["Cs"])
    texts = data.draw(st.lists(st.text(letter, max_size=6), max_size=8))
    values = pa.array(["before", *texts, "after"], pa.large_string()).slice(1, len(texts))
    assert encode(guarded(ranges), values) == [[*map(ord, text)] for text in texts]


def test_the_reference_sees_only_the_documents_with_such_a_character():
    """The rest is the fast engine's: here one that marks what it encodes."""

    class Fast(Letters):
        def encode(self, values):
            ids, offsets = super().encode(values)
            return ids + 1_000_000, offsets

    engine = GuardedEngine(Fast(), Letters, ((0x301, 0x301), (0x1F600, 0x1F64F)))
    texts = ["ab", "a\u0301", "", "😀", "\u0300", "🚀", "x\u0301y"]
    odd = {1, 3, 6}
    expected = [[ord(c) + (0 if i in odd else 1_000_000) for c in text] for i, text in enumerate(texts)]
    assert encode(engine, texts) == expected
