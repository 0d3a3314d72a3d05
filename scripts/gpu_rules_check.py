"""Compares the rules for a GPU with `tokenizers` on real text: where every pretoken of every document starts.

    python scripts/gpu_rules_check.py FOLDER_OF_TOKENIZERS CORPUS [CORPUS ...] [--documents 100000] [--characters 600]

Each folder in FOLDER_OF_TOKENIZERS has a tokenizer.json. A CORPUS is anything that `tokenmill build` reads; the modules of
Python's standard library are added. Longer texts are cut into documents of `--characters` characters. One tokenizer of each
pattern is compared, with numpy and, if there is a C++ compiler, with starts.cu compiled for this machine. The ids of some
documents are made for every tokenizer from its tables (`bpe_tables`), too. Takes minutes; ends with exit code 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from tokenmill.encoding.gpu.bpe_tables import bpe_tables
from tokenmill.encoding.gpu.patterns import Pattern, recognise
from tokenmill.encoding.gpu.pretoken_rules import character_roles
from tokenmill.encoding.gpu.starts import not_normalized, starts
from tokenmill.python_sources import source_texts
from tokenmill.reading import Piece, read, read_piece

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from host_marks import compile_for_host, compiler, marks
from pretokens import by_tokenizers, merged, packed

BATCH = 500  # documents
SOME = 1000  # documents of which the ids are compared


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tokenizers", type=Path)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--characters", type=int, default=600)
    options = parser.parse_args()
    recognised = find_patterns(options.tokenizers)
    found = {pattern: splitter_of(parsed) for parsed, pattern in reversed(recognised.values())}
    library = None
    if compiler():
        library = compile_for_host(Path(tempfile.mkdtemp()), found, "-O2")
    else:
        print("there is no C++ compiler: starts.cu is not compared")
    texts = list(islice(documents(options.corpora, options.characters), options.documents))
    print(f"{len(texts):,} documents, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB")
    wrong = [pattern.name for pattern, splitter in found.items() if differs(pattern, splitter, texts, library)]
    some = texts[:: max(len(texts) // SOME, 1)]
    wrong += [name for name, (parsed, pattern) in recognised.items() if ids_differ(name, parsed, pattern, some)]
    return int(bool(wrong))


def find_patterns(folder: Path) -> dict[str, tuple[dict[str, Any], Pattern]]:
    """The tokenizers of a folder that are recognised, by name; prints which are and why others are not."""
    found: dict[str, tuple[dict[str, Any], Pattern]] = {}
    for path in sorted(folder.glob("*/tokenizer.json")):
        parsed = json.loads(path.read_text("utf-8"))
        pattern, why = recognise(parsed)
        if pattern:
            found[path.parent.name] = parsed, pattern
        print(
            f"{path.parent.name:20} {pattern.name + (', NFC' if pattern.nfc else '') if pattern else '- ' + why[:90]}"
        )
    return found


def splitter_of(parsed: dict[str, Any]) -> Any:
    return tokenizers.Tokenizer.from_str(json.dumps(parsed)).pre_tokenizer


def documents(corpora: list[str], characters: int) -> Iterator[str]:
    """Parts of the texts of all corpora and of Python's standard library, of each in turn."""
    waiting = [parts_of(texts, characters) for texts in (*map(texts_of, corpora), source_texts())]
    while waiting:
        for parts in list(waiting):
            part = next(parts, None)
            if part is None:
                waiting.remove(parts)
            else:
                yield part


def texts_of(corpus: str) -> Iterator[str]:
    source = read(corpus)
    for file in source.files:
        for block in read_piece(Piece(file), source):
            yield from block.values.to_pylist()


def parts_of(texts: Iterator[str], characters: int) -> Iterator[str]:
    for text in texts:
        for first in range(0, len(text), characters):
            yield text[first : first + characters]


def differs(pattern: Pattern, splitter: Any, texts: list[str], library: Any) -> bool:
    """Whether anything differs."""
    differ = c_differ = unsure = unstable = 0
    seconds = {"tokenizers": 0.0, "numpy": 0.0, "C++": 0.0}
    roles = character_roles(pattern)
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        data, ends = packed(batch)
        began = time.process_time()
        expected = by_tokenizers(splitter, batch)
        seconds["tokenizers"] += time.process_time() - began
        began = time.process_time()
        got = starts(data, ends, pattern, roles)
        seconds["numpy"] += time.process_time() - began
        differ += int((got != expected).sum())
        unstable += count_documents(not_normalized(data, ends, roles), ends)
        if library is not None:
            began = time.process_time()
            c_starts, c_unsure = marks(library, pattern, [text.encode() for text in batch])
            seconds["C++"] += time.process_time() - began
            c_differ += int(((c_starts != expected) & ~c_unsure).sum())
            unsure += count_documents(c_unsure, ends)
    size = sum(len(text.encode()) for text in texts) / 1e6
    speeds = ", ".join(f"{name} {size / spent:.0f} MB/s" for name, spent in seconds.items() if spent)
    print(
        f"{pattern.name:15} differences: numpy {differ}, C++ {c_differ}; documents: unsure {unsure}, "
        f"of which NFC may change {unstable}; {speeds}",
        flush=True,
    )
    return bool(differ or c_differ)


def ids_differ(name: str, parsed: dict[str, Any], pattern: Pattern, texts: list[str]) -> bool:
    """Whether the ids that the rules and the tables of a tokenizer give are other ones than those of `tokenizers`.

    Documents with added tokens in them, and those that NFC may change, are left out.
    """
    tables, why = bpe_tables(parsed)
    if tables is None:
        print(f"{name:20} no tables: {why}")
        return False
    own, roles = tokenizers.Tokenizer.from_str(json.dumps(parsed)), character_roles(pattern)
    added = [token["content"] for token in parsed["added_tokens"]]
    usable = [text for text in texts if not any(token in text for token in added)]
    wrong = compared = looked_up = words = 0
    known: dict[bytes, list[int]] = {}
    for text in usable:
        data, ends = packed([text])
        if not_normalized(data, ends, roles).any():
            continue
        compared += 1
        places = [*np.flatnonzero(starts(data, ends, pattern, roles)).tolist(), len(data)]
        ids: list[int] = []
        for start, end in pairwise(places):
            word = data[start:end].tobytes()
            if word not in known:
                known[word] = merged(tables, word)
            ids += known[word]
            words += 1
            looked_up += word in tables.words
        wrong += ids != own.encode(text, add_special_tokens=False).ids
    print(
        f"{name:20} ids of {compared:,} documents, {wrong} differ; {looked_up / max(words, 1):.1%} of pretokens looked up; "
        f"{len(tables.not_reached):,} tokens not reached",
        flush=True,
    )
    return wrong > 0


def count_documents(marked: np.ndarray, ends: np.ndarray) -> int:
    return len(np.unique(np.searchsorted(ends, np.flatnonzero(marked), "right")))


if __name__ == "__main__":
    sys.exit(main())
