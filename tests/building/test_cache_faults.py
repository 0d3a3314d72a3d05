"""What befalls a cache: it is read-only, full, damaged, moved or half built. The store that comes out is right, or none does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from build_helpers import CachedBuilds, write_jsonl
from cache_world import SETTLED_SECONDS

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import BuildError, InputError, TokenizerError, UsageError
from tokenmill.user_cache import write_cached


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Three files of forty documents; with `shard_bytes="2KB"` each has shards of its own."""
    for part in range(3):
        write_jsonl(
            tmp_path / f"corpus/{part}.jsonl", [f"part {part}, line {i}: {'words and ' * (i % 9)}" for i in range(40)]
        )
    return tmp_path / "corpus"


@pytest.fixture(scope="module")
def still(tmp_path_factory) -> Path:
    """Two folders of the same content, left alone for so long that their files are known by how they look."""
    folder = tmp_path_factory.mktemp("still")
    for part in range(3):
        write_jsonl(
            folder / f"here/{part}.jsonl", [f"part {part}, line {i}: {'words and ' * (i % 9)}" for i in range(40)]
        )
    shutil.copytree(folder / "here", folder / "there")
    looked_at = time.time()
    while time.time() < looked_at + SETTLED_SECONDS:
        time.sleep(0.05)
    return folder


@pytest.fixture
def ask(tmp_path, tokenizer_path) -> CachedBuilds:
    return CachedBuilds(tmp_path / "cache", tokenizer_path, shard_bytes="2KB")


@pytest.fixture
def right(corpus, tokenizer_path, tmp_path) -> str:
    options = {"engine": "reference", "workers": 0, "shard_bytes": "2KB", "progress": "quiet"}
    return tm.build(corpus, tokenizer_path, tmp_path / "right", **options).fingerprint


def mounted(*arguments: object) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True).returncode == 0


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As a file system, since the superuser may write into any folder. Skips where this user may not mount."""
    if not mounted("--bind", folder, folder):
        pytest.skip("this user may not mount")
    try:
        if not mounted("-o", "remount,bind,ro", folder):
            pytest.skip("this user may not mount read-only")
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


# --- where nothing can be written -------------------------------------------------------------------------------------------


def test_a_read_only_cache_with_a_hit(ask, still, right):
    ask(still / "here")
    with read_only(ask.cache), warnings.catch_warnings():
        warnings.simplefilter("error")
        store = ask(still / "here")
    assert (ask.documents, store.path, store.fingerprint) == (0, ask.stores[0], right)


@pytest.mark.parametrize("data", ["files", "iterable"])
def test_a_read_only_cache_without(ask, corpus, right, data, tmp_path, monkeypatch):
    """Tokens for this run alone, with a warning that says so."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ask(iter(["something else"]))
    with read_only(ask.cache), pytest.warns(UserWarning, match="cannot be kept"):
        store = ask(corpus if data == "files" else iter(["one", "two"]))
    assert (len(store), ask.cache in store.path.parents) == (120 if data == "files" else 2, False)
    assert store.verify() == []


@pytest.mark.parametrize("data", ["files", "iterable"])
@pytest.mark.parametrize("where", ["cache", "cache/builds", "cache/stores"])
def test_a_file_where_a_folder_should_be(ask, corpus, where, data):
    """What has been read of a stream by then is not lost."""
    path = ask.cache.parent / where
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file")
    with pytest.warns(UserWarning, match="cannot be kept"):
        store = ask(corpus if data == "files" else (f"document {i}" for i in range(120)))
    assert (len(store), store.verify()) == (120, [])


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_without_a_home(corpus, tokenizer_path, engine, monkeypatch):
    """A user whom nobody knows, as in some containers: there is no folder to keep anything in."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TOKENMILL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    one = "tokenmill.encoding.selection.choosing.runners"  # one engine to be tried, and the reference
    monkeypatch.setattr(one, lambda definition: ["gigatoken", definition.reference])
    with pytest.warns(UserWarning, match="cannot be kept"):
        store = tm.build(corpus, tokenizer_path, engine=engine, progress="quiet")
    assert (len(store), store.verify()) == (120, [])


@pytest.mark.parametrize(("free", "workers"), [(0, 0), (100_000, 0), (100_000, 1)])
def test_a_full_disk(corpus, tokenizer_path, tmp_path, workers, free):
    """A BuildError that names a path; with room again the build goes on where it was, and what was done stays."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", disk):
        pytest.skip("this user may not mount a small disk")
    try:
        ask = CachedBuilds(disk / "cache", tokenizer_path, shard_bytes="2KB")
        (disk / "ballast").write_bytes(bytes((1 << 20) - free))
        with pytest.raises(BuildError, match=f"{disk}.*No space left"):
            ask(corpus, workers=workers)
        kept = {path.name: path.stat().st_ino for path in ask.cache.glob("builds/*/store/shards/*.json")}
        assert not (ask.cache / "stores").exists()
        (disk / "ballast").unlink()
        assert mounted("-o", "remount,size=20m", disk)
        store = ask(corpus, workers=workers)
        assert (len(store), store.verify(), len(ask.stores)) == (120, [], 1)
        assert {name: (store.path / "shards" / name).stat().st_ino for name in kept} == kept
        assert ask.leftovers() == []
        ask(corpus)
        assert ask.documents == 0
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# --- damage -------------------------------------------------------------------------------------------------------------------


def a_shard(store: Path, suffix: str) -> Path:
    receipt = min((store / "shards").glob("*.json"))
    return receipt.with_suffix(suffix)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


DAMAGES: dict[str, tuple[Callable[[Path], object], int]] = {  # and the most documents that may be tokenized again
    "no manifest": (lambda store: (store / "manifest.json").unlink(), 0),
    "half a manifest": (lambda store: shorten(store / "manifest.json"), 0),
    "a shard is gone": (lambda store: a_shard(store, ".npy").unlink(), 40),
    "a shard is short": (lambda store: shorten(a_shard(store, ".npy")), 40),
    "ends are gone": (lambda store: a_shard(store, ".ends.npy").unlink(), 40),
    "a receipt is gone": (lambda store: a_shard(store, ".json").unlink(), 40),
    "the store is gone": (shutil.rmtree, 120),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_made_anew(ask, corpus, right, damage):
    """In its place, from what is left of it."""
    store = ask(corpus)
    harm, most = DAMAGES[damage]
    harm(store.path)
    again = ask(corpus)
    assert (again.path, again.fingerprint, again.verify()) == (store.path, right, [])
    assert ask.documents <= most
    assert ask.stores == [store.path]
    assert ask.leftovers() == []
    ask(corpus)
    assert ask.documents == 0


def test_lists_of_files_removed_by_hand(ask, corpus, right):
    """Then the content is compared, and nothing is tokenized."""
    store = ask(corpus)
    shutil.rmtree(ask.cache / "builds")
    again = ask(corpus)
    assert (ask.documents, again.path, again.fingerprint) == (0, store.path, right)
    assert again.locate(119).file == str(corpus / "2.jsonl")
    assert ask.leftovers() == []


def test_an_interrupted_list_is_swept(ask, corpus):
    ask(corpus)
    for name in ("listing.77.tmp", "sources.json.77-abcd.tmp"):
        (ask.entries[0] / name).write_text("half")
    (ask.cache / "stores" / f"{ask.stores[0].name}.77-abcd.tmp/shards").mkdir(parents=True)
    write_jsonl(corpus / "3.jsonl", ["one more"])
    ask(corpus)
    assert ask.leftovers() == []


@pytest.mark.parametrize("content", [b"", bytes(9), b"[]", b'{"settled": true, "store": "../../outside"}', None])
def test_damaged_lists_are_not_believed(ask, still, right, content):
    """Whatever an entry holds only saves time: here each of its files in turn is damaged, or gone."""
    ask(still / "there")
    ask(still / "here")
    ask(still / "here", eos=None)  # another entry of the same inputs
    names = {path.name for entry in ask.entries for path in entry.iterdir()} - {".lock"}
    assert names
    for name in names:
        for path in ask.cache.glob(f"builds/*/{name}"):
            path.unlink() if content is None else path.write_bytes(content)
        again = ask(still / "here")
        assert (ask.documents, again.fingerprint) == (0, right), name
        assert again.locate(119) == (str(still / "here/2.jsonl"), 39), name


@pytest.mark.parametrize("name", ["listing.json", "seen.json"])
@pytest.mark.parametrize("body", [{}, {"version": 99, "files": [[1]], "listing": 3}])
def test_a_list_of_another_version_is_not_believed(ask, corpus, right, name, body):
    """Whole, but not as this version writes it. Neither in the entry of the inputs, nor in another that is looked into."""
    ask(corpus)
    ask(corpus, eos=None)
    for entry in ask.entries:
        write_cached(entry / name, body)
    write_jsonl(corpus / "3.jsonl", ["one more"])
    assert (len(ask(corpus)), ask.documents) == (121, 1)
    assert len(ask(corpus, bos=0)) == 121


def test_a_list_that_names_a_store_elsewhere(ask, still, tmp_path):
    """A name from a file never leads out of the cache."""
    store = ask(still / "here")
    shutil.copytree(store.path, tmp_path / "outside")
    (entry,) = ask.entries
    body = json.loads((entry / "listing.json").read_bytes().split(b"\n", 1)[1])
    for name in ("../../outside", str(tmp_path / "outside"), "..", "", None, 7):
        write_cached(entry / "listing.json", {**body, "store": name})
        assert ask(still / "here").path == store.path
        assert ask.documents == 0


# --- places -------------------------------------------------------------------------------------------------------------------


def test_a_cache_that_is_a_link(ask, corpus, right, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    ask.cache.symlink_to("elsewhere")
    assert ask(corpus).fingerprint == right
    ask(corpus)
    assert ask.documents == 0
    ask.cache = tmp_path / "elsewhere"
    ask(corpus)
    assert ask.documents == 0
    assert ask.leftovers() == []


def test_a_cache_on_another_disk(corpus, right, tokenizer_path, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=20m", "tmpfs", disk):
        pytest.skip("this user may not mount")
    try:
        ask = CachedBuilds(disk / "cache", tokenizer_path, shard_bytes="2KB")
        assert ask(corpus).fingerprint == right
        write_jsonl(corpus / "3.jsonl", ["one more"])
        assert (len(ask(corpus)), ask.documents, ask.leftovers()) == (121, 1, [])
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_without_hard_links_shards_are_copied(ask, corpus, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    ask(corpus)
    write_jsonl(corpus / "3.jsonl", ["one more"])
    monkeypatch.setattr(os, "link", refused)
    grown = ask(corpus)
    assert (len(grown), ask.documents, grown.verify(), ask.leftovers()) == (121, 1, [], [])
    shutil.rmtree(min(ask.stores, key=lambda path: path.stat().st_mtime))
    assert grown.verify() == []


def test_a_cache_within_the_corpus(corpus, right, tokenizer_path):
    """It is no part of it."""
    ask = CachedBuilds(corpus / "cache", tokenizer_path, shard_bytes="2KB")
    for _ in range(2):
        assert ask(corpus).fingerprint == right
        assert len(ask.stores) == 1
    assert ask.documents == 0


def test_the_same_content_elsewhere_goes_by_its_own_names(ask, still):
    """Whoever built the store, and whoever built it again."""

    def asked(folder: str, **options: Any) -> int:
        assert ask(still / folder, **options).locate(0).file == str(still / folder / "0.jsonl")
        return ask.documents

    assert [asked("here"), asked("there"), asked("here")] == [120, 0, 0]
    shutil.rmtree(ask.stores[0])
    assert [asked("there"), asked("here"), asked("there")] == [120, 0, 0]
    assert [asked("here", force=True), asked("there"), asked("here")] == [120, 0, 0]
    assert len(ask.stores) == 1


def test_why_writes_nothing(ask, corpus, tmp_path, capsys):
    """Also where the content is there under other names."""
    ask(corpus)
    copy = shutil.copytree(corpus, tmp_path / "copy")
    before = sorted(ask.cache.rglob("*"))
    how = ["-t", str(ask.tokenizer), "--cache-dir", str(ask.cache), "--shard-bytes", "2KB", "--json"]
    assert main(["cache", "why", str(copy), *how]) == 0
    assert json.loads(capsys.readouterr().out)["up_to_date"] is True
    assert [path for path in sorted(ask.cache.rglob("*")) if path not in before and path.name != ".used"] == []


@pytest.mark.parametrize(
    "name", ["with space", "new\nline", "quote'\"", "Ünïcode-日本", b"not-utf8-\xff\xfe", "-dash", "*"]
)
def test_odd_names(ask, tokenizer_path, tmp_path, name):
    name = os.fsdecode(name)
    folder = tmp_path / f"in {name}"
    write_jsonl(folder / f"{name}.jsonl", [f"document {i}" for i in range(9)])
    store = ask(folder)
    assert (len(store), store.locate(8)) == (9, (str(folder / f"{name}.jsonl"), 8))
    ask(folder / f"{name}.jsonl")
    assert ask.documents == 0
    assert len(ask.stores) == 1
    write_jsonl(folder / f"{name}2.jsonl", ["one more"])
    assert (len(ask(folder)), ask.leftovers()) == (10, [])


def test_others_may_read_what_is_kept(ask, corpus):
    """Files and folders as the umask has them: a cache may be for several people."""
    before = os.umask(0o022)
    try:
        ask(corpus)
        ask(iter(["a stream"]))
    finally:
        os.umask(before)
    for path in (ask.cache, *ask.cache.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


OTHER_USER = """
import os, sys, tempfile
import tokenmill as tm
with tempfile.TemporaryDirectory() as folder:  # imports all that is needed, while it may be read
    tm.build(iter(["some text"]), sys.argv[2], folder + "/store", engine="reference", workers=0, progress="quiet")
os.setgid(54321)
os.setuid(54321)
store = tm.build(sys.argv[1], sys.argv[2], cache_dir=sys.argv[3], engine="reference", shard_bytes="2KB", progress="quiet")
print(store.fingerprint, flush=True)
sys.stdin.read()
print(len(list(store)))
"""


def test_what_another_user_holds_is_not_pruned(still, right, tokenizer_path, tmp_path):
    """Who may only read a store holds it all the same."""
    if os.getuid():
        pytest.skip("only the superuser may become another")
    for folder in (still, *still.parents, tmp_path, *tmp_path.parents):
        if len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o055)
    ask = CachedBuilds(tmp_path / "cache", tokenizer_path, shard_bytes="2KB")
    ask(still / "here")
    prune = ["cache", "prune", "--max-size", "1KB", "--cache-dir", str(ask.cache)]
    run = [sys.executable, "-c", OTHER_USER, str(still / "here"), str(tokenizer_path), str(ask.cache)]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == right
        assert main(prune) == 0
        left = len(ask.stores)
        said = process.communicate(timeout=60)[0].strip()
    assert (left, said) == (1, "120")
    assert main(prune) == 0
    assert ask.stores == []


# --- builds that do not come to their end ------------------------------------------------------------------------------------


def test_pruning_while_lists_of_names_disappear(ask):
    """Another process may remove a list between the moment it is found and the moment its age is read."""
    (ask.cache / "builds/entry").mkdir(parents=True)
    (ask.cache / "builds/entry/names-gone.json").symlink_to(ask.cache / "gone")
    assert ask.command("prune", "--max-size", "1KB") == 0


def test_builds_that_cannot_be(ask, corpus, right, tmp_path):
    """They leave nothing that stands in the way of the next."""
    (tmp_path / "bad.json").write_text("{}")
    table = pa.table({"text": ["one"], "other": ["two"]})
    for source, options, error in (
        (corpus, {"tokenizer": tmp_path / "bad.json"}, TokenizerError),
        (corpus, {"tokenizer": tmp_path / "nowhere"}, TokenizerError),
        (corpus, {"eos": "<no such token>"}, Exception),
        (tm.read(corpus, text_field="body", on_error="raise"), {}, Exception),
        (tm.read(table, text_field="body"), {}, UsageError),
        (iter([1, 2]), {}, UsageError),
    ):
        with pytest.raises(error) as caught:
            ask(source, **options)
        assert type(caught.value).__module__ == "tokenmill.errors"
        assert not (ask.cache / "stores").exists()
    assert ask(corpus).fingerprint == right
    assert len(ask.stores) == 1
    assert not [path for path in ask.entries if path.name.startswith("spool-")]


INTERRUPTED = """
import sys
import tokenmill as tm
from tokenmill.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def interrupted(process: subprocess.Popen[str], cache: Path, number: int) -> int:
    """Send a signal when some shards are done; returns how many there are then."""
    deadline = time.monotonic() + 60
    while len(done := list(cache.glob("builds/*/store/shards/*.json"))) < 3:
        assert process.poll() is None, "it was over before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert len(done) <= len(list(cache.glob("builds/*/store/shards/*.json")))
    return len(done)


@pytest.mark.parametrize("kind", ["files", "stdin"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_asked_again(tokenizer_path, reference, tmp_path, kind, number, monkeypatch):
    """It goes on where it was: shards with a receipt are not made again. So does a stream that is fed again."""
    texts = [f"number {i}: {'some words ' * 30}" for i in range(700)]
    source = write_jsonl(tmp_path / "corpus.jsonl", texts)
    ask = CachedBuilds(tmp_path / "cache", tokenizer_path, shard_bytes="2KB")
    how = ["-t", str(tokenizer_path), "--cache-dir", str(ask.cache), "--engine", "reference", "--shard-bytes", "8KB"]
    named = [str(source)] if kind == "files" else ["-", "--format", "jsonl"]
    with open(source) as stdin:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, "build", *named, *how, "--workers", "0"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        interrupted(process, ask.cache, number)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert not (ask.cache / "stores").exists()
    kept = {path.name: path.stat().st_ino for path in ask.cache.glob("builds/*/store/shards/*.json")}
    if kind == "stdin":
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(source.read_bytes())))
    again = ask(source if kind == "files" else tm.read("-", format="jsonl"), shard_bytes="8KB")
    assert ask.documents < 700
    assert {name: (again.path / "shards" / name).stat().st_ino for name in kept} == kept
    eos = again.tokenizer.eos_id
    assert [ids.tolist() for ids in again] == [[*encoded.ids, eos] for encoded in reference.encode_batch(texts)]
    spools = [name for name in ask.leftovers() if "spool-" in name]
    assert [name for name in ask.leftovers() if name not in spools] == []
    assert not spools or (kind, number) == ("stdin", signal.SIGKILL)  # a dead process cannot take its text away


# --- streams ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["iterable", "table", "batches", "stdin"])
def test_streams_are_known_by_content(ask, kind, monkeypatch):
    texts = [f"document {i} of a stream" for i in range(300)]

    def stream(texts: list[str]) -> Any:
        if kind == "table":
            return pa.table({"text": texts})
        if kind == "batches":
            table = pa.table({"text": texts})
            return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=37))
        if kind == "stdin":
            data = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
            monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))
            return tm.read("-", format="jsonl")
        return (text for text in texts)

    store = ask(stream(texts))
    assert (len(store), ask.documents) == (300, 300)
    again = ask(stream(texts))
    assert (ask.documents, again.path, again.locate(299).row) == (0, store.path, store.locate(299).row)
    other = ask(stream([*texts[:-1], "another"]))
    assert other.fingerprint != store.fingerprint
    assert len(ask.stores) == 2
    assert ask.leftovers() == []


@pytest.mark.parametrize("error", [ConnectionError("the line is dead"), PermissionError(13, "the line is dead")])
def test_a_stream_that_breaks_off(ask, error):
    """Half a stream is no store, whatever the error."""

    def stream() -> Iterator[str]:
        yield from (f"document {i}" for i in range(3000))
        raise error

    with pytest.raises((type(error), InputError), match="the line is dead") as caught:
        ask(stream())
    assert "cannot write" not in str(caught.value)
    assert not (ask.cache / "stores").exists()
    assert not list(ask.cache.rglob("spool/*"))
    whole = ask(f"document {i}" for i in range(3000))
    assert len(whole) == 3000
    assert ask.leftovers() == []


# --- files that fail ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_bytes", ["2KB", "32MB"])
def test_files_that_fail_are_tried_again(ask, corpus, right, shard_bytes):
    """The store without them says so; the next build reads just those, and the store of the whole is another."""
    whole = (corpus / "1.jsonl").read_bytes()
    (corpus / "1.jsonl").unlink()
    (corpus / "1.jsonl").symlink_to("gone")
    without = ask(corpus, shard_bytes=shard_bytes)
    assert (without.complete, len(without)) == (False, 80)
    assert [entry["file"] for entry in without.failed] == [str(corpus / "1.jsonl")]
    again = ask(corpus, shard_bytes=shard_bytes)
    assert (again.complete, again.path, ask.read) == (False, without.path, 0)
    (corpus / "1.jsonl").unlink()
    (corpus / "1.jsonl").write_bytes(whole)
    mended = ask(corpus, shard_bytes=shard_bytes)
    assert (mended.complete, len(mended), ask.read) == (True, 120, len(whole))
    assert mended.locate(40).file == str(corpus / "1.jsonl")
    if shard_bytes == "2KB":
        assert mended.fingerprint == right
    assert ask.leftovers() == []
    ask(corpus, shard_bytes=shard_bytes)
    assert ask.documents == 0


def test_no_file_can_be_read(ask, tmp_path):
    (tmp_path / "a.jsonl").symlink_to("gone")
    with pytest.raises(tm.errors.InputError, match=r"no document in .*a\*\.jsonl, so no store is published.*a\.jsonl"):
        ask(tmp_path / "a*.jsonl")
    write_jsonl(tmp_path / "gone", ["here it is"])
    assert (len(ask(tmp_path / "a*.jsonl")), ask.leftovers()) == (1, [])
