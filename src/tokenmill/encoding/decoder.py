"""Ids -> bytes and text: what any range of a document's tokens contributes to it, exact to the byte where that exists.

Two families of tokenizers give every token bytes of its own, so that a document is the concatenation of its tokens:

- byte-level ones (GPT-2, Qwen, Llama 3), whose vocabulary spells bytes in an alphabet of 256 printable characters;
- SentencePiece-style ones (Llama 2, Gemma, T5), where a mark, "▁", stands for a space and <0x0A> for a byte. Where they
  put a mark before a document's first word, the space it stands for is taken from the document's first token only: in
  any other place it is a space. So behind a `bos`, or behind a special token inside a text, the space stays, as in
  `tokenizers`.

For all others (WordPiece, WordLevel, decoders of another make) the text of a token depends on its neighbours. There the
answer is whatever `tokenizers` says about the range, and ranges need not concatenate to the whole.

What an encoder threw away stays away: what a normalizer changed, white space around added tokens that strip it, and a
space that a tokenizer adds before a text and that cannot be told from the text's own.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.definition import byte_alphabet
from tokenmill.errors import TokenizerError, UsageError

Ids = Sequence[int] | npt.NDArray[np.integer]

# Ids per gather. The index of a gather takes 8 bytes for each byte of text, so this bounds the memory to a few MB, and
# keeps it in the processor's cache: several times as quick as one gather over ten million ids.
_AT_ONCE = 1 << 16
_MARK = "▁"
_BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


class Decoder:
    """Turns ids back into bytes and text. Made from the text of a tokenizer.json; costs nothing until first used.

    The first use parses that text and builds a table of every token's bytes: about 0.3 s and some MB for 150,000
    tokens. After that, a document costs a few gathers.
    """

    def __init__(self, tokenizer_json: str) -> None:
        self._json = tokenizer_json

    @property
    def exact(self) -> bool:
        """Whether each token has bytes of its own, so that the ranges of a document concatenate to the whole."""
        return self._table.exact

    def bytes(self, ids: Ids, start: int = 0, stop: int | None = None) -> builtins.bytes:
        """What the tokens ids[start:stop] contribute to the document `ids`.

        `ids` is the whole document: a token's bytes depend on whether it is the first. A range may begin or end inside
        a character. Where `exact` is False, this is the text that `tokenizers` gives the range alone, in UTF-8.
        """
        if not self._table.exact:
            return self.text(ids, start, stop).encode()
        first, part = _range(ids, start, stop, self._table.size)
        return b"".join(self._table.gather(part, first))

    def text(self, ids: Ids, start: int = 0, stop: int | None = None) -> str:
        """`bytes` as text; what is not UTF-8, such as half a character at an end of the range, becomes U+FFFD."""
        if self._table.exact:
            return self.bytes(ids, start, stop).decode("utf-8", "replace")
        first, part = _range(ids, start, stop, self._table.size)
        self._table.check(part, first)
        return str(self._reference.decode(part.tolist(), skip_special_tokens=False))

    @cached_property
    def _table(self) -> _Table:
        return _make_table(self._json)

    @cached_property
    def _reference(self) -> Any:
        import tokenizers

        try:
            return tokenizers.Tokenizer.from_str(self._json)
        except Exception as error:  # tokenizers raises bare exceptions
            raise TokenizerError(f"tokenizers cannot load the tokenizer to decode with: {str(error)[:200]}") from error


@dataclass(frozen=True)
class _Table:
    """Every token's bytes, end to end: those of token i are data[offsets[i] : offsets[i + 1]].

    `holes` are the ids below the vocabulary's size that no token has; `marked` the tokens whose first byte is the space
    that is taken away at the start of a document. Where `exact` is False there are no bytes, only ids to check.
    """

    exact: bool
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    holes: npt.NDArray[np.bool_] | None
    marked: frozenset[int]

    @property
    def size(self) -> int:
        return len(self.lengths)

    def gather(self, ids: npt.NDArray[np.integer], first: int) -> Iterator[bytes]:
        """The bytes of some ids, `first` being the position of the first of them in the document."""
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            self.check(some, first + at)
            some = some.astype(np.intp)
            lengths = self.lengths[some]
            ends = np.cumsum(lengths)
            # Byte k of the result belongs to some token; from k to its place in `data` it is as far as for the
            # token's first byte.
            places = np.repeat(self.offsets[some] - (ends - lengths), lengths)
            places += np.arange(len(places))
            found = self.data.take(places).tobytes()
            yield found[1:] if first + at == 0 and int(some[0]) in self.marked else found

    def check(self, ids: npt.NDArray[np.integer], first: int) -> None:
        """Refuse ids that no token has."""
        if len(ids) == 0:
            return
        if int(ids.max()) >= self.size or int(ids.min()) < 0:
            at = int(np.flatnonzero((ids >= self.size) | (ids < 0))[0])
            raise _outside(first + at, int(ids[at]), self.size)
        if self.holes is not None:
            at = int(self.holes[ids].argmax())
            if self.holes[ids[at]]:
                raise UsageError(
                    f"ids[{first + at}] is {int(ids[at])}, an id that no token of this vocabulary of {self.size} has;"
                    " were the ids made with another tokenizer?"
                )


def _outside(position: int, value: int, size: int) -> UsageError:
    return UsageError(
        f"ids[{position}] is {value}, outside the vocabulary of {size}; were the ids made with another tokenizer?"
    )


def _range(ids: Ids, start: int, stop: int | None, size: int) -> tuple[int, npt.NDArray[np.integer]]:
    """The position of a range's first token, and its ids as an array: a view where `ids` is one."""
    first, last, _ = slice(start, stop).indices(len(ids))
    try:
        part = np.asarray(ids[first:last])
    except ValueError as error:  # lists of unequal lengths
        raise UsageError("ids must be one flat list or array of integers: decode documents one by one") from error
    if part.ndim != 1:
        raise UsageError(
            f"ids must be one flat list or array of integers, and has {part.ndim} dimensions: decode documents one by one"
        )
    if len(part) == 0:
        return first, np.empty(0, np.int64)
    if part.dtype.kind in "iu":
        return first, part
    # Not what numpy takes for integers: either something else, or an integer that no dtype holds. Say which and where.
    for position, value in enumerate(ids[first:last], first):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise UsageError(f"ids[{position}] is {value!r}, not a token's id: ids must be integers")
        if not 0 <= value < 1 << 63:
            raise _outside(position, int(value), size)
    return first, part.astype(np.int64)


def _make_table(tokenizer_json: str) -> _Table:
    try:
        config = json.loads(tokenizer_json)
        model = config["model"]
        vocab = model["vocab"]
        numbered = vocab.items() if isinstance(vocab, dict) else ((pair[0], i) for i, pair in enumerate(vocab))
        tokens: dict[int, str] = {number: token for token, number in numbered}
        added = {token["id"]: token for token in config.get("added_tokens") or []}
        spelling = _spelling(config)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise TokenizerError(
            f"the decoder was not given the text of a tokenizer.json: {type(error).__name__}: {error}"
        ) from error
    # An added token that the model's vocabulary holds too, and that is not special, comes out of ordinary text: Gemma
    # lists its runs of marks among the added tokens. Such a one reads as any token of the model.
    literal = {
        number: token["content"]
        for number, token in added.items()
        if token.get("special") or tokens.get(number) != token["content"]
    }
    size = max((*tokens, *added), default=-1) + 1
    contents: list[bytes | None] = [None] * size
    if spelling is None:
        for number in (*tokens, *added):
            contents[number] = b""
    else:
        for number, token in tokens.items():
            contents[number] = spelling.read(token)
        for number, content in literal.items():
            # Where the 256 byte tokens are listed as special, they still come out of the model for bytes.
            in_bytes = spelling.in_bytes and tokens.get(number) == content and content in _BYTE_TOKENS
            contents[number] = _BYTE_TOKENS[content] if in_bytes else content.encode()
    lengths = np.fromiter((len(content or b"") for content in contents), np.int64, size)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    holes = np.fromiter((content is None for content in contents), np.bool_, size)
    mark = spelling.put if spelling else None
    return _Table(
        exact=spelling is not None,
        data=np.frombuffer(b"".join(content or b"" for content in contents), np.uint8),
        offsets=offsets[:-1],
        lengths=lengths,
        holes=holes if holes.any() else None,
        marked=frozenset(n for n, token in tokens.items() if mark and token.startswith(mark) and n not in literal),
    )


@dataclass(frozen=True)
class _Spelling:
    """How a vocabulary spells bytes: `read` gives a token's; `put` is the mark set before a document's first word."""

    read: Callable[[str], bytes]
    in_bytes: bool = False
    put: str | None = None


def _spelling(config: dict[str, Any]) -> _Spelling | None:
    """How this tokenizer's vocabulary spells bytes; None where its tokens have no bytes of their own.

    The decoder decides, for it says what tokens mean; where there is none, what stands before the model does.
    """
    model = config["model"]
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None  # tokens are joined by rules about words
    decoder = _steps(config.get("decoder"), "decoders")
    before = _steps(config.get("normalizer"), "normalizers") + _steps(config.get("pre_tokenizer"), "pretokenizers")
    kinds = [step["type"] for step in decoder or before]
    if "ByteLevel" in kinds and (not decoder or set(kinds) <= {"ByteLevel", "Fuse"}):
        return _Spelling(_read_alphabet)
    mark = _decoder_mark(decoder) if decoder else _encoder_mark(before)
    if mark is None:
        return None
    in_bytes = "ByteFallback" in kinds or bool(model.get("byte_fallback"))

    def read(token: str) -> bytes:
        if in_bytes and token in _BYTE_TOKENS:
            return _BYTE_TOKENS[token]
        return token.replace(mark, " ").encode()

    return _Spelling(read, in_bytes, mark if _puts_mark(before, mark) else None)


def _steps(config: dict[str, Any] | None, several: str) -> list[dict[str, Any]]:
    if config is None:
        return []
    if config.get("type") == "Sequence":
        return [step for part in config[several] for step in _steps(part, several)]
    return [config]


def _decoder_mark(decoder: list[dict[str, Any]]) -> str | None:
    """What a decoder turns into a space, if that, bytes, and a space fewer at the start are all that it does."""
    kinds = [step["type"] for step in decoder]
    fused = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    marks = set()
    for step in decoder[:fused]:
        if step["type"] == "Metaspace":
            marks.add(step.get("replacement", _MARK))
        elif step["type"] == "Replace" and step["content"] == " ":
            marks.add(step["pattern"].get("String"))
        elif step["type"] != "ByteFallback":
            return None
    for step in decoder[fused + 1 :]:
        if step["type"] != "Strip" or (step["content"], step["stop"]) != (" ", 0) or step["start"] > 1:
            return None
    return _one_mark(marks)


def _encoder_mark(before: list[dict[str, Any]]) -> str | None:
    """What the steps before the model turn a space into, where there is no decoder to say so."""
    marks = set()
    for step in before:
        if step["type"] == "Metaspace":
            marks.add(step.get("replacement", _MARK))
        elif step["type"] == "Replace" and step["pattern"].get("String") == " ":
            marks.add(step["content"])
    return _one_mark(marks)


def _one_mark(marks: set[str | None]) -> str | None:
    mark = marks.pop() if len(marks) == 1 else None
    return mark if mark is not None and len(mark) == 1 else None


def _puts_mark(before: list[dict[str, Any]], mark: str) -> bool:
    """Whether a mark is put before a text that the text itself did not hold."""
    for step in before:
        if step["type"] == "Prepend" and step["prepend"] in (mark, " "):
            return True
        # Files from before there were schemes only say add_prefix_space.
        never = "never" if step.get("add_prefix_space") is False else "always"
        if step["type"] == "Metaspace" and step.get("prepend_scheme", never) != "never":
            return True
    return False


_ALPHABET = {character: byte for byte, character in enumerate(byte_alphabet())}


def _read_alphabet(token: str) -> bytes:
    """The bytes a byte-level token spells; a token with any character outside the alphabet stands for itself."""
    try:
        return bytes([_ALPHABET[character] for character in token])
    except KeyError:
        return token.encode()
