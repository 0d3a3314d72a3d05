"""The process in which files are read that may crash it: `python -m tokenmill.reading.reading_process`. See `isolation`."""

from __future__ import annotations

import pyarrow as pa

from tokenmill.child_process import Message, serve
from tokenmill.documents import text_offsets
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats import read_in_this_process
from tokenmill.reading.isolation import call_format, split_many_here


class _Reader:
    """The child's side: answers one request after the other, and keeps the piece that is being read."""

    def __call__(self, request: Message) -> Message:
        body = request.body
        if body["call"] == "next":
            return self._next()
        file = SourceFile(*body["file"])
        format = read_in_this_process(file.format)
        piece = Piece(file, *body["range"])
        source = Source(files=(), inputs=(), **body["reading"])
        if body["call"] == "split_many":
            files = [SourceFile(*each) for each in body["files"]]
            return Message({"result": split_many_here(format, files, source, body["number"])})
        if body["call"] == "raw_row":
            return Message({"result": format.raw_row(file, source, body["row"], body["number"])})
        if body["call"] != "read":
            return Message({"result": call_format(format, body["call"], piece, source, body["number"])})
        self._content = format.hasher(piece, source)
        self._blocks = format.read(piece, source, body["number"], self._content)
        return self._next()

    def _next(self) -> Message:
        texts = next(self._blocks, None)
        if texts is None:
            self._content.finish()
            return Message({"digest": self._content.digest})
        offsets = text_offsets(texts.values)
        data = texts.values.buffers()[2] or pa.py_buffer(b"")
        body = {
            "documents": len(texts.values),
            "rows": texts.rows,
            "skips": list(texts.skips),
            "unfinished": texts.unfinished,
        }
        return Message(body, (offsets - offsets[0], data[offsets[0] : offsets[-1]]))


if __name__ == "__main__":
    serve(_Reader())
