"""Lines that people type on their first day with tokenmill, before they have read anything about it.

They come from the habits of other libraries: datasets, transformers, tokenizers, tiktoken, accelerate, numpy, pandas, PyTorch,
Lightning, nanoGPT, llm.c, Megatron, litgpt, torchtune, axolotl, TRL, datatrove, webdataset, Mosaic. Each line should do what the
person wants, or be answered with the name of what does. `outcome` says which.

    python tests/support/first_lines.py [--kind python|command|recipe]

prints each line with what happened, and the totals.

Lines of Python run in this process, in a folder of their own with the same small corpus and store. Their names: `tm`, `np`,
`Path`, `store`, `view` (64 positions wide), `loader` (batches of 4), `tok` and `texts`; in `works` also `result`, the value of a
last expression. A recipe is a whole YAML file: it is checked, built, and its first batch loaded, as `recipe`, `view` and `batch`.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import contextlib
import functools
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tokenmill as tm

LIMIT = 60.0  # seconds that a line may take; some start workers
LOOP = 2.0  # seconds that a line with a loader may take; only a loop without an end takes as long
ANSWERS = (
    tm.errors.TokenmillError, TypeError, ValueError, AttributeError, ImportError, FileNotFoundError, IndexError, KeyError,
)  # fmt: skip
LISTING = re.compile(r"(?:[\w-]+, ){14,}[\w-]+|\([\w.]+: (?:[\w-]+, )+[\w-]+\)")  # all options or keys: no remedy


@dataclass(frozen=True, slots=True)
class Line:
    """A line as typed; what the person wants; an expression that is true if it happened; what a helpful answer has to say.

    Without `works` the line makes no sense here, and only an answer is right; without `told` only working is.
    """

    kind: str
    text: str
    wants: str
    works: str
    told: str

    @property
    def id(self) -> str:
        return f"{self.kind}: {'; '.join(filter(None, self.text.splitlines()))}"[:110].strip()


class _Endless(BaseException):
    """A line ran for longer than any of these lines should."""


def outcome(line: Line, folder: Path) -> str:
    """ "works", "told", "stumbles: ..." or "silently wrong: ...", for a line typed in a copy of the world in `folder`."""
    shutil.copytree(_world(), folder, dirs_exist_ok=True)
    if line.kind == "command":
        return _command(line, folder)
    here, cache = Path.cwd(), os.environ.get("TOKENMILL_CACHE")
    os.chdir(folder)
    os.environ["TOKENMILL_CACHE"] = str(folder / "cache")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
                problem, answer, works = _typed(line)
            said = [answer, err.getvalue(), *(str(each.message) for each in caught)]
    finally:
        os.chdir(here)
        os.environ.pop("TOKENMILL_CACHE", None)
        if cache is not None:
            os.environ["TOKENMILL_CACHE"] = cache
        _forget_accelerate()
    if works:
        return "works"
    if line.told and not problem and any(_names(line.told, text) for text in said):
        return "told"
    if answer:
        return f"stumbles: {problem}{answer}"
    return "silently wrong: no error" + (f", and not: {line.works}" if line.works else "")


def _names(told: str, text: str) -> bool:
    return re.search(told, LISTING.sub("...", text)) is not None


def _typed(line: Line) -> tuple[str, str, bool]:
    """Why an error is no answer, the error as the person sees it, and whether the line works."""
    names = _names_of_a_session()
    try:
        with _no_longer_than(LOOP if "loader" in line.text else LIMIT):
            if line.kind == "recipe":
                Path("typed.yaml").write_text(line.text)
                names["recipe"] = recipe = tm.recipe("typed.yaml")
                names["view"] = recipe.view()
                names["loader"] = loader = recipe.loader()
                names["batch"] = loader.batch(0)
            else:
                names["result"] = _run(line.text, names)
    except _Endless:
        return "", "does not end", False
    except BaseException as error:
        kind = "" if isinstance(error, ANSWERS) else "not an answer: "
        return kind, "".join(traceback.TracebackException.from_exception(error).format_exception_only()).strip(), False
    try:
        return "", "", bool(line.works) and bool(eval(line.works, names))  # noqa: S307  # the lines below
    except Exception:
        return "", "", False


def _run(text: str, names: dict[str, Any]) -> Any:
    """Run the statements, and return the value of the last if it is an expression."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<typed>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<typed>", "eval"), names)  # noqa: S307


@contextlib.contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Endless

    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("lines are typed in the main thread, where a loop without an end can be stopped")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _forget_accelerate() -> None:
    """Accelerate keeps one state for all of a process."""
    if (state := sys.modules.get("accelerate.state")) is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()


def _names_of_a_session() -> dict[str, Any]:
    store = tm.open("store")
    view = tm.pack(store, 64)
    texts = [json.loads(line)["text"] for line in Path("data/corpus.jsonl").read_text().splitlines()]
    return {"tm": tm, "np": np, "Path": Path, "store": store, "view": view, "loader": tm.load(view, 4),
            "tok": tm.load_tokenizer("demo"), "texts": texts}  # fmt: skip


def _command(line: Line, folder: Path) -> str:
    environment = {**os.environ, "TOKENMILL_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    words = shlex.split(line.text)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if words[:3] == ["python", "-m", "tokenmill"]:
        del words[:2]
    assert words[0] == "tokenmill", line.text
    try:
        result = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "stumbles: does not end"
    names = {"result": result, "folder": folder, "tm": tm}
    if "Traceback" in result.stderr:
        return f"stumbles: not an answer: {result.stderr[-300:]}"
    with contextlib.suppress(Exception):
        if line.works and eval(line.works, names):  # noqa: S307
            return "works"
    if line.told and _names(line.told, result.stderr):
        return "told"
    if result.returncode:
        return f"stumbles: {result.stderr.strip()}"
    return f"silently wrong: exit code 0, and not: {line.works}"


@functools.cache
def _world() -> Path:
    """What every line finds: a corpus in four formats, a store of it, tokens of other tools, a recipe, and a cache of its own."""
    keep = tempfile.TemporaryDirectory(prefix="first-lines-")
    atexit.register(keep.cleanup)
    world = Path(keep.name)
    words = [
        "the",
        "of",
        "and",
        "to",
        "in",
        "a",
        "is",
        "that",
        "for",
        "it",
        "as",
        "was",
        "with",
        "be",
        "by",
        "on",
        "not",
        "he",
        "his",
        "but",
        "at",
        "are",
        "this",
        "have",
        "from",
        "or",
    ]
    texts = [" ".join(words[(i * 7 + j * j) % len(words)] for j in range(20 + i % 30)) for i in range(60)]
    rows = [{"text": text, "id": i} for i, text in enumerate(texts)]
    (world / "data").mkdir()
    (world / "data/corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (world / "data/notes.txt").write_text("\n\n".join(texts[:20]) + "\n")
    (world / "data/table.csv").write_text("id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in rows[:30]))
    pq.write_table(pa.Table.from_pylist(rows[:30]), world / "data/part.parquet")
    (world / "bin").mkdir()
    ids = np.arange(1, 2001) % 200
    ids.astype(np.uint16).tofile(world / "bin/train.bin")
    np.save(world / "bin/train.npy", ids.astype(np.uint16))
    (world / "recipe.yaml").write_text(
        "sources: {web: data/corpus.jsonl}\ntokenizer: bytes\npack: {seq_len: 64}\n"
        "split: {eval: 0.1}\nload: {batch_size: 4}\n"
    )
    cache = os.environ.get("TOKENMILL_CACHE")
    os.environ["TOKENMILL_CACHE"] = str(world / "cache")
    tm.build(world / "data/corpus.jsonl", "demo", world / "store", workers=0, progress="quiet")
    os.environ.pop("TOKENMILL_CACHE", None)
    if cache is not None:
        os.environ["TOKENMILL_CACHE"] = cache
    for library in ("datasets", "pandas", "torch.utils.data", "transformers"):
        importlib.import_module(library)  # once, so that no line waits for it
    return world


def _python(text: str, wants: str, works: str, told: str = "") -> Line:
    return Line("python", text, wants, works, told)


def _shell(text: str, wants: str, works: str, told: str = "") -> Line:
    return Line("command", text, wants, works, told)


def _recipe(text: str, wants: str, works: str, told: str = "") -> Line:
    return Line("recipe", text, wants, works, told)


OUT = 'len(tm.open("out")) == 60'  # the whole corpus is in the store
PACKED = 'len(result) == len(view) and result[0]["input_ids"].shape == (64,)'  # as without the additional option
TOOK = "result.returncode == 0"
BUILT = 'result.returncode == 0 and len(tm.open(folder / "out")) == 60'

STORE_LINES = (
    _python(
        "store.column_names",
        "know what is kept per document",
        '"ids" in result or "input_ids" in result',
        r"'columns'|\.columns",
    ),
    _python("store.num_rows", "count the documents, as in a Dataset", "result == 60", r"len\(|num_documents"),
    _python("store.num_documents", "count the documents", "result == 60", r"len\("),
    _python("store.shape", "see the size, as of an array", "result[0] == 60", r"len\(|num_tokens"),
    _python("store.nbytes", "know how large the tokens are", "result == store.num_tokens * 2", r"num_tokens|dtype"),
    _python("store[-1]", "look at the last document", "list(result) == list(store[59])"),
    _python(
        "store[:3]",
        "look at the first three documents",
        "len(result) == 3 and list(result[1]) == list(store[1])",
        r"for i in|range\(",
    ),
    _python(
        "store[0, :10]",
        "slice document and tokens at once, as in a 2-d array",
        "list(result) == list(store[0][:10])",
        r"store\[0\]\[|one number|\[:10\]",
    ),
    _python(
        'store[0]["input_ids"]',
        "the ids of a document, as in a Dataset",
        "list(result) == list(store[0])",
        r"store\[\w+\] is|only integers",
    ),
    _python('store["input_ids"]', "the column of ids", "len(result) == 60", r"to_arrow|columns"),
    _python('store["text"]', "the texts again", "len(result) == 60", r"\.text\("),
    _python(
        "store.select(range(3))",
        "a small part of the data to try things on",
        "len(result) == 3",
        r"store\[|max_documents|\.split\(",
    ),
    _python("store.shuffle(seed=42)", "another order of documents", "len(result) == 60", r"tm\.load"),
    _python(
        "store.filter(lambda ids: len(ids) > 30)", "leave out short documents", "len(result) < 60", r"min_doc_tokens"
    ),
    _python(
        'store.map(lambda row: {"n": len(row["input_ids"])})',
        "compute something per document",
        "len(result) == 60",
        r"tm\.build|tm\.pack|for \w+ in",
    ),
    _python("store.train_test_split(test_size=0.1)", "hold out a tenth", '"train" in result', r"\.split\(|shares"),
    _python("store.to_list()", "all ids as lists", "result[0] == store[0].tolist()", r"to_arrow|list\("),
    _python("store.to_pandas()", "a data frame of the documents", "len(result) == 60", r"to_arrow"),
    _python(
        'store.save_to_disk("copy")',
        "keep the store elsewhere",
        'len(tm.open("copy")) == 60',
        r"tm\.export|cp |already",
    ),
    _python(
        'store.with_format("torch")',
        "tensors instead of arrays",
        'type(result[0]).__name__ == "Tensor"',
        r"tm\.load|tm\.pack",
    ),
    _python(
        'store.export("out", format="nanogpt")', "write train.bin", 'any(Path("out").glob("*.bin"))', r"tm\.export"
    ),
    _python("[len(doc) for doc in store]", "loop over documents", "result == store.lengths.tolist()"),
    _python("len(list(store))", "all documents in a list", "result == 60"),
    _python("max(store, key=len)", "the longest document", "len(result) == max(store.lengths)"),
    _python(
        "list(zip(store, texts))[0]",
        "documents beside their texts",
        "list(result[0]) == list(store[0]) and result[1] == texts[0]",
    ),
    _python("np.concatenate(list(store))", "one flat array of all tokens", "result.shape == (store.num_tokens,)"),
    _python(
        "np.asarray(store)",
        "one flat array of all tokens",
        "result.shape == (store.num_tokens,)",
        r"to_arrow|concatenate|stream|tm\.pack",
    ),
    _python("import torch\ntorch.tensor(store[0])", "a tensor of a document", "result.tolist() == store[0].tolist()"),
    _python(
        "import torch\ntorch.from_numpy(store[0].astype(np.int64))",
        "a tensor, as in nanoGPT's get_batch",
        "result.tolist() == store[0].tolist()",
    ),
    _python("store[0][0] = 5", "change a token in place", "", r"read-only"),
    _python(
        'try:\n    store[60]\nexcept IndexError:\n    result = "the end"\nresult',
        "notice the end",
        'result == "the end"',
    ),
    _python('store == tm.open("store")', "see whether two handles are the same data", "result is True"),
    _python('{store: "web"}[store]', "use a store as a key", 'result == "web"'),
    _python(
        "import pickle\npickle.loads(pickle.dumps(store))[0]",
        "send a store to another process",
        "list(result) == list(store[0])",
    ),
    _python(
        "import copy\ncopy.deepcopy(store)[3]",
        "copy a configuration that has a store in it",
        "list(result) == list(store[3])",
    ),
    _python("store.close()", "close it, as a file or h5py.File", "True", r"nothing to close|no need|del "),
    _python("store.path", "know where it is", 'Path(result).name == "store"', r"store\.name|'name'|\.name\b"),
    _python("store.vocab_size", "the size of the embedding", "result == tok.vocab_size", r"tokenizer\.|'tokenizer'"),
    _python("store.decode(store[0])", "read a document", "result.startswith(texts[0])", r"\.text\(|tokenizer"),
    _python("store.metadata", "see how it was built", "result", r"tokenmill info|fingerprint|print\("),
    _python(
        "store.tokens[:100]",
        "the first hundred tokens of everything",
        "len(result) == 100",
        r"to_arrow|stream|store\[|columns",
    ),
    _python("store.lengths.mean()", "the mean length of documents", "result == store.num_tokens / 60"),
    _python("print(store)\nrepr(store)", "see what it is", '"60" in result and "tokens" in result'),
    _python(
        "import torch.utils.data\nnext(iter(torch.utils.data.DataLoader(store, batch_size=4)))",
        "batches of a store in one step",
        "len(result) == 4",
        r"tm\.load|tm\.pack",
    ),
    _python(
        "import datasets\ndatasets.Dataset.from_generator(lambda: ({'input_ids': d} for d in store), cache_dir='hf')",
        "a Dataset of the tokens",
        "len(result) == 60",
    ),
)

VIEW_LINES = (
    _python("tm.pack(store, 64, packing=True)", "TRL's word for packing", PACKED, r"strategy"),
    _python(
        'tm.pack(store, 64, padding="max_length")',
        "pad, as a tokenizer of transformers does",
        "result.strategy == 'pad'",
        r"strategy=?.{0,4}pad\b",
    ),
    _python("tm.pack(store, 64, truncation=True)", "cut long documents", PACKED, r"long_docs"),
    _python("tm.pack(store, max_seq_length=64)", "rows of 64 tokens, as TRL says it", PACKED, r"\bseq_len\b"),
    _python(
        "tm.pack(store, T=64)", "rows of 64 tokens, as in nanoGPT", PACKED, r"did you mean seq_len|is seq_len|: seq_len"
    ),
    _python(
        'tm.pack(store, 64, strategy="bfd")', "TRL's best-fit-decreasing", "result.strategy == 'best_fit'", r"best_fit"
    ),
    _python('tm.pack(store, "64")', "a width that comes from argv", PACKED, r"seq_len.*whole number|seq_len.*int"),
    _python("tm.pack(store, np.int64(64))", "a width that comes from numpy", PACKED),
    _python("tm.pack(store, 64, shuffle=True, seed=1)", "rows in another order", PACKED, r"tm\.load"),
    _python(
        'tm.pack(store, 64, return_tensors="pt")',
        "tensors",
        "type(result[0]['input_ids']).__name__ == 'Tensor'",
        r"tm\.load",
    ),
    _python(
        "tm.pack(store, 64, reset_position_ids=True)",
        "Megatron's word for positions that restart",
        PACKED,
        r"position_ids\b.*(fields|already|always)|fields.*position_ids",
    ),
    _python(
        'tm.pack(store, 64, columns=["input_ids"])', "only the ids", "set(result[0]) == {'input_ids'}", r"\bfields\b"
    ),
    _python("tm.pack(store, 64, ignore_index=-100)", "choose what masks labels", PACKED, r"mask_labels|labels"),
    _python("view.shape", "see the size, as of an array", "tuple(result) == (len(view), 64)", r"len\(|seq_len"),
    _python("view.num_tokens", "count the tokens in it", "result == store.num_tokens", r"\.stats|'stats'"),
    _python("view[-1]['input_ids']", "the last row", "result.shape == (64,)"),
    _python("view[0:4]", "the first four rows", "result['input_ids'].shape == (4, 64) or len(result) == 4", r"rows\("),
    _python('view["input_ids"]', "all ids as one array", "result.shape == (len(view), 64)", r"rows\(|fields|\[0\]"),
    _python("view.select(range(10))", "a few rows to try things on", "len(result) == 10", r"rows\(|\.split\(|Subset"),
    _python("view.shuffle(seed=1)", "rows in another order", "len(result) == len(view)", r"tm\.load"),
    _python(
        'view.set_format("torch")',
        "tensors instead of arrays",
        "type(view[0]['input_ids']).__name__ == 'Tensor'",
        r"tm\.load",
    ),
    _python("view.column_names", "know what is in a row", "'input_ids' in result", r"fields|\.keys\("),
    _python("view.to_list()", "all rows", "len(result) == len(view)", r"rows\(|list\("),
    _python("view.split(test_size=0.1)", "hold out a tenth, as in scikit-learn", "len(result) == 2", r"train="),
    _python("view.split([0.9, 0.1])", "two parts, as random_split", "len(result) == 2", r"train="),
    _python(
        "train, val = view.split(train=0.9, val=0.1)\nfirst = train[0]['input_ids']",
        "both parts at once",
        "first.shape == (64,)",
        r"values\(|\[.train.\]",
    ),
    _python("np.stack([row['input_ids'] for row in view])", "one array of all rows", "result.shape == (len(view), 64)"),
    _python("np.asarray(view)", "one array of all rows", "result.shape == (len(view), 64)", r"rows\("),
    _python(
        "view + tm.pack(store, 64)",
        "concatenate, as torch datasets do",
        "len(result) == 2 * len(view)",
        r"tm\.mix|ConcatDataset",
    ),
    _python("import pickle\nlen(pickle.loads(pickle.dumps(view)))", "send it to workers", "result == len(view)"),
    _python("view == tm.pack(store, 64)", "see whether two packings are the same", "result is True"),
    _python(
        "view.tokenizer.decode(view[0]['input_ids'])", "read a row", "result.startswith(texts[0])", r"store\.tokenizer"
    ),
    _python(
        "import torch.utils.data as d\nnext(iter(d.DataLoader(view, batch_size=4, shuffle=True)))",
        "torch's own loader",
        "result['input_ids'].shape == (4, 64)",
    ),
    _python(
        "import torch.utils.data as d\nd.Subset(view, range(8))[3]['input_ids']",
        "a torch subset",
        "result.shape == (64,)",
    ),
    _python(
        "import torch.utils.data as d\n[len(p) for p in d.random_split(view, [0.5, 0.5])]",
        "two random parts",
        "sum(result) == len(view)",
    ),
    _python(
        "import torch.utils.data as d\nlen(d.DistributedSampler(view, num_replicas=2, rank=0))",
        "torch's own sampler of ranks",
        "result >= len(view) // 2",
    ),
    _python(
        "import transformers\ntransformers.default_data_collator([view[0], view[1]])['input_ids']",
        "a collator of transformers",
        "tuple(result.shape) == (2, 64)",
    ),
    _python(
        "from torchdata.stateful_dataloader import StatefulDataLoader as S\nnext(iter(S(view, batch_size=4)))",
        "a stateful loader",
        "result['input_ids'].shape == (4, 64)",
    ),
    _python(
        "import pandas as pd\npd.Series(view.stats.as_dict())['rows']",
        "the statistics in pandas",
        "result == len(view)",
    ),
    _python(
        "import functools\nfunctools.partial(tm.pack, seq_len=32)(store).seq_len",
        "an option given early",
        "result == 32",
    ),
)

LOADER_LINES = (
    _python("len(loader)", "the steps of an epoch", "result == len(view) // 4", r"epochs"),
    _python(
        "len(loader.dataset)",
        "the size of the data, as torch's loaders tell it",
        "result == len(view)",
        r"loader\.data\b|dataset\(\)",
    ),
    _python("next(loader)['input_ids']", "the next batch", "tuple(result.shape) == (4, 64)", r"iter\("),
    _python("loader[0]['input_ids']", "the first batch", "tuple(result.shape) == (4, 64)", r"batch\("),
    _python(
        "for step, batch in enumerate(loader):\n    if step == 3:\n        break\nbatch['labels'].to('cpu').shape",
        "a plain loop",
        "tuple(result) == (4, 64)",
    ),
    _python("sum(1 for _ in loader)", "one pass over the data", "result == len(view) // 4", r"epochs"),
    _python(
        "x, y = next(iter(loader))\nx.shape", "ids and targets, as in nanoGPT", "tuple(result) == (4, 64)", r"input_ids"
    ),
    _python(
        "next(iter(loader)).to('cpu')['input_ids']",
        "move a batch, as of transformers",
        "tuple(result.shape) == (4, 64)",
        r"device=",
    ),
    _python("loader.set_epoch(1)", "another order in the next epoch", "True", r"by itself|no need|epochs|seed"),
    _python("loader.num_workers", "know how many processes load", "result >= 0", r"prefetch"),
    _python(
        "import itertools\n[b['input_ids'].shape[0] for b in itertools.islice(loader, 3)]",
        "three batches",
        "result == [4, 4, 4]",
    ),
    _python(
        "with tm.load(view, 4, epochs=1) as batches:\n    n = sum(1 for _ in batches)",
        "free it at the end",
        "n == len(view) // 4",
        r"for batch in|no need|nothing to close",
    ),
    _python(
        "import pickle\npickle.loads(pickle.dumps(loader)).batch_size",
        "send a loader to another process",
        "result == 4",
        r"tm\.load|state_dict",
    ),
    _python(
        "tm.load(view, batch_size=4, num_epochs=2)",
        "two passes",
        "sum(1 for _ in result) >= 2 * (len(view) // 4)",
        r"\bepochs\b",
    ),
    _python(
        "tm.load(view, batch_size=4, prefetch_factor=4, persistent_workers=True)",
        "the options of torch",
        "result.batch(0)",
        r"\bprefetch\b",
    ),
    _python(
        "tm.load(view, batch_size=4, collate_fn=lambda rows: rows)",
        "make batches oneself",
        "isinstance(result.batch(0), list)",
        r"DataLoader|for batch in|tm\.pack|view",
    ),
    _python(
        "tm.load(view, per_device_train_batch_size=4)",
        "the word of TrainingArguments",
        "result.batch_size == 4",
        r"\bbatch_size\b",
    ),
    _python(
        "tm.load(view, micro_batch_size=4)",
        "the word of Megatron and litgpt",
        "result.batch_size == 4",
        r"\bbatch_size\b",
    ),
    _python(
        "tm.load(view, 4, max_steps=10)",
        "stop after ten steps",
        "sum(1 for _ in result) == 10",
        r"islice|break|\bepochs\b",
    ),
    _python(
        "tm.load(view, 4, shuffle_buffer_size=1000)", "shuffle as webdataset does", "result.batch(0)", r"\bshuffle\b"
    ),
    _python(
        "tm.load(view, 4, num_replicas=2, rank=1)",
        "the words of DistributedSampler",
        "result.batch_size == 4",
        r"world_size",
    ),
    _python(
        "import torch\ntm.load(view, 4, dtype=torch.long).batch(0)['input_ids'].dtype",
        "a dtype of torch",
        "str(result) == 'torch.int64'",
        r"int64",
    ),
    _python(
        "import torch\ntm.load(view, 4, device=torch.device('cpu')).batch(0)['input_ids'].device.type",
        "a device of torch",
        "result == 'cpu'",
    ),
    _python(
        'tm.load("data/corpus.jsonl", 4, "bytes", 32)',
        "give everything by position",
        "result.batch(0)",
        r"tokenizer=|keyword|seq_len=",
    ),
    _python(
        "import accelerate\nnext(iter(accelerate.Accelerator(cpu=True).prepare(loader)))",
        "prepare it",
        "tuple(result['input_ids'].shape) == (4, 64)",
    ),
)

BUILD_LINES = (
    _python('tm.build(Path("data/corpus.jsonl"), "bytes", Path("out"))', "paths as Path", OUT),
    _python('import glob\ntm.build(glob.glob("data/*.jsonl"), "bytes", "out")', "the files of a glob", OUT),
    _python(
        'tm.build({"train": "data/corpus.jsonl", "test": "data/notes.txt"}, "bytes", "out")',
        "the data_files of load_dataset",
        'set(tm.open("out").splits) == {"train", "test"}',
        r"split|tm\.recipe|tm\.mix|each",
    ),
    _python(
        'import json\ntm.build((json.loads(line) for line in open("data/corpus.jsonl")), "bytes", "out")',
        "parsed rows",
        OUT,
        r"\[.text.\]|text_field",
    ),
    _python(
        'import io\ntm.build(io.StringIO("one two\\nthree four\\n"), "bytes", "out")',
        "text in memory",
        'len(tm.open("out")) >= 1',
        r"list of|splitlines|getvalue|\[",
    ),
    _python(
        'tm.build("Call me Ishmael. Some years ago, never mind how long", "bytes", "out")',
        "one text, to try it",
        'len(tm.open("out")) == 1',
        r"list|\[",
    ),
    _python(
        'tm.build(open("data/notes.txt").read(), "bytes", "out")',
        "one text, as in nanoGPT's prepare.py",
        'len(tm.open("out")) == 1',
        r"list|\[|a text|the text",
    ),
    _python(
        'import pandas as pd\ntm.build(pd.read_csv("data/table.csv", chunksize=10), "bytes", "out")',
        "a csv in chunks",
        'len(tm.open("out")) == 30',
        r"data\w*\.csv|the path|DataFrame|data frame|\[.text.\]",
    ),
    _python(
        'import csv\ntm.build(csv.DictReader(open("data/table.csv")), "bytes", "out")',
        "rows of a csv",
        'len(tm.open("out")) == 30',
        r"\[.text.\]|text_field|the path",
    ),
    _python(
        'import datasets\nd = datasets.Dataset.from_dict({"text": texts})\n'
        "tm.read(datasets.DatasetDict(train=d, test=d))",
        "all splits of a dataset",
        "len(result.inputs) == 2",
        r"\[.train.\]|split",
    ),
    _python(
        'import datasets\ntm.build(datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset(), "bytes", "out")',
        "an IterableDataset",
        OUT,
    ),
    _python('tm.build(map(str.upper, texts), "bytes", "out")', "a map", OUT),
    _python('tm.build(np.array(texts), "bytes", "out")', "an array of texts", OUT),
    _python(
        'tm.build(data_files="data/corpus.jsonl", tokenizer="bytes", out="out")',
        "the word of load_dataset",
        OUT,
        r"\bsource\b",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "./out", "bytes")', "the arguments in another order", OUT, r"no tokenizer at"
    ),
    _python(
        'tm.build("data/corpus.jsonl", str.split, "out")',
        "a function as the tokenizer",
        "",
        r"path|tokenizer\.json|function",
    ),
    _python(
        'from tokenizers import Tokenizer, models\nt = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1}, unk_token="<unk>"))\n'
        'tm.build(texts, t, "out", eos="none")',
        "an object of tokenizers",
        OUT,
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", add_special_tokens=False)',
        "no ids around documents",
        OUT,
        r"\beos\b|\bbos\b",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", eos_token="</s>")', "choose the end of documents", "", r"\beos\b"
    ),
    _python('tm.build("data/corpus.jsonl", "bytes", "out", eos=True)', "an id after each document", OUT, r"\bauto\b"),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", remove_columns=["id"])',
        "as with Dataset.map",
        OUT,
        r"text_field",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", key="text")', "name the field with the text", OUT, r"text_field"
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", max_shard_size="500MB")',
        "size of shards, as in transformers",
        OUT,
        r"shard_bytes",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", max_samples=10)',
        "only a few, to try",
        'len(tm.open("out")) == 10',
        r"max_rows|max_documents",
    ),
    _python('tm.build("data/corpus.jsonl", "bytes", "out", nproc=2)', "two processes", OUT, r"workers"),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", on_bad_lines="skip")', "as in pandas.read_csv", OUT, r"on_error"
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", show_progress=False)',
        "no bar",
        OUT,
        r"progress=|mean progress|is progress",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", test_size=0.1)', "hold out a tenth", "", r"\.split\(|shares"
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", seed=42)',
        "the same result each time",
        OUT,
        r"tm\.load|\.split\(|always",
    ),
    _python(
        'import inspect\ninspect.signature(tm.build).bind("data", "bytes", "out").arguments["out"]',
        "what a command-line maker asks",
        'result == "out"',
    ),
    _python(
        'try:\n    tm.build("nothing/*.jsonl", "bytes", "out")\nexcept FileNotFoundError as e:\n    result = str(e)\nresult',
        "survive missing data",
        '"nothing" in result',
    ),
)

TOKENIZER_LINES = (
    _python('tok.encode("the cat").ids', "ids, as in tokenizers", "len(result) > 0", r"encode\(|is the ids|already"),
    _python(
        'tok.encode("the cat", add_special_tokens=False)',
        "only the text's ids",
        'list(result) == list(tok.encode("the cat"))',
        r"eos|without",
    ),
    _python(
        'tok.encode("the cat", return_tensors="pt")',
        "a tensor",
        "tuple(result.shape) == (1, len(tok.encode('the cat')))",
        r"torch\.|from_numpy",
    ),
    _python(
        'tok.encode("the cat") + [tok.eos_id]',
        "append the end",
        "len(result) == len(tok.encode('the cat')) + 1",
        r"append|concatenate",
    ),
    _python(
        '[tok.eos_id, *tok.encode("the cat")]',
        "the end in front, as llm.c does",
        "len(result) == len(tok.encode('the cat')) + 1",
    ),
    _python("tok.encode_batch(texts)", "many texts", "len(result) == 60", r"encode\(|'encode'"),
    _python("tok.batch_decode([[70, 71], [72]])", "many lists of ids", "len(result) == 2", r"\bdecode\(|'decode'"),
    _python(
        "tok.decode(store[0], skip_special_tokens=True)",
        "only the text",
        "result == texts[0]",
        r"special_ids|including|store\.text",
    ),
    _python('tok.tokenize("the cat")', "the tokens as strings", "len(result) > 0", r"token_name"),
    _python("tok.convert_ids_to_tokens([65, 307])", "the names of ids", "len(result) == 2", r"token_name"),
    _python(
        'tok.token_to_id("<|endoftext|>")', "the id of a token", "result == tok.eos_id", r"\.added|eos_id|special_ids"
    ),
    _python("tok.get_vocab()", "the vocabulary", "len(result) == tok.vocab_size", r"\.added|'added'|token_name"),
    _python("tok.eot_token", "the end, as in tiktoken", "result == tok.eos_id", r"eos_id"),
    _python("tok.bos_token_id", "the begin", "result == tok.bos_id", r"'bos_id'|\.bos_id"),
    _python("tok.pad_token = tok.added and '<|endoftext|>'", "the line everybody has for GPT-2", "", r"pad_id"),
    _python(
        'tm.Tokenizer.from_pretrained("demo")',
        "load a tokenizer",
        "result.vocab_size == tok.vocab_size",
        r"load_tokenizer",
    ),
    _python(
        'tok.save_pretrained("copy")',
        "keep the tokenizer beside a model",
        'any(Path("copy").iterdir())',
        r"tokenizer\.json|copy the",
    ),
    _python(
        'tok.apply_chat_template([{"role": "user", "content": "hi"}])',
        "render a chat",
        "",
        r"template=|tm\.read|text_template",
    ),
    _python(
        'np.array(tok.encode("the cat"), dtype=np.uint16).tofile("x.bin")',
        "write a .bin oneself",
        'Path("x.bin").stat().st_size > 0',
    ),
    _python(
        "import torch\ntok.decode(torch.tensor([65, 307]))",
        "decode what a model returns",
        "result == tok.decode([65, 307])",
    ),
    _python(
        "import pandas as pd\npd.Series(texts).map(tok.encode).map(len).sum()",
        "count tokens in pandas",
        "result + 60 == store.num_tokens",
    ),
    _python(
        'try:\n    tm.load_tokenizer("./missing/tokenizer.json")\nexcept FileNotFoundError as e:\n    result = str(e)\nresult',
        "survive a missing file",
        '"missing" in result',
    ),
)

MODULE_LINES = (
    _python("tm.__version__", "the version", "result[0].isdigit()"),
    _python('tm.load_dataset("json", data_files="data/corpus.jsonl")', "read data", "", r"tm\.read|tm\.build"),
    _python('tm.load_from_disk("store")', "open a store", "len(result) == 60", r"tm\.open"),
    _python('tm.Store("store")', "open a store by its class", "len(result) == 60", r"tm\.open"),
    _python("tm.DataLoader(view, batch_size=4)", "a loader", "result.batch_size == 4", r"tm\.load\b"),
    _python("tm.Loader(view, 4)", "a loader by its class", "result.batch(0)", r"tm\.load\b"),
    _python('tm.load("store")', "open a store, as np.load", "len(result) == 60", r"tm\.open"),
    _python('tm.open("store", mode="r")', "open it for reading", "len(result) == 60", r"read-only|no modes?\b"),
    _python("tm.interleave_datasets([view, view], probabilities=[0.7, 0.3])", "mix", "", r"tm\.mix"),
    _python("tm.mix([view, tm.pack(store, 64)], [0.7, 0.3])", "mix two views", "tm.load(result, 4).batch(0)", r"\{"),
    _python(
        "from tokenmill import TokenDataset", "what such a class is called elsewhere", "", r"tm\.pack|View|tm\.load"
    ),
    _python(
        "try:\n    tm.pack(store, 0)\nexcept tm.TokenmillError as e:\n    result = str(e)\nresult",
        "catch what it raises",
        '"seq_len" in result',
        r"tm\.errors|tokenmill\.errors",
    ),
    _python(
        'tm.estimate("data/corpus.jsonl", "bytes").num_tokens',
        "count tokens first",
        "result > 60",
        r"'tokens'|\.tokens\b",
    ),
    _python('tm.estimate("data/corpus.jsonl", "bytes", sample=0.1)', "a tenth of it", "result.tokens > 60", r"MB"),
    _python(
        'tm.export(store, "out", "nanogpt")', "the format by position", 'any(Path("out").glob("*.bin"))', r"format="
    ),
    _python(
        'tm.export(store, "out", format="huggingface")', "a Dataset on disk", 'any(Path("out").iterdir())', r"\bhf\b"
    ),
    _python(
        'tm.export(loader, "out", format="pt")', "write what is loaded", 'any(Path("out").iterdir())', r"view|tm\.pack"
    ),
    _python(
        'tm.import_tokens("bin/train.bin", "out", dtype=np.uint16).num_tokens',
        "nanoGPT's memmap",
        "result == 2000",
        r"eos",
    ),
    _python(
        'tm.import_tokens("bin/train.npy", "out", tokenizer="bytes")',
        "tokens that numpy saved",
        "result.num_tokens == 2000",
        r"tofile|\.bin|np\.load|flat",
    ),
    _python(
        'tm.import_tokens(np.arange(100, dtype=np.uint16), "out", eos=99)',
        "tokens in memory",
        "result.num_tokens == 100",
        r"path|tofile|file",
    ),
    _python(
        'tm.recipe("recipe.yaml").build()', "do what the recipe says", "len(result) == 1", r"stores\(|view\(|loader\("
    ),
    _python(
        'tm.recipe("recipe.yaml", overrides={"pack.seq_len": 32})',
        "change a key",
        "result.view().seq_len == 32",
        r"\bset\b",
    ),
    _python(
        'import yaml\ntm.recipe(yaml.safe_load(open("recipe.yaml"))).view().seq_len', "a dict of YAML", "result == 64"
    ),
    _python('tm.recipe("recipe.yaml").loader("validation")', "the other split", "result.batch(0)", r"\beval\b"),
    _python(
        'list(tm.read("data/corpus.jsonl", nrows=5))',
        "look at five rows",
        "len(result) == 5",
        r"max_rows|tokenmill show|tm\.build",
    ),
    _python('len([f.path for f in tm.read("data").files])', "which files are read", "result == 4"),
)

PYTHON_LINES = (*STORE_LINES, *VIEW_LINES, *LOADER_LINES, *BUILD_LINES, *TOKENIZER_LINES, *MODULE_LINES)

COMMAND_LINES = (
    _shell("tokenmill -V", "the version", TOOK, r"--version"),
    _shell(
        "tokenmill help build",
        "help about a command, as of git",
        'result.returncode == 0 and "--text-field" in result.stdout',
        r"build --help|--help",
    ),
    _shell(
        "tokenmill build data --help -t bytes",
        "help in the middle of a line",
        'result.returncode == 0 and "--text-field" in result.stdout',
    ),
    _shell("python -m tokenmill build data/corpus.jsonl -t bytes -o out", "run it as a module", BUILT),
    _shell("tokenmill build data/corpus.jsonl bytes out", "everything by position", BUILT, r"-t\b|--tokenizer"),
    _shell(
        "tokenmill build --input data/corpus.jsonl --output-prefix out --tokenizer-type bytes",
        "Megatron's preprocess_data.py",
        BUILT,
        r"source|without --input|by position",
    ),
    _shell("tokenmill build data/corpus.jsonl -t bytes --output out", "name the output", BUILT, r"--out\b"),
    _shell("tokenmill build data/corpus.jsonl --model bytes -o out", "name the model", BUILT, r"-t\b|--tokenizer"),
    _shell("tokenmill build data/corpus.jsonl -t bytes -o out -j 2", "jobs, as of make", BUILT, r"--workers"),
    _shell("tokenmill build data/corpus.jsonl -t bytes -o out --threads 2", "threads", BUILT, r"--workers"),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --text_field text",
        "underscores, as in Python",
        BUILT,
        r"--text-field",
    ),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --json-keys text",
        "Megatron's name of the field",
        BUILT,
        r"--text-field",
    ),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --append-eod", "Megatron's end of documents", BUILT, r"--eos"
    ),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --limit 10",
        "only a few",
        'len(tm.open(folder / "out")) == 10',
        r"--max-rows|--max-documents",
    ),
    _shell("tokenmill build data/corpus.jsonl -t bytes -o out -f", "force", BUILT, r"--force"),
    _shell("tokenmill build data/corpus.jsonl -t bytes -o out -vv", "more output", BUILT),
    _shell("tokenmill build data/corpus.jsonl -t bytes -o out --no-progress", "no bar", BUILT, r"--quiet|-q\b"),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --log-level debug", "more output", BUILT, r"--verbose|-v\b"
    ),
    _shell(
        "tokenmill build -r data -t bytes -o out",
        "a folder with its folders",
        "len(tm.open(folder / 'out')) > 60",
        r"folder|without -r|always",
    ),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --val-split 0.1",
        "hold out a tenth",
        "",
        r"--shares|tokenmill export|view\.split",
    ),
    _shell("tokenmill build --config recipe.yaml", "a configuration file", TOOK, r"tokenmill run"),
    _shell(
        "tokenmill tokenize data/corpus.jsonl -t bytes -o out",
        "what it is called elsewhere",
        BUILT,
        r"tokenmill build|mean build",
    ),
    _shell("tokenmill recipe.yaml", "run a recipe", TOOK, r"tokenmill run"),
    _shell(
        "TOKENMILL_CACHE_DIR=mine tokenmill build data/corpus.jsonl -t bytes",
        "keep the cache elsewhere",
        '(folder / "mine").exists()',
        r"TOKENMILL_CACHE\b|--cache-dir",
    ),
    _shell(
        "TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 tokenmill build data/corpus.jsonl -t bytes -o out",
        "usual settings",
        BUILT,
    ),
    _shell("tokenmill cache ls", "what is there", TOOK, r"cache list|mean list|'list'|\blist\b"),
    _shell("tokenmill cache clear", "empty the cache", TOOK, r"prune|remove"),
    _shell("tokenmill list", "what is there", TOOK, r"cache list"),
    _shell("tokenmill inspect store", "look into a store", TOOK, r"\binfo\b|\bshow\b"),
    _shell("tokenmill head store", "the first documents", TOOK, r"\bshow\b"),
    _shell(
        "tokenmill show store 3", "document 3", 'result.returncode == 0 and "document 3" in result.stdout', r"--doc"
    ),
    _shell("tokenmill show store -n 5", "five documents", TOOK, r"--doc|--tokens"),
    _shell("tokenmill show data/corpus.jsonl", "look at the text", TOOK, r"tokenmill build|not a store|no store"),
    _shell("tokenmill count data/corpus.jsonl -t bytes", "count tokens", TOOK, r"estimate"),
    _shell("tokenmill estimate data/corpus.jsonl", "count tokens of any tokenizer", TOOK, r"-t\b|--tokenizer"),
    _shell("tokenmill convert store out --format hf", "write another format", TOOK, r"\bexport\b"),
    _shell(
        "tokenmill export store -o out --format nanogpt",
        "name the output",
        'any((folder / "out").glob("*.bin"))',
        r"path|position|without -o",
    ),
    _shell(
        "tokenmill export store out --to nanogpt",
        "the format, as of pandoc",
        'any((folder / "out").glob("*.bin"))',
        r"--format",
    ),
    _shell(
        "tokenmill import bin/train.bin -o out -t bytes",
        "name the output",
        'tm.open(folder / "out").num_tokens == 2000',
        r"\bout\b.*(position|required)|without -o|required: .*out",
    ),
    _shell("tokenmill verify store --fix", "mend it", TOOK, r"--repair"),
    _shell("tokenmill validate store", "check it", TOOK, r"\bverify\b"),
    _shell("tokenmill pack store 64", "the width by position", TOOK, r"--seq-len"),
    _shell("tokenmill pack store --seq_len 64", "underscores, as in Python", TOOK, r"--seq-len"),
    _shell(
        "tokenmill pack store --seq-len 2k --strategy best-fit",
        "a short number and a hyphen",
        TOOK,
        r"2048|2000|whole number|best_fit",
    ),
    _shell(
        "tokenmill run --config recipe.yaml",
        "a configuration file, as of litgpt",
        TOOK,
        r"tokenmill run|without --config|recipe.*(position|FILE|file)",
    ),
    _shell("tokenmill run recipe.yaml pack.seq_len=32", "change a key, as of Hydra", TOOK, r"--set"),
    _shell("tokenmill run recipe.yaml --pack.seq_len 32", "change a key, as of litgpt", TOOK, r"--set"),
    _shell("tokenmill dashboard store", "see it in a browser", "", r"\bdash\b"),
    _shell(
        "tokenmill info store --format json",
        "output for a script",
        'result.returncode == 0 and result.stdout.startswith("{")',
        r"--json",
    ),
    _shell(
        "tokenmill --install-completion",
        "completion, as of typer",
        TOOK,
        r"\bcompletion (bash|zsh|fish)|tokenmill completion",
    ),
)

_SOURCES = "sources: {web: data/corpus.jsonl}\ntokenizer: bytes\n"
_BASE = _SOURCES + "pack: {seq_len: 64}\n"
_LOAD = "load: {batch_size: 4}\n"
ROWS = "tuple(batch['input_ids'].shape) == (4, 64)"

RECIPE_LINES = (
    _recipe(
        "datasets:\n  - path: data/corpus.jsonl\n    type: completion\ntokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD,
        "axolotl's list of datasets",
        ROWS,
        r"sources",
    ),
    _recipe(
        "data: data/corpus.jsonl\ntokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD, "name the data", ROWS, r"sources"
    ),
    _recipe(
        "sources: data/corpus.jsonl\ntokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD,
        "only one source",
        ROWS,
        r"name|\{",
    ),
    _recipe(
        "sources:\n  - data/corpus.jsonl\n  - data/notes.txt\ntokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD,
        "a list of sources",
        ROWS,
        r"name|\{",
    ),
    _recipe(
        "sources:\n  web: {path: data/corpus.jsonl, probability: 0.7}\n  notes: {path: data/notes.txt, probability: 0.3}\n"
        "tokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD,
        "how often each is drawn",
        ROWS,
        r"weight",
    ),
    _recipe(
        "sources:\n  web: {path: data/corpus.jsonl, weight: 70%}\n  notes: {path: data/notes.txt, weight: 30%}\n"
        "tokenizer: bytes\npack: {seq_len: 64}\n" + _LOAD,
        "weights in percent",
        ROWS,
        r"weight.*number",
    ),
    _recipe(
        "base_model: bytes\nsources: {web: data/corpus.jsonl}\npack: {seq_len: 64}\n" + _LOAD,
        "axolotl's name of the model",
        ROWS,
        r"\btokenizer\b",
    ),
    _recipe(_SOURCES + "sequence_len: 64\n" + _LOAD, "axolotl's width, on top", ROWS, r"pack.*seq_len|seq_len.*pack"),
    _recipe(_BASE + "sample_packing: true\n" + _LOAD, "axolotl's packing", ROWS, r"pack\.strategy|\bstrategy\b"),
    _recipe(_SOURCES + "pack: {seq_len: 64, strategy: best-fit}\n" + _LOAD, "a hyphen", ROWS, r"best_fit"),
    _recipe(
        _SOURCES + "pack: {seq_len: ${SEQ_LEN}}\n" + _LOAD,
        "a variable of the environment",
        ROWS,
        r"--set|variable|whole number",
    ),
    _recipe(_BASE + "val_set_size: 0.1\n" + _LOAD, "axolotl's validation set", "'eval' in recipe.splits", r"\bsplit\b"),
    _recipe(
        _BASE + "split: 949,50,1\n" + _LOAD, "Megatron's split", "len(recipe.splits) == 3", r"split.*(\{|name|eval)"
    ),
    _recipe(
        _BASE + "split: {train: 0.8, validation: 0.2}\n" + _LOAD,
        "two named parts",
        ROWS + " and set(recipe.splits) == {'train', 'validation'}",
    ),
    _recipe(_BASE + "seed: 42\n" + _LOAD, "a seed for everything", ROWS, r"load\.seed|load: \{seed|under load|in load"),
    _recipe(
        _BASE + "output_path: out\n" + _LOAD,
        "where the store goes",
        "Path('out').exists()",
        r"\bbuild\b.*\bout\b|\bout\b.*\bbuild\b",
    ),
    _recipe(
        _BASE + "load: {micro_batch_size: 4, num_epochs: 1}\n", "axolotl's batches", ROWS, r"\bbatch_size\b|\bepochs\b"
    ),
    _recipe(_BASE + "dataloader: {batch_size: 4, shuffle: true}\n", "the section of torchtune", ROWS, r"\bload\b"),
)

MORE_LINES = (
    _python(
        'tm.build(dict(enumerate(texts)), "bytes", "out")',
        "a dict of texts by id",
        'len(tm.open("out")) == 60',
        r"list|values\(|dict|column",
    ),
    _python(
        'import pandas as pd\ntm.build(pd.read_json("data/corpus.jsonl", lines=True, chunksize=10), "bytes", "out")',
        "data frames in chunks",
        'len(tm.open("out")) == 60',
        r"generator|rows|path|DataFrame",
    ),
    _python(
        'import pyarrow.parquet as pq\ntm.build(pq.ParquetFile("data/part.parquet"), "bytes", "out")',
        "an open parquet file",
        'len(tm.open("out")) == 30',
        r"path|read\(",
    ),
    _python(
        'tm.build(Path("data").iterdir(), "bytes", "out")',
        "paths of a folder",
        'len(tm.open("out")) > 100',
        r"list\(|str|path",
    ),
    _python(
        'tm.build([[1, 2, 3], [4, 5]], "bytes", "out")', "ids already", 'len(tm.open("out")) == 2', r"import_tokens|id"
    ),
    _python(
        'tm.build({"web": "data/corpus.jsonl", "notes": "data/notes.txt"}, "bytes", "out")',
        "named paths",
        'len(tm.open("out")) > 60',
        r"recipe|tm\.mix|list|each",
    ),
    _python("tm.pack([store, store], 64)", "two stores", "len(result) > len(view)", r"tm\.mix|one store|each"),
    _python(
        "store[np.argsort(store.lengths)[-3:]]", "the three longest", "len(result) == 3", r"for i in|whole|\[store"
    ),
    _python("loader.sampler.set_epoch(1)", "DistributedSampler", "True", r"epoch|rank"),
    _python(
        "import torch\nfrom torch.utils.data.distributed import DistributedSampler\n"
        "torch.utils.data.DataLoader(view, batch_size=4, sampler="
        "DistributedSampler(view, num_replicas=2, rank=0))",
        "a view in torch's own loader",
        "next(iter(result))['input_ids'].shape == (4, 64)",
    ),
    _python(
        'tm.export(store, "out.npy", format="npy")',
        "numpy",
        'np.load("out.npy", allow_pickle=True).size',
        r"nanogpt|format|flat|raw",
    ),
    _python('tm.export(store, "out.jsonl", format="jsonl")', "JSON lines", 'Path("out.jsonl").exists()', r"format"),
    _python('tm.export(store, "out", format="webdataset")', "webdataset", 'any(Path("out").glob("*.tar"))', r"format"),
    _python(
        'tm.export(store, "out", format="nanogpt", split=0.1)',
        "split",
        'any(Path("out").glob("val*"))',
        r"split|shares",
    ),
    _python(
        'tm.export(store, "out", format="mds", compression="zstd")',
        "Mosaic",
        'any(Path("out").iterdir())',
        r"compression|mosaic|install|mds",
    ),
    _python('tm.import_tokens([1, 2, 3], "out", tokenizer="bytes")', "a list of ids", "", r"path|file"),
    _python(
        'tm.recipe(sources={"web": "data/corpus.jsonl"}, tokenizer="bytes", seq_len=64)',
        "a recipe by keywords",
        "result.view()",
        r"dict|recipe",
    ),
    _python(
        'tok("the cat", return_tensors="pt", padding=True, truncation=True)["input_ids"]',
        "transformers' call",
        "len(result)",
        r"tm\.|encode|tensors|plain|torch",
    ),
    _python('tok.save_pretrained("tokdir")', "save it", 'any(Path("tokdir").iterdir())', r"save|tokenizer\.json|copy"),
    _python(
        "import logging\nlogging.basicConfig(level=logging.INFO)\ntm.set_verbosity_error()",
        "transformers' logging",
        "True",
        r"quiet|logging|progress",
    ),
    _python(
        'tm.build("data\\\\corpus.jsonl", "bytes", "out")',
        "a path of Windows",
        'len(tm.open("out")) == 60',
        r"data|exist|found|no file|backslash",
    ),
    _python(
        'import torch\nsd = loader.state_dict()\ntorch.save(sd, "s.pt")\nloader.load_state_dict(torch.load("s.pt"))',
        "state in a checkpoint",
        "True",
    ),
    _python(
        'import pandas as pd\ndf = pd.DataFrame({"text": texts})\ntm.build(df.itertuples(), "bytes", "out")',
        "named tuples",
        'len(tm.open("out")) == 60',
        r"row\['text'\]|strings",
    ),
    _python(
        'import pandas as pd\ndf = pd.DataFrame({"text": texts})\ntm.build(df.iterrows(), "bytes", "out")',
        "pairs",
        'len(tm.open("out")) == 60',
        r"strings or dicts",
    ),
    _python(
        'import pandas as pd\ntm.build(pd.DataFrame({"text": texts}).to_dict(), "bytes", "out")',
        "a dict of dicts",
        'len(tm.open("out")) == 60',
        r"list",
    ),
    _python(
        'tm.build("data", "bytes", "out", pattern="*.jsonl")',
        "a pattern",
        'len(tm.open("out")) == 60',
        r"glob|data/\*|source",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", callback=print)',
        "a callback",
        'len(tm.open("out")) == 60',
        r"progress",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", lowercase=True)',
        "lower case",
        'len(tm.open("out")) == 60',
        r"text|tokenizer|before",
    ),
    _python(
        'tm.build("data/corpus.jsonl", "bytes", "out", vocab_size=300)',
        "vocab",
        'len(tm.open("out")) == 60',
        r"vocab|tokenizer",
    ),
    _python("view.to_pandas()", "a frame", "len(result) == len(view)", r"rows|DataFrame|export|asarray"),
    _python("loader.generator", "a generator", "", r"seed"),
    _python("tm.load(view, 4, limit=10)", "ten batches", "len(result) == 10", r"max_|epochs|loop|islice|leave"),
    _python("tm.load(view, 4, start_step=10)", "skip", "result", r"state_dict"),
    _python("tok.unk_token_id", "unk", "result is None", r"special|added"),
    _python("tm.mix(web=(view, 0.7), code=(view, 0.3))", "keywords", "tm.load(result, 4).batch(0)", r"\{"),
    _python(
        'e = tm.estimate("data/corpus.jsonl", "bytes")\ne["tokens"]',
        "a dict",
        "result > 0",
        r"estimate\.tokens|\.tokens|as_dict",
    ),
    _python("store.text([0, 1])", "two texts", "len(result) == 2", r"whole|\[store\.text"),
    _python("view[0].input_ids", "attribute", "len(result) == 64", r"\['input_ids'\]"),
    _python('m = tm.mix({"a": (view, 0.7), "b": (view, 0.3)})\nm[0]', "first row", "result", r"tm\.load"),
    _python("import tokenmill as tm2\ntm2.errors.Error", "an error", "", r"TokenmillError|did you mean"),
    _shell("tokenmill load --help", "help of load", "result.returncode == 0", r"tm\.load|Python|load"),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --dataset-impl mmap",
        "Megatron",
        'result.returncode == 0 and len(tm.open(folder / "out")) == 60',
        r"export|dataset.impl",
    ),
    _shell("tokenmill version", "version", "result.returncode == 0", r"--version"),
    _shell(
        "tokenmill build data/corpus.jsonl -t bytes -o out --split train",
        "split",
        'result.returncode == 0 and len(tm.open(folder / "out")) == 60',
        r"split",
    ),
    _shell("tokenmill show store 0:3", "a slice", "result.returncode == 0", r"--doc"),
    _shell("tokenmill run recipe.yaml --seq-len 32", "seq len", "result.returncode == 0", r"--set|pack\.seq_len"),
    _shell("tokenmill export store out --format hf --push-to-hub me/x", "push", "", r"hub|upload|push"),
    _shell("tokenmill export store -f nanogpt -o out", "-f", '(folder/"out").exists()', r"--format"),
    _shell("tokenmill init", "make a recipe", "result.returncode == 0", r"recipe|demo"),
    _shell("tokenmill cache size", "size", "result.returncode == 0", r"list"),
    _shell("tokenmill engines", "list", "result.returncode == 0", r"bench|engine"),
    _shell(
        "tokenmill run recipe.yaml --set pack.seq_len 32",
        "two words",
        "result.returncode == 0",
        r"pack\.seq_len=|KEY=VALUE",
    ),
    _recipe(
        "sources: {web: data/corpus.jsonl}\ntokenizer: {name: bytes, eos: true}\npack: {seq_len: 64}\n" + _LOAD,
        "tokenizer block",
        "tuple(batch['input_ids'].shape) == (4, 64)",
        r"tokenizer|eos",
    ),
    _recipe(
        "sources: {web: data/corpus.jsonl}\ntokenizer: {type: bytes, add_bos: true}\npack: {seq_len: 64}\n" + _LOAD,
        "tokenizer block",
        "tuple(batch['input_ids'].shape) == (4, 64)",
        r"bos",
    ),
    _recipe(
        _BASE + "export: {format: nanogpt, out: out}\n" + _LOAD,
        "export",
        "tuple(batch['input_ids'].shape) == (4, 64)",
        r"export",
    ),
    _recipe(
        _BASE + "name: my run\nversion: 1\n" + _LOAD,
        "a name",
        "tuple(batch['input_ids'].shape) == (4, 64)",
        r"name",
    ),
    _recipe(
        "Sources: {web: data/corpus.jsonl}\nTokenizer: bytes\nPack: {seq_len: 64}\n" + _LOAD,
        "capital letters",
        "tuple(batch['input_ids'].shape) == (4, 64)",
        r"sources",
    ),
)

LINES = (*PYTHON_LINES, *COMMAND_LINES, *RECIPE_LINES, *MORE_LINES)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=("python", "command", "recipe"))
    options = parser.parse_args()
    totals: Counter[tuple[str, str]] = Counter()
    for line in LINES:
        if options.kind not in (None, line.kind):
            continue
        with tempfile.TemporaryDirectory() as folder:
            happened = outcome(line, Path(folder))
        totals[line.kind, happened.partition(":")[0]] += 1
        print(f"{line.id}\n    {happened[:400]}", flush=True)
    for (kind, happened), count in sorted(totals.items()):
        print(f"{kind:8} {happened:15} {count:4}")
    return 1 if any(happened not in ("works", "told") for _, happened in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
