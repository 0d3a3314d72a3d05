"""From texts to tokens: loading a tokenizer, choosing an engine, encoding and decoding."""

from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.encoder import WHOLE_BYTES, Encoder, EngineFailure, LongDocument, TooLong
from tokenmill.encoding.selection.verdicts import Difference, refuse
from tokenmill.encoding.tokenizer import Tokenizer

__all__ = [
    "WHOLE_BYTES",
    "Difference",
    "Encoder",
    "EngineFailure",
    "LongDocument",
    "Tokenizer",
    "TooLong",
    "load_definition",
    "load_tokenizer",
    "refuse",
]
