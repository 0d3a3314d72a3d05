"""Which executor runs a build."""

from __future__ import annotations

from typing import Any

from tokenmill.building.executors.base import Executor
from tokenmill.building.executors.worker_process import SMALL_BYTES, drop_template
from tokenmill.building.machine import Needs, share_out
from tokenmill.errors import UsageError
from tokenmill.events import Listener
from tokenmill.option_types import option_name
from tokenmill.options import Backend


def executor_for(
    emit: Listener,
    *,
    workers: int | str | None,
    memory: str | int | None,
    text_bytes: int | None,
    is_trial: bool = False,
    is_slow: bool = False,
    needs: Needs | None = None,
    live: Any = None,
    backend: Backend = "local",
    address: str | None = None,
) -> Executor:
    """Worker processes, unless the work is done before they would have started.

    `workers` and `memory` are the user's options: 0 workers is this process, None is one worker per core and half of the free
    memory. `needs` is what the tokenizer takes, where memory is limited. `text_bytes` is about how much text there is to
    encode; None if not known. A trial runs in this process. For a slow tokenizer (`is_slow`) workers help however small the
    input, but `live`, a tokenizer object that exists only in this process, can only run here. `backend` is where workers run,
    `address` that of a Ray cluster.
    """
    if backend == "ray":
        from tokenmill.building.executors.ray_cluster import import_ray

        import_ray()  # an error even where it would not be used
    elif address is not None:
        raise UsageError(f"{option_name('address')} is for {option_name('backend', 'ray')}")
    count, share = share_out(workers, memory, needs)
    is_small = workers is None and text_bytes is not None and text_bytes < SMALL_BYTES and not is_slow
    if workers == 0 or is_trial or is_small or live is not None:
        from tokenmill.building.executors.in_process import InProcess

        drop_template()
        return InProcess(share, emit, live)
    if backend == "ray":
        from tokenmill.building.executors.ray_pool import RayPool

        drop_template()
        most = None if text_bytes is None or is_slow else max(1, text_bytes // SMALL_BYTES)
        return RayPool(emit, address=address, workers=workers, memory=memory, most=most)
    from tokenmill.building.executors.process_pool import ProcessPool

    return ProcessPool(count, share, emit, needs)
