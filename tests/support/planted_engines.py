"""Engines that are each wrong in exactly one property, to test that a proof of the fast engine finds every one.

`plants` draws faults, `plant_engine` makes GigatokenEngine have one in this process, and `site` in the processes in
which an engine is examined. A planted engine gives the ids of `tokenizers`, except where its one wrong property
matters: there it gives what `tokenizers` gives for a tokenizer.json that is wrong in this way, or for a changed text.

    python tests/support/planted_engines.py --check

draws the faults of some seeds and shows that each of them is one.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import normalizers

import tokenmill
from tokenmill.encoding.conversion.tiktoken_patterns import KNOWN_SPELLINGS, O200K, QWEN
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines.base import Ids, Offsets, flatten
from tokenmill.encoding.engines.cpu import GigatokenEngine, TokenizersEngine
from tokenmill.encoding.gpu.patterns import _DEEPSEEK3_REGEXES
from tokenmill.encoding.tokenizer_json import added_token, byte_alphabet, byte_level_bytes, steps, without_specials

Json = dict[str, Any]
Wrong = Callable[[str], list[int] | None]  # the ids of a text; None where the engine is right

EXAMINED = "tokenmill.encoding.selection.examination"
DEMO = Path(tokenmill.__file__).parent / "data" / "demo_tokenizer" / "tokenizer.json"
GPT2, CL100K = dict.fromkeys(KNOWN_SPELLINGS.values())
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PATTERNS = {
    "gpt2": [GPT2],
    "cl100k": [CL100K],
    "llama3": [CL100K],
    "qwen": [QWEN],
    "qwen3.5": [QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")],
    "o200k": [O200K],
    # with line breaks as they are, as in the file of DeepSeek 3
    "deepseek": [regex.replace(r"\r", "\r").replace(r"\n", "\n") for regex in _DEEPSEEK3_REGEXES],
}
FLAGS: dict[str, list[str]] = {
    "<|im_start|>": ["special"],
    "<|left|>": ["lstrip"],
    "<|right|>": ["rstrip", "special"],
    "<|both|>": ["lstrip", "rstrip", "special"],
    "quokka": ["single_word"],
    "<think>": [],
    "<think>>": [],
    "cafe\u0301": ["normalized"],
    "na\u0131\u0308ve\u0301": [],
}
TOKENS = {
    "gpt2": ["<|im_start|>"],
    "cl100k": ["<|im_start|>", "<|left|>", "<|right|>", "<|both|>", "quokka", "<think>", "<think>>"],
    "llama3": ["<|im_start|>", "<think>"],
    "qwen": list(FLAGS),
    "deepseek": ["<|im_start|>", "<|both|>", "quokka"],
    "llama": ["<|left|>", "<|right|>", "quokka", "<think>", "<think>>"],
}
UNREACHABLE = ["Ġunreachable", "Qzx", "()))", "ĠĠĠ()"]  # words of a vocabulary that no merges lead to
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2005\u2007\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


# --- the tokenizers ---


@cache
def bases(demo_json: str) -> dict[str, str]:
    """Tokenizers of all families by name, as the text of a tokenizer.json, made from the demo tokenizer's."""
    made = {name: _byte_level(demo_json, name) for name in PATTERNS}
    made["llama"] = _llama(demo_json)
    return {name: json.dumps(body, ensure_ascii=False) for name, body in made.items()}


def _byte_level(demo_json: str, name: str) -> Json:
    body: Json = json.loads(demo_json)
    body["normalizer"] = {"type": "NFC"} if name.startswith("qwen") else None
    splits = [_split(regex) for regex in PATTERNS[name]]
    sequence = {"type": "Sequence", "pretokenizers": [*splits, BYTE_LEVEL]}
    body["pre_tokenizer"] = {**BYTE_LEVEL, "use_regex": True} if name == "gpt2" else sequence
    body["decoder"] = BYTE_LEVEL
    vocabulary = body["model"]["vocab"]
    if name in ("cl100k", "llama3"):
        vocabulary |= {word: len(vocabulary) + i for i, word in enumerate(UNREACHABLE)}
    body["model"]["ignore_merges"] = name == "llama3"
    body["added_tokens"] += _added(len(vocabulary), TOKENS.get(name, []))
    return body


def _split(regex: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _added(start: int, names: list[str]) -> list[Json]:
    return [{**added_token(start + i, name), **dict.fromkeys(FLAGS[name], True)} for i, name in enumerate(names)]


def _llama(demo_json: str) -> Json:
    """As Llama 2: the merges of the demo tokenizer that need only printable ASCII, with ▁ for Ġ."""
    body: Json = json.loads(demo_json)
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", *map(chr, range(33, 127)), *"éàüßñçøабвгαβγ中的"]
    merges = [[part.replace("Ġ", "▁") for part in merge] for merge in body["model"]["merges"]]
    known = set(names)
    kept = [[a, b] for a, b in merges if {a, b} <= known and not known.add(a + b)]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*names, *(a + b for a, b in kept)]))}
    body["model"] |= {
        "vocab": vocabulary,
        "merges": kept,
        "byte_fallback": True,
        "fuse_unk": True,
        "unk_token": "<unk>",
    }
    body["normalizer"] = {"type": "Sequence", "normalizers": [_prepend("▁"), _replace({"String": " "}, "▁")]}
    body["pre_tokenizer"] = None
    decoders = [_replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    body["decoder"] = {
        "type": "Sequence",
        "decoders": [*decoders, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
    }
    own = [added_token(i, name, special=True) for i, name in enumerate(names[:3])]
    body["added_tokens"] = own + _added(len(vocabulary), TOKENS["llama"])
    return body


def _prepend(text: str) -> Json:
    return {"type": "Prepend", "prepend": text}


def _replace(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}


@cache
def demo_bases() -> dict[str, str]:
    return bases(DEMO.read_text("utf-8"))


# --- plants, and engines made of them ---


@dataclass(frozen=True)
class Plant:
    """A fault. All of it can be written as JSON: `Plant(**asdict(plant))` in another process is the same.

    `fault` names the function that makes the engine wrong, and `parameters` are for that function. `example` is a
    batch of documents for which the engine gives wrong ids; `own` says whether it does with the vocabulary of the
    base, or only with one that has tokens for all parts of the example, see `revealing`. `special_tokens` is the
    policy for special tokens under which it does. `touches` is a regular expression of the texts that the fault may
    touch: with any other text it is right.
    """

    base: str
    kind: str
    fault: str
    description: str
    parameters: Json
    touches: str = ""
    special_tokens: str = "parse"
    example: list[str] = field(default_factory=list)
    own: bool = True


class Planted:
    """The planted engine for a definition."""

    def __init__(self, plant: Plant, definition: Definition) -> None:
        self._honest = TokenizersEngine(definition)
        self._plant, self._definition = plant, definition
        self._touches = re.compile(plant.touches) if plant.touches else None
        self._wrong: Wrong | None = None

    def encode(self, values: Any) -> tuple[Ids, Offsets]:
        texts = values.to_pylist()
        ids, offsets = self._honest.encode(values)
        documents = [ids[start:stop].tolist() for start, stop in pairwise(offsets)]
        if self._plant.fault in BATCHES:
            return flatten(BATCHES[self._plant.fault](texts, documents, **self._plant.parameters))
        touched = [i for i, text in enumerate(texts) if self._touches is None or self._touches.search(text)]
        for i in touched:
            documents[i] = self._wrongly(texts[i], documents[i])
        return flatten(documents) if touched else (ids, offsets)

    def _wrongly(self, text: str, right: list[int]) -> list[int]:
        if self._wrong is None:  # constructed when it is first needed
            self._wrong = FAULTS[self._plant.fault](self._definition, **self._plant.parameters)
        ids = self._wrong(text)
        return right if ids is None else ids


def plant_engine(plant: Plant) -> None:
    """Make GigatokenEngine wrong in this process, for every definition that it is constructed with from now on."""
    engine: Any = GigatokenEngine

    def construct(self: Any, definition: Definition) -> None:
        self._planted = Planted(plant, definition)

    def encode(self: Any, values: Any) -> tuple[Ids, Offsets]:
        result: tuple[Ids, Offsets] = self._planted.encode(values)
        return result

    engine.__init__, engine.encode = construct, encode


def site(folder: Path, plant: Plant) -> Path:
    """Create a folder for PYTHONPATH with which processes that examine engines find this fault in GigatokenEngine."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import json, sys\n"
        f"if {EXAMINED!r} in sys.orig_argv:\n"
        f"    sys.path.append({str(Path(__file__).resolve().parent)!r})\n"
        "    from planted_engines import Plant, plant_engine\n"
        f"    plant_engine(Plant(**json.loads({json.dumps(asdict(plant))!r})))\n",
        "utf-8",
    )
    return folder


def definition_of(plant: Plant) -> Definition:
    """A definition with which the planted engine is wrong for the plant's example."""
    body = demo_bases()[plant.base]
    return Definition(body if plant.own else revealing(body, plant.example[0]), special_tokens=plant.special_tokens)


def revealing(body: str, text: str) -> str:
    """The same tokenizer with a vocabulary in which every part of a short text is a token, whatever it is split into.

    So the ids show where the text is split. The added tokens are left out. For byte-level tokenizers only.
    """
    parsed: Json = json.loads(body)
    whole = "".join(byte_alphabet()[byte] for byte in _normalize(parsed, text).encode())
    parts = sorted(
        {whole[i:j] for i in range(len(whole)) for j in range(i + 2, len(whole) + 1)}, key=lambda p: (len(p), p)
    )
    vocabulary = {name: i for i, name in enumerate([*byte_alphabet(), *parts])}
    merges = [[part[:i], part[i:]] for part in parts for i in range(1, len(part))]
    parsed["model"] |= {"vocab": vocabulary, "merges": merges}
    parsed["added_tokens"] = []
    return json.dumps(parsed, ensure_ascii=False)


def _normalize(parsed: Json, text: str) -> str:
    return text if parsed["normalizer"] is None else str(normalizers.NFC().normalize_str(text))


def _parsed(body: str | None) -> Json:
    """A tokenizer.json with all that may be left out of one."""
    parsed: Json = {"normalizer": None, "pre_tokenizer": None, **json.loads(body or "")}
    parsed["added_tokens"] = parsed.get("added_tokens") or []
    model = {"merges": [], "unk_token": None, "byte_fallback": False, "ignore_merges": False, **parsed["model"]}
    model["merges"] = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    return {**parsed, "model": model}


def _encoder(made: Any) -> Callable[[str], list[int]]:
    """The function from a text to ids of a tokenizer, which may be given as JSON."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(made)) if isinstance(made, dict) else made
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _changed(definition: Definition, change: Callable[[Json], None]) -> Wrong:
    """What `tokenizers` gives with another tokenizer.json. Special tokens are as in the definition."""
    parsed = _parsed(definition.json)
    change(parsed)
    return _encoder(json.loads(without_specials(json.dumps(parsed))) if definition.special_tokens == "text" else parsed)


def _right(definition: Definition) -> Callable[[str], list[int]]:
    return _encoder(json.loads(definition.engine_json))


# --- faults of the pattern: classes of characters, quantifiers ---

_ATOM = re.compile(r"\\p\{(\w+)\}|\\s|\\S|\\r\\n| \?|\[A-Za-z\]|\[一-龥぀-ゟ゠-ヿ\]")
_CLASSES = {r"\s": ("white space", "newline", "space"), r"\r\n": ("newline",), " ?": ("space",)}


def reclassified(regex: str, character: str, taken: str) -> str:
    """A pattern in which a character belongs to another class: a general category, or one of `TAKEN`."""
    one = rf"\x{{{ord(character):X}}}"

    def atom(match: re.Match[str]) -> str:
        found, category = match[0], match[1]
        if found == r"\S":
            return rf"[^{atom(_ATOM.match(BACKSLASH_S))}]"  # type: ignore[arg-type]
        if found[:2] == "[A" or found[:2] == "[一":
            named = {"A": "ASCII letter", "一": "kanji"}[found[1]]
            return found if named not in taken else f"[{found}&&[^{one}]]" if "not" in taken else f"{found[:-1]}{one}]"
        if taken in SPECIAL_CLASSES:
            return found
        is_in = taken in (category, category + "x") or taken[0] == category if category else taken in _CLASSES[found]
        if found == " ?":
            return f"[ {one}]?" if is_in and character != " " else "" if character == " " and not is_in else found
        if found == r"\r\n":  # always in brackets
            return found.replace({"\r": r"\r", "\n": r"\n"}.get(character, "-"), "") if not is_in else found + one
        return f"[{found}{one}]" if is_in else f"[{found}&&[^{one}]]"

    return _ATOM.sub(atom, regex)


BACKSLASH_S = r"\s"
SPECIAL_CLASSES = ("kanji", "not kanji", "ASCII letter", "not ASCII letter")
TAKEN = ("Lu", "Ll", "Lo", "Lm", "Mn", "Nd", "No", "Po", "Sm", "So", "Cf", "white space", "newline", "space")


def _change_regexes(parsed: Json, change: Callable[[str], str]) -> None:
    """Change the regular expressions of a pre-tokenizer. That of ByteLevel is written out first."""
    parts: list[Json] = []
    for part in steps(parsed["pre_tokenizer"], "pretokenizers"):
        if part["type"] == "ByteLevel" and part["use_regex"]:
            parts.append(_split(GPT2))
        parts.append({**part, "use_regex": False} if part["type"] == "ByteLevel" else part)
    for part in parts:
        regex = part.get("pattern", {}).get("Regex")
        if regex:
            part["pattern"] = {"Regex": change(regex.replace("\r", r"\r").replace("\n", r"\n"))}
    if parts:
        parsed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}


def _of_regexes(fault: str, parameters: Json) -> Callable[[str], str]:
    """What a fault of the pattern does to every regular expression."""
    if fault == "class":
        return lambda regex: reclassified(regex, parameters["character"], parameters["taken"])
    return lambda regex: regex.replace(parameters["old"], parameters["new"])


def _class(definition: Definition, **parameters: str) -> Wrong:
    return _changed(definition, lambda parsed: _change_regexes(parsed, _of_regexes("class", parameters)))


def _pattern(definition: Definition, **parameters: str) -> Wrong:
    return _changed(definition, lambda parsed: _change_regexes(parsed, _of_regexes("pattern", parameters)))


# --- faults of NFC ---


def nfc(text: str, classes: Json, singles: Json, pairs: Json) -> str:
    """NFC with combining classes, decompositions and compositions of one's own where they are given."""
    parts = [part for character in text for part in singles.get(character) or unicodedata.normalize("NFD", character)]

    def of(character: str) -> int:
        return int(classes.get(character, unicodedata.combining(character)))

    ordered: list[str] = []
    marks: list[str] = []
    for part in parts:
        if of(part):
            marks.append(part)
        else:
            ordered += [*sorted(marks, key=of), part]
            marks = []
    ordered += sorted(marks, key=of)
    composed: list[str] = []
    starter, last = -1, 0
    for part in ordered:
        if starter >= 0 and (starter == len(composed) - 1 or last < of(part)):
            pair = composed[starter] + part
            found = pairs[pair] if pair in pairs else _composite(pair)
            if found:
                composed[starter] = found
                continue
        if not of(part):
            starter = len(composed)
        last = of(part)
        composed.append(part)
    return "".join(composed)


@lru_cache(4096)
def _composite(pair: str) -> str:
    found = unicodedata.normalize("NFC", pair)
    if len(found) != 1:
        return ""
    is_primary = unicodedata.decomposition(found) == " ".join(f"{ord(part):04X}" for part in pair)
    return found if is_primary or "가" <= found <= "힣" else ""


class _Normalizer:
    """A normalizer for `tokenizers` that does NFC wrongly. Where it is not sure what is right, it does it rightly."""

    def __init__(self, classes: Json, singles: Json, pairs: Json) -> None:
        self._tables = (classes, singles, pairs)
        self._right = normalizers.NFC()
        self._matter = {key[-1] for table in self._tables for key in table}

    def normalize(self, normalized: Any) -> None:
        text = str(normalized.normalized)
        right = wrong = self._right.normalize_str(text)
        may_matter = not self._matter.isdisjoint(text) or not self._matter.isdisjoint(
            unicodedata.normalize("NFD", text)
        )
        if may_matter and nfc(text, {}, {}, {}) == right:
            wrong = nfc(text, *self._tables)
        if wrong != text:
            normalized.replace(tokenizers.Regex(r"\A[\s\S]+\z"), wrong)


def _nfc(definition: Definition, classes: Json, singles: Json, pairs: Json) -> Wrong:
    parsed = _parsed(definition.engine_json)
    if [step["type"] for step in steps(parsed["normalizer"], "normalizers")] != ["NFC"]:
        return lambda text: None
    tokenizer = tokenizers.Tokenizer.from_str(definition.engine_json)
    tokenizer.normalizer = normalizers.Normalizer.custom(_Normalizer(classes, singles, pairs))
    return _encoder(tokenizer)


def _first_replaced(definition: Definition, pattern: str, content: str) -> Wrong:
    """A normalizer that begins with one replacement more."""

    def change(parsed: Json) -> None:
        more = [_replace({"Regex": pattern}, content), *steps(parsed["normalizer"], "normalizers")]
        parsed["normalizer"] = {"type": "Sequence", "normalizers": more}

    return _changed(definition, change)


# --- faults of added tokens ---


def _like(parsed: Json, token: Json) -> Json | None:
    """The added token of this name; otherwise the first with the same flags."""
    flags = {key: value for key, value in token.items() if key not in ("id", "content")}
    added: list[Json] = parsed["added_tokens"]
    named = [each for each in added if each["content"] == token["content"]]
    return next(iter(named + [each for each in added if flags.items() <= each.items()]), None)


def _flag(definition: Definition, token: Json, flag: str) -> Wrong:
    def change(parsed: Json) -> None:
        if found := _like(parsed, token):
            found[flag] = not found[flag]

    return _changed(definition, change)


def _without(token: Json) -> Callable[[Json], None]:
    """Remove an added token."""

    def change(parsed: Json) -> None:
        parsed["added_tokens"] = [each for each in parsed["added_tokens"] if each["content"] != token["content"]]

    return change


def _lost(definition: Definition, token: Json) -> Wrong:
    """A text in which the token directly follows an added token is encoded as if it were ordinary text."""
    found = _like(_parsed(definition.json), token)
    if found is None:
        return lambda text: None
    after = [re.escape(each["content"] + found["content"]) for each in definition.added]
    wrong = _changed(definition, _without(found))
    return lambda text: wrong(text) if re.search("|".join(after), text) else None


def _shorter(definition: Definition) -> Wrong:
    """Tokens that begin with another token are not found."""
    names = [each["content"] for each in definition.added]
    longer = [
        each for each in definition.added if any(each["content"] != n and each["content"].startswith(n) for n in names)
    ]

    def change(parsed: Json) -> None:
        parsed["added_tokens"] = [each for each in parsed["added_tokens"] if each not in longer]

    return _changed(definition, change)


def _strips(definition: Definition, character: str, seen: bool) -> Wrong:
    """lstrip and rstrip take a character for white space, or do not."""
    encode = _right(definition)
    by_flag = {flag: _any(each["content"] for each in definition.added if each[flag]) for flag in ("lstrip", "rstrip")}
    white = f"[{re.escape(WHITE + character)}]"
    if seen:  # it disappears next to such a token
        before, after = re.compile(f"{white}+(?={by_flag['lstrip']})"), re.compile(f"({by_flag['rstrip']}){white}+")
        return lambda text: encode(after.sub(r"\1", before.sub("", text)))
    one = re.escape(character)
    ends = re.compile(f"{one}(?={white}*{by_flag['lstrip']})|{by_flag['rstrip']}{white}*?(?={one})")
    return lambda text: _in_parts(encode, text, [match.end() for match in ends.finditer(text)])


def _single(definition: Definition, character: str, seen: bool) -> Wrong:
    """single_word takes a character for one of a word, or does not."""
    encode, single = _right(definition), [each for each in definition.added if each["single_word"]]
    words, one = _any(each["content"] for each in single), re.escape(character)
    if not seen:
        ends = re.compile(f"{one}(?={words})|{words}(?={one})")
        return lambda text: _in_parts(encode, text, [match.end() for match in ends.finditer(text)])
    names = [each["content"] for each in single]
    wrong = _changed(
        definition,
        lambda parsed: parsed.update(added_tokens=[e for e in parsed["added_tokens"] if e["content"] not in names]),
    )
    beside = re.compile(f"{one}{words}|{words}{one}")
    return lambda text: wrong(text) if beside.search(text) else None


def _any(names: Iterable[str]) -> str:
    """A regular expression for any of these texts; for none, one that matches nothing."""
    return f"(?:{'|'.join(map(re.escape, names)) or '(?!)'})"


def _in_parts(encode: Callable[[str], list[int]], text: str, ends: list[int]) -> list[int]:
    return [
        number for start, end in zip([0, *ends], [*ends, len(text)], strict=True) for number in encode(text[start:end])
    ]


# --- faults of the model ---


def _missing(definition: Definition, at: float) -> Wrong:
    """A merge is missing: the one at this fraction of the list."""

    def change(parsed: Json) -> None:
        place = int(at * len(parsed["model"]["merges"]))
        del parsed["model"]["merges"][place : place + 1]

    return _changed(definition, change)


def competing(merges: list[list[str]], at: float) -> int:
    """The first of two adjacent merges that compete for a token, searched for from a fraction of the list; or -1."""
    start, count = int(at * len(merges)), len(merges)
    for i in [*range(start, count - 1), *range(min(start, count - 1))]:
        (a, b), (c, d) = merges[i], merges[i + 1]
        if (b == c and [a, b] != [c, d]) or d == a:
            return i
    return -1


def _swapped(definition: Definition, at: float) -> Wrong:
    def change(parsed: Json) -> None:
        merges = parsed["model"]["merges"]
        if (i := competing(merges, at)) >= 0:
            merges[i], merges[i + 1] = merges[i + 1], merges[i]

    return _changed(definition, change)


def _by_word(definition: Definition, wrong: Callable[[str, list[int]], list[int]]) -> Wrong:
    """Words are encoded by a function of their text, in the alphabet of the vocabulary, and of their right ids."""
    tokenizer = tokenizers.Tokenizer.from_str(definition.engine_json)
    model: Json = _parsed(definition.engine_json)["model"]
    names = {number: name for name, number in model["vocab"].items()}
    atoms = {model["vocab"].get(name) for name in [model["unk_token"], *(f"<0x{byte:02X}>" for byte in range(256))]}
    exempt = atoms | {each["id"] for each in definition.added}

    def encode(text: str) -> list[int]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        words: dict[Any, list[int]] = {}
        for i, (number, word) in enumerate(zip(encoding.ids, encoding.word_ids, strict=True)):
            words.setdefault(i if word is None else ("word", word), []).append(number)
        return [
            number
            for ids in words.values()
            for number in (ids if not exempt.isdisjoint(ids) else wrong("".join(names[i] for i in ids), ids))
        ]

    return encode


def _model_only(model: Json) -> Callable[[str], list[int]]:
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"))
    return _encoder({"version": "1.0", **empty, "added_tokens": [], "model": model})


def _ties(definition: Definition) -> Wrong:
    """Of equal merges the last is done first: the words and all tokens are reversed."""
    model: Json = _parsed(definition.engine_json)["model"]
    model["vocab"] = {name[::-1]: number for name, number in model["vocab"].items()}
    model["merges"] = [[second[::-1], first[::-1]] for first, second in model["merges"]]
    model["unk_token"], model["byte_fallback"] = None, False
    encode = _model_only(model)
    return _by_word(definition, lambda word, ids: encode(word[::-1])[::-1])


def _long_words(definition: Definition, length: int) -> Wrong:
    """Words of more bytes than this are merged in two parts; without a byte-level alphabet, of more characters."""
    encode = _model_only(_parsed(definition.engine_json)["model"])
    return _by_word(
        definition, lambda word, ids: encode(word[:length]) + encode(word[length:]) if len(word) > length else ids
    )


def _ignore_merges(definition: Definition) -> Wrong:
    def change(parsed: Json) -> None:
        parsed["model"]["ignore_merges"] = not parsed["model"]["ignore_merges"]

    return _changed(definition, change)


def _entry(definition: Definition, at: float, other: float) -> Wrong:
    """A token has the id of another; both are at fractions of the vocabulary."""
    vocabulary = sorted(_parsed(definition.engine_json)["model"]["vocab"].values())
    old, new = (vocabulary[int(fraction * len(vocabulary))] for fraction in (at, other))
    encode = _right(definition)
    return lambda text: [new if number == old else number for number in encode(text)]


def _byte(definition: Definition, byte: int, other: int) -> Wrong:
    """A byte has the token of another byte."""
    vocabulary = _parsed(definition.engine_json)["model"]["vocab"]
    old, new = vocabulary.get(f"<0x{byte:02X}>"), vocabulary.get(f"<0x{other:02X}>")
    encode = _right(definition)
    return lambda text: (
        None if old is None or new is None else [new if number == old else number for number in encode(text)]
    )


def _unknown(definition: Definition, character: str) -> Wrong:
    """A character that becomes bytes becomes the unknown token."""
    model = _parsed(definition.engine_json)["model"]
    vocabulary, encode = model["vocab"], _right(definition)
    sought = [vocabulary.get(f"<0x{byte:02X}>") for byte in character.encode()]
    unknown = vocabulary.get(model["unk_token"])
    if not model["byte_fallback"] or None in sought or unknown is None or character in vocabulary:
        return lambda text: None

    def wrong(text: str) -> list[int]:
        found: list[int] = []
        for number in encode(text):
            found.append(number)
            if found[-len(sought) :] == sought:
                found[-len(sought) :] = [unknown]
        return found

    return wrong


# --- faults of batches ---


def _last(texts: list[str], right: list[list[int]], count: int) -> list[list[int]]:
    """The last document of a batch of more than `count` loses its last id."""
    return [*right[:-1], right[-1][:-1]] if len(texts) > count else right


def _empty(texts: list[str], right: list[list[int]], number: int) -> list[list[int]]:
    """An empty document has an id."""
    return [ids if text else [number] for text, ids in zip(texts, right, strict=True)]


def _multiple(texts: list[str], right: list[list[int]], length: int) -> list[list[int]]:
    """A document loses its last id if it ends in white space and its length is a multiple of `length` bytes."""
    lengths = [len(text.encode()) if text[-1:].isspace() else -1 for text in texts]
    return [ids if n < 0 or n % length else ids[:-1] for n, ids in zip(lengths, right, strict=True)]


def _longer(texts: list[str], right: list[list[int]], length: int) -> list[list[int]]:
    """A document of more than `length` bytes has its last two ids in the wrong order."""
    return [
        ids if len(text.encode()) <= length else [*ids[:-2], *ids[:-3:-1]]
        for text, ids in zip(texts, right, strict=True)
    ]


FAULTS: dict[str, Callable[..., Wrong]] = {
    "class": _class,
    "pattern": _pattern,
    "nfc": _nfc,
    "replacement": _first_replaced,
    "flag": _flag,
    "lost": _lost,
    "shorter": _shorter,
    "strips": _strips,
    "single": _single,
    "missing": _missing,
    "swapped": _swapped,
    "ties": _ties,
    "long words": _long_words,
    "ignore_merges": _ignore_merges,
    "entry": _entry,
    "byte": _byte,
    "unknown": _unknown,
}
BATCHES: dict[str, Callable[..., list[list[int]]]] = {
    "last": _last,
    "empty": _empty,
    "multiple": _multiple,
    "longer": _longer,
}


# --- drawing plants ---

MARKS = "\u0334\u093c\u3099\u094d\u05b0\u0327\u031b\u302a\u0323\u0301\u0308\u0315\u035c\u0345"
AROUND = [
    "", "a", "A", "ab", "1", "12", "1234", " ", "  ", " a", "a ", ".", "!?", "\n", " \n", "\r\n ", "'s", "中文", "한",
    "я", "e\u0301",
]  # fmt: skip
CONTRACTIONS = ["s", "t", "re", "ve", "m", "ll", "d"]
EDITS = [  # a part of a pattern, what it is instead, in words
    (r"\p{N}{1,3}", r"\p{N}{1,2}", "groups of two digits instead of three"),
    (r"\p{N}{1,3}", r"\p{N}{1,4}", "groups of four digits instead of three"),
    (r"\p{N}{1,3}", r"\p{N}", "digits one by one instead of three"),
    (r"\p{N}{1,3}", r"\p{N}+", "runs of digits instead of three"),
    (r"|\p{N}|", r"|\p{N}{1,2}|", "groups of two digits instead of one"),
    (r"|\p{N}|", r"|\p{N}{1,3}|", "groups of three digits instead of one"),
    (r"\s+(?!\S)|", "", "white space without its look-ahead"),
    (r"\s+(?!\S)", r"\s+(?=\s)", "white space at the end of a text is split"),
    (r"\s+(?!\S)", r"\s{2,}(?!\S)", "a single white space with its look-ahead fails"),
    ("?i:", "?:", "contractions in lower case only"),
    ("(?i:'s", "(?i:'(?-i:[sS])", "no contraction with the long s"),
    ("'s|'t|'re|'ve|'m|'ll|'d| ", "(?i:'s|'t|'re|'ve|'m|'ll|'d)| ", "contractions in any case"),
    ("'s|'t|'re|'ve|'m|'ll|'d| ", "'[sſ]|'t|'re|'ve|'m|'ll|'d| ", "a contraction with the long s"),
    *((f"'{end}|", "", f"the contraction '{end} is missing") for end in CONTRACTIONS[:-1]),
    ("|'d", "", "the contraction 'd is missing"),
    ("|'d", "|'d|'n", "a contraction 'n too many"),
    (r" ?\p{L}", r" {0,2}\p{L}", "two spaces before a word"),
    (r" ?\p{N}", r" {0,2}\p{N}", "two spaces before a number"),
    (r" ?[^\s", r" {0,2}[^\s", "two spaces before punctuation"),
    (r" ?[\p{P}", r" {0,2}[\p{P}", "two spaces before punctuation"),
    (r" ?[^\s", r"[^\s", "no space before punctuation"),
    (r"[\r\n]*", r"[\r\n]?", "only one line break after punctuation"),
    (r"[\r\n]*", "", "no line break after punctuation"),
    (r"[\r\n]*", r"\n*", "no carriage return after punctuation"),
    (r"[\r\n/]*", r"[\r\n]*", "no slash after punctuation and a line break"),
    (r"[\r\n/]*", r"[\r\n/]?", "only one line break or slash after punctuation"),
    (r"\s*[\r\n]+", r"\s*[\r\n]", "only one line break"),
    (r"\s*[\r\n]+", r"[\r\n]+", "no white space before line breaks"),
    (r"\s*[\r\n]+", r"\s*\n+", "a carriage return is no line break"),
    (r"[^\r\n\p{L}\p{N}]?", " ?", "only a space before a word"),
    (r"[^\r\n\p{L}\p{N}]?", r"[^\r\n\p{L}\p{N}]{0,2}", "two characters before a word"),
    (r"[^\r\n\p{L}\p{P}\p{S}]?", " ?", "only a space before a word"),
]
RUNS = [  # a part of a pattern that is repeated, in words
    (r"\p{L}+", "letters"),
    (r"[\p{L}\p{M}]+", "letters and marks"),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", "lower case"),
    (r"[^\s\p{L}\p{N}]+", "punctuation"),
    (r"[^\s\p{L}\p{M}\p{N}]+", "punctuation"),
    (r"[\p{P}\p{S}]+", "punctuation"),
    (r"\s+(?!\S)", "white space"),
    (r"?\p{N}+", "digits"),
    (r"[一-龥぀-ゟ゠-ヿ]+", "kanji"),
    (r"[A-Za-z]+", "ASCII letters"),
]
SENTENCE_PIECE = [  # what is replaced first, by what, in words
    ("▁", "▁▁", "the character ▁ is doubled"),
    ("▁", "", "the character ▁ is dropped"),
    ("▁", "_", "the character ▁ is an underscore"),
    (" {2,}", " ", "several spaces are one"),
    (" {3}", "  ", "three spaces are two"),
    (r"\A ", "", "a leading space is dropped"),
    (r"\A +", "", "leading spaces are dropped"),
    (r" \z", "", "a space at the end is dropped"),
    *((rf"\x{{{ord(c):X}}}", " ", f"U+{ord(c):04X} is a space") for c in WHITE if c != " "),
    *((rf"\x{{{ord(c):X}}}", "", f"U+{ord(c):04X} is dropped") for c in "\xad\u200b\u200d\ufe0f\ufeff\x00\x7f"),
]
Drawn = tuple[Plant, Iterable[str | list[str]]]  # and the texts or batches among which one may show it


@cache
def _characters() -> list[list[str]]:
    """The assigned characters by general category and plane, with those of CJK and Hangul apart."""
    groups: dict[Any, list[str]] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        category = unicodedata.category(character)
        if category not in ("Cn", "Cs", "Co"):
            script = next(
                (s for s in ("CJK", "HANGUL", "EGYPTIAN") if unicodedata.name(character, "").startswith(s)), ""
            )
            groups.setdefault((category, script, character > "\uffff", character < "\x80"), []).append(character)
    return list(groups.values())


@cache
def _marks() -> list[str]:
    return [character for group in _characters() for character in group if unicodedata.combining(character)]


@cache
def _decomposed() -> list[str]:
    """The characters that have a canonical decomposition, with two Hangul syllables."""
    found = [c for group in _characters() for c in group if unicodedata.decomposition(c)[:1] not in ("", "<")]
    return [*found, "가", "힣"]


def _draw(rng: random.Random) -> str:
    return rng.choice(rng.choice(_characters()))


def _named(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control')}"


def _near(character: str) -> Iterator[str]:
    for inside in (character, character * 2):
        yield from (before + inside + after for before in AROUND for after in AROUND)


def _class_of(base: str, character: str, taken: str) -> Drawn:
    may_be_composed = base.startswith("qwen") and unicodedata.normalize("NFD", character) != character
    described = f"{_named(character)} ({unicodedata.category(character)}) is taken for {taken}"
    parameters = {"character": character, "taken": taken}
    touches = "" if may_be_composed else re.escape(character)
    return Plant(base, "class", "class", described, parameters, touches), _near(character)


def _any_class(rng: random.Random) -> Drawn:
    return _class_of(rng.choice(list(PATTERNS)), _draw(rng), rng.choice(TAKEN))


def _white_class(rng: random.Random) -> Drawn:
    others = ["white space", "newline", "space", "Cf", "Po", "Lo"]
    return _class_of(rng.choice(list(PATTERNS)), rng.choice(WHITE + "\x1c\u180e\u200b\ufeff"), rng.choice(others))


def _case_class(rng: random.Random) -> Drawn:
    cased = [group for group in _characters() if unicodedata.category(group[0]) in ("Lu", "Ll", "Lt", "Lm")]
    return _class_of("o200k", rng.choice(rng.choice(cased)), rng.choice(["Lu", "Ll", "Lo"]))


def _special_class(rng: random.Random) -> Drawn:
    taken = rng.choice(SPECIAL_CLASSES)
    inside = "\u4e00中文字龥ぁんァヺー" if "kanji" in taken else "azAZQm"
    return _class_of("deepseek", rng.choice(inside) if "not" in taken else _draw(rng), taken)


def _is_placed_as_here(character: str) -> bool:
    """Whether `tokenizers` gives it the combining class that this Python knows: else `_Normalizer` mostly does it rightly."""
    texts = (f"q\u0345{character}", f"q{character}\u0334")
    return all(nfc(text, {}, {}, {}) == normalizers.NFC().normalize_str(text) for text in texts)


def _combining(rng: random.Random) -> Drawn:
    character = ""
    while not (character and _is_placed_as_here(character)):
        character = rng.choice(_marks()) if rng.random() < 0.8 else _draw(rng)
    wanted = rng.choice([0, 1, 220, 230, 240])
    described = f"{_named(character)} has combining class {wanted} instead of {unicodedata.combining(character)}"
    tables = {"classes": {character: wanted}, "singles": {}, "pairs": {}}
    texts = [f"a{x}{y}" for mark in MARKS for x, y in ((mark, character), (character, mark))]
    texts += [f"a{one}{character}{two}" for one in MARKS for two in MARKS]
    return Plant(rng.choice(["qwen", "qwen3.5"]), "combining class", "nfc", described, tables), texts


def _nfc_plant(rng: random.Random, described: str, singles: Json, pairs: Json) -> Drawn:
    tables = {"classes": {}, "singles": singles, "pairs": pairs}
    texts = [before + key + after for key in (*singles, *pairs) for before in ("", "a ") for after in ("", " b")]
    return Plant(rng.choice(["qwen", "qwen3.5"]), "composition", "nfc", described, tables), texts


def _not_composed(rng: random.Random) -> Drawn:
    composite = rng.choice(_decomposed())
    pair = unicodedata.normalize("NFD", composite)
    pair = unicodedata.normalize("NFC", pair[:-1]) + pair[-1]
    return _nfc_plant(rng, f"{_named(composite)} is not composed", {}, {pair: ""})


def _over_composed(rng: random.Random) -> Drawn:
    first = rng.choice("abcdefghijklmnopqrstuvwxyzQ") if rng.random() < 0.5 else _draw(rng)
    second, composite = rng.choice(_marks()), rng.choice("éñçåÅがक़")
    pair = first + second
    return _nfc_plant(rng, f"{_named(first)} and {_named(second)} are composed", {}, {pair: composite[0]})


def _not_mapped(rng: random.Random) -> Drawn:
    single = rng.choice([c for c in _decomposed() if unicodedata.normalize("NFC", c) != c])
    return _nfc_plant(rng, f"{_named(single)} is left as it is", {single: single}, {})


def _over_mapped(rng: random.Random) -> Drawn:
    single = next(c for c in iter(lambda: _draw(rng), "") if c > "\x7f")
    other = unicodedata.normalize("NFKD", single)
    other = other if other != single else chr(ord(single) ^ 1)
    return _nfc_plant(
        rng, f"{_named(single)} is mapped to {other!r}", {single: unicodedata.normalize("NFD", other)}, {}
    )


def _sentence_piece(rng: random.Random) -> Drawn:
    old, new, described = rng.choice(SENTENCE_PIECE)
    if rng.random() < 0.25:
        character = next(c for c in iter(lambda: _draw(rng), "") if unicodedata.normalize("NFKC", c) != c)
        old, new = rf"\x{{{ord(character):X}}}", unicodedata.normalize("NFKC", character)
        described = f"{_named(character)} is mapped as by NFKC"
    inside = chr(int(old[3:-1], 16)) if old[:2] == r"\x" else "▁" if old == "▁" else "   "
    plant = Plant("llama", "sentencepiece", "replacement", described, {"pattern": old, "content": new})
    return plant, [before + inside + after for before in ("the", "") for after in ("the", "")]


def _tokens_of(base: str) -> list[Json]:
    return [each for each in json.loads(demo_bases()[base])["added_tokens"] if each["content"] in FLAGS]


def _beside(names: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    forms = [unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")]
    around = ["", " ", "a", "a ", " a", "\n", "_", "é", *forms, *more, *(f"a{each}" for each in more)]
    around += [f" {each} " for each in more]
    return [before + name + after for name in [*names, *forms] for before in around for after in around]


def _flag_plant(rng: random.Random) -> Drawn:
    base = rng.choice(list(TOKENS))
    token, flag = rng.choice(_tokens_of(base)), rng.choice(["lstrip", "rstrip", "single_word", "normalized", "special"])
    described = f"the flag {flag} of {token['content']!r} is {not token[flag]}"
    policy = "text" if flag == "special" else "parse"
    plant = Plant(base, "added tokens", "flag", described, {"token": token, "flag": flag}, special_tokens=policy)
    return plant, _beside([token["content"]])


def _lost_plant(rng: random.Random) -> Drawn:
    base = rng.choice(list(TOKENS))
    token = rng.choice(_tokens_of(base))
    described = f"{token['content']!r} is not found directly after another added token"
    names = [each["content"] for each in _tokens_of(base)]
    return Plant(base, "added tokens", "lost", described, {"token": token}), [a + token["content"] for a in names]


def _shorter_plant(rng: random.Random) -> Drawn:
    plant = Plant(
        rng.choice(["cl100k", "llama", "qwen"]), "added tokens", "shorter", "<think> is found in <think>>", {}
    )
    return plant, ["<think>>"]


def _strips_plant(rng: random.Random) -> Drawn:
    seen = rng.random() < 0.5
    character = rng.choice([_draw(rng), *"\x1c\x1f\u180e\u200b\u2060\ufeff"]) if seen else rng.choice(WHITE)
    described = f"lstrip and rstrip {'remove' if seen else 'do not remove'} {_named(character)}"
    plant = Plant("cl100k", "added tokens", "strips", described, {"character": character, "seen": seen})
    return replace(plant, base=rng.choice(["cl100k", "qwen", "llama"])), _beside(["<|left|>", "<|right|>"], [character])


def _single_plant(rng: random.Random) -> Drawn:
    character = _draw(rng)
    seen = not (character.isalnum() or unicodedata.category(character)[0] == "M" or character == "_")
    described = f"{_named(character)} is {'' if seen else 'not '}of a word beside a token with single_word"
    base = rng.choice(["cl100k", "qwen", "deepseek", "llama"])
    plant = Plant(base, "added tokens", "single", described, {"character": character, "seen": seen})
    return plant, _beside(["quokka"], [character])


def _edit(rng: random.Random) -> Drawn:
    old, new, described = rng.choice(EDITS)
    having = [name for name, regexes in PATTERNS.items() if any(old in _escaped(regex) for regex in regexes)]
    plant = Plant(rng.choice(having), "quantifier", "pattern", described, {"old": old, "new": new})
    ends = [
        f"{word}'{end}"
        for word in ("he", "I", "")
        for each in (*CONTRACTIONS, "n", "ſ")
        for end in (each, each.upper())
    ]
    texts = [*ends, *(f"{end}ed" for end in ends), *(f"{mark}{'  x'}" for mark in AROUND)]
    pieces = ["1", "12", "1234567", " ", "   ", "\n", "\r\n", "\n\n", "x", "!", "!?", "/", "//", "\t", "X"]
    return plant, [*texts, *(a + b + c for a in pieces for b in pieces for c in pieces)]


def _escaped(regex: str) -> str:
    return regex.replace("\r", r"\r").replace("\n", r"\n")


def _run(rng: random.Random) -> Drawn:
    old, described = rng.choice(RUNS)
    length = rng.choice([3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, rng.randint(3, 130)])
    having = [name for name, regexes in PATTERNS.items() if any(old in regex for regex in regexes)]
    parameters = {"old": old, "new": old.replace("+", f"{{1,{length}}}", 1)}
    plant = Plant(rng.choice(having), "quantifier", "pattern", f"runs of more than {length} {described}", parameters)
    inside = {"white space": " \t", "digits": "17", "kanji": "中ー", "punctuation": "-=."}.get(described, "aes")
    texts = [c * (length + more) + end for c in inside for more in range(1, 10) for end in ("", "x")]
    return plant, [*texts, *_long(rng, length)]


def _long(rng: random.Random, length: int) -> list[str]:
    """Words of more than `length` letters, made of words."""
    return [
        "".join(rng.choice(WORDS) for _ in range(length // 2 + 2))[: length + rng.randint(1, 20)] for _ in range(30)
    ]


def _at(fraction: float, items: list[Any]) -> Any:
    return items[int(fraction * len(items))]


def _text(base: str, token: str) -> str:
    return token.replace("▁", " ") if base == "llama" else byte_level_bytes(token).decode(errors="ignore")


def _model_texts(base: str, tokens: Iterable[str]) -> list[str]:
    """Texts that contain these tokens as text, on their own and in words."""
    texts = [_text(base, token) for token in tokens]
    return [before + text + after for text in texts for before in ("", "a ", "x") for after in ("", "q", " b")]


def _merge(rng: random.Random) -> Drawn:
    base, at, fault = rng.choice(list(demo_bases())), rng.random(), rng.choice(["missing", "swapped"])
    merges = json.loads(demo_bases()[base])["model"]["merges"]
    (a, b), after = _at(at, merges), []
    if fault == "swapped":
        i = competing(merges, at)
        (a, b), (c, d) = merges[i], merges[i + 1]
        after = [a + b + d if b == c else c + a + b]
    described = f"the merge {a!r} {b!r} is {'missing' if fault == 'missing' else 'swapped with the next one'}"
    return Plant(base, "merges", fault, described, {"at": at}), _model_texts(base, [a + b, *after])


def _ties_plant(rng: random.Random) -> Drawn:
    base = rng.choice(list(PATTERNS))
    doubled = [a for a, b in json.loads(demo_bases()[base])["model"]["merges"] if a == b]
    texts = [each * count for each in doubled for count in (3, 5, 7)]
    return Plant(base, "merges", "ties", "of equal merges the last is done first", {}), _model_texts(base, texts)


def _long_word(rng: random.Random) -> Drawn:
    base, length = rng.choice(list(demo_bases())), rng.choice([7, 8, 15, 16, 31, 32, 64, 128, 256, rng.randint(3, 300)])
    described = f"words of more than {length} bytes are merged in two parts"
    return Plant(base, "merges", "long words", described, {"length": length}), _long(rng, length)


def _ignore(rng: random.Random) -> Drawn:
    base = rng.choice(["llama3", "cl100k"])
    described = f"ignore_merges is {base != 'llama3'}"
    return Plant(base, "merges", "ignore_merges", described, {}), _model_texts(base, UNREACHABLE)


def _entry_plant(rng: random.Random) -> Drawn:
    base, at, other = rng.choice(list(demo_bases())), rng.random(), rng.random()
    token = _at(at, sorted(json.loads(demo_bases()[base])["model"]["vocab"].items(), key=lambda entry: int(entry[1])))[
        0
    ]
    described = f"the token {token!r} has the id of another"
    return Plant(base, "merges", "entry", described, {"at": at, "other": other}), _model_texts(base, [token])


def _byte_plant(rng: random.Random) -> Drawn:
    character = _draw(rng)
    byte, other = rng.choice(character.encode()), rng.randrange(256)
    parameters = {"byte": byte, "other": other}
    return Plant("llama", "merges", "byte", f"the byte {byte:02X} falls back to {other:02X}", parameters), [character]


def _unknown_plant(rng: random.Random) -> Drawn:
    character = _draw(rng)
    described = f"{_named(character)} is unknown instead of bytes"
    plant = Plant("llama", "merges", "unknown", described, {"character": character}, re.escape(character))
    return plant, [character, f"a{character}b"]


def _batch(rng: random.Random) -> Drawn:
    base, fault = rng.choice(list(demo_bases())), rng.choice(list(BATCHES))
    lines = ["the end of it\n" + "x" * n for n in range(4)]
    count = rng.choice([1, 2, 7, 8, 16, 64, 100, 256])
    length = rng.choice([16, 32, 64, 128]) if fault == "multiple" else rng.choice([255, 1024, 4096, 16384, 65535])
    described, parameters, documents = {
        "last": (f"the last document of more than {count} loses an id", {"count": count}, (lines * count)[: count + 1]),
        "empty": ("an empty document has an id", {"number": rng.randrange(4)}, ["a", "", "b"]),
        "multiple": (
            f"white space at the end of n times {length} bytes loses an id",
            {"length": length},
            [" a" * (length // 2 - 1) + "b ", "a"],
        ),
        "longer": (
            f"ids change places in a document of more than {length} bytes",
            {"length": length},
            ["a b " * length],
        ),
    }[fault]
    return Plant(base, "documents", fault, described, parameters), [documents]


WORDS = [
    "the", "of", "and", "in", "to", "is", "it", "on", "he", "at", "we", "as", "red", "cat", "dog", "sun", "new", "old",
]  # fmt: skip
KINDS: dict[str, list[Callable[[random.Random], Drawn]]] = {
    "class": [_any_class, _white_class, _any_class, _case_class, _any_class, _special_class],
    "combining class": [_combining],
    "composition": [_not_composed, _over_composed, _not_mapped, _over_mapped],
    "added tokens": [_flag_plant, _strips_plant, _flag_plant, _single_plant, _lost_plant, _flag_plant, _shorter_plant],
    "quantifier": [_edit, _run, _edit],
    "merges": [_merge, _ties_plant, _long_word, _entry_plant, _byte_plant, _merge, _ignore, _unknown_plant],
    "sentencepiece": [_sentence_piece],
    "documents": [_batch],
}
ORDER = [*KINDS, "class", "merges", "quantifier", "class", "combining class", "added tokens", "class", "composition"]


def plants(seed: int = 0, count: int = 100) -> list[Plant]:
    """Draw faults, of all kinds in turn, each with an example that shows it. The same seed draws the same ones."""
    rng, drawn = random.Random(seed), Counter[str]()
    made: list[Plant] = []
    while len(made) < count:
        kind = ORDER[len(made) % len(ORDER)]
        draw = KINDS[kind][(seed + drawn[kind]) % len(KINDS[kind])]
        drawn[kind] += 1
        made.append(
            next(plant for plant in iter(lambda draw=draw: shown(*draw(rng)), 0) if plant and plant not in made)
        )
    return made


def shown(plant: Plant, texts: Iterable[str | list[str]]) -> Plant | None:
    """The plant with the first of these texts for which it gives wrong ids; None if there is none."""
    batches = [[text] if isinstance(text, str) else text for text in texts]
    definition = definition_of(plant)
    planted, honest = Planted(plant, definition), TokenizersEngine(definition)
    if plant.fault in BATCHES:
        found = next((batch for batch in batches if ids_of(planted, batch) != ids_of(honest, batch)), None)
        return replace(plant, example=found) if found else None
    singles = [text for (text,) in batches]
    right, wrong = ids_of(honest, singles), ids_of(planted, singles)
    found = [[text] for text, a, b in zip(singles, right, wrong, strict=True) if a != b]
    if found:
        return replace(plant, example=found[0])
    for text in _split_wrongly(plant, singles) if plant.fault in ("class", "pattern") else ():
        candidate = replace(plant, example=[text], own=False)
        if is_wrong(candidate):
            return candidate
    return None


def _split_wrongly(plant: Plant, texts: list[str]) -> Iterator[str]:
    """The short texts that are split in another way."""
    parsed: Json = json.loads(revealing(demo_bases()[plant.base], ""))
    right = tokenizers.Tokenizer.from_str(json.dumps(parsed))
    _change_regexes(parsed, _of_regexes(plant.fault, plant.parameters))
    wrong = tokenizers.Tokenizer.from_str(json.dumps(parsed))
    for text in texts:
        plain = _normalize(parsed, text)
        is_short = len(plain) < 20 or len(set(plain)) < 3
        if is_short and right.pre_tokenizer.pre_tokenize_str(plain) != wrong.pre_tokenizer.pre_tokenize_str(plain):
            yield text


def ids_of(engine: Any, texts: list[str]) -> list[list[int]]:
    """The ids of a batch of documents, one list for each."""
    ids, offsets = engine.encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(ids, offsets[1:-1])]


def is_wrong(plant: Plant) -> bool:
    """Whether the planted engine gives wrong ids for the plant's example."""
    definition = definition_of(plant)
    honest = ids_of(TokenizersEngine(definition), plant.example)
    return ids_of(Planted(plant, definition), plant.example) != honest


# --- the check ---


def plain_texts(count: int = 200) -> list[str]:
    """Short sentences of short words, in which few properties matter."""
    rng = random.Random(1)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 12))) + "." for _ in range(count)]


def check(plant: Plant) -> str:
    """What is wrong with a plant: "" if it is wrong for its example and right for plain texts."""
    plant = Plant(**json.loads(json.dumps(asdict(plant))))  # as in another process
    plant_engine(plant)
    definition = definition_of(plant)
    planted, honest = GigatokenEngine(definition), TokenizersEngine(definition)
    if ids_of(planted, plant.example) == ids_of(honest, plant.example):
        return "right for its example"
    if plant.kind == "merges":  # may touch any text
        return ""
    character = plant.parameters.get("character", "\n")
    plain = [text for text in plain_texts() if character not in text]
    return next((f"wrong for {text!r}" for text in plain if ids_of(planted, [text]) != ids_of(honest, [text])), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", required=True, help="draw the plants and show that they are wrong"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--verbose", action="store_true", help="list the plants")
    options = parser.parse_args()
    failures = 0
    for seed in options.seeds:
        started = time.perf_counter()
        made = plants(seed, options.count)
        drawn = time.perf_counter() - started
        problems = [(plant, check(plant)) for plant in made]
        for plant, problem in problems:
            if problem or options.verbose:
                print(f"  {plant.base}, {plant.kind}: {plant.description}; {plant.example!r:.60} {problem}")
        failures += sum(bool(problem) for _, problem in problems)
        seconds = time.perf_counter() - started
        kinds = ", ".join(f"{kind} {number}" for kind, number in Counter(plant.kind for plant in made).items())
        hidden = sum(not plant.own for plant in made)
        print(f"seed {seed}: {len(made)} plants in {seconds:.0f} s ({drawn:.0f} s to draw): {kinds}")
        print(f"  {hidden} of them need `revealing`")
    sys.exit(f"{failures} plants are not as they should be" if failures else 0)


if __name__ == "__main__":
    main()
