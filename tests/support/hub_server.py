"""A Hugging Face Hub on this machine, for tests: what `huggingface_hub` asks of the real one, answered the same way.

    with hub_server({"org/model": {"tokenizer.json": b"..."}}) as hub:
        environment = hub.environment(tmp_path)          # for a subprocess: the library reads it when imported
        hub.repos["org/model"].commit({...}, "main")     # the branch moves
        hub.trouble = lambda method, path: 503           # or "drop", or "hang"
        hub.requests                                     # what was asked: (method, path)

Files are served without redirects, as the Hub serves small ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

Files = Mapping[str, bytes]
# An HTTP status; "drop": the connection is cut in the middle of the body; "hang": no answer comes.
Trouble = int | str | None


@dataclass
class Repo:
    """A model repo: commits, the branches and tags that name them, and who may read."""

    token: str | None = None  # private: only this token may read
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Files, *names: str) -> str:
        """A new commit with these files; the branches and tags named lead to it from now on. Returns its hash."""
        body = json.dumps([len(self.commits), sorted((name, data.hex()) for name, data in files.items())])
        made = hashlib.sha1(body.encode()).hexdigest()
        self.commits[made] = files
        self.names.update(dict.fromkeys(names, made))
        return made


class Hub:
    """The server's side of a test."""

    def __init__(self, repos: dict[str, Repo]) -> None:
        self.repos = repos
        self.requests: list[tuple[str, str]] = []
        self.trouble: Callable[[str, str], Trouble] = lambda method, path: None
        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """An environment in which this is the Hub and `home` the home folder, free of the user's own settings."""
        ours = ("HF_", "HUGGING", "TRANSFORMERS_", "XDG_CACHE_HOME", "TOKENMILL_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(ours) and not name.upper().endswith("_PROXY")
        }
        return {**kept, "HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": self.address, **more}

    def files_asked(self) -> set[str]:
        """The names of the files that were asked for, whatever the answer."""
        return {path.split("/resolve/", 1)[1].split("/", 1)[1] for _, path in self.requests if "/resolve/" in path}

    def stop(self) -> None:
        """From now on connections are refused."""
        if not self.stopping.is_set():
            self.stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


@contextmanager
def hub_server(repos: Mapping[str, Repo | Files]) -> Iterator[Hub]:
    """A Hub with these repos; mere files are a public repo with one commit on the branch main."""
    made: dict[str, Repo] = {}
    for name, repo in repos.items():
        if not isinstance(repo, Repo):
            files, repo = repo, Repo()
            repo.commit(files, "main")
        made[name] = repo
    hub = Hub(made)
    try:
        yield hub
    finally:
        hub.stop()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, unquote(path)))
            trouble = hub.trouble(self.command, unquote(path))
            if trouble == "hang":
                hub.stopping.wait()
                self.cut()
            elif isinstance(trouble, int):
                self.refuse(trouble, None, "in trouble, as the test wants it")
            elif "/resolve/" in path:
                name, rest = path[1:].split("/resolve/", 1)
                revision, file = rest.split("/", 1)
                self.serve_file(name, unquote(revision), unquote(file), cut=trouble == "drop")
            elif path.startswith("/api/models/"):
                self.serve_listing(path.removeprefix("/api/models/"))
            else:
                self.refuse(404, None, "no such page")

        def find(self, name: str, revision: str) -> tuple[str, Files] | None:
            """The commit asked for, or None after the refusal that the Hub would give."""
            repo = hub.repos.get(name)
            sent = self.headers.get("Authorization")
            if repo is not None and repo.token is not None and sent not in (None, f"Bearer {repo.token}"):
                self.refuse(401, None, "Invalid credentials in Authorization header")
            elif repo is None or (repo.token is not None and sent is None):
                self.refuse(401 if sent is None else 404, "RepoNotFound", "Invalid username or password.")
            elif repo.gated:
                self.refuse(401 if sent is None else 403, "GatedRepo", f"Access to model {name} is restricted.")
            else:
                commit = repo.names.get(revision, revision)
                if commit in repo.commits:
                    return commit, repo.commits[commit]
                self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None

        def serve_file(self, name: str, revision: str, file: str, cut: bool) -> None:
            found = self.find(name, revision)
            if found is None:
                return
            commit, files = found
            if file not in files:
                self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
                return
            data = files[file]
            headers = {"ETag": f'"{_blob(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            status, asked = 200, self.headers.get("Range", "")
            if self.command == "GET" and asked.startswith("bytes=") and asked.endswith("-"):
                start = int(asked[len("bytes=") : -1])
                status, headers["Content-Range"] = 206, f"bytes {start}-{len(data) - 1}/{len(data)}"
                data = data[start:]
            self.send(status, headers, data, cut)

        def serve_listing(self, asked: str) -> None:
            name, revision, tree = asked, "main", "/tree/" in asked
            for middle in ("/tree/", "/revision/"):
                if middle in asked:
                    name, revision = asked.split(middle, 1)
            found = self.find(name, unquote(revision))
            if found is None:
                return
            commit, files = found
            if tree:
                answer: object = [
                    {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
                    for path, data in files.items()
                ]
            else:
                answer = {"id": name, "modelId": name, "sha": commit, "siblings": [{"rfilename": f} for f in files]}
            self.send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

        def refuse(self, status: int, code: str | None, message: str, more: Mapping[str, str] | None = None) -> None:
            headers = {"X-Error-Message": message, "Content-Type": "application/json", **(more or {})}
            if code is not None:
                headers["X-Error-Code"] = code
            self.send(status, headers, json.dumps({"error": message}).encode())

        def send(self, status: int, headers: Mapping[str, str], body: bytes, cut: bool = False) -> None:
            if cut and self.command == "HEAD":
                self.cut()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.cut()

        def cut(self) -> None:
            self.close_connection = True
            try:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other side was quicker
                pass

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what was asked is in `Hub.requests`."""

    return Handler


def _blob(data: bytes) -> str:
    """The name git gives to a file's content, which is the Hub's ETag for files kept in git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
