"""A loaded tokenizer: its ids and their names, the ids around a document, and the engine that runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np

from tokenmill.display import one_line, shown
from tokenmill.documents import text_array
from tokenmill.encoding.decoder import Decoder, Ids, id_range
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.encoder import Encoder, id_dtype
from tokenmill.encoding.engines import engine_traits, engine_version, make_reference
from tokenmill.encoding.engines.base import EngineTraits, ReferenceEngine
from tokenmill.encoding.selection.choosing import Choice, choose, choose_slow, known_engine
from tokenmill.encoding.tokenizer_json import tokens_of
from tokenmill.errors import TokenizerError, UsageError, WrongTypeError
from tokenmill.formatting import first_names
from tokenmill.habits import Identified
from tokenmill.option_types import option_name

Texts = list[str] | tuple[str, ...]
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eot|>", "<end_of_turn>", "<|end|>")  # eos of tokenizers for chats
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")  # what their base models end a document with


@dataclass(frozen=True, eq=False)
class Tokenizer(Identified):
    """A tokenizer. The engine is chosen and constructed when it is first needed. Two are equal if their fingerprints are.

    `special_tokens` says what the name of a special token in a text becomes: "parse" (its id), "text" (ordinary text) or
    "error" (a build stops there).
    """

    _definition: Definition  # enough to construct every engine
    name: str  # as it was given
    fingerprint: str  # a digest of all that decides its ids
    vocab_size: int  # one more than the largest id
    added: dict[str, int]  # the ids of added tokens, by name
    _special_names: tuple[str, ...]  # the names of special tokens
    _produced_names: frozenset[str]  # those that the model also produces for unknown text
    special_tokens: str  # what their names in a text become
    _wanted: str  # the engine that was asked for
    _live: Any  # the object it came from, if that is a slow one of transformers
    _differs_by_line: bool  # whether `tokenizers` below 1.0 and 1.0 are known to give other ids for some texts
    _begins: str  # the token that it puts before a text by itself, where `bos` is what a build puts there

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields and the choice of an engine. A copy constructs its own engine and decoder.

        An object of transformers is not: the copy loads its files.
        """
        if self._live is not None and self._traits.in_process_only:
            raise TypeError(f"{self.name} cannot be pickled: {self._choice.why}")
        kept = (*self.__dataclass_fields__, "_choice")
        return {name: value for name, value in vars(self).items() if name in kept} | {"_live": None}

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        wanted = [] if self._wanted == "auto" else [f"engine={self._wanted}"]
        specials = [] if self.special_tokens == "parse" else [f"special_tokens={self.special_tokens}"]
        return one_line("Tokenizer", shown(self.name), f"vocab_size={self.vocab_size:,}", *specials, *wanted)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype in which a store keeps ids: uint16 or uint32."""
        return id_dtype(self.vocab_size)

    @cached_property
    def _choice(self) -> Choice:
        """The engine and the reason for it. The first time, the proof for a tokenizer takes a second or more."""
        try:
            if self._reference_traits.is_slow and self._wanted in ("auto", "reference", self._definition.reference):
                return choose_slow(self._definition, self._live)
            return choose(self._definition, wanted=self._wanted)
        except TokenizerError as error:
            raise TokenizerError(f"{self.name}: {error}") from error

    def choose_engine(self) -> str:
        """Choose the engine for a large corpus, and return its name. A proof takes seconds, once for a tokenizer."""
        return self._choice.engine

    @property
    def engine(self) -> str:
        """The name of the engine for a large corpus; "auto" while that takes a proof, which `choose_engine` makes."""
        return self._known_engine[0]

    @property
    def engine_version(self) -> str:
        """The version of the library that the engine is in; "" until it is chosen."""
        return self._known_engine[1]

    @property
    def proof(self) -> str:
        """Why this engine was chosen, in words; "" until it is."""
        return self._known_engine[2]

    @property
    def _known_engine(self) -> tuple[str, str, str]:
        """The engine, its version and the reason, if it is chosen, or can be at no cost from what is remembered."""
        if "_choice" in vars(self) or not (self._reference_traits.is_slow or self._needs_proof(sys.maxsize)):
            return self._choice.engine, self._choice.version, self._choice.why
        return self._wanted, "", ""

    @property
    def _traits(self) -> EngineTraits:
        """The traits of the chosen engine. Chooses one, which may take a few seconds."""
        return engine_traits(self._choice.engine)

    @property
    def _reference_traits(self) -> EngineTraits:
        """The traits of the reference, which cost nothing to find out.

        A tokenizer whose reference is slow has no other engine, so `is_slow` is the same as in `traits`.
        """
        return engine_traits(self._definition.reference)

    @property
    def _runs_reference(self) -> bool:
        """Whether the chosen engine is the reference itself, so that its ids need no comparison."""
        return self._choice.engine == self._definition.reference or self._traits.is_slow

    def _for_corpus(self, text_bytes: int, processes: int | None = None) -> Tokenizer:
        """The same tokenizer with an engine for this much text, which so many processes will encode."""
        if self._wanted != "auto" or self._reference_traits.is_slow:
            return self
        chosen = replace(self)
        chosen.__dict__["_choice"] = choose(self._definition, text_bytes=text_bytes, processes=processes)
        return chosen

    def _needs_proof(self, text_bytes: int) -> bool:
        """Whether an engine has to be proved before this much text is encoded, which takes a second or more."""
        is_known = self._wanted != "auto" or self._reference_traits.is_slow
        return not is_known and known_engine(self._definition, text_bytes) is None

    def _leaves_to_reference(self, text_bytes: int) -> bool:
        """Whether the reference encodes this much text. Proves no engine."""
        if self._wanted != "auto" or self._reference_traits.is_slow:
            return self._runs_reference
        return known_engine(self._definition, text_bytes) == self._definition.reference

    @property
    def reference_line(self) -> str | None:
        """The line of `tokenizers` that the ids are of, for a tokenizer for which that matters."""
        is_old = engine_version("tokenizers").startswith("0.")
        return ("below 1.0" if is_old else "1.0") if self._differs_by_line else None

    @property
    def eos_id(self) -> int | None:
        """The id that ends documents, if the tokenizer names one; also called `eos_token_id`."""
        return self._id_around("eos")

    @property
    def bos_id(self) -> int | None:
        """The id that begins documents, if the tokenizer names one; also called `bos_token_id`."""
        return self._id_around("bos")

    eos_token_id, bos_token_id = eos_id, bos_id

    def _id_around(self, which: str) -> int | None:
        return self._resolve(which, "auto", required=False)

    @cached_property
    def pad_token_id(self) -> int | None:
        """The id for padding, if the tokenizer has one. (`tm.pack` pads with `pad_id`, by default eos.)"""
        files = {**self._definition.files, **self._definition.beside}
        configs = [json.loads(files.get(name, b"{}")) for name in ("tokenizer_config.json", "special_tokens_map.json")]
        named = [config.get("pad_token") for config in configs if isinstance(config, dict)]
        names = [name.get("content") if isinstance(name, dict) else name for name in named]
        return next((self.added[name] for name in (*names, "[PAD]", "<pad>") if name in self.added), None)

    @property
    def special_ids(self) -> list[int]:
        """The ids of the special tokens, except those that the model also produces for unknown text."""
        return sorted(self.added[name] for name in self._special_names if name not in self._produced_names)

    @overload
    def __call__(self, text: str, *, add_special_tokens: Literal[False] = False) -> dict[str, list[int]]: ...

    @overload
    def __call__(self, text: Texts, *, add_special_tokens: Literal[False] = False) -> dict[str, list[list[int]]]: ...

    def __call__(self, text: str | Texts, *, add_special_tokens: Literal[False] = False) -> dict[str, Any]:
        """{"input_ids": encode(text)}, which `datasets.map` and its scripts expect."""
        return {"input_ids": self.encode(text, add_special_tokens=add_special_tokens)}

    @overload
    def encode(self, text: str, *, add_special_tokens: Literal[False] = False) -> list[int]: ...

    @overload
    def encode(self, text: Texts, *, add_special_tokens: Literal[False] = False) -> list[list[int]]: ...

    def encode(self, text: str | Texts, *, add_special_tokens: Literal[False] = False) -> list[int] | list[list[int]]:
        """The ids of one text as a list, without eos and bos; of a list of texts, a list with the ids of each."""
        if add_special_tokens:
            raise UsageError("encode adds no special tokens: tm.build(..., eos=..., bos=...) puts them around texts")
        texts = text if isinstance(text, list | tuple) else [text]
        for each in texts:
            if not isinstance(each, str):
                raise TypeError(f"encode takes a text or a list of texts, not {type(each).__name__} {shown(each)}")
        tokens = self._own_encoder.encode(text_array(texts))
        ids, ends = tokens.ids.tolist(), tokens.ends.tolist()
        found = [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return found[0] if isinstance(text, str) else found

    @overload
    def decode(
        self, ids: Ids, start: int = 0, stop: int | None = None, *, skip_special_tokens: bool = False
    ) -> str: ...

    @overload
    def decode(
        self, ids: Sequence[Ids], start: int = 0, stop: int | None = None, *, skip_special_tokens: bool = False
    ) -> list[str]: ...

    def decode(
        self, ids: Any, start: int = 0, stop: int | None = None, *, skip_special_tokens: bool = False
    ) -> str | list[str]:
        """The text of a document's ids, or of the range from `start` to `stop`, including special tokens.

        Of a list of documents, a list with the text of each. Incomplete characters at the ends of a range become U+FFFD;
        `decode_bytes` returns their bytes. With `skip_special_tokens` these are taken out first.
        """
        if _holds_documents(ids):
            return [self.decode(each, start, stop, skip_special_tokens=skip_special_tokens) for each in ids]
        if skip_special_tokens:
            _, whole = id_range(ids, 0, None, self.vocab_size)
            ids = whole[~np.isin(whole, self.special_ids)]
        return self.decode_bytes(ids, start, stop).decode("utf-8", "replace")

    def decode_bytes(self, ids: Any, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes of a document's ids from `start` to `stop`; exact for byte-level tokenizers."""
        if self._decoder is None:
            _, part = id_range(ids, start, stop, self.vocab_size)
            return self._reference.decode_bytes(part.tolist())
        return self._decoder.bytes(ids, start, stop)

    def token_name(self, token: int | None) -> str | None:
        """The name of an id."""
        if token is None:
            return None
        for name, number in self.added.items():
            if number == token:
                return name
        if self._definition.json is not None:
            return self._names.get(token)
        return self._reference.decode_bytes([token]).decode("utf-8", "replace")

    def describe(self, token: int | None) -> str:
        """An id with its name, such as "50256 <|endoftext|>"."""
        return "none" if token is None else f"{token} {self.token_name(token)}"

    def _encoder(self, bos_id: int | None = None, eos_id: int | None = None) -> Encoder:
        """Construct an encoder in this process."""
        return Encoder(self._definition, live=self._live, **self._encoder_options(bos_id, eos_id))

    def _encoder_options(self, bos_id: int | None = None, eos_id: int | None = None) -> dict[str, Any]:
        """The arguments of an Encoder besides the definition, as JSON-able values for another process."""
        return {
            "engine_name": self._choice.engine,
            "guard": self._choice.guard,
            "vocab_size": self.vocab_size,
            "bos_id": bos_id,
            "eos_id": eos_id,
            "special_ids": self.special_ids,
            "special_names": list(self._special_names),
            "produced_ids": sorted(self.added[name] for name in self._produced_names),
        }

    def _resolve(self, which: str, wanted: str | int | None, *, required: bool = True) -> int | None:
        """The id for `eos` or `bos`, given as a name, an id, "auto", "none" or None."""
        if wanted is None or wanted == "none":
            return None
        if isinstance(wanted, bool):
            raise WrongTypeError(f"{which}={wanted} is not a token, an id, 'auto' or 'none'")
        if isinstance(wanted, int) or (wanted.isascii() and wanted.isdigit()):
            if not 0 <= int(wanted) < self.vocab_size:
                raise UsageError(f"{which}={wanted} is outside the vocabulary: 0 to {self.vocab_size - 1}")
            return int(wanted)
        name = self._definition.special.get(which) if wanted == "auto" else wanted
        if name is None:
            if which == "bos" or not required:
                return None
            raise TokenizerError(
                f"{self.name} does not say which token ends a document; give --{which} a name, an id, or none."
                f" Its added tokens: {first_names(self.added, 12) or 'none'}"
            )
        token_id = self.added.get(name)
        if token_id is None:
            token_id = next((number for number, known in self._names.items() if known == name), None)
        if token_id is None and wanted != "auto":
            known = first_names(self.added, 12) or "none"
            raise UsageError(f"{which}={wanted!r} is not a token of {self.name}; it has {known}")
        if token_id is None and required:
            raise TokenizerError(
                f"{self.name}: its configuration names {name!r} as {which}, which is not in its vocabulary;"
                f" give --{which} a name, an id, or none"
            )
        return token_id

    @cached_property
    def _reference(self) -> ReferenceEngine:
        return make_reference(self._definition, self._live)

    @cached_property
    def _names(self) -> dict[int, str]:
        """The tokens of the model by id."""
        if self._definition.json is None:
            return {}
        return {number: name for name, number in tokens_of(json.loads(self._definition.json)["model"])}

    @cached_property
    def _decoder(self) -> Decoder | None:
        return None if self._definition.json is None else Decoder(self._definition.json)

    @cached_property
    def _own_encoder(self) -> Encoder:
        return self._for_corpus(0)._encoder()


def differs_around(tokenizer: Tokenizer, bos: int | None, eos: int | None) -> str:
    """Where the ids around a document are not those one may expect of the tokenizer, with the remedy; "" if nowhere."""
    notes, begins = [], tokenizer._begins
    if bos is None and begins in tokenizer.added:
        notes.append(f"the tokenizer itself begins a text with {begins}: {option_name('bos', begins)}")
    name, ends = tokenizer.token_name(eos), [each for each in ENDS if each in tokenizer.added]
    if name in TURN_ENDS and ends:
        notes.append(f"{name} ends a turn of a chat, and {ends[0]} ends a text: {option_name('eos', ends[0])}")
    return "; ".join(notes)


def _holds_documents(ids: Any) -> bool:
    """Whether these are the ids of several documents: a list of lists or arrays, or an array of two dimensions."""
    if hasattr(ids, "ndim"):
        return bool(ids.ndim == 2)
    return isinstance(ids, list | tuple) and len(ids) > 0 and getattr(ids[0], "ndim", hasattr(ids[0], "__len__")) == 1
