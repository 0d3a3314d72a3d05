"""Every error tokenmill raises on purpose, and the exit code each becomes.

    TokenmillError                    1
    |- UsageError (ValueError)        2   an option, argument or specification is wrong
    |  |- UnknownOptionError           2   there is no option of that name; also a TypeError
    |  `- WrongTypeError               2   an argument is of a type that it cannot have; also a TypeError
    |- InputError (OSError)           1   a source file cannot be read; the message names it
    |  `- MissingInputError            2   there is no file at that path; also a FileNotFoundError
    |- DocumentError (ValueError)     1   a bad document, with on_error="raise"; names file and row
    |- TokenizerError (ValueError)    1   a tokenizer cannot be loaded or used
    |  `- MissingTokenizerError        1   there is no tokenizer at that path; also a FileNotFoundError
    |- EncodingError (ValueError)     1   an engine returned something impossible
    |  `- DifferenceError             1   an engine gave other ids than the reference
    |- BuildError (RuntimeError)      1   the build could not go on
    |  |- LockedError                 1   another build is writing this store
    |  `- UnreachableError            1   a server does not answer, or only with errors
    `- StoreError (ValueError)        3   the store is not what it should be
       |- MissingStoreError           3   there is no store at that path
       |- MismatchError               3   the store was built with other options, or of another input
       `- CorruptError                3   bytes on disk are damaged; names the file

Each message says what is wrong, where, and what to do about it.

Example:
    try:
        tm.open("no-such-folder/")
    except tm.errors.MissingStoreError as error:
        print(error)
"""

from __future__ import annotations

import errno
from typing import Any

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


class TokenmillError(Exception):
    """The root of the tree; catching it catches everything tokenmill raises on purpose."""

    exit_code = 1


class UsageError(TokenmillError, ValueError):
    """An option, argument or specification is wrong."""

    exit_code = 2


class UnknownOptionError(UsageError, TypeError):
    """There is no option of that name."""


class WrongTypeError(UsageError, TypeError):
    """An argument is of a type that it cannot have."""


class InputError(TokenmillError, OSError):
    """A source file cannot be read."""


class MissingInputError(InputError, FileNotFoundError):
    """There is no file at that path."""

    exit_code = 2


class DocumentError(TokenmillError, ValueError):
    """A document is bad and the caller asked to stop at the first."""


class TokenizerError(TokenmillError, ValueError):
    """A tokenizer cannot be loaded or used."""


class MissingTokenizerError(TokenizerError, FileNotFoundError):
    """There is no tokenizer at that path."""


class EncodingError(TokenmillError, ValueError):
    """An engine returned something impossible, such as an id outside the vocabulary."""


class DifferenceError(EncodingError):
    """An engine gave other ids than the reference; names the document, the place and both."""


class BuildError(TokenmillError, RuntimeError):
    """A build could not go on; what was finished is kept."""

    @property
    def is_unwritable(self) -> bool:
        """Whether nothing can be written there at all: no permission, or a read-only file system."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in _UNWRITABLE


class LockedError(BuildError):
    """Another build is writing the same store."""


class UnreachableError(BuildError):
    """A server did not answer, or answered with errors, for as long as requests are tried again."""


class StoreError(TokenmillError, ValueError):
    """A store is not what it should be."""

    exit_code = 3


class MissingStoreError(StoreError, FileNotFoundError):
    """There is no store at that path."""


class MismatchError(StoreError):
    """The store was built with other options, with another tokenizer, or of another input."""


class CorruptError(StoreError):
    """Bytes on disk are damaged."""


def __getattr__(name: str) -> Any:
    from tokenmill.synonyms import nearest_or_all

    near = nearest_or_all(name, lambda: (each for each in globals() if each.endswith("Error")))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near}")
