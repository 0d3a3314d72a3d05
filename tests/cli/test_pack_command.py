"""`tokenmill stats`: its figures are those of the view, its picture can be read, and its errors have their exit codes."""

from __future__ import annotations

import ast
import json
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import tokenmill as tm
from tokenmill.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "packing.md"


def built(tokenizer, out, texts) -> Path:
    rows = out.parent / f"{out.name}.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    tm.build(rows, tokenizer, out, workers=0, progress="quiet", engine="reference")
    return out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_path, real_texts) -> Path:
    """Documents of 1 to some thousand tokens; at 64 tokens a row, many are longer than one."""
    texts = [text[: 7 * i * i] for i, text in enumerate(real_texts[:40])]
    return built(tokenizer_path, tmp_path_factory.mktemp("pack") / "corpus", texts)


@pytest.fixture
def run(capsys):
    """Run the command; returns what it printed."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        assert main(["pack", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return run


OPTIONS = [
    {},
    {"strategy": "concat", "stride": 48, "tail": "drop"},
    {"strategy": "concat", "overlap": 20, "min_doc_tokens": 30},
    {"strategy": "concat", "row_start": "document"},
    {"strategy": "best_fit"},
    {"strategy": "best_fit", "long_docs": "truncate", "row_start": "document"},
    {"strategy": "pad", "buckets": (8, 32)},
    {"strategy": "pad", "long_docs": "drop"},
    {"strategy": "windows", "overlap": 16},
]


def flags(options: dict) -> list[str]:
    """Keywords of tm.pack as flags of the command."""
    found = []
    for name, value in options.items():
        found += [f"--{name.replace('_', '-')}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return found


def named(options: dict) -> str:
    return " ".join(flags(options)) or "defaults"


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def figures(table: str) -> dict[str, list[float]]:
    """The numbers of each line of a table, by the line's name."""
    lines = (line.split(maxsplit=1) for line in table.split("\n\n")[0].splitlines())
    return {name: numbers(rest) for name, rest in lines}


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2)


# One packing.


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_the_table_has_the_figures_of_the_view(corpus, run, options):
    """Each flag does what the keyword of its name does, and every count and share is the view's."""
    stats = tm.pack(corpus, 64, **options).stats
    found = figures(run(corpus, "--seq-len", 64, *flags(options)))
    assert found["rows"][:2] == [stats.rows, 64]
    assert found["documents"] == [stats.documents, stats.tokens]
    assert found["fill"] == [pytest.approx(100 * stats.fill, abs=0.01)]
    for name, whole in (
        ("padding", stats.positions),
        *((n, stats.tokens) for n in ("truncated", "dropped", "repeated")),
    ):
        count = stats[name]
        assert found[name][0] == count
        assert not count or found[name][1] == pytest.approx(100 * count / whole, abs=0.01)
        assert count or found[name] == [0]
    assert found["truncated"][2:] == ([stats.documents_truncated] if stats.truncated else [])
    assert found["dropped"][2:] == ([stats.documents_dropped] if stats.documents_dropped else [])
    assert found["split"][0] == stats.documents_split
    assert found["boundaries"] == [stats.boundaries, pytest.approx(stats.boundaries_per_row, abs=0.005)]


def test_the_options_above_differ(corpus):
    """Or the test above could pass with flags that nobody hears."""
    found = [tm.pack(corpus, 64, **options).stats for options in OPTIONS]
    assert len({str(stats.as_dict()) for stats in found}) == len(OPTIONS)
    assert {name for stats in found for name in ("truncated", "dropped", "repeated") if stats[name]} == {
        "truncated",
        "dropped",
        "repeated",
    }


def test_the_table_is_that_of_print(corpus, run):
    out = run(corpus, "--seq-len", 64, "--strategy", "best_fit")
    assert out.startswith(str(tm.pack(corpus, 64, strategy="best_fit").stats) + "\n")


def test_the_histogram_counts_every_document_once(corpus, run):
    """A line for each power of two, and the one that seq_len falls into is marked."""
    out = run(corpus, "--seq-len", 100).split("\n\n")[1]
    lines = out.splitlines()[1:]
    lengths = tm.open(corpus).lengths.tolist()
    seen = 0
    for line in lines:
        low, *high, count = numbers(line.partition("#")[0].partition("<")[0])
        here = [n for n in lengths if low <= n <= (high[0] if high else low)]
        assert len(here) == count, line
        assert ("#" in line) == (count > 0)
        assert ("< seq_len" in line) == (low == 64), line
        seen += len(here)
    assert seen == len(lengths)
    fullest = max(lines, key=lambda line: line.count("#"))
    assert numbers(fullest.partition("#")[0])[-1] == max(
        numbers(line.partition("#")[0].partition("<")[0])[-1] for line in lines
    )


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_the_line_of_python_makes_the_same_view(corpus, run, options):
    """What the last line says can be pasted, and gives the rows the table was about."""
    last = run(corpus, "--seq-len", 64, *flags(options)).splitlines()[-1]
    scope = {"tm": tm}
    exec(last.removeprefix("in Python: "), scope)
    assert scope["view"].fingerprint == tm.pack(corpus, 64, **options).fingerprint


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_json(corpus, run, options):
    """For programs: everything that view.stats has."""
    found = json.loads(run(corpus, "--seq-len", 64, *flags(options), "--json"))
    assert found == json.loads(json.dumps(tm.pack(corpus, 64, **options).stats.as_dict()))
    assert found["positions"] - found["padding"] == (
        found["tokens"] - found["truncated"] - found["dropped"] + found["repeated"]
    )


@pytest.mark.parametrize("how", [["--strategy", "best_fit"], ["--compare"], ["--strategy", "best_fit", "--json"]])
def test_a_store_without_documents(tokenizer_path, tmp_path, run, how):
    """No rows, no division by zero, in tables and pictures."""
    store = tmp_path / "empty"
    tm.build(["a text"], tokenizer_path, store, progress="quiet", engine="reference", max_tokens=1)
    out = run(store, "--seq-len", 64, *how, "--plot", tmp_path / "empty.svg")
    assert "nan" not in out
    assert ElementTree.parse(tmp_path / "empty.svg")


def test_shares_that_are_nearly_nothing_or_all(tokenizer_path, tmp_path, run):
    """A 0% or 100% is one: what is lost a little is not shown as nothing lost."""
    store = built(tokenizer_path, tmp_path / "store", ["words of text " * 9000, "x"])
    tokens = tm.open(store).num_tokens
    assert tokens > 20_000
    out = run(store, "--seq-len", tokens + 1)
    assert re.search(r"^fill +>99.99%$", out, re.MULTILINE)
    assert re.search(r"^padding +1 +<0.01% of the positions$", out, re.MULTILINE)
    out = run(store, "--seq-len", tokens)
    assert re.search(r"^fill +100%$", out, re.MULTILINE)
    assert re.search(r"^padding +0$", out, re.MULTILINE)


# Side by side.


def columns(out: str) -> list[dict[str, str]]:
    """The comparison, as a dict for each column."""
    lines = [line for line in out.split("\n\n")[1].splitlines() if not line.startswith("---")]
    rows = [re.split(r"  +", line) for line in lines]
    assert len({len(row) for row in rows}) == 1, out
    return [{row[0]: row[i] for row in rows} for i in range(1, len(rows[0]))]


def share(cell: str) -> float:
    return float(cell.strip("<>%"))


COMPARED = [
    ({}, []),
    ({"overlap": 16}, ["best_fit", "pad"]),
    ({"stride": 40, "min_doc_tokens": 30}, ["best_fit", "pad"]),
    ({"tail": "drop"}, ["best_fit", "pad", "windows"]),
    ({"buckets": (8, 32)}, ["concat", "best_fit", "windows"]),
    ({"row_start": "document"}, ["best_fit", "pad", "windows"]),
    ({"row_start": "document", "long_docs": "truncate"}, []),
    ({"long_docs": "drop"}, []),
]


@pytest.mark.parametrize(("options", "without"), COMPARED, ids=[named(options) for options, _ in COMPARED])
def test_compare(corpus, run, options, without):
    """Every strategy, each with the options it takes; the table and the JSON agree with tm.pack."""
    facts = json.loads(run(corpus, "--seq-len", 64, *flags(options), "--compare", "--json"))
    assert {one["strategy"] for one in facts} == {"concat", "best_fit", "pad", "windows"}
    for one in facts:
        stats = tm.pack(corpus, 64, strategy=one["strategy"], **one["options"]).stats
        assert one["stats"] == json.loads(json.dumps(stats.as_dict()))
        assert one["seconds"] >= 0
        taken = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        assert {**taken, **one["options"]} == {**one["options"], **{name: taken[name] for name in one["left_out"]}}
        assert bool(one["left_out"]) == (one["strategy"] in without)

    out = run(corpus, "--seq-len", 64, *flags(options), "--compare")
    shown = columns(out)
    assert len(shown) == len(facts)
    for column, one in zip(shown, facts, strict=True):
        stats = one["stats"]
        assert column["strategy"] == one["strategy"]
        assert numbers(column["rows"]) == [stats["rows"]]
        assert share(column["fill"]) == pytest.approx(100 * stats["fill"], abs=0.01)
        assert share(column["padding"]) == pytest.approx(100 * stats["padding"] / stats["positions"], abs=0.01)
        for name in ("truncated", "dropped", "repeated"):
            assert share(column[name]) == pytest.approx(100 * stats[name] / stats["tokens"], abs=0.01)
        split = 100 * stats["documents_split"] / stats["documents"]
        assert share(column["documents split"]) == pytest.approx(split, abs=0.01)
        assert float(column["boundaries/row"]) == pytest.approx(stats["boundaries_per_row"], abs=0.005)
        assert float(column["seconds"]) >= 0
        for name, value in one["options"].items():
            assert column[name] == (",".join(map(str, value)) if isinstance(value, list) else str(value))
        for name in one["left_out"]:
            assert column[name] == "-"
    assert ("does not take this option" in out) == any("-" in column.values() for column in shown)


def test_compare_shows_what_was_left_open_both_ways(corpus, run):
    """Long documents split and truncated, rows from anywhere and from documents; what was asked for is not varied."""

    def ways(*options):
        facts = json.loads(run(corpus, "--seq-len", 64, "--compare", "--json", *options))
        return [(one["strategy"], *one["options"].items()) for one in facts]

    assert ways() == [
        ("concat",),
        ("concat", ("row_start", "document")),
        ("best_fit",),
        ("pad",),
        ("pad", ("long_docs", "truncate")),
        ("windows", ("overlap", 16)),
    ]
    assert [way[0] for way in ways("--long-docs", "split", "--overlap", "8")] == [
        "concat",
        "best_fit",
        "pad",
        "windows",
    ]


# Pictures.


def words(path: Path) -> str:
    return "\n".join(text for text in ElementTree.parse(path).getroot().itertext() if text.strip())


def test_a_picture_of_one(corpus, run, tmp_path, capsys):
    """Valid XML with its words as words: the places tokens go, with the view's figures, and the length of a row."""
    options = {"strategy": "windows", "overlap": 16, "min_doc_tokens": 30}
    plain = run(corpus, "--seq-len", 64, *flags(options))
    assert run(corpus, "--seq-len", 64, *flags(options), "--plot", tmp_path / "a.svg") == plain
    assert main(["pack", str(corpus), "--seq-len", "64", *flags(options), "--plot", str(tmp_path / "b.SVG")]) == 0
    assert str(tmp_path / "b.SVG") in capsys.readouterr().err
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.SVG").read_bytes()
    found = words(tmp_path / "a.svg")
    stats = tm.pack(corpus, 64, **options).stats
    for part in ("Length of the documents", "tokens in a document", "documents", "seq_len 64", "windows", "overlap 16"):
        assert part in found
    once = stats.positions - stats.padding - stats.repeated
    for name, count in (("repeated tokens", stats.repeated), ("padding", stats.padding), ("tokens", once)):
        assert name in found
        assert f"{count:,}\n{percent(count, stats.positions):.2f}% of positions" in found
    assert f"{stats.dropped:,}\n{percent(stats.dropped, stats.tokens):.2f}% of tokens" in found
    assert "truncated tokens" in found


def test_a_picture_of_all(corpus, run, tmp_path):
    """A bar for each way to pack, with its fill and rows and what it lost."""
    run(corpus, "--seq-len", 64, "--compare", "--plot", tmp_path / "all.svg")
    found = words(tmp_path / "all.svg")
    for one in json.loads(run(corpus, "--seq-len", 64, "--compare", "--json")):
        stats = one["stats"]
        assert one["strategy"] in found
        assert f"{stats['rows']:,} rows" in found
        lost = stats["truncated"] + stats["dropped"]
        assert (f"{percent(lost, stats['tokens']):.2f}%" if lost else "none") in found
    for label in (
        "seq_len 64",
        "% of the positions",
        "% of the tokens",
        "padding",
        "truncated tokens",
        "dropped tokens",
    ):
        assert label in found


@pytest.mark.parametrize("how", [[], ["--compare"]])
def test_a_picture_as_png(corpus, run, tmp_path, how):
    """A real one, large enough to read, and not blank."""
    run(corpus, "--seq-len", 64, *how, "--plot", tmp_path / "rows.png")
    data = (tmp_path / "rows.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 1200 <= width <= 3000
    assert 500 <= height <= 2000
    from PIL import Image

    with Image.open(tmp_path / "rows.png") as image:
        assert len(image.convert("L").getcolors()) > 50


def test_drawing_leaves_matplotlib_as_it_was(corpus, tmp_path):
    """No backend is chosen, no setting changed, for a program that draws pictures of its own."""
    code = (
        "import sys, matplotlib\n"
        "def settings(): return [matplotlib.rcParams[name] for name in sorted(matplotlib.rcParams) if name != 'backend']\n"
        "before = settings()\n"  # to ask for the backend is to choose it
        "from tokenmill.cli import main; code = main(sys.argv[1:])\n"
        "assert settings() == before; assert 'matplotlib.pyplot' not in sys.modules; sys.exit(code)"
    )
    arguments = ["pack", str(corpus), "--seq-len", "64", "--plot", str(tmp_path / "rows.png")]
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_without_matplotlib(corpus, tmp_path, capsys, monkeypatch):
    """It says what to install, and everything but the picture works."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["pack", str(corpus), "--seq-len", "64", "--plot", str(tmp_path / "rows.png")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "pip install 'tokenmill[plot]'" in err
    assert main(["pack", str(corpus), "--seq-len", "64", "--compare"]) == 0


# Errors.


def test_exit_codes(corpus, tmp_path, capsys):
    """2 for what cannot be meant, 3 for a store that is not there; standard error names the culprit."""
    here, length = str(corpus), ["--seq-len", "64"]
    cases = [
        (2, [here, "--seq-len", "0"], "seq_len"),
        (2, [here, *length, "--stride", "8", "--overlap", "8"], "overlap"),
        (2, [here, *length, "--stride", "65"], "stride"),
        (2, [here, *length, "--overlap", "64", "--compare"], "overlap"),
        (2, [here, *length, "--overlap", "8", "--strategy", "best_fit"], "overlap"),
        (2, [here, *length, "--row-start", "document", "--strategy", "pad"], "row_start"),
        (2, [here, *length, "--min-doc-tokens", "-1"], "min_doc_tokens"),
        (2, [here, *length, "--buckets", "32,8", "--strategy", "pad"], "buckets"),
        (2, [here, *length, "--buckets", "32,8", "--compare"], "buckets"),
        (2, [here, *length, "--plot", "rows.pdf"], ".png or .svg"),
        (2, [here, *length, "--plot", "rows"], ".png or .svg"),
        (3, [str(tmp_path / "nowhere"), *length], "nowhere"),
        (3, [str(tmp_path / "nowhere"), *length, "--compare"], "nowhere"),
    ]
    for code, command, says in cases:
        assert main(["pack", *command]) == code, command
        out, err = capsys.readouterr()
        assert says in err, command
        assert out == "", command


def test_a_picture_that_cannot_be_written(corpus, tmp_path, capsys):
    """The table is there all the same; the path and the reason are named."""
    assert main(["pack", str(corpus), "--seq-len", "64", "--plot", str(tmp_path / "no" / "rows.png")]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("rows ")
    assert str(tmp_path / "no" / "rows.png") in err
    assert "No such file" in err


@pytest.mark.parametrize(
    "arguments", [[], ["x"], ["x", "--seq-len", "some"], ["x", "--seq-len", "8", "--buckets", "1,b"],
                  ["x", "--seq-len", "8", "--strategy", "pad", "--compare"], ["x", "--seq-len", "8", "--strategy", ""],
                  ["x", "--seq-len", "8", "--tail", "bite"], ["x", "--seq-len", "8", "--long-docs", "shorten"]]
)  # fmt: skip
def test_a_command_that_cannot_be_understood(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["pack", *arguments])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("tokenmill stats: ")
    assert err.endswith("(see: tokenmill stats --help)\n")


def test_a_hostile_path_is_shown_and_not_obeyed(tokenizer_path, tmp_path, capsys):
    """Control characters in the name of a store or picture do not reach the terminal."""
    store = built(tokenizer_path, tmp_path / "st\x1b[31more\x07\x9b'\"", ["some words", "and more"])
    picture = tmp_path / "\x1b[2Jrows.svg"
    for path, code in ((store, 0), (tmp_path / "\x1b[31mnone\x07", 3)):
        for how in ([], ["--compare"], ["--json"], ["--plot", str(picture)], ["--plot", f"{picture}.\x1bbmp"]):
            expected = 2 if "bmp" in "".join(how) else code
            assert main(["pack", str(path), "--seq-len", "8", *how]) == expected
            for text in capsys.readouterr():
                assert all(c.isprintable() or c in "\n\t" for c in text), repr(text)
    assert ElementTree.parse(picture)
    assert main(["pack", str(store), "--seq-len", "8"]) == 0
    scope = {"tm": tm}
    exec(capsys.readouterr().out.splitlines()[-1].removeprefix("in Python: "), scope)
    assert len(scope["view"]) == len(tm.pack(store, 8))


def test_help_loads_nothing_heavy():
    code = (
        "import sys, tokenmill.cli\ntry: tokenmill.cli.main(['pack', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(', '.join(name for name in ('numpy', 'matplotlib', 'torch', 'pyarrow') if name in sys.modules) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stderr.strip(), ran.returncode) == ("", 0)
    assert "--row-start" in ran.stdout


# The page.


def test_the_rows_drawn_on_the_page_are_the_rows(tmp_path):
    """docs/packing.md draws three documents under each strategy; this is what tm.pack makes of them."""
    store = built("bytes", tmp_path / "abc", ["x" * 8, "x", "x" * 3])  # with their eos 9, 2 and 4 tokens
    assert tm.open(store).lengths.tolist() == [9, 2, 4]
    (drawing,) = re.findall(r"```\n(concat .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    drawn: dict[str, list[str]] = {}
    heads: dict[int, str] = {}
    for line in drawing.splitlines():
        found = {match.start(): match[0].strip() for match in re.finditer(r"\S.*?(?=   +[a-zABC]|$)", line)}
        if line and not line.startswith(" "):
            heads = found
        for at, text in found.items():
            if line.startswith(" "):
                drawn.setdefault(heads[at - 2], []).append(" ".join(text.split()))
    assert len(drawn) == 7
    for head, rows in drawn.items():
        strategy, _, option = head.partition(", ")
        name, _, value = option.partition("=")
        options = {name: ast.literal_eval(value)} if name else {}
        view = tm.pack(store, 6, strategy=strategy, **options)
        made = []
        for i in range(len(view)):
            cells = [f"{'ABC'[doc]}{n + 1}" for doc, start, stop in view.documents(i) for n in range(start, stop)]
            made.append(" ".join(cells + ["."] * (view.rows([i])["input_ids"].shape[1] - len(cells))))
        assert made == rows, head


@pytest.mark.filterwarnings("default:.*rows for training")
@pytest.mark.parametrize("more", [[], ["--compare"]])
def test_text_for_evaluation_is_not_counted_unless_asked_for(tmp_path, capsys, more):
    for name in ("train", "valid"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{name}.txt").write_text(name)
    store = tm.build(tmp_path / "data", "bytes", tmp_path / "store", workers=0, progress="quiet").path
    assert main(["pack", str(store), "--seq-len", "8", "--json", *more]) == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert (facts[0]["stats"] if more else facts)["documents"] == 1
    assert err.count("warning: ") == err.count("leave out the split validation; --split all") == 1  # for all strategies
    assert main(["pack", str(store), "--seq-len", "8", "--split", "all", *more]) == 0
    out, err = capsys.readouterr()
    assert ("2 documents, " in out, err) == (bool(more), "")
