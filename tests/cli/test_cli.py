"""The command line: what each command prints and where, and the exit code that a program may trust."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from io import BytesIO, TextIOWrapper

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.building.terminal import Terminal
from tokenmill.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")

COMMANDS = ["build", "estimate", "run", "info", "show", "stats", "verify", "cache", "bench", "demo", "completion"]


def tokenmill(*arguments: object, stdin: bytes = b"", **options) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "tokenmill", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, **options)


def give(monkeypatch, stdin: bytes) -> None:
    """Standard input of this process."""
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin)))


def without_size(table: str) -> list[str]:
    """What `info` shows, except for the size on disk: the log grows with every build."""
    return [line for line in table.splitlines() if not line.startswith("disk ")]


# Building.


def test_build_says_what_it_does_on_stderr_and_what_came_of_it_on_stdout(jsonl, tokenizer_path, tmp_path, capsys):
    """Progress and result do not mix; run again, it says that it is up to date."""
    command = ["build", str(jsonl(["one", "two"])), "-t", str(tokenizer_path), "-o", str(tmp_path / "store")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "2 in = 2 out + 0 quarantined" in out
    assert "fingerprint" in out
    assert "1 shard" in err
    assert "done in" in err
    assert "done in" not in out
    assert main(command) == 0
    again, err = capsys.readouterr()
    assert without_size(again) == without_size(out)
    assert "up to date" in err


def test_build_quiet_json(jsonl, tokenizer_path, tmp_path, capsys):
    """-q leaves standard error empty, --json leaves one JSON object on standard output."""
    command = ["build", str(jsonl(["one", "two"])), "-t", str(tokenizer_path), "-o", str(tmp_path / "store")]
    assert main([*command, "-q", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["documents"] == 2


def test_build_verbose_names_every_shard(jsonl, tokenizer_path, tmp_path, capsys):
    command = ["build", str(jsonl(["x " * 500] * 20)), "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-v"]
    assert main([*command, "--shard-bytes", "4KB"]) == 0
    err = capsys.readouterr().err
    for shard in tm.open(tmp_path / "store")._manifest.shard_ids:
        assert shard in err


def test_every_build_option_is_heard(tokenizer_path, tmp_path, capsys):
    """Flags do what the keywords of the same name do."""
    source = tmp_path / "in.txt"
    source.write_text('{"a": "one", "b": "1"}\n{"a": "two", "b": "2"}\n{"a": 3}\n{"a": "four", "b": "4"}\n')
    command = ["build", str(source), "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "--json", "-q"]
    command += [
        "--format",
        "jsonl",
        "--template",
        r"{a}\n{b}",
        "--max-rows",
        "3",
        "--eos",
        "5",
        "--bos",
        "<|endoftext|>",
    ]
    command += ["--engine", "tokenizers", "--shard-bytes", "1MB", "--workers", "1", "--memory", "1GB"]
    assert main(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["quarantined"]) == (2, 1)
    assert (
        facts["options"] | {"eos": 5, "bos": 0, "max_rows": 3, "shard_bytes": 10**6, "template": "{a}\n{b}"}
        == facts["options"]
    )
    assert facts["tokenizer"]["engine"] == "tokenizers"
    store = tm.open(tmp_path / "store")
    assert tm.load_tokenizer(tokenizer_path).decode(store[0][1:-1]) == "one\n1"
    assert main([*command, "--text-field", "a"]) == 0  # a template needs no text field
    assert main([*command[:-4], "--on-error", "raise", "--force"]) == 1
    assert "row 2" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_build_in_order(jsonl, tmp_path, monkeypatch, capsys, number, code):
    """The terminal is left as it was, the log says so, and so does the command, with what is finished."""
    heard, show = [], Terminal.__call__

    def interrupt(terminal, event):
        show(terminal, event)
        heard.append(event.name)
        if event.name == "started":
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Terminal, "__call__", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.getsignal(signal.SIGTERM)
    try:
        command = ["build", str(jsonl(["a"])), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
        assert main(command) == code
    finally:
        assert signal.getsignal(signal.SIGTERM) == before[1]
        signal.signal(signal.SIGINT, before[0])
    assert heard[-2:] == ["progress", "stopped"]
    err = capsys.readouterr().err
    assert "stopped with 0 of 1 shard finished\n" in err
    assert "Finished shards are kept: run the command again to resume" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_arrives_in_a_finalizer_is_not_lost(jsonl, tmp_path, monkeypatch, number, code):
    """Python prints exceptions in a `__del__`, and goes on."""

    class Interrupted:
        def __del__(self):
            os.kill(os.getpid(), number)
            time.sleep(0.001)  # the exception is raised here

    def finalize(terminal, event):
        if event.name == "started":
            Interrupted()
            time.sleep(5)

    monkeypatch.setattr(Terminal, "__call__", finalize)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        began = time.monotonic()
        command = ["build", str(jsonl(["a"])), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
        assert main(command) == code
        assert time.monotonic() - began < 4
    finally:
        signal.signal(signal.SIGINT, before)


def test_separator(tokenizer_path, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("one\n---\ntwo\n---\nthree")
    command = ["build", str(source), "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-q", "--json"]
    assert main([*command, "--separator", r"\n---\n"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 3


@pytest.mark.parametrize("packed", [False, True])
def test_build_from_standard_input(tokenizer_path, tmp_path, monkeypatch, capsys, packed):
    """A stream is read as --format says, compressed or not; the same stream again is up to date."""
    lines = b'{"text": "one"}\n{"text": "two"}\n{bad\n'
    stdin = gzip.compress(lines) if packed else lines
    command = ["build", "-", "--format", "jsonl", "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "--json"]
    ran = tokenmill(*command, stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    facts = json.loads(ran.stdout)
    assert (facts["documents"], facts["quarantined"]) == (2, 1)
    assert tm.open(tmp_path / "store").locate(1) == ("<stdin>", 1)
    give(monkeypatch, stdin)
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "up to date" in err
    assert json.loads(out) | {"disk_bytes": 0} == facts | {"disk_bytes": 0}


def test_standard_input_needs_a_format(tokenizer_path, tmp_path):
    """A stream has no name to tell its format by: a usage error that says what to give."""
    ran = tokenmill("build", "-", "-t", tokenizer_path, "-o", tmp_path / "store", stdin=b'{"text": "one"}\n')
    assert ran.returncode == 2
    assert b"--format" in ran.stderr
    assert ran.stdout == b""


def test_truncated_standard_input(tokenizer_path, tmp_path, monkeypatch, capsys):
    """A compressed stream that breaks off is an error that names it: half of it is no store."""
    stdin = gzip.compress(b'{"text": "one"}\n' * 5000)
    command = ["build", "-", "--format", "jsonl", "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "--json"]
    give(monkeypatch, stdin[: len(stdin) // 2])
    assert main(command) == 1
    assert "<stdin>: " in capsys.readouterr().err
    give(monkeypatch, stdin)
    assert main(command) == 0
    assert len(tm.open(tmp_path / "store")) == 5000


# Exit codes.


def test_exit_codes(store, jsonl, tokenizer_path, tmp_path, capsys):
    """0 done, 1 failed, 2 usage, 3 corrupt or mismatched store, 4 done but some input failed; each says why on stderr."""
    source, tokenizer = str(tmp_path / "corpus.jsonl"), ["-t", str(tokenizer_path)]
    bad = tmp_path / "bad.jsonl.gz"
    bad.write_bytes(b"\x1f\x8b nothing")
    (tmp_path / "file").write_text("")
    cases = [
        (1, ["build", source, "-t", str(tmp_path / "nowhere"), "-o", str(tmp_path / "x")], "nowhere"),
        (1, ["build", source, *tokenizer, "-o", str(tmp_path / "file/store")], "file/store"),
        (2, ["build", str(tmp_path / "missing.jsonl"), *tokenizer, "-o", str(tmp_path / "x")], "missing.jsonl"),
        (2, ["build", source, *tokenizer, "-o", str(tmp_path / "x"), "--text-field", "body"], "body"),
        (2, ["build", source, *tokenizer, "-o", str(tmp_path / "x"), "--shard-bytes", "some"], "shard_bytes"),
        (2, ["build", source, *tokenizer, "-o", str(tmp_path / "x"), "--memory", "-4"], "memory"),
        (2, ["build", source, *tokenizer, "-o", str(tmp_path / "x"), "--eos", "<nope>"], "eos"),
        (2, ["build", source, *tokenizer, "-o", str(tmp_path / "x"), "--max-rows", "0"], "max_rows"),
        (2, ["show", str(store), "--doc", "3"], "3"),
        (3, ["build", source, *tokenizer, "-o", str(store), "--eos", "none"], "eos"),
        (3, ["info", str(tmp_path / "x")], str(tmp_path / "x")),
        (3, ["show", str(tmp_path / "nowhere")], "nowhere"),
        (3, ["verify", str(tmp_path / "nowhere")], "nowhere"),
        (4, ["build", source, str(bad), *tokenizer, "-o", str(tmp_path / "four")], "1 input file failed"),
    ]
    for code, command, says in cases:
        assert main(command) == code, command
        out, err = capsys.readouterr()
        assert says in err, command
        assert (out == "") == (code != 4), command


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command, capsys):
    """Every command explains itself on standard output."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"] if command else ["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: tokenmill {command}".strip())
    if not command:
        assert all(name in out for name in COMMANDS)


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"tokenmill {tm.__version__}\n"


def test_a_reader_that_leaves(build):
    """`tokenmill show ... | head -1` ends in silence."""
    folder = build(["some words " * 3000] * 30)
    command = [sys.executable, "-m", "tokenmill", "show", folder, "--tokens", "9999", "--doc", *map(str, range(30))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=60)
    assert err == b""


# The other commands.


def test_demo(tmp_path, capsys, monkeypatch):
    """Builds a store offline from files every machine has, and says how to go on."""
    (tmp_path / "lib").mkdir()
    for name in ("a.py", "b.rst", "c.txt"):
        (tmp_path / "lib" / name).write_text(f"# {name}\n")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "lib"))
    assert main(["demo", "-o", str(tmp_path / "store")]) == 0
    out, err = capsys.readouterr()
    assert "3 in = 3 out" in out
    assert f"tokenmill show {tmp_path / 'store'}" in out
    assert "building" in err
    assert len(tm.open(tmp_path / "store")) == 3


# What it costs to ask.


@pytest.mark.parametrize(
    "script",
    [
        "import tokenmill",
        "import tokenmill; dir(tokenmill); tokenmill.errors",
        "import tokenmill.cli",
        "import tokenmill.cli\ntry: tokenmill.cli.main(['--help'])\nexcept SystemExit: pass",
        "import tokenmill.cli\ntry: tokenmill.cli.main(['build', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_help_and_import_load_nothing_heavy(script):
    """Asking for help, or importing, costs no library that does real work."""
    heavy = ["numpy", "pyarrow", "tokenizers", "gigatoken", "awkward", "psutil", "torch"]
    check = f"\nimport sys\nprint([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script + check], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr.strip()) == (0, "[]")


def test_public_names():
    """What is promised is there, and nothing else is shown."""
    assert sorted(tm.__all__) == sorted(set(tm.__all__))
    for name in tm.__all__:
        assert getattr(tm, name) is not None
    assert {*tm.__all__, "open"} <= set(dir(tm))
    names: dict[str, object] = {}
    exec("from tokenmill import *", names)
    assert "open" not in names
    assert names["build"] is tm.build
    for name in (
        "build",
        "estimate",
        "export",
        "import_tokens",
        "load",
        "load_tokenizer",
        "mix",
        "open",
        "pack",
        "read",
    ):
        function = getattr(tm, name)
        assert (function.__name__, function.__qualname__, function.__module__) == (name, name, "tokenmill")
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tm.nonsense


def test_a_build_does_not_import_pandas(tokenizer_path, proved, tmp_path, monkeypatch):
    """It is installed here, and Arrow would import it, into every worker, for the asking. No format asks for it."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(proved))  # the engines need no trial
    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\nbad\n')
    (tmp_path / "a.csv").write_text("text\none\n")
    for name in ("a.txt", "a.lines.txt"):
        (tmp_path / name).write_text("one\n\ntwo\n")
    code = """
import sys, tokenmill as tm
for name in ("a.jsonl", "a.txt", "a.lines.txt", "a.parquet", "a.csv"):
    format = "lines" if "lines" in name else "auto"
    tm.build(name, sys.argv[1], f"store-{name}", workers=0, progress="quiet", format=format)
    if "pandas" in sys.modules:
        sys.exit(f"a build of {name} imports pandas")
"""
    command = [sys.executable, "-c", code, str(tokenizer_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
