"""The benchmark of JSON parsers, on little text: every method gives the same texts, and has its figures."""

from __future__ import annotations

from benchmarks.parsing import ARROW, OURS, measure_parsing, parsing_table


def test_figures(tmp_path):
    corpus = tmp_path / "words.txt"
    corpus.write_text('some "words" of text to measure with,\tand é or 中 and 🎉 too\n' * 500, "utf-8")
    result = measure_parsing(tmp_path, [str(corpus)], 20_000, 1)
    assert result["notes"] == []
    assert len(result["bars"]) == 6
    assert all({OURS, ARROW} <= run.keys() for run in result["runs"].values())
    assert all(run[OURS] > 0 for what, run in result["runs"].items() if what.endswith("MB/s"))
    assert "CPU of tokenmill / Arrow alone, lines in UTF-8" in parsing_table(result)
