"""Conversion of a SentencePiece .model to a tokenizer.json, for models that a tokenizer.json can express.

The file is a protobuf message. It is parsed here, because only a dozen of its fields matter and sentencepiece does not
install protobuf. That takes a second for 256,000 pieces; protobuf would take a tenth of that.

What sentencepiece does, and how the tokenizer.json expresses it:

* BPE. Two neighbours are merged if together they are a piece; the best score first, the leftmost among equals. A
  tokenizer.json ranks pairs instead. Pieces with equal scores cannot be ranked, except runs of one character: the longest
  goes first, because what was just merged is leftmost. The order of the pairs that make one piece does not matter.
* User-defined pieces are kept whole wherever they occur in the normalized text. Runs of spaces among them become merges
  that come before all others. The rest become added tokens if normalizing only writes spaces as "▁". If it does more, it
  must see the whole text, and added tokens would cut the text before that: then they are split off afterwards and looked
  up whole. (A text with nothing but "<unk>" or "<0x41>" between two of them would be looked up whole by mistake.)
* Control symbols and the unknown piece become special added tokens. sentencepiece does not produce them from text.

Two things cannot be expressed, and the result is None. Unigram: sentencepiece adds up scores in 32 bits along the whole
text and `tokenizers` in 64, so segmentations with nearly equal scores are decided differently, in a few of a hundred source
files. Character maps such as nmt_nfkc: `tokenizers` applies them to whole graphemes. For both, sentencepiece itself is the
faster engine. In all other cases the caller still has to compare the result with sentencepiece on many texts.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.tokenizer_json import BYTE_TOKENS, added_token
from tokenmill.errors import TokenizerError

_SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_UNIGRAM, _BPE = 1, 2
_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5  # fields of the file
_Value = TypeVar("_Value", bytes, int)


@dataclass(frozen=True, slots=True)
class Model:
    """The parts of a .model file that decide ids."""

    names: list[str]
    scores: list[float]
    types: list[int]
    byte_fallback: bool
    dummy_prefix: bool
    squeeze: bool
    has_form: bool  # a tokenizer.json can express its settings
    has_settings: bool
    special_names: dict[str, str]  # of "bos" and "eos", if the model has them

    def of_type(self, *types: int) -> list[int]:
        return [i for i, of in enumerate(self.types) if of in types]


def read_model(data: bytes, where: str) -> Model:
    """Parse a .model file, with the checks that sentencepiece does when it loads one. `where` names it in errors."""
    if not data:
        raise TokenizerError(f"{where}: not a SentencePiece model: the file is empty")
    try:
        model = _parse(data)
    except (ValueError, struct.error) as error:
        raise TokenizerError(
            f"{where}: not a complete SentencePiece model ({error}); is it cut short or another kind of file?"
        ) from error
    flaw = _flaw(model)
    if flaw:
        raise TokenizerError(f"{where}: not a SentencePiece model: {flaw}; is it another kind of file?")
    return model


def tokenizer_json(model: Model) -> str | None:
    """Convert a model. None if a tokenizer.json cannot express its kind or settings."""
    if not _is_expressible(model):
        return None
    runs = _runs(model)
    body = {
        "type": "BPE",
        "unk_token": model.names[model.of_type(_UNKNOWN)[0]],
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "vocab": {name: i for i, name in enumerate(model.names)},
        "merges": _merges(model, runs),
    }
    added = [added_token(i, model.names[i], special=True) for i in model.of_type(_CONTROL, _UNKNOWN)]
    steps = _normalizers(model)
    splitter = None
    users = [i for i in model.of_type(_USER) if model.names[i] not in runs]
    if users and len(steps) == 1:
        spaces = any(_SPACE in model.names[i] for i in users)
        added += [added_token(i, model.names[i], normalized=spaces) for i in users]
    elif users:
        if not _merges_reach_all(model, body):
            return None
        splitter = _splitter(model, [model.names[i] for i in users])
        body["ignore_merges"] = True
    whole = {
        "version": "1.0",
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "normalizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": splitter,
        "decoder": _decoder(model),
        "model": body,
    }
    return json.dumps(whole, ensure_ascii=False)


def _is_expressible(model: Model) -> bool:
    """Whether this module can convert a model with these settings and pieces."""
    names = model.names
    if not model.has_form or _UNUSED in model.types:  # unused pieces are merged and split again
        return False
    if any(len(names[i]) == 1 for i in model.of_type(_UNKNOWN, _CONTROL)):
        return False  # a character that never becomes its own piece
    if len(set(names)) != len(names) or not all(map(math.isfinite, model.scores)):
        return False
    if any(" " in names[i] for i in model.of_type(_USER)):
        return False  # normalizing would change it
    merged = [i for i in model.of_type(_NORMAL) if len(names[i]) > 1]
    pieces_with = Counter(model.scores[i] for i in merged)  # of equal scores, only runs of one character can be ranked
    return all(pieces_with[model.scores[i]] == 1 or len(set(names[i])) == 1 for i in merged)


def _normalizers(model: Model) -> list[dict[str, Any]]:
    """The normalizers of a tokenizer.json that do what sentencepiece does; at least the one for spaces."""
    escape = _replace({"String": " "}, _SPACE)
    prefix = [{"type": "Prepend", "prepend": _SPACE}] if model.dummy_prefix else []
    if not model.squeeze:
        return [*prefix, escape]
    squeezed = [_replace({"Regex": r"\A +"}, ""), _replace({"Regex": "  +"}, " ")]
    return [*squeezed, *prefix, escape, _replace({"Regex": _SPACE + r"+\z"}, "")]


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _decoder(model: Model) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [_replace({"String": _SPACE}, " ")]
    if model.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.dummy_prefix or model.squeeze:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _splitter(model: Model, names: list[str]) -> dict[str, Any]:
    """A pre-tokenizer that splits off these names, the longest first.

    If no piece has a space inside, it also splits before spaces: the ids are the same, and looking up words is twice as
    fast.
    """
    # Some dialects give `\<` a meaning, so `re.escape` is too much.
    quoted = [re.sub(r"[.^$*+?{}()|\[\]\\]", r"\\\g<0>", name) for name in sorted(names, key=len, reverse=True)]
    users = {"type": "Split", "pattern": {"Regex": "|".join(quoted)}, "behavior": "Isolated", "invert": False}
    inside = any(_SPACE in model.names[i].lstrip(_SPACE) for i in model.of_type(_NORMAL, _USER))
    if inside or _SPACE not in model.names:
        return users
    words = {"type": "Split", "pattern": {"Regex": _SPACE + "+"}, "behavior": "MergedWithNext", "invert": False}
    return {"type": "Sequence", "pretokenizers": [users, words]}


def _merges(model: Model, runs: list[str]) -> list[tuple[str, str]]:
    """Every pair of pieces that make a piece, in the order in which sentencepiece merges them."""
    normal = sorted(model.of_type(_NORMAL), key=lambda i: (-model.scores[i], -len(model.names[i])))
    others = [model.names[i] for i in normal]
    return [*_pairs(runs, {_SPACE, *runs}), *_pairs(others, set(others))]


def _pairs(names: list[str], parts: set[str]) -> list[tuple[str, str]]:
    """All ways to make each piece from two parts."""
    cuts = ((name[:at], name[at:]) for name in names for at in range(1, len(name)))
    return [(left, right) for left, right in cuts if left in parts and right in parts]


def _runs(model: Model) -> list[str]:
    """User-defined runs of spaces, longest first, if there is one of every length from two on.

    Then taking the longest from the left is the same as merging spaces from the left before everything else.
    """
    users = (model.names[i] for i in model.of_type(_USER))
    runs = sorted((name for name in users if not name.strip(_SPACE)), key=len, reverse=True)
    complete = _SPACE in model.names and [len(run) for run in runs] == [*range(len(runs) + 1, 1, -1)]
    return runs if complete else []


def _merges_reach_all(model: Model, body: dict[str, Any]) -> bool:
    """Whether merges produce every piece from its characters. If not, looking up whole words would give other ids."""
    bare = HfTokenizer(json.dumps({"version": "1.0", "model": body}))
    names = [model.names[i] for i in model.of_type(_NORMAL)]
    return all(len(ids) == 1 for ids in bare.encode_each(names))


def _flaw(model: Model) -> str | None:
    names, types = model.names, model.types
    if not names:
        return "it has no pieces"
    if types.count(_UNKNOWN) != 1:
        return f"it has {types.count(_UNKNOWN)} unknown pieces instead of one"
    if "" in names:
        return f"piece {names.index('')} is empty"
    if model.byte_fallback and {names[i] for i in model.of_type(_BYTE)} != BYTE_TOKENS.keys():
        return "it falls back to bytes but does not have a piece for each byte"
    if not model.has_settings:
        return "it ends before its settings"
    return None


def _parse(data: bytes) -> Model:
    names, scores, types = [], [], []
    settings: dict[int, dict[int, bytes | int]] = {}
    for number, value in _fields(data):
        if number == _PIECE:
            piece = dict(_fields(_typed(bytes, value)))
            names.append(_typed(bytes, piece.get(1, b"")).decode())
            scores.append(struct.unpack("<f", _typed(bytes, piece.get(2, bytes(4))))[0])
            types.append(_typed(int, piece.get(3, _NORMAL)))
        elif number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            settings.setdefault(number, {}).update(_fields(_typed(bytes, value)))
    trainer, normalizer = settings.get(_TRAINER, {}), settings.get(_NORMALIZER, {})
    space_last, escape = _typed(int, trainer.get(24, 0)), _typed(int, normalizer.get(5, 1))
    maps = _typed(bytes, normalizer.get(2, b"")) or settings.get(_DENORMALIZER, {}).get(2)
    ends = {
        "bos": _typed(bytes, trainer.get(46, b"")).decode() or "<s>",
        "eos": _typed(bytes, trainer.get(47, b"")).decode() or "</s>",
    }
    control = {name for name, of in zip(names, types, strict=True) if of == _CONTROL}
    return Model(
        names,
        scores,
        types,
        byte_fallback=bool(_typed(int, trainer.get(35, 0))),
        dummy_prefix=bool(_typed(int, normalizer.get(3, 1))),
        squeeze=bool(_typed(int, normalizer.get(4, 1))),
        has_form=_typed(int, trainer.get(3, _UNIGRAM)) == _BPE and bool(escape) and not (space_last or maps),
        has_settings={_TRAINER, _NORMALIZER} <= settings.keys(),
        special_names={which: name for which, name in ends.items() if name in control},
    )


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message: number and value. Strings, messages and fixed-size numbers are bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"byte {at - 1} starts an unknown kind of field")
        size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if not number or at + size > len(data):
            raise ValueError("a field goes past the end" if number else "a field has no number")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number with seven bits per byte, and the position after it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has no end")


def _typed(kind: type[_Value], value: bytes | int) -> _Value:
    if isinstance(value, kind):
        return value
    raise ValueError("a number where text was expected" if kind is bytes else "text where a number was expected")
