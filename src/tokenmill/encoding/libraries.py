"""Libraries that only some tokenizers need."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tokenmill.errors import TokenizerError


def import_library(module: str, needed_by: str = "this tokenizer") -> Any:
    """Import an optional library. Each is installed by the extra of the same name."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TokenizerError(f"{needed_by} needs {module} ({error}): pip install 'tokenmill[{module}]'") from error


@contextmanager
def quiet_transformers(needed_by: str = "this tokenizer") -> Iterator[Any]:
    """Import transformers and hide its warnings while it is in use here, such as the one that PyTorch is not installed.

    If the user has changed the level of its logger, that level is kept.
    """
    logger = logging.getLogger("transformers")
    logger.addFilter(_is_error)
    try:
        module = import_library("transformers", needed_by)
    finally:
        logger.removeFilter(_is_error)
    level = logger.level
    if level == logging.WARNING:  # the default
        logger.setLevel(logging.ERROR)
    try:
        yield module
    finally:
        logger.setLevel(level)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING


@cache
def installed_version(library: str) -> str:
    """The version of a package, or "" if it is not installed. Looking it up takes a millisecond."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return ""
