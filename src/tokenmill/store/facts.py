"""The facts of a store, for programs (`info`) and for people (`info_table`)."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenmill.errors import CorruptError
from tokenmill.formatting import human, in_words, percent, some
from tokenmill.io import disk
from tokenmill.io.checked_lines import numbered_records
from tokenmill.io.mirror import mirrored_url
from tokenmill.io.object_store import is_url
from tokenmill.log_records import is_event, shortened
from tokenmill.split_names import TRAIN, files_by_split
from tokenmill.store.bucket import open_mirror
from tokenmill.store.manifest import Manifest, read_manifest, trial_of
from tokenmill.store.side_files import side_file
from tokenmill.store.sources import SOURCES, read_sources

NAMES = 12  # columns for the names of facts


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts of a store: its manifest, dates from its log, and the size of its files. Also of an interrupted build.

    Costs one stat per file.
    """
    folder = open_mirror(str(path)) if is_url(path) else Path(os.path.expanduser(path))
    manifest = read_manifest(folder, is_asked_for=True)
    disk_bytes = _disk_bytes(folder) if mirrored_url(folder) is None else sum(manifest.shard_bytes())
    more = {"splits": _splits(folder, manifest), "disk_bytes": disk_bytes, **_from_log(folder)}
    return {**facts_of(folder, manifest), **more}


def _splits(folder: Path, manifest: Manifest) -> dict[str, int]:
    """The number of input files of each split that their names and folders make; none if the list of files is missing."""
    if "split" in manifest.source:  # built from one split, which the source names
        return {}
    try:
        files = read_sources(side_file(folder, manifest, SOURCES)).files
    except CorruptError:  # interrupted; or `verify` says what is wrong
        return {}
    return {split: len(names) for split, names in files_by_split(files, TRAIN).items()}


def _disk_bytes(folder: Path) -> int:
    """The size of all files of a store, including its log and the plans of packings."""
    total = 0
    for entry in disk.entries(folder):
        with suppress(OSError):  # a temporary file of a build that is running
            is_folder = entry.is_dir(follow_symlinks=False)
            total += _disk_bytes(folder / entry.name) if is_folder else entry.stat(follow_symlinks=False).st_size
    return total


def _from_log(folder: Path) -> dict[str, Any]:
    """When the first build of a store began and when the last one finished, in UTC; None if its log does not say.

    And how many documents the reference encoded and compared in the last one, and how many lines are no events.
    """
    created = finished = None
    skipped = 0
    counts: dict[str, Any] = {}
    with suppress(OSError):
        for _, record in numbered_records(folder / "events.jsonl"):
            if record is None or not is_event(record):  # damaged, forged, or of a later version
                skipped += 1
                continue
            created = created or record["time"]
            if record["event"] == "finished":
                finished = record["time"]
                counts = {name: record.get(name) for name in ("by_reference", "spot_checked")}
    return {"created": _iso(created), "finished": _iso(finished), "log_lines_skipped": skipped, **counts}


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def facts_of(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """The facts of a store whose manifest was read already."""
    quarantined = sum(manifest.quarantined.values())
    return {
        "path": mirrored_url(folder) or str(folder),
        "complete": manifest.complete,
        "documents": manifest.documents,
        "documents_in": manifest.documents + quarantined,
        "quarantined": quarantined,
        "quarantined_by_reason": manifest.quarantined,
        "failed_files": manifest.failed,
        "tokens": manifest.tokens,
        "dtype": manifest.dtype,
        "columns": [asdict(column) for column in manifest.columns],
        "vocab_size": manifest.tokenizer["vocab_size"],
        "tokenizer": manifest.tokenizer,
        "fingerprint": manifest.fingerprint,
        "shards": len(manifest.shard_ids),
        "finished_shards": len(manifest.shard_ids) or len(disk.matching(folder / "shards", "*.json")),
        "source_bytes": manifest.source_bytes,
        "text_bytes": manifest.text_bytes,
        "bytes_per_token": round(manifest.text_bytes / manifest.tokens, 3) if manifest.tokens else None,
        "special_documents": manifest.special_documents,
        "trial": trial_of(manifest.options),
        "source": manifest.source,
        "options": manifest.options,
    }


def _state(facts: dict[str, Any]) -> str:
    """Why a store is not complete; empty for one that is."""
    if facts["complete"]:
        return ""
    if facts["failed_files"]:
        return f"   NOT COMPLETE: {some(len(facts['failed_files']), 'input file')} failed; the next build tries again"
    finished = some(facts["finished_shards"], "shard")
    return f"   NOT COMPLETE: being built or interrupted, {finished} finished; run the same build to continue"


def _tokenizer(facts: dict[str, Any]) -> str:
    tokenizer = facts["tokenizer"]
    special = [
        f"{name} {tokenizer[f'{name}_id']} {tokenizer.get(f'{name}_token') or ''}".rstrip()
        for name in ("bos", "eos")
        if tokenizer[f"{name}_id"] is not None
    ]
    details = ", ".join([f"{facts['vocab_size']:,} ids", *special])
    return f"{tokenizer['name']} ({details})"


def info_table(facts: dict[str, Any], *, brief: bool = False) -> str:
    """The facts as a table for people. `brief`: without the proof of the engine, which the build has shown."""
    if brief:
        facts = {**facts, "tokenizer": {**facts["tokenizer"], "proof": ""}}
    return "\n".join(f"{name:<{NAMES}}{value}" for name, value in info_rows(facts))


def _last_build(facts: dict[str, Any]) -> str:
    """What the reference did in the last build that finished, if its log says."""
    left, checked = facts.get("by_reference"), facts.get("spot_checked")
    if left is None or checked is None or not left + checked:
        return ""
    return f"in the last build {some(left, 'document')} left to the reference, {some(checked, 'document')} compared with it"


def _audit(facts: dict[str, Any]) -> str:
    """What an import has seen in the tokens."""
    if (audit := facts["source"].get("audit")) is None:
        return ""
    words = (("with_bos", "begin with bos"), ("with_eos", "end with eos"), ("repeated", "repeat an earlier one"))
    shares = ", ".join(f"{percent(audit[name], audit['documents'])} {what}" for name, what in words)
    unused = audit["unused_ids"]
    return f"documents: {shares}" + ("" if unused is None else f"; {some(unused, 'unused id')}")


def _built(facts: dict[str, Any]) -> str:
    words = ("finished", facts.get("finished")), ("begun", facts.get("created"))
    return ", ".join(f"{word} {date}" for word, date in words if date)


def info_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts in words, each with its name."""
    tokenizer, source = facts["tokenizer"], facts["source"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in facts["quarantined_by_reason"].items())
    trial = ", ".join(f"{name.replace('_', ' ')} {limit:,}" for name, limit in facts["trial"].items())
    encoded = "ordinary text" if facts["options"].get("special_tokens") == "text" else "their ids"
    hold = "holds" if facts["special_documents"] == 1 else "hold"
    special = f"{some(facts['special_documents'], 'document')} {hold} special tokens, encoded as {encoded}"
    engine = f"{tokenizer['engine']} {tokenizer['engine_version']}".strip()
    columns = ", ".join(f"{column['name']} ({column['dtype']} per {column['per']})" for column in facts["columns"])
    documents = f"{facts['documents_in']:,} in = {facts['documents']:,} out + {facts['quarantined']:,} quarantined"
    text = f"{facts['text_bytes']:,} bytes, {facts['bytes_per_token']} per token"
    files, skipped = some(source["files"], "file"), facts.get("log_lines_skipped", 0)
    of_log = f"{some(skipped, 'line')} of events.jsonl left out: damaged, or not of this version"
    rows = [
        ("store", facts["path"] + _state(facts)),
        ("documents", documents),
        ("", reasons and f"quarantined: {reasons} (quarantine.jsonl)"),
        *(("warning", doubt) for doubt in source.get("doubts", ())),
        ("trial", trial and f"not the whole corpus: {trial}"),
        ("tokens", f"{facts['tokens']:,} as {facts['dtype']}, {some(facts['shards'], 'shard')}"),
        ("audit", _audit(facts)),
        ("columns", columns if len(facts["columns"]) > 2 else ""),  # every store has ids and ends
        ("text", text if facts["text_bytes"] else ""),
        ("disk", human(facts["disk_bytes"]) if "disk_bytes" in facts else ""),
        ("built", _built(facts)),
        ("source", f"{facts['source_bytes']:,} bytes in {files}: {', '.join(source['inputs'])}"),
        ("split", source.get("split", "")),
        ("splits", ", ".join(f"{name} ({some(count, 'file')})" for name, count in facts.get("splits", {}).items())),
        ("ignored", in_words(source.get("ignored_by_reason", {}))),
        ("tokenizer", _tokenizer(facts)),
        ("", tokenizer.get("note", "")),
        ("special", special if facts["special_documents"] else ""),
        ("engine", f"{engine}: {tokenizer['proof']}".rstrip(": ")),
        ("", _last_build(facts)),
        ("log", of_log if skipped else ""),
        ("fingerprint", facts["fingerprint"]),
        *(("failed", entry["error"]) for entry in facts["failed_files"]),
    ]
    return [(name, shortened(value)) for name, value in rows if value]
