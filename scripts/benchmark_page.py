"""Writes docs/benchmarks.md from results of the benchmarks: JSON files as `python -m benchmarks NAME --output FILE` writes them.

python scripts/benchmark_page.py                                      # benchmarks/recorded/ to docs/benchmarks.md
python scripts/benchmark_page.py .bench/results -o my-machine.md      # the results of `make bench` on this machine
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "benchmarks" / "recorded"
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """\
# Benchmarks

Written by `scripts/benchmark_page.py` from the results in `benchmarks/recorded/`. `make bench` runs the benchmarks on your
machine (it fetches four tokenizers with npm and pip) and leaves its results in `.bench/results/`;
`python scripts/benchmark_page.py .bench/results -o my-machine.md` makes such a page of them. `make bench-peers` compares with
other pipelines, each in an environment of its own, and draws the chart, `.bench/speed.svg`. `tokenmill bench FILES -t TOKENIZER`
compares Hugging Face `tokenizers`, the engines and builds on your own text; without arguments, on Python's source files. A *bar*
is the target of a figure.
"""
SECTIONS = {
    "peers": (
        "Other pipelines",
        "`make bench-peers`: whole commands, from process start to exit, on the same JSON lines, with the same tokenizer and\n"
        "cores. Each peer runs right after a `tokenmill build`, which also writes checksums and syncs its files, and is\n"
        "compared with the best of the builds before its own runs. White space around documents is removed beforehand, as dolma\n"
        "does. The ids that a peer wrote are read back and compared with tokenmill's, document by document. Wall time of a long\n"
        "command includes what other programs on the machine took meanwhile; CPU time does not.",
    ),
    "builds": (
        "Builds",
        "`python -m benchmarks builds`: technical articles, seven languages and Python source files. *One-shot* is gigatoken's\n"
        "`encode_files` on the whole file in memory, eos inserted with numpy, two `.npy` files written and not synced. *Bare*\n"
        "is a loop of reading, parsing, encoding and writing, without anything else. *4x* is four times the input.",
    ),
    "engines": (
        "Engines",
        "`python -m benchmarks engines`: MB/s of text on one core, 40 MB of English articles, 7.5 MB of Japanese, Korean and\n"
        "Chinese ones. Bold: the choice of `auto`; nothing where gigatoken does not run a tokenizer. The last column is the\n"
        "speed-up of `auto` over encoding one document at a time with `tokenizers`.",
    ),
    "parsing": (
        "JSON lines",
        "`python -m benchmarks parsing`: the text of JSON lines as an Arrow array, on one core. *Arrow alone* checks nothing;\n"
        "tokenmill proves that each line gave one document of valid UTF-8. The others make a Python string per document.",
    ),
    "cache": (
        "Cache",
        "`python -m benchmarks cache`: 200 files, with the store in the cache. `encode_batch` is that of `tokenizers` on all\n"
        "cores, measured on 12 MB and scaled.",
    ),
    "estimates": ("Estimates", "`tokenmill estimate` on the same articles with GPT-2, Qwen 3 and Llama 2."),
    "packing": (
        "Packing",
        "`python -m benchmarks packing --large`: log-normal document lengths (median 400 tokens), rows of 4,096. TRL is\n"
        "`trl.pack_dataset` 1.16 on a million of the same lengths.",
    ),
    "loading": (
        "Loading",
        "`python -m benchmarks loading`: rows of 2,048 in batches of 16, shuffled, one process, 150 million tokens in the page\n"
        "cache. Each library at its best setting: tokenmill without prefetch, Mosaic and litData without workers.",
    ),
    "exchange": (
        "Formats",
        "`python -m benchmarks exchange`: 200 million tokens of a GPT-2 vocabulary, synced to the disk. The writers of the\n"
        "libraries write two million of the same tokens, document by document.",
    ),
    "conformance": ("Conformance", "`make conformance`: every engine against the reference."),
}


def page(folder: Path = RECORDED) -> str:
    """The page, from the results in a folder. A benchmark without a file is left out."""
    parts = [HEAD]
    for name, (title, introduction) in SECTIONS.items():
        path = folder / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text("utf-8"))
            parts += [f"## {title}\n", introduction + "\n"]
            parts += _engines(result) if isinstance(result, list) else _figures(result)
    return "\n".join(parts)


def _figures(result: dict[str, Any]) -> list[str]:
    """The machine, the figures with their bars, the runs and the notes of one benchmark."""
    facts = [f"{name.replace('_gb', ' in GB').replace('_', ' ')} {value}" for name, value in result["machine"].items()]
    facts += [result["tokenizer"]] if "tokenizer" in result else []
    facts += [f"{result['text_bytes'] / 1e6:.0f} MB of text"] if "text_bytes" in result else []
    facts += [f"best of {result['rounds']} rounds"] if "rounds" in result else []
    rows = []
    for bar in result["bars"]:
        measured = f"{_number(bar.get('ratio', bar.get('measured')))} {bar.get('unit', '')}".rstrip()
        missed = bar["met"] is False
        rows.append(
            (bar["what"], f"**{measured}**" if missed else measured, bar["bar"] + (": missed" if missed else ""))
        )
    parts = [", ".join(facts) + ".\n", _table(("figure", "measured", "bar"), rows)]
    for keys, runs in _runs_by_keys(result.get("runs", [])).items():
        heads = ("run", *(key.replace("_mb", " MB").replace("_", " ") for key in keys))
        parts.append(_table(heads, [(what, *(_number(run.get(key)) for key in keys)) for what, run in runs]))
    return parts + [note + "\n" for note in result.get("notes", ())]


def _runs_by_keys(runs: Any) -> dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]]:
    """Runs that were measured in the same units, together: one table for each kind."""
    named = runs.items() if isinstance(runs, dict) else ((run["what"], run) for run in runs)
    kinds: dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]] = {}
    for what, run in named:
        flat = {key: value for key, value in run.items() if not isinstance(value, dict | str)}
        flat |= {key: value for inner in run.values() if isinstance(inner, dict) for key, value in inner.items()}
        kinds.setdefault(_kind_of(tuple(flat), kinds), []).append((what, flat))
    return kinds


def _kind_of(keys: tuple[str, ...], kinds: Any) -> tuple[str, ...]:
    """The kind that has all these keys, or these keys as a new one."""
    return next((kind for kind in kinds if set(keys) <= set(kind)), keys)


def _engines(results: list[dict[str, Any]]) -> list[str]:
    """A line per tokenizer and kind of text, a column per engine."""
    engines = list(dict.fromkeys(row["method"] for result in results for row in result["rows"]))
    rows = []
    for result in results:
        speeds = {row["method"]: _number(row["mb_per_second"]) for row in result["rows"]}
        refused = {verdict["engine"]: "refused" for verdict in result["refused"]}
        cells = [
            f"**{speeds[name]}**" if name == result["auto"] else speeds.get(name, refused.get(name, ""))
            for name in engines
        ]
        chosen = next((row for row in result["rows"] if row["method"] == result["auto"]), {})
        rows.append((f"{result['tokenizer']}, {result['text']}", *cells, f"{_number(chosen.get('speedup'))}x"))
    return [_table(("", *engines, ""), rows)]


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.5g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    options = parser.parse_args()
    options.output.write_text(page(options.folder), "utf-8")


if __name__ == "__main__":
    main()
