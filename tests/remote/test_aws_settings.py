"""Where the settings of S3 come from."""

from __future__ import annotations

import pytest

from tokenmill.io.aws_settings import aws_settings

NAMES = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION", "ENDPOINT_URL", "ENDPOINT_URL_S3",
         "PROFILE", "DEFAULT_PROFILE", "TOKEN")  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = two\n\n[work]\naws_access_key_id = three\n"
        "aws_secret_access_key = four%\naws_session_token = five\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n\n[profile work]\nregion = eu-north-1\nendpoint_url = http://127.0.0.1:9\n"
    )
    return tmp_path


def test_the_default_profile(home):
    assert aws_settings() == {"access_key_id": "one", "secret_access_key": "two", "region": "eu-west-1"}


def test_a_chosen_profile(home, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert aws_settings() == {
        "access_key_id": "three",
        "secret_access_key": "four%",
        "session_token": "five",
        "region": "eu-north-1",
        "endpoint": "http://127.0.0.1:9",
    }


def test_keys_of_the_environment_are_not_mixed_with_those_of_a_profile(home, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://everything")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://objects")
    assert aws_settings() == {
        "access_key_id": "mine",
        "secret_access_key": "own",
        "region": "eu-north-1",
        "endpoint": "https://objects",
    }


def test_files_elsewhere_and_damaged_ones(home, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = six\naws_secret_access_key = seven\n")
    (home / ".aws" / "config").write_bytes(b"\xff\xfe not a file of settings")
    assert aws_settings() == {"access_key_id": "six", "secret_access_key": "seven"}
    (tmp_path / "keys").unlink()
    assert aws_settings() == {}
