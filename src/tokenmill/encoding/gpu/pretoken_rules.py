"""The rules by which text is split into pretokens, as an automaton that reads characters from left to right.

Regular expressions with alternatives are tried in turn at every place, and that cannot be done at all places at once. But what
they find can be said by few rules: what a character is (its *role*), a little of what is ahead of it, and which pretoken is open
(the *state*) decide whether a new pretoken starts. `step` has the rules. `rule_table` lists their results for every case; the
same table is used with numpy and on a GPU.

After most characters the state does not depend on what was before them, so that reading can begin in the middle of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.gpu import classes
from tokenmill.encoding.gpu.classes import Classes
from tokenmill.encoding.gpu.patterns import Pattern

# Roles: what a character is for a pattern. UNMATCHED ones are in no alternative, except as the first character of a word.
OTHER, APOSTROPHE, SLASH, OPENER, LETTER, UPPER, LOWER, MARK, ASCII_LETTER = range(9)
NUMBER, SPACE, WHITE, NEWLINE, UNMATCHED, _, BORDER = range(9, 16)
ROLE = 15
WORD_ROLES = frozenset({LETTER, UPPER, LOWER, MARK, ASCII_LETTER})
WHITE_ROLES = frozenset({SPACE, WHITE, NEWLINE})
# Between characters of different groups, and between any two of group ALONE, is a border like that of a document.
GROUP, GROUP_SHIFT, ALONE = 0x30, 4, 3

# What is ahead of a character, as a number from 0 to 3. Its meaning depends on the role.
BREAK_AHEAD, LAST_WHITE = (
    1,
    2,
)  # white space: a line break follows in the same run; no white space follows, and no border
WORD_AHEAD, ONE_LETTER, TWO_LETTERS = 1, 2, 3  # punctuation: a word follows; it does, as `'s`; it does, as `'ll`
UPPER_TO_END = 1  # upper case: so are all characters up to the end of the run of letters
AFTER_APOSTROPHE = 2  # letters, a flag: the first or second letter after an apostrophe with ONE_LETTER, TWO_LETTERS

# States: which pretoken is open after a character.
BETWEEN = 0  # none: the next character starts one
BEFORE_WORD = 1  # one character that a word may follow
AFTER_SPACE = 2  # one space that a word, punctuation or digits may follow
WORD_UPPER = 3  # a word in its first part; its last character is upper case
WORD = 4  # a word in its first part; its last character has no case
WORD_LOWER = 5  # a word in which lower case has begun
ASCII_WORD = 6  # a punctuation character and ASCII letters
ONE_TO_COME, TWO_TO_COME = 7, 8  # a contraction: so many of its letters are to come
ONE_DIGIT, TWO_DIGITS = 9, 10
OTHERS, OTHERS_BREAKS = 11, 12  # punctuation; with line breaks behind it
BLANK, BLANK_BREAK = 13, 14  # white space; its last character is a line break
UNKNOWN_TEXT = 15  # characters that are in no alternative
STATES = 16
_WORDS = (WORD_UPPER, WORD, WORD_LOWER)


@dataclass(frozen=True, slots=True)
class RuleTable:
    """`next_state` and `is_start` for each symbol (a role, and what is ahead of it times 16) and state.

    `fixed` says which symbols are followed by the same state whatever was before them.
    """

    next_state: npt.NDArray[np.uint8]
    is_start: npt.NDArray[np.bool_]
    fixed: npt.NDArray[np.bool_]

    def packed(self) -> npt.NDArray[np.uint8]:
        """For a GPU: by symbol and state the next state, and 0x80 if a pretoken starts; then for each symbol the state it
        fixes, or 255. 1,024 bytes and 64."""
        steps = (self.next_state | self.is_start.astype(np.uint8) << 7).ravel()
        return np.append(steps, np.where(self.fixed, self.next_state[:, 0], 255).astype(np.uint8))


@cache
def rule_table(pattern: Pattern) -> RuleTable:
    """The result of every rule."""
    results = np.array(
        [[step(pattern, state, symbol & 15, symbol >> 4) for state in range(STATES)] for symbol in range(64)]
    )
    next_state = results[:, :, 0].astype(np.uint8)
    return RuleTable(next_state, results[:, :, 1].astype(bool), (next_state == next_state[:, :1]).all(axis=1))


@cache
def character_roles(pattern: Pattern) -> Classes:
    """For each code point its role, its group, and the flags for NFC, in one byte."""
    table = classes.character_classes()
    roles: Classes = _roles(pattern)[table & classes.CLASS]
    if pattern.alone == "digits":
        roles[(table & classes.DIGIT) > 0] |= ALONE << GROUP_SHIFT
    elif pattern.alone == "digits and kanji":
        roles[roles == NUMBER] |= 1 << GROUP_SHIFT
        roles[(table & classes.KANJI) > 0] |= 2 << GROUP_SHIFT
    if pattern.nfc:
        roles |= table & (classes.COMBINING | classes.COMPOSING)
    return roles


def _roles(pattern: Pattern) -> Classes:
    """The role of each class of characters."""
    roles = np.full(16, OTHER, np.uint8)
    for upper, lower in ((classes.ASCII_UPPER, classes.ASCII_LOWER), (classes.UPPER, classes.LOWER)):
        roles[upper], roles[lower] = (UPPER, LOWER) if pattern.cases else (LETTER, LETTER)
    roles[classes.LETTER] = LETTER
    roles[classes.MARK] = {"punctuation": OTHER, "letters": LETTER, "both": MARK}[pattern.marks]
    roles[classes.NUMBER], roles[classes.BORDER] = NUMBER, BORDER
    roles[classes.SPACE], roles[classes.WHITE] = SPACE, WHITE
    roles[classes.NEWLINE] = NEWLINE if pattern.line_breaks else WHITE
    if pattern.contractions:
        roles[classes.APOSTROPHE] = APOSTROPHE
    if pattern.slashes:
        roles[classes.SLASH] = SLASH
    if pattern.ascii_words:
        roles[[classes.ASCII_UPPER, classes.ASCII_LOWER]] = ASCII_LETTER
        roles[[classes.ASCII_PUNCTUATION, classes.APOSTROPHE, classes.SLASH]] = OPENER
    if pattern.prefix == "no punctuation":
        roles[classes.OTHER] = UNMATCHED
    return roles


def step(pattern: Pattern, state: int, role: int, ahead: int) -> tuple[int, bool]:
    """The state after a character, and whether a pretoken starts with it."""
    if role in WORD_ROLES:
        return _letter(state, role, ahead, pattern)
    if role == NUMBER:
        return _number(state, pattern)
    if role == NEWLINE:
        return _newline(state)
    if role in WHITE_ROLES:
        return _white(state, role, ahead, pattern)
    if role == UNMATCHED:
        if ahead == WORD_AHEAD:
            return BEFORE_WORD, True
        return UNKNOWN_TEXT, state != UNKNOWN_TEXT
    if role == BORDER:
        return BETWEEN, False
    return _punctuation(state, role, ahead, pattern)


def _letter(state: int, role: int, ahead: int, pattern: Pattern) -> tuple[int, bool]:
    if ahead & AFTER_APOSTROPHE and state in (ONE_TO_COME, TWO_TO_COME):
        return (BETWEEN if state == ONE_TO_COME else ONE_TO_COME), False
    if role == MARK and state == OTHERS:  # among punctuation it is punctuation
        return OTHERS, False
    if role == ASCII_LETTER and state == ASCII_WORD:
        return ASCII_WORD, False
    joins = state in (*_WORDS, BEFORE_WORD, AFTER_SPACE)
    if role == LOWER:
        return WORD_LOWER, not joins
    if role == UPPER:
        # A word is as much upper case as possible, then lower case. If no lower case follows, its last character without
        # case is taken for lower case.
        splits = state == WORD_LOWER or (state == WORD and ahead & UPPER_TO_END > 0)
        return WORD_UPPER, splits or not joins
    return (WORD_LOWER if state == WORD_LOWER else WORD), not joins


def _number(state: int, pattern: Pattern) -> tuple[int, bool]:
    if pattern.digits is None:
        return ONE_DIGIT, state not in (ONE_DIGIT, AFTER_SPACE)
    if pattern.digits == 1:
        return BETWEEN, True
    if state == ONE_DIGIT:
        return TWO_DIGITS, False
    if state == TWO_DIGITS:
        return BETWEEN, False
    return ONE_DIGIT, True


def _newline(state: int) -> tuple[int, bool]:
    if state in (OTHERS, OTHERS_BREAKS):
        return OTHERS_BREAKS, False
    return BLANK_BREAK, state not in (BLANK, BLANK_BREAK)


def _white(state: int, role: int, ahead: int, pattern: Pattern) -> tuple[int, bool]:
    """Of a run of white space, all up to the last line break is a pretoken, and what follows is another, without its last
    character if a character that is no white space follows: that starts a pretoken of its own."""
    if ahead == LAST_WHITE:
        if role == SPACE:
            return AFTER_SPACE, True
        return (BETWEEN if pattern.prefix == "space" else BEFORE_WORD), True
    if state == BLANK_BREAK:
        return BLANK, ahead != BREAK_AHEAD
    return BLANK, state != BLANK


def _punctuation(state: int, role: int, ahead: int, pattern: Pattern) -> tuple[int, bool]:
    if state in (OTHERS, AFTER_SPACE):
        return OTHERS, False
    if role == SLASH and state == OTHERS_BREAKS:
        return OTHERS_BREAKS, False
    if role == APOSTROPHE and ahead >= ONE_LETTER:
        letters = ONE_TO_COME if ahead == ONE_LETTER else TWO_TO_COME
        if pattern.contractions == "pretokens":
            return letters, True
        if state in _WORDS:
            return letters, False
    if ahead >= WORD_AHEAD:
        if role == OPENER:
            return ASCII_WORD, True
        if pattern.prefix == "any":
            return BEFORE_WORD, True
    return OTHERS, True
