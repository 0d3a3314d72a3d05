"""Layouts people have: folders of Hugging Face `datasets`, and files and folders named after splits."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading_files import table_of, write_arrow

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import InputError, MismatchError, UsageError
from tokenmill.split_names import files_by_split

INFO = {"citation": "", "description": "", "features": {"text": {"dtype": "string", "_type": "Value"}}, "license": ""}
QUIET = {"workers": 0, "progress": "quiet"}


def save_to_disk(folder, files: dict[str, list[str]], **state):
    """A dataset as `Dataset.save_to_disk` writes it: Arrow streams, and two files that describe them."""
    folder.mkdir(parents=True)
    for name, texts in files.items():
        write_arrow(folder / name, table_of(texts), stream=True)
    (folder / "dataset_info.json").write_text(json.dumps(INFO, indent=2))
    names = [{"filename": name} for name in files]
    rest = {"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False}
    state = {"_data_files": names, "_fingerprint": "0ff9c653fe60de94", **rest, "_split": None, **state}
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    return folder


def save_dict(folder, splits: dict[str, list[str]]):
    """The same for `DatasetDict.save_to_disk`."""
    for split, texts in splits.items():
        save_to_disk(folder / split, {"data-00000-of-00001.arrow": texts})
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


def ignored(source) -> dict[str, str]:
    return {path.rpartition("/")[2]: reason for path, reason in source.ignored}


def texts(store) -> list[str]:
    return [bytes(ids.tolist()).decode() for ids in store]


def build(source, out=None, **options):
    return tm.build(source, "bytes", out, eos="none", **QUIET, **options)


# Datasets that were saved to disk


def test_a_saved_dataset_is_built_as_it_is(tmp_path):
    files = {"data-00000-of-00002.arrow": ["one", "two"], "data-00001-of-00002.arrow": ["three"]}
    folder = save_to_disk(tmp_path / "saved", files)
    for name in ("README.md", "LICENSE", ".gitattributes"):
        (folder / name).write_text("words")
    write_arrow(folder / "cache-0123456789abcdef.arrow", table_of(["a copy"]), stream=True)
    write_arrow(folder / "data-00000-of-00001.arrow", table_of(["of an earlier save"]), stream=True)
    store = build(folder, tmp_path / "out")
    assert texts(store) == ["one", "two", "three"]
    assert store._manifest.quarantined == {}
    assert {path.rpartition("/")[2]: reason for path, reason in store._manifest.source["ignored"]} == {
        "dataset_info.json": "description of a dataset",
        "state.json": "description of a dataset",
        "README.md": "description of a dataset",
        "LICENSE": "description of a dataset",
        ".gitattributes": "hidden",
        "cache-0123456789abcdef.arrow": "cache file of a dataset",
        "data-00000-of-00001.arrow": "not listed in the state.json of the dataset",
    }


def test_what_the_library_saves_is_built_as_it_is(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict({"text": ["one", "two", "three", "four"]})
    chosen = whole.select([3, 1, 0])  # rows are rearranged when it is saved
    chosen.save_to_disk(tmp_path / "one", num_shards=2)
    datasets.DatasetDict({"train_sft": chosen, "extra": whole}).save_to_disk(tmp_path / "two")
    assert texts(build(tmp_path / "one")) == ["four", "two", "one"]
    assert texts(build(tmp_path / "two", split="train_sft")) == ["four", "two", "one"]


def test_the_files_of_a_saved_dataset_are_read_in_the_order_of_its_list(tmp_path):
    """Names of more than 100,000 files do not sort as numbers."""
    files = {"data-99999-of-100001.arrow": ["first"], "data-100000-of-100001.arrow": ["second"]}
    assert texts(build(save_to_disk(tmp_path / "saved", files))) == ["first", "second"]


def test_a_file_that_is_listed_but_missing_fails_by_name(tmp_path):
    files = {"data-00000-of-00002.arrow": ["one"], "data-00001-of-00002.arrow": ["two"]}
    folder = save_to_disk(tmp_path / "saved", files)
    (folder / "data-00001-of-00002.arrow").unlink()
    store = build(folder, tmp_path / "out")
    assert [entry["file"] for entry in store.failed] == [str(folder / "data-00001-of-00002.arrow")]
    whole = save_dict(tmp_path / "dict", {"train": ["one"], "test": ["two"]})
    for path in sorted((whole / "test").iterdir()):
        path.unlink()
    (whole / "test").rmdir()
    assert [entry["file"] for entry in build(whole, tmp_path / "out2").failed] == [str(whole / "test/state.json")]
    assert build(whole, tmp_path / "out3", split="train").complete


def test_rows_that_an_old_version_rearranged_in_files_of_their_own_are_refused(tmp_path):
    state = {"_indices_data_files": [{"filename": "indices.arrow"}]}
    folder = save_to_disk(tmp_path / "saved", {"dataset.arrow": ["one"]}, **state)
    with pytest.raises(InputError, match=r"old version of datasets.* save it again"):
        tm.read(folder)


def test_files_that_only_have_the_names_of_descriptions_are_data(tmp_path):
    names = ("dataset_info.json", "state.json", "dataset_dict.json", "dataset_infos.json", "cache-1.arrow")
    for name in names[:-1]:
        (tmp_path / name).write_text('{"text": "x"}\n{"text": "y"}\n')
    write_arrow(tmp_path / names[-1], table_of(["z"]))
    source = tm.read(tmp_path)
    assert [file.path.rpartition("/")[2] for file in source.files] == sorted(names)
    assert source.ignored == ()


def test_a_dataset_of_the_hub(tmp_path):
    """A folder with data/*.parquet, a README and, in older ones, dataset_infos.json."""
    (tmp_path / "hub/data").mkdir(parents=True)
    for split in ("train", "train_sft", "valid"):
        pq.write_table(table_of([split]), tmp_path / f"hub/data/{split}-00000-of-00001.parquet")
    (tmp_path / "hub/README.md").write_text("---\nlicense: mit\n---\n")
    (tmp_path / "hub/dataset_infos.json").write_text(json.dumps({"default": {**INFO, "splits": {}}}))
    source = tm.read(tmp_path / "hub")
    assert len(source.files) == 3
    assert ignored(source) == {
        "README.md": "not a data file (.md)",
        "dataset_infos.json": "description of a dataset",
    }
    assert list(build(source).splits) == ["train", "train_sft", "validation"]


# Splits


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        (["train.jsonl", "valid.jsonl", "other.jsonl"], {"train": [0], "validation": [1]}),
        (["a/dev-00.txt", "a/My_Training.txt", "a/eval2.csv.gz"], {"validation": [0], "train": [1], "test": [2]}),
        (["validation/train.txt", "train/test_cases/b.txt", "c.txt"], {"validation": [0], "train": [1]}),
        (["contest.txt", "latest/trainer.txt", "devices/evaluate.txt"], {}),
        (["data/train_sft-00000-of-00002.parquet", "data/dev-00000-of-00001.parquet"], {"train_sft": [0], "validation": [1]}),
        (["train_sft/data-00000-of-00001.arrow", "val/data-00000-of-00001.arrow"], {"train_sft": [0], "val": [1]}),
        (["wiki-train/data-00000-of-00001.arrow", "b/x.txt"], {"train": [0]}),
    ],
)  # fmt: skip
def test_the_split_of_a_file(files, splits):
    """As `datasets` finds them. A folder that all files share says nothing, unless it is the only one that says something."""
    for root in ("", "/home/dev/", "/srv/test/data-1/"):
        found = files_by_split([root + name for name in files])
        if splits or not root:
            assert found == {split: [root + files[i] for i in numbers] for split, numbers in splits.items()}


def test_the_folder_that_all_files_share_names_their_split_if_nothing_else_does():
    assert files_by_split(["/c/train/a.txt", "/c/train/en/b.txt"]) == {"train": ["/c/train/a.txt", "/c/train/en/b.txt"]}
    assert files_by_split(["/c/train/a.txt", "/c/train/dev.txt"]) == {"validation": ["/c/train/dev.txt"]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The same documents as a saved DatasetDict, as files and as folders."""
    root = tmp_path_factory.mktemp("corpus")
    parts = {"train": ["one", "two"], "validation": ["three"]}
    save_dict(root / "dict", parts)
    for split, documents in parts.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
        for path in (root / f"files/{split[:5]}.jsonl", root / f"folders/{split}/0.jsonl"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(lines)
    return root


@pytest.mark.parametrize("layout", ["dict", "files", "folders"])
def test_one_store_holds_all_splits_and_rows_are_made_from_one(corpus, tmp_path, layout):
    store = build(corpus / layout, tmp_path / "out")
    assert sorted(texts(store)) == ["one", "three", "two"]
    assert list(store.splits) == ["train", "validation"]

    def rows(view) -> list[str]:
        return [bytes(row["input_ids"].tolist()).decode().rstrip("\0") for row in view]

    for split, expected in (("train", ["one", "two"]), ("validation", ["three"]), ("val", ["three"])):
        assert rows(tm.pack(store, 8, strategy="pad", split=split)) == expected
        loader = tm.load(store, 1, seq_len=8, strategy="pad", split=split, shuffle=False, epochs=1, drop_last=False)
        assert len(list(loader)) == len(expected)
    views = tm.pack(store, 8, strategy="pad", split="all").split(by="name")
    assert {name: rows(view) for name, view in views.items()} == {"train": ["one", "two"], "validation": ["three"]}
    assert rows(tm.pack(store, 8, strategy="pad", split="all").split(by="name", held_out="valid")["held_out"]) == [
        "three"
    ]
    with pytest.raises(UsageError, match=r"has no split 'test'; it has train, validation"):
        tm.pack(store, 8, split="test")
    with pytest.raises(UsageError, match="splits must be disjoint"):
        tm.pack(store, 8, split="all").split(by="name", a="valid", b="dev")


@pytest.mark.parametrize("layout", ["dict", "files", "folders"])
def test_one_split_is_built(corpus, tmp_path, layout):
    source = tm.read(corpus / layout, split="valid")
    assert source.ignored_by_reason["another split"] == 1
    store = build(source, tmp_path / "out")
    assert texts(store) == ["three"]
    assert len(tm.pack(store, 8, split="validation")) == 1
    with pytest.raises(UsageError, match=r"has no split 'test'; it has train, validation"):
        tm.read(corpus / layout, split="test")


def test_the_store_of_one_split_can_be_repaired(corpus, tmp_path):
    build(corpus / "files", tmp_path / "out", split="train")
    shard = next((tmp_path / "out/shards").glob("*.ends.npy"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    assert main(["verify", str(tmp_path / "out"), "--repair"]) == 0
    assert texts(tm.open(tmp_path / "out")) == ["one", "two"]


def test_a_folder_is_not_turned_into_another_split(corpus, tmp_path):
    """Files may be added to a store; leaving out what it has needs another folder, or --force."""
    build(corpus / "files", tmp_path / "out", split="train")
    assert len(build(corpus / "files", tmp_path / "out")) == 3
    with pytest.raises(MismatchError, match="split: was all, now validation"):
        build(corpus / "files", tmp_path / "out", split="validation")


def test_splits_of_the_same_input_are_different_builds_in_the_cache(corpus, tmp_path):
    for _ in range(2):
        for split, count in (("train", 2), ("validation", 1), (None, 3)):
            assert len(build(corpus / "files", cache_dir=tmp_path / "cache", split=split)) == count


def test_splits_of_a_dataset_that_is_passed_as_an_object(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = {"train": ["one", "two"], "extra": ["three"]}
    made = datasets.DatasetDict({name: datasets.Dataset.from_dict({"text": rows}) for name, rows in parts.items()})
    store = build(made, tmp_path / "out")
    assert list(store.splits) == ["train", "extra"]
    assert len(tm.pack(store, 8, strategy="pad", split="extra")) == 1
    assert texts(build(made, tmp_path / "out2", split="extra")) == ["three"]


def test_data_without_splits_says_so(tmp_path):
    table = pa.table({"text": ["one"]})
    with pytest.raises(UsageError, match=r"<table> has no split 'train'; no file or folder has a name such as train"):
        tm.read(table, split="train")
    store = build(table, tmp_path / "out")
    with pytest.raises(UsageError, match="no input file or folder"):
        tm.pack(store, 8).split(by="name")
    with pytest.raises(UsageError, match=r"0\.9 is not the name of a split"):
        tm.pack(store, 8).split(by="name", train=0.9)


# Commands and recipes


def test_the_commands_take_a_split(corpus, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["build", str(corpus / "dict"), "-t", "bytes", "-o", out, "-q", "--workers", "0"]) == 0
    capsys.readouterr()
    assert main(["pack", out, "--seq-len", "8", "--split", "train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 2
    assert main(["pack", out, "--seq-len", "8", "--split", "dev", "--compare", "--json"]) == 0
    assert {each["stats"]["documents"] for each in json.loads(capsys.readouterr().out)} == {1}
    assert main(["pack", out, "--seq-len", "8", "--split", "test"]) == 2
    assert "has no split 'test'; it has train, validation" in capsys.readouterr().err
    one = [
        "build",
        str(corpus / "dict"),
        "-t",
        "bytes",
        "-o",
        f"{out}-1",
        "-q",
        "--workers",
        "0",
        "--split",
        "validation",
    ]
    assert main([*one, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["source"]["split"]) == (1, "validation")
    assert facts["source"]["ignored_by_reason"]["another split"] == 1


def test_a_recipe_takes_splits_by_name(corpus, tmp_path):
    made = {"tokenizer": "bytes", "build": {"workers": 0, "progress": "quiet", "cache_dir": str(tmp_path / "cache")}}
    made |= {"sources": {"web": {"path": str(corpus / "files")}}, "pack": {"seq_len": 8, "strategy": "pad"}}
    recipe = tm.recipe({**made, "split": {"by": "name"}})
    assert {name: len(recipe.view(name)) for name in recipe.splits} == {"train": 2, "validation": 1}
    recipe = tm.recipe({**made, "split": {"by": "name", "train": "train", "eval": "valid"}})
    assert {name: len(recipe.view(name)) for name in recipe.splits} == {"train": 2, "eval": 1}
    made["sources"]["web"]["split"] = "validation"
    assert len(tm.recipe(made).view()) == 1
