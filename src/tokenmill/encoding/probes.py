"""Short texts on which fast engines have been seen to slip. A fast engine must agree on all of them to be used."""

from __future__ import annotations

import unicodedata

_SAMPLES = (
    "", " ", "  ", "\n", "\r\n", "\t", "\n\n\n", " \n ", "a", "A", "0", ".", "Hello world", "Hello  world", " Hello",
    "Hello ", "hello   \n  world\t\tx", "don't can't I'll we've SHE'S it’s 'tis ''x''", "1234567890 3.14 1,000,000 0x7f",
    "snake_case camelCase SCREAMING kebab-case", "def f(x):\n    return x ** 2  # squared\n", "a\r\nb\rc\n\rd",
    "https://example.org/a?b=c&d=%20#e user@example.org", "!?!?...---===***///\\\\", "…—–«»“”‘’•·",
    "naïve café e\u0301 a\u0300\u0323",
    "Straße ÆØÅ İstanbul ǅ ﬁ ﬃ Ⅷ ½ ²", "中文字符测试。日本語のテスト、한국어 시험",
    "ﾊﾝｶｸ ｶﾞ ガ か\u3099", "العربية עברית हिन्दी ไทย ქართული",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ❤️ 1️⃣", "\u200b\u200d\ufeff\u00ad\u2060", "\u0000\u0001\u001f\u007f\u0085\u00a0\u2028\u2029\u3000",
    "x" * 300, "ab" * 200, " " * 100, "\n" * 50, "0" * 64, "-" * 130, "é" * 100, "中" * 100, "👍" * 40, "\t \t \n" * 20,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff \ufffd \ue000", "ＦＵＬＬ　ｗｉｄｔｈ",
    "¿Qué? ¡Sí! Größe ŒUVRE", "I\u0307 ß SS K Å Ω", "\u1100\u1161\u11a8 각",
    "<s> </s> <unk> <pad> [CLS] [SEP] [MASK] <|endoftext|> <|im_start|>", "▁ ▁▁ a▁b Ġ Ċ", "##ing @@ </w>",
)  # fmt: skip


def probes(added_tokens: list[str]) -> list[str]:
    """The samples, a sample of every Unicode category, and every added token bare, spaced and doubled."""
    texts = list(_SAMPLES)
    by_category: dict[str, list[str]] = {}
    for code in (*range(0x3100), *range(0xA000, 0xD800, 37), *range(0xE000, 0x20000, 97)):
        by_category.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    for characters in by_category.values():
        texts.append("".join(characters[:200]))
        texts.append(" ".join(characters[-100:]))
        texts.extend(f"a{c}b {c} {c}{c}\n{c}" for c in characters[:: max(1, len(characters) // 12)])
    for token in added_tokens[:500]:
        texts += [token, f"a {token} b", f"a{token}{token}b", f"\n{token}\n", token[:-1]]
    return texts
