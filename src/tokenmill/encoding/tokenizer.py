"""Which tokenizer: a path becomes an effective tokenizer, with a fingerprint of what decides its ids.

Effective means: truncation, padding, dropout and the post-processor taken out of the file. Ids around a document are
`bos` and `eos`, chosen in the open, and never a file's side effect.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.errors import TokenizerError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
    """An effective tokenizer. Cheap to hold; engines are made when first used.

    `json` is a tokenizer.json that `tokenizers` loads; `special` maps "eos" and "bos" to their names where the tokenizer
    says so; `added` are the added tokens by id.
    """

    json: str = field(repr=False)
    name: str
    fingerprint: str
    vocab_size: int
    engine: str
    proof: str
    special: dict[str, str]
    added: dict[str, int] = field(repr=False)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        from tokenmill.encoding.encoder import id_dtype

        return id_dtype(self.vocab_size)

    @property
    def engine_version(self) -> str:
        from importlib.metadata import version

        return version(self.engine)

    @property
    def eos_id(self) -> int | None:
        return self.resolve("eos", "auto", required=False)

    @property
    def bos_id(self) -> int | None:
        return self.resolve("bos", "auto", required=False)

    def encode(self, text: str) -> npt.NDArray[np.unsignedinteger]:
        """The ids of one text, nothing added around it."""
        import pyarrow as pa

        return self._encoder.encode(pa.array([text], pa.large_string())).ids

    def decode(self, ids: Any) -> str:
        """The text of some ids, special tokens shown."""
        return str(self._reference.decode([int(i) for i in ids], skip_special_tokens=False))

    def token_name(self, token: int | None) -> str | None:
        """What an id is called."""
        if token is None:
            return None
        known = next((name for name, number in self.added.items() if number == token), None)
        return known if known is not None else self._reference.id_to_token(token)

    def describe(self, token: int | None) -> str:
        """An id with its name, for people."""
        return "none" if token is None else f"{token} {self.token_name(token)}"

    def encoder(self, bos_id: int | None = None, eos_id: int | None = None) -> Encoder:
        """An encoder for this process."""
        from tokenmill.encoding.encoder import Encoder

        return Encoder(self.engine, self.json, self.vocab_size, bos_id, eos_id)

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

    def files(self) -> dict[str, str]:
        """What a store keeps of its tokenizer: file name -> content. `load_tokenizer(folder)` reads it back."""
        config = {f"{which}_token": name for which, name in sorted(self.special.items())}
        return {"tokenizer.json": self.json, "tokenizer_config.json": json.dumps(config, indent=1, ensure_ascii=False)}

    def _auto(self, which: str, required: bool) -> int | None:
        name = self.special.get(which)
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
        return found if found is not None else self._reference.token_to_id(name)

    def _some_added(self) -> str:
        names = list(self.added)
        return (", ".join(names[:12]) + (", ..." if len(names) > 12 else "")) or "none"

    @cached_property
    def _reference(self) -> Any:
        import tokenizers

        return tokenizers.Tokenizer.from_str(self.json)

    @cached_property
    def _encoder(self) -> Encoder:
        return self.encoder()


def load_tokenizer(spec: str | os.PathLike[str] | Tokenizer, engine: str = "auto") -> Tokenizer:
    """Load a tokenizer.json, or the folder that holds one (with tokenizer_config.json for its special tokens).

    The first load of a file takes up to a second (it is made effective, fingerprinted, and the fast engine is held
    against the reference); what was learned is kept in the cache folder, keyed by the files' content.
    """
    if isinstance(spec, Tokenizer):
        return spec
    from tokenmill.encoding.engines import ENGINES

    if engine not in ("auto", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, {', '.join(ENGINES)}")
    path = _find(os.fspath(spec))
    raw = _read(path)
    special = _special_names(path.parent)
    facts = _learn(path, raw)
    for which, names in (("eos", _END_NAMES), ("bos", _BEGIN_NAMES)):
        if which not in special:
            known = [name for name in names if name in facts["added"]]
            if len(known) == 1:
                special[which] = known[0]
    if "eos" not in special and len(facts["added"]) == 1:
        special["eos"] = next(iter(facts["added"]))
    chosen, proof = facts["engine"], facts["proof"]
    if engine == "tokenizers":
        chosen, proof = engine, "chosen by hand; it is the reference"
    elif engine not in ("auto", chosen):
        raise TokenizerError(
            f"engine={engine!r} cannot be used with {spec}: {proof}; leave the choice to engine='auto'"
        )
    return Tokenizer(
        json=facts["json"],
        name=str(spec),
        fingerprint=facts["fingerprint"],
        vocab_size=facts["vocab_size"],
        engine=chosen,
        proof=proof,
        special=special,
        added=facts["added"],
    )


def cache_folder() -> Path:
    """Where tokenmill keeps what it learned: TOKENMILL_CACHE, or tokenmill in the user's cache folder."""
    own = os.environ.get("TOKENMILL_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill"


def _find(spec: str) -> Path:
    path = Path(spec)
    if path.is_dir():
        path = path / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(f"no tokenizer.json in the folder {spec}; it holds {_listing(path.parent)}")
    if not path.is_file():
        raise TokenizerError(
            f"no tokenizer at {spec}: give a tokenizer.json or a folder that holds one"
            " (a local one: names on the Hugging Face Hub are not understood yet)"
        )
    return path


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())[:8]
    return ", ".join(names) or "nothing"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error


def _special_names(folder: Path) -> dict[str, str]:
    """The names of eos and bos, from the files beside a tokenizer.json."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            config = json.loads(_read(path))
        except ValueError as error:
            raise TokenizerError(f"{path} is not valid JSON: {error}") from error
        for which in ("eos", "bos"):
            value = config.get(f"{which}_token") if isinstance(config, dict) else None
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                found.setdefault(which, value)
    return found


def _learn(path: Path, raw: bytes) -> dict[str, Any]:
    """Everything a tokenizer.json says, from the cache where this content was seen before."""
    from importlib.metadata import version

    versions = [version(name) for name in ("tokenmill", "tokenizers", "gigatoken")]
    key = hashlib.sha256("\n".join(versions).encode() + b"\n" + raw).hexdigest()[:32]
    kept = cache_folder() / "tokenizers" / f"{key}.facts"
    try:
        checksum, body = kept.read_bytes().split(b"\n", 1)
        if checksum == hashlib.sha256(body).hexdigest().encode():
            return dict(json.loads(body))
    except (OSError, ValueError):
        pass
    facts = _examine(path, raw)
    body = json.dumps(facts).encode()
    try:  # only a cache: a read-only home is no reason to fail
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside = kept.with_suffix(f".{os.getpid()}.tmp")
        beside.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(beside, kept)
    except OSError:
        pass
    return facts


def _examine(path: Path, raw: bytes) -> dict[str, Any]:
    import tokenizers

    from tokenmill.encoding.engines import choose_engine
    from tokenmill.encoding.probes import probes

    if not raw.strip():
        raise TokenizerError(f"{path} is empty")
    if raw.startswith(b"\x1f\x8b"):
        raise TokenizerError(f"{path} is compressed with gzip; unpack it first: gunzip -k {path}")
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON ({error}); is it cut short or another kind of file?") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("model"), dict):
        raise TokenizerError(f"{path} is not a tokenizer.json: it has no 'model'")
    for key in ("truncation", "padding", "post_processor"):
        parsed[key] = None
    if "dropout" in parsed["model"]:
        parsed["model"]["dropout"] = None
    try:
        reference = tokenizers.Tokenizer.from_str(json.dumps(parsed))
    except Exception as error:  # tokenizers raises bare exceptions
        raise TokenizerError(f"{path}: tokenizers cannot load it: {str(error)[:200]}") from error
    effective = reference.to_str()
    canonical = json.loads(effective)
    decides = {key: canonical.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    added = {token["content"]: token["id"] for token in canonical.get("added_tokens") or []}
    engine, proof = choose_engine(effective, probes(list(added)))
    return {
        "json": effective,
        "fingerprint": hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32],
        "vocab_size": max(reference.get_vocab(with_added_tokens=True).values(), default=-1) + 1,
        "added": added,
        "engine": engine,
        "proof": proof,
    }
