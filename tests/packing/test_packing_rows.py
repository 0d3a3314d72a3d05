"""Rows as the contract has them: every strategy and option against the slow reference, and the edges by name."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from contextlib import contextmanager
from itertools import combinations, product
from math import ceil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from packing_reference import (
    COUNTS,
    Options,
    arrays_of,
    best_fit_rows,
    cells_of,
    existing,
    numbered,
    rows_of,
    spread,
    stats_of,
    stream_of,
    width_of,
    write_store,
)

import tokenmill as tm

FIELDS = ("input_ids", "labels", "position_ids", "document_ids")
EXTRA = ("attention_mask", "document_mask", "attention_mask_4d", "cu_seqlens")
STRATEGIES = ("concat", "best_fit", "pad", "windows")
EOS = 3


@contextmanager
def store_of(documents, cuts=(), dtype="uint16", eos=EOS):
    """A store for a moment. Nothing waits for the disk meanwhile: power cuts are not under test, and stores are many."""
    with tempfile.TemporaryDirectory() as name, mock.patch.object(os, "fsync"):
        yield tm.open(write_store(Path(name), spread(documents, cuts), dtype, eos=eos))


def pieces_told(view, numbers=None):
    """The pieces of every row; `numbers` are the documents of the view, where it does not have all of the store's."""
    local = {number: i for i, number in enumerate(numbers)} if numbers is not None else None
    return [
        [(local[number] if local is not None else number, start, stop) for number, start, stop in view.documents(i)]
        for i in range(len(view))
    ]


def same(got, want, dtype):
    """Equal in value, shape and dtype."""
    got = np.asarray(got)
    want = np.asarray(want, dtype).reshape(got.shape if got.size == 0 else np.shape(want))
    np.testing.assert_array_equal(got, want, strict=True)


def check_arrays(got, want, fields=(*FIELDS, *EXTRA), dtype="int64", row=False):
    """A dict of arrays has exactly the keys asked for, with the values of the reference; `row`: without the first axis."""
    names = {*fields} | ({"max_seqlen"} if "cu_seqlens" in fields else set())
    assert set(got) == names
    for name in names - {"cu_seqlens", "max_seqlen"}:
        same(got[name], want[name][0] if row else want[name], dtype if name in FIELDS else "int8")
    if "cu_seqlens" in fields:
        same(got["cu_seqlens"], want["cu_seqlens"], "int32")
        assert int(got["max_seqlen"]) == want["max_seqlen"]


def check_best_fit(documents, o, rows):
    """best_fit has no single answer; these are the rules every answer keeps."""
    length = o.seq_len
    kept = {number: n for number, n in existing(documents, o) if n}
    assert all(0 < len(cells_of(row)) <= length for row in rows)
    parts: dict[int, list] = {number: [] for number in kept}
    for number, start, stop in sorted(piece for row in rows for piece in row):
        assert start == (parts[number][-1][1] if parts[number] else 0), "each token once, and none left out"
        parts[number].append((start, stop))
    assert {number: found[-1][1] for number, found in parts.items()} == kept
    for number, n in kept.items():
        full = n // length
        assert parts[number][:full] == [(i * length, i * length + length) for i in range(full)]
        assert n > length or len(parts[number]) == 1, "what fits into a row is not split"
    assert all(row == sorted(row) for row in rows), "the pieces of a row are in corpus order"
    assert [row[0] for row in rows] == sorted(row[0] for row in rows), "rows are in the order of their first token"
    plain, tokens = best_fit_rows(documents, o), sum(kept.values())
    enough = max(ceil(tokens / length), tokens * 1000 // (length * 999))  # as few as it takes for a fill of 99.9%
    if max(kept.values(), default=0) <= length or plain <= enough:
        assert len(rows) == plain
    else:
        assert enough <= len(rows) <= plain
        loose = [row for row in rows if len(cells_of(row)) < length and all(kept[piece[0]] > length for piece in row)]
        assert len(rows) == enough or not loose, "rows of parts alone are given up until the others are full"


def check_view(view, documents, o, wanted=(), eos=EOS, numbers=None, **made):
    """Everything a view tells against the reference: pieces, rows one by one, rows at once, figures, the balance."""
    rows = pieces_told(view, numbers)
    if o.strategy == "best_fit":
        check_best_fit(documents, o, rows)
    else:
        assert rows == rows_of(documents, o)
    assert len(view) == len(rows)
    masks = bool({"document_mask", "attention_mask_4d"} & set(made.get("fields", EXTRA)))
    for i in {*range(min(5, len(rows))), *range(max(0, len(rows) - 3), len(rows))}:
        check_arrays(view[i], arrays_of(documents, o, rows, [i], eos, masks), row=True, **made)
    for some in (range(len(rows)), [i % len(rows) for i in wanted] if rows else []):
        check_arrays(view.rows(some), arrays_of(documents, o, rows, some, eos, masks), **made)
    want = stats_of(documents, o, rows)
    got = {name: getattr(view.stats, name) for name in COUNTS}
    got["lengths"] = [tuple(entry) for entry in got["lengths"]]
    assert got == want
    assert want["positions"] - want["padding"] == sum(
        (want["tokens"], -want["truncated"], -want["dropped"], want["repeated"])
    )
    check_tokens(view, documents, o, rows)
    return rows


def check_tokens(view, documents, o, rows):
    """Tokens out are tokens in, less what is truncated or dropped, plus what is repeated: as multisets of ids."""
    given_ = Counter(i for document in documents for i in document)
    cells = [cell for row in rows for cell in cells_of(row)]
    missing = given_ - Counter(documents[number][offset] for number, offset in set(cells))
    again = Counter(documents[number][offset] for number, offset in cells) - Counter(
        documents[number][offset] for number, offset in set(cells)
    )
    assert missing.total() == view.stats.truncated + view.stats.dropped
    assert again.total() == view.stats.repeated
    seen: Counter[int] = Counter()
    for i in range(len(view)):
        row = view[i]
        if "input_ids" in row:
            start = len(row["input_ids"]) - len(cells_of(rows[i])) if o.padding_side == "left" else 0
            seen.update(row["input_ids"][start : start + len(cells_of(rows[i]))].tolist())
    if "input_ids" in (view[0] if len(view) else {}):
        assert seen == given_ - missing + again


# Any documents, any options.


@st.composite
def corpora(draw, lengths=(1, 2, 3, 4, 5, 8, 13, 200)):
    """A row length, documents around it, and where shards end."""
    length = draw(st.sampled_from(lengths))
    half = length // 2 + 1  # two of them do not fit into a row
    edges = [0, 1, 2, half, half, length - 1, length, length + 1, length + half, 2 * length, 3 * length + 1, 7 * length]
    size = st.one_of(st.sampled_from(edges if length < 50 else [0, 1, 2, 60]), st.integers(0, min(4 * length, 40)))
    documents = numbered(draw(st.lists(size, min_size=draw(st.sampled_from([0, 4])), max_size=12)))
    return length, documents, draw(st.lists(st.integers(0, 12), max_size=3))


@st.composite
def options(draw, length, strategy=None):
    """Any options that go together."""
    strategy = strategy or draw(st.sampled_from(STRATEGIES))
    chosen = {"seq_len": length, "strategy": strategy}
    long_docs = chosen["long_docs"] = draw(st.sampled_from(["split", "split", "truncate", "drop"]))
    if strategy == "concat" or long_docs != "split":
        chosen["row_start"] = draw(st.sampled_from(["anywhere", "document"]))
    if strategy in ("concat", "windows") and chosen.get("row_start", "anywhere") == "anywhere":
        how = draw(st.sampled_from(["", "stride", "overlap"]))
        if how:
            chosen[how] = draw(st.integers(1, length) if how == "stride" else st.integers(0, length - 1))
    if strategy == "concat":
        chosen["tail"] = draw(st.sampled_from(["keep", "drop"]))
    if strategy == "pad":
        widths = draw(st.sets(st.integers(1, length - 1), max_size=3)) if length > 1 else set()
        chosen["buckets"] = tuple(sorted(widths)) or None
    chosen["mask_labels"] = tuple(draw(st.lists(st.sampled_from(["padding", "first", "overlap"]), unique=True)))
    chosen["min_doc_tokens"] = draw(st.sampled_from([0, 0, 1, 2, length, length + 1]))
    chosen["padding_side"] = draw(st.sampled_from(["right", "left"]))
    chosen["pad_id"] = draw(st.sampled_from([None, 0, 7, 65535]))
    chosen["labels"] = draw(st.sampled_from(["same", "shifted"]))
    return Options(**chosen)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_rows_and_figures_are_those_of_the_contract(strategy, data):
    length, documents, cuts = data.draw(corpora())
    o = data.draw(options(length, strategy))
    wanted = data.draw(st.lists(st.integers(0, 1000), max_size=5))
    event(f"{o.row_start}, {o.long_docs}, {o.labels}")
    with store_of(documents, cuts) as store:
        fields = (*FIELDS, *(EXTRA if length < 50 else ("attention_mask", "cu_seqlens")))
        check_view(tm.pack(store, **o.arguments(), fields=fields), documents, o, wanted, fields=fields)


MIXED = numbered([3, 11, 0, 4, 1, 6, 8, 2, 5, 0, 19, 1, 4, 7])


def layouts(strategy):
    """Every way to place MIXED in rows of 4: all combinations of the options that say so."""
    for long_docs, least in product(("split", "truncate", "drop"), (0, 4)):
        shared = {"strategy": strategy, "long_docs": long_docs, "min_doc_tokens": least}
        if strategy == "best_fit":
            yield shared
        elif strategy == "pad":
            yield from ({**shared, "buckets": buckets} for buckets in (None, (1, 3)))
        elif strategy == "windows":
            yield from ({**shared, **step} for step in ({}, {"stride": 1}, {"overlap": 1}))
        else:
            for tail in ("keep", "drop"):
                steps = ({}, {"stride": 1}, {"overlap": 1}, {"row_start": "document"})
                yield from ({**shared, "tail": tail, **step} for step in steps)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_layout_with_every_look(strategy):
    """No sampling: each layout's figures, and its rows in half of the looks, the other half for the next layout."""
    losses = [loss for n in range(4) for loss in combinations(("padding", "first", "overlap"), n)]
    looks = list(product(("right", "left"), losses, ("same", "shifted")))
    with store_of(MIXED, [4, 9]) as store:
        for number, layout in enumerate(layouts(strategy)):
            plain = Options(seq_len=4, **layout)
            rows = check_view(tm.pack(store, **plain.arguments()), MIXED, plain, fields=FIELDS)
            for side, mask_labels, labels in looks[number % 2 :: 2]:
                o = Options(seq_len=4, padding_side=side, mask_labels=mask_labels, labels=labels, pad_id=7, **layout)
                got = tm.pack(store, **o.arguments())[:]
                check_arrays(got, arrays_of(MIXED, o, rows, range(len(rows)), EOS, False), fields=FIELDS)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_fields_and_dtype_choose_what_is_made_and_change_no_value(data):
    length, documents, cuts = data.draw(corpora(lengths=(1, 3, 5)))
    o = data.draw(options(length))
    made = {
        "fields": tuple(data.draw(st.lists(st.sampled_from((*FIELDS, *EXTRA)), unique=True, min_size=1))),
        "dtype": data.draw(st.sampled_from(["int32", "int64"])),
    }
    with store_of(documents, cuts, data.draw(st.sampled_from(["uint16", "uint32"]))) as store:
        view = tm.pack(store, **o.arguments(), **made)
        check_view(view, documents, o, [0, 0, 2], **made)
        assert view.fingerprint == tm.pack(store, **o.arguments()).fingerprint


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_where_shards_end_changes_nothing(data):
    """Rows that cross shards are the rows of a store of one shard, and so are the figures."""
    length, documents, cuts = data.draw(corpora(lengths=(2, 3, 8)))
    o = data.draw(options(length))
    with store_of(documents) as whole, store_of(documents, cuts, "uint32") as parts:
        one, other = tm.pack(whole, **o.arguments()), tm.pack(parts, **o.arguments())
        assert pieces_told(one) == pieces_told(other)
        assert one.stats.as_dict() == other.stats.as_dict()
        for name, values in one[:].items():
            same(other[:][name], values, "int64")


@given(st.integers(0, 40), st.integers(1, 12), st.data())
@settings(max_examples=30, deadline=None)
def test_how_many_rows_concat_and_windows_have_by_the_formula(n, length, data):
    step = data.draw(st.integers(1, length))
    want = {
        "keep": 0 if n == 0 else max(0, ceil((n - length) / step)) + 1,
        "drop": 0 if n < length else (n - length) // step + 1,
    }
    with store_of(numbered([n])) as store:
        for tail, rows in want.items():
            assert len(tm.pack(store, length, stride=step, tail=tail)) == rows
        assert len(tm.pack(store, length, strategy="windows", overlap=length - step)) == want["keep"]


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_each_token_is_learned_once_for_each_way_to_learn_it(data):
    """With "overlap" left out, concat's labels are the stream: shifted, all but its first token, each exactly once."""
    length, documents, cuts = data.draw(corpora(lengths=(1, 2, 5, 8)))
    stride = data.draw(st.integers(1, length))
    with store_of(documents, cuts) as store:
        for strategy in ("concat", "windows"):
            shared = {"strategy": strategy, "stride": stride, "mask_labels": ("padding", "overlap")}
            labels = tm.pack(store, length, **shared, labels="same")[:]["labels"]
            assert labels[labels != -100].tolist() == [i for document in documents for i in document]
            labels = tm.pack(store, length, **shared, labels="shifted")[:]["labels"]
            following = {
                "concat": [i for document in documents for i in document][1:],
                "windows": [i for document in documents for i in document[1:]],
            }
            assert labels[labels != -100].tolist() == following[strategy]


def test_rows_of_buckets_are_as_wide_as_the_widest_asked_for():
    documents = numbered([5, 0, 12, 1, 8, 30, 3, 7])
    o = Options(seq_len=16, strategy="pad", buckets=(2, 5, 8))
    rows = rows_of(documents, o)
    widths = [width_of(row, o) for row in rows]
    with store_of(documents) as store:
        view = tm.pack(store, **o.arguments())
        assert [len(view[i]["input_ids"]) for i in range(len(view))] == widths == sorted(widths)
        counted = [(width, widths.index(width), widths.count(width)) for width in (2, 5, 8, 16)]
        assert [tuple(bucket) for bucket in view.buckets] == counted
        for wanted in ([0, 1], [2, 0], [len(rows) - 1, 0]):
            check_arrays(view.rows(wanted), arrays_of(documents, o, rows, wanted, EOS, False), fields=FIELDS)


# The edges, by name.

CORPORA = {
    "empty store": [],
    "all documents empty": [[], [], []],
    "one token": [[9]],
    "exactly seq_len": numbered([4, 4, 4]),
    "multiples of seq_len": numbered([8, 4, 12]),
    "around seq_len": numbered([3, 5, 1, 0, 4]),
    "much longer": numbered([103]),
}
EVERY = [
    Options(seq_len=4),
    Options(seq_len=4, tail="drop"),
    Options(seq_len=4, row_start="document"),
    Options(seq_len=4, row_start="document", tail="drop"),
    Options(seq_len=4, row_start="document", long_docs="truncate"),
    Options(seq_len=4, overlap=3),
    Options(seq_len=4, strategy="best_fit"),
    Options(seq_len=4, strategy="pad"),
    Options(seq_len=4, strategy="pad", buckets=(1, 2)),
    Options(seq_len=4, strategy="windows", stride=1),
]


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("length", [1, 4, 1000])
def test_edges(corpus, length):
    documents = CORPORA[corpus]
    with store_of(documents) as store:
        for o in EVERY:
            changed = {"seq_len": length}
            if length < 4:
                changed |= {"overlap": 0 if o.overlap else None, "buckets": None}
            for side in ("right", "left"):
                for labels in ("same", "shifted"):
                    o = Options(**{**vars(o), **changed, "padding_side": side, "labels": labels})
                    check_view(tm.pack(store, **o.arguments()), documents, o, [0, 1], fields=FIELDS)


def test_an_empty_store_has_no_rows_and_is_full():
    with store_of([]) as store:
        for strategy in STRATEGIES:
            view = tm.pack(store, 8, strategy=strategy)
            assert (len(view), list(view), view.stats.fill, view.stats.lengths) == (0, [], 1.0, [])
            with pytest.raises(IndexError):
                view[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_documents_dropped(strategy):
    documents = numbered([5, 6, 0, 7])
    with store_of(documents) as store:
        for changed, many in (({"min_doc_tokens": 8}, 4), ({"long_docs": "drop"}, 3)):
            o = Options(seq_len=4, strategy=strategy, **changed)
            view = tm.pack(store, **o.arguments())
            check_view(view, documents, o, fields=FIELDS)
            assert (view.stats.rows, view.stats.dropped, view.stats.documents_dropped) == (0, 18, many)


@pytest.mark.parametrize(("dtype", "top"), [("uint16", 65535), ("uint32", 200000)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ids_at_the_top_of_the_range(dtype, top, strategy):
    """Ids that are negative as int16 come out as they went in, and the highest can be the pad id."""
    documents = [[top, 0, 32767, 32768], [top - 1], [65535] * 3, [top, top]]
    with store_of(documents, [1, 2], dtype) as store:
        for made in ("int32", "int64"):
            o = Options(seq_len=3, strategy=strategy, pad_id=top, mask_labels=(), labels="shifted")
            check_view(tm.pack(store, **o.arguments(), dtype=made), documents, o, [0, 1], fields=FIELDS, dtype=made)


def test_the_pad_id_is_the_stores_eos_or_0():
    for eos, want in ((11, 11), (0, 0), (None, 0)):
        with store_of([[5]], eos=eos) as store:
            assert tm.pack(store, 3)[0]["input_ids"].tolist() == [5, want, want]
            assert tm.pack(store, 3, pad_id=2)[0]["input_ids"].tolist() == [5, 2, 2]


@pytest.mark.parametrize("length", [64, 257, 1000])
def test_best_fit_keeps_its_rules_on_thousands_of_documents(length):
    lengths = np.random.default_rng(5).lognormal(3.2, 1.1, 3000).astype(int) % 700
    documents = numbered(lengths.tolist(), first=0)
    with store_of(documents, [1000, 1001], "uint32") as store:
        o = Options(seq_len=length, strategy="best_fit")
        view = tm.pack(store, **o.arguments())
        check_best_fit(documents, o, pieces_told(view))


@pytest.mark.parametrize(
    ("other", "lengths"),
    [
        ("worst fit", [4, 13, 4, 5, 12]),
        ("first fit", [9, 2, 15, 7, 3, 4]),
        ("best fit in corpus order", [6, 6, 14, 14]),
    ],
)
def test_best_fit_decreasing_takes_two_rows_where_others_take_three(other, lengths):
    documents = numbered(lengths)
    with store_of(documents) as store:
        assert len(tm.pack(store, 20, strategy="best_fit")) == 2, f"that is {other}"


@pytest.mark.parametrize("labels", ["same", "shifted"])
@pytest.mark.parametrize(
    ("lengths", "rows"),
    [([6] * 10, 10), ([6] * 8 + [16], 9), ([16] + [9] * 4, 6), ([16, 16, 16, 6, 6], 6)],
)
def test_best_fit_never_cuts_a_document_that_fits_into_a_row(lengths, rows, labels):
    """Rows of 10 stay open rather than that; parts of longer documents fill them where there are some."""
    documents = numbered(lengths)
    o = Options(seq_len=10, strategy="best_fit", labels=labels)
    with store_of(documents) as store:
        view = tm.pack(store, **o.arguments())
        check_view(view, documents, o, [0, 1], fields=FIELDS)
        assert (len(view), view.stats.documents_split) == (rows, sum(n > 10 for n in lengths))


@pytest.mark.parametrize("labels", ["same", "shifted"])
def test_best_fit_cuts_the_parts_of_long_documents_further_where_rows_would_be_left_open(labels):
    """Ten remainders of 6 tokens, and rows of 10: whole, they would take a row each."""
    documents = numbered([16] * 10)
    o = Options(seq_len=10, strategy="best_fit", labels=labels, mask_labels=("padding", "first"))
    with store_of(documents, [3]) as store:
        view = tm.pack(store, **o.arguments())
        check_view(view, documents, o, [0, 5], fields=FIELDS)
        assert (best_fit_rows(documents, o), len(view), view.stats.documents_split) == (20, 16, 10)


def test_the_stream_of_concat_is_the_corpus_end_to_end():
    """A plain statement beside the reference: rows laid end to end, padding removed, are the documents."""
    documents = numbered([3, 0, 9, 1, 1, 17])
    with store_of(documents, [2, 4]) as store:
        view = tm.pack(store, 4)
        flat = view[:]["input_ids"].reshape(-1)[: view.stats.positions - view.stats.padding]
        assert flat.tolist() == [i for document in documents for i in document]
        assert len(stream_of(documents, Options(seq_len=4))) == len(flat)
