"""Mixtures: each source has had its share at every sample, and each goes through its own rows once an epoch.

What is guaranteed: with weights whose proportions are whole numbers that sum to 2**16 at most, each source is within one row of
its share at every sample of a stage. Others are rounded to such numbers first: each share by less than 1 / 2**16.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import chain, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_reference import numbered, spread, write_store
from test_load import EXTRA, FIELDS, all_ranks, hashed, whole

import tokenmill as tm
from tokenmill.errors import MismatchError, UsageError

ROWS = {"web": 30, "code": 7, "books": 12}
FIRST = {"web": 1, "code": 1001, "books": 2001}  # the first id of each: ids tell sources apart
MOST = 1 << 16


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    return {
        name: tm.pack(write_store(folder / name, spread(numbered([3] * rows, FIRST[name]), [4])), 3)
        for name, rows in ROWS.items()
    }


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Documents of all lengths, padded rows, every field."""
    folder = tmp_path_factory.mktemp("packed")
    found = {}
    for at, (name, strategy) in enumerate([("web", "best_fit"), ("code", "pad"), ("books", "concat")]):
        lengths = np.random.default_rng(at).integers(0, 25, 40).tolist()
        store = write_store(folder / name, spread(numbered(lengths, FIRST[name]), [9]))
        found[name] = tm.pack(store, 16, strategy=strategy, fields=FIELDS + EXTRA, mask_labels=("padding", "first"))
    return found


def which(batch):
    """(source, row) of each row of a batch of `views`."""
    found = []
    for first, *_ in np.asarray(batch["input_ids"]).tolist():
        name = max((name for name in FIRST if FIRST[name] <= first), key=FIRST.__getitem__)
        found.append((name, (first - FIRST[name]) // 3))
    return found


def drawn(mixture, count, size=5, **options):
    """The first samples of a run, at least so many."""
    loader = tm.load(mixture, size, epochs="endless", **options)
    return list(chain.from_iterable(which(batch) for batch in islice(loader, -(-count // size))))


def mixed(views, *weights):
    return tm.mix({f"s{i}": (views["web"], weight) for i, weight in enumerate(weights)})


def furthest(mixture, shares, upto, start=0):
    """How far any source is from its share, in rows, at any sample from `start` on."""
    before = mixture.counts(start).values()
    return max(
        abs(count - base - (n - start) * share)
        for n in range(start, upto + 1)
        for count, base, share in zip(mixture.counts(n).values(), before, shares, strict=True)
    )


# --- shares ---------------------------------------------------------------------------------------------------------------

WHOLE = st.lists(st.integers(0, 40), min_size=1, max_size=8)
DECIMAL = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(weights=(WHOLE | DECIMAL).filter(any))
def test_every_source_is_within_a_row_of_its_share_at_every_sample(views, weights):
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    mixture = mixed(views, *weights)
    assert furthest(mixture, shares, 300) < 1
    period = sum(exact) * 1000
    assert [Fraction(n) for n in mixture.counts(int(period) * 7).values()] == [share * period * 7 for share in shares]
    assert all(sum(mixture.counts(n).values()) == n for n in (0, 1, 17, 10**6, 10**12 + 1))


@pytest.mark.parametrize(
    "weights",
    [
        (0.333, 0.667),
        (1, 1, 1),
        (0.7, 0.3),
        (1, 999),
        (999, 1),
        (0.1,) * 10,
        (1,) * 64,
        (1, 2, 4, 8, 16, 32, 64, 128),
        (5,),
    ],
    ids=str,
)
def test_shares_of_weights_people_write(views, weights):
    exact = [Fraction(str(weight)) for weight in weights]
    assert furthest(mixed(views, *weights), [weight / sum(exact) for weight in exact], 2100) < 1


@pytest.mark.parametrize(
    "weights",
    [
        (0.123456789, 0.876543211),
        (3.14159265, 2.71828183, 1.41421356),
        (1, 1e-9),
        (1e-9, 1, 1e-12),
        (65536, 1),
        (1e300, 1.0),
    ],
    ids=str,
)
def test_long_decimals_are_rounded_to_a_part_in_65536(views, weights):
    """Then a share is off by less than 1 / 2**16, and at every sample a source is within a row of the share so rounded."""
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    mixture = mixed(views, *weights)
    rounded = [Fraction(count, MOST) for count in mixture.counts(MOST).values()]
    assert sum(rounded) == 1
    assert all(abs(found - share) < Fraction(1, MOST) for found, share in zip(rounded, shares, strict=True))
    assert list(mixture.counts(7 * MOST).values()) == [7 * MOST * share for share in rounded]
    for start in (0, MOST // 2, MOST - 200):
        sampled = [list(mixture.counts(n).values()) for n in range(start, start + 300)]
        off = [abs(c - n * s) for n, row in enumerate(sampled, start) for c, s in zip(row, rounded, strict=True)]
        assert max(off) < 1


def test_many_tiny_sources_take_no_more_than_their_share_rounded(views):
    weights = [1.0] + [1e-7] * 12
    rounded = list(mixed(views, *weights).counts(MOST).values())
    assert sum(rounded) == MOST
    assert all(abs(count - MOST * w / sum(weights)) < 1 for count, w in zip(rounded, weights, strict=True))


def test_a_weight_of_zero_is_never_drawn(views, tmp_path):
    empty = tm.pack(write_store(tmp_path / "empty", spread([[]])), 3)
    mixture = tm.mix({"web": (views["web"], 1), "code": (views["code"], 0), "empty": (empty, 0.0)})
    assert {name for name, _ in drawn(mixture, 100)} == {"web"}
    assert mixture.counts(100) == {"web": 100, "code": 0, "empty": 0}
    assert tm.load(mixture, 4).progress()["epochs"] == {"web": 0.0, "code": 0.0, "empty": 0.0}


@settings(max_examples=15, deadline=None)
@given(weights=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), size=st.integers(1, 9))
def test_counts_are_those_of_the_rows_that_come(views, weights, size):
    mixture = tm.mix({name: (view, weight) for (name, view), weight in zip(views.items(), weights, strict=True)})
    rows = drawn(mixture, 120, size)
    for n in (0, 1, 2, 3, 10, 59, 60, 120):
        counted = Counter(name for name, _ in rows[:n])
        assert mixture.counts(n) == {name: counted[name] for name in ROWS}
    loader = tm.load(mixture, size, epochs="endless")
    for _ in islice(loader, 7):
        pass
    counts = mixture.counts(7 * size)
    assert loader.progress()["epochs"] == {name: counts[name] / ROWS[name] for name in ROWS}


# --- stages ---------------------------------------------------------------------------------------------------------------


def staged(views, *stages):
    return tm.mix({"web": views["web"], "code": views["code"]}, stages=[(n, dict(w)) for n, w in stages])


HALVES, MOSTLY, ONLY = {"web": 1, "code": 1}, {"web": 0.9, "code": 0.1}, {"code": 1}


def test_weights_change_after_so_many_rows_and_sources_go_on_where_they_were(views):
    mixture = staged(views, (33, MOSTLY), (20, HALVES), (None, ONLY))
    borders = [(0, 33, (Fraction(9, 10), Fraction(1, 10))), (33, 53, (Fraction(1, 2),) * 2), (53, 90, (0, 1))]
    for start, stop, shares in borders:
        assert furthest(mixture, shares, stop, start) < 1
    rows = drawn(mixture, 90)
    for n in range(91):
        assert mixture.counts(n) == {name: sum(1 for each, _ in rows[:n] if each == name) for name in ("web", "code")}
    for name in ("web", "code"):
        alone = [row for each, row in rows if each == name]
        epochs = [alone[at : at + ROWS[name]] for at in range(0, len(alone), ROWS[name])]
        assert all(sorted(epoch) == list(range(ROWS[name])) for epoch in epochs if len(epoch) == ROWS[name])
        assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
        assert len(epochs) > 1


def test_the_last_stage_has_no_end(views):
    assert staged(views, (10, MOSTLY), (5, HALVES)).counts(10**6) == staged(views, (10, MOSTLY), (None, HALVES)).counts(
        10**6
    )
    one = staged(views, (None, MOSTLY))
    assert one.counts(1000) == {"web": 900, "code": 100}


# --- rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_source_goes_through_its_rows_once_an_epoch_of_its_own(views, shuffle):
    mixture = tm.mix({name: (view, weight) for (name, view), weight in zip(views.items(), (3, 2, 1), strict=True)})
    rows = drawn(mixture, 400, shuffle=shuffle, seed=4)
    for name, count in ROWS.items():
        alone = [row for each, row in rows if each == name]
        epochs = [alone[at : at + count] for at in range(0, len(alone) - count + 1, count)]
        assert len(epochs) >= 5
        assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == (len(epochs) if shuffle else 1)
    assert shuffle is (drawn(mixture, 60, seed=5, shuffle=shuffle) != rows[:60])


def test_sources_of_the_same_rows_have_orders_of_their_own(views):
    mixture = tm.mix({"a": (views["web"], 1), "b": (views["web"], 1)})
    rows = [row for _, row in drawn(mixture, 60)]
    assert sorted(rows) == sorted([*range(30), *range(30)])
    assert rows[0::2] != rows[1::2]


def test_global_batches_are_the_same_on_any_number_of_ranks(packed):
    mixture = tm.mix(
        {name: (view, weight) for (name, view), weight in zip(packed.items(), (0.5, 0.3, 0.2), strict=True)}
    )
    right = [hashed(whole([batch])) for batch in islice(tm.load(mixture, 12, seed=2, prefetch=0, epochs="endless"), 9)]
    assert len(set(right)) == 9
    for world in (1, 2, 3, 4, 6, 12):
        loaders = all_ranks(mixture, world, global_batch_size=12, seed=2, prefetch=world % 3, epochs="endless")
        assert [hashed(whole(parts)) for parts in islice(zip(*loaders, strict=True), 9)] == right
        assert [hashed(whole([loader.batch(step) for loader in loaders])) for step in range(9)] == right


def test_mixed_batches_are_frozen(packed):
    """Should this fail, runs that were begun before cannot be gone on with."""
    weights = {"web": 0.333, "code": 0.5, "books": 0.167}
    loader = tm.load(
        tm.mix({name: (view, weights[name]) for name, view in packed.items()}), 8, seed=99, epochs="endless"
    )
    found = [hashed(whole([loader.batch(step)]))[:16] for step in (0, 1, 10**6)]
    assert found == ["931628197809acb1", "6a7f1c8698d2a1c7", "b3b8deb7bf6a262c"]


def test_borders_masks_and_positions_of_mixed_batches_are_those_of_their_documents(packed):
    mixture = tm.mix({name: (view, 1) for name, view in packed.items()})
    for step in range(6):
        batch = {name: np.asarray(value) for name, value in tm.load(mixture, 8, seed=1).batch(step).items()}
        documents = batch["document_ids"]
        count, width = documents.shape
        begins = [
            row * width + at
            for row in range(count)
            for at in range(width)
            if at == 0 or documents[row, at] != documents[row, at - 1]
        ]
        borders = [*begins, count * width]
        assert batch["cu_seqlens"].tolist() == borders
        assert batch["max_seqlen"] == max(b - a for a, b in pairwise(borders))
        assert np.array_equal(batch["attention_mask"], documents >= 0)
        same = (documents[:, :, None] == documents[:, None, :]) & (documents >= 0)[:, :, None]
        assert np.array_equal(batch["document_mask"], same & np.tri(width, dtype=bool))
        assert np.array_equal(batch["attention_mask_4d"][:, 0], batch["document_mask"])
        positions = np.arange(count * width) - np.repeat(begins, np.diff(borders))
        assert np.array_equal(batch["position_ids"], np.where(documents >= 0, positions.reshape(documents.shape), 0))


def test_each_row_of_a_mixed_batch_is_a_row_of_its_view(packed):
    known = {}
    for view in packed.values():
        rows = view[:]
        for i in range(len(view)):
            known[tuple(rows["input_ids"][i].tolist())] = {
                name: rows[name][i].tolist() for name in rows if "seqlen" not in name
            }
    mixture = tm.mix({name: (view, 1) for name, view in packed.items()})
    for batch in islice(tm.load(mixture, 10, epochs="endless"), 8):
        for i, ids in enumerate(batch["input_ids"].tolist()):
            assert known[tuple(ids)] == {name: batch[name][i].tolist() for name in batch if "seqlen" not in name}


def test_a_rank_without_a_row_of_the_last_batch_gets_its_fields(views):
    mixture = tm.mix({"web": (views["web"], 1), "code": (views["code"], 1)})  # 37 rows: 9 batches of 4 and a row
    loaders = all_ranks(mixture, 4, global_batch_size=4, epochs=1, drop_last=False)
    assert [list(loader)[-1]["input_ids"].shape for loader in loaders] == [(0, 3), (0, 3), (0, 3), (1, 3)]


# --- going on -------------------------------------------------------------------------------------------------------------


def test_a_run_of_a_mixture_goes_on_at_the_next_sample(views):
    mixture = staged(views, (37, MOSTLY), (None, HALVES))
    right, found, state = drawn(mixture, 120, seed=3), [], None
    for world, size, steps in ((1, 6, 3), (3, 6, 2), (2, 12, 3), (1, 3, 7), (2, 6, 1)):
        loaders = all_ranks(mixture, world, global_batch_size=size, seed=3, epochs="endless")
        for loader in loaders:
            if state:
                loader.load_state_dict(json.loads(json.dumps(state)))
        for parts in islice(zip(*loaders, strict=True), steps):
            found += chain.from_iterable(map(which, parts))
        state = loaders[-1].state_dict()
    assert found == right[: len(found)]
    assert len(found) > 80


def test_an_epoch_of_a_mixture_is_as_many_samples_as_there_are_rows(views):
    mixture = tm.mix({"web": (views["web"], 1), "code": (views["code"], 1)})
    assert len(mixture) == 37
    assert [len(batch["input_ids"]) for batch in tm.load(mixture, 10, epochs=1, drop_last=False)] == [10, 10, 10, 7]


def test_the_fingerprint_is_of_all_that_decides_and_other_states_are_refused(views):
    web, code = views["web"], views["code"]
    others = [
        tm.mix({"web": (web, 0.7), "code": (code, 0.3)}),
        tm.mix({"web": (web, 0.6), "code": (code, 0.4)}),
        tm.mix({"code": (code, 0.3), "web": (web, 0.7)}),
        tm.mix({"web": (code, 0.7), "code": (web, 0.3)}),
        tm.mix({"web": (web, 0.7), "prose": (code, 0.3)}),
        tm.mix({"web": (web, 0.7), "code": (code, 0.3), "books": (views["books"], 0)}),
        staged(views, (10, MOSTLY), (None, HALVES)),
        staged(views, (11, MOSTLY), (None, HALVES)),
        staged(views, (10, HALVES), (None, MOSTLY)),
        staged(views, (10, MOSTLY), (10, HALVES), (None, HALVES)),
        web,
    ]
    assert len({each.fingerprint for each in others}) == len(others)
    state = tm.load(others[0], 4).state_dict()
    for each in others[1:]:
        with pytest.raises(MismatchError, match=r"mixture|tokens"):
            tm.load(each, 4).load_state_dict(state)
    again = tm.mix({"web": (web, 0.7), "code": (code, 0.3)})
    tm.load(again, 4).load_state_dict(state)
    assert len(json.dumps(state)) < 1024


# --- refused --------------------------------------------------------------------------------------------------------------


def test_views_that_are_not_alike_are_refused(views, tmp_path):
    web, store = views["web"], views["code"].store
    for options, match in (
        ({"seq_len": 4}, "seq_len"),
        ({"fields": "input_ids"}, "fields"),
        ({"labels": "shifted"}, "fields"),
        ({"dtype": "int32"}, "fields"),
        ({"fields": ("input_ids", "attention_mask")}, "fields"),
        ({"strategy": "pad", "buckets": (1, 2)}, "buckets"),
    ):
        other = tm.pack(store, **{"seq_len": 3, **options})
        with pytest.raises(UsageError, match=f"other.*{match}"):
            tm.mix({"web": (web, 1), "other": (other, 1)})
    foreign = tm.pack(write_store(tmp_path / "foreign", spread(numbered([3] * 4))), 3)
    foreign.store._manifest.tokenizer["fingerprint"] = "0" * 32
    with pytest.raises(UsageError, match="other and web differ in tokenizer"):
        tm.mix({"web": (web, 1), "other": (foreign, 1)})


def test_weights_and_stages_that_make_no_sense_are_refused(views, tmp_path):
    web, code = views["web"], views["code"]
    empty = tm.pack(write_store(tmp_path / "empty", spread([[]])), 3)
    both = {"web": web, "code": code}
    for sources in ({}, [], None, [web], web, {"web": 1}, {"web": ("path", 1)}, {"web": (web,)}, {"web": (web, 1, 1)}):
        with pytest.raises(UsageError, match="source"):
            tm.mix(sources)
    for weight in (-1, -0.1, float("nan"), float("inf"), "1", True, [1], 1j):
        with pytest.raises(UsageError, match=r"code.*weight"):
            tm.mix({"web": (web, 1), "code": (code, weight)})
    for sources, stages, match in (
        (both, None, "web.*weights"),
        ({"web": (web, 1), "code": code}, None, "code.*weights"),
        ({"web": (web, 1)}, [(None, {"web": 1})], "web.*weights"),
        ({"web": (web, 0), "code": (code, 0)}, None, "all weights are 0"),
        ({"web": (web, 1), "empty": (empty, 1)}, None, "empty has a weight but no rows"),
        (both, [], "stages is empty"),
        (both, [None], r"stages\[0\]"),
        (both, [5], r"stages\[0\]"),
        (both, [(None, HALVES), (None, HALVES)], r"stages\[0\].*rows"),
        (both, [(0, HALVES), (None, HALVES)], r"stages\[0\].*rows"),
        (both, [(-3, HALVES), (None, HALVES)], r"stages\[0\].*rows"),
        (both, [(1.5, HALVES), (None, HALVES)], r"stages\[0\].*rows"),
        (both, [(True, HALVES), (None, HALVES)], r"stages\[0\].*rows"),
        (both, [(5, HALVES), (0, HALVES)], r"stages\[1\].*rows"),
        (both, [(5, HALVES), (None, {"prose": 1})], r"stages\[1\].*'prose'.*'web'"),
        (both, [(5, HALVES), (None, {"web": -1})], r"stages\[1\].*web=-1"),
        (both, [(5, HALVES), (None, {"web": 0})], r"stages\[1\].*all weights are 0"),
        (both, [(5, HALVES), (None, {})], r"stages\[1\].*all weights are 0"),
        (both, [(5, HALVES), (None, [0.5, 0.5])], r"stages\[1\].*weight"),
        (both, [(5, 0.5)], r"stages\[0\].*weight"),
        ({"web": web, "empty": empty}, [(None, {"web": 1, "empty": 1})], "empty has a weight but no rows"),
    ):
        with pytest.raises(UsageError, match=match):
            tm.mix(sources, stages=stages)


@pytest.mark.parametrize("stages", [5, 0.5], ids=str)
def test_stages_that_are_no_list_are_refused(views, stages):
    with pytest.raises(UsageError, match="stages"):
        tm.mix({"web": views["web"]}, stages=stages)


def test_a_mixture_has_its_packing_already(views):
    mixture = tm.mix({"web": (views["web"], 1)})
    for options in ({"seq_len": 3}, {"tokenizer": "gpt2"}, {"strategy": "pad"}):
        with pytest.raises(UsageError, match=f"{next(iter(options))}: the mixture has its own"):
            tm.load(mixture, 2, **options)
    with pytest.raises(UsageError, match=r"38 rows.*37 rows"):
        tm.load(tm.mix({"web": (views["web"], 1), "code": (views["code"], 1)}), 38)
