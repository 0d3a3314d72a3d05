"""Batches are the same in every version: digests of batches, recorded before rows of several batches were found together.

A digest may only change with a change that says so: runs that are resumed with another version depend on them.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import xxhash
from packing_reference import numbered, spread, write_store

import tokenmill as tm

pytestmark = pytest.mark.usefixtures("alone")

FIELDS = ("input_ids", "labels", "position_ids", "document_ids", "attention_mask", "cu_seqlens", "document_mask")
PLAIN = FIELDS[:4]
SHIFTED = {"labels": "shifted", "mask_labels": ("padding", "first")}
PACKINGS = {
    "concat": {"seq_len": 16},
    "concat of uneven rows": {"seq_len": 7, "fields": PLAIN, "dtype": "int32"},
    "concat, shifted": {"seq_len": 16, **SHIFTED},
    "concat, overlap": {"seq_len": 12, "overlap": 5, "labels": "shifted", "mask_labels": ("padding", "overlap")},
    "concat from documents": {"seq_len": 16, "row_start": "document", **SHIFTED},
    "concat, documents left out": {"seq_len": 16, "min_doc_tokens": 6, **SHIFTED},
    "concat of long rows": {"seq_len": 40_000, "fields": PLAIN},
    "best_fit": {"seq_len": 32, "strategy": "best_fit"},
    "best_fit, left": {"seq_len": 32, "strategy": "best_fit", "padding_side": "left", **SHIFTED},
    "pad": {"seq_len": 24, "strategy": "pad", "mask_labels": ("padding", "first")},
    "pad, left": {"seq_len": 24, "strategy": "pad", "padding_side": "left", "fields": PLAIN},
    "pad, buckets": {"seq_len": 24, "strategy": "pad", "buckets": (4, 10), **SHIFTED},
    "windows": {"seq_len": 16, "strategy": "windows", "stride": 10, "labels": "shifted", "mask_labels": ("overlap",)},
}
RECORDED = {
    "concat": "9b0fef62215ad08d",
    "concat of uneven rows": "7fc8760944ed67b4",
    "concat, shifted": "b3cc47ad9d47f56a",
    "concat, overlap": "2439f06bf2828ccc",
    "concat from documents": "68caacb77a4898d7",
    "concat, documents left out": "dc4221197bea5ffa",
    "concat of long rows": "9a99afe33addc6ba",
    "best_fit": "4c942b1bb5407fa2",
    "best_fit, left": "54ad169fa26b703a",
    "pad": "fc41c1515bb9ae55",
    "pad, left": "3f2f9a978a2f0fed",
    "pad, buckets": "7737caa823b34fea",
    "windows": "30c5979858583e43",
    "train": "e406301bb3725206",
    "eval": "c481a188bc948f34",
    "mixture": "b7f8bd7b0143726e",
    "seed": "4ee69e574da3b542",
    "in order": "bc4d8ff3b5a6521e",
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores of documents of 0 to 40 tokens in several shards, and one of long documents."""
    folder = tmp_path_factory.mktemp("same")
    lengths = {"a": (0, 41, 150), "b": (0, 41, 60), "long": (1, 30_000, 12)}
    found = {}
    for seed, (name, (low, high, count)) in enumerate(lengths.items()):
        drawn = np.random.default_rng(seed).integers(low, high, count).tolist()
        documents = [[token % 60_000 for token in document] for document in numbered(drawn, 1)]
        found[name] = tm.open(write_store(folder / name, spread(documents, [3, 4, count // 2])))
    return found


def digest_of(data, **options) -> str:
    """Batches of one and of three ranks, across the end of an epoch, made in turn and ahead; and after a resume."""
    found = xxhash.xxh3_64()
    for world, prefetch in ((1, 0), (1, 2), (3, 0)):
        for rank in range(world):
            given = {
                "global_batch_size": 6,
                "rank": rank,
                "world_size": world,
                "prefetch": prefetch,
                "epochs": "endless",
            } | options
            loader = tm.load(data, **given)
            add(found, islice(loader, 40))
            resumed = tm.load(data, **given)
            resumed.load_state_dict({**loader.state_dict(), "samples": 18})
            add(found, islice(resumed, 3))
    return found.hexdigest()


def add(found, batches) -> None:
    for batch in batches:
        for name, value in batch.items():
            array = np.asarray(value)
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array))


@pytest.mark.parametrize("name", PACKINGS)
def test_packings(stores, name):
    options = {"fields": FIELDS, **PACKINGS[name]}
    store = stores["long" if options["seq_len"] > 100 else "a"]
    size = {"global_batch_size": 3} if options["seq_len"] > 100 else {}
    assert digest_of(tm.pack(store, **options), **size) == RECORDED[name]


def test_splits(stores):
    views = tm.pack(stores["a"], 16, fields=FIELDS, **SHIFTED).split(train=0.7, eval=0.3)
    assert [digest_of(view) for view in views.values()] == [RECORDED["train"], RECORDED["eval"]]


def test_mixtures(stores):
    views = {name: tm.pack(stores[name], 16, strategy="best_fit", fields=FIELDS) for name in ("a", "b")}
    mixture = tm.mix(views, stages=[(20, {"a": 0.75, "b": 0.25}), (None, {"b": 1})])
    assert digest_of(mixture) == RECORDED["mixture"]


def test_options_of_a_run(stores):
    view = tm.pack(stores["a"], 16)
    assert digest_of(view, seed=7, dtype="int32") == RECORDED["seed"]
    assert digest_of(view, shuffle=False, epochs=1, drop_last=False) == RECORDED["in order"]
    assert digest_of(view, verify="first-touch") == digest_of(view)
