"""Tokenizers that a test writes as a tokenizer.json, for the lines of `tokenizers` that make none in any other way.

A part (a model, a pre-tokenizer, a decoder) is what the file says of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizer_kinds import from_json

Part = dict[str, Any]
_EMPTY = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")


class Written:
    """A tokenizer, by the body of its file."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body: Part = {"version": "1.0", **dict.fromkeys(_EMPTY), "added_tokens": [], **body}

    @classmethod
    def read(cls, path: Path) -> Written:
        return cls(json.loads(path.read_text("utf-8")))

    @cached_property
    def library(self) -> tokenizers.Tokenizer:
        """The same, as an object of the library."""
        return from_json(self.to_str())

    def to_str(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)

    def save(self, path: Path) -> Path:
        path.write_text(self.to_str(), "utf-8")
        return path

    def changed(self, **parts: Any) -> Written:
        """The same with other parts."""
        return Written(self.body | parts)

    def with_tokens(self, *tokens: str | Part, special: bool = True) -> Written:
        """The same with more added tokens, which take the ids that the library gives them.

        That of the model if it has such a token, else the next one.
        """
        listed, model = list(self.body["added_tokens"]), self._of_the_model()
        for given in tokens:
            token = {"content": given} if isinstance(given, str) else {k: v for k, v in given.items() if k != "id"}
            known = model.get(token["content"])
            free = max([len(model), *(other["id"] + 1 for other in listed)])
            listed.append(added(free if known is None else known, **{"special": special, **token}))
        return self.changed(added_tokens=sorted(listed, key=lambda token: token["id"]))

    def _of_the_model(self) -> dict[str, int]:
        vocabulary = self.body["model"]["vocab"]
        return vocabulary if isinstance(vocabulary, dict) else {name: i for i, (name, _) in enumerate(vocabulary)}

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """The ids of all tokens, those that were added included."""
        return self._of_the_model() | {token["content"]: token["id"] for token in self.body["added_tokens"]}

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with nothing around them."""
        return list(self.library.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, with the names of special tokens."""
        return str(self.library.decode([int(i) for i in ids], skip_special_tokens=False))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The names of ids."""
        names = {number: name for name, number in self.vocabulary.items()}
        return [names[number] for number in ids]


def added(id: int, content: str, *, special: bool = True, normalized: bool | None = None, **flags: bool) -> Part:
    """An added token. It is looked for in the normalized text if it is not special, as the library has it."""
    sides = {"single_word": False, "lstrip": False, "rstrip": False, **flags}
    return {
        "id": id,
        "content": content,
        **sides,
        "normalized": not special if normalized is None else normalized,
        "special": special,
    }


def bpe(vocab: Mapping[str, int], merges: Iterable[tuple[str, str]] = (), **options: Any) -> Part:
    empty = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    flags = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    return {"type": "BPE", **empty, **flags, **options, "vocab": dict(vocab), "merges": [list(pair) for pair in merges]}


def word_level(words: Iterable[str], unk_token: str) -> Part:
    return {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": unk_token}


def unigram(pieces: Iterable[tuple[str, float]], unk_id: int) -> Part:
    return {"type": "Unigram", "unk_id": unk_id, "vocab": [list(piece) for piece in pieces], "byte_fallback": False}


def metaspace(prepend_scheme: str = "always", replacement: str = "▁", *, split: bool = True) -> Part:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": prepend_scheme, "split": split}


def byte_level(*, add_prefix_space: bool = True, use_regex: bool = True) -> Part:
    """The pre-tokenizer, and the decoder, in which these settings say nothing."""
    space = {"add_prefix_space": add_prefix_space}
    return {"type": "ByteLevel", **space, "trim_offsets": True, "use_regex": use_regex}


def replace(what: str, by: str, *, regex: bool = False) -> Part:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": what}, "content": by}


def split(pattern: str, *, regex: bool = False) -> Part:
    """The pre-tokenizer that makes a pretoken of each match."""
    return {
        "type": "Split",
        "pattern": {"Regex" if regex else "String": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def strip(start: int, stop: int) -> Part:
    """The decoder that takes away spaces."""
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


def normalizers(*parts: Part) -> Part:
    return {"type": "Sequence", "normalizers": list(parts)}


def decoders(*parts: Part) -> Part:
    return {"type": "Sequence", "decoders": list(parts)}


def template(before: Mapping[str, int], after: Mapping[str, int]) -> Part:
    """The post-processor that puts special tokens around a text."""
    text, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    lead, trail = ([{"SpecialToken": {"id": name, "type_id": 0}} for name in names] for names in (before, after))
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in {**before, **after}.items()}
    single, pair = [*lead, text, *trail], [text, second]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
