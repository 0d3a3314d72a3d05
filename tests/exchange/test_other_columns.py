"""Labels and attention masks beside the ids of tables and tensors."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import InputError
from tokenmill.testing.exchange import make_store, some_documents

IDS = [[1, 2, 3], [], [4, 5], [6]]


def write(table: dict, folder, format: str):
    """The same table as parquet, as an Arrow file of two batches, or as a dataset."""
    if format == "hf":
        import datasets

        datasets.Dataset.from_dict(table).save_to_disk(str(folder / "hf"))
        return folder / "hf"
    path = folder / f"a.{format}"
    if format == "parquet":
        pq.write_table(pa.table(table), path)
        return path
    made = pa.table(table)
    with pa.ipc.new_file(path, made.schema) as out:
        out.write_table(made, max_chunksize=2)
    return path


def imported(table: dict, folder, format: str) -> tuple[list[list[int]], list[str]]:
    """The documents, and what was said."""
    path = write(table, folder, format)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        store = tm.import_tokens(path, folder / "store")
    assert store.verify() == []
    return [ids.tolist() for ids in store], [str(each.message) for each in seen]


@pytest.mark.parametrize("format", ["parquet", "arrow", "hf"])
@pytest.mark.parametrize(
    ("labels", "differing"),
    [
        (IDS, 0),
        ([[1, -100, 3], [], [4, 5], [6]], 1),
        ([[2, 3, -100], [], [5, -100], [6]], 2),
        ([[1, 2], [9], [4, 5], [6]], 2),  # of another length
        ([None, [], [4, None], [6]], 2),
        ([0, 1, 0, 1], 4),  # of documents, not of positions
    ],
)
def test_labels(tmp_path, format, labels, differing):
    found, said = imported({"input_ids": IDS, "labels": labels}, tmp_path, format)
    assert found == IDS
    assert len(said) == bool(differing)
    if differing:
        number = "1 document differ" if differing == 1 else f"{differing} documents differ"
        assert f"the labels of {number} from input_ids and are not kept" in said[0]


@pytest.mark.parametrize("format", ["parquet", "arrow", "hf"])
@pytest.mark.parametrize("kind", [int, bool])
def test_padding_is_no_tokens(tmp_path, format, kind):
    """On either side; and the labels of padding do not matter."""
    masks = [[1, 1, 0], [], [0, 1], [0]]
    table = {
        "input_ids": IDS,
        "attention_mask": [[kind(value) for value in row] for row in masks],
        "labels": [[1, 2, -100], [], [-100, 5], [-100]],
    }
    assert imported(table, tmp_path, format) == ([[1, 2], [], [5], []], [])


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ([[1, 1], [], [1, 1], [1]], "another number of values"),
        ([[1, 1, 1], [], None, [1]], "a null in attention_mask"),
        ([[[1]], [], [[1]], [[1]]], "attention_mask is a column of list<"),
    ],
)
def test_masks_that_are_none(tmp_path, mask, said):
    pq.write_table(pa.table({"input_ids": IDS, "attention_mask": mask}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=said):
        tm.import_tokens(tmp_path / "a.parquet", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_rows_of_an_export(tmp_path):
    """Rows with a mask come back without their padding; the command says what becomes of labels."""
    store = make_store(tmp_path / "made", some_documents(250, 40), "uint16")
    options = {"seq_len": 600, "strategy": "pad", "fields": ["input_ids", "labels", "attention_mask"]}
    tm.export(store, tmp_path / "out", format="hf", **options)
    with pytest.warns(UserWarning, match="each becomes a document") as seen:
        again = tm.import_tokens(tmp_path / "out", tmp_path / "again")
    assert len(seen) == 1
    assert [ids.tolist() for ids in again] == [ids.tolist() for ids in store]


@pytest.mark.parametrize("format", ["pt", "safetensors"])
@pytest.mark.parametrize("kind", ["int64", "int8", "bool"])
def test_padding_of_tensors_is_no_tokens(tmp_path, format, kind):
    import torch
    from safetensors.torch import save_file

    tensors = {
        "input_ids": torch.tensor([[5, 6, 7, 0], [8, 7, 0, 0]], dtype=torch.int32),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=getattr(torch, kind)),
    }
    path = tmp_path / f"rows.{format}"
    (torch.save if format == "pt" else save_file)(tensors, path)
    store = tm.import_tokens(path, tmp_path / "store", eos=7)
    assert [ids.tolist() for ids in store] == [[5, 6, 7], [8, 7]]
    tensors["attention_mask"] = tensors["attention_mask"][:1].clone()
    (torch.save if format == "pt" else save_file)(tensors, path)
    with pytest.raises(InputError, match="attention_mask has another number of values than input_ids"):
        tm.import_tokens(path, tmp_path / "other", eos=7)


@pytest.mark.parametrize("format", ["pt", "safetensors"])
def test_labels_of_tensors(tmp_path, format):
    import torch
    from safetensors.torch import save_file

    ids = torch.tensor([[5, 6, 7, 0], [8, 7, 0, 0], [9, 9, 7, 7]])
    labels = torch.tensor([[5, 6, 7, -100], [-100, 7, -100, -100], [9, 9, 7, 7]])
    tensors = {"input_ids": ids, "labels": labels, "attention_mask": (ids > 0).to(torch.int8)}
    (torch.save if format == "pt" else save_file)(tensors, tmp_path / f"rows.{format}")
    with pytest.warns(UserWarning, match="the labels of 1 document differ from input_ids and are not kept"):
        tm.import_tokens(tmp_path / f"rows.{format}", tmp_path / "store", eos=7)


@pytest.mark.filterwarnings("default")
def test_the_command_says_it(tmp_path, capsys):
    write({"input_ids": IDS, "labels": [[-100] * len(row) for row in IDS]}, tmp_path, "parquet")
    assert main(["import", str(tmp_path / "a.parquet"), str(tmp_path / "store")]) == 0
    assert "warning: " in (said := capsys.readouterr().err)
    assert "the labels of 3 documents differ from input_ids and are not kept" in said
    assert np.concatenate(list(tm.open(tmp_path / "store"))).tolist() == [1, 2, 3, 4, 5, 6]
