"""Texts -> Tokens. `load_tokenizer` says which, an engine does the work, a cut never changes an id."""

from tokenmill.encoding.definition import load_definition
from tokenmill.encoding.encoder import WHOLE_BYTES, Encoder, EngineFailure, LongDocument, TooLong
from tokenmill.encoding.selection import Difference, refuse
from tokenmill.encoding.tokenizer import Tokenizer, load_tokenizer
from tokenmill.user_cache import cache_folder

__all__ = [
    "WHOLE_BYTES",
    "Difference",
    "Encoder",
    "EngineFailure",
    "LongDocument",
    "Tokenizer",
    "TooLong",
    "cache_folder",
    "load_definition",
    "load_tokenizer",
    "refuse",
]
