"""Batches: the same on any number of ranks, every row once an epoch, and what is refused.

Rows are known by their tokens: no id comes twice in these stores, so a row in the wrong place shows.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from itertools import chain, count, islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_reference import numbered, spread, write_store

import tokenmill as tm
from tokenmill.errors import CorruptError, UsageError
from tokenmill.loading.convert import converter_for
from tokenmill.loading.order import shuffled

pytestmark = pytest.mark.usefixtures("alone")

WIDTH = 4
GOLDEN = [
    "68d81a8f89ed34b1",
    "c3168291ef91ed60",
    "e540cdceee8b4272",
    "9404ded3b10b5430",
]  # batches 0, 1, 4 and 10**9 of `packed`
FIELDS = ("input_ids", "labels", "position_ids", "document_ids")
EXTRA = ("attention_mask", "document_mask", "attention_mask_4d", "cu_seqlens")


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """A view of so many rows: row i holds the ids from 4i + 1 on."""
    folder, made = tmp_path_factory.mktemp("views"), {}

    def view(rows):
        if rows not in made:
            made[rows] = tm.pack(write_store(folder / f"{rows}", spread(numbered([WIDTH] * rows), [rows // 2])), WIDTH)
        return made[rows]

    return view


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """108 rows of documents of all lengths, with padding, in four shards; every field there is."""
    lengths = np.random.default_rng(0).integers(0, 30, 150).tolist()
    folder = write_store(tmp_path_factory.mktemp("packed") / "store", spread(numbered(lengths), [20, 21, 90]))
    view = tm.pack(folder, 21, strategy="best_fit", mask_labels=("padding", "first"), fields=FIELDS + EXTRA)
    assert len(view) % 24
    return view


# --- shared with the other tests of loading -------------------------------------------------------------------------------


def row_numbers(batch):
    """Which rows of `views` a batch holds, all of their tokens seen."""
    ids = np.asarray(batch["input_ids"])
    assert (ids == ids[:, :1] + np.arange(ids.shape[1])).all()
    return ((ids[:, 0] - 1) // WIDTH).tolist()


def all_ranks(data, world, **options):
    return [tm.load(data, rank=rank, world_size=world, **options) for rank in range(world)]


def whole(parts):
    """One global batch out of the parts of its ranks, as arrays."""
    parts = [{name: np.asarray(value) for name, value in part.items()} for part in parts]
    stacked = parts[0].keys() - {"cu_seqlens", "max_seqlen"}
    found = {name: np.concatenate([part[name] for part in parts]) for name in stacked}
    if "cu_seqlens" in parts[0]:
        ends = np.cumsum([0, *(part["cu_seqlens"][-1] for part in parts)])
        borders = [part["cu_seqlens"][:-1] + base for part, base in zip(parts, ends, strict=False)]
        found["cu_seqlens"] = np.concatenate([*borders, ends[-1:]]).astype(np.int32)
        found["max_seqlen"] = np.array(max(int(part["max_seqlen"]) for part in parts))
    return found


def hashed(batch):
    """SHA-256 of every field of a batch: name, type, shape and bytes."""
    digest = hashlib.sha256()
    earlier = {"document_mask": "block_mask", "attention_mask_4d": "block_mask_4d"}  # names when GOLDEN was taken
    batch = {earlier.get(name, name): values for name, values in batch.items()}
    for name in sorted(batch):
        values = np.ascontiguousarray(batch[name])
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode() + values.tobytes())
    return digest.hexdigest()


def samples(rows, seed=0, shuffle=True):
    """The endless sequence of rows, as the contract has it."""
    for epoch in count():
        yield from shuffled(np.arange(rows), rows, seed, epoch).tolist() if shuffle else range(rows)


def passes(rows, size, epochs, drop_last, seed=0, shuffle=True):
    """The global batches of each `for`, without end."""
    sequence = samples(rows, seed, shuffle)
    while True:
        one = list(islice(sequence, rows * epochs))
        batches = [one[at : at + size] for at in range(0, len(one), size)]
        yield batches[:-1] if drop_last and len(batches[-1]) < size else batches


# --- batches --------------------------------------------------------------------------------------------------------------


def test_global_batches_are_the_same_on_any_number_of_ranks(packed):
    steps = 10  # more than two epochs
    alone = tm.load(packed, global_batch_size=24, seed=3, prefetch=0, epochs="endless")
    right = [hashed(whole([batch])) for batch in islice(alone, steps)]
    assert len(set(right)) == steps
    for world in (1, 2, 3, 4, 6, 8, 12, 24):
        for prefetch in (0, 1, 4):
            loaders = all_ranks(packed, world, global_batch_size=24, seed=3, prefetch=prefetch, epochs="endless")
            together = islice(zip(*loaders, strict=True), steps)
            assert [hashed(whole(parts)) for parts in together] == right, (world, prefetch)
            assert [hashed(whole([loader.batch(t) for loader in loaders])) for t in range(steps)] == right


def test_a_batch_holds_the_rows_of_the_view_as_they_are(packed):
    """The whole chain once, without any of its parts: sample -> row -> arrays, on each rank."""
    order = list(islice(samples(len(packed), seed=3), 240))
    for rank in range(3):
        loader = tm.load(packed, 8, seed=3, rank=rank, world_size=3, epochs="endless")
        for step, batch in enumerate(islice(loader, 10)):
            start = step * 24 + rank * 8
            right = packed.rows(order[start : start + 8])
            assert batch.keys() == right.keys() == {*FIELDS, *EXTRA, "max_seqlen"}
            assert hashed(batch) == hashed(right)


def test_batches_are_frozen(packed):
    """Should this fail, runs that were begun before cannot be gone on with."""
    loader = tm.load(packed, 24, seed=1234, epochs="endless")
    assert [hashed(whole([loader.batch(step)]))[:16] for step in (0, 1, 4, 10**9)] == GOLDEN


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_pass_is_that_of_the_contract(views, data):
    """Every row once an epoch, in the order of the seed, whatever divides what; over two passes, on all ranks."""
    rows = data.draw(st.sampled_from([1, 2, 5, 12, 13, 30]))
    epochs = data.draw(st.integers(1, 3))
    drop_last, shuffle = data.draw(st.booleans()), data.draw(st.booleans())
    world = data.draw(st.sampled_from([1, 2, 3, 5]))
    most = rows * epochs // world if drop_last else rows * epochs + 3
    if not most:
        world, most = 1, rows * epochs
    size, seed = world * data.draw(st.integers(1, most)), data.draw(st.integers(0, 2**63 - 1))
    options = {"global_batch_size": size, "seed": seed, "shuffle": shuffle, "epochs": epochs, "drop_last": drop_last}
    loaders = all_ranks(views(rows), world, prefetch=data.draw(st.integers(0, 3)), **options)
    step = 0
    for right in islice(passes(rows, size, epochs, drop_last, seed, shuffle), 2):
        assert {len(loader) for loader in loaders} == {len(right)}
        done = 0
        for parts, wanted in zip(zip(*loaders, strict=True), right, strict=True):
            cuts = [len(wanted) * rank // world for rank in range(world + 1)]
            found = [row_numbers(part) for part in parts]
            assert found == [wanted[a:b] for a, b in pairwise(cuts)]
            assert found == [row_numbers(loader.batch(step)) for loader in loaders]
            step, done = step + 1, done + 1
            assert {loader.step for loader in loaders} == {step}
        assert done == len(right)
        if not drop_last:
            whole_pass = sorted(chain.from_iterable(right))
            assert whole_pass == sorted(list(range(rows)) * epochs)


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (5, 2), (12, 12), (13, 5), (13, 12)])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_endless_batches_go_across_the_ends_of_epochs_and_never_stop(views, rows, size, prefetch):
    loader = tm.load(views(rows), size, seed=5, prefetch=prefetch, epochs="endless")
    found = list(chain.from_iterable(row_numbers(batch) for batch in islice(loader, 4 * rows)))
    assert found == list(islice(samples(rows, 5), 4 * rows * size))
    assert all(sorted(found[at : at + rows]) == list(range(rows)) for at in range(0, 3 * rows, rows))
    with pytest.raises(TypeError, match="epochs='endless' has no length; leave epochs out"):
        len(loader)
    with pytest.raises(UsageError, match="fills no list; list"):
        list(loader)
    assert loader


def test_a_batch_is_a_function_of_its_number(views):
    loader = tm.load(views(13), 3, seed=2, epochs="endless")
    right = [row_numbers(batch) for batch in islice(tm.load(views(13), 3, seed=2, epochs="endless"), 20)]
    for step in (19, 0, 7, 7, 3, 18):
        assert row_numbers(loader.batch(step)) == right[step]
    assert (loader.seen, loader.step) == (0, 0)
    iterator = iter(loader)
    assert [row_numbers(next(iterator)), row_numbers(loader.batch(11)), row_numbers(next(iterator))] == [
        right[0], right[11], right[1]]  # fmt: skip
    for wrong in (1.0, "0", None, True):
        with pytest.raises(tm.errors.WrongTypeError, match="step"):
            loader.batch(wrong)
    for wrong in (-1, 2**62):
        with pytest.raises(IndexError, match=f"step {wrong} is not from 0 to "):
            loader.batch(wrong)


def test_loaders_in_turns_do_not_disturb_each_other(views):
    options = [{"seed": 1}, {"seed": 2}, {"seed": 1, "shuffle": False}, {"seed": 1, "prefetch": 0}]
    right = [
        [row_numbers(batch) for batch in islice(tm.load(views(30), 4, epochs="endless", **each), 30)]
        for each in options
    ]
    loaders = [iter(tm.load(views(30), 4, epochs="endless", **each)) for each in options]
    turns = [[row_numbers(next(loader)) for loader in loaders] for _ in range(30)]
    assert [list(each) for each in zip(*turns, strict=True)] == right
    assert right[0] == right[3] != right[1]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("epochs", ["endless", 2])
def test_a_loop_that_is_left_is_gone_on_with(views, prefetch, epochs):
    loader = tm.load(views(13), 2, seed=2, epochs=epochs, prefetch=prefetch)
    right = [row_numbers(loader.batch(step)) for step in range(20)]
    for batch in loader:
        assert row_numbers(batch) == right[0]
        break
    assert loader.step == 1
    found = []
    for batch in loader:
        found.append(row_numbers(batch))
        if len(found) == 3:
            break
    assert found == right[1:4]
    abandoned = iter(loader)
    next(abandoned)
    del abandoned
    assert loader.step == 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tokenmill-load")]
    if epochs == 2:
        assert [row_numbers(batch) for batch in loader] == right[5:13]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_loops_are_the_epochs(views, prefetch, drop_last):
    """Without `epochs`, as with a DataLoader; whoever resumes counts the epochs that are left by `loader.epoch`."""
    options = {"seed": 2, "prefetch": prefetch, "drop_last": drop_last}
    loader = tm.load(views(13), 4, **options)
    right = list(islice(passes(13, 4, 1, drop_last, seed=2), 4))
    for epoch in range(3):
        assert int(loader.epoch) == epoch
        assert [row_numbers(batch) for batch in loader] == right[epoch]
        assert len(right[epoch]) == len(loader)
    assert loader.epoch == 3.0
    for stopped in range(1, 2 * len(loader) + 1):
        first, again = (tm.load(views(13), 4, **options) for _ in range(2))
        list(islice(chain(first, first), stopped))
        again.load_state_dict(first.state_dict())
        rest = [row_numbers(batch) for _ in range(int(again.epoch), 3) for batch in again]
        assert rest == list(chain(*right[:3]))[stopped:]
    loader.restart()
    assert (loader.step, loader.epoch) == (0, 0.0)
    assert [row_numbers(batch) for batch in loader] == right[0]


def test_what_fingers_know_is_answered(views):
    loader = tm.load(views(13), 4)
    with pytest.raises(TypeError, match=r"not an iterator: batches = iter\(loader\), once, and then next\(batches\)"):
        next(loader)
    for data in (torch.utils.data.DataLoader(loader), torch.utils.data.DataLoader(loader, batch_size=None)):
        with pytest.raises(TypeError, match=r"for a DataLoader: DataLoader\(loader.dataset\(\), batch_size=None\)"):
            next(iter(data))
    assert len(list(loader)) == len(loader) == 3
    view = views(13)
    for data, name in (
        (view.split(train=0.5, test=0.5), "dict of views"),
        ([view, view], "list of views"),
        ({"a": view.store}, "dict of stores"),
    ):
        with pytest.raises(UsageError, match=rf"a {name} is not loaded .*split='train', or a mixture: tm\.mix"):
            tm.load(data, 4, seq_len=4)


@pytest.mark.parametrize("drop_last", [True, False])
def test_step_epoch_and_progress(views, drop_last):
    loader = tm.load(views(12), 4, epochs=1, rank=1, world_size=2, drop_last=drop_last)  # 8 of all ranks: 1.5 batches
    told = [loader.progress()] + [loader.progress() for _ in chain(loader, loader)]
    assert len(loader) == (1 if drop_last else 2)
    steps = 2 * len(loader)
    assert [each["step"] for each in told] == list(range(steps + 1))
    seen = 24  # of each pass all 12 rows, with those that were dropped
    assert (loader.step, loader.epoch) == (steps, 2.0)
    assert told[0] == {"samples": 0, "tokens": 0, "step": 0, "epochs": {"all": 0.0}}
    assert told[-1] == {"samples": seen, "tokens": seen * WIDTH, "step": steps, "epochs": {"all": seen / 12}}
    endless = tm.load(views(12), 8, epochs="endless")
    next(iter(endless))
    assert (endless.seen, endless.step, endless.epoch) == (8, 1, 8 / 12)
    assert endless.progress() == {"samples": 8, "tokens": 8 * WIDTH, "step": 1, "epochs": {"all": 8 / 12}}


def test_an_epoch_has_another_order_than_the_last_and_seeds_differ(views):
    def order(**options):
        return list(
            chain.from_iterable(row_numbers(b) for b in islice(tm.load(views(30), 5, epochs="endless", **options), 12))
        )

    assert len({tuple(order(seed=0)[:30]), tuple(order(seed=0)[30:]), tuple(order(seed=1)[:30]), tuple(range(30))}) == 4
    assert order(shuffle=False) == [*range(30), *range(30)]
    assert order(seed=0) == order()


# --- what comes out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [None, "int32", np.int32, np.dtype("int32"), torch.int32, "int64", torch.int64])
def test_tensors_of_the_type_that_was_asked_for(packed, dtype):
    batch = next(iter(tm.load(packed, 2, dtype=dtype)))
    wanted = torch.int64 if dtype is None or "64" in str(dtype) else torch.int32
    for name in ("input_ids", "labels", "position_ids", "document_ids"):
        assert batch[name].dtype == wanted
        assert batch[name].shape == (2, 21)
        assert batch[name].tolist() == tm.load(packed, 2).batch(0)[name].tolist()
    assert batch["cu_seqlens"].dtype == torch.int32
    assert isinstance(batch["max_seqlen"], int)


def test_batches_are_their_owners(views):
    """Writing into one, as trainers do with labels, changes no other."""
    loader = tm.load(views(12), 3, epochs=1)
    for batch in loader:
        for values in batch.values():
            values.fill_(-7)
    again = tm.load(views(12), 3, epochs=1)
    assert sorted(chain.from_iterable(map(row_numbers, again))) == list(range(12))
    assert row_numbers(loader.batch(0)) == row_numbers(again.batch(0))


def test_a_store_or_its_path_is_packed_on_the_way(views):
    view = views(13)
    right = hashed(tm.load(tm.pack(view.store, 6, labels="shifted"), 2).batch(1))
    for data in (view.store, view.store.path, str(view.store.path)):
        assert hashed(tm.load(data, 2, seq_len=6, labels="shifted").batch(1)) == right


def test_without_torch_batches_are_arrays(views):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tokenmill as tm\n"
        "view = tm.pack(sys.argv[1], 4)\n"
        "loader = tm.load(view, 3, epochs=1)\n"
        "for batch in loader: print(type(batch['input_ids']).__module__, batch['input_ids'][:, 0].tolist())\n"
        "for option in ({'device': 'cpu'}, {'pin_memory': True}):\n"
        "    try: tm.load(view, 3, **option)\n"
        "    except tm.errors.UsageError as error: print(error)"
    )
    run = [sys.executable, "-c", code, str(views(12).store.path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:4] == [f"numpy {b['input_ids'][:, 0].tolist()}" for b in tm.load(views(12), 3, epochs=1)]
    assert len(lines) == 6
    assert all("tokenmill[torch]" in line for line in lines[4:])


# --- ranks ----------------------------------------------------------------------------------------------------------------


def test_a_task_of_srun_without_a_rank(views, monkeypatch):
    """Every task would take itself for the only rank, and train on the same rows."""
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert tm.load(views(12), 4).world_size == 1  # a job of one task
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(UsageError, match=r"task 1 of 2 that srun started.* give rank=1 and world_size=2"):
        tm.load(views(12), 4)
    assert tm.load(views(12), 4, rank=1, world_size=2).rank == 1
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert tm.load(views(12), 4).rank == 0


def test_rank_and_world_size_of_torchrun(views, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = tm.load(views(12), 2)
    assert (loader.rank, loader.world_size, loader.batch_size, loader.global_batch_size) == (2, 3, 2, 6)
    assert row_numbers(loader.batch(1)) == row_numbers(tm.load(views(12), 6, rank=0, world_size=1).batch(1))[4:]
    given = tm.load(views(12), 2, rank=0, world_size=2)
    assert (given.rank, given.world_size) == (0, 2)
    for name, value in (("RANK", "3"), ("RANK", "-1"), ("RANK", "one"), ("WORLD_SIZE", "0"), ("WORLD_SIZE", "")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(UsageError, match=r"(?i)rank|world_size"):
                tm.load(views(12), 2)


def test_torch_distributed_comes_before_the_environment(views, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        loader = tm.load(views(12), 2)
        given = tm.load(views(12), 2, rank=3, world_size=4)
    finally:
        torch.distributed.destroy_process_group()
    assert (loader.rank, loader.world_size) == (0, 1)
    assert (given.rank, given.world_size) == (3, 4)
    assert tm.load(views(12), 2).world_size == 2


# --- refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "batch_size.*global_batch_size"),
        ({"batch_size": 2, "global_batch_size": 2}, "batch_size.*global_batch_size"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": "2"}, "batch_size='2'"),
        ({"global_batch_size": 0}, "global_batch_size=0"),
        ({"global_batch_size": 7, "rank": 0, "world_size": 2}, "global_batch_size=7.*world_size=2.*6 or 8"),
        ({"global_batch_size": 1, "rank": 0, "world_size": 2}, "global_batch_size=1.*world_size=2"),
        ({"batch_size": 13}, "13 rows.*12 rows"),
        ({"batch_size": 7, "rank": 0, "world_size": 2}, "14 rows.*12 rows"),
        ({"batch_size": 25, "epochs": 2}, "25 rows.*24 rows.*drop_last=False"),
        ({"batch_size": 2, "rank": 0}, "rank and world_size"),
        ({"batch_size": 2, "world_size": 2}, "rank and world_size"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank=2 .* 0 to 1"),
        ({"batch_size": 2, "rank": -1, "world_size": 2}, "rank=-1"),
        ({"batch_size": 2, "rank": 0.0, "world_size": 2}, "rank=0.0"),
        ({"batch_size": 2, "rank": 0, "world_size": 0}, "world_size=0"),
        ({"batch_size": 2, "dtype": "float32"}, "dtype='float32'.*int32"),
        ({"batch_size": 2, "dtype": torch.float16}, "dtype=torch.float16.*int32"),
        ({"batch_size": 2, "dtype": "uint16"}, "dtype='uint16'"),
        ({"batch_size": 2, "verify": "always"}, "verify='always'.*first-touch"),
        ({"batch_size": 2, "verify": True}, "verify=True.*first-touch"),
        ({"batch_size": 2, "prefetch": -1}, "prefetch=-1"),
        ({"batch_size": 2, "prefetch": None}, "prefetch=None"),
        ({"batch_size": 2, "prefetch": 1.5}, "prefetch=1.5"),
        ({"batch_size": 2, "epochs": 0}, "epochs=0 is not a whole number from 1 to .*, or endless"),
        ({"batch_size": 2, "epochs": None}, "epochs=None is not .*, or endless"),
        ({"batch_size": 2, "epochs": "Endless"}, "epochs='Endless' is not .*, or endless"),
        ({"batch_size": 25, "epochs": "endless", "drop_last": False}, "12 rows; make it smaller$"),
        ({"batch_size": 2, "epochs": 1.5}, "epochs=1.5"),
        ({"batch_size": 2, "seed": -1}, "seed=-1"),
        ({"batch_size": 2, "seed": 2**63}, "seed=9223372036854775808"),
        ({"batch_size": 2, "seed": "a"}, "seed='a'"),
        ({"batch_size": 2, "seed": None}, "seed=None"),
        ({"batch_size": 2, "seq_len": 4}, "seq_len: the view has its own"),
        ({"batch_size": 2, "tokenizer": "gpt2"}, "tokenizer: the view has its own"),
        ({"batch_size": 2, "strategy": "concat"}, "strategy: the view has its own"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(views, options, match):
    with pytest.raises(UsageError, match=match):
        tm.load(views(12), **options)


def test_a_batch_larger_than_a_pass_comes_small_where_the_rest_is_kept(views):
    loaders = all_ranks(views(5), 4, batch_size=2, epochs=1, drop_last=False)
    found = [[row_numbers(batch) for batch in loader] for loader in loaders]
    assert [len(each) for each in found] == [1] * 4
    assert [len(each[0]) for each in found] == [1, 1, 1, 2]
    assert sorted(chain.from_iterable(each[0] for each in found)) == list(range(5))


def test_no_rows_are_refused(tmp_path):
    empty = tm.pack(write_store(tmp_path / "empty", spread([[]])), 4)
    for options in ({}, {"epochs": "endless"}, {"drop_last": False}):
        with pytest.raises(UsageError, match="no rows"):
            tm.load(empty, 1, **options)


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("suffix", [".npy", ".ends.npy"])
def test_a_shard_that_is_gone_is_named(tmp_path, prefetch, suffix):
    """Not yet mapped, it cannot be read: the loop ends with its name, and does not hang."""
    folder = write_store(tmp_path / "store", spread(numbered([WIDTH] * 40), [10, 20, 30]))
    loader = tm.load(tm.pack(folder, WIDTH), 2, shuffle=False, prefetch=prefetch)
    name = f"{2:024x}{suffix}"
    (folder / "shards" / name).unlink()
    found = []
    with pytest.raises(CorruptError, match=name):
        found.extend(row for batch in loader for row in row_numbers(batch))
    assert found == list(range(len(found)))
    assert len(found) == 20 if suffix == ".npy" else len(found) <= 20  # ends may be read ahead of the ids
    assert loader.seen == len(found)


def test_a_gpu_that_is_not_there(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for device in ("cuda", "cuda:0", 0, "gpu", "nothing:1", torch.device("cuda", 1), object()):
        with pytest.raises(UsageError, match="is not here; give device='cpu', or leave it out"):
            converter_for(device, pin_memory=None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match=r"device='gpu' .* give device='cpu' or 'cuda:0' or 'cuda:1', or leave"):
        converter_for("gpu", pin_memory=None)
    assert converter_for("cuda:1", pin_memory=None).keywords["device"] == "cuda:1"


@pytest.mark.parametrize(("device", "pinned"), [(None, False), ("cpu", False), (0, True), ("cuda:1", True)])
def test_tensors_for_a_gpu_are_pinned_unless_asked_otherwise(monkeypatch, device, pinned):
    monkeypatch.setattr(pytest.importorskip("torch").cuda, "device_count", lambda: 2)
    assert converter_for(device, pin_memory=None).keywords["pin_memory"] is pinned
    assert converter_for(device, pin_memory=not pinned).keywords["pin_memory"] is not pinned


def test_text_for_evaluation_is_not_loaded_unless_asked_for(tmp_path):
    texts = {"train.txt": "seen", "valid.txt": "held"}
    for name, text in texts.items():
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    store = tm.build(tmp_path / "data", "bytes", tmp_path / "store", workers=0, progress="quiet")
    options = {"seq_len": 8, "strategy": "pad", "epochs": 1}

    def texts_of(loader):
        rows = [row for batch in loader for row in batch["input_ids"].tolist()]
        return sorted(bytes(i for i in row if i < 256).decode() for row in rows)

    for data in (store, str(tmp_path / "store")):
        with pytest.warns(UserWarning, match="leave out the split validation; --split all") as told:
            loader = tm.load(data, 1, **options)
        assert [each.filename for each in told] == [__file__]
        assert texts_of(loader) == ["seen"]
    for split, expected in (("all", ["held", "seen"]), ("train", ["seen"]), ("val", ["held"])):
        assert texts_of(tm.load(store, 1, split=split, **options)) == expected
