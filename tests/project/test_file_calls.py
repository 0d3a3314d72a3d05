"""Whatever stores depend on goes through io/disk.py, where tests let each call fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "tokenmill"
CHECKED = [
    "io",
    "store",
    "building",
    "packing",
    "user_cache.py",
    "reading/spool.py",
    "reading/cutting.py",
    "reading/batch_cutting.py",
]
EXEMPT = {
    "io/disk.py",
    "io/mirror.py",  # copies of what is in a bucket: losing one costs time
    "io/object_store.py",  # what it reads and writes is in a bucket
    "building/machine.py",  # reads /proc and /sys
    "building/executors/worker.py",  # writes to a pipe
    "building/executors/worker_process.py",  # pipes of workers
    "building/executors/worker_template.py",  # likewise
}
FUNCTIONS = {
    "os": "open write rename replace renames link symlink unlink remove rmdir removedirs mkdir makedirs truncate ftruncate"
    " fsync fdatasync listdir scandir walk",
    "io": "open open_code FileIO",
    "shutil": "rmtree copy copy2 copyfile copytree move",
    "fcntl": "flock lockf fcntl",
    "pa": "OSFile output_stream memory_map",
    "np": "save savez load fromfile",
}
METHODS = "read_bytes read_text write_bytes write_text mkdir rmdir unlink touch iterdir glob rglob hardlink_to symlink_to tofile"


def direct_calls(code: str) -> Iterator[str]:
    """The calls in some code that open, change or list files without io/disk.py."""
    for node in ast.walk(ast.parse(code)):
        function = node.func if isinstance(node, ast.Call) else node
        if isinstance(function, ast.Name) and isinstance(node, ast.Call) and function.id == "open":
            yield f"line {node.lineno}: open"
        if isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            is_method = isinstance(node, ast.Call) and function.attr in METHODS.split() and owner != "disk"
            if is_method or function.attr in FUNCTIONS.get(owner, "").split():
                yield f"line {function.lineno}: {owner}.{function.attr}"


def test_files_are_opened_changed_and_listed_in_one_module():
    found = []
    for name in CHECKED:
        path = PACKAGE / name
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if module.relative_to(PACKAGE).as_posix() not in EXEMPT:
                found += [f"{module.relative_to(PACKAGE)}, {call}" for call in direct_calls(module.read_text("utf-8"))]
    assert sorted(set(found)) == []


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')",
        "os.replace(a, b)",
        "os.fsync(file.fileno())",
        "stack.callback(shutil.rmtree, folder)",
        "fcntl.flock(handle, fcntl.LOCK_EX)",
        "(folder / name).unlink(missing_ok=True)",
        "path.write_bytes(data)",
        "for path in folder.glob('*'): pass",
    ],
)
def test_a_direct_call_is_found(line):
    assert list(direct_calls(line))


def test_what_only_looks_like_one_is_not():
    assert not list(direct_calls("disk.unlink(path)\ndisk.read_bytes(path)\nname.replace('a', 'b')\nstore.open(stack)"))
