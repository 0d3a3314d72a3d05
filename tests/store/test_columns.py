"""A shard is a set of named columns: a store with two of its own goes through everything a store goes through."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from handmade_stores import as_tokens, flip, write_forged_manifest, write_manifest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.building.publish import sweep
from tokenmill.cli import main
from tokenmill.documents import Tokens
from tokenmill.errors import BuildError, CorruptError, EncodingError, UsageError
from tokenmill.io.atomic import canonical, digest
from tokenmill.store.columns import ColumnSpec, columns_with, shard_of_file
from tokenmill.store.facts import info
from tokenmill.store.integrity import files_are_complete
from tokenmill.store.manifest import read_manifest, store_fingerprint
from tokenmill.store.reuse import PieceReader, link_shard
from tokenmill.store.shard import ShardWriter, content_digest, is_done, read_receipt, sealed
from tokenmill.store.stream import slices

LOSS_MASK = ColumnSpec("loss_mask", "token", "bool")
SCORE = ColumnSpec("score", "document", "float32")
EXTRA = (LOSS_MASK, SCORE)
COLUMNS = columns_with("uint16", EXTRA)
SHARDS = [[[1, 2, 3], [], [4]], [], [[5], [6, 7, 8, 9], [10, 11]]]
FIRST, LAST = f"{0:024x}", f"{2:024x}"
FILES = {"ids": f"{FIRST}.npy", "ends": f"{FIRST}.ends.npy"} | {c.name: f"{FIRST}.{c.name}.npy" for c in EXTRA}


def mask_of(documents) -> list[bool]:
    """A value that depends on the token, so that one in the wrong place shows."""
    return [token % 3 == 0 for document in documents for token in document]


def scores_of(documents) -> list[float]:
    return [sum(document) / 2 for document in documents]


def tokens_of(documents) -> Tokens:
    mask, scores = np.array(mask_of(documents), np.bool_), np.array(scores_of(documents), np.float32)
    return as_tokens(documents, loss_mask=mask, score=scores)


def write(folder: Path, shard_id: str, pieces) -> dict:
    """A shard of several pieces, each a list of documents."""
    writer = ShardWriter(folder / "shards", shard_id, "uint16", EXTRA)
    entries = []
    for documents in pieces:
        writer.append(tokens_of(documents))
        counts = {"documents": len(documents), "tokens": sum(map(len, documents))}
        entries.append({"content": None, "rows": len(documents), **counts})
    return writer.commit(pieces=entries, text_bytes=0)


@pytest.fixture
def folder(tmp_path) -> Path:
    store = tmp_path / "store"
    receipts = [write(store, f"{number:024x}", [documents]) for number, documents in enumerate(SHARDS)]
    write_manifest(store, receipts, extra=EXTRA)
    return store


def assert_holds(store: tm.Store, documents) -> None:
    """Every column of a store is that of these documents."""
    assert [document.tolist() for document in store] == documents
    shards = range(store.num_shards)
    assert [value for shard in shards for value in store.column("loss_mask", shard).tolist()] == mask_of(documents)
    assert [value for shard in shards for value in store.column("score", shard).tolist()] == scores_of(documents)
    assert store.verify() == []


# Writing and reading.


def test_columns_are_plain_files_that_the_receipt_and_the_manifest_list(folder):
    receipt = read_receipt(folder / "shards", LAST)
    assert {name: (e["per"], e["dtype"], e["length"]) for name, e in receipt["columns"].items()} == {
        "ids": ("token", "uint16", 7),
        "ends": ("document", "int64", 3),
        "loss_mask": ("token", "bool", 7),
        "score": ("document", "float32", 3),
    }
    files = {path.name for path in (folder / "shards").glob(f"{LAST}.*")}
    assert files == {f"{LAST}{end}" for end in (".npy", ".ends.npy", ".loss_mask.npy", ".score.npy", ".json")}
    assert np.load(folder / "shards" / f"{LAST}.loss_mask.npy").tolist() == mask_of(SHARDS[2])
    assert np.load(folder / "shards" / f"{LAST}.score.npy").tolist() == scores_of(SHARDS[2])
    assert read_manifest(folder).columns == COLUMNS
    assert [column["name"] for column in info(folder)["columns"]] == ["ids", "ends", "loss_mask", "score"]


def test_columns_are_read_as_they_were_written(folder):
    store = tm.open(folder)
    assert_holds(store, [document for documents in SHARDS for document in documents])
    assert store.column("ids", 2) is store._ids_of(2)
    assert store.column("ends", 2) is store._ends_of(2)
    assert not store.column("score", 0).flags.writeable
    assert_holds(pickle.loads(pickle.dumps(store)), [d for documents in SHARDS for d in documents])  # noqa: S301
    with pytest.raises(UsageError, match="no column 'weights'; its columns are ids, ends, loss_mask, score"):
        store.column("weights", 0)


def test_slices_of_any_token_column(folder):
    """Ranges of the stream, also across shards, are the same tokens in every per-token column."""
    store = tm.open(folder)
    flat = [token for documents in SHARDS for document in documents for token in document]
    starts, lengths = [0, 2, 3, 6], [4, 5, 1, 5]
    for column, expected in (("ids", flat), ("loss_mask", mask_of([flat]))):
        parts = slices(store, starts, lengths, column)
        assert [part.tolist() for part in parts] == [expected[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    with pytest.raises(UsageError, match="no value per token"):
        slices(store, [0], [1], "score")


def test_few_maps_serve_many_shards(folder, monkeypatch):
    """With fewer maps than columns of shards, columns are mapped in turn."""
    monkeypatch.setattr("tokenmill.store.store.OPEN_COLUMNS", 8)
    store = tm.open(folder)
    assert not store._maps_all
    assert_holds(store, [document for documents in SHARDS for document in documents])
    assert [part.tolist() for part in slices(store, [2, 4], [5, 1], "loss_mask")] == [
        mask_of([[3, 4, 5, 6, 7]]),
        [False],
    ]
    assert store.to_arrow(["score"])["score"].to_pylist() == [s for documents in SHARDS for s in scores_of(documents)]


def test_without_a_limit_on_open_files_all_shards_are_mapped(folder, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr("tokenmill.store.store.OPEN_COLUMNS", 100)
    assert tm.open(folder)._most_mapped == 100 // len(tm.open(folder).columns)


def test_a_rollback_covers_every_column(tmp_path):
    """A shard with a rollback in its past is the same files, bit for bit, as one without."""
    write(tmp_path / "one", FIRST, [SHARDS[0], SHARDS[2]])
    writer = ShardWriter(tmp_path / "two/shards", FIRST, "uint16", EXTRA)
    writer.append(tokens_of(SHARDS[0]))
    marks = writer.mark()
    writer.append(tokens_of([[9, 9], [], [8]]))
    writer.rollback(marks)
    writer.append(tokens_of(SHARDS[2]))
    writer.commit(pieces=read_receipt(tmp_path / "one/shards", FIRST)["pieces"], text_bytes=0)
    for path in (tmp_path / "one/shards").iterdir():
        assert path.read_bytes() == (tmp_path / "two/shards" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": np.zeros(1, np.float32)}, "columns ids, ends, score where"),
        ({"loss_mask": np.zeros(2, np.bool_), "score": np.zeros(1, np.float32), "more": np.zeros(1)}, "more where"),
        (
            {"loss_mask": np.zeros(1, np.bool_), "score": np.zeros(1, np.float32)},
            "loss_mask, which needs one per token: 2",
        ),
        (
            {"loss_mask": np.zeros(2, np.bool_), "score": np.zeros(2, np.float32)},
            "score, which needs one per document: 1",
        ),
        (
            {"loss_mask": np.zeros(2, np.float32), "score": np.zeros(1, np.float32)},
            "float32 values in a column of bool",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path, columns, message):
    writer = ShardWriter(tmp_path, FIRST, "uint16", EXTRA)
    with pytest.raises(EncodingError, match=message):
        writer.append(as_tokens([[1, 2]], **columns))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "Mask", "../mask", "a.b", "9", "a" * 64, None])
def test_a_column_name_is_a_plain_word(name):
    with pytest.raises(UsageError, match="column name"):
        ColumnSpec(name, "token", "uint8")


def test_a_column_has_a_known_kind_and_dtype_and_its_own_name():
    with pytest.raises(UsageError, match="'row' is not 'token' or 'document'"):
        ColumnSpec("mask", "row", "uint8")
    for name, dtype in (("mask", "object"), ("mask", "<U3"), ("ids", "int32")):
        with pytest.raises(UsageError, match="not supported"):
            ColumnSpec(name, "token", dtype)
    with pytest.raises(UsageError, match="same name"):
        columns_with("uint16", (LOSS_MASK, LOSS_MASK))


# Fingerprints.


def test_the_digest_of_ids_and_ends_never_changes(tmp_path):
    """Store fingerprints are made of it: the formula and one value are fixed."""
    writer = ShardWriter(tmp_path, FIRST, "uint16")
    writer.append(as_tokens([[1, 2, 3], [4]]))
    receipt = writer.commit()
    checksums = {name: receipt["columns"][name]["checksums"] for name in ("ids", "ends")}
    assert content_digest(receipt) == digest(canonical([2, 4, "uint16", checksums]))
    assert content_digest(receipt) == "5fc3e0bdcc7181ef751beb508a990b08"


def test_the_digest_covers_further_columns(tmp_path):
    """Another value, name, kind or dtype of a further column is another content."""
    digests = set()
    for number, (spec, value) in enumerate(
        [
            (None, 0),
            (ColumnSpec("a", "token", "uint8"), 0),
            (ColumnSpec("a", "token", "uint8"), 1),
            (ColumnSpec("b", "token", "uint8"), 0),
            (ColumnSpec("a", "document", "uint8"), 0),
            (ColumnSpec("a", "token", "int8"), 0),
        ]
    ):
        writer = ShardWriter(tmp_path, f"s{number}", "uint16", [spec] if spec else [])
        columns = {spec.name: np.full(2, value, spec.dtype)} if spec else {}
        writer.append(as_tokens([[1], [2]], **columns))
        digests.add(content_digest(writer.commit()))
    assert len(digests) == 6


# Damage.


@pytest.mark.parametrize("how", ["flip", "header", "truncate", "delete"])
@pytest.mark.parametrize("column", list(FILES))
def test_damage_is_found_by_column(folder, column, how):
    path = folder / "shards" / FILES[column]
    manifest, receipt = read_manifest(folder), read_receipt(folder / "shards", FIRST)
    assert is_done(folder / "shards", receipt)
    assert files_are_complete(folder, manifest)
    if how in ("flip", "header"):
        flip(path, 60 if how == "header" else -1)
    elif how == "truncate":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.unlink()
    assert [(damage.file, damage.shard) for damage in tm.open(folder).verify()] == [(f"shards/{path.name}", FIRST)]
    assert is_done(folder / "shards", receipt) is (how in ("flip", "header"))
    assert files_are_complete(folder, manifest) is (how in ("flip", "header"))
    if how != "flip":
        with pytest.raises(CorruptError, match=path.name):
            tm.open(folder).column(column, 0)


def test_first_touch_checks_any_column(folder, monkeypatch):
    """Per-document columns when they are mapped, per-token ones block by block as they are read."""
    for module in ("store.checksums", "store.first_touch", "store.shard"):
        monkeypatch.setattr(f"tokenmill.{module}.CHECK_BLOCK", 4)
    shutil.rmtree(folder)
    write_manifest(folder, [write(folder, FIRST, [SHARDS[2]])], extra=EXTRA)
    flip(folder / "shards" / f"{FIRST}.loss_mask.npy", 128 + 5)
    flip(folder / "shards" / f"{FIRST}.score.npy", 128)
    store = tm.open(folder)._with_first_touch()
    assert slices(store, [0], [7])[0].tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert slices(store, [0], [4], "loss_mask")[0].tolist() == mask_of([[5, 6, 7, 8]])
    with pytest.raises(CorruptError, match=rf"{FIRST}\.loss_mask\.npy is damaged \(block 1\); run: tokenmill verify"):
        slices(store, [3], [2], "loss_mask")
    with pytest.raises(CorruptError, match=rf"{FIRST}\.score\.npy is damaged \(block 0\)"):
        store.column("score", 0)


def forge(folder: Path, change) -> None:
    """Change the first receipt, and the manifest to agree with it."""
    path = folder / "shards" / f"{FIRST}.json"
    receipt = read_receipt(path.parent, FIRST)
    change(receipt["columns"])
    path.write_bytes(sealed(receipt))
    manifest = read_manifest(folder)
    manifest.receipts[0] = digest(path.read_bytes())
    manifest.write(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns.pop("loss_mask"),
        lambda columns: columns.pop("ids"),
        lambda columns: columns.update({"../../outside": columns["loss_mask"]}),
        lambda columns: columns["loss_mask"].update(checksums=[]),
        lambda columns: columns["loss_mask"].update(length=3),
        lambda columns: columns["loss_mask"].update(per="row"),
        lambda columns: columns["score"].update(dtype="object"),
        lambda columns: columns.update(score=None),
    ],
)
def test_a_receipt_with_impossible_columns_is_damaged(folder, change):
    """Columns that no build writes are reported, not followed, although every checksum is right."""
    forge(folder, change)
    receipt = read_receipt(folder / "shards", FIRST)
    assert [(damage.file, damage.shard) for damage in tm.open(folder).verify()] == [(f"shards/{FIRST}.json", FIRST)]
    assert PieceReader.open(folder / "shards" / FIRST, COLUMNS) is None
    checked = tm.open(folder)._with_first_touch()
    with pytest.raises(CorruptError, match=FIRST):
        checked.column("score", 0), slices(checked, [0], [1]), slices(checked, [0], [1], "loss_mask")
    if "loss_mask" in receipt["columns"]:
        assert not is_done(folder / "shards", receipt)


@pytest.mark.parametrize(
    "columns",
    [
        None,
        [],
        ["ids"],
        [{"name": "ids", "per": "token", "dtype": "uint16"}],
        [{"name": "../ids", "per": "token", "dtype": "uint16"}],
        [{"name": "ids", "per": "token", "dtype": "float32"}, {"name": "ends", "per": "document", "dtype": "int64"}],
    ],
)
def test_a_manifest_with_impossible_columns_is_damaged(folder, columns):
    path = folder / "manifest.json"
    write_forged_manifest(path, json.loads(path.read_bytes()) | {"columns": columns})
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        tm.open(folder)


# Reuse.


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(1, 60_000), max_size=4), max_size=4), min_size=1, max_size=4), st.data())
def test_pieces_are_copied_with_all_their_columns(tmp_path_factory, pieces, data):
    """Pieces of a finished shard, in any order, make the shard that their documents make."""
    folder = tmp_path_factory.mktemp("pieces")
    write(folder / "old", FIRST, pieces)
    order = data.draw(st.permutations(range(len(pieces))))
    reader = PieceReader.open(folder / "old/shards" / FIRST, COLUMNS)
    writer = ShardWriter(folder / "new/shards", FIRST, "uint16", EXTRA)
    for number in order:
        writer.append(reader.tokens(number))
    copied = writer.commit(pieces=[reader.pieces[number] for number in order], text_bytes=0)
    assert copied == write(folder / "direct", FIRST, [pieces[number] for number in order])
    for path in (folder / "direct/shards").iterdir():
        assert path.read_bytes() == (folder / "new/shards" / path.name).read_bytes()


@pytest.mark.parametrize("column", list(FILES))
def test_no_piece_is_copied_from_a_damaged_shard(folder, column):
    shard = folder / "shards" / FIRST
    assert PieceReader.open(shard, COLUMNS) is not None
    assert PieceReader.open(shard, columns_with("uint16")) is None
    flip(folder / "shards" / FILES[column])
    assert PieceReader.open(shard, COLUMNS) is None


@pytest.mark.parametrize("links", [True, False])
def test_a_shard_is_linked_with_all_its_columns(folder, tmp_path, monkeypatch, links):
    """Hard links where the file system has them, else copies; the receipt comes last."""
    if not links:

        def refuse(*_):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "other"
    (target / "shards").mkdir(parents=True)
    (target / "shards" / f"{FIRST}.score.npy").write_bytes(b"left by a crash")
    for number in range(len(SHARDS)):
        link_shard(folder / "shards", target / "shards", f"{number:024x}", COLUMNS)
    receipts = [read_receipt(target / "shards", f"{number:024x}") for number in range(len(SHARDS))]
    write_manifest(target, receipts, extra=EXTRA)
    for path in (folder / "shards").iterdir():
        assert path.samefile(target / "shards" / path.name) is links
    assert len(list((target / "shards").iterdir())) == 5 * len(SHARDS)
    assert_holds(tm.open(target), [document for documents in SHARDS for document in documents])
    (folder / "shards" / f"{FIRST}.score.npy").unlink()
    (target / "shards" / f"{FIRST}.json").unlink()
    with pytest.raises(OSError):
        link_shard(folder / "shards", target / "shards", FIRST, COLUMNS)
    assert read_receipt(target / "shards", FIRST) is None


def test_copies_of_a_shard_are_on_disk_before_they_have_their_names(folder, tmp_path, monkeypatch):
    """A receipt that survives a power cut must not stand for columns that did not; and a copy that fails leaves nothing."""

    def refuse(*_):
        raise OSError("no links here")

    synced, sync, replace = [], os.fsync, os.replace

    def checked_replace(source, target):
        assert os.stat(source).st_ino in synced
        replace(source, target)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), sync(file)))
    monkeypatch.setattr(os, "replace", checked_replace)
    (tmp_path / "other").mkdir()
    link_shard(folder / "shards", tmp_path / "other", FIRST, COLUMNS)
    assert len(list((tmp_path / "other").iterdir())) == 5
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(BuildError, match="no links here"):
        link_shard(folder / "shards", tmp_path / "other", LAST, COLUMNS)
    assert len(list((tmp_path / "other").iterdir())) == 5


def test_the_sweep_knows_every_column(folder):
    """Files of shards that are not in the store, and temporary ones, are removed; all others stay."""
    shards, other = folder / "shards", "f" * 24
    removed = [f"{other}{end}" for end in (".npy", ".ends.npy", ".loss_mask.npy", ".score.npy", ".json")]
    removed += [f"{FIRST}.loss_mask.npy.12-ab.tmp", f"{other}.score.npy.12-ab.tmp"]
    stay = ["notes.npy", f"{other}.txt", f"{other}.Mask.npy", f"{other}.a.b.npy", f"x{other}.npy"]
    before = {path.name for path in shards.iterdir()}
    for name in (*removed, *stay):
        (shards / name).write_bytes(b"x")
    sweep(folder, set(read_manifest(folder).shard_ids))
    assert {path.name for path in shards.iterdir()} == before | set(stay)
    assert [shard_of_file(name) for name in (removed[2], stay[0])] == [other, None]


def test_neither_build_nor_repair_drops_columns_it_cannot_make(tmp_path, tokenizer_path, capsys):
    """No build writes further columns yet. A build over a store that has some, and a repair of it, leave it as it is."""
    corpus, folder = tmp_path / "corpus", tmp_path / "store"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"text": "one"}\n{"text": "two words"}\n')
    built = tm.build(corpus, tokenizer_path, folder, progress="quiet")
    (shard_id,) = built._manifest.shard_ids
    receipt, shard = built._receipt_of(0), folder / "shards" / shard_id
    tokens = PieceReader.open(shard, built._manifest.columns).tokens(0)
    writer = ShardWriter(folder / "shards", shard_id, built.dtype, [LOSS_MASK])
    writer.append(Tokens(tokens.ids, tokens.ends, columns={"loss_mask": np.ones(len(tokens.ids), np.bool_)}))
    facts = {name: receipt[name] for name in ("pieces", "text_bytes")}
    receipt = writer.commit(**facts)
    manifest = built._manifest
    manifest.columns, manifest.receipts = columns_with(built.dtype, [LOSS_MASK]), [digest(sealed(receipt))]
    around, tokenizer = [manifest.options["bos"], manifest.options["eos"]], manifest.tokenizer["fingerprint"]
    manifest.fingerprint = store_fingerprint(tokenizer, around, manifest.dtype, [content_digest(receipt)])
    manifest.write(folder)
    assert tm.open(folder).verify() == []

    path = folder / "shards" / f"{shard_id}.loss_mask.npy"
    flip(path)
    before = {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}
    assert main(["verify", str(folder)]) == 3
    assert f"shards/{path.name}" in capsys.readouterr().out
    assert main(["verify", str(folder), "--repair"]) == 3
    assert "has the columns ids, ends, loss_mask; a build writes ids and ends" in capsys.readouterr().err
    (corpus / "b.jsonl").write_text('{"text": "three"}\n')
    with pytest.raises(tm.errors.MismatchError, match="loss_mask"):
        tm.build(corpus, tokenizer_path, folder, progress="quiet")
    assert {path.name: path.read_bytes() for path in (folder / "shards").iterdir()} == before
    rebuilt = tm.build(corpus, tokenizer_path, folder, force=True, progress="quiet")
    assert list(rebuilt.columns) == ["ids", "ends"]
    assert rebuilt.verify() == []


# Arrow.


def test_to_arrow_with_columns(folder):
    """A list column per token column, a plain one per document column; only bool values are copied."""
    store = tm.open(folder)
    documents = [document for documents in SHARDS for document in documents]
    table = store.to_arrow(["ids", "loss_mask", "score"])
    assert {field.name: str(field.type) for field in table.schema} == {
        "ids": "large_list<item: uint16>",
        "loss_mask": "large_list<item: bool>",
        "score": "float",
    }
    assert table.to_pylist() == [
        {"ids": document, "loss_mask": mask_of([document]), "score": scores_of([document])[0]} for document in documents
    ]
    assert table["ids"] == store.to_arrow()
    for name, values in (("ids", table["ids"].chunk(2).values), ("score", table["score"].chunk(2))):
        assert values.buffers()[1].address == store.column(name, 2).__array_interface__["data"][0]
    with pytest.raises(UsageError, match="no column 'weights'"):
        store.to_arrow(["weights"])
