"""Shards of MDS and chunks of litData that tokenmill does not write itself: with several columns, and compressed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tokenmill as tm
from tokenmill.errors import InputError, UsageError
from tokenmill.exchange.formats.base import offset_table
from tokenmill.exchange.output import RECEIPT
from tokenmill.testing.exchange import make_store, some_documents

DOCUMENTS = [[1, 2, 3], [4], [5, 6], list(range(10, 400)), [7]]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("mds") / "made", some_documents(250), "uint16")


def array(values: list[int], dtype: str) -> bytes:
    """An array as Mosaic writes it: one dimension, the width of its length, the length."""
    width = 0 if len(values) < 256 else 1
    return bytes([1 << 2 | width]) + len(values).to_bytes(1 << width, "little") + np.array(values, dtype).tobytes()


def write(folder: Path, columns: dict[str, tuple[str, int | None, list[bytes]]]) -> Path:
    """A shard with these columns: encoding, size and values of each."""
    folder.mkdir()
    names, samples = sorted(columns), []
    for values in zip(*(columns[name][2] for name in names), strict=True):
        sizes = [len(value) for name, value in zip(names, values, strict=True) if columns[name][1] is None]
        samples.append(np.array(sizes, "<u4").tobytes() + b"".join(values))
    config = b"{}"
    start = 4 + 4 * (len(samples) + 1) + len(config)
    offsets = np.cumsum([start, *map(len, samples)]).astype("<u4")
    raw = np.array([len(samples)], "<u4").tobytes() + offsets.tobytes() + config + b"".join(samples)
    (folder / "shard.00000.mds").write_bytes(raw)
    shard = {
        "column_names": names,
        "column_encodings": [columns[name][0] for name in names],
        "column_sizes": [columns[name][1] for name in names],
        "compression": None,
        "format": "mds",
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(raw), "hashes": {}},
        "samples": len(samples),
        "version": 2,
        "zip_data": None,
    }
    (folder / "index.json").write_text(json.dumps({"shards": [shard], "version": 2}))
    return folder


def arrays(dtype: str = "int32", rows=DOCUMENTS) -> tuple[str, None, list[bytes]]:
    return f"ndarray:{dtype}", None, [array(row, dtype) for row in rows]


TEXT = ("str", None, [b"", b"ab", b"c" * 300, b"d", b""])
NUMBER = ("int", 8, [np.int64(i).tobytes() for i in range(5)])


@pytest.mark.parametrize(
    "columns",
    [
        {"tokens": arrays()},
        {"a": TEXT, "n": NUMBER, "tokens": arrays("uint16"), "z": TEXT},
        {"input_ids": arrays("int64"), "tokens": TEXT},
        {"mine": arrays("uint32"), "text": TEXT},  # the only one of numbers
        {"ids": arrays(), "other": arrays("int64", [[9]] * 5)},
    ],
    ids=lambda columns: ",".join(columns),
)
def test_the_column_of_ids(tmp_path, columns):
    found = tm.import_tokens(write(tmp_path / "mds", columns), tmp_path / "store")
    assert [ids.tolist() for ids in found] == DOCUMENTS


def test_ids_as_bytes(tmp_path):
    """As llm-foundry wrote them once."""
    rows = [np.array(row, np.int64).tobytes() for row in DOCUMENTS]
    folder = write(tmp_path / "mds", {"tokens": ("bytes", None, rows), "text": TEXT})
    with pytest.raises(InputError, match="tokens is a column of bytes: say of which ids, with --dtype int64"):
        tm.import_tokens(folder, tmp_path / "store")
    found = tm.import_tokens(folder, tmp_path / "store", dtype="int64")
    assert [ids.tolist() for ids in found] == DOCUMENTS


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": TEXT, "n": NUMBER}, "columns n, text; none is called input_ids"),
        ({"a": arrays(), "b": arrays()}, "columns a, b; none is called input_ids"),
        ({"tokens": TEXT}, "tokens is a column of str, not of ids"),
        ({"tokens": ("ndarray:float32", None, [b""] * 5)}, "not of ids"),
        ({"tokens": ("ndarray:int32", None, [b"\4\2abcd"] * 5)}, "another length than it says"),
        ({"tokens": ("ndarray:int32", None, [b"\x08\1\1abcd"] * 5)}, "not a list of ids"),
        ({"tokens": ("ndarray:int32:2", 8, [b"abcd"] * 5), "text": TEXT}, "another size than its columns"),
        ({"tokens": ("ndarray:int32:2", -8, [b"abcd"] * 5), "text": TEXT}, "damaged"),
    ],
)
def test_no_column_of_ids(tmp_path, columns, said):
    with pytest.raises(InputError, match=said):
        tm.import_tokens(write(tmp_path / "mds", columns), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_rows_with_a_mask_and_labels(store, tmp_path):
    options = {"seq_len": 600, "strategy": "pad", "fields": ["input_ids", "labels", "attention_mask"]}
    tm.export(store, tmp_path / "out", format="mds", **options)
    (tmp_path / "out" / RECEIPT).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = tm.import_tokens(tmp_path / "out", tmp_path / "again")
    assert [ids.tolist() for ids in again] == [ids.tolist() for ids in store]
    labels = [[-100, *row[1:]] for row in DOCUMENTS]
    folder = write(tmp_path / "mds", {"input_ids": arrays(), "labels": arrays("int64", labels)})
    with pytest.warns(UserWarning, match="labels of 5 documents differ"):
        tm.import_tokens(folder, tmp_path / "other")


def test_the_column_that_llm_foundry_reads(store, tmp_path):
    """Rows of ids alone are called as documents are; with others beside them they keep their names."""
    for number, fields in enumerate((["input_ids"], ["input_ids", "labels"])):
        folder = tmp_path / str(number)
        tm.export(store, folder, format="mds", seq_len=64, tail="drop", fields=fields)
        (folder / RECEIPT).unlink()
        [shard] = json.loads((folder / "index.json").read_text())["shards"]
        assert shard["column_names"] == (["tokens"] if number == 0 else fields)
        again = tm.import_tokens(folder, tmp_path / f"{number}-store")
        assert np.concatenate(list(again)).tolist() == np.concatenate(list(store))[: len(again) * 64].tolist()


def compressed(store: tm.Store, folder: Path, format: str) -> Path:
    """An export whose files were compressed, as the libraries do it. Returns the first of them."""
    tm.export(store, folder, format=format, tokens_per_file=10_000)
    (folder / RECEIPT).unlink()
    index = json.loads((folder / "index.json").read_text())
    for entry in index["shards" if format == "mds" else "chunks"]:
        name = entry["raw_data"]["basename"] if format == "mds" else entry["filename"]
        packed = f"{name}.zstd" if format == "mds" else name.replace(".bin", ".zstd.bin")
        (folder / packed).write_bytes(pa.compress((folder / name).read_bytes(), "zstd", asbytes=True))
        (folder / name).unlink()
        entry |= (
            {"compression": "zstd:3", "zip_data": {"basename": packed}} if format == "mds" else {"filename": packed}
        )
    if format == "litdata":
        index["config"]["compression"] = "zstd"
    (folder / "index.json").write_text(json.dumps(index))
    return min(folder.glob("*.zstd*"))


@pytest.mark.parametrize("format", ["mds", "litdata"])
def test_compressed(store, tmp_path, format):
    compressed(store, tmp_path / "out", format)
    again = tm.import_tokens(tmp_path / "out", tmp_path / "again")
    assert [ids.tolist() for ids in again] == [ids.tolist() for ids in store]


@pytest.mark.parametrize("format", ["mds", "litdata"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (1, r"unpacked it has [0-9,]+ bytes where its index says|does not fit its"),
        (-1, "does not fit its"),
        (1 << 40, "an impossible size"),
        (-(1 << 40), "an impossible size"),
    ],
)
def test_another_size_than_the_index_says(store, tmp_path, format, more, said):
    compressed(store, tmp_path / "out", format)
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    entry = index["shards"][0]["raw_data"] if format == "mds" else index["chunks"][0]
    entry["bytes" if format == "mds" else "chunk_bytes"] += more
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "out", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("format", ["mds", "litdata"])
def test_more_or_less_than_the_index_says(store, tmp_path, format):
    """A bomb is not unpacked beyond what the index says, and a shard that ends early is an error."""
    path = compressed(store, tmp_path / "out", format)
    raw = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read()
    for body, said in (
        (raw + bytes(1 << 24), "more than the [0-9,]+ bytes that its index says"),
        (raw[:-10], "bytes where its index says"),
    ):
        path.write_bytes(pa.compress(body, "zstd", asbytes=True))
        with pytest.raises(InputError, match=said):
            tm.import_tokens(tmp_path / "out", tmp_path / "again")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=path.name):
        tm.import_tokens(tmp_path / "out", tmp_path / "again")


@pytest.mark.parametrize(
    ("format", "change", "said"),
    [
        ("mds", {"compression": "br"}, "compressed with br; decompress it first"),
        ("litdata", {"compression": "gzip"}, "compressed with gzip"),
        ("litdata", {"compression_level": "batch"}, "compressed by batch; only whole chunks"),
        ("litdata", {"encryption": {"algorithm": "fernet"}}, "encrypted"),
    ],
)
def test_other_compressions(store, tmp_path, format, change, said):
    compressed(store, tmp_path / "out", format)
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    (index["shards"][0] if format == "mds" else index["config"]).update(change)
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "out", tmp_path / "again")


def test_offsets_have_32_bits():
    """Of what an export writes in front of samples of 3 and 4 bytes; larger ones are refused, and never written modulo 2**32."""
    assert np.frombuffer(offset_table(np.array([3, 4]), 10), "<u4").tolist() == [2, 26, 29, 33]
    with pytest.raises(UsageError, match="at most 4 GB: give a smaller tokens_per_file"):
        offset_table(np.array([3, 1 << 32]))
