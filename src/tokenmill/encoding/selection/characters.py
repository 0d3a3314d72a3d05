"""Texts that ask an engine for every property of every character that decides ids.

What an engine can get wrong about a character is finite: its class in each alternative of the pattern that splits text, what the
normalizer makes of it alone, its combining class, what it composes with. `questions` has a text for each of these and each
character. A character for which the engine answers as the reference does is trusted, all others are guarded: see `proof`.

Trusted characters of one class are the same to a pattern, which is an automaton over some dozen classes. `class_strings` has all
short strings of representatives of the classes, as long as the quantifiers and look-aheads of patterns reach.

The questions are asked with a small vocabulary instead of the tokenizer's own (`question_definition`): its tokens are single
bytes and pairs of bytes across the borders of characters, so that ids show where text was split, and what it was normalized to.
The answers then hold for every tokenizer with this pattern and normalizer.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import compress, groupby, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.conversion.tiktoken_bpe import Ranks
from tokenmill.encoding.conversion.tiktoken_patterns import OVER_LAST_BREAK
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.guarded import Ranges, mask_of, outside, ranges_of
from tokenmill.encoding.selection.examination import Encoded
from tokenmill.encoding.tokenizer_json import BYTE_TOKENS, byte_alphabet, steps

VERSION = 3  # of the questions: answers hold for the version they were given to
Question = tuple[Sequence[str], str]  # the characters that a text is about
_PLANES = ((0, 0xD7FF), (0xE000, 0x323FF), (0xE0000, 0xE01EF))  # all others are private or not assigned
# New ones are in wide use within a year: they are asked for before they are assigned.
PICTOGRAPHS = range(0x1F000, 0x1FC00)
_GROUP = 32  # neighbouring characters are asked for in one text
# Beside each kind of character that patterns tell apart. Is it a letter (upper case, lower case or neither), a digit, white
# space, a line break? Does it belong to a word, to punctuation, to a contraction?
_SPLIT_CONTEXTS = "a¤a1¤1.¤. ¤Aa  ¤ ¤\n.\n¤¤'¤e'l¤'v¤ "
_PLAIN_CONTEXTS = "a¤a ¤¤  ¤\n¤▁¤"
# U+0334 has the lowest combining class and U+0345 the highest: they are moved before or behind all others.
_NORMAL_CONTEXTS = "q\u0334¤q¤\u0334q\u0345¤q¤\u0345e¤ ¤\u0301\u1100¤\uac00¤ "
MOVED: dict[str, Callable[[str], bool]] = {  # texts, and whether a normalizer has changed the order in one, up to the x
    "q\u0345¤x": lambda result: not result.startswith("q\u0345"),
    "q¤\u0334x": lambda result: result.startswith("q\u0334"),
}
_ALPHABET = ("a", "A", "1", " ", "\t", "\n", ".", "'", "/")
_UNIFORM = (range(0x3400, 0xA000), range(0xA000, 0xA490), range(0xAC00, 0xD7A4), range(0x12000, 0x14680), range(0x16800, 0x16A40),
            range(0x17000, 0x19000), range(0x1B000, 0x1B300), range(0x1D000, 0x1D800), range(0x1F000, 0x32400))  # fmt: skip


@cache
def collected(kind: str) -> Any:
    """Texts and characters that were collected by hand."""
    return json.loads(files("tokenmill").joinpath("data", "texts.json").read_text("utf-8"))[kind]


@cache
def not_asked(*, composes: bool) -> Ranges:
    """The characters that are not asked for: documents with one are left to the reference.

    They are private. If a normalizer `composes` characters, also those that this Python's Unicode does not know, except
    pictographs: what they compose with is not asked.
    """
    asked = mask_of(_PLANES)
    if composes:
        unknown = [c for c in np.flatnonzero(asked).tolist() if unicodedata.category(chr(c)) == "Cn"]
        asked[[c for c in unknown if c not in PICTOGRAPHS]] = False
    return outside(((0, 0xD7FF), (0xE000, 0x10FFFF)), ranges_of(asked))


def trusted(guard: Ranges) -> list[str]:
    """The characters that are not guarded, of all that may be asked for."""
    return list(map(chr, np.flatnonzero(mask_of(_PLANES) & ~mask_of(guard)).tolist()))


def question_definition(definition: Definition) -> Definition | None:
    """The same normalizer and pattern with a small vocabulary that shows what they do.

    There is one for byte-level BPE, and for BPE that falls back to bytes.
    """
    if definition.json is None or definition.reference not in ("tokenizers", "tiktoken"):
        return None
    model = definition.settings["model"]
    joins_words = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if model["type"] != "BPE" or joins_words or not (splits_bytes(definition) or model.get("byte_fallback")):
        return None
    # Pairs of bytes of which one ends a character and the next starts one, in an order without a pattern.
    byte_pairs = list(product((*range(0x80), *range(0x80, 0xC0)), (*range(0x80), *range(0xC2, 0xF5))))
    random.Random(0).shuffle(byte_pairs)
    if definition.reference == "tiktoken":  # without tokens over line breaks, its patterns are converted exactly
        byte_pairs = [pair for pair in byte_pairs if not OVER_LAST_BREAK.fullmatch(bytes(pair))]
    if splits_bytes(definition):
        singles: Sequence[str] = byte_alphabet()
        pairs = [(singles[a], singles[b]) for a, b in byte_pairs]
    else:
        letters = ("▁", "a", "q", "x", "1")
        singles, pairs = [*BYTE_TOKENS, *letters], list(product(letters, letters))
    unknown = [] if model.get("unk_token") is None else [model["unk_token"]]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys((*singles, *(a + b for a, b in pairs), *unknown)))}
    body = {**definition.settings, "model": {**model, "vocab": vocabulary, "merges": [list(pair) for pair in pairs]}}
    small = replace(definition, json=json.dumps(body, ensure_ascii=False), special_tokens="parse", special={})
    if definition.reference == "tiktoken":
        ranks = {bytes(token): i for i, token in enumerate((*((byte,) for byte in range(256)), *byte_pairs))}
        pattern = Ranks.from_files(definition.files).pattern
        small = replace(small, files=Ranks(ranks, pattern, {}, "questions").to_files())
    return small


def normalizes(definition: Definition) -> bool:
    """Whether a normalizer knows properties of characters."""
    found = steps(definition.settings.get("normalizer"), "normalizers")
    return any(step["type"] not in ("Replace", "Prepend") for step in found)


def splits_bytes(definition: Definition) -> bool:
    """Whether this is a byte-level tokenizer."""
    found = steps(definition.settings.get("pre_tokenizer"), "pretokenizers")
    return "ByteLevel" in [step["type"] for step in found]


def contexts(definition: Definition) -> str:
    """A text in which each ¤ stands for the character that is asked for."""
    splits = _SPLIT_CONTEXTS if definition.settings.get("pre_tokenizer") else _PLAIN_CONTEXTS
    return splits + (_NORMAL_CONTEXTS if normalizes(definition) else "")


def questions(definition: Definition, characters: Sequence[str], marks: Sequence[str]) -> list[Question]:
    """All questions about these characters; about marks only if a normalizer knows them."""
    asked = contexts(definition)
    groups = ["".join(group) for _, group in groupby(characters, lambda c: ord(c) // _GROUP)]
    found: list[Question] = [(group, "".join(asked.replace("¤", c) for c in group)) for group in groups]
    return found + _about_marks(marks, characters) if marks else found


def _about_marks(marks: Sequence[str], characters: Sequence[str]) -> list[Question]:
    """Marks beside one mark of every combining class and behind what they may compose with; and young characters in pairs.

    How characters of Unicode 3.2 compose is known and never changes. Of younger ones all pairs of a block are asked for.
    """
    letters, known, marking = "".join(filter(str.isalpha, map(chr, range(128)))), set(characters), set(marks)
    of_class: dict[int, str] = {}
    for c in map(chr, range(0x300, 0x1D200)):
        if unicodedata.ucd_3_2_0.combining(c) and unicodedata.normalize("NFC", c) == c:
            of_class.setdefault(unicodedata.ucd_3_2_0.combining(c), c)
    bases = sorted({a for _, a, _ in _composites()} & known)
    found: list[Question] = [
        ([mark], "".join(f"q{mark}{other}x q{other}{mark}x " for other in of_class.values())) for mark in marks
    ]
    found += [([mark], "".join(letter + mark for letter in letters)) for mark in marks]
    found += [([mark], "".join(base + mark for base in bases)) for mark in sorted(seconds() & known)]
    for c, a, b in _composites():
        if {a, b} <= known:
            again = c + b if c in known else ""
            found.append(([b], f"{a}{b} {a}\u0334{b} {a}\u0301{b} {a}\u0345{b} {b}{a} {again}"))
    for lead, vowel in product(range(0x1100, 0x1113), range(0x1161, 0x1176)):
        found.append(([chr(lead)], " ".join(chr(lead) + chr(vowel) + chr(tail) for tail in range(0x11A7, 0x11C4))))
    is_young = [
        unicodedata.ucd_3_2_0.category(c) == "Cn" and not any(ord(c) in part for part in _UNIFORM) for c in characters
    ]
    for _, group in groupby(compress(characters, is_young), lambda c: ord(c) >> 7):
        block = list(group)
        behind = [b for b in block if b in marking]
        found += [([a], "".join(a + b for b in behind)) for a in block if behind]
    return found


def seconds() -> set[str]:
    """The characters that compose with one before them."""
    return {b for _, _, b in _composites()}


@cache
def _composites() -> list[tuple[str, str, str]]:
    """Characters that Unicode 3.2 takes apart, and their two parts."""
    found = []
    for code in (*range(0xC0, 0x3400), *range(0xF900, 0xFB50), *range(0x1D100, 0x1D200)):
        parts = unicodedata.ucd_3_2_0.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.append((chr(code), chr(int(parts[0], 16)), chr(int(parts[1], 16))))
    return found


def representatives(known: Sequence[str], encode: Callable[[list[str]], Encoded]) -> list[str]:
    """One character of each class of a byte-level tokenizer's pattern, and a second one where there is one.

    Characters of all kinds are encoded with the small vocabulary. They are of one class if text is split in the same places
    around them in every context.
    """
    by_category: dict[str, list[str]] = {}
    for c in known:
        by_category.setdefault(unicodedata.ucd_3_2_0.category(c), []).append(c)
    some = [c for each in by_category.values() for c in (each[0], each[len(each) // 2], each[-1])]
    wanted, all_known = (*map(chr, range(128)), *collected("characters of all kinds"), *some), set(known)
    candidates = [c for c in dict.fromkeys(wanted) if c in all_known and c == unicodedata.normalize("NFC", c)]
    around = [*product(("", *_ALPHABET), ("", *_ALPHABET)), *collected("around a character")]
    ids, offsets = encode([before + c + after for c in candidates for before, after in around])
    lengths = iter(np.split(np.where(ids < 256, 1, 2), offsets[1:-1]))  # of tokens, in bytes
    classes: dict[Any, list[str]] = {}
    for c in candidates:
        shape = tuple(_borders(next(lengths), len(before.encode()), len(c.encode())) for before, _ in around)
        classes.setdefault(shape, []).append(c)
    first = [members[0] for members in classes.values()]
    return first + [members[-1] for members in classes.values() if len(members) > 1]


def _borders(lengths: npt.NDArray[np.int64], before: int, size: int) -> tuple[int, ...]:
    """Where tokens end, outside a character of this size, as if it had a size of nothing."""
    ends = np.cumsum(lengths).tolist()
    return tuple(end if end <= before else end - size for end in ends if end <= before or end >= before + size)


def class_strings(members: Sequence[str]) -> list[str]:
    """Every short string of representatives; longer ones of those that quantifiers and look-aheads are about; runs."""
    core = [c for c in _ALPHABET if c in members] or list(members[:8])
    one_of_each, draw = members[: 2 * len(members) // 3], random.Random(0)
    of_all: list[tuple[Sequence[str], int]] = [(members, 0), (members, 1), (members, 2), (one_of_each, 3)]
    of_all += [(one_of_each if len(one_of_each) < 22 else core, 4), (core[:7], 5)]
    of_all += [([c for c in core if c in " \na1."], 6), *(([c for c in core if c in " \na"], n) for n in (7, 8))]
    found = ["".join(each) for some, n in of_all for each in product(some, repeat=n)]
    units = [*members, *(a + b for a, b in product(core, repeat=2))]
    lengths = (5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257)
    found += [unit * n for unit in units for n in lengths]
    found += ["".join(draw.choices(members, k=draw.randint(4, 60))) for _ in range(20_000)]
    found += ["".join(draw.choices(core, k=draw.randint(4, 300))) for _ in range(5_000)]
    tails = ["".join(draw.choices(members, k=4)) for _ in range(40)]
    return found + [draw.choice(("a", "1", " ", ".")) * n + tail for n in range(140) for tail in tails]
