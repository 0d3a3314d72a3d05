"""Commands that look at stores: info, show and verify."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO, TextIOWrapper

import pytest

import tokenmill as tm
from tokenmill.building.terminal import Terminal
from tokenmill.cli import main
from tokenmill.errors import MissingStoreError
from tokenmill.events import EngineProof

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")


def test_info_json(store, tokenizer_path, capsys):
    """What a program may rely on."""
    assert main(["info", str(store), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    facts = json.loads(out)
    opened = tm.open(store)
    assert facts["documents"] == 3
    assert facts["tokens"] == opened.num_tokens == sum(opened.lengths)
    assert facts["dtype"] == "uint16"
    assert facts["vocab_size"] == opened.tokenizer.vocab_size
    assert facts["tokenizer"]["name"] == str(tokenizer_path)
    assert facts["tokenizer"]["fingerprint"] == opened.tokenizer.fingerprint
    assert facts["fingerprint"] == opened.fingerprint
    assert facts["shards"] == opened.num_shards == 1
    assert facts["source_bytes"] == (store.parent / "corpus.jsonl").stat().st_size
    assert facts["quarantined"] == 0
    assert facts["complete"] is True
    assert facts["disk_bytes"] == sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    created, finished = (datetime.fromisoformat(facts[name]) for name in ("created", "finished"))
    assert created.utcoffset() == timedelta(0)
    assert timedelta(0) <= finished - created < timedelta(minutes=10)
    assert timedelta(0) <= datetime.now(UTC) - finished < timedelta(minutes=10)


def test_info(store, capsys):
    """The same for people: the account of documents, the tokenizer, the fingerprint."""
    assert main(["info", str(store)]) == 0
    out = capsys.readouterr().out
    assert "3 in = 3 out + 0 quarantined" in out
    assert tm.open(store).fingerprint in out
    assert re.search(r"^disk +\d+\.\d kB$", out, re.MULTILINE)
    assert re.search(r"^built +finished 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ, begun 20\S+Z$", out, re.MULTILINE)
    assert "NOT COMPLETE" not in out


def test_info_lists_splits(jsonl, tmp_path, capsys):
    """By the names of the input files, as `--split` of pack takes them."""
    (tmp_path / "in").mkdir()
    for name in ("train-1.jsonl", "train-2.jsonl", "valid.jsonl"):
        jsonl([name], f"in/{name}")
    tm.build(tmp_path / "in", "bytes", tmp_path / "store", workers=0, progress="quiet")
    assert main(["info", str(tmp_path / "store")]) == 0
    assert "\nsplits      train (2 files), validation (1 file)\n" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "store"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == {"train": 2, "validation": 1}


@pytest.mark.parametrize("command", ["info", "show", "verify"])
def test_a_folder_that_is_not_there_is_said_to_be_missing(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "nowhere")]) == 3
    assert f"no token store at {tmp_path / 'nowhere'} (no such folder)" in capsys.readouterr().err
    assert main([command, str(tmp_path)]) == 3
    assert f"no token store at {tmp_path} (it has no manifest.json)" in capsys.readouterr().err


def test_info_counts_what_was_left_out(tokenizer_path, tmp_path, capsys):
    """Documents in are documents out and quarantined, by reason."""
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{bad\n{"text": null}\n\n{worse\n')
    command = ["build", str(tmp_path / "in.jsonl"), "-t", str(tokenizer_path), "-o", str(tmp_path / "store"), "-q"]
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents_in"], facts["documents"], facts["quarantined"]) == (4, 1, 3)
    assert facts["quarantined_by_reason"] == {"bad json": 2, "null field": 1}
    assert main(["info", str(tmp_path / "store")]) == 0
    assert "4 in = 1 out + 3 quarantined" in capsys.readouterr().out


def test_info_of_an_interrupted_store(jsonl, tokenizer_path, tmp_path, capsys):
    """A build that stopped midway is not complete, and says how to finish it."""

    def stop(event):
        if event.name == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        tm.build(jsonl(["a"]), tokenizer_path, tmp_path / "store", progress=stop)
    assert caught.value.__notes__ == ["The build was interrupted. Finished shards are kept: run it again to resume"]
    assert main(["info", str(tmp_path / "store"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["complete"] is False
    assert (facts["documents"], facts["tokens"], facts["shards"]) == (0, 0, 0)
    assert (facts["created"] is not None, facts["finished"]) == (True, None)
    assert main(["info", str(tmp_path / "store")]) == 0
    assert "NOT COMPLETE" in capsys.readouterr().out
    assert main(["show", str(tmp_path / "store")]) == 3
    assert "interrupted" in capsys.readouterr().err


def test_verify_of_an_interrupted_store_does_not_call_it_whole(jsonl, tokenizer_path, tmp_path, capsys):
    """Nothing is damaged, but nothing is there either: not "all checksums match"."""

    def stop(event):
        if event.name == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tm.build(jsonl(["a"]), tokenizer_path, tmp_path / "store", progress=stop)
    main(["verify", str(tmp_path / "store")])
    assert "all checksums match" not in capsys.readouterr().out


def test_show(store, capsys):
    """A document's origin, text and ids; several at once, and from the end."""
    assert main(["show", str(store)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "corpus.jsonl, row 0" in out
    assert out.index("hello world") < out.index(str(tm.open(store)[0].tolist()))  # people read the text first
    assert main(["show", str(store), "--doc", "1", "-1"]) == 0
    out = capsys.readouterr().out
    assert out.index("a second document") < out.index("and a third")
    assert main(["show", str(store), "--tokens", "2"]) == 0
    out = capsys.readouterr().out
    opened = tm.open(store)
    assert f"{opened[0][:2].tolist()} ... and {len(opened[0]) - 2} more" in out


class Screen(StringIO):
    """Standard output or error that is a terminal."""

    def isatty(self):
        return True


def test_lines_fit_the_terminal(tmp_path, jsonl, monkeypatch):
    """Facts and ids are broken between words; a path, which is a word, is not. What goes to a file is left alone."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    jsonl(["word " * 60])
    screens = []
    for command in (
        ["build", "corpus.jsonl", "-t", "bytes", "-o", "store", "--max-rows", "5"],
        ["info", "store"],
        ["show", "store"],
        ["cache", "why", "corpus.jsonl", "-t", "bytes"],
    ):
        for name in ("stdout", "stderr"):
            screens.append(Screen())
            monkeypatch.setattr(sys, name, screens[-1])
        assert main(command) == 0
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for each in screens for line in each.getvalue().splitlines()]
    assert len(lines) > 20
    assert [line for line in lines if len(line) > 80 and str(tmp_path) not in line and "word word" not in line] == []


def test_show_json(store, capsys):
    """A line of JSON for each document."""
    assert main(["show", str(store), "--json", "--doc", "0", "-1"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    opened = tm.open(store)
    assert first["ids"] == opened[0].tolist()
    assert first["tokens"] == len(opened[0])
    assert first["text"] == "hello world<|endoftext|>"
    assert (first["document"], first["row"], second["document"], second["row"]) == (0, 0, 2, 2)
    assert first["file"].endswith("corpus.jsonl")


NASTY = "a\x1b[31mred\x1b[0m \x07bell \x9b1mC1 \x7f \x08\x08 \u202eright to left \u2028 end \r over"


def is_safe(text: str) -> bool:
    """No character that a terminal obeys."""
    return all(c.isprintable() or c in "\n\t" for c in text)


def test_show_escapes_control_characters(build, capsys):
    """Escape sequences in a document are shown, not obeyed."""
    folder = build([NASTY])
    capsys.readouterr()
    assert main(["show", str(folder)]) == 0
    out = capsys.readouterr().out
    assert is_safe(out)
    assert "\\x1b[31mred" in out
    assert "right to left" in out
    assert main(["show", str(folder), "--json"]) == 0
    out = capsys.readouterr().out
    assert is_safe(out)
    assert json.loads(out)["text"] == NASTY + "<|endoftext|>"


def test_names_of_files_are_escaped_too(tokenizer_path, tmp_path, capsys):
    """A file whose name holds escape sequences is named without obeying it, by every command."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "a\x1b[31m.jsonl").write_text('{"text": "x"}\n')
    (source / "b\x1b[31m.jsonl.gz").write_text("broken")
    inputs = [str(path) for path in sorted(source.iterdir())]
    command = ["build", *inputs, "-t", str(tokenizer_path), "-o", str(tmp_path / "store")]
    assert main(command) == 4
    out, err = capsys.readouterr()
    assert is_safe(err)
    assert is_safe(out)
    for command in (["info"], ["show"], ["info", "--json"], ["show", "--json"]):
        assert main([*command, str(tmp_path / "store")]) == 0
        assert is_safe(capsys.readouterr().out)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_that_are_no_text(tokenizer_path, tmp_path, monkeypatch, encoding):
    """A file name of bytes that are not UTF-8, or a terminal that is not: no command fails for it."""
    source = tmp_path / "in"
    source.mkdir()
    with open(os.fsencode(source) + b"/b\xff.jsonl", "w") as out:
        out.write(json.dumps({"text": "naïve 中文"}) + "\n")
    name = os.fsdecode(os.fsencode(source) + b"/b\xff.jsonl")
    for command in (
        ["build", name, "-t", str(tokenizer_path), "-o", str(tmp_path / "store")],
        ["info", str(tmp_path / "store")],
        ["info", str(tmp_path / "store"), "--json"],
        ["show", str(tmp_path / "store")],
        ["show", str(tmp_path / "store"), "--json"],
        ["verify", str(tmp_path / "store")],
    ):
        with monkeypatch.context() as patch:
            for stream in ("stdout", "stderr"):
                patch.setattr(sys, stream, TextIOWrapper(BytesIO(), encoding=encoding, write_through=True))
            assert main(command) == 0, sys.stderr.buffer.getvalue()[-400:]
            written = sys.stdout.buffer.getvalue()
        assert written.decode(encoding)
    show = [sys.executable, "-m", "tokenmill", "show", str(tmp_path / "store")]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run(show, capture_output=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")[-400:]


def test_verify(store, capsys):
    """A good store is called good, for people and for programs; a damaged one is not."""
    assert main(["verify", str(store)]) == 0
    assert "all checksums match" in capsys.readouterr().out
    assert main(["verify", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "repaired": False, "damaged": []}
    ids = next(path for path in (store / "shards").glob("*.npy") if ".ends" not in path.name)
    ids.write_bytes(ids.read_bytes()[:-1] + b"\xff")
    assert main(["verify", str(store)]) == 3
    assert ids.name in capsys.readouterr().out
    assert main(["verify", str(store), "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [entry["file"] for entry in report["damaged"]] == [f"shards/{ids.name}"]
    assert main(["verify", str(store), "--repair"]) == 0
    assert "repaired" in capsys.readouterr().out
    assert main(["verify", str(store)]) == 0


@pytest.mark.parametrize(
    "command", [["info"], ["show"], ["verify"], ["stats", "--seq-len", "8"], ["pack", "--seq-len", "8"]]
)
def test_a_wrong_path_is_answered_with_the_stores_near_it(command, store, tmp_path, capsys, monkeypatch):
    """Those beside it and in it, the nearest name first."""
    for name in ("another", "corpus"):
        shutil.copytree(store, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for wrong, said in (
        ("corpsu", "corpsu (no such folder); stores near it: corpus, another, store"),
        (".", ". (it has no manifest.json); stores near it: another, corpus, store"),
        ("no/thing", "no/thing (no such folder)"),
    ):
        assert main([command[0], wrong, *command[1:]]) == 3
        assert capsys.readouterr().err == f"tokenmill: no token store at {said}\n"


def test_a_wrong_path_in_python(store, tmp_path):
    with pytest.raises(
        MissingStoreError, match=r"no token store at .*stroe \(no such folder\); stores near it: .*store$"
    ):
        tm.pack(tmp_path / "stroe", 8)
    with pytest.raises(
        MissingStoreError, match=r"\(no such folder\); stores near it: .*store; text needs a tokenizer, such as -t gpt2"
    ):
        tm.load(tmp_path / "stroe", 2, seq_len=8)
    with pytest.raises(
        MissingStoreError, match=r"no token store at \*\.txt .*; text needs a tokenizer, such as -t gpt2"
    ):
        tm.load("*.txt", 2, seq_len=8)


def test_a_store_is_not_built_again(store, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["build", str(store), "-o", "x"])
    assert caught.value.code == 2
    said = f"tokenmill build: {store} is a token store already: tokenmill info, stats and export take it as it is"
    assert capsys.readouterr().err.startswith(said)


def test_quiet_commands_print_nothing_but_errors(tmp_path, capsys):
    """No result either, unless it is asked for as JSON; and no warning."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 2 + "{'text': 1}\n" * 9)
    source, store, out, again = (str(tmp_path / name) for name in ("a.jsonl", "store", "out", "again"))
    build = ["build", source, "-t", "bytes", "-o", store, "--workers", "0"]
    export, bring = ["export", store, out, "--format", "nanogpt"], ["import", out, again, "-t", "bytes"]
    for command in (build, build, export, export, bring):
        assert main([*command, "-q"]) == 0
        assert capsys.readouterr() == ("", "")
    assert main([*export, "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "nanogpt"
    assert main(["build", source, str(tmp_path / "none"), "-t", "bytes", "-o", store, "-q"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_first_build_tells_its_engine_once(tmp_path, capsys):
    """With the proof on the plan's line only; `tokenmill info` has it later."""
    (tmp_path / "a.txt").write_text("some words")
    command = ["build", str(tmp_path / "a.txt"), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    [(engine, proof)] = re.findall(r"^engine (.*?): (.*); inside this process$", err, re.MULTILINE)
    assert proof not in out
    assert re.findall(r"^engine +(.*)$", out, re.MULTILINE) == [engine]
    assert main(["info", str(tmp_path / "store")]) == 0
    assert proof in capsys.readouterr().out


def test_a_short_proof_is_not_announced(capsys):
    for mode, seconds, is_told in (
        ("plain", 1.0, False),
        ("plain", 4.0, True),
        ("verbose", 1.0, True),
        ("quiet", 9.0, False),
    ):
        Terminal(mode)(EngineProof(tokenizer="gpt2", seconds=seconds))
        assert ("first use of gpt2" in capsys.readouterr().err) is is_told


def test_pack_is_stats(store, capsys):
    for command in ("stats", "pack"):
        assert main([command, str(store), "--seq-len", "8"]) == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :] != ""
    with pytest.raises(SystemExit):
        main(["help", "pack"])
    assert capsys.readouterr().out.startswith("usage: tokenmill stats ")
