"""Texts for one tokenizer, on which engines go wrong: its vocabulary, what repeats, its added tokens, and a collection of others.

What is asked about characters and about the places where text is split holds for many tokenizers, and is in `characters`.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.selection.characters import collected, normalizes
from tokenmill.encoding.tokenizer_json import texts_of

VERSION = 1  # of these texts: a proof holds for the version it was made with
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# At which implementations switch algorithms.
_LENGTHS = (2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 257)


def texts(definition: Definition, every: int = 1) -> list[str]:
    """All texts but `contests`. With `every`, only each `every`-th token of the vocabulary, for slow references."""
    vocabulary = definition.vocabulary[::every]
    found = [*collected("samples"), *_runs(), *_characters_in_context(), *_specials(definition)]
    if every > 1:
        return list(dict.fromkeys(found + vocabulary))
    text = " ".join(filter(str.isascii, collected("samples")))  # may not be guarded
    long = [(text * (size // len(text) + 1))[:size] for size in (70_000, 140_000)]
    found += [*_in_lines(vocabulary), *_made_of(vocabulary), *_added_tokens_in_context(definition), *long]
    return list(dict.fromkeys(found))


def _in_lines(words: Sequence[str]) -> list[str]:
    """Words on lines, which a reference reads in half the time; those that a line break might be joined with on their own."""
    plain = [word for word in words if word[-1:].isalnum() and (word[1:] if word[0] == " " else word).isalnum()]
    lines = ["".join("\n" + word for word in plain[i : i + 16]) for i in range(0, len(plain), 16)]
    others = set(plain)
    return lines + [word for word in words if word not in others]


def _runs() -> Iterator[str]:
    """Repetitions, some very long."""
    for unit in collected("repeated"):
        yield from (unit * count for count in _LENGTHS)
        yield f"x{unit * 20}y {unit * 21} z"
    yield from (unit * 5000 for unit in ("a", " ", "\n", "0", "中", "👍", "=", "ab ", "\t"))


def _made_of(vocabulary: Sequence[str]) -> Iterator[str]:
    """Runs of every token that is there twice in another one, in which merges tie; and words made of tokens."""
    known, draw = dict.fromkeys(vocabulary), random.Random(0)
    for token in known:
        half = token[: len(token) // 2]
        if half and half + half == token and half in known:
            yield from (half * count for count in (3, 5, 6, 7, 9, 11, 13, 21))
    words = [token.strip() for token in vocabulary if token.strip().isalnum()]
    for _ in range(min(2000, len(words))):
        yield "".join(draw.choices(words, k=draw.randint(2, 5)))


def contests(definition: Definition) -> list[str]:
    """Texts that show which of two merges comes first: each merge before and behind those that want the same token."""
    parsed = json.loads(definition.json or "{}")
    # For each token, the merges that want it: whether it is the first of the two, and the other one.
    wanting: dict[str, list[tuple[bool, str]]] = {}
    for merge in parsed.get("model", {}).get("merges") or ():
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        wanting.setdefault(first, []).append((True, second))
        wanting.setdefault(second, []).append((False, first))
    names = []
    for token, merges in wanting.items():
        for (is_first, a), (is_first_too, b) in pairwise(merges):
            if is_first != is_first_too:
                names.append(b + token + a if is_first else a + token + b)
    words = list(dict.fromkeys(texts_of(parsed, names))) if names else []
    return _in_lines(words) + ["\n" + word for word in words if not word.isalnum()]


def _characters_in_context() -> Iterator[str]:
    """About twelve characters of each category, in several contexts."""
    for _, characters in sorted(_by_category().items()):
        for c in characters[:: max(1, len(characters) // 12)]:
            yield from (context.replace("¤", c) for context in collected("contexts of a character"))


@cache
def _by_category() -> dict[str, list[str]]:
    """Characters of each category, from all over Unicode."""
    found: dict[str, list[str]] = {}
    for code in (*range(0x3100), *range(0xA000, 0xD800, 37), *range(0xF900, 0x20000, 97)):
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Cs"):
            found.setdefault(category, []).append(chr(code))
    return found


def _added_tokens_in_context(definition: Definition) -> list[str]:
    """Added tokens next to characters of each category and next to each other, by the flags that decide whether one is found.

    Of tokens with the same flags a few stand for all.
    """
    some = [c for found in _by_category().values() for c in (found[0], found[len(found) // 2], found[-1])]
    chosen: list[str] = []
    texts = []
    for flags, tokens in sorted(_by_flags(definition).items()):
        plain = not any(flags[:3])  # such a token is found wherever its text is
        chosen += [tokens[0], *tokens[1:][-1:]]
        for token in tokens[:1] if plain else [tokens[0], *tokens[1:][-2:]]:
            for c in some:
                texts += [f"{c}{token} {token}{c} {c}{token}{c}", f"a {token}{c} b{c} {token} {c} \n{token}\t{c}"]
    for a in chosen:
        texts += [f"x{a}{gap}{b}y{gap}{a}" for b in chosen for gap in ("", " ", "  ", "\n", " a ", ".")]
    return texts


def flag_texts(definition: Definition, characters: Sequence[str]) -> list[str]:
    """Every character beside a token that strips white space, wants to be a word of its own, or is found after normalizing."""
    by_flags = _by_flags(definition).items()
    asked = [each[0] for flags, each in by_flags if any(flags[:3]) or (flags[3] and normalizes(definition))]
    groups = [characters[i : i + 32] for i in range(0, len(characters), 32)]
    return ["".join(f"a {c}{token}{c} {token} {c}" for c in group) for token in asked for group in groups]


def _by_flags(definition: Definition) -> dict[tuple[bool, ...], list[str]]:
    found: dict[tuple[bool, ...], list[str]] = {}
    for added in definition.added:
        found.setdefault(tuple(bool(added.get(flag)) for flag in _FLAGS), []).append(added["content"])
    return found


def _specials(definition: Definition) -> Iterator[str]:
    """Names of special tokens: this tokenizer's, and those of other models, which are ordinary text here."""
    own = [token["content"] for token in definition.added]
    for token in (*own[:600], *collected("special names")):
        half = len(token) // 2
        yield from (token, f"a {token} b", f"a{token}{token}b", f"\n{token}\n", token[:-1], token[1:], f" {token}")
        yield from (f"{token} ", f"x  {token}  y", token.upper(), token.lower(), f"{token[:half]} {token[half:]}")
    yield from own[600:]
    for first, second in zip(own[:100], [*own[1:100], *own[:1]], strict=False):
        yield from (first + second, f"{first}\n{second} {first}", first[:-1] + second)
