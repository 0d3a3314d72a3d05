"""tiktoken's patterns, which split a text before its bytes are merged, in forms that other engines understand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# One element of a pattern. A class in brackets is found by `_class_end`.
_PIECE = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\(\??|\{[0-9]+(?:,[0-9]*)?\}\+?|[^\[]", re.DOTALL)
_BRACKET = re.compile(r"\\.|\[\^?\]?|\]", re.DOTALL)  # "]" in first place is literal

# Patterns in the form that fast engines recognise by their text.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = _CL100K.replace("{1,3}", "")
O200K = "|".join((
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
))  # fmt: skip
# The same in tiktoken's form, which backtracks less.
GPT2_QUICK = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K_QUICK = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
KNOWN_SPELLINGS = {
    GPT2_QUICK: _GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    CL100K_QUICK: _CL100K,
    CL100K_QUICK + "+": _CL100K,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+": _CL100K,
}
# cl100k's quick form takes the white space at the end of a text as one piece, the well-known one splits it after the last
# line break. The result is the same unless a token continues after that line break.
OVER_LAST_BREAK = re.compile(rb"[\t-\r \x80-\xff]*[\r\n][\t\x0b\x0c \x80-\xff]+")


def is_well_known(pattern: str) -> bool:
    """Whether a tokenizer.json has a form of this pattern that is known to split in the same way."""
    return pattern in KNOWN_SPELLINGS or pattern in KNOWN_SPELLINGS.values() or pattern in (QWEN, O200K)


def pre_tokenizer(own: str, tokens: Iterable[bytes]) -> dict[str, Any]:
    """The pre-tokenizer of a tokenizer.json that splits text as tiktoken does with the pattern `own`."""
    pattern = KNOWN_SPELLINGS.get(own, own)
    if own.startswith(CL100K_QUICK) and any(map(OVER_LAST_BREAK.fullmatch, tokens)):
        pattern = own
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern == _GPT2}
    if pattern == _GPT2:
        return by_bytes
    split = {"type": "Split", "pattern": {"Regex": _portable(pattern)}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, by_bytes]}


def _portable(pattern: str) -> str:
    """Translate a pattern of Rust's regex engines for Oniguruma, which differs in three ways.

    There `x{1,3}+` means one or more of `x{1,3}`: it becomes an atomic group. `^` and `$` match at every line: they
    become `\\A` and `\\z`. A pattern with its own flags for lines or comments is not changed.
    """
    if re.search(r"\(\?[a-z]*[mx]", pattern):
        return pattern
    pieces: list[str] = []
    groups: list[int] = []  # index in `pieces` of the start of each open group
    atom, at = 0, 0  # index in `pieces` of the last atom; position in the pattern
    while at < len(pattern):
        match = _PIECE.match(pattern, at)
        end = match.end() if match else _class_end(pattern, at)
        piece, at = pattern[at:end], end
        if piece[0] == "{" and piece[-1] == "+":
            pieces[atom:] = ["(?>", *pieces[atom:], piece[:-1], ")"]
            continue
        if piece == ")":
            atom = groups.pop() if groups else 0
        elif piece[0] not in "?*+{":
            atom = len(pieces)
        if piece[0] == "(":
            groups.append(atom)
        pieces.append({"^": r"\A", "$": r"\z"}.get(piece, piece))
    return "".join(pieces)


def _class_end(pattern: str, start: int) -> int:
    """The end of the `[...]` that starts at `start`. Classes can be nested."""
    depth = 0
    for part in _BRACKET.finditer(pattern, start):
        depth += {"[": 1, "]": -1}.get(part[0][0], 0)
        if not depth:
            return part.end()
    return len(pattern)
