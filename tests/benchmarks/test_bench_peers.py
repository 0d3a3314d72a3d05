"""The comparison with other pipelines: its text, what counts as equal, and peers that cannot run."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from benchmarks.chart import bars, title
from benchmarks.harness import PEERS
from benchmarks.peer_pipelines import (
    ALL,
    PeerError,
    compare,
    measure_peers,
    peers_table,
    run_command,
    summarized,
    write_corpus,
    written_documents,
)

import tokenmill as tm
from benchmarks import peer_pipelines

EOS = 9
DOCUMENTS = [[1, 2, 3, EOS], [4, EOS], [5, 6, EOS], [4, EOS]]


def stores(*parts: list[list[int]]) -> list[list[np.ndarray]]:
    """Streams of documents, in place of stores."""
    return [[np.array(ids) for ids in part] for part in parts]


def test_the_text_is_the_same_for_all(tmp_path):
    """Dealt out to files, without what tools treat differently."""
    source = tmp_path / "source.jsonl"
    texts = [" one\n", "two", "  ", "a <eos> b", "", "drei ä", "four"]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made = write_corpus(tmp_path / "text", [str(source)], 17, 2, "<eos>")
    assert made == {"documents": 4, "bytes": 17}
    files = sorted((tmp_path / "text").iterdir())
    found = [[json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()] for file in files]
    assert found == [["one", "drei ä"], ["two", "four"]]


def test_documents_are_compared_in_any_order():
    expected = written_documents(stores(DOCUMENTS), EOS)
    same = {"documents": 4, "equal": 4, "dropped_tokens": 0, "same": True}
    assert compare(written_documents(stores(DOCUMENTS[2:], DOCUMENTS[:2]), EOS), expected, 0) == same
    rows = [[1, 2], [3, EOS], [4, EOS], [5, 6], [EOS, 4], [EOS]]
    assert compare(written_documents(stores(rows), EOS), expected, 0) == same


def test_one_other_id_is_a_difference():
    expected = written_documents(stores(DOCUMENTS), EOS)
    other = [[1, 2, 3, EOS], [4, EOS], [6, 5, EOS], [4, EOS]]
    assert compare(written_documents(stores(other), EOS), expected, 0)["same"] is False
    assert compare(written_documents(stores(DOCUMENTS[:3]), EOS), expected, 0)["same"] is False


def test_only_what_fills_no_row_may_be_missing():
    """Where rows are written, the rest of each stream is dropped; more than that is a difference."""
    expected = written_documents(stores(DOCUMENTS), EOS)
    found = compare(written_documents(stores(DOCUMENTS[:2], [[5, 6], [EOS, 4]]), EOS), expected, 2)
    assert found == {"documents": 4, "equal": 3, "dropped_tokens": 1, "same": True}
    assert compare(written_documents(stores(DOCUMENTS[:2]), EOS), expected, 4)["same"] is False


def test_a_peer_that_is_not_there_is_named(tmp_path, monkeypatch):
    """Nothing else breaks: the others are measured, and the reason is in the table and in the notes."""
    text = tmp_path / "text.txt"
    text.write_text("some text to build a store from")
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "dolma.log").write_text("Collecting dolma\nERROR: No matching distribution found\n\n")
    ran = peer_pipelines.Run(2.0, 3.0)
    (tmp_path / "work").mkdir()

    def build(work, cores):

        return (
            ran if (work / "store").exists() else (tm.build(work / "text", "demo", work / "store", workers=0), ran)[1]
        )

    monkeypatch.setattr(peer_pipelines, "_build", build)
    result = measure_peers(tmp_path / "work", [str(text)], None, 10, 1, tmp_path / "peers", ["dolma", "litdata"])
    assert [row["failed"] for row in result["peers"]] == [
        "not installed: ERROR: No matching distribution found",
        f"not installed: there is no {tmp_path}/peers/litdata/bin/python; run make bench-peers",
    ]
    assert "dolma did not run: not installed: ERROR: No matching distribution found" in peers_table(result)


def test_figures_and_notes():
    """Pipelines on `tokenizers` have the bar; all have their ratios, and what was found in what they wrote."""
    compared = {"documents": 10, "equal": 10, "dropped_tokens": 0, "same": True}
    peers = []
    for name, seconds, found in (
        ("dolma", 60.0, compared),
        ("litData", 20.0, {**compared, "equal": 7, "same": False}),
        ("Mosaic streaming", 50.0, {**compared, "equal": 9, "dropped_tokens": 5}),
        ("Megatron, gigatoken", 2.4, compared),
    ):
        row = {"name": name, "version": "1", "what": "it", "failed": None, "seconds": seconds, "cpu": 2 * seconds}
        peers.append({**row, "build_seconds": 2.0, "build_cpu": 3.0, "compared": found})
    machine = {"cpu": "a processor", "cores": 2}
    result = {"machine": machine, "text_bytes": 120_000_000, "documents": 10, "files": 8, "tokenizer": "t", "rounds": 1}
    result = summarized({**result, "runs": {}, "bars": [], "notes": [], "peers": peers})
    assert [(bar["measured"], bar["met"]) for bar in result["bars"][:4]] == [
        (30, True),
        (10, False),
        (25, True),
        (1.2, None),
    ]
    assert result["bars"][4]["what"] == "CPU time of dolma 1 / tokenmill build"
    assert result["runs"]["dolma 1: it"] == {"seconds": 60.0, "cpu": 120.0, "mb_per_second": 2.0}
    assert result["notes"] == [
        "Equal to tokenmill's, id by id, in all 10 documents: dolma, Megatron, gigatoken.",
        "litData DIFFERS: 3 of 10 documents are not as tokenmill wrote them.",
        "Mosaic streaming: equal in 9 documents; the last 5 tokens, which fill no row, are dropped.",
    ]
    assert "120 MB of jsonl, the same tokens, 2 cores (a processor)" in title(result)
    assert [(bar.label, bar.note, bar.own) for bar in bars(result)] == [
        ("tokenmill build", "1", True),
        ("Megatron, gigatoken 1", "1.2", False),
        ("litData 1", "10", False),
        ("Mosaic streaming 1", "25", False),
        ("dolma 1", "30", False),
    ]


def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(PeerError, match="exit code 3: no such tokenizer"):
        run_command([sys.executable, "-c", "print('no such tokenizer'); raise SystemExit(3)"], tmp_path)


def test_every_peer_has_a_program_and_an_environment():
    makefile = (PEERS.parents[1] / "Makefile").read_text("utf-8")
    for peer in ALL:
        assert not peer.program or (PEERS / peer.program).is_file()
        assert f'"{peer.environment}:' in makefile
