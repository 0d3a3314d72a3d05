"""A SentencePiece .model becomes a tokenizer.json, where one can say the same.

The file is a protobuf message, and is read here by hand: a dozen of its fields matter. The module that sentencepiece
generates for it needs protobuf, which sentencepiece does not bring along and which refuses modules made for a newer
protobuf than itself; so a conversion needs neither. The price: a second for 256,000 pieces, where protobuf takes a tenth.

What sentencepiece does, and what the tokenizer.json says instead:

* BPE. Two neighbours are merged if together they are a piece: the best score first, and the leftmost among equals. A
  tokenizer.json ranks pairs instead. Pieces of one score cannot be ranked, but for runs of one character: there the
  longest goes first, since what was just merged is leftmost. The order of the pairs that make one piece is free.
* User-defined pieces are whole wherever they stand in the normalized text. Runs of spaces among them are merges that
  come before all others. The rest are added tokens where normalizing is no more than writing spaces as "▁". Where it is
  more, it has to see the whole text, and added tokens would cut that in parts: then they are split off afterwards and
  looked up whole (and so, by mistake, would be "<unk>" or "<0x41>" if a text had nothing else between two of them).
* Control symbols and the unknown are special added tokens, which text does not spell to sentencepiece.

Two things cannot be said, and the answer is None: a Unigram (sentencepiece adds up scores in 32 bits along the whole text
and `tokenizers` in 64, so ways of nearly equal score are told apart differently: a few of a hundred source files differ
somewhere), and character maps such as nmt_nfkc (`tokenizers` applies them to whole graphemes). For both sentencepiece
itself is the faster one anyway. The caller is to compare the result with sentencepiece on many texts all the same.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenmill.errors import TokenizerError

_SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_UNIGRAM, _BPE = 1, 2


def tokenizer_json(model: bytes) -> str | None:
    """The content of a .model file as a tokenizer.json; None for kinds and settings that have no such form.

    Takes up to a second for 32,000 pieces, and about three for 256,000. Raises TokenizerError for what is no such model.
    """
    parsed = _read(model)
    if not _can_be_said(parsed):
        return None
    body = _bpe(parsed)
    added = [_added(i, parsed.names[i], special=True) for i in parsed.of_type(_CONTROL, _UNKNOWN)]
    steps = _normalizers(parsed)
    splitter = None
    users = sorted(set(parsed.of_type(_USER)) - set(_runs(parsed)))
    if users and len(steps) == 1:
        spaces = any(_SPACE in parsed.names[i] for i in users)
        added += [_added(i, parsed.names[i], normalized=spaces) for i in users]
    elif users:
        if not _merges_reach_all(parsed, body):
            return None
        splitter = _splitter(parsed, [parsed.names[i] for i in users])
        body["ignore_merges"] = True
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "normalizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": splitter,
        "post_processor": None,
        "decoder": _decoder(parsed),
        "model": body,
    }
    return json.dumps(whole, ensure_ascii=False)


def special_names(model: bytes) -> dict[str, str]:
    """The names of "bos" and "eos", of those the model has. Raises TokenizerError for what is no such model."""
    parsed = _read(model)
    control = {parsed.names[i] for i in parsed.of_type(_CONTROL)}
    return {which: name for which, name in (("bos", parsed.bos), ("eos", parsed.eos)) if name in control}


def piece_ids(model: bytes) -> dict[str, int]:
    """The pieces of a model by name."""
    return {name: i for i, name in enumerate(_read(model).names)}


@dataclass(slots=True)
class _Model:
    """What a .model file says that decides an id. The defaults are those of the format."""

    names: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    kind: int = _UNIGRAM
    byte_fallback: bool = False
    space_last: bool = False
    bos: str = "<s>"
    eos: str = "</s>"
    charsmap: bytes = b""
    dummy_prefix: bool = True
    squeeze: bool = True
    escape: bool = True
    changes_back: bool = False
    settings: set[int] = field(default_factory=set)

    def of_type(self, *types: int) -> list[int]:
        return [i for i, of in enumerate(self.types) if of in types]


def _can_be_said(model: _Model) -> bool:
    """Whether the settings are among those this module has words for."""
    if model.kind != _BPE or model.charsmap or model.space_last or not model.escape or model.changes_back:
        return False
    if any(len(model.names[i]) == 1 for i in model.of_type(_UNKNOWN, _CONTROL, _UNUSED)):
        return False  # a character that is never itself
    if len(set(model.names)) != len(model.names) or not all(map(math.isfinite, model.scores)):
        return False
    if any(" " in model.names[i] for i in model.of_type(_USER)):
        return False  # normalizing would change it
    return _merges_have_ranks(model)


def _merges_have_ranks(model: _Model) -> bool:
    """Whether no two pieces compete at one score, nor is any merged on the way only to be taken apart again."""
    if _UNUSED in model.types:
        return False
    by_score: dict[float, list[str]] = {}
    for i in model.of_type(_NORMAL):
        if len(model.names[i]) > 1:
            by_score.setdefault(model.scores[i], []).append(model.names[i])
    return all(len(set(name)) == 1 for tied in by_score.values() if len(tied) > 1 for name in tied)


def _normalizers(model: _Model) -> list[dict[str, Any]]:
    """The steps that make the text sentencepiece's model sees; always at least that of the spaces."""
    escape = _replace({"String": " "}, _SPACE)
    prefix = [{"type": "Prepend", "prepend": _SPACE}] if model.dummy_prefix else []
    if not model.squeeze:
        return [*prefix, escape]
    squeezed = [_replace({"Regex": r"\A +"}, ""), _replace({"Regex": "  +"}, " ")]
    return [*squeezed, *prefix, escape, _replace({"Regex": _SPACE + r"+\z"}, "")]


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _decoder(model: _Model) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [_replace({"String": _SPACE}, " ")]
    if model.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.dummy_prefix or model.squeeze:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _added(number: int, name: str, special: bool = False, normalized: bool = False) -> dict[str, Any]:
    """An added token. Those with a space in them are looked for after normalizing, which slows some engines down."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}
    return {"id": number, "content": name, **flags}


def _splitter(model: _Model, names: list[str]) -> dict[str, Any]:
    """A pre-tokenizer that takes these out of the text, the longest that fits first.

    And splits before spaces too, where no piece has one inside: it changes nothing, and looking up words is twice as fast.
    """
    pattern = "|".join(_quoted(name) for name in sorted(names, key=len, reverse=True))
    users = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    inside = any(_SPACE in model.names[i].lstrip(_SPACE) for i in model.of_type(_NORMAL, _USER))
    if inside or _SPACE not in model.names:
        return users
    words = {"type": "Split", "pattern": {"Regex": _SPACE + "+"}, "behavior": "MergedWithNext", "invert": False}
    return {"type": "Sequence", "pretokenizers": [users, words]}


def _bpe(model: _Model) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.names[model.of_type(_UNKNOWN)[0]],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": False,
        "vocab": {name: i for i, name in enumerate(model.names)},
        "merges": _merges(model),
    }


def _merges(model: _Model) -> list[tuple[str, str]]:
    """Every pair of pieces that make a piece, in the order sentencepiece would merge them."""
    normal, runs = model.of_type(_NORMAL), _runs(model)
    normal.sort(key=lambda i: (-model.scores[i], -len(model.names[i])))
    spaces, others = [model.names[i] for i in runs], [model.names[i] for i in normal]
    return [*_pairs(spaces, {_SPACE, *spaces}), *_pairs(others, set(others))]


def _pairs(names: list[str], parts: set[str]) -> list[tuple[str, str]]:
    """The ways to make each piece out of two parts."""
    cuts = ((name[:at], name[at:]) for name in names for at in range(1, len(name)))
    return [(left, right) for left, right in cuts if left in parts and right in parts]


def _runs(model: _Model) -> list[int]:
    """User-defined runs of spaces, longest first, if there is one of every length from two on.

    Taking the longest that fits from the left is then the same as merging spaces from the left, before all else.
    """
    users = {model.names[i]: i for i in model.of_type(_USER)}
    runs = sorted((name for name in users if not name.strip(_SPACE)), key=len, reverse=True)
    complete = [len(name) for name in reversed(runs)] == list(range(2, len(runs) + 2)) and _SPACE in model.names
    return [users[name] for name in runs] if complete else []


def _merges_reach_all(model: _Model, body: dict[str, Any]) -> bool:
    """Whether merging makes every piece out of its own letters; if not, looking words up whole would be another thing."""
    from tokenizers import Tokenizer

    bare = Tokenizer.from_str(json.dumps({"version": "1.0", "model": body}))
    names = [model.names[i] for i in model.of_type(_NORMAL)]
    return all(len(encoding) == 1 for encoding in bare.encode_batch_fast(names, add_special_tokens=False))


def _quoted(text: str) -> str:
    """Text as a regular expression for itself, in all dialects: some have a meaning for `\\<`."""
    return re.sub(r"[.^$*+?{}()|\[\]\\]", r"\\\g<0>", text)


def _read(data: bytes) -> _Model:
    """Parse and check a .model file, as sentencepiece does when it loads one."""
    if not data:
        raise TokenizerError("not a SentencePiece model: the file is empty")
    if data.startswith(b"version https://git-lfs"):
        raise TokenizerError(
            "not a SentencePiece model but a Git LFS pointer to one; fetch the file itself: git lfs pull"
        )
    model = _Model()
    try:
        _read_model(data, model)
    except (ValueError, struct.error) as error:
        raise TokenizerError(
            f"not a whole SentencePiece model ({error}); is it cut short or another kind of file?"
        ) from error
    flaw = _flaw(model)
    if flaw:
        raise TokenizerError(f"not a SentencePiece model: {flaw}; is it another kind of file?")
    return model


def _flaw(model: _Model) -> str | None:
    names, types = model.names, model.types
    if not names:
        return "it has no pieces"
    if types.count(_UNKNOWN) != 1:
        return f"it has {types.count(_UNKNOWN)} pieces for what is unknown, not one"
    if "" in names:
        return f"piece {names.index('')} is empty"
    if model.byte_fallback and {names[i] for i in model.of_type(_BYTE)} != {f"<0x{byte:02X}>" for byte in range(256)}:
        return "it falls back to bytes but has no piece for each"
    if model.settings != {2, 3}:
        return "it ends before its settings"
    return None


def _read_model(data: bytes, model: _Model) -> None:
    for number, value in _fields(data):
        if number in (2, 3):
            model.settings.add(number)
        if number == 1:
            name, score, of = "", 0.0, _NORMAL
            for inner, what in _fields(_message(value)):
                if inner == 1:
                    name = _message(what).decode()
                elif inner == 2:
                    (score,) = struct.unpack("<f", _message(what))
                elif inner == 3:
                    of = _number(what)
            model.names.append(name)
            model.scores.append(score)
            model.types.append(of)
        elif number == 2:
            for inner, what in _fields(_message(value)):
                if inner == 3:
                    model.kind = _number(what)
                elif inner == 24:
                    model.space_last = bool(_number(what))
                elif inner == 35:
                    model.byte_fallback = bool(_number(what))
                elif inner == 46:
                    model.bos = _message(what).decode() or model.bos
                elif inner == 47:
                    model.eos = _message(what).decode() or model.eos
        elif number == 3:
            for inner, what in _fields(_message(value)):
                if inner == 2:
                    model.charsmap = _message(what)
                elif inner == 3:
                    model.dummy_prefix = bool(_number(what))
                elif inner == 4:
                    model.squeeze = bool(_number(what))
                elif inner == 5:
                    model.escape = bool(_number(what))
        elif number == 5:
            model.changes_back = any(inner == 2 and what for inner, what in _fields(_message(value)))


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message: number, and an int or the bytes of a string, a message or a fixed-size number."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {at - 1} begins nothing that is known")
        if not tag >> 3 or at + size > end:
            raise ValueError("a field goes past the end" if tag >> 3 else "a field has no number")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has no end")


def _message(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where there should be text")
    return value


def _number(value: bytes | int) -> int:
    if not isinstance(value, int):
        raise ValueError("text where there should be a number")
    return value
