"""What a tokenizer is, however it was found: enough to construct every engine, in any process.

Most tokenizers are a tokenizer.json, and the library `tokenizers` decides what its ids are. A tiktoken encoding, a
SentencePiece model and a slow Python tokenizer have files of their own, and their own library decides: it is the
`reference`. Their tokenizer.json is used only with engines that are proved to give the reference's ids.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from tokenmill.display import fields_in_one_line
from tokenmill.encoding.tokenizer_json import effective, texts_of, tokens_of, what_decides_ids, without_specials
from tokenmill.errors import TokenizerError
from tokenmill.io import disk

SPECIALS = ("parse", "text", "error")
REFERENCES = ("tokenizers", "tiktoken", "sentencepiece", "python")
OWN_FILE = "tokenmill.json"
EFFECTIVE = "effective_tokenizer.json"  # beside a tokenizer.json that is kept as it came
VERSION = 1


@dataclass(frozen=True)
class Definition:
    """A tokenizer as data.

    `json` is an effective tokenizer.json, or None if the tokenizer has no such form. `files` are what the reference is
    constructed from, if that is not the json. `special_tokens` is "parse" (names of special tokens in a text become
    their ids, as in `tokenizers`) or "text" (they are ordinary text). `special` has the names of "eos" and "bos" where
    they are known. `python_class` is the class of a slow tokenizer, as "module:class". `beside` are files as
    they came, such as a chat template: other tools read them, and they decide no ids.
    """

    json: str | None = field(repr=False)
    reference: str = "tokenizers"
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    special_tokens: str = "parse"
    special: dict[str, str] = field(default_factory=dict)
    python_class: str | None = None
    beside: dict[str, bytes] = field(default_factory=dict, repr=False)

    __repr__ = fields_in_one_line

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not what was computed from it."""
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    @cached_property
    def engine_json(self) -> str:
        """The tokenizer.json for engines, with the policy for special tokens applied."""
        if self.json is None:
            raise TokenizerError("this tokenizer has no tokenizer.json form")
        return self.json if self.special_tokens == "parse" else without_specials(self.json)

    @property
    def added(self) -> list[dict[str, Any]]:
        """The added tokens, as a tokenizer.json lists them."""
        return self._tokens[0]

    @property
    def vocabulary(self) -> list[str]:
        """Every token of the model's vocabulary as text."""
        return self._tokens[1]

    @property
    def settings(self) -> dict[str, Any]:
        """The tokenizer.json without added tokens, vocabulary and merges."""
        return self._tokens[2]

    @cached_property
    def _tokens(self) -> tuple[list[dict[str, Any]], list[str], dict[str, Any]]:
        """The added tokens, the vocabulary and the settings: all that is kept of a parsed tokenizer.json."""
        if self.json is None:
            return [], [], {}
        parsed = json.loads(self.json)
        model = {key: value for key, value in parsed["model"].items() if key not in ("vocab", "merges")}
        return (
            list(parsed["added_tokens"] or []),
            texts_of(parsed, [name for name, _ in tokens_of(parsed["model"])]),
            {**parsed, "added_tokens": [], "model": model},
        )

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides ids, and of nothing else: no name, no path, no date."""
        if self.reference in ("tokenizers", "tiktoken") and self.json is not None:
            decides: Any = what_decides_ids(self.json)
            if self.reference == "tiktoken":
                from tokenmill.encoding.conversion.tiktoken_bpe import Ranks
                from tokenmill.encoding.conversion.tiktoken_patterns import is_well_known

                pattern = Ranks.from_files(self.files).pattern
                decides = decides if is_well_known(pattern) else [decides, pattern]
        else:
            contents = {name: hashlib.sha256(raw).hexdigest() for name, raw in self.files.items()}
            decides = [self.reference, self.python_class, contents]
        policy = [] if self.special_tokens == "parse" else [self.special_tokens]
        return hashlib.sha256(json.dumps([decides, *policy], sort_keys=True).encode()).hexdigest()[:32]

    def contents(self) -> dict[str, bytes]:
        """Files by name, which `load_definition` reads and which a store contains."""
        own = {
            "version": VERSION,
            "reference": self.reference,
            "special_tokens": self.special_tokens,
            "special": self.special,
            "python_class": self.python_class,
            "json": self.json is not None,
            "files": sorted(self.files),
        }
        own |= {"beside": sorted(self.beside)} if self.beside else {}
        names = {f"{which}_token": name for which, name in sorted(self.special.items())}
        body = {OWN_FILE: json.dumps(own, indent=1, ensure_ascii=False).encode()}
        if self.json is not None:  # in the form that other tools expect
            body[EFFECTIVE if "tokenizer.json" in self.beside else "tokenizer.json"] = self.json.encode()
            body["tokenizer_config.json"] = json.dumps(names, indent=1, ensure_ascii=False).encode()
        return {**body, **self.beside, **self.files}

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, content in self.contents().items():
            (folder / name).write_bytes(content)


def load_definition(folder: Path, trusted_class: str | None = None) -> Definition | None:
    """Read a definition that `Definition.save` wrote. None if the folder has none.

    A class named in the file must be `trusted_class` or belong to `transformers`.
    """
    path = folder / OWN_FILE
    if not path.is_file():
        return None
    try:
        own = _read_own(path)
        named = own["python_class"]
        if named not in (None, trusted_class) and not str(named).startswith("transformers."):
            raise TokenizerError(f"{path} names the class {named}, not of transformers; pass the object itself")
        files = {name: disk.read_bytes(folder / name) for name in own["files"]}
        beside = {name: disk.read_bytes(folder / name) for name in own.get("beside", ())}
        body = folder / (EFFECTIVE if "tokenizer.json" in beside else "tokenizer.json")
        text = disk.read_bytes(body).decode("utf-8") if own["json"] else None
        return Definition(text, own["reference"], files, own["special_tokens"], own["special"], named, beside)
    except OSError as error:
        raise TokenizerError(f"cannot read {error.filename}: {error.strerror}") from error
    except TokenizerError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def _read_own(path: Path) -> dict[str, Any]:
    own: dict[str, Any] = json.loads(disk.read_bytes(path))
    if own["version"] != VERSION:
        raise TokenizerError(f"{path}: version {own['version']}, but this tokenmill reads {VERSION}; upgrade it")
    if any(Path(name).name != name for name in [*own["files"], *own.get("beside", ())]):
        raise ValueError("it names files in other folders")
    if own["reference"] not in REFERENCES:
        raise ValueError(f"unknown reference {own['reference']!r}")
    if own["special_tokens"] not in ("parse", "text"):
        raise ValueError(f"special_tokens {own['special_tokens']!r}")
    return own


@cache
def bytes_definition() -> Definition:
    """The tokenizer "bytes": ids 0 to 255 are the bytes of the UTF-8 text, followed by three special tokens."""
    return Definition(effective("bytes", files("tokenmill").joinpath("data", "bytes_tokenizer.json").read_bytes()))
