"""What was found for a tokenizer's name, path or object; and the tokenizer objects of other libraries."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenmill.encoding.conversion.tiktoken_bpe import from_encoding
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.hf_tokenizers import object_json
from tokenmill.errors import TokenizerError, WrongTypeError

CONFIG = "tokenizer_config.json"
ENDS = ("eos", "bos")
# Files beside a tokenizer that other tools read: they are kept as they came.
BESIDE = (CONFIG, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json")
# What transformers writes into a configuration about where it came from. It does not affect the tokenizer.
_ORIGIN = ("is_local", "local_files_only", "name_or_path", "transformers_version", "_commit_hash")
_OLD_KEY = "additional_special_tokens"  # written as null by a tokenizer that was read from files


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents that decide a tokenizer's ids, not parsed yet.

    `special` has the names of eos and bos, if files beside the tokenizer or the object name them. `definition` is set if
    `kind` is "definition". `special_tokens` is the policy the object was created with. `live` is the object itself, if it
    is a slow tokenizer. `file` is the path for error messages, if it is not `name`. `beside` are files as they came.
    """

    name: str
    kind: Literal["json", "ranks", "sentencepiece", "definition"]
    files: dict[str, bytes] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    definition: Definition | None = None
    special_tokens: str = "parse"
    live: Any = None
    file: str = ""
    beside: dict[str, bytes] = field(default_factory=dict)


def from_object(spec: Any) -> TokenizerFiles:
    """Take a tokenizer object. Its library has been imported already, or the object would not exist."""
    kind = f"{type(spec).__module__}.{type(spec).__qualname__}"
    if _is_a(spec, "tokenizers", "Tokenizer"):
        policy = "text" if getattr(spec, "encode_special_tokens", False) else "parse"
        return TokenizerFiles(f"<{kind}>", "json", {"tokenizer.json": _to_json(spec, kind)}, special_tokens=policy)
    if _is_a(spec, "tiktoken", "Encoding"):
        return TokenizerFiles(f"tiktoken:{spec.name}", "ranks", from_encoding(spec).to_files())
    if _is_a(spec, "sentencepiece", "SentencePieceProcessor"):
        return TokenizerFiles(f"<{kind}>", "sentencepiece", {"tokenizer.model": spec.serialized_model_proto()})
    if _is_a(spec, "transformers", "PreTrainedTokenizerBase"):
        return from_transformers(spec, spec.name_or_path or f"<{kind}>")
    raise WrongTypeError(
        f"tokenmill cannot use a {kind} as a tokenizer: give a path, a name, or an object of tokenizers, transformers,"
        " tiktoken or sentencepiece"
    )


def _is_a(spec: Any, library: str, name: str) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(spec, getattr(module, name))


def from_transformers(spec: Any, name: str) -> TokenizerFiles:
    """Take a tokenizer of transformers: the current backend of a fast one, the saved files and class of a slow one."""
    special = {which: str(getattr(spec, f"{which}_token")) for which in ENDS if getattr(spec, f"{which}_token")}
    policy = "text" if spec.split_special_tokens else "parse"
    with tempfile.TemporaryDirectory() as folder:
        try:
            spec.save_pretrained(folder)
        except Exception as error:
            raise TokenizerError(f"{name}: the tokenizer cannot be saved: {error}") from error
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
    config = {key: value for key, value in json.loads(files.get(CONFIG, b"{}")).items() if key not in _ORIGIN}
    if config.get(_OLD_KEY) is None:
        config.pop(_OLD_KEY, None)
    files[CONFIG] = json.dumps(config, indent=1, sort_keys=True, ensure_ascii=False).encode()
    backend = getattr(spec, "backend_tokenizer", None)
    if backend is not None:
        body, beside = (
            {"tokenizer.json": _to_json(backend, name)},
            {each: files[each] for each in BESIDE if each in files},
        )
        return TokenizerFiles(name, "json", body, special, special_tokens=policy, beside=beside)
    python_class = f"{type(spec).__module__}:{type(spec).__qualname__}"
    definition = Definition(None, "python", files, policy, special, python_class)
    return TokenizerFiles(name, "definition", special=special, definition=definition, live=spec)


def _to_json(tokenizer: Any, name: str) -> bytes:
    try:
        return object_json(tokenizer).encode()
    except Exception as error:  # components written in Python cannot be saved
        raise TokenizerError(
            f"{name} cannot be written as a tokenizer.json ({error}); components written in Python are not supported"
        ) from error
