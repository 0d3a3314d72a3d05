"""Where a document may be cut so that its parts encode to exactly the tokens of the whole.

A document too large to encode in one call is cut at a place chosen by a rule. A rule is a shape of text around the cut:
the two characters before it and the two at it. A rule is used only after a proof against the reference tokenizer:

1. No token of the vocabulary spans the cut: none holds a letter followed by what the white space is turned into, or the
   pre-tokenizer splits there. So no merge, and no piece of a Unigram lattice, can reach across.
2. The normalizer and the pre-tokenizer are of kinds that decide by the characters around a place. And in every context
   of up to two characters on each side, from an alphabet with one member of each class that tokenizers' patterns tell
   apart, encoding the parts gives the encoding of the whole.
3. No added token holds a cut, or reaches for the white space at one.

Each rule cuts before a single white space with letters around it, where prose and code have plenty of places. The
tokenizers that put a mark before every document (Llama 2's "▁") need the space at the cut left out of the second part,
since their mark stands for it: that is the `drop` kind of rule, proved in the same way.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import product
from typing import Any

_ALPHABET = ("a", "Z", "7", " ", "\n", "\r", "\t", ".", "'", "_", "中", "é", "\u0301", "👍")
# Kinds of normalizers and pre-tokenizers that act on the characters at a place and right around it.
_LOCAL = frozenset({
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "Prepend", "Strip", "StripAccents", "BertNormalizer", "Nmt",
    "Precompiled", "ByteLevel", "Split", "Metaspace", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation",
    "Digits", "CharDelimiterSplit", "UnicodeScripts",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """Cut before `space` where two letters stand before it and one after; `drop` leaves the space out."""

    space: str
    drop: bool

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """Finds cuts in UTF-8: two ASCII letters, the white space, an ASCII letter."""
        return re.compile(rb"[A-Za-z][A-Za-z](?=" + self.space.encode() + rb"[A-Za-z])")


def safe_rules(tokenizer: Any) -> list[Rule]:
    """The rules proved safe for a `tokenizers.Tokenizer`, best first. Costs about a second."""
    if not _is_local(tokenizer):
        return []
    eaten = _spaces_eaten(tokenizer)
    rules = [Rule("\n", False), Rule(" ", False), Rule(" ", True), Rule("\n", True)]
    return [r for r in rules if r.space not in eaten and not _may_span(tokenizer, r) and _holds(tokenizer, r)]


def last_cut(data: bytes, rules: list[Rule]) -> tuple[int, int] | None:
    """The last safe place to cut: (end of the first part, start of the second); None where there is none."""
    window = 1 << 16
    for stop in range(len(data), 0, -window):
        start = max(0, stop - window - 8)
        for rule in rules:
            last = None
            for match in rule.pattern.finditer(data, start, stop):
                last = match.end()
            if last:
                return last, last + len(rule.space) if rule.drop else last
    return None


def _may_span(tokenizer: Any, rule: Rule) -> bool:
    """Whether some token could reach across a cut: it holds a letter and then whatever the white space turns into.

    What it turns into is seen by sending a cut through the normalizer and the pre-tokenizer. Where the pre-tokenizer
    splits right after the letters, nothing reaches across.
    """
    text = f"qu{rule.space}T"
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    parts = [text]
    if tokenizer.pre_tokenizer is not None:
        parts = [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    for part in parts:
        found = re.search("qu(.*)", part, re.IGNORECASE | re.DOTALL)
        if found:
            after = found.group(1)[:1]
            if not after:
                return False
            spanning = re.compile("[A-Za-z]" + re.escape(after))
            return after in "tT" or any(spanning.search(token) for token in tokenizer.get_vocab())
    return True


def _is_local(tokenizer: Any) -> bool:
    """Whether normalizer and pre-tokenizer are of kinds that look no further than a character or so around a place."""
    config = json.loads(tokenizer.to_str())
    steps = [*_steps(config.get("normalizer"), "normalizers"), *_steps(config.get("pre_tokenizer"), "pretokenizers")]
    return all(step["type"] in _LOCAL and _looks_near(step.get("pattern")) for step in steps)


def _looks_near(pattern: dict[str, str] | None) -> bool:
    """Whether a pattern is about single characters and their classes, not about words or what lies behind."""
    if not pattern:
        return True
    if "String" in pattern:
        return len(pattern["String"]) <= 1
    regex = pattern["Regex"]
    for known in (r"\\[pP]\{[^}]*\}", r"\\[A-Za-z]", r"\(\?[a-z]*:", r"'\(?\??[a-zA-Z:|']*\)?", r"\[[^\]]*\]"):
        regex = re.sub(known, "", regex)
    return "(?<" not in regex and not re.search("[A-Za-z]", regex)


def _steps(config: Any, several: str) -> list[dict[str, Any]]:
    if config is None:
        return []
    return [step for part in config[several] for step in _steps(part, several)] if several in config else [config]


def _spaces_eaten(tokenizer: Any) -> set[str]:
    """Which white space an added token could reach across a cut for."""
    found = set()
    for token in tokenizer.get_added_tokens_decoder().values():
        found |= {space for space in " \n" if re.search("[A-Za-z]" + space, token.content)}
        if re.search("^[A-Za-z]|[A-Za-z]$", token.content) and (token.lstrip or token.rstrip or token.single_word):
            return {" ", "\n"}
    return found


def _holds(tokenizer: Any, rule: Rule) -> bool:
    """Check every context of the alphabet around the cut."""
    sides = ["", *_ALPHABET, *("".join(pair) for pair in product(_ALPHABET, repeat=2))]
    whole, first, second = [], [], []
    for left in sides:
        for right in sides[:: 1 if len(left) < 2 else 7]:
            for before, after in (("aZ", "b"), ("qu", "T")):
                head = left + before
                tail = after + right
                whole.append(head + rule.space + tail)
                first.append(head)
                second.append(tail if rule.drop else rule.space + tail)
    expected = _encode(tokenizer, whole)
    parts = zip(_encode(tokenizer, first), _encode(tokenizer, second), strict=True)
    return all(uncut == a + b for uncut, (a, b) in zip(expected, parts, strict=True))


def _encode(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
