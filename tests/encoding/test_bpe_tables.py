"""Tokens that are looked up as whole pretokens, and merges, as a GPU needs them."""

from __future__ import annotations

import copy
import json

import pytest
from pretokens import merged
from tokenizer_kinds import from_json

from tokenmill.encoding.gpu.bpe_tables import NO_ID, BpeTables, bpe_tables
from tokenmill.encoding.tokenizer_json import byte_alphabet


def tokenizer(merges: list[list[str]], more: tuple[str, ...] = (), **model) -> dict:
    """A byte-level tokenizer.json with these merges, and tokens that no merge gives."""
    names = [*byte_alphabet(), *dict.fromkeys(a + b for a, b in merges), *more]
    body = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": merges, **model}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "normalizer": None, "pre_tokenizer": byte_level, "model": body, "added_tokens": []}


def tables_of(body: dict) -> BpeTables:
    tables, why = bpe_tables(body)
    assert tables is not None, why
    return tables


# "abc" is a token, but "bc" is merged first, and then nothing gives "abc".
UNREACHABLE = [["b", "c"], ["a", "b"], ["ab", "c"], ["x", "y"], ["xy", "z"]]


def test_a_token_that_merging_does_not_give_is_left_out():
    body = tokenizer(UNREACHABLE, more=("neverseen",))
    tables = tables_of(body)
    assert tables.not_reached == ("abc", "neverseen")
    assert not tables.is_lookup_exact
    assert b"abc" not in tables.words
    assert tables.words[b"xyz"] == body["model"]["vocab"]["xyz"]
    own = from_json(json.dumps(body))
    for word in ("abc", "bc", "ab", "xyz", "xy", "abcxyz", "neverseen"):
        assert merged(tables, word.encode()) == own.encode(word).ids, word


def test_a_tokenizer_that_looks_up_whole_pretokens_first_has_all_tokens():
    body = tokenizer(UNREACHABLE, more=("neverseen",), ignore_merges=True)
    tables = tables_of(body)
    assert tables.looks_up_first
    assert tables.is_lookup_exact
    own = from_json(json.dumps(body))
    for word in ("abc", "neverseen", "xyz", "abcx"):
        assert merged(tables, word.encode()) == own.encode(word).ids, word


def test_added_tokens_and_names_outside_the_alphabet_do_not_matter():
    body = tokenizer([["a", "b"]], more=("a b", "中"))
    body["added_tokens"] = [
        {
            "id": 256,
            "content": "ab",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ]
    tables = tables_of(body)
    assert tables.not_reached == ("a b", "中")
    assert tables.words[b"ab"] == 256
    assert "中".encode() not in tables.words


def test_tables_of_a_trained_tokenizer(body, real_texts):
    """The demo tokenizer: every word of a text, looked up or merged, has the ids of `tokenizers`."""
    tables = tables_of(body)
    own = from_json(json.dumps(body))
    words = {word: None for text in real_texts[:5] for word in text[:8000].split(" ") if word}
    for word, encoding in zip(words, own.encode_batch(list(words)), strict=True):
        parts = [text for text, _ in own.pre_tokenizer.pre_tokenize_str(word)]
        ids = [i for part in parts for i in merged(tables, bytes(byte_alphabet().index(c) for c in part))]
        assert ids == encoding.ids, word
    assert set(tables.not_reached) <= {token["content"] for token in body["added_tokens"]}


def test_merges_as_text_and_as_lists_are_the_same():
    body = tokenizer(UNREACHABLE)
    as_text = copy.deepcopy(body)
    as_text["model"]["merges"] = [" ".join(merge) for merge in body["model"]["merges"]]
    assert tables_of(as_text).pairs == tables_of(body).pairs
    vocabulary = body["model"]["vocab"]
    assert tables_of(body).pairs[vocabulary["ab"], vocabulary["c"]] == (2, vocabulary["abc"])


def test_bytes_that_no_text_has_may_be_missing():
    body = tokenizer([])
    del body["model"]["vocab"][byte_alphabet()[0xFF]]
    assert tables_of(body).byte_ids[0xFF] == NO_ID
    del body["model"]["vocab"]["a"]
    assert bpe_tables(body) == (None, "its vocabulary has no token for 1 of the bytes that text consists of")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": "WordPiece"}, "its model is WordPiece, and only BPE is handled"),
        ({"dropout": 0.1}, "it leaves out merges at random (dropout)"),
        ({"end_of_word_suffix": "</w>"}, "it marks the beginnings or ends of words"),
        ({"continuing_subword_prefix": "##"}, "it marks the beginnings or ends of words"),
    ],
)
def test_what_is_refused_and_why(changes, why):
    assert bpe_tables(tokenizer([], **changes)) == (None, why)
