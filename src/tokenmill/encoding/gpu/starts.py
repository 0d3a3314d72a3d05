"""Where pretokens start in a batch of documents, by the rules of `pretoken_rules`, with numpy: a few MB/s, for tests and checks.

Everything is computed per character of the batch. What is ahead of a character is found from the ends of runs. The state before a
character is known if the character before it is one that fixes the state; for the others, steps are combined in passes that
double their reach, so that a run of a million characters takes twenty passes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.gpu import pretoken_rules as rules
from tokenmill.encoding.gpu.classes import COMBINING, COMPOSING, Classes
from tokenmill.encoding.gpu.patterns import Pattern

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_LONG_S = ord("ſ")


def starts(data: Bytes, document_ends: Ints, pattern: Pattern, roles: Classes) -> Bools:
    """True for every byte of valid UTF-8 at which a pretoken starts. `roles` are `character_roles` of the pattern."""
    result = np.zeros(len(data), bool)
    places, codes = _characters(data)
    if not len(places):
        return result
    found = roles[codes]
    borders = _borders(places, found, document_ends)
    role: Classes = found & np.uint8(rules.ROLE)
    symbols: Classes = role | _ahead(role, codes, borders, pattern) << np.uint8(4)
    result[places] = _starts(symbols, borders[:-1], rules.rule_table(pattern))
    return result


def not_normalized(data: Bytes, document_ends: Ints, roles: Classes) -> Bools:
    """True for every byte at which a character starts that NFC may change, by the roles of a pattern with `nfc`.

    Documents without one are already normalized.
    """
    result = np.zeros(len(data), bool)
    places, codes = _characters(data)
    if len(places):
        found = roles[codes]
        combining = (found & (COMBINING | COMPOSING)) > 0
        after_another = np.append(False, combining[:-1]) & ~_document_starts(places, document_ends)
        result[places] = (found & COMPOSING > 0) | (combining & after_another)
    return result


def _characters(data: Bytes) -> tuple[Ints, Ints]:
    """The place of the first byte of each character, and its code point."""
    places = np.flatnonzero((data & 0xC0) != 0x80)
    padded = np.append(data, np.zeros(3, np.uint8)).astype(np.int64)
    first = padded[places]
    codes = first.copy()
    for length, lead in ((2, 0xC0), (3, 0xE0), (4, 0xF0)):
        which = np.flatnonzero((first >= lead) & (first < (lead >> 1 | 0x80)))
        code = first[which] - lead
        for i in range(1, length):
            code = code << 6 | padded[places[which] + i] & 0x3F
        codes[which] = code
    return places, codes


def _document_starts(places: Ints, document_ends: Ints) -> Bools:
    """Whether a character is the first of its document."""
    firsts = np.searchsorted(places, np.append(0, document_ends))
    result = np.zeros(len(places), bool)
    result[firsts[firsts < len(places)]] = True
    return result


def _borders(places: Ints, found: Classes, document_ends: Ints) -> Bools:
    """Whether there is a border before each character, and behind the last one."""
    group = (found & rules.GROUP) >> rules.GROUP_SHIFT
    between = (group[1:] != group[:-1]) | (group[1:] == rules.ALONE)
    borders = np.concatenate(([True], between, [True]))
    borders[:-1] |= _document_starts(places, document_ends)
    return borders


def _ahead(role: Classes, codes: Ints, borders: Bools, pattern: Pattern) -> Classes:
    """What is ahead of each character: see `pretoken_rules`."""
    following = np.append(role[1:], rules.BORDER)
    following[borders[1:]] = rules.BORDER
    is_word, is_white = _member(rules.WORD_ROLES), _member(rules.WHITE_ROLES)
    word_follows = is_word[following]

    ahead = np.zeros(len(role), np.uint8)
    white = is_white[role]
    ahead[white & _reaches(white, borders, role == rules.NEWLINE)] = rules.BREAK_AHEAD
    ahead[white & ~is_white[following] & (following != rules.BORDER)] = rules.LAST_WHITE
    ahead[~white & ~is_word[role] & (role != rules.OPENER) & word_follows] = rules.WORD_AHEAD
    ahead[(role == rules.OPENER) & (following == rules.ASCII_LETTER)] = rules.WORD_AHEAD
    if pattern.cases:
        upper = role == rules.UPPER
        ahead[upper & ~_reaches(upper, borders, is_word[role] & ~upper)] = rules.UPPER_TO_END
    letters = _contractions(role, codes, borders, pattern)
    for length, value in ((1, rules.ONE_LETTER), (2, rules.TWO_LETTERS)):
        apostrophes = np.flatnonzero(letters == length)
        ahead[apostrophes] = value
        for i in range(1, length + 1):
            ahead[apostrophes + i] |= rules.AFTER_APOSTROPHE
    return ahead


def _member(roles: frozenset[int]) -> Bools:
    table = np.zeros(16, bool)
    table[list(roles)] = True
    return table


def _reaches(inside: Bools, borders: Bools, target: Bools) -> Bools:
    """Whether a character is followed by a `target`, with only characters `inside` between them and no border."""
    count = len(inside)
    places = np.arange(count)
    none = np.full(1, count)
    next_target = np.minimum.accumulate(np.where(target, places, count)[::-1])[::-1]
    # The first character at or after each place that is not inside, or has a border before it.
    next_end = np.minimum.accumulate(np.where(~inside, places, count)[::-1])[::-1]
    next_border = np.minimum.accumulate(np.where(borders[:-1], places, count)[::-1])[::-1]
    next_target, next_end, next_border = (
        np.concatenate((positions[1:], none)) for positions in (next_target, next_end, next_border)
    )
    return np.asarray((next_target <= next_end) & (next_target < np.minimum(next_border, count)), bool)


def _contractions(role: Classes, codes: Ints, borders: Bools, pattern: Pattern) -> Classes:
    """For each apostrophe the number of letters of the contraction behind it, or 0."""
    count = np.zeros(len(role), np.uint8)
    apostrophes = np.flatnonzero(role == rules.APOSTROPHE)
    if pattern.any_case:
        codes = np.where(codes == _LONG_S, ord("s"), np.where((codes >= 65) & (codes <= 90), codes | 0x20, codes))
    codes = np.concatenate((codes, [0, 0]))
    borders = np.concatenate((borders, [True]))
    first, second = codes[apostrophes + 1], codes[apostrophes + 2]
    one = np.isin(first, [ord(letter) for letter in "stmd"]) & ~borders[apostrophes + 1]
    pair = np.isin(first << 8 | second, [ord(a) << 8 | ord(b) for a, b in ("re", "ve", "ll")])
    count[apostrophes[one]] = 1
    count[apostrophes[pair & ~borders[apostrophes + 1] & ~borders[apostrophes + 2]]] = 2
    return count


def _starts(symbols: Classes, borders: Bools, table: rules.RuleTable) -> Bools:
    """Whether a pretoken starts with each character. `borders` are those before characters."""
    known = table.fixed[symbols] | borders  # after these the state is known
    after = table.next_state[symbols, rules.BETWEEN]
    places = np.flatnonzero(~known)
    steps = table.next_state[symbols[places]]  # the state behind a place, by the state behind the place `since`
    since = places - 1
    while len(places):
        ready = known[since]
        done = places[ready]
        after[done] = steps[ready, after[since[ready]]]
        # The others: the steps up to `since` are put before their own.
        waiting = ~ready
        index = np.searchsorted(places, since[waiting])
        steps, since = np.take_along_axis(steps[waiting], steps[index], axis=1), since[index]
        places = places[waiting]
        known[done] = True
    before = np.concatenate(([rules.BETWEEN], after[:-1]))
    before[borders] = rules.BETWEEN
    return np.asarray(table.is_start[symbols, before], bool)
