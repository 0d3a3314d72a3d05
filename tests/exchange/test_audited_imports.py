"""Imports that would give other tokens than were written: found by what the ids look like, and by the checksums of exports."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wrong_inputs import outcome, raw_ids

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import CorruptError, InputError, MismatchError, StoreError, UsageError
from tokenmill.exchange import imported_shards
from tokenmill.exchange.output import RECEIPT, read_receipt
from tokenmill.exchange.registry import FORMATS
from tokenmill.testing.exchange import EOS, contents, make_store, some_documents


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("audited") / "made", some_documents(250), "uint16")


def flat(path: Path, dtype: str = "uint16", count: int = 4000, largest: int = 250) -> list[int]:
    """A file of ids alone, with an eos at the end of every 100."""
    ids = np.random.default_rng(0).integers(8, largest, count)
    ids[99::100] = EOS
    ids.astype(dtype).tofile(path)
    return ids.tolist()


def large_tokenizer(folder: Path, size: int) -> Path:
    """A tokenizer with so many ids, the last one of which is eos."""
    folder.mkdir()
    vocabulary = {"<unk>": 0, **{f"w{i}": i for i in range(1, size - 1)}, "</s>": size - 1}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    added = {"id": size - 1, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}  # fmt: skip
    body = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(body))
    return folder


# --- the dtype of flat files ---


def test_the_tokenizer_decides_the_dtype(tmp_path):
    size = 70_000
    ids = np.random.default_rng(0).integers(1, size - 1, 3000)
    ids[99::100] = size - 1
    ids.astype(np.uint32).tofile(tmp_path / "train.bin")
    tokenizer = large_tokenizer(tmp_path / "tokenizer", size)
    store = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", tokenizer=tokenizer)
    assert (store.num_tokens, len(store), str(store.dtype)) == (3000, 30, "uint32")
    assert np.concatenate(list(store)).tolist() == ids.tolist()


def test_an_eos_of_more_than_16_bits_decides_it_too(tmp_path):
    np.array([70_000, 5, 100_000] * 20, np.uint32).tofile(tmp_path / "train.bin")
    store = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", eos=100_000)
    assert [ids.tolist() for ids in store] == [[70_000, 5, 100_000]] * 20


def test_nothing_decides_it(tmp_path):
    flat(tmp_path / "train.bin")
    with pytest.raises(UsageError, match=r"train\.bin does not say its dtype: give --dtype"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", eos=EOS)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("dtype", ["uint32", "int64", ">u4"])
def test_wide_ids_are_not_taken_for_narrow_ones(tmp_path, dtype):
    """A small vocabulary says uint16, and every second value of the file is 0."""
    flat(tmp_path / "train.bin", dtype)
    with pytest.raises(
        InputError, match=r"train\.bin: every second id is 0, as if wider ids are read as uint16: give --dtype"
    ):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", tokenizer="bytes", eos=EOS)
    if dtype == ">u4":  # then ids are beyond the vocabulary, too
        return
    with pytest.warns(UserWarning, match="every second id is 0"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", tokenizer="bytes", eos=EOS, dtype="uint16")


def test_a_second_file_of_another_dtype(tmp_path):
    flat(tmp_path / "train.bin")
    flat(tmp_path / "val.bin", "uint32")
    with pytest.raises(InputError, match=r"val\.bin: every second id is 0"):
        tm.import_tokens(tmp_path, tmp_path / "store", tokenizer="bytes", eos=EOS)


# --- a store that is damaged ---


@pytest.mark.parametrize("format", [{"format": "nanogpt"}, {"format": "hf"}, {"format": "hf", "seq_len": 50}])
def test_a_damaged_store_is_not_exported(tmp_path, format):
    """A copy of the damage would have a checksum of its own, and would be kept when the store is repaired."""
    made = make_store(tmp_path / "made", some_documents(250), "uint16")
    rows = tm.pack(made, 50)
    ids = made.path / "shards" / f"{made._manifest.shard_ids[0]}.npy"
    body = bytearray(ids.read_bytes())
    body[200] ^= 1
    ids.write_bytes(body)
    for data, options in ((made, format), (rows, {"format": "parquet"})):
        with pytest.raises(CorruptError, match=rf"{ids.name} is damaged .*tokenmill verify .* --repair"):
            tm.export(data, tmp_path / "out", **options)
        assert not read_receipt(tmp_path / "out")


def test_flat_files_of_a_store_without_eos(tmp_path):
    """The remedy is not an eos, which is refused for an export."""
    store = tm.build(["one", "two"], "bytes", tmp_path / "made", eos="none", workers=0, progress="quiet")
    tm.export(store, tmp_path / "out", format="nanogpt")
    with pytest.raises(UsageError, match="do not say where documents end: its store has no eos: export it in a format"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store")
    tm.export(store, tmp_path / "megatron", format="megatron")
    assert tm.import_tokens(tmp_path / "megatron", tmp_path / "store").fingerprint == store.fingerprint


def test_text_of_an_import_without_a_tokenizer(tmp_path):
    flat(tmp_path / "train.bin")
    store = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", eos=EOS, dtype="uint16")
    with pytest.raises(
        StoreError, match=r"import its ids with their tokenizer, or decode them with tm\.load_tokenizer$"
    ):
        store.text(0)


# --- files of a folder ---


def test_files_are_read_by_their_numbers(tmp_path):
    """Text goes on from chunk to chunk, and chunk_10 is not the second one."""
    whole = [flat(tmp_path / f"train_{number}.bin", largest=240 + number) for number in range(12)]
    store = tm.import_tokens(tmp_path, tmp_path / "store", tokenizer="bytes", eos=EOS, format="nanogpt")
    assert [Path(name).name for name in store.splits["train"]] == [f"train_{number}.bin" for number in range(12)]
    assert np.concatenate(list(store)).tolist() == [id for ids in whole for id in ids]


def test_files_without_ids(tmp_path):
    (tmp_path / "train.bin").touch()
    with pytest.raises(InputError, match="holds no ids"):
        tm.import_tokens(tmp_path, tmp_path / "store", tokenizer="bytes")
    assert not (tmp_path / "store").exists()
    ids = flat(tmp_path / "val.bin")
    with pytest.warns(UserWarning, match=r"no ids are in train\.bin"):
        store = tm.import_tokens(tmp_path, tmp_path / "store", tokenizer="bytes", eos=EOS)
    assert np.concatenate(list(store)).tolist() == ids


def test_files_that_say_other_dtypes(tmp_path):
    """The store takes the wider one."""
    for name, largest, dtype in (("a", 250, "uint16"), ("b", 200_000, "uint32")):
        made = make_store(tmp_path / name, some_documents(largest, 20), dtype)
        tm.export(made, tmp_path / f"out-{name}", format="megatron")
        for path in (tmp_path / f"out-{name}").glob("train.*"):
            (tmp_path / "both").mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / "both" / f"{name}{path.suffix}")
    store = tm.import_tokens(tmp_path / "both", tmp_path / "store", eos=EOS)
    assert [ids.tolist() for ids in store] == some_documents(250, 20) + some_documents(200_000, 20)


def test_a_dtype_that_the_file_contradicts(store, tmp_path):
    tm.export(store, tmp_path / "out", format="llmc")
    (tmp_path / "out" / RECEIPT).unlink()
    with pytest.raises(UsageError, match=r"its ids are uint16, as it says: leave out --dtype"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", dtype="uint32", eos=EOS)


def test_an_eos_that_no_id_can_be(tmp_path):
    flat(tmp_path / "train.bin")
    with pytest.raises(UsageError, match="eos=70000 is not an id of uint16: change it, or --dtype"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", dtype="uint16", eos=70_000)


@pytest.mark.parametrize(
    "head",
    [b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"version https://git-lfs", b"\x1f\x8b\x08\x00",
     (20240520).to_bytes(4, "little"), (20240801).to_bytes(4, "little")],
)  # fmt: skip
def test_other_files_are_not_ids_alone(tmp_path, head):
    (tmp_path / "train.bin").write_bytes(head + bytes(range(250)) * 4 + bytes(len(head) % 2))
    with pytest.raises(InputError, match=r"train\.bin does not hold ids alone"):
        tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", format="nanogpt", dtype="uint16", eos=EOS)


@pytest.mark.parametrize("seed", range(8))
def test_raw_ids_in_one_way_wrong(tmp_path, seed):
    assert outcome(raw_ids(Random(seed)), tmp_path) == ""


def test_the_command_uses_its_tokenizer(tmp_path, capsys):
    flat(tmp_path / "train.bin", largest=400)
    assert main(["import", str(tmp_path / "train.bin"), str(tmp_path / "store"), "-t", "bytes", "--eos", str(EOS)]) == 1
    assert "is not one of the 25" in capsys.readouterr().err
    flat(tmp_path / "train.bin")
    assert main(["import", str(tmp_path / "train.bin"), str(tmp_path / "store"), "-t", "bytes", "--eos", str(EOS)]) == 0
    assert tm.open(tmp_path / "store").tokenizer.name == "bytes"


# --- what imports say about the tokens ---


def test_what_is_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(imported_shards, "REMEMBERED", 4096)
    draw = np.random.default_rng(0)
    documents = [[257, *draw.integers(8, 200, int(n)).tolist(), EOS] for n in draw.integers(8, 2000, 400)]
    documents[9:11] = [[9, EOS], [9, EOS]]  # too short to count
    documents[7] = documents[7][:-1]
    documents += [[5, *documents[0]], documents[3], documents[3], [], documents[390]]
    pq.write_table(pa.table({"input_ids": documents}), tmp_path / "a.parquet")
    assert main(["import", str(tmp_path / "a.parquet"), str(tmp_path / "store"), "-t", "bytes", "--eos", str(EOS)]) == 0
    audit = tm.open(tmp_path / "store")._manifest.source["audit"]
    used = len({i for each in documents for i in each})
    vocabulary = tm.open(tmp_path / "store").tokenizer.vocab_size
    bos = tm.load_tokenizer("bytes").bos_id
    assert audit == {
        "documents": 404,
        "with_bos": sum(each[:1] == [bos] for each in documents),
        "with_eos": 403,
        "repeated": 3,
        "unused_ids": vocabulary - used,
    }
    said = capsys.readouterr().out.replace("\n", " ")
    assert f"end with eos, 0.74% repeat an earlier one; {vocabulary - used} unused ids" in said


def test_repeats_across_blocks_of_a_flat_file(tmp_path, monkeypatch):
    """Documents of flat files are cut by blocks; those within a block are compared with all before."""
    monkeypatch.setattr("tokenmill.exchange.formats.base.READ_TOKENS", 64)
    draw = np.random.default_rng(0)
    documents = [[*draw.integers(8, 250, 11).tolist(), EOS] for _ in range(64)] * 2
    np.array([i for each in documents for i in each], np.uint16).tofile(tmp_path / "train.bin")
    with pytest.warns(UserWarning, match=r"of its documents repeat an earlier one"):
        store = tm.import_tokens(tmp_path / "train.bin", tmp_path / "store", tokenizer="bytes", eos=EOS)
    audit = store._manifest.source["audit"]
    assert (audit["documents"], audit["with_eos"]) == (128, 128)
    assert 48 <= audit["repeated"] <= 64  # every sixth lies on the border of two blocks


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([[1, 2, 3]] * 2 + [[9, 8, 4], [5, 5]], "0% of its documents end with eos 7"),
        ([[i, i + 1, EOS] for i in range(8, 90)] + [[i, 3] for i in range(8, 90)], "50.00% of its documents end with eos 7"),
        ([[i % 50 + 8] * 9 + [EOS] for i in range(100)], "50.00% of its documents repeat an earlier one"),
        ([[bos, i, EOS] for i in range(100) for bos in (8, 257)], "50.00% of its documents begin with bos 257"),
    ],
)  # fmt: skip
def test_what_is_suspicious(tmp_path, documents, said):
    if "bos 257" in said:
        bos = tm.load_tokenizer("bytes").bos_id
        documents, said = [[bos if i == 257 else i for i in each] for each in documents], said.replace("257", str(bos))
    pq.write_table(pa.table({"input_ids": documents}), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match=rf"a\.parquet: {said}"):
        tm.import_tokens(tmp_path / "a.parquet", tmp_path / "store", tokenizer="bytes", eos=EOS)


def test_ids_of_a_smaller_tokenizer(tmp_path):
    ids = flat(tmp_path / "train.bin", "uint32", 10_000, 40)
    tokenizer = large_tokenizer(tmp_path / "tokenizer", 100)
    with pytest.warns(UserWarning, match="its largest id is 39 of 100: is it another tokenizer"):
        store = tm.import_tokens(
            tmp_path / "train.bin", tmp_path / "store", tokenizer=tokenizer, eos=EOS, dtype="uint32"
        )
    assert store.num_tokens == len(ids)


# --- exports that are not as they were written ---


@pytest.mark.parametrize("name", FORMATS)
def test_one_changed_byte_of_an_export(store, tmp_path, name):
    rows = {} if "documents" in FORMATS[name].takes else {"seq_len": 64}
    tm.export(store, tmp_path / "out", format=name, **rows)
    before = contents(tmp_path / "out")
    file = max((each for each in before if not each.startswith("tokenizer")), key=lambda each: len(before[each]))
    path = tmp_path / "out" / file
    times = path.stat()
    raw = bytearray(before[file])
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if not rows:
        with pytest.raises(InputError, match=rf"{file} has changed since it was exported"):
            tm.import_tokens(tmp_path / "out", tmp_path / "again")
        assert not (tmp_path / "again").exists()
    assert tm.export(store, tmp_path / "out", format=name, **rows).written >= 1
    assert contents(tmp_path / "out") == before


def test_one_changed_byte_of_a_lone_file(store, tmp_path):
    tm.export(store, tmp_path / "out", format="nanogpt")
    path = tmp_path / "out" / "train.bin"
    path.write_bytes(b"\x09" + path.read_bytes()[1:])
    with pytest.raises(InputError, match=r"train\.bin has changed since it was exported"):
        tm.import_tokens(path, tmp_path / "again", tokenizer="bytes", eos=EOS)


def test_a_copied_export_is_kept(store, tmp_path):
    """Its times are new; its bytes are the same."""
    tm.export(store, tmp_path / "out", format="megatron")
    shutil.copytree(tmp_path / "out", tmp_path / "copy", copy_function=shutil.copyfile)
    assert tm.export(store, tmp_path / "copy", format="megatron").written == 0


def mds_without_receipt(store: tm.Store, folder: Path) -> dict:
    tm.export(store, folder, format="mds", tokens_per_file=10_000)
    (folder / RECEIPT).unlink()
    return json.loads((folder / "index.json").read_text())


def other_samples(index: dict) -> None:
    index["shards"][0]["samples"] += 1


def other_version(index: dict) -> None:
    index["shards"][0]["version"] = 3


def other_version_of_all(index: dict) -> None:
    index["version"] = 1


def twice(index: dict) -> None:
    index["shards"].append(index["shards"][0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_samples, r"shard\.00000\.mds: [0-9]+ samples where the index says"),
        (other_version, r"index\.json: version 3 of MDS, of which 2 can be read"),
        (other_version_of_all, r"index\.json: version 1 of MDS"),
        (twice, r"its index lists shard\.00000\.mds twice"),
    ],
)
def test_what_an_index_of_mds_says(store, tmp_path, change, said):
    index = mds_without_receipt(store, tmp_path / "out")
    change(index)
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", tokenizer="bytes", eos=EOS)


def test_what_an_index_of_litdata_says(store, tmp_path):
    tm.export(store, tmp_path / "out", format="litdata")
    (tmp_path / "out" / RECEIPT).unlink()
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    index["chunks"][0]["chunk_size"] -= 1
    (tmp_path / "out" / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"300 samples where the index says 299"):
        tm.import_tokens(tmp_path / "out", tmp_path / "store", tokenizer="bytes", eos=EOS)


# --- another store under the same name ---


@pytest.mark.parametrize("rows", [{}, {"seq_len": 64}], ids=["documents", "rows"])
def test_an_export_of_another_store_is_left_alone(store, tmp_path, rows):
    other = make_store(tmp_path / "other", some_documents(250, 20), "uint16")
    tm.export(store, tmp_path / "out", format="parquet", **rows)
    before = contents(tmp_path / "out")
    with pytest.raises(
        MismatchError, match="out holds an export of another store: choose another folder, or remove it"
    ):
        tm.export(other, tmp_path / "out", format="parquet", **rows)
    assert contents(tmp_path / "out") == before
    assert tm.export(store, tmp_path / "out", format="parquet", seq_len=32).written  # the same store in another way


def test_a_store_that_was_moved_or_has_grown_is_the_same(tmp_path):
    source = str(tmp_path / "*.jsonl")
    (tmp_path / "a.jsonl").write_text('{"text": "words"}\n' * 300)
    tm.export(tm.build(source, "bytes", tmp_path / "store", progress="quiet"), tmp_path / "out", format="nanogpt")
    shutil.move(tmp_path / "store", tmp_path / "moved")
    tm.export(tmp_path / "moved", tmp_path / "out", format="nanogpt")
    (tmp_path / "b.jsonl").write_text('{"text": "other words"}\n' * 300)
    grown = tm.build(source, "bytes", tmp_path / "moved", progress="quiet")
    assert tm.export(grown, tmp_path / "out", format="nanogpt").written
    assert tm.import_tokens(tmp_path / "out", tmp_path / "again").num_tokens == grown.num_tokens
