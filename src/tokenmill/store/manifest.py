"""manifest.json: the options, tokenizer and totals of a store, and its shards in order. Always replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.errors import CorruptError, MissingStoreError, StoreError
from tokenmill.formatting import first_names
from tokenmill.io import disk
from tokenmill.io.atomic import canonical, digest, write_atomically
from tokenmill.option_types import option_name
from tokenmill.store.columns import ENDS, IDS, ColumnSpec, file_bytes, is_count
from tokenmill.synonyms import nearest

FORMAT = "tokenmill-store"
VERSION = 3
NAME = "manifest.json"
TRIAL = ("max_rows", "max_documents", "max_tokens")  # options that stop a build early
TOKENIZER_KEYS = frozenset(
    ("name", "fingerprint", "vocab_size", "engine", "engine_version", "proof", "eos_id", "bos_id")
)
SEAL = b',\n"checksum": '
_SHARD_ID = r"[0-9a-z][0-9a-z_-]{0,99}"


def trial_of(options: dict[str, Any]) -> dict[str, int]:
    """The options that make a build stop early; empty for a complete build."""
    return {name: limit for name in TRIAL if (limit := options.get(name)) is not None}


@dataclass(slots=True, kw_only=True)
class Manifest:
    """A store in numbers. What is known of each shard is in parallel lists, so that a million shards open quickly.

    `options` are the build options that the tokens depend on; `source` is where the input came from. `columns` are the
    columns of every shard. `row_starts` is the row, in its file, of the first row of each shard. `receipts` are the digests
    of the receipts, `files` those of the other files. `fingerprint` covers the data and the tokenizer, not names or dates.
    """

    __repr__ = fields_in_one_line

    options: dict[str, Any]
    source: dict[str, Any]
    tokenizer: dict[str, Any]
    columns: tuple[ColumnSpec, ...]
    complete: bool = False
    documents: int = 0
    tokens: int = 0
    source_bytes: int = 0
    text_bytes: int = 0
    special_documents: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    failed: list[dict[str, str]] = field(default_factory=list)
    shard_ids: list[str] = field(default_factory=list)
    shard_documents: list[int] = field(default_factory=list)
    shard_tokens: list[int] = field(default_factory=list)
    row_starts: list[int] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def dtype(self) -> str:
        """The dtype of the token ids."""
        return next(column.dtype for column in self.columns if column.name == IDS)

    def shard_bytes(self) -> list[int]:
        """The size of the columns of each shard."""
        counts = zip(self.shard_documents, self.shard_tokens, strict=True)
        return [
            sum(file_bytes(each.dtype, each.length(documents=documents, tokens=tokens)) for each in self.columns)
            for documents, tokens in counts
        ]

    def write(self, folder: Path) -> None:
        values = {name: getattr(self, name) for name in self.__slots__}
        values["columns"] = [asdict(column) for column in self.columns]
        body = {"format": FORMAT, "version": VERSION, **values}
        lines = (f"{json.dumps(key)}: {canonical(value).decode()}" for key, value in body.items())  # one per key
        unsealed = ("{\n" + ",\n".join(lines)).encode()
        write_atomically(folder / NAME, unsealed + _seal(unsealed))


def read_manifest(folder: Path, *, is_asked_for: bool = False) -> Manifest:
    """Read and check a manifest. Raises MissingStoreError, CorruptError, or StoreError for another format version.

    If the user has named the folder (`is_asked_for`), MissingStoreError names stores near it.
    """
    path = folder / NAME
    try:
        raw = disk.read_bytes(path)
    except FileNotFoundError:
        why = f"it has no {NAME}" if folder.is_dir() else "no such folder"
        near = _stores_near(folder) if is_asked_for else ""
        raise MissingStoreError(f"no token store at {folder} ({why}){near}") from None
    except NotADirectoryError:
        remedy = "tokenmill build (tm.build) makes a store from text"
        raise MissingStoreError(f"no token store at {folder}: it is a file; {remedy}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return parse_manifest(raw, path)


def _stores_near(folder: Path) -> str:
    """ "; stores near it: ...", those in a folder and beside it, with the nearest name first."""
    found: list[Path] = []
    for place in {folder: None, folder.parent: None}:
        with suppress(OSError):
            found += [Path(each.path) for each in disk.entries(place)[:1000] if (Path(each.path) / NAME).exists()]
    found.sort(key=lambda path: (not nearest(folder.name, [path.name]), path))
    return f"; stores near it: {first_names(map(str, found))}" if found else ""


def parse_manifest(raw: bytes, path: Path | str) -> Manifest:
    """The manifest that these bytes are. `path` is for messages."""
    remedy = "run the build again with the same arguments: it keeps every finished shard"
    try:
        body = json.loads(raw)
        del body["checksum"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise CorruptError(f"{path} is damaged; {remedy}") from None
    if body.pop("format", None) != FORMAT:
        raise CorruptError(f"{path} is not the manifest of a token store; {remedy}")
    unsealed = raw[: raw.rfind(SEAL)]
    if raw != unsealed + _seal(unsealed):  # over the bytes of the file, which is quicker than writing the JSON again
        raise CorruptError(f"{path} is damaged: its checksum does not match; {remedy}")
    version = body.pop("version", None)
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        again = f"build it again with {option_name('force', True)}"
        raise StoreError(
            f"{path}: store format {version}, but this tokenmill reads {VERSION};"
            f" {again if older else 'upgrade tokenmill'}"
        )
    try:
        manifest = Manifest(**body)
        manifest.columns = tuple(ColumnSpec(**column) for column in body["columns"])
        _check_shards(manifest)
        _check_tables(manifest)
    except CorruptError:
        raise
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptError(f"{path} is not a manifest of format {VERSION} ({error}); {remedy}") from None
    return manifest


def _check_shards(manifest: Manifest) -> None:
    """The columns, and the lists of shards: of the right types, equally long, and adding up to the totals."""
    names = [column.name for column in manifest.columns]
    if not {IDS, ENDS} <= set(names) or len(set(names)) < len(names):
        raise ValueError(f"columns {', '.join(names)}")
    for name in ("shard_documents", "shard_tokens", "row_starts"):
        counts = getattr(manifest, name)
        if not isinstance(counts, list) or not all(map(is_count, counts)):
            raise ValueError(f"{name} is not a list of counts")
    for name in ("shard_ids", "receipts"):
        if not isinstance(getattr(manifest, name), list):
            raise ValueError(f"{name} is not a list")
    lists = (manifest.shard_documents, manifest.shard_tokens, manifest.row_starts, manifest.receipts)
    if any(len(values) != len(manifest.shard_ids) for values in lists):
        raise ValueError("the lists of shards differ in length")
    if (manifest.documents, manifest.tokens) != (sum(manifest.shard_documents), sum(manifest.shard_tokens)):
        raise ValueError("the totals are not the sums of the shards")
    _check_shard_ids(manifest.shard_ids)


def _check_shard_ids(ids: list[Any]) -> None:
    """Shard ids become file names, and must not lead out of the folder of the store."""
    try:
        plain = re.fullmatch(f"({_SHARD_ID}\n)*", "\n".join([*ids, ""]))  # one match: there may be a million
    except TypeError:
        plain = None
    if not plain or "\n" in "".join(ids):
        wrong = next((name for name in ids if not isinstance(name, str) or not re.fullmatch(_SHARD_ID, name)), ids)
        raise CorruptError(f"the manifest names a shard {wrong!r}, which is not a shard id: it is damaged or forged")


def _check_tables(manifest: Manifest) -> None:
    for name in ("options", "source", "tokenizer", "quarantined", "files"):
        if not isinstance(getattr(manifest, name), dict):
            raise ValueError(f"{name} is not a table")
    missing = TOKENIZER_KEYS - manifest.tokenizer.keys()
    if missing:
        raise ValueError(f"the tokenizer lacks {', '.join(sorted(missing))}")
    _check_numbers(manifest)
    if type(manifest.complete) is not bool or not isinstance(manifest.fingerprint, str):
        raise ValueError("complete or fingerprint is of another type")
    if not isinstance(manifest.failed, list) or not all(
        isinstance(entry, dict) and {"file", "error"} <= entry.keys() for entry in manifest.failed
    ):
        raise ValueError("failed is not a list of files")
    if not all(isinstance(text, str) for pair in manifest.files.items() for text in pair):
        raise ValueError("files is not a table of checksums")


def _check_numbers(manifest: Manifest) -> None:
    numbers = {"vocab_size": manifest.tokenizer["vocab_size"]}
    numbers |= {name: getattr(manifest, name) for name in ("source_bytes", "text_bytes", "special_documents")}
    numbers |= {f"quarantined {reason}": count for reason, count in manifest.quarantined.items()}
    numbers |= {name: value for name in ("bos_id", "eos_id") if (value := manifest.tokenizer[name]) is not None}
    for name, number in numbers.items():
        if not is_count(number):
            raise ValueError(f"{name} is {number!r}")


def store_fingerprint(tokenizer: str, around: list[int | None], dtype: str, shards: list[str]) -> str:
    """The fingerprint of a store: of the tokenizer, the ids around documents ([bos, eos]) and the shards' contents."""
    return hashlib.sha256(canonical([FORMAT, 1, tokenizer, around, dtype, shards])).hexdigest()[:32]


def _seal(unsealed: bytes) -> bytes:
    """The end of a manifest: a checksum over all bytes before it, and the closing brace."""
    return SEAL + f'"{digest(unsealed)}"\n}}\n'.encode()
