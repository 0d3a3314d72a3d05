"""Calls that are wrong in one way each, drawn from a seed: none of them may end in silent success.

`wrong_inputs` draws them. Each prepares a folder, then calls tokenmill as a user would. The call must raise an error or warn, and
what it says must name the cause. Kinds: containers of paths, encodings, fields, shapes of JSON, files that are no data, splits,
dtypes of raw ids, another corpus at the same place, folders without data, files that cannot be read.

    python tests/support/wrong_inputs.py [--seed 0] [--count 200]

says for each what happened.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import gzip
import io
import json
import os
import random
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tokenmill as tm

Run = Callable[[Path], object]  # makes its files in an empty folder, which is the current one, and calls tokenmill
WORDS = re.findall(
    r"\w+",
    """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you
    were all her she there would their we him been has when who will no more if out so said what up its about than into them
    can only other time new some could these two may first then do any like my now over such our man me even most made""",
)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A call that is wrong in one way, and what an error or a warning about it has to say (a regular expression)."""

    kind: str
    description: str
    cause: str
    run: Run


def outcome(wrong: Wrong, folder: Path) -> str:
    """What happened: "" if the cause was named; else what was said instead."""
    here = Path.cwd()
    said: list[str] = []
    err = io.StringIO()
    os.chdir(folder)
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(err):
            warnings.simplefilter("always")
            try:
                wrong.run(folder)
            except (tm.errors.TokenmillError, FileNotFoundError, TypeError, IndexError, ValueError) as error:
                said.append(f"{type(error).__name__}: {error}")
        said += [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    except Exception:
        said.append(traceback.format_exc())
        return f"raised {said[-1]}"
    finally:
        os.chdir(here)
    if not said:
        return "silent success"
    return "" if any(re.search(wrong.cause, text, re.IGNORECASE) for text in said) else " | ".join(said)


def wrong_inputs(seed: int, count: int) -> list[Wrong]:
    """So many calls, the kinds in turn."""
    draw = random.Random(seed)
    kinds = (
        paths_as_texts, encoding, paths_as_texts, field, shape_of_json, no_data, field, encoding, split, raw_ids, other_corpus,
        nothing_there, unreadable, mostly_bad,
    )  # fmt: skip
    return [kinds[i % len(kinds)](draw) for i in range(count)]


def _text(draw: random.Random, words: int = 30, *, letters: str = "") -> str:
    return " ".join(draw.choice(WORDS) + (draw.choice(letters) if letters else "") for _ in range(words))


def _rows(draw: random.Random, count: int, field: str = "text") -> list[dict[str, Any]]:
    return [{field: _text(draw)} for _ in range(count)]


def _write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _build(source: Any, **options: Any) -> Any:
    return tm.build(source, "bytes", "store", progress="quiet", **options)


# --- containers of paths ---


def paths_as_texts(draw: random.Random) -> Wrong:
    suffix = draw.choice((".jsonl", ".txt", ".parquet", ".jsonl.gz", ".json", ".csv", ".jsonl.zst", ".arrow", ".tsv"))
    folder = draw.choice(("", "data/", "corpus/en/", "../elsewhere/", "./", "https://example.invalid/", "s3://bucket/"))
    exists = draw.random() < 0.4 and "://" not in folder and suffix in (".jsonl", ".txt", ".csv", ".json")
    count = draw.randint(1, 4)
    names = [f"{folder}{draw.choice(('train', 'part', 'shard', 'web'))}-{i:03}{suffix}" for i in range(count)]
    if draw.random() < 0.15 and "://" not in folder:
        names = [f"{folder}*{suffix}"]
    kind = draw.choice(("list", "tuple", "set", "iterator", "generator", "array", "arrow", "series", "keys", "dataset"))
    if kind == "tuple" and exists:  # a tuple of paths is several inputs, which is right where they exist
        exists = False
    how = draw.choice(("build", "build", "build", "load", "read"))
    if kind in ("list", "tuple") and how == "read":
        how = "build"

    def run(here: Path) -> None:
        if exists:
            for i, name in enumerate(names):
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                (here / name.replace("*", "a")).write_text(f'{{"text": "words {i}"}}\n')
        given: Any = {
            "list": lambda: list(names),
            "tuple": lambda: tuple(names),
            "set": lambda: set(names),
            "iterator": lambda: iter(names),
            "generator": lambda: (name for name in names),
            "array": lambda: np.array(names),
            "arrow": lambda: pa.array(names),
            "series": lambda: _series(names),
            "keys": lambda: dict.fromkeys(names).keys(),
            "dataset": lambda: pa.table({"text": names}),
        }[kind]()
        if how == "load":
            tm.load(given, tokenizer="bytes", seq_len=8, batch_size=1)
        elif how == "read":
            tm.build(tm.read(given), "bytes", "store", progress="quiet")
        else:
            _build(given)

    what = f"{how}: {kind} of {names[0]}{' (which exist)' if exists else ''}"
    return Wrong("container", what, r"path|file|no such|glob|bucket|URL|reach", run)


def _series(names: list[str]) -> Any:
    try:
        import pandas
    except ImportError:
        return np.array(names, object)
    return pandas.Series(names)


# --- encodings ---


def encoding(draw: random.Random) -> Wrong:
    name = draw.choice((
        "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "cp1251", "shift_jis", "gb18030", "euc-kr",
    ))  # fmt: skip
    letters = {"latin-1": "éàüñßç", "cp1252": "éàü“”—", "cp1251": "абвгд", "shift_jis": "あいう中", "gb18030": "中文字符",
               "euc-kr": "한국어"}.get(name, "éàü")  # fmt: skip
    suffix = draw.choice((".jsonl", ".txt", ".csv", ".jsonl"))
    count = draw.randint(20, 60)
    texts = [_text(draw, letters=letters) for _ in range(count)]

    def run(here: Path) -> None:
        if suffix == ".jsonl":
            body = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        elif suffix == ".csv":
            body = "text\n" + "".join(f"{text}\n" for text in texts)
        else:
            body = "\n".join(texts)
        (here / f"data{suffix}").write_bytes(body.encode(name, "replace"))
        _build(str(here / f"data{suffix}"))

    return Wrong("encoding", f"{name} in {suffix}", r"UTF-?16|UTF-?32|UTF-?8|Latin|encod|NUL", run)


# --- fields ---


def field(draw: random.Random) -> Wrong:
    kind = draw.choice(
        ("other name", "mostly missing", "messages", "instruction", "number", "nested", "null", "list", "object")
    )
    names = draw.choice((("content",), ("body", "title"), ("Text",), ("document", "url"), ("raw_content",)))
    suffix = draw.choice((".jsonl", ".jsonl", ".parquet", ".csv", "table"))
    if kind in ("messages", "nested", "list", "object") and suffix == ".csv":
        suffix = ".jsonl"
    count, options = draw.randint(30, 200), {}
    cause = r"field|column"
    rows: list[dict[str, Any]] = []
    texts = [_text(draw) for _ in range(count)]
    good = draw.randint(1, 2)
    if kind == "other name":
        rows = [dict.fromkeys(names, text) for text in texts]
    elif kind == "mostly missing":
        suffix = ".jsonl"
        rows = [{"text": text} if i < good else {names[0]: text} for i, text in enumerate(texts)]
    elif kind == "messages":
        rows = [
            {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]} for text in texts
        ]
        options, cause = {"text_field": "messages"}, r"messages|chat|list|template"
    elif kind == "instruction":
        pair = draw.choice(
            (("instruction", "output"), ("prompt", "completion"), ("question", "answer"), ("input", "output"))
        )
        rows, cause = [dict.fromkeys(pair, text) for text in texts], r"template"
    elif kind == "number":
        rows, cause = [{"text": i} for i in range(count)], r"text|string|number|int"
    elif kind == "nested":
        rows = [{"data": {"text": text}} for text in texts]
    elif kind == "null":
        rows, cause = [{"text": text if i < good else None} for i, text in enumerate(texts)], r"null|field|empty|column"
    elif kind == "list":
        rows, cause = [{"text": [text]} for text in texts], r"list|text|string"
    else:
        rows, cause = [{"text": {"value": text}} for text in texts], r"text|string|object|struct|dict|field"

    def run(here: Path) -> None:
        path = here / f"data{'.parquet' if suffix == 'table' else suffix}"
        if suffix == ".jsonl":
            _write_jsonl(path, rows)
        elif suffix == ".csv":
            keys = list(rows[0])
            lines = [
                ",".join(keys),
                *(",".join(str(row.get(key) if row.get(key) is not None else "") for key in keys) for row in rows),
            ]
            path.write_text("\n".join(lines) + "\n")
        elif suffix == "table":
            _build(pa.Table.from_pylist(rows), **options)
            return
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
        _build(str(path), **options)

    if suffix == ".csv" and kind in ("number", "null"):  # all is text in csv
        return field(draw)
    return Wrong("field", f"{kind} in {suffix}: {', '.join(rows[-1])}", cause, run)


# --- JSON in another shape ---


def shape_of_json(draw: random.Random) -> Wrong:
    kind = draw.choice(("array of strings", "array of numbers", "python literals", "trailing commas", "one object", "numbers",
                        "strings", "cut array", "comments"))  # fmt: skip
    suffix = draw.choice((".json", ".jsonl"))
    rows = _rows(draw, draw.randint(20, 80))
    texts = [row["text"] for row in rows]
    bodies: dict[str, Callable[[], str]] = {
        "array of strings": lambda: json.dumps(texts),
        "array of numbers": lambda: json.dumps([[len(text)] for text in texts]),
        "python literals": lambda: "".join(f"{row!r}\n" for row in rows),
        "trailing commas": lambda: "".join(json.dumps(row) + ",\n" for row in rows),
        "one object": lambda: json.dumps({"data": rows, "version": 1}),
        "numbers": lambda: "".join(f"{len(text)}\n" for text in texts),
        "strings": lambda: "".join(json.dumps(text) + "\n" for text in texts),
        "cut array": lambda: json.dumps(rows)[: draw.randint(40, 200)],
        "comments": lambda: "".join(f"// {text}\n" for text in texts),
    }
    body = bodies[kind]()

    def run(here: Path) -> None:
        (here / f"data{suffix}").write_text(body)
        _build(str(here / f"data{suffix}"))

    return Wrong("shape of JSON", f"{kind} in {suffix}", r"JSON|object|array|field", run)


# --- files that are no data ---


def no_data(draw: random.Random) -> Wrong:
    kind, suffix = draw.choice((
        ("html", ".jsonl"), ("html", ".parquet"), ("html", ".jsonl.gz"), ("lfs", ".jsonl"), ("lfs", ".parquet"),
        ("lfs", ".txt"), ("csv", ".jsonl"), ("parquet", ".jsonl"), ("gzip", ".jsonl"), ("binary", ".txt"),
        ("jsonl", ".parquet"), ("binary", ".jsonl"),
        ("jsonl", ".arrow"), ("zip", ".jsonl"), ("html", ".json"), ("cut gzip", ".jsonl.gz"), ("zeros", ".txt"),
        ("zeros", ".jsonl"),
    ))  # fmt: skip
    rows = _rows(draw, 40)
    noise = bytes(draw.randrange(256) for _ in range(20_000))

    def body() -> bytes:
        jsonl = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if kind == "html":
            return b"<!DOCTYPE html>\n<html><head><title>404</title></head>\n<body>Not found</body></html>\n"
        if kind == "lfs":
            return b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
        if kind == "csv":
            return b"id,text\n" + b"".join(b"%d,%s\n" % (i, row["text"].encode()) for i, row in enumerate(rows))
        if kind == "parquet":
            sink = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows), sink)
            return sink.getvalue()
        packed = gzip.compress(jsonl)
        cut = packed[: len(packed) // 2]
        return {
            "gzip": packed,
            "cut gzip": cut,
            "binary": noise,
            "jsonl": jsonl,
            "zip": b"PK\x03\x04" + noise,
            "zeros": bytes(5000),
        }[kind]

    def run(here: Path) -> None:
        (here / f"data{suffix}").write_bytes(body())
        _build(str(here / f"data{suffix}"))

    cause = r"JSON|gzip|parquet|arrow|UTF-?8|LFS|HTML|field|compress|read|NUL|encod|binary"
    return Wrong("no data", f"{kind} named {suffix}", cause, run)


# --- splits ---


def split(draw: random.Random) -> Wrong:
    names = draw.choice((
        ("train.jsonl", "valid.jsonl"), ("train/a.jsonl", "test/a.jsonl"), ("Web-train.jsonl", "Web-validation.jsonl"),
        ("a.jsonl", "dev.jsonl"), ("train-0.jsonl", "eval-0.jsonl"), ("x/training/1.jsonl", "x/val/1.jsonl"),
    ))  # fmt: skip
    how = draw.choice(("pack", "load", "load of a path", "recipe", "pack best_fit", "load of text"))
    rows = [_rows(draw, draw.randint(5, 20)) for _ in names]

    def run(here: Path) -> None:
        for name, some in zip(names, rows, strict=True):
            _write_jsonl(here / "data" / name, some)
        if how == "load of text":
            tm.load(str(here / "data"), tokenizer="bytes", seq_len=16, batch_size=1)
            return
        store = _build(str(here / "data"))
        if how == "recipe":
            tm.recipe({"sources": {"a": {"store": str(here / "store")}}, "pack": {"seq_len": 16}}).view()
        elif how == "load":
            tm.load(store, seq_len=16, batch_size=1)
        elif how == "load of a path":
            tm.load("store", seq_len=16, batch_size=1)
        else:
            tm.pack(store, 16, strategy="best_fit" if "best" in how else "concat")

    return Wrong("split", f"{how} of {', '.join(names)}", r"split|train", run)


# --- raw ids ---


def raw_ids(draw: random.Random) -> Wrong:
    kind = draw.choice(("wide as narrow", "beyond the vocabulary", "odd size", "no dtype", "signed", "eos beyond"))
    count = draw.randint(200, 2000)
    ids = np.array([draw.randrange(1000) for _ in range(count)])
    vocabulary = draw.choice((70_000, 100_000, 150_000))

    def run(here: Path) -> None:
        path = here / "train.bin"
        tokenizer = _tokenizer(here / "tokenizer", vocabulary)
        if kind == "wide as narrow":
            ids.astype(np.uint32).tofile(path)
            store = tm.import_tokens("train.bin", "imported", tokenizer=tokenizer)
            if store.num_tokens == count:  # found out
                raise ValueError("read as uint32")
        elif kind == "beyond the vocabulary":
            ids[draw.randrange(count)] = 4000
            ids.astype(np.uint16).tofile(path)
            tm.import_tokens("train.bin", "imported", tokenizer=_tokenizer(here / "small", 1000), dtype="uint16")
        elif kind == "odd size":
            path.write_bytes(ids.astype(np.uint16).tobytes() + b"x")
            tm.import_tokens("train.bin", "imported", dtype="uint16")
        elif kind == "no dtype":
            ids.astype(draw.choice((np.uint32, np.int64, np.uint16))).tofile(path)
            tm.import_tokens("train.bin", "imported")
        elif kind == "signed":
            (-ids - 1).astype(np.int32).tofile(path)
            tm.import_tokens("train.bin", "imported", tokenizer=tokenizer, dtype="uint32")
        else:
            ids.astype(np.uint16).tofile(path)
            tm.import_tokens("train.bin", "imported", dtype="uint16", eos=vocabulary)

    return Wrong("raw ids", f"{kind}, vocabulary of {vocabulary}", r"dtype|uint|vocabulary|bytes|eos", run)


def _tokenizer(folder: Path, size: int) -> Path:
    """A tokenizer.json with so many ids."""
    folder.mkdir()
    vocabulary = {"<unk>": 0, **{f"w{i}": i for i in range(1, size)}}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    body = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(body))
    return folder


# --- another corpus at the same place ---


def other_corpus(draw: random.Random) -> Wrong:
    kind = draw.choice(("list", "table", "generator", "files", "export", "series"))
    sizes = draw.randint(30, 60), draw.randint(2, 5)
    first, second = ([_text(draw) for _ in range(size)] for size in sizes)

    def run(here: Path) -> None:
        if kind == "export":
            for name, texts in (("a", first), ("b", second)):
                store = tm.build(texts, "bytes", name, progress="quiet")
                tm.export(store, "exported", format="nanogpt")
            return
        for texts in (first, second):
            if kind == "files":
                _build(str(_write_jsonl(here / f"{len(texts)}.jsonl", [{"text": text} for text in texts])))
            elif kind == "table":
                _build(pa.table({"text": texts}))
            elif kind == "generator":
                _build(text for text in texts)
            elif kind == "series":
                _build(_series(texts))
            else:
                _build(list(texts))

    return Wrong("other corpus", f"{kind}: {sizes[1]} texts over {sizes[0]}", r"force|another|other|input", run)


# --- folders and globs without data ---


def nothing_there(draw: random.Random) -> Wrong:
    kind = draw.choice((
        "code", "empty folder", "hidden", "empty list", "glob.glob", "blank rows", "empty table", "empty generator",
        "empty tuple", "empty file", "pictures", "header only",
    ))  # fmt: skip

    def run(here: Path) -> None:
        folder = here / "data"
        folder.mkdir()
        if kind == "code":
            for i in range(3):
                (folder / f"{i}.py").write_text("print(1)\n")
        elif kind == "hidden":
            _write_jsonl(folder / ".hidden.jsonl", [{"text": "a"}])
        elif kind == "pictures":
            (folder / "a.png").write_bytes(b"\x89PNG")
        elif kind == "blank rows":
            _write_jsonl(folder / "a.jsonl", [{"text": ""}] * 50)
        elif kind == "empty file":
            (folder / "a.jsonl").write_bytes(b"")
        elif kind == "header only":
            (folder / "a.csv").write_text("text\n")
        given: dict[str, Callable[[], Any]] = {
            "empty list": list,
            "glob.glob": lambda: glob.glob("missing/*.jsonl"),
            "empty table": lambda: pa.table({"text": pa.array([], pa.string())}),
            "empty generator": lambda: iter(()),
            "empty tuple": tuple,
        }
        _build(given.get(kind, lambda: str(folder))())

    return Wrong("nothing there", kind, r"empty|no file|no document|nothing|no text|no data", run)


# --- files that cannot be read ---


def unreadable(draw: random.Random) -> Wrong:
    kind = draw.choice((
        "dangling link", "folder named .jsonl", "pipe", "missing", "missing in @list", "link to itself", "missing store",
        "missing recipe source", "open file", "missing glob",
    ))  # fmt: skip
    beside = draw.random() < 0.5

    def run(here: Path) -> None:
        path = here / "a.jsonl"
        source: Any = [Path("a.jsonl")]
        if beside:
            _write_jsonl(here / "b.jsonl", _rows(draw, 3))
            source.append(Path("b.jsonl"))
        if kind == "dangling link":
            path.symlink_to(here / "gone.jsonl")
        elif kind == "link to itself":
            path.symlink_to(path)
        elif kind == "folder named .jsonl":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "missing in @list":
            (here / "files.txt").write_text("a.jsonl\n")
            source = "@files.txt"
        elif kind == "missing glob":
            source = "a*.jsonl.zst"
        elif kind == "open file":
            _write_jsonl(path, _rows(draw, 3))
            with open(path) as file:
                _build(file)
            return
        elif kind == "missing store":
            tm.load("a-store/", seq_len=8, batch_size=1)
            return
        elif kind == "missing recipe source":
            tm.recipe({"sources": {"a": "a.jsonl"}, "tokenizer": "bytes", "pack": {"seq_len": 8}}).view()
            return
        _build(tuple(source) if isinstance(source, list) else source)

    cause = r"a\.jsonl|a-store|a\*|no file|not a regular file|path|cannot be read|failed"
    return Wrong("unreadable", f"{kind}{' beside a good file' if beside else ''}", cause, run)


# --- most rows bad ---


def mostly_bad(draw: random.Random) -> Wrong:
    kind = draw.choice(("broken JSON", "null", "not UTF-8", "cut lines", "number"))
    share = draw.choice((0.3, 0.6, 0.9, 0.99, 1.0))
    count = draw.randint(200, 1000)
    good = int(count * (1 - share))
    how = draw.choice(("file", "file", "two files", "iterable"))
    if how == "iterable":
        kind = "null"

    def line(i: int) -> bytes:
        whole = json.dumps({"text": _text(random.Random(i), 8)}).encode()
        if i % count < good:
            return whole
        return {"broken JSON": b"{text: 1}", "null": b'{"text": null}', "not UTF-8": whole.replace(b" ", b"\xff"),
                "cut lines": whole[:-3], "number": b'{"text": 5}'}[kind]  # fmt: skip

    def run(here: Path) -> None:
        if how == "iterable":
            _build(_text(random.Random(i), 8) if i < good else None for i in range(count))
            return
        for number in range(2 if how == "two files" else 1):
            lines = [line(number * count + i) for i in range(count)]
            (here / f"{number}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        _build("*.jsonl")

    return Wrong(
        "mostly bad", f"{share:.0%} of {count} rows: {kind}, {how}", r"quarantin|bad|JSON|null|UTF-8|rows|document", run
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    bad: Counter[str] = Counter()
    for number, (wrong, said) in enumerate(_outcomes(options.seed, options.count)):
        if said:
            bad[wrong.kind] += 1
            print(f"{number:4} {wrong.kind}: {wrong.description}: {said[:300]}", flush=True)
    print(f"{options.count} wrong inputs: {sum(bad.values())} in silence or for another reason: {dict(bad)}")
    return 1 if bad else 0


def _outcomes(seed: int, count: int) -> Iterator[tuple[Wrong, str]]:
    for wrong in wrong_inputs(seed, count):
        with tempfile.TemporaryDirectory() as folder:
            yield wrong, outcome(wrong, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
