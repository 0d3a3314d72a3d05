"""Large text files that are read as one document, and what in them may separate documents."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tokenmill.errors import InputError
from tokenmill.formatting import human
from tokenmill.option_types import option_name
from tokenmill.reading.codecs import open_stream
from tokenmill.reading.files import Source, SourceFile
from tokenmill.reading.formats import REGISTERED, get_format, text_weight

LARGE = 1 << 20  # bytes of a file that is worth a look
HUGE = 64 << 20  # bytes; longer than any book, whatever is in it
HEAD = 1 << 20  # bytes that are looked at
LOOKED_AT = 8  # files, the largest ones
FEW = 3  # fewer rules or blank lines are not a pattern
MARKS = ("<|endoftext|>", "<|end_of_text|>")
END_OF_SENTENCE = "</s>"  # a tag of HTML too, so only at the start or end of a line
_END_OF_SENTENCE = re.compile(rb"(?m)^</s>|</s>\r?$")
_RULE = re.compile(rb"(?m)^(-{3,}|\*{3,}|={3,})\r?$")


@dataclass(frozen=True, slots=True)
class OneDocument:
    """A large text file that is read as one document, and the separator seen in its head; None if there is none."""

    file: SourceFile
    separator: str | None
    count: int  # of separators in the head

    @property
    def what(self) -> str:
        """The finding in words, naming the file."""
        seen = f", and has {quoted(self.separator)} {self.count:,} times in its first MB" if self.separator else ""
        return f"{self.file.shown} ({human(self.file.size)}) is read as one document{seen}"

    @property
    def remedy(self) -> str:
        """The flags that make more documents of it."""
        lines = f"{option_name('format', 'lines')} makes a document of each line"
        if not self.separator:
            return lines
        return f"{option_name('separator', self.separator)} splits it there; {lines}"


def quoted(separator: str) -> str:
    """A separator as it is written on the command line."""
    return "'" + separator.replace("\r", "\\r").replace("\n", "\\n") + "'"


def large_document(source: Source) -> OneDocument | None:
    """The largest text file that is one document although it looks like several. Reads the first MB of up to 8 files.

    Also one without the separator that was given, which may be misspelled.
    """
    given = source.separator
    large = [
        file
        for file in source.files
        if text_weight(file) > LARGE
        and (get_format(file.format).one_document(source) or (given and REGISTERED[file.format].option == "separator"))
    ]
    large.sort(key=lambda file: (-text_weight(file), file.path))
    for file in large[:LOOKED_AT]:
        head = _head(file)
        seen = separator_in(head) if given is None or given.encode() not in head else None
        if seen is not None:
            return OneDocument(file, *seen)
    is_huge = bool(large) and given is None and text_weight(large[0]) >= HUGE
    return OneDocument(large[0], None, 0) if is_huge else None


def separator_in(text: bytes) -> tuple[str, int] | None:
    """What most likely separates documents in a text, and how often it is there: a mark, a rule, or blank lines."""
    for mark in MARKS:
        if count := text.count(mark.encode()):
            return mark, count
    if count := len(_END_OF_SENTENCE.findall(text)):
        return END_OF_SENTENCE, count
    end = "\r\n" if b"\r\n" in text else "\n"
    rule, count = next(iter(Counter(_RULE.findall(text)).most_common(1)), (b"", 0))
    if count >= FEW:
        return f"{end}{rule.decode()}{end}", count
    count = text.count((end + end).encode())
    return (end + end, count) if count >= FEW else None


def _head(file: SourceFile) -> bytes:
    """The start of a file; nothing if it cannot be read, which its build reports."""
    try:
        with open_stream(file) as stream:
            return stream.read(HEAD)
    except (InputError, OSError):
        return b""
