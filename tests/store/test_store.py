"""Tokens at rest: what was appended is what is read, without a copy, and provenance is arithmetic."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from handmade_stores import TOKENIZER, as_tokens, one_piece, write_manifest, write_shard
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.documents import Tokens
from tokenmill.errors import CorruptError, MissingStoreError, StoreError
from tokenmill.store.columns import columns_with
from tokenmill.store.manifest import Manifest, read_manifest, store_fingerprint
from tokenmill.store.shard import ShardWriter, is_done, read_receipt, sealed
from tokenmill.store.sources import SOURCES, Sources

DTYPES = [np.dtype(np.uint16), np.dtype(np.uint32)]


@pytest.fixture
def small(tmp_path) -> tuple[Path, list[list[int]]]:
    """A store of three shards, the middle one empty, with an empty document among the others."""
    shards = [[[1, 2, 3], [], [4]], [], [[5], [6, 7, 8, 9]]]
    folder = tmp_path / "store"
    receipts = [write_shard(folder, f"s{i}", documents) for i, documents in enumerate(shards)]
    write_manifest(folder, receipts)
    return folder, [document for documents in shards for document in documents]


@pytest.mark.parametrize(
    ("index", "numbers"),
    [
        ([0, 2], [0, 2]),
        ([-1, 0, 0], [4, 0, 0]),
        (range(1, 3), [1, 2]),
        (np.array([3, 1], np.uint8), [3, 1]),
        (np.array([-2]), [3]),
        (np.array([True, False, False, True, False]), [0, 3]),
        ([False, True, False, False, np.True_], [1, 4]),
        (np.zeros(5, bool), []),
        ([], []),
        (slice(None, None, 2), [0, 2, 4]),
    ],
)
def test_several_documents_are_chosen_as_in_numpy(small, index, numbers):
    folder, documents = small
    assert [ids.tolist() for ids in tm.open(folder)[index]] == [documents[number] for number in numbers]


@pytest.mark.parametrize(
    ("index", "kind", "why"),
    [
        ([0, 5], IndexError, "document 5 of a store with 5 documents"),
        (np.array([-6]), IndexError, "document -6 of a store with 5 documents"),
        ([True], IndexError, "a mask of 1 values for 5: it has one for each"),
        (np.ones(6, bool), IndexError, "a mask of 6 values for 5"),
        (np.array([[0]]), TypeError, "documents are numbered"),
        (["a"], TypeError, "documents are numbered: 'a' is not a whole number"),
        ([[0], [1]], TypeError, "documents are numbered"),
        ((0, 1), TypeError, "documents are numbered"),
        (np.array([0.5]), TypeError, "documents are numbered"),
    ],
)
def test_indices_that_choose_nothing(small, index, kind, why):
    with pytest.raises(kind, match=why):
        tm.open(small[0])[index]


def test_a_store_in_a_with_block(small):
    """It lets go of its files at the end. What was read stays, and it can be used again."""
    folder, documents = small
    with tm.open(folder) as store:
        first = store[0]
        assert any(store._mapped.values())
    assert not any(store._mapped.values())
    assert first.tolist() == documents[0]
    assert [ids.tolist() for ids in store] == documents
    with pytest.raises(KeyError, match="of the block"), store:
        raise KeyError("of the block")


def test_equal_stores_have_equal_data(small, tmp_path):
    folder, documents = small
    copied = shutil.copytree(folder, tmp_path / "copied")
    (tmp_path / "other").mkdir()
    write_manifest(tmp_path / "other", [write_shard(tmp_path / "other", "s0", documents[1:])])
    store, same, other = tm.open(folder), tm.open(copied), tm.open(tmp_path / "other")
    assert store == same == pickle.loads(pickle.dumps(store))  # noqa: S301
    assert store != other
    assert store != store.fingerprint
    assert len({store, same, other}) == 2
    assert tm.pack(store, 4) == tm.pack(same, 4)
    assert tm.pack(store, 4) not in (tm.pack(store, 5), tm.pack(other, 4), store)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("to_pandas", r"write store.to_arrow\(\)"),
        ("to_list", r"\[ids.tolist\(\) for ids in store\]"),
        ("num_rows", r"write len\(store\)"),
        ("train_test_split", r"write tm.pack\(store, 64\).split"),
        ("nonsense", "'Store' object has no attribute 'nonsense'; it has close, "),
    ],
)
def test_names_of_other_libraries_are_answered(small, name, answer):
    with pytest.raises(AttributeError, match=answer):
        getattr(tm.open(small[0]), name)


# Where it is, and in which process.


def test_a_relative_path_stays_valid(small, tmp_path, monkeypatch):
    """A program may change its working directory after it has opened a store. Its name is the path as it was given."""
    folder, documents = small
    monkeypatch.chdir(tmp_path)
    opened, view = tm.open("store"), tm.pack("store", 4, strategy="best_fit")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [ids.tolist() for ids in opened] == documents
    assert opened.locate(4).row == 1
    assert opened.verify() == []
    assert len(view[:]["input_ids"]) == len(view)
    assert (opened.path, opened.name) == (folder, "store")
    assert [ids.tolist() for ids in pickle.loads(pickle.dumps(opened))] == documents  # noqa: S301


def test_mapped_ids_name_their_file(small):
    """joblib sends such arrays to other processes by this name; without it, it breaks its pool."""
    mapped = tm.open(small[0])[0]
    while not isinstance(mapped, np.memmap):
        mapped = mapped.base
    again = np.memmap(mapped.filename, mapped.dtype, "r", mapped.offset, mapped.shape)
    assert Path(mapped.filename) == small[0] / "shards" / "s0.npy"
    assert again.tolist() == mapped.tolist()


# What was appended is what is read.

ids16 = st.lists(st.integers(0, 2**16 - 1), max_size=6)
ids32 = st.lists(st.integers(0, 2**32 - 1), max_size=6)


@st.composite
def scripts(draw):
    """A dtype, and steps: append documents with or without the start of one that goes on, mark, roll back."""
    wide = draw(st.booleans())
    ids = ids32 if wide else ids16
    append = st.tuples(st.just("append"), st.lists(ids, max_size=4), st.one_of(st.just([]), ids))
    step = st.one_of(append, append, st.just(("mark",)), st.tuples(st.just("rollback"), st.integers(0, 3)))
    return DTYPES[wide], draw(st.lists(step, max_size=12))


def follow(writer: ShardWriter, dtype, steps) -> list[list[int]]:
    """Carry steps out on a writer and on a plain list; returns what the list holds."""
    done: list[list[int]] = []
    begun: list[int] = []
    marks = [(writer.mark(), [], [])]
    for what, *how in steps:
        if what == "append":
            documents, rest = how
            writer.append(as_tokens(documents, dtype, rest))
            for document in documents:
                done.append(begun + document)
                begun = []
            begun = begun + rest
        elif what == "mark":
            marks.append((writer.mark(), list(done), list(begun)))
        else:
            mark, done, begun = marks[how[0] % len(marks)]
            marks = marks[: how[0] % len(marks) + 1]
            writer.rollback(mark)
            done, begun = list(done), list(begun)
    writer.append(Tokens(np.empty(0, dtype), np.array([0], np.int64)))  # a document that had begun ends here
    done.append(begun)
    return done


@given(scripts())
@settings(max_examples=60, deadline=None)
def test_a_shard_holds_exactly_what_was_appended(script):
    """After any appends, marks and rollbacks, plain numpy, the store and the check all see the same documents."""
    dtype, steps = script
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = ShardWriter(folder / "shards", "a", dtype)
        documents = follow(writer, dtype, steps)
        assert (writer.documents, writer.tokens) == (len(documents), sum(map(len, documents)))
        receipt = writer.commit(pieces=one_piece(len(documents)), failed=[], text_bytes=0)
        write_manifest(folder, [receipt], dtype)

        ids = np.load(folder / "shards/a.npy", mmap_mode="r")
        ends = np.load(folder / "shards/a.ends.npy", mmap_mode="r")
        assert ids.dtype == dtype
        assert ends.dtype == np.int64
        assert [part.tolist() for part in np.split(ids, ends)[:-1]] == documents
        assert len(ids) == ends[-1]

        store = tm.open(folder)
        assert [document.tolist() for document in store] == documents
        assert [store[i].tolist() for i in range(len(store))] == documents
        assert store.lengths.tolist() == list(map(len, documents))
        assert store.to_arrow().to_pylist() == documents
        assert store.verify() == []


@given(st.lists(ids16, max_size=5), st.lists(ids16, max_size=5), st.lists(ids16, min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_what_was_rolled_back_leaves_no_trace(kept, undone, more):
    """A shard with a rollback in its past is the same files, bit for bit, as one without."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        straight = ShardWriter(folder / "one", "a", DTYPES[0])
        straight.append(as_tokens(kept))
        straight.append(as_tokens(more))
        straight.commit(pieces=[])
        detour = ShardWriter(folder / "two", "a", DTYPES[0])
        detour.append(as_tokens(kept))
        mark = detour.mark()
        detour.append(as_tokens(undone, rest=[1, 2]))
        detour.rollback(mark)
        detour.append(as_tokens(more))
        detour.commit(pieces=[])
        for file in ("a.npy", "a.ends.npy", "a.json"):
            assert (folder / "one" / file).read_bytes() == (folder / "two" / file).read_bytes()


def test_rollback_over_checksum_blocks(tmp_path):
    """A rollback past several blocks of checksums still leaves a shard that verifies."""
    writer = ShardWriter(tmp_path / "shards", "a", DTYPES[1])
    block = np.arange(700_000, dtype=np.uint32)  # 2.8 MB: blocks of checksums begin and end inside it
    writer.append(Tokens(block, np.array([len(block)])))
    mark = writer.mark()
    for _ in range(5):
        writer.append(Tokens(block[::-1], np.array([10, len(block)])))
    writer.rollback(mark)
    for _ in range(3):
        writer.append(Tokens(block + 1, np.array([len(block)])))
    write_manifest(tmp_path, [writer.commit(pieces=one_piece(4), failed=[], text_bytes=0)], DTYPES[1])
    store = tm.open(tmp_path)
    assert store.verify() == []
    assert store.lengths.tolist() == [len(block)] * 4
    assert np.array_equal(store[3], block + 1)


def test_nothing_exists_before_the_commit(tmp_path):
    """Until its receipt is there a shard is not done, and a discarded one leaves nothing behind."""
    writer = ShardWriter(tmp_path, "a", DTYPES[0])
    writer.append(as_tokens([[1, 2]]))
    assert read_receipt(tmp_path, "a") is None
    assert not list(tmp_path.glob("*.npy"))
    writer.discard()
    assert list(tmp_path.iterdir()) == []
    receipt = write_shard(tmp_path, "b", [[1]])
    assert is_done(tmp_path / "shards", receipt)
    assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == ["b.ends.npy", "b.json", "b.npy"]


def test_an_id_that_does_not_fit_is_never_wrapped(tmp_path):
    """A writer of 16-bit shards given a larger id refuses it; it does not store another."""
    writer = ShardWriter(tmp_path, "a", DTYPES[0])
    try:
        with pytest.raises((ValueError, OverflowError)):
            writer.append(Tokens(np.array([1, 70_000], np.uint32), np.array([2])))
    finally:
        writer.discard()


# Reading.


def test_indices(small):
    """Documents count from 0, and from the end with negative numbers; beyond either end is an IndexError that says so."""
    folder, documents = small
    store = tm.open(folder)
    assert len(store) == len(documents) == 5
    for i in range(-5, 5):
        assert store[i].tolist() == documents[i]
        assert store[np.int64(i)].tolist() == documents[i]
    for i in (5, -6, 10**12):
        with pytest.raises(IndexError, match=f"{i}.* 5 documents"):
            store[i]
        with pytest.raises(IndexError):
            store.locate(i)


def test_numbers_of_a_store(small):
    """Counts, lengths and dtype agree with the documents."""
    folder, documents = small
    store = tm.open(folder)
    assert store.lengths.tolist() == [3, 0, 1, 1, 4]
    assert store.lengths.dtype == np.int64
    assert store.num_tokens == 9
    assert store.num_shards == 3
    assert store.dtype == np.uint16
    assert store.complete
    assert [document.tolist() for document in store] == documents
    assert "documents=5" in repr(store)


def test_documents_are_views_of_the_file(small):
    """A document is memory of the mapped file itself, and nobody can write to it."""
    store = tm.open(small[0])
    document = store[0]
    base = document
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    assert np.shares_memory(store[0], document)
    assert np.shares_memory(next(iter(store)), document)
    assert not document.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        document[0] = 1
    with pytest.raises(ValueError):
        document.flags.writeable = True


def test_to_arrow_shares_the_mapped_tokens(small):
    """The Arrow array's token buffers are at the address of the mapped files; one chunk a shard."""
    folder, documents = small
    store = tm.open(folder)
    arrow = store.to_arrow()
    assert arrow.to_pylist() == documents
    assert arrow.num_chunks == store.num_shards
    assert str(arrow.type) == "large_list<item: uint16>"
    for chunk, first in ((arrow.chunk(0), 0), (arrow.chunk(2), 3)):
        assert chunk.values.buffers()[1].address == store[first].__array_interface__["data"][0]


def test_an_empty_store(tmp_path):
    """No shard at all is a store of nothing, not an error."""
    write_manifest(tmp_path, [])
    store = tm.open(tmp_path)
    assert len(store) == store.num_tokens == 0
    assert store.lengths.tolist() == list(store) == store.to_arrow().to_pylist() == store.verify() == []
    with pytest.raises(IndexError):
        store[0]


def test_opening_reads_no_shard(small):
    """A store whose shards are gone still opens; using them is an error that names the file and the remedy."""
    folder, _ = small
    shutil.rmtree(folder / "shards")
    store = tm.open(folder)
    assert len(store) == 5
    with pytest.raises(CorruptError, match=r"s0\.ends\.npy.*tokenmill verify"):
        store[0]
    with pytest.raises(CorruptError, match=r"s2\.ends\.npy"):
        store[4]
    with pytest.raises(CorruptError, match="s0"):
        list(store)
    with pytest.raises(CorruptError, match="s0"):
        _ = store.lengths
    with pytest.raises(CorruptError, match="s0"):
        store.to_arrow()
    with pytest.raises(CorruptError, match="receipt of shard s0"):
        store.locate(0)


def test_opening_imports_no_more_than_it_needs(small):
    """A training process that only maps a store loads neither Arrow nor tokenizers nor the build."""
    script = """
import sys
import tokenmill as tm
assert tm.open(sys.argv[1])[0].tolist() == [1, 2, 3]
heavy = ("pyarrow", "tokenizers", "tokenmill.encoding", "tokenmill.building", "tokenmill.reading")
print([name for name in heavy if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script, small[0]], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


@pytest.mark.parametrize("what", ["short", "long", "empty", "other dtype", "other length", "text", "pickle"])
@pytest.mark.parametrize("file", ["s0.npy", "s0.ends.npy"])
def test_a_file_that_is_not_the_array_it_should_be(small, what, file):
    """Whatever stands where a shard's array should be, reading is a CorruptError that names the file."""
    folder, _ = small
    path = folder / "shards" / file
    array = np.load(path)
    if what == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif what == "long":
        path.write_bytes(path.read_bytes() + b"\0")
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "other dtype":
        np.save(path, array.astype(np.float32))
    elif what == "other length":
        np.save(path, np.append(array, array[-1:]))
    elif what == "text":
        path.write_text("not an array at all" * 20)
    else:
        np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(CorruptError, match=file.replace(".", r"\.")):
        tm.open(folder)[0]


def test_no_store_and_an_interrupted_store(tmp_path):
    """A folder without a store and a store whose build never finished are different errors, each with the path."""
    with pytest.raises(MissingStoreError, match=str(tmp_path)):
        tm.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        tm.open(tmp_path / "nowhere")
    Manifest(options={}, source={}, tokenizer=TOKENIZER, columns=columns_with("uint16")).write(tmp_path)
    with pytest.raises(StoreError, match="interrupted"):
        tm.open(tmp_path)


def test_an_incomplete_store_warns_when_opened(small):
    """A store that lacks some input opens with a warning at the caller's line."""
    folder, documents = small
    manifest = read_manifest(folder)
    manifest.complete, manifest.failed = False, [{"file": "x.gz", "error": "x.gz: truncated"}]
    manifest.write(folder)
    with pytest.warns(UserWarning, match="1 input file failed") as caught:
        store = tm.open(folder)
    assert caught[0].filename == __file__
    assert not store.complete
    assert store.failed[0]["file"] == "x.gz"
    assert store[0].tolist() == documents[0]


def test_a_manifest_lasts_through_writing(tmp_path):
    """What is written is what is read, for odd names too."""
    manifest = Manifest(
        options={"text": "ünï\ud800code", "n": None},
        source={"inputs": ["a\x1b[31m", "\udcff"]},
        tokenizer=TOKENIZER,
        columns=columns_with("uint32"),
        documents=2**60,
        shard_ids=["a"],
        shard_documents=[2**60],
        shard_tokens=[0],
        row_starts=[0],
        receipts=["0"],
    )
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_fingerprint_knows_content_and_no_name(tmp_path):
    """Renamed shards in another folder have the same fingerprint; another id, order or tokenizer has another."""
    fingerprints = {}
    for folder, names, documents in (
        ("here", "ab", [[[1, 2]], [[3]]]),
        ("there", "xy", [[[1, 2]], [[3]]]),
        ("swapped", "ab", [[[3]], [[1, 2]]]),
        ("changed", "ab", [[[1, 2]], [[4]]]),
        ("split", "ab", [[[1], [2]], [[3]]]),
    ):
        receipts = [write_shard(tmp_path / folder, n, d) for n, d in zip(names, documents, strict=True)]
        write_manifest(tmp_path / folder, receipts)
        fingerprints[folder] = tm.open(tmp_path / folder).fingerprint
    assert fingerprints["here"] == fingerprints["there"]
    assert len(set(fingerprints.values())) == 4
    one = store_fingerprint("t", [None, 0], "uint16", ["s"])
    assert one != store_fingerprint("u", [None, 0], "uint16", ["s"])
    assert one != store_fingerprint("t", [1, 0], "uint16", ["s"])
    assert one != store_fingerprint("t", [None, None], "uint16", ["s"])
    assert one != store_fingerprint("t", [None, 0], "uint32", ["s"])


# Where documents came from.


def expected_rows(paths: list[Path]) -> list[tuple[str, int, str]]:
    """By the plainest reading there is: the file, line number and text of every line with a text."""
    found = []
    for path in sorted(paths):
        for row, line in enumerate(path.read_text("utf-8").split("\n")[:-1]):
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError):
                continue
            if isinstance(text, str):
                found.append((str(path), row, text))
    return found


def messy_lines(number: int, count: int) -> str:
    """JSON lines among blank, broken and wrong ones."""
    lines = []
    for i in range(count):
        lines.append(json.dumps({"text": f"file {number} line {i} " + "word " * (i * 7 % 23)}))
        if i % 5 == number % 5:
            lines.append(["", '{"text": 12}', "{broken", '{"other": "x"}', ""][(i + number) % 5])
        if i % 11 == 0:
            lines += ["", "", '{"text": null}']
    return "".join(line + "\n" for line in lines)


@pytest.mark.parametrize("shard_bytes", ["2KB", "20KB", "1MB"])
def test_locate_with_quarantined_and_blank_rows(tmp_path, tokenizer_path, shard_bytes):
    """Every document knows its file and line, over groups of files and pieces of one, past rows that gave none."""
    paths = []
    for number, count in enumerate([3, 200, 0, 1, 40, 7, 300, 2]):
        paths.append(tmp_path / f"in{number}.jsonl")
        paths[-1].write_text(messy_lines(number, count))
    expected = expected_rows(paths)
    store = tm.build(tmp_path, tokenizer_path, tmp_path / "out", workers=0, shard_bytes=shard_bytes, progress="quiet")
    assert len(store) == len(expected)
    assert [tuple(store.locate(i)) for i in range(len(store))] == [(file, row) for file, row, _ in expected]
    assert store.locate(-1) == store.locate(len(store) - 1)
    assert store.locate(3).file == expected[3][0]
    decode = tm.load_tokenizer(store.tokenizer.path).decode
    for i in range(0, len(store), 37):
        assert decode(store[i][:-1]) == expected[i][2]

    quarantined = [json.loads(line) for line in (tmp_path / "out/quarantine.jsonl").read_bytes().splitlines()]
    located = {(file, row) for file, row, _ in expected}
    for entry in quarantined:
        assert (entry["file"], entry["row"]) not in located
        assert Path(entry["file"]).read_text().split("\n")[entry["row"]].strip()
    written = sum(bool(line.strip()) for path in paths for line in path.read_text().split("\n"))
    assert len(store) + len(quarantined) == written


def test_a_store_explains_its_tokenizer(tmp_path, jsonl, tokenizer_path):
    """The tokenizer at rest is the one the store was built with, and decodes it without the original."""
    store = tm.build(jsonl(["hello world"]), tokenizer_path, tmp_path / "out", progress="quiet")
    own = tm.load_tokenizer(store.tokenizer.path)
    assert own.fingerprint == store.tokenizer.fingerprint == tm.load_tokenizer(tokenizer_path).fingerprint
    assert own.vocab_size == store.tokenizer.vocab_size
    assert own.eos_id == store.tokenizer.eos_id == store[0][-1]
    assert own.decode(store[0][:-1]) == "hello world"


# A store far larger than memory.

BIG_TOKENS, BIG_SHARDS, BIG_DOCUMENTS = 10**12, 100, 1000


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A store of 10^12 tokens in 10^5 documents that takes no disk: its ids are holes."""
    folder = tmp_path_factory.mktemp("big")
    shards = folder / "shards"
    shards.mkdir()
    tokens = BIG_TOKENS // BIG_SHARDS
    ends = np.linspace(0, tokens, BIG_DOCUMENTS + 1).astype(np.int64)[1:]
    header = {"descr": "<u2", "fortran_order": False, "shape": (tokens,)}
    receipts = []
    for i in range(BIG_SHARDS):
        with open(shards / f"s{i}.npy", "wb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            start = out.tell()
            out.truncate(start + 2 * tokens)
            out.seek(start + 2 * int(ends[499]))
            out.write(np.array([i + 1, 7, 8], "<u2").tobytes())
        np.save(shards / f"s{i}.ends.npy", ends)
        piece = {"content": None, "rows": BIG_DOCUMENTS, "documents": BIG_DOCUMENTS}
        receipt = {"version": 3, "id": f"s{i}", "documents": BIG_DOCUMENTS, "tokens": tokens, "text_bytes": 0}
        receipt["pieces"] = [piece]
        (shards / f"s{i}.json").write_bytes(sealed(receipt))
        receipts.append(receipt)
    row_starts = [i * BIG_DOCUMENTS for i in range(BIG_SHARDS)]
    write_manifest(folder, receipts, row_starts=row_starts, fingerprint="0" * 32)
    (folder / SOURCES).write_bytes(Sources(["f"], [BIG_SHARDS], [1] * BIG_SHARDS).as_bytes())
    yield folder
    shutil.rmtree(folder)


def test_a_store_of_a_million_million_tokens(big):
    """It opens, and any document of it is read, in a process that grows by next to nothing."""
    script = """
import sys, tracemalloc
import numpy as np
import tokenmill as tm
from tokenmill.store.store import Store
from tokenmill.building.machine import resident_bytes
before = resident_bytes()
tracemalloc.start()
store = tm.open(sys.argv[1])
assert store.num_tokens == 10**12 and len(store) == 10**5
for i in range(100):
    document = store[i * 1000 + 500]
    assert len(document) == 10**7
    assert document[:4].tolist() == [i + 1, 7, 8, 0]
assert store.locate(99_500) == ("f", 99_500)
assert store.lengths.sum() == 10**12
print(tracemalloc.get_traced_memory()[1], resident_bytes() - before)
"""
    ran = subprocess.run([sys.executable, "-c", script, big], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    traced, resident = map(int, ran.stdout.split())
    assert traced < 8 << 20
    assert resident < 32 << 20


def test_to_arrow_of_a_million_million_tokens(big):
    """Arrow too only looks at the mapped files: 2 TB of tokens cost their offsets."""
    store = tm.open(big)
    arrow = store.to_arrow()
    assert len(arrow) == 10**5
    assert arrow.chunk(99).values.buffers()[1].address == store[99_000].__array_interface__["data"][0]
    assert arrow.chunk(99)[500].values[0].as_py() == 100


def test_dropped_stores_hold_no_files(small):
    """A store that nobody holds any more keeps no file open."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert tm.open(small[0])[0].tolist() == [1, 2, 3]
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_more_shards_than_files_may_be_open(tmp_path):
    """A store of many shards is read under the usual limit on open files, in any order."""
    receipts = [write_shard(tmp_path, f"s{i}", [[i, i]]) for i in range(700)]
    write_manifest(tmp_path, receipts)
    script = """
import resource, sys
import tokenmill as tm
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
store = tm.open(sys.argv[1])
assert [document[0] for document in store] == list(range(700))
assert all(store[i][0] == i for i in range(699, -1, -1))
assert store.lengths.sum() == len(store.to_arrow()) * 2 == 1400
"""
    ran = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_slices(small):
    """A slice is a list of documents, as of any sequence."""
    folder, documents = small
    store = tm.open(folder)
    for part in (slice(1, None), slice(None, None, -1), slice(100, None)):
        assert [document.tolist() for document in store[part]] == documents[part]


def test_a_store_travels_light(small):
    """A copy for another process holds no token, used or not."""
    folder, documents = small
    store = tm.open(folder)
    before = len(pickle.dumps(store))
    assert [document.tolist() for document in store] == documents
    assert len(pickle.dumps(store)) == before
    assert [document.tolist() for document in pickle.loads(pickle.dumps(store))] == documents  # noqa: S301
