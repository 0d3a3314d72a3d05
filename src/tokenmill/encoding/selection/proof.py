"""The proof that an engine gives the ids of the reference, made once for a tokenizer.

1. Characters: the engine answers the questions of `characters`. Where it answers otherwise than the reference, the character is
   guarded. What the reference answers for well-known patterns comes with tokenmill, as a digest; for others it is asked here.
2. Splitting: every short string of representatives of the classes gives the ids of the reference.
3. This tokenizer: the texts of `suite`, and every character beside tokens to which it matters.

A difference in 2 or 3 refuses the engine. It runs in a process of its own, where it may crash or hang.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.child_process import ChildDied, end_idle_children
from tokenmill.display import fields_in_one_line
from tokenmill.encoding.conversion.tiktoken_bpe import REST_FILE
from tokenmill.encoding.decoder import Decoder
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import ENGINES, engine_traits, engine_version
from tokenmill.encoding.engines.base import Ids, flatten
from tokenmill.encoding.engines.guarded import Ranges, describe, guards, mask_of, merged, outside
from tokenmill.encoding.selection import characters, suite
from tokenmill.encoding.selection.examination import Encoded, Examined, differing
from tokenmill.encoding.tokenizer_json import what_decides_ids
from tokenmill.errors import TokenizerError
from tokenmill.user_cache import keyed_path, read_cached, write_cached

TABLES = "characters.json"
MOST_GUARDED = 20_000  # characters for which an engine may be wrong; one that is wrong for ASCII is refused
ROUNDS = 6  # of guarding what differs


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether an engine gives the reference's ids, and the reason in words.

    `guard` are the characters whose documents the reference encodes. `texts` were compared on this machine. `shipped`: the
    reference's answers about characters came with tokenmill.
    """

    engine: str
    version: str
    agrees: bool
    why: str
    guard: Ranges = ()
    texts: int = 0
    shipped: bool = False

    __repr__ = fields_in_one_line


@dataclass(frozen=True, slots=True)
class Table:
    """What was found out about characters for a pattern and a normalizer.

    `guard` are those for which the engine differs or that were not asked for, `marks` those that a normalizer may move,
    `members` represent the classes, and `digest` is that of the reference's answers about all others.
    """

    guard: Ranges
    marks: Ranges
    members: tuple[str, ...]
    digest: str


class _Refusal(Exception):
    """Why the engine cannot be used. `lasts`: nor another time, while the versions stay the same."""

    def __init__(self, why: str, *, lasts: bool = True) -> None:
        super().__init__(why)
        self.lasts = lasts


def remembered(definition: Definition, engine: str) -> Proof | None:
    """The proof made earlier with the installed versions."""
    found = read_cached(_proof_path(definition, engine))
    return None if found is None else Proof(**{**found, "guard": merged(found["guard"])})


def refuse(definition: Definition, engine: str, why: str) -> None:
    """Record that an engine gave ids other than the reference's, so that it is not chosen again."""
    write_cached(_proof_path(definition, engine), asdict(Proof(engine, engine_version(engine), False, why)))


def prove(definition: Definition, engine: str) -> Proof:
    """Examine an engine. The result is remembered, unless the machine was short of time or memory."""
    end_idle_children()  # for their memory
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenmill-")))
            reference = stack.enter_context(Examined(definition.reference, threads=True))
            examined = stack.enter_context(Examined(engine))
            proof, lasts = _Examination(definition, folder, reference, examined).result()
    except OSError as error:  # there is no room for files, or no process may be started
        proof, lasts = Proof(engine, engine_version(engine), False, f"cannot be examined here: {error}"), False
    earlier = remembered(definition, engine)
    if earlier is not None and not earlier.agrees:  # a refusal by any process is final
        return earlier
    if lasts:
        write_cached(_proof_path(definition, engine), asdict(proof))
    return proof


class _Examination:
    def __init__(self, definition: Definition, folder: Path, reference: Examined, engine: Examined) -> None:
        self._definition, self._reference, self._engine = definition, reference, engine
        self._traits = engine_traits(engine.engine)
        small = characters.question_definition(definition)
        # What questions about characters are asked with, if not with the tokenizer itself.
        self._small = small if small is not None and ENGINES[engine.engine].can_run(small) else None
        self._own = self._questions = folder / "own"
        definition.save(self._own)
        if self._small is not None:
            self._questions = folder / "questions"
            self._small.save(self._questions)
        self._texts = 0  # compared so far

    def result(self) -> tuple[Proof, bool]:
        """The proof, and whether it holds as long as the versions stay the same."""
        proof = Proof(self._engine.engine, engine_version(self._engine.engine), False, "")
        try:
            for examined in (self._reference, self._engine):
                examined.ask(self._own, [])  # it loads the tokenizer meanwhile
            texts = suite.texts(self._definition)
            self._right_answer()
            self._reference.ask(self._own, texts)  # it takes the longest
            self._answer()
            table, shipped = self._table()
            self._ask(self._own, texts)
            contests = suite.contests(self._definition)  # made while both are at work
            flagged = suite.flag_texts(self._definition, characters.trusted(table.guard))
            self._compare(texts, self._own_ids, self._answer(), table.guard)
            self._same(self._own, contests + flagged, table.guard)
        except _Refusal as refusal:
            return replace(proof, why=str(refusal), texts=self._texts), refusal.lasts
        reference = f"{self._reference.engine} {engine_version(self._reference.engine)}"
        where = "with its answers that come with tokenmill" if shipped else "on this machine"
        why = (
            f"proved to give the ids of {reference}: the properties of {len(characters.trusted(table.guard)):,} characters"
            f" compared {where}, and {self._texts:,} texts on this machine"
        )
        if found := outside(table.guard, self._not_asked):
            why += f"; documents with {describe(found)} are left to {self._reference.engine}"
        return replace(proof, agrees=True, why=why, guard=table.guard, texts=self._texts, shipped=shipped), True

    # Characters and splitting.

    @property
    def _not_asked(self) -> Ranges:
        return characters.not_asked(composes=self._traits.knows_unicode and characters.normalizes(self._definition))

    def _table(self) -> tuple[Table, bool]:
        """The table for this pattern and normalizer, and whether its answers came with tokenmill.

        The engine gives its answers on this machine once, whoever has asked the reference.
        """
        if self._small is None:
            return self._found_out(), False
        key = table_key(self._definition, self._engine.engine)
        found, shipped = cached_table(key), _shipped_table(self._definition, key)
        if found is None:
            holds = shipped is not None and _digest(self._engine_about(shipped)) == shipped.digest
            found = shipped if shipped is not None and holds else self._found_out()
            write_cached(_table_path(key), asdict(found))
        return found, found == shipped

    def _engine_about(self, table: Table) -> Iterator[Encoded]:
        """The engine's answers about the characters and classes of a table."""
        marks = list(map(chr, np.flatnonzero(mask_of(table.marks)).tolist()))
        about = characters.questions(self._definition, characters.trusted(table.guard), marks)
        for texts in ([text for _, text in about], characters.class_strings(table.members)):
            self._ask(self._questions, texts)
            yield self._answer()

    def _found_out(self) -> Table:
        """Compare the engine's answers about every character with the reference's."""
        _ = self._own_ids  # the reference is busy with them
        guard = self._not_asked
        marks = self._marks(characters.trusted(guard)) if characters.normalizes(self._definition) else []
        answers: dict[str, Ids] = {}  # of the reference, by text
        wrong: set[str] = set()  # texts for which the engine gives others
        for _ in range(ROUNDS):
            asked = characters.questions(self._definition, characters.trusted(guard), marks)
            if new := [text for _, text in asked if text not in answers]:
                (ids, offsets), actual = self._both(self._questions, new)
                answers.update(zip(new, np.split(ids, offsets[1:-1]), strict=True))
                wrong.update(new[i] for i in self._differing((ids, offsets), actual))
            unexplained = [question for question in asked if question[1] in wrong]
            if not unexplained:
                break
            guard = merged((*guard, *self._to_guard(unexplained)))
            marks = [mark for mark in marks if not guards(guard, mark)]
        else:
            raise _Refusal(f"differs from {self._reference.engine} on characters in a way that no guard covers")
        if self._small is not None and characters.splits_bytes(self._small):
            members = characters.representatives(characters.trusted(guard), self._reference_ids)
        else:
            members = [c for c in characters.collected("members without byte-level ids") if not guards(guard, c)]
        strings = self._same(self._questions, characters.class_strings(members), ())
        digest = _digest((flatten(answers[text] for _, text in asked), strings))
        return Table(guard, _ranges(marks), tuple(members), digest)

    def _to_guard(self, differ: list[characters.Question]) -> Ranges:
        """The characters that explain why answers differ: those that differ alone, or else all that the questions are about."""
        suspects = sorted({c for about, _ in differ for c in about})
        context = characters.contexts(self._definition)
        single = [context.replace("¤", c) for c in suspects]
        # If none differs alone, they differ only together.
        guilty = [suspects[i] for i in self._differing(*self._both(self._questions, single))] or suspects
        if plain := "".join(filter(str.isascii, guilty)):
            raise _Refusal(f"differs from {self._reference.engine} on the characters {plain[:20]!r}")
        if len(guilty) > MOST_GUARDED:
            raise _Refusal(f"differs from {self._reference.engine} on {len(guilty):,} characters")
        return _ranges(guilty)

    def _marks(self, known: list[str]) -> list[str]:
        """The marks, by any Unicode in play: what the engine or the reference moves, and what Python's calls a mark."""
        found = characters.seconds() | {c for c in known if unicodedata.category(c)[0] == "M"}
        if self._small is not None:
            decoder = Decoder(self._small.json or "")
            later = [c for c in known if not c.isascii()]
            for context, is_moved in characters.MOVED.items():
                texts = [context.replace("¤", c) for c in later]
                for ids, _ in self._both(self._questions, texts):
                    made = decoder.text(ids).split("x")  # with which each text ends
                    found.update(c for c, result in zip(later, made, strict=False) if is_moved(result))
        return [c for c in known if c in found]

    # Asking and comparing.

    def _ask(self, folder: Path, texts: list[str]) -> None:
        """Let the engine encode, as much in a call as in a build."""
        self._engine.ask(folder, texts, self._traits.best_batch_bytes)

    def _answer(self) -> Encoded:
        """What the engine gave. A refusal if it crashed, hung or raised an exception."""
        try:
            return self._engine.answer()
        except ChildDied as died:
            is_short = any(word in str(died) for word in ("no answer", "SIGKILL"))  # of time or memory
            raise _Refusal(f"cannot run it: it {died}", lasts=not is_short) from died
        except OSError as error:
            raise _Refusal(f"cannot run it: {type(error).__name__}: {error}", lasts=False) from error
        except Exception as error:  # of the engine
            raise _Refusal(f"cannot run it: {error}") from error

    @cached_property
    def _own_ids(self) -> Encoded:
        """The reference's ids of the texts for this tokenizer, for which it was asked first of all."""
        return self._right_answer()

    def _right_answer(self) -> Encoded:
        """What the reference gave."""
        try:
            return self._reference.answer()
        except RuntimeError as error:  # raised by the library: a build quarantines such documents
            raise _Refusal(f"cannot be compared: {self._reference.engine} fails on some texts: {error}") from error
        except Exception as error:
            raise TokenizerError(
                f"the reference, {self._reference.engine}, cannot run this tokenizer: {error}. If the machine is short of"
                " time, memory or disk, try again later"
            ) from error

    def _reference_ids(self, texts: list[str]) -> Encoded:
        self._reference.ask(self._questions, texts)
        return self._right_answer()

    def _both(self, folder: Path, texts: list[str]) -> tuple[Encoded, Encoded]:
        """What the reference and the engine give."""
        self._ask(folder, texts)
        self._reference.ask(folder, texts)
        return self._right_answer(), self._answer()

    def _same(self, folder: Path, texts: list[str], guard: Ranges) -> Encoded:
        """What the reference gives. A refusal if the engine gives anything else for a text that is not guarded."""
        expected, actual = self._both(folder, texts)
        self._compare(texts, expected, actual, guard)
        return expected

    def _compare(self, texts: list[str], expected: Encoded, actual: Encoded, guard: Ranges) -> None:
        differ = [i for i in self._differing(expected, actual) if not guards(guard, texts[i])]
        if differ:
            others = f", and on {len(differ) - 1:,} more of {len(texts):,} texts" if len(differ) > 1 else ""
            raise _Refusal(f"differs from {self._reference.engine} on {texts[differ[0]][:40]!r}{others}")

    def _differing(self, expected: Encoded, actual: Encoded) -> list[int]:
        """The indices of the texts for which the engine gives others ids."""
        self._texts += len(expected[1]) - 1
        return differing(expected, actual)


def _ranges(some: Iterable[str]) -> Ranges:
    return merged((ord(c), ord(c)) for c in some)


def _digest(answers: Iterable[Encoded]) -> str:
    whole = hashlib.sha256()
    for ids, offsets in answers:
        whole.update(np.ascontiguousarray(ids, np.uint32).tobytes() + np.diff(offsets).astype(np.uint32).tobytes())
    return whole.hexdigest()[:32]


def _versions(reference: str, engine: str) -> str:
    return f"{engine} {engine_version(engine)}, {reference} {engine_version(reference)}, {characters.VERSION}.{suite.VERSION}"


def _proof_path(definition: Definition, engine: str) -> Path:
    """A proof holds for these versions of everything involved."""
    others = f"{engine_version('bytes')}, {unicodedata.unidata_version}"
    return keyed_path("proofs", f"{definition.fingerprint} {_versions(definition.reference, engine)}, {others}")


def table_key(definition: Definition, engine: str) -> str:
    """What a table holds for: pattern, normalizer and settings of the model; and versions."""
    pattern = definition.files.get(REST_FILE, b"{}") if definition.reference == "tiktoken" else b"{}"
    decides = [what_decides_ids(json.dumps(definition.settings)), json.loads(pattern).get("pattern")]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]
    return f"{digest} {_versions(definition.reference, engine)}"


def _table_path(key: str) -> Path:
    return keyed_path("characters", f"{key} {unicodedata.unidata_version}")


def cached_table(key: str) -> Table | None:
    found = read_cached(_table_path(key))
    return None if found is None else _as_table(found, ())


@cache
def _shipped() -> dict[str, Any]:
    return dict(json.loads(files("tokenmill").joinpath("data", TABLES).read_text("utf-8")))


def _shipped_table(definition: Definition, key: str) -> Table | None:
    shipped = _shipped()
    for version, other in shipped["same_answers"].items():
        key = key.replace(f", {version}, ", f", {other}, ")
    found = shipped["tables"].get(key)
    if found is None:
        return None
    return _as_table(found, shipped["not_asked" if characters.normalizes(definition) else "private"])


def _as_table(found: dict[str, Any], always: Iterable[Any]) -> Table:
    guard = merged((*found["guard"], *always))
    return Table(guard, merged(found["marks"]), tuple(found["members"]), found["digest"])
