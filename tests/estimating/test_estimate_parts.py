"""Estimates of corpora of which some cannot be read, and of documents that are read in part."""

from __future__ import annotations

import gzip
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.estimating import totals
from tokenmill.estimating.result import estimate_table
from tokenmill.estimating.totals import EncodedSample

# No sample of these tests is cut short by a slow machine, and no engine is tried.
OPTIONS = {"seconds": 120.0, "engine": "reference"}
EOS = "<|endoftext|>"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Documents of some 100 to 300 words."""
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghij", k=chance.randrange(2, 9))) for _ in range(500)]
    return [" ".join(chance.choices(words, k=chance.randrange(100, 300))) for _ in range(400)]


# Files that fail.


def write_tables(folder, texts, names):
    """A parquet file per name of its column; the name None makes a file that is cut short."""
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(names):
        path = folder / f"{i:02}.parquet"
        pq.write_table(pa.table({name or "text": texts}), path, row_group_size=50)
        if name is None:
            path.write_bytes(path.read_bytes()[:-100])


def test_files_that_fail_count_for_nothing(tmp_path, texts, tokenizer_path):
    """As if they were not there, except for the warning and the number of them."""
    write_tables(tmp_path / "all", texts[:200], ["text", "text", "text", "body", None])
    write_tables(tmp_path / "good", texts[:200], ["text", "text", "text"])
    found = tm.estimate(tmp_path / "all", tokenizer_path, sample="200kB", **OPTIONS)
    good = tm.estimate(tmp_path / "good", tokenizer_path, sample="200kB", **OPTIONS)
    assert not found.exact
    assert found.documents == good.documents == 600
    assert found.tokens == pytest.approx(good.tokens, rel=0.05)
    assert found.high - found.low < 3 * (good.high - good.low)
    assert (found.files, found.failed_files) == (5, 2)
    assert [warning.count for warning in found.warnings if warning.kind == "unreadable"] == [2]
    assert re.search(r"^source .* in 5 files, of which about 2 cannot be read$", estimate_table(found), re.M)


def test_files_that_fail_among_many(tmp_path, texts, tokenizer_path, monkeypatch):
    """Those that were not opened fail as often."""
    monkeypatch.setattr("tokenmill.estimating.survey.MOST_FILES", 16)
    write_tables(tmp_path / "all", texts[:50], ["text", "body"] * 20)
    found = tm.estimate(tmp_path / "all", tokenizer_path, sample="300kB", **OPTIONS)
    assert found.sampled_files <= 16
    assert found.documents == pytest.approx(1000, rel=0.4)
    assert found.failed_files == pytest.approx(20, abs=8)
    assert found.low < 1000 * found.tokens_per_document < found.high


# Documents that are read in part.


@pytest.fixture
def small_parts(monkeypatch):
    """Documents are long from 64 kB on, are encoded up to 16 kB, and separators are looked for in files that are longer."""
    monkeypatch.setattr("tokenmill.estimating.separated.PLACE_BYTES", 64 << 10)
    monkeypatch.setattr("tokenmill.reading.formats.text.LONG_TEXT", 64 << 10)
    monkeypatch.setattr(totals, "MOST_ENCODED", 16 << 10)


@pytest.fixture(scope="module")
def long_text(texts, reference) -> tuple[str, int]:
    """A text of 300 kB, and its tokens."""
    text = "\n".join(texts)[:300_000] + " end"
    return text, len(reference.encode(text, add_special_tokens=False).ids) + 1


@pytest.mark.parametrize("separator", ["<|never|>", "---"])
@pytest.mark.parametrize("sample", ["4MB", "100kB"])
def test_a_separator_that_never_occurs(small_parts, tmp_path, long_text, tokenizer_path, separator, sample):
    """The text is one document, also to an estimate."""
    path = tmp_path / "all.txt"
    path.write_text(long_text[0])
    options = {**OPTIONS, "format": "text", "separator": separator}
    found = tm.estimate(path, tokenizer_path, sample=sample, **options)
    assert found.documents == 1
    assert found.tokens == pytest.approx(long_text[1], rel=0.05)
    assert found.seconds < 60
    assert "median" not in estimate_table(found)
    (warning,) = found.warnings
    assert warning.kind == "one document"
    assert f"all.txt has no '{separator}': it is read as one document" in warning.what


def test_a_compressed_text_without_the_separator(tmp_path, texts, tokenizer_path):
    (tmp_path / "all.txt.gz").write_bytes(gzip.compress("\n".join(texts * 10).encode()[:3_000_000], 1))
    found = tm.estimate(tmp_path, tokenizer_path, sample="500kB", **OPTIONS, separator="<|never|>")
    assert found.documents == 1
    assert found.text_bytes == pytest.approx(3_000_000, rel=0.1)


def test_a_call_with_little_text_does_not_decide_the_speed(tokenizer_path):
    """The end of a long document may be a few bytes, for which the call itself takes the time."""
    sample = EncodedSample(tm.load_tokenizer(tokenizer_path, "reference"), (None, None))
    sample.calls = [(4_000_000, 2.0), (10, 0.001)]
    assert sample.seconds_per_byte == pytest.approx(0.5e-6, rel=0.01)


def test_documents_that_are_encoded_in_part_are_no_quantiles(small_parts, tmp_path, texts, tokenizer_path, reference):
    """Neither their parts nor their ends are documents. Quantiles below them are those of the others."""
    short, long = texts[:60], ["\n".join(texts[:60])] * 6
    path = tmp_path / "all.txt"
    path.write_text("<|end|>".join([*short, *long]))
    found = tm.estimate(path, tokenizer_path, **OPTIONS, format="text", separator="<|end|>")
    lengths = sorted(len(one.ids) + 1 for one in reference.encode_batch(short, add_special_tokens=False))
    assert found.documents == 66
    assert found.quantiles[0.5] == lengths[32]
    assert 0.95 not in found.quantiles
    assert "p95" not in estimate_table(found)
    assert set(found.as_dict()["quantiles"]) == {"p5", "p25", "p50", "p75"}


def test_quantiles_of_texts_that_are_a_document_each(tmp_path, long_text, tokenizer_path):
    """Passages of them are read; their lengths follow from their sizes."""
    (tmp_path / "a.txt").write_text(long_text[0])
    (tmp_path / "b.txt").write_text(long_text[0] * 2)
    found = tm.estimate(tmp_path, tokenizer_path, sample="100kB", **OPTIONS)
    assert found.quantiles[0.05] == found.quantiles[0.5] == pytest.approx(found.tokens / 3, rel=0.001)
    assert found.quantiles[0.75] == found.quantiles[0.99] == pytest.approx(found.tokens * 2 / 3, rel=0.001)


# What is said.


def test_the_first_use_of_a_tokenizer_is_announced(tmp_path, texts, tokenizer_path, monkeypatch, capsys):
    """As a build does."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tokenmill.building.terminal.PROOF_SECONDS", 0.0)
    monkeypatch.setattr("tokenmill.encoding.selection.suite.texts", lambda definition: suite_texts(definition, 200))
    monkeypatch.setattr(
        "tokenmill.encoding.selection.choosing.reference_rate", lambda definition: 100
    )  # bytes per second
    monkeypatch.setattr("tokenmill.building.terminal.PROOF_SECONDS", 0.0)  # shorter ones are not worth a line
    (tmp_path / "a.txt").write_text("\n".join(texts[:10]))
    command = ["estimate", str(tmp_path / "a.txt"), "-t", str(tokenizer_path)]
    for times in (1, 0):
        assert main(command) == 0
        assert capsys.readouterr().err.count("comparing the fast engine with its reference") == times


def test_a_text_to_be_split_needs_no_other_eos(tmp_path, texts, tokenizer_path, monkeypatch):
    """Its separators are taken out, and each document gets an eos."""
    monkeypatch.setattr("tokenmill.reading.separators.LARGE", 64 << 10)
    (tmp_path / "a.txt").write_text("".join(f"{text}\n{EOS}\n" for text in texts[:100]))
    found = tm.estimate(tmp_path, tokenizer_path, **OPTIONS)
    (warning,) = [warning for warning in found.warnings if "--separator" in warning.remedy]
    assert f"--separator '{EOS}'" in warning.remedy
    assert not [warning for warning in found.warnings if "--eos" in warning.remedy]
