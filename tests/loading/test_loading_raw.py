"""What batches are made from: raw text that is tokenized once and kept, and stores that are checked as they are read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from packing_reference import numbered, spread, write_store
from test_load import WIDTH, hashed, row_numbers, samples

import tokenmill as tm
from tokenmill.errors import CorruptError, MissingInputError, MissingStoreError, UsageError

pytestmark = pytest.mark.usefixtures("alone")

LOADING = """
import sys
sys.modules["torch"] = None  # quicker to start, and batches are the same
import tokenmill as tm
loader = tm.load(sys.argv[1], 2, tokenizer=tm.load_tokenizer(sys.argv[2], "reference"), seq_len=32)
print(loader.fingerprint, *(loader.batch(step)["input_ids"].tolist() for step in range(8)), sep="\\n")
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache without stores; what is known of the tokenizer is taken along, to save its trial."""
    known, own = os.environ["TOKENMILL_CACHE"], tmp_path / "cache"
    shutil.copytree(known, own, ignore=shutil.ignore_patterns("stores", "builds"))
    monkeypatch.setenv("TOKENMILL_CACHE", str(own))
    yield own
    for name in ("proofs", "tokenizers"):  # and back, for the next
        if (own / name).is_dir():
            shutil.copytree(own / name, Path(known) / name, dirs_exist_ok=True)


def written(folder, name, texts):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")


@pytest.fixture
def corpus(tmp_path):
    for part in range(2):
        written(tmp_path / "corpus", f"{part}.jsonl", [f"part {part}, line {i}: {'words and ' * i}" for i in range(40)])
    return tmp_path / "corpus"


def files_of(folder):
    """What tells a file from another of the same name."""
    found = [path for path in folder.rglob("*") if path.suffix in (".npy", ".json")]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def hashes(loader, steps=12):
    return [hashed(loader.batch(step)) for step in range(steps)]


# --- raw text -------------------------------------------------------------------------------------------------------------


def test_raw_text_is_tokenized_once_and_taken_in_as_it_grows(corpus, cache, tokenizer_path, tmp_path):
    wanted = f"{corpus}/*.jsonl"
    raw = {"batch_size": 2, "tokenizer": tokenizer_path, "seq_len": 32}
    loader = tm.load(wanted, **raw)
    built = tm.load(tm.pack(tm.build(wanted, tokenizer_path, tmp_path / "own"), 32), batch_size=2)
    assert loader.fingerprint == built.fingerprint
    assert hashes(loader) == hashes(built)

    before = files_of(cache / "stores")
    assert len(list((cache / "stores").iterdir())) == 1
    assert hashes(tm.load(wanted, **raw)) == hashes(loader)
    assert hashes(tm.load(wanted, **raw, strategy="best_fit")) != hashes(loader)
    shorter = tm.load(wanted, **{**raw, "seq_len": 16})
    assert shorter.batch(0)["input_ids"].shape == (2, 16)
    assert {path: files_of(cache / "stores")[path] for path in before} == before
    assert len(list((cache / "stores").iterdir())) == 1
    first = hashes(loader)

    written(corpus, "2.jsonl", [f"a third part {i}" for i in range(30)])
    grown = tm.load(wanted, **raw)
    assert len(grown._samples) > len(loader._samples)
    assert grown.fingerprint == tm.load(tm.pack(tm.build(wanted, tokenizer_path, tmp_path / "own3"), 32), 2).fingerprint
    assert len(list((cache / "stores").iterdir())) == 2  # the first is as it was, for whoever uses it
    assert {path: files_of(cache / "stores")[path] for path in before} == before
    assert hashes(loader) == first


def test_ways_to_name_the_same_text(corpus, cache, tokenizer_path, monkeypatch):
    raw = {"batch_size": 2, "tokenizer": tokenizer_path, "seq_len": 32}
    right = hashes(tm.load(corpus, **raw))
    monkeypatch.chdir(corpus)
    files = sorted(corpus.glob("*.jsonl"))
    for data in ("*.jsonl", [*files], (str(files[0]), files[1]), tm.read(corpus), tm.read("*.jsonl", format="jsonl")):
        assert hashes(tm.load(data, **raw)) == right
    shutil.copytree(corpus, cache.parent / "copy")
    assert hashes(tm.load(cache.parent / "copy", **raw)) == right
    assert len(list((cache / "stores").iterdir())) == 1  # found by what it holds, whatever it is called
    one = tm.load(files[0], **raw)
    assert hashes(one) != right
    assert hashes(tm.load(tm.read(files[0], template="{text} {text}"), **raw)) != hashes(one)


def test_processes_that_ask_at_once_get_one_store(corpus, cache, tokenizer_path):
    run = [sys.executable, "-c", LOADING, str(corpus), str(tokenizer_path)]
    processes = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    told = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, told
    assert len({out for out, _ in told}) == 1
    (store,) = (cache / "stores").iterdir()
    opened = tm.open(store)
    assert opened.verify() == []
    assert sum("documents in =" in err for _, err in told) == 1, told  # one of them built it
    assert told[0][0].splitlines()[1] == str(tm.load(tm.pack(opened, 32), 2).batch(0)["input_ids"].tolist())


def test_where_nothing_can_be_kept_the_text_is_tokenized_for_the_run(corpus, cache, tokenizer_path, tmp_path):
    run = [sys.executable, "-W", "always::UserWarning", "-c", LOADING, str(corpus), str(tokenizer_path)]
    kept = subprocess.run(run, capture_output=True, text=True, timeout=100)
    (tmp_path / "plain").write_text("no folder")
    (tmp_path / "temporary").mkdir()
    blocked = {
        **os.environ,
        "TOKENMILL_CACHE": str(tmp_path / "plain" / "cache"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    fresh = subprocess.run(run, capture_output=True, text=True, timeout=100, env=blocked)
    assert fresh.returncode == 0, fresh.stderr
    assert fresh.stdout == kept.stdout != ""
    assert fresh.stderr.count("UserWarning") == fresh.stderr.count("cannot be kept") == 1
    assert "UserWarning" not in kept.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_raw_text_needs_is_asked_for(corpus, tokenizer_path, tmp_path):
    folder = write_store(tmp_path / "store", spread(numbered([WIDTH] * 10)))
    for data, options, match in (
        (corpus, {"tokenizer": tokenizer_path}, "seq_len is missing"),
        (folder, {}, "seq_len is missing"),
        (tm.open(folder), {}, "seq_len is missing"),
        (
            tm.open(folder),
            {"seq_len": 4, "tokenizer": tokenizer_path},
            "is a store, which has its own tokenizer: leave",
        ),
        (folder, {"seq_len": 0}, "seq_len=0"),
        (folder, {"seq_len": 4, "strategy": "best"}, "strategy='best'"),
        (
            tm.pack(folder, 4),
            {"seq_len": 4, "tokenizer": "gpt2", "overlap": 1},
            "seq_len, tokenizer, overlap: the view",
        ),
    ):
        with pytest.raises(UsageError, match=match):
            tm.load(data, 2, **options)
    with pytest.raises(MissingStoreError, match=r"no manifest\.json\).*; text needs a tokenizer, such as -t gpt2"):
        tm.load(corpus, 2, seq_len=32)
    with pytest.raises(MissingInputError, match="nowhere"):
        tm.load(tmp_path / "nowhere", 2, seq_len=32, tokenizer=tokenizer_path)


def test_text_that_is_not_in_files_is_kept_by_content(cache, tokenizer_path):
    """Two iterables have one name, and each gets its own store; the same text again gets the one there is."""
    raw = {"batch_size": 2, "tokenizer": tokenizer_path, "seq_len": 4}
    texts = [[f"{word} {i}" for i in range(30)] for word in ("first", "second")]
    loaders = [tm.load(iter(some), **raw) for some in (*texts, texts[0])]
    found = [hashes(loader) for loader in loaders]
    assert found[0] == found[2] != found[1]
    assert len(list((cache / "stores").iterdir())) == 2
    assert hashes(tm.load(pa.table({"text": texts[1]}), **raw)) == found[1]
    for some, loader in zip(texts, loaders, strict=False):
        decoded = tm.load_tokenizer(tokenizer_path).decode(loader._samples.view.store[29])
        assert decoded.startswith(some[29])
    assert not list((cache / "builds").glob("spool-*"))


def test_files_that_cannot_be_read_are_told_of(corpus, cache, tokenizer_path):
    raw = {"batch_size": 2, "tokenizer": tokenizer_path, "seq_len": 32}
    good = hashes(tm.load(corpus, **raw))
    (corpus / "9.jsonl").symlink_to("gone")
    with pytest.warns(UserWarning, match=r"1 input file failed and is not in .*9\.jsonl"):
        assert hashes(tm.load(corpus, **raw)) == good


def test_a_tokenizer_beside_the_path_of_a_store_is_refused(tokenizer_path, tmp_path):
    folder = write_store(tmp_path / "store", spread(numbered([WIDTH] * 10)))
    with pytest.raises(UsageError, match="store is a store, which has its own tokenizer: leave out -t"):
        tm.load(folder, 2, seq_len=4, tokenizer=tokenizer_path)


# --- checked as it is read ------------------------------------------------------------------------------------------------

SHARDS, ROWS = 3, 40  # rows of 4 ids; a block of 64 bytes holds 8 rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three shards of five blocks each."""
    modules = ("store.checksums", "store.first_touch", "store.shard", "packing.plan_file")
    for module in modules:  # all modules that write or read checksums
        monkeypatch.setattr(f"tokenmill.{module}.CHECK_BLOCK", 64)
    cuts = [ROWS * shard for shard in range(1, SHARDS)]
    return write_store(tmp_path / "store", spread(numbered([WIDTH] * ROWS * SHARDS), cuts))


def flip(folder, shard, suffix, byte, bit=0):
    path = folder / "shards" / f"{shard:024x}{suffix}"
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)
    return path.name


def until_damage(loader, name):
    """The rows that come before the error, which names the file; batches hold nothing wrong."""
    found = []
    with pytest.raises(CorruptError, match=name):
        found.extend(row for batch in loader for row in row_numbers(batch))
    return found


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize(("shard", "token", "bit"), [(0, 0, 0), (1, 31, 7), (1, 32, 1), (2, 100, 3), (2, 159, 7)])
def test_a_flipped_bit_stops_at_the_first_batch_that_touches_its_block(folder, shard, token, bit, prefetch):
    name = flip(folder, shard, ".npy", 128 + 2 * token, bit)
    first = ROWS * shard + token // 32 * 8  # the first row of the block
    view = tm.pack(folder, WIDTH)
    options = {"epochs": 1, "prefetch": prefetch, "verify": "first-touch"}
    loader = tm.load(view, 2, shuffle=False, **options)
    assert until_damage(loader, name) == list(range(first))
    assert loader.seen == first
    shuffled = tm.load(view, 2, seed=6, **options)
    order = list(islice(samples(ROWS * SHARDS, seed=6), ROWS * SHARDS))
    touched = next(at for at, row in enumerate(order) if first <= row < first + 8)
    assert until_damage(shuffled, name) == order[: touched // 2 * 2]
    assert until_damage(shuffled, name) == []  # nor does it come through the second time
    rows = [row for row in range(ROWS * SHARDS) if not first <= row < first + 8]
    assert [batch.tolist() for batch in loader._samples.view.rows(rows)["input_ids"]] == [
        [WIDTH * row + 1 + i for i in range(WIDTH)] for row in rows
    ]


def test_unasked_nothing_is_compared(folder):
    """So the bit that was flipped here would be trained on."""
    flip(folder, 1, ".npy", 128, 0)
    found = [batch["input_ids"] for batch in tm.load(tm.pack(folder, WIDTH), 2, shuffle=False, epochs=1)]
    assert len(found) == ROWS * SHARDS // 2
    assert found[20][0, 0] == (WIDTH * ROWS + 1) ^ 1


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("byte", [128, 128 + 8 * 20 + 1, 128 + 8 * ROWS - 1])
def test_flipped_ends_stop_at_the_first_batch_that_needs_them(folder, byte, prefetch):
    name = flip(folder, 2, ".ends.npy", byte, 2)
    options = {"shuffle": False, "epochs": 1, "prefetch": prefetch, "verify": "first-touch"}
    ids_alone = tm.load(tm.pack(folder, WIDTH, fields="input_ids"), 2, **options)
    assert [row for batch in ids_alone for row in row_numbers(batch)] == list(range(ROWS * SHARDS))
    found = until_damage(tm.load(tm.pack(folder, WIDTH), 2, **options), name)
    assert found == list(range(len(found)))
    assert len(found) <= 2 * ROWS


def test_flipped_ends_stop_the_second_time_too(folder):
    name = flip(folder, 0, ".ends.npy", 128, 0)
    loader = tm.load(tm.pack(folder, WIDTH), 2, shuffle=False, verify="first-touch")
    assert until_damage(loader, name) == []
    assert until_damage(islice(loader, 1), name) == []


def test_a_damaged_receipt_stops_too(folder):
    flip(folder, 1, ".json", 20, 1)
    options = {"shuffle": False, "epochs": 1, "verify": "first-touch"}
    view = tm.pack(folder, WIDTH, fields="input_ids")
    assert until_damage(tm.load(view, 2, **options), f"{1:024x}") == list(range(ROWS))


@pytest.mark.parametrize("strategy", ["concat", "best_fit", "pad"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_undamaged_data_reads_as_without(folder, strategy, prefetch):
    """Rows here lie across documents, blocks and shards."""
    view = tm.pack(folder, 7, strategy=strategy, labels="shifted")
    checked = tm.load(view, 3, epochs=2, drop_last=False, prefetch=prefetch, verify="first-touch")
    assert [hashed(batch) for batch in checked] == [
        hashed(batch) for batch in tm.load(view, 3, epochs=2, drop_last=False)
    ]


def test_rows_and_labels_that_reach_into_a_damaged_shard_are_found(folder):
    """A row that begins in one shard and ends in the next; a label that is the next shard's first token."""
    name = flip(folder, 1, ".npy", 128, 0)
    over = tm.pack(folder, 6, fields="input_ids")  # row 26 is tokens 156 to 161; 160 is the first of shard 1
    loader = tm.load(over, 1, shuffle=False, verify="first-touch", prefetch=0)
    assert loader.batch(25)["input_ids"].tolist() == [list(range(151, 157))]
    with pytest.raises(CorruptError, match=name):
        loader.batch(26)
    following = tm.load(tm.pack(folder, WIDTH, labels="shifted"), 1, shuffle=False, verify="first-touch")
    assert following.batch(38)["labels"].tolist() == [[154, 155, 156, 157]]
    with pytest.raises(CorruptError, match=name):
        following.batch(39)


def test_sources_of_a_mixture_are_checked_too(folder, tmp_path):
    good = tm.pack(write_store(tmp_path / "good", spread(numbered([WIDTH] * 20, 1001))), WIDTH)
    mixture = tm.mix({"good": (good, 3), "bad": (tm.pack(folder, WIDTH), 1)})
    right = hashes(tm.load(mixture, 1), 40)
    for block in range(5):  # all of shard 1, and nothing else
        name = flip(folder, 1, ".npy", 128 + 64 * block)
    checked = tm.load(mixture, 1, verify="first-touch")
    rows = [tm.load(mixture, 1).batch(step)["input_ids"][0, 3].item() for step in range(40)]
    damaged = [step for step, last in enumerate(rows) if WIDTH * ROWS < last <= 2 * WIDTH * ROWS]
    assert 0 < len(damaged) < 10
    for step in range(40):
        if step in damaged:
            with pytest.raises(CorruptError, match=name):
                checked.batch(step)
        else:
            assert hashed(checked.batch(step)) == right[step]


def test_blocks_of_their_real_size(tmp_path):
    """4 MiB: 1,048,576 ids of 4 bytes. The bit lies in the second block; rows of the first are good."""
    folder = write_store(tmp_path / "store", spread(numbered([400_000] * 3)), "uint32", vocab_size=1 << 21)
    name = flip(folder, 0, ".npy", 128 + 4 * 1_100_000)
    loader = tm.load(tm.pack(folder, 65_536, fields="input_ids"), 1, shuffle=False, verify="first-touch")
    for step in range(16):
        assert loader.batch(step)["input_ids"][0, [0, -1]].tolist() == [65_536 * step + 1, 65_536 * (step + 1)]
    with pytest.raises(CorruptError, match=name):
        loader.batch(16)
