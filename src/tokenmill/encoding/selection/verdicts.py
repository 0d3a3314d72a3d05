"""What trials found out about engines, in memory and in the user's cache."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tokenmill.display import fields_in_one_line
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import engine_version
from tokenmill.encoding.engines.base import Ids, Offsets
from tokenmill.encoding.engines.guarded import Ranges
from tokenmill.encoding.selection import probes
from tokenmill.user_cache import cache_folder, read_cached, write_cached

MAX_RACES = 100  # in the cache, per tokenizer
Encoded = tuple[Ids, Offsets]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one engine agrees with the reference, and the reason in words.

    An engine that agrees may have a `guard`: documents with such a character are encoded by the reference.
    """

    engine: str
    version: str
    agrees: bool
    why: str
    guard: Ranges = ()

    __repr__ = fields_in_one_line


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine to use, and the reason in words."""

    engine: str
    version: str
    why: str
    guard: Ranges = ()
    verdicts: tuple[Verdict, ...] = ()

    __repr__ = fields_in_one_line


def differing(expected: Encoded, actual: Encoded) -> list[int]:
    """The indices of the documents whose ids differ."""
    lengths, found = np.diff(expected[1]), np.diff(actual[1])
    differ = lengths != found
    comparable = np.flatnonzero(~differ & (lengths > 0))
    ids = [encoded[0][np.repeat(~differ, count)] for encoded, count in ((expected, lengths), (actual, found))]
    starts = np.cumsum(lengths[comparable]) - lengths[comparable]
    if len(starts):
        differ[comparable] = np.logical_or.reduceat(ids[0] != ids[1], starts)
    return np.flatnonzero(differ).tolist()


def _document(encoded: Encoded, i: int) -> Ids:
    ids, offsets = encoded
    return ids[offsets[i] : offsets[i + 1]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A text for which an engine and the reference give different ids."""

    text: str
    expected: list[int]
    found: list[int]

    @classmethod
    def of(cls, texts: Sequence[str], expected: Encoded, actual: Encoded, i: int) -> Difference:
        """The difference in document `i`."""
        return cls(texts[i], _document(expected, i).tolist(), _document(actual, i).tolist())

    @property
    def position(self) -> int:
        """The index of the first id that differs."""
        pairs = zip(self.expected, self.found, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.expected), len(self.found)))

    def __str__(self) -> str:
        at = self.position
        low = max(0, at - 4)

        def shown(ids: list[int]) -> str:
            dots = ("... " if low else "", " ..." if len(ids) > at + 12 else "")
            return f"[{dots[0]}{', '.join(map(str, ids[low : at + 12]))}{dots[1]}]"

        return f"first at token {at}: {shown(self.expected)} by the reference, {shown(self.found)} by the engine"


class VerdictCache:
    """The cached verdicts and races of one tokenizer. A missing or damaged file counts as empty."""

    def __init__(self, definition: Definition) -> None:
        self._reference = definition.reference
        self._path = cache_folder() / "proofs" / f"{definition.fingerprint}.json"
        self._body = self._read()

    def verdict(self, engine: str) -> Verdict | None:
        cached = self._body["verdicts"].get(self._key(engine))
        return None if cached is None else Verdict(**{**cached, "guard": tuple(map(tuple, cached["guard"]))})

    def put(self, verdict: Verdict) -> None:
        self._body["verdicts"][self._key(verdict.engine)] = asdict(verdict)

    def race(self, key: str) -> dict[str, float] | None:
        """The rate of each engine in an earlier race."""
        rates: dict[str, float] | None = self._body["races"].get(key)
        return rates

    def save(self, race_key: str | None = None, rates: dict[str, float] | None = None) -> None:
        """Write what is new, merged with what other processes wrote since. A refusal by any process is final."""
        current = self._read()
        for key, verdict in current["verdicts"].items():
            if key not in self._body["verdicts"] or not verdict["agrees"]:
                self._body["verdicts"][key] = verdict
        races = {**current["races"], **self._body["races"]} | ({} if race_key is None else {race_key: rates})
        latest = dict(list(races.items())[-MAX_RACES:])
        write_cached(self._path, {"verdicts": self._body["verdicts"], "races": latest})

    def _read(self) -> dict[str, dict[str, Any]]:
        return read_cached(self._path) or {"verdicts": {}, "races": {}}

    def _key(self, engine: str) -> str:
        """A verdict holds for these versions of engine, reference, tokenmill, probes and Unicode."""
        versions = f"{engine} {engine_version(engine)}, {self._reference} {engine_version(self._reference)}"
        suite = f"suite {probes.VERSION} of Unicode {unicodedata.unidata_version}"
        return f"{versions}, tokenmill {engine_version('bytes')}, {suite}"


def refuse(definition: Definition, engine: str, why: str) -> None:
    """Record that an engine gave ids other than the reference's, so that it is not chosen again."""
    cache = VerdictCache(definition)
    cache.put(Verdict(engine, engine_version(engine), False, why))
    cache.save()
