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
from tokenmill.encoding.selection.characters import normalizes
from tokenmill.encoding.tokenizer_json import texts_of

VERSION = 1  # of these texts: a proof holds for the version it was made with

_SAMPLES = (
    "", " ", "  ", "\n", "\r\n", "\t", "\n\n\n", " \n ", "a", "A", "0", ".", "Hello world", "Hello  world", " Hello",
    "Hello ", "hello   \n  world\t\tx", "don't can't I'll we've SHE'S it’s 'tis ''x'' 'S 'LL 'Re y'all'd've",
    "1234567890 3.14 1,000,000 0x7f 1e-9 ١٢٣٤٥٦ १२३४५ ４５６７ ²³¹ ½¾ Ⅻ ①②", "12 123 1234 12345 123456 a1b22c333d4444",
    "snake_case camelCase SCREAMING kebab-case HTTPServer iOS XMLHttpRequest2", "a\r\nb\rc\n\rd", "a \n b\n \nc  \n\n  d",
    "def f(x):\n    return x ** 2  # squared\n\n\n\tif a!=b&&c||d:\n\t\tpass\n", "x=[1,2,3];y={'a':\"b\"}<html>&amp;</html>",
    "https://example.org/a?b=c&d=%20#e user@example.org", "!?!?...---===***///\\\\", "…—–«»“”‘’•·",
    "naïve café e\u0301 a\u0300\u0323 a\u0323\u0300 q\u0307\u0323", "Z" + "\u0351\u0352\u0361\u0489" * 40 + "algo",
    "Straße ÆØÅ İstanbul ı ǅ ﬁ ﬃ ſ Ⅷ ½ ²", "中文字符测试。日本語のテスト、한국어 시험", "私はABCを3個食べた。你好world123！",
    "ﾊﾝｶｸ ｶﾞ ガ か\u3099 が", "العربية עברית हिन्दी ไทย ქართული አማርኛ ᏣᎳᎩ ភាសាខ្មែរ မြန်မာ",
    "مرحبا 123 שלום abc \u202bمرحبا\u202c \u200fא\u200e",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ❤️ 1️⃣ 🧑🏿‍🚀 🏴󠁧󠁢󠁥󠁮󠁧󠁿 👨‍👩‍👧👩🏽‍💻", "\u200b\u200d\ufeff\u00ad\u2060\u200c",
    "a\u200bb c\u00a0d\u3000e\u2003f\u2028g\u2029h\u0085i",
    "\u0000\u0001\u001f\u007f\u0085\u00a0\u2028\u2029\u3000", "\u0000a\u0000b", "a\u000bb\u000cc\u001cd\u001de",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff \ufffd \ue000 \U000e0001 \ufdd0 \uffff", "ＦＵＬＬ　ｗｉｄｔｈ　１２３", "㎏ ℃ № ™ ﷺ ㍿ ĳ ŉ",
    "¿Qué? ¡Sí! Größe ŒUVRE", "I\u0307 ß SS K Å Ω", "\u1100\u1161\u11a8 각 \u1100\u1161 \u11a8",
    "\u0f71\u0f72\u0f74 \u0344 \u0958",
    "▁ ▁▁ a▁b ▁a Ġ Ċ Ġa ĠĠ Ã©", "##ing @@ </w> un##able ##", "<0x0A> <0x41> <unk> a<0xE4>b", "##", "a##b",
    "lorem ipsum dolor sit amet, consectetur adipiscing elit; " * 4, "The quick brown fox\njumps over\r\nthe lazy dog.\n\n" * 3,
    "AbstractSingletonProxyFactoryBean getUserByIdAndName supercalifragilisticexpialidocious antidisestablishmentarianism",
    "QmFzZTY0IGlzIGEgd2F5IHRvIHdyaXRlIGJ5dGVzIGFzIHRleHQ=" * 8, "deadbeef" * 30, "ACGT" * 100, "1 2 3 4 5 " * 30,
)  # fmt: skip
_KNOWN_SPECIALS = (
    "<s>", "</s>", "<unk>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<|endoftext|>", "<bos>",
    "<eos>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|fim_prefix|>", "<start_of_turn>", "[INST]",
)  # fmt: skip
_REPEATED = (
    "a", "ab", "A", " ", "\n", "\t", "\r\n", "0", "7", "-", "=", "_", ".", "!", "'", "é", "ß", "中", "あ", "한", "ا", "👍",
    "\u0301", "\u200d", "\u00a0", "\u3000", "\u0000", "\ufffd", "🇩🇪", "\t \t \n", " a", "a ", "\n ", " \n", "x\n", "▁", "</s>",
)  # fmt: skip
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def texts(definition: Definition, every: int = 1) -> list[str]:
    """All texts but `contests`. With `every`, only each `every`-th token of the vocabulary, for slow references."""
    vocabulary = definition.vocabulary[::every]
    found = [*_SAMPLES, *_runs(), *_characters_in_context(), *_specials(definition)]
    if every == 1:
        found += [*_in_lines(vocabulary), *_made_of(vocabulary), *added_tokens_in_context(definition), *_long(_SAMPLES)]
    return list(dict.fromkeys(found + vocabulary if every > 1 else found))


def _in_lines(words: Sequence[str]) -> list[str]:
    """Words on lines, which a reference reads in half the time; those that a line break might be joined with on their own."""
    plain = [word for word in words if word[-1:].isalnum() and (word[1:] if word[0] == " " else word).isalnum()]
    lines = ["".join("\n" + word for word in plain[i : i + 16]) for i in range(0, len(plain), 16)]
    others = set(plain)
    return lines + [word for word in words if word not in others]


def _runs() -> Iterator[str]:
    """Repetitions of lengths at which implementations switch algorithms, and very long ones."""
    for unit in _REPEATED:
        for count in (2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 257):
            yield unit * count
        yield f"x{unit * 20}y {unit * 21} z"
    for unit in ("a", " ", "\n", "0", "中", "👍", "=", "ab ", "\t"):
        yield unit * 5000


def _made_of(vocabulary: Sequence[str]) -> Iterator[str]:
    """Runs of every token that is there twice in another one, in which merges tie; and words made of tokens."""
    known, draw = set(vocabulary), random.Random(0)
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


def _long(samples: Sequence[str]) -> Iterator[str]:
    """Documents of some hundred kilobytes, without characters that may be guarded."""
    text = " ".join(filter(str.isascii, samples))
    for size in (70_000, 140_000):
        yield (text * (size // len(text) + 1))[:size]


@cache
def _characters_in_context() -> list[str]:
    """About twelve characters of each category, in several contexts."""
    found = []
    for _, characters in sorted(_by_category().items()):
        for c in characters[:: max(1, len(characters) // 12)]:
            found += [c, f" {c}", f"a{c}b {c} {c}{c}\n{c}", f"1{c}2", f"'{c}s", f"{c}\n\n{c}", f"  {c}"]
            found += [f"{c}'s {c}'M x{c}'ll '{c} {c}' '{c}'", f"{c}12{c}345{c} .{c} {c}.\n{c}!\r\n", f"A{c}a B{c}B{c}c"]
    return found


@cache
def _by_category() -> dict[str, list[str]]:
    """Characters of each category, from all over Unicode."""
    found: dict[str, list[str]] = {}
    for code in (*range(0x3100), *range(0xA000, 0xD800, 37), *range(0xF900, 0x20000, 97)):
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Cs"):
            found.setdefault(category, []).append(chr(code))
    return found


def added_tokens_in_context(definition: Definition) -> list[str]:
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
    tokens = [
        each[0]
        for flags, each in _by_flags(definition).items()
        if any(flags[:3]) or (flags[3] and normalizes(definition))
    ]
    groups = [characters[i : i + 32] for i in range(0, len(characters), 32)]
    return ["".join(f"a {c}{token}{c} {token} {c}" for c in group) for token in tokens for group in groups]


def _by_flags(definition: Definition) -> dict[tuple[bool, ...], list[str]]:
    found: dict[tuple[bool, ...], list[str]] = {}
    for added in definition.added:
        found.setdefault(tuple(bool(added.get(flag)) for flag in _FLAGS), []).append(added["content"])
    return found


def _specials(definition: Definition) -> Iterator[str]:
    """Names of special tokens: this tokenizer's, and those of other models, which are ordinary text here."""
    own = [token["content"] for token in definition.added]
    for token in (*own[:600], *_KNOWN_SPECIALS):
        yield from (
            token, f"a {token} b", f"a{token}{token}b", f"\n{token}\n", token[:-1], token[1:], f" {token}", f"{token} ",
            f"x  {token}  y", token.upper(), token.lower(), token[: len(token) // 2] + " " + token[len(token) // 2 :],
        )  # fmt: skip
    yield from own[600:]
    for first, second in zip(own[:100], [*own[1:100], *own[:1]], strict=False):
        yield from (first + second, f"{first}\n{second} {first}", first[:-1] + second)
