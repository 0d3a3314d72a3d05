"""The benchmark of exports and imports, on few tokens: every format has its figures."""

from __future__ import annotations

from benchmarks.exchange import exchange_table, measure_exchange

from tokenmill.exchange.registry import FORMATS


def test_figures(tmp_path):
    result = measure_exchange(tmp_path, 100_000, 1, None)
    names = [name for name, format in FORMATS.items() if "documents" in format.takes]
    assert set(result["runs"]) == {"cp", *(f"{way} {name}" for way in ("export", "import") for name in names)}
    assert all(run["mb_per_second"] > 0 for run in result["runs"].values())
    assert [bar["bar"] for bar in result["bars"]].count(">= 0.5") == 6
    assert "export megatron / cp" in exchange_table(result)
