"""The form in which `tokenizers` below 1.0 writes a tokenizer.json: every setting is there, and in one spelling."""

from __future__ import annotations

from typing import Any

_MODELS: dict[str, dict[str, Any]] = {
    "BPE": {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "Unigram": {"unk_id": None, "byte_fallback": False},
}
_STEPS: dict[str, dict[str, Any]] = {  # what files leave out
    "ByteLevel": {"use_regex": True},
    "Metaspace": {"prepend_scheme": "always", "split": True},
    "Punctuation": {"behavior": "Isolated"},
}
_NOT_WRITTEN = ("add_prefix_space", "str_rep")  # of Metaspace


def canonical(parsed: dict[str, Any], loaded: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json in the form of `tokenizers` below 1.0. `loaded` is what 1.0 has made of it.

    Both assign ids to the added tokens as they load them, and may change the last digit of a score.
    """
    model = _model(parsed["model"])
    if isinstance(model["vocab"], list):
        model["vocab"] = loaded["model"]["vocab"]
    return {
        **parsed,
        "added_tokens": loaded["added_tokens"],
        "normalizer": _steps(parsed.get("normalizer"), {}),
        "pre_tokenizer": _steps(parsed.get("pre_tokenizer"), _STEPS),
        "decoder": parsed.get("decoder"),
        "model": model,
    }


def _steps(step: dict[str, Any] | None, left_out: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    if step is None:
        return None
    for key in ("normalizers", "pretokenizers"):
        if step["type"] == "Sequence" and key in step:
            return {"type": "Sequence", key: [_steps(part, left_out) for part in step[key]]}
    dropped = _NOT_WRITTEN if step["type"] == "Metaspace" else ()
    return {**left_out.get(step["type"], {}), **{key: value for key, value in step.items() if key not in dropped}}


def _model(model: dict[str, Any]) -> dict[str, Any]:
    kind = model.get("type") or _kind(model)
    given = {key: value for key, value in model.items() if value is not None}
    result = {"type": kind, **_MODELS.get(kind, {}), **given}
    if "merges" in model:
        lines = (pair for pair in model["merges"] if not str(pair).startswith("#version"))
        result["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in lines]
    return result


def _kind(model: dict[str, Any]) -> str:
    """The kind of a model that does not name it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"
