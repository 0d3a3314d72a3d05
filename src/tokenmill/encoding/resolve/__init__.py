"""Which tokenizer: from what the user named or passed to the files that decide its ids.

a path or folder        tokenizer.json, SentencePiece .model, tiktoken ranks, what tokenmill or transformers saved
a name on the Hub       gpt2, Qwen/Qwen3-0.6B-Base, with @revision
tiktoken:cl100k_base    an encoding of tiktoken by name
bytes                   every byte is an id
demo                    the small tokenizer that comes with the package
an object               of tokenizers, transformers, tiktoken or sentencepiece
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tokenmill.encoding.definition import Definition, bytes_definition
from tokenmill.encoding.resolve.base import TokenizerFiles
from tokenmill.encoding.resolve.folder import from_file, from_folder
from tokenmill.encoding.tokenizer_json import effective
from tokenmill.errors import TokenizerError, UsageError

__all__ = ["BUILT_IN", "DEMO_FOLDER", "TokenizerFiles", "define", "find"]

BUILT_IN = ("bytes", "demo")  # names that need no file and no connection
DEMO_FOLDER = Path(__file__).parents[2] / "data" / "demo_tokenizer"


def find(spec: Any) -> TokenizerFiles:
    """Find a tokenizer by name, path or object. A name on the Hub is downloaded, unless it is cached."""
    if not isinstance(spec, str | os.PathLike):
        from tokenmill.encoding.resolve.objects import from_object

        return from_object(spec)
    name = os.fsdecode(spec)
    if not name.strip():
        raise UsageError("the tokenizer's name is empty; give a path, a name on the Hugging Face Hub, bytes or demo")
    if name in BUILT_IN and not os.path.exists(name):
        if name == "demo":
            return from_folder(name, DEMO_FOLDER)
        special = {"eos": "<|endoftext|>", "bos": "<|startoftext|>"}
        return TokenizerFiles("bytes", "definition", special=special, definition=bytes_definition())
    if name.startswith("tiktoken:"):
        from tokenmill.encoding.conversion import tiktoken_bpe

        return TokenizerFiles(name, "ranks", tiktoken_bpe.named(name.removeprefix("tiktoken:")).to_files())
    path = Path(name)
    if path.is_dir():
        return from_folder(name, path)
    if path.is_file():
        return from_file(name, path)
    from tokenmill.encoding.resolve.hub import fetch, hub_name

    hub = hub_name(name)
    if hub is None or isinstance(spec, os.PathLike):
        raise TokenizerError(
            f"no tokenizer at {name}: give a tokenizer.json, a folder that holds one, a SentencePiece .model, a .tiktoken"
            " file, a name on the Hugging Face Hub (gpt2, org/model@revision), tiktoken:ENCODING, bytes or demo"
        )
    return from_folder(name, fetch(*hub))


def define(found: TokenizerFiles) -> Definition:
    """Parse what was found. Costs up to a few seconds for ranks and models, which have to be converted."""
    if found.definition is not None:
        return found.definition
    if found.kind == "ranks":
        return _from_ranks(found)
    if found.kind == "sentencepiece":
        return _from_sentencepiece(found)
    return Definition(effective(found.file or found.name, found.files["tokenizer.json"]), special=found.special)


def _from_ranks(found: TokenizerFiles) -> Definition:
    from tokenmill.encoding.conversion import tiktoken_bpe

    ranks = tiktoken_bpe.Ranks.from_files(found.files)
    try:
        converted = effective(found.name, tiktoken_bpe.tokenizer_json(ranks).encode())
    except TokenizerError:  # tokenizers cannot read the pattern, so only tiktoken can run it
        converted = None
    return Definition(converted, "tiktoken", found.files)


def _from_sentencepiece(found: TokenizerFiles) -> Definition:
    from tokenmill.encoding.conversion import sentencepiece_model

    model = sentencepiece_model.read_model(found.files["tokenizer.model"], found.file or found.name)
    try:
        body = sentencepiece_model.tokenizer_json(model)
        converted = None if body is None else effective(found.name, body.encode())
    except TokenizerError:  # tokenizers cannot read it, so only sentencepiece can run it
        converted = None
    special = {**model.special_names(), **found.special}
    return Definition(converted, "sentencepiece", found.files, special=special)
