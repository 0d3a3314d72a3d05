"""What people type who know other tools, and what it is called here: options, their values, and commands.

A meaning is the name of an option (of several, the first that is known at the place), or a sentence with names of options in
braces. Command line, Python and recipes answer from the same tables, each in its own spelling.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import TypeAlias

Table: TypeAlias = Sequence[Sequence[str]]
_AROUND = (r"[_-](path|dir|folder|file|name)s?$", r"^-*(allow|use|do|with|enable|is|return|set|default|as|no)[_-]")
_SHORT = {"len": "length", "doc": "document", "seq": "sequence", "col": "column", "sep": "separator"}


def table(name: str) -> Table:
    """A table of data/words.toml: "options", "values", "commands" or "names"."""
    return _tables()[name]


@cache
def _tables() -> dict[str, Table]:
    return tomllib.loads(files("tokenmill").joinpath("data", "words.toml").read_text("utf-8"))


def remedy(word: str, where: str, known: Mapping[str, str], elsewhere: Callable[[str], str]) -> str:
    """What to write for an option that is not known at a place; nothing if nothing is near.

    `known` are the options there by name, as they are written. `elsewhere` says where else an option of a name is, such as
    "seq_len of tm.pack", or nothing.
    """
    name, meaning = _plain(word), next(_meanings("options", word, {where}), "")
    if " " in meaning and name not in known:
        return "; " + re.sub(r"\{(\w+)\}", lambda option: known.get(option[1]) or elsewhere(option[1]), meaning)
    there = elsewhere(name)
    here = [name, *meaning.split("|"), *_bare(name), "" if there or meaning else _closest(word, known)]
    near = next((known[each] for each in here if each in known), "")
    if there and not near:
        home = there.partition(" of ")[2]
        return f": it belongs to {home}" if home else f"; did you mean {there}?"
    options = meaning or _closest(word, {each for options, *_ in table("options") for each in options.split("|")})
    near = near or next(filter(None, map(elsewhere, options.split("|"))), "")
    return f"; did you mean {near}?" if near else ""


def choice_remedy(of: str, typed: str, choices: Collection[str]) -> str:
    """The same for what is one of some choices: a value of an option ("values"), or a command ("commands")."""
    for meaning in _meanings(of, typed, choices):
        fitting = " or ".join(each for each in meaning.split("|") if each in choices)
        if fitting or " " in meaning:
            return f"; did you mean {fitting}?" if fitting else f"; {meaning.rpartition('|')[2]}"
    all_of_them = f"; there are {', '.join(choices)}" if of == "commands" else ""  # a value's message has them already
    return nearest(typed, choices) or all_of_them


def _meanings(of: str, word: str, here: Collection[str]) -> Iterator[str]:
    """What a table has for a word at a place, first as it is typed, then without -s, or what goes around: use_, _path."""
    for typed in dict.fromkeys([word, word.rstrip("s"), *_bare(word)]):
        for meaning, words, *places in table(of):
            if _key(typed) in map(_key, words.split()) and (not places or not set(places[0].split()).isdisjoint(here)):
                yield meaning


def _bare(word: str) -> list[str]:
    """The word without what goes around: use_, _path."""
    return [re.sub(each, "", word) for each in _AROUND]


def nearest(name: str, names: Collection[str]) -> str:
    """ "; did you mean ...?", if one of the names begins with this one, or is nearly this one. Flags may be among them."""
    plain = {_plain(one): one for one in names}
    near = _closest(name, plain)
    return f"; did you mean {plain[near]}?" if near else ""


def nearest_or_all(name: str, names: Callable[[], Iterable[str]]) -> str:
    """The same for an attribute, and if nothing is near, what there is; nothing for names that programs look for."""
    public = [] if name.startswith("_") else sorted(each for each in names() if each[0] != "_")
    return nearest(name, public) or (f"; it has {', '.join(public)}" if public else "")


def _closest(name: str, names: Collection[str]) -> str:
    """The name that begins with what was typed, or was meant but for slips, or that what was typed begins with."""
    typed = _plain(name)
    begin = [one for one in names if len(typed) > 2 and one.startswith(typed)]
    slips = sorted((one for one in names if _is_slip(typed, one)), key=lambda one: -_likeness(typed, one))
    ends = [one for one in names if len(one) > 3 and re.match(f"{re.escape(one)}(_|s$|ing$)", typed)]
    return next(iter([*begin, *slips, *ends]), "")


def _is_slip(typed: str, name: str) -> bool:
    """Whether letters are swapped, wrong or missing, or each word is shortened: max_docs for max_documents."""
    if _likeness(typed, name) >= 0.8 or sorted(typed) == sorted(name):
        return True
    short, long = typed.split("_"), name.split("_")
    return len(short) == len(long) and all(
        len(a) > 2 and re.match(".*".join(map(re.escape, a)), b) for a, b in zip(short, long, strict=True)
    )


def _likeness(typed: str, name: str) -> float:
    return SequenceMatcher(None, typed.replace("_", ""), name.replace("_", "")).ratio()


def _plain(name: str) -> str:
    """A name without what only sets spellings apart: "--max-rows" and "MAX_ROWS" are "max_rows"."""
    return name.strip("-").lower().replace("-", "_")


@cache
def _key(word: str) -> str:
    """A word as it is compared: n_jobs, numJobs and --num-jobs are one, and so are max_doc_len and max_document_length."""
    full = re.sub(r"^n_", "num_", _plain(word))
    for short, long in _SHORT.items():
        full = re.sub(rf"(?<![a-z]){short}(?=s?(_|$))", long, full)
    return full.replace("_", "")
