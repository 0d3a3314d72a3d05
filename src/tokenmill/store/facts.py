"""What a store says of itself, for people and for programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tokenmill.store.manifest import read_manifest, trial_of


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts of a store, from its manifest alone; also of one whose build was interrupted."""
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
        "vocab_size": manifest.tokenizer["vocab_size"],
        "tokenizer": manifest.tokenizer,
        "fingerprint": manifest.fingerprint,
        "shards": len(manifest.shard_ids),
        "finished_shards": len(manifest.shard_ids) or sum(1 for _ in (folder / "shards").glob("*.json")),
        "source_bytes": manifest.source_bytes,
        "text_bytes": manifest.text_bytes,
        "bytes_per_token": round(manifest.text_bytes / manifest.tokens, 3) if manifest.tokens else None,
        "special_documents": manifest.special_documents,
        "trial": trial_of(manifest.options),
        "source": manifest.source,
        "options": manifest.options,
    }


def _state(facts: dict[str, Any]) -> str:
    if facts["failed_files"]:
        return f"{len(facts['failed_files'])} of its files failed; the next build tries them again"
    return (
        f"being built, or interrupted, with {facts['finished_shards']:,} shards done; the same build goes on from there"
    )


def info_table(facts: dict[str, Any]) -> str:
    """The same, to be read."""
    tokenizer = facts["tokenizer"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in facts["quarantined_by_reason"].items())
    around = ", ".join(
        f"{name} {tokenizer[f'{name}_id']} {tokenizer.get(f'{name}_token')}"
        for name in ("bos", "eos")
        if tokenizer[f"{name}_id"] is not None
    )
    files = facts["source"]["files"]
    rows = [
        ("store", facts["path"] + ("" if facts["complete"] else f"   NOT COMPLETE: {_state(facts)}")),
        (
            "documents",
            f"{facts['documents_in']:,} in = {facts['documents']:,} out + {facts['quarantined']:,} quarantined",
        ),
        ("", f"left out: {reasons} (quarantine.jsonl)" if reasons else ""),
        (
            "trial",
            "not the whole: "
            + ", ".join(f"{name.replace('_', ' ')} {limit:,}" for name, limit in facts["trial"].items())
            if facts["trial"]
            else "",
        ),
        (
            "tokens",
            f"{facts['tokens']:,} as {facts['dtype']}, {facts['shards']:,} {'shard' if facts['shards'] == 1 else 'shards'}",
        ),
        ("text", f"{facts['text_bytes']:,} bytes, {facts['bytes_per_token']} a token" if facts["tokens"] else ""),
        (
            "source",
            f"{facts['source_bytes']:,} bytes in {files:,} {'file' if files == 1 else 'files'}:"
            f" {', '.join(facts['source']['inputs'])}",
        ),
        ("tokenizer", f"{tokenizer['name']} ({facts['vocab_size']:,} ids{', ' + around if around else ''})"),
        (
            "special_tokens",
            f"{facts['special_documents']:,} documents hold special tokens, encoded as"
            f" {'ordinary text' if facts['options'].get('special_tokens') == 'text' else 'their ids'}"
            if facts["special_documents"]
            else "",
        ),
        ("engine", f"{tokenizer['engine']} {tokenizer['engine_version']}: {tokenizer['proof']}"),
        ("fingerprint", facts["fingerprint"]),
        *(("failed", entry["error"]) for entry in facts["failed_files"]),
    ]
    return "\n".join(f"{name:<12}{value}" for name, value in rows if value)
