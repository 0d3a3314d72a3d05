"""Faults injected into engines, in the process in which an engine is examined.

`site` writes a sitecustomize.py. With its folder on PYTHONPATH, the Python of every examination runs it first. A fault
occurs only in documents that match its pattern.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.encoding.engines import ENGINES

Answer = tuple[np.ndarray, np.ndarray]


class Panic(BaseException):
    """Like the panic of a Rust engine: not an Exception."""


def site(folder: Path, plants: dict[str, list[str]]) -> Path:
    """Create a folder for PYTHONPATH. `plants` maps an engine to [fault, pattern]."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import json, sys\n"
        "if 'tokenmill.encoding.selection.examination' in sys.orig_argv:\n"
        f"    sys.path.append({str(Path(__file__).parent)!r})\n"
        "    from wrong_engines import plant\n"
        f"    for engine, way in json.loads({json.dumps(plants)!r}).items():\n"
        "        plant(engine, *way)\n"
    )
    return folder


def plant(engine: str, way: str, pattern: str) -> None:
    """Inject a fault into an engine in this process."""
    made: Any = ENGINES[engine]
    made.encode = planted(made.encode, way, pattern)


def planted(encode: Callable[..., Answer], way: str, pattern: str) -> Callable[..., Answer]:
    """An engine's `encode` with a fault."""
    wrong, found = WAYS[way], re.compile(pattern)

    def wrongly(self: Any, values: Any) -> Answer:
        ids, offsets = encode(self, values)
        texts = values.to_pylist()
        matches = [i for i, text in enumerate(texts) if found.search(text)]
        if not matches:
            return ids, offsets
        return wrong(ids, offsets, matches)

    return wrongly


def _each(change: Callable[[list[int]], list[int]]) -> Callable[[np.ndarray, np.ndarray, list[int]], Answer]:
    """Change the ids of the documents that match."""

    def wrong(ids: np.ndarray, offsets: np.ndarray, matches: list[int]) -> Answer:
        documents = [ids[start:stop].tolist() for start, stop in pairwise(offsets)]
        for i in matches:
            documents[i] = change(documents[i])
        ends = np.cumsum([0, *map(len, documents)])
        return np.array([token for document in documents for token in document], np.uint32), ends.astype(np.int64)

    return wrong


def _raises(*_: object) -> Answer:
    raise RuntimeError("planted\n\nLocation:\n    src/lib.rs:1:1")


def _finds_no_room(*_: object) -> Answer:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _finds_no_memory(*_: object) -> Answer:
    raise MemoryError("planted")


def _is_killed(*_: object) -> Answer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _panics(*_: object) -> Answer:
    raise Panic("index out of bounds: planted")


def _crashes(*_: object) -> Answer:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _hangs(*_: object) -> Answer:
    time.sleep(3600)
    raise AssertionError


def _prints(ids: np.ndarray, offsets: np.ndarray, matches: list[int]) -> Answer:
    """Print to standard output, from Python and directly to the file descriptor, as a C library does."""
    print('{"encoded": true} garbage \x00', len(matches), flush=True)
    os.write(1, b'{"refused": "by nobody"}\nnull\n')
    sys.stdout.flush()
    return ids, offsets


WAYS: dict[str, Callable[[np.ndarray, np.ndarray, list[int]], Answer]] = {
    "drops": _each(lambda ids: ids[:-1]),
    "doubles": _each(lambda ids: ids + ids[-1:]),
    "changes": _each(lambda ids: [ids[0] ^ 1, *ids[1:]] if ids else ids),
    "swaps": _each(lambda ids: ids[1::-1] + ids[2:]),
    "loses documents": lambda ids, offsets, matches: (ids, np.delete(offsets, matches[0] + 1)),
    "falls": lambda ids, offsets, matches: (ids, np.concatenate((offsets[:1], offsets[-2:0:-1], offsets[-1:]))),
    "raises": _raises,
    "panics": _panics,
    "crashes": _crashes,
    "hangs": _hangs,
    "prints": _prints,
    "finds no room": _finds_no_room,
    "finds no memory": _finds_no_memory,
    "is killed": _is_killed,
}
