"""Which tokenizer: from what the user named or passed to the files that decide its ids.

a path or folder        tokenizer.json, SentencePiece .model, tiktoken ranks, what tokenmill or transformers saved
a name on the Hub       gpt2, Qwen/Qwen3-0.6B-Base, with @revision
tiktoken:cl100k_base    an encoding of tiktoken by name
bytes                   every byte is an id
demo                    the small tokenizer that comes with the package
a store                 the tokenizer it was built with
an object               of tokenizers, transformers, tiktoken or sentencepiece
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenmill.encoding.conversion import sentencepiece_model, tiktoken_bpe
from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.resolve.folder import from_file, from_folder
from tokenmill.encoding.resolve.hub import fetch, hub_name
from tokenmill.encoding.resolve.objects import TokenizerFiles, from_object
from tokenmill.encoding.tokenizer_json import effective
from tokenmill.errors import MissingTokenizerError, TokenizerError, UsageError

__all__ = ["BUILT_IN", "DEMO_FOLDER", "TokenizerFiles", "define", "find"]

BUILT_IN = ("bytes", "demo")  # names that need no file and no connection
DEMO_FOLDER = Path(__file__).parents[2] / "data" / "demo_tokenizer"


def find(spec: Any) -> TokenizerFiles:
    """Find a tokenizer by name, path or object. A name on the Hub is downloaded, unless it is cached."""
    if not isinstance(spec, str | os.PathLike):
        return from_object(spec)
    name = os.fsdecode(spec)
    if not name.strip():
        raise UsageError("the tokenizer's name is empty; give a path, a name on the Hugging Face Hub, bytes or demo")
    if name in BUILT_IN and not os.path.exists(name):
        if name == "demo":
            return from_folder(name, DEMO_FOLDER)
        special = {"eos": "<|endoftext|>", "bos": "<|startoftext|>"}
        return TokenizerFiles("bytes", "definition", special=special, definition=bytes_definition())
    if re.fullmatch(r"[opr]\d+k_(base|edit|harmony)|cl100k_base", name) and not os.path.exists(name):
        name = f"tiktoken:{name}"
    if name.startswith("tiktoken:"):
        return TokenizerFiles(name, "ranks", tiktoken_bpe.named(name.removeprefix("tiktoken:")).to_files())
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return from_folder(name, path)
    if path.is_file():
        return from_file(name, path)
    hub = hub_name(name)
    if hub is None or isinstance(spec, os.PathLike):
        raise MissingTokenizerError(
            f"no tokenizer at {name}: give a tokenizer.json, a folder that holds one, a SentencePiece .model, a .tiktoken"
            " file, a name on the Hugging Face Hub (gpt2, org/model@revision), tiktoken:ENCODING, bytes or demo"
        )
    return from_folder(name, fetch(*hub))


def define(found: TokenizerFiles) -> Definition:
    """Parse what was found. Costs up to a few seconds for ranks and models, which have to be converted."""
    if found.definition is not None:
        return found.definition
    where = found.file or found.name
    if found.kind == "json":
        return Definition(effective(where, found.files["tokenizer.json"]), special=found.special)
    if found.kind == "ranks":
        ranks = tiktoken_bpe.Ranks.from_files(found.files)
        return Definition(_converted(tiktoken_bpe.tokenizer_json, ranks, found.name), "tiktoken", found.files)
    model = sentencepiece_model.read_model(found.files["tokenizer.model"], where)
    converted = _converted(sentencepiece_model.tokenizer_json, model, found.name)
    special = {**model.special_names, **found.special}
    return Definition(converted, "sentencepiece", found.files, special=special)


def _converted(convert: Callable[[Any], str | None], tokenizer: Any, name: str) -> str | None:
    """The effective tokenizer.json; None if only the tokenizer's own library can run it."""
    try:
        body = convert(tokenizer)
        return None if body is None else effective(name, body.encode())
    except TokenizerError:
        return None
