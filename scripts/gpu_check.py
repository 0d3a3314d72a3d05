"""Compare encoding on a GPU with `tokenizers`, document by document, and time it with the text in device memory.

    PYTHONPATH=src python3 scripts/gpu_check.py TOKENIZER.json ... --texts TEXTS.jsonl.xz ... [--documents N] [--batch MB]

Needs CuPy and a CUDA device, and neither pyarrow nor the other engines. Each line of a text file is a JSON object with a text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import random
import sys
import time
from pathlib import Path

import numpy as np

from tokenmill.encoding.gpu.bpe_tables import bpe_tables
from tokenmill.encoding.gpu.device import AROUND, Device
from tokenmill.encoding.gpu.hash_tables import hash_tables
from tokenmill.encoding.gpu.patterns import recognise
from tokenmill.encoding.gpu.pipeline import Batch, Pipeline, pinned
from tokenmill.encoding.gpu.shared_batch import OutOfRoom

ADVERSARIAL = [
    "", " ", "\n", "'", "''", "a" * 100_000, " " * 50_000, "\n" * 5000, "1" * 10_000, "'s" * 3000, "aB" * 4000, "ÀÉ" * 3000,
    "x" * 127, "x" * 128, "x" * 129, "xy" * 64, "ab" * 500_000, "é" * 300, "中" * 500, "🙂" * 400, "a\u0301" * 100, "\u0345" * 5,
    "don't I'LL we'Ve it'S 'tis ''s", "  leading", "trailing  ", "a  b   c\n\n d \r\n\te", "1234567 12 1", "\x00\x01\x7f",
    "=" * 1000, "-" * 999, "/" * 50 + "\n/\n", "<|endoftext|>", "a<|endoftext|>b", "ſ'ſ", "ǅ ǈ",
    "".join(map(chr, range(1, 0x250))),
]  # fmt: skip


def texts_of(path: Path) -> list[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def random_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    pools = [range(0x20, 0x7F), range(0x80, 0x250), range(0x370, 0x600), range(0x900, 0xE00), range(0x3000, 0x9FFF)]
    pools += [
        range(0x1F300, 0x1FAFF),
        range(0x300, 0x370),
        range(0x1100, 0x1200),
        (9, 10, 13, 32, 39, 0xA0, 0x2028, 0x3000),
    ]
    texts = []
    for _ in range(count):
        chosen = draw.sample(pools, 3)
        texts.append("".join(chr(draw.choice(draw.choice(chosen))) for _ in range(draw.randint(0, 60))))
    return texts


def on_device(cupy, texts: list[str]):
    encoded = [text.encode() for text in texts]
    offsets = np.concatenate(([0], np.cumsum([len(each) for each in encoded])))
    raw = np.frombuffer(b"".join(encoded) + bytes(64), np.uint8)
    return cupy.asarray(raw), cupy.asarray(offsets.astype(np.uint32)), int(offsets[-1])


def compare(cupy, device: Device, reference, texts: list[str], name: str) -> int:
    raw, offsets, nbytes = on_device(cupy, texts)
    found = device.encode(raw, offsets, nbytes)
    ids, places, refused = found.ids.get(), found.places.get().astype(np.int64), found.refused.get()
    wanted = []
    for low in range(0, len(texts), 2000):
        encodings = reference.encode_batch_fast(texts[low : low + 2000], add_special_tokens=False)
        wanted += [each.ids for each in encodings]
    wrong = []
    for number, want in enumerate(wanted):
        if not refused[number] and ids[places[number] : places[number + 1]].tolist() != want:
            wrong.append(number)
    print(
        f"   {name}: {len(texts):,} documents, {len(wrong)} differ, {int(refused.sum()):,} left to the reference",
        flush=True,
    )
    for number in wrong[:3]:
        got, want = ids[places[number] : places[number + 1]].tolist(), wanted[number]
        at = next(
            (i for i, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1]), min(len(got), len(want))
        )
        near = slice(max(at - 2, 0), at + 5)
        print(f"      {texts[number][:60]!r} ({len(texts[number])}) at {at}: {got[near]} {want[near]}", flush=True)
    return len(wrong)


def measure(cupy, device: Device, texts: list[str], name: str, batch: int, rounds: int = 4) -> None:
    size, chosen = 0, []
    while size < batch:
        for text in texts:
            chosen.append(text)
            size += len(text.encode())
            if size >= batch:
                break
    raw, offsets, nbytes = on_device(cupy, chosen)
    for warm in (False, True):
        best, best_timings = 1e9, {}
        for _ in range(rounds):
            if not warm:
                device.clear()
            device.timings = {}
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            found = device.encode(raw, offsets, nbytes)
            cupy.cuda.Device().synchronize()
            seconds = time.perf_counter() - start
            if seconds < best:
                best, best_timings = seconds, dict(device.timings)
            device.timings = None
        stages = ", ".join(f"{stage} {value:.2f}" for stage, value in best_timings.items())
        state = "table kept" if warm else "table cleared"
        rate = f"{nbytes / best / 1e9:.1f} GB/s, {len(found.ids) / 1e6:.1f} M ids"
        print(f"   {name}, {nbytes / 1e6:.0f} MB, {len(chosen):,} documents, {state}: {rate}; ms: {stages}", flush=True)


def stream(cupy, device: Device, texts: list[str], name: str, batch: int, total: int, dtype) -> None:
    """From pinned host memory to pinned host memory, with different batches of the text again and again."""
    batches = []
    for start in range(2):
        size, chosen = 0, []
        for text in itertools.islice(itertools.cycle(texts), start * len(texts) // 3, None):
            chosen.append(text.encode())
            size += len(chosen[-1])
            if size >= batch:
                break
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in chosen]))).astype(np.uint32)
        buffer = pinned(int(offsets[-1]) + AROUND)
        buffer[: int(offsets[-1])] = np.frombuffer(b"".join(chosen), np.uint8)
        batches.append(Batch(buffer, offsets, int(offsets[-1])))
    pipeline, count = Pipeline(device, dtype), max(2, total // batch)
    for _ in range(2):
        start, ids = time.perf_counter(), 0
        for found in pipeline.encode(itertools.islice(itertools.cycle(batches), count)):
            ids += len(found.ids)
        seconds = time.perf_counter() - start
    moved = sum(batches[k % 2].nbytes for k in range(count))
    print(
        f"   {name}, host to host: {moved / 1e9:.1f} GB, {ids / 1e9:.2f} G ids, {moved / seconds / 1e9:.1f} GB/s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizers", nargs="+", type=Path)
    parser.add_argument("--texts", nargs="*", type=Path, default=[])
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--random", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--stream", type=int, default=0, metavar="GB", help="also from host memory to host memory")
    options = parser.parse_args()
    import cupy
    import tokenizers

    texts = {path.name: texts_of(path) for path in options.texts}
    wrong = 0
    for path in options.tokenizers:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            body = json.load(file)
        pattern, why = recognise(body)
        if pattern is None:
            print(f"{path}: {why}")
            continue
        start = time.perf_counter()
        tables, why = bpe_tables(body)
        if tables is None:
            print(f"{path}: {why}")
            continue
        hashed = hash_tables(tables)
        names = [token["content"].encode() for token in body.get("added_tokens", ())] + list(hashed.beyond)
        dtype = np.uint16 if max(tables.words.values()) < 1 << 16 else np.uint32
        device = Device(pattern, hashed, names, dtype, batch_bytes=options.batch * 1_050_000 + (1 << 20))
        facts = f"ordered {hashed.is_ordered}, longest {hashed.longest}, beyond {len(hashed.beyond)}"
        print(f"{path.parent.name}: {pattern.name}, {facts}, {time.perf_counter() - start:.1f} s", flush=True)
        reference = tokenizers.Tokenizer.from_str(json.dumps(body))
        reference.no_padding()
        reference.no_truncation()
        wrong += compare(cupy, device, reference, ADVERSARIAL, "adversarial")
        wrong += compare(cupy, device, reference, random_texts(options.random), "random Unicode")
        for name, some in texts.items():
            wrong += compare(cupy, device, reference, some[: options.documents], name)
        for name, some in texts.items():
            measure(cupy, device, some, name, options.batch * 1_000_000)
            if options.stream:
                stream(cupy, device, some, name, options.batch * 1_000_000, options.stream * 10**9, dtype)
        long = ["x" + "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000))]
        raw, offsets, nbytes = on_device(cupy, long)
        for _ in range(3):
            start = time.perf_counter()
            device.encode(raw, offsets, nbytes)
            cupy.cuda.Device().synchronize()
            seconds = time.perf_counter() - start
        pool = cupy.get_default_memory_pool().total_bytes()
        print(f"   a word of 1 MB: {seconds * 1000:.1f} ms; device memory {pool / 1e9:.2f} GB", flush=True)
        try:
            small = Device(pattern, hashed, names, batch_bytes=64 << 20, slots=1 << 12)
            some = next(iter(texts.values()))[:2000]
            small.encode(*on_device(cupy, some))
        except OutOfRoom:
            print("   a table that is too small is noticed", flush=True)
        few = Device(pattern, hashed, names, batch_bytes=64 << 20, tag_mask=0xFFE)
        wrong += compare(cupy, few, reference, ADVERSARIAL + next(iter(texts.values()))[:200], "hashes of 11 bits")
        del device, few
        cupy.get_default_memory_pool().free_all_blocks()
    print("differences:", wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
