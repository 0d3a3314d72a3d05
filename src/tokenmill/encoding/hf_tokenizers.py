"""The library `tokenizers`, which only this module imports: versions below 1.0, and from 1.0 on.

Version 1.0 reads files, encodes and decodes. It does not tell the vocabulary, and has no parts (regular expressions,
pre-tokenizers, models) to use on their own. So all else that is asked about a tokenizer is read from its tokenizer.json.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from tokenmill.encoding.libraries import installed_version
from tokenmill.errors import TokenizerError

_OLDER = "pip install 'tokenizers<1'"
_TRIAL = "Hello 1\n"
_loaded_by: int | None = None  # the process, if any has loaded a tokenizer of 1.0
# What versions below 1.0 write and files may leave out, by the type of the model and of the pre-tokenizer.
_MODELS: dict[str, dict[str, Any]] = {
    "BPE": {
        **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
        **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
    },
    "Unigram": {"unk_id": None, "byte_fallback": False},
}
_STEPS: dict[str, dict[str, Any]] = {
    "ByteLevel": {"use_regex": True},
    "Metaspace": {"prepend_scheme": "always", "split": True},
    "Punctuation": {"behavior": "Isolated"},
}


class HfTokenizer:
    """A tokenizer.json, run by `tokenizers`. Nothing is added around a text, cut off or filled up.

    The thread pool of versions below 1.0 is used only if TOKENIZERS_PARALLELISM is set. Otherwise a user's process that
    forks after the pool was used would print a warning. Version 1.0 encodes long texts in threads, also in a forked process.
    Raises TokenizerError if the library refuses the tokenizer.
    """

    def __init__(self, tokenizer_json: str) -> None:
        self._tokenizer = _load(tokenizer_json)
        self._in_batches = has_parts() and "TOKENIZERS_PARALLELISM" in os.environ

    def encode(self, texts: Sequence[str]) -> Iterator[Any]:
        """The ids of each text, as a list or, from 1.0 on, an array."""
        return map(attrgetter("ids" if has_parts() else "ids_array"), self._encodings(texts))

    def encode_each(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [encoding.ids for encoding in self._encodings(texts)]

    def _encodings(self, texts: Sequence[str]) -> Iterator[Any]:
        if self._in_batches:
            yield from self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            return
        unchanged = {} if has_parts() else {"padding": None, "truncation": None}
        # One after the other, because below 1.0 an encoding takes a hundred times the memory of its ids.
        for text in texts:
            yield self._tokenizer.encode(text, add_special_tokens=False, **unchanged)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def rewritten(tokenizer_json: str) -> str:
    """A tokenizer.json in canonical form, with the ids of added tokens and the scores that it has once it is loaded."""
    written = object_json(_load(tokenizer_json))
    if has_parts():
        return written
    own, parsed = json.loads(written), json.loads(tokenizer_json)
    if parsed.get("version") != own["version"]:  # not written by 1.0 itself
        parsed = _canonical(parsed, own)
    return json.dumps(parsed, ensure_ascii=False)


def _canonical(parsed: dict[str, Any], loaded: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json in the form of `tokenizers` below 1.0. `loaded` is what 1.0 has made of it.

    Both assign ids to the added tokens as they load them, and may change the last digit of a score.
    """
    given = parsed["model"]
    kind = given.get("type") or _kind(given)
    model = {"type": kind, **_MODELS.get(kind, {}), **{key: value for key, value in given.items() if value is not None}}
    if "merges" in given:
        lines = (pair for pair in given["merges"] if not str(pair).startswith("#version"))
        model["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in lines]
    if isinstance(model["vocab"], list):
        model["vocab"] = loaded["model"]["vocab"]
    return {
        **parsed,
        "added_tokens": _named(loaded["added_tokens"], parsed.get("added_tokens") or []),
        "normalizer": _steps(parsed.get("normalizer"), {}),
        "pre_tokenizer": _steps(parsed.get("pre_tokenizer"), _STEPS),
        "decoder": parsed.get("decoder"),
        "model": model,
    }


def _named(loaded: list[dict[str, Any]], written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Added tokens with the names of the file: 1.0 tells the normalized name if it looks for a token in normalized text."""
    kept = {token["content"] for token in loaded} & {token["content"] for token in written}
    others = [token["content"] for token in sorted(written, key=itemgetter("id")) if token["content"] not in kept]
    if len(others) != sum(token["content"] not in kept for token in loaded):  # two tokens have become one
        return loaded
    names = iter(others)
    return [token if token["content"] in kept else {**token, "content": next(names)} for token in loaded]


def _steps(step: dict[str, Any] | None, left_out: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    if step is None:
        return None
    for key in ("normalizers", "pretokenizers"):
        if step["type"] == "Sequence" and key in step:
            return {"type": "Sequence", key: [_steps(part, left_out) for part in step[key]]}
    dropped = ("add_prefix_space", "str_rep") if step["type"] == "Metaspace" else ()
    return {**left_out.get(step["type"], {}), **{key: value for key, value in step.items() if key not in dropped}}


def _kind(model: dict[str, Any]) -> str:
    """The kind of a model that does not name it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def object_json(tokenizer: Any) -> str:
    """The tokenizer.json of a `tokenizers.Tokenizer`. Raises an exception if a part of it is written in Python."""
    return str(tokenizer.to_str() if has_parts() else tokenizer.__reduce__()[1][0])


def has_parts() -> bool:
    """Whether the installed `tokenizers` is below 1.0."""
    return hasattr(_library().Tokenizer, "from_str")


def parts() -> Any:
    """The module `tokenizers` below 1.0, for its regular expressions, normalizers and pre-tokenizers."""
    if not has_parts():
        raise TokenizerError(f"this needs tokenizers below 1.0: {_OLDER}")
    return _library()


def _library() -> Any:
    import tokenizers  # takes a tenth of a second

    return tokenizers


def _load(tokenizer_json: str) -> Any:
    try:
        if not has_parts():
            return _from_file(tokenizer_json)
        tokenizer = _library().Tokenizer.from_str(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    except (OSError, TokenizerError):  # such as no room for the file
        raise
    except Exception as error:  # tokenizers raises bare exceptions
        name, rest = "tokenizers", ""
        if not has_parts():
            name, rest = f"tokenizers {installed_version(name)}", f"; versions below 1.0 read more: {_OLDER}"
        raise TokenizerError(f"{name} cannot load it: {str(error)[:200]}{rest}") from error


def _from_file(tokenizer_json: str) -> Any:
    """A tokenizer of 1.0, which says at the first text that it cannot run a regular expression.

    To load one waits forever in a process that was forked from one that had loaded any. What is loaded works there.
    """
    global _loaded_by
    if _loaded_by not in (None, os.getpid()):
        raise TokenizerError(f"tokenizers 1.0 loads nothing in a forked process: spawn it, or use {_OLDER}")
    _loaded_by = os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        path.write_text(tokenizer_json, "utf-8")
        tokenizer = _library().Tokenizer.from_file(path)
    tokenizer.encode(_TRIAL, add_special_tokens=False)
    return tokenizer
