"""`tokenmill export` and `tokenmill import`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.exchange.output import RECEIPT
from tokenmill.testing.exchange import EOS, make_store, some_documents


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("commands") / "made", some_documents(250), "uint16")


def test_out_and_in_again(store, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["export", str(store.path), str(out), "--format", "megatron", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["format"], first["written"]) == ("megatron", first["files"])
    assert main(["export", str(store.path), str(out), "--format", "megatron"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert main(["import", str(out), str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    assert store.fingerprint in said
    assert "imported" in said
    assert main(["verify", str(tmp_path / "again")]) == 0
    assert main(["info", str(tmp_path / "again")]) == 0


def test_splits_and_rows(store, tmp_path):
    arguments = ["--shares", "train=0.9,val=0.1", "--seed", "3"]
    assert main(["export", str(store.path), str(tmp_path / "flat"), "--format", "nanogpt", *arguments]) == 0
    sizes = [len(np.memmap(tmp_path / "flat" / f"{name}.bin", np.uint16, "r")) for name in ("train", "val")]
    assert sum(sizes) == store.num_tokens
    assert sizes[1] < sizes[0]
    rows = ["--seq-len", "64", "--strategy", "best_fit", "--fields", "input_ids,labels", "--rows-per-file", "50"]
    assert main(["export", str(store.path), str(tmp_path / "rows"), "--format", "safetensors", *rows]) == 0
    assert len(list((tmp_path / "rows").glob("*.safetensors"))) > 1


def test_tokens_of_another_tool(tmp_path, capsys):
    np.array([5, 6, EOS, 8, EOS, 9], np.uint16).tofile(tmp_path / "train.bin")
    assert main(["import", str(tmp_path / "train.bin"), str(tmp_path / "store"), "--eos", str(EOS), "-t", "bytes"]) == 0
    assert [ids.tolist() for ids in tm.open(tmp_path / "store")] == [[5, 6, EOS], [8, EOS], [9]]
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "store"), "--reencode", "2"]) == 3
    assert "import" in capsys.readouterr().err


def test_errors_have_exit_codes(store, tmp_path, capsys):
    assert main(["export", str(store.path), str(tmp_path), "--format", "pt"]) == 2
    assert "seq_len" in capsys.readouterr().err
    for flag, value in (("--strategy", "concat"), ("--rows-per-file", "5"), ("--dtype", "int64")):
        assert main(["export", str(store.path), str(tmp_path / "out"), "--format", "hf", flag, value]) == 2
        assert f"{flag} ({flag[2:].replace('-', '_')}=...) is for rows: give --seq-len" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "missing"), str(tmp_path / "store")]) == 2
    assert "no such file" in capsys.readouterr().err


SPLIT_FORMATS = ["nanogpt", "llmc", "megatron", "datatrove", "olmo", "mds", "litdata", "parquet", "arrow", "hf"]


@pytest.mark.parametrize("format", SPLIT_FORMATS)
@pytest.mark.parametrize("other", ["eval", "dev"])
def test_train_comes_first(store, tmp_path, format, other):
    """Although its name comes after the others; with and without what the export says about itself."""
    tm.export(store, tmp_path / "out", format=format, shares=f"{other}=0.1,train=0.9")
    for receipt in ("there", "gone"):
        again = tm.import_tokens(tmp_path / "out", tmp_path / receipt, format=format, eos=EOS)
        files = [str(piece["file"]) for shard in range(again.num_shards) for piece in again._pieces(shard)]
        assert ["train" in file.removeprefix(str(tmp_path)) for file in files] == [True, False]
        (tmp_path / "out" / RECEIPT).unlink(missing_ok=True)


def test_the_name_of_a_folder_is_no_split(store, tmp_path, monkeypatch, capsys):
    """A dataset that is given by a relative path."""
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(store.path), "m", "--format", "hf"]) == 0
    assert main(["import", "m", "again"]) == 0
    assert tm.open("again").splits == {}
    assert main(["info", "again"]) == 0
    assert "split" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A store of files of three splits, and one that names none."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "data").mkdir()
    for name, count in (("train", 40), ("valid", 8), ("test", 4), ("more", 10)):
        rows = (json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(count))
        (folder / f"data/{name}.jsonl").write_text("".join(rows))
    return tm.build(folder / "data", "bytes", folder / "store", workers=0, progress="quiet", eos=EOS)


@pytest.mark.parametrize("format", SPLIT_FORMATS)
def test_each_split_is_a_part_of_its_own(named, tmp_path, capsys, format):
    assert main(["export", str(named.path), str(tmp_path / "out"), "--format", format, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    validation = "val" if format in ("nanogpt", "llmc", "mds", "litdata") else "validation"
    assert sorted(json.loads(out)["parts"]) == sorted(["train", validation, "test"])
    facts = json.loads((tmp_path / "out" / RECEIPT).read_text())["facts"]["splits"]
    assert {name: part["documents"] for name, part in facts.items()} == {"train": 50, validation: 8, "test": 4}
    files = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(any(part in name for name in files) for part in facts)
    assert main(["export", str(named.path), str(tmp_path / "all"), "--format", format, "--split", "all"]) == 0
    said = capsys.readouterr()
    assert (f"parts       train: 62 documents, {named.num_tokens} tokens\n" in said.out, said.err) == (True, "")
    again = tm.import_tokens(tmp_path / "all", tmp_path / "again", format=format, eos=EOS)
    assert again.num_tokens == named.num_tokens


def test_rows_of_each_split_and_shares_of_what_is_for_training(named, tmp_path):
    done = tm.export(named, tmp_path / "rows", format="hf", seq_len=16)
    assert sorted(done.parts) == ["test", "train", "validation"]
    assert json.loads((tmp_path / "rows/dataset_dict.json").read_text())["splits"] == list(done.parts)
    with pytest.warns(UserWarning, match="leave out the splits test and validation"):
        tm.export(named, tmp_path / "shares", format="nanogpt", shares="train=0.5,val=0.5")
    facts = json.loads((tmp_path / "shares" / RECEIPT).read_text())["facts"]["splits"]
    assert sum(part["documents"] for part in facts.values()) == 50


def test_a_view_keeps_the_name_of_its_split(named, tmp_path):
    held_out = tm.pack(named, 16, split="validation", fields=["input_ids"])
    views = {
        "validation": held_out,
        "eval": held_out.split(train=0.5, eval=0.5)["eval"],
        "train": tm.pack(named, 16, split="all"),
    }
    for name, view in views.items():
        done = tm.export(view, tmp_path / name, format="parquet")
        assert done.parts == (name,)
        assert (tmp_path / name / f"data/{name}-00000-of-00001.parquet").exists()
