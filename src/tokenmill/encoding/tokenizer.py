"""A tokenizer ready for use: what its ids are called, which ids go around a document, and which engine runs it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenmill.documents import text_array
from tokenmill.encoding.definition import SPECIALS, Definition, special_names
from tokenmill.encoding.resolve import Found, define, find
from tokenmill.encoding.selection import Choice, choose
from tokenmill.errors import TokenizerError, UsageError
from tokenmill.user_cache import cache_folder, read_cached, write_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokenmill.encoding.decoder import Decoder
    from tokenmill.encoding.encoder import Encoder


# What models call the token that ends a document, where a bare tokenizer.json does not say.
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


@dataclass(frozen=True)
class Tokenizer:
    """An effective tokenizer. Cheap to hold; the engine is chosen, proved and made when it is first needed.

    `added` are the added tokens by id; `special_tokens` says what a special token's name in a text becomes: "parse" (its id),
    "text" (ordinary text) or "error" (a build stops there).
    """

    definition: Definition
    name: str
    fingerprint: str
    vocab_size: int
    added: dict[str, int] = field(repr=False)
    special_names: tuple[str, ...] = field(repr=False)
    special_tokens: str = "parse"
    wanted: str = "auto"
    live: Any = field(default=None, repr=False, compare=False)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        from tokenmill.encoding.encoder import id_dtype

        return id_dtype(self.vocab_size)

    @cached_property
    def choice(self) -> Choice:
        """The engine, and why. The first time for a tokenizer this takes some seconds: engines are put on trial."""
        try:
            if self.definition.reference == "python" and self.wanted in ("auto", "reference", "python"):
                from tokenmill.encoding.transformers_slow import slow_choice

                return slow_choice(self.definition, self.live)
            return choose(self.definition, wanted=self.wanted)
        except TokenizerError as error:
            raise TokenizerError(f"{self.name}: {error}") from error

    @property
    def engine(self) -> str:
        return self.choice.engine

    @property
    def engine_version(self) -> str:
        return self.choice.version

    @property
    def proof(self) -> str:
        return self.choice.why

    def for_corpus(self, key: str, sample: Callable[[], Sequence[str]]) -> Tokenizer:
        """The same tokenizer with the engine that is fastest, and proved, on a sample of a corpus.

        `key` stands for the corpus: where the race was held before, the sample is not asked for.
        """
        if self.wanted != "auto" or self.definition.reference == "python":
            return self
        made = replace(self)
        made.__dict__["choice"] = choose(self.definition, sample, corpus_key=key)
        return made

    @property
    def eos_id(self) -> int | None:
        return self.resolve("eos", "auto", required=False)

    @property
    def bos_id(self) -> int | None:
        return self.resolve("bos", "auto", required=False)

    @property
    def special_ids(self) -> list[int]:
        """The ids of special tokens, but for the unknown token's: that one says nothing of what a text holds."""
        return sorted(self.added[name] for name in self.special_names)

    def encode(self, text: str) -> npt.NDArray[np.unsignedinteger]:
        """The ids of one text, nothing added around it."""
        return self._encoder.encode(text_array([text])).ids

    def decode(self, ids: Any, start: int = 0, stop: int | None = None) -> str:
        """The text of a document's ids, or of the range from `start` to `stop` of them; special tokens are shown.

        Bytes that make no whole character, at the edges of a range, become U+FFFD: `decode_bytes` gives them as they are.
        """
        if self._decoder is None:
            return self.decode_bytes(ids, start, stop).decode("utf-8", "replace")
        return self._decoder.text(ids, start, stop)

    def decode_bytes(self, ids: Any, start: int = 0, stop: int | None = None) -> bytes:
        """What the ids from `start` to `stop` of a document stand for, exact to the byte for byte-level tokenizers."""
        if self._decoder is None:
            return self._by_reference([int(i) for i in ids[start:stop]])
        return self._decoder.bytes(ids, start, stop)

    def token_name(self, token: int | None) -> str | None:
        """What an id is called."""
        if token is None:
            return None
        known = next((name for name, number in self.added.items() if number == token), None)
        if known is not None:
            return known
        if self.definition.json is not None:
            found: str | None = self._tokenizers.id_to_token(token)
            return found
        return self._by_reference([token]).decode("utf-8", "replace")

    def describe(self, token: int | None) -> str:
        """An id with its name, for people."""
        return "none" if token is None else f"{token} {self.token_name(token)}"

    def encoder(self, bos_id: int | None = None, eos_id: int | None = None) -> Encoder:
        """An encoder for this process."""
        from tokenmill.encoding.encoder import Encoder

        return Encoder(self.definition, live=self.live, **self.encoder_options(bos_id, eos_id))

    def encoder_options(self, bos_id: int | None = None, eos_id: int | None = None) -> dict[str, Any]:
        """What an Encoder in another process needs beside the definition: plain values."""
        return {
            "engine_name": self.engine,
            "guard": self.choice.guard,
            "vocab_size": self.vocab_size,
            "bos_id": bos_id,
            "eos_id": eos_id,
            "special_ids": self.special_ids,
            "special_names": list(self.special_names),
        }

    def resolve(self, which: str, wanted: str | int | None, *, required: bool = True) -> int | None:
        """The id for `eos` or `bos`, given as a name, an id, "auto", "none" or None."""
        if wanted is None or wanted == "none":
            return None
        if wanted == "auto":
            return self._auto(which, required)
        if isinstance(wanted, bool):
            raise UsageError(f"{which}={wanted} is not a token, an id, 'auto' or 'none'")
        if isinstance(wanted, int) or (wanted.isascii() and wanted.isdigit()):
            if not 0 <= int(wanted) < self.vocab_size:
                raise UsageError(f"{which}={wanted} is outside the vocabulary: 0 to {self.vocab_size - 1}")
            return int(wanted)
        found = self._token_id(wanted)
        if found is None:
            raise UsageError(f"{which}={wanted!r} is not a token of {self.name}; it has {self._some_added()}")
        return found

    def _auto(self, which: str, required: bool) -> int | None:
        name = self.definition.special.get(which)
        if name is not None:
            found = self._token_id(name)
            if found is None and required:
                raise TokenizerError(
                    f"{self.name}: its configuration names {name!r} as {which}, which is not in its vocabulary;"
                    f" say --{which} NAME, an id, or none"
                )
            return found
        if not required or which == "bos":
            return None
        raise TokenizerError(
            f"{self.name} does not say which token ends a document; say --{which} NAME, an id, or none."
            f" Its added tokens: {self._some_added()}"
        )

    def _token_id(self, name: str) -> int | None:
        found = self.added.get(name)
        if found is None and self.definition.json is not None:
            found = self._tokenizers.token_to_id(name)
        return found

    def _some_added(self) -> str:
        names = list(self.added)
        return (", ".join(names[:12]) + (", ..." if len(names) > 12 else "")) or "none"

    @cached_property
    def _by_reference(self) -> Callable[[list[int]], bytes]:
        from tokenmill.encoding.transformers_slow import decoder

        return decoder(self.definition, self.live)

    @cached_property
    def _tokenizers(self) -> Any:
        import tokenizers

        return tokenizers.Tokenizer.from_str(self.definition.json)

    @cached_property
    def _decoder(self) -> Decoder | None:
        from tokenmill.encoding.decoder import Decoder

        return None if self.definition.json is None else Decoder(self.definition.json)

    @cached_property
    def _encoder(self) -> Encoder:
        return self.encoder()


def load_tokenizer(spec: Any, engine: str | None = None, special_tokens: str | None = None) -> Tokenizer:
    """A tokenizer by path, folder, Hub name, `tiktoken:NAME`, "bytes", or an object of another library.

    `engine` is "auto" (the fastest that proves itself), "reference", or an engine by name. `special_tokens` says what the names
    of special tokens in a text become: "parse" (their ids, as `tokenizers` does), "text", or "error". The first load of a
    tokenizer takes up to a few seconds, mostly for reading large vocabularies; what was learned is kept in the cache
    folder, keyed by content.
    """
    from tokenmill.encoding.engines import ENGINES

    if engine not in (None, "auto", "reference", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, reference, {', '.join(ENGINES)}")
    if special_tokens not in (None, *SPECIALS):
        raise UsageError(f"special_tokens={special_tokens!r} is not one of {', '.join(SPECIALS)}")
    if isinstance(spec, Tokenizer):
        if engine in (None, spec.wanted) and special_tokens in (None, spec.special_tokens):
            return spec
        if special_tokens in (None, spec.special_tokens):
            return _checked(replace(spec, wanted=engine or spec.wanted))
        found = Found(
            spec.name, "definition", special=spec.definition.special, definition=spec.definition, live=spec.live
        )
        engine, special_tokens = engine or spec.wanted, special_tokens or spec.special_tokens
    else:
        found = find(spec)
    policy = special_tokens or (
        found.definition.special_tokens if found.definition is not None else found.special_tokens
    )
    return _checked(_ready(found, engine or "auto", policy))


def _checked(tokenizer: Tokenizer) -> Tokenizer:
    """An engine chosen by hand that cannot be used is an error here and now."""
    if tokenizer.wanted != "auto":
        _ = tokenizer.choice
    return tokenizer


def _ready(found: Found, engine: str, policy: str) -> Tokenizer:
    facts = _learn(found, "text" if policy == "text" else "parse")
    special = dict(facts["special"])
    for which, names in (("eos", _END_NAMES), ("bos", _BEGIN_NAMES)):
        if which not in special:
            known = [name for name in names if name in facts["added"]]
            if len(known) == 1:
                special[which] = known[0]
    definition = Definition(
        facts["json"],
        facts["reference"],
        found.definition.files if found.definition is not None else found.files if facts["own_files"] else {},
        "text" if policy == "text" else "parse",
        special,
        found.definition.python_class if found.definition is not None else None,
    )
    return Tokenizer(
        definition,
        found.name,
        facts["fingerprint"],
        facts["vocab_size"],
        facts["added"],
        tuple(facts["special_names"]),
        policy,
        engine,
        found.live,
    )


def _learn(found: Found, policy: str) -> dict[str, Any]:
    """Everything a tokenizer's files say, from the cache where this content was seen before."""
    from importlib.metadata import version

    key = hashlib.sha256(f"{version('tokenmill')} {version('tokenizers')} {policy} {found.kind}".encode())
    contents = found.definition.contents() if found.definition is not None else found.files
    for name, content in sorted({**contents, "special": json.dumps(found.special, sort_keys=True).encode()}.items()):
        key.update(f"{name} {len(content)} ".encode())
        key.update(content)
    path = cache_folder() / "tokenizers" / f"{key.hexdigest()[:32]}.facts"
    kept = read_cached(path)
    if kept is None:
        kept = _examine(found, policy)
        write_cached(path, kept)
    return kept


def _examine(found: Found, policy: str) -> dict[str, Any]:
    definition = define(found).with_specials(policy)
    vocabulary = _vocabulary(definition, found)
    if not vocabulary["vocab_size"]:
        raise TokenizerError(
            f"{found.file or found.name}: its vocabulary is empty; is it a tokenizer that was never trained?"
        )
    return {
        "json": definition.json,
        "reference": definition.reference,
        "own_files": bool(definition.files),
        "special": {**definition.special, **found.special},
        "fingerprint": definition.fingerprint,
        **vocabulary,
    }


def _vocabulary(definition: Definition, found: Found) -> dict[str, Any]:
    """How many ids there are, the added tokens, and which of them are special."""
    if definition.json is None:
        from tokenmill.encoding.transformers_slow import vocabulary

        return vocabulary(definition, found.live)
    body = json.loads(definition.json)
    added = {token["content"]: token["id"] for token in body["added_tokens"] or ()}
    vocabulary_ = body["model"]["vocab"]
    ids = vocabulary_.values() if isinstance(vocabulary_, dict) else range(len(vocabulary_))
    size = max([*ids, *added.values()], default=-1) + 1
    return {"vocab_size": size, "added": added, "special_names": special_names(body)}
