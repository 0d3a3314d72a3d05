"""The engine and its kernels on a simulated GPU, with the ids of `tokenizers`."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from gpu_simulation import by_reference, needs_compiler
from pretokens import PRE_TOKENIZERS

from tokenmill.encoding.definition import Definition
from tokenmill.encoding.gpu.bpe_tables import bpe_tables
from tokenmill.encoding.gpu.device import MOST_LONGS, Room
from tokenmill.encoding.gpu.engine import GpuEngine
from tokenmill.encoding.gpu.hash_tables import hash_tables
from tokenmill.encoding.gpu.patterns import recognise
from tokenmill.encoding.gpu.shared_batch import OutOfRoom
from tokenmill.testing.engines import EngineCase, EngineContract, texts_with

pytestmark = needs_compiler


def with_pattern(body: dict, name: str, **changes: object) -> Definition:
    """The demo vocabulary behind the pre-tokenizer of another family."""
    model = {**body["model"], "ignore_merges": changes.pop("ignore_merges", False)}
    return Definition(json=json.dumps({**body, "pre_tokenizer": PRE_TOKENIZERS[name], "model": model, **changes}))


class TestGpuEngine(EngineContract):
    """One tokenizer of each kind that matters to the kernels: digits, cases, NFC, whole words that are looked up first."""

    @pytest.fixture(scope="class", params=["gpt2", "qwen2, nfc", "cl100k, looked up first"])
    @classmethod
    def case(cls, request, gpu, body, gpu_definition, gpu_texts):
        name, definition = request.param.split(",")[0], gpu_definition
        if "nfc" in request.param:
            definition = with_pattern(body, name, normalizer={"type": "NFC"})
        elif "looked up" in request.param:
            definition = with_pattern(body, name, ignore_merges=True)
        texts = [*gpu_texts, *texts_with([token["content"] for token in body["added_tokens"]])]
        return EngineCase(
            lambda: GpuEngine(definition), texts, by_reference(definition, texts), len(body["model"]["vocab"])
        )

    def test_the_device_is_used(self, case):
        case.encode(["some words"])
        assert case.engine._connection is not None, "the reference has encoded all"
        assert case.engine._connection.device == "simulated"


@pytest.fixture(scope="module")
def in_this_process(gpu, gpu_definition):
    """Makes the tables of a tokenizer on a device of this process."""
    from tokenmill.encoding.gpu.device import Device

    body = json.loads(gpu_definition.engine_json)
    tables = hash_tables(bpe_tables(body)[0])

    def make(**settings) -> Device:
        sizes = {"batch_bytes": 1 << 20, "slots": 1 << 14, "arena_bytes": 1 << 20}
        return Device(recognise(body)[0], tables, [b"<|endoftext|>"], **{**sizes, **settings})

    return make


def on_device(device, texts: list[str]) -> tuple[list[list[int]], list[bool]]:
    import cupy

    encoded = [text.encode() for text in texts]
    offsets = np.concatenate(([0], np.cumsum([len(each) for each in encoded]))).astype(np.uint32)
    raw = np.frombuffer(b"".join(encoded) + bytes(64), np.uint8)
    found = device.encode(cupy.asarray(raw), cupy.asarray(offsets), int(offsets[-1]))
    ids, places = found.ids.get(), found.places.get().astype(np.int64)
    own = [ids[low:high].tolist() for low, high in pairwise(places)]
    return own, found.refused.get().astype(bool).tolist()


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_have_the_type_that_is_asked_for(in_this_process, gpu_definition, dtype):
    device = in_this_process(dtype=dtype)
    assert device.encode.__self__.id_type == dtype
    texts = ["def main(): return 'ids'", "", "ab" * 1500]
    assert on_device(device, texts) == (by_reference(gpu_definition, texts), [False] * 3)


def test_words_whose_hashes_are_equal_are_left_to_the_reference(in_this_process, gpu_definition, real_texts):
    """If all hashes are equal, many are; what is not left to it is right all the same."""
    device = in_this_process(tag_mask=0, slots=256)
    texts = [text[:150] for text in real_texts[:8]]
    ids, refused = on_device(device, texts)
    wanted = by_reference(gpu_definition, texts)
    assert any(refused)
    assert [found for found, left in zip(ids, refused, strict=True) if not left] == [
        want for want, left in zip(wanted, refused, strict=True) if not left
    ]


def test_words_whose_hashes_are_equal_never_have_more_ids_than_bytes(in_this_process):
    """Else a text that was made for it would have ids written behind the buffers."""
    long = "".join(random.Random(0).choices("bcdfghjklmnpqrstvwxz", k=1500))
    texts = [long, "qzj " * 200, "xkv " * 200, "wqx " * 200, "zvb " * 200]
    found, refused = on_device(in_this_process(tag_mask=0, slots=1), texts)
    assert any(refused)
    assert all(len(ids) <= len(text) for ids, text in zip(found, texts, strict=True))


@pytest.mark.parametrize("size", [{"slots": 16}, {"arena_bytes": 64}])
def test_a_table_that_is_full_is_emptied_and_said(in_this_process, gpu_definition, real_texts, size):
    device = in_this_process(**size)
    with pytest.raises(OutOfRoom):
        on_device(device, [real_texts[0][:4000]])
    few = ["a zzq"]
    assert on_device(device, few)[0] == by_reference(gpu_definition, few)


def test_merged_words_are_kept_between_batches(in_this_process, gpu_definition, real_texts):
    device = in_this_process()
    texts = [text[:1000] for text in real_texts[:10]]
    first = on_device(device, texts)
    known = device._known
    assert known > 0
    assert on_device(device, texts) == first
    assert device._known == known
    assert first[0] == by_reference(gpu_definition, texts)


def test_batches_in_turn(in_this_process, gpu_definition, real_texts):
    from tokenmill.encoding.gpu.pipeline import Batch, Pipeline, pinned

    texts = [text[:2000] for text in real_texts[:6]]
    batches = []
    for text in texts:
        data = text.encode()
        buffer = pinned(len(data) + 512)
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
        batches.append(Batch(buffer, np.array([0, len(data)], np.uint32), len(data)))
    found = [each.ids.tolist() for each in Pipeline(in_this_process(), np.uint32).encode(batches)]
    assert found == by_reference(gpu_definition, texts)


@pytest.mark.parametrize("memory", [256_000_000, 1 << 30, 5_000_000_000, 80 << 30])
def test_buffers_and_tables_fit_into_the_memory_that_may_be_used(memory):
    room = Room.within(memory, 50_000_000)
    assert room.batch_bytes * 80 + room.slots * 36 + 2 * room.arena_bytes + 50_000_000 + 4 * MOST_LONGS <= memory
    assert room.batch_bytes * 130 > memory - 54_000_000


def test_a_batch_of_long_words_takes_no_more_memory_than_is_reckoned_with(gpu, gpu_definition):
    """The temporary arrays of the rounds are what takes most."""
    import cupy

    from tokenmill.encoding.gpu.device import Device

    body = json.loads(gpu_definition.engine_json)
    tables = hash_tables(bpe_tables(body)[0])
    room = Room(batch_bytes=200_000, slots=1 << 10, arena_bytes=1 << 12)
    before = cupy.cuda.memory.used
    device = Device(recognise(body)[0], tables, [], np.uint32, *room)
    text = "".join(random.Random(0).choices("abcdefgh", k=190_000))
    cupy.cuda.memory.peak = 0
    found, refused = on_device(device, [text])
    assert (found, refused) == (by_reference(gpu_definition, [text]), [False])
    fixed = tables.nbytes + room.slots * 36 + 2 * room.arena_bytes + 4 * MOST_LONGS
    assert cupy.cuda.memory.peak - before < fixed + 80 * room.batch_bytes
