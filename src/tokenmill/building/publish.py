"""Write the manifest over finished shards. One rename publishes the store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import xxhash

from tokenmill.documents import BLANK
from tokenmill.encoding.engines import engine_version
from tokenmill.encoding.tokenizer import Tokenizer, differs_around
from tokenmill.errors import BuildError, InputError, StoreError
from tokenmill.formatting import first_names, some
from tokenmill.io import disk
from tokenmill.io.atomic import TEMPORARY_SUFFIX, canonical, digest, temporary_path, write_atomically, writing
from tokenmill.option_types import option_name
from tokenmill.reading import Source
from tokenmill.reading.pieces import texts_in_doubt, with_likely_cause
from tokenmill.store.columns import shard_of_file
from tokenmill.store.manifest import Manifest, read_manifest, store_fingerprint
from tokenmill.store.shard import content_digest, has_columns, sealed
from tokenmill.store.side_files import NEXT, QUARANTINE, settle
from tokenmill.store.sources import SOURCES, RowCounter, Sources

LOST_SHARE, LOST_ROWS = 0.03, 5  # of documents left out, from which on it is told; of very few documents, a quarter
_TEMPORARY_FILE = re.compile(
    rf"(manifest\.json|(sources\.json|quarantine\.jsonl)(\.next)?|events\.jsonl|tokenizer/.+|listing|seen){TEMPORARY_SUFFIX}"
)


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A finished shard, as it is listed in a store.

    `receipt` is what `ShardWriter.commit` returns. It needs the facts `text_bytes` and `pieces`, a list of
    {"content", "rows", "documents", "tokens", "text_bytes"}. `files` names the input file of each piece.
    """

    shard_id: str
    files: list[str]
    receipt: dict[str, Any]


def publish(
    folder: Path,
    manifest: Manifest,
    entries: Iterable[ShardEntry],
    failed: list[dict[str, str]] | None = None,
    source: Source | None = None,
) -> Manifest:
    """Complete the manifest with the shards of `entries`, in this order, and replace the one in `folder`.

    The shards are in `folder`/shards already. `manifest` has the options, source, tokenizer, columns and tokenizer files;
    `failed` lists the input files that are missing. Afterwards shards that the manifest does not name are removed. With the
    `source`, what is doubtful about it is noted in the manifest, and an empty store is an InputError instead.
    """
    if (in_place := published_manifest(folder)) is not None:
        settle(folder, in_place)  # an earlier publication may have been interrupted
    contents: list[str] = []
    files_of_shards: list[list[str]] = []
    counter = RowCounter()
    with _Quarantine(folder / (QUARANTINE + NEXT)) as quarantine:
        for entry in entries:
            receipt = entry.receipt
            if not has_columns(receipt, manifest.columns):
                raise BuildError(
                    f"shard {entry.shard_id} has other columns than the store; build with {option_name('force', True)}"
                )
            contents.append(content_digest(receipt))
            manifest.shard_ids.append(entry.shard_id)
            manifest.shard_documents.append(receipt["documents"])
            manifest.shard_tokens.append(receipt["tokens"])
            manifest.receipts.append(digest(sealed(receipt)))
            manifest.row_starts.append(counter.start_of(entry.files[0]) if entry.files else 0)
            manifest.text_bytes += receipt["text_bytes"]
            manifest.special_documents += receipt.get("special_documents", 0)
            files_of_shards.append(entry.files)
            for name, piece in zip(entry.files, receipt["pieces"], strict=True):
                quarantine.add(name, counter.add(name, piece["rows"]), piece)
        manifest.documents, manifest.tokens = sum(manifest.shard_documents), sum(manifest.shard_tokens)
        manifest.quarantined = dict(sorted(quarantine.reasons.items()))
        manifest.failed = failed or []
        manifest.complete = not manifest.failed
        if source is not None and (doubts := _doubts(manifest, quarantine, source)):
            manifest.source["doubts"] = doubts
    sources = sources_of(files_of_shards).as_bytes()
    write_atomically(folder / (SOURCES + NEXT), sources)
    manifest.files |= {QUARANTINE: quarantine.digest, SOURCES: digest(sources)}
    manifest.fingerprint = store_fingerprint(
        manifest.tokenizer["fingerprint"], [manifest.options["bos"], manifest.options["eos"]], manifest.dtype, contents
    )
    manifest.write(folder)
    settle(folder, manifest)
    sweep(folder, set(manifest.shard_ids))
    return manifest


def sources_of(files_of_shards: list[list[str]]) -> Sources:
    """sources.json of a store, from the file of each piece of each shard."""
    runs = [(name, len(list(run))) for name, run in groupby(chain(*files_of_shards))]
    return Sources([name for name, _ in runs], [count for _, count in runs], [len(files) for files in files_of_shards])


class _Quarantine:
    """quarantine.jsonl: one line per document that was left out. The file is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.beside = path, temporary_path(path)
        self.reasons: Counter[str] = Counter()
        self.by_file: Counter[str] = Counter()
        self.why: dict[str, str] = {}  # the first of each file
        self.good: set[str] = set()  # the files with documents

    def __enter__(self) -> _Quarantine:
        self.hash = xxhash.xxh3_128()
        with writing(self.path):
            self.out = disk.open_to_write(self.beside)
        return self

    def add(self, file: str, first_row: int, piece: dict[str, Any]) -> None:
        """Add the skips of a piece that begins at `first_row` of its file. Blank documents are not listed."""
        if piece["documents"]:
            self.good.add(file)
        for row, count, reason, detail in piece.get("skips", ()):
            if reason == BLANK:
                continue
            self.reasons[reason] += count
            self.by_file[file] += count
            self.why.setdefault(file, f"{reason} ({detail})" if detail else reason)
            for i in range(count):
                line: dict[str, Any] = {"file": file, "row": first_row + row + i, "reason": reason}
                self._write(canonical(line | ({"detail": detail} if detail else {})) + b"\n")

    def _write(self, line: bytes) -> None:
        self.hash.update(line)
        with writing(self.path):
            self.out.write(line)

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with writing(self.path):
                with self.out:
                    disk.sync(self.out)
                if kind is None:
                    disk.replace(self.beside, self.path)
                    disk.sync_folder(self.path.parent)
        finally:
            disk.unlink(self.beside)
        self.digest = self.hash.hexdigest()


def _doubts(manifest: Manifest, quarantine: _Quarantine, source: Source) -> list[str]:
    """What the user must be told about the input. Raises InputError if no document is left. Opens a few files."""
    doubts, lost = [], quarantine.reasons.total()
    total = manifest.documents + lost
    empty = [name for name in quarantine.by_file if name not in quarantine.good]
    is_much = lost > LOST_SHARE * total and (lost >= LOST_ROWS or 4 * lost >= total)
    if is_much or empty:
        file = max(quarantine.by_file if is_much else empty, key=lambda name: quarantine.by_file[name])
        all_of = f", all of {some(len(empty), 'file')}" if empty else ""
        why = with_likely_cause(f"{file}: {quarantine.why[file]}", file, source)
        doubts.append(f"{lost:,} of {some(total, 'document')} ({100 * lost / total:.3g}%) left out{all_of}; {why}")
    if manifest.documents and not manifest.text_bytes:
        doubts.append(f"no text: {some(manifest.documents, 'document')}, and all are empty")
    doubts += texts_in_doubt(source, quarantine.by_file)
    if not manifest.documents and (lost or manifest.failed or manifest.options["max_tokens"] is None):
        doubts += [with_likely_cause(entry["error"], entry["file"], source) for entry in manifest.failed[:1]]
        why = "; ".join(doubts) or "the input is empty or blank"
        raise InputError(f"no document in {first_names(source.inputs)}, so no store is published: {why}")
    return doubts


def tokenizer_facts(tokenizer: Tokenizer, bos: int | None, eos: int | None) -> dict[str, Any]:
    """What a manifest says about the tokenizer."""
    return {
        "name": tokenizer.name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "engine": tokenizer.choose_engine(),
        "engine_version": tokenizer.engine_version,
        "proof": tokenizer.proof,
        "reference": tokenizer._definition.reference,
        "reference_version": engine_version(tokenizer._definition.reference),
        "eos_id": eos,
        "bos_id": bos,
        "eos_token": tokenizer.token_name(eos),
        "bos_token": tokenizer.token_name(bos),
        **({"note": note} if (note := differs_around(tokenizer, bos, eos)) else {}),
    }


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> dict[str, str]:
    """Write the tokenizer's files into the store at `folder`, and remove those of another one. Returns their digests."""
    contents = tokenizer._definition.contents()
    for name, content in contents.items():
        _write_if_changed(folder / "tokenizer" / name, content)
    for path in disk.matching(folder / "tokenizer"):
        if path.is_file() and path.name not in contents and not path.name.endswith(".tmp"):  # of another slice
            disk.unlink(path)
    return tokenizer_files(tokenizer)


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """The digests of the tokenizer's files, by their names in a store."""
    return {f"tokenizer/{name}": digest(content) for name, content in tokenizer._definition.contents().items()}


def _write_if_changed(path: Path, content: bytes) -> None:
    with suppress(OSError):
        if disk.read_bytes(path) == content:
            return
    with writing(path):
        disk.make_folder(path.parent)
    write_atomically(path, content)


def published_manifest(folder: Path) -> Manifest | None:
    """The manifest of the store at `folder`; None if there is none, or none that can be read."""
    try:
        return read_manifest(folder)
    except StoreError:
        return None


def sweep(folder: Path, keep: set[str]) -> None:
    """Remove shards that are not in `keep`, and temporary files of builds that crashed. Other files are left alone."""
    for path in disk.matching(folder / "shards"):
        shard = shard_of_file(path.name)
        if shard is not None and (shard not in keep or path.name.endswith(".tmp")):
            disk.unlink(path)
    for path in (*disk.matching(folder, "*.tmp"), *disk.matching(folder / "tokenizer", "*.tmp")):
        if _TEMPORARY_FILE.fullmatch(path.relative_to(folder).as_posix()):
            disk.unlink(path)
