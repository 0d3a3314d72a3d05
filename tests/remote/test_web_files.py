"""Files behind http URLs, from a server that throttles, fails and breaks off."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tokenmill as tm
from tokenmill.errors import InputError, MissingInputError, UnreachableError
from tokenmill.io import object_store
from tokenmill.reading.raw_rows import raw_row


class Files(BaseHTTPRequestHandler):
    """Serves ranges of files. The first few requests each fail at first, in the ways that `server.faults` names."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        if self.path.startswith("/circle"):
            self.empty(302, f"{self.path}?token=secret")
            return
        content = self.server.files.get(self.path)
        if self.headers.get("If-Match") not in (None, self.server.etag) or "W/" in (self.headers.get("If-Match") or ""):
            self.empty(412)  # as a server must
            return
        if content is None:
            self.empty(404)
            return
        asked = self.headers.get("Range")
        tries = self.server.tries
        tries[self.command, asked] = tries.get((self.command, asked), 0) + 1
        faults = self.server.faults if list(tries).index((self.command, asked)) < 4 else []
        fault = faults[tries[self.command, asked] - 1] if tries[self.command, asked] <= len(faults) else None
        if isinstance(fault, int):
            self.empty(fault)
            return
        start, stop = 0, len(content)
        if asked is not None and self.server.has_ranges:
            first, last = asked.removeprefix("bytes=").split("-")
            start, stop = int(first), min(int(last) + 1, stop)
        body = content[start:stop]
        self.send_response(206 if asked is not None and self.server.has_ranges else 200)
        self.send_header("Content-Length", str(len(body)))
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        if asked is not None and self.server.has_ranges:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
        if fault == "cut":
            self.close_connection = True

    def empty(self, status: int, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(corpus, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.daemon_threads = True
    server.files = {f"/{path.name}": path.read_bytes() for path in corpus.glob("*") if path.is_file()}
    server.faults, server.tries, server.has_ranges, server.etag = [], {}, True, '"one"'
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    object_store._store.cache_clear()
    yield server
    server.shutdown()
    server.server_close()


def build(source, out):
    return tm.build(source, "demo", out, workers=0, shard_bytes="100KB", progress="quiet")


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz", "part0.parquet"])
def test_the_same_store_from_a_web_server_with_faults(web, corpus, tmp_path, name):
    web.faults = [503, "cut", 429]
    store = build(f"{web.url}/{name}", tmp_path / "web")
    assert not store.failed
    assert store.fingerprint == build(corpus / name, tmp_path / "local").fingerprint
    assert sum(web.tries.values()) >= len(web.tries) + 4


def test_a_server_that_only_fails_is_named_with_its_answer(web, monkeypatch):
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 1)
    monkeypatch.setattr(object_store, "MOST_RETRIES", 2)
    web.faults = [500] * 100
    with pytest.raises(UnreachableError, match="the server still answered 500 Internal Server Error after retries"):
        tm.read(f"{web.url}/plain.jsonl")


def test_a_redirect_in_a_circle_is_named(web):
    with pytest.raises(
        UnreachableError, match=r"/circle\.jsonl: the server redirects the request in a circle"
    ) as caught:
        tm.read(f"{web.url}/circle.jsonl")
    assert "secret" not in str(caught.value)


def test_a_server_that_refuses_connections_is_named(web, monkeypatch):
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0)
    web.shutdown()
    web.server_close()
    with pytest.raises(UnreachableError, match="the connection was refused"):
        tm.read(f"{web.url}/plain.jsonl")


def test_the_time_and_not_their_number_ends_retries(web, corpus, monkeypatch):
    """The library pauses for a tenth of a second at least."""
    assert object_store.MOST_RETRIES * 0.1 > object_store.RETRY_SECONDS == 120
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    web.etag, web.faults = "", ["cut"] * 6  # without a tag, the library does not go on after the part that it has
    assert object_store.read(f"{web.url}/plain.jsonl", 0, 1000) == (corpus / "plain.jsonl").read_bytes()[:1000]
    assert slept == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0]


def test_a_file_that_is_not_there(web):
    with pytest.raises(MissingInputError, match=r"no such file: http://127\.0\.0\.1:\d+/other\.jsonl"):
        tm.read(f"{web.url}/other.jsonl")


def test_a_server_without_ranges_is_named(web, tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 1)
    web.has_ranges = False
    with pytest.raises(UnreachableError, match="does not support range requests; download the file first"):
        build(f"{web.url}/plain.jsonl", tmp_path / "web")


def test_a_weak_etag_is_no_condition(web, corpus, tmp_path):
    web.etag = 'W/"one"'
    store = build(f"{web.url}/plain.jsonl", tmp_path / "web")
    assert not store.failed
    web.etag = 'W/"two"'
    source = tm.read(f"{web.url}/plain.jsonl")
    web.etag = 'W/"three"'
    with pytest.raises(InputError, match=r"plain\.jsonl: changed since it was listed"):
        build(source, tmp_path / "changed")


def test_rows_are_shown_as_those_of_local_files(web, corpus):
    for name in ("plain.jsonl", "packed.jsonl.gz", "part0.parquet"):
        remote, local = tm.read(f"{web.url}/{name}"), tm.read(corpus / name)
        assert raw_row(remote.files[0], remote, 7) == raw_row(local.files[0], local, 7)
