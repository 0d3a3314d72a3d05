"""Real text to measure with: the files given, then the source files of this Python installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenmill.demo_data import demo_globs, demo_tokenizer
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.reading import Piece, Source, read, read_piece


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
    tokenizer.definition.save(folder)
    return tokenizer
