"""Whether the separator of texts occurs in a file at all."""

from __future__ import annotations

from tokenmill.errors import InputError
from tokenmill.reading import SourceFile
from tokenmill.reading.codecs import open_input, reading

PLACE_BYTES = 1 << 20  # read at a time


def has_separator(file: SourceFile, separator: str, most_bytes: int) -> bool:
    """Whether a file has the separator, as far as `most_bytes` of it tell, from evenly spaced places.

    Also true of a file that is small or cannot be read: nothing is to be said about it.
    """
    if file.size <= PLACE_BYTES:
        return True
    sought, count = separator.encode(), max(2, most_bytes // PLACE_BYTES)
    step = max(PLACE_BYTES, (file.size - PLACE_BYTES) // (count - 1))
    try:
        with reading(file), open_input(file) as raw:
            for start in range(0, file.size, step):
                raw.seek(start)
                if sought in raw.read(PLACE_BYTES + len(sought) - 1):
                    return True
    except InputError:
        return True
    return False
