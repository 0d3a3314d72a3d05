"""Datasets on the Hugging Face Hub that have a short name: `tokenmill build finewebedu -t gpt2`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDataset:
    """What a short name stands for. Options that are given replace what is said here."""

    repo: str
    config: str | None = None
    files: str | None = None  # a glob, where the repository does not say which files are its data
    split: str | None = "train"
    text_field: str = "text"
    about: str


KNOWN: dict[str, KnownDataset] = {
    "c4": KnownDataset(repo="allenai/c4", config="en", about="English web pages of 2019, cleaned"),
    "dclm": KnownDataset(
        repo="mlfoundations/dclm-baseline-1.0",
        files="global-shard_*/**/*.jsonl.zst",
        split=None,
        about="English web pages, filtered by a classifier; several terabytes",
    ),
    "fineweb": KnownDataset(
        repo="HuggingFaceFW/fineweb",
        config="sample-10BT",
        about="English web pages; a sample of 10 billion tokens (all of it: configuration default)",
    ),
    "finewebedu": KnownDataset(
        repo="HuggingFaceFW/fineweb-edu",
        config="sample-10BT",
        about="educational web pages; a sample of 10 billion tokens (all of it: configuration default)",
    ),
    "openwebmath": KnownDataset(
        repo="open-web-math/open-web-math", files="data/*.parquet", about="web pages with mathematics"
    ),
    "openwebtext": KnownDataset(
        repo="Skylion007/openwebtext", files="plain_text/*.parquet", about="an open copy of the training text of GPT-2"
    ),
    "pile-uncopyrighted": KnownDataset(
        repo="monology/pile-uncopyrighted", files="**/*.jsonl.zst", about="The Pile without its copyrighted parts"
    ),
    "slimpajama": KnownDataset(
        repo="cerebras/SlimPajama-627B", files="**/*.jsonl.zst", about="RedPajama, cleaned and deduplicated"
    ),
    "the-stack-smol": KnownDataset(
        repo="bigcode/the-stack-smol",
        files="data/*/data.json",
        split=None,
        text_field="content",
        about="source code in 30 languages; gated",
    ),
    "tinystories": KnownDataset(
        repo="roneneldan/TinyStories", files="data/*.parquet", about="short stories in simple English"
    ),
    "wikipedia": KnownDataset(
        repo="wikimedia/wikipedia",
        config="20231101.en",
        about="English Wikipedia; there is a configuration for each language",
    ),
    "wikitext": KnownDataset(
        repo="Salesforce/wikitext", config="wikitext-103-raw-v1", about="lines of good Wikipedia articles"
    ),
}


def known_dataset(name: str) -> KnownDataset | None:
    """The dataset of a short name. Capitals and hyphens do not matter: FineWeb-Edu is finewebedu."""
    return {_plain(each): known for each, known in KNOWN.items()}.get(_plain(name)) if name else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
