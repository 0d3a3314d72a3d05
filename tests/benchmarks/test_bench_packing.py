"""The benchmark of packing, on small sizes: what it writes and what it prints."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.packing import measure_packing, packing_table
from benchmarks.synthetic import write_store

import tokenmill as tm


def test_the_store_holds_the_lengths_and_the_plain_file_its_tokens(tmp_path):
    shards = [np.array([3, 1, 5]), np.array([2, 7])]
    write_store(tmp_path / "store", shards, tmp_path / "plain.npy")
    store = tm.open(tmp_path / "store")
    assert store.lengths.tolist() == [3, 1, 5, 2, 7]
    assert np.concatenate(list(store)).tolist() == np.load(tmp_path / "plain.npy").tolist()


def test_a_store_without_ids_takes_no_room(tmp_path):
    write_store(tmp_path / "store", [np.array([10**9, 5])])
    (ids,) = (tmp_path / "store" / "shards").glob("*0.npy")
    assert ids.stat().st_size > 2 * 10**9
    assert ids.stat().st_blocks * 512 < 10**6
    assert tm.open(tmp_path / "store")[1].tolist() == [0] * 5


@pytest.mark.stress
def test_figures(tmp_path):
    result = measure_packing(tmp_path, 3000, 1, tokens=10**7, row_tokens=10**6, turns=10)
    figures = {bar["what"]: bar for bar in result["bars"]}
    assert figures["tokens lost by best_fit, 3,000 documents"]["measured"] == 0
    assert figures["tokens lost by best_fit, 3,000 documents"]["met"]
    assert sum(what.startswith("open, view and a row") for what in figures) == 4
    assert sum("speed / numpy" in what for what in figures) == 6
    assert all(bar["measured"] > 0 for what, bar in figures.items() if "lost" not in what)
    plan = result["runs"][0]
    assert 0.9 < plan["fill"] <= 1
    table = packing_table(result)
    assert all(what in table for what in figures)
    assert not list(tmp_path.iterdir())  # the stores are large: none is left
