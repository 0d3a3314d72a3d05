"""Pre-tokenizers as in the model families in use, by the names of the patterns they are recognised as; and what they do."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import tokenizers

from tokenmill.encoding.gpu.bpe_tables import BpeTables
from tokenmill.encoding.gpu.patterns import Pattern, recognise
from tokenmill.encoding.gpu.pretoken_rules import character_roles
from tokenmill.encoding.gpu.starts import starts

_BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*"
REGEXES = {
    "cl100k": [_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _BLANKS],
    "qwen2": [_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _BLANKS],
    "qwen3.5": [_ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _BLANKS],
    "o200k": [_CASES % (_UPPER, _LOWER, _ENDINGS + "?", _UPPER, _LOWER, _ENDINGS + "?", r"\p{N}{1,3}") + _BLANKS],
    "tekken": [_CASES % (_UPPER, _LOWER, "", _UPPER, _LOWER, "", r"\p{N}") + _BLANKS],
    "deepseek3": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
        + "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ],
}


def split(regex: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(**changes: Any) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False} | changes


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


PRE_TOKENIZERS = {
    "gpt2": byte_level(use_regex=True),
    "digits, gpt2": sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)),
    **{name: sequence(*map(split, regexes), byte_level()) for name, regexes in REGEXES.items()},
}


def tokenizer_json(pre_tokenizer: dict[str, Any] | None, normalizer: dict[str, Any] | None = None) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    return {
        "version": "1.0",
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": model,
        "added_tokens": [],
    }


def pattern_of(pre_tokenizer: dict[str, Any], normalizer: dict[str, Any] | None = None) -> Pattern:
    pattern, why = recognise(tokenizer_json(pre_tokenizer, normalizer))
    assert pattern is not None, why
    return pattern


def splitter(pre_tokenizer: dict[str, Any]) -> Any:
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(pre_tokenizer))).pre_tokenizer


def packed(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """A batch of documents as bytes, and their ends."""
    documents = [text.encode() for text in texts]
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    return np.frombuffer(b"".join(documents), np.uint8), ends


def by_rules(pattern: Pattern, texts: list[str]) -> np.ndarray:
    return starts(*packed(texts), pattern, character_roles(pattern))


def by_tokenizers(splitter: Any, texts: list[str]) -> np.ndarray:
    """For every byte of a batch whether a pretoken starts there, as `tokenizers` splits it."""
    data, _ = packed(texts)
    first_bytes = np.flatnonzero((data & 0xC0) != 0x80)
    places, behind = [], 0
    for text in texts:
        places += [behind + start for _, (start, _) in splitter.pre_tokenize_str(text)]
        behind += len(text)
    result = np.zeros(len(data), bool)
    result[first_bytes[places]] = True
    return result


def assert_same(pre_tokenizer: dict[str, Any], texts: list[str]) -> None:
    """The rules and `tokenizers` split the texts alike."""
    got, expected = by_rules(pattern_of(pre_tokenizer), texts), by_tokenizers(splitter(pre_tokenizer), texts)
    if (got == expected).all():
        return
    place = int(np.flatnonzero(got != expected)[0])
    data, ends = packed(texts)
    number = int(np.searchsorted(ends, place, "right"))
    start = int(ends[number - 1]) if number else 0
    document = data[start : ends[number]].tobytes()
    raise AssertionError(
        f"byte {place - start} of {ascii(document[max(place - start - 60, 0) :].decode(errors='ignore'))[:200]}"
    )


def merged(tables: BpeTables, word: bytes) -> list[int]:
    """A word encoded as the tables say: looked up, or merged in the plainest way."""
    if word in tables.words:
        return [tables.words[word]]
    ids = [int(tables.byte_ids[byte]) for byte in word]
    while True:
        ranked = [(*tables.pairs[pair], i) for i, pair in enumerate(itertools.pairwise(ids)) if pair in tables.pairs]
        if not ranked:
            return ids
        _, number, i = min(ranked, key=lambda found: (found[0], found[2]))
        ids[i : i + 2] = [number]
