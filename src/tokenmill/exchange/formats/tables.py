"""Tables with a row per document, or per packed row: Hugging Face datasets on disk, parquet files and Arrow files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import InputError
from tokenmill.exchange.exported_rows import check_rows, row_blocks, row_dtype
from tokenmill.exchange.formats.base import (
    ExchangeFormat,
    Files,
    Found,
    Job,
    Part,
    constant_file,
    facts_file,
    is_train,
    key_of,
    narrowed,
    plain_name,
    size_of,
)
from tokenmill.exchange.other_columns import LABELS, MASK, UnkeptLabels, count_differing, without_padding
from tokenmill.exchange.output import IndexFile, OutputFile, Written
from tokenmill.exchange.selection import BLOCK_TOKENS, Block, Selection
from tokenmill.io.atomic import canonical, digest

TOKENS_PER_FILE = 1 << 26
IDS = "input_ids"
METADATA = "metadata.json"
DATASET_INFO, STATE, DICT = "dataset_info.json", "state.json", "dataset_dict.json"


class TableFormat(ExchangeFormat):
    """Lists of ids in a column `input_ids`, as int32; for rows the columns of the view, in its dtype."""

    takes = ("documents", "rows")
    compression = 1.0  # about how many bytes are written for one
    file_name: ClassVar[str]  # of file {number} of {count} of {part}, which may have a {folder}

    @abstractmethod
    def writer(self, out: BinaryIO, schema: pa.Schema) -> Any:
        """What writes batches to a file."""

    def indexes(self, part: str, folder: str, names: list[str], schema: pa.Schema, key: Any) -> list[IndexFile]:
        """Further files of a part."""
        return []

    def files(self, job: Job) -> Files:
        data: list[OutputFile] = []
        indexes: list[IndexFile] = []
        for name, part in job.parts.items():
            folder, ranges = job.folder(name), job.ranges(part, TOKENS_PER_FILE)
            place = {"part": name, "folder": folder, "count": len(ranges)}
            names = [self.file_name.format(number=number, **place) for number in range(len(ranges))]
            for path, (first, stop) in zip(names, ranges, strict=True):
                key, size = [self.name, *key_of(part, first, stop)], size_of(part, first, stop, np.dtype(np.int32))
                write = partial(self._write, part, first, stop)
                data.append(OutputFile(path, key, write, int(size * self.compression)))
            indexes += self.indexes(name, folder, names, _schema(part), key_of(part, 0, ranges[-1][1]))
        facts = {
            "tokenizer": job.tokenizer["name"],
            "vocab_size": job.vocab_size,
            "eos_id": job.tokenizer["eos_id"],
            "splits": {name: _facts(part, job.ends[part]) for name, part in job.parts.items()},
        }
        return data, [facts_file(METADATA, facts), *indexes]

    def _write(self, part: Part, first: int, stop: int, out: BinaryIO) -> None:
        with self.writer(out, _schema(part)) as writer:
            for batch in _batches(part, first, stop):
                writer.write_batch(batch)

    @abstractmethod
    def tables(self, path: Path) -> Iterator[pa.RecordBatch]:
        """The batches of a file."""

    def read(self, path: Path, dtype: str | None) -> Found:
        unkept = UnkeptLabels()
        blocks = _blocks(path, self.tables(path), unkept)
        return Found(np.dtype(dtype or "uint32"), blocks, has_borders=True, unkept_labels=unkept)


class ParquetFiles(TableFormat):
    """Files that `datasets.load_dataset`, polars and the rest read: data/train-00000-of-00004.parquet."""

    name = "parquet"
    pattern = "**/*.parquet"
    suffix = ".parquet"
    reads = "import pyarrow.parquet as pq; data = pq.read_table({file!r})"
    compression = 0.5
    file_name = "data/{part}-{number:05d}-of-{count:05d}.parquet"

    def writer(self, out: BinaryIO, schema: pa.Schema) -> Any:
        return pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False)

    def tables(self, path: Path) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(path)
        rows = max(1, BLOCK_TOKENS * file.metadata.num_rows // max(1, _id_count(file)))
        names = [name for name in (IDS, MASK, LABELS) if name in file.schema_arrow.names]
        yield from file.iter_batches(rows, columns=names if IDS in names else None, use_threads=False)


class ArrowFiles(TableFormat):
    """Arrow IPC files."""

    name = "arrow"
    pattern = "**/*.arrow"
    suffix = ".arrow"
    reads = "import pyarrow as pa; data = pa.ipc.open_file({file!r}).read_all()"
    file_name = "{part}-{number:05d}-of-{count:05d}.arrow"

    def writer(self, out: BinaryIO, schema: pa.Schema) -> Any:
        return pa.ipc.new_file(out, schema)

    def tables(self, path: Path) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(path)) as raw:  # a map would fill the memory with pages
            try:
                file = pa.ipc.open_file(raw)
                yield from (file.get_batch(i) for i in range(file.num_record_batches))
            except pa.ArrowInvalid:
                raw.seek(0)
                yield from pa.ipc.open_stream(raw)


class HuggingFaceDataset(ArrowFiles):
    """What `Dataset.save_to_disk` and `DatasetDict.save_to_disk` write and `load_from_disk` opens."""

    name = "hf"
    suffix = ""
    reads = "from datasets import load_from_disk; data = load_from_disk({out!r})"
    file_name = "{folder}data-{number:05d}-of-{count:05d}.arrow"

    def writer(self, out: BinaryIO, schema: pa.Schema) -> Any:
        features = {"info": {"features": _features(schema)}}
        return pa.ipc.new_stream(out, schema.with_metadata({"huggingface": json.dumps(features)}))

    def indexes(self, part: str, folder: str, names: list[str], schema: pa.Schema, key: Any) -> list[IndexFile]:
        info = {"citation": "", "description": "", "features": _features(schema), "homepage": "", "license": ""}

        def state(out: BinaryIO, written: Mapping[str, Written]) -> None:
            files = [{"filename": name.removeprefix(folder)} for name in names]
            body: dict[str, Any] = {
                "_data_files": files,
                "_fingerprint": digest(canonical([written[name].checksum for name in names]))[:16],
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": part,
            }
            out.write(json.dumps(body, indent=2).encode())

        described = constant_file(folder + DATASET_INFO, info, json.dumps(info, indent=2).encode())
        return [described, IndexFile(folder + STATE, [key, names], state)]

    def files(self, job: Job) -> Files:
        data, indexes = super().files(job)
        if len(job.parts) > 1:
            splits = list(job.parts)
            indexes.append(constant_file(DICT, splits, json.dumps({"splits": splits}).encode()))
        return data, indexes

    def recognizes(self, path: Path) -> bool:
        return (path / STATE).is_file() or (path / DICT).is_file()

    def find(self, path: Path, dtype: str | None) -> list[Path]:
        folders = [path]
        try:
            if (path / DICT).is_file():
                names = json.loads((path / DICT).read_text())["splits"]
                folders = [path / plain_name(name) for name in sorted(names, key=lambda name: not is_train(str(name)))]
            return [
                folder / plain_name(file["filename"])
                for folder in folders
                for file in json.loads((folder / STATE).read_text())["_data_files"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a dataset that save_to_disk has written: {error}") from error


def _facts(part: Part, count: int) -> dict[str, Any]:
    if isinstance(part, Selection):
        return {"documents": part.documents, "tokens": part.tokens}
    return {"rows": count, "seq_len": part.seq_len, "strategy": part.strategy}


def _schema(part: Part) -> pa.Schema:
    if isinstance(part, Selection):
        return pa.schema([(IDS, pa.list_(pa.int32()))])
    check_rows(part)
    return pa.schema([(n, pa.list_(pa.from_numpy_dtype(row_dtype(part, n)))) for n in part._row_format.fields])


def _batches(part: Part, first: int, stop: int) -> Iterator[pa.RecordBatch]:
    schema = _schema(part)
    if isinstance(part, Selection):
        for block in part.blocks(first, stop):
            ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(block.lengths)))
            yield pa.record_batch([_lists(narrowed(block.ids, np.int32), ends)], schema=schema)
        return
    for arrays in row_blocks(part, first, stop):
        yield pa.record_batch([_rows(arrays[name]) for name in schema.names], schema=schema)


def _lists(values: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> pa.ListArray:
    """Lists over a flat array, which is not copied."""
    kind = pa.from_numpy_dtype(values.dtype)
    flat = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    ends = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets.astype(np.int32))])
    return pa.ListArray.from_arrays(ends, flat)


def _rows(values: npt.NDArray[Any]) -> pa.ListArray:
    values = np.ascontiguousarray(values)
    return _lists(values.reshape(-1), np.arange(len(values) + 1, dtype=np.int64) * values.shape[1])


def _features(schema: pa.Schema) -> dict[str, Any]:
    """The columns as `datasets` describes them."""
    return {
        field.name: {"feature": {"dtype": str(field.type.value_type), "_type": "Value"}, "_type": "Sequence"}
        for field in schema
    }


def _id_count(file: pq.ParquetFile) -> int:
    """About how many ids a file has."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    return sum(int(group.total_byte_size) for group in groups) // 4


def _blocks(path: Path, batches: Iterator[pa.RecordBatch], unkept: UnkeptLabels) -> Iterator[Block]:
    """The documents in the column `input_ids`, without what `attention_mask` says is padding."""
    try:
        for batch in batches:
            names = batch.schema.names
            if names.count(IDS) > 1:
                raise InputError(f"{path} has several columns {IDS}")
            if IDS not in names:
                raise InputError(f"{path} has no column {IDS}; it has {', '.join(names)}")
            block = _column(path, batch, IDS)
            kept, stays = without_padding(path, block, _column(path, batch, MASK) if MASK in names else None)
            if LABELS in names:
                labels = _labels(batch.column(LABELS))
                unkept.documents += len(batch) if labels is None else count_differing(block, labels, stays)
            yield kept
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: {type(error).__name__}: {str(error)[:200]}") from error


def _column(path: Path, batch: pa.RecordBatch, name: str) -> Block:
    """A column of lists of whole numbers, none of them null."""
    column = batch.column(name)
    if not _holds_numbers(column.type) or (name == IDS and pa.types.is_boolean(column.type.value_type)):
        raise InputError(f"{path}: {name} is a column of {column.type}, not of lists of whole numbers")
    column.validate(full=True)  # so that forged offsets lead nowhere
    if column.null_count or column.flatten().null_count:
        raise InputError(f"{path}: a null in {name}, where there should be {'ids' if name == IDS else 'numbers'}")
    return _flat(column)


def _labels(column: pa.Array) -> Block | None:
    """Labels of positions, with -1 as the length of a null; None if they are labels of something else."""
    if not _holds_numbers(column.type):
        return None
    column.validate(full=True)
    return _flat(column)


def _flat(column: pa.Array) -> Block:
    values = column.flatten()
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    values = pc.fill_null(values, -1) if values.null_count else values
    return Block(values.to_numpy(zero_copy_only=False), np.asarray(lengths, np.int64))


def _holds_numbers(kind: pa.DataType) -> bool:
    is_list = any((pa.types.is_list(kind), pa.types.is_large_list(kind), pa.types.is_fixed_size_list(kind)))
    return is_list and (pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type))
