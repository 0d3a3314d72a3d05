"""The examples do what they say: the notebook runs, the GPT learns, and its losses are the same however it is run."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import types
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import load_script

import tokenmill as tm

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, SAVE = 80, 20
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--seq-len", "32", "--batch-size", "8", "--lr", "0.02"]
RUN = [*SMALL, "--strategy", "best_fit", "--steps", str(STEPS), "--save-every", str(SAVE), "--eval-every", "40"]

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # two that wait for each other are slow where cores are shared

# The script, and a SIGKILL in the middle of writing the checkpoint after that of step 40: while its bytes are made durable.
KILLED = f"""
import os, pathlib, runpy, signal, sys
durable = os.fsync
def killed(file):
    if pathlib.Path(sys.argv[sys.argv.index("--checkpoint") + 1], "step-{2 * SAVE:08}.pt").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    durable(file)
os.fsync = killed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Sums: much to learn beyond how frequent each byte is. Of many lengths, so that rows and ranks differ in their targets."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 10, (1200, 2))
    texts = [f"{a} plus {b} is {a + b}" + "." * int(a % 3) * 4 for a, b in numbers.tolist()]
    return tm.build(texts, "bytes", tmp_path_factory.mktemp("examples") / "store", eos=10, workers=0, progress="quiet")


def run(folder, store, *program, more=()):
    """Run the example in a folder by a command, checkpoints in run/. What its log says, the output, the exit code."""
    ended = subprocess.run(
        [sys.executable, *program, *RUN, "--pretokenized", str(store.path), "--checkpoint", "run", *more],
        cwd=folder,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return *logged(folder), ended.stdout, ended.returncode


def run_here(folder, store, example, *more):
    """The same in this process, which has imported PyTorch already; what the log says and the output."""
    with chdir(folder), redirect_stdout(StringIO()) as out:
        example.train(
            example.arguments([*RUN, "--pretokenized", str(store.path), "--checkpoint", "run", *more]),
        )
    return *logged(folder), out.getvalue()


def logged(folder):
    """Losses and perplexities by step, of the last run in a folder."""
    log = max(folder.glob("results/*.csv"))
    with log.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    losses = {int(row["step"]): float(row["loss"]) for row in rows}
    scores = {int(row["step"]): float(row["eval_perplexity"]) for row in rows if row["eval_perplexity"]}
    return losses, scores


@pytest.fixture(scope="module")
def example():
    module = load_script(EXAMPLES / "train_gpt.py")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, store, example):
    """A run of one process that nothing interrupts."""
    return run_here(tmp_path_factory.mktemp("whole"), store, example)


@pytest.fixture(scope="module")
def killed(tmp_path_factory, store):
    """The folder of a run that was killed between its second and its third checkpoint, and its losses."""
    folder = tmp_path_factory.mktemp("killed")
    losses, _, _, code = run(folder, store, "-c", KILLED, str(EXAMPLES / "train_gpt.py"))
    assert code == -signal.SIGKILL
    assert [path.name for path in sorted((folder / "run").glob("step-*"))] == ["step-00000020.pt", "step-00000040.pt"]
    return folder, losses


def assert_near(losses, whole):
    assert losses == pytest.approx({step: whole[step] for step in losses}, abs=1e-4)


def test_it_learns_more_than_frequencies(store, whole):
    losses, scores, output = whole
    counts = np.bincount(np.concatenate(list(store)))
    shares = counts[counts > 0] / counts.sum()
    entropy = -float((shares * np.log(shares)).sum())
    assert list(losses) == list(range(1, STEPS + 1))
    last = np.mean([losses[step] for step in range(STEPS - 9, STEPS + 1)])
    assert last < 0.5 * entropy < losses[1]
    assert list(scores) == [40, 80]
    assert 0.5 * last < math.log(scores[80]) < 0.5 * entropy  # documents it was not trained on
    assert output.count("goes on:") == 2


def test_killed_and_resumed_it_goes_on_with_the_very_same_losses(tmp_path, store, example, whole, killed):
    folder, before = killed
    shutil.copytree(folder / "run", tmp_path / "run")
    after, scores, output = run_here(tmp_path, store, example, "--resume")
    assert list(before) == list(range(1, 61))
    assert list(after) == list(range(41, STEPS + 1))
    assert before | after == whole[0]
    assert scores[80] == whole[1][80]
    assert output.split("goes on:")[1:] == whole[2].split("goes on:")[1:]


@pytest.mark.stress
def test_two_processes_in_parts_lose_what_one_does_and_one_resumes_them(tmp_path, store, whole):
    program = str(EXAMPLES / "train_gpt.py")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc_per_node=2"]
    losses, scores, _, _ = run(tmp_path, store, *torchrun, program, more=["--accumulate", "2"])
    assert list(losses) == list(range(1, STEPS + 1))
    assert_near(losses, whole[0])
    assert scores[40] == pytest.approx(whole[1][40], rel=1e-3)
    (tmp_path / "run" / "step-00000080.pt").unlink()
    losses, _, _, code = run(tmp_path, store, program, more=["--resume"])
    assert code == 0
    assert list(losses) == list(range(61, STEPS + 1))
    assert_near(losses, whole[0])


def test_documents_of_a_row_are_read_alone(example):
    torch.manual_seed(0)
    gpt = example.GPT(50, 2, 16, 2)
    first, second = torch.randint(50, (1, 5)), torch.randint(50, (1, 3))
    documents = torch.tensor([[0] * 5 + [1] * 3 + [-1] * 2])
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 0]])
    row = torch.cat((first, second, torch.zeros(1, 2, dtype=torch.int64)), 1)
    with torch.no_grad():
        logits = gpt(row, positions, documents)
        torch.testing.assert_close(logits[:, :5], gpt(first))
        torch.testing.assert_close(logits[:, 5:8], gpt(second))
        torch.testing.assert_close(gpt(row)[:, :5], gpt(first))  # causal
        assert not torch.allclose(gpt(row)[:, 5:8], gpt(second), atol=1e-2)
    assert logits.isfinite().all()


def test_raw_text_is_packed_as_its_store_would_be(example, store, tmp_path, monkeypatch, capsys):
    (tmp_path / "texts").mkdir()
    for number in range(60):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"the text of number {number}, one of sixty\n" * 3)
    monkeypatch.chdir(tmp_path)
    args = [*SMALL, "--steps", "3", "--eval-share", "0.2", "--precision", "bf16", "--samples", "1"]
    example.train(example.arguments(["texts/*.txt", "--tokenizer", "bytes", *args]))
    from_text = capsys.readouterr().out
    tm.build("texts/*.txt", "bytes", "store", workers=0, progress="quiet")
    example.train(example.arguments(["--pretokenized", "store", *args]))
    from_store = capsys.readouterr().out
    assert "(bf16)" in from_store
    told = [line for line in from_text.splitlines() if line.startswith("step 3: ")]
    assert len(told) == 1
    assert told[0].split(",")[0] in from_store  # the same loss


def test_what_cannot_be_resumed_is_refused(example, store, killed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = ["--pretokenized", str(store.path), "--checkpoint", str(killed[0] / "run"), *RUN]
    with pytest.raises(SystemExit, match=r"step-00000040\.pt is there already: add --resume"):
        example.train(example.arguments(here))
    with pytest.raises(SystemExit, match="was made with --heads 2: resume with the same"):
        example.train(example.arguments([*here, "--resume", "--heads", "4"]))
    with pytest.raises(tm.errors.MismatchError, match="seed"):
        example.train(example.arguments([*here, "--resume", "--seed", "1"]))
    with pytest.raises(SystemExit, match="--batch-size 8 must be a multiple of 1 processes x --accumulate 3"):
        example.train(example.arguments([*here, "--accumulate", "3"]))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11 with torch 2.13
def test_workers_give_the_same_losses_also_after_a_restart(tmp_path, store, example, monkeypatch):
    options = ["--num-workers", "1", "--samples", "0", "--save-every", "3"]
    losses, _, _ = run_here(tmp_path, store, example, *options, "--steps", "7")
    (tmp_path / "run" / "step-00000007.pt").unlink()
    rest, _, _ = run_here(tmp_path, store, example, *options, "--steps", "7", "--resume")
    assert list(rest) == [7]
    assert rest[7] == losses[7]
    (tmp_path / "alone").mkdir()
    assert run_here(tmp_path / "alone", store, example, "--steps", "7", "--samples", "0")[0] == losses
    with pytest.raises(SystemExit, match="was made with --num-workers 1: resume with the same"):
        run_here(tmp_path, store, example, "--resume")
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", None)
    with pytest.raises(SystemExit, match="--num-workers needs torchdata"):
        example.in_workers(None, 1)


def test_two_runs_are_compared_in_a_table(tmp_path, example, capsys):
    header = "step,loss,lr,tokens_per_second,eval_perplexity\n"
    for name, loss, steps in (("first", 4, 40), ("second", 3.5, 30)):
        rows = (f"{step},{loss},0.1,{2000 + step},{9.5 if step == 30 else ''}\n" for step in range(11, steps + 1))
        (tmp_path / f"{name}.csv").write_text(header + "".join(rows))
    paths = [str(tmp_path / "first.csv"), str(tmp_path / "second.csv")]
    example.main(["--compare", *paths])
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["first.csv", "second.csv", "difference"]
    assert table[1] == ["loss,", "11", "to", "12", "4.0000", "3.5000", "-0.5000"]
    assert table[-2:] == [
        ["perplexity,", "30", "9.50", "9.50", "+0.00"],
        ["tokens", "per", "second", "2,020", "2,020", "+0"],
    ]
    assert len(table) == 1 + 10 + 2
    (tmp_path / "second.csv").write_text(header + "1,4,0.1,2000,\n")
    with pytest.raises(SystemExit, match="have no step in common"):
        example.main(["--compare", *paths])
    (tmp_path / "second.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match=r"second\.csv is not a log of this program"):
        example.main(["--compare", *paths])
    with pytest.raises(SystemExit, match=r"No such file.*third\.csv"):
        example.main(["--compare", paths[0], str(tmp_path / "third.csv")])


def test_epochs_are_passes_over_the_rows(tmp_path, store, example, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--pretokenized", str(store.path), *SMALL, "--seq-len", "128", "--batch-size", "64", "--eval-share", "0"]
    rows = len(tm.pack(store, 128))
    example.train(example.arguments([*few, "--epochs", "2", "--samples", "0"]))
    assert f"{rows:,} rows, {2 * rows // 64} steps" in capsys.readouterr().out
    assert len(logged(tmp_path)[0]) == 2 * rows // 64


def test_flags_from_a_file(tmp_path, example, capsys):
    config = tmp_path / "run.yaml"
    config.write_text("seq_len: 512\nlr: 2.0e-3\ncompile: true\nresume: false\nstrategy: best_fit\n")
    args = example.arguments(["--config", str(config), "--seq-len", "64", "texts.txt"])
    assert (args.seq_len, args.lr, args.compile, args.resume) == (64, 2e-3, True, False)
    assert (args.strategy, args.texts, args.steps) == ("best_fit", ["texts.txt"], 600)
    (tmp_path / "run.json").write_text(json.dumps({"seq_len": 256, "lr": 1e-5, "compile": True, "texts": None}))
    args = example.arguments(["--config", str(tmp_path / "run.json"), "--lr", "1"])
    assert (args.seq_len, args.lr, args.compile) == (256, 1.0, True)
    for content, says in (
        ("sequence: 5", "--sequence=5"),
        ("layers: 0", "0 is not 1 or more"),
        ("strategy: x", "choose"),
    ):
        config.write_text(content)
        with pytest.raises(SystemExit):
            example.arguments(["--config", str(config)])
        assert says in capsys.readouterr().err
    config.write_text("- a list")
    with pytest.raises(SystemExit, match=r"run\.yaml: write flags and their values"):
        example.arguments(["--config", str(config)])
    (tmp_path / "run.json").write_text("seq_len: 5")
    with pytest.raises(SystemExit, match=r"run\.json: Expecting value"):
        example.arguments(["--config", str(tmp_path / "run.json")])
    with pytest.raises(SystemExit, match=r"missing\.yaml: .*No such file"):
        example.arguments(["--config", str(tmp_path / "missing.yaml")])


def test_the_optimizer_in_8_bits(example, monkeypatch):
    args = example.arguments(["--optimizer", "adamw8bit", "--lr", "0.5"])
    gpt = example.GPT(50, 1, 16, 2)
    with pytest.raises(SystemExit, match="adamw8bit needs a CUDA device"):
        example.make_optimizer(gpt, args, torch.device("cpu"))
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(SystemExit, match=r"adamw8bit needs bitsandbytes .*pip install bitsandbytes"):
        example.make_optimizer(gpt, args, torch.device("cuda"))
    stand_in = types.SimpleNamespace(optim=types.SimpleNamespace(AdamW8bit=torch.optim.AdamW))
    monkeypatch.setitem(sys.modules, "bitsandbytes", stand_in)
    optimizer = example.make_optimizer(gpt, args, torch.device("cuda"))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_the_notebook_installs_from_a_clone_or_an_archive(tmp_path, monkeypatch):
    """Beside it, one folder up or among Kaggle's inputs; a wheel before an archive before a clone. Nothing is installed here."""
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text("utf-8"))
    cell = next("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell = cell.replace("/kaggle/input", str(tmp_path / "kaggle")).replace("/content", str(tmp_path / "content"))
    ran = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "check_call", lambda command: ran.append(command[-1]))
    here = tmp_path / "clone" / "examples"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    with pytest.raises(FileNotFoundError, match="wheel"):
        exec(cell, {})
    (tmp_path / "clone" / "src" / "tokenmill").mkdir(parents=True)
    exec(cell, {})
    (tmp_path / "kaggle" / "mine").mkdir(parents=True)
    (tmp_path / "kaggle" / "mine" / "tokenmill-0.1.0.tar.gz").touch()
    exec(cell, {})
    (tmp_path / "kaggle" / "mine" / "tokenmill-0.1.0-py3-none-any.whl").touch()
    exec(cell, {})
    assert [Path(path).name for path in ran] == [
        "clone[torch,plot]",
        "tokenmill-0.1.0.tar.gz[torch,plot]",
        "tokenmill-0.1.0-py3-none-any.whl[torch,plot]",
    ]


@pytest.mark.parametrize("missing", [["torch", "matplotlib"], ["matplotlib"], []])
def test_the_notebook_adds_what_a_plain_install_lacks(monkeypatch, missing):
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text("utf-8"))
    cell = next("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    ran = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    monkeypatch.setattr(subprocess, "check_call", lambda command: ran.append(command[5:]))
    exec(cell, {})
    assert ran == ([missing] if missing else [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--steps", "5", "--epochs", "1"], "--steps and --epochs: give one of them"),
        (["--resume"], "--resume needs --checkpoint DIR"),
        (["--pretokenized", "a", "b.txt"], "--pretokenized is a store"),
        (["--width", "60", "--heads", "4"], "--width 60 must be a multiple of twice --heads 4"),
        (["--accumulate", "0"], "0 is not 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(example, capsys, given, said):
    with pytest.raises(SystemExit):
        example.arguments(given)
    assert said in capsys.readouterr().err


def test_what_is_wrong_with_the_data_is_one_line(example, tmp_path):
    """Not a traceback: the message has the remedy."""
    (tmp_path / "a.txt").touch()
    for given, says in (
        (["--pretokenized", str(tmp_path / "nope")], r"train_gpt\.py: no token store at .*nope"),
        (
            ["--pretokenized", str(tmp_path / "a.txt")],
            r"a\.txt: it is a file; tokenmill build \(tm\.build\) makes a store",
        ),
        ([str(tmp_path / "missing.txt")], r"train_gpt\.py: no such file or folder: .*missing\.txt"),
    ):
        with pytest.raises(SystemExit, match=says):
            example.main([*given, "--device", "cpu"])


def test_an_empty_side_is_refused(example, store):
    with pytest.raises(SystemExit, match="--eval-share 1e-06 of 1,200 documents leaves one side empty"):
        example.split(tm.pack(store, 32), 1e-6)


def test_the_notebook_runs(tmp_path, real_texts):
    """Its code cells, in order, in one fresh Python; they must be plain Python, and come without outputs.

    Some modules stand for the whole standard library, and bytes for the demo's tokens: a model of few ids is quick to train.
    """
    (tmp_path / "lib").mkdir()
    for number, text in enumerate(text for text in real_texts if 2_000 < len(text) < 30_000):
        if number < 40:
            (tmp_path / "lib" / f"{number:02}.py").write_text(text, "utf-8")
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    (tmp_path / "cells.json").write_text(
        json.dumps(["".join(cell["source"]).replace('"demo"', '"bytes"') for cell in cells])
    )
    program = """
import json, sysconfig
sysconfig.get_path = lambda name: "lib"
names = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open("cells.json"))):
    exec(compile(cell, f"cell {number}", "exec"), names)
assert names["resumed"] == names["rest"], (names["resumed"], names["rest"])
assert names["rest"][-1] < 0.8 * names["first"][0]
assert 0 < len(names["parts"]["eval"]) < len(names["parts"]["train"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "largest difference: 0.0\n" in ended.stdout
    assert (tmp_path / "quickstart" / "rows.png").stat().st_size > 10_000


def test_it_is_evaluated_on_the_split_for_that(tmp_path, example):
    (tmp_path / "data").mkdir()
    for name, count in (("train", 60), ("valid", 10)):
        rows = (json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(count))
        (tmp_path / f"data/{name}.jsonl").write_text("".join(rows))
    store = tm.build(tmp_path / "data", "bytes", tmp_path / "store", workers=0, progress="quiet")

    def documents(*more):
        args = example.arguments(["--pretokenized", str(store.path), "--seq-len", "16", *more])
        parts = example.split(example.packed(args), args.eval_share)
        return {name: part.stats.documents for name, part in parts.items()}

    with pytest.warns(UserWarning, match="leave out the split validation"):
        assert documents() == {"train": 60, "eval": 10}
    with pytest.warns(UserWarning, match="leave out the split validation"):
        assert documents("--eval-share", "0") == {"train": 60}
    with pytest.warns(UserWarning, match="leave out the split validation"):
        assert sum(documents("--eval-share", "0.5").values()) == 60
