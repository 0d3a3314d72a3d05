"""A build gives the same store whatever happens around it, and says what it did."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from build_helpers import shard_files, temporary_files, what_it_says, write_jsonl
from io_faults import hooked, read_only

import tokenmill as tm
from tokenmill.building.plan import groups, task_of
from tokenmill.building.task import TaskOptions, encode_task
from tokenmill.building.task_context import CrashHistory
from tokenmill.building.terminal import message
from tokenmill.cli import main
from tokenmill.errors import (
    BuildError,
    DocumentError,
    InputError,
    MismatchError,
    MissingInputError,
    TokenizerError,
    UsageError,
)
from tokenmill.events import Event
from tokenmill.io.checked_lines import read_lines
from tokenmill.reading import head_of
from tokenmill.store.manifest import read_manifest

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")

SHARD_BYTES = "16KB"


def build(source, tokenizer, out, **options) -> tm.Store:
    """A build inside this process, by the reference, in many small tasks, in silence, unless the test says otherwise."""
    usual = {"workers": 0, "engine": "reference", "shard_bytes": SHARD_BYTES, "progress": "quiet"}
    return tm.build(source, tokenizer, out, **{**usual, **options})


def prose(seed: int, count: int, words: int = 60) -> list[str]:
    """Texts of made-up words, the same for the same seed."""
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(400)]
    return [" ".join(draw.choices(vocabulary, k=draw.randint(1, words))) for _ in range(count)]


def stamps(store: Path) -> dict[str, tuple[int, int]]:
    """Which file each is, and when it was written."""
    paths = [*(store / "shards").iterdir(), *(store / "tokenizer").iterdir(), store / "manifest.json"]
    return {str(path.relative_to(store)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def documents(store: tm.Store) -> list[list[int]]:
    return [document.tolist() for document in store]


def places(store: tm.Store) -> list[tuple[str, int]]:
    return [tuple(store.locate(i)) for i in range(len(store))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Small files that share shards, one large file in pieces, a compressed one, an empty one, some bad and blank rows."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(12):
        write_jsonl(folder / f"small{number:02}.jsonl", prose(number, 10))
    write_jsonl(folder / "large.jsonl", prose(99, 400))
    with gzip.open(folder / "packed.jsonl.gz", "wt") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in prose(98, 80))
    (folder / "empty.jsonl").write_text("")
    (folder / "messy.jsonl").write_text('{"text": "one"}\n\n{bad\n{"text": null}\n\n{"text": "two"}\n')
    return folder


@pytest.fixture(scope="module")
def built(corpus, tokenizer_path, tmp_path_factory) -> Path:
    """The store of the corpus, by a build nobody disturbed, with the engine that is chosen where nobody asks for one."""
    folder = tmp_path_factory.mktemp("built") / "store"
    build(corpus, tokenizer_path, folder, engine="auto")
    return folder


# The store depends on the input alone.


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.stress), 2, pytest.param(3, marks=pytest.mark.stress)]
)
def test_the_same_bytes_with_any_number_of_workers(corpus, built, tokenizer_path, tmp_path, workers):
    """Every file of the store but its log is the same, byte for byte."""
    store = build(corpus, tokenizer_path, tmp_path / "store", engine="auto", workers=workers)
    assert store.num_shards > 5
    assert shard_files(tmp_path / "store") == shard_files(built)
    assert (tmp_path / "store/manifest.json").read_bytes() == (built / "manifest.json").read_bytes()
    assert (tmp_path / "store/quarantine.jsonl").read_bytes() == (built / "quarantine.jsonl").read_bytes()
    assert store.verify() == []


@pytest.mark.parametrize("shard_bytes", ["1KiB", "4KB", "64KB", 10**9])
def test_the_same_documents_in_shards_of_any_size(corpus, built, tokenizer_path, tmp_path, shard_bytes):
    """The size of a shard changes nothing about documents, their order, their tokens or where they came from."""
    store, reference = build(corpus, tokenizer_path, tmp_path / "store", shard_bytes=shard_bytes), tm.open(built)
    assert documents(store) == documents(reference)
    assert places(store) == places(reference)
    assert (tmp_path / "store/quarantine.jsonl").read_bytes() == (built / "quarantine.jsonl").read_bytes()


def test_the_same_fingerprint_wherever_the_corpus_lies(corpus, built, tokenizer_path, tmp_path):
    """Moved, copied and named in another way, the same files make a store with the same fingerprint."""
    shutil.copytree(corpus, tmp_path / "elsewhere/deeper")
    moved = build(tmp_path / "elsewhere/deeper", tokenizer_path, tmp_path / "moved")
    assert moved.fingerprint == tm.open(built).fingerprint
    assert moved.locate(0).file.startswith(str(tmp_path / "elsewhere/deeper"))


def test_documents_in_the_order_of_files_and_rows(corpus, built, reference):
    """Files sorted by name, rows as they stand; each document is the reference tokenizer's ids and then eos."""
    expected = []
    for path in sorted(corpus.iterdir()):
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        with opened as lines:
            for row, line in enumerate(lines):
                try:
                    text = json.loads(line)["text"]
                except ValueError:
                    continue
                if text is not None:
                    expected.append((text, (str(path), row)))
    store = tm.open(built)
    assert places(store) == [place for _, place in expected]
    ids = [e.ids for e in reference.encode_batch([text for text, _ in expected], add_special_tokens=False)]
    (eos,) = reference.encode("<|endoftext|>", add_special_tokens=False).ids
    assert eos is not None
    assert documents(store) == [[*some, eos] for some in ids]


def test_documents_in_equal_documents_out_and_quarantined(built):
    """Every row that was meant to be a document is in the store or in quarantine.jsonl, with a reason."""
    manifest = read_manifest(built)
    lines = [json.loads(line) for line in (built / "quarantine.jsonl").read_bytes().splitlines()]
    assert [(Path(line["file"]).name, line["row"], line["reason"]) for line in lines] == [
        ("messy.jsonl", 2, "bad json"),
        ("messy.jsonl", 3, "null field"),
    ]
    assert manifest.quarantined == {"bad json": 1, "null field": 1}
    assert manifest.documents == 12 * 10 + 400 + 80 + 2


# What is put around documents, and how wide they are.


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({}, [], [0]),
        ({"eos": None}, [], []),
        ({"eos": "none"}, [], []),
        ({"eos": 5, "bos": 7}, [7], [5]),
        ({"eos": "none", "bos": "<|endoftext|>"}, [0], []),
        ({"eos": "<|endoftext|>", "bos": "0"}, [0], [0]),
    ],
)
def test_bos_and_eos(jsonl, tokenizer_path, reference, tmp_path, options, before, after):
    """The ids asked for stand around every document, the empty one too, and nothing else does."""
    texts = ["hello", "", "two words"]
    assert reference.encode("<|endoftext|>", add_special_tokens=False).ids == [0]
    store = build(jsonl(texts), tokenizer_path, tmp_path / "store", **options)
    ids = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    assert documents(store) == [[*before, *some, *after] for some in ids]


@pytest.mark.parametrize(("option", "value"), [("eos", 4096), ("eos", "<|nope|>"), ("bos", 10**9), ("bos", -1)])
def test_an_id_around_documents_that_does_not_exist(jsonl, tokenizer_path, tmp_path, option, value):
    """A wrong eos or bos is a usage error that names the option."""
    with pytest.raises(UsageError, match=option):
        build(jsonl(["a"]), tokenizer_path, tmp_path / "store", **{option: value})


@pytest.mark.parametrize(("words", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_the_dtype_is_as_wide_as_the_vocabulary_needs(jsonl, tmp_path, words, dtype):
    """65,536 ids fit in 16 bits; one more takes 32, and the last id comes out as itself."""
    model = tokenizers.models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = jsonl([f"w1 w{words - 1}", "w2"])
    store = build(source, tmp_path / "tokenizer.json", tmp_path / "store", eos="none")
    assert store.dtype == store[0].dtype == np.dtype(dtype)
    assert documents(store) == [[1, words - 1], [2]]
    assert np.load(next((tmp_path / "store/shards").glob("*[!s].npy"))).dtype == np.dtype(dtype)


# Again, and with more or less input.


@pytest.mark.parametrize("workers", [0, 2])
def test_built_again_it_is_up_to_date(corpus, built, tokenizer_path, workers):
    """Nothing is rewritten; whoever watches is told."""
    before, told = stamps(built), []
    store = build(corpus, tokenizer_path, built, workers=workers, progress=told.append)
    assert stamps(built) == before
    assert [event.name for event in told if event.name != "comparing"] == ["begun", "up_to_date"]
    assert store.fingerprint == tm.open(built).fingerprint


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """120 tiny files, for more than ten shards of 32 KB."""
    folder = tmp_path_factory.mktemp("many")
    for number, text in enumerate(prose(5, 120)):
        write_jsonl(folder / f"part-{number:03}.jsonl", [text])
    return folder


@pytest.mark.parametrize("name", ["aaa", "part-060b", "part-090-", "zzz"])
@pytest.mark.parametrize("what", ["add", "change", "delete"])
def test_one_file_among_many_disturbs_two_shards_at_most(many, tokenizer_path, tmp_path, what, name):
    """Whichever file comes, goes or changes, all other shards stay as they are on disk."""
    source, store = tmp_path / "in", tmp_path / "store"
    shutil.copytree(many, source)
    write_jsonl(source / f"{name}.jsonl", ["the one that will change or go"])
    if what == "add":
        (source / f"{name}.jsonl").unlink()
    first = build(source, tokenizer_path, store, shard_bytes="32KB")
    assert first.num_shards > 10
    before = stamps(store)
    if what == "delete":
        (source / f"{name}.jsonl").unlink()
    else:
        write_jsonl(source / f"{name}.jsonl", ["a new text for it, " * 20])
    second = build(source, tokenizer_path, store, shard_bytes="32KB")
    after = stamps(store)
    new = {file.partition(".")[0] for file in after if file.startswith("shards/") and file not in before}
    assert 1 <= len(new) <= 2
    assert {file: after[file] for file in after if file in before and file.startswith("shards/")} == {
        file: before[file] for file in after if file in before and file.startswith("shards/")
    }
    fresh = build(source, tokenizer_path, tmp_path / "fresh", shard_bytes="32KB")
    assert second.fingerprint == fresh.fingerprint
    assert documents(second) == documents(fresh)
    assert shard_files(store) == shard_files(tmp_path / "fresh")


def test_appending_a_file_keeps_what_is_there(tokenizer_path, tmp_path):
    """With more input named beside the old, only the new is worked on."""
    one, two = write_jsonl(tmp_path / "a.jsonl", prose(1, 200)), write_jsonl(tmp_path / "b.jsonl", prose(2, 200))
    build(one, tokenizer_path, tmp_path / "store", shard_bytes="10KB")
    before = stamps(tmp_path / "store")
    build((one, two), tokenizer_path, tmp_path / "store", shard_bytes="10KB")
    after = stamps(tmp_path / "store")
    assert all(after[file] == stamp for file, stamp in before.items() if file.startswith("shards/"))
    assert len(after) > len(before)


# Stores of another making.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shard_bytes": "32KB"}, "shard_bytes: was 16000, now 32000"),
        ({"eos": "none"}, "eos: was 0, now None"),
        ({"bos": 7}, "bos: was None, now 7"),
        ({"text_field": "other"}, "text_field: was 'text', now 'other'"),
        ({"format": "jsonl"}, "format: was 'auto', now 'jsonl'"),
        ({"template": "{text}!"}, "template: was None, now '{text}!'"),
        ({"max_rows": 3}, "max_rows: was None, now 3"),
    ],
)
def test_other_options_are_a_mismatch_that_says_what_differs(jsonl, tokenizer_path, tmp_path, options, says):
    """Nothing is touched, the difference is in the message; with force it is built anew."""
    source = jsonl(["one", "two", "three", "four"])
    source.write_text(source.read_text().replace('"}', '", "other": "field"}'))
    store = tmp_path / "store"
    build(source, tokenizer_path, store)
    before = stamps(store)
    with pytest.raises(MismatchError) as caught:
        build(source, tokenizer_path, store, **options)
    assert says in str(caught.value)
    assert "force" in str(caught.value)
    assert stamps(store) == before
    forced = build(source, tokenizer_path, store, **options, force=True)
    fresh = build(source, tokenizer_path, tmp_path / "fresh", **options)
    assert forced.fingerprint == fresh.fingerprint
    assert shard_files(store) == shard_files(tmp_path / "fresh")


def test_another_tokenizer_is_a_mismatch(jsonl, tokenizer_path, tmp_path):
    """The tokenizer is compared by what it does, and both are named."""
    other = tmp_path / "other"
    shutil.copytree(tokenizer_path, other)
    source = jsonl(["one"])
    build(source, tokenizer_path, tmp_path / "store")
    assert build(source, other, tmp_path / "store").complete  # the same under another name
    body = json.loads((other / "tokenizer.json").read_text())
    body["added_tokens"][0]["lstrip"] = not body["added_tokens"][0]["lstrip"]
    (other / "tokenizer.json").write_text(json.dumps(body))
    with pytest.raises(MismatchError, match=f"{tokenizer_path}.*{other}"):
        build(source, other, tmp_path / "store")
    assert build(source, other, tmp_path / "store", force=True).tokenizer.name == str(other)


def test_another_source_is_a_mismatch(tokenizer_path, tmp_path):
    """A store of one input is not silently replaced by that of another."""
    one, two = write_jsonl(tmp_path / "a.jsonl", ["one"]), write_jsonl(tmp_path / "b.jsonl", ["two"])
    build(one, tokenizer_path, tmp_path / "store")
    with pytest.raises(MismatchError, match=r"was .*a\.jsonl, now .*b\.jsonl"):
        build(two, tokenizer_path, tmp_path / "store")
    assert places(build(two, tokenizer_path, tmp_path / "store", force=True)) == [(str(two), 0)]


@pytest.fixture
def two(tmp_path) -> Path:
    """A folder with two files, of which there is a store."""
    for name in "ab":
        write_jsonl(tmp_path / f"data/{name}.jsonl", [f"a text of {name}"])
    build((tmp_path / "data/a.jsonl", tmp_path / "data/b.jsonl"), "bytes", tmp_path / "store")
    return tmp_path / "data"


def test_an_input_that_is_left_out(two, tmp_path):
    """Its documents are not removed without a word, and the word is the right one."""
    before = stamps(tmp_path / "store")
    for source, lost in (
        (two / "a.jsonl", r"those of .*data/b\.jsonl \(the"),
        (iter(["c"]), "another text: 2 documents"),
    ):
        with pytest.raises(MismatchError, match=lost) as caught:
            build(source, "bytes", tmp_path / "store")
        assert "--force" in str(caught.value)
        assert "options" not in str(caught.value)
    assert {name: stamp for name, stamp in stamps(tmp_path / "store").items() if name in before} == before
    assert len(build(two / "a.jsonl", "bytes", tmp_path / "store", force=True)) == 1


@pytest.mark.parametrize("spelling", ["folder", "glob", "list", "copy", "other names", "more"])
def test_the_same_files_by_another_name(two, tmp_path, spelling):
    """Shards are known by content, and so are inputs: nothing is encoded again."""
    shards = {name: stamp for name, stamp in stamps(tmp_path / "store").items() if name.startswith("shards/")}
    (tmp_path / "files.txt").write_text(f"{two}/a.jsonl\n{two}/b.jsonl\n")
    source: object = {"folder": two, "glob": f"{two}/*.jsonl", "list": f"@{tmp_path}/files.txt"}.get(
        spelling, tmp_path / "copy"
    )
    shutil.copytree(two, tmp_path / "copy")
    if spelling == "other names":
        for path in (tmp_path / "copy").iterdir():
            path.rename(path.with_stem(f"part-{path.stem}"))
    if spelling == "more":
        write_jsonl(tmp_path / "copy/c.jsonl", ["more"])
    store = build(source, "bytes", tmp_path / "store")
    assert len(store) == (3 if spelling == "more" else 2)
    assert Path(store.locate(0).file).parent == (two if spelling in ("folder", "glob", "list") else tmp_path / "copy")
    if spelling != "more":
        assert {name: stamp for name, stamp in stamps(store.path).items() if name.startswith("shards/")} == shards


def test_a_killed_build_of_other_files_is_not_swept_away(two, tmp_path):
    """What is finished of it counts as much as a store."""
    manifest = json.loads((tmp_path / "store/manifest.json").read_bytes())
    published = read_manifest(tmp_path / "store")
    published.shard_ids, published.shard_documents, published.shard_tokens, published.row_starts = [], [], [], []
    published.receipts, published.complete, published.documents, published.tokens = [], False, 0, 0
    published.write(tmp_path / "store")
    (tmp_path / "store/listing.json").unlink()
    with pytest.raises(MismatchError, match=r"a\.jsonl"):
        build(write_jsonl(tmp_path / "c.jsonl", ["else"]), "bytes", tmp_path / "store")
    again = build((two / "a.jsonl", two / "b.jsonl"), "bytes", tmp_path / "store")
    assert again.fingerprint == manifest["fingerprint"]


def test_the_home_folder(two, tmp_path, monkeypatch):
    """Python does not expand ~, and a shell not everywhere: no folder of that name is made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files.txt").write_text("~/data/a.jsonl\n")
    for number, source in enumerate(["~/data", Path("~/data"), "~/data/*.jsonl", "@~/files.txt"]):
        store = build(source, "bytes", Path(f"~/by-{number}") if number % 2 else f"~/by-{number}")
        assert store.path == tmp_path / f"by-{number}"
        assert Path(store.locate(0).file) == two / "a.jsonl"
    assert tm.build("~/data", "bytes", cache_dir="~/cache", progress="quiet").path.parents[1] == tmp_path / "cache"
    shutil.copytree(store.path / "tokenizer", tmp_path / "own")
    assert build("~/data", "~/own", "~/more").num_tokens == build("~/data", "bytes", "~/same").num_tokens
    assert len(tm.open("~/same")) == len(tm.pack("~/same", 8).store) == 2
    assert tm.load("~/same", 1, seq_len=8).batch(0)
    assert tm.export("~/same", "~/exported", format="megatron").path == tmp_path / "exported"
    assert tm.import_tokens("~/exported", "~/imported").path == tmp_path / "imported"
    (tmp_path / "mix.yaml").write_text("sources: {a: {store: ~/same}}\npack: {seq_len: 8}\n")
    assert len(tm.recipe("~/mix.yaml").view())
    assert not (tmp_path / "~").exists()


def test_a_build_waits_for_another_in_its_folder(jsonl, tokenizer_path, tmp_path):
    """It names the process and the folder once, touches nothing meanwhile, and builds if the other one has not."""
    source, store, waits = jsonl(["one"]), tmp_path / "store", []
    holder = """
import sys
from tokenmill.io.lock import build_lock
from pathlib import Path
with build_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

    def listen(event: Event) -> None:
        if event.name == "waiting":
            waits.append(event)
            assert [path.name for path in store.iterdir()] == [".lock"]
            if len(waits) == 1:
                raise KeyboardInterrupt
            other.kill()
            other.wait()

    with subprocess.Popen(
        [sys.executable, "-c", holder, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(KeyboardInterrupt):
                build(source, tokenizer_path, store, progress=listen)
            assert len(build(source, tokenizer_path, store, progress=listen)) == 1
        finally:
            other.kill()
    assert {(event.process, event.path) for event in waits} == {(str(other.pid), str(store))}
    assert len(waits) == 2, "it is said once"
    assert message(waits[0]) == f"waiting for process {other.pid}, which is building this store in {store}"


BUILDS_WHEN_TOLD = """
import sys, tokenmill as tm
def listen(event):
    if event.name == "planned":  # it has the lock
        print("building", flush=True)
        sys.stdin.readline()
tm.build(*sys.argv[1:4], workers=0, engine="reference", shard_bytes=sys.argv[4], force=True, progress=listen)
"""


@pytest.mark.parametrize("eos", ["auto", "none"])
def test_ranks_that_wait_open_the_finished_store(jsonl, tokenizer_path, tmp_path, eos):
    """They encode nothing and do not hold the lock one after the other. A rank that asks for another store is told."""
    source, store, said = jsonl(prose(3, 20)), tmp_path / "store", []
    words = [sys.executable, "-c", BUILDS_WHEN_TOLD, source, tokenizer_path, store, SHARD_BYTES]

    def listen(event: Event) -> None:
        said.append(event.name)
        if event.name == "waiting":
            other.communicate("go on\n", timeout=60)

    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "building\n"
        if eos == "none":
            with pytest.raises(MismatchError, match="eos: was"):
                build(source, tokenizer_path, store, eos=eos, progress=listen)
            assert said == ["waiting"]
            return
        assert len(build(source, tokenizer_path, store, progress=listen)) == 20
    assert said == ["waiting", "up_to_date"]
    events = [line["event"] for line in read_lines(store / "events.jsonl")]
    assert events.count("begun") == 1, "the second process wrote nothing"


# A folder that cannot be written.


def test_a_store_that_is_up_to_date_needs_no_writing(corpus, tokenizer_path, tmp_path):
    """On a read-only file system it is found, also by the content of the files; what would have to be built is refused."""
    source, store = tmp_path / "input", tmp_path / "store"
    shutil.copytree(corpus, source)
    built = build(source, tokenizer_path, store)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    said = []
    with hooked(read_only(store)):
        for options in ({}, {"rehash": True}):
            again = build(source, tokenizer_path, store, progress=lambda event: said.append(event.name), **options)
            assert again.fingerprint == built.fingerprint
            assert again[0].tolist() == built[0].tolist()
        assert said == ["up_to_date"] * 2
        assert (
            main(["build", str(source), "-t", str(tokenizer_path), "-o", str(store), "--shard-bytes", SHARD_BYTES]) == 0
        )
        with pytest.raises(MismatchError):
            build(source, tokenizer_path, store, eos="none")
        with pytest.raises(BuildError, match=f"cannot write .*{store}.*Read-only file system"):
            build(source, tokenizer_path, store, force=True)
        write_jsonl(source / "more.jsonl", ["new"])
        with pytest.raises(BuildError, match=f"cannot write .*{store}.*Read-only file system"):
            build(source, tokenizer_path, store)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


# Only the first documents.


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 11, 13, 500, 10**6])
def test_max_rows_counts_documents_read(corpus, built, tokenizer_path, tmp_path, limit):
    """The first documents, bad ones counted and blank rows not, over files and pieces; the same ones as without it."""
    full = tm.open(built)
    bad = [json.loads(line) for line in (built / "quarantine.jsonl").read_bytes().splitlines()]
    rows = sorted([*places(full), *((entry["file"], entry["row"]) for entry in bad)])[:limit]
    store = build(corpus, tokenizer_path, tmp_path / "store", max_rows=limit)
    wanted = [place for place in places(full) if place in set(rows)]
    assert places(store) == wanted
    assert documents(store) == documents(full)[: len(wanted)]
    manifest = read_manifest(tmp_path / "store")
    assert manifest.documents + sum(manifest.quarantined.values()) == min(limit, len(full) + len(bad))
    assert store.verify() == []


def test_limit_again_redoes_nothing(corpus, tokenizer_path, tmp_path):
    """A trial that is run again keeps its shards."""
    build(corpus, tokenizer_path, tmp_path / "store", max_rows=200)
    before = stamps(tmp_path / "store")
    build(corpus, tokenizer_path, tmp_path / "store", max_rows=200)
    after = stamps(tmp_path / "store")
    assert {f: s for f, s in after.items() if f.startswith("shards")} == {
        f: s for f, s in before.items() if f.startswith("shards")
    }


def test_limit_within_messy_rows(tokenizer_path, tmp_path):
    """Bad rows use the limit up and blank rows do not, in a group of small files."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('\n{"text": "a0"}\n\n{bad\n\n\n{"text": "a1"}\n')
    second.write_text('\n\n{"text": "b0"}\n{"text": "b1"}\n')
    for limit, rows in ((1, [1]), (2, [1]), (3, [1, 6]), (4, [1, 6, 2]), (5, [1, 6, 2, 3]), (6, [1, 6, 2, 3])):
        store = build((first, second), tokenizer_path, tmp_path / f"store{limit}", max_rows=limit)
        assert [row for _, row in places(store)] == rows


# Files that fail.


def truncate_gz(path: Path, texts: list[str]) -> bytes:
    """Write a .gz cut short; returns what it should have been."""
    whole = gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode(), mtime=0)
    path.write_bytes(whole[: len(whole) // 2])
    return whole


@pytest.mark.parametrize("size", ["in a group", "alone"])
def test_a_truncated_file_fails_alone(tokenizer_path, tmp_path, capsys, size):
    """The others finish; it is named, by exit code 4; mended, just its shard is made, and all is as if from scratch."""
    source, store = tmp_path / "in", tmp_path / "store"
    for number in range(8):
        write_jsonl(source / f"{number}.jsonl", prose(number, 10))
    write_jsonl(source / "large.jsonl", prose(50, 250))
    bad = source / "4b.jsonl.gz"
    whole = truncate_gz(bad, prose(60, 5 if size == "in a group" else 800))
    command = ["build", str(source), "-t", str(tokenizer_path), "-o", str(store)]
    command += ["--shard-bytes", SHARD_BYTES, "--workers", "0", "--engine", "reference", "-q", "--json"]
    assert main(command) == 4
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert facts["complete"] is False
    assert [entry["file"] for entry in facts["failed_files"]] == [str(bad)]
    assert str(bad) in facts["failed_files"][0]["error"]
    assert "1 input file failed" in captured.err
    half = tm.open(store)
    assert len(half) == 8 * 10 + 250
    assert str(bad) not in {file for file, _ in places(half)}
    assert half.verify() == []
    assert main(command) == 4  # tried again, and still broken
    capsys.readouterr()

    before = stamps(store)
    bad.write_bytes(whole)
    assert main(command) == 0
    after = stamps(store)
    new = {file for file in after if file.startswith("shards/") and after[file] != before.get(file)}
    assert len(new) == 3  # one shard
    fresh = build(source, tokenizer_path, tmp_path / "fresh")
    assert tm.open(store).fingerprint == fresh.fingerprint
    assert shard_files(store) == shard_files(tmp_path / "fresh")
    assert temporary_files(store) == []


def test_a_file_that_fails_late_leaves_no_trace(tokenizer_path, tmp_path):
    """A file that breaks after many blocks of it were encoded is taken out of its shard whole."""
    source = tmp_path / "in"
    write_jsonl(source / "a.jsonl", ["before"])
    write_jsonl(source / "c.jsonl", ["after"])
    lines = "".join(json.dumps({"text": text}) + "\n" for text in prose(3, 600) * 100).encode()
    assert len(lines) > 9 << 20
    (source / "b.jsonl.gz").write_bytes(gzip.compress(lines, 1, mtime=0)[:-9])
    store = build(source, tokenizer_path, tmp_path / "store", engine="auto", shard_bytes="1GB")
    assert [Path(file).name for file, _ in places(store)] == ["a.jsonl", "c.jsonl"]
    assert store.failed[0]["file"].endswith("b.jsonl.gz")
    (source / "b.jsonl.gz").unlink()
    clean = build(source, tokenizer_path, tmp_path / "clean", shard_bytes="1GB")
    assert documents(clean) == documents(store)
    assert clean.num_tokens == store.num_tokens == sum(store.lengths)
    assert read_manifest(tmp_path / "store").text_bytes == read_manifest(tmp_path / "clean").text_bytes


@pytest.mark.parametrize("workers", [0, 1])
def test_every_file_fails(tokenizer_path, tmp_path, workers):
    """An error with the first reason, and no store; the next build makes it whole."""
    wholes = {}
    for name in ("a", "b"):
        path = tmp_path / f"{name}.jsonl.gz"
        wholes[path] = truncate_gz(path, prose(1, 500))
    with pytest.raises(InputError, match=r"no document in .*b\.jsonl\.gz, so no store is published: .*a\.jsonl\.gz"):
        build(tuple(wholes), tokenizer_path, tmp_path / "store", workers=workers)
    for path, whole in wholes.items():
        path.write_bytes(whole)
    mended = build(tuple(wholes), tokenizer_path, tmp_path / "store", workers=workers)
    assert mended.complete
    assert len(mended) == 1000


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_at_the_first_bad_document(tokenizer_path, tmp_path, workers):
    """With on_error="raise" the error names file and row, also in a later piece of a file; the lock is free again."""
    path = write_jsonl(tmp_path / "a.jsonl", prose(1, 300))
    lines = path.read_text().splitlines()
    lines[270] = '{"text": 5}'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DocumentError, match=r"a\.jsonl, row 270: not text"):
        build(path, tokenizer_path, tmp_path / "store", workers=workers, on_error="raise", shard_bytes="8KB")
    lines[270] = '{"text": "mended"}'
    path.write_text("\n".join(lines) + "\n")
    store = build(path, tokenizer_path, tmp_path / "store", workers=workers, on_error="raise", shard_bytes="8KB")
    assert len(store) == 300


# Disks that fail.


def test_a_folder_that_cannot_be(jsonl, tokenizer_path, tmp_path):
    """A store below a regular file, in place of one, or among other things: an error that names the path."""
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    kinds = {tmp_path / "file/store": BuildError, tmp_path / "file": UsageError, tmp_path / "mine": UsageError}
    for out, kind in kinds.items():
        with pytest.raises(kind, match=str(out)):
            build(jsonl(["a"]), tokenizer_path, out)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "file").read_text() == ""


LIMITED = """
import json, resource, sys
import tokenmill as tm
source, tokenizer, out, workers, size = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    tm.build(
        source, tokenizer, out, workers=int(workers), engine="reference", shard_bytes="16KB", progress="quiet"
    )
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize(("workers", "size"), [("0", 10_000), ("1", 16_000)])
def test_a_disk_that_takes_no_more(corpus, built, tokenizer_path, tmp_path, workers, size):
    """A write that fails is a BuildError that names a path in the store; what is there is right; the next run goes on."""
    store = tmp_path / "store"
    build(corpus, tokenizer_path, store, max_rows=1)  # the tokenizer is there already: only shards are too large
    shutil.rmtree(store / "shards")
    (store / "manifest.json").unlink()
    arguments = [sys.executable, "-c", LIMITED, corpus, tokenizer_path, store, workers, str(size)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    kind, message = json.loads(ran.stdout)
    assert kind == "BuildError"
    assert str(store) in message
    assert "File too large" in message
    assert main(["info", str(store)]) == 0
    kept = {path.name: path.stat().st_ino for path in (store / "shards").glob("*.json")}
    assert build(corpus, tokenizer_path, store).fingerprint == tm.open(built).fingerprint
    assert {path.name: path.stat().st_ino for path in (store / "shards").glob("*.json") if path.name in kept} == kept
    assert shard_files(store) == shard_files(built)
    assert temporary_files(store) == []


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of 1 MB; where this user may not mount one, the limit on a file's size has to do (the test above)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize(("free", "workers"), [(0, 0), (4096, 0), (170_000, 0), (170_000, 1), (250_000, 0)])
def test_a_full_disk(corpus, built, tokenizer_path, small_disk, workers, free):
    """Whichever write it is that no longer fits: a BuildError that names a path; with room again, the build goes on."""
    ballast, store = small_disk / "ballast", small_disk / "store"
    ballast.write_bytes(bytes((1 << 20) - free))
    with pytest.raises(BuildError, match=str(store)) as caught:
        build(corpus, tokenizer_path, store, workers=workers)
    assert "No space left" in str(caught.value)
    for receipt in (store / "shards").glob("*.json"):
        assert receipt.read_bytes() == (built / "shards" / receipt.name).read_bytes()
    kept = {path.name: path.stat().st_ino for path in (store / "shards").glob("*.json")}
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    assert build(corpus, tokenizer_path, store, workers=workers).fingerprint == tm.open(built).fingerprint
    assert {path.name: path.stat().st_ino for path in (store / "shards").glob("*.json") if path.name in kept} == kept
    assert shard_files(store) == shard_files(built)
    assert temporary_files(store) == []
    assert tm.open(store).verify() == []


# What earlier builds left behind.


def test_a_damaged_manifest_is_written_again_from_receipts(corpus, built, tokenizer_path, tmp_path):
    """No shard is made again, and the manifest says what it said."""
    store = tmp_path / "store"
    shutil.copytree(built, store)
    before = {name: stamp for name, stamp in stamps(store).items() if name.startswith("shards")}
    for damage in (b"", b"{}", (built / "manifest.json").read_bytes()[:-50]):
        (store / "manifest.json").write_bytes(damage)
        assert build(corpus, tokenizer_path, store, engine="auto").fingerprint == tm.open(built).fingerprint
        assert {name: stamp for name, stamp in stamps(store).items() if name.startswith("shards")} == before
        assert what_it_says(store) == what_it_says(built)


def test_a_shard_cut_short_is_made_again(corpus, built, tokenizer_path, tmp_path):
    """A receipt whose files are not there in full does not count."""
    store = tmp_path / "store"
    shutil.copytree(built, store)
    one, two = sorted((store / "shards").glob("*.ends.npy"))[:2]
    os.truncate(one, one.stat().st_size - 8)
    (two.parent / two.name.replace(".ends", "")).unlink()
    build(corpus, tokenizer_path, store)
    assert shard_files(store) == shard_files(built)


def test_litter_is_swept_and_nothing_else(corpus, built, tokenizer_path, tmp_path):
    """What killed builds left half-written is gone after the next; files that are not the store's own stay."""
    store = tmp_path / "store"
    shutil.copytree(built, store)
    name = next((store / "shards").glob("*.json")).stem
    theirs = [store / "README.txt", store / "shards/notes.txt"]
    ours = [store / f"shards/{name}.npy.123.tmp", store / f"shards/{'0' * 24}.npy", store / "manifest.json.123.tmp"]
    ours += [store / "quarantine.jsonl.123.tmp", store / "tokenizer/tokenizer.json.123.tmp"]
    for path in (*theirs, *ours):
        path.write_text("x")
    (store / "manifest.json").unlink()
    build(corpus, tokenizer_path, store)
    assert all(path.exists() for path in theirs)
    assert [path for path in ours if path.exists()] == []


# Sources of nothing, and sources in memory.


def test_no_source_at_all(tokenizer_path, tmp_path):
    """Nothing to read is a usage error, and no folder is made for it."""
    (tmp_path / "empty").mkdir()
    for source in ((), tmp_path / "empty"):
        with pytest.raises(UsageError):
            build(source, tokenizer_path, tmp_path / "store")
    for source in (tmp_path / "nowhere", str(tmp_path / "*.jsonl")):
        with pytest.raises(MissingInputError):
            build(source, tokenizer_path, tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corpus_of_empty_files(tokenizer_path, tmp_path, workers):
    """Files with no row in them are an error, and change nothing about a store that is there."""
    for name in ("a.jsonl", "b.jsonl", "c.csv"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("text\n" if name.endswith("csv") else "")
    for earlier in ("", '{"text": "a"}\n'):
        if earlier:
            (tmp_path / "in" / "a.jsonl").write_text(earlier)
            before = build(tmp_path / "in", tokenizer_path, tmp_path / "store", workers=workers).fingerprint
            (tmp_path / "in" / "a.jsonl").write_text("")
        with pytest.raises(InputError, match=r"no document in .*: the input is empty or blank"):
            build(tmp_path / "in", tokenizer_path, tmp_path / "store", workers=workers)
    assert tm.open(tmp_path / "store").fingerprint == before
    assert tm.open(tmp_path / "store").verify() == []


def test_an_empty_iterable(tokenizer_path, tmp_path):
    """No text in memory is no store; a trial that a limit stops before its first document is one."""
    with pytest.raises(UsageError, match="empty"):
        build([], tokenizer_path, tmp_path / "store")
    store = build(["a text"], tokenizer_path, tmp_path / "store", max_tokens=1)
    assert (len(store), store.num_tokens, store.complete) == (0, 0, True)
    assert tm.open(tmp_path / "store").verify() == []
    assert list(store) == []
    assert store.to_arrow().to_pylist() == []


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_in_memory_resume(tokenizer_path, reference, tmp_path, workers):
    """The same texts given again are known by their content: no shard is made twice, nothing is left in the spool."""
    texts = prose(4, 800)
    store = build(iter(texts), tokenizer_path, tmp_path / "store", workers=workers)
    assert store.num_shards > 3
    assert documents(store)[:100] == [[*e.ids, 0] for e in reference.encode_batch(texts[:100])]
    assert store.locate(799).row == 799
    before = stamps(tmp_path / "store")
    build(iter(texts), tokenizer_path, tmp_path / "store", workers=workers)
    assert stamps(tmp_path / "store") == before
    (tmp_path / "store/manifest.json").unlink()
    lost = sorted((tmp_path / "store/shards").glob("*.json"))[1]
    lost.unlink()
    again = build(iter(texts), tokenizer_path, tmp_path / "store", workers=workers)
    after = stamps(tmp_path / "store")
    assert {name for name in after if after[name] != before[name]} == {"manifest.json"} | {
        f"shards/{lost.stem}{suffix}" for suffix in (".json", ".npy", ".ends.npy")
    }
    assert again.fingerprint == store.fingerprint
    assert not (tmp_path / "store/spool").exists()


def test_texts_in_memory_resume_however_the_folder_is_spelled(tokenizer_path, tmp_path, monkeypatch):
    """A relative path to the store, an absolute one, and a store that was moved: the same shards."""
    texts = prose(4, 300)
    monkeypatch.chdir(tmp_path)
    build(iter(texts), tokenizer_path, "store")
    before = stamps(tmp_path / "store")
    build(iter(texts), tokenizer_path, tmp_path / "store")
    assert stamps(tmp_path / "store") == before
    os.rename("store", "moved")
    build(iter(texts), tokenizer_path, "moved")
    assert stamps(tmp_path / "moved") == before


def test_changed_texts_in_memory_rebuild_what_changed(tokenizer_path, tmp_path):
    """More texts in memory: the new store holds them all, and the old shards that still apply are kept."""
    texts = prose(4, 3000)
    build(iter(texts), tokenizer_path, tmp_path / "store", shard_bytes="64KB")
    before = {path.stem for path in (tmp_path / "store/shards").glob("*.json")}
    store = build(iter([*texts, "more"]), tokenizer_path, tmp_path / "store", shard_bytes="64KB")
    assert len(store) == 3001
    after = {path.stem for path in (tmp_path / "store/shards").glob("*.json")}
    assert len(before - after) <= 1


# What a build says.


@pytest.mark.parametrize("workers", [0, 1])
def test_events(corpus, tokenizer_path, tmp_path, workers):
    """The log and the caller's function hear the same story: plan, start, every shard, finished."""
    told: list[Event] = []
    store = build(corpus, tokenizer_path, tmp_path / "store", workers=workers, progress=told.append)
    logged = list(read_lines(tmp_path / "store/events.jsonl"))
    names = [event["event"] for event in logged]
    assert names[:3] == ["begun", "planned", "started"]
    assert names[-1] == "finished"
    assert sorted(event["id"] for event in logged if event["event"] == "shard_done") == sorted(
        store._manifest.shard_ids
    )
    assert [event.name for event in told] == names
    plan, last, finished = told[1], told[-2], told[-1]
    assert last.name == "progress"
    assert (last.tokens, last.documents) == (store.num_tokens, len(store))
    assert last.source_bytes == last.total_source_bytes == store._manifest.source_bytes
    assert last.text_bytes == store._manifest.text_bytes
    assert (last.shards_done, last.shards, last.quarantined) == (store.num_shards, store.num_shards, 2)
    shards = [event for event in told if event.name == "shard_done"]
    for name in ("tokens", "documents", "source_bytes", "text_bytes", "quarantined"):
        assert sum(getattr(event, name) for event in shards) == getattr(last, name)
    assert sum((Counter(event.reasons) for event in shards), Counter()) == finished.quarantined
    assert all(min(asdict(event.seconds).values()) >= 0 for event in shards)
    assert all(event.seconds.encode > 0 and event.seconds.sync > 0 for event in shards if event.documents)
    assert {event.pid for event in shards}.isdisjoint({os.getpid()}) == (workers > 0)
    assert (plan.files, plan.shards, plan.done) == (16, store.num_shards, 0)
    assert finished.fingerprint == store.fingerprint
    assert (finished.documents, finished.tokens) == (len(store), store.num_tokens)
    assert finished.quarantined == {"bad json": 1, "null field": 1}


def test_the_log_goes_on(jsonl, tokenizer_path, tmp_path):
    """A later build adds to the log; a line that a crash cut short is cut away."""
    source = jsonl(["a"])
    build(source, tokenizer_path, tmp_path / "store")
    log = tmp_path / "store/events.jsonl"
    before = log.read_bytes()
    log.write_bytes(before + b'{"event": "half a li')
    build(source, tokenizer_path, tmp_path / "store")
    assert log.read_bytes().startswith(before)
    assert [event["event"] for event in read_lines(log)][-1] == "up_to_date"
    assert tm.open(tmp_path / "store").verify() == []


def test_an_error_is_in_the_log(jsonl, tokenizer_path, tmp_path):
    """A build that stops says why, in the log."""
    path = jsonl(["a"])
    path.write_text('{"text": "a"}\n{"text": 1}\n')
    with pytest.raises(DocumentError):
        build(path, tokenizer_path, tmp_path / "store", on_error="raise")
    last = list(read_lines(tmp_path / "store/events.jsonl"))[-1]
    assert last["event"] == "stopped"
    assert "DocumentError" in last["error"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_watcher_that_raises_stops_the_build(corpus, built, tokenizer_path, tmp_path, workers):
    """An error in the caller's function comes out as it is; the next build goes on from there."""

    def watch(event):
        if event.name == "shard_done":
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        build(corpus, tokenizer_path, tmp_path / "store", workers=workers, progress=watch)
    assert build(corpus, tokenizer_path, tmp_path / "store").fingerprint == tm.open(built).fingerprint


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": -1}, "workers"),
        ({"shard_bytes": "10"}, "shard_bytes"),
        ({"shard_bytes": "lots"}, "shard_bytes"),
        ({"memory": "some"}, "memory"),
        ({"progress": "loud"}, "progress"),
        ({"engine": "steam"}, "engine"),
        ({"max_rows": 0}, "max_rows"),
        ({"on_error": "cry"}, "on_error"),
        ({"format": "pdf"}, "format"),
    ],
)
def test_wrong_options_are_named(jsonl, tokenizer_path, tmp_path, options, says):
    """A usage error says which option it was."""
    with pytest.raises(UsageError, match=says):
        build(jsonl(["a"]), tokenizer_path, tmp_path / "store", **options)


def test_reading_options_go_with_the_source(jsonl, tokenizer_path, tmp_path):
    """A Source has its options already; more of them are a usage error, not ignored."""
    with pytest.raises(UsageError, match="text_field"):
        build(tm.read(jsonl(["a"])), tokenizer_path, tmp_path / "store", text_field="body")


def test_open_files_do_not_grow(corpus, tokenizer_path, tmp_path):
    """Builds with workers leave no pipe or file open behind."""
    build(corpus, tokenizer_path, tmp_path / "first", workers=1)
    before = len(os.listdir("/proc/self/fd"))
    build(corpus, tokenizer_path, tmp_path / "second", workers=2)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


def test_a_store_in_its_source_folder_is_not_read(tokenizer_path, tmp_path):
    """Built into the folder it reads from, a store is up to date the second time; another build skips it too."""
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    for _ in range(2):
        store = build(tmp_path, tokenizer_path, tmp_path / "store")
        assert (len(store), store.complete) == (2, True)
    assert len(build(tmp_path, tokenizer_path, tmp_path.parent / f"{tmp_path.name}-other")) == 2
    assert len(build(str(tmp_path / "**/*.json*"), tokenizer_path, tmp_path / "store", force=True)) == 2


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.jsonl"])
def test_a_wrong_field_leaves_nothing_in_the_way(tokenizer_path, tmp_path, name):
    """A field that no record has is a UsageError, at once; no folder is left, and the right name builds."""
    table = pa.table({"body": ["one", "two"], "id": ["1", "2"]})
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("body,id\none,1\ntwo,2\n")
    elif name == "a.parquet":
        pq.write_table(table, path)
    elif name == "a.arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text('{"body": "one"}\n{"body": "two"}\n')
    with pytest.raises(UsageError, match=r"'text'.*body"):
        build(path, tokenizer_path, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert len(build(path, tokenizer_path, tmp_path / "store", text_field="body")) == 2


def test_a_file_in_pieces_fails_once(tokenizer_path, tmp_path):
    """A file that fails in each of its pieces is one failed file."""
    good, bad = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": ["word " * 5000] * 8}), good, row_group_size=1, compression="none")
    pq.write_table(pa.table({"other": ["word " * 5000] * 8}), bad, row_group_size=1, compression="none")
    store = build(tmp_path, tokenizer_path, tmp_path / "store", shard_bytes="32KB")
    assert [entry["file"] for entry in store.failed] == [str(bad)]
    assert len(store) == 8


def test_a_file_is_in_a_store_whole_or_not_at_all(tokenizer_path, tmp_path):
    """A file that fails in one of its pieces is left out with all of them, and every row number stays right."""
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    texts = [f"row {i} " + "word " * 200 for i in range(400)]
    for target in (path, other):
        pq.write_table(pa.table({"text": texts}), target, row_group_size=100, compression="none", use_dictionary=False)
    raw = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    raw[start : start + 64] = bytes(64)
    path.write_bytes(raw)
    store = build([path, other], tokenizer_path, tmp_path / "store", shard_bytes="64KB")
    assert [entry["file"] for entry in store.failed] == [str(path)]
    assert [store.locate(i) for i in range(len(store))] == [(str(other), i) for i in range(400)]


def test_a_crash_is_remembered_for_the_right_document(tokenizer_path, tmp_path):
    """Documents keep their number in a task when a file before them fails."""
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "b"}\n' * 50)[:-6])
    (tmp_path / "c.jsonl").write_text("".join(f'{{"text": "c {i}"}}\n' for i in range(10)))
    loaded = tm.load_tokenizer(tokenizer_path)
    source = tm.read(tmp_path)
    (task,) = (task_of(pieces, "") for pieces in groups(source, 1 << 25, head_of))
    announced: list[tuple[int, int]] = []
    for poison in ([], [3]):
        options = TaskOptions(
            crashes=CrashHistory(poison=poison), announce=lambda first, last: announced.append((first, last))
        )
        encoded = encode_task(task, source, loaded._encoder(), tmp_path / "shards", options)
        encoded.writer.discard()
        assert [entry["file"] for entry in encoded.failed] == [str(tmp_path / "b.jsonl.gz")]
        read_before = announced[0][0]
        lost = [skip for piece in encoded.facts["pieces"] for skip in piece.get("skips", ())]
        assert (lost == []) == (not poison or poison[0] < read_before)
    assert announced[0] == (read_before, read_before + 10)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ([1, 2], "int"),
        (["corpus.txt", "a typo"], "look like paths, such as 'corpus.txt'"),
        (["a typo", "*.txt"], "look like paths"),
        (b"text", "bytes"),
    ],
)
def test_what_is_not_a_corpus_is_refused(tokenizer_path, tmp_path, monkeypatch, source, complaint):
    """Rather than turned into documents nobody meant."""
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("text")
    with pytest.raises(UsageError, match=complaint):
        build(source, tokenizer_path, tmp_path / "store")


def test_a_data_frame_is_a_table(tokenizer_path, tmp_path, reference):
    """Not the list of its column names."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "text": ["one", "two"]})
    store = build(frame, tokenizer_path, tmp_path / "store")
    assert [ids.tolist() for ids in store] == [[*reference.encode(text).ids, 0] for text in ("one", "two")]


def test_an_engine_chosen_by_hand_is_held_to_the_reference(tmp_path, tokenizer_path):
    """One that differs is refused, whoever chose it."""
    odd = tokenizers.Tokenizer.from_file(str(tokenizer_path / "tokenizer.json"))
    odd.add_tokens([tokenizers.AddedToken("cat", single_word=True, normalized=False)])
    odd.save(str(tmp_path / "tokenizer.json"))
    assert tm.load_tokenizer(tmp_path).choose_engine() != "gigatoken"
    with pytest.raises(TokenizerError, match=r"gigatoken.*cat"):
        build(["a catalogue"], tmp_path, tmp_path / "store", engine="gigatoken", eos=0)
    word_pieces = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    word_pieces.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="gigatoken"):
        tm.load_tokenizer(tmp_path, engine="gigatoken")
