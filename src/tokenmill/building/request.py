"""What a build is asked for: a corpus, a tokenizer and options, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill.encoding import Tokenizer, load_tokenizer
from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size
from tokenmill.io.atomic import writing
from tokenmill.reading import Source, read
from tokenmill.store.manifest import TRIAL

SHARD_BYTES, SLOW_SHARD_BYTES = "32MB", "1MB"  # where text takes a minute a shard, every core should have one


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What was asked for, but for the place: a corpus, a tokenizer by any name, and how to go about it."""

    source: Source
    tokenizer: Any
    eos: str | int | None = "auto"
    bos: str | int | None = None
    shard_bytes: str | int | None = None
    workers: int | None = None
    memory: str | int | None = None
    engine: str | None = None
    special_tokens: str | None = None
    max_rows: int | None = None
    max_documents: int | None = None
    max_tokens: int | None = None
    force: bool = False
    rehash: bool = False

    @property
    def is_trial(self) -> bool:
        return any(getattr(self, name) is not None for name in TRIAL)

    def believes(self, tokenizer: Tokenizer) -> bool:
        """Whether the list of files is enough to go by; bad documents that were left out then may stop the build now."""
        looks_within = self.source.on_error == "raise" or tokenizer.special_tokens == "error"
        return not (self.force or self.rehash or looks_within)

    def loaded(self) -> Tokenizer:
        return load_tokenizer(self.tokenizer, self.engine, self.special_tokens)

    def shard_size(self, tokenizer: Tokenizer) -> int:
        usual = SLOW_SHARD_BYTES if tokenizer.reference_traits.is_slow else SHARD_BYTES
        return parse_size(self.shard_bytes or usual, "shard_bytes")

    def options(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """What the tokens depend on beside the input's content."""
        return {
            **self.source.options(),
            "tokenizer": tokenizer.fingerprint,
            "special_tokens": tokenizer.definition.special_tokens,
            "bos": tokenizer.resolve("bos", self.bos),
            "eos": tokenizer.resolve("eos", self.eos),
            "shard_bytes": self.shard_size(tokenizer),
            **{name: getattr(self, name) for name in TRIAL},
        }

    def spooled(self, folder: Path, tokenizer: Tokenizer) -> BuildRequest:
        """The same with streams of text written down as files."""
        if not self.source.streams:
            return self
        from tokenmill.reading.spool import spool

        with writing(folder):
            return replace(self, source=spool(self.source, folder, self.shard_size(tokenizer)))


def ask(source: Any, tokenizer: Any, reading: dict[str, Any], **options: Any) -> BuildRequest:
    """Check what can be checked before anything is opened."""
    workers, shard_bytes = options.get("workers"), options.get("shard_bytes")
    if workers is not None and workers < 0:
        raise UsageError(f"workers={workers} must be 0 (inside this process) or more")
    if shard_bytes is not None and parse_size(shard_bytes, "shard_bytes") < 1 << 10:
        raise UsageError(f"shard_bytes={shard_bytes!r} is less than 1KiB; a shard of some tens of MB is usual")
    if not isinstance(source, Source):
        source = read(*(source if isinstance(source, tuple) else (source,)), **reading)
    elif reading:
        raise UsageError(f"give {', '.join(reading)} to tm.read, where the source was made")
    if source.limit is not None:
        if options.get("max_rows") is not None:
            raise UsageError("max_rows and limit are the same; give one of them")
        options["max_rows"], source = source.limit, replace(source, limit=None)
    for name in TRIAL:
        limit = options.get(name)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UsageError(f"{name}={limit!r} must be a whole number, 1 or more")
    return BuildRequest(source, tokenizer, **options)
