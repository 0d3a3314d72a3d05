"""Ways to get the text out of JSON lines: tokenmill's, Arrow alone, and other JSON libraries where they are installed.

Every method gets the same blocks and gives the same Arrow array; one that gives another is named and left out. They run in turns
in one process, on one thread. CPU time counts, the best of all rounds.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from benchmarks.corpus import first_texts
from benchmarks.harness import Result, bar_lines, cell, figure, machine_line, say
from tokenmill.building.machine import machine_facts
from tokenmill.documents import BLOCK_BYTES, text_array
from tokenmill.reading import read
from tokenmill.reading.formats.jsonl import jsonl_texts

OURS, ARROW = "tokenmill", "Arrow alone"
SHORT, LONG = 200, 20_000  # characters of the documents of two kinds
ESCAPED = str.maketrans(dict.fromkeys(map(chr, (*range(32), ord('"'), ord("\\"))), " "))

Method = Callable[[bytes], pa.LargeStringArray]


def measure_parsing(work: Path, inputs: list[str], size: int, rounds: int) -> Result:
    """MB/s of each method on several kinds of lines, of about `size` bytes each."""
    texts, _ = first_texts(inputs, size)
    methods = _methods(work)
    runs, bars, notes = {}, [], []
    for kind, lines in _kinds(texts).items():
        say(f"lines {kind}")
        blocks = list(_blocks(lines, size))
        expected = [methods[OURS](block) for block in blocks]
        wrong = [name for name in methods if [methods[name](block) for block in blocks] != expected]
        notes += [f"{name} gives other texts for lines {kind}." for name in wrong]
        nbytes = sum(map(len, blocks))
        timed = {name: method for name, method in methods.items() if name not in wrong}
        seconds, faults = _measure(timed, blocks, rounds)
        runs[f"lines {kind}, MB/s"] = {name: round(nbytes / 1e6 / seconds[name]) for name in timed}
        runs[f"lines {kind}, page faults per MB"] = {name: round(faults[name] / nbytes * 1e6) for name in timed}
        bars.append(figure(f"CPU of tokenmill / Arrow alone, lines {kind}", seconds[OURS] / seconds[ARROW], ""))
    return {"machine": machine_facts(), "rounds": rounds, "runs": runs, "bars": bars, "notes": notes}


def parsing_table(result: Result) -> str:
    """The figures as text."""
    names = list(dict.fromkeys(name for run in result["runs"].values() for name in run))
    lines = [machine_line(result), "", f"{'':<56}" + "".join(f"{name:>13}" for name in names)]
    for what, run in result["runs"].items():
        lines.append(f"{what:<56}" + "".join(cell(run.get(name), ",.0f", 13) for name in names))
    return "\n".join([*lines, *bar_lines(result)])


def _kinds(texts: list[str]) -> dict[str, Iterator[bytes]]:
    """Lines of the same texts, written in several ways."""
    whole = "\n".join(texts)
    return {
        "in UTF-8": (_line(text) for text in texts),
        "in ASCII": (_line(text, is_ascii=True) for text in texts),
        "without escapes": (_line(text.translate(ESCAPED)) for text in texts),
        f"of {SHORT} characters": (_line(whole[i : i + SHORT]) for i in range(0, len(whole), SHORT)),
        f"of {LONG:,} characters": (_line(whole[i : i + LONG]) for i in range(0, len(whole), LONG)),
        "with other fields": (
            _line(text, id=i, meta={"url": f"https://example.org/{i}", "score": i / 7}) for i, text in enumerate(texts)
        ),
    }


def _line(text: str, *, is_ascii: bool = False, **others: Any) -> bytes:
    return json.dumps({**others, "text": text}, ensure_ascii=is_ascii).encode() + b"\n"


def _blocks(lines: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Lines in blocks as a build reads them, up to `size` bytes in all."""
    block: list[bytes] = []
    held = 0
    for line in lines:
        block.append(line)
        held += len(line)
        if held >= min(BLOCK_BYTES, size):
            yield b"".join(block)
            size -= held
            block, held = [], 0
        if size <= 0:
            return
    if block:
        yield b"".join(block)


def _measure(methods: dict[str, Method], blocks: list[bytes], rounds: int) -> tuple[dict[str, float], dict[str, int]]:
    """CPU seconds and page faults of each method, the least of all rounds."""
    seconds: dict[str, float] = {}
    faults: dict[str, int] = {}
    for _ in range(rounds):
        for name, method in methods.items():
            faults_before, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
            for block in blocks:
                method(block)
            taken = time.process_time() - began
            new_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults_before
            seconds[name] = min(taken, seconds.get(name, taken))
            faults[name] = min(new_faults, faults.get(name, new_faults))
    return seconds, faults


def _methods(work: Path) -> dict[str, Method]:
    """The methods that can be run here, by name."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / "lines.jsonl"
    path.write_bytes(b"")
    source = read(path)
    methods: dict[str, Method] = {OURS: lambda block: jsonl_texts(block, source).values, ARROW: _arrow}
    for name, library, make in (
        ("msgspec", "msgspec", _msgspec),
        ("orjson", "orjson", _orjson),
        ("pysimdjson", "simdjson", _simdjson),
    ):
        try:
            methods[name] = make(import_module(library))
        except ImportError:
            say(f"{name} is not installed")
    return methods


def _arrow(block: bytes) -> pa.LargeStringArray:
    """One call without a check: neither that each line gave a document, nor that the text is UTF-8."""
    schema = pa.schema([("text", pa.string())])
    table = pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    return table.column("text").chunk(0).cast(pa.large_string())


def _msgspec(library: Any) -> Method:
    record = library.defstruct("Record", [("text", str)])
    decode_lines = library.json.Decoder(record).decode_lines
    return lambda block: text_array([line.text for line in decode_lines(block)])


def _orjson(library: Any) -> Method:
    return lambda block: text_array([library.loads(line)["text"] for line in block.splitlines()])


def _simdjson(library: Any) -> Method:
    parser = library.Parser()

    def parse(block: bytes) -> pa.LargeStringArray:
        return text_array([parser.parse(line).at_pointer("/text") for line in block.splitlines()])

    return parse
