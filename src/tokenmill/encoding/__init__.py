"""From texts to tokens: loading a tokenizer, choosing an engine, encoding and decoding."""

from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.encoder import WHOLE_BYTES, Encoder, EngineFailure, LongDocument, TooLong
from tokenmill.encoding.engines import EngineTraits
from tokenmill.encoding.selection.verdicts import Difference, refuse
from tokenmill.encoding.tokenizer import Tokenizer
from tokenmill.user_cache import cache_folder

__all__ = [
    "WHOLE_BYTES",
    "Difference",
    "Encoder",
    "EngineFailure",
    "EngineTraits",
    "LongDocument",
    "Tokenizer",
    "TooLong",
    "cache_folder",
    "load_definition",
    "load_tokenizer",
    "refuse",
]
