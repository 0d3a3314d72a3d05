"""Batches through the doors of other libraries are those of `loader.batch(t)`, before and after a restart."""

from __future__ import annotations

import json
import re
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from packing_reference import write_store
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback

import tokenmill as tm
from tokenmill.errors import MismatchError, UsageError
from tokenmill.integrations.transformers import LoaderState

VOCAB, LENGTH, ROWS = 64, 16, 45
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning",  # Python 3.12 and later, of any fork beside threads
    "ignore:This DataLoader will create:UserWarning",  # on machines with few cores
    "ignore:.*isinstance.treespec, LeafSpec.*",  # Lightning's own
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Models this small only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, VOCAB, ROWS * LENGTH).tolist()
    cuts = [0, *np.sort(rng.choice(ROWS * LENGTH, 60, replace=False)).tolist(), len(tokens)]
    documents = [tokens[a:b] for a, b in pairwise(cuts)]
    folder = tmp_path_factory.mktemp("doors") / "store"
    return tm.open(write_store(folder, [[("a", documents[:20])], [("a", documents[20:])]], vocab_size=VOCAB))


@pytest.fixture(scope="module")
def view(store):
    return tm.pack(store, LENGTH, fields=("input_ids", "labels", "position_ids"))


def plain(batches):
    """Batches as lists, to compare all of their fields at once."""
    return [{name: values.tolist() for name, values in batch.items()} for batch in batches]


def batches(loader, start, stop):
    return plain(loader.batch(step) for step in range(start, stop))


# --- torch's DataLoader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "start"), [(2, "fork"), (1, "spawn")])
def test_a_view_is_a_map_style_dataset(view, workers, start):
    torch.manual_seed(0)
    rows = DataLoader(view, batch_size=4, shuffle=True, num_workers=workers, multiprocessing_context=start)
    found = [row for batch in rows for row in zip(*(values.tolist() for values in batch.values()), strict=True)]
    wanted = list(zip(*(values.tolist() for values in view[:].values()), strict=True))
    assert len(found) == ROWS
    assert sorted(found) == sorted(wanted)
    assert found != wanted


@pytest.mark.parametrize(
    ("workers", "start", "drop_last"),
    [(k, "fork" if k else None, drop_last) for k in range(4) for drop_last in (True, False)] + [(1, "spawn", False)],
)
def test_batches_are_the_same_through_any_number_of_workers(view, workers, start, drop_last):
    options = {"rank": 1, "world_size": 2, "epochs": 2, "drop_last": drop_last}
    loader = tm.load(view, 2, **options)
    through = DataLoader(loader.dataset(), batch_size=None, num_workers=workers, multiprocessing_context=start)
    assert plain(through) == batches(loader, 0, len(loader)) == plain(tm.load(view, 2, **options))


def test_workers_begin_where_the_loader_is(view):
    loader = tm.load(view, 4, epochs="endless")
    for _, _ in zip(range(7), loader, strict=False):
        pass
    through = iter(DataLoader(loader.dataset(), batch_size=None, num_workers=2))
    assert plain(next(through) for _ in range(5)) == batches(loader, 7, 12)


def test_a_pass_that_is_not_asked_for_more_than_it_has_is_over(view):
    """Trainers that know the length take so many and no more; the next `for` is the next epoch all the same."""
    loader = tm.load(view, 4, epochs=1)
    through = DataLoader(loader.dataset(), batch_size=None)
    for start in (0, 11, 22):
        iterator = iter(through)
        assert plain(next(iterator) for _ in range(len(through))) == batches(loader, start, start + 11)


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_says_where_workers_begin(view, workers):
    loader = tm.load(view, 4, epochs=1)
    dataset = loader.dataset()
    through = DataLoader(dataset, batch_size=None, num_workers=workers)
    for epoch in (1, 0, 2):
        dataset.set_epoch(epoch)
        assert plain(through) == batches(loader, 11 * epoch, 11 * epoch + 11)


class Twice(IterableDataset):
    """Two passes of a dataset, the second of which is the first again."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        for _ in range(2):
            self.dataset.set_epoch(0)
            yield from self.dataset


def test_set_epoch_in_a_worker_that_has_begun(view):
    loader = tm.load(view, 4, epochs=1)
    through = DataLoader(Twice(loader.dataset()), batch_size=None, num_workers=1)
    assert plain(through) == batches(loader, 0, 11) * 2


# --- torchdata ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "taken"), [(0, 5), (1, 4), (2, 5), (3, 1), (3, 7)])
@pytest.mark.parametrize("epochs", ["endless", 2])
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11 with torch 2.13
def test_a_stateful_data_loader_goes_on_where_it_was(view, workers, taken, epochs):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def through():
        return StatefulDataLoader(tm.load(view, 4, epochs=epochs).dataset(), batch_size=None, num_workers=workers)

    whole = batches(tm.load(view, 4, epochs=epochs), 0, 22)
    first = through()
    iterator = iter(first)
    assert plain(next(iterator) for _ in range(taken)) == whole[:taken]
    state = first.state_dict()
    second = through()
    second.load_state_dict(state)
    iterator = iter(second)
    assert plain(next(iterator) for _ in range(22 - taken)) == whole[taken:]
    if epochs == 2:
        assert next(iterator, None) is None


# --- training: a tiny model, what it saw, what it cost --------------------------------------------------------------------


def tiny_model():
    """Seeded, and with dropout: equal losses after a restart mean equal data, weights and random numbers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM"))


def trained(folder, *, resume=None, stop=None, feed=None, callbacks=(), **options):
    """Hugging Face's Trainer. Gives the input ids and losses, step by step; those after `stop` are never run."""
    from transformers import Trainer, TrainingArguments

    saw = []

    class Watched(Trainer):
        def get_train_dataloader(self):
            return feed() if feed else super().get_train_dataloader()

        def training_step(self, model, inputs, *rest):
            saw.append(inputs["input_ids"].tolist())
            return super().training_step(model, inputs, *rest)

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = control.should_training_stop or state.global_step == stop

    dataset = options.pop("train_dataset", None)
    arguments = TrainingArguments(
        str(folder),
        save_steps=options.pop("save_steps", 4),
        logging_steps=1,
        learning_rate=0.01,
        per_device_train_batch_size=4,
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
        **options,
    )
    trainer = Watched(tiny_model(), arguments, train_dataset=dataset, callbacks=[*callbacks, Stop()])
    trainer.train(resume_from_checkpoint=resume and str(folder / f"checkpoint-{resume}"))
    return saw, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_trainer_takes_a_view(view, tmp_path):
    """Its own sampler shuffles: each row once an epoch, and the rest after a restart."""
    saw, losses = trained(tmp_path / "whole", train_dataset=view, num_train_epochs=2)
    rows = view[:]["input_ids"].tolist()
    epochs = [[row for batch in part for row in batch] for part in (saw[:12], saw[12:])]
    assert len(saw) == 24
    assert [sorted(epoch) for epoch in epochs] == [sorted(rows)] * 2
    assert epochs[0] != epochs[1]
    first, _ = trained(tmp_path / "parts", train_dataset=view, num_train_epochs=2, stop=18)
    rest, continued = trained(tmp_path / "parts", train_dataset=view, num_train_epochs=2, resume=16)
    assert first == saw[:18]
    assert rest == saw[16:]
    assert continued == losses


@pytest.mark.parametrize("workers", [0, 2])
def test_the_trainer_skips_what_a_data_loader_gave_already(view, tmp_path, workers):
    def feed():
        return DataLoader(tm.load(view, 4, epochs="endless").dataset(), batch_size=None, num_workers=workers)

    saw, losses = trained(tmp_path / "whole", feed=feed, max_steps=14)
    assert saw == [batch["input_ids"] for batch in batches(tm.load(view, 4, epochs="endless"), 0, 14)]
    trained(tmp_path / "parts", feed=feed, max_steps=14, stop=10)
    rest, continued = trained(tmp_path / "parts", feed=feed, max_steps=14, resume=8)
    assert rest == saw[8:]
    assert continued == losses


@pytest.mark.parametrize(
    ("epochs", "options"),
    [
        (1, {"num_train_epochs": 3, "save_steps": 11}),
        (1, {"max_steps": 17, "save_steps": 7}),
        (1, {"num_train_epochs": 2, "gradient_accumulation_steps": 11, "save_steps": 1}),
        ("endless", {"max_steps": 14, "save_steps": 8, "gradient_accumulation_steps": 2}),
    ],
    ids=["epochs", "steps", "parts", "endless"],
)
def test_the_trainer_keeps_the_state_of_a_loader(view, tmp_path, epochs, options):
    """Stopped in an epoch or between two, from the first on. Nothing is skipped by reading."""
    parts = options.get("gradient_accumulation_steps", 1)

    def run(folder, **more):
        loader = tm.load(view, 4, epochs=epochs)
        return trained(
            folder, feed=lambda: loader, callbacks=[LoaderState(loader)], **{"save_steps": 4, **options, **more}
        )

    saw, losses = run(tmp_path / "whole")
    assert saw == [batch["input_ids"] for batch in batches(tm.load(view, 4, epochs=epochs), 0, len(saw))]
    assert len(saw) == options.get("max_steps", 0) * parts or 11 * options["num_train_epochs"]
    run(tmp_path / "parts", stop=len(losses) - 1)
    for saved in sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "parts").glob("checkpoint-*")):
        if saved < len(losses) - 1 or parts == 11:
            rest, continued = run(tmp_path / "parts", resume=saved)
            assert rest == saw[saved * parts :]
            assert continued == losses


def test_the_trainer_logs_the_epochs_of_the_loader(view, tmp_path):
    loader = tm.load(view, 4)
    loader.load_state_dict({**loader.state_dict(), "samples": 90 + 4 * 4})  # the third epoch
    logged = {}

    class Logged(TrainerCallback):
        def on_log(self, args, state, control, logs, **_):
            logged[state.global_step] = logs.get("epoch")

    trained(tmp_path, feed=lambda: loader, callbacks=[LoaderState(loader), Logged()], max_steps=3)
    assert list(logged.values())[:2] == [pytest.approx((106 + 4 * step) / 45, abs=0.01) for step in (1, 2)]


def test_a_trainer_that_would_not_go_on_exactly_is_refused(view, tmp_path):
    def run(loader, state_of=None, **options):
        state = [LoaderState(state_of)] if state_of else []
        return trained(tmp_path, feed=lambda: loader, callbacks=state, **{"max_steps": 11, "save_steps": 11, **options})

    loader = tm.load(view, 4)
    with pytest.raises(
        UsageError, match=r"gradient_accumulation_steps=2 does not divide the 11 batches of a pass.*endless"
    ):
        run(loader, loader, gradient_accumulation_steps=2)
    with pytest.raises(UsageError, match="the Trainer has other batches; return this loader from get_train_dataloader"):
        run(tm.load(view, 4), loader)
    run(loader)  # without LoaderState, up to the end of the first epoch
    for again in (tm.load(view, 4), DataLoader(tm.load(view, 4).dataset(), batch_size=None)):
        with pytest.raises(UsageError, match=r"goes on after step 11, but this loader begins again; .*LoaderState"):
            run(again, resume=11, max_steps=13)
    with pytest.raises(MismatchError, match="the checkpoint has no state of a loader"):
        run(loader, loader, resume=11, max_steps=13)
    run(loader, resume=11, max_steps=13, ignore_data_skip=True)  # as was asked for


def test_accelerate_keeps_the_state_of_a_loader(view, tmp_path):
    from accelerate import Accelerator

    def run(steps, resume=None, save=None):
        accelerator = Accelerator(cpu=True)
        model = tiny_model()
        loader = tm.load(
            view, 4, epochs="endless", rank=accelerator.process_index, world_size=accelerator.num_processes
        )
        model, optimizer, prepared = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.01), loader)
        assert prepared is loader  # nothing is sharded twice
        accelerator.register_for_checkpointing(loader)
        if resume:
            accelerator.load_state(resume)
        saw, losses = [], []
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            saw.append(batch["input_ids"].tolist())
            losses.append(loss.item())
            if save and loader.step == 5:
                accelerator.save_state(save)
            if loader.step == steps:
                return saw, losses
        raise AssertionError("an endless loader ended")

    saw, losses = run(14)
    assert saw == [batch["input_ids"] for batch in batches(tm.load(view, 4, epochs="endless"), 0, 14)]
    run(8, save=str(tmp_path / "state"))
    assert run(14, resume=str(tmp_path / "state")) == (saw[5:], losses[5:])


@pytest.mark.parametrize(
    ("epochs", "options"),
    [(1, {"max_epochs": 2}), ("endless", {"max_steps": 22, "limit_train_batches": 22})],
    ids=["an epoch a pass", "endless"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Lightning's advice: more workers, a logger, a validation loop
def test_lightning_keeps_the_state_of_a_loader(view, tmp_path, epochs, options):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Watched(LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.saw, self.losses = tiny_model(), [], []

        def train_dataloader(self):
            return tm.load(view, 4, epochs=epochs)

        def training_step(self, batch, index):
            loss = self.model(**batch).loss
            self.saw.append(batch["input_ids"].tolist())
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    def run(resume=None, **given):
        torch.manual_seed(1)
        module = Watched()
        module.model.eval()  # Lightning does not keep random numbers, so no dropout here
        keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=7, save_top_k=-1)
        trainer = Trainer(
            accelerator="cpu",
            use_distributed_sampler=False,
            callbacks=[keep],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **{**options, **given},
        )
        trainer.fit(module, ckpt_path=resume)
        return module.saw, module.losses

    saw, losses = run()
    assert saw == [batch["input_ids"] for batch in batches(tm.load(view, 4, epochs=epochs), 0, 22)]
    for step in (7, 14):
        assert run(resume=tmp_path / f"step={step}.ckpt") == (saw[step:], losses[step:])


# --- what docs/loading.md shows -------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "loading.md").read_text("utf-8")
PLAIN_PART, *SHOWN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs(tmp_path, monkeypatch, tokenizer_path):
    """The plain part, and the blocks before the doors, as they stand, over stores."""
    monkeypatch.chdir(tmp_path)
    for name in ("corpus", "web", "code"):
        texts = (f"document {i} of {name} " * (i % 40) for i in range(900))
        tm.build(texts, tokenizer_path, name, workers=0, progress="quiet")
    Path("data").mkdir()
    rows = [{"text": f"Line {i} of many. " * 30} for i in range(200)]
    Path("data/some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("path/to").mkdir(parents=True)
    Path("path/to/tokenizer.json").write_bytes((tokenizer_path / "tokenizer.json").read_bytes())
    names = {}
    exec(PLAIN_PART, names)
    loader, again = names["loader"], names["again"]
    assert loader.step == 20
    assert again.step == 21
    assert plain([next(iter(loader))]) == batches(again, 20, 21)
    names["state"] = tm.load(names["view"], global_batch_size=512).state_dict()
    epochs, sharded, mixed, raw = SHOWN[:4]
    names["tm"] = tm
    exec(epochs, names)
    assert next(names["endless"])["input_ids"].shape == (8, 128)
    exec(sharded, names)
    exec(mixed, names)
    assert names["annealed"].counts(120_000) == {"web": 100_000, "code": 20_000}
    assert names["loader"].batch(0)["input_ids"].shape == (8, 128)
    exec(raw, names)
    assert names["loader"].batch(0)["input_ids"].shape == (8, 128)


@pytest.mark.parametrize(
    ("library", "kept"),
    [
        ("transformers", "run/checkpoint-5"),
        ("accelerate", "state-5"),
        ("lightning", "checkpoints/epoch=0-step=5.ckpt"),
        ("torchdata", "data.pt"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # advice to people at a terminal
def test_the_doors_of_the_page_run(view, tmp_path, monkeypatch, library, kept):
    """As they stand: ten steps, and the last five once more from what was kept."""
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in SHOWN if f"from {library}" in block)
    epochs = "endless" if library == "torchdata" else 1
    wanted = [batch["input_ids"] for batch in batches(tm.load(view, 8, epochs=epochs), 0, 10)]
    for resume, steps in ((None, 10), (kept, 10)):
        saw = []
        model = tiny_model()
        model.register_forward_pre_hook(
            lambda module, args, named, saw=saw: saw.append(named["input_ids"].tolist()), with_kwargs=True
        )
        names = {"tm": tm, "torch": torch, "view": view, "model": model, "steps": steps, "resume": resume, "epochs": 2}
        names["optimizer"] = torch.optim.AdamW(model.parameters())
        if library == "torchdata":  # it saves where it ends
            names["steps"] = 5
            exec(block.replace("    ...", "    model(**batch)"), names)
            assert saw == (wanted[5:] if resume else wanted[:5])
        else:
            exec(block, names)
            assert saw == (wanted[5:] if resume else wanted)


@pytest.mark.parametrize(("workers", "persistent"), [(1, False), (2, False), (2, True)])
def test_each_loop_over_workers_is_the_next_epoch(view, workers, persistent):
    """Also after one that was left early."""
    loader = tm.load(view, 4)
    through = DataLoader(loader.dataset(), batch_size=None, num_workers=workers, persistent_workers=persistent)
    for epoch in (0, 1):
        assert plain(through) == batches(loader, 11 * epoch, 11 * epoch + 11)
    for batch in through:
        assert plain([batch]) == batches(loader, 22, 23)
        break
    assert plain(through) == batches(loader, 33, 44)


def test_any_workers_go_on_after_those_of_another_number(view):
    loader = tm.load(view, 4)
    for epoch, workers in enumerate((2, 3, 1)):
        through = DataLoader(loader.dataset(), batch_size=None, num_workers=workers)
        assert plain(through) == batches(loader, 11 * epoch, 11 * epoch + 11)
    loader.restart()
    assert plain(DataLoader(loader.dataset(), batch_size=None, num_workers=2)) == batches(loader, 0, 11)


@pytest.mark.parametrize(("workers", "taken"), [(0, 13), (1, 5), (3, 13), (3, 21)])
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11 with torch 2.13
def test_a_stateful_data_loader_goes_on_in_later_epochs(view, workers, taken):
    """A state of a pass in which some workers have not given anything yet, and the passes after it."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def through():
        return StatefulDataLoader(tm.load(view, 4).dataset(), batch_size=None, num_workers=workers)

    first, count, state = through(), 0, None
    while state is None:
        for _ in first:
            count += 1
            if count == taken:
                state = first.state_dict()
                break
    second = through()
    second.load_state_dict(state)
    found = [batch for _ in range(2) for batch in plain(second)]
    assert found == batches(tm.load(view, 4), taken, 11 * (taken // 11 + 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_in_the_rest_of_a_pass_of_larger_batches_begins_the_next(view, workers):
    """Smaller batches came further than the larger ones of the same pass do."""
    small, size = tm.load(view, 1), next(size for size in range(2, len(view)) if len(view) % size > 1)
    small.load_state_dict({**small.state_dict(), "samples": len(view) // size * size + 1})
    loader, passes = tm.load(view, size), len(view) // size
    loader.load_state_dict(small.state_dict())
    through = DataLoader(loader.dataset(), batch_size=None, num_workers=workers)
    found = [batch for _ in range(2) for batch in plain(through)]
    assert found == batches(tm.load(view, size), passes, 3 * passes)


def test_a_state_of_workers_with_other_batches_is_refused(view):
    state = {**tm.load(view, 4).dataset().state_dict(), "given": 3}
    with pytest.raises(MismatchError, match="counts batches of global_batch_size=4, not 2: give 4"):
        tm.load(view, 2).dataset().load_state_dict(state)
    tm.load(view, 2).dataset().load_state_dict({**state, "given": 0})


@pytest.mark.filterwarnings("always:the workers")
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_begin_again_are_told(view, capfd, monkeypatch, persistent):
    monkeypatch.setattr(warnings, "showwarning", lambda text, *_, **__: print(f"UserWarning: {text}", file=sys.stderr))
    endless = tm.load(view, 4, epochs="endless").dataset()
    through = DataLoader(endless, batch_size=None, num_workers=2, persistent_workers=persistent)
    first = plain([next(iter(through))])
    assert "UserWarning" not in capfd.readouterr().err
    assert plain([next(iter(through))]) == first
    assert "begin again with the first batches of this endless loader" in capfd.readouterr().err
    held_out = DataLoader(tm.load(view, 4, shuffle=False).dataset(), batch_size=None, num_workers=1)
    assert plain(held_out) == plain(held_out)  # to be the same is what is wanted
    assert "UserWarning" not in capfd.readouterr().err


@pytest.mark.filterwarnings("always:torch was seeded")
@pytest.mark.filterwarnings("always:the workers")
@pytest.mark.parametrize("epochs", [1, "endless"])
def test_seeding_before_each_loop_over_workers_is_told(view, capfd, monkeypatch, epochs):
    monkeypatch.setattr(warnings, "showwarning", lambda text, *_, **__: print(f"UserWarning: {text}", file=sys.stderr))
    dataset = tm.load(view, 4, epochs=epochs).dataset()
    through = DataLoader(dataset, batch_size=None, num_workers=2)
    said = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        next(iter(through))
        said.append("torch was seeded as before an earlier loop" in capfd.readouterr().err)
    dataset.set_epoch(3)
    torch.manual_seed(1)
    next(iter(through))
    assert "torch was seeded" not in capfd.readouterr().err
    assert said == [False, False, True]


def test_a_state_without_the_batches_of_workers_is_told(view):
    loader = tm.load(view, 4)
    dataset = loader.dataset()
    state = loader.state_dict()
    assert state["samples"] == 0
    through = iter(DataLoader(dataset, batch_size=None, num_workers=1))
    next(through)
    with pytest.warns(UserWarning, match="state lacks the batches of a DataLoader's workers: use StatefulDataLoader"):
        loader.state_dict()
    loader.load_state_dict({**state, "samples": 4})  # counted by the caller
    assert loader.state_dict()["samples"] == 4
    del through


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_not_batched_again(view, workers):
    dataset = tm.load(view, 4).dataset()
    with pytest.raises(
        tm.errors.UsageError, match=r"has whole batches: DataLoader\(dataset, batch_size=None\)\. A Trainer takes"
    ):
        next(iter(DataLoader(dataset, batch_size=2, num_workers=workers)))
    one = next(iter(DataLoader(dataset, batch_size=1, collate_fn=lambda batches: batches[0])))
    assert one["input_ids"].shape == (4, LENGTH)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda view: tm.load(view, 4), TypeError),
        (lambda view: tm.load(view, 4, epochs=1), TypeError),
        (lambda view: tm.load(view, 4).dataset(), tm.errors.UsageError),
    ],
)
def test_a_trainer_that_would_batch_batches_hears_what_works(view, tmp_path, given, error):
    works = r"A Trainer takes its view \(train_dataset=view\), or the loader from get_train_dataloader"
    with pytest.raises(error, match=works):
        trained(tmp_path, train_dataset=given(view), max_steps=1)


@pytest.mark.parametrize("labels", ["same", "shifted"])
@pytest.mark.parametrize("door", ["view", "loader"])
def test_a_trainer_with_shifted_labels_is_warned(store, tmp_path, labels, door):
    """Its models shift labels themselves."""
    view = tm.pack(store, LENGTH, fields=("input_ids", "labels"), labels=labels)
    feed = {"train_dataset": view} if door == "view" else {"feed": lambda: tm.load(view, 4)}

    def run():
        return trained(tmp_path, max_steps=2, **feed)

    if labels == "same":  # the tests take warnings for errors
        saw, _ = run()
    else:
        with pytest.warns(UserWarning, match="models of transformers shift labels themselves: pack with labels='same'"):
            saw, _ = run()
    assert len(saw) == 2
    assert len(list(tm.load(view, 4, epochs=1))) == ROWS // 4  # a loop of one's own is not warned
