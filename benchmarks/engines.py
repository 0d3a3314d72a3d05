"""Engines side by side, beside simple loops around the reference.

Every method runs in a process of its own, cold, in turns, several times; the best of each counts, loading not included. The
loop that encodes one document at a time with the reference is 1.0x.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Result
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.engines import engine_traits
from tokenmill.encoding.engines.guarded import Ranges
from tokenmill.encoding.selection.choosing import Choice, choose
from tokenmill.encoding.selection.examination import Examined
from tokenmill.encoding.tokenizer import Tokenizer

Run = dict[str, float]
BATCH_BYTES = 256 << 10
LOOP_BYTES = 2_000_000  # of the text for the loops, which are slow; they are compared per byte
LEAST_BYTES = 1_000_000  # of a kind of text, for a table of its own
KINDS = {"mostly ASCII": (0.0, 0.05), "CJK-heavy": (0.15, 1.0)}


def measure_engines(specs: list[str], texts: Iterable[str], size: int, rounds: int) -> list[Result]:
    """For each tokenizer and kind of text: the speed of each method, and the choice of `auto`."""
    results = []
    for kind, documents in _sorted_by_kind(texts, size).items():
        for spec in specs:
            tokenizer = load_tokenizer(spec)
            results.append({"tokenizer": tokenizer.name, "text": kind, **_measure(tokenizer, documents, rounds)})
    return results


def engines_table(results: list[Result]) -> str:
    """The figures as text."""
    return "\n\n".join(map(_table, results))


def _table(result: Result) -> str:
    """The figures of one tokenizer on one kind of text."""
    head = f"{'Method':<34}{'Time (s)':>10}{'Docs/sec':>12}{'Tokens/sec':>14}{'MB/s':>9}{'Speedup':>10}"
    lines = [
        f"{result['tokenizer']}, {result['text']}: {result['bytes'] / 1e6:.1f} MB in {result['documents']:,} documents",
        head,
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['method']:<34}{row['seconds']:>10.3f}{row['documents_per_second']:>12,.0f}"
            f"{row['tokens_per_second']:>14,.0f}{row['mb_per_second']:>9.3g}{row['speedup']:>9.1f}x"
        )
    lines += [f"{verdict['engine']:<34}{verdict['why']}" for verdict in result["refused"]]
    lines.append(f"auto: {result['auto']}")
    return "\n".join(lines)


def _measure(tokenizer: Tokenizer, texts: list[str], rounds: int) -> Result:
    definition = tokenizer._definition
    choice = choose(definition)
    reference = definition.reference
    exact = [] if choice.engine == reference else [choice.engine]
    best: dict[str, Run] = {}
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as name:
        folder = Path(name)
        definition.save(folder)
        for turn in range(rounds):
            for nbytes in (1, BATCH_BYTES) if turn == 0 else ():
                with Examined(reference, threads=True) as engine:
                    _keep(best, _loop_name(reference, nbytes), _run(engine, folder, _first(texts, LOOP_BYTES), nbytes))
            for each in exact:
                with Examined(each) as engine:
                    _keep(best, each, _run(engine, folder, texts, engine_traits(each).best_batch_bytes, choice.guard))
    return {
        **_figures(best, exact, choice, reference),
        "bytes": sum(len(t.encode()) for t in texts),
        "documents": len(texts),
    }


def _run(engine: Examined, folder: Path, texts: list[str], block_bytes: int, guard: Ranges = ()) -> Run:
    """Encode texts in calls of so many bytes, at least one document each; the engine is loaded before."""
    engine.ask(folder, texts[:1], guard=guard)
    engine.answer()
    engine.ask(folder, texts, block_bytes, guard=guard)
    (ids, _), run = engine.timed()
    return {**run, "tokens": len(ids), "documents": len(texts)}


def _figures(best: dict[str, Run], exact: list[str], choice: Choice, reference: str) -> Result:
    loop = best[_loop_name(reference, 1)]
    base = loop["bytes"] / loop["wall"]
    rows = []
    for method, run in best.items():
        seconds = run["cpu"] if method in exact else run["wall"]  # engines are compared per core
        rows.append(
            {
                "method": method,
                "seconds": seconds,
                "documents_per_second": run["documents"] / seconds,
                "tokens_per_second": run["tokens"] / seconds,
                "mb_per_second": run["bytes"] / seconds / 1e6,
                "speedup": run["bytes"] / seconds / base,
            }
        )
    refused = [each for each in (choice.proof,) if each is not None and not each.agrees]
    return {
        "rows": rows,
        "refused": [{"engine": each.engine, "why": f"refused: {each.why}"} for each in refused],
        "auto": choice.engine,
    }


def _loop_name(reference: str, nbytes: int) -> str:
    return f"{reference}, one at a time" if nbytes == 1 else f"{reference}, batches of {nbytes >> 10} KB"


def _keep(best: dict[str, Run], method: str, run: Run) -> None:
    if method not in best or run["cpu"] < best[method]["cpu"]:
        best[method] = run


def _sorted_by_kind(texts: Iterable[str], size: int) -> dict[str, list[str]]:
    """Up to `size` bytes of each kind of text; kinds with too little of it are left out."""
    chosen: dict[str, list[str]] = {kind: [] for kind in KINDS}
    sizes = dict.fromkeys(KINDS, 0)
    for text in texts:
        share = sum(character > "\u2e80" for character in text[:2000]) / max(1, len(text[:2000]))
        for kind, (low, high) in KINDS.items():
            if low <= share <= high and sizes[kind] < size:
                chosen[kind].append(text)
                sizes[kind] += len(text.encode())
        if all(bytes_of_kind >= size for bytes_of_kind in sizes.values()):
            break
    return {kind: documents for kind, documents in chosen.items() if sizes[kind] >= LEAST_BYTES}


def _first(texts: list[str], size: int) -> list[str]:
    """The first texts, of about `size` bytes in all."""
    count = 0
    while count < len(texts) and size > 0:
        size -= len(texts[count].encode())
        count += 1
    return texts[:count]
