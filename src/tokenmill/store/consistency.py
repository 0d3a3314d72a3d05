"""Whether the parts of a store agree: columns with their receipt, receipts with the manifest, both with sources.json.

Checksums show that bytes are as they were written. These checks show that what was written makes sense: they also find a store
that was put together wrongly, or edited and given new checksums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tokenmill.documents import BLANK
from tokenmill.errors import CorruptError
from tokenmill.io import disk
from tokenmill.store.columns import ENDS, IDS, column_path, open_column
from tokenmill.store.manifest import NAME, Manifest, store_fingerprint
from tokenmill.store.shard import Damage, Receipt, content_digest, receipt_problem
from tokenmill.store.side_files import QUARANTINE, side_file
from tokenmill.store.sources import SOURCES, RowCounter, Sources, read_sources


def check_columns(shards: Path, receipt: Receipt, vocab_size: int) -> list[Damage]:
    """The ids and ends of a shard whose bytes are intact."""
    shard_id, damages = receipt["id"], []
    ends_path, ids_path = (column_path(shards, shard_id, name) for name in (ENDS, IDS))
    ends = open_column(ends_path, np.dtype(np.int64), receipt["documents"])
    in_order = len(ends) == 0 or (ends[0] >= 0 and bool((ends[1:] >= ends[:-1]).all()))
    if not in_order or (int(ends[-1]) if len(ends) else 0) != receipt["tokens"]:
        damages.append(Damage(f"shards/{ends_path.name}", "ends of documents do not add up to the tokens", shard_id))
    ids = open_column(ids_path, np.dtype(receipt["columns"][IDS]["dtype"]), receipt["tokens"])
    if len(ids) and (largest := int(ids.max())) >= vocab_size:
        what = f"it has the id {largest}, but the vocabulary ends at {vocab_size - 1}"
        damages.append(Damage(f"shards/{ids_path.name}", what, shard_id))
    return damages


def check_agreement(folder: Path, manifest: Manifest, receipts: Sequence[Receipt]) -> list[Damage]:
    """The receipts of all shards, in order, against the manifest and the list of sources. Their bytes are intact."""
    damages = []
    for i, receipt in enumerate(receipts):
        problem = receipt_problem(receipt)
        counts = receipt.get("documents"), receipt.get("tokens")
        if problem is None and counts != (manifest.shard_documents[i], manifest.shard_tokens[i]):
            problem = "it has other counts than the manifest"
        if problem:
            damages.append(Damage(f"shards/{receipt['id']}.json", f"the receipt is wrong: {problem}", receipt["id"]))
    if damages:
        return damages
    problems = [*_totals(manifest, receipts), *_tokenizer(manifest), *_quarantine(folder, manifest)]
    damages += [Damage(NAME, f"it does not agree with the shards: {problem}") for problem in problems]
    try:
        sources = read_sources(side_file(folder, manifest, SOURCES))
    except CorruptError as error:
        return [*damages, Damage(SOURCES, str(error))]
    return damages + [Damage(SOURCES, problem) for problem in _sources(manifest, sources, receipts)]


def _totals(manifest: Manifest, receipts: Sequence[Receipt]) -> Iterable[str]:
    text_bytes = sum(receipt["text_bytes"] for receipt in receipts)
    special = sum(receipt.get("special_documents", 0) for receipt in receipts)
    skips: Counter[str] = Counter()
    for receipt in receipts:
        for piece in receipt["pieces"]:
            for _, count, reason, _ in piece.get("skips", ()):
                if reason != BLANK:
                    skips[reason] += count
    if manifest.text_bytes != text_bytes:
        yield f"text_bytes is {manifest.text_bytes}, the shards have {text_bytes}"
    if manifest.special_documents != special:
        yield f"special_documents is {manifest.special_documents}, the shards have {special}"
    if manifest.quarantined != dict(skips):
        yield f"quarantined is {manifest.quarantined}, the shards have {dict(skips)}"
    if manifest.complete == bool(manifest.failed):
        yield "complete contradicts the list of failed files"
    around = [manifest.options.get("bos"), manifest.options.get("eos")]
    contents = [content_digest(receipt) for receipt in receipts]
    expected = store_fingerprint(manifest.tokenizer["fingerprint"], around, manifest.dtype, contents)
    if manifest.fingerprint != expected:
        yield f"the fingerprint is {manifest.fingerprint}, that of the shards is {expected}"


def _tokenizer(manifest: Manifest) -> Iterable[str]:
    for name in ("bos", "eos"):
        if manifest.tokenizer[f"{name}_id"] != manifest.options.get(name):
            yield f"{name} is {manifest.options.get(name)}, but {manifest.tokenizer[f'{name}_id']} at the tokenizer"
    if manifest.tokenizer["vocab_size"] - 1 > np.iinfo(manifest.dtype).max:
        yield f"{manifest.dtype} does not hold a vocabulary of {manifest.tokenizer['vocab_size']}"


def _quarantine(folder: Path, manifest: Manifest) -> Iterable[str]:
    if QUARANTINE not in manifest.files:
        return
    with disk.open_to_read(side_file(folder, manifest, QUARANTINE)) as lines:
        count = sum(1 for _ in lines)
    expected = sum(manifest.quarantined.values())
    if count != expected:
        yield f"{QUARANTINE} has {count} lines, quarantined documents are {expected}"


def _sources(manifest: Manifest, sources: Sources, receipts: Sequence[Receipt]) -> Iterable[str]:
    pieces = [len(receipt["pieces"]) for receipt in receipts]
    if sources.shards != pieces:
        yield "it has other pieces than the shards"
        return
    counter = RowCounter()
    for i, receipt in enumerate(receipts):
        names = sources.names(i)
        start = counter.start_of(names[0]) if names else 0
        if manifest.row_starts[i] != start:
            yield f"shard {receipt['id']} starts at row {manifest.row_starts[i]} of its file, by its sources at {start}"
            return
        for name, piece in zip(names, receipt["pieces"], strict=True):
            counter.add(name, piece["rows"])
