"""Compare exports with what each format's own library reads, and imports with what it writes.

    python scripts/format_conformance.py ENVIRONMENTS [STORE ...]

ENVIRONMENTS is a folder with an environment per format (`make conformance` makes them): their pins clash. Without a store, one of
Python's own source files is built, and one with a large vocabulary is made up. Then the blocks for trainers in
docs/formats.md are run. Prints a line per comparison; exits with 1 if any differs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

import tokenmill as tm
from tokenmill.demo_data import demo_tokenizer
from tokenmill.testing.exchange import make_store, some_documents
from trainer_blocks import run_trainer_blocks

PEERS = ("megatron", "mds", "litdata", "datatrove")
VARIANTS = {"mds": ("mds_zstd", "mds_columns"), "litdata": ("litdata_zstd",)}  # that only imports know
BLOCK = 512
CUTS_BLOCKS = (
    "litdata",
    "datatrove",
)  # their readers give blocks of tokens, file by file, without the rest of each file


def digest(documents: list[np.ndarray]) -> list[object]:
    seen = hashlib.sha256()
    for ids in documents:
        seen.update(ids.astype(np.int64).tobytes() + b"|")
    return [len(documents), seen.hexdigest()]


def expected(store: tm.Store, format: str) -> list[object]:
    if format not in CUTS_BLOCKS:
        return digest(list(store))
    flat = np.concatenate(list(store))
    return digest(list(flat[: len(flat) // BLOCK * BLOCK].reshape(-1, BLOCK)))


def peer(environments: Path, format: str, *arguments: object) -> str:
    script = Path(__file__).with_name("format_peers.py")
    command = [str(environments / format / "bin" / "python"), str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return done.stdout


def compare(environments: Path, format: str, store: tm.Store, work: Path) -> list[tuple[str, bool]]:
    done = tm.export(
        store, work / "out", format=format, split="all", tokens_per_file=1 << 30
    )  # one file: loaders leave out the rest of each
    read = json.loads(peer(environments, format, "read", format, work / "out").splitlines()[-1])
    np.save(work / "ids.npy", np.concatenate(list(store)))
    np.save(work / "ends.npy", store.stream_ends)
    items = int(peer(environments, format, "line", format, done.read).splitlines()[-1])
    in_all = {"litdata": store.num_tokens // 2049, "datatrove": store.num_tokens}.get(format, len(store))
    results = [(f"{format} reads the export", read == expected(store, format))]
    results.append((f"{format}: the line that the export ends with", items == in_all))
    for name in (format, *VARIANTS.get(format, ())):
        (theirs := work / name).mkdir()
        vocab_size = store.tokenizer.vocab_size
        peer(environments, format, "write", name, work / "ids.npy", work / "ends.npy", theirs, vocab_size)
        back = tm.import_tokens(theirs, work / f"{name}-store", eos=store.tokenizer.eos_id)
        results.append(
            (f"the import of what {name.replace('_', ' with ')} wrote", digest(list(back)) == digest(list(store)))
        )
    return results


def main() -> int:
    environments, work = Path(sys.argv[1]), Path(tempfile.mkdtemp())
    stores = [tm.open(path) for path in sys.argv[2:]]
    if not stores:
        source = tm.read(sysconfig.get_path("stdlib") + "/*.py", format="text")  # no folder is called test
        stores = [
            tm.build(source, demo_tokenizer(), work / "demo", progress="quiet"),
            make_store(work / "large", some_documents(200_000, 2000), "uint32", 100_000),
        ]
    differences = 0
    for number, store in enumerate(stores):
        for format in PEERS:
            (folder := work / f"{number}-{format}").mkdir()
            for what, agrees in compare(environments, format, store, folder):
                size = f"{len(store):,} documents, {store.num_tokens:,} tokens"
                print(f"{'agrees ' if agrees else 'DIFFERS'}  {what}: {size}", flush=True)
                differences += not agrees
    (folder := work / "trainers").mkdir()
    for name, agrees in run_trainer_blocks(environments, stores[0], folder):
        how = "not run" if agrees is None else "agrees " if agrees else "DIFFERS"
        print(f"{how}  the blocks for trainers in docs/formats.md, with {name}", flush=True)
        differences += agrees is False
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
