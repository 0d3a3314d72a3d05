"""A build after a change does what changed, and nothing else; and what comes out is what a build from scratch makes."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import tempfile
import time
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from cache_world import MEMORY, SETTLED_SECONDS, TABLES, Mapped, names_of, quarantine

import tokenmill as tm
from tokenmill.encoding.encoder import Encoder
from tokenmill.events import Event
from tokenmill.store.facts import info

FILES = {"large": 30, "grouped": 80}
LAYOUTS = {"large": "4KB", "grouped": "40KB"}  # shard_bytes: less than a file, and some ten files


@pytest.fixture
def folder():
    """Where a folder of the disk is not needed: hundreds of shards are made durable in no time."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def build(place: str, root: Path, tokenizer: Any, **options: Any) -> tuple[tm.Store, list[dict[str, Any]]]:
    """The corpus in root/data, into root/cache or root/out."""
    events: list[Event] = []
    where = {"out": root / "out"} if place == "out" else {"cache_dir": root / place}
    options = {"workers": 0, "engine": "reference", **where, **options}
    return tm.build(str(root / "data"), tokenizer, progress=events.append, **options), events


def facts_of(store: tm.Store) -> dict[str, Any]:
    return {
        "fingerprint": store.fingerprint,
        "shards": store._manifest.shard_ids,
        "ids": [ids.tolist() for ids in store],
        "locations": [tuple(store.locate(i)) for i in range(len(store))],
        "bytes": shard_bytes_of(store),
        "left out": left_out(store),
        "counts": store._manifest.quarantined,
        "complete": store.complete,
        "failed": [entry["file"] for entry in store.failed],
    }


def left_out(store: tm.Store) -> list[tuple[Any, ...]]:
    """Which rows of which files gave no document, and why."""
    found = []
    for shard in range(store.num_shards):
        for number, piece in enumerate(store._pieces(shard)):
            found += [(piece["file"], shard, number, *skip) for skip in piece.get("skips", ())]
    return found


def shard_bytes_of(store: tm.Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store.path / "shards").iterdir()}


def identities(store: tm.Store) -> dict[str, tuple[int, int]]:
    """What tells a file from a copy of it."""
    found = {path.name: path.stat() for path in (store.path / "shards").iterdir()}
    return {name: (info.st_ino, info.st_mtime_ns) for name, info in found.items()}


def scratch(root: Path, tokenizer: Any, **options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=root) as name:
        store, _ = build("cache", root, tokenizer, **{**options, "cache_dir": name})
        return facts_of(store)


def words(number: int, layout: str) -> str:
    return " ".join(f"marker{number}x word {i}" for i in range(250 if layout == "large" else 3))


def write_many(data: Path, layout: str) -> None:
    data.mkdir()
    for number in range(FILES[layout]):
        (data / f"{number:03d}.txt").write_text(words(number, layout))


def done_bytes(events: list[Event]) -> list[int]:
    """What a build meant to read, and what it says it read."""
    meant = sum(event.source_bytes for event in events if event.name == "started")
    return [meant, max((event.source_bytes for event in events if event.name == "progress"), default=0)]


@pytest.fixture
def only_markers(monkeypatch):
    """An engine that refuses the text of all files but those allowed."""
    allowed: set[str] = set()
    encode = Encoder.encode

    def refusing(self, values):
        for text in values.to_pylist():
            found = {word for word in text.split() if word.startswith("marker")}
            assert found <= allowed, f"{sorted(found - allowed)[:3]} need not have been encoded"
        return encode(self, values)

    def allow(*numbers: int) -> None:
        allowed.clear()
        allowed.update(f"marker{number}x" for number in numbers)
        monkeypatch.setattr(Encoder, "encode", refusing)

    return allow, monkeypatch.undo


# What is done to the files, which of them have to be encoded then, and how many shards may be new: one for each that
# changed; where small files are grouped by their names, a new name may move a border.
def edit(data: Path, layout: str) -> None:
    (data / "017.txt").write_text(words(1017, layout))


def add(data: Path, layout: str) -> None:
    (data / "017a.txt").write_text(words(1018, layout))


def delete(data: Path, layout: str) -> None:
    (data / "020.txt").unlink()


def rename(data: Path, layout: str) -> None:
    os.rename(data / "011.txt", data / "011a.txt")


def rename_far(data: Path, layout: str) -> None:
    os.rename(data / "025.txt", data / "005a.txt")


STEPS = [
    (edit, [1017], "017.txt", {"large": 1, "grouped": 1}),
    (add, [1018], "017a.txt", {"large": 1, "grouped": 2}),
    (delete, [], None, {"large": 0, "grouped": 1}),
    (rename, [], None, {"large": 0, "grouped": 2}),
    (rename_far, [], None, {"large": 0, "grouped": 3}),
]


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_what_changed_is_done(folder, tokenizer_path, only_markers, layout, place):
    allow, allow_all = only_markers
    write_many(folder / "data", layout)
    how = {"shard_bytes": LAYOUTS[layout]}
    store, _ = build(place, folder, tokenizer_path, **how)
    for change, encoded, name, most in STEPS:
        old_path, before = store.path, identities(store)
        change(folder / "data", layout)
        allow(*encoded)
        store, events = build(place, folder, tokenizer_path, **how)
        allow_all()
        assert facts_of(store) == scratch(folder, tokenizer_path, **how), change
        after = identities(store)
        kept = before.keys() & after.keys()
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}, change  # by links
        new = {shard.partition(".")[0] for shard in after.keys() - before.keys()}
        assert len(new) <= most[layout], change
        size = (folder / "data" / name).stat().st_size if name else 0
        assert done_bytes(events) == [size, size], change
        if place == "cache":
            assert identities(tm.open(old_path)) == before  # the old store is as it was


@pytest.mark.skipif(MEMORY is None, reason="needs a file system on which writes through memory change no date")
@pytest.mark.parametrize("place", ["cache", "out"])
def test_files_that_did_not_change_are_not_read(folder, tokenizer_path, place):
    """They hold something else by then, which nobody could have told but by reading them."""
    write_many(folder / "data", "grouped")
    paths = sorted((folder / "data").iterdir())
    mapped = [Mapped(path, b"marker") for path in paths if path.name != "017.txt"]
    time.sleep(SETTLED_SECONDS)
    how = {"shard_bytes": LAYOUTS["grouped"]}
    build(place, folder, tokenizer_path, **how)
    edit(folder / "data", "grouped")
    expected = scratch(folder, tokenizer_path, **how)
    for file in mapped:
        file.put_unseen(b"X")
    store, events = build(place, folder, tokenizer_path, **how)
    for file in mapped:
        file.close()
    assert facts_of(store) == expected
    assert "started" in names_of(events)
    again, events = build(place, folder, tokenizer_path, rehash=True, **how)  # and if told to, it sees that
    assert facts_of(again) == scratch(folder, tokenizer_path, **how)
    assert again.fingerprint != expected["fingerprint"]


def test_what_was_encoded_is_taken_from_other_corpora(folder, tokenizer_path, only_markers):
    """Some of the files, from somewhere else, under other names, beside new ones: only those are encoded."""
    allow, allow_all = only_markers
    write_many(folder / "data", "grouped")
    build("cache", folder, tokenizer_path)
    corpus = folder / "another"
    corpus.mkdir()
    for number in (5, 17, 71):
        shutil.copyfile(folder / "data" / f"{number:03d}.txt", corpus / f"{number % 7}.txt")
    (corpus / "2.txt").write_text(words(1000, "grouped"))
    os.rename(folder / "data", folder / "away")
    os.rename(corpus, folder / "data")
    allow(1000)
    store, events = build("cache", folder, tokenizer_path)
    allow_all()
    assert done_bytes(events) == [(folder / "data" / "2.txt").stat().st_size] * 2
    assert facts_of(store) == scratch(folder, tokenizer_path)


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("suffix", ["jsonl", "lines.txt"])
def test_appending_to_a_large_file_redoes_its_end(folder, tokenizer_path, place, suffix):
    (folder / "data").mkdir()
    path = folder / "data" / f"all.{suffix}"

    def line(row: int) -> str:
        return json.dumps({"text": f"row {row} with some words"}) + "\n"

    path.write_text("".join(map(line, range(1000))))
    how = {"shard_bytes": "4KB", **({"format": "lines"} if "lines" in suffix else {})}
    store, _ = build(place, folder, tokenizer_path, **how)
    for rows in (1, 3, 200):
        before = set(shard_bytes_of(store))
        with open(path, "a") as out:
            out.writelines(map(line, range(rows)))
        store, events = build(place, folder, tokenizer_path, **how)
        assert facts_of(store) == scratch(folder, tokenizer_path, **how)
        new = {name.partition(".")[0] for name in shard_bytes_of(store).keys() - before}
        added = rows * len(line(100))
        assert len(new) <= 2 + added // 4000
        assert done_bytes(events)[0] <= added + 2 * 4000


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("layout", ["grouped", "alone"])
@pytest.mark.parametrize("history", ["bad from the start", "good before", "of a size that was seen"])
def test_a_broken_file_is_left_out_until_it_is_mended(folder, tokenizer_path, place, layout, history):
    """However often it is tried, and whether or not its bytes are known already."""
    data = folder / "data"
    data.mkdir()
    texts = [json.dumps({"text": f"row {row} {'of some words ' * 4}"}) for row in range(60)]
    whole = gzip.compress("\n".join(texts).encode(), mtime=0)
    broken = whole[:-20]
    how = {"shard_bytes": "1KiB" if layout == "alone" else "32MB"}
    for name in ("a", "c", "d"):
        (data / f"{name}.jsonl").write_text("\n".join(texts[:20]))
    target = data / "b.jsonl.gz"
    if history == "good before":
        target.write_bytes(whole)
        build(place, folder, tokenizer_path, **how)
    elif history == "of a size that was seen":
        (data / "d.jsonl").write_bytes((data / "d.jsonl").read_bytes()[: len(broken)].ljust(len(broken), b"\n"))
        build(place, folder, tokenizer_path, **how)
    target.write_bytes(broken)
    expected = scratch(folder, tokenizer_path, **how)
    assert expected["failed"] == [str(target)]
    for _ in range(3):
        store, events = build(place, folder, tokenizer_path, **how)
        assert "file_failed" in names_of(events)
        assert not store.complete
        assert facts_of(store) == expected
    (data / "c.jsonl").write_text("\n".join(texts[:21]))  # and something else meanwhile
    store, _ = build(place, folder, tokenizer_path, **how)
    assert facts_of(store) == scratch(folder, tokenizer_path, **how)
    target.write_bytes(whole)
    store, _ = build(place, folder, tokenizer_path, **how)
    assert store.complete
    assert facts_of(store) == scratch(folder, tokenizer_path, **how)


def flip(path: Path, at: int = -1) -> None:
    """One bit, in place."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    with open(path, "r+b") as out:
        out.write(data)


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("suffix", [".npy", ".ends.npy", ".json"])
def test_a_flipped_bit_is_not_copied_as_if_it_were_sound(folder, tokenizer_path, place, suffix):
    """A piece is copied out of a damaged shard into a new one: its new receipt would make the damage true."""
    data = folder / "data"
    data.mkdir()
    for number in range(4):
        (data / f"{number}.txt").write_text(words(number, "grouped"))
    store, _ = build(place, folder, tokenizer_path)
    flip(store.path / "shards" / f"{store._manifest.shard_ids[0]}{suffix}")
    (data / "1.txt").write_text("another text")
    store, _ = build(place, folder, tokenizer_path)
    assert facts_of(store) == scratch(folder, tokenizer_path)
    assert store.verify() == []


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("suffix", [".npy", ".ends.npy", ".json"])
def test_a_flipped_bit_in_a_shard_that_goes_on_being_used(folder, tokenizer_path, place, suffix):
    """A shard of which nothing changed is not read again; so the damage is there, and is found by who looks."""
    data = folder / "data"
    data.mkdir()
    for number in range(4):
        (data / f"{number}.txt").write_text(words(number, "large"))
    how = {"shard_bytes": "4KB"}
    store, _ = build(place, folder, tokenizer_path, **how)
    flip(store.path / "shards" / f"{store._manifest.shard_ids[2]}{suffix}")
    (data / "1.txt").write_text(words(9, "large"))
    store, _ = build(place, folder, tokenizer_path, **how)
    expected = scratch(folder, tokenizer_path, **how)
    assert store.verify() or facts_of(store) == expected
    store, _ = build(place, folder, tokenizer_path, force=True, **how)
    assert store.verify() == []
    assert facts_of(store) == expected


def damaged_notes(root: Path, names: tuple[str, ...], damage: Any) -> None:
    found = [path for name in names for path in root.rglob(name)]
    assert found
    for path in found:
        damage(path)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def noise(path: Path) -> None:
    path.write_bytes(random.Random(path.name).randbytes(path.stat().st_size))


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("names", [("seen.json",), ("listing.json",), ("seen.json", "listing.json")])
@pytest.mark.parametrize("damage", [os.unlink, cut_in_half, noise, lambda path: path.write_bytes(b"")])
def test_what_was_noted_is_not_needed(folder, tokenizer_path, place, names, damage):
    """Without it files are read to know what they hold; nothing is tokenized again."""
    write_some(folder / "data")
    first, _ = build(place, folder, tokenizer_path)
    damaged_notes(folder / place, names, damage)
    again, events = build(place, folder, tokenizer_path)
    assert "started" not in names_of(events)
    assert again.path == first.path
    damaged_notes(folder / place, names, damage)
    (folder / "data" / "1.jsonl").write_text('{"text": "another"}\n')
    store, _ = build(place, folder, tokenizer_path)
    assert facts_of(store) == scratch(folder, tokenizer_path)


def test_a_cache_without_its_list_of_builds(folder, tokenizer_path):
    write_some(folder / "data")
    first, _ = build("cache", folder, tokenizer_path)
    shutil.rmtree(folder / "cache" / "builds")
    again, events = build("cache", folder, tokenizer_path)
    assert "started" not in names_of(events)
    assert again.path == first.path
    assert facts_of(again) == scratch(folder, tokenizer_path)


def test_a_store_of_the_cache_that_lost_a_file(folder, tokenizer_path):
    """It is made whole from what is left."""
    write_some(folder / "data")
    store, _ = build("cache", folder, tokenizer_path)
    expected = facts_of(store)
    for suffix in (".npy", ".ends.npy", ".json"):
        (store.path / "shards" / f"{store._manifest.shard_ids[0]}{suffix}").unlink()
        store, events = build("cache", folder, tokenizer_path)
        assert "started" in names_of(events)
        assert facts_of(store) == expected
    (store.path / "manifest.json").unlink()
    store, _ = build("cache", folder, tokenizer_path)
    assert facts_of(store) == expected
    assert store.verify() == []


def write_some(data: Path) -> None:
    data.mkdir()
    for number in range(3):
        lines = [{"text": f"file {number} row {row}"} for row in range(4)]
        (data / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (data / "1.jsonl").write_text((data / "1.jsonl").read_text() + "bad\n\n" + '{"text": "after"}\n')


class Walk:
    """A corpus to which things happen, by chance, and always the same for the same seed."""

    SUFFIXES = (".jsonl", ".jsonl", ".txt", ".jsonl.gz", ".csv", ".parquet")
    DEEDS = "edit add delete rename shift touch append swap duplicate letter nothing"

    def __init__(self, data: Path, seed: str, breaking: bool) -> None:
        self.data, self.chance, self.made = data, random.Random(seed), 0
        self.deeds = f"{self.DEEDS} break break mend" if breaking else self.DEEDS
        data.mkdir()
        for _ in range(12):
            self.add()

    def files(self) -> list[Path]:
        return sorted(path for path in self.data.rglob("*") if path.is_file())

    def content(self, path: Path) -> bytes:
        chance, self.made = self.chance, self.made + 1
        rows = [
            f"text {self.made} row {row} {'words ' * chance.randrange(9)}" for row in range(chance.randrange(1, 40))
        ]
        if path.suffix == ".txt":
            return "\n".join(rows).encode()
        if path.suffix == ".csv":
            return "\n".join(["text,other", *(f"{row},{number}" for number, row in enumerate(rows))]).encode()
        if path.suffix == ".parquet":
            out = io.BytesIO()
            pyarrow.parquet.write_table(pa.table({"text": rows}), out, row_group_size=10)
            return out.getvalue()
        lines = [json.dumps({"text": row}) for row in rows]
        for number in range(1, len(lines)):
            if chance.random() < 0.1:
                lines[number] = chance.choice(["", "bad", '{"body": 1}'])
        body = "".join(line + "\n" for line in lines).encode()
        return gzip.compress(body, mtime=0) if path.suffix == ".gz" else body

    def add(self) -> None:
        folder = self.data / self.chance.choice(["", "sub", "tub"])
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.chance.choice('abcdef')}{self.made}{self.chance.choice(self.SUFFIXES)}"
        path.write_bytes(self.content(path))

    def step(self) -> str:
        what = self.chance.choice(self.deeds.split())
        path, other = (self.chance.choice(self.files()) for _ in range(2))
        packed = [file for file in self.files() if file.suffix == ".gz"]
        info, is_text = path.stat(), path.suffix in (".jsonl", ".txt", ".csv")
        self.made += 1
        if what == "add" or len(self.files()) < 5:
            self.add()
        elif what == "edit":
            path.write_bytes(self.content(path))
        elif what == "delete":
            path.unlink()
        elif what == "rename":
            os.rename(path, path.with_name(f"{self.chance.choice('abcdef')}{self.made}-{path.name}"))
        elif what == "shift":  # another name, most often in the same place
            os.rename(path, path.with_name(f"{path.name[0]}0{path.name[1:]}"))
        elif what == "touch":
            os.utime(path)
        elif what == "append" and is_text:
            path.write_bytes(path.read_bytes() + b'\n{"text": "appended"}\n')
        elif what == "swap" and other.suffix == path.suffix:
            one, two = path.read_bytes(), other.read_bytes()
            path.write_bytes(two)
            other.write_bytes(one)
        elif what == "duplicate":
            shutil.copyfile(path, path.with_name(f"copy{self.made}-{path.name}"))
        elif what == "letter" and is_text:
            parts = path.read_bytes().split(b"words")
            where = self.chance.randrange(len(parts))
            path.write_bytes(
                b"words".join(parts[: where + 1]) + b"".join(b"wordz" + part for part in parts[where + 1 :])
            )
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        elif what == "break" and packed:
            path = self.chance.choice(packed)
            path.write_bytes(path.read_bytes()[:-9])
        elif what == "mend":
            for path in packed:
                path.write_bytes(self.content(path))
        return f"{what} {path.name}"


SIZES = ("1KiB", "6KB", "40KB")  # of shards
STEPS_OF_A_WALK = 5  # enough for all deeds in one walk or another, with this seed
SEED = 40


def test_walks_do_everything(folder):
    """In the few steps of the walks below each deed is done, and with any size of shards a file is broken."""
    done = []
    for number, (shard_bytes, breaking) in enumerate(product(SIZES, [False, True])):
        walk = Walk(folder / str(number), f"{shard_bytes} {breaking} {SEED}", breaking)
        deeds = [walk.step().split()[0] for _ in range(STEPS_OF_A_WALK)]
        assert ("break" in deeds) == breaking
        done += deeds
    assert set(done) == {*Walk.DEEDS.split(), "break", "mend"}


@pytest.mark.parametrize("shard_bytes", SIZES)
@pytest.mark.parametrize("breaking", [False, True], ids=["", "breaking"])
@pytest.mark.parametrize(
    ("steps", "seed"), [(STEPS_OF_A_WALK, SEED), pytest.param(12, 0, marks=pytest.mark.stress)], ids=["short", "long"]
)
def test_a_walk(folder, tokenizer_path, shard_bytes, breaking, steps, seed):
    """Whatever happens, in whatever order: the store in the cache and the one in a folder are what scratch makes."""
    walk = Walk(folder / "data", f"{shard_bytes} {breaking} {seed}", breaking)
    how = {"shard_bytes": shard_bytes}
    past = []
    for _ in range(steps):
        past.append(walk.step())
        with tempfile.TemporaryDirectory(dir=folder) as name:
            fresh, _ = build("cache", folder, tokenizer_path, cache_dir=name, **how)
            expected, bad = facts_of(fresh), quarantine(fresh)
        for place in ("cache", "out"):
            store, events = build(place, folder, tokenizer_path, **how)
            assert facts_of(store) == expected, (place, past)
            assert store.verify() == [], (place, past)
            if place == "out":
                assert quarantine(store) == bad, past
            again, events = build(place, folder, tokenizer_path, **how)
            assert ("started" in names_of(events)) == bool(expected["failed"]), (place, past)
            assert again.fingerprint == expected["fingerprint"]


# Trials


def rows_of(layout: str) -> list[list[str]]:
    """The lines of each file: documents, bad ones and blank ones."""
    files, rows = {"several": (7, 9), "one": (1, 100), "gzip": (3, 20)}[layout]
    chance = random.Random(layout)
    lines = []
    for file in range(files):
        lines.append([])
        for row in range(rows):
            good = json.dumps({"text": f"file {file} row {row} {'word ' * chance.randrange(30)}"})
            lines[-1].append(chance.choice([good] * 6 + ["bad", "", '{"text": null}']))
    return lines


LIMITS: list[dict[str, int]] = [
    {"max_rows": 1},
    {"max_rows": 8},
    {"max_rows": 33},
    {"max_rows": 10_000},
    {"max_documents": 1},
    {"max_documents": 5},
    {"max_documents": 29},
    {"max_documents": 10_000},
    {"max_tokens": 1},
    {"max_tokens": 100},
    {"max_tokens": 501},
    {"max_tokens": 10**9},
    {"max_rows": 20, "max_documents": 9},
    {"max_rows": 9, "max_documents": 20},
    {"max_rows": 30, "max_tokens": 200},
    {"max_rows": 15, "max_documents": 12, "max_tokens": 150},
    {"max_documents": 11, "max_tokens": 10**9},
]


@pytest.fixture(scope="module")
def corpora():
    """The files of each layout, left alone for long enough that nobody has to look into them again."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        for layout in ("several", "one", "gzip"):
            data = Path(name) / layout / "data"
            data.mkdir(parents=True)
            for number, rows in enumerate(rows_of(layout)):
                body = "".join(row + "\n" for row in rows).encode()
                if layout == "gzip":
                    (data / f"{number}.jsonl.gz").write_bytes(gzip.compress(body, mtime=0))
                else:
                    (data / f"{number}.jsonl").write_bytes(body)
        time.sleep(SETTLED_SECONDS)
        yield Path(name)


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("layout", ["several", "one", "gzip"])
def test_a_trial_is_the_beginning_of_the_whole(corpora, tokenizer_path, place, layout):
    """Whole documents, the first ones, no more than asked for; and it says that it is a trial."""
    root = corpora / layout
    how = {"shard_bytes": "2KB" if layout == "one" else "20KB"}
    with tempfile.TemporaryDirectory(dir=root) as name:
        whole, _ = build("cache", root, tokenizer_path, cache_dir=name, **how)
        expected = facts_of(whole)
    documents, locations = expected["ids"], expected["locations"]
    assert layout != "one" or len(expected["shards"]) > 2
    rows = [row for file in rows_of(layout) for row in file if row]
    good = ["row" in row for row in rows]
    places = [i for i, is_good in enumerate(good) if is_good]
    assert len(places) == len(documents)
    for number, limit in enumerate(LIMITS if layout == "several" else LIMITS[::2]):
        where = {"out": root / f"out-{number}"} if place == "out" else {}
        count = min(
            sum(good[: limit.get("max_rows", len(rows))]),
            limit.get("max_documents", len(documents)),
            sum(total <= limit.get("max_tokens", 10**12) for total in accumulate(map(len, documents))),
        )
        try:
            trial, _ = build(place, root, tokenizer_path, **how, **limit, **where)
        except tm.errors.InputError:  # bad rows only
            assert (count, good[0]) == (0, False), limit
            continue
        assert [ids.tolist() for ids in trial] == documents[:count], limit
        assert [tuple(trial.locate(i)) for i in range(count)] == locations[:count], limit
        bad = sum(trial._manifest.quarantined.values())
        if limit.keys() == {"max_rows"}:
            assert count + bad == min(limit["max_rows"], len(rows)), limit
        least = places[count - 1] + 1 - count if count else 0  # bad ones before the last document,
        most = (places[count] if count < len(places) else len(rows)) - count  # and before the next one
        assert least <= bad <= most, limit
        assert trial.verify() == []
        assert trial.complete
        assert {name: info(trial.path)["options"][name] for name in limit} == limit
        again, events = build(place, root, tokenizer_path, **how, **limit, **where)
        assert names_of(events)[-1:] == ["up_to_date"], limit
        assert set(names_of(events)) <= {"begun", "up_to_date"}, limit
        assert again.fingerprint == trial.fingerprint
    if place == "cache":
        store, _ = build(place, root, tokenizer_path, **how)
        assert facts_of(store) == expected


@pytest.mark.parametrize("place", ["cache", "out"])
def test_a_trial_over_a_broken_file(folder, tokenizer_path, place):
    """It goes on with the next file, says what failed, and tries again."""
    write_some(folder / "data")
    target = folder / "data" / "0a.jsonl.gz"
    whole = gzip.compress(b"".join(b'{"text": "packed %d"}\n' % row for row in range(50)), mtime=0)
    limit = {"max_documents": 7}
    for content in (whole[:-20], whole[:-20], whole, whole[:-20]):
        target.write_bytes(content)
        trial, _ = build(place, folder, tokenizer_path, **limit)
        assert trial.complete == (content == whole)
        assert len(trial) == 7
        files = {os.path.basename(trial.locate(i).file) for i in range(7)}
        assert files == {"0.jsonl", "0a.jsonl.gz" if content == whole else "1.jsonl"}
        expected = scratch(folder, tokenizer_path, **limit)
        assert [ids.tolist() for ids in trial] == expected["ids"]
        assert trial.fingerprint == expected["fingerprint"]


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_trial_follows_its_files(folder, tokenizer_path, place, kind):
    """Though it did not read all of them, and though what they are now is of the same size."""
    (folder / "data").mkdir()
    how = {"max_documents": 3, "text_field": "in.text" if kind == "feather" else "text"}
    seen = set()
    for word in ("text", "TEXT", "Text", "text"):
        TABLES[kind](folder / "data" / f"t.{kind}", word=word)
        trial, _ = build(place, folder, tokenizer_path, **how)
        assert [ids.tolist() for ids in trial] == scratch(folder, tokenizer_path, **how)["ids"]
        seen.add(trial.fingerprint)
    assert len(seen) == 3
