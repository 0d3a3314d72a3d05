"""Engines: things that turn Texts into flat ids. One small contract, and the same tests for all of them.

An engine is made from a Definition. It takes an Arrow large_string array and returns (ids uint32, offsets int64), with
special tokens in the text treated as the definition says and nothing added around the documents. None of them is trusted
but the reference: see `proof`.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.documents import text_offsets
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.errors import EncodingError, TokenizerError

if TYPE_CHECKING:
    import pyarrow as pa

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
# One process, one thread: there is a worker for every core already. Whatever the user has set goes before.
ONE_THREAD = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "FASTOKENS_BPE_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class Engine(Protocol):
    """What a build needs of an engine."""

    name: str

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        """All ids end to end, and where each document's begin and end."""
        ...


class GigatokenEngine:
    """gigatoken: hundreds of MB/s a core for BPE. Fed Arrow's own buffers, without a copy; its caches only grow."""

    name = "gigatoken"

    def __init__(self, definition: Definition) -> None:
        import awkward
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(definition.engine_json)
        self._ak: Any = awkward

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ak = self._ak
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        content = ak.contents.NumpyArray(data, parameters={"__array__": "char"})
        layout = ak.contents.ListOffsetArray(
            ak.index.Index64(text_offsets(values)), content, parameters={"__array__": "string"}
        )
        result = self._tokenizer.encode_batch(ak.Array(layout), parallel=False).layout
        return np.asarray(result.content.data), np.asarray(result.offsets.data)


class FastokensEngine:
    """fastokens: the fastest for CJK and for Llama-2-style SentencePiece BPE. Makes a Python string per document."""

    name = "fastokens"

    def __init__(self, definition: Definition) -> None:
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(definition.engine_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ids, offsets = self._tokenizer.encode_batch_flat(values.to_pylist())
        return np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)


class TokieEngine:
    """tokie: the fastest for WordPiece. Makes a Python string per document."""

    name = "tokie"

    def __init__(self, definition: Definition) -> None:
        import tokie

        with tempfile.TemporaryDirectory() as folder:  # it reads nothing but files
            path = Path(folder) / "tokenizer.json"
            path.write_text(definition.engine_json, "utf-8")
            self._tokenizer = tokie.Tokenizer.from_json(str(path))

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ids, lengths = self._tokenizer.encode_batch_flat(values.to_pylist(), add_special_tokens=False)
        return ids, _offsets(lengths)


class TokenizersEngine:
    """`tokenizers`: runs every tokenizer.json, and is the reference for them. A few MB/s; a Python string per document.

    Its thread pool is left alone unless the environment has settled the matter: a process that forks after the pool was
    used gets warned at, and should never have to know.
    """

    name = "tokenizers"

    def __init__(self, definition: Definition) -> None:
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_str(definition.engine_json)
        self._in_batches = "TOKENIZERS_PARALLELISM" in os.environ

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        texts = values.to_pylist()
        if self._in_batches:
            found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        else:
            found = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return _flat(encoding.ids for encoding in found)


class TiktokenEngine:
    """tiktoken: the reference for its own encodings."""

    name = "tiktoken"

    def __init__(self, definition: Definition) -> None:
        from tokenmill.encoding.tiktoken_bpe import Ranks

        self._encoding = Ranks.from_files(definition.files).encoding()
        self._allowed: Any = "all" if definition.special_tokens == "parse" else set()

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        encode, allowed = self._encoding.encode, self._allowed
        return _flat(encode(text, allowed_special=allowed, disallowed_special=()) for text in values.to_pylist())


class SentencePieceEngine:
    """sentencepiece: the reference for its own models.

    Its control symbols are not for text. With the "parse" policy a text is split at their names, as tokenizers does with
    special tokens, and each part is encoded by itself.
    """

    name = "sentencepiece"

    def __init__(self, definition: Definition) -> None:
        sentencepiece = _needed("sentencepiece", "sentencepiece")
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=definition.files["tokenizer.model"])
        count = self.processor.get_piece_size()
        special = [i for i in range(count) if self.processor.is_control(i) or self.processor.is_unknown(i)]
        names = {self.processor.id_to_piece(i): i for i in special}
        self._control = names if definition.special_tokens == "parse" else {}
        longest_first = sorted(self._control, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return _flat(map(self._one, values.to_pylist()))

    def _one(self, text: str) -> list[int]:
        if self._split is None or self._split.search(text) is None:
            return list(self.processor.encode(text))
        ids: list[int] = []
        for part in self._split.split(text):
            control = self._control.get(part)
            ids += [control] if control is not None else self.processor.encode(part) if part else []
        return ids


class PythonEngine:
    """A slow tokenizer of `transformers`, in Python: the only one there is for some models. Well below 1 MB/s.

    Made from the files it saved itself, by a class of `transformers` or one this process can import. Code that comes
    with a model is never run.
    """

    name = "python"

    def __init__(self, definition: Definition, live: Any = None) -> None:
        self.slow = live if live is not None else self._load(definition)
        self._options = {"add_special_tokens": False}
        if definition.special_tokens != "parse":
            self._options["split_special_tokens"] = True

    def _load(self, definition: Definition) -> Any:
        module, _, name = (definition.python_class or "").partition(":")
        base = _needed("transformers", "transformers").PreTrainedTokenizerBase
        try:
            made = getattr(importlib.import_module(module), name)
            if module == "__main__" or not issubclass(made, base):
                raise TypeError(f"{name} of {module} cannot be imported elsewhere")
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise TokenizerError(f"its class {definition.python_class} cannot be found: {error}") from error
        with tempfile.TemporaryDirectory() as folder:
            for file, content in definition.files.items():
                (Path(folder) / file).write_bytes(content)
            return made.from_pretrained(folder, trust_remote_code=False, local_files_only=True)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        return _flat(map(self.one, values.to_pylist()))

    def one(self, text: str) -> list[int]:
        return list(self.slow.encode(text, **self._options))


class BytesEngine:
    """Every byte is its own id. As fast as memory."""

    name = "bytes"

    def __init__(self, definition: Definition) -> None:
        self._special = {}
        if definition.special_tokens == "parse":
            self._special = {token["content"].encode(): token["id"] for token in definition.added}
        self._pattern = re.compile(b"|".join(map(re.escape, self._special)) or rb"(?!)")

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        offsets = text_offsets(values)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        offsets = offsets - offsets[0]
        ids, raw = data.astype(np.uint32), data.tobytes()
        if b"<|" not in raw:
            return ids, offsets
        keep = np.ones(len(ids), bool)
        for match in self._pattern.finditer(raw):
            start, stop = match.span()
            if np.searchsorted(offsets, start, "right") == np.searchsorted(offsets, stop, "left"):  # in one document
                ids[start] = self._special[match.group()]
                keep[start + 1 : stop] = False
        return ids[keep], np.concatenate(([0], np.cumsum(keep)))[offsets]


_JSON_ENGINES: tuple[type, ...] = (GigatokenEngine, FastokensEngine, TokieEngine, TokenizersEngine)
ENGINES: dict[str, Callable[[Definition], Engine]] = {
    made.name: made  # type: ignore[attr-defined]
    for made in (*_JSON_ENGINES, TiktokenEngine, SentencePieceEngine, PythonEngine, BytesEngine)
}


def runners(definition: Definition) -> list[str]:
    """The engines that may try a definition, the reference first: installed, and made for its form."""
    names = [definition.reference]
    if definition.json is not None:
        names += [made.name for made in _JSON_ENGINES]  # type: ignore[attr-defined]
        names += ["bytes"] if definition.json == bytes_definition().json else []
    return [name for name in dict.fromkeys(names) if name in ENGINES and engine_version(name)]


def make_engine(name: str, definition: Definition) -> Engine:
    return ENGINES[name](definition)


def engine_version(name: str) -> str:
    """The version of an engine's library; empty where it is not installed."""
    library = {"python": "transformers", "bytes": "tokenmill"}.get(name, name)
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def check_shape(name: str, count: int, ids: Ids, offsets: Offsets) -> None:
    """No engine may lose a document, or put ids outside of all."""
    if len(offsets) != count + 1:
        raise EncodingError(f"{name} {engine_version(name)} gave {len(offsets) - 1} documents for {count}")
    if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
        raise EncodingError(f"{name} {engine_version(name)} gave {len(ids)} ids with offsets that do not span them")


def _offsets(lengths: Any) -> Offsets:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))))


def _flat(documents: Iterable[list[int]]) -> tuple[Ids, Offsets]:
    arrays = [np.asarray(ids, np.uint32) for ids in documents]
    offsets = _offsets([len(array) for array in arrays])
    return np.concatenate(arrays) if arrays else np.empty(0, np.uint32), offsets


def _needed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TokenizerError(f"this tokenizer needs {module}: pip install 'tokenmill[{extra}]'") from error
