"""Verdicts that come with tokenmill: what `make conformance` found out about engines for well-known tokenizers.

They hold for the same versions of engine, reference and probes. Before one is used, the engine has to agree with the reference on
a short suite on this machine. scripts/shipped_verdicts.py writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version
from tokenmill.encoding.engines.guarded import merged
from tokenmill.encoding.selection import probes
from tokenmill.encoding.selection.verdicts import Verdict

FILE = "verdicts.json"


def shipped_verdict(definition: Definition, engine: str) -> Verdict | None:
    """The verdict on an engine for a tokenizer, if it was tried with the installed versions."""
    body = _shipped()
    entry = body["verdicts"].get(definition.fingerprint, {}).get(versions(definition, engine))
    if body["suite"] != probes.VERSION or entry is None:
        return None
    always = body["unassigned"] if entry["agrees"] and entry["knows_unicode"] else []
    guard = merged([(low, high) for low, high in (*always, *entry["guard"])])
    return Verdict(engine, engine_version(engine), entry["agrees"], entry["why"], guard)


def versions(definition: Definition, engine: str) -> str:
    reference = definition.reference
    return f"{engine} {engine_version(engine)}, {reference} {engine_version(reference)}"


@cache
def _shipped() -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(files("tokenmill").joinpath("data", FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {"suite": 0, "verdicts": {}}
    return body
