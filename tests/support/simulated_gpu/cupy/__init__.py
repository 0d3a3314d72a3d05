"""The part of CuPy that tokenmill uses, without a GPU: arrays are those of numpy, kernels are compiled for the CPU.

Slow, some 100 kB/s, but it runs the same kernels and the same Python code as a GPU does. New arrays are filled with a pattern, as
memory of a device has arbitrary content. Environment variables make it fail:

SIMULATED_DEVICES   how many devices there are; 1 by default
SIMULATED_MEMORY    bytes of memory of each device; more is an OutOfMemoryError
SIMULATED_LAUNCHES  the device is lost after so many launches of kernels
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from . import cuda

uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
minimum = np.minimum
where = np.where


class _Pointer:
    def __init__(self, pointer: int) -> None:
        self.ptr = pointer


class ndarray(np.ndarray):
    """An array in the memory of the device."""

    @property
    def data(self) -> Any:
        return _Pointer(self.ctypes.data)

    def get(self) -> np.ndarray:
        return np.array(self)

    def set(self, host: np.ndarray) -> None:
        assert host.dtype == self.dtype
        self[...] = host


def _on_device(host: np.ndarray) -> ndarray:
    cuda.memory.take(host.nbytes)
    array = host.view(ndarray)
    weakref.finalize(array, cuda.memory.give_back, host.nbytes)
    return array


def get_default_memory_pool() -> Any:
    return cuda.memory


def empty(shape: Any, dtype: Any) -> ndarray:
    cuda.memory.take(0)
    host = np.empty(shape, dtype)
    host.view(np.uint8).fill(0xA5)
    return _on_device(host)


def zeros(shape: Any, dtype: Any) -> ndarray:
    return _on_device(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any) -> ndarray:
    return _on_device(np.ones(shape, dtype))


def asarray(host: np.ndarray) -> ndarray:
    return _on_device(np.array(host))


def arange(start: int, stop: int, dtype: Any) -> ndarray:
    return _on_device(np.arange(start, stop, dtype=dtype))


def empty_like(array: ndarray) -> ndarray:
    return empty(array.shape, array.dtype)


def cumsum(array: ndarray, dtype: Any = None) -> ndarray:
    return _on_device(np.cumsum(np.asarray(array), dtype=dtype or array.dtype))


def bincount(array: ndarray, minlength: int) -> ndarray:
    return _on_device(np.bincount(np.asarray(array), minlength=minlength))


class _Launch(ctypes.Structure):
    """As in cuda_on_cpu.h."""

    _fields_ = (
        ("grid", ctypes.c_uint),
        ("block", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_size_t)),
        ("count", ctypes.c_size_t),
        ("shared", ctypes.c_size_t),
    )


class RawModule:
    """CUDA C++, compiled for the CPU. The library is kept in the folder for temporary files, by the digest of its source."""

    def __init__(self, code: str, options: tuple[str, ...], backend: str) -> None:
        assert backend == "nvrtc"
        folder = Path(tempfile.gettempdir()) / f"tokenmill-simulated-gpu-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        source = _for_the_cpu(code)
        library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:32]}.so"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(source, library, [option.removeprefix("-") for option in options])
        self._library = ctypes.CDLL(str(library))

    def get_function(self, name: str) -> Any:
        function = self._library[f"launch_{name}"]
        function.restype = ctypes.c_bool

        def launch(grid: tuple[int], block: tuple[int], arguments: list[Any], shared_mem: int = 0) -> None:
            cuda.count_launch()
            kept = [_value(each) for each in arguments]
            pointers = (ctypes.c_void_p * len(kept))(*(each.ctypes.data for each in kept))
            sizes = (ctypes.c_size_t * len(kept))(*(each.nbytes for each in kept))
            how = _Launch(grid[0], block[0], pointers, sizes, len(kept), shared_mem)
            done = function(ctypes.byref(how))
            assert done, f"the arguments of {name} are not those of the kernel"

        return launch


def _value(argument: Any) -> np.ndarray:
    if isinstance(argument, np.ndarray):
        assert isinstance(argument, ndarray), "an array of the host is passed to a kernel"
        return np.array(argument.ctypes.data, np.uint64)
    assert isinstance(argument, np.generic), argument
    return np.array(argument)


def _for_the_cpu(code: str) -> str:
    """The source with a function for each kernel that launches it."""
    header = (Path(__file__).parent / "cuda_on_cpu.h").read_text("utf-8")
    code = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", r"\1* \2 = (\1*)simulated::dynamic_shared;", code)
    kernels = set(re.findall(r"(?:__global__ void |^GATHER\()(\w+)", code, re.MULTILINE)) - {"NAME"}
    launchers = [
        f'extern "C" bool launch_{name}(const simulated::Launch* how) {{ return simulated::launch({name}, *how); }}\n'
        for name in sorted(kernels)
    ]
    return header + code + "".join(launchers)


def _compile(source: str, library: Path, options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        path.write_text(source, "utf-8")
        command = [
            "g++",
            *(f"-{option}" for option in options),
            "-O1",
            "-fno-strict-aliasing",
            "-w",
            "-shared",
            "-fPIC",
        ]
        subprocess.run([*command, "-o", str(made), str(path)], check=True)
        library.with_suffix(".new").write_bytes(made.read_bytes())
        library.with_suffix(".new").replace(library)
