"""Settings of S3 from where the tools of AWS look for them: the environment, then ~/.aws/credentials and ~/.aws/config."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

# Our name of a setting: variables of the environment, the key in the files.
_SETTINGS = {
    "endpoint": (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "endpoint_url"),
    "region": (("AWS_REGION", "AWS_DEFAULT_REGION"), "region"),
    "access_key_id": (("AWS_ACCESS_KEY_ID",), "aws_access_key_id"),
    "secret_access_key": (("AWS_SECRET_ACCESS_KEY",), "aws_secret_access_key"),
    "session_token": (("AWS_SESSION_TOKEN", "AWS_TOKEN"), "aws_session_token"),
}
_KEYS = ("access_key_id", "secret_access_key", "session_token")


def aws_settings() -> dict[str, str]:
    """The settings that are found. Keys are taken from one place: those of the environment, or those of a profile."""
    profile = _profile(os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default")
    found: dict[str, str] = {}
    has_keys = bool(os.environ.get("AWS_ACCESS_KEY_ID"))
    for name, (variables, key) in _SETTINGS.items():
        value = next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
        if value is None and not (has_keys and name in _KEYS):
            value = profile.get(key)
        if value:
            found[name] = value
    return found


def _profile(name: str) -> dict[str, str]:
    """What the two files say about a profile. The first has keys, the second everything else."""
    values: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / file).expanduser()
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_section(section):
            values |= dict(parser.items(section))
    return values
