"""Which tokenizer: what the user named or holds becomes the files that decide its ids.

    a path or folder        tokenizer.json, SentencePiece .model, tiktoken ranks, what tokenmill or transformers saved
    a name on the Hub       gpt2, Qwen/Qwen3-0.6B-Base, with @revision
    tiktoken:cl100k_base    an encoding of tiktoken by name
    bytes                   every byte is an id
    an object               of tokenizers, transformers, tiktoken or sentencepiece

Nothing here runs code that comes with a model.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenmill.encoding.definition import Definition, bytes_definition, effective, load_definition
from tokenmill.errors import TokenizerError, UsageError

_CONFIG = "tokenizer_config.json"
# Files from which transformers makes a tokenizer where there is no tokenizer.json.
_SLOW_FILES = ("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", _CONFIG)
# Classes and kinds of models whose ids are those of their SentencePiece model. Others shift them, or change the text first.
_AS_THE_MODEL = ("llama", "codellama", "code_llama", "mistral", "mixtral", "gemma")
# What transformers writes into a configuration that says where it came from, and not what it is.
_ORIGIN = ("is_local", "local_files_only", "name_or_path", "transformers_version", "_commit_hash")
_OLD_KEY = "additional_special_tokens"  # written, as null, by one that was read from files
_BOTH = ("eos", "bos")


@dataclass(frozen=True)
class Found:
    """What was found: the contents that decide the ids, not yet looked into.

    `kind` is "json", "ranks", "sentencepiece" or "definition" (complete as it is). `special` has the names of eos and
    bos where files beside it, or the object, say so. `special_tokens` is the policy the object was made with. `live` is the
    slow tokenizer object, if that is what it was. `file` is what errors name, where it is not `name`.
    """

    name: str
    kind: str
    files: dict[str, bytes] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    definition: Definition | None = None
    special_tokens: str = "parse"
    live: Any = None
    file: str = ""


def find(spec: Any) -> Found:
    """Find a tokenizer by name, path or object."""
    if not isinstance(spec, str | os.PathLike):
        return _object(spec)
    name = os.fsdecode(spec)
    if not name.strip():
        raise UsageError("the tokenizer's name is empty; give a path, a name on the Hugging Face Hub, or bytes")
    if name == "bytes" and not os.path.exists(name):
        special = {"eos": "<|endoftext|>", "bos": "<|startoftext|>"}
        return Found("bytes", "definition", special=special, definition=bytes_definition())
    if name.startswith("tiktoken:"):
        from tokenmill.encoding.tiktoken_bpe import named

        return Found(name, "ranks", named(name.removeprefix("tiktoken:")).to_files())
    path = Path(name)
    if path.is_dir():
        return _folder(name, path)
    if path.is_file():
        return _file(name, path)
    from tokenmill.encoding.hub import fetch, hub_name

    hub = hub_name(name)
    if hub is None or isinstance(spec, os.PathLike):
        raise TokenizerError(
            f"no tokenizer at {name}: give a tokenizer.json, a folder that holds one, a SentencePiece .model, a .tiktoken"
            " file, a name on the Hugging Face Hub (gpt2, org/model@revision), tiktoken:ENCODING, or bytes"
        )
    return _folder(name, fetch(*hub))


def define(found: Found) -> Definition:
    """The effective tokenizer. Costs up to a few seconds for ranks and models, which have to be converted."""
    if found.definition is not None:
        return found.definition
    if found.kind == "ranks":
        from tokenmill.encoding.tiktoken_bpe import Ranks, tokenizer_json

        ranks = Ranks.from_files(found.files)
        try:
            made = effective(found.name, tokenizer_json(ranks).encode())
        except TokenizerError:  # a pattern that tokenizers cannot read: tiktoken alone runs it
            made = None
        return Definition(made, "tiktoken", found.files)
    if found.kind == "sentencepiece":
        from tokenmill.encoding.sentencepiece_model import special_names
        from tokenmill.encoding.sentencepiece_model import tokenizer_json as from_model

        model = found.files["tokenizer.model"]
        try:
            body = from_model(model)
            special = {**special_names(model), **found.special}
        except TokenizerError as error:
            raise TokenizerError(f"{found.file or found.name}: {error}") from error
        converted = None if body is None else effective(found.name, body.encode())
        return Definition(converted, "sentencepiece", found.files, special=special)
    return Definition(effective(found.file or found.name, found.files["tokenizer.json"]), special=found.special)


def _folder(name: str, folder: Path) -> Found:
    own = load_definition(folder)
    if own is not None:
        return Found(name, "definition", special=own.special, definition=own)
    special = _special_names(folder)
    body = folder / "tokenizer.json"
    if body.is_file():
        return Found(name, "json", {"tokenizer.json": _read(body)}, special, file=str(body))
    models = sorted([*folder.glob("*.model"), *folder.glob("*.model.v*"), *folder.glob("*.tiktoken")])
    if models:
        found = _file(name, models[0])
        if found.kind != "sentencepiece" or _is_whole(found.files["tokenizer.model"], folder):
            return replace(found, special={**found.special, **special})
    _refuse_remote_code(name, folder)
    if models or any((folder / file).is_file() for file in _SLOW_FILES):
        return _by_transformers(name, folder)
    listing = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise TokenizerError(
        f"no tokenizer.json in the folder {name}, nor another tokenizer; it holds {listing}. Give the folder or the file"
        " that holds the tokenizer"
    )


def _is_whole(model: bytes, folder: Path) -> bool:
    """Whether a SentencePiece model is all there is to a tokenizer, by what stands beside it.

    Classes of transformers may shift its ids (XLM-R's by one) or change the text first, code that comes with it may do
    anything, and tokens may be added to it. Who wants the model alone gives its path instead of the folder.
    """
    config = _config(folder / _CONFIG)
    kind = config.get("tokenizer_class") or _config(folder / "config.json").get("model_type") or _AS_THE_MODEL[0]
    decoder = config.get("added_tokens_decoder")
    entries = decoder.values() if isinstance(decoder, dict) else ()
    added = [str(entry.get("content", "")) for entry in entries if isinstance(entry, dict)]
    added += _config(folder / "added_tokens.json")
    from tokenmill.encoding.sentencepiece_model import piece_ids

    try:
        known = not added or piece_ids(model).keys() >= set(added)
    except TokenizerError:  # to be told of, with its path, where it is read in earnest
        return True
    return known and str(kind).lower().startswith(_AS_THE_MODEL) and not _has_code(folder)


def _file(name: str, path: Path) -> Found:
    """One file: what it is shows in its content more than in its name."""
    if path.name in _SLOW_FILES:
        raise TokenizerError(f"{name} is one of several files that make a tokenizer; give the folder they lie in")
    raw = _read(path)
    from tokenmill.encoding.tiktoken_bpe import from_rank_file, looks_like_ranks

    if path.suffix == ".tiktoken" or looks_like_ranks(raw):
        return Found(name, "ranks", from_rank_file(path, raw).to_files())
    if ".model" in path.name and raw.lstrip()[:1] != b"{":
        return Found(name, "sentencepiece", {"tokenizer.model": raw}, file=str(path))
    return Found(name, "json", {"tokenizer.json": raw}, _special_names(path.parent))


def _object(spec: Any) -> Found:
    """An object the user holds; known by its library, which is loaded already if the object exists."""
    kind = f"{type(spec).__module__}.{type(spec).__qualname__}"
    libraries = {name: sys.modules.get(name) for name in ("tokenizers", "transformers", "tiktoken", "sentencepiece")}
    if libraries["tokenizers"] and isinstance(spec, libraries["tokenizers"].Tokenizer):
        policy = "text" if spec.encode_special_tokens else "parse"
        return Found(f"<{kind}>", "json", {"tokenizer.json": _written(spec, kind)}, special_tokens=policy)
    if libraries["tiktoken"] and isinstance(spec, libraries["tiktoken"].Encoding):
        from tokenmill.encoding.tiktoken_bpe import from_encoding

        return Found(f"tiktoken:{spec.name}", "ranks", from_encoding(spec).to_files())
    if libraries["sentencepiece"] and isinstance(spec, libraries["sentencepiece"].SentencePieceProcessor):
        return Found(f"<{kind}>", "sentencepiece", {"tokenizer.model": spec.serialized_model_proto()})
    if libraries["transformers"]:
        from transformers import PreTrainedTokenizerBase

        if isinstance(spec, PreTrainedTokenizerBase):
            return _transformers_object(spec, spec.name_or_path or f"<{kind}>")
    raise UsageError(
        f"a {kind} is no tokenizer that tokenmill knows: give a path, a name, or an object of tokenizers, transformers,"
        " tiktoken or sentencepiece"
    )


def _transformers_object(spec: Any, name: str) -> Found:
    """A fast one is its backend, as it is now; a slow one is what it saves, and the class that reads it back."""
    special = {which: str(getattr(spec, f"{which}_token")) for which in _BOTH if getattr(spec, f"{which}_token")}
    policy = "text" if spec.split_special_tokens else "parse"
    backend = getattr(spec, "backend_tokenizer", None)
    if backend is not None:
        return Found(name, "json", {"tokenizer.json": _written(backend, name)}, special, special_tokens=policy)
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            spec.save_pretrained(folder)
        except Exception as error:
            raise TokenizerError(f"{name}: the slow tokenizer cannot be saved: {error}") from error
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
        config = {key: value for key, value in _config(Path(folder) / _CONFIG).items() if key not in _ORIGIN}
    if config.get(_OLD_KEY) is None:
        config.pop(_OLD_KEY, None)
    files[_CONFIG] = json.dumps(config, indent=1, sort_keys=True, ensure_ascii=False).encode()
    made = type(spec)
    definition = Definition(None, "python", files, policy, special, f"{made.__module__}:{made.__qualname__}")
    return Found(name, "definition", special=special, definition=definition, live=spec)


def _by_transformers(name: str, folder: Path) -> Found:
    """A folder with the files of an older format: transformers knows how to read them."""
    from tokenmill.encoding.transformers_slow import quiet_transformers

    with quiet_transformers(name) as transformers:
        try:
            loaded = transformers.AutoTokenizer.from_pretrained(
                str(folder), trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # transformers raises all kinds
            said = " ".join(str(error).split())[:200]
            raise TokenizerError(
                f"{name}: transformers cannot load it ({said}); is a file missing or damaged, or does neither"
                " tokenizer_config.json name the tokenizer_class nor config.json the model_type?"
            ) from error
    # Without its vocabulary, transformers makes a tokenizer of nothing but special tokens.
    names = {file for what, file in loaded.vocab_files_names.items() if not what.startswith("tokenizer_")}
    if names and not any((folder / file).is_file() and (folder / file).stat().st_size for file in names):
        raise TokenizerError(
            f"{name} has no vocabulary: {type(loaded).__name__} needs {', '.join(sorted(names))} there"
        )
    return _transformers_object(loaded, name)


def _has_code(folder: Path) -> bool:
    """Whether a model's tokenizer is code that comes with it."""
    maps = [_config(folder / file).get("auto_map") for file in (_CONFIG, "config.json")]
    return isinstance(maps[0], list) or any("AutoTokenizer" in of for of in maps if isinstance(of, dict))


def _refuse_remote_code(name: str, folder: Path) -> None:
    if _has_code(folder):
        raise TokenizerError(
            f"{name} comes with tokenizer code of its own, and has no tokenizer.json. tokenmill never runs such code"
            " (trust_remote_code stays off). Load it yourself, if you trust it, and pass the object; or save a"
            " tokenizer.json from it"
        )


def _written(tokenizer: Any, name: str) -> bytes:
    try:
        return str(tokenizer.to_str()).encode()
    except Exception as error:  # parts written in Python cannot be saved
        raise TokenizerError(
            f"{name} cannot be written as a tokenizer.json ({error}); parts written in Python are not supported"
        ) from error


def _special_names(folder: Path) -> dict[str, str]:
    """The names of eos and bos, from the files beside a tokenizer."""
    found: dict[str, str] = {}
    for file in (_CONFIG, "special_tokens_map.json"):
        config = _config(folder / file)
        for which in _BOTH:
            value = config.get(f"{which}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                found.setdefault(which, value)
    return found


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read(path))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}") from error
    if raw.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{path} is a Git LFS pointer, not the file itself; fetch that: git lfs pull")
    return raw
