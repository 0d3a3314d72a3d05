"""What a byte-level BPE tokenizer.json says about ids: tokens by their bytes, merges by their ranks, ids of single bytes.

Most pretokens are a token of the vocabulary, and to look that up is far quicker than to merge bytes. It is exact for the tokens
that merging gives, too. `tokenizers` is asked which they are: about two seconds for a vocabulary of 150,000.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.tokenizer_json import byte_alphabet, byte_level_bytes

NO_ID = 0xFFFFFFFF
_NOT_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


@dataclass(frozen=True, slots=True)
class BpeTables:
    """`words`: the id of every pretoken that is one token. `pairs`: for two ids the rank of their merge, and the id it gives;
    lower ranks first, and the leftmost of equal ones. `byte_ids`: the id of each byte, or NO_ID for
    bytes that no text has.

    `not_reached` are the names of tokens that merging their bytes does not give, which are not in `words`: none if the
    tokenizer looks up whole pretokens before it merges (`looks_up_first`).
    """

    words: dict[bytes, int]
    pairs: dict[tuple[int, int], tuple[int, int]]
    byte_ids: npt.NDArray[np.uint32]
    not_reached: tuple[str, ...]
    looks_up_first: bool

    @property
    def is_lookup_exact(self) -> bool:
        """Whether every token of the vocabulary may be looked up."""
        return not self.not_reached


def bpe_tables(tokenizer_json: dict[str, Any]) -> tuple[BpeTables | None, str]:
    """The tables of a parsed tokenizer.json whose pre-tokenizer ends with ByteLevel; or None, and why in a sentence."""
    model = tokenizer_json["model"]
    refusal = model_refusal(model)
    if refusal:
        return None, refusal
    vocabulary: dict[str, int] = model["vocab"]
    byte_characters = frozenset(byte_alphabet())
    # A token with a character that stands for no byte is never found in a text.
    possible = [name for name in vocabulary if name and byte_characters.issuperset(name)]
    looks_up_first = bool(model.get("ignore_merges"))
    reached = dict.fromkeys(possible if looks_up_first else _reached(tokenizer_json, possible))
    pairs = {}
    for rank, merge in enumerate(model["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        pairs[vocabulary[left], vocabulary[right]] = rank, vocabulary[left + right]
    tables = BpeTables(
        words={byte_level_bytes(name): vocabulary[name] for name in reached},
        pairs=pairs,
        byte_ids=np.array([vocabulary.get(character, NO_ID) for character in byte_alphabet()], np.uint32),
        not_reached=tuple(name for name in vocabulary if name not in reached),
        looks_up_first=looks_up_first,
    )
    return tables, ""


def model_refusal(model: dict[str, Any]) -> str:
    """Why a model is none that merges bytes by rank; "" if it is."""
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, and only BPE is handled"
    if model.get("dropout"):
        return "it leaves out merges at random (dropout)"
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return "it marks the beginnings or ends of words"
    missing = {byte for byte, character in enumerate(byte_alphabet()) if character not in model["vocab"]} - _NOT_IN_UTF8
    if missing:
        return f"its vocabulary has no token for {len(missing)} of the bytes that text consists of"
    return ""


def _reached(tokenizer_json: dict[str, Any], names: list[str]) -> list[str]:
    """Those names of tokens that become that one token if they are merged."""
    # Without added tokens and without a pre-tokenizer, the whole text is a pretoken.
    bare = {**tokenizer_json, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None}
    bare |= {"truncation": None, "padding": None, "decoder": None}
    merged = HfTokenizer(json.dumps(bare)).encode_each(names)
    vocabulary = tokenizer_json["model"]["vocab"]
    return [name for name, ids in zip(names, merged, strict=True) if ids == [vocabulary[name]]]
