"""Loading a tokenizer: find it, parse it, and cache what was parsed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from tokenmill.encoding.definition import SPECIALS, Definition
from tokenmill.encoding.engines import ENGINES
from tokenmill.encoding.libraries import installed_version
from tokenmill.encoding.parsing import parse_safely
from tokenmill.encoding.resolve import TokenizerFiles, find
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.errors import UsageError
from tokenmill.option_calls import suggests
from tokenmill.user_cache import cache_folder, read_cached, write_cached

VERSION = 3  # of what is cached
# Usual names of the tokens that end and start a document, for a tokenizer.json without a configuration.
_END_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
)
_BEGIN_NAMES = ("<|begin_of_text|>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<|startoftext|>", "<｜begin▁of▁sentence｜>")


@suggests
def load_tokenizer(spec: Any, engine: str | None = None, special_tokens: str | None = None) -> Tokenizer:
    """Load a tokenizer by path, folder, Hub name, `tiktoken:NAME`, "bytes", "demo", or from an object of another library.

    `engine` is "auto" (the fast one where it is proved), "reference", or the name of an engine. `special_tokens` says
    what names of special tokens in a text become: "parse" (their ids, as in `tokenizers`), "text", or "error". The first
    load of a tokenizer takes up to a few seconds, mostly to parse a large vocabulary; the result is cached by content.

    Example:
        tokenizer = tm.load_tokenizer("path/to/tokenizer.json")
        ids = tokenizer.encode("Hello world")
        tokenizer.decode(ids), tokenizer.vocab_size, tokenizer.eos_id
    """
    if engine not in (None, "auto", "reference", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, reference, {', '.join(ENGINES)}")
    if special_tokens not in (None, *SPECIALS):
        raise UsageError(f"special_tokens={special_tokens!r} is not one of {', '.join(SPECIALS)}")
    if not isinstance(spec, Tokenizer):
        found = find(spec)
        policy = found.definition.special_tokens if found.definition is not None else found.special_tokens
        return _checked(_load(found, engine or "auto", special_tokens or policy))
    engine, special_tokens = engine or spec.wanted, special_tokens or spec.special_tokens
    if special_tokens == spec.special_tokens:
        return spec if engine == spec.wanted else _checked(replace(spec, wanted=engine))
    definition = spec.definition
    found = TokenizerFiles(spec.name, "definition", special=definition.special, definition=definition, live=spec.live)
    return _checked(_load(found, engine, special_tokens))


def _checked(tokenizer: Tokenizer) -> Tokenizer:
    """Report now if an engine chosen by name cannot be used."""
    if tokenizer.wanted != "auto":
        _ = tokenizer.choice
    return tokenizer


def _load(found: TokenizerFiles, engine: str, policy: str) -> Tokenizer:
    applied = "text" if policy == "text" else "parse"
    facts = _facts(found, applied)
    definition = found.definition
    if definition is None:
        definition = Definition(facts["json"], facts["reference"], {} if found.kind == "json" else found.files)
    special = _with_usual_names(facts["special"], facts["added"])
    definition = replace(definition, special_tokens=applied, special=special)
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
    )


def _with_usual_names(special: dict[str, str], added: dict[str, int]) -> dict[str, str]:
    """Add eos and bos if they are not known and exactly one added token has a usual name."""
    special = dict(special)
    for which, names in (("eos", _END_NAMES), ("bos", _BEGIN_NAMES)):
        if which not in special:
            known = [name for name in names if name in added]
            if len(known) == 1:
                special[which] = known[0]
    return special


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
