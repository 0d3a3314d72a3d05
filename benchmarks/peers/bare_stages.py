"""The stages alone, several times in one process: read (and decompress), parse, encode at the best batch size, write."""

import sys

import awkward as ak
import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

kind, path, tokenizer, out, repeats, dtype = sys.argv[1:]
engine = gigatoken.Tokenizer(tokenizer)
schema = pj.ParseOptions(explicit_schema=pa.schema([("text", pa.string())]), unexpected_field_behavior="ignore")


def jsonl():
    with open(path, "rb", buffering=0) as raw:
        pending = b""
        while chunk := raw.read(4 << 20):
            pending += chunk
            cut = pending.rfind(b"\n") + 1
            block, pending = pending[:cut], pending[cut:]
            if block:
                options = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
                yield pj.read_json(pa.BufferReader(block), read_options=options, parse_options=schema)["text"].chunk(0)


def parquet():
    table = pq.ParquetFile(path)
    for group in range(table.num_row_groups):
        meta = table.metadata.row_group(group)
        rows = max(1, (4 << 20) * meta.num_rows // max(meta.total_byte_size, 1))
        for batch in table.iter_batches(rows, row_groups=[group], columns=["text"], use_threads=False):
            yield batch.column(0)


with open(out, "wb", buffering=0) as sink:
    for _ in range(int(repeats)):
        for text in jsonl() if kind == "jsonl" else parquet():
            _, offsets, data = text.cast(pa.large_string()).buffers()
            characters = ak.contents.NumpyArray(np.frombuffer(data, np.uint8), parameters={"__array__": "char"})
            offsets = ak.index.Index64(np.frombuffer(offsets, np.int64)[: len(text) + 1])
            strings = ak.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"})
            ids = np.asarray(engine.encode_batch(ak.Array(strings), parallel=False).layout.content.data)
            sink.write(ids.astype(dtype))
