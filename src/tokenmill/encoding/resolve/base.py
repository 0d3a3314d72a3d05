"""What was found for a tokenizer's name, path or object; and reading the files beside a tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenmill.encoding.definition import Definition
from tokenmill.errors import TokenizerError

CONFIG = "tokenizer_config.json"
ENDS = ("eos", "bos")


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents that decide a tokenizer's ids, not parsed yet.

    `special` has the names of eos and bos, if files beside the tokenizer or the object name them. `definition` is set if
    `kind` is "definition". `special_tokens` is the policy the object was created with. `live` is the object itself, if it
    is a slow tokenizer. `file` is the path for error messages, if it is not `name`.
    """

    name: str
    kind: Literal["json", "ranks", "sentencepiece", "definition"]
    files: dict[str, bytes] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    definition: Definition | None = None
    special_tokens: str = "parse"
    live: Any = None
    file: str = ""


def read_file(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error
    if raw.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{path} is a Git LFS pointer, not the file itself; fetch it: git lfs pull")
    return raw


def read_config(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if the file does not exist or is not an object."""
    if not path.is_file():
        return {}
    try:
        config = json.loads(read_file(path))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    return config if isinstance(config, dict) else {}
