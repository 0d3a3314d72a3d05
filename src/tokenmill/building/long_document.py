"""Documents too long for one call: encoded in parts as they are read, or refused if there is no safe place to cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.building.block_encoder import BlockEncoder, Documents
from tokenmill.building.task_counts import PieceCounts
from tokenmill.documents import Tokens, text_bytes, text_offsets
from tokenmill.encoding.encoder import WHOLE_BYTES, LongDocument, TooLong

# Bytes of a long document that are encoded in one call. Small, because a part may have to be encoded by the reference, which
# takes hundreds of times its size in memory.
PART_BYTES = 1 << 19
NO_ENDS = np.empty(0, np.int64)


@dataclass(slots=True)
class _OpenDocument:
    """The long document being encoded."""

    document: LongDocument
    mark: Any  # of the writer, before the document
    nbytes: int = 0
    refused: str = ""  # why, if it cannot be encoded


class LongDocuments:
    """Encodes blocks that hold a document too long for one call, or a part of one. The other documents go to `blocks`."""

    def __init__(self, blocks: BlockEncoder) -> None:
        self._blocks, self._output, self._writer = blocks, blocks.output, blocks.output.writer
        self._open: _OpenDocument | None = None

    @property
    def is_open(self) -> bool:
        """Whether a document has begun and goes on in the next block."""
        return self._open is not None

    def is_needed(self, documents: Documents) -> bool:
        """Whether a block holds a long document, or a part of one."""
        return documents.unfinished or self.is_open or _longest(documents.values) > WHOLE_BYTES

    def encode(self, documents: Documents) -> Iterator[tuple[int, str]]:
        """Encode a block, document by document.

        Yields the number of each document that is too long, and why it is left out. It is not in the counts any more.
        """
        for i, number in enumerate(documents.numbers.tolist()):
            value = documents.values.slice(i, 1)
            goes_on = documents.unfinished and i == len(documents.numbers) - 1
            if not self.is_open and not goes_on and text_bytes(value) <= WHOLE_BYTES:
                numbers = documents.numbers[i : i + 1]
                self._blocks.encode([Documents(value, numbers, number, documents.counts)])
                continue
            self._blocks.announce(number, number + 1)
            self._add_part(value, documents.counts, is_last=not goes_on)
            self._blocks.announce(0, 0)
            if not goes_on and (why := self._finish(number, documents.counts)):
                yield number, why

    def abandon(self, counts: PieceCounts) -> None:
        """The document that had begun turned out to be bad: take back what was written of it."""
        assert self._open is not None
        tokens = self._writer.tokens
        self._writer.rollback(self._open.mark)
        counts.tokens -= tokens - self._writer.tokens
        counts.text_bytes -= self._open.nbytes
        self._open = None

    def forget(self) -> None:
        """The file failed; its rollback removes the document as well."""
        self._open = None

    def _add_part(self, value: pa.LargeStringArray, counts: PieceCounts, *, is_last: bool) -> None:
        if self._open is None:
            self._open = _OpenDocument(LongDocument(self._blocks.encoder), self._writer.mark())
        self._open.nbytes += text_bytes(value)
        before = self._writer.tokens
        self._feed(self._open, value, is_last=is_last)
        counts.tokens += self._writer.tokens - before

    def _feed(self, open_document: _OpenDocument, value: pa.LargeStringArray, *, is_last: bool) -> None:
        data = memoryview(value.view(pa.large_binary())[0].as_buffer())
        document = open_document.document
        try:
            while len(data) and not open_document.refused:
                # Of text without a safe split, each part doubles what is looked at.
                size = max(PART_BYTES, document.pending)
                self._output.append(Tokens(document.feed(bytes(data[:size])), NO_ENDS))
                data = data[size:]
        except TooLong as error:
            self._writer.rollback(open_document.mark)
            open_document.refused = str(error)
        self._blocks.memory.check()
        if is_last and not open_document.refused:
            ids = document.finish()
            self._output.append(Tokens(ids, np.array([len(ids)])))

    def _finish(self, number: int, counts: PieceCounts) -> str:
        """Close the document. Returns why it is left out, or an empty string."""
        assert self._open is not None
        document, self._open = self._open, None
        if document.refused:
            counts.text_bytes -= document.nbytes
            counts.documents -= 1
        elif document.document.special:
            self._blocks.found_special(number)
            counts.special_documents += 1
        return document.refused


def _longest(values: pa.LargeStringArray) -> int:
    """Bytes of the longest document; all bytes of the block if even those are few."""
    if text_bytes(values) <= WHOLE_BYTES:
        return text_bytes(values)
    return int(np.diff(text_offsets(values)).max())
