"""From ids to bytes and text: what any range of a document's tokens contributes to it, exact to the byte where possible.

In two families of tokenizers every token has bytes of its own, so that a document is the concatenation of its tokens:

- Byte-level ones (GPT-2, Qwen, Llama 3), whose vocabulary spells bytes in an alphabet of 256 printable characters.
- SentencePiece-style ones (Llama 2, Gemma, T5), where a mark, "▁", stands for a space and <0x0A> for a byte. If they put
  a mark before the first word of a document, its space is removed from the first token of the document only. In any other
  place the mark is a space. So after a `bos`, or after a special token inside a text, the space stays, as in
  `tokenizers`.

In all others (WordPiece, WordLevel, other decoders) the text of a token depends on its neighbours. Then the result is
what `tokenizers` returns for the range, and ranges need not concatenate to the whole.

What an encoder discarded cannot be restored: what a normalizer changed, white space around added tokens that strip it, and
a space that a tokenizer adds before a text and that cannot be distinguished from one in the text.
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

from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.tokenizer_json import BYTE_TOKENS, byte_level_bytes, steps, steps_before_model
from tokenmill.errors import TokenizerError, UsageError

Ids = Sequence[int] | npt.NDArray[np.integer]

# Ids per gather. The index of a gather takes 8 bytes per byte of text, so this limits memory to a few MB and stays in the
# processor's cache: several times faster than one gather over ten million ids.
_IDS_PER_GATHER = 1 << 16
_MARK = "▁"


class Decoder:
    """Turns ids into bytes and text, given the text of a tokenizer.json.

    The first use parses that text and builds a table of every token's bytes: about 0.3 s and a few MB for 150,000
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

        `ids` must be the whole document, because the bytes of the first token may differ. A range may start or end inside
        a character. If `exact` is False, the result is the text that `tokenizers` returns for the range, in UTF-8.
        """
        if not self._table.exact:
            return self.text(ids, start, stop).encode()
        first, part = id_range(ids, start, stop, self._table.size)
        return b"".join(self._table.gather(part, first))

    def text(self, ids: Ids, start: int = 0, stop: int | None = None) -> str:
        """`bytes` as text. Invalid UTF-8, such as half a character at an end of the range, becomes U+FFFD."""
        if self._table.exact:
            return self.bytes(ids, start, stop).decode("utf-8", "replace")
        first, part = id_range(ids, start, stop, self._table.size)
        self._table.check(part, first)
        return self._reference.decode(part.tolist())

    @cached_property
    def _table(self) -> _Table:
        return _make_table(self._json)

    @cached_property
    def _reference(self) -> HfTokenizer:
        return HfTokenizer(self._json)


class _Table:
    """The bytes of all tokens concatenated: those of token i are the lengths[i] bytes from offsets[i].

    `contents` are the bytes of each token; None for ids that no token has. `marked` are the tokens whose first byte is a
    space that is removed at the start of a document. If `exact` is False there are no bytes, only ids to check.
    """

    def __init__(self, contents: list[builtins.bytes | None], marked: frozenset[int], *, exact: bool) -> None:
        self.exact = exact
        self._marked = marked
        self._data = np.frombuffer(b"".join(content or b"" for content in contents), np.uint8)
        self._lengths = np.fromiter((len(content or b"") for content in contents), np.int64, len(contents))
        self._offsets = np.cumsum(self._lengths) - self._lengths
        self._is_hole = np.fromiter((content is None for content in contents), np.bool_, len(contents))
        self._has_holes = bool(self._is_hole.any())

    @property
    def size(self) -> int:
        return len(self._lengths)

    def gather(self, ids: npt.NDArray[np.integer], first: int) -> Iterator[bytes]:
        """The bytes of ids. `first` is the position of the first one in the document."""
        for at in range(0, len(ids), _IDS_PER_GATHER):
            part = ids[at : at + _IDS_PER_GATHER]
            self.check(part, first + at)
            part = part.astype(np.intp)
            lengths = self._lengths[part]
            ends = np.cumsum(lengths)
            # The distance from a byte of the result to its place in `data` is the same for all bytes of a token.
            places = np.repeat(self._offsets[part] - (ends - lengths), lengths)
            places += np.arange(len(places))
            gathered = self._data.take(places).tobytes()
            yield gathered[1:] if first + at == 0 and int(part[0]) in self._marked else gathered

    def check(self, ids: npt.NDArray[np.integer], first: int) -> None:
        """Raise UsageError for ids below `size` that no token has."""
        if self._has_holes and len(ids):
            at = int(self._is_hole[ids].argmax())
            if self._is_hole[ids[at]]:
                raise UsageError(
                    f"ids[{first + at}] is {int(ids[at])}, an id that no token of this vocabulary of {self.size} has;"
                    " do the ids come from another tokenizer?"
                )


def _outside(position: int, value: int, size: int) -> UsageError:
    return UsageError(
        f"ids[{position}] is {value}, outside the vocabulary of {size}; do the ids come from another tokenizer?"
    )


def id_range(ids: Ids, start: int, stop: int | None, size: int) -> tuple[int, npt.NDArray[np.integer]]:
    """The position of the first token of a range, and its ids as an array, without a copy if `ids` is an array.

    Raises UsageError unless all of them are integers from 0 to size - 1.
    """
    if not hasattr(ids, "__len__"):
        raise UsageError(f"ids must be a list or array of integers, not {type(ids).__name__}")
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
        if int(part.max()) >= size or int(part.min()) < 0:
            at = int(np.flatnonzero((part >= size) | (part < 0))[0])
            raise _outside(first + at, int(part[at]), size)
        return first, part
    # No integers for numpy: another type, or an integer too large for any dtype. Find out which, and where.
    for position, value in enumerate(ids[first:last], first):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise UsageError(f"ids[{position}] is {value!r}, not a token id: ids must be integers")
        if not 0 <= value < size:
            raise _outside(position, int(value), size)
    return first, part.astype(np.int64)


def _make_table(tokenizer_json: str) -> _Table:
    try:
        config = json.loads(tokenizer_json)
        tokens = _vocabulary(config["model"]["vocab"])
        added = {token["id"]: token for token in config.get("added_tokens") or []}
        spelling = _spelling(config)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise TokenizerError(
            f"the decoder was not given the text of a tokenizer.json: {type(error).__name__}: {error}"
        ) from error
    literal = _literal_tokens(tokens, added)
    if spelling is None:
        contents = dict.fromkeys((*tokens, *added), b"")
        marked: frozenset[int] = frozenset()
    else:
        contents = {number: spelling.read(token) for number, token in tokens.items()}
        contents |= {number: spelling.read_literal(name, tokens.get(number)) for number, name in literal.items()}
        marked = frozenset(n for n, token in tokens.items() if spelling.adds_mark(token) and n not in literal)
    size = max(contents, default=-1) + 1
    ordered = [contents.get(i) for i in range(size)]  # None: no token has this id
    return _Table(ordered, marked, exact=spelling is not None)


def token_names(tokenizer_json: str) -> dict[int, str]:
    """The tokens in the vocabulary of a tokenizer.json by id."""
    return _vocabulary(json.loads(tokenizer_json)["model"]["vocab"])


def _vocabulary(vocab: dict[str, int] | list[list[Any]]) -> dict[int, str]:
    """The tokens of a model by id. A list has them in the order of their ids, with scores."""
    if isinstance(vocab, dict):
        return {number: token for token, number in vocab.items()}
    return {i: pair[0] for i, pair in enumerate(vocab)}


def _literal_tokens(tokens: dict[int, str], added: dict[int, dict[str, Any]]) -> dict[int, str]:
    """The added tokens whose name is their text.

    An added token that is also in the model's vocabulary and is not special is produced from ordinary text: Gemma lists
    its runs of marks among the added tokens. So is one that is a single character or byte of the model. Such a token is
    read like any other token of the model.
    """
    return {
        number: token["content"]
        for number, token in added.items()
        if tokens.get(number) != token["content"] or (token.get("special") and len(token["content"]) > 1)
    }


@dataclass(frozen=True)
class _Spelling:
    """How a vocabulary spells bytes.

    `read` returns the bytes of a token, `has_byte_tokens` tells whether <0x0A> is a byte, and `mark` is the mark that is
    added before the first word of a document, if any.
    """

    read: Callable[[str], bytes]
    has_byte_tokens: bool = False
    mark: str | None = None

    def read_literal(self, name: str, in_model: str | None) -> bytes:
        """The bytes of an added token. Byte tokens that are listed as special are still produced for bytes."""
        if self.has_byte_tokens and in_model == name and name in BYTE_TOKENS:
            return BYTE_TOKENS[name]
        return name.encode()

    def adds_mark(self, token: str) -> bool:
        return self.mark is not None and token.startswith(self.mark)


def _spelling(config: dict[str, Any]) -> _Spelling | None:
    """How this tokenizer's vocabulary spells bytes. None if its tokens have no bytes of their own.

    The decoder decides, because it says what tokens mean. Without a decoder, the steps before the model do.
    """
    model = config["model"]
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None  # tokens are joined into words by rules
    decoder = steps(config.get("decoder"), "decoders")
    before = steps_before_model(config)
    kinds = [step["type"] for step in decoder or before]
    if "ByteLevel" in kinds and (not decoder or set(kinds) <= {"ByteLevel", "Fuse"}):
        return _Spelling(byte_level_bytes)
    mark = _decoder_mark(decoder) if decoder else _encoder_mark(before)
    if mark is None:
        return None
    has_byte_tokens = "ByteFallback" in kinds or bool(model.get("byte_fallback"))

    def read(token: str) -> bytes:
        if has_byte_tokens and token in BYTE_TOKENS:
            return BYTE_TOKENS[token]
        return token.replace(mark, " ").encode()

    return _Spelling(read, has_byte_tokens, mark if _adds_mark(before, mark) else None)


def _decoder_mark(decoder: list[dict[str, Any]]) -> str | None:
    """The mark that a decoder turns into a space. None if it does more than marks, bytes and stripping one leading space."""
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
    """The mark that the steps before the model turn a space into."""
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


def _adds_mark(before: list[dict[str, Any]], mark: str) -> bool:
    """Whether a mark is added before a text."""
    for step in before:
        if step["type"] == "Prepend" and step["prepend"] in (mark, " "):
            return True
        # Older files have add_prefix_space instead of a scheme.
        never = "never" if step.get("add_prefix_space") is False else "always"
        if step["type"] == "Metaspace" and step.get("prepend_scheme", never) != "never":
            return True
    return False
