"""Files -> Texts. Every format behind one door: `read` says what, `split` cuts it, `read_piece` reads it."""

from tokenmill.reading.pieces import Piece, check_fields, read_piece, rows_before, split, text_weight
from tokenmill.reading.source import FORMATS, Source, SourceFile, read

__all__ = [
    "FORMATS",
    "Piece",
    "Source",
    "SourceFile",
    "check_fields",
    "read",
    "read_piece",
    "rows_before",
    "split",
    "text_weight",
]
