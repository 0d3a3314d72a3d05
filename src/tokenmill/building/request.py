"""A build request: a corpus, a tokenizer and the options, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import UsageError
from tokenmill.formatting import parse_size
from tokenmill.option_types import Options, given_of, values_of
from tokenmill.options import BuildArguments, BuildOptions, ReadOptions
from tokenmill.reading import Source, check_fields, read
from tokenmill.reading.hub_copies import with_copies_in
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


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest(BuildRequest):
    """A request that can be planned: its tokenizer is loaded."""

    tokenizer: Tokenizer

    @property
    def is_slow(self) -> bool:
        """Whether the tokenizer is a Python object without a fast engine."""
        return self.tokenizer._reference_traits.is_slow

    @property
    def trusts_listing(self) -> bool:
        """Whether an unchanged list of files is enough.

        Not if there is text that is not in files, nor if documents that were skipped before must stop the build now.
        """
        stops_at_documents = self.source.on_error == "raise" or self.tokenizer.special_tokens == "error"
        return not (self.force or self.rehash or stops_at_documents or self.source._streams)

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the tokens depend on besides the content of the input."""
        return {
            **self.source._options(),
            "tokenizer": self.tokenizer.fingerprint,
            "tokenizers": self.tokenizer.reference_line,
            "special_tokens": self.tokenizer._definition.special_tokens,
            "bos": self.tokenizer._resolve("bos", self.bos),
            "eos": self.tokenizer._resolve("eos", self.eos),
            "shard_bytes": _shard_size(self, self.tokenizer),
            **{name: getattr(self, name) for name in TRIAL},
        }


def resolve(request: BuildRequest) -> ResolvedRequest:
    """Load the tokenizer, and check that the first records have the text field."""
    tokenizer = load_tokenizer(request.tokenizer, request.engine, request.special_tokens)
    check_fields(request.source)
    return ResolvedRequest(source=request.source, tokenizer=tokenizer, **values_of(BuildOptions, request))


def _shard_size(request: BuildRequest, tokenizer: Tokenizer) -> int:
    default = SLOW_SHARD_BYTES if tokenizer._reference_traits.is_slow else SHARD_BYTES
    return parse_size(request.shard_bytes or default, "shard_bytes")


def source_for(source: Any, arguments: Options) -> Source:
    """What `tm.read` makes of a source with the options for reading among the arguments; or the source that it has made."""
    reading = given_of(ReadOptions, arguments)
    if not isinstance(source, Source):
        return read(source, **reading)
    if reading:
        raise UsageError(f"pass {', '.join(reading)} to tm.read, which made this source")
    return source


def request_for(source: Any, arguments: BuildArguments) -> BuildRequest:
    """The request that the arguments of `tm.build` describe. Opens nothing, except to list the files of the source."""
    source = source_for(source, arguments)
    if arguments.cache_dir is not None:
        source = with_copies_in(source, Path(arguments.cache_dir).absolute())
    return BuildRequest(source=source, tokenizer=arguments.tokenizer, **values_of(BuildOptions, arguments))
