"""What the tests share: a tokenizer that comes with the package, and real text that comes with Python."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest
import tokenizers
from tokenizer_kinds import KINDS
from tokenizers_lines import NOT_RUN

import tokenmill as tm
from tokenmill.demo_data import demo_tokenizer

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; all that the tests write is less than a tenth of it


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    """Ctrl-C works. Temporary folders lie in memory where there is room: there, shards are made durable in no time."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of some shells; tests press Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_ignore_collect(collection_path):
    return True if f"tests/{collection_path.relative_to(TESTS)}" in NOT_RUN else None


def pytest_collection_modifyitems(config, items):
    def is_not_run(item):
        return any(
            f"tests/{item.path.relative_to(TESTS)}::{name}" in NOT_RUN for name in (item.originalname, item.name)
        )

    not_run = [item for item in items if is_not_run(item)]
    config.hook.pytest_deselected(items=not_run)
    items[:] = [item for item in items if item not in not_run]


def pytest_terminal_summary(terminalreporter):
    for name, why in NOT_RUN.items():
        terminalreporter.write_line(f"Not run with tokenizers {version('tokenizers')}: {name} ({why})")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory, worker_id="master"):
    """Nothing is learned from, or left in, the user's own cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TOKENMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def alone(monkeypatch):
    """A process that no launcher has told its rank: what a loader finds is one of one."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def tokenizer_path() -> Path:
    return demo_tokenizer()


@pytest.fixture(scope="session")
def proved(tmp_path_factory, tokenizer_path, _own_cache) -> Path:
    """A cache that knows of the tokenizer that gigatoken is right, and nothing else. Tests with a cache of their own copy it."""
    folder = tmp_path_factory.mktemp("proved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENMILL_CACHE", str(folder))
        tokenizer = tm.load_tokenizer(tokenizer_path)
        assert tokenizer.choose_engine() == "gigatoken", tokenizer.proof
    shutil.copytree(folder, os.environ["TOKENMILL_CACHE"], dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def reference(tokenizer_path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(tokenizer_path / "tokenizer.json"))


@pytest.fixture(scope="session")
def real_texts() -> list[str]:
    """Some hundred modules of the standard library: about 5 MB of real text."""
    root = Path(sysconfig.get_path("stdlib"))
    return [path.read_text("utf-8") for path in sorted(root.glob("*.py"))]


@pytest.fixture(scope="session")
def kinds(tmp_path_factory, tokenizer_path):
    """A tokenizer.json of each kind, beside the one that comes with the package."""
    folder = tmp_path_factory.mktemp("kinds")
    copies = {name: Path(shutil.copy(path, folder)) for name, path in KINDS.items()}
    return {"shipped": tokenizer_path / "tokenizer.json", **copies}


@pytest.fixture
def jsonl(tmp_path):
    """Write documents as JSON lines; returns the path."""

    def write(texts, name="corpus.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
        return path

    return write
