"""Splits: disjoint and whole, the same document on the same side whatever happens around it, and views like any other."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_reference import Options, numbered, spread, write_store
from test_packing_rows import EOS, FIELDS, STRATEGIES, check_view, store_of

import tokenmill as tm
from tokenmill.errors import UsageError
from tokenmill.packing.hashing import splitmix64

SHARES = {"train": 0.7, "eval": 0.2, "test": 0.1}


def members(view) -> set[int]:
    """The store's numbers of the documents a view has tokens of."""
    return {number for i in range(len(view)) for number, _, _ in view.documents(i)}


def sides(store, seq_len=64, shares=SHARES, **options) -> dict[tuple[int, ...], str]:
    """On which side each document is, by its content. Documents on no side are left out."""
    found: dict[tuple[int, ...], str] = {}
    for name, view in tm.pack(store, seq_len, **options).split(**shares).items():
        for number in members(view):
            content = tuple(store[number].tolist())
            assert found.setdefault(content, name) == name
    return found


@pytest.fixture(scope="module")
def documents():
    """Three hundred documents, no two alike."""
    return numbered(np.random.default_rng(1).integers(1, 9, 300).tolist())


@pytest.fixture(scope="module")
def store(tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("splits") / "store"
    return tm.open(write_store(folder, in_files(documents, {"a.txt": 100, "c.txt": 120, "d.txt": 80}), eos=EOS))


def in_files(documents, counts, shards=2):
    """Documents dealt to files in order; each file in some shards of its own."""
    out, at = [], 0
    for file, count in counts.items():
        part, at = documents[at : at + count], at + count
        size = -(-len(part) // shards)
        out += [[(file, part[i : i + size])] for i in range(0, len(part), size)]
    return out


# Who is where.


@given(
    st.lists(st.integers(0, 6), max_size=30),
    st.lists(st.integers(1, 10), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(STRATEGIES),
    st.integers(0, 3),
)
@settings(max_examples=15, deadline=None)
def test_sides_are_disjoint_and_whole_when_shares_make_one(lengths, parts, whole, strategy, seed):
    total = sum(parts) + (0 if whole else 3)
    shares = {f"part{i}": part / total for i, part in enumerate(parts)}
    documents = numbered(lengths)
    with store_of(documents, [5, 11]) as store:
        views = tm.pack(store, 4, strategy=strategy).split(**shares, seed=seed)
        assert list(views) == list(shares)
        found = [number for view in views.values() for number in members(view)]
        assert len(found) == len(set(found))
        if whole:
            assert set(found) == {i for i, n in enumerate(lengths) if n}
            assert sum(view.stats.documents for view in views.values()) == len(documents)
            assert sum(view.stats.tokens for view in views.values()) == sum(lengths)


def test_shares_are_near_what_was_asked_for():
    documents = numbered([3] * 20000)
    with store_of(documents, [7000]) as store:
        for seed in (0, 1):
            views = tm.pack(store, 16).split(train=0.9, eval=0.06, seed=seed)
            assert views["train"].stats.documents == pytest.approx(18000, abs=5 * (20000 * 0.9 * 0.1) ** 0.5)
            assert views["eval"].stats.documents == pytest.approx(1200, abs=5 * (20000 * 0.06 * 0.94) ** 0.5)


def test_a_side_is_not_a_stretch_of_the_corpus(store):
    """Each third of the corpus has its part of each side."""
    for view in tm.pack(store, 8).split(a=0.5, b=0.5).values():
        for low in (0, 100, 200):
            assert 25 <= len(members(view) & set(range(low, low + 100))) <= 75


def test_sides_depend_on_the_seed_and_on_nothing_else_that_is_asked(store):
    plain = sides(store)
    assert plain == sides(store)
    assert plain == sides(store, shares=SHARES | {"seed": 0})
    assert plain == sides(tm.open(store.path), seq_len=5, strategy="best_fit", labels="shifted")
    assert plain == sides(store, seq_len=9, strategy="windows", overlap=4)
    others = [sides(store, shares=SHARES | {"seed": seed}) for seed in (1, 2)]
    for other in others:
        assert 0.2 < np.mean([other[content] != side for content, side in plain.items()]) < 0.8
    assert others[0] != others[1]


FRESH = numbered([4] * 60, first=40000)
CHANGES = {
    "appended to the last file": lambda d: in_files(d + FRESH, {"a.txt": 100, "c.txt": 120, "d.txt": 140}),
    "a file before": lambda d: in_files(FRESH + d, {"0.txt": 60, "a.txt": 100, "c.txt": 120, "d.txt": 80}),
    "a file between": lambda d: in_files(
        d[:100] + FRESH + d[100:], {"a.txt": 100, "b.txt": 60, "c.txt": 120, "d.txt": 80}
    ),
    "a file after": lambda d: in_files(d + FRESH, {"a.txt": 100, "c.txt": 120, "d.txt": 80, "e.txt": 60}),
    "files renamed": lambda d: in_files(d, {"x/1.txt": 100, "x/2.txt": 120, "y/3.txt": 80}),
    "a file gone": lambda d: in_files(d[100:], {"c.txt": 120, "d.txt": 80}),
    "other shards": lambda d: in_files(d, {"a.txt": 100, "c.txt": 120, "d.txt": 80}, shards=5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_document_keeps_its_side(store, documents, tmp_path, change):
    before = sides(store)
    after = sides(tm.open(write_store(tmp_path / "store", CHANGES[change](documents), eos=EOS)))
    shared = before.keys() & after.keys()
    assert len(shared) >= 200
    assert {content: after[content] for content in shared} == {content: before[content] for content in shared}
    assert len(after) == len(before) if change in ("files renamed", "other shards") else len(after) != len(before)


def test_a_document_keeps_its_side_when_ids_become_wider(store, documents, tmp_path):
    """More vocabulary makes uint32 of uint16; the documents are the same."""
    files = {"a.txt": 100, "c.txt": 120, "d.txt": 80}
    wide = write_store(tmp_path / "wide", in_files(documents, files), "uint32", eos=EOS)
    assert sides(tm.open(wide)) == sides(store)


# Views like any other.


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(st.data())
@settings(max_examples=8, deadline=None)
def test_rows_and_figures_of_a_side_are_those_of_its_documents_alone(strategy, data):
    """Nothing of the other side comes near a row: not a token, not a label, not a figure."""
    documents = numbered(data.draw(st.lists(st.integers(1, 11), max_size=14)))
    o = Options(
        seq_len=data.draw(st.integers(1, 7)),
        strategy=strategy,
        labels=data.draw(st.sampled_from(["same", "shifted"])),
        min_doc_tokens=data.draw(st.sampled_from([0, 3])),
        mask_labels=data.draw(st.sampled_from([("padding",), ("padding", "first"), ()])),
    )
    with store_of(documents, [4, 9]) as store:
        everybody = tm.pack(store, 1000, strategy="pad").split(a=0.5, b=0.5)
        for name, view in tm.pack(store, **o.arguments()).split(a=0.5, b=0.5).items():
            numbers = sorted(members(everybody[name]))
            mine = [documents[number] for number in numbers]
            check_view(view, mine, o, [0, 2], numbers=numbers, fields=FIELDS)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_plan_of_a_side_is_kept_and_used_again(tmp_path, documents, strategy):
    folder = write_store(tmp_path / "store", spread(documents, [50]), eos=EOS)
    first = {name: view[:]["input_ids"].tolist() for name, view in split_of(folder, strategy).items()}
    files = sorted((folder / "plans").rglob("*"))
    before = [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in files]
    assert before
    assert {name: view[:]["input_ids"].tolist() for name, view in split_of(folder, strategy).items()} == first
    after = [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted((folder / "plans").rglob("*"))]
    assert after == before


def split_of(folder, strategy):
    return tm.pack(folder, 8, strategy=strategy).split(**SHARES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_split_of_a_split(store, strategy):
    """Each half of a half is a quarter, also by the same seed: the second draw is not the first one over again."""
    halves = tm.pack(store, 8, strategy=strategy).split(a=0.5, b=0.5)
    quarters = halves["a"].split(c=0.5, d=0.5)
    assert members(quarters["c"]) | members(quarters["d"]) == members(halves["a"])
    assert not members(quarters["c"]) & members(quarters["d"])
    for view in quarters.values():
        assert 0.3 < len(members(view)) / len(members(halves["a"])) < 0.7
        assert view.stats.documents == len(members(view))
    prints = {view.fingerprint for view in (*halves.values(), *quarters.values())}
    assert len(prints) == 4


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_copy_of_a_side_has_the_same_rows(store, strategy):
    view = tm.pack(store, 8, strategy=strategy).split(**SHARES)["eval"]
    deeper = view.split(a=0.5, b=0.4)["b"]
    for one in (view, deeper):
        for again in (copy.deepcopy(one), copy.copy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301
            np.testing.assert_array_equal(again[:]["labels"], one[:]["labels"])
            assert members(again) == members(one)
            assert (again.fingerprint, again.stats) == (one.fingerprint, one.stats)


def test_shares_need_names(store):
    with pytest.raises(UsageError, match=r"split takes named shares, not 0\.9: view\.split\(train=0\.9, eval=0\.1\)"):
        tm.pack(store, 8).split(0.9)


def test_options_of_the_view_hold_for_its_sides(store):
    view = tm.pack(store, 8, fields=("labels", "attention_mask"), dtype="int32", padding_side="left")
    for side in view.split(**SHARES).values():
        got = side[:]
        assert set(got) == {"labels", "attention_mask"}
        assert got["labels"].dtype == np.int32
        assert got["attention_mask"][-1, -1] == 1


# By folder.

FOLDERS = {
    "data/train/a.txt": 10,
    "data/train/deep/b.txt": 20,
    "data/training/c.txt": 7,
    "data/validation/train.txt": 30,
}


@pytest.fixture(scope="module", params=["", "/corpus/", "../"])
def filed(request, tmp_path_factory):
    """Files in folders; the names in receipts may be relative or absolute. One file goes on in a second shard."""
    documents = numbered([3] * sum(FOLDERS.values()))
    shards = in_files(documents, {request.param + file: count for file, count in FOLDERS.items()}, shards=1)
    (file, part), *_ = shards.pop()
    shards[-1].append((file, part[:12]))
    shards.append([(file, part[12:])])
    return tm.open(write_store(tmp_path_factory.mktemp("folders") / "store", shards, eos=EOS))


def files_of(store, view) -> set[str]:
    return {store.locate(number).file.rpartition("data/")[2] for number in members(view)}


def test_by_folder_takes_the_files_below_a_folder_of_that_name(filed):
    view = tm.pack(filed, 8, split="all")
    views = view.split(by="folder", train="train", eval="validation")
    assert list(views) == ["train", "eval"]
    assert files_of(filed, views["train"]) == {"train/a.txt", "train/deep/b.txt"}
    assert files_of(filed, views["eval"]) == {"validation/train.txt"}
    assert [views[name].stats.documents for name in views] == [30, 30]
    only = view.split(by="folder", deep="data/train/deep", rest="data/training")
    assert files_of(filed, only["deep"]) == {"train/deep/b.txt"}
    assert files_of(filed, only["rest"]) == {"training/c.txt"}
    with pytest.raises(tm.errors.UsageError, match="ata/train"):
        view.split(by="folder", train="ata/train")
    with pytest.raises(tm.errors.UsageError, match=r"deep.*train"):  # a document cannot be in both
        view.split(by="folder", train="train", deep="deep")


def test_by_folder_without_names_gives_each_folder_below_the_common_root(filed):
    views = tm.pack(filed, 8, split="all", strategy="best_fit").split(by="folder")
    assert {name: files_of(filed, view) for name, view in views.items()} == {
        "train": {"train/a.txt", "train/deep/b.txt"},
        "training": {"training/c.txt"},
        "validation": {"validation/train.txt"},
    }
    assert sum(view.stats.tokens for view in views.values()) == filed.num_tokens


def test_a_folder_and_then_shares(filed):
    whole = tm.pack(filed, 8, split="all")
    train = whole.split(by="folder", train="train")["train"]
    parts = train.split(a=0.5, b=0.5)
    assert members(parts["a"]) | members(parts["b"]) == members(train)
    assert members(parts["a"]) & members(parts["b"]) == set()
    sides_of_all = whole.split(a=0.5, b=0.5)
    both = sides_of_all["a"].split(by="folder", train="train")["train"]
    assert members(both) == members(sides_of_all["a"]) & members(train)


def test_the_hash_is_frozen_and_the_same_for_numbers_and_arrays():
    """Splits of old stores and the order of old runs hang on it."""
    numbers = [0, 1, 2**63, 2**64 - 1]
    frozen = [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0x481EC0A212A9F3DB, 0xE4D971771B652C20]
    assert [splitmix64(number) for number in numbers] == frozen
    assert splitmix64(np.array(numbers, np.uint64)).tolist() == frozen


# Text for evaluation.

NAMED = {"c/train.txt": 30, "c/valid.txt": 20, "c/more.txt": 10, "c/test.txt": 5}
LEAVES_OUT = r"rows for training leave out the splits validation and test; --split all \(split='all'\) takes everything"


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Files of three splits, and one that names none."""
    documents = numbered([3] * sum(NAMED.values()))
    return tm.open(write_store(tmp_path_factory.mktemp("named") / "store", in_files(documents, NAMED), eos=EOS))


def names_of(store, view) -> set[str]:
    return {store.locate(number).file for number in members(view)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_for_evaluation_is_left_out_with_a_warning(named, strategy):
    with pytest.warns(UserWarning, match=LEAVES_OUT) as told:
        view = tm.pack(named, 8, strategy=strategy)
    assert [each.filename for each in told] == [__file__]  # once, at the line of the caller
    assert names_of(named, view) == {"c/train.txt", "c/more.txt"}
    assert view.stats.documents == 40
    train = tm.pack(named, 8, strategy=strategy, split="train")
    assert (view.fingerprint, len(view)) == (train.fingerprint, len(train))
    assert sum(part.stats.documents for part in view.split(train=0.5, eval=0.5).values()) == 40
    assert len(pickle.loads(pickle.dumps(view))) == len(view)  # noqa: S301


def test_a_split_that_is_asked_for_is_silent(named):
    """The tests take warnings for errors."""
    assert tm.pack(named, 8, split="all").stats.documents == len(named)
    assert tm.pack(named, 8, split="all")._splits == ()
    assert tm.pack(named, 8, split="validation").stats.documents == 20


def test_by_name_and_by_folder_have_what_is_for_evaluation(named):
    expected = {"train": 40, "validation": 20, "test": 5}
    assert {name: len(files) for name, files in named.splits.items()} == {"train": 2, "validation": 1, "test": 1}
    with pytest.warns(UserWarning, match=LEAVES_OUT):
        default = tm.pack(named, 8, strategy="best_fit")
    for view in (default, tm.pack(named, 8, strategy="best_fit", split="all")):
        assert {name: part.stats.documents for name, part in view.split(by="name").items()} == expected
        assert view.split(by="folder", c="c")["c"].stats.documents == len(named)


@pytest.mark.parametrize(
    "files", [{"a.txt": 3, "b.txt": 4}, {"valid.txt": 3, "dev.txt": 4}, {"train.txt": 3, "x.txt": 4}]
)
def test_a_store_of_one_split_or_none_is_packed_whole(tmp_path, files):
    store = tm.open(write_store(tmp_path / "store", in_files(numbered([3] * 7), files), eos=EOS))
    view = tm.pack(store, 8)
    assert (view._splits, view.stats.documents) == ((), 7)


def test_a_store_of_splits_for_evaluation_alone_needs_a_choice(tmp_path):
    files = {"valid.txt": 3, "test.txt": 4}
    store = tm.open(write_store(tmp_path / "store", in_files(numbered([3] * 7), files), eos=EOS))
    with pytest.raises(UsageError, match="no rows for training, only the splits validation and test; --split all"):
        tm.pack(store, 8)
    assert tm.pack(store, 8, split="test").stats.documents == 4


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ({"test_size": 0.2}, "view.split(train=0.8, test=0.2, seed=0)"),
        ({"test_size": 0.1, "random_state": 4}, "view.split(train=0.9, test=0.1, seed=4)"),
        ({"train_size": 0.9, "seed": 2}, "view.split(train=0.9, test=0.1, seed=2)"),
        ({"train": 0.9, "shuffle": 1.0}, "view.split(train=0.9, test=0.1, seed=0)"),
        ({"train": 0.9, "epochs": 0.1}, "view.split(train=0.9, test=0.1, seed=0)"),
    ],
)
def test_an_option_is_not_the_name_of_a_split(store, given, call):
    with pytest.raises(UsageError) as refused:
        tm.pack(store, 8).split(**given)
    assert str(refused.value).endswith(f"cannot be the name of a split: give each its share, as in {call}")
