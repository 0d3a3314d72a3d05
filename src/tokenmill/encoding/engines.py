"""Engines: things that turn Texts into flat ids. One small contract, two implementations.

An engine takes an Arrow large_string array and returns (ids uint32, offsets int64), with special tokens in the text
parsed as `tokenizers` parses them and nothing added around the documents. It runs on the calling thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.batch import text_offsets
from tokenmill.errors import EncodingError

if TYPE_CHECKING:
    import pyarrow as pa

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class Engine(Protocol):
    """What a build needs of an engine."""

    name: str
    version: str

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        """All ids end to end, and where each document's begin and end."""
        ...


class GigatokenEngine:
    """gigatoken: hundreds of MB/s a core for BPE. Fed Arrow's own buffers, without a copy."""

    name = "gigatoken"

    def __init__(self, tokenizer_json: str) -> None:
        import awkward
        import gigatoken

        self.version = _version("gigatoken")
        self._tokenizer = gigatoken.Tokenizer.from_json(tokenizer_json)
        self._ak: Any = awkward

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        ak = self._ak
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        content = ak.contents.NumpyArray(data, parameters={"__array__": "char"})
        layout = ak.contents.ListOffsetArray(
            ak.index.Index64(text_offsets(values)), content, parameters={"__array__": "string"}
        )
        result = self._tokenizer.encode_batch(ak.Array(layout), parallel=False).layout
        ends = np.asarray(result.offsets.data)
        ids = np.asarray(result.content.data)
        if len(ends) != len(values) + 1 or ends[0] != 0 or ends[-1] != len(ids):
            raise EncodingError(f"gigatoken {self.version} gave {len(ends) - 1} documents for {len(values)}")
        return ids, ends


class ReferenceEngine:
    """`tokenizers`: the reference every other engine is held to. A few MB/s; makes a Python string per document."""

    name = "tokenizers"

    def __init__(self, tokenizer_json: str) -> None:
        import tokenizers

        self.version = _version("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)

    def encode(self, values: pa.LargeStringArray) -> tuple[Ids, Offsets]:
        encodings = self._tokenizer.encode_batch_fast(values.to_pylist(), add_special_tokens=False)
        lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ids = np.empty(int(offsets[-1]), np.uint32)
        for encoding, start in zip(encodings, offsets, strict=False):
            ids[start : start + len(encoding)] = encoding.ids
        return ids, offsets


ENGINES: dict[str, type[GigatokenEngine] | type[ReferenceEngine]] = {
    "gigatoken": GigatokenEngine,
    "tokenizers": ReferenceEngine,
}


def make_engine(name: str, tokenizer_json: str) -> Engine:
    return ENGINES[name](tokenizer_json)


def choose_engine(tokenizer_json: str, probes: list[str]) -> tuple[str, str]:
    """The fastest engine that loads this tokenizer and agrees with the reference on every probe: (name, why)."""
    import pyarrow as pa

    values = pa.array(probes, pa.large_string())
    ids, offsets = ReferenceEngine(tokenizer_json).encode(values)
    try:
        fast = GigatokenEngine(tokenizer_json)
        fast_ids, fast_offsets = fast.encode(values)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever an engine says, or panics, about a tokenizer it cannot run
        return "tokenizers", f"gigatoken cannot load it: {str(error)[:120]}"
    if np.array_equal(offsets, fast_offsets) and np.array_equal(ids, fast_ids):
        return "gigatoken", f"agrees with tokenizers on {len(probes)} probes"
    differs = next(
        i
        for i in range(len(probes))
        if not np.array_equal(ids[offsets[i] : offsets[i + 1]], fast_ids[fast_offsets[i] : fast_offsets[i + 1]])
    )
    return "tokenizers", f"gigatoken differs from tokenizers on {probes[differs][:40]!r}"


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
