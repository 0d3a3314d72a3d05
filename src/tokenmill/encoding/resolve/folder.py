"""Tokenizers in a folder or a file. Nothing here runs code that comes with a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill.encoding.conversion.sentencepiece_model import read_model
from tokenmill.encoding.conversion.tiktoken_bpe import REST_FILE, from_rank_file, looks_like_ranks
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.libraries import quiet_transformers
from tokenmill.encoding.resolve.objects import BESIDE, CONFIG, ENDS, TokenizerFiles, from_transformers
from tokenmill.errors import TokenizerError

# Files from which transformers creates a tokenizer if there is no tokenizer.json.
_SLOW_FILES = ("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", CONFIG)
# Tokenizer classes and model types whose ids are those of their SentencePiece model. Others shift the ids, or change the
# text first.
_SAME_AS_MODEL = ("llama", "codellama", "code_llama", "mistral", "mixtral", "gemma")


LARGEST_BESIDE = 1 << 24  # bytes


def from_folder(name: str, folder: Path) -> TokenizerFiles:
    """Find the tokenizer in a folder: what tokenmill saved, a tokenizer.json, a model, or files for transformers."""
    body, own = folder / "tokenizer.json", load_definition(folder)
    if own is None and not body.is_file():
        own = load_definition(folder / "tokenizer")  # of a store
    if own is not None:
        return TokenizerFiles(name, "definition", special=own.special, definition=own)
    special = _special_names(folder)
    if body.is_file():
        return TokenizerFiles(
            name, "json", {"tokenizer.json": _read_file(body)}, special, file=str(body), beside=_beside(folder)
        )
    models = sorted([*folder.glob("*.model"), *folder.glob("*.model.v*"), *folder.glob("*.tiktoken")])
    if models:
        model = from_file(name, models[0])
        if model.kind != "sentencepiece" or _is_complete(model, folder):
            return replace(model, special=special, beside=_beside(folder))
    packed = folder / "tokenizer.json.gz"
    if packed.is_file():
        raise TokenizerError(f"{packed} is compressed with gzip; unpack it first: gunzip -k {packed}")
    if _has_code(folder):
        raise TokenizerError(
            f"{name} comes with tokenizer code of its own, and has no tokenizer.json. tokenmill never runs such code"
            " (trust_remote_code stays off). If you trust it, load it yourself and pass the object, or save a"
            " tokenizer.json from it"
        )
    if models or any((folder / file).is_file() for file in _SLOW_FILES):
        return _load_with_transformers(name, folder)
    listing = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise TokenizerError(
        f"no tokenizer.json in the folder {name}, nor another tokenizer; it holds {listing}. Give the folder or the file"
        " that holds the tokenizer"
    )


def from_file(name: str, path: Path) -> TokenizerFiles:
    """Read one file. Its content says what it is, more than its name."""
    if path.name in _SLOW_FILES:
        raise TokenizerError(f"{name} is one of several files of a tokenizer; give the folder that contains them")
    raw = _read_file(path)
    if path.suffix == ".tiktoken" or looks_like_ranks(raw):
        beside = path.with_name(REST_FILE)
        rest = _read_file(beside) if beside.is_file() else None
        return TokenizerFiles(name, "ranks", from_rank_file(path, raw, rest).to_files())
    if ".model" in path.name and raw.lstrip()[:1] != b"{":
        return TokenizerFiles(name, "sentencepiece", {"tokenizer.model": raw}, file=str(path))
    return TokenizerFiles(
        name, "json", {"tokenizer.json": raw}, _special_names(path.parent), beside=_beside(path.parent)
    )


def _is_complete(model: TokenizerFiles, folder: Path) -> bool:
    """Whether a SentencePiece model is the whole tokenizer, according to the files beside it.

    Classes of transformers may shift its ids (XLM-R by one) or change the text first, code that comes with it may do
    anything, and tokens may be added to it. To use the model alone, give its path instead of the folder.
    """
    config = _read_config(folder / CONFIG)
    model_type = _read_config(folder / "config.json").get("model_type")
    kind = config.get("tokenizer_class") or model_type or _SAME_AS_MODEL[0]
    decoder = config.get("added_tokens_decoder")
    entries = decoder.values() if isinstance(decoder, dict) else ()
    added = [str(entry.get("content", "")) for entry in entries if isinstance(entry, dict)]
    added += _read_config(folder / "added_tokens.json")
    if added and not set(added) <= set(read_model(model.files["tokenizer.model"], model.file).names):
        return False
    return str(kind).lower().startswith(_SAME_AS_MODEL) and not _has_code(folder)


def _has_code(folder: Path) -> bool:
    """Whether the tokenizer is code that comes with the model."""
    maps = [_read_config(folder / file).get("auto_map") for file in (CONFIG, "config.json")]
    return isinstance(maps[0], list) or any("AutoTokenizer" in entries for entries in maps if isinstance(entries, dict))


def _load_with_transformers(name: str, folder: Path) -> TokenizerFiles:
    with quiet_transformers(name) as transformers:
        try:
            load = transformers.AutoTokenizer.from_pretrained
            loaded = load(str(folder), trust_remote_code=False, local_files_only=True)
        except Exception as error:  # transformers raises exceptions of all kinds
            reason = " ".join(str(error).split())[:200]
            raise TokenizerError(
                f"{name}: transformers cannot load it ({reason}); is a file missing or damaged, or does neither"
                " tokenizer_config.json name the tokenizer_class nor config.json the model_type?"
            ) from error
    # If its vocabulary is missing, transformers creates a tokenizer with special tokens only.
    names = {file for what, file in loaded.vocab_files_names.items() if not what.startswith("tokenizer_")}
    if names and not any((folder / file).is_file() and (folder / file).stat().st_size for file in names):
        raise TokenizerError(f"{name} has no vocabulary: {type(loaded).__name__} needs {', '.join(sorted(names))}")
    return from_transformers(loaded, name)


def _special_names(folder: Path) -> dict[str, str]:
    """The names of eos and bos, from the files beside a tokenizer."""
    names: dict[str, str] = {}
    for file in (CONFIG, "special_tokens_map.json"):
        config = _read_config(folder / file)
        for which in ENDS:
            value = config.get(f"{which}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                names.setdefault(which, value)
    return names


def _beside(folder: Path) -> dict[str, bytes]:
    """The files beside a tokenizer that other tools read. Larger ones are something else."""
    paths = [folder / name for name in BESIDE]
    return {path.name: _read_file(path) for path in paths if path.is_file() and path.stat().st_size < LARGEST_BESIDE}


def _read_file(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error
    if raw.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{path} is a Git LFS pointer, not the file itself; fetch it: git lfs pull")
    return raw


def _read_config(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if the file does not exist or is not an object."""
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read_file(path))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    return config if isinstance(config, dict) else {}
