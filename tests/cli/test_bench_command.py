"""tokenmill bench: the table of methods, what is compared, charts, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from xml.etree import ElementTree

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.bar_chart import Bar, svg_chart
from tokenmill.cli import bench_methods, main
from tokenmill.cli.bench import bench_table, method_rows
from tokenmill.cli.bench_methods import Digests, Method
from tokenmill.cli.bench_text import BenchText, read_text
from tokenmill.encoding.selection.choosing import Choice
from tokenmill.encoding.selection.proof import Proof

TEXT = BenchText(["a b", "c", "d e f"] * 4, [3, 1, 5] * 4)


def ran(name: str, seconds: float, part: range = range(12), **more) -> Method:
    return Method(name, part=part, best={"seconds": seconds, "tokens": 2 * len(part)}, compared=len(part), **more)


@pytest.fixture
def measured(monkeypatch):
    """The text that the command gave to be measured; the measuring itself is left out."""
    given = []

    def measure(tokenizer, text, rounds, folder, *, validate):
        given.append((tokenizer.name, text))
        refused = Proof("gigatoken", "1", False, "differs from tokenizers on 'x'")
        whole = range(len(text.texts))
        methods = [ran("tokenizers, one document at a time", 2.0, whole), ran("tokenmill build, 2 workers", 0.5, whole)]
        return methods, Choice("tokenizers", f"it is the reference; refused: gigatoken {refused.why}", (), refused)

    monkeypatch.setattr("tokenmill.cli.bench_methods.measure", measure)
    return given


def test_every_method_on_a_small_text(tmp_path, proved, tokenizer_path, reference, monkeypatch, capsys):
    """Loop, batches, exact engines and builds: all give the same ids, and the machine is in the JSON."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "words.jsonl"
    corpus.write_text('{"text": "some words of text to measure with, and then some more of them"}\n' * 500)
    assert main(["bench", str(corpus), "-t", str(tokenizer_path), "--rounds", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    rows = result["methods"]
    names = [row["method"] for row in rows]
    assert names[0] == "tokenizers, one document at a time"
    assert names[1].startswith("tokenizers, encode_batch")
    assert names[2:4] == ["gigatoken, one process", "tokenmill build, 1 worker"]
    assert all(f"{name}, round 1 of 1" in err for name in names)
    tokens = 500 * len(reference.encode("some words of text to measure with, and then some more of them").ids)
    for row in rows:
        assert (row["tokens"], row["documents"], row["text_bytes"]) == (tokens, 500, 500 * 62), row
        assert (row["compared"], row["differing"]) == (500, 0)
        assert row["mb_per_second"] == pytest.approx(row["text_bytes"] / row["seconds"] / 1e6)
    assert rows[0]["speedup"] == 1.0
    assert rows[-1]["peak_bytes"] > 10_000_000
    assert (result["chosen"], result["refused"]) == ("gigatoken", [])
    assert {"cpu", "cores", "memory_gb", "python", "tokenmill", "gigatoken", "tokenizers"} <= set(result["machine"])


def test_validation_compares_every_document_with_the_reference(tmp_path, proved, tokenizer_path, monkeypatch, capsys):
    """The reference encodes all of the text in one of its ways, once, where it would otherwise encode a part of it."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bench_methods, "SECONDS", 0.0)  # which makes every part the smallest one
    monkeypatch.setattr(bench_methods, "PROBE_BYTES", 5_000)
    (tmp_path / "words.txt").write_text("some words of text to measure with\n" * 1000)
    command = ["bench", str(tmp_path / "words.txt"), "--format", "lines", "-t", str(tokenizer_path), "--validate"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "1,000 documents compared with tokenizers, the reference: 0 differ" in out
    assert "best of 1 round" in out
    assert err.count("tokenmill build, 1 worker, round") == 1


def test_other_ids_are_an_error(tmp_path, measured, monkeypatch, capsys):
    """The exit code is 1, and the line says which method gave them."""
    wrong = [ran("tokenizers, one document at a time", 1.0), ran("gigatoken, one process", 0.1, differing=1)]
    monkeypatch.setattr(bench_methods, "measure", lambda *_, **__: (wrong, Choice("gigatoken", "", (), None)))
    (tmp_path / "a.txt").write_text("one\n" * 12)
    assert main(["bench", str(tmp_path / "a.txt"), "--format", "lines", "-t", "bytes"]) == 1
    out = capsys.readouterr().out
    assert "gigatoken, one process gave other ids in 1 of 12 documents" in out
    assert "0 differ" not in out


def test_without_arguments_it_runs_on_python_itself(tmp_path, measured, monkeypatch, capsys):
    (tmp_path / "lib").mkdir()
    for name in ("a.py", "b.rst", "c.txt"):
        (tmp_path / "lib" / name).write_text(f"# {name}\n")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "lib"))
    assert main(["bench"]) == 0
    [(tokenizer, text)] = measured
    assert (tokenizer, sorted(text.texts)) == ("demo", ["# a.py\n", "# b.rst\n", "# c.txt\n"])
    out = capsys.readouterr().out
    assert "in 3 documents of Python's own source files; tokenizer demo; best of 3 rounds" in out
    assert "Refused: gigatoken differs from tokenizers on 'x'" in out


def test_the_first_documents(tmp_path, measured):
    """--num-docs measures the first documents only, across files."""
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("body\n" + f"text {number}\n" * 10)
    command = ["bench", str(tmp_path), "-t", "bytes", "--text-field", "body", "--num-docs"]
    assert main([*command, "15"]) == 0
    assert measured[0][1].texts == ["text 0"] * 10 + ["text 1"] * 5
    with pytest.raises(SystemExit):
        main([*command, "0"])


def test_a_large_corpus_is_read_from_all_over(tmp_path):
    """Of many files some are left out, and of large ones the end."""
    (tmp_path / "many").mkdir()
    for number in range(400):
        (tmp_path / "many" / f"{number:03}.txt").write_text(f"{number:03}\n" * 25)
    found = [text[:3] for text in read_text(tm.read(tmp_path / "many"), None, 20_000).texts]
    assert found == [f"{number:03}" for number in range(0, 400, 2)]
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": name * 100}) + "\n" + '{"text": "x"}\n' * 100)
    both = read_text(tm.read(*tmp_path.glob("*.jsonl")), None, 300).texts
    assert {"a" * 100, "b" * 100} < set(both)
    assert len(both) < 202
    assert len(read_text(tm.read(*tmp_path.glob("*.jsonl")), None, 10_000).texts) == 202


def test_parts_are_even_and_nested():
    text = BenchText(["x" * 10] * 100, [10] * 100)
    assert text.part(2000) == range(100)
    assert text.part(500) == range(0, 100, 2)
    assert text.part(200) == range(0, 100, 8)
    assert set(text.part(100)) < set(text.part(300))
    assert list(BenchText(["long"], [4]).part(1)) == [0]


def test_other_ids_are_counted():
    """A later method is compared with the first that encoded a document, on its own part."""
    digests = Digests()
    first, second, third = Method("a", part=range(0, 4, 2)), Method("b", part=range(4)), Method("c", part=range(4))
    digests.compare(first, [np.array([1, 2]), np.array([3])])
    digests.compare(second, [np.array([1, 2]), np.array([9]), np.array([4]), np.array([9])])
    digests.compare(third, [np.array([1, 2]), np.array([9]), np.array([3]), np.array([9, 9])])
    assert [(each.compared, each.differing) for each in (first, second, third)] == [(2, 0), (4, 1), (4, 1)]


def test_the_table():
    """Parts, differences and methods that failed are said; speedups are over the first method."""
    methods = [
        ran("tokenizers, one document at a time", 0.5, range(0, 12, 4)),
        ran("tiktoken, one process", 0.1, differing=2),
        Method("gigatoken, one process", failed="cannot run it: no answer in 120 s"),
    ]
    machine = {"cpu": "a processor", "cores": 3, "memory_gb": 8.1, "python": "3.11", "tokenmill": "1"}
    machine |= {"gigatoken": "2", "tokenizers": "3"}
    result = {"machine": machine, "tokenizer": "t", "text": "x.jsonl", "documents": 12, "text_bytes": 36, "rounds": 2}
    result |= {"methods": method_rows(methods, TEXT), "chosen": "tiktoken", "refused": []}
    table = bench_table(result).splitlines()
    assert table[0] == "a processor, 3 cores, 8.1 GB of memory; python 3.11, tokenmill 1, gigatoken 2, tokenizers 3"
    assert table[1] == "36 B in 12 documents of x.jsonl; tokenizer t; best of 2 rounds"
    assert table[3].split() == ["Method", "Time", "Docs/sec", "Tokens/sec", "MB/s", "Speedup"]
    assert table[4].split()[-5:] == ["1.8e-05", "1.0x", "on", "9", "B"]
    assert table[5].endswith("20.0x  OTHER IDS in 2 documents")
    assert table[6].endswith("cannot run it: no answer in 120 s")
    assert "tiktoken, one process gave other ids in 2 of 12 documents" in table
    assert not any("0 differ" in line for line in table)


def test_what_was_compared():
    """Documents of two methods at least; of two parts, the larger has the documents of the smaller."""
    methods = [ran("tokenizers, one document at a time", 1.0, range(0, 12, 4)), ran("gigatoken, one process", 1.0)]
    result = {
        "machine": defaultdict(int),
        "tokenizer": "t",
        "text": "x",
        "documents": 12,
        "text_bytes": 36,
        "rounds": 1,
    }
    result |= {"chosen": "gigatoken", "refused": []}
    assert "\n3 documents compared with tokenizers, the reference: 0 differ\n" in bench_table(
        result | {"methods": method_rows(methods, TEXT)}
    )
    methods.append(ran("tokenmill build, 1 worker", 1.0, range(0, 12, 2)))
    assert "\n6 documents compared, 3 of them with tokenizers, the reference: 0 differ\n" in bench_table(
        result | {"methods": method_rows(methods, TEXT)}
    )


def test_builds_take_seconds_with_slow_engines_too(tmp_path, proved, tokenizer_path, monkeypatch):
    """They read as much as the fastest engine encodes in ten seconds."""
    text, built = BenchText(["x" * 10] * 100, [10] * 100), []

    def run_engine(method, text, folder, digests):
        method.part, method.best = range(100), {"seconds": 40.0, "tokens": 1000}

    monkeypatch.setattr(bench_methods, "PROBE_BYTES", 10)
    monkeypatch.setattr(bench_methods, "_run_engine", run_engine)
    monkeypatch.setattr(bench_methods, "_run_build", lambda method, *_: built.append(method.part))
    bench_methods.measure(tm.load_tokenizer(tokenizer_path), text, 1, tmp_path, validate=False)
    assert set(built) == {range(0, 100, 4)}


def test_charts(tmp_path, measured, capsys):
    corpus = tmp_path / "a.txt"
    corpus.write_text("text")
    assert main(["bench", str(corpus), "-t", "bytes", "--plot", str(tmp_path / "speed.svg")]) == 0
    words = [element.text for element in ElementTree.parse(tmp_path / "speed.svg").iter() if element.text]
    assert "tokenmill build, 2 workers" in words
    assert main(["bench", str(corpus), "-t", "bytes", "--plot", str(tmp_path / "speed.png")]) == 0
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_a_bar_is_as_long_as_its_value():
    chart = svg_chart("a < b", [Bar("own", 10, "ten", own=True), Bar("other", 5, "five")])
    root = ElementTree.fromstring(chart)
    widths = [int(element.get("width")) for element in root if element.tag.endswith("rect")]
    assert widths[0] == 2 * widths[1]
    assert "a &lt; b" in chart


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-"], "give files, not standard input"),
        (["missing.jsonl"], "missing.jsonl"),
        (["--format", "jsonl"], "options for reading need files"),
        (["--plot", "speed.pdf"], "the file name must end in .svg or .png"),
        (["--plot", "nowhere/speed.svg"], "there is no folder nowhere; create it first"),
        (["empty.jsonl"], "no documents"),
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, arguments, says, measured, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["bench", *arguments]) in (1, 2)
    assert says in capsys.readouterr().err
    assert not measured


def test_as_many_documents_as_in_a_build(tmp_path, capsys):
    """Empty ones too. A document that is longer than a block is measured in parts, with a line."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("one", "", " ", "")))
    source = tm.read(tmp_path / "a.jsonl")
    texts = read_text(source, None, 10_000).texts
    assert len(texts) == len(tm.build(source, "bytes", tmp_path / "store", workers=0, progress="quiet")) == 4
    (tmp_path / "b.txt").write_bytes(b"word " * 8_000_000)
    (tmp_path / "c.txt").write_text("short")
    *parts, short = read_text(tm.read(tmp_path / "b.txt", tmp_path / "c.txt"), None, 10**9).texts
    assert ("".join(parts), short) == ("word " * 8_000_000, "short")
    assert max(map(len, parts)) <= 100_000
    assert capsys.readouterr().err.endswith("b.txt: a long document is measured in parts of 100,000 characters\n")
