"""A Hugging Face Hub on this machine, for tests: what `huggingface_hub` asks of the real one, answered the same way.

    with hub_server({"org/model": {"tokenizer.json": b"..."}}) as hub:
        environment = hub.environment(tmp_path)          # for a subprocess: the library reads it when imported
        hub.repos["org/model"].commit({...}, "main")     # the branch moves
        hub.trouble = lambda method, path: 503           # or "drop", or "hang", or (429, {"Retry-After": "1"})
        hub.requests                                     # what was asked: (method, path)

A dataset is a repo whose name begins with "datasets/". Files are served without redirects, as the Hub serves small ones;
those of a repo with `lfs` are redirected to another host, as it does with large ones.
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
from urllib.parse import parse_qs, quote, unquote, urlsplit

Files = Mapping[str, bytes]
# An HTTP status, perhaps with headers; "drop": the connection is cut in the middle of the body; "hang": no answer comes.
Trouble = int | tuple[int, dict[str, str]] | str | None


@dataclass
class Repo:
    """A model repo: commits, the branches and tags that name them, and who may read."""

    token: str | None = None  # private: only this token may read
    gated: bool = False
    lfs: bool = False  # all files but README.md are on another host
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
        self.tokens: list[tuple[str, str | None]] = []  # the host and the authorization of each request
        self.signature = "1"  # of addresses on the other host; those with an earlier one have expired
        self.page = 1000  # files per answer
        self.trouble: Callable[[str, str], Trouble] = lambda method, path: None
        self.stopping = threading.Event()
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)) for _ in range(2)]
        self.address, self.other_address = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)
        self._threads = []
        for server in self._servers:
            server.daemon_threads = True
            server.block_on_close = False
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            self._threads.append(thread)

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

    def bytes_asked(self) -> list[str]:
        """The path of each request for the bytes of a file, in the order of the requests."""
        return [path for method, path in self.requests if method == "GET" and ("/resolve/" in path or "/blob/" in path)]

    def stop(self) -> None:
        """From now on connections are refused."""
        if not self.stopping.is_set():
            self.stopping.set()
            for server, thread in zip(self._servers, self._threads, strict=True):
                server.shutdown()
                server.server_close()
                thread.join()


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
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body of an answer in one packet

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            self.answer()

        def answer(self) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, unquote(path)))
            hub.tokens.append((f"http://{self.headers.get('Host')}", self.headers.get("Authorization")))
            trouble = hub.trouble(self.command, unquote(path))
            if trouble == "hang":
                hub.stopping.wait()
                self.cut()
            elif isinstance(trouble, int):
                self.refuse(trouble, None, "in trouble, as the test wants it")
            elif isinstance(trouble, tuple):
                self.refuse(trouble[0], None, "in trouble, as the test wants it", trouble[1])
            elif path.startswith("/blob/"):
                self.serve_blob(path, cut=trouble == "drop")
            elif "/resolve/" in path:
                name, rest = path[1:].split("/resolve/", 1)
                revision, file = rest.split("/", 1)
                self.serve_file(name, unquote(revision), unquote(file), cut=trouble == "drop")
            elif trouble == "drop":
                self.cut()
            elif path.startswith("/api/models/"):
                self.serve_listing(path.removeprefix("/api/models/"))
            elif path.startswith("/api/datasets/"):
                self.serve_listing(path.removeprefix("/api/"))
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
                self.refuse(401 if sent is None else 403, "GatedRepo", f"Access to {name} is restricted.")
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
            if hub.repos[name].lfs and file != "README.md":
                signed = f"{hub.other_address}/blob/{name}/{commit}/{quote(file)}?X-Amz-Signature={hub.signature}"
                linked = {"X-Linked-ETag": f'"{_sha256(data)}"', "X-Linked-Size": str(len(data)), "Location": signed}
                self.cut() if cut else self.send(302, {"X-Repo-Commit": commit, **linked}, b"")
                return
            self.send_part({"ETag": f'"{_blob(data)}"', "X-Repo-Commit": commit}, data, cut)

        def serve_blob(self, path: str, cut: bool) -> None:
            """A large file, on the other host. Its address says that whoever has it may read."""
            if f"X-Amz-Signature={hub.signature}" not in self.path or self.headers.get("Authorization") is not None:
                self.refuse(403, None, "the address has expired, or a token was sent")
                return
            name = next(name for name in hub.repos if path.startswith(f"/blob/{name}/"))
            commit, file = unquote(path.removeprefix(f"/blob/{name}/")).split("/", 1)
            self.send_part({}, hub.repos[name].commits[commit][file], cut)

        def send_part(self, headers: Mapping[str, str], data: bytes, cut: bool) -> None:
            """The bytes of a file that are asked for."""
            status, asked, more = 200, self.headers.get("Range", ""), {"Accept-Ranges": "bytes"}
            if self.command == "GET" and asked.startswith("bytes="):
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(len(data), int(last) + 1) if last else len(data)
                status, more["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{len(data)}"
                data = data[start:stop]
            self.send(status, {**headers, **more}, data, cut)

        def serve_listing(self, asked: str) -> None:
            name, revision, kind = asked, "main", ""
            for middle in ("/tree/", "/revision/", "/paths-info/"):
                if middle in asked:
                    name, revision = asked.split(middle, 1)
                    kind = middle
            revision, _, folder = revision.partition("/")
            found = self.find(name, unquote(revision))
            if found is None:
                return
            commit, files = found
            entries = [self.entry(name, path, files[path]) for path in sorted(files)]
            if kind == "/paths-info/":
                self.send_json([entry for entry in entries if entry["path"] in self.form["paths"]])
            elif kind == "/tree/":
                self.send_tree(entries, unquote(folder))
            else:
                self.send_json(
                    {"id": name, "modelId": name, "sha": commit, "siblings": [{"rfilename": f} for f in files]}
                )

        def entry(self, name: str, path: str, data: bytes) -> dict[str, object]:
            made: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
            if hub.repos[name].lfs and path != "README.md":
                made["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 130}
            return made

        def send_tree(self, entries: list[dict[str, object]], folder: str) -> None:
            """The files in or below a folder, a page at a time."""
            query = parse_qs(urlsplit(self.path).query)
            prefix = f"{folder}/" if folder else ""
            inside = [entry for entry in entries if str(entry["path"]).startswith(prefix)]
            if query.get("recursive", ["false"])[0].lower() != "true":
                inside = [entry for entry in inside if "/" not in str(entry["path"])[len(prefix) :]]
            if folder and not inside:
                self.refuse(404, "EntryNotFound", "no such folder")
                return
            start = int(query.get("cursor", ["0"])[0])
            more = {}
            if start + hub.page < len(inside):
                address = f"{hub.address}{urlsplit(self.path).path}?recursive={query.get('recursive', ['false'])[0]}"
                more["Link"] = f'<{address}&cursor={start + hub.page}>; rel="next"'
            self.send_json(inside[start : start + hub.page], more)

        def send_json(self, answer: object, more: Mapping[str, str] | None = None) -> None:
            self.send(200, {"Content-Type": "application/json", **(more or {})}, json.dumps(answer).encode())

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
            if self.command != "HEAD":
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


def _sha256(data: bytes) -> str:
    """The name of a file in LFS."""
    return hashlib.sha256(data).hexdigest()
