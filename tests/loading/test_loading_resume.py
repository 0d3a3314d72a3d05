"""Going on after a restart: the very next sample, on any number of ranks, and never with other data."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_reference import numbered, spread, write_store
from test_load import WIDTH, all_ranks, passes, row_numbers, samples

import tokenmill as tm
from tokenmill.errors import MismatchError

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    """30 rows: row i holds the ids from 4i + 1 on."""
    folder = write_store(tmp_path_factory.mktemp("resume") / "store", spread(numbered([WIDTH] * 30), [11]))
    return tm.pack(folder, WIDTH)


def taken(data, state, world, steps, **options):
    """Some global batches on new ranks that go on from a state, and the state then: the rows of each, as lists."""
    loaders = all_ranks(data, world, **{"epochs": "endless", **options})
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
    together = zip(*loaders, strict=True)
    found = [[row for part in parts for row in row_numbers(part)] for parts in islice(together, steps)]
    states = [loader.state_dict() for loader in loaders]
    assert all(each == states[0] for each in states)
    return found, states[0]


# --- the state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_the_state_is_small_plain_and_counts_what_was_handed_out(view, prefetch):
    loader = tm.load(view, 4, seed=2**63 - 1, epochs="endless", prefetch=prefetch, rank=1, world_size=2)
    other = tm.load(view, 4, seed=2**63 - 1, epochs="endless", prefetch=0, rank=0, world_size=2)
    for steps, (_, _) in enumerate(islice(zip(loader, other, strict=True), 12), 1):
        state = loader.state_dict()
        assert state == json.loads(json.dumps(state)) == other.state_dict()
        assert len(json.dumps(state)) < 1024
        assert state["samples"] == loader.seen == 8 * steps
        assert state["global_batch_size"] == 8
    assert state.keys() == {"version", "samples", "global_batch_size", "seed", "shuffle", "fingerprint", "data"}
    assert state["fingerprint"] == view.fingerprint


def other_data(tmp_path, tokens=None, width=WIDTH, **options):
    lengths = [WIDTH] * 30
    return tm.pack(write_store(tmp_path / "other", spread(tokens or numbered(lengths))), width, **options)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda view, path: tm.load(view, 4, seed=2), "seed: 1 in the state, 2 here"),
        (lambda view, path: tm.load(view, 4, seed=1, shuffle=False), "shuffle: True in the state, False here"),
        (lambda view, path: tm.load(view, 3, seed=1), "global_batch_size: 4 in the state, 3 here"),
        (
            lambda view, path: tm.load(view, 3, seed=1, rank=0, world_size=2),
            "global_batch_size: 4 in the state, 6 here",
        ),
        (
            lambda view, path: tm.load(other_data(path, numbered([WIDTH] * 30, first=2)), 4, seed=1),
            r"\(the store has other tokens\)",
        ),
        (
            lambda view, path: tm.load(other_data(path, numbered([WIDTH] * 31)), 4, seed=1),
            r"\(the store has other tokens\)",
        ),
        (lambda view, path: tm.load(tm.pack(view.store, 5), 4, seed=1), r"\(seq_len: \d+ in the state, 5 here\)"),
        (
            lambda view, path: tm.load(tm.pack(view.store, WIDTH, strategy="pad"), 4, seed=1),
            r"strategy: 'concat' in the state, 'pad' here",
        ),
        (
            lambda view, path: tm.load(tm.pack(view.store, WIDTH, labels="shifted"), 4, seed=1),
            r"\(other options of tm.pack\)",
        ),
        (lambda view, path: tm.load(tm.pack(view.store, WIDTH, overlap=1), 4, seed=1), r"\(other options of tm.pack\)"),
        (lambda view, path: tm.load(view.split(train=0.9)["train"], 4, seed=1), r"\(another split\)"),
        (
            lambda view, path: tm.load(tm.mix({"a": (view, 1)}), 4, seed=1),
            r"\(other sources or weights of the mixture\)",
        ),
    ],
    ids=[
        "seed",
        "shuffle",
        "size",
        "ranks",
        "tokens",
        "rows",
        "length",
        "strategy",
        "labels",
        "overlap",
        "split",
        "mix",
    ],
)
def test_a_state_of_another_run_is_refused_with_the_difference(view, tmp_path, other, match):
    loader = tm.load(view, 4, seed=1)
    next(iter(loader))
    here = other(view, tmp_path)
    before = here.state_dict()
    with pytest.raises(MismatchError, match=match):
        here.load_state_dict(loader.state_dict())
    assert here.state_dict() == before


def test_a_state_without_the_parts_of_its_data_is_read_too(view):
    """Of an earlier version. If it does not fit, there is only the fingerprint to show."""
    state = {name: value for name, value in tm.load(view, 4).state_dict().items() if name != "data"}
    tm.load(view, 4).load_state_dict(state)
    with pytest.raises(MismatchError, match=rf"\(fingerprint: '{view.fingerprint}' in the state, '"):
        tm.load(tm.pack(view.store, 5), 4).load_state_dict(state)


def test_all_differences_are_told_at_once(view):
    with pytest.raises(MismatchError, match=r"seed.*shuffle.*global_batch_size"):
        tm.load(view, 3, seed=1, shuffle=False).load_state_dict(tm.load(view, 4).state_dict())


def test_the_same_tokens_elsewhere_are_the_same_data(view, tmp_path):
    """A store that was moved or built again; fields that are left out and narrower types change no row."""
    state = taken(view, None, 1, 2, global_batch_size=4)[1]
    again = tm.pack(write_store(tmp_path / "again", spread(numbered([WIDTH] * 30), [11])), WIDTH, fields="input_ids")
    right = list(islice(samples(30), 8, 12))
    assert taken(again, state, 2, 1, global_batch_size=4, dtype="int32")[0] == [right]


GARBAGE = [None, True, 0, 7, -1, 2.5, "", "state", b"state", [], [1], (), {}, {"version": 1}, object()]


@pytest.mark.parametrize("state", GARBAGE, ids=lambda state: type(state).__name__)
def test_what_is_no_state_is_refused(view, state):
    loader = tm.load(view, 4)
    with pytest.raises(MismatchError):
        loader.load_state_dict(state)
    assert row_numbers(next(iter(loader))) == list(islice(samples(30), 4))


@pytest.mark.parametrize("name", ["version", "samples", "global_batch_size", "seed", "shuffle", "fingerprint"])
@pytest.mark.parametrize("value", [None, -1, 2.5, "", "many", [], [1], {}, ...], ids=repr)
def test_a_state_with_one_wrong_value_is_refused_by_its_name(view, name, value):
    loader = tm.load(view, 4)
    next(iter(loader))
    state = loader.state_dict()
    if value is ...:
        del state[name]
    else:
        state[name] = value
    with pytest.raises(MismatchError, match=name):
        tm.load(view, 4).load_state_dict(state)


@pytest.mark.parametrize("version", [0, 2, "1", 1.5])
def test_a_state_of_another_version_is_refused(view, version):
    state = {**tm.load(view, 4).state_dict(), "version": version}
    with pytest.raises(MismatchError, match=f"version {version!r}"):
        tm.load(view, 4).load_state_dict(state)


# --- going on -------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_run_goes_on_at_the_next_sample(view, data):
    """However often it is stopped, wherever in an epoch, on how many ranks, and with batches so many times larger or smaller."""
    seed, shuffle, size = data.draw(st.integers(0, 2**63 - 1)), data.draw(st.booleans()), data.draw(st.integers(1, 12))
    found, state = [], None
    for _ in range(data.draw(st.integers(2, 5))):
        factor = data.draw(st.integers(1, 4))
        size = size * factor if size * factor <= 30 and data.draw(st.booleans()) else size
        size = size // factor if size % factor == 0 and data.draw(st.booleans()) else size
        world = data.draw(st.sampled_from([world for world in range(1, size + 1) if size % world == 0][:4]))
        options = {"seed": seed, "shuffle": shuffle, "prefetch": data.draw(st.integers(0, 2))}
        batches, state = taken(view, state, world, data.draw(st.integers(0, 6)), global_batch_size=size, **options)
        assert all(len(batch) == size for batch in batches)
        found += chain.from_iterable(batches)
        assert state["samples"] == len(found)
    assert found == list(islice(samples(30, seed, shuffle), len(found)))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_passes_go_on_too(view, data):
    """With epochs: stopped anywhere, the rest of the pass comes, then the next one; each row once an epoch."""
    size, epochs = data.draw(st.sampled_from([1, 4, 7, 8, 30])), data.draw(st.integers(1, 2))
    drop_last = data.draw(st.booleans())
    right = list(chain.from_iterable(islice(passes(30, size, epochs, drop_last), 3)))
    found, state, options = [], None, {"global_batch_size": size, "epochs": epochs, "drop_last": drop_last}
    while len(found) < len(right):
        world = data.draw(st.sampled_from([world for world in (1, 2, 4, 7) if size % world == 0]))
        batches, state = taken(view, state, world, data.draw(st.integers(1, 40)), **options)
        assert batches  # a `for` that gives nothing would be a run that stands still
        found += batches
    assert found == right[: len(found)] + found[len(right) :]
    assert tm.load(view, **options).state_dict()["samples"] == 0


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("ended", [True, False], ids=["after the loop", "after the last batch"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_at_the_end_of_a_pass_the_next_one_comes(view, drop_last, ended, world):
    options = {"global_batch_size": 8, "epochs": 1, "drop_last": drop_last}
    first, second, third = islice(passes(30, 8, 1, drop_last), 3)
    steps = len(first) + (1 if ended else 0)  # one more than there is: the loop comes to its end
    found, state = taken(view, None, 2, steps, **options)
    assert found == first
    assert taken(view, state, world, 99, **options)[0] == second
    twice = taken(view, taken(view, state, 4, steps, **options)[1], world, 99, **options)[0]
    assert twice == third


def test_a_state_of_an_earlier_version_after_a_pass(view):
    """It does not count the rest of the pass that was dropped."""
    loader = tm.load(view, 4)
    loader.load_state_dict({**loader.state_dict(), "samples": 28})
    assert [row_numbers(batch) for batch in loader] == list(islice(passes(30, 4, 1, True), 2))[1]
    assert loader.state_dict()["samples"] == 60


@pytest.mark.parametrize(
    ("size", "steps", "then"), [(4, 3, 8), (4, 3, 12), (4, 7, 2), (6, 3, 2), (2, 1, 10), (9, 1, 3)]
)
def test_batches_of_another_size_go_on_at_the_next_sample(view, size, steps, then):
    """Also where what was seen is no whole number of the new batches."""
    sequence = list(islice(samples(30), 300))
    _, state = taken(view, None, 1, steps, global_batch_size=size)
    found, state = taken(view, state, 2 if then % 2 == 0 else 1, 10, global_batch_size=then)
    seen = size * steps
    assert found == [sequence[seen + k * then : seen + (k + 1) * then] for k in range(10)]
    back, _ = taken(view, state, 1, 4, global_batch_size=size)
    assert list(chain.from_iterable(back)) == sequence[seen + 10 * then :][: 4 * size]


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_pass_goes_on_with_batches_of_another_size(view, drop_last):
    """30 rows: 3 batches of 4, then of 8: 12 to 20, 20 to 28, and the rest of 2."""
    sequence = list(islice(samples(30), 90))
    options = {"epochs": 1, "drop_last": drop_last}
    _, state = taken(view, None, 1, 3, global_batch_size=4, **options)
    found, state = taken(view, state, 2, 99, global_batch_size=8, **options)
    assert found == [sequence[12:20], sequence[20:28], *([] if drop_last else [sequence[28:30]])]
    assert taken(view, state, 1, 1, global_batch_size=4, **options)[0] == [sequence[30:34]]


def test_a_pass_with_less_than_a_larger_batch_left_goes_on_with_the_next(view):
    sequence = list(islice(samples(30), 90))
    _, state = taken(view, None, 1, 6, global_batch_size=4, epochs=1)
    loader = tm.load(view, 12, epochs=1)
    loader.load_state_dict(state)  # 24 of 30 seen: no batch of 12 is left
    assert [row_numbers(batch) for batch in loader] == [sequence[30:42], sequence[42:54]]
    assert [row_numbers(batch) for batch in loader] == [sequence[60:72], sequence[72:84]]


def test_a_state_that_is_loaded_twice_or_after_batches_counts_from_the_state(view):
    sequence = list(islice(samples(30), 90))
    loader = tm.load(view, 5, epochs="endless")
    states = []
    for _ in islice(loader, 9):
        states.append(loader.state_dict())
    for at in (0, 7, 3, 3):
        loader.load_state_dict(states[at])
        assert loader.step == at + 1
        assert row_numbers(next(iter(loader))) == sequence[5 * (at + 1) : 5 * (at + 2)]
        assert loader.state_dict()["samples"] == 5 * (at + 2)


# --- processes that are killed --------------------------------------------------------------------------------------------

TRAINING = """
import hashlib, json, os, sys
import numpy as np

sys.modules["torch"] = None  # it would take longer to import than all the rest; batches are the same
import tokenmill as tm

folder, world, state, log = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
view = tm.pack(folder, 9, strategy="best_fit", mask_labels=("padding", "first"))
loaders = [tm.load(view, global_batch_size=12, seed=8, rank=rank, world_size=world, epochs="endless") for rank in range(world)]
if os.path.exists(state):
    for loader in loaders:
        loader.load_state_dict(json.load(open(state)))
out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for parts in zip(*loaders):
    digest = hashlib.sha256()
    for name in sorted(parts[0]):
        digest.update(name.encode() + np.concatenate([part[name] for part in parts]).tobytes())
    os.write(out, f"{loaders[0].step - 1} {digest.hexdigest()}\\n".encode())
    with open(state + ".new", "w") as beside:
        json.dump(loaders[-1].state_dict(), beside)
    os.replace(state + ".new", state)
    print(loaders[0].step, flush=True)
"""


def test_three_kills_on_changing_ranks_change_no_batch(tmp_path):
    """Killed at any moment; what was logged but not yet saved comes once more, and must be the same."""
    lengths = np.random.default_rng(1).integers(0, 20, 200).tolist()
    folder = write_store(tmp_path / "store", spread(numbered(lengths), [50, 120]))
    view = tm.pack(folder, 9, strategy="best_fit", mask_labels=("padding", "first"))
    state, log = tmp_path / "state.json", tmp_path / "log"
    reached = 0
    for world, steps in ((1, 7), (4, 20), (3, 31), (12, 10)):
        run = [sys.executable, "-c", TRAINING, str(folder), str(world), str(state), str(log)]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
            try:
                told = [int(next(process.stdout)) for _ in range(steps)]
            finally:
                process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert told == list(range(reached + 1, reached + 1 + steps))  # it went on, and did not begin anew
        reached = json.loads(state.read_text())["samples"] // 12
    logged = [(int(step), digest) for step, digest in map(str.split, log.read_text().splitlines())]
    assert {step for step, _ in logged} == set(range(reached)) | {step for step, _ in logged[-1:]}
    assert reached * 12 > 2 * len(view)  # over more than two epochs
    alone = tm.load(view, 12, seed=8, prefetch=0, epochs="endless")
    right = {step: digest_of(alone.batch(step)) for step, _ in logged}
    assert len(set(right.values())) == len(right)
    assert [(step, digest) for step, digest in logged if right[step] != digest] == []


def digest_of(batch):
    digest = hashlib.sha256()
    for name in sorted(batch):
        digest.update(name.encode() + np.asarray(batch[name]).tobytes())
    return digest.hexdigest()
