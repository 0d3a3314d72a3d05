"""Who may ask the server, what it answers to others, figures for Prometheus, and the process beside a build."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
from build_helpers import wait_until, write_jsonl
from dashboard_client import Client, serving

import tokenmill as tm
from tokenmill.building.dashboard_process import chosen_token, listening_socket, url_of
from tokenmill.cli import main
from tokenmill.dashboard.followed_log import FollowedLog, is_alive
from tokenmill.dashboard.metrics import metrics
from tokenmill.dashboard.request_checks import RequestChecks, is_loopback
from tokenmill.dashboard.watched import GONE, Cache, library_at
from tokenmill.errors import UsageError
from tokenmill.io.checked_lines import CheckedLines
from tokenmill.store.facts import info
from tokenmill.watching.history import Run

PATHS = ["/", "/page.js", "/page.css", "/panel.css", "/icon.svg", "/metrics", "/part/facts", "/live"]
BEGUN = {"pid": 1, "host": "h", "folder": "f"}
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]


# Requests.


@pytest.mark.parametrize("path", PATHS[:-1])
def test_every_answer_has_the_headers(client, path):
    answer = client.get(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


def test_the_page_loads_nothing_from_elsewhere(client):
    for path in PATHS[:5]:
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", client.get(path).text), path


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "host", ["example.com", "example.com:8321", "127.0.0.1.example.com", "", "10.0.0.1", "localhost.evil"]
)
def test_a_foreign_host_is_refused(client, method, host):
    answer = client.get("/part/facts", method, Host=host)
    assert answer.status == 421
    assert "fingerprint" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]:8321"])
def test_names_of_this_machine_are_answered(client, host):
    """With any port: it may be that of a tunnel."""
    assert client.get("/part/facts", Host=host).status == 200


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("origin", ["http://example.com", "null", "https://127.0.0.1", "http://localhost:1"])
def test_a_foreign_origin_is_refused(client, method, origin):
    assert client.get("/part/facts", method, Origin=origin).status == 403


def test_its_own_origin_is_answered(client):
    assert client.get("/part/facts", Origin=f"http://127.0.0.1:{client.port}").status == 200


def test_a_request_of_another_site_is_refused_but_a_link_is_not(client):
    assert client.get("/part/facts", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert client.get("/part/facts", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    assert client.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert client.get("/part/facts", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(client, method):
    assert client.get("/part/facts", method).status == 405


def test_the_head_of_a_stream_ends(client):
    """A connection that asked for it can ask again, and does not count as a page that is open."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=2)
    try:
        for method, path in [("HEAD", "/live"), ("GET", "/icon.svg")]:
            connection.request(method, path)
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/../manifest.json",
        "/..%2fmanifest.json",
        "/%2e%2e/manifest.json",
        "//etc/passwd",
        "/manifest.json",
        "/events.jsonl",
        "/page.html",
        "/server.py",
        "/part/../metrics",
        "/part/..",
        "/page.js/../../server.py",
        "/part/__init__",
        "/live?store=../store",
        "/part/facts?store=../store",
        "/part/facts?store=%2Fetc",
    ],
)
def test_no_other_path_is_served(client, path):
    assert client.get(path).status == 404


@pytest.mark.parametrize(
    "query",
    [
        f"seq_len={'9' * 5000}",
        "seq_len=-5",
        "seq_len=x",
        "seq_len=99999999999999999999",
        "seq_len=1&quick",
        "seq_len=%00",
    ],
)
def test_odd_numbers_do_no_harm(client, query):
    is_right = query == "seq_len=1&quick"
    answer = client.get(f"/part/packing?{query}")
    assert answer.status == (200 if is_right else 422)
    assert is_right or "is not a whole number" in answer.text or "a row has 1 to 16,777,216 positions" in answer.text
    answer = client.get(f"/part/documents?document={query.split('=')[1]}")
    assert answer.status == 200 or "is not a whole number" in answer.text


def test_unfinished_requests_do_not_stop_the_server(shown_store, monkeypatch):
    """Those that wait the longest make room for others, and none waits for long."""
    monkeypatch.setattr("tokenmill.dashboard.server.MOST_CONNECTIONS", 5)
    with serving(library_at(str(shown_store))) as asked:
        waiting = [socket.create_connection(("127.0.0.1", asked.port), timeout=30) for _ in range(20)]
        for each in waiting:
            with suppress(OSError):  # ended already
                each.send(b"GET / HTTP/1.1\r\nHost: loc")
        assert asked.get("/part/facts").status == 200
        assert wait_until(lambda: len(asked.server.server_state.connections) <= 5, 30)
        monkeypatch.setattr("tokenmill.dashboard.server.HEADER_SECONDS", 0.01)
        for each in waiting:
            with suppress(ConnectionError):
                assert each.recv(1) == b"", "it was ended"
            each.close()
        assert asked.get("/part/facts").status == 200


def test_a_problem_of_the_server_is_said_once(shown_store, capsys):
    with serving(library_at(str(shown_store))) as asked:
        for _ in range(5):
            asked.server._say_once(None, {"message": "no more\x1b files", "exception": OSError(24, "too many")})
    assert capsys.readouterr().err == "dashboard: no more\\x1b files: [Errno 24] too many\n"


# A token, for other machines.


@pytest.fixture(scope="module")
def guarded(shown_store):
    with serving(library_at(str(shown_store)), token="the-token") as asked:
        yield asked


def test_without_the_token_nothing_is_shown(guarded):
    for path in PATHS:
        answer = guarded.get(path)
        assert answer.status == 401, path
        assert "the-token" not in answer.text
    assert guarded.get("/?token=wrong").status == 401
    assert guarded.get("/metrics", Authorization="Bearer wrong").status == 401
    assert guarded.get("/metrics", Cookie=f"tokenmill-dash-{guarded.port}=wrong").status == 401


def test_the_token_becomes_a_cookie(guarded):
    answer = guarded.get("/?token=the-token")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert guarded.get("/part/facts", Cookie=cookie.split(";")[0]).status == 200
    assert guarded.get("/metrics", Authorization="Bearer the-token").status == 200
    assert guarded.get("/metrics", Authorization="Bearer the-token", Host="192.168.0.7:8321").status == 200
    assert guarded.get("/metrics", Authorization="Bearer the-token", Host="example.com").status == 421


def test_a_token_does_not_stay_in_the_address_bar(guarded):
    cookie = guarded.get("/?token=the-token").headers["set-cookie"].split(";")[0]
    assert guarded.get("/?token=the-token", Cookie=cookie).status == 303


def test_two_servers_of_one_machine_have_two_cookies(guarded):
    """A browser sends the cookies of a machine to all of its ports."""
    cookies = {
        guarded.get("/?token=the-token", Host=host).headers["set-cookie"].split("=")[0]
        for host in ("localhost:1", "localhost:2", "localhost")
    }
    assert len(cookies) == 3


@pytest.mark.parametrize("token", ['a;b, c="d\\', "naïve 中", "two\r\nlines"])
def test_a_token_may_have_any_characters(token):
    async def show(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def asked(query: str = "", **headers: str) -> dict[str, Any]:
        answers = []

        async def send(message):
            answers.append(message)

        given = [(b"host", b"localhost:1"), *((name.encode(), value.encode()) for name, value in headers.items())]
        scope = {"type": "http", "headers": given, "query_string": query.encode()}
        asyncio.run(RequestChecks(show, "127.0.0.1", token)(scope, None, send))
        return {"status": answers[0]["status"], **dict(answers[0]["headers"])}

    cookie = asked(urlencode({"token": token}))[b"set-cookie"].decode().partition("; ")[0]
    assert asked(cookie=cookie)["status"] == 200
    assert asked(authorization=f"Bearer {token}")["status"] == 200
    assert asked(cookie=f"{cookie}x")["status"] == 401


def test_which_addresses_are_this_machine():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.7", "example.com")))


# Figures for Prometheus.


def test_metrics(client, shown_store):
    lines = client.get("/metrics").text.splitlines()
    store = tm.Store(shown_store, tm.store.manifest.read_manifest(shown_store))
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['tokenmill_build_running{store="store"}'] == "0"
    assert values['tokenmill_build_tokens_total{store="store"}'] == str(store.num_tokens)
    assert values['tokenmill_build_quarantined_by_reason{store="store",reason="bad json"}'] == "1"
    assert float(values['tokenmill_build_stage_seconds_total{store="store",stage="encode"}']) > 0
    for line in lines:
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\} [\d.e+-]+", line), line


def test_names_in_metrics_have_no_control_characters():
    run = Run('a"b', 1.0, reasons={"\x1b[2J\u202e\ud800": 1})
    text = metrics({"s\r\n": (run, None)})
    assert r'store="s\\r\n",reason="\\x1b[2J\\u202e\\ud800"' in text
    assert text.encode().isascii()


# The log.


def test_a_log_is_read_on_as_it_grows(tmp_path):
    log, lines = FollowedLog(), CheckedLines(tmp_path / "events.jsonl")
    assert not FollowedLog().update(tmp_path / "nothing")
    lines.append({"event": "begun", "time": 1.0, "run": "r", "pid": 1, "host": "h", "folder": "f"})
    assert log.update(tmp_path)
    assert not log.update(tmp_path)
    with open(tmp_path / "events.jsonl", "ab") as raw:
        raw.write(b'{"event": "expl')  # a line that is being written
    assert not log.update(tmp_path)
    lines.close()
    lines = CheckedLines(tmp_path / "events.jsonl")
    lines.append({"event": "explained", "time": 2.0, "run": "r", "reasons": ["new"]})
    assert log.update(tmp_path)
    assert log.history.run.explained == ["new"]
    (tmp_path / "events.jsonl").unlink()
    assert not log.update(tmp_path)  # what is known stays
    assert log.history.run.explained == ["new"]
    lines.close()
    lines = CheckedLines(tmp_path / "events.jsonl")
    lines.append({"event": "begun", "time": 3.0, "run": "s", **BEGUN})
    lines.close()
    assert log.update(tmp_path)
    assert log.history.run.id == "s"


def forged_line(body: str) -> bytes:
    """A line whose checksum is right. `body` begins with a brace and ends without one."""
    crc = zlib.crc32(f"{body}}}".encode())
    return f'{body}, "crc": "{crc:08x}"}}\n'.encode()


FORGED = [
    '{"a": ',
    '{"a": ' + "[" * 100_000,
    '{"a": 1',
    '{"event": "begun", "time": 1e300, "run": "r", "pid": 1, "host": "h", "folder": "f"',
    '{"event": "finished", "time": "now", "run": "r"',
    '{"event": "finished", "time": null, "run": 5',
]


def test_forged_lines_of_a_log_are_left_out_and_counted(shown_store, tmp_path, capsys):
    folder = tmp_path / "store"
    shutil.copytree(shown_store, folder)
    before = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_bytes(b"".join(map(forged_line, FORGED)) + b"damaged\n" + before)
    facts = info(folder)
    assert facts["log_lines_skipped"] == len(FORGED) + 1
    assert facts["created"].startswith("20")
    assert {**facts, "path": "", "disk_bytes": 0, "log_lines_skipped": 0} == {
        **info(shown_store),
        "path": "",
        "disk_bytes": 0,
    }
    assert main(["info", str(folder)]) == 0
    assert "7 lines of events.jsonl left out" in capsys.readouterr().out
    with serving(library_at(str(folder))) as asked:
        assert "7 lines of events.jsonl left out" in asked.part("facts")
        assert "7 lines of events.jsonl left out" in asked.first_event()
        assert asked.get("/metrics").status == 200


def test_a_store_that_is_removed_is_not_shown_as_finished(shown_store, tmp_path):
    folder = tmp_path / "store"
    shutil.copytree(shown_store, folder)
    watched = library_at(str(folder)).get("")
    assert "incomplete" in watched.panel()["status"]
    shutil.rmtree(folder)
    assert watched.panel()["status"] == '<p class="status-line">' + GONE + "</p>"
    assert watched.panel()["figures"] == ""


def test_a_line_longer_than_any_event_does_not_end_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.dashboard.followed_log.CHUNK", 200)
    (tmp_path / "events.jsonl").write_bytes(b"x" * 250 + b"\n")
    lines = CheckedLines(tmp_path / "events.jsonl")
    lines.append({"event": "begun", "time": 1.0, "run": "r", **BEGUN})
    lines.close()
    log = FollowedLog()
    assert log.update(tmp_path)
    assert log.history.run.id == "r"
    assert not log.update(tmp_path)


def test_whether_a_builder_is_alive(tmp_path):
    import socket

    def asked(**begun) -> bool | None:
        log, lines = FollowedLog(), CheckedLines(tmp_path / "events.jsonl")
        lines.append({"event": "begun", "time": time.time(), "run": os.urandom(4).hex(), **BEGUN, **begun})
        lines.close()
        log.update(tmp_path)
        return is_alive(log.history.run)

    here, parent = socket.gethostname(), os.getppid()
    assert asked(pid=parent, host=here) is True
    assert asked(pid=parent, host="elsewhere") is None
    assert asked(pid=parent, host=here, time=1.0) is False  # another process with that number
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert asked(pid=ended.pid, host=here) is False
    assert is_alive(None) is None


# The command, and the process beside a build.


def test_a_port_in_use_is_said():
    with listening_socket(port=0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}.*--port"):
            listening_socket(port=port)
        assert url_of(sock) == f"http://127.0.0.1:{port}/"
        with listening_socket() as free, listening_socket() as next_one:
            assert free.getsockname()[1] != next_one.getsockname()[1]


def test_any_port_will_do_if_the_usual_ones_are_in_use(monkeypatch):
    with listening_socket(port=0) as held:
        monkeypatch.setattr("tokenmill.building.dashboard_process.PORT", held.getsockname()[1])
        monkeypatch.setattr("tokenmill.building.dashboard_process.PORTS_TRIED", 1)
        with listening_socket() as sock:
            assert sock.getsockname()[1] != held.getsockname()[1]


def test_an_address_that_is_not_of_this_machine_is_said():
    with pytest.raises(UsageError, match=r"no server can listen at 192\.0\.2\.1: "):
        listening_socket("192.0.2.1")


@pytest.mark.parametrize("port", [65536, 10**20])
def test_a_port_that_cannot_be_is_said(port):
    with pytest.raises(UsageError, match=f"port {port}: ports end at 65535; choose another with --port"):
        listening_socket(port=port)


def test_a_token_that_can_be_guessed_is_refused_for_other_machines(shown_store, monkeypatch, capsys):
    monkeypatch.setenv("TOKENMILL_DASH_TOKEN", "x")
    assert main(["dash", str(shown_store), "--host", "0.0.0.0"]) == 2
    assert "TOKENMILL_DASH_TOKEN has 1 character" in capsys.readouterr().err
    assert chosen_token() == "x", "on this machine it is better than none"
    monkeypatch.setenv("TOKENMILL_DASH_TOKEN", "0123456789abcdef")
    assert chosen_token(is_local=False) == "0123456789abcdef"


def test_an_empty_token_is_none(monkeypatch):
    monkeypatch.setenv("TOKENMILL_DASH_TOKEN", "")
    assert chosen_token() is None
    monkeypatch.setenv("TOKENMILL_DASH_TOKEN", "secret")
    assert chosen_token() == "secret"


def test_missing_libraries_are_said(monkeypatch, capsys, shown_store):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["dash", str(shown_store)]) == 2
    assert "pip install 'tokenmill[dash]'" in capsys.readouterr().err


def test_an_open_page_does_not_keep_dash_from_ending_quietly(shown_store):
    command = [sys.executable, "-m", "tokenmill", "dash", str(shown_store)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)/", process.stderr.readline())[1])
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        page.request("GET", "/live")
        page.getresponse().readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
        page.close()
    finally:
        process.kill()
        process.stderr.close()


def test_an_empty_cache_is_shown_as_one(tmp_path):
    with serving(Cache(tmp_path / "none")) as client:
        assert "0 stores in the cache" in client.get("/part/cache").text
        assert client.get("/live?store=removed").status == 404


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_dash_says_where_and_ends_at_a_signal(shown_store, number, code):
    command = [sys.executable, "-m", "tokenmill", "dash", str(shown_store)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        assert re.match(r"dashboard: http://127\.0\.0\.1:\d+/ ", line)
        process.send_signal(number)
        assert process.wait(30) == code
        assert "shards" not in process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def test_another_address_gets_a_token(shown_store):
    command = [sys.executable, "-m", "tokenmill", "dash", str(shown_store), "--host", "0.0.0.0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert re.match(r"dashboard: http://127\.0\.0\.1:\d+/\?token=[\w-]{32} ", process.stderr.readline())
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def followers() -> list[psutil.Process]:
    """The dashboards of builds of this process that are still running."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "tokenmill.dashboard.following" in child.cmdline():
                found.append(child)
    return found


def test_a_build_with_a_dashboard(tmp_path, tokenizer_path, capsys, monkeypatch):
    """The store is the same; the page shows it, whatever its name; the process ends when nobody looks."""
    source = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    options = {"workers": 0, "engine": "reference", "progress": "quiet"}
    plain = tm.build(source, tokenizer_path, tmp_path / "plain", **options)
    odd_name = os.fsdecode(b"two lines\nand \xff") if sys.platform == "linux" else "two\nlines"
    store = tm.build(source, tokenizer_path, tmp_path / odd_name, dashboard=True, **options)
    assert store.fingerprint == plain.fingerprint
    url = re.search(r"dashboard: http://127\.0\.0\.1:(\d+)/", capsys.readouterr().err)
    assert url is not None
    [follower] = followers()
    asked = Client(int(url[1]))
    assert wait_until(lambda: store.fingerprint in asked.get("/part/facts").text, 30)
    assert f'data-value=\\"{store.num_tokens}\\"' in asked.first_event()
    assert wait_until(lambda: not psutil.pid_exists(follower.pid), 30)


@pytest.mark.stress
def test_a_failed_build_ends_its_dashboard(tmp_path, tokenizer_path, capsys):
    with pytest.raises(tm.errors.TokenmillError):
        tm.build(tmp_path / "nothing.jsonl", tokenizer_path, tmp_path / "store", dashboard=True, progress="quiet")
    asked = Client(int(re.search(r"127\.0\.0\.1:(\d+)/", capsys.readouterr().err)[1]))
    assert wait_until(lambda: "the terminal says why" in asked.first_event(), 30)
    assert wait_until(lambda: not followers(), 30)
