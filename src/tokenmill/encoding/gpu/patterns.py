"""Which way of splitting text into pretokens a tokenizer.json has, if it is one of those that can be done on a GPU.

A pattern is recognised by the text of its regular expressions, not by what they do: an unknown spelling is refused. Refused
are also all normalizers but NFC, which leaves nearly all text as it is: see `Pattern.nfc`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tokenmill.encoding.conversion.tiktoken_patterns import KNOWN_SPELLINGS, O200K, QWEN
from tokenmill.encoding.tokenizer_json import steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Which rules split a text. The rules are in `pretoken_rules`.

    `digits`: how many digits make a pretoken; None means a whole run, which a space may precede.
    `contractions`: `'s`, `'ll` and so on are pretokens of their own, or the ends of words, or nothing special.
    `any_case`: also `'S` and `'LL`, and `'ſ`.
    `prefix`: what a word may begin with: a space only, any one character that is no letter, digit or line break, or
    any one that is none of these and no punctuation or symbol either.
    `line_breaks`: line breaks belong to the punctuation before them, and end pretokens of white space.
    `slashes`: and so do slashes after such line breaks.
    `cases`: a word is split where lower case is followed by upper case.
    `marks`: whether combining marks are like punctuation, like letters, or can be both.
    `ascii_words`: an ASCII punctuation character and the ASCII letters after it are a pretoken.
    `alone`: what is split off before all other rules: every digit ("digits"); or groups of digits, and runs of Chinese and
    Japanese characters ("digits and kanji").
    `nfc`: the tokenizer normalizes to NFC first. The rules hold for text that NFC does not change;
    `starts.not_normalized` finds where it may.
    """

    name: str
    digits: Literal[1, 3] | None = None
    contractions: Literal["pretokens", "word ends"] | None = None
    any_case: bool = True
    prefix: Literal["space", "any", "no punctuation"] = "any"
    line_breaks: bool = True
    slashes: bool = False
    cases: bool = False
    marks: Literal["punctuation", "letters", "both"] = "punctuation"
    ascii_words: bool = False
    alone: Literal["digits", "digits and kanji"] | None = None
    nfc: bool = False


GPT2 = Pattern(name="gpt2", contractions="pretokens", any_case=False, prefix="space", line_breaks=False)
CL100K = Pattern(name="cl100k", contractions="pretokens", digits=3)
QWEN2 = replace(CL100K, name="qwen2", digits=1)
QWEN35 = replace(QWEN2, name="qwen3.5", marks="letters")
O200K_WORDS = Pattern(name="o200k", contractions="word ends", digits=3, slashes=True, cases=True, marks="both")
TEKKEN = replace(O200K_WORDS, name="tekken", contractions=None, digits=1)
DIGITS_GPT2 = replace(GPT2, name="digits, gpt2", alone="digits")
DEEPSEEK3 = Pattern(
    name="deepseek3",
    digits=3,
    prefix="no punctuation",
    marks="letters",
    ascii_words=True,
    alone="digits and kanji",
)

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT2_REGEX, _CL100K_REGEX = dict.fromkeys(KNOWN_SPELLINGS.values())
# Regular expressions that match every character, so that it makes no difference what is done with the text between matches.
_COMPLETE = {
    **{regex: GPT2 for regex in (_GPT2_REGEX, *KNOWN_SPELLINGS) if "?i" not in regex and "$" not in regex},
    _CL100K_REGEX: CL100K,
    QWEN: QWEN2,
    QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"): QWEN35,
    O200K: O200K_WORDS,
    O200K.replace(_ENDINGS, ""): replace(TEKKEN, name="o200k without contractions", digits=3),
    O200K.replace(_ENDINGS, "").replace("{1,3}", ""): TEKKEN,
}
_DEEPSEEK3_REGEXES = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def recognise(tokenizer_json: dict[str, Any]) -> tuple[Pattern | None, str]:
    """The pattern of a parsed tokenizer.json; or None, and why in a sentence."""
    normalizer = [step["type"] for step in steps(tokenizer_json.get("normalizer"), "normalizers")]
    if normalizer not in ([], ["NFC"]):
        return None, f"it normalizes text ({', '.join(normalizer)}), and only NFC is handled"
    found = _pattern(steps(tokenizer_json.get("pre_tokenizer"), "pretokenizers"))
    if isinstance(found, str):
        return None, found
    return replace(found, nfc=bool(normalizer)), ""


def _pattern(parts: list[dict[str, Any]]) -> Pattern | str:
    """The pattern of a pre-tokenizer, or why there is none."""
    if not parts or parts[-1]["type"] != "ByteLevel":
        return "it is not a byte-level tokenizer"
    if parts[-1].get("add_prefix_space", True):
        return "it adds a space before every text"
    if parts[-1].get("use_regex", True):
        return _before_gpt2(parts[:-1])
    if not all(part["type"] == "Split" for part in parts[:-1]):
        return _unknown(parts[:-1])
    regexes = [_regex(part) for part in parts[:-1]]
    if len(parts) == 2 and regexes[0] in _COMPLETE and _keeps_matches(parts[0]):
        return _COMPLETE[regexes[0]]
    if regexes == _DEEPSEEK3_REGEXES and all(_isolates(part) for part in parts[:-1]):
        return DEEPSEEK3
    return _unknown(parts[:-1])


def _before_gpt2(parts: list[dict[str, Any]]) -> Pattern | str:
    """The pattern of steps that GPT-2's regular expression follows."""
    if not parts:
        return GPT2
    if len(parts) == 1 and parts[0]["type"] == "Digits" and parts[0].get("individual_digits"):
        return DIGITS_GPT2
    return _unknown(parts)


def _unknown(parts: list[dict[str, Any]]) -> str:
    described = [_regex(part) or part["type"] for part in parts]
    return f"no rules are known for how it splits text: {'; '.join(described) or 'not at all'}"


def _regex(part: dict[str, Any]) -> str:
    """The regular expression of a step, with its line breaks escaped; "" if it has none."""
    regex = str(part.get("pattern", {}).get("Regex", ""))
    return regex.replace("\r", r"\r").replace("\n", r"\n")


def _isolates(part: dict[str, Any]) -> bool:
    return part["behavior"] == "Isolated" and not part["invert"]


def _keeps_matches(part: dict[str, Any]) -> bool:
    return _isolates(part) or (part["behavior"] == "Removed" and bool(part["invert"]))
