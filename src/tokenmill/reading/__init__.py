"""Files -> Texts. Every format behind one door: `read` says what, `split` cuts it, `read_piece` reads it."""

from tokenmill.reading.content_hash import Content, head_of
from tokenmill.reading.discover import FORMATS, SourceFile
from tokenmill.reading.pieces import Piece, check_fields, content_of, read_piece, rows_before, split, text_weight
from tokenmill.reading.source import Source, read

__all__ = [
    "FORMATS",
    "Content",
    "Piece",
    "Source",
    "SourceFile",
    "check_fields",
    "content_of",
    "head_of",
    "read",
    "read_piece",
    "rows_before",
    "split",
    "text_weight",
]
