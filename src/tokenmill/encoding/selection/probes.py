"""Texts on which tokenizer engines go wrong. An engine must agree with the reference on all of them to be used.

They contain every character that this Python's Unicode knows and every pictograph (documents with others are left to the
reference), alone and next to letters and spaces, and those that are new since Unicode 3.2 also next to apostrophes and digits;
runs of white space, digits and single characters, from short to very long; combining marks, emoji sequences, control characters,
right-to-left scripts; what normalizers change; names of special tokens, whole, broken, doubled and inside words; added tokens
next to characters of every category; and every token of the vocabulary as text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache

from tokenmill.encoding.definition import Definition

VERSION = 4  # of the probes: a verdict holds for the version it was reached with

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
PICTOGRAPHS = (0x1F000, 0x1FBFF)  # also those that are not assigned yet
_SCRIPTS_IN_RUNS = ((0x3400, 0xA000), (0xAC00, 0xD800), (0xE000, 0xF900), (0x17000, 0x19000), (0x1B000, 0x1B300))


def probes(definition: Definition, every: int = 1) -> list[str]:
    """All probes for a tokenizer. With `every`, only each `every`-th character and vocabulary token, for slow references."""
    return [
        *_SAMPLES,
        *_runs(),
        *_crowds(every),
        *_characters_in_context(),
        *_specials(definition),
        *definition.vocabulary[::every],
    ]


def vocabulary_characters(definition: Definition) -> set[str]:
    """Every character that occurs in a token of the vocabulary."""
    return set("".join(definition.vocabulary))


def _runs() -> Iterator[str]:
    """Repetitions of lengths at which implementations switch algorithms, and very long ones."""
    for unit in _REPEATED:
        for count in (2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 257):
            yield unit * count
        yield f"x{unit * 20}y {unit * 21} z"
    for unit in ("a", " ", "\n", "0", "中", "👍", "=", "ab ", "\t"):
        yield unit * 5000


@cache
def _crowds(every: int) -> tuple[str, ...]:
    """Every assigned character, 64 per text: those of large uniform scripts in a row, the others in contexts."""
    texts: list[str] = []
    crowd: list[str] = []
    for code in (*range(0, 0x40000, every), *range(0xE0000, 0x110000, every)):
        character = chr(code)
        if not _is_probed(code, unicodedata.category(character)):
            continue
        if unicodedata.ucd_3_2_0.category(character) == "Cn":  # some library may not know it
            crowd.append(f"{character}x {character}{character}'s x{character}'ll 1{character}'M ")
        elif code >= 0x20000 or any(low <= code < high for low, high in _SCRIPTS_IN_RUNS):
            crowd.append(character)
        else:
            crowd.append(f"{character}x {character}{character}")
        if len(crowd) == 64:
            texts.append("".join(crowd))
            crowd.clear()
    return (*texts, "".join(crowd))


def _is_probed(code: int, category: str) -> bool:
    if category == "Cn":
        return PICTOGRAPHS[0] <= code <= PICTOGRAPHS[1]
    return category != "Cs" and (category != "Co" or code % 64 == 0)


def _characters_in_context() -> Iterator[str]:
    """About twelve characters of each category, in several contexts."""
    for _, characters in sorted(_by_category().items()):
        for c in characters[:: max(1, len(characters) // 12)]:
            yield from (c, f" {c}", f"a{c}b {c} {c}{c}\n{c}", f"1{c}2", f"'{c}s", f"{c}\n\n{c}", f"  {c}")
            yield from (
                f"{c}'s {c}'M x{c}'ll '{c} {c}' '{c}'",
                f"{c}12{c}345{c} .{c} {c}.\n{c}!\r\n",
                f"A{c}a B{c}B{c}c",
            )


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
    """Added tokens next to characters of each category, by the flags that decide whether a token is found there.

    Of tokens with the same flags a few stand for all.
    """
    by_flags: dict[tuple[bool, ...], list[str]] = {}
    for added in definition.added:
        flags = tuple(bool(added.get(flag)) for flag in ("single_word", "lstrip", "rstrip", "normalized", "special"))
        by_flags.setdefault(flags, []).append(added["content"])
    some = [c for found in _by_category().values() for c in (found[0], found[len(found) // 2], found[-1])]
    texts = []
    for flags, tokens in sorted(by_flags.items()):
        plain = not any(flags[:3])  # such a token is found wherever its text is
        for token in tokens[:1] if plain else [tokens[0], *tokens[1:][-2:]]:
            for c in some:
                texts += [f"{c}{token} {token}{c} {c}{token}{c}", f"a {token}{c} b{c} {token} {c} \n{token}\t{c}"]
    return texts


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
