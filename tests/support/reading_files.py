"""Files to read: documents written in every format, and compressed as the usual tools do."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma

import pyarrow as pa

CODECS = ("", ".gz", ".zst", ".bz2", ".xz", ".lz4")


def pack(data: bytes, codec: str) -> bytes:
    """Compress as the tools would."""
    if codec == ".gz":
        return gzip.compress(data)
    if codec == ".bz2":
        return bz2.compress(data)
    if codec == ".xz":
        return lzma.compress(data)
    if not codec:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {".zst": "zstd", ".lz4": "lz4"}[codec]) as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


def json_lines(texts) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


def separated(texts, delimiter: str) -> bytes:
    """The file that Python's csv module writes."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(texts))
    return out.getvalue().encode("utf-8", "surrogateescape")


def table_of(texts) -> pa.Table:
    return pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())})


def write_arrow(path, table, rows=4, *, stream=False):
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
