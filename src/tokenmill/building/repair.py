"""Mend a damaged store: take the broken shards' receipts away and build again. Nothing else is touched."""

from __future__ import annotations

from pathlib import Path

from tokenmill.building.builder import build
from tokenmill.errors import StoreError
from tokenmill.events import EventLog, read_events
from tokenmill.reading import read
from tokenmill.store import Damage, read_manifest
from tokenmill.store.shard import receipt_path


def repair(folder: Path, damages: list[Damage]) -> None:
    """Rebuild damaged shards from their source. An error says so if the source is gone or has changed."""
    before = read_manifest(folder)
    options, source = before.options, before.source
    if any(name.startswith(("<", "-")) for name in source["inputs"]):
        raise StoreError(
            f"{folder} was built from text that is not in files ({', '.join(source['inputs'])}): build it again from that"
            " text; every undamaged shard is kept"
        )
    for damage in damages:
        if damage.shard is not None:
            receipt_path(folder / "shards", damage.shard).unlink(missing_ok=True)
        if damage.file == "events.jsonl":
            _mend_log(folder / "events.jsonl")
    corpus = read(
        *source["inputs"],
        format=options["format"],
        text=options["text"] or "text",
        template=options["template"],
        separator=options["separator"],
        limit=options["limit"],
        on_error=source["on_error"],
    )
    broken_tokenizer = any(damage.file.startswith("tokenizer/") for damage in damages)
    after = build(
        corpus,
        before.tokenizer["name"] if broken_tokenizer else folder / "tokenizer",
        folder,
        eos=options["eos"],
        bos=options["bos"],
        shard_bytes=options["shard_bytes"],
        engine=before.tokenizer["engine"],
        progress="quiet",
    )
    if after.fingerprint != before.fingerprint:
        raise StoreError(
            f"{folder}: the source has changed since it was built, so the store now holds the source as it is:"
            f" fingerprint {after.fingerprint}, before {before.fingerprint}"
        )


def _mend_log(path: Path) -> None:
    """Keep the lines of the log that are whole."""
    events = list(read_events(path))
    path.unlink()
    log = EventLog(path)
    for event in events:
        event.pop("crc")
        log(event)
    log.close()
