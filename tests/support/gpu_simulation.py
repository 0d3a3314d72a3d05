"""A GPU that is simulated on the CPU (`simulated_gpu/cupy`), for this process and those it starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tokenizers

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.libraries import installed_version

FOLDER = Path(__file__).parent / "simulated_gpu"
MEMORY = "256MB"  # the least that is allowed: buffers are filled with a pattern, which takes time

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="kernels are compiled by g++")


@contextmanager
def simulated_gpu(cache: Path, **settings: object) -> Iterator[pytest.MonkeyPatch]:
    """Processes that are started meanwhile find CuPy. `cache` is a folder of its own, so that no earlier process is found.

    `settings` are those of the simulation: devices, memory, launches.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")])))
        patch.setenv("TOKENMILL_CACHE", str(cache))
        patch.setenv("TOKENMILL_GPU_MEMORY", MEMORY)
        for name, value in settings.items():
            patch.setenv(f"SIMULATED_{name.upper()}", str(value))
        installed_version.cache_clear()
        try:
            yield patch
        finally:
            installed_version.cache_clear()


def by_reference(definition: Definition, texts: list[str]) -> list[list[int]]:
    """The ids of each text by `tokenizers`."""
    reference = tokenizers.Tokenizer.from_str(definition.engine_json)
    return [each.ids for each in reference.encode_batch_fast(texts, add_special_tokens=False)]
