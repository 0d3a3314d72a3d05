"""Two processes under torch.distributed.run, killed in the middle: the data and the losses go on as if nothing had been."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from packing_reference import write_store

import tokenmill as tm

VOCAB, LENGTH, STEPS, SAVED, KILLED = 64, 16, 10, 4, 7
GLOBAL = 4
PATIENCE = 100  # seconds for anything to come; nothing is decided by it but that a test has hung


def train(store: Path, folder: Path, resume: bool = False, wait_at: int | None = None) -> None:
    """The training script of a user, as it runs on each rank; and a diary of what each step saw, by which the test judges."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from tokenmill.integrations.transformers import LoaderState

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM"))
    loader = tm.load(tm.pack(store, LENGTH, fields=("input_ids", "labels")), global_batch_size=GLOBAL)

    class OurTrainer(Trainer):
        def get_train_dataloader(self):
            return loader

        def training_step(self, model, inputs, *rest):
            step = self.state.global_step
            if step == wait_at:
                (folder / f"waiting-{loader.rank}").write_text(str(os.getpid()))
                signal.pause()  # until the test kills us
            with (folder / f"diary-{loader.rank}").open("a") as diary:
                diary.write(json.dumps([step, digest(inputs["input_ids"])]) + "\n")
            return super().training_step(model, inputs, *rest)

    arguments = TrainingArguments(
        str(folder),
        max_steps=STEPS,
        save_steps=SAVED,
        logging_steps=1,
        learning_rate=0.01,
        per_device_train_batch_size=loader.batch_size,
        use_cpu=True,
        ddp_backend="gloo" if loader.world_size > 1 else None,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
    )
    folder.mkdir(exist_ok=True)
    trainer = OurTrainer(model, arguments, callbacks=[LoaderState(loader)])
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{SAVED}") if resume else None)
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        (folder / "losses.json").write_text(json.dumps(losses))


def digest(ids: torch.Tensor) -> str:
    return hashlib.sha256(ids.numpy().tobytes()).hexdigest()


@contextmanager
def torchrun(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Two ranks under their agent; told to end, with its ranks, if the test gives up first."""
    support = os.pathsep.join([str(Path(__file__).parents[1] / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": support,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
    }
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, *arguments]
    with subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def finished(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    told, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, told.decode(errors="replace")[-4000:]


def diary(folder: Path, rank: int) -> list[list[object]]:
    return [json.loads(line) for line in (folder / f"diary-{rank}").read_text().splitlines()]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    tokens = np.random.default_rng(0).integers(1, VOCAB, 30 * LENGTH).tolist()
    documents = [tokens[at : at + 37] for at in range(0, len(tokens), 37)]
    return write_store(tmp_path_factory.mktemp("ddp") / "store", [[("a", documents)]], vocab_size=VOCAB)


@pytest.fixture(scope="module")
def killed(store, tmp_path_factory):
    """A run to its end, and one like it of which both ranks were killed before step 7; saved after step 4."""
    folder = tmp_path_factory.mktemp("runs")
    waiting = [folder / "parts" / f"waiting-{rank}" for rank in range(2)]
    deadline = time.monotonic() + PATIENCE
    with torchrun("killed", str(store), str(folder)) as process:
        while not all(path.exists() and path.read_text() for path in waiting):
            assert process.poll() is None, finished(process)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for path in waiting:
            os.kill(int(path.read_text()), signal.SIGKILL)
        code, _ = finished(process)
    assert code != 0
    return folder


def wanted(store, rank, world_size):
    """What each step of a run must see, from `batch(t)` alone."""
    loader = tm.load(
        tm.pack(store, LENGTH, fields=("input_ids", "labels")),
        global_batch_size=GLOBAL,
        rank=rank,
        world_size=world_size,
    )
    return [[step, digest(loader.batch(step)["input_ids"])] for step in range(STEPS)]


@pytest.mark.stress
def test_two_killed_ranks_go_on_exactly(store, killed, tmp_path):
    for rank in range(2):
        assert diary(killed / "whole", rank) == wanted(store, rank, 2)
        assert diary(killed / "parts", rank) == wanted(store, rank, 2)[:KILLED]
    assert wanted(store, 0, 2) != wanted(store, 1, 2)
    shutil.copytree(killed / "parts" / f"checkpoint-{SAVED}", tmp_path / "run" / f"checkpoint-{SAVED}")
    with torchrun("resumed", str(store), str(tmp_path / "run")) as process:
        code, told = finished(process)
    assert code == 0, told
    for rank in range(2):
        assert diary(tmp_path / "run", rank) == wanted(store, rank, 2)[SAVED:]
    losses = json.loads((killed / "whole" / "losses.json").read_text())
    assert len(losses) == STEPS
    assert json.loads((tmp_path / "run" / "losses.json").read_text()) == losses


@pytest.mark.stress
def test_one_rank_goes_on_where_two_were_killed(store, killed, tmp_path):
    shutil.copytree(killed / "parts" / f"checkpoint-{SAVED}", tmp_path / "run" / f"checkpoint-{SAVED}")
    threads = torch.get_num_threads()
    train(store, tmp_path / "run", resume=True)
    torch.set_num_threads(threads)
    assert diary(tmp_path / "run", 0) == wanted(store, 0, 1)[SAVED:]
    losses = json.loads((killed / "whole" / "losses.json").read_text())
    assert json.loads((tmp_path / "run" / "losses.json").read_text()) == pytest.approx(losses, rel=1e-4)


if __name__ == "__main__":
    what, store_path, runs = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "killed":
        train(store_path, runs / "whole")
        train(store_path, runs / "parts", wait_at=KILLED)
    else:
        train(store_path, runs, resume=True)
    sys.stdout.flush()
    os._exit(0)  # all is written, and gloo's threads may abort a process that leaves in the usual way
