"""tiktoken's tokenizers: ranks, a pattern and special tokens; and their conversion to a tokenizer.json.

A rank file lists tokens and their ranks, nothing else. For a file, the pattern that splits text and the special tokens come from
its content (well-known files) or from a `tiktoken.json` beside it.

Why the conversion is exact where the patterns agree: tiktoken repeatedly joins the leftmost pair of neighbours whose
joint token has the lowest rank. Whatever surrounds a token, the joins inside it happen in the same order as when it
stands alone. So the last join of a token that stands alone is the only merge that can produce it, and one merge per token
is enough. A token that no join produces is found only as a whole piece of text, which is what `ignore_merges` is for.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenmill.encoding.conversion.tiktoken_patterns import CL100K_QUICK, GPT2_QUICK, O200K, QWEN, pre_tokenizer
from tokenmill.encoding.libraries import import_library
from tokenmill.encoding.tokenizer_json import added_token, byte_alphabet
from tokenmill.errors import TokenizerError

RANKS_FILE, REST_FILE = "ranks.tiktoken", "tiktoken.json"  # REST_FILE: pattern and special tokens
_VERSION = 1
# The bytes that occur in UTF-8.
_UTF8_BYTES = frozenset(bytes([b]) for b in range(0xF5) if b not in (0xC0, 0xC1))
_ID_LIMIT = 1 << 32
_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) ([0-9]+)")
_END, _CODE = "<|endoftext|>", ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_CL100K_SPECIAL = dict(zip((_END, *_CODE, "<|endofprompt|>"), (*range(100257, 100261), 100276), strict=True))
_O200K_SPECIAL = {_END: 199999, "<|endofprompt|>": 200018}
_QWEN_NAMES = (_END, "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))
_QWEN_SPECIAL = {name: i for i, name in enumerate(_QWEN_NAMES, 151643)}
# Patterns, special tokens and names of files, by the SHA-256 of their lines sorted by rank.
_WELL_KNOWN: dict[str, tuple[str, dict[str, int], str]] = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": (GPT2_QUICK, {_END: 50256}, "r50k_base"),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": (GPT2_QUICK, {_END: 50256}, "p50k_base"),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (CL100K_QUICK, _CL100K_SPECIAL, "cl100k_base"),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (O200K, _O200K_SPECIAL, "o200k_base"),
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": (QWEN, _QWEN_SPECIAL, "qwen"),
}


@dataclass(frozen=True)
class Ranks:
    """A tiktoken tokenizer: tokens with their ranks (which are their ids), a pattern, special tokens. Checked on creation."""

    ranks: dict[bytes, int] = field(repr=False)
    pattern: str = field(repr=False)
    special: dict[str, int] = field(repr=False)
    name: str

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise TokenizerError(f"{self.name}: {problem}")

    def _problem(self) -> str | None:
        token_of = {rank: token for token, rank in self.ranks.items()}
        missing = _UTF8_BYTES - self.ranks.keys()
        if missing:
            examples = ", ".join(f"0x{token.hex()}" for token in sorted(missing)[:4])
            return f"{len(missing)} of the bytes that occur in UTF-8 have no rank ({examples}); is the file cut short?"
        if len(token_of) < len(self.ranks):
            token, rank = next((t, r) for t, r in self.ranks.items() if token_of[r] != t)
            return f"rank {rank} belongs to both {token!r} and {token_of[rank]!r}"
        if b"" in self.ranks:
            return f"rank {self.ranks[b'']} belongs to an empty token"
        if min(token_of) < 0 or max(token_of) >= _ID_LIMIT:
            return f"ranks go from {min(token_of)} to {max(token_of)}; ids are 0 to 2^32 - 1"
        for content, number in self.special.items():
            if not content or not 0 <= number < _ID_LIMIT:
                return f"the special token {content!r} cannot have the id {number}"
            if token_of.get(number, content.encode()) != content.encode():
                return f"the special token {content!r} has the id {number} of the token {token_of[number]!r}"
        return None if self.pattern else "the pattern that splits text is empty"

    def to_files(self) -> dict[str, bytes]:
        """Files by name, which `from_files` reads. `ranks.tiktoken` is the format that tiktoken itself reads and writes."""
        ranks = _rank_lines(self.ranks)
        rest = {
            "version": _VERSION,
            "name": self.name,
            "pattern": self.pattern,
            "special_tokens": self.special,
            "ranks_sha256": hashlib.sha256(ranks).hexdigest(),
        }
        return {RANKS_FILE: ranks, REST_FILE: json.dumps(rest, indent=1, ensure_ascii=False).encode() + b"\n"}

    @staticmethod
    def from_files(files: dict[str, bytes]) -> Ranks:
        """Read what `to_files` wrote, and check its digest."""
        for name in (RANKS_FILE, REST_FILE):
            if name not in files:
                raise TokenizerError(f"a tiktoken tokenizer is {RANKS_FILE} and {REST_FILE}; {name} is missing")
        return _with_rest(_parse(RANKS_FILE, files[RANKS_FILE]), REST_FILE, files[REST_FILE], "tiktoken")

    def encoding(self) -> Any:
        """Construct the `tiktoken.Encoding`. About 0.15 s for 100,000 ranks."""
        construct = import_library("tiktoken").Encoding
        try:
            return construct(self.name, pat_str=self.pattern, mergeable_ranks=self.ranks, special_tokens=self.special)
        except ValueError as error:
            raise TokenizerError(f"{self.name}: tiktoken refuses it: {str(error)[:300]}") from error


def named(name: str) -> Ranks:
    """Load an encoding of tiktoken by name. tiktoken downloads its ranks on first use."""
    module = import_library("tiktoken")
    known = module.list_encoding_names()
    if name not in known:
        raise TokenizerError(f"tiktoken has no encoding {name!r}; it has {', '.join(sorted(known))}")
    try:
        encoding = module.get_encoding(name)
    except (OSError, ValueError, AssertionError) as error:  # no connection, a refused cache folder, a wrong digest
        raise TokenizerError(
            f"tiktoken could not get the ranks of {name!r}: {type(error).__name__}: {str(error)[:200]}."
            " tiktoken downloads them on first use and keeps them in the folder that TIKTOKEN_CACHE_DIR names:"
            " run this once with a connection, or set TIKTOKEN_CACHE_DIR to a folder filled elsewhere"
        ) from error
    return from_encoding(encoding)


def from_encoding(encoding: Any) -> Ranks:
    """The ranks, pattern and special tokens of a `tiktoken.Encoding`."""
    try:
        ranks, pattern = dict(encoding._mergeable_ranks), str(encoding._pat_str)
        return Ranks(ranks, pattern, dict(encoding._special_tokens), str(encoding.name))
    except AttributeError as error:
        raise TokenizerError(f"{type(encoding).__name__} is not a tiktoken.Encoding: {error}") from error


def from_rank_file(path: Path, raw: bytes, rest: bytes | None) -> Ranks:
    """Parse a rank file, with the pattern and special tokens from the `tiktoken.json` beside it.

    If there is none, well-known files are recognised by their content, whatever their name.
    """
    ranks = _parse(str(path), raw)
    if rest is not None:
        return _with_rest(ranks, str(path.with_name(REST_FILE)), rest, path.stem)
    known = _WELL_KNOWN.get(hashlib.sha256(_rank_lines(ranks)).hexdigest())
    if known is not None:
        return Ranks(ranks, *known)
    raise TokenizerError(
        f"{path} has {len(ranks):,} ranks that are not a well-known set. A rank file has neither the pattern that splits"
        f" text nor the special tokens: put a {REST_FILE} beside it with"
        ' {"pattern": "...", "special_tokens": {"<|endoftext|>": 100257}}, or pass a tiktoken.Encoding'
    )


def looks_like_ranks(raw: bytes) -> bool:
    """Whether a file starts like a rank file, whatever its name (that of Llama 3 is `tokenizer.model`)."""
    lines = raw[:4096].splitlines()
    if len(raw) > 4096:
        lines.pop()
    matches = [_LINE.fullmatch(line) for line in lines if line]
    return bool(matches) and all(match and len(match[1]) % 4 == 0 for match in matches)


def tokenizer_json(ranks: Ranks) -> str:
    """Convert to a tokenizer.json. About a second for 100,000 ranks. Raises TokenizerError if it cannot be expressed.

    Compare the result with tiktoken before using it: the regex engine of `tokenizers` knows another version of Unicode.
    """
    if len(set(ranks.special.values())) < len(ranks.special):
        raise TokenizerError(f"{ranks.name}: special tokens share an id, which a tokenizer.json cannot express")
    merges, whole_only = recover_merges(ranks.ranks)
    names = {token: spelled(token) for token in ranks.ranks}
    vocab = {names[token]: rank for token, rank in sorted(ranks.ranks.items(), key=lambda item: item[1])}
    special = {number: content for content, number in ranks.special.items()}
    for number, content in sorted(special.items()):
        own = content.encode()
        # A name in plain ASCII has the same spelling in the byte alphabet, and the special token takes precedence.
        if spelled(own) != content and (content in vocab or ranks.ranks.get(own) == number):
            raise TokenizerError(
                f"{ranks.name}: the special token {content!r} cannot be written in a tokenizer.json,"
                " where an ordinary token has the same spelling or id"
            )
        vocab[content] = number  # `tokenizers` keeps the id of an added token only if the vocabulary has it too
    model = {
        "type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": "", "ignore_merges": bool(whole_only),
        "vocab": vocab, "merges": [[names[left], names[right]] for left, right in merges],
    }  # fmt: skip
    body = {
        "version": "1.0",
        "added_tokens": [added_token(number, name, special=True) for number, name in sorted(special.items())],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer(ranks.pattern, ranks.ranks),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }
    return json.dumps(body, ensure_ascii=False)


def recover_merges(ranks: dict[bytes, int]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """The merge that produces each token, in rank order; and the tokens that no merge produces."""
    parts = {token: _last_join(token, ranks) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1}
    return [pair for pair in parts.values() if pair], [token for token, pair in parts.items() if not pair]


def spelled(token: bytes) -> str:
    """A token in the alphabet of byte-level tokenizers: one printable character per byte."""
    return "".join(map(byte_alphabet().__getitem__, token))


def _last_join(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """Join a token's bytes as tiktoken does until two parts are left. Quadratic in the length, which is small."""
    parts = [token[i : i + 1] for i in range(len(token))]
    joined = [ranks.get(left + right, _ID_LIMIT) for left, right in pairwise(parts)]
    while len(parts) > 2:
        lowest = min(joined)
        if lowest == _ID_LIMIT:
            return None
        at = joined.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        start = max(at - 1, 0)  # the new part has other neighbours on both sides
        joined[start : at + 2] = [ranks.get(a + b, _ID_LIMIT) for a, b in pairwise(parts[start : at + 2])]
    return parts[0], parts[1]


def _parse(where: str, raw: bytes) -> dict[bytes, int]:
    """Parse a rank file. Errors name the line."""
    if not raw.strip():
        raise TokenizerError(f"{where} is empty; a rank file has one line per token: base64 and rank")
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(raw.split(b"\n"), 1):
        line = line.rstrip(b"\r")
        if not line:
            continue
        match = _LINE.fullmatch(line)
        try:
            if match is None:
                raise ValueError("expected a token in base64, a space and a rank")
            token, rank = binascii.a2b_base64(match[1], strict_mode=True), int(match[2])
            if token in ranks:
                raise ValueError(f"the token {token!r} already has rank {ranks[token]}")
            if rank in line_of:
                raise ValueError(f"rank {rank} is also on line {line_of[rank]}")
        except ValueError as error:
            shown = repr(line[:60])[1:]
            raise TokenizerError(
                f"{where}, line {number}: {shown} is not a rank ({error}); is the file cut short, or another kind of file?"
            ) from error
        ranks[token], line_of[rank] = rank, number
    return ranks


def _with_rest(ranks: dict[bytes, int], where: str, raw: bytes, name: str) -> Ranks:
    """Add the contents of a tiktoken.json to ranks. It must have the pattern and the special tokens."""
    try:
        rest = json.loads(raw)
        json.dumps(rest, ensure_ascii=False).encode()  # an escaped lone surrogate is valid JSON but not text
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(rest, dict) or rest.get("version", _VERSION) != _VERSION:
        raise TokenizerError(f"{where} is not a tiktoken.json of version {_VERSION}; a newer tokenmill may read it")
    pattern, special = rest.get("pattern"), rest.get("special_tokens")
    if not isinstance(pattern, str) or not isinstance(special, dict):
        raise TokenizerError(f"{where} needs 'pattern', a string, and 'special_tokens', an object of names and ids")
    if not all(type(number) is int for number in special.values()):
        raise TokenizerError(f"{where}: an id in 'special_tokens' is not an integer")
    digest = rest.get("ranks_sha256")
    if digest is not None and digest != hashlib.sha256(_rank_lines(ranks)).hexdigest():
        raise TokenizerError(f"{where} was written for other ranks (the digest differs); one of them is damaged")
    return Ranks(ranks, pattern, special, str(rest.get("name", name)))


def _rank_lines(ranks: dict[bytes, int]) -> bytes:
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b"%s %d\n" % (binascii.b2a_base64(token, newline=False), rank) for token, rank in ordered)
