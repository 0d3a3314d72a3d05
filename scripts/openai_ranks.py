"""Fill a tiktoken cache folder without a download, from the npm package `tiktoken`, which has the same ranks.

    npm pack tiktoken && tar xzf tiktoken-*.tgz
    python scripts/openai_ranks.py package [FOLDER]

FOLDER defaults to TIKTOKEN_CACHE_DIR. The files are rebuilt byte for byte: tiktoken itself checks their SHA-256 and writes
them under the names it expects. The two files of GPT-2 (merges and vocabulary) are derived from its ranks.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode
from pathlib import Path
from unittest.mock import patch

import tiktoken
import tiktoken.load
from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS

from tokenmill.encoding.conversion.tiktoken_bpe import recover_merges, spelled


def fill_cache(package: Path, folder: Path) -> list[str]:
    """Write every file that tiktoken's encodings need into `folder`. Returns the names of the encodings."""

    def rebuilt(address: str) -> bytes:
        """The file that tiktoken would download from this address."""
        name, _, kind = address.rpartition("/")[2].rpartition(".")
        if kind == "tiktoken":
            return rank_file(package, name)
        return gpt2_merges(package) if kind == "bpe" else gpt2_vocabulary(package)

    names = sorted(ENCODING_CONSTRUCTORS)
    with patch.dict(os.environ, TIKTOKEN_CACHE_DIR=str(folder)), patch.object(tiktoken.load, "read_file", rebuilt):
        for name in names:
            tiktoken.get_encoding(name)
    return names


def rank_file(package: Path, name: str) -> bytes:
    """Unpack the package's format: lines with a mark, the rank of the first token, and tokens in base64."""
    packed = json.loads((package / "encoders" / f"{name}.json").read_text("utf-8"))["bpe_ranks"]
    lines = []
    for line in packed.splitlines():
        _, first, *tokens = line.split(" ")
        lines += [f"{token} {rank}\n" for rank, token in enumerate(tokens, int(first))]
    return "".join(lines).encode()


def gpt2_merges(package: Path) -> bytes:
    merges, _ = recover_merges(gpt2_ranks(package))
    lines = ["#version: 0.2", *(f"{spelled(left)} {spelled(right)}" for left, right in merges)]
    return "".join(f"{line}\n" for line in lines).encode()


def gpt2_vocabulary(package: Path) -> bytes:
    vocab = {spelled(token): rank for token, rank in gpt2_ranks(package).items()}
    return json.dumps(vocab | {"<|endoftext|>": len(vocab)}).encode()


def gpt2_ranks(package: Path) -> dict[bytes, int]:
    lines = (line.split() for line in rank_file(package, "gpt2").splitlines())
    return {b64decode(token): int(rank) for token, rank in lines}


def main() -> None:
    target = sys.argv[2] if len(sys.argv) == 3 else os.environ.get("TIKTOKEN_CACHE_DIR")
    if len(sys.argv) not in (2, 3) or not target:
        sys.exit("usage: openai_ranks.py PACKAGE [FOLDER]  (FOLDER, or TIKTOKEN_CACHE_DIR in the environment)")
    package = Path(sys.argv[1])
    if not (package / "encoders").is_dir():
        sys.exit(f"{package} is not the unpacked npm package tiktoken: it has no folder encoders")
    print(f"{target} has {', '.join(fill_cache(package, Path(target)))}")


if __name__ == "__main__":
    main()
