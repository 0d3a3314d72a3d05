"""Real text to measure with: the files given, then the source files of this Python installation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenmill.demo_data import demo_globs, demo_tokenizer
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.reading import Piece, Source, read, read_piece

FILE_BYTES = 64_000_000


def corpus_texts(inputs: list[str]) -> Iterator[str]:
    """The documents of the files given, then those of this Python installation."""
    if inputs:
        yield from _texts(read(*inputs))
    yield from _texts(read(*demo_globs(), format="text"))  # listing these takes seconds


def _texts(source: Source) -> Iterator[str]:
    for file in source.files:
        for texts in read_piece(Piece(file), source):
            if not texts.unfinished:
                yield from texts.values.to_pylist()


def first_texts(inputs: list[str], size: int) -> tuple[list[str], int]:
    """Documents of at least `size` bytes in all, and their bytes."""
    texts: list[str] = []
    text_bytes = 0
    for text in corpus_texts(inputs):
        texts.append(text)
        text_bytes += len(text.encode())
        if text_bytes >= size:
            break
    return texts, text_bytes


def saved_tokenizer(spec: str | None, folder: Path) -> Tokenizer:
    """The tokenizer given, or the demo tokenizer, saved to a folder."""
    tokenizer = load_tokenizer(spec or demo_tokenizer())
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer._definition.save(folder)
    return tokenizer


def write_corpus(folder: Path, inputs: list[str], size: int) -> int:
    """Files of text, `size` bytes in all. If there is not so much text, it is repeated with other first words."""
    texts, _ = first_texts(inputs, size)
    folder.mkdir()
    written = turn = number = 0
    while written < size:
        turn += 1
        lines: list[bytes] = []
        pending = 0
        for text in texts:
            lines.append(json.dumps({"text": f"{turn} {text}"}, ensure_ascii=False).encode() + b"\n")
            pending += len(lines[-1])
            if pending >= FILE_BYTES or written + pending >= size:
                (folder / f"{number:03}.jsonl").write_bytes(b"".join(lines))
                written, number, lines, pending = written + pending, number + 1, [], 0
                if written >= size:
                    return written
        (folder / f"{number:03}.jsonl").write_bytes(b"".join(lines))
        written, number = written + pending, number + 1
    return written
