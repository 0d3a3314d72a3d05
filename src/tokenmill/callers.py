"""Who called: warnings about the line of the user, and trainers that ask for data they would use wrongly."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tokenmill.errors import UsageError

FOR_TRAINERS = "A Trainer takes its view (train_dataset=view), or the loader from get_train_dataloader"


def warn(text: str) -> None:
    """Warn about the line outside of tokenmill that made the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "tokenmill":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def calling_objects(method_of: str) -> Iterator[Any]:
    """The objects of classes of this name whose methods are running, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame := frame.f_back if frame else None:
        caller = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if any(each.__name__ == method_of for each in type(caller).__mro__):
            yield caller


def check_resumed(loader: Any) -> None:
    """UsageError if a resumed Trainer takes its batches from a loader, or its dataset, that would begin again with epoch 0."""
    if "transformers" not in sys.modules or loader.seen or loader.epochs == "endless":
        return
    for trainer in calling_objects("Trainer"):
        given = trainer.callback_handler.train_dataloader if hasattr(trainer, "callback_handler") else None
        mine = getattr(getattr(given, "dataset", None), "loader", given) is loader
        if mine and trainer.state.global_step and not trainer.args.ignore_data_skip:
            raise UsageError(
                f"the Trainer goes on after step {trainer.state.global_step}, but this loader begins again; give the Trainer"
                " callbacks=[tokenmill.integrations.transformers.LoaderState(loader)]"
            )


def warn_of_shifting_twice(labels: str) -> bool:
    """Warn if a Trainer of transformers takes shifted labels for a model that shifts them itself."""
    if labels == "shifted" and "transformers" in sys.modules:
        for trainer in calling_objects("Trainer"):
            if any(each.__name__ == "PreTrainedModel" for each in type(getattr(trainer, "model", None)).__mro__):
                warn("models of transformers shift labels themselves: pack with labels='same', not labels='shifted'")
                return True
    return False
