"""Texts -> Tokens. `load_tokenizer` says which, an engine does the work, a cut never changes an id."""

from tokenmill.encoding.encoder import WHOLE_BYTES, Encoder, EngineFailure, LongDocument, TooLong
from tokenmill.encoding.tokenizer import Tokenizer, cache_folder, load_tokenizer

__all__ = [
    "WHOLE_BYTES",
    "Encoder",
    "EngineFailure",
    "LongDocument",
    "Tokenizer",
    "TooLong",
    "cache_folder",
    "load_tokenizer",
]
