"""`LoaderState`: the state of a loader in the checkpoints of the Trainer of Hugging Face. Imports transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from tokenmill.errors import MismatchError, UsageError
from tokenmill.loading import Loader


class LoaderState(TrainerCallback, ExportableState):  # type: ignore[misc]  # a class without types
    """Keeps the state of a loader in the checkpoints of a Trainer, whose `get_train_dataloader` returns the loader:
    `Trainer(..., callbacks=[LoaderState(loader)])`. With `resume_from_checkpoint` the loader goes on after the checkpoint, and no
    batch is read again. The Trainer logs the loader's epochs.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into trainer_state.json."""
        return {"args": {}, "attributes": self.loader.state_dict()}

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        args.ignore_data_skip = True  # the loader goes on at its place: there is nothing to skip

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Load the state of the checkpoint. UsageError if the Trainer would count batches in another way."""
        if given.get("train_dataloader") is not self.loader:
            raise UsageError("LoaderState: the Trainer has other batches; return this loader from get_train_dataloader")
        if not args.ignore_data_skip:
            raise UsageError("LoaderState: give it to the Trainer with callbacks=[...], or set ignore_data_skip=True")
        parts = args.gradient_accumulation_steps
        if not isinstance(self.loader.epochs, str) and len(self.loader) % parts:
            raise UsageError(
                f"gradient_accumulation_steps={parts} does not divide the {len(self.loader):,} batches of a pass, which could not"
                " be resumed exactly: give the loader epochs='endless' and the Trainer max_steps"
            )
        saved = state.stateful_callbacks.get(type(self).__name__)
        if saved is None:
            raise MismatchError("the checkpoint has no state of a loader: it was saved without LoaderState")
        self.loader.load_state_dict(saved["attributes"])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self.loader.epoch
