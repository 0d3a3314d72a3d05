"""Requests that the server refuses: of other sites, of other machines, for other files, and those that are no questions."""

from __future__ import annotations

import http.client
import os
import socket

import pytest

pytestmark = pytest.mark.browser
TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def port(dash) -> int:
    return int(dash.rstrip("/").rpartition(":")[2])


def ask(port: int, path: str = "/", method: str = "GET", host: str = "127.0.0.1", **headers: str) -> tuple[int, str]:
    """The status and the body of an answer to exactly this request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", f"{host}:{port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, body


def test_questions_of_the_page_itself(port):
    for name in ("/", "/page.js", "/page.css", "/panel.css", "/part/facts", "/metrics"):
        assert ask(port, name)[0] == 200, name
    assert ask(port, host="localhost")[0] == 200
    assert ask(port, Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", ""])
def test_names_of_others(port, host):
    assert ask(port, "/part/facts", host=host)[0] == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_requests_of_other_sites(port, headers):
    assert ask(port, "/part/facts", **headers)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/page.js/../../server.py",
        "/part/../server.py",
        "/part/%2e%2e%2fserver.py",
        "/part/facts?store=../finished",
        "/part/facts?store=%2fetc",
        "/server.py",
        "/part/facts/",
    ],
)
def test_paths_to_other_files(port, path):
    status, body = ask(port, path)
    assert status in (404, 307), body
    assert "root:" not in body
    assert "import" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods(port, method):
    for path in ("/", "/live", "/part/facts", "/metrics", "/page.js"):
        assert ask(port, path, method)[0] == 405, path


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_another_page_cannot_read_the_answer(dash, browser, mode):
    context = browser.new_context()
    page = context.new_page()
    ask_for_it = "([url, mode]) => fetch(url, {mode}).then(answer => answer.text(), () => 'refused')"
    assert page.evaluate(ask_for_it, [f"{dash}part/facts", mode]) in ("refused", "")
    context.close()


def test_other_addresses_need_the_token(store, start, open_page, browser):
    environment = {**os.environ, "TOKENMILL_DASH_TOKEN": TOKEN}
    command = start("dash", store.path, "--host", "0.0.0.0", env=environment)
    assert ask(command.port)[0] == 401
    assert ask(command.port, "/?token=wrong")[0] == 401
    assert ask(command.port, "/part/facts", Authorization="Bearer wrong")[0] == 401
    assert ask(command.port, "/part/facts", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(command.port, "/part/facts", Cookie=f"tokenmill-dash-{command.port}=wrong")[0] == 401
    page = open_page(command.url)
    page.wait_for_selector("#status .state.incomplete")
    assert TOKEN not in page.url, "it does not stay in the address bar"
    assert TOKEN not in page.evaluate("document.cookie"), "scripts cannot read it"
    refused = browser.new_context()
    assert refused.new_page().goto(page.url).status == 401
    refused.close()


def test_an_address_that_is_not_loopback_makes_a_token(store, start):
    command = start("dash", store.path, "--host", "0.0.0.0")
    assert "?token=" in command.url
    assert ask(command.port)[0] == 401
    assert ask(command.port, host=socket.gethostname())[0] == 401, "the name of this machine, without the token"
