"""The process that makes requests for one that cannot: `python -m tokenmill.io.request_process`. See `object_store`."""

from __future__ import annotations

from pathlib import Path

from tokenmill.child_process import Message, serve
from tokenmill.io import object_store


def _answer(request: Message) -> Message:
    name, arguments = request.body["call"], request.body["arguments"]
    if name == "download":
        object_store.download(arguments[0], Path(arguments[1]))
        return Message({})
    return Message({}, (object_store.read(*arguments),))


if __name__ == "__main__":
    serve(_answer)
