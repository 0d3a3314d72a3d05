"""Files to Texts: `read` describes a source, `split` cuts its files into pieces, `read_piece` gives their documents."""

from tokenmill.reading.content_hash import Content, head_of
from tokenmill.reading.discover import FORMATS
from tokenmill.reading.files import Piece, Source, SourceFile
from tokenmill.reading.formats import text_weight
from tokenmill.reading.pieces import (
    check_fields,
    content_hasher,
    content_of,
    read_piece,
    rows_before,
    split,
    split_many,
)
from tokenmill.reading.source import read

__all__ = [
    "FORMATS",
    "Content",
    "Piece",
    "Source",
    "SourceFile",
    "check_fields",
    "content_hasher",
    "content_of",
    "head_of",
    "read",
    "read_piece",
    "rows_before",
    "split",
    "split_many",
    "text_weight",
]
