"""Fields of csv that are separated by other characters than commas: by the header, or by the option."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import UsageError
from tokenmill.reading.cutting import field_mark
from tokenmill.reading.files import Source

ROWS = [("1", "hello, you"), ("2", 'a;b|c\t"d"\nnext line'), ("3", ""), ("4", "last")]
TEXTS = [text for _, text in ROWS]


def written(mark: str, *header: str, quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=mark, lineterminator="\n", quoting=quoting)
    writer.writerows([header or ("id", "text"), *ROWS])
    return out.getvalue().encode()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def built(name: str, **options: object) -> list[str]:
    store = tm.build(name, "bytes", "store", progress=False, eos="none", **{"force": True, **options})
    return [store.text(number) for number in range(len(store))]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_is_found_and_said(mark, quoting):
    Path("a.csv").write_bytes(b"\xef\xbb\xbf" + written(mark, quoting=quoting))
    with pytest.warns(UserWarning, match=r"a\.csv: by its header, .* is between fields; pass --delimiter") as said:
        assert built("a.csv") == TEXTS
    assert f"(delimiter={mark!r})" in str(said[0].message)
    found = tm.open("store").fingerprint
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built("a.csv", delimiter=mark) == TEXTS
    assert tm.open("store").fingerprint == found
    with pytest.warns(UserWarning, match="by its header"):
        assert tm.estimate("a.csv", "bytes").documents == len(TEXTS)


@pytest.mark.parametrize("mark", [",", "^", "~", " ", "e", "\x01"])
def test_any_character_can_be_the_delimiter(mark):
    Path("a.csv.gz").write_bytes(gzip.compress(written(mark, "n", "x")))
    assert built("a.csv.gz", delimiter=mark, text_field="x") == TEXTS
    Path("a.tsv").write_bytes(written(mark, "n", "x"))
    assert built("a.tsv", delimiter=mark, text_field="x") == TEXTS


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("text\nsome; words | here\n", {}),
        ('"title; x","text"\n"a",some; words | here\n', {}),
        ("a;b,text\nx,some; words | here\n", {}),
        ("a;b;text\nsome; words | here\n", {"text_field": "a;b;text"}),
        ("b|text,text\nx,some; words | here\n", {}),
    ],
)
def test_what_commas_separate_is_read_as_before(data, options):
    Path("a.csv").write_text(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built("a.csv", **options) == ["some; words | here"]


def test_a_row_that_is_not_whole_is_read_with_the_same_delimiter():
    """The careful path, after Arrow gave up."""
    Path("a.csv").write_text("id;text\n1;good, one\n2;too;many\n3;last\n")
    with pytest.warns(UserWarning, match="1 of 3 documents"):
        assert built("a.csv", delimiter=";") == ["good, one", "last"]
    [entry] = tm.open("store").quarantine()
    assert (entry["row"], entry["detail"]) == (1, "3 fields where the header has 2")


def test_a_missing_column_is_told_with_those_there_are():
    Path("a.csv").write_text("id;body\n1;x\n")
    with pytest.raises(UsageError, match="no column 'text'; it has id, body"):
        built("a.csv")
    Path("a.csv").write_text("id,b|c|d\n1,x\n")
    with pytest.raises(UsageError, match=r"no column 'text'; it has id, b\|c\|d"):
        built("a.csv")


@pytest.mark.parametrize("options", [[], ["--delimiter", r"\t"]])
def test_standard_input_is_cut_between_rows(monkeypatch, capsys, options):
    class Stdin:
        buffer = io.BytesIO(written("\t") + b"".join(b"%d\ttext %d\n" % (i, i) for i in range(500)))

    monkeypatch.setattr(sys, "stdin", Stdin)
    command = ["build", "-", "-t", "bytes", "--format", "csv", "-o", "store", "--eos", "none", "--shard-bytes"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*command, "1KiB", *options]) == 0
    assert ("warning: <stdin>: by its header, '\\t' is between" in capsys.readouterr().err) == (not options)
    store = tm.open("store")
    assert [store.text(number) for number in range(len(store))] == TEXTS + [f"text {i}" for i in range(500)]
    assert store.num_shards > 2


@pytest.mark.filterwarnings("ignore:.*by its header")
def test_recipes_and_rows_have_it(tmp_path):
    Path("a.csv").write_bytes(written("^"))
    recipe = {
        "sources": {"a": {"path": "a.csv", "delimiter": "^"}},
        "tokenizer": "bytes",
        "build": {"out": str(tmp_path / "out"), "progress": False},
        "pack": {"seq_len": 8},
    }
    assert tm.recipe(recipe).stores()["a"].text(3) == "last"
    with pytest.raises(UsageError, match=r"sources.a.delimiter: 5 is not text"):
        tm.recipe(recipe, set={"sources.a.delimiter": 5})


@pytest.mark.parametrize("delimiter", [";", None])
def test_a_quarantined_row_is_shown_and_a_store_repaired(delimiter, recwarn):
    from tokenmill.building.source_text import source_row

    Path("a.csv").write_text('id;text\n1;"x;\ny"\n2;too;many\n3;last\n')
    built("a.csv", delimiter=delimiter)
    store = tm.open("store")
    assert source_row(store, str(Path("a.csv").absolute()), 1).text == "2;too;many"
    before = store.fingerprint
    ids = next(path for path in Path("store/shards").glob("*.npy") if "ends" not in path.name)
    ids.write_bytes(ids.read_bytes()[:-1])
    assert main(["verify", "store", "--repair"]) == 0
    assert tm.open("store").fingerprint == before


@pytest.mark.parametrize(
    ("delimiter", "says"), [(";;", "one character"), ("é", "one character"), ('"', "one"), ("\n", "one")]
)
def test_what_cannot_be_a_delimiter_is_refused(delimiter, says):
    with pytest.raises(UsageError, match=f"delimiter=.* is not {says}"):
        tm.read("a.csv", delimiter=delimiter)


def test_a_delimiter_is_for_csv():
    Path("a.txt").write_text("id;text\n1;x\n")
    with pytest.raises(UsageError, match=r"delimiter applies to csv, but .*a\.txt is read as text; pass --format csv"):
        tm.read("a.txt", delimiter=";")
    assert built("a.txt", delimiter=";", format="csv") == ["x"]
    Path("a.jsonl").write_text('{"text": "x"}')
    for inputs, options in ((("a.jsonl",), {}), (("a.txt",), {"separator": "|"}), (("-",), {"format": "jsonl"})):
        with pytest.raises(
            UsageError, match=r"delimiter applies to csv, but .* is read as (jsonl|text); pass --format csv"
        ):
            tm.read(*inputs, delimiter=";", **options)


@given(st.text('ab,;\t|"\n', max_size=30), st.sampled_from(["a", "b", "text"]))
def test_commas_come_first(header, field):
    """Whatever a header holds: if its commas give the field, they are between the fields."""
    source = Source(files=(), inputs=(), text_field=field)
    by_commas = next(filter(None, csv.reader(io.StringIO(header, newline=""))), [])
    assert field_mark(source, "csv", header.encode()) in ",;\t|"
    if field in by_commas:
        assert field_mark(source, "csv", header.encode()) == ","
