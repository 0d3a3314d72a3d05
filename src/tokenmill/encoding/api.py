"""Loading a tokenizer: find it, parse it, and cache what was parsed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.display import one_line, shown
from tokenmill.encoding.definition import SPECIALS, Definition
from tokenmill.encoding.engines import ENGINES
from tokenmill.encoding.libraries import installed_version
from tokenmill.encoding.parsing import parse_safely
from tokenmill.encoding.resolve import TokenizerFiles, find
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import StoreError, UsageError
from tokenmill.option_calls import suggests
from tokenmill.user_cache import cache_folder, read_cached, write_cached

VERSION = 4  # of what is cached
# Usual names of the tokens that end and start a document, for a tokenizer.json without a configuration.
_USUAL_NAMES = {
    "eos": (
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end▁of▁sentence|>",
        "<｜end▁of▁sentence｜>",
    ),
    "bos": ("<|begin_of_text|>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<|startoftext|>", "<｜begin▁of▁sentence｜>"),
}  # fmt: skip


@suggests
def load_tokenizer(spec: Any, engine: str | None = None, special_tokens: str | None = None) -> Tokenizer:
    """Load a tokenizer by path, folder, Hub name, `tiktoken:NAME`, "bytes", "demo", a store, or an object of another library.

    `engine` is "auto" (the fast one where it is proved), "reference", or the name of an engine. `special_tokens` says
    what names of special tokens in a text become: "parse" (their ids, as in `tokenizers`), "text", or "error". The first
    load of a tokenizer takes up to a few seconds, mostly to parse a large vocabulary; the result is cached by content.

    Example:
        tokenizer = tm.load_tokenizer("path/to/tokenizer.json")
        ids = tokenizer.encode("Hello world")
        tokenizer.decode(ids), tokenizer.vocab_size, tokenizer.eos_id
    """
    own = getattr(spec, "tokenizer", spec)  # of a store
    spec = own.load() if isinstance(own, StoredTokenizer) else spec
    if engine not in (None, "auto", "reference", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, reference, {', '.join(ENGINES)}")
    if special_tokens not in (None, *SPECIALS):
        raise UsageError(f"special_tokens={special_tokens!r} is not one of {', '.join(SPECIALS)}")
    if not isinstance(spec, Tokenizer):
        found = find(spec)
        policy = found.definition.special_tokens if found.definition is not None else found.special_tokens
        tokenizer = _load(found, engine or "auto", special_tokens or policy)
    elif special_tokens in (None, spec.special_tokens):
        tokenizer = spec if engine in (None, spec._wanted) else replace(spec, _wanted=engine)
    else:
        own = spec._definition
        found = TokenizerFiles(spec.name, "definition", special=own.special, definition=own, live=spec._live)
        tokenizer = _load(found, engine or spec._wanted, special_tokens or spec.special_tokens)
    if tokenizer._wanted != "auto":
        _ = tokenizer._choice  # to report now if this engine cannot be used
    return tokenizer


class StoredTokenizer(Tokenizer):
    """The tokenizer that a store was built with: a Tokenizer, whose files are read when it first encodes or decodes.

    Its `eos_id` and `bos_id` are around each document of the store, and its `engine` is the one that the build used.
    """

    path: Path  # the folder with its files
    _facts: dict[str, Any]  # what the store says about it

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        known = {name: facts[name] for name in ("name", "fingerprint", "vocab_size")}
        vars(self).update(known, path=path, _facts=facts)

    def __repr__(self) -> str:
        return one_line("StoredTokenizer", shown(self.name), f"vocab_size={self.vocab_size:,}", shown(str(self.path)))

    def __reduce__(self) -> tuple[type[StoredTokenizer], tuple[Any, ...]]:
        return StoredTokenizer, (self.path, self._facts)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._loaded, name) if name in self.__dataclass_fields__ else super().__getattr__(name)

    @property
    def _known_engine(self) -> tuple[str, str, str]:
        """Those that the store was built with."""
        return self._facts["engine"], self._facts.get("engine_version", ""), self._facts.get("proof", "")

    def _id_around(self, which: str) -> int | None:
        found: int | None = self._facts[f"{which}_id"]
        return found

    def _for_corpus(self, text_bytes: int, processes: int | None = None) -> Tokenizer:
        return self._loaded._for_corpus(text_bytes, processes)

    def load(self) -> Tokenizer:
        """The same as a plain Tokenizer, whose `eos_id` and `bos_id` are those that its files name."""
        return self._loaded

    @cached_property
    def _loaded(self) -> Tokenizer:
        if not self.path.is_dir():
            raise StoreError(
                f"{self.path.parent} has no tokenizer to decode with: {self.path} is missing; run its build again,"
                " import its ids with their tokenizer, or decode them with tm.load_tokenizer"
            )
        return replace(load_tokenizer(self.path), name=self.name)


def _load(found: TokenizerFiles, engine: str, policy: str) -> Tokenizer:
    applied = "text" if policy == "text" else "parse"
    facts = _facts(found, applied)
    files = {} if found.kind == "json" else found.files
    definition = found.definition or Definition(facts["json"], facts["reference"], files)
    special = dict(facts["special"])
    for which, names in _USUAL_NAMES.items():
        known = [name for name in names if name in facts["added"]]
        if len(known) == 1:
            special.setdefault(which, known[0])
    beside = found.beside or definition.beside
    if found.kind == "json" and found.files["tokenizer.json"] != facts["json"].encode():
        beside = {**beside, **found.files}
    definition = replace(definition, special_tokens=applied, special=special, beside=beside)
    definition.__dict__["fingerprint"] = facts["fingerprint"]  # computing it again takes up to a second
    return Tokenizer(
        definition,
        found.name,
        facts["fingerprint"],
        facts["vocab_size"],
        facts["added"],
        tuple(facts["special_names"]),
        frozenset(facts["produced_names"]),
        policy,
        engine,
        found.live,
        facts["differs_by_line"],
        facts["begins"],
    )


def _facts(found: TokenizerFiles, policy: str) -> dict[str, Any]:
    """What a tokenizer's files say, from the cache if the same content was parsed before."""
    key = hashlib.sha256(
        f"{VERSION} {installed_version('tokenmill')} {installed_version('tokenizers')} {policy} {found.kind}".encode()
    )
    contents = found.definition.contents() if found.definition is not None else found.files
    for name, content in sorted({**contents, "special": json.dumps(found.special, sort_keys=True).encode()}.items()):
        key.update(f"{name} {len(content)} ".encode())
        key.update(content)
    path = cache_folder() / "tokenizers" / f"{key.hexdigest()[:32]}.facts"
    facts = read_cached(path)
    if facts is None:
        facts = parse_safely(found, policy)
        write_cached(path, facts)
    return facts
