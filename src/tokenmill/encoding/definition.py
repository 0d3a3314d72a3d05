"""What a tokenizer is, whatever way it was reached: enough to make every engine from, in any process.

Most tokenizers are a tokenizer.json, and `tokenizers` decides what its ids are. A tiktoken encoding, a SentencePiece
model and a slow Python tokenizer keep their own files beside it, and their own library decides: that library is the
`reference`, and the json is only used once it is proved to give the same.

Effective means: truncation, padding, dropout and the post-processor taken out. Ids around a document are `bos` and
`eos`, chosen in the open, and never a file's side effect.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError

SPECIALS = ("parse", "text", "error")
REFERENCES = ("tokenizers", "tiktoken", "sentencepiece", "python")
OWN_FILE = "tokenmill.json"
VERSION = 1


@dataclass(frozen=True)
class Definition:
    """A tokenizer at rest.

    `json` is an effective tokenizer.json (None where there is none); `files` are what the reference is made from where
    that is not the json. `special_tokens` is "parse" (special tokens in text become their ids, as `tokenizers` does) or "text"
    (they are ordinary text). `special` has the names of "eos" and "bos" where they are known. `python_class` names the
    class of a slow tokenizer, as "module:class".
    """

    json: str | None = field(repr=False)
    reference: str = "tokenizers"
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    special_tokens: str = "parse"
    special: dict[str, str] = field(default_factory=dict)
    python_class: str | None = None

    @cached_property
    def engine_json(self) -> str:
        """The tokenizer.json that does what the policy says."""
        if self.json is None:
            raise TokenizerError("this tokenizer has no tokenizer.json form")
        return self.json if self.special_tokens == "parse" else without_specials(self.json)

    @cached_property
    def added(self) -> list[dict[str, Any]]:
        """The added tokens, as tokenizer.json writes them."""
        return list(json.loads(self.json)["added_tokens"] or []) if self.json else []

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides an id, and of nothing else: no name, no path, no date."""
        if self.reference in ("tokenizers", "tiktoken") and self.json is not None:
            decides: Any = _what_decides(self.json)
            own = self._own_pattern()
            decides = [decides, own] if own is not None else decides
        else:
            contents = {name: hashlib.sha256(raw).hexdigest() for name, raw in self.files.items()}
            decides = [self.reference, self.python_class, contents]
        policy = [] if self.special_tokens == "parse" else [self.special_tokens]
        return hashlib.sha256(json.dumps([decides, *policy], sort_keys=True).encode()).hexdigest()[:32]

    def _own_pattern(self) -> str | None:
        """The pattern of a tiktoken encoding, where the tokenizer.json's is not known to be the same in other words."""
        if self.reference != "tiktoken":
            return None
        from tokenmill.encoding.patterns import is_well_known
        from tokenmill.encoding.tiktoken_bpe import Ranks

        pattern = Ranks.from_files(self.files).pattern
        return None if is_well_known(pattern) else pattern

    def with_specials(self, policy: str) -> Definition:
        return self if policy == self.special_tokens else replace(self, special_tokens=policy)

    def contents(self) -> dict[str, bytes]:
        """File name -> content: what `load_definition` reads back, and what a store keeps."""
        own = {
            "version": VERSION,
            "reference": self.reference,
            "special_tokens": self.special_tokens,
            "special": self.special,
            "python_class": self.python_class,
            "json": self.json is not None,
            "files": sorted(self.files),
        }
        names = {f"{which}_token": name for which, name in sorted(self.special.items())}
        body = {OWN_FILE: json.dumps(own, indent=1, ensure_ascii=False).encode()}
        if self.json is not None:  # as other tools expect to find it
            body["tokenizer.json"] = self.json.encode()
            body["tokenizer_config.json"] = json.dumps(names, indent=1, ensure_ascii=False).encode()
        return {**body, **self.files}

    def save(self, folder: Path) -> None:
        for name, content in self.contents().items():
            (folder / name).write_bytes(content)


def load_definition(folder: Path, trusted_class: str | None = None) -> Definition | None:
    """A definition that `contents` wrote; None where the folder is not one of ours.

    A class that is named in a file is only taken from `transformers` itself, or where the caller names it too.
    """
    path = folder / OWN_FILE
    if not path.is_file():
        return None
    try:
        own = json.loads(path.read_bytes())
        if own["version"] != VERSION:
            raise TokenizerError(f"{path}: version {own['version']}, but this tokenmill reads {VERSION}; upgrade it")
        if any(Path(name).name != name for name in own["files"]) or own["reference"] not in REFERENCES:
            raise ValueError("it names files elsewhere, or a reference that there is not")
        if own["special_tokens"] not in ("parse", "text"):
            raise ValueError(f"special_tokens {own['special_tokens']!r}")
        files = {name: (folder / name).read_bytes() for name in own["files"]}
        text = (folder / "tokenizer.json").read_text("utf-8") if own["json"] else None
        named = own["python_class"]
        if named is not None and named != trusted_class and not str(named).startswith("transformers."):
            raise TokenizerError(
                f"{path} names the class {named}, which is not of transformers; pass the object itself"
            )
        return Definition(text, own["reference"], files, own["special_tokens"], own["special"], own["python_class"])
    except OSError as error:
        raise TokenizerError(f"cannot read {error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, TokenizerError):
            raise
        raise TokenizerError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def effective(path: str, raw: bytes) -> str:
    """A tokenizer.json's content as the effective tokenizer, in the form `tokenizers` itself writes."""
    import tokenizers

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
        return str(tokenizers.Tokenizer.from_str(json.dumps(parsed)).to_str())
    except Exception as error:  # tokenizers raises bare exceptions
        raise TokenizerError(f"{path}: tokenizers cannot load it: {str(error)[:200]}") from error


@cache
def bytes_definition() -> Definition:
    """Every byte of the UTF-8 text is an id, 0 to 255; the special tokens come after. Needs no file."""
    alphabet = byte_alphabet()
    names = ("<|endoftext|>", "<|startoftext|>", "<|pad|>")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    body = {
        "version": "1.0",
        "added_tokens": [{"id": 256 + i, "content": name, **flags} for i, name in enumerate(names)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": {alphabet[i]: i for i in range(256)}, "merges": []},
    }
    return Definition(effective("bytes", json.dumps(body).encode()))


@cache
def byte_alphabet() -> str:
    """The character that stands for each byte in a byte-level vocabulary: itself where it can be seen, else past 255."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return "".join(chr(i) if i in seen else chr(next(hidden)) for i in range(256))


def without_specials(body: str) -> str:
    """The same tokenizer, to which the names of special tokens are ordinary text.

    They go out of the added tokens. Where they are in the model's vocabulary too, they keep their ids under names that
    no text can spell: a model that looks up whole words would find them there. Merges that make one, or go on from one,
    go too. The unknown token stays: it is what the model answers, not what a text says. Added tokens that are not special
    keep their ids.
    """
    parsed = json.loads(body)
    model = parsed["model"]
    # A plain space hardly ever reaches a model: it is a Ġ or a ▁ by then, or words are split at it. Where it does, no text
    # holds this tokenizer's digest.
    out_of_reach = f" %s {hashlib.sha256(body.encode()).hexdigest()[:32]} "
    special = set(special_names(parsed))
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if not token["special"]]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {
            out_of_reach % name if name in special else name: number for name, number in vocabulary.items()
        }
        if "merges" in model:
            prefix = len(model.get("continuing_subword_prefix") or "")
            model["merges"] = [[a, b] for a, b in model["merges"] if special.isdisjoint((a, b, a + b[prefix:]))]
        for token in parsed["added_tokens"]:
            model["vocab"].setdefault(token["content"], token["id"])
    else:
        model["vocab"] = [[out_of_reach % name if name in special else name, score] for name, score in vocabulary]
        lowest = min((score for _, score in vocabulary), default=0.0)  # not less: an unknown letter costs by the least
        for token in sorted(parsed["added_tokens"], key=lambda token: int(token["id"])):
            while len(model["vocab"]) < token["id"]:
                model["vocab"].append([out_of_reach % len(model["vocab"]), lowest])
            if len(model["vocab"]) == token["id"]:
                model["vocab"].append([token["content"], lowest])
    return json.dumps(parsed, ensure_ascii=False)


def special_names(parsed: dict[str, Any]) -> list[str]:
    """The special tokens of a tokenizer.json, but for those a model gives for what it does not know: that one, and bytes."""
    answers = {unknown_token(parsed)}
    if parsed["model"].get("byte_fallback"):
        answers |= {f"<0x{byte:02X}>" for byte in range(256)}
    return [t["content"] for t in parsed["added_tokens"] or () if t["special"] and t["content"] not in answers]


def unknown_token(parsed: dict[str, Any]) -> str | None:
    """The name of the token a model gives for what it does not know."""
    model = parsed["model"]
    if model.get("unk_id") is not None and isinstance(model["vocab"], list):
        return str(model["vocab"][model["unk_id"]][0])
    name = model.get("unk_token")
    return None if name is None else str(name)


def _what_decides(body: str) -> Any:
    """The parts of a tokenizer.json that decide ids, without what only decides offsets or decoding."""
    parsed = json.loads(body)
    decides = {key: parsed.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return _without_offsets(decides)


def _without_offsets(part: Any) -> Any:
    if isinstance(part, dict):
        kept = {key: _without_offsets(value) for key, value in part.items() if key not in ("trim_offsets", "vocab")}
        if "vocab" in part:  # large, and plain already
            kept["vocab"] = part["vocab"]
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if kept.get(key) == "":
                kept[key] = None
        return kept
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return [_without_offsets(item) for item in part]
    return part
