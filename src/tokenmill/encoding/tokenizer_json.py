"""Reading and rewriting the tokenizer.json format of Hugging Face `tokenizers`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from tokenmill.encoding.hf_tokenizers import rewritten
from tokenmill.errors import TokenizerError

# Steps that know properties of characters, and what stands for such properties in regular expressions (white space is the same
# in all versions of Unicode). The lines of `tokenizers` have other versions, but agree on GPT-2's own way of splitting.
_BY_UNICODE = frozenset({
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "BertPreTokenizer", "Punctuation",
    "Whitespace", "UnicodeScripts",
})  # fmt: skip
_CLASSES = ("(?i", "\\p", "\\P", "\\w", "\\W", "\\d", "\\D", "[:")
BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


def effective(path: str, raw: bytes) -> str:
    """Remove truncation, padding, dropout and the post-processor; return the JSON in canonical form.

    `path` is only used in error messages.
    """
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
        return rewritten(json.dumps(parsed))
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error


def added_token(number: int, content: str, *, special: bool = False, normalized: bool = False) -> dict[str, Any]:
    """An entry of `added_tokens`. `normalized` ones are searched for after normalizing, which slows some engines down."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}
    return {"id": number, "content": content, **flags}


def steps(config: dict[str, Any] | None, sequence_key: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, which may be a sequence with its parts under this key."""
    if config is None:
        return []
    if config.get("type") == "Sequence":
        return [step for part in config[sequence_key] for step in steps(part, sequence_key)]
    return [config]


def steps_before_model(parsed: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the normalizer and the pre-tokenizer."""
    return steps(parsed.get("normalizer"), "normalizers") + steps(parsed.get("pre_tokenizer"), "pretokenizers")


@cache
def byte_alphabet() -> str:
    """The character for each byte in a byte-level vocabulary: itself if it is printable, otherwise one past 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    replacements = iter(range(256, 512))
    return "".join(chr(i) if i in printable else chr(next(replacements)) for i in range(256))


# From the alphabet to the characters 0 to 255; those of them that are not in the alphabet become one that is no byte.
_TO_BYTES = {**dict.fromkeys(range(256), 0xFFFF), **{ord(character): i for i, character in enumerate(byte_alphabet())}}


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token. A token with a character outside the alphabet is its own text."""
    try:
        return token.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def tokens_of(model: dict[str, Any]) -> Iterable[tuple[str, int]]:
    """The tokens of a model's vocabulary and their ids. A list has them in the order of their ids, with scores."""
    vocabulary = model["vocab"]
    return vocabulary.items() if isinstance(vocabulary, dict) else ((name, i) for i, (name, _) in enumerate(vocabulary))


def texts_of(parsed: dict[str, Any], names: list[str]) -> list[str]:
    """Tokens, or tokens joined, as text."""
    if '"ByteLevel"' in json.dumps([parsed["pre_tokenizer"], parsed["decoder"]]):
        names = [byte_level_bytes(name).decode(errors="ignore") for name in names]
    return [name.replace("▁", " ").removeprefix("##") for name in names]


def special_names(parsed: dict[str, Any], policy: str) -> list[str]:
    """The names of the special tokens; for "text", without those that the model needs for a character or byte."""
    names = [token["content"] for token in parsed["added_tokens"] or () if token["special"]]
    needed = _needed(parsed, names) if policy == "text" else set()
    return [name for name in names if name not in needed]


def produced_names(parsed: dict[str, Any]) -> set[str]:
    """The names of the special tokens that the model also produces for unknown text: the unknown token and bytes."""
    model = parsed["model"]
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None and isinstance(model["vocab"], list):
        unknown = model["vocab"][model["unk_id"]][0]
    return {unknown, *_byte_tokens(model)}.intersection(special_names(parsed, "parse"))


def _needed(parsed: dict[str, Any], names: list[str]) -> set[str]:
    """The names that are characters or bytes of the model, which could not encode that text without them."""
    model = parsed["model"]
    known = {name for name, _ in tokens_of(model)}
    prefix, suffix = (model.get(key) or "" for key in ("continuing_subword_prefix", "end_of_word_suffix"))
    bare = {name: name.removeprefix(prefix).removesuffix(suffix) or name for name in names if name in known}
    single = {name for name, character in bare.items() if len(character) == 1}
    if any(step["type"] == "ByteLevel" for step in steps_before_model(parsed)):
        return {name for name in single if bare[name] in byte_alphabet()}
    return single & {"▁"} if model.get("byte_fallback") else single  # other characters become bytes


def _byte_tokens(model: dict[str, Any]) -> set[str]:
    return set(BYTE_TOKENS) if model.get("byte_fallback") else set()


def without_specials(body: str) -> str:
    """The same tokenizer, except that the names of special tokens in a text are ordinary text.

    Special tokens are removed from the added tokens, and merges from or to one of them. Those that are also in the model's
    vocabulary keep their ids under names that no text contains, because a model that looks up whole words would find them
    there. What the model produces for unknown text, it still does.
    """
    parsed = json.loads(body)
    model, special = parsed["model"], set(special_names(parsed, "text"))
    # A plain space rarely reaches a model: it has become a Ġ or a ▁, or words are split at it. If it does, the digest of
    # the tokenizer is still in no text.
    unreachable = f" %s {hashlib.sha256(body.encode()).hexdigest()[:32]} "
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if not token["special"]]
    if "merges" in model:
        prefix = len(model.get("continuing_subword_prefix") or "")
        model["merges"] = [[a, b] for a, b in model["merges"] if special.isdisjoint((a, b, a + b[prefix:]))]
    hidden = {name: unreachable % name for name in special - _byte_tokens(model)}
    if "unk_token" in model:
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(name, name): number for name, number in model["vocab"].items()}
        for token in parsed["added_tokens"]:
            model["vocab"].setdefault(token["content"], token["id"])
        return json.dumps(parsed, ensure_ascii=False)
    # The lowest score, and not less: the cost of an unknown character depends on the minimum.
    lowest = min((score for _, score in model["vocab"]), default=0.0)
    model["vocab"] = [[hidden.get(name, name), score] for name, score in model["vocab"]]
    for token in sorted(parsed["added_tokens"], key=lambda token: int(token["id"])):
        for missing in range(len(model["vocab"]), token["id"]):
            model["vocab"].append([unreachable % missing, lowest])
        if len(model["vocab"]) == token["id"]:
            model["vocab"].append([token["content"], lowest])
    return json.dumps(parsed, ensure_ascii=False)


def only_added_tokens(parsed: dict[str, Any]) -> str:
    """A tokenizer.json that finds the same added tokens in a text and nothing else. Their ids are their positions, from 1 on."""
    added = [{**token, "id": i} for i, token in enumerate(parsed["added_tokens"], 1)]
    model = {"type": "BPE", "vocab": {"\0\0": 0}, "merges": []}  # an empty vocabulary is refused
    nothing = dict.fromkeys(("pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({**parsed, **nothing, "added_tokens": added, "model": model})


def differs_by_line(parsed: dict[str, Any]) -> bool:
    """Whether `tokenizers` below 1.0 and 1.0 are known to give other ids for some texts: they know other versions of Unicode."""
    before = steps_before_model(parsed)
    patterns = "".join(str(step["pattern"].get("Regex", "")) for step in before if "pattern" in step)
    by_unicode = any(step["type"] in _BY_UNICODE for step in before)
    return by_unicode or any(part in patterns for part in _CLASSES)


def what_decides_ids(body: str) -> Any:
    """The parts of a tokenizer.json that decide ids, without those that only affect offsets or decoding."""
    parsed = json.loads(body)
    return _without_offsets({key: parsed.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")})


def _without_offsets(part: Any) -> Any:
    if isinstance(part, dict):
        # A vocabulary is large, and has nothing to remove.
        kept = {key: value if key == "vocab" else _without_offsets(value) for key, value in part.items()}
        kept.pop("trim_offsets", None)
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if kept.get(key) == "":
                kept[key] = None
        return kept
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return [_without_offsets(item) for item in part]
    return part
