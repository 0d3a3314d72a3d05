"""What the files of a tokenizer say: parsed in a child process, because damaged files may crash the library that parses them.

The child is `parsing_process`. The result is cached by content and by the version of the library. Files that were parsed once are
loaded by their library in this process too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from tokenmill.child_process import ChildDied, Children
from tokenmill.encoding.engines import make_engine, make_reference
from tokenmill.encoding.engines.base import Vocabulary
from tokenmill.encoding.resolve import TokenizerFiles, define
from tokenmill.encoding.tokenizer_json import differs_by_line, produced_names, special_names, tokens_of
from tokenmill.errors import TokenizerError

_children = Children("tokenmill.encoding.parsing_process")


def parse_safely(found: TokenizerFiles, policy: str) -> dict[str, Any]:
    """`parse`, in a child process if the tokenizer comes from files. A crash is a TokenizerError that names the file."""
    where = found.file or found.name
    if found.definition is not None or not _children.can_start():
        return parse(found, policy)
    try:
        with _children.lend() as child:
            body = {"found": {**vars(found), "files": list(found.files), "live": None}, "policy": policy}
            answer = child.call(body, *found.files.values())
    except ChildDied as died:
        raise TokenizerError(f"{where}: the library that loads this tokenizer {died}; is the file damaged?") from died
    except RuntimeError as error:  # an exception that the libraries did not mean to raise
        raise TokenizerError(f"{where} cannot be loaded ({error}); is the file damaged?") from error
    facts: dict[str, Any] = answer.body
    facts["json"] = answer.data[0].decode() if answer.data else None
    return facts


def parse(found: TokenizerFiles, policy: str) -> dict[str, Any]:
    """The effective tokenizer.json, the reference, the vocabulary and the special tokens of a tokenizer."""
    definition = replace(define(found), special_tokens=policy)
    if definition.json is None:
        vocabulary, produced = make_reference(definition, found.live).vocabulary(), set[str]()
    else:
        vocabulary, produced = _vocabulary(definition.json, policy)
        if definition.reference not in ("tokenizers", "python"):
            make_engine(definition.reference, definition)  # may crash, and if so, here
    if not vocabulary.vocab_size:
        raise TokenizerError(f"{found.file or found.name}: its vocabulary is empty; was the tokenizer never trained?")
    return {
        "json": definition.json,
        "reference": definition.reference,
        "special": {**definition.special, **found.special},
        "fingerprint": definition.fingerprint,
        **asdict(vocabulary),
        "produced_names": sorted(produced),
        "differs_by_line": definition.reference == "tokenizers" and differs_by_line(definition.json or "{}"),
    }


def _vocabulary(tokenizer_json: str, policy: str) -> tuple[Vocabulary, set[str]]:
    """The vocabulary, and the special tokens that the model also produces for unknown text."""
    body = json.loads(tokenizer_json)
    added = {token["content"]: token["id"] for token in body["added_tokens"] or ()}
    size = max([*(number for _, number in tokens_of(body["model"])), *added.values()], default=-1) + 1
    return Vocabulary(size, added, special_names(body, policy)), produced_names(body)
