"""The facts of a store, for programs (`info`) and for people (`info_table`)."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenmill.formatting import in_words, some
from tokenmill.io import disk
from tokenmill.store.manifest import read_manifest, trial_of


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts of a store. Reads only the manifest; also works for an interrupted build."""
    folder = Path(path)
    manifest = read_manifest(folder)
    quarantined = sum(manifest.quarantined.values())
    return {
        "path": str(folder),
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
        f"{name} {tokenizer[f'{name}_id']} {tokenizer.get(f'{name}_token')}"
        for name in ("bos", "eos")
        if tokenizer[f"{name}_id"] is not None
    ]
    details = ", ".join([f"{facts['vocab_size']:,} ids", *special])
    return f"{tokenizer['name']} ({details})"


def info_table(facts: dict[str, Any]) -> str:
    """The facts as a table for people."""
    tokenizer, source = facts["tokenizer"], facts["source"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in facts["quarantined_by_reason"].items())
    trial = ", ".join(f"{name.replace('_', ' ')} {limit:,}" for name, limit in facts["trial"].items())
    special = "ordinary text" if facts["options"].get("special_tokens") == "text" else "their ids"
    columns = ", ".join(f"{column['name']} ({column['dtype']} per {column['per']})" for column in facts["columns"])
    documents = f"{facts['documents_in']:,} in = {facts['documents']:,} out + {facts['quarantined']:,} quarantined"
    text = f"{facts['text_bytes']:,} bytes, {facts['bytes_per_token']} per token"
    files = some(source["files"], "file")
    rows = [
        ("store", facts["path"] + _state(facts)),
        ("documents", documents),
        ("", reasons and f"quarantined: {reasons} (quarantine.jsonl)"),
        ("trial", trial and f"not the whole corpus: {trial}"),
        ("tokens", f"{facts['tokens']:,} as {facts['dtype']}, {some(facts['shards'], 'shard')}"),
        ("columns", columns if len(facts["columns"]) > 2 else ""),  # every store has ids and ends
        ("text", text if facts["tokens"] else ""),
        ("source", f"{facts['source_bytes']:,} bytes in {files}: {', '.join(source['inputs'])}"),
        ("ignored", in_words(source.get("ignored_by_reason", {}))),
        ("tokenizer", _tokenizer(facts)),
        (
            "special",
            f"{facts['special_documents']:,} documents hold special tokens, encoded as {special}"
            if facts["special_documents"]
            else "",
        ),
        ("engine", f"{tokenizer['engine']} {tokenizer['engine_version']}: {tokenizer['proof']}"),
        ("fingerprint", facts["fingerprint"]),
        *(("failed", entry["error"]) for entry in facts["failed_files"]),
    ]
    return "\n".join(f"{name:<12}{value}" for name, value in rows if value)
