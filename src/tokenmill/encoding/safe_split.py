"""Where a document can be split so that its parts encode to exactly the ids of the whole.

A rule is two characters before a split and two after it. It is used only if it is proved for the tokenizer:

1. No token of the vocabulary spans the split: none has a letter followed by what the white space is turned into, or the
   pre-tokenizer splits there. So no merge, and no piece of a Unigram lattice, crosses it.
2. The normalizer and the pre-tokenizer are of kinds that depend only on nearby characters. In every context of up to two
   characters on each side, from an alphabet with one member of each class that tokenizers' patterns distinguish, encoding
   the parts gives the encoding of the whole.
3. No added token contains a split, or strips the white space at one.

Each rule splits before a single white space between letters. Tokenizers that put a mark before every document (the "▁" of
Llama 2) need the space at the split removed from the second part, since the mark stands for it: a rule with `drop`.
"""

from __future__ import annotations

import json
import re
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.libraries import installed_version
from tokenmill.encoding.tokenizer_json import byte_alphabet, steps_before_model, tokens_of
from tokenmill.user_cache import keyed_path, read_cached, write_cached

VERSION = 1  # of what is proved: rules in the cache hold for the version they were proved with
_ALPHABET = ("a", "Z", "7", " ", "\n", "\r", "\t", ".", "'", "_", "中", "é", "\u0301", "👍")
# Kinds of normalizers and pre-tokenizers that depend only on a character and its neighbours.
_LOCAL = frozenset({
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "Prepend", "Strip", "StripAccents", "BertNormalizer", "Nmt",
    "Precompiled", "ByteLevel", "Split", "Metaspace", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation",
    "Digits", "CharDelimiterSplit", "UnicodeScripts",
})  # fmt: skip
_UNKNOWN = "unknown"


class Rule(NamedTuple):
    """Split before `space` if there are two letters before it and one after it. `drop` removes the space."""

    space: str
    drop: bool

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """Matches in UTF-8: two ASCII letters, the white space, an ASCII letter."""
        return re.compile(rb"[A-Za-z][A-Za-z](?=" + self.space.encode() + rb"[A-Za-z])")


def cached_rules(tokenizer_json: str) -> list[Rule]:
    """The rules proved for a tokenizer.json. To prove them takes a second and much memory, so they are kept."""
    path = keyed_path("splits", f"{VERSION} {installed_version('tokenizers')} {tokenizer_json}")
    cached = read_cached(path)
    if cached is not None:
        return [Rule(*rule) for rule in cached["rules"]]
    rules = safe_rules(tokenizer_json)
    write_cached(path, {"rules": rules})
    return rules


def safe_rules(tokenizer_json: str) -> list[Rule]:
    """The rules proved for a tokenizer.json, best first. Takes about a second."""
    parsed = json.loads(tokenizer_json)
    before = steps_before_model(parsed)
    if not all(step["type"] in _LOCAL and _is_local_pattern(step.get("pattern")) for step in before):
        return []
    tokenizer, stripped = HfTokenizer(tokenizer_json), _spaces_stripped(parsed)
    rules = [Rule("\n", drop=False), Rule(" ", drop=False), Rule(" ", drop=True), Rule("\n", drop=True)]
    return [r for r in rules if r.space not in stripped and not _may_span(parsed, r) and _holds(tokenizer, r)]


def last_cut(data: bytes, rules: list[Rule]) -> tuple[int, int] | None:
    """The last safe split: end of the first part, start of the second. None if there is none."""
    window = 1 << 16
    for stop in range(len(data), 0, -window):
        start = max(0, stop - window - 8)
        for rule in rules:
            ends = [match.end() for match in rule.pattern.finditer(data, start, stop)]
            if ends:
                return ends[-1], ends[-1] + len(rule.space) if rule.drop else ends[-1]
    return None


def _may_span(parsed: dict[str, Any], rule: Rule) -> bool:
    """Whether a token could span a split: it has a letter followed by what the white space is turned into.

    If the pre-tokenizer splits right after the letters, no token spans the split.
    """
    after = _after_letters(parsed, f"qu{rule.space}T")
    if not after:
        return after is None
    names = (name for name, _ in tokens_of(parsed["model"]))
    spanning = re.compile("[A-Za-z]" + re.escape(after))
    added = (token["content"] for token in parsed.get("added_tokens") or ())
    return after in "tT" or any(map(spanning.search, chain(names, added)))


def _after_letters(parsed: dict[str, Any], text: str) -> str | None:
    """What follows "qu" in a text after the steps before the model: "" if they split there, None if it cannot be told.

    A model tells that merges "qu" with any character of the steps that comes next.
    """
    before = {key: parsed.get(key) for key in ("normalizer", "pre_tokenizer")}
    known = sorted({*byte_alphabet(), *text, *"▁t", *json.dumps(before, ensure_ascii=False)})
    names = [_UNKNOWN, *known, "qu", *(f"qu{character}" for character in known)]
    merges = [["q", "u"], *(["qu", character] for character in known)]
    model = {"type": "BPE", "unk_token": _UNKNOWN, "vocab": {name: i for i, name in enumerate(names)}, "merges": merges}
    probe = json.dumps({"version": "1.0", "added_tokens": [], **before, "model": model})
    (ids,) = HfTokenizer(probe).encode_each([text])
    for token, following in pairwise([*(names[number] for number in ids), ""]):
        if token.startswith("qu"):
            return None if following == _UNKNOWN else token[2:]
    return None


def _is_local_pattern(pattern: dict[str, str] | None) -> bool:
    """Whether a pattern has only single characters and classes, no words and no lookbehind."""
    if not pattern:
        return True
    if "String" in pattern:
        return len(pattern["String"]) <= 1
    regex = pattern["Regex"]
    for known in (r"\\[pP]\{[^}]*\}", r"\\[A-Za-z]", r"\(\?[a-z]*:", r"'\(?\??[a-zA-Z:|']*\)?", r"\[[^\]]*\]"):
        regex = re.sub(known, "", regex)
    return "(?<" not in regex and not re.search("[A-Za-z]", regex)


def _spaces_stripped(parsed: dict[str, Any]) -> set[str]:
    """The white space that an added token could contain or strip at a split."""
    spaces = set()
    for token in parsed.get("added_tokens") or ():
        spaces |= {space for space in " \n" if re.search("[A-Za-z]" + space, token["content"])}
        depends_on_neighbours = any(token.get(flag) for flag in ("lstrip", "rstrip", "single_word"))
        if depends_on_neighbours and re.search("^[A-Za-z]|[A-Za-z]$", token["content"]):
            return {" ", "\n"}
    return spaces


def _holds(tokenizer: HfTokenizer, rule: Rule) -> bool:
    """Check a rule in every context from the alphabet."""
    sides = ["", *_ALPHABET, *("".join(pair) for pair in product(_ALPHABET, repeat=2))]
    contexts = [
        (left + before, after + right)
        for left in sides
        for right in sides[:: 1 if len(left) < 2 else 7]
        for before, after in (("aZ", "b"), ("qu", "T"))
    ]
    whole = tokenizer.encode_each([head + rule.space + tail for head, tail in contexts])
    first = tokenizer.encode_each([head for head, _ in contexts])
    second = tokenizer.encode_each([tail if rule.drop else rule.space + tail for _, tail in contexts])
    return all(ids == a + b for ids, a, b in zip(whole, first, second, strict=True))
