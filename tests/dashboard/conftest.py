"""A store with everything that the dashboard shows, and a server of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from build_helpers import write_jsonl
from dashboard_client import EVIL, Client, serving

import tokenmill as tm
from tokenmill.dashboard.watched import library_at


@pytest.fixture(scope="session")
def shown_store(tmp_path_factory, tokenizer_path) -> Path:
    """Documents with markup, emoji and CJK, rows that were left out, a file that failed, a file name with markup."""
    folder = tmp_path_factory.mktemp("shown")
    texts = [f"document {i} {'word ' * (i % 40)}" for i in range(300)]
    texts[7] = f"before {EVIL} after"
    texts[8] = "emoji 🙂👩‍👩‍👧, 中文字 and\nnew lines\n\ttabs, naïve café"
    write_jsonl(folder / "corpus" / "a.jsonl", texts)
    write_jsonl(folder / "corpus" / "b <i>.jsonl", ["needle in a haystack", *texts[:50]])
    (folder / "corpus" / "c.jsonl").write_text(f'{{"text": "good"}}\n{EVIL}\n{{"text": 5}}\n', "utf-8")
    (folder / "corpus" / "d.parquet").write_bytes(b"PAR1 is damaged")
    tm.build(
        folder / "corpus",
        tokenizer_path,
        folder / "store",
        workers=0,
        progress="quiet",
        engine="reference",
        shard_bytes=2000,
    )
    return folder / "store"


@pytest.fixture(scope="session")
def client(shown_store) -> Iterator[Client]:
    with serving(library_at(str(shown_store))) as started:
        yield started
