"""A store that was damaged says so, names what is broken, and mends just that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from build_helpers import what_it_says
from handmade_stores import cut, flip, write_forged_manifest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import CorruptError, MissingStoreError, StoreError, TokenmillError
from tokenmill.io.atomic import canonical, digest
from tokenmill.io.checked_lines import damaged_lines
from tokenmill.store.facts import info
from tokenmill.store.integrity import verify_store
from tokenmill.store.manifest import read_manifest

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Some files, one of them in several pieces, with rows that will be quarantined."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(5):
        rows = [json.dumps({"text": f"document {i} of file {number} " + "more words " * i}) for i in range(40)]
        rows.insert(7, "{broken")
        (folder / f"{number}.jsonl").write_text("".join(row + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def pristine(corpus, tokenizer_path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "store"
    tm.build(corpus, tokenizer_path, folder, shard_bytes="4KB", progress="quiet")
    return folder


@pytest.fixture
def store(pristine, tmp_path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def shard_name(store: Path, number: int = 2) -> str:
    return read_manifest(store).shard_ids[number]


# Every kind of file in a store; %s is a shard.
KINDS = [
    "shards/%s.npy",
    "shards/%s.ends.npy",
    "shards/%s.json",
    "manifest.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "quarantine.jsonl",
    "events.jsonl",
]


def snapshot(store: Path) -> dict[str, tuple[int, int, bytes]]:
    """What each shard file is: inode, time of writing, content."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in (store / "shards").iterdir()
    }


def found_by_both(store: Path, capsys) -> list[tuple[str, str | None]]:
    """What verify finds, which must be the same by Python and by command line: (file, shard)."""
    damages = verify_store(store)
    assert main(["verify", str(store)]) == (3 if damages else 0)
    printed = capsys.readouterr().out
    assert all(damage.file in printed for damage in damages)
    assert main(["verify", str(store), "--json"]) == (3 if damages else 0)
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is (not damages)
    found = [(damage.file, damage.shard) for damage in damages]
    assert [(entry["file"], entry["shard"]) for entry in report["damaged"]] == found
    return found


def test_an_undamaged_store(store, capsys):
    """Nothing is found where nothing is wrong."""
    assert tm.open(store).verify() == []
    assert found_by_both(store, capsys) == []


@pytest.mark.parametrize("where", ["first byte", "header", "middle", "last byte"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_is_found(store, kind, where, capsys):
    """One bit anywhere in any file: found, and the file and shard are named."""
    shard = shard_name(store)
    name = kind.replace("%s", shard)
    size = (store / name).stat().st_size
    flip(store / name, {"first byte": 0, "header": 60, "middle": size // 2, "last byte": size - 1}[where] % size)
    assert found_by_both(store, capsys) == [(name, shard if "%s" in kind else None)]


@pytest.mark.parametrize("kind", ["shards/%s.npy", "shards/%s.ends.npy", "manifest.json", "shards/%s.json"])
def test_every_bit_counts(pristine, tmp_path, kind):
    """Not one bit of a small store can change unnoticed."""
    corpus = tmp_path / "one.jsonl"
    corpus.write_text('{"text": "a"}\n{"text": "to be"}\n')
    store = tmp_path / "store"
    tm.build(corpus, pristine / "tokenizer", store, engine="reference", progress="quiet")
    path = store / kind.replace("%s", shard_name(store, 0))
    clean = path.read_bytes()
    unnoticed = []
    for byte in range(len(clean)):
        flip(path, byte, byte % 8)
        try:
            noticed = verify_store(store)
        except StoreError:
            noticed = True
        if not noticed:
            unnoticed.append(byte)
        path.write_bytes(clean)
    assert unnoticed == []


def test_every_flip_in_the_log_is_found(store):
    """Each line of events.jsonl stands for itself: a flip in it is found, in that line."""
    path = store / "events.jsonl"
    clean = path.read_bytes()
    for byte in range(0, len(clean), 7):
        flip(path, byte, byte % 8)
        assert damaged_lines(path), byte
        path.write_bytes(clean)
    assert damaged_lines(path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_found(store, kind, capsys):
    """A file cut short: found and named."""
    shard = shard_name(store)
    name = kind.replace("%s", shard)
    if kind == "quarantine.jsonl":
        assert (store / name).stat().st_size > 100
    cut(store / name)
    assert found_by_both(store, capsys) == [(name, shard if "%s" in kind else None)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("manifest.json", "events.jsonl")])
def test_a_deleted_file_is_found(store, kind, capsys):
    """A file that is gone: found and named."""
    shard = shard_name(store)
    name = kind.replace("%s", shard)
    (store / name).unlink()
    assert found_by_both(store, capsys) == [(name, shard if "%s" in kind else None)]


def test_without_its_manifest_it_is_no_store(store, capsys):
    """No manifest: no store, by name, with the exit code of a store that is not what it should be."""
    (store / "manifest.json").unlink()
    with pytest.raises(MissingStoreError, match=str(store)):
        tm.open(store)
    assert main(["verify", str(store)]) == 3
    assert str(store) in capsys.readouterr().err


def test_several_damages_are_all_found(store, capsys):
    """Verify does not stop at the first."""
    one, two = shard_name(store, 0), shard_name(store, 3)
    flip(store / f"shards/{one}.npy", 200)
    flip(store / f"shards/{two}.ends.npy", 3)
    (store / f"shards/{two}.npy").unlink()
    flip(store / "tokenizer/tokenizer.json", 100)
    assert sorted(found_by_both(store, capsys), key=str) == sorted(
        [
            (f"shards/{one}.npy", one),
            (f"shards/{two}.ends.npy", two),
            (f"shards/{two}.npy", two),
            ("tokenizer/tokenizer.json", None),
        ],
        key=str,
    )


# Repair.


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (kind, how)
        for kind in KINDS
        for how in ("flip", "truncate", "delete")
        if kind != "manifest.json" and (kind, how) != ("events.jsonl", "delete")  # a store may lack its log
    ],
)
def test_repair_rebuilds_what_is_broken_and_nothing_else(store, kind, how, capsys):
    """After a repair every bit is right, the fingerprint is as before, and no other shard was touched."""
    shard = shard_name(store)
    path = store / kind.replace("%s", shard)
    before, fingerprint = snapshot(store), tm.open(store).fingerprint
    if how == "flip":
        flip(path, path.stat().st_size // 2)
    elif how == "truncate":
        cut(path)
    else:
        path.unlink()
    assert main(["verify", str(store), "--repair"]) == 0
    captured = capsys.readouterr()
    assert path.name in captured.out
    after = snapshot(store)
    assert {name: facts[2] for name, facts in after.items()} == {name: facts[2] for name, facts in before.items()}
    touched = {name.partition(".")[0] for name in before if before[name] != after[name]}
    assert touched <= ({shard} if "%s" in kind else set())
    assert tm.open(store).fingerprint == fingerprint
    assert tm.open(store).verify() == []
    assert main(["verify", str(store), "--repair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "repaired": False, "damaged": []}


def test_repair_says_what_it_mended(store, capsys):
    """--json lists what was broken, and that it is no more."""
    shard = shard_name(store, 1)
    flip(store / f"shards/{shard}.npy", 300)
    assert main(["verify", str(store), "--repair", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is report["repaired"] is True
    assert [entry["shard"] for entry in report["damaged"]] == [shard]


def test_repair_twice(store):
    """A repaired store is repaired again as well as the first time; what it knows of its tokenizer is as before."""
    fingerprint, tokenizer = tm.open(store).fingerprint, info(store)["tokenizer"]
    flip(store / f"shards/{shard_name(store, 0)}.npy", 300)
    assert main(["verify", str(store), "--repair"]) == 0
    assert info(store)["tokenizer"] == tokenizer
    (store / "tokenizer/tokenizer.json").write_text("{}")
    assert main(["verify", str(store), "--repair"]) == 0
    assert tm.open(store).fingerprint == fingerprint


@pytest.fixture
def own_source(tmp_path, pristine) -> tuple[Path, Path]:
    """A store with a source of its own that may be changed: (source, store), several shards from each of three files."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        rows = "".join(json.dumps({"text": f"row {i} of {number} " + "x y " * i}) + "\n" for i in range(60))
        (source / f"{number}.jsonl").write_text(rows)
    store = tmp_path / "store"
    tm.build(source, pristine / "tokenizer", store, shard_bytes="4KB", progress="quiet")
    return source, store


def shard_of(store: Path, file: str) -> str:
    """A shard made from a file."""
    opened = tm.open(store)
    for shard, name in enumerate(opened._manifest.shard_ids):
        if any(Path(piece["file"]).name == file for piece in opened._pieces(shard)):
            return name
    raise AssertionError(file)


def test_repair_from_a_changed_source_says_so(own_source, capsys):
    """The shard cannot be made again from a file that changed: an error, not another store in silence."""
    source, store = own_source
    flip(store / f"shards/{shard_of(store, '1.jsonl')}.npy", 300)
    (source / "1.jsonl").write_text('{"text": "something else"}\n')
    assert main(["verify", str(store), "--repair"]) == 3
    err = capsys.readouterr().err
    assert "changed" in err
    assert str(store) in err


def test_repair_from_a_vanished_source_says_so(own_source, capsys):
    """Nothing to repair from: an error that names what is gone, and the store is no worse than it was."""
    source, store = own_source
    damaged = shard_of(store, "1.jsonl")
    flip(store / f"shards/{damaged}.npy", 300)
    before = snapshot(store)
    shutil.rmtree(source)
    assert main(["verify", str(store), "--repair"]) in (1, 2, 3)
    assert str(source) in capsys.readouterr().err
    assert snapshot(store) == before
    assert [damage.file for damage in tm.open(store).verify()] == [f"shards/{damaged}.npy"]


@pytest.mark.parametrize("what", ["changed", "vanished"])
def test_a_repair_that_cannot_be_done_takes_nothing_away(own_source, what, capsys):
    """Shards that are whole outlive a repair of another, even when their source does not."""
    source, store = own_source
    flip(store / f"shards/{shard_of(store, '0.jsonl')}.npy", 300)
    kept = {name: facts for name, facts in snapshot(store).items() if name.startswith(shard_of(store, "2.jsonl"))}
    assert len(kept) == 3
    for name in ("0.jsonl", "2.jsonl"):
        if what == "changed":
            (source / name).write_text('{"text": "something else"}\n')
        else:
            (source / name).unlink()
    assert main(["verify", str(store), "--repair"]) != 0
    assert capsys.readouterr().err
    after = snapshot(store)
    assert {name: after.get(name) for name in kept} == kept


def test_repair_of_a_store_from_memory_says_where_to_get_the_text(tmp_path, pristine, capsys):
    """Text that was never in a file cannot be read again: an error that says what to do."""
    store = tmp_path / "store"
    tm.build(iter(["one", "two"]), pristine / "tokenizer", store, progress="quiet")
    before = snapshot(store)
    flip(store / f"shards/{shard_name(store, 0)}.npy", 130)
    assert main(["verify", str(store), "--repair"]) == 3
    assert "build it again" in capsys.readouterr().err
    tm.build(iter(["one", "two"]), pristine / "tokenizer", store, progress="quiet")
    assert before.keys() == snapshot(store).keys()


def test_a_damaged_manifest_is_rebuilt_by_the_next_build(store, corpus, tokenizer_path, capsys):
    """The advice of the error is good: the same build brings the manifest back, and every shard is kept."""
    clean, before = what_it_says(store), snapshot(store)
    flip(store / "manifest.json", 500)
    assert main(["verify", str(store), "--repair"]) == 3
    assert "run the build again" in capsys.readouterr().err
    tm.build(corpus, tokenizer_path, store, shard_bytes="4KB", progress="quiet")
    assert what_it_says(store) == clean
    assert snapshot(store) == before


# A build over a damaged store.


def test_a_build_never_takes_a_damaged_receipt_for_true(own_source, tmp_path):
    """A bit flips in a receipt; a file is added and the store built on. It must come out as if nothing had happened."""
    source, store = own_source
    receipt = store / "shards" / f"{shard_of(store, '1.jsonl')}.json"
    clean = receipt.read_bytes()
    (source / "3.jsonl").write_text('{"text": "one more"}\n')
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(store / "tokenizer", tokenizer)
    how = {"engine": "reference", "shard_bytes": "4KB", "workers": 0, "progress": "quiet"}
    expected = tm.build(source, tokenizer, tmp_path / "fresh", **how)
    places = [tuple(expected.locate(i)) for i in range(len(expected))]
    state = tmp_path / "state"
    shutil.copytree(store, state)
    wrong = []
    for byte in range(0, len(clean), 13):
        shutil.rmtree(store)
        shutil.copytree(state, store)
        flip(receipt, byte)
        try:
            built = tm.build(source, tokenizer, store, **how)
            same = built.fingerprint == expected.fingerprint
            if not same or places != [tuple(built.locate(i)) for i in range(len(built))]:
                wrong.append((clean[max(0, byte - 10) : byte + 10], "another store"))
        except TokenmillError:
            pass
        except Exception as error:
            wrong.append((clean[max(0, byte - 10) : byte + 10], repr(error)))
    assert wrong == []


# Manifests that lie.


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "..", "", ".hidden", "a\x00b", "A" * 300, 7, None, ["a"]]
)
def test_a_shard_name_never_leaves_the_folder(store, name, capsys):
    """A name that is not a plain word is refused, though the checksum is right."""
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    body["shard_ids"][0] = name
    write_forged_manifest(path, body)
    with pytest.raises(CorruptError):
        tm.open(store)
    assert main(["info", str(store)]) == 3
    assert main(["show", str(store)]) == 3
    assert main(["verify", str(store)]) == 3
    assert "manifest" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "tokenizer/../../secret"])
def test_a_file_name_never_leaves_the_folder(store, name, capsys):
    """The other files a manifest names are looked for inside the store only."""
    (store.parent / "secret").write_text("x")
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    body["files"][name] = digest(b"x")
    write_forged_manifest(path, body)
    assert main(["verify", str(store)]) == 3
    captured = capsys.readouterr()
    assert name in captured.out + captured.err


def with_forged_receipt(store: Path, change: dict) -> None:
    """Change the first shard's receipt, and the manifest to agree with it."""
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    receipt_path = store / "shards" / f"{body['shard_ids'][0]}.json"
    raw = canonical(json.loads(receipt_path.read_bytes()) | change)
    receipt_path.write_bytes(raw)
    body["receipts"][0] = digest(raw)
    write_forged_manifest(path, body)


def test_a_receipt_with_another_id(store, capsys):
    """A receipt copied from another shard is not this shard's, even where the manifest agrees with it."""
    first, second = shard_name(store, 0), shard_name(store, 1)
    other = json.loads((store / f"shards/{second}.json").read_bytes())
    with_forged_receipt(store, other)
    assert (f"shards/{first}.json", first) in found_by_both(store, capsys)
    with pytest.raises(CorruptError, match=first):
        tm.open(store).locate(0)


def test_a_copied_receipt(store, capsys):
    """The same, where the manifest does not agree: found by its checksum."""
    first, second = shard_name(store, 0), shard_name(store, 1)
    shutil.copy(store / f"shards/{second}.json", store / f"shards/{first}.json")
    assert found_by_both(store, capsys) == [(f"shards/{first}.json", first)]


def test_a_receipt_id_never_leaves_the_folder(store, capsys):
    """An id in a receipt that is a path is refused, not followed."""
    for suffix in (".npy", ".ends.npy"):
        shutil.copy(store / f"shards/{shard_name(store, 0)}{suffix}", store.parent / f"outside{suffix}")
    with_forged_receipt(store, {"id": "../../outside"})
    assert main(["verify", str(store)]) == 3
    captured = capsys.readouterr()
    assert shard_name(store, 0) in captured.out + captured.err


def test_a_manifest_of_a_newer_version(store, capsys):
    """A store from the future is not called damaged; the error says which version, and to upgrade."""
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    body["version"] = 99
    write_forged_manifest(path, body)
    for command in ("info", "verify", "show"):
        assert main([command, str(store)]) == 3
        err = capsys.readouterr().err
        assert "99" in err
        assert "upgrade" in err
    with pytest.raises(StoreError, match="99") as caught:
        tm.open(store)
    assert not isinstance(caught.value, CorruptError)


def test_a_newer_store_is_not_built_over(store, corpus, tokenizer_path):
    """A build leaves a store from the future alone."""
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    body["version"] = 99
    write_forged_manifest(path, body)
    before, manifest = snapshot(store), path.read_bytes()
    with pytest.raises(StoreError, match="upgrade"):
        tm.build(corpus, tokenizer_path, store, shard_bytes="4KB", progress="quiet")
    assert snapshot(store) == before
    assert path.read_bytes() == manifest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b'{"checksum": 1}',
        b'{"a": 1}',
        b"\xff\xfe",
        b"\x00" * 500,
        b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_something_else(store, content, capsys):
    """Whatever is in manifest.json, it is called damaged, by name."""
    (store / "manifest.json").write_bytes(content)
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        tm.open(store)
    assert main(["info", str(store)]) == 3
    assert main(["verify", str(store)]) == 3
    assert "manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [("shard_ids", None), ("shard_documents", []), ("receipts", ["0"]), ("files", ["a"]), ("tokenizer", None)],
)
def test_a_manifest_of_the_wrong_shape(store, key, value):
    """With a right checksum but columns that cannot be, it is refused when it is opened, not when it is used."""
    path = store / "manifest.json"
    body = json.loads(path.read_bytes())
    body[key] = value
    write_forged_manifest(path, body)
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        tm.open(store)
    assert main(["verify", str(store)]) == 3


def test_a_manifest_with_a_strange_key(store):
    """A manifest with a key that this version does not know is not of this version."""
    path = store / "manifest.json"
    write_forged_manifest(path, {**json.loads(path.read_bytes()), "strange": 1})
    with pytest.raises(CorruptError, match="strange"):
        tm.open(store)
