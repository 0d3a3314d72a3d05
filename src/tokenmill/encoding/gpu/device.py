"""Encoding on one GPU: text in device memory becomes ids there. The kernels are starts.cu and words.cu, compiled by NVRTC.

All buffers are made once, for batches of a fixed size, so device memory does not grow with the input. What words outside the
vocabulary merge to is kept between batches, and dropped when its table is half full.
"""

from __future__ import annotations

import secrets
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.encoding.gpu.bpe_tables import NO_ID
from tokenmill.encoding.gpu.device_source import pattern_flags, starts_source
from tokenmill.encoding.gpu.hash_tables import PLAIN, HashTables
from tokenmill.encoding.gpu.patterns import Pattern
from tokenmill.encoding.gpu.pretoken_rules import character_roles, rule_table
from tokenmill.encoding.gpu.shared_batch import OutOfRoom

MIB = 1 << 20
BATCH_BYTES = 256 * MIB
SLOTS = 1 << 23  # of merged words
ARENA_BYTES = 1 << 28  # for their ids, and as many for their text
MOST_LONGS = 1 << 20  # words in a batch that are longer than one thread merges
AROUND = 512  # bytes behind the text
MOST_IDS = 1 << 31  # of a vocabulary: larger numbers stand for words that are merged
COUNTERS = 8
MEDIUMS, FRESH, LONGS, IDS, BYTES, FULL, DIFFER = range(7)
SLOT_BYTES = 36  # of a slot of merged words, with its lists
BYTES_PER_BYTE = 80  # of a batch: 15 for its buffers, and what is allocated for a batch that is one long word
MOST_WINDOW = 5888  # places that a block looks around in: what shared memory has room for
BLOCK = 256
MOST_THREADS = 1 << 19  # of kernels that go through the text in steps
HASHES = 1 << 13  # of names of added tokens
ALL_BITS = 0xFFFFFFFFFFFFFFFE


class Room(NamedTuple):
    """How large buffers and tables are."""

    batch_bytes: int
    slots: int
    arena_bytes: int

    @classmethod
    def within(cls, memory: int, tables: int) -> Room:
        """Sizes with which everything fits into some memory beside `tables` of the tokenizer, even a batch of long words only.

        The slots of merged words get a 32nd of it, their two arenas a 16th each, and the batch the rest.
        """
        memory -= tables + 4 * MOST_LONGS
        slots, arena = _power_of_two(memory // 32 // SLOT_BYTES), _power_of_two(memory // 16)
        return cls((memory - slots * SLOT_BYTES - 2 * arena) // BYTES_PER_BYTE, slots, arena)


def _power_of_two(most: int) -> int:
    """The largest that is not above `most`."""
    return 1 << (most.bit_length() - 1)


class Encoded(NamedTuple):
    """In device memory: the ids of a batch, where those of each document begin, and which documents are left to the reference."""

    ids: Any
    places: Any
    refused: Any


class Device:
    """The tables of one tokenizer on the current GPU, and buffers for batches of at most `batch_bytes`."""

    def __init__(
        self,
        pattern: Pattern,
        tables: HashTables,
        names: list[bytes],
        dtype: npt.DTypeLike = np.uint32,
        batch_bytes: int = BATCH_BYTES,
        slots: int = SLOTS,
        arena_bytes: int = ARENA_BYTES,
        tag_mask: int = ALL_BITS,
    ) -> None:
        import cupy

        self._cupy = cupy
        self.batch_bytes, self._slots, self._tag_mask = batch_bytes, slots, np.uint64(tag_mask)
        self._seed = np.uint64(secrets.randbits(64))  # so that nobody can make words whose hashes are equal
        self._id_room, self._byte_room = arena_bytes // 4, arena_bytes // 8  # ids, and units of eight bytes
        self.name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        code = f"#define PATTERN_FLAGS {pattern_flags(pattern)}\n{starts_source()}\n" + _words_source()
        module = cupy.RawModule(code=code, options=("--std=c++17",), backend="nvrtc")
        self._kernel = {name: module.get_function(name) for name in KERNELS}
        self._tables = tables
        self._most_longs = MOST_LONGS if tables.is_ordered and tables.longest <= MOST_WINDOW else 0  # see words.cu
        rules = rule_table(pattern)
        self._roles = cupy.asarray(character_roles(pattern))
        self._rules = cupy.asarray(rules.packed())
        self._vocabulary, self._pairs = cupy.asarray(tables.vocabulary), cupy.asarray(tables.pairs)
        self._byte_ids = cupy.asarray(tables.byte_ids)
        plain = np.zeros(int(tables.byte_ids[tables.byte_ids < NO_ID].max()) + 1, bool)
        plain[tables.byte_ids[list(PLAIN)]] = True
        self._plain_bytes = cupy.asarray(plain)
        self._names = _Names(cupy, names)
        self.id_type = np.dtype(dtype)
        self._make_buffers(cupy)
        self.clear()
        self.timings: dict[str, float] | None = None

    def _make_buffers(self, cupy: Any) -> None:
        room = self.batch_bytes + AROUND
        self._text = cupy.empty(room, cupy.uint8)
        self._mask = cupy.empty(room // 32 + 32, cupy.uint32)
        self._start, self._result = (cupy.empty(room, cupy.uint32) for _ in range(2))
        self._ids = cupy.empty(room, self.id_type)
        self._tags = cupy.empty(self._slots, cupy.uint64)
        self._info = cupy.empty((self._slots, 4), cupy.uint32)
        self._fresh_slot, self._fresh_word = (cupy.empty(self._slots, cupy.uint32) for _ in range(2))
        self._id_arena = cupy.empty(self._id_room, cupy.uint32)
        self._byte_arena = cupy.empty(self._byte_room, cupy.uint64)
        self._mediums = cupy.empty(self._slots, cupy.uint32)
        self._longs = cupy.empty(MOST_LONGS, cupy.uint32)
        self._counters = cupy.zeros(COUNTERS, cupy.uint32)

    def make_raw(self) -> Any:
        """A buffer for the text of a batch."""
        return self._cupy.empty(self.batch_bytes + AROUND, self._cupy.uint8)

    def clear(self) -> None:
        """Forget all merged words."""
        self._tags.fill(0)
        self._counters.fill(0)
        self._known = 0

    def encode(self, raw: Any, offsets: Any, nbytes: int, ids: Any = None) -> Encoded:
        """The ids of documents whose text is `raw`, in device memory, with 8 bytes behind it; `offsets` are uint32.

        Raises OutOfRoom. The result lies in `ids`, or in a buffer that the next call overwrites.
        """
        ids = self._ids if ids is None else ids
        cupy, documents = self._cupy, len(offsets) - 1
        if self._known > self._slots // 2:
            self.clear()
        clock = _Clock(cupy, self.timings)
        size = nbytes + documents + 2
        parts = -(-size // 32)
        padded = parts * 32
        begins = offsets[:-1] + cupy.arange(2, documents + 2, dtype=cupy.uint32)
        refused = cupy.zeros(max(documents, 1), cupy.uint8)
        self._text[padded : padded + AROUND - 64] = 0xFF
        self._run("separate", parts, raw, offsets, begins, documents, parts, self._text)
        clock("separate")
        if self._names.count:
            threads = min(-(-padded // 8), MOST_THREADS)
            self._run("find_names", threads, self._text, size, *self._names.arrays, begins, documents, refused)
            clock("names")
        self._run("mark", parts, self._text, parts, self._roles, self._rules, self._mask, begins, documents, refused)
        clock("mark")
        tiles = -(-parts // 32)
        counts = cupy.empty(tiles, cupy.uint32)
        self._run("count_starts", tiles * 32, self._mask, parts, counts)
        before = cupy.cumsum(counts, dtype=cupy.uint32)
        words = int(before[-1])
        before -= counts
        self._run("compact", tiles * 32, self._mask, parts, before, self._start)
        clock("compact")
        self._counters[MEDIUMS : LONGS + 1] = 0
        self._counters[FULL:] = 0
        self._run(
            "look_up", words, self._text, self._start, words, padded, self._vocabulary, len(self._vocabulary) - 1, self._tags,
            self._slots - 1, self._tag_mask, self._seed, self._result, self._fresh_slot, self._fresh_word, self._mediums,
            self._longs, self._most_longs, self._counters,
        )  # fmt: skip
        clock("look up")
        counters = self._counters.get()
        fresh, longs = int(counters[FRESH]), int(counters[LONGS])
        self._known += fresh
        if fresh:
            self._run(
                "merge", fresh, self._text, self._start, words, padded, self._fresh_slot, self._fresh_word, fresh, self._byte_ids,
                self._pairs, len(self._pairs) - 1, self._info, self._id_arena, self._id_room, self._byte_arena, self._byte_room,
                self._counters, block=128,
            )  # fmt: skip
        if mediums := int(counters[MEDIUMS]):
            self._run(
                "merge_medium", mediums * 32, self._text, self._start, words, padded, self._mediums, self._fresh_slot,
                self._fresh_word, self._byte_ids, self._pairs, len(self._pairs) - 1, self._info, self._id_arena, self._id_room,
                self._byte_arena, self._byte_room, self._counters, block=32,
            )  # fmt: skip
        clock("merge")
        long_counts, long_places, long_ids = self._merge_longs(words, padded, min(longs, self._most_longs))
        clock("merge long")
        self._run(
            "check", words, self._text, self._start, words, padded, self._result, self._info, self._byte_arena, begins,
            documents, refused, self._counters,
        )  # fmt: skip
        clock("check")
        if int(self._counters[FULL]):
            self.clear()
            raise OutOfRoom
        blocks = -(-words // 1024)
        sums = cupy.empty(blocks, cupy.uint32)
        self._run("count", blocks * BLOCK, self._result, words, self._info, long_counts, sums)
        ends = cupy.cumsum(sums, dtype=cupy.uint64)
        total = int(ends[-1])
        ends -= sums
        clock("count")
        # Where pretokens start is not needed any more: their first ids are noted in its place.
        self._run(
            "gather_16" if self.id_type.itemsize == 2 else "gather_32", blocks * BLOCK, self._result, words, self._info,
            self._id_arena, long_counts, long_places, long_ids, ends, ids, self._start,
        )  # fmt: skip
        places = cupy.empty(documents + 1, cupy.uint64)
        places[documents] = total
        self._run(
            "document_places", documents, begins, documents, padded, self._mask, before, self._start, words, np.uint64(total),
            places,
        )  # fmt: skip
        clock("gather")
        clock.finish()
        return Encoded(ids[:total], places, refused[:documents])

    def _run(self, name: str, threads: int, *arguments: Any, block: int = BLOCK, shared: int = 0) -> None:
        if threads:
            values = [np.uint32(each) if type(each) is int else each for each in arguments]
            self._kernel[name]((-(-threads // block),), (block,), values, shared_mem=shared)

    def _merge_longs(self, words: int, padded: int, count: int) -> tuple[Any, Any, Any]:
        """The number of ids of each long word, where they begin, and the ids."""
        cupy = self._cupy
        if not count:
            nothing = cupy.zeros(1, cupy.uint32)
            return nothing, nothing, nothing
        longs = self._longs[:count]
        stops = cupy.where(longs + 1 < words, self._start[cupy.minimum(longs + 1, words - 1)], padded)
        lengths = (stops - self._start[longs]).astype(cupy.uint64)
        ends = cupy.cumsum(lengths)
        size = int(ends[-1])
        ids, owners = cupy.empty(size, cupy.uint32), cupy.empty(size, cupy.uint32)
        self._run(
            "long_bytes", count * BLOCK, self._text, self._start, words, padded, longs, ends - lengths, count, self._byte_ids,
            ids, owners,
        )  # fmt: skip
        ids, owners = self._merged_in_rounds(ids, owners)
        counts = cupy.bincount(owners, minlength=count).astype(cupy.uint32)
        return counts, cupy.cumsum(counts, dtype=cupy.uint32) - counts, ids

    def _window(self, ids: Any) -> int:
        """How far away a merge can have an effect: as far as the longest token goes that these bytes can make."""
        is_plain = self._plain_bytes[ids] if len(ids) else self._plain_bytes[:0]
        return self._tables.longest_plain if bool(is_plain.all()) else self._tables.longest

    def _merged_in_rounds(self, ids: Any, owners: Any) -> tuple[Any, Any]:
        cupy, window = self._cupy, self._window(ids)
        merged = cupy.zeros(1, cupy.uint32)
        while True:
            size = np.uint64(len(ids))
            ranks = cupy.empty(len(ids), cupy.uint32)
            self._run("long_ranks", len(ids), ids, owners, size, self._pairs, len(self._pairs) - 1, ranks)
            changes = cupy.empty_like(ranks)
            self._run("long_changes", len(ids), ranks, size, changes)
            run = cupy.cumsum(changes, dtype=cupy.uint32)
            run_starts = cupy.empty_like(ranks)
            self._run("long_runs", len(ids), ranks, changes, run, size, window, run_starts)
            new_ids, keep = cupy.empty_like(ids), cupy.ones(len(ids) + 1, cupy.uint32)
            merged.fill(0)
            self._run(
                "long_choose", len(ids), ranks, size, window, run, run_starts, ids, self._pairs, len(self._pairs) - 1, new_ids,
                keep, merged, shared=4 * (BLOCK + 2 * window),
            )  # fmt: skip
            count = int(merged[0])
            if not count:
                return ids, owners
            place = cupy.cumsum(keep[:-1], dtype=cupy.uint32)
            ids, moved = cupy.empty(len(ids) - count, cupy.uint32), cupy.empty(len(ids) - count, cupy.uint32)
            self._run("long_move", int(size), new_ids, owners, keep, place, size, ids, moved)
            owners = moved
            del ranks, changes, run, run_starts, new_ids, keep, place, moved  # before those of the next round are made


KERNELS = (
    *(
        "separate",
        "find_names",
        "mark",
        "count_starts",
        "compact",
        "look_up",
        "merge",
        "merge_medium",
        "check",
        "count",
        "gather_16",
        "gather_32",
    ),
    *("document_places", "long_bytes", "long_ranks", "long_changes", "long_runs", "long_choose", "long_move"),
)


class _Names:
    """Names of added tokens: short ones by their first byte, then the others by a hash of their first eight bytes."""

    def __init__(self, cupy: Any, names: list[bytes]) -> None:
        short = sorted({name for name in names if 0 < len(name) < 8})
        long = sorted({name for name in names if len(name) >= 8}, key=_hash_of_eight)
        self.count = len(short) + len(long)
        firsts = np.searchsorted([name[0] for name in short], np.arange(257))
        hashes = np.searchsorted([_hash_of_eight(name) for name in long], np.arange(HASHES + 1)) + len(short)
        starts = np.concatenate(([0], np.cumsum([len(name) for name in (*short, *long)])))
        text = np.frombuffer(b"".join((*short, *long)) or b"\0", np.uint8)
        buckets = np.concatenate((firsts, hashes)).astype(np.uint16)
        self.arrays = cupy.asarray(buckets), cupy.asarray(starts.astype(np.uint32)), cupy.asarray(text)


def _hash_of_eight(name: bytes) -> int:
    """As in words.cu."""
    return (int.from_bytes(name[:8], "little") * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) // (2**64 // HASHES)


class _Clock:
    """Milliseconds by stage, if they are asked for."""

    def __init__(self, cupy: Any, timings: dict[str, float] | None) -> None:
        self._cupy, self._timings = cupy, timings
        self._events: list[tuple[str, Any]] = []
        self("begin")

    def __call__(self, stage: str) -> None:
        if self._timings is not None:
            event = self._cupy.cuda.Event()
            event.record()
            self._events.append((stage, event))

    def finish(self) -> None:
        if self._timings is None:
            return
        self._events[-1][1].synchronize()
        for (_, before), (stage, after) in zip(self._events, self._events[1:], strict=False):
            milliseconds = self._cupy.cuda.get_elapsed_time(before, after)
            self._timings[stage] = self._timings.get(stage, 0.0) + milliseconds


def _words_source() -> str:
    return (files("tokenmill.encoding.gpu") / "words.cu").read_text("utf-8")
