"""A training process that only maps a store imports no reader, engine or builder."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from packing_reference import write_store

BUILDERS = (
    "tokenmill.building",
    "tokenmill.encoding",
    "tokenmill.reading",
    "tokenmill.recipes",
    "tokenmill.estimating",
)
LIBRARIES = ("gigatoken", "tokenizers", "awkward", "pyarrow", "huggingface_hub", "psutil", "rich", "yaml")
USES = {
    "open": "tm.open(path)[0]",
    "pack": "tm.pack(tm.open(path), 4, strategy='best_fit')[0]",
    "load a path": "next(iter(tm.load(path, 2, seq_len=4)))",
    "load a view": "next(iter(tm.load(tm.pack(path, 4), 2, verify='first-touch', prefetch=0)))",
    "load a mixture": "next(iter(tm.load(tm.mix({'a': (tm.pack(path, 4), 1), 'b': (tm.pack(path, 4), 2)}), 2)))",
}


def imported(script: str, *arguments: str) -> set[str]:
    """The builders and their libraries that a process has imported after running a script."""
    code = f"import sys; sys.modules['torch'] = None; import tokenmill as tm; path = sys.argv[1]\n{script}"
    code += "\nimport json; print(json.dumps([name for name, module in sys.modules.items() if module is not None]))"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    modules = json.loads(ran.stdout.splitlines()[-1])
    return {name for name in modules if name.startswith(BUILDERS) or name.partition(".")[0] in LIBRARIES}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(
        write_store(tmp_path_factory.mktemp("imports") / "store", [[("a", [[1, 2, 3], [4, 5, 6, 7, 8], [9] * 9])]])
    )


@pytest.mark.parametrize("use", USES)
def test_a_built_store_needs_neither_engines_nor_builders(path, use):
    assert imported(USES[use], path) == set()


def test_raw_text_imports_them(tmp_path, tokenizer_path):
    """The check above would find them."""
    (tmp_path / "a.txt").write_text("some words " * 50)
    script = "next(iter(tm.load(path, 1, seq_len=4, tokenizer=sys.argv[2])))"
    assert {"tokenmill.building", "tokenmill.encoding", "tokenmill.reading"} <= imported(
        script, str(tmp_path / "a.txt"), str(tokenizer_path)
    )
