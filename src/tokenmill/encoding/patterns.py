"""tiktoken's patterns, which split a text before its bytes are merged, in the spelling that other engines read alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tokenmill.errors import TokenizerError

# One step through a pattern; a class in brackets is for `_class_end`.
_PIECE = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\(\??|\{[0-9]+(?:,[0-9]*)?\}\+?|[^\[]", re.DOTALL)

# Patterns in the spelling that fast engines know by its text.
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
# The same in tiktoken's spelling, which backtracks less.
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
# cl100k's quick spelling takes the white space at the end of a text as one piece; the well-known one cuts it after the
# last line break. That is the same unless some token reaches from that line break into what follows.
_OVER_LAST_BREAK = re.compile(rb"[\t-\r \x80-\xff]*[\r\n][\t\x0b\x0c \x80-\xff]+")


def is_well_known(pattern: str) -> bool:
    """Whether a pattern is one that a tokenizer.json has a spelling for which is known to split alike."""
    return pattern in KNOWN_SPELLINGS or pattern in KNOWN_SPELLINGS.values() or pattern in (QWEN, O200K)


def pre_tokenizer(name: str, own: str, tokens: Iterable[bytes]) -> dict[str, Any]:
    """The step of a tokenizer.json that splits text as tiktoken does with a pattern, for a vocabulary of such tokens."""
    pattern = KNOWN_SPELLINGS.get(own, own)
    if own.startswith(CL100K_QUICK) and any(map(_OVER_LAST_BREAK.fullmatch, tokens)):
        pattern = own
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern == _GPT2}
    if pattern == _GPT2:
        return by_bytes
    import tokenizers

    regex = _portable(pattern)
    try:
        tokenizers.Regex(regex)
    except Exception as error:  # tokenizers raises bare exceptions
        raise TokenizerError(f"{name}: tokenizers cannot read the pattern {regex}: {error}") from error
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, by_bytes]}


def _portable(pattern: str) -> str:
    """A pattern of Rust's regex engines, for Oniguruma, which reads three things otherwise.

    There `x{1,3}+` is one or more times `x{1,3}`: it becomes an atomic group. `^` and `$` stand at every line: they
    become `\\A` and `\\z`. A pattern with flags of its own for lines or comments is left as it is.
    """
    if re.search(r"\(\?[a-z]*[mx]", pattern):
        return pattern
    pieces: list[str] = []
    groups: list[int] = []  # where in `pieces` each open group begins
    atom, at = 0, 0  # where the last atom begins in `pieces`; how far the pattern is read
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
    """Where the `[...]` that begins at `start` ends; classes may hold classes."""
    depth, at = 0, start
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            depth += 1
            if pattern.startswith(("^]", "]"), at + 1):  # a bracket that stands first is meant as itself
                at = pattern.index("]", at)
        elif pattern[at] == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(pattern)
