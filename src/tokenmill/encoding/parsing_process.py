"""The process in which the files of a tokenizer are parsed: `python -m tokenmill.encoding.parsing_process`. See `parsing`."""

from __future__ import annotations

from tokenmill.child_process import Message, serve
from tokenmill.encoding.parsing import parse
from tokenmill.encoding.resolve import TokenizerFiles


def _answer(request: Message) -> Message:
    found = request.body["found"]
    found["files"] = dict(zip(found["files"], map(bytes, request.data), strict=True))
    facts = parse(TokenizerFiles(**found), request.body["policy"])
    body = facts.pop("json")
    return Message(facts, (body.encode(),) if body is not None else ())


if __name__ == "__main__":
    serve(_answer)
