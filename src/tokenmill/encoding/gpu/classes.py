"""The class of every character, as the regular expressions of `tokenizers` see it: a table of 1,114,112 bytes.

The table is made by asking `tokenizers` itself, because its version of Unicode decides, and takes about a third of a second.
Every character is asked for, except in the planes that are not assigned or for private use: there, one of 64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.hf_tokenizers import parts

Classes = npt.NDArray[np.uint8]

# The low four bits: the class. 15 is left for the border of a document.
OTHER, APOSTROPHE, SLASH, ASCII_PUNCTUATION, PUNCTUATION = range(5)  # punctuation includes symbols
ASCII_UPPER, ASCII_LOWER, UPPER, LOWER, LETTER, MARK, NUMBER = range(5, 12)  # upper includes title case
SPACE, WHITE, NEWLINE, BORDER = range(12, 16)
CLASS = 15
# The high four bits: what else is asked about a character.
DIGIT = 0x10  # one of those that the pre-tokenizer Digits splits off
KANJI = 0x20  # one of those that DeepSeek-V3 splits off: Chinese characters, hiragana, katakana
COMBINING = 0x40  # NFC may change it if another such character or a composing one is before it
COMPOSING = 0x80  # NFC may change it, alone or after any character

CODE_POINTS = 0x110000
_QUESTIONS = {
    UPPER: r"[\p{Lu}\p{Lt}]",
    LOWER: r"\p{Ll}",
    LETTER: r"[\p{Lm}\p{Lo}]",
    MARK: r"\p{M}",
    NUMBER: r"\p{N}",
    WHITE: r"\s",
    PUNCTUATION: r"[\p{P}\p{S}]",
}
_OF_THEIR_OWN = {" ": SPACE, "\r": NEWLINE, "\n": NEWLINE, "'": APOSTROPHE, "/": SLASH}
_KANJI = (("一", "龥"), ("぀", "ゟ"), ("゠", "ヿ"))  # first and last
_PART = 4096  # characters per question: `tokenizers` takes much longer per character for long texts
_PLANES_IN_USE = ((0, 0x40000), (0xE0000, 0xE2000))
_OUTSIDE = 64  # of so many characters of other planes, one is asked for
_FIRST_CHANGED = 0x80  # no normal form changes ASCII


@cache
def character_classes() -> Classes:
    """The table: for each code point a class and four flags."""
    asked = _asked()
    text = [chr(code) for code in asked]
    answers = np.zeros(len(asked), np.uint8)
    for first in range(0, len(text), _PART):
        answers[first : first + _PART] = _classes_of("".join(text[first : first + _PART]))
    answers |= _normalization_flags(asked, text)
    table = np.repeat(answers, np.diff(asked, append=CODE_POINTS))  # those not asked for are as the one before
    for character, its_class in _OF_THEIR_OWN.items():
        table[ord(character)] = its_class
    ascii_only = table[:128]
    for wide, narrow in ((UPPER, ASCII_UPPER), (LOWER, ASCII_LOWER), (PUNCTUATION, ASCII_PUNCTUATION)):
        ascii_only[ascii_only == wide] = narrow
    for low, high in _KANJI:
        table[ord(low) : ord(high) + 1] |= KANJI
    table.flags.writeable = False
    return table


def _asked() -> npt.NDArray[np.int64]:
    codes = np.zeros(CODE_POINTS, bool)
    codes[::_OUTSIDE] = True
    for low, high in _PLANES_IN_USE:
        codes[low:high] = True
    codes[0xD800:0xE000] = False  # surrogates, which no text has
    return np.flatnonzero(codes)


def _classes_of(text: str) -> Classes:
    """The class of each character of a text. One question cuts the text where the class changes, the others are about the
    first character of each part."""
    library = parts()
    any_of_them = "|".join(f"{question}+" for question in _QUESTIONS.values())
    found = library.pre_tokenizers.Split(library.Regex(any_of_them), "isolated").pre_tokenize_str(text)
    heads = "".join(part[0] for part, _ in found)
    classes = np.zeros(len(found), np.uint8)
    for number, question in _QUESTIONS.items():
        classes[_matches(heads, question)] = number
    return np.repeat(classes, [end - start for _, (start, end) in found]) | _digit_flags(text)


def _matches(text: str, question: str) -> npt.NDArray[np.bool_]:
    """Which characters of a text match a regular expression."""
    library = parts()
    result = np.ones(len(text), bool)
    for _, (start, end) in library.pre_tokenizers.Split(library.Regex(question), "removed").pre_tokenize_str(text):
        result[start:end] = False
    return result


def _digit_flags(text: str) -> Classes:
    """DIGIT for the characters of a text that are split off. With an "a" on both sides of each character, the parts that start at
    odd places are those characters."""
    flags = np.zeros(len(text), np.uint8)
    found = parts().pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("a" + "a".join(text) + "a")
    starts = np.array([start for _, (start, _) in found])
    flags[starts[starts % 2 == 1] // 2] = DIGIT
    return flags


def _normalization_flags(codes: npt.NDArray[np.int64], text: list[str]) -> Classes:
    """COMPOSING for characters that NFC changes, or that occur behind another in a decomposition; COMBINING for those that are
    moved before U+0345, which is the last of all combining characters."""
    normalizers = parts().normalizers
    composed, decomposed = normalizers.NFC(), normalizers.NFD()
    changed = _changed(composed, text)
    moved = _changed(decomposed, ["\u0345" + character for character in text])
    behind = {character for result in _changed(decomposed, text).values() for character in result[1:]}
    flags = np.zeros(len(codes), np.uint8)
    flags[[i for i, result in moved.items() if result[0] != "\u0345"]] = COMBINING
    flags[list(changed)] = COMPOSING
    flags[np.searchsorted(codes, sorted(map(ord, behind)))] = COMPOSING
    return flags


def _changed(normalizer: Any, texts: list[str]) -> dict[int, str]:
    """Those of many short texts that a normalizer changes, by their numbers. A line break is never combined with anything."""
    found: dict[int, str] = {}
    for first in range(_FIRST_CHANGED, len(texts), _PART):
        part = texts[first : first + _PART]
        before = "\n".join(part)
        after = normalizer.normalize_str(before)
        if after != before:
            pairs = zip(part, after.split("\n"), strict=True)
            found |= {first + i: result for i, (text, result) in enumerate(pairs) if text != result}
    return found
