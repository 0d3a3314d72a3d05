"""From ids to bytes and text: what any range of a document's tokens contributes to it, exact to the byte where possible.

In two families of tokenizers every token has bytes of its own, so that a document is the concatenation of its tokens:

- Byte-level ones (GPT-2, Qwen, Llama 3), whose vocabulary spells bytes in an alphabet of 256 printable characters.
- SentencePiece-style ones (Llama 2, Gemma, T5), where a mark, "▁", stands for a space and <0x0A> for a byte. If they put
  a mark before the first word of a document, its space is removed from the first token of the document only, as in `tokenizers`.

In all others (WordPiece, WordLevel, other decoders) the text of a token depends on its neighbours. Then the result is
what `tokenizers` returns for the range, and ranges need not concatenate to the whole.

What an encoder discarded cannot be restored: what a normalizer changed, and white space that added tokens strip.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.tokenizer_json import BYTE_TOKENS, byte_level_bytes, steps, steps_before_model, tokens_of
from tokenmill.errors import TokenizerError, UsageError, WrongTypeError

Ids = Sequence[int] | npt.NDArray[np.integer]

# Ids per gather, whose index takes 8 bytes per byte of text: it stays in the processor's cache.
_IDS_PER_GATHER = 1 << 16
_METASPACES = ("Metaspace", "MetaspaceNormalizer")  # the second is written by `tokenizers` 1.0


class Decoder:
    """Turns ids into bytes and text, given the text of a tokenizer.json. To construct one takes 0.3 s for 150,000 tokens.

    `exact` says whether each token has bytes of its own, so that the ranges of a document concatenate to the whole.
    """

    def __init__(self, tokenizer_json: str) -> None:
        self._json = tokenizer_json
        contents, self._marked, self.exact = _token_bytes(tokenizer_json)
        every_id = range(max(contents, default=-1) + 1)
        self._is_hole = np.array([i not in contents for i in every_id], bool)  # ids that no token has
        self._has_holes = bool(self._is_hole.any())
        # All contents concatenated: that of token i are the lengths[i] bytes from offsets[i].
        ordered = [contents.get(i, b"") for i in every_id]
        self._data = np.frombuffer(b"".join(ordered), np.uint8)
        self._lengths = np.array([*map(len, ordered)], np.int64)
        self._offsets = np.cumsum(self._lengths) - self._lengths

    def bytes(self, ids: Ids, start: int = 0, stop: int | None = None) -> builtins.bytes:
        """What the tokens ids[start:stop] contribute to the document `ids`.

        `ids` must be the whole document, because the bytes of the first token may differ. A range may start or end inside
        a character. If `exact` is False, the result is the text that `tokenizers` returns for the range, in UTF-8.
        """
        first, part = id_range(ids, start, stop, len(self._lengths))
        if self._has_holes and len(holes := np.flatnonzero(self._is_hole[part])):
            raise UsageError(
                f"ids[{first + holes[0]}] is {part[holes[0]]}, an id that no token of this vocabulary of"
                f" {len(self._lengths)} has; do the ids come from another tokenizer?"
            )
        if not self.exact:
            return self._reference.decode(part.tolist()).encode()
        batches = (part[at : at + _IDS_PER_GATHER] for at in range(0, len(part), _IDS_PER_GATHER))
        gathered = b"".join(map(self._gather, batches))
        return gathered[1:] if first == 0 and len(part) and int(part[0]) in self._marked else gathered

    def text(self, ids: Ids, start: int = 0, stop: int | None = None) -> str:
        """`bytes` as text. Invalid UTF-8, such as half a character at an end of the range, becomes U+FFFD."""
        return self.bytes(ids, start, stop).decode("utf-8", "replace")

    def _gather(self, ids: npt.NDArray[np.integer]) -> builtins.bytes:
        ids = ids.astype(np.intp)
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths)
        # The distance from a byte of the result to its place in `data` is the same for all bytes of a token.
        places = np.repeat(self._offsets[ids] - (ends - lengths), lengths)
        places += np.arange(len(places))
        return self._data.take(places).tobytes()

    @cached_property
    def _reference(self) -> HfTokenizer:
        return HfTokenizer(self._json)


def id_range(ids: Ids, start: int, stop: int | None, size: int) -> tuple[int, npt.NDArray[np.integer]]:
    """The position of the first token of a range, and its ids as an array, without a copy if `ids` is an array.

    Raises UsageError unless all of them are integers from 0 to size - 1.
    """
    if not hasattr(ids, "__len__") or isinstance(ids, Mapping):
        raise WrongTypeError(f"ids must be a list or array of integers, not {type(ids).__name__}")
    first, last, _ = slice(start, stop).indices(len(ids))
    try:
        part = np.asarray(ids[first:last])
    except ValueError as error:  # lists of unequal lengths
        raise UsageError("ids must be one flat list or array of integers: decode documents one by one") from error
    if part.ndim != 1:
        raise UsageError(
            f"ids must be one flat list or array of integers, and has {part.ndim} dimensions: decode documents one by one"
        )
    if part.dtype.kind in "iu" and (not len(part) or (int(part.min()) >= 0 and int(part.max()) < size)):
        return first, part
    # Find the first that is no id. If all are: there are none of them, or numpy was given objects.
    for position, value in enumerate(ids[first:last], first):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise WrongTypeError(f"ids[{position}] is {value!r}, not a token id: ids must be integers")
        if not 0 <= value < size:
            raise UsageError(
                f"ids[{position}] is {value}, outside the vocabulary of {size}; do the ids come from another tokenizer?"
            )
    return first, part.astype(np.int64)


def _token_bytes(tokenizer_json: str) -> tuple[dict[int, bytes], set[int], bool]:
    """The bytes of each token; the tokens that lose a space at the start of a document; whether tokens have own bytes at all."""
    try:
        config = json.loads(tokenizer_json)
        tokens = {number: token for token, number in tokens_of(config["model"])}
        added = {token["id"]: token for token in config.get("added_tokens") or []}
        spelling = _spelling(config)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise TokenizerError(
            f"the decoder was not given the text of a tokenizer.json: {type(error).__name__}: {error}"
        ) from error
    if spelling is None:
        return dict.fromkeys((*tokens, *added), b""), set(), False
    # The name of an added token is its text, unless the model produces that token from ordinary text: Gemma lists its runs
    # of marks among the added tokens, and others a single character or byte of the model.
    literal = {
        number: token["content"]
        for number, token in added.items()
        if tokens.get(number) != token["content"]
        or (token.get("special") and len(token["content"]) > 1 and token["content"] not in spelling.byte_tokens)
    }
    contents = {number: spelling.read(token) for number, token in tokens.items()}
    contents |= {number: name.encode() for number, name in literal.items()}
    start = spelling.mark if spelling.adds_mark else None
    marked = {number for number, token in tokens.items() if start and token.startswith(start) and number not in literal}
    return contents, marked, True


class _Spelling(NamedTuple):
    """How a vocabulary spells bytes: in the byte-level alphabet, or with a mark for a space and perhaps tokens for bytes."""

    mark: str | None
    adds_mark: bool  # before the first word of a document
    byte_tokens: dict[str, bytes]

    def read(self, token: str) -> bytes:
        if self.mark is None:
            return byte_level_bytes(token)
        return self.byte_tokens.get(token) or token.replace(self.mark, " ").encode()


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
        return _Spelling(mark=None, adds_mark=False, byte_tokens={})
    marks = _decoder_marks(decoder) if decoder else {_mark(step, encodes=True) for step in before} - {None}
    mark = marks.pop() if len(marks) == 1 else None
    if mark is None or len(mark) != 1:
        return None
    has_byte_tokens = "ByteFallback" in kinds or bool(model.get("byte_fallback"))
    return _Spelling(mark, _adds_mark(before, mark), BYTE_TOKENS if has_byte_tokens else {})


def _decoder_marks(decoder: list[dict[str, Any]]) -> set[str | None]:
    """What a decoder turns into spaces, and None if it does more than that, bytes and stripping one leading space."""
    kinds = [step["type"] for step in decoder]
    fused = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    for step in decoder[fused + 1 :]:
        if step["type"] != "Strip" or (step["content"], step["stop"]) != (" ", 0) or step["start"] > 1:
            return {None}
    return {_mark(step) for step in decoder[:fused] if step["type"] != "ByteFallback"}


def _mark(step: dict[str, Any], *, encodes: bool = False) -> str | None:
    """The mark that a step of a decoder turns into a space, or that a step before the model makes of one."""
    if step["type"] in _METASPACES:
        return str(step.get("replacement", "▁"))
    if step["type"] == "Replace":
        found = (step["pattern"].get("String"), step["content"])
        space, mark = found if encodes else found[::-1]
        return mark if space == " " else None
    return None


def _adds_mark(before: list[dict[str, Any]], mark: str) -> bool:
    """Whether a mark is added before a text."""
    for step in before:
        if step["type"] == "Prepend" and step["prepend"] in (mark, " "):
            return True
        # Older files have add_prefix_space instead of a scheme, and 1.0 writes "prepend".
        never = "never" if step.get("add_prefix_space") is False else "always"
        if step["type"] in _METASPACES and step.get("prepend_scheme", step.get("prepend", never)) != "never":
            return True
    return False
