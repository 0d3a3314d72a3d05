"""tiktoken's ranks: files and back, and the same tokenizer as a tokenizer.json, held against tiktoken."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import from_json

import tokenmill as tm
from tokenmill.encoding.conversion.tiktoken_bpe import (
    Ranks,
    from_encoding,
    from_rank_file,
    looks_like_ranks,
    named,
    recover_merges,
    spelled,
    tokenizer_json,
)
from tokenmill.encoding.tokenizer_json import effective
from tokenmill.errors import TokenizerError

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
CL100K_PLAIN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {bytes([byte]): byte for byte in range(256)}
ODD = [
    "", " ", "\n", "a\n  ", "a \n\t", "x \r\n \n", "1234567 12 1", "don't WE'LL I'ſ", "naïve e\u0301 ﬁ ½ Ⅷ", "中文 日本語 한국어",
    "👩‍👩‍👧‍👦 🇩🇪 1️⃣", "\u00a0\u3000\u2028\u0085\x0b\x1c", "\x00\x7f\ufeff", "a" * 300, " " * 99, "!?!?\n\n", "𝔘 \U0010ffff",
    "<|endoftext|>", "a <|endoftext|><|endoftext|>\n <|endoftext", "def f(x):\n    return x ** 2  # squared\n",
]  # fmt: skip


def ranks_with(*tokens: bytes, pattern: str = GPT2, special: dict[str, int] | None = None) -> Ranks:
    """The bytes, and then these tokens in this order."""
    more = {token: 256 + place for place, token in enumerate(tokens)}
    return Ranks(BYTES | more, pattern, special or {}, "small")


def converted(ranks: Ranks) -> tokenizers.Tokenizer:
    """The converted tokenizer, once more through tokenizers' own writer, as a store keeps it."""
    return from_json(effective("small", tokenizer_json(ranks).encode()))


def assert_same(ranks: Ranks, texts: list[str]) -> None:
    encoding, tokenizer = ranks.encoding(), converted(ranks)
    for text in texts:
        assert tokenizer.encode(text).ids == encoding.encode(text, allowed_special="all"), ascii(text[:80])


@pytest.fixture(scope="session")
def parts(tokenizer_path) -> dict:
    return json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def demo(parts) -> Ranks:
    """tokenmill's demo tokenizer as a tiktoken.Encoding, taken from there."""
    byte_of = {spelled(bytes([byte])): byte for byte in range(256)}
    special = {token["content"]: token["id"] for token in parts["added_tokens"]}
    ordinary = {name: number for name, number in parts["model"]["vocab"].items() if name not in special}
    ranks = {bytes(byte_of[character] for character in name): number for name, number in ordinary.items()}
    return from_encoding(tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special))


@pytest.fixture(scope="session")
def demo_pair(demo) -> tuple[tiktoken.Encoding, tokenizers.Tokenizer]:
    return demo.encoding(), converted(demo)


# Files.


def test_files_hold_the_whole_tokenizer(demo):
    files = demo.to_files()
    assert Ranks.from_files(files) == demo
    lines = files["ranks.tiktoken"].decode().splitlines()
    assert [int(line.split(" ")[1]) for line in lines] == sorted(demo.ranks.values())
    assert {base64.b64decode(line.split(" ")[0]) for line in lines} == set(demo.ranks)
    assert json.loads(files["tiktoken.json"])["version"] == 1


def test_damaged_files_are_refused(demo):
    files = demo.to_files()
    ranks, rest = files["ranks.tiktoken"], files["tiktoken.json"]
    first, second, others = ranks.split(b"\n", 2)
    swapped = first.split(b" ")[0] + b" 2\n" + second.split(b" ")[0] + b" 1\n" + others
    for broken, names in (
        ({"ranks.tiktoken": ranks}, "tiktoken.json is missing"),
        ({"tiktoken.json": rest}, "ranks.tiktoken is missing"),
        (files | {"ranks.tiktoken": swapped}, "digest differs"),
        (files | {"ranks.tiktoken": ranks[: len(ranks) // 2]}, "ranks.tiktoken, line|digest differs"),
        (files | {"tiktoken.json": rest[:-20]}, "tiktoken.json is not valid JSON"),
        (files | {"tiktoken.json": rest.replace(b'"version": 1', b'"version": 2')}, "version 1"),
        (files | {"tiktoken.json": b'{"pattern": "\\ud800", "special_tokens": {}}'}, "tiktoken.json is not valid JSON"),
        (files | {"tiktoken.json": b'{"special_tokens": {}}'}, "needs 'pattern'"),
        (files | {"tiktoken.json": b'{"pattern": "x", "special_tokens": {"<e>": "0"}}'}, "not an integer"),
        (files | {"tiktoken.json": b'{"pattern": "x", "special_tokens": {"<e>": 1}}'}, "'<e>' has the id 1"),
        (files | {"tiktoken.json": b'{"pattern": "", "special_tokens": {}}'}, "pattern that splits text is empty"),
    ):
        with pytest.raises(TokenizerError, match=names):
            Ranks.from_files(broken)


LINES = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in BYTES.items()).encode()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"AA== 0\n!!!! 1\n", "line 2"),
        (b"AA== 0\nAQ= 1\n", "line 2"),
        (b"AA== 0\nAAA== 1\n", "line 2"),
        (b"AA== 0\nAQ==\n", "line 2"),
        (b"AA== 0\nAQ== one\n", "line 2"),
        (b"AA== 0\nAQ== -1\n", "line 2"),
        (b"AA== 0\nAQ== 1\nAg== 1\n", "line 3.*rank 1 is also on line 2"),
        (b"AA== 0\nAQ== 1\n\nAA== 2\n", "line 4.*already has rank 0"),
        (LINES[:-7], "line 256"),
        (LINES[: len(LINES) // 2].rpartition(b"\n")[0], "have no rank"),
        (LINES + b"AAE= 4294967296\n", "4294967296"),
        (b"\x08\x96\x01\x12\x00\xff\n\x00", "line 1"),
        (b'{"version": "1.0"}', "line 1"),
    ],
)
def test_bad_rank_files_name_the_file_and_the_line(tmp_path, raw, says):
    path = tmp_path / "broken.tiktoken"
    with pytest.raises(TokenizerError, match=f"(?s)broken.*{says}"):
        from_rank_file(path, raw, b'{"pattern": "x|.", "special_tokens": {}}')


def test_a_rank_file_takes_the_rest_from_beside_it(tmp_path):
    path = tmp_path / "mine.tiktoken"
    with pytest.raises(
        TokenizerError, match=r"mine\.tiktoken.*neither the pattern.*tiktoken\.json.*tiktoken\.Encoding"
    ):
        from_rank_file(path, LINES, None)
    rest = json.dumps({"pattern": GPT2, "special_tokens": {"<end>": 300}}).encode()
    found = from_rank_file(path, LINES, rest)
    assert (found.ranks, found.pattern, found.special, found.name) == (BYTES, GPT2, {"<end>": 300}, "mine")
    assert from_rank_file(path, LINES.replace(b"\n", b"\r\n"), rest) == found
    with pytest.raises(TokenizerError, match=r"tiktoken\.json was written for other ranks"):
        from_rank_file(path, LINES, ranks_with(b"ab").to_files()["tiktoken.json"])


@pytest.mark.skipif(not os.environ.get("TIKTOKEN_CACHE_DIR"), reason="needs a TIKTOKEN_CACHE_DIR with OpenAI's ranks")
@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_well_known_ranks_are_known_by_content(tmp_path, name):
    known = named(name)
    raw = known.to_files()["ranks.tiktoken"]
    assert from_rank_file(tmp_path / "any.bin", raw, None) == known
    last_lost = raw.removesuffix(b"\n").rpartition(b"\n")[0]
    with pytest.raises(TokenizerError, match="not a well-known set"):
        from_rank_file(tmp_path / "any.bin", last_lost, None)


def test_rank_files_are_told_from_others(demo):
    raw = demo.to_files()["ranks.tiktoken"]
    assert looks_like_ranks(raw)
    assert looks_like_ranks(raw[:40].rpartition(b"\n")[0])
    assert looks_like_ranks(raw.replace(b"\n", b"\r\n"))
    for other in (
        b"",
        b"\n",
        b'{"version": "1.0"}',
        b"the 1\nof 2\n",
        b"\x0a\x0e\x0a\x05<unk>\x15\x00",
        b"#version: 0.2\n",
    ):
        assert not looks_like_ranks(other)


# Where ranks come from.


def test_unsound_ranks_are_refused():
    for ranks, special, says in (
        ({token: rank for token, rank in BYTES.items() if rank != 0x41}, {}, "0x41"),
        (BYTES | {b"ab": 7}, {}, "rank 7 belongs to both"),
        (BYTES | {b"": 300}, {}, "empty token"),
        (BYTES | {b"ab": -1}, {}, "from -1"),
        (BYTES, {"<end>": 7}, "'<end>' has the id 7"),
        (BYTES, {"": 300}, "''"),
    ):
        with pytest.raises(TokenizerError, match=f"^mine: .*{says}"):
            Ranks(ranks, GPT2, special, "mine")
    never_in_text = {bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}
    some = Ranks({token: rank for token, rank in BYTES.items() if token not in never_in_text}, GPT2, {}, "mine")
    assert_same(some, ODD)


def test_only_an_encoding_is_an_encoding():
    with pytest.raises(TokenizerError, match=r"str is not a tiktoken\.Encoding"):
        from_encoding("cl100k_base")


def test_a_pattern_that_tiktoken_refuses():
    with pytest.raises(TokenizerError, match="small: tiktoken refuses it"):
        ranks_with(pattern="(").encoding()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(TokenizerError, match=r"no encoding 'cl100k'.*cl100k_base, gpt2"):
        named("cl100k")


def test_a_missing_tiktoken_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    for use in (lambda: named("gpt2"), ranks_with().encoding):
        with pytest.raises(TokenizerError, match=r"pip install 'tokenmill\[tiktoken\]'"):
            use()


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_ranks_that_cannot_be_downloaded(tmp_path, name):
    """In a process of its own: a proxy that nobody listens at stands for a machine without a connection."""
    program = (
        "import sys\nfrom tokenmill.encoding.conversion.tiktoken_bpe import named\nfrom tokenmill.errors import TokenizerError\n"
        "try: named(sys.argv[1])\nexcept TokenizerError as error: print(error)\n"
    )
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), "http://127.0.0.1:9")
    environ = {key: value for key, value in os.environ.items() if key.lower() not in ("no_proxy", "all_proxy")}
    environ |= proxies | {"TIKTOKEN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, name], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for words in (f"could not get the ranks of '{name}'", "downloads them on first use", "TIKTOKEN_CACHE_DIR"):
        assert words in done.stdout


# The same as a tokenizer.json.


def test_the_demo_tokenizer_comes_back(demo, parts):
    made = json.loads(tokenizer_json(demo))
    assert made["model"]["vocab"] == parts["model"]["vocab"]
    assert made["model"]["merges"] == parts["model"]["merges"]
    assert made["model"]["ignore_merges"] is False
    for key in ("pre_tokenizer", "added_tokens", "normalizer", "decoder"):
        assert made[key] == parts[key]


@pytest.mark.parametrize("pattern", [GPT2, CL100K])
def test_real_text_encodes_the_same(demo, real_texts, pattern):
    ranks = Ranks(demo.ranks, pattern, demo.special, "demo")
    assert_same(ranks, [*ODD, *real_texts[::4]])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["<|endoftext|>", " the", "    ", "\r\n", "'ll", "1"])))
)
def test_any_text_encodes_and_decodes_the_same(demo_pair, pieces):
    encoding, tokenizer = demo_pair
    text = "".join(pieces)
    ids = encoding.encode(text, allowed_special="all")
    assert tokenizer.encode(text).ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text("abc", min_size=2, max_size=6), max_size=12, unique=True),
    st.lists(st.text("abc ", max_size=30), max_size=20),
)
def test_any_set_of_ranks_encodes_the_same(words, texts):
    """In any order: with tokens ranked before their parts, and tokens that no merge makes."""
    assert_same(ranks_with(*(word.encode() for word in words)), [*texts, *words, "".join(words)])


def test_a_token_that_no_merge_makes_is_found_whole():
    ranks = ranks_with(b"xyz", b"ab")
    assert recover_merges(ranks.ranks) == ([(b"a", b"b")], [b"xyz"])
    tokenizer = converted(ranks)
    assert json.loads(tokenizer_json(ranks))["model"]["ignore_merges"] is True
    assert tokenizer.encode("xyz").ids == [256]
    assert tokenizer.encode("xyzz").ids == [*b"xyzz"]
    assert_same(ranks, ["xyz", "xyzz", " xyz", "abxyz", "ab"])


def test_a_token_ranked_before_its_parts_is_still_made():
    ranks = ranks_with(b"abc", b"ab")
    assert recover_merges(ranks.ranks) == ([(b"ab", b"c"), (b"a", b"b")], [])
    assert converted(ranks).encode("abcd").ids == [256, *b"d"]
    assert_same(ranks, ["abc", "abcd", "xabcab"])


def test_ids_may_have_holes(demo):
    apart = Ranks(
        {token: 3 * rank for token, rank in demo.ranks.items()},
        CL100K,
        {"<|endoftext|>": 1, "<|middle|>": 100, "<|far|>": 99_999},
        "apart",
    )
    assert converted(apart).encode("<|far|><|middle|>").ids == [99_999, 100]
    assert_same(apart, [*ODD, "a<|far|> b<|middle|>\n  <|endoftext|>"])


def test_special_tokens_are_parsed_wherever_they_stand():
    special = {"<|a|>": 300, "<|a|><|b|>": 301, "«中»": 302, "two words": 303}
    ranks = ranks_with(b"<|", b"<|a", pattern=CL100K, special=special)
    tokenizer = converted(ranks)
    assert tokenizer.encode("x<|a|>\n «中»").ids == [*b"x", 300, *b"\n ", 302]
    assert_same(ranks, ["<|a|>", "<|a|", " <|a|>  <|a|> ", "two words", "two  words", "«中»中»"])


def test_a_special_token_that_is_ordinary_too():
    assert_same(ranks_with(b"<>", b"<>!", special={"<>": 300}), ["<>", "<>!", "<", ">!"])
    assert_same(ranks_with(b"<>", b"<>!", special={"<>": 256}), ["<>", "<>!", "<", ">!"])
    assert_same(ranks_with(b" x", special={" x": 300}), [" x", "a x"])
    for unclear in (ranks_with(special={"é": 300}), ranks_with(b" x", special={" x": 256})):
        with pytest.raises(TokenizerError, match=r"cannot be written in a tokenizer\.json"):
            tokenizer_json(unclear)


def test_two_names_for_an_id_have_no_such_form():
    """As o200k_harmony has: tiktoken runs it alone, and both names count for the fingerprint."""
    ranks = ranks_with(special={"<|first|>": 300, "<|second|>": 300, "<|other|>": 299})
    with pytest.raises(TokenizerError, match="share an id"):
        tokenizer_json(ranks)
    tokenizer = tm.load_tokenizer(ranks.encoding())
    assert tokenizer.choose_engine() == "tiktoken"
    assert tokenizer.encode("<|first|><|second|><|other|>") == [300, 300, 299]
    one_less = ranks_with(special={"<|first|>": 300, "<|other|>": 299})
    assert tm.load_tokenizer(one_less.encoding()).fingerprint != tokenizer.fingerprint


def split_of(ranks: Ranks) -> str:
    return json.loads(tokenizer_json(ranks))["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]


def test_known_patterns_are_spelled_as_fast_engines_know_them():
    for own in (CL100K, CL100K + "+", CL100K_PLAIN):
        assert split_of(ranks_with(b"\n\n", b"\n  \n", pattern=own)) == CL100K_PLAIN


@pytest.mark.parametrize("token", [b"\n ", b" \r\t", b"\n\xc2", b"\n\n  "])
def test_a_token_over_the_last_line_break_needs_the_exact_pattern(token):
    ranks = ranks_with(b"  ", b"\n\n", token, b"11", b"111", b"1111", pattern=CL100K)
    assert split_of(ranks) != CL100K_PLAIN
    assert_same(ranks, ["a\n ", "a\n \nb", "a \r\t", "\n\u00a0", "x\n\n  ", "x\n\n  y", "1111111", *ODD])


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{N}{1,3}+|\P{N}",
        r"\p{N}{2}+|\p{N}{1,}+a|[\s\S]",
        r"(?:12|3){1,2}+3|[^a]{2}+|\s|.",
        r"[1-3]{1,2}+2|((?:1|a){2}+b)|\s|.",
        r"1?+1|2*+2|3++3|(?:a|b)++b|\s|.",
        r"[\]}]{1,2}+|[]1[23]&&[^2]]{1,2}+|\\{2}+|\s|.",
        r"\s++$|1+$|^a+|\$|\^|[$^]|\s|.",
    ],
)
def test_patterns_mean_the_same_in_both_engines(pattern):
    """Every pair and triple of these characters is a token, so that ids show where the pattern cuts."""
    letters = "123ab \n]}\\$^"
    pairs = [first + second for first in letters for second in letters]
    tokens = [*pairs, *(pair + letter for pair in pairs for letter in letters)]
    ranks = ranks_with(*(token.encode() for token in tokens), pattern=pattern)
    texts = [*tokens, *(token * 2 for token in tokens[::5]), "1111111", "12312333312", "aaaa\naaa", "11\n11", "a \n \n"]
    assert_same(ranks, texts)


def test_a_pattern_that_tokenizers_cannot_read():
    ranks = ranks_with(pattern=r"\p{N}{1,3}|(?s:.)")
    assert ranks.encoding().encode("1\n2") == [*b"1\n2"]
    with pytest.raises(TokenizerError, match=r"small: tokenizers .*cannot load it"):
        effective("small", tokenizer_json(ranks).encode())
