"""Compare engines with the reference on a million documents nobody has seen before.

    python scripts/soak.py TOKENIZERS... [--corpus FILES...] [--documents 25000] [--seed 0] [--results FILE]

TOKENIZERS are as for scripts/conformance.py. For each, `--documents` documents are drawn: pieces of real text, real text with
characters replaced, inserted, doubled and removed, and made-up text in which every kind of character stands next to the parts of
words, apostrophes, digits, white space and the tokenizer's added tokens. Half of them are encoded with the policy "parse", half
with "text", by the engine that is proved and by the reference. Nothing is said of which characters are in it: the
documents depend on the seed alone. What was done is kept in the results file, and a second run continues there.

Exit code 1 if any document differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # the reference uses all cores: it does most of the work
sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks/ is not installed

from benchmarks.corpus import corpus_texts

from conformance import specs_of  # beside this script
from tokenmill.building.spot_check import Difference
from tokenmill.documents import text_array
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.selection.examination import differing
from tokenmill.errors import TokenmillError

REAL_TEXTS = 4000
PIECE = 600  # characters of a document, at most
BATCH = 2500
PARTS = (
    "'s", "'S", "'ll", "'M", "'re", "’s", "'", '"', "a", "B", "word", "Word", "WORD", "x1", "12", "345", "6", " ", "  ", "\n",
    "\r\n", "\t", " \n ", ".", ",", "!?", "-", "_", "/", "(", ")", "é", "ß", "中文", "の", "한", "я", "ا", "👍", "\u0301",
    "\u200d", "\u00a0", "\u3000", "▁", "##", "Ġ", "<", ">", "|",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("--documents", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path(".bench/soak.jsonl"))
    options = parser.parse_args()
    real = _real_texts(options.corpus)
    done = _read_results(options.results, options.seed, options.documents)
    total = wrong = 0
    for spec in specs_of(options.tokenizers):
        name = Path(spec).name
        result = done.get(name)
        if result is None:
            result = _soak(spec, name, real, options.documents, options.seed)
            options.results.parent.mkdir(parents=True, exist_ok=True)
            with open(options.results, "a", encoding="utf-8") as out:
                out.write(json.dumps(result) + "\n")
        total += result["documents"]
        wrong += result["differ"]
        engines = ", ".join(result["engines"]) or "the reference alone"
        print(f"{name:<24}{result['documents']:>8,} documents, {result['differ']} differ: {engines}", flush=True)
        for example in result["examples"]:
            print(f"    {example}", flush=True)
    print(f"{total:,} documents; {wrong} differ")
    return 1 if wrong else 0


def _read_results(path: Path, seed: int, documents: int) -> dict[str, dict[str, Any]]:
    """What an earlier run with the same seed has done, by tokenizer."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {line["name"]: line for line in lines if (line["seed"], line["asked"]) == (seed, documents)}


def _soak(spec: str, name: str, real: list[str], documents: int, seed: int) -> dict[str, Any]:
    result: dict[str, Any] = {"name": name, "seed": seed, "asked": documents, "documents": 0, "differ": 0}
    engines: set[str] = set()
    examples: list[str] = []
    began = time.monotonic()
    try:
        tokenizer = load_tokenizer(spec)
        for policy in ("parse", "text"):
            ready = load_tokenizer(tokenizer, special_tokens=policy)
            fast = [] if ready._runs_reference else [ready.choose_engine()]
            encoders = {engine: load_tokenizer(ready, engine=engine)._encoder() for engine in fast}
            reference = load_tokenizer(ready, engine="reference")._encoder()
            engines |= {f"{engine} ({policy})" for engine in fast}
            draw = random.Random(f"{seed} {name} {policy}")
            added = list(ready.added)[:200]
            for start in range(0, documents // 2, BATCH):
                texts = [_document(draw, real, added) for _ in range(min(BATCH, documents // 2 - start))]
                values = text_array(texts)
                expected = reference.run(values)
                result["documents"] += len(texts)
                for engine, encoder in encoders.items():
                    found = encoder.run(values)
                    differ = differing(expected, found)
                    result["differ"] += len(differ)
                    examples += [
                        f"{engine} ({policy}) {texts[i][:80]!r}: {Difference.of(texts, expected, found, i)}"
                        for i in differ[: 3 - len(examples)]
                    ]
    except TokenmillError as error:
        examples.append(f"FAILED: {error}")
        result["differ"] += 1
    seconds = round(time.monotonic() - began, 1)
    return {**result, "engines": sorted(engines), "examples": examples, "seconds": seconds}


def _document(draw: random.Random, real: list[str], added: list[str]) -> str:
    """A document: real, mutated or made up."""
    kind = draw.random()
    if kind < 0.3:
        return _piece(draw, real)
    if kind < 0.6:
        return _mutated(draw, _piece(draw, real), added)
    return "".join(_part(draw, added) for _ in range(draw.randint(1, 60)))


def _piece(draw: random.Random, real: list[str]) -> str:
    text = draw.choice(real)
    start = draw.randrange(max(1, len(text) - 20))
    return text[start : start + draw.randint(1, PIECE)]


def _mutated(draw: random.Random, text: str, added: list[str]) -> str:
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(text) + 1)
        before, after = text[:at], text[at:]
        text = draw.choice([
            before + _part(draw, added) + after,
            before + before[-1:] * draw.randint(1, 40) + after,
            before + after[draw.randint(1, 5) :],
            before + _character(draw) + after[1:],
        ])  # fmt: skip
    return text


def _part(draw: random.Random, added: list[str]) -> str:
    kind = draw.random()
    if kind < 0.45:
        return draw.choice(PARTS)
    if kind < 0.52 and added:
        token = draw.choice(added)
        return draw.choice([token, token, token[:-1], token[1:], token.upper()])
    return _character(draw) * draw.choice([1, 1, 1, 2, 3])


def _character(draw: random.Random) -> str:
    """Any character but a surrogate, from the planes in use more often than from the others."""
    point = draw.choice(
        [draw.randrange(0x800), draw.randrange(0x10000), draw.randrange(0x20000), draw.randrange(0x110000)]
    )
    return "\ufffd" if 0xD800 <= point < 0xE000 else chr(point)


def _real_texts(corpus: list[str]) -> list[str]:
    """Documents of the corpus and of this Python's source files."""
    texts: list[str] = []
    for source in (corpus_texts([]), *(corpus_texts([path]) for path in corpus)):
        for i, text in enumerate(source):
            if i >= REAL_TEXTS:
                break
            if text:
                texts.append(text[:20_000])
    return texts


if __name__ == "__main__":
    sys.exit(main())
