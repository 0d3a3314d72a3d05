"""Tokens read and written by the libraries that formats come from. Run by `format_conformance.py`, with each library's Python.

python format_peers.py read FORMAT FOLDER: prints the number of documents, and a digest of their ids
python format_peers.py line FORMAT LINE: runs the Python that an export ends with, and prints how many items `data` has
python format_peers.py write FORMAT IDS.npy ENDS.npy FOLDER VOCAB_SIZE: writes them with the library, prints the seconds;
    FORMAT may have a variant, such as mds_zstd
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import types
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = {
    "megatron": "megatron.core.datasets.indexed_dataset",
    "litdata": "litdata.streaming.cache",
    "datatrove": "datatrove.pipeline.tokens.tokenizer",
    "hf": "datasets",
    "parquet": "datasets",
}
BLOCK = 512  # tokens that loaders of flat formats are asked for


def digest(documents: Iterable[Any]) -> tuple[int, str]:
    seen, count = hashlib.sha256(), 0
    for ids in documents:
        seen.update(np.asarray(ids).astype(np.int64).tobytes() + b"|")
        count += 1
    return count, seen.hexdigest()


def read_megatron(folder: Path) -> Iterable[Any]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    found = IndexedDataset(str(folder / "train"))
    assert found.document_indices.tolist() == list(range(len(found) + 1))
    return (found[i] for i in range(len(found)))


def write_megatron(documents: list[Any], folder: Path, vocab_size: int) -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "mine.bin"), dtype=DType.optimal_dtype(vocab_size))
    for ids in documents:
        builder.add_document(torch.from_numpy(ids.astype(np.int64)), [len(ids)])
    builder.finalize(str(folder / "mine.idx"))


def write_hf(documents: list[Any], folder: Path, vocab_size: int) -> None:
    _dataset(documents, folder).save_to_disk(str(folder / "saved"))


def write_parquet(documents: list[Any], folder: Path, vocab_size: int) -> None:
    _dataset(documents, folder).to_parquet(str(folder / "train.parquet"))


def _dataset(documents: list[Any], folder: Path) -> Any:
    """A dataset made the usual way, one document at a time."""
    import datasets

    datasets.disable_progress_bars()
    return datasets.Dataset.from_generator(
        lambda: ({"input_ids": ids} for ids in documents), cache_dir=str(folder / "cache")
    )


def read_mds(folder: Path) -> Iterable[Any]:
    found = mosaic().LocalDataset(str(folder))
    return (found[i]["tokens"] for i in range(len(found)))


def write_mds(documents: list[Any], folder: Path, vocab_size: int, compression: str | None = None) -> None:
    kind = "uint16" if vocab_size <= 1 << 16 else "int32"
    columns = {"tokens": f"ndarray:{kind}"}
    with mosaic().MDSWriter(out=str(folder), columns=columns, compression=compression, size_limit=1 << 16) as writer:
        for ids in documents:
            writer.write({"tokens": ids.astype(kind)})


def write_mds_zstd(documents: list[Any], folder: Path, vocab_size: int) -> None:
    write_mds(documents, folder, vocab_size, "zstd")


def write_mds_columns(documents: list[Any], folder: Path, vocab_size: int) -> None:
    """Beside the ids a text, a number and another array."""
    columns = {"a": "str", "input_ids": "ndarray:int64", "n": "int", "scores": "ndarray:float32"}
    with mosaic().MDSWriter(out=str(folder), columns=columns, compression="zstd:7", size_limit=1 << 16) as writer:
        for i, ids in enumerate(documents):
            scores = np.ones(1 + i % 300, np.float32)
            writer.write({"a": "x" * (i % 50), "input_ids": ids.astype(np.int64), "n": i, "scores": scores})


def mosaic() -> Any:
    """The library without its image support, which needs a matching torchvision."""
    sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
    import streaming

    return streaming


def read_litdata(folder: Path) -> Iterable[Any]:
    """Blocks of tokens: this is all that its loader of tokens gives."""
    from litdata import StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    found = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=BLOCK), shuffle=False)
    return (found[i] for i in range(len(found)))


def write_litdata(documents: list[Any], folder: Path, vocab_size: int, **options: str) -> None:
    import torch
    from litdata.streaming.cache import Cache
    from litdata.streaming.item_loader import TokensLoader

    cache = Cache(str(folder), chunk_bytes=1 << 16, item_loader=TokensLoader(BLOCK), **options)
    for i, ids in enumerate(documents):
        cache[i] = torch.from_numpy(ids.astype(np.int32))
    cache.done()
    cache.merge()


def write_litdata_zstd(documents: list[Any], folder: Path, vocab_size: int) -> None:
    write_litdata(documents, folder, vocab_size, compression="zstd", compression_level="chunk")


def read_datatrove(folder: Path) -> Iterable[Any]:
    """Windows of tokens with the one that follows: this is all that its dataset gives."""
    from datatrove.utils.dataset import DatatroveFileDataset

    for path in sorted(folder.glob("*.ds")):
        size = int(Path(f"{path}.metadata").read_text().split("\n")[0].rpartition("|")[2])
        found = DatatroveFileDataset(str(path), BLOCK - 1, token_size=size)
        yield from (found[i]["input_ids"] for i in range(len(found)))


def write_datatrove(documents: list[Any], folder: Path, vocab_size: int) -> None:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    size = 2 if vocab_size <= 1 << 16 else 4
    file = TokenizedFile(
        str(folder), "00000.ds", tokenizer_name_or_path="any", save_final_metadata=True, token_size=size
    )
    for ids in documents:
        file.write(ids.tolist(), None)
    file.close()


def main() -> None:
    action, format, *rest = sys.argv[1:]
    if action == "read":
        print(json.dumps(digest(globals()[f"read_{format}"](Path(rest[0])))))
        return
    if action == "line":
        names: dict[str, Any] = {}
        if format == "mds":
            mosaic()
        exec(rest[0], names)
        print(len(names["data"]))
        return
    ids, ends, folder, vocab_size = np.load(rest[0]), np.load(rest[1]), Path(rest[2]), int(rest[3])
    documents, write = np.split(ids, ends[:-1]), globals()[f"write_{format}"]
    library = LIBRARIES.get(format.partition("_")[0])
    mosaic() if library is None else import_module(library)
    began = time.perf_counter()
    write(documents, folder, vocab_size)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
