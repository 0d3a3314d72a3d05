"""The benchmark of the cache, on small sizes: what it writes and what it prints."""

from __future__ import annotations

import pytest
from benchmarks.cache import cache_table, measure_cache


@pytest.mark.stress
def test_figures(tmp_path, tokenizer_path):
    quick = {"torch": False, "engine": "reference", "kinds": ("paths",)}
    sizes = {"size": 400_000, "rounds": 1, "files": 4, "many": 30, "sample": 50_000}
    result = measure_cache(tmp_path, [], str(tokenizer_path), **sizes, **quick)
    figures = {bar["what"]: bar for bar in result["bars"]}
    runs = {run["what"]: run for run in result["runs"]}
    assert result["text_bytes"] >= 400_000
    assert 0 < result["sample_bytes"] < result["text_bytes"]

    scaled = runs["tokenizers.encode_batch, the sample"]["seconds"] * result["text_bytes"] / result["sample_bytes"]
    assert runs["tokenizers.encode_batch, scaled to the text"]["seconds"] == pytest.approx(scaled)
    first = figures["tokenizers.encode_batch of the text / first batch from the cache, numpy"]
    assert first["measured"] == pytest.approx(scaled / runs["first batch, numpy"]["first_line"])
    assert first["met"] == (first["measured"] >= 50)

    whole, again, changed = (runs[name]["cpu"] for name in ("first build", "up to date", "one file changed"))
    assert figures["CPU after one file of 4 changed / first build"]["measured"] == pytest.approx(changed / whole)
    beside = figures["CPU after one file of 4 changed / (1/4 of it + up to date)"]["measured"]
    assert beside == pytest.approx(changed / (whole / 4 + again))
    (new,) = [bar for what, bar in figures.items() if what.startswith("new shards")]
    assert new["measured"] == 1  # of one file, one shard

    share = figures["CPU of hashing / CPU of a first build, clocked in it"]["measured"]
    assert 0 < share < 100  # something was hashed, and that was not all
    built = [runs[f"first build inside one process, {how}"]["cpu"] for how in ("hashed", "not hashed")]
    ratio = figures["CPU of a first build / the same with nothing hashed"]["measured"]
    assert ratio == pytest.approx(built[0] / built[1])

    run, bar = runs["30 files, by paths"], figures["check of 30 files, by paths / os.stat of each"]
    assert bar["measured"] == pytest.approx((run["read"] + run["build"]) / run["stat"])
    assert bar["met"] == (bar["measured"] <= 5)
    assert run["process"] > run["read"] + run["build"]

    table = cache_table(result)
    assert all(what in table for what in [*figures, *runs])
    assert not list(tmp_path.iterdir())  # the text and the stores are large: none is left
