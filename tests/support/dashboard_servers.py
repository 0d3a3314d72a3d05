"""The commands whose pages the browser tests look at: `tokenmill dash` and `tokenmill build --dashboard`, as processes."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

PATIENCE = 60.0  # seconds after which a process hangs


class Command:
    """A tokenmill command that is running. `url` is the address of its page; `lines` is what it said before that."""

    def __init__(self, *words: str | Path, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenmill", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.lines: list[str] = []
        self.url = self._address()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.put(line)
        self._said.put("")

    def _address(self) -> str:
        while line := self._said.get(timeout=PATIENCE):
            self.lines.append(line)
            if found := re.match(r"dashboard: (\S+)", line):
                return found[1]
        raise AssertionError(f"no address was printed: {''.join(self.lines)}")

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/", self.url)
        assert found is not None
        return int(found[1])

    def server(self) -> psutil.Process:
        """The process of its own that shows a build."""
        for process in psutil.process_iter(["cmdline", "net_connections"]):
            command = process.info["cmdline"] or []
            ports = [each.laddr.port for each in process.info["net_connections"] or [] if each.status == "LISTEN"]
            if "tokenmill.dashboard.following" in command and self.port in ports:
                return process
        raise AssertionError(f"no process serves {self.url}")

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def facts(store: Path) -> dict[str, Any]:
    """What `tokenmill info --json` says of a store."""
    said = subprocess.run(
        [sys.executable, "-P", "-m", "tokenmill", "info", "--json", str(store)], capture_output=True, check=True
    )
    found: dict[str, Any] = json.loads(said.stdout)
    return found
