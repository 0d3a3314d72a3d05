"""Raw text to a verified token store, once, at the speed of the fastest tokenizer engine.

import tokenmill as tm

store = tm.build("data/*.jsonl.zst", "path/to/tokenizer.json", "corpus/")
store[17], store.text(17), store.num_tokens, store.locate(17)
for batch in tm.load(store, 8, seq_len=1024):
    ...

    tm.build           text and a tokenizer to a store: tm.Store
    tm.open            a store that was built
    tm.read            which files are a corpus, and how documents are found in them: tm.Source
    tm.estimate        what a build would give and cost, from a sample
    tm.load_tokenizer  a tokenizer to encode and decode with: tm.Tokenizer
    tm.pack            rows of a fixed length over a store: tm.View
    tm.load            batches for training: tm.Loader
    tm.mix             several views, by weights
    tm.export          a store or rows in the format of another tool
    tm.import_tokens   tokens of another tool to a store
    tm.recipe          all of this from one YAML file
    tm.errors          every error that is raised on purpose

help(tm.build) and the like explain each; `tokenmill --help` lists the commands.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill import errors as errors
    from tokenmill.building.api import build as build
    from tokenmill.encoding.api import load_tokenizer as load_tokenizer
    from tokenmill.encoding.tokenizer import Tokenizer as Tokenizer
    from tokenmill.estimating.api import estimate as estimate
    from tokenmill.exchange.api import export as export
    from tokenmill.exchange.importing import import_tokens as import_tokens
    from tokenmill.loading import Loader as Loader
    from tokenmill.loading import load as load
    from tokenmill.loading import mix as mix
    from tokenmill.packing import View as View
    from tokenmill.packing import pack as pack
    from tokenmill.reading import Source as Source
    from tokenmill.reading import read as read
    from tokenmill.recipes import recipe as recipe
    from tokenmill.store.store import Store as Store
    from tokenmill.store.store import open_store

    open = open_store

__version__ = "0.1.0"

# Where each public name lives. Nothing is imported until it is asked for: `import tokenmill` costs next to nothing.
_HOMES = {
    "Loader": ("tokenmill.loading", "Loader"),
    "Source": ("tokenmill.reading", "Source"),
    "Store": ("tokenmill.store.store", "Store"),
    "Tokenizer": ("tokenmill.encoding.tokenizer", "Tokenizer"),
    "View": ("tokenmill.packing", "View"),
    "build": ("tokenmill.building.api", "build"),
    "errors": ("tokenmill.errors", None),
    "estimate": ("tokenmill.estimating.api", "estimate"),
    "export": ("tokenmill.exchange.api", "export"),
    "import_tokens": ("tokenmill.exchange.importing", "import_tokens"),
    "load": ("tokenmill.loading", "load"),
    "load_tokenizer": ("tokenmill.encoding.api", "load_tokenizer"),
    "mix": ("tokenmill.loading", "mix"),
    "open": ("tokenmill.store.store", "open_store"),
    "pack": ("tokenmill.packing", "pack"),
    "read": ("tokenmill.reading", "read"),
    "recipe": ("tokenmill.recipes", "recipe"),
}

__all__ = [
    "Loader",
    "Source",
    "Store",
    "Tokenizer",
    "View",
    "build",
    "errors",
    "estimate",
    "export",
    "import_tokens",
    "load",
    "load_tokenizer",
    "mix",
    "pack",
    "read",
    "recipe",
]  # without `open`: `from tokenmill import *` leaves the builtin alone


if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        return _public(name)


def _public(name: str) -> Any:
    import importlib

    try:
        module, attribute = _HOMES[name]
    except KeyError:
        raise _unknown(name) from None
    home = importlib.import_module(module)
    found = home if attribute is None else getattr(home, attribute)
    if isinstance(found, FunctionType):  # a function is called what users call it, in messages and pickles too
        found.__name__ = found.__qualname__ = name
        found.__module__ = __name__
    return found


def _unknown(name: str) -> Exception:
    """With what to write instead; for `from tokenmill import name` an ImportError, since Python replaces the words of others."""
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"tokenmill.{name}") is not None:  # not imported yet
        return AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    from tokenmill.habits import answer
    from tokenmill.synonyms import nearest_or_all

    kind = ImportError if sys._getframe(3).f_code.co_name == "_handle_fromlist" else AttributeError
    return kind(
        f"module 'tokenmill' has no attribute {name!r}{answer('tm', name) or nearest_or_all(name, lambda: _HOMES)}"
    )


def __dir__() -> list[str]:
    """The public names. None for help(tokenmill), which would show each in full: its text above is a map of them."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "inspect":
        frame = frame.f_back
    return [] if frame.f_globals.get("__name__") == "pydoc" else sorted([*_HOMES, "__version__"])
