"""Files that are cut short, damaged, of another version or of another kind: an error that says so, and no store."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.errors import InputError, MismatchError, TokenmillError, UsageError
from tokenmill.exchange.output import JOURNAL, RECEIPT
from tokenmill.store.shard import sealed
from tokenmill.testing.exchange import EOS, count_calls, die_at, make_store, some_documents


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("bad") / "made", some_documents(250), "uint16")


def cut_short(name: str, nbytes: int = 1) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = next(iter(sorted(folder.rglob(name))))
        path.write_bytes(path.read_bytes()[:-nbytes])

    return damage


def only_first(name: str, nbytes: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = next(iter(sorted(folder.rglob(name))))
        path.write_bytes(path.read_bytes()[:nbytes])

    return damage


def put_at(name: str, at: int, raw: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = next(iter(sorted(folder.rglob(name))))
        data = bytearray(path.read_bytes())
        data[at : at + len(raw)] = raw
        path.write_bytes(data)

    return damage


def leads_out(folder: Path) -> None:
    path = folder / "index.json"
    path.write_text(
        path.read_text().replace("chunk-0-0.bin", "../chunk-0-0.bin").replace("shard.00000", "../shard.00000")
    )


def state_leads_out(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"][0]["filename"] = "../../etc/passwd"
    (folder / "state.json").write_text(json.dumps(state))


def pickled(folder: Path) -> None:
    """A file that runs code if it is unpickled, in the place of one of ids."""
    import pickle

    for path in (*folder.glob("*.bin"), *folder.glob("*.npy")):
        path.write_bytes(pickle.dumps(Runs(folder / "ran")) + b"x" * 3)


DAMAGES = [
    ("nanogpt", cut_short("train.bin"), "not a whole number of uint16 ids"),
    ("nanogpt", pickled, "not a whole number|not one of the"),
    ("llmc", cut_short("*.bin", 2), "ids where its header or index says"),
    ("llmc", put_at("*.bin", 0, b"\1\2\3\4"), "not a file of llm.c"),
    ("llmc", put_at("*.bin", 4, struct.pack("<i", 9)), "version 9"),
    ("megatron", cut_short("*.bin", 2), "describes [0-9,]+ tokens, the .bin file has"),
    ("megatron", cut_short("*.idx", 8), "where its header needs"),
    ("megatron", only_first("*.idx", 20), "20 bytes, shorter than the header .* it is cut short"),
    ("megatron", only_first("*.idx", 3), "3 bytes, shorter than the header"),
    ("megatron", only_first("*.idx", 0), "0 bytes, shorter than the header"),
    ("megatron", put_at("*.idx", 9, b"\7"), "version 7"),
    ("megatron", put_at("*.idx", 17, b"\x63"), "dtype code 99"),
    ("megatron", put_at("*.idx", 0, b"X"), "does not begin with MMIDIDX"),
    ("megatron", put_at("*.idx", 34, struct.pack("<i", -5)), "negative length"),
    ("megatron", put_at("*.idx", 34 + 4 * 300, struct.pack("<q", 1 << 40)), "begin at byte 1099511627776"),
    ("megatron", put_at("*.idx", 34 + 12 * 300, struct.pack("<q", 5)), "list of documents"),
    ("datatrove", cut_short("*.ds", 2), "its last document ends at"),
    ("datatrove", cut_short("*.ds.index", 8), "its last document ends at"),
    ("olmo", cut_short("*.npy", 2), "ids where its header or index says"),
    ("olmo", cut_short("*.csv.gz", 20), "csv.gz"),
    ("litdata", cut_short("*.bin", 2), "table of offsets"),
    ("litdata", leads_out, "not the name of a file"),
    ("mds", cut_short("*.mds", 2), "table of offsets"),
    ("mds", leads_out, "not the name of a file"),
    ("hf", cut_short("*.arrow", 5000), r"\.arrow"),
    ("hf", state_leads_out, "not the name of a file"),
    ("parquet", cut_short("*.parquet", 10), r"\.parquet"),
]


@pytest.mark.parametrize(("format", "damage", "said"), DAMAGES, ids=lambda value: str(value)[:20])
def test_damaged(store, tmp_path, format, damage, said):
    tm.export(store, tmp_path / "out", format=format)
    (tmp_path / "out" / RECEIPT).unlink()  # as if another tool had written it
    damage(tmp_path / "out")
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", format=format, tokenizer="bytes", eos=EOS)
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "out" / "ran").exists()


class Runs:
    """Runs code if it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def of_torch(path: Path) -> None:
    import torch

    torch.save(torch.arange(100, dtype=torch.int32), path)


def bomb(path: Path) -> None:
    """A small archive that unpacks to a gigabyte."""
    of_torch(path)
    with zipfile.ZipFile(path) as archive:
        parts = {part.filename: archive.read(part) for part in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, bytes(1 << 28) if name.endswith("data/0") else data)


def runs_code(path: Path) -> None:
    import torch

    torch.save(Runs(path.with_name("ran")), path)


def of_floats(path: Path) -> None:
    import torch

    torch.save({"input_ids": torch.rand(4)}, path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (bomb, "its parts are compressed"),
        (runs_code, "UnpicklingError"),
        (of_floats, "a tensor of float32"),
        (lambda path: path.write_bytes(b"nothing"), "not a file of torch.save"),
        (lambda path: (of_torch(path), path.write_bytes(path.read_bytes()[:-50])), "not a file of torch.save"),
    ],
    ids=["bomb", "code", "floats", "nothing", "cut"],
)
def test_tensors_that_are_none(tmp_path, make, said):
    make(tmp_path / "chunk_00000.pt")
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "chunk_00000.pt", tmp_path / "store", eos=7)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("raw", [b"", b"\xff" * 20, b"\x02" + b"\0" * 7 + b"{}", b"\x05" + b"\0" * 7 + b"[1,2]"])
def test_safetensors_that_are_none(tmp_path, raw):
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(InputError, match="not a safetensors file with a tensor input_ids"):
        tm.import_tokens(tmp_path / "a.safetensors", tmp_path / "store", eos=7)


def test_ids_beyond_the_vocabulary(tmp_path):
    np.array([1, 2, 300, 7, 3], np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(InputError, match=r"train\.bin: id 300 at token 2 is not one of the 25[0-9]"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", tokenizer="bytes", eos=7)
    assert len(tm.import_tokens(tmp_path / "train.bin", tmp_path / "free", eos=7, dtype="uint16")) == 2


def test_negative_ids(tmp_path):
    pq.write_table(pa.table({"input_ids": [[1, -1], [2]]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="id -1 at token 1"):
        tm.import_tokens(tmp_path / "a.parquet", tmp_path / "store")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"text": ["a"]}, "no column input_ids; it has text"),
        ({"input_ids": ["a"]}, "a column of string"),
        ({"input_ids": [[True]]}, "a column of list<"),
        ({"input_ids": [[1.5]]}, "a column of list<"),
        ({"input_ids": [[1], None]}, "a null in input_ids"),
        ({"input_ids": [[1, None]]}, "a null in input_ids"),
    ],
)
def test_tables_without_ids(tmp_path, table, said):
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "a.parquet", tmp_path / "store")


def test_no_borders_and_no_eos(tmp_path):
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(UsageError, match="do not say where documents end: give the eos token"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", dtype="uint16")


@pytest.mark.parametrize("name", ["missing", "notes.txt", "."])
def test_what_is_no_format(tmp_path, name):
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(InputError, match=r"no such file|none of the formats"):
        tm.import_tokens(tmp_path / name, tmp_path / "store")


def test_another_store_is_left_alone(store, tmp_path):
    tm.export(store, tmp_path / "out", format="megatron")
    np.array([1, 7], np.uint16).tofile(tmp_path / "train.bin")
    mine = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", eos=7, dtype="uint16")
    with pytest.raises(MismatchError, match="holds another store"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store")
    assert tm.open(tmp_path / "store").fingerprint == mine.fingerprint


def test_the_same_import_again(store, tmp_path):
    tm.export(store, tmp_path / "out", format="megatron")
    tm.import_tokens(tmp_path / "out", tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*.npy")}
    assert tm.import_tokens(tmp_path / "out", tmp_path / "store").fingerprint == store.fingerprint
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*.npy")} == before


def test_a_list_that_is_too_large_to_be_true(tmp_path):
    """A small gzip file that says of itself that it is enormous is read line by line, and stops at the first wrong one."""
    np.array([1, 7], np.uint16).tofile(tmp_path / "a.npy")
    with gzip.open(tmp_path / "a.csv.gz", "wb") as out:
        out.write(b"0,2,0,,0\n" * 1_000_000)
    with pytest.raises(InputError, match="document 1 is said to be at 0 to 2"):
        tm.import_tokens(tmp_path / "a.npy", tmp_path / "store")


def test_errors_are_tokenmills_own(store, tmp_path):
    """A byte changed anywhere in an index gives an error or other documents, never a traceback of something else."""
    tm.export(store, tmp_path / "out", format="megatron")
    (tmp_path / "out" / RECEIPT).unlink()
    raw = (tmp_path / "out" / "train.idx").read_bytes()
    draw = np.random.default_rng(0)
    for number, at in enumerate(draw.integers(0, len(raw), 150).tolist()):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << int(draw.integers(8))
        (tmp_path / "out" / "train.idx").write_bytes(damaged)
        try:
            found = tm.import_tokens(tmp_path / "out", tmp_path / str(number), eos=EOS)
        except TokenmillError:
            continue
        assert found.num_tokens == store.num_tokens


# --- exports of tokenmill that are not what they were ---------------------------------------------------------------------


def unfinished(folder: Path) -> None:
    (folder / JOURNAL).touch()
    (folder / RECEIPT).unlink()


def without_a_file(folder: Path) -> None:
    max(folder.rglob("*.parquet")).unlink()


def with_another_file(folder: Path) -> None:
    path = next(folder.rglob("*.parquet"))
    shutil.copy(path, path.with_name("other.parquet"))


def with_other_facts(**facts: object) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        receipt = json.loads((folder / RECEIPT).read_text())
        del receipt["checksum"]
        receipt["facts"] |= facts
        (folder / RECEIPT).write_bytes(sealed(receipt))

    return forge


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (unfinished, "an export that was not finished"),
        (without_a_file, "it belongs to the export"),
        (with_another_file, "not part of the export"),
        (cut_short("*.parquet", 10), "where [0-9]+ were written"),
        (with_other_facts(dtype="foo"), "metadata of the export is inconsistent"),
        (with_other_facts(tokenizer={}), "metadata of the export is inconsistent"),
        (with_other_facts(tokenizer=5), "corrupt or in another format"),
        (with_other_facts(eos="x"), "metadata of the export is inconsistent"),
        (with_other_facts(splits={"train": {"tokens": "many"}}), "metadata of the export is inconsistent"),
        (with_other_facts(shard_documents=[-3, 9]), "metadata of the export is inconsistent"),
        (with_other_facts(shard_documents="abc"), "metadata of the export is inconsistent"),
        (with_other_facts(splits={"train": {"documents": 1, "tokens": 1}}), "where the export has 1"),
    ],
)
def test_an_export_that_was_changed(store, tmp_path, change, said):
    tm.export(store, tmp_path / "out", format="parquet", tokens_per_file=10_000)
    change(tmp_path / "out")
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "out", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_another_tokenizer_or_eos_than_exported(store, tmp_path, tokenizer_path):
    tm.export(store, tmp_path / "out", format="megatron")
    with pytest.raises(MismatchError, match="was exported with the tokenizer bytes"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", tokenizer=tokenizer_path)
    with pytest.raises(UsageError, match="was exported with eos 7"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", eos=5)


def test_a_folder_with_something_in_it_is_left_alone(store, tmp_path):
    tm.export(store, tmp_path / "out", format="megatron")
    for folder in (tmp_path / "out", tmp_path):
        before = sorted(folder.rglob("*"))
        with pytest.raises(UsageError, match="is not empty"):
            tm.import_tokens(tmp_path / "out", folder)
        assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("offsets", [[0, 2, 1_500_000_000], [0, 2222, 2], [-50, 2, 4]])
def test_lists_with_forged_offsets(tmp_path, offsets):
    table = pa.table({"input_ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32()))})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    raw = (tmp_path / "a.arrow").read_bytes()
    right = np.array([0, 2, 4], "<i4").tobytes()
    assert raw.count(right) == 1
    (tmp_path / "a.arrow").write_bytes(raw.replace(right, np.array(offsets, "<i4").tobytes()))
    with pytest.raises(InputError, match=r"a\.arrow"):
        tm.import_tokens(tmp_path / "a.arrow", tmp_path / "store")


def test_an_index_that_wraps_around(tmp_path):
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "a.ds")
    np.array([2**63 - 1, 2**64 - 2, 10], "<u8").tofile(tmp_path / "a.ds.index")
    with pytest.raises(InputError, match=r"a\.ds\.index"):
        tm.import_tokens(tmp_path / "a.ds", tmp_path / "store")


def test_a_tensor_larger_than_its_file(tmp_path):
    import torch

    torch.save(torch.zeros(1, dtype=torch.int32).expand(50_000_000), tmp_path / "a.pt")
    with pytest.raises(InputError, match="larger than its file"):
        tm.import_tokens(tmp_path / "a.pt", tmp_path / "store", eos=7)


@pytest.mark.parametrize(
    "index",
    [
        {"shards": [{"format": "mds", "column_names": ["tokens"]}]},
        {"shards": [{"format": "mds", "column_names": ["tokens"], "raw_data": 5}]},
        {"chunks": [{"filename": "a\\0b"}], "config": {"data_format": 5}},
        {"chunks": [{"filename": "a"}], "config": {"data_format": ["no_header_tensor:x"]}},
    ],
)
def test_forged_indexes(tmp_path, index):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"aaaa")
    (tmp_path / "in" / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError):
        tm.import_tokens(tmp_path / "in", tmp_path / "store")


def test_killed_imports(store, tmp_path):
    """The next import gives the same store; a folder that is being imported is not taken for one."""
    tm.export(store, tmp_path / "out", format="megatron")

    def run(folder: Path) -> None:
        tm.import_tokens(tmp_path / "out", folder)

    calls = count_calls(lambda: run(tmp_path / "whole"), tmp_path / "whole")
    right = {path.name: path.read_bytes() for path in (tmp_path / "whole" / "shards").iterdir()}
    for moment in range(1, calls + 1, max(1, calls // 20)):
        folder = tmp_path / str(moment)
        die_at(moment, partial(run, folder), folder)
        run(folder)
        assert tm.open(folder).fingerprint == store.fingerprint
        assert {path.name: path.read_bytes() for path in (folder / "shards").iterdir()} == right
