"""An engine that goes wrong after it was proved: caught by the samples of a build, or by encoding a store again."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.engines import GigatokenEngine
from tokenmill.encoding.safe_split import safe_rules
from tokenmill.errors import DifferenceError, StoreError, TokenizerError
from tokenmill.events import Event

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")

ALL = "1000000000"
SMALL = 200  # what is "long" here, in bytes

# Ways to go wrong that no proof can see, since they begin after it. "drops" loses the last token of a document that holds
# a certain word; "spells" writes a letter in another way, as if it had another table of characters.
PLANT = """
import numpy as np
from tokenmill.documents import text_array
from tokenmill.encoding.engines import GigatokenEngine
right = GigatokenEngine.encode
def drops(self, values):
    ids, offsets = right(self, values)
    hit = [i for i, text in enumerate(values.to_pylist()) if "quokka" in text]
    lengths = np.diff(offsets)
    lengths[hit] -= 1
    return np.delete(ids, offsets[1:][hit] - 1), np.concatenate(([0], np.cumsum(lengths)))
def spells(self, values):
    return right(self, text_array([text.replace("ß", "ss") for text in values.to_pylist()]))
"""
WORD = {"drops": "quokka", "spells": "Maß"}


def wrong_ids(way: str, reference: tokenizers.Tokenizer, text: str) -> list[int]:
    """What a planted engine makes of a document that holds its word."""
    if way == "drops":
        return reference.encode(text, add_special_tokens=False).ids[:-1]
    return reference.encode(text.replace("ß", "ss"), add_special_tokens=False).ids


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path, proved):
    """What is learned of an engine here is for one test."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def plant(monkeypatch, tmp_path) -> Callable[..., None]:
    """Make the engine go wrong: in this process, or in the workers only."""

    def plant(way: str, workers: int = 0) -> None:
        if workers:
            in_workers(monkeypatch, tmp_path, f"{PLANT}\nGigatokenEngine.encode = {way}")
        else:
            made: dict[str, Any] = {}
            exec(PLANT, made)
            monkeypatch.setattr(GigatokenEngine, "encode", made[way])

    return plant


def in_workers(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Have every worker run some code before it begins."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site/sitecustomize.py").write_text(
        "import sys\nif any(word.startswith('tokenmill.building.executors.worker') for word in sys.orig_argv):\n"
        f"    exec({code!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"), prepend=os.pathsep)


@pytest.fixture
def late(monkeypatch):
    """Samples are looked at when all else is done."""
    monkeypatch.setattr("tokenmill.building.spot_check.SHARE", 0.0)


@pytest.fixture
def unsampled(monkeypatch, late):
    """Nothing is looked at: what a planted engine makes goes into the store."""
    monkeypatch.setattr("tokenmill.building.spot_check.AT_LEAST", 0)


def build(source: Any, tokenizer: Any, out: Path, **options: Any) -> tuple[tm.Store, dict[str, Any]]:
    """A build with the engine that is planted, and what it said at the end."""
    events: list[Event] = []
    options = {"workers": 0, "engine": "gigatoken", "progress": events.append} | options
    return tm.build(source, tokenizer, out, **options), events[-1]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def shard_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "shards").iterdir())}


def receipts(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "shards").glob("*.json"))


def places(store: tm.Store) -> list[tuple[str, int]]:
    return [tuple(store.locate(i)) for i in range(len(store))]


Texts = dict[tuple[str, int], str]  # by file and row


def corpus(folder: Path, word: str = "") -> Texts:
    """Files of several formats, with rows that are no documents before those that are. The word is in every document."""
    texts: Texts = {}

    def add(path: Path, row: int, size: int = 1) -> str:
        texts[str(path), row] = (
            f"Number {row} of {path.name}: {'some words and ' * size}{word} 中文 {row * 7919}, the end"
        )
        return texts[str(path), row]

    folder.mkdir(exist_ok=True)
    path = folder / "a.jsonl"
    odd = {3: "", 4: "", 5: "{bad", 60: '{"no": 1}', 61: '{"text": null}', 99: ""}
    with open(path, "w", encoding="utf-8") as out:
        for i in range(130):
            out.write((odd[i] if i in odd else json.dumps({"text": add(path, i, i % 40)})) + "\n")
    path = folder / "b.csv"
    with open(path, "w", encoding="utf-8") as out:
        out.write("id,text\n")
        for i in range(50):
            out.write("too,many,fields\n" if i in (0, 20, 21) else f'{i},"{add(path, i)}"\n')
    path = folder / "c.parquet"
    rows = [None if i % 9 == 4 else add(path, i, i % 20) for i in range(150)]
    pq.write_table(pa.table({"text": rows}), path, row_group_size=25, compression=None)
    for i in range(6):
        path = folder / f"d{i}.txt"
        path.write_bytes(b"\xff" if i == 2 else add(path, 0).encode())
    path = folder / "e.jsonl"
    path.write_text("\n{}\n" + "".join(json.dumps({"text": add(path, i + 2)}) + "\n" for i in range(5)), "utf-8")
    return texts


# What a build does about it.

COMPLAINT = re.compile(
    r"gigatoken \S+ gives other ids than the reference for (?P<file>.+), row (?P<row>\d+) \((?P<text>.+?)\): first at token"
    r" (?P<at>\d+): \[(?P<right>.*?)\] by the reference, \[(?P<wrong>.*?)\] by the engine\."
)


def check_complaint(message: str, texts: Texts, way: str, reference: tokenizers.Tokenizer) -> None:
    """Every part of it is true: the document, where it is, what its ids are and what the engine made of it."""
    found = COMPLAINT.search(message)
    assert found, message
    text = texts[found["file"], int(found["row"])]
    assert found["text"] == repr(text[:40])
    right, wrong = [*reference.encode(text).ids, 0], [*wrong_ids(way, reference, text), 0]
    check_ids(found["at"], found["right"], found["wrong"], right, wrong)
    assert "--engine reference" in message
    assert "engine='reference'" in message


def check_ids(at: str, shown_right: str, shown_wrong: str, right: list[int], wrong: list[int]) -> None:
    """The first token that differs, and ids around it."""
    place = next(i for i, pair in enumerate(zip(right, wrong, strict=False)) if len(set(pair)) > 1)
    assert int(at) == place
    shown = [[int(number) for number in re.findall(r"\d+", ids)] for ids in (shown_right, shown_wrong)]
    start = place - next(i for i, (a, b) in enumerate(zip(*shown, strict=False)) if a != b)
    for numbers, ids in zip(shown, (right, wrong), strict=True):
        assert len(numbers) > place - start
        assert numbers == ids[start : start + len(numbers)]
    assert shown_right.startswith("... ") == shown_wrong.startswith("... ") == (start > 0)
    assert shown_right.endswith(" ...") == (start + len(shown[0]) < len(right))


@pytest.mark.parametrize(("way", "workers"), [("drops", 0), ("spells", 0), ("drops", 1)])
def test_a_wrong_engine_is_caught(tmp_path, tokenizer_path, reference, plant, late, way, workers):
    """The build stops and says where; nothing of it is kept; that engine is not used for this tokenizer again."""
    texts = corpus(tmp_path / "in", WORD[way])
    plant(way, workers)
    source, out = tmp_path / "in", tmp_path / "out"
    options: dict[str, Any] = {"workers": workers, "shard_bytes": "8KB"}
    with pytest.raises(DifferenceError) as caught:
        build(source, tokenizer_path, out, **options)
    check_complaint(str(caught.value), texts, way, reference)
    assert receipts(out) == []
    with pytest.raises(StoreError, match="interrupted"):
        tm.open(out)

    with pytest.raises(TokenizerError, match="engine='gigatoken' cannot be used with this tokenizer: was caught"):
        tm.load_tokenizer(tokenizer_path, engine="gigatoken")
    assert tm.load_tokenizer(tokenizer_path).choose_engine() != "gigatoken"
    for engine in ("reference", "auto"):
        store, _ = build(source, tokenizer_path, out, engine=engine, force=engine == "auto", **options)
        assert {place: ids.tolist() for place, ids in zip(places(store), store, strict=True)} == {
            place: [*reference.encode(text).ids, 0] for place, text in texts.items()
        }
        assert store.complete
        assert store.tokenizer.engine != "gigatoken"


def test_a_wrong_engine_is_caught_by_command(tmp_path, tokenizer_path, reference, plant, late, capsys):
    """Exit code 1, and the same words, here of the last piece of a file; with --engine reference the command then does it."""
    texts = {place: text for place, text in corpus(tmp_path / "in", "quokka").items() if "a.jsonl" in place[0]}
    plant("drops")
    command = [
        "build",
        str(tmp_path / "in/a.jsonl"),
        "--shard-bytes",
        "8KB",
        "-t",
        str(tokenizer_path),
        "-o",
        str(tmp_path / "out"),
        "-q",
    ]
    assert main([*command, "--engine", "gigatoken", "--workers", "0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    check_complaint(err, texts, "drops", reference)
    assert main([*command, "--engine", "reference", "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == len(texts)


def test_it_may_be_right_with_another_tokenizer(tmp_path, tokenizer_path, plant):
    """What was caught is an engine with one tokenizer: another policy is another tokenizer."""
    plant("drops")
    with pytest.raises(DifferenceError):
        build(write_jsonl(tmp_path / "a.jsonl", ["a quokka"]), tokenizer_path, tmp_path / "out")
    assert tm.load_tokenizer(tokenizer_path, engine="gigatoken", special_tokens="text").choose_engine() == "gigatoken"


@pytest.mark.parametrize("workers", [0, 1])
def test_what_was_published_before_stays(tmp_path, tokenizer_path, reference, plant, late, workers):
    """A good store gets one more file, and with it an engine gone wrong: it stays what it was, and can still grow."""
    texts = corpus(tmp_path / "in")
    source, out = tmp_path / "in", tmp_path / "out"
    options: dict[str, Any] = {"workers": workers, "shard_bytes": "8KB"}
    store, _ = build(source, tokenizer_path, out, **options)
    before = shard_files(out)
    more = [
        f"quokka {i} " + "and some words " * 9 for i in range(70)
    ]  # more than a shard: in none with other documents
    path = write_jsonl(source / "more.jsonl", more)
    plant("drops", workers)
    for engine in ("gigatoken", "auto"):  # auto keeps to the engine of a store, but not to one that was caught
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOKENMILL_CACHE", str(tmp_path / f"cache-{engine}"))
            shutil.copytree(tmp_path / "cache", tmp_path / f"cache-{engine}")
            with pytest.raises(DifferenceError, match=r"more\.jsonl, row"):
                build(source, tokenizer_path, out, engine=engine, **options)
            same = tm.open(out)
            assert same.fingerprint == store.fingerprint
            assert same.verify() == []
            assert len(same) == len(texts)
            assert receipts(out) == [name for name in before if name.endswith(".json")]
            assert {name: body for name, body in shard_files(out).items() if name in before} == before
            assert tm.load_tokenizer(tokenizer_path).choose_engine() != "gigatoken"
            if engine == "auto":
                grown, _ = build(source, tokenizer_path, out, engine="auto", **options)
    assert grown.tokenizer.engine != "gigatoken"
    texts |= {(str(path), i): text for i, text in enumerate(more)}
    assert {place: ids.tolist() for place, ids in zip(places(grown), grown, strict=True)} == {
        place: [*reference.encode(text).ids, 0] for place, text in texts.items()
    }


def test_a_trial_is_sampled_too(tmp_path, tokenizer_path, reference, plant):
    """With a limit, tasks are cut short: their documents are found all the same."""
    texts = corpus(tmp_path / "in", "quokka")
    plant("drops")
    with pytest.raises(DifferenceError) as caught:
        build(tmp_path / "in", tokenizer_path, tmp_path / "out", max_rows=30)
    check_complaint(str(caught.value), texts, "drops", reference)
    assert receipts(tmp_path / "out") == []


def test_no_receipt_comes_after_all_were_thrown_away(tmp_path, tokenizer_path, plant, monkeypatch):
    """Workers that are about to make a shard durable when their engine is caught do not get to do so."""
    write_jsonl(tmp_path / "in/a.jsonl", [f"quokka {i} and some words" for i in range(2000)])
    slowly = """
import time
from tokenmill.store.shard import ShardWriter
commit = ShardWriter.commit
def slowly(self, *name, **facts):
    time.sleep(0.3)
    return commit(self, *name, **facts)
ShardWriter.commit = slowly
"""
    in_workers(monkeypatch, tmp_path, f"{PLANT}\nGigatokenEngine.encode = drops\n{slowly}")
    monkeypatch.setattr("tokenmill.building.spot_check.SHARE", 1e9)  # looked at when it comes
    monkeypatch.setattr("tokenmill.building.sequence.refuse", lambda *what: _wait_for_receipt(tmp_path / "out"))
    with pytest.raises(DifferenceError):
        build(tmp_path / "in", tokenizer_path, tmp_path / "out", workers=2, shard_bytes="8KB")
    assert receipts(tmp_path / "out") == []


def _wait_for_receipt(folder: Path) -> None:
    deadline = monotonic() + 1.5
    while not receipts(folder) and monotonic() < deadline:
        sleep(0.01)


# How much is looked at.

SIZES = {
    "one": ["a document"],
    "an empty one": [""],
    "some": [f"document {i}" for i in range(50)],
    "many": [f"document {i} " * 20 for i in range(600)],
    "only long ones": [f"{i} some words " * 8000 for i in range(3)],  # 100 KB each
}


@pytest.mark.parametrize(("size", "workers"), [*((size, 0) for size in SIZES), ("one", 1), ("many", 1)])
def test_every_build_is_sampled(tmp_path, tokenizer_path, size, workers):
    """However small, with any engine but the reference itself."""
    source = write_jsonl(tmp_path / "a.jsonl", SIZES[size])
    store, finished = build(source, tokenizer_path, tmp_path / "out", workers=workers, shard_bytes="64KB")
    assert 0 < finished.spot_checked <= len(store)
    assert 0 < finished.spot_check_seconds < finished.seconds + 1


def test_the_reference_is_not_held_to_itself(tmp_path, tokenizer_path):
    source = write_jsonl(tmp_path / "a.jsonl", SIZES["some"])
    _, finished = build(source, tokenizer_path, tmp_path / "out", engine="reference")
    assert (finished.spot_checked, finished.spot_check_seconds) == (0, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_change_nothing(tmp_path, tokenizer_path, monkeypatch, workers):
    """Looked at or not, many or few: the same bytes, which are the reference's."""
    corpus(tmp_path / "in")
    made = {}
    for name, share in (("none", 0.0), ("all", 1e9)):
        monkeypatch.setattr("tokenmill.building.spot_check.SHARE", share)
        store, finished = build(tmp_path / "in", tokenizer_path, tmp_path / name, workers=workers, shard_bytes="8KB")
        made[name] = shard_files(tmp_path / name), store.fingerprint, finished.spot_checked
    assert made["all"][2] > made["none"][2] > 0
    store, _ = build(tmp_path / "in", tokenizer_path, tmp_path / "out", engine="reference", shard_bytes="8KB")
    assert made["none"][:2] == made["all"][:2] == (shard_files(tmp_path / "out"), store.fingerprint)


# Documents of a store, encoded again.


def verify(capsys, store: tm.Store | Path, count: str = ALL) -> tuple[int, dict[str, Any]]:
    """`tokenmill verify --reencode`: its exit code and what it printed as JSON."""
    capsys.readouterr()
    path = store if isinstance(store, Path) else store.path
    code = main(["verify", str(path), "--reencode", count, "--json"])
    return code, json.loads(capsys.readouterr().out)


DAMAGE = re.compile(
    r"differs from tokenizers [\w.]+, first at token (\d+): \[(.*)\] by the reference, \[(.*)\] by the engine"
)


def check_found(found: list[dict[str, Any]], expected: Texts, way: str, reference: tokenizers.Tokenizer) -> None:
    """Just these documents are named, each with its ids."""
    assert sorted(entry["file"] for entry in found) == sorted(f"{file}, row {row}" for file, row in expected)
    named = {f"{file}, row {row}": text for (file, row), text in expected.items()}
    for entry in found:
        text = named[entry["file"]]
        told = DAMAGE.fullmatch(entry["what"])
        assert told, entry
        check_ids(*told.groups(), [*reference.encode(text).ids, 0], [*wrong_ids(way, reference, text), 0])


def test_a_good_store_encoded_again(tmp_path, tokenizer_path, capsys):
    """Every document of every format, behind rows that gave none, is compared with its own text."""
    texts = corpus(tmp_path / "in")
    store, _ = build(tmp_path / "in", tokenizer_path, tmp_path / "out", shard_bytes="8KB")
    assert store.num_shards > 6
    assert len(store) == len(texts)
    assert verify(capsys, store) == (0, {"ok": True, "repaired": False, "damaged": [], "reencoded": len(texts)})
    for count in (1, 5, 64, 65, 200):
        assert verify(capsys, store, str(count))[1]["reencoded"] == count
    assert main(["verify", str(store.path), "--reencode", "7"]) == 0
    assert f"tokenizers {version('tokenizers')} gives the same ids for 7 documents" in capsys.readouterr().out
    assert main(["verify", str(store.path), "--json"]) == 0
    assert "reencoded" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("way", ["drops", "spells"])
def test_a_wrong_store_encoded_again(tmp_path, tokenizer_path, reference, plant, unsampled, capsys, way):
    """Documents that an engine got wrong are named by file and row, with the ids; and no others."""
    texts = corpus(tmp_path / "in")
    wrong = corpus(tmp_path / "in/more", WORD[way])
    plant(way)
    store, finished = build(tmp_path / "in/**/*", tokenizer_path, tmp_path / "out", shard_bytes="8KB")
    assert finished.spot_checked == 0
    code, said = verify(capsys, store)
    assert (code, said["ok"], said["reencoded"]) == (3, False, len(texts) + len(wrong))
    check_found(said["damaged"], wrong, way, reference)
    assert main(["verify", str(store.path), "--reencode", ALL]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(wrong)
    assert all(line.startswith("damaged: ") and " by the reference, " in line for line in lines)
    assert main(["verify", str(store.path), "--reencode", ALL, "--repair"]) == 3
    assert "--engine reference" in capsys.readouterr().err


def test_one_in_a_thousand(tmp_path, tokenizer_path, reference, plant, capsys):
    """What no sample of a build met is found when all documents are encoded again."""
    texts = [f"document {i}" for i in range(1000)]
    texts[777] = "a quokka " + "and other animals " * 2000  # too long for a sample
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    plant("drops")
    store, finished = build(source, tokenizer_path, tmp_path / "out")
    assert finished.spot_checked > 0
    code, said = verify(capsys, store)
    assert (code, said["reencoded"]) == (3, 1000)
    check_found(said["damaged"], {(str(source), 777): texts[777]}, "drops", reference)


def test_an_engine_that_was_caught_since(tmp_path, tokenizer_path, plant, unsampled, capsys, monkeypatch):
    """A store by an engine that may not be used any more is just what one wants to look at."""
    store, _ = build(write_jsonl(tmp_path / "a.jsonl", SIZES["some"]), tokenizer_path, tmp_path / "out")
    plant("drops")
    monkeypatch.setattr("tokenmill.building.spot_check.AT_LEAST", 4)
    with pytest.raises(DifferenceError):
        build(write_jsonl(tmp_path / "b.jsonl", ["a quokka"]), tokenizer_path, tmp_path / "other")
    assert verify(capsys, store) == (0, {"ok": True, "repaired": False, "damaged": [], "reencoded": len(store)})


_proved_rules = cache(safe_rules)


def test_long_documents_among_short_ones(tmp_path, tokenizer_path, reference, monkeypatch, plant, unsampled, capsys):
    """Those that were encoded in parts are passed over, and nothing is mistaken for its neighbour."""
    monkeypatch.setattr("tokenmill.reading.formats.text.LONG_TEXT", SMALL)
    for module in ("long_document", "audit"):
        monkeypatch.setattr(f"tokenmill.building.{module}.WHOLE_BYTES", SMALL)
    monkeypatch.setattr("tokenmill.encoding.encoder.cached_rules", _proved_rules)
    long, texts = "some words of a long text\n" * 40, {}
    bodies = ["short", long, long + "\udcff", "a quokka", long + "a quokka", "", "another quokka", "\udcff", "last"]
    (tmp_path / "in").mkdir()
    for i, body in enumerate(bodies):
        path = tmp_path / f"in/{i}.txt"
        path.write_bytes(f"{body}{i}".encode("utf-8", "surrogateescape"))
        if "\udcff" not in body:
            texts[str(path), 0] = f"{body}{i}"
    records = write_jsonl(tmp_path / "in/z.jsonl", ["one", long, "a quokka in a record", long + "z", "four"])
    texts |= {(str(records), i): json.loads(line)["text"] for i, line in enumerate(records.read_text().splitlines())}
    plant("drops")
    store, _ = build(tmp_path / "in/*", tokenizer_path, tmp_path / "out")
    short = {place: text for place, text in texts.items() if len(text) <= SMALL}
    assert (len(store), len(short)) == (len(texts), len(texts) - 4)
    code, said = verify(capsys, store)
    assert (code, said["reencoded"]) == (3, len(short))
    check_found(said["damaged"], {p: text for p, text in short.items() if "quokka" in text}, "drops", reference)


def test_files_that_failed(tmp_path, tokenizer_path, reference, plant, unsampled, capsys):
    """A file that broke after much of it was read is not in the store; those before and after it are."""
    texts = {}
    for name in ("a", "c"):
        path = write_jsonl(tmp_path / f"in/{name}.jsonl", [f"{name} {i}" + " quokka" * (i == 5) for i in range(9)])
        texts |= {(str(path), i): json.loads(line)["text"] for i, line in enumerate(path.read_text().splitlines())}
    body = "".join(json.dumps({"text": f"{i} of many " * 40}) + "\n" for i in range(20_000)).encode()
    assert len(body) > 8 << 20
    (tmp_path / "in/b.jsonl.gz").write_bytes(gzip.compress(body, 1, mtime=0)[:-9])
    plant("drops")
    store, _ = build(tmp_path / "in", tokenizer_path, tmp_path / "out")
    assert (len(store), store.num_shards, len(store.failed)) == (18, 1, 1)
    code, said = verify(capsys, store)
    assert (code, said["reencoded"]) == (3, 18)
    check_found(said["damaged"], {p: text for p, text in texts.items() if "quokka" in text}, "drops", reference)


def test_documents_that_crashed_an_engine(tmp_path, tokenizer_path, monkeypatch, capsys):
    """They are not in the store, and those after them are compared with their own texts."""
    crash = "sudden-death-marker"
    lines = [json.dumps({"text": f"document {i}"}) for i in range(12)]
    lines[2], lines[4], lines[5] = "", json.dumps({"text": crash}), "{bad"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    write_jsonl(tmp_path / "b.jsonl", ["more", "of", "it"])
    code = f"""
import os
from tokenmill.encoding.engines import GigatokenEngine
right = GigatokenEngine.encode
def dies(self, values):
    if any({crash!r} in text for text in values.to_pylist()):
        os._exit(9)
    return right(self, values)
GigatokenEngine.encode = dies
"""
    in_workers(monkeypatch, tmp_path, code)
    monkeypatch.setattr("tokenmill.building.executors.crashes.STRIKES", 1)  # fewer workers die before it is found
    store, finished = build(tmp_path / "*.jsonl", tokenizer_path, tmp_path / "out", workers=1)
    assert store._manifest.quarantined == {"bad json": 1, "crashed the engine": 1}
    assert finished.spot_checked > 0
    code, said = verify(capsys, store)
    assert (code, said["damaged"], said["reencoded"]) == (0, [], 12)


# A source that is not what it was: nothing can be said, and that is said.


@pytest.mark.parametrize("change", ["edited", "gone", "more", "broken"])
def test_a_source_that_changed(tmp_path, tokenizer_path, capsys, change):
    source = tmp_path / "in"
    for name in ("a", "b"):
        path = source / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"".join(b'{"text": "document %d"}\n' % i for i in range(100))))
    store, _ = build(source, tokenizer_path, tmp_path / "out")
    before, body = path.stat(), path.read_bytes()
    if change == "edited":
        path.write_bytes(gzip.compress(b'{"text": "other"}\n'))
    elif change == "gone":
        shutil.rmtree(source)
    elif change == "more":
        write_jsonl(source / "c.jsonl", ["new"])
    else:  # no longer readable, though it looks the same from outside
        path.write_bytes(bytes(len(body)))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert main(["verify", str(store.path), "--reencode", "10"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no document can be encoded again" in err
    assert str(source) in err
    assert main(["verify", str(store.path)]) == 0


@pytest.mark.parametrize("kind", ["stdin", "iterable", "limit"])
def test_a_source_that_is_not_there_to_be_read_again(tmp_path, tokenizer_path, capsys, monkeypatch, kind):
    """Text that was never in files, and a trial of the first documents."""
    out = tmp_path / "out"
    if kind == "stdin":
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"one\ntwo\n")))
        command = ["build", "-", "--format", "lines", "-q", "-o", str(out)]
        assert main([*command, "-t", str(tokenizer_path), "--engine", "reference"]) == 0
    elif kind == "iterable":
        build(iter(["one", "two"]), tokenizer_path, out)
    else:
        build(write_jsonl(tmp_path / "a.jsonl", ["one", "two"]), tokenizer_path, out, max_rows=1)
    assert main(["verify", str(out), "--reencode", "10"]) == 3
    err = capsys.readouterr().err
    assert "no document can be encoded again" in err
    assert ("trial" if kind == "limit" else "not in files") in err


@pytest.mark.parametrize("count", ["0", "-1", "some"])
def test_how_many_is_a_number(tmp_path, count, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(tmp_path), f"--reencode={count}"])
    assert stopped.value.code == 2
    assert "--reencode" in capsys.readouterr().err


# What processes see of each other.

THREADS = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS")


@pytest.mark.parametrize("values", [None, ("true", "3")])
def test_what_the_user_set_reaches_the_workers(tmp_path, tokenizer_path, monkeypatch, values):
    """One thread each, unless the user has said otherwise; and this process's own environment stays as it is."""
    for name, value in zip(THREADS, values or ("", ""), strict=True):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    seen = tmp_path / "seen"
    seen.mkdir()
    code = f"""
import json, os
name = {str(seen)!r} + f"/{{os.getpid()}}"
with open(name, "w") as out:
    json.dump(dict(os.environ), out)
os.rename(name, name + ".json")
"""
    in_workers(monkeypatch, tmp_path, code)
    monkeypatch.setenv("ANYTHING_ELSE", "as it was")
    source = write_jsonl(tmp_path / "a.jsonl", SIZES["many"])
    before = dict(os.environ)
    for engine in ("gigatoken", "reference"):
        build(source, tokenizer_path, tmp_path / engine, engine=engine, workers=1, shard_bytes="64KB")
        build(source, tokenizer_path, tmp_path / f"{engine}-inside", engine=engine, max_rows=100)
        tm.load_tokenizer(tokenizer_path, engine).encode("some words")
    assert dict(os.environ) == before
    environments = [json.loads(path.read_text()) for path in seen.glob("*.json")]
    assert len(environments) >= 2  # a worker for each engine
    for found in environments:
        assert tuple(found[name] for name in THREADS) == (values or ("false", "1"))
        assert found["ANYTHING_ELSE"] == "as it was"


FORKING = """
import os, sys
import tokenmill as tm

source, tokenizer, out, engine = sys.argv[1:]

def work(name):
    store = tm.build(source, tokenizer, f"{out}/{name}", workers=0, engine=engine, progress="quiet")
    loaded = tm.load_tokenizer(tokenizer, engine)
    return store.fingerprint, loaded.encode("some words of a text"), kept.encode("other words")

kept = tm.load_tokenizer(tokenizer, engine)
expected = work("parent")
child = os.fork()
if not child:
    os._exit(0 if work("child") == expected else 7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, work("after") == expected)
"""


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_a_process_may_fork(tmp_path, tokenizer_path, engine):
    """As data loaders do: whatever was built and loaded before works in the child too, and nobody is warned."""
    source = write_jsonl(tmp_path / "a.jsonl", SIZES["some"])
    arguments = [sys.executable, "-W", "error", "-c", FORKING, str(source), str(tokenizer_path), str(tmp_path), engine]
    quiet = {name: value for name, value in os.environ.items() if name not in THREADS}
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=quiet)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0 True\n", "")
