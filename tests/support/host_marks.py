"""starts.cu compiled for the host, to be called from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tokenmill.encoding.gpu.device_source import pattern_flags, starts_source
from tokenmill.encoding.gpu.patterns import Pattern
from tokenmill.encoding.gpu.pretoken_rules import character_roles, rule_table

_WORDS = """
using namespace pretokens;
extern "C" void mark_%(flags)d(const Byte* text, long words, const Byte* roles, const Byte* rules, Bits* starts, Bits* unsure) {
  Tables tables = {roles, roles, rules};
  for (long word = 0; word < words; word++) {
    Marks marks = mark_word<%(flags)d>(text, word, tables);
    starts[word] = marks.starts;
    unsure[word] = marks.unsure;
  }
}
"""


def compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def compile_for_host(folder: Path, patterns: Iterable[Pattern], *options: str) -> ctypes.CDLL:
    """A library with a function for each pattern that marks all words of a text."""
    flags = sorted({pattern_flags(pattern) for pattern in patterns})
    source, library = folder / "marks.cpp", folder / "marks.so"
    source.write_text(starts_source() + "".join(_WORDS % {"flags": each} for each in flags), "utf-8")
    command = [compiler() or "g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", *options]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def marks(library: ctypes.CDLL, pattern: Pattern, documents: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """For each byte of the documents whether a pretoken starts there, and whether that is unsure."""
    text = b"\xff\xff" + b"\xff".join(documents) + b"\xff"
    text += b"\xff" * (-len(text) % 32)
    words = len(text) // 32
    starts, unsure = np.zeros(words, np.uint32), np.zeros(words, np.uint32)
    # In memory that begins and ends with the text, so that tools for checking memory see what is read outside of it.
    data, roles = np.frombuffer(text, np.uint8), character_roles(pattern)
    pointers = [
        array.ctypes.data_as(ctypes.c_void_p) for array in (data, roles, rule_table(pattern).packed(), starts, unsure)
    ]
    function = library[f"mark_{pattern_flags(pattern)}"]
    function(pointers[0], ctypes.c_long(words), *pointers[1:])
    return tuple(
        np.unpackbits(bits.view(np.uint8), bitorder="little")[data != 0xFF].astype(bool) for bits in (starts, unsure)
    )
