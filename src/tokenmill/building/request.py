"""A build request: a corpus, a tokenizer and the options, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill.encoding import Tokenizer, load_tokenizer
from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size
from tokenmill.io.atomic import writing
from tokenmill.option_types import given_of, values_of
from tokenmill.options import BuildArguments, BuildOptions, ReadOptions
from tokenmill.reading import Source, read
from tokenmill.store.manifest import TRIAL

SHARD_BYTES, SLOW_SHARD_BYTES = "32MB", "1MB"  # small shards keep every core busy where a shard would take minutes


@dataclass(frozen=True, kw_only=True)
class BuildRequest(BuildOptions):
    """A build, except for where it goes: a corpus, a tokenizer in any form `tm.build` takes, and the options."""

    source: Source
    tokenizer: Any

    @property
    def is_trial(self) -> bool:
        return any(getattr(self, name) is not None for name in TRIAL)

    def believes(self, tokenizer: Tokenizer) -> bool:
        """Whether an unchanged list of files means that nothing has to be done.

        With on_error="raise" or special_tokens="error", documents that an earlier build left out must stop this one.
        """
        may_stop = self.source.on_error == "raise" or tokenizer.special_tokens == "error"
        return not (self.force or self.rehash or may_stop)

    def loaded(self) -> Tokenizer:
        return load_tokenizer(self.tokenizer, self.engine, self.special_tokens)

    def shard_size(self, tokenizer: Tokenizer) -> int:
        usual = SLOW_SHARD_BYTES if tokenizer.reference_traits.is_slow else SHARD_BYTES
        return parse_size(self.shard_bytes or usual, "shard_bytes")

    def options(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Everything the tokens depend on, except the content of the input."""
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
        """The same request with streams of text written to files in `folder`."""
        if not self.source.streams:
            return self
        from tokenmill.reading.spool import spool

        with writing(folder):
            return replace(self, source=spool(self.source, folder, self.shard_size(tokenizer)))


def request_for(source: Any, arguments: BuildArguments) -> BuildRequest:
    """The request that the arguments of `tm.build` describe. Opens nothing, except to list the files of the source."""
    reading = given_of(ReadOptions, arguments)
    if not isinstance(source, Source):
        source = read(*(source if isinstance(source, tuple) else (source,)), **reading)
    elif reading:
        raise UsageError(f"pass {', '.join(reading)} to tm.read, which made this source")
    return BuildRequest(source=source, tokenizer=arguments.tokenizer, **values_of(BuildOptions, arguments))
