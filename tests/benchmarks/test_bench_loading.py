"""The benchmark of loading, on small sizes: what it writes and what it prints."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.loading import loading_table, measure_loading
from benchmarks.synthetic import write_receipts, write_store

import tokenmill as tm


def test_the_receipts_are_those_of_the_files(tmp_path):
    store = tmp_path / "store"
    write_store(store, [np.array([3, 3_000_000, 5]), np.array([2, 7])], tmp_path / "plain.npy")  # 6 MB: two blocks
    write_receipts(store)
    assert tm.open(store).verify() == []
    with open(store / "shards" / "000000.npy", "r+b") as ids:
        ids.seek(5_000_000)
        ids.write(b"\xff\xff")
    (damage,) = tm.open(store).verify()
    assert damage.shard == "000000"


@pytest.mark.stress
def test_figures(tmp_path):
    result = measure_loading(tmp_path, 1, torch=False, read=10**6, tokens=10**8, seconds=0.01, warm_up=0.0, epochs=1)
    figures = {bar["what"]: bar for bar in result["bars"]}
    for fields in ("ids", "ids and labels", "all four fields"):
        ours = [run["pace"] for run in result["runs"] if run["what"].startswith(f"load, {fields}, prefetch")]
        (numpy,) = [run["pace"] for run in result["runs"] if run["what"].startswith("numpy")]
        assert len(ours) == 2
        assert figures[f"pace of load, {fields}, / numpy, ids"]["measured"] == pytest.approx(max(ours) / numpy)
    (four, ids) = [run for run in result["runs"] if "checked" in run]
    assert (four["what"], ids["what"]) == ("an epoch, all four fields", "an epoch, ids")
    cost = figures["cost of verify=first-touch, all four fields"]
    assert cost["measured"] == pytest.approx((four["checked"] / four["plain"] - 1) * 100)
    assert cost["met"] == (cost["measured"] <= 5)
    resumed = [run for run in result["runs"] if "steps" in run]
    assert len(resumed) == 2
    for run in resumed:
        what = run["what"].removesuffix(", numpy")
        assert figures[f"load and a batch: {what}"]["measured"] == run["steps"]["load"] + run["steps"]["batch"]
        assert 10 < figures[f"peak memory, without torch: {what}"]["measured"] < 1000
    table = loading_table(result)
    assert all(bar["what"] in table for bar in result["bars"])
    assert all(run["what"] in table for run in result["runs"])
    assert not list(tmp_path.iterdir())  # the stores are large: none is left
