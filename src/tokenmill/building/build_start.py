"""What a build settles before its first task: the engine, and the manifest without shards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tokenmill.building.build_plan import BuildPlan
from tokenmill.building.executors.base import Executor
from tokenmill.building.machine import release_memory
from tokenmill.building.publish import tokenizer_facts
from tokenmill.building.reporting import announce_proof
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import MismatchError, TokenmillError
from tokenmill.events import Listener
from tokenmill.option_types import option_name
from tokenmill.store.columns import columns_with
from tokenmill.store.manifest import Manifest

MOST_IGNORED_NAMED = 1000  # ignored files that the manifest names; all are counted


def choose_engine(plan: BuildPlan, weight: int, executor: Executor, emit: Listener) -> Tokenizer:
    """The tokenizer with its engine: the one that the store was begun with, or one that is fast for this much text."""
    tokenizer, origin = plan.tokenizer, plan.origin
    if tokenizer._wanted != "auto" or plan.resolved.is_slow:
        tokenizer.choose_engine()
        return tokenizer
    if origin is not None and origin.tokenizer["engine"] == tokenizer._definition.reference:
        origin = None  # chosen for little text, or by hand
    tokenizer = replace(tokenizer)  # forget an engine chosen before, which may have been refused since
    if origin is not None:
        with suppress(TokenmillError):  # the engine is no longer installed, or was refused since
            same = load_tokenizer(tokenizer, engine=origin.tokenizer["engine"])
            if same.engine_version == origin.tokenizer["engine_version"]:
                return same
    if plan.limit is not None:
        return tokenizer._for_corpus(0)

    is_proved_now = announce_proof(tokenizer, weight, emit)
    chosen = tokenizer._for_corpus(weight, executor.processes)
    if is_proved_now:
        release_memory()
    return chosen


def first_manifest(plan: BuildPlan, tokenizer: Tokenizer) -> Manifest:
    """The manifest before any shard is listed. Raises MismatchError if the published store has further columns."""
    options, source, columns = plan.options, plan.source, columns_with(tokenizer.dtype)
    published = plan.prior.published
    if published is not None and published.columns != columns:
        names = ", ".join(column.name for column in published.columns)
        raise MismatchError(
            f"{plan.folder} has the columns {names}; a build writes ids and ends. Nothing was changed; choose another"
            f" folder, or rebuild this one without the others with {option_name('force', True)}"
        )
    earlier = plan.origin.tokenizer if plan.origin is not None else None
    engine = ("engine", "engine_version")
    if earlier is not None and (not plan.has_work or all(earlier[name] == getattr(tokenizer, name) for name in engine)):
        facts = earlier
    else:
        facts = tokenizer_facts(tokenizer, options["bos"], options["eos"])
        if earlier is not None:
            facts["name"] = earlier["name"]  # the fingerprint is the same, so the tokenizer keeps its first name
    return Manifest(
        options=options,
        source={
            "inputs": list(source.inputs),
            "files": len(source.files),
            "on_error": source.on_error,
            **source._selection(),
            **({"hub": [pin._asdict() for pin in source._pins]} if source._pins else {}),
            "ignored_by_reason": source.ignored_by_reason,
            "ignored": [list(each) for each in source.ignored[:MOST_IGNORED_NAMED]],
        },
        tokenizer=facts,
        columns=columns,
        source_bytes=source.num_bytes,
    )
