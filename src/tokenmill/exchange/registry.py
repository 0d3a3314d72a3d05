"""The formats by name. A new format is a class listed here."""

from __future__ import annotations

from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.exchange.formats.base import ExchangeFormat
from tokenmill.exchange.formats.datatrove import DatatroveFormat
from tokenmill.exchange.formats.litdata import LitDataFormat
from tokenmill.exchange.formats.llmc import LlmcFormat
from tokenmill.exchange.formats.mds import MdsFormat
from tokenmill.exchange.formats.megatron import MegatronFormat
from tokenmill.exchange.formats.nanogpt import NanoGptFormat
from tokenmill.exchange.formats.olmo import OlmoFormat
from tokenmill.exchange.formats.tables import ArrowFiles, HuggingFaceDataset, ParquetFiles
from tokenmill.exchange.formats.tensors import SafeTensors, TorchTensors
from tokenmill.habits import answer
from tokenmill.option_types import option_name

# Sources are recognised in this order: what has a signature of its own comes first.
_ALL: tuple[type[ExchangeFormat], ...] = (
    MegatronFormat,
    LlmcFormat,
    HuggingFaceDataset,
    MdsFormat,
    LitDataFormat,
    DatatroveFormat,
    OlmoFormat,
    ParquetFiles,
    ArrowFiles,
    NanoGptFormat,
    TorchTensors,
    SafeTensors,
)
FORMATS: dict[str, ExchangeFormat] = {format.name: format() for format in _ALL}


def recognize(path: Path) -> ExchangeFormat:
    """The format of a source. Raises InputError if it is none of those that can be read."""
    for format in FORMATS.values():
        if format.recognizes(path):
            return format
    hint = answer("file", path.suffix) or f"; name it with {option_name('format')}"
    raise InputError(f"{path} is in none of the formats that can be recognised{hint}")
