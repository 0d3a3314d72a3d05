"""What goes wrong around loading: threads, loops that are left, inputs that fail or change, options that are none."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest
from packing_reference import numbered, spread, write_store

import tokenmill as tm
from tokenmill.errors import UsageError

WIDTH = 4


@pytest.fixture
def folder(tmp_path):
    return write_store(tmp_path / "store", spread(numbered([WIDTH] * 60), [20, 40]))


@pytest.fixture
def texts(tmp_path, monkeypatch, proved):
    """A folder of JSON lines, and a cache of its own."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    for part in range(2):
        rows = [json.dumps({"text": f"part {part}, document {i}, and some more words"}) for i in range(40)]
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    return folder


def test_two_threads_that_touch_a_shard_first_find_it_sound(folder):
    """The loader's own thread, and `batch` in this one."""
    view = tm.pack(folder, WIDTH)
    right = [batch["input_ids"].tolist() for batch in tm.load(view, 2, epochs=1)]
    for _ in range(150):
        loader = tm.load(view, 2, epochs=1, prefetch=2, verify="first-touch")
        batches = iter(loader)
        assert next(batches)["input_ids"].tolist() == right[0]
        assert loader.batch(17)["input_ids"].tolist() == right[17]
        batches.close()


def test_a_loop_over_workers_that_was_left_is_followed_by_the_next_epoch(folder):
    """Workers have made more than was taken; nothing of it may come out of order in the next loop."""
    from torch.utils.data import DataLoader

    loader = tm.load(tm.pack(folder, WIDTH), 4)
    batches = DataLoader(loader.dataset(), batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=3)
    for epoch in range(2):
        found = [batch["input_ids"].tolist() for batch, _ in zip(batches, range(6), strict=False)]
        first = epoch * len(loader)
        assert found == [loader.batch(step)["input_ids"].tolist() for step in range(first, first + 6)]


def test_datasets_and_batches_notice_another_rank_too(folder, monkeypatch):
    loader = tm.load(tm.pack(folder, WIDTH), 4)
    dataset = loader.dataset()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for use in (loader.dataset, lambda: next(iter(dataset)), lambda: loader.batch(0), lambda: next(iter(loader))):
        with pytest.raises(UsageError, match="rank 0 of 1, but this process is rank 1 of 2"):
            use()


def test_batches_of_long_rows_are_made_one_by_one(tmp_path):
    """A batch that is kept does not keep a gigabyte of others."""
    view = tm.pack(write_store(tmp_path / "long", spread(numbered([10] * 5))), 1 << 17, strategy="pad")
    batch = next(iter(tm.load(view, 1, prefetch=0)))
    assert batch["input_ids"].untyped_storage().nbytes() <= 4 * 8 << 17  # its own four fields at most
    short = next(iter(tm.load(tm.pack(view.store, 4), 1, prefetch=0)))
    assert short["input_ids"].shape == (1, 4)


@pytest.mark.parametrize(
    "options",
    [{"text_field": "body"}, {"epochs": 0}, {"verify": "always"}, {"dtype": "int8"}, {"seed": -1}, {"prefetch": "x"}],
    ids=str,
)
def test_options_are_checked_before_anything_is_tokenized(texts, tokenizer_path, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        tm.load(texts, 2, seq_len=8, tokenizer=tokenizer_path, **options)
    assert not list((texts.parent / "cache").rglob("manifest.json"))


def test_an_input_that_failed_is_said(texts, tokenizer_path):
    whole = gzip.compress((texts / "1.jsonl").read_bytes())
    (texts / "2.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.warns(UserWarning, match=r"1 input file failed and is not in .*2\.jsonl\.gz"):
        loader = tm.load(texts, 2, seq_len=8, tokenizer=tokenizer_path)
    assert len(loader.data.store) == 80


def test_a_run_keeps_its_tokens_when_its_text_changes(texts, tokenizer_path):
    def loaded():
        return tm.load(texts, 2, seq_len=8, tokenizer=tokenizer_path)

    old = loaded()
    right = old.batch(5)["input_ids"].tolist()
    (texts / "0.jsonl").write_text(json.dumps({"text": "something else, and shorter"}) + "\n", "utf-8")
    new = loaded()
    assert new.fingerprint != old.fingerprint
    assert len(new.data.store) == 41
    assert old.batch(5)["input_ids"].tolist() == right
    assert old.batch(9)["input_ids"].shape == (2, 8)


def test_a_store_by_a_relative_path_is_found_from_another_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loader = tm.load("store", 2, seq_len=WIDTH)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loader.batch(0)["input_ids"].shape == (2, WIDTH)
