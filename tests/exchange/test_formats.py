"""Every format, read back by numpy or by its own library, imported again, killed and continued."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.testing.exchange import ExchangeTests, flat_file


def by_ends(ids: list[int], ends: list[int]) -> list[list[int]]:
    return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class TestNanoGpt(ExchangeTests):
    format = "nanogpt"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        meta = json.loads((folder / "meta.json").read_text())
        assert meta["dtype"] == dtype
        return [flat_file(folder / f"{part}.bin", dtype)]


class TestLlmc(ExchangeTests):
    format = "llmc"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        ids = []
        for path in sorted(folder.glob(f"*_{part}_*.bin")):
            header = np.fromfile(path, np.int32, 256)
            assert header[:2].tolist() == ([20240520, 1] if dtype == "uint16" else [20240801, 7])
            found = flat_file(path, dtype, 1024)
            assert len(found) == header[2]
            ids += found
        return [ids]

    def _dtype(self, dtype: str) -> None:
        return None


class TestMegatron(ExchangeTests):
    format = "megatron"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        raw = (folder / f"{part}.idx").read_bytes()
        magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", raw)
        assert (magic, version, code) == (b"MMIDIDX\x00\x00", 1, 8 if dtype == "uint16" else 4)
        lengths = np.frombuffer(raw, "<i4", sequences, 34)
        pointers = np.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences)
        firsts = np.frombuffer(raw, "<i8", documents, 34 + 12 * sequences)
        assert len(raw) == 34 + 12 * sequences + 8 * documents
        assert firsts.tolist() == list(range(sequences + 1))
        data = (folder / f"{part}.bin").read_bytes()
        kind = "<u2" if dtype == "uint16" else "<i4"
        return [
            np.frombuffer(data, kind, n, at).tolist() for n, at in zip(lengths.tolist(), pointers.tolist(), strict=True)
        ]

    def _dtype(self, dtype: str) -> None:
        return None


class TestDatatrove(ExchangeTests):
    format = "datatrove"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        found: list[list[int]] = []
        where = folder / part if (folder / part).is_dir() else folder
        for path in sorted(where.glob("*.ds")):
            _, size = path.with_name(path.name + ".metadata").read_text().split("\n")[0].split("|")
            assert int(size) == np.dtype(dtype).itemsize
            found += by_ends(flat_file(path, dtype), np.fromfile(f"{path}.index", "<u8").astype(int).tolist())
        return found


class TestLitData(ExchangeTests):
    format = "litdata"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        where = folder / part if (folder / part).is_dir() else folder
        index = json.loads((where / "index.json").read_text())
        assert index["config"]["data_format"] == [f"no_header_tensor:{20 if dtype == 'uint16' else 16}"]
        found: list[list[int]] = []
        for chunk in index["chunks"]:
            raw = (where / chunk["filename"]).read_bytes()
            assert (len(raw), int.from_bytes(raw[:4], "little")) == (chunk["chunk_bytes"], chunk["chunk_size"])
            offsets = np.frombuffer(raw, "<u4", chunk["chunk_size"] + 1, 4).tolist()
            items = [np.frombuffer(raw[a:b], dtype).tolist() for a, b in pairwise(offsets)]
            assert sum(map(len, items)) == chunk["dim"]
            found += items
        return found


class TestMds(ExchangeTests):
    format = "mds"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        where = folder / part if (folder / part).is_dir() else folder
        found: list[list[int]] = []
        for shard in json.loads((where / "index.json").read_text())["shards"]:
            raw = (where / shard["raw_data"]["basename"]).read_bytes()
            assert len(raw) == shard["raw_data"]["bytes"]
            count = int.from_bytes(raw[:4], "little")
            assert count == shard["samples"]
            offsets = np.frombuffer(raw, "<u4", count + 1, 4).tolist()
            for start, stop in pairwise(offsets):
                sample = raw[start:stop]
                assert int.from_bytes(sample[:4], "little") == len(sample) - 4
                width = {4: 1, 5: 2, 6: 4}[sample[4]]
                length = int.from_bytes(sample[5 : 5 + width], "little")
                found.append(np.frombuffer(sample, dtype, length, 5 + width).tolist())
        return found


class TestOlmo(ExchangeTests):
    format = "olmo"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        found: list[list[int]] = []
        where = folder / part if (folder / part).is_dir() else folder
        for path in sorted(where.glob("*.npy")):
            with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
                ends = [int(row[1]) for row in csv.reader(lines)]
            found += by_ends(flat_file(path, dtype), ends)
        return found


class TestParquet(ExchangeTests):
    format = "parquet"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        tables = [pq.read_table(path) for path in sorted((folder / "data").glob(f"{part}-*.parquet"))]
        return pa.concat_tables(tables)["input_ids"].to_pylist()

    @pytest.mark.parametrize("shares", [None, "train=0.5,test=0.5"])
    def test_datasets_finds_the_splits(self, case, tmp_path, shares):
        import datasets

        from tokenmill.exchange.api import export

        store, documents, _ = case
        export(store, tmp_path / "out", format=self.format, shares=shares, tokens_per_file=10_000)
        found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
        assert set(found) == ({"train"} if shares is None else {"train", "test"})
        assert sorted(row for part in found.values() for row in part["input_ids"]) == sorted(documents)


class TestArrow(ExchangeTests):
    format = "arrow"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        tables = [pa.ipc.open_file(path).read_all() for path in sorted(folder.glob(f"{part}-*.arrow"))]
        return pa.concat_tables(tables)["input_ids"].to_pylist()


class TestHuggingFace(ExchangeTests):
    format = "hf"

    def documents(self, folder: Path, part: str, dtype: str) -> list[list[int]]:
        import datasets

        found = datasets.load_from_disk(str(folder))
        if isinstance(found, datasets.DatasetDict):
            assert list(found) == ["train", "val"]
            found = found[part]
        assert found.features["input_ids"].feature.dtype == "int32"
        return list(found["input_ids"])
