"""Compare the engine that tokenmill uses with the reference, on real tokenizers and real text.

    python scripts/conformance.py TOKENIZERS... [--corpus FILES...] [--other PYTHON]

TOKENIZERS are as for `tokenmill build -t`, or folders of tokenizer folders, such as scripts/real_tokenizers.py creates.
Code comes from this Python installation, English and other languages from --corpus. For each tokenizer with an engine that is
proved, every character in every context of the proof, the texts of the proof and documents are encoded with both policies for
special tokens. Prints how many documents differ. Exit code 1 if any does, or if there are fewer than 12 tokenizers or not all
four kinds.

`--other` is a Python with the other line of `tokenizers`. It encodes the same documents. That its ids differ is an error for
tokenizers for which tokenmill takes the stores of both lines as the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # the reference uses all cores: it does most of the work
sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks/ is not installed

from benchmarks.corpus import corpus_texts

from tokenmill.building.spot_check import Difference
from tokenmill.documents import text_array
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.selection import characters, suite
from tokenmill.encoding.selection.examination import Encoded, Examined, differing
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import TokenmillError

KINDS = ("byte-level BPE", "SentencePiece BPE", "WordPiece", "Unigram")
TEXT_BYTES = 600_000  # of each kind of text
LEAST = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("--other", help="a Python with the other line of `tokenizers`")
    parser.add_argument("--some", action="store_true", help="accept fewer than 12 tokenizers, or not all kinds")
    options = parser.parse_args()
    texts = _texts(options.corpus)
    print({kind: f"{len(documents)} documents" for kind, documents in texts.items()}, flush=True)
    kinds: Counter[str] = Counter()
    wrong = 0
    for spec in specs_of(options.tokenizers):
        name = Path(spec).name
        began = time.monotonic()
        try:
            kind, found = _one(spec, texts, options.other)
        except TokenmillError as error:
            print(f"{name:<22}FAILED: {error}", flush=True)
            wrong += 1
            continue
        kinds[kind] += 1
        wrong += sum(count for _, count, _ in found)
        shown = ", ".join(f"{what} {count} of {total:,}" for what, count, total in found)
        print(f"{name:<22}{kind:<18}{shown}  ({time.monotonic() - began:.0f} s)", flush=True)
    missing = [kind for kind in KINDS if not kinds[kind]]
    print(f"{sum(kinds.values())} tokenizers ({dict(kinds)}); {wrong} documents differ")
    too_few = not options.some and (sum(kinds.values()) < LEAST or missing)
    if too_few:
        print(
            f"too few: need at least {LEAST}, of all four kinds{'; none of ' + ', '.join(missing) if missing else ''}"
        )
    return 1 if wrong or too_few else 0


def specs_of(tokenizers: list[str]) -> Iterator[str]:
    """The tokenizers, and those in folders of tokenizer folders."""
    for spec in tokenizers:
        inside = [path for path in sorted(Path(spec).glob("*")) if path.is_dir() and path.name[0] != "."]
        yield from map(str, inside) if inside else [spec]


def _one(spec: str, texts: dict[str, list[str]], other: str | None) -> tuple[str, list[tuple[str, int, int]]]:
    """The kind of a tokenizer; and for each engine and policy, how many documents differ, of how many."""
    tokenizer = load_tokenizer(spec)
    found: list[tuple[str, int, int]] = []
    for policy in ("parse", "text"):
        ready = load_tokenizer(tokenizer, special_tokens=policy)
        asked = [text for _, text in characters.questions(ready._definition, characters.trusted(()), [])]
        asked += [*suite.texts(ready._definition), *(text for documents in texts.values() for text in documents)]
        values = text_array(asked)
        right = load_tokenizer(ready, engine="reference")._encoder().run(values)
        if policy == "text":
            _check_no_special(ready, right[0])
        engines = [] if ready._runs_reference else [ready.choose_engine()]
        for engine in engines:
            ids = load_tokenizer(ready, engine=engine)._encoder().run(values)
            found.append((f"{engine} ({policy})", len(differing(right, ids)), len(asked)))
        if not engines:
            found.append((f"reference alone: {ready.choose_engine()} ({policy})", 0, len(asked)))
        if other is not None and ready._definition.reference == "tokenizers":
            _compare_lines(ready, other, asked, right[:2])
    return _kind(tokenizer), found


def _compare_lines(tokenizer: Tokenizer, python: str, texts: list[str], right: Encoded) -> None:
    """Print what another version of the reference encodes otherwise. An error if such differences are not expected."""
    with Examined("tokenizers", python=python) as other, tempfile.TemporaryDirectory() as folder:
        tokenizer._definition.save(Path(folder))
        try:
            other.ask(Path(folder), texts)
            ids = other.answer()
        except (RuntimeError, TokenmillError) as error:
            print(f"  the other line refuses it: {str(error)[:150]}", flush=True)
            return
    differ = differing(right, ids)
    known = "as is known" if tokenizer._differs_by_line else "which is not known"
    examples = [str(Difference.of(texts, right, ids, i)) + f" in {texts[i][:60]!a}" for i in differ[:2]]
    if differ:
        print(f"  the other line encodes {len(differ)} of {len(texts):,} otherwise, {known}: {examples}", flush=True)
    if differ and not tokenizer._differs_by_line:
        raise TokenmillError("the two lines of tokenizers differ, but their stores would be taken as the same")


def _check_no_special(tokenizer: Tokenizer, ids: Any) -> None:
    forged = set(tokenizer.special_ids) & set(ids.tolist())
    if forged:
        raise TokenmillError(f"with special_tokens=text, text still produces special ids: {sorted(forged)[:5]}")


def _kind(tokenizer: Tokenizer) -> str:
    if tokenizer._definition.json is None:
        return "no json form"
    body = json.loads(tokenizer._definition.json)
    model = body.get("model", {}).get("type")
    if model in ("WordPiece", "Unigram"):
        return str(model)
    return "byte-level BPE" if '"ByteLevel"' in json.dumps(body.get("pre_tokenizer")) else "SentencePiece BPE"


def _texts(corpus: list[str]) -> dict[str, list[str]]:
    """Documents by kind, from all over the files; long ones are cut."""
    found: dict[str, list[str]] = {"code": [], "English": [], "other languages": []}
    sizes = dict.fromkeys(found, 0)
    sources: list[tuple[str | None, Iterator[str]]] = [("code", corpus_texts([]))]
    sources += [(None, corpus_texts([path])) for path in corpus]
    for kind, documents in sources:
        for i, text in enumerate(documents):
            if i % 7 or (kind is None and i > 20_000):
                continue
            name = kind or (
                "English" if text.isascii() or sum(map(str.isascii, text[:2000])) > 1950 else "other languages"
            )
            if sizes[name] < TEXT_BYTES:
                found[name].append(text[:20_000])
                sizes[name] += len(found[name][-1].encode())
            elif kind is not None or min(sizes["English"], sizes["other languages"]) >= TEXT_BYTES:
                break
    return found


if __name__ == "__main__":
    sys.exit(main())
