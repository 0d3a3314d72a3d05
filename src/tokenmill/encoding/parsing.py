"""What the files of a tokenizer say: parsed in a child process, because damaged files may crash the library that parses them.

The child is `python -m tokenmill.encoding.parsing`. The result is cached by content and by the version of the library. Files that
were parsed once are loaded by their library in this process too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tokenmill.child_process import ChildDied, Children, Message, serve
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.engines import make_engine, make_reference
from tokenmill.encoding.engines.base import Vocabulary
from tokenmill.encoding.resolve import TokenizerFiles, define
from tokenmill.encoding.resolve.objects import CONFIG
from tokenmill.encoding.tokenizer_json import differs_by_line, produced_names, special_names, steps, tokens_of
from tokenmill.errors import TokenizerError

_children = Children("tokenmill.encoding.parsing")


def parse_safely(found: TokenizerFiles, policy: str) -> dict[str, Any]:
    """`parse`, in a child process if the tokenizer comes from files. A crash is a TokenizerError that names the file."""
    where = found.file or found.name
    if found.definition is not None or not _children.can_start():
        return parse(found, policy)
    try:
        with _children.lend() as child:
            body = {"found": {**vars(found), "files": list(found.files), "live": None, "beside": {}}, "policy": policy}
            answer = child.call(body, *found.files.values())
    except ChildDied as died:
        raise TokenizerError(f"{where}: the library that loads this tokenizer {died}; is the file damaged?") from died
    except RuntimeError as error:  # an exception that the libraries did not mean to raise
        raise TokenizerError(f"{where} cannot be loaded ({error}); is the file damaged?") from error
    return {**answer.body, "json": answer.data[0].decode() or None}


def _answer(request: Message) -> Message:
    """What the child does."""
    found = request.body["found"]
    found["files"] = dict(zip(found["files"], map(bytes, request.data), strict=True))
    facts = parse(TokenizerFiles(**found), request.body["policy"])
    text = facts.pop("json") or ""
    return Message(facts, (text.encode(),))


def parse(found: TokenizerFiles, policy: str) -> dict[str, Any]:
    """The effective tokenizer.json, the reference, the vocabulary and the special tokens of a tokenizer."""
    definition = replace(define(found), special_tokens=policy)
    parsed = json.loads(definition.json or "{}")
    if definition.json is None:
        vocabulary, produced = make_reference(definition, found.live).vocabulary(), set[str]()
    else:
        added = {token["content"]: token["id"] for token in parsed["added_tokens"] or ()}
        size = max([*(number for _, number in tokens_of(parsed["model"])), *added.values()], default=-1) + 1
        vocabulary, produced = Vocabulary(size, added, special_names(parsed, policy)), produced_names(parsed)
        if definition.reference not in ("tokenizers", "python"):
            make_engine(definition.reference, definition)  # may crash, and if so, here
    if not vocabulary.vocab_size:
        raise TokenizerError(f"{found.file or found.name}: its vocabulary is empty; was the tokenizer never trained?")
    return {
        "json": definition.json,
        "reference": definition.reference,
        "special": {**definition.special, **found.special},
        "fingerprint": definition.fingerprint,
        **vocabulary._asdict(),
        "produced_names": sorted(produced),
        "begins": _begins(found, definition),
        "differs_by_line": definition.reference == "tokenizers" and differs_by_line(parsed),
    }


def _begins(found: TokenizerFiles, definition: Definition) -> str:
    """The token that the tokenizer itself puts before a text, which an effective tokenizer.json does not say; "" if none."""
    if json.loads(definition.files.get(CONFIG, b"{}")).get("add_bos_token"):
        return definition.special.get("bos", "")
    names = {token["id"]: token["content"] for token in definition.added}
    for step in steps(json.loads(found.files.get("tokenizer.json", b"{}")).get("post_processor"), "processors"):
        first = step["single"][0] if step.get("single") else {}
        number = first.get("ids", [None])[0]  # as objects of 1.0 are written
        if name := first.get("SpecialToken", {}).get("id") or step.get("cls", [""])[0] or names.get(number):
            return str(name)
    return ""


if __name__ == "__main__":
    serve(_answer)
