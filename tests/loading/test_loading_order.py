"""Which row comes when: a permutation for any number of rows, frozen, and as good as a shuffle has to be for training."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.loading.order import BLOCK, Order, shuffled

SEEDS = st.integers(0, 2**63 - 1)


def epoch_of(count, seed=0, epoch=0):
    return shuffled(np.arange(count), count, seed, epoch)


def is_permutation(rows, count):
    return len(rows) == count and np.array_equal(np.bincount(rows, minlength=count), np.ones(count))


def place_by_place(start, stop, count, seed, shuffle=True):
    """The endless sequence, each place on its own."""
    if not shuffle:
        return [place % count for place in range(start, stop)]
    return [int(shuffled(np.array([p % count]), count, seed, p // count)[0]) for p in range(start, stop)]


# --- a permutation --------------------------------------------------------------------------------------------------------


def test_every_row_once_for_every_small_count():
    for count in range(1, 301):
        for epoch in range(3):
            assert is_permutation(epoch_of(count, seed=count % 7, epoch=epoch), count), (count, epoch)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 5000), seed=SEEDS, epoch=st.integers(0, 2**40))
def test_every_row_once(count, seed, epoch):
    assert is_permutation(epoch_of(count, seed, epoch), count)


@pytest.mark.parametrize("count", [2**16 - 1, 2**16, 2**16 + 1, 10**6 + 3, 2**20 + 1])
def test_every_row_once_for_large_counts(count):
    assert is_permutation(epoch_of(count, seed=1, epoch=2), count)


@pytest.mark.parametrize("count", [2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**40 + 1, 2**53 + 1, 2**62 + 1])
def test_windows_of_counts_that_no_array_could_hold(count):
    """Nothing outside, nothing twice, spread over all of it, and the same for a place alone as in a window."""
    size = 4000
    starts = [0, size, count // 3, count // 2 - size // 2, count - 2 * size, count - size]
    places = np.concatenate([np.arange(start, start + size) for start in starts])
    rows = shuffled(places, count, 5, 7)
    assert rows.min() >= 0
    assert rows.max() < count
    assert len(np.unique(rows)) == len(places)
    assert np.bincount(rows // (count // 16 + 1), minlength=16).min() > len(places) / 16 * 0.85
    for at in (0, size - 1, 3 * size, len(places) - 1):
        assert shuffled(places[at : at + 1], count, 5, 7)[0] == rows[at]


# --- frozen: runs are resumed by it ---------------------------------------------------------------------------------------

GOLDEN = {
    (1, 0, 0): ([0], "af5570f5a1810b7a"),
    (2, 1, 0): ([1, 0], "4cbbd8ca5215b8d1"),
    (7, 0, 0): ([4, 1, 6], "7e0d985dcd4c9e1a"),
    (7, 0, 1): ([5, 0, 2], "637ae31dcb2fe277"),
    (7, 1, 0): ([5, 3, 2], "929b57cfa39a10b2"),
    (100, 0, 0): ([47, 4, 9], "85194a1c6689bd29"),
    (1_000, 42, 3): ([641, 830, 834], "6564a4723526fa53"),
    (8_192, 0, 0): ([2_769, 647, 7_948], "f96a2f39b2474634"),
    (65_537, 7, 1): ([17_696, 44_419, 31_112], "a56b212810de29db"),
    (10**6, 2**63 - 1, 10**6): ([788_744, 532_137, 363_189], "1cb91a74c74add72"),
    (2**32 - 1, 0, 0): ([2_336_707_061, 2_515_412_031, 2_932_141_300], "9c69210aa66faaea"),
    (2**32, 0, 0): ([2_248_204_558, 66_760_927, 2_579_925_532], "43ce32de0e503a41"),
    (2**32 + 1, 1, 2): ([1_831_195_349, 2_906_919_346, 3_138_881_783], "17b47ca7e55fd48f"),
    (10**12, 0, 0): ([49_409_102_645, 963_315_802_010, 300_375_536_063], "0a634f8cbad9f4a4"),
    (10**12, 123, 45): ([926_828_293_323, 174_144_472_933, 427_862_058_664], "09905007585b4143"),
    (2**53 + 1, 2**40, 2**33): ([1_937_958_269_823_720, 1_674_533_153_352_808, 4_966_751_708_900_625], "1f0d1cc33309d4a0"),
    (2**62 + 3, 5, 6): ([3_472_908_365_905_977_490, 1_894_992_981_859_622_389, 575_720_252_143_281_907], "af594767f9b799bb"),
}  # fmt: skip


@pytest.mark.parametrize(("count", "seed", "epoch"), GOLDEN)
def test_the_order_is_frozen(count, seed, epoch):
    """Should this fail, the order has changed: states saved before would go on with other rows."""
    first, hashed = GOLDEN[count, seed, epoch]
    size = min(count, 1000)
    places = np.array([i * count // size for i in range(size)])
    rows = shuffled(places, count, seed, epoch)
    assert rows[:3].tolist() == first
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == hashed


# --- quality --------------------------------------------------------------------------------------------------------------


def far_from_even(table):
    """Chi-square of a table of counts against all cells alike, in standard deviations."""
    expected = table.sum() / table.size
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1) if table.ndim == 2 else table.size - 1
    return (((table - expected) ** 2).sum() / expected - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 16, 33])
@pytest.mark.parametrize("varied", ["seed", "epoch"])
def test_each_row_is_as_likely_at_each_place(count, varied):
    table = np.zeros((count, count))
    for number in range(2000):
        table[np.arange(count), epoch_of(count, **{varied: number})] += 1
    assert abs(far_from_even(table)) < 6


@pytest.mark.parametrize(("count", "orders"), [(2, 2), (3, 6), (4, 24)])
def test_each_order_of_a_few_rows_is_as_likely(count, orders):
    found = Counter(tuple(epoch_of(count, seed).tolist()) for seed in range(3000))
    assert len(found) == orders
    assert abs(far_from_even(np.array(list(found.values())))) < 6


@pytest.mark.parametrize("count", [4096, 10_000])
def test_epochs_and_seeds_have_nothing_to_do_with_each_other(count):
    pairs = [((0, e), (0, e + 1)) for e in range(10)] + [((s, 0), (s + 1, 0)) for s in range(10)] + [((1, 0), (0, 1))]
    for one, other in pairs:
        a, b = epoch_of(count, *one), epoch_of(count, *other)
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / count**0.5, (one, other)
        assert (a == b).sum() < 12, (one, other)  # one is expected
        table, _, _ = np.histogram2d(a, b, bins=16)
        assert abs(far_from_even(table)) < 6, (one, other)


@pytest.mark.parametrize("count", [4096, 5000, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_scattered(count, seed):
    rows = epoch_of(count, seed)
    chance = np.random.default_rng(seed).permutation(count)
    for lag in (1, 2, 4, 64, 1024):
        assert abs(np.corrcoef(rows[:-lag], rows[lag:])[0, 1]) < 6 / count**0.5
        gaps = rows[lag:] - rows[:-lag]
        assert abs(np.abs(gaps).mean() / (count / 3) - 1) < 0.05
        # No gap comes much more often than it would by chance: whoever learns one pair learns nothing of the next.
        assert Counter(gaps.tolist()).most_common(1)[0][1] <= 12
        assert len(np.unique(gaps)) > 0.9 * len(np.unique(chance[lag:] - chance[:-lag]))
    for low, high in ((0, 256), (count // 2, count // 2 + 256)):  # a batch sees all of the data
        assert np.bincount(rows[low:high] * 8 // count, minlength=8).min() >= 12


@pytest.mark.parametrize("count", [2**14, 16_000])
def test_low_bits_of_places_tell_nothing_of_low_bits_of_rows(count):
    for seed in range(10):
        rows = epoch_of(count, seed)
        for cycle in (2, 4, 8, 32):
            table = np.zeros((cycle, cycle))
            np.add.at(table, (np.arange(count) % cycle, rows % cycle), 1)
            assert far_from_even(table) < 6, (seed, cycle)


def test_each_of_seed_epoch_and_count_makes_another_order():
    orders = [epoch_of(100, s, e).tolist() for s in range(10) for e in range(10)]
    orders += [epoch_of(100, seed).tolist() for seed in (2**32, 2**32 + 1, 2**62, 2**63 - 1)]
    orders += [[row for row in epoch_of(101, s).tolist() if row < 100] for s in range(5)]
    assert len({tuple(order) for order in orders}) == len(orders)


# --- the endless sequence -------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(data=st.data(), count=st.integers(1, 40), seed=SEEDS, shuffle=st.booleans())
def test_rows_over_the_ends_of_epochs_are_those_of_each_place(data, count, seed, shuffle):
    order = Order(count, seed, shuffle=shuffle)  # one for all spans: what it keeps must not show
    for _ in range(4):
        start = data.draw(st.integers(0, 300))
        stop = start + data.draw(st.integers(0, 100))
        assert order.rows(start, stop).tolist() == place_by_place(start, stop, count, seed, shuffle)


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 100])
@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_over_the_borders_of_blocks_are_those_of_each_place(count, shuffle):
    order = Order(count, 3, shuffle=shuffle)
    spans = [(border - 20, border + 20) for epoch in (0, 1, 5, 2**33) for border in (
        epoch * count + BLOCK, (epoch + 1) * count, epoch * count + count // 2)]  # fmt: skip
    for start, stop in [*spans, *reversed(spans)]:
        assert order.rows(start, stop).tolist() == place_by_place(start, stop, count, 3, shuffle)
    whole = order.rows(0, 2 * count)
    assert is_permutation(whole[:count], count)
    assert is_permutation(whole[count:], count)
    assert np.array_equal(whole[:count], epoch_of(count, 3) if shuffle else np.arange(count))


def test_without_shuffling_rows_come_in_their_order():
    assert Order(7, 9, shuffle=False).rows(5, 16).tolist() == [5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1]
