"""The actor of a Ray worker, without Ray: it starts a worker process, passes lines on, and says what is wrong with its node."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict

import psutil
import pytest

import tokenmill as tm
from tokenmill.building.executors import ray_actor
from tokenmill.building.executors.choose import executor_for
from tokenmill.building.executors.ray_actor import RayWorker
from tokenmill.cli import main
from tokenmill.errors import UsageError
from tokenmill.testing.executors import plan_work, write_corpus


@contextmanager
def actor(folder, version=tm.__version__):
    worker = RayWorker(json.dumps({"version": version, "folder": str(folder)}))
    try:
        yield worker
    finally:
        worker.end()


def receive_until(worker: RayWorker, kind: str) -> dict:
    """The first message of a kind; or the answer with the exit code."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = json.loads(worker.receive(1.0))
        for line in answer["lines"]:
            message = json.loads(line)
            if kind in message:
                return message[kind]
        if answer["code"] is not None:
            assert kind == "code"
            return answer
    raise AssertionError(f"no {kind}")


@pytest.fixture
def work(tmp_path):
    write_corpus(tmp_path / "corpus")
    return plan_work(tmp_path / "corpus", tmp_path / "out")


def test_a_task_through_an_actor(work, tmp_path):
    """Lines go in and come out, with the memory of the process; its end arrives with its exit code."""
    with actor(tmp_path) as worker:
        assert json.loads(worker.receive(30.0))["code"] is None  # at once: there is room for it
        worker.begin(json.dumps({"begin": asdict(work.context)}), str(tmp_path / "corpus"))
        pid = receive_until(worker, "ready")
        assert json.loads(worker.receive(0.0))["bytes"] > 10 << 20
        crashes = {"poison": [], "suspects": [0, 0], "deadly_pieces": [], "alone": False}
        worker.send(json.dumps({"task": asdict(work.tasks[0]), "crashes": crashes, "reads_ahead": False}))
        assert receive_until(worker, "result")["task"] == work.tasks[0].id
        assert len(work.receipts()) == 1
        worker.end()
        assert receive_until(worker, "code")["code"] == -9
    assert not psutil.pid_exists(pid)


def test_a_node_that_does_not_see_the_output_folder(work, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_actor, "SEEN_SECONDS", 0.0)
    with actor(tmp_path) as worker:
        worker.begin(json.dumps({"begin": asdict(work.context)}), "/not/shared/seen.1-0.tmp")
        error = receive_until(worker, "fatal")
    assert error["type"] == "BuildError"
    assert f"node {os.uname().nodename} does not see the output folder /not/shared," in error["message"]
    assert "Choose one on a file system that all nodes share" in error["message"]


def test_input_files_that_a_node_does_not_see(tmp_path):
    """Relative paths are those of the driver's folder."""
    (tmp_path / "here").touch()
    with actor(tmp_path) as worker:
        answer = worker.missing(json.dumps(["here", "gone", str(tmp_path / "here"), "/not/shared/a"]))
    assert json.loads(answer) == [os.uname().nodename, ["gone", "/not/shared/a"]]


def test_a_node_with_another_version(tmp_path):
    with actor(tmp_path, version="99.0") as worker:
        error = receive_until(worker, "fatal")
    assert f"has tokenmill {tm.__version__}, and this process 99.0: install the same version" in error["message"]


def test_a_worker_whose_driver_is_gone_ends(tmp_path, monkeypatch):
    """Nobody asks for its lines."""
    monkeypatch.setattr(ray_actor, "LEASE_SECONDS", 0.5)
    with actor(tmp_path) as worker:
        worker._stdout_reader.join(60)  # until the process has closed its output
        assert receive_until(worker, "code")["code"] == -9


def test_without_ray(monkeypatch, jsonl, tokenizer_path, capsys):
    """One line that says how to install it, also where the text is so little that it would not be used."""
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    path = jsonl(["a text"])
    command = ["build", str(path), "-t", str(tokenizer_path), "-o", str(path.with_name("out")), "--backend", "ray"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "--backend ray (backend='ray') needs Ray" in error
    assert "pip install 'tokenmill[ray]'" in error


def test_an_address_is_for_ray():
    with pytest.raises(UsageError, match="address"):
        executor_for(lambda event: None, workers=0, memory=None, text_bytes=None, address="auto")
