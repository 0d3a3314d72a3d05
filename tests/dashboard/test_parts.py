"""The parts of the page: what each shows, compared with the library itself."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sys
from urllib.parse import urlencode

import numpy as np
import pytest
import tokenizers
from build_helpers import CachedBuilds, wait_until, write_jsonl
from dashboard_client import EVIL, serving

import tokenmill as tm
from tokenmill.dashboard.document_parts import token_texts
from tokenmill.dashboard.inspection import Inspection, find_lower, spread
from tokenmill.dashboard.store_parts import packing_part
from tokenmill.dashboard.watched import library_at
from tokenmill.errors import StoreError, UsageError
from tokenmill.formatting import percent
from tokenmill.io.checked_lines import CheckedLines
from tokenmill.store.facts import info


@pytest.fixture(scope="module")
def store(shown_store) -> tm.Store:
    with pytest.warns(UserWarning, match="not complete"):
        return tm.open(shown_store)


def text_of(part: str) -> str:
    """What a reader sees."""
    return html.unescape(re.sub(r"<[^>]+>", "", part))


# A store.


def test_the_stream_begins_with_the_whole_panel(client, shown_store):
    message = json.loads(client.first_event().removeprefix("data: "))
    facts = info(shown_store)
    assert f'data-figure="tokens" data-value="{facts["tokens"]}"' in message["figures"]
    assert f'data-figure="documents" data-value="{facts["documents"]}"' in message["figures"]
    assert message["name"] == "store"
    assert message["version"]
    assert wait_until(lambda: client.dashboard.viewers == 0)


def test_facts(client, store):
    shown = text_of(client.part("facts"))
    assert store.fingerprint in shown
    assert "1 input file failed" in shown


def test_lengths_and_tokens(client, store):
    counts = np.bincount(np.concatenate(list(store)))
    found = re.findall(r"<tr><td>(\d+)</td>.*?<td class=\"number\">([\d,]+)</td>", client.part("tokens"))
    assert [(int(token), int(count.replace(",", ""))) for token, count in found[:5]] == [
        (int(token), int(counts[token])) for token in np.argsort(-counts, kind="stable")[:5]
    ]
    assert f"{len(store):,} documents" in text_of(client.part("tokens"))


def test_files_and_their_bytes_per_token(client, store):
    inspection = Inspection(store)
    files = {each.file: each for each in inspection.files("tokens", "", 0, 100)[0]}
    assert sum(each.tokens for each in files.values()) == store.num_tokens
    assert sum(each.documents for each in files.values()) == len(store)
    assert sum(each.quarantined for each in files.values()) == 2
    for each in files.values():
        assert each.has_failed or store.locate(each.first).file == each.file
        tokens = sum(len(ids) for i, ids in enumerate(store) if store.locate(i).file == each.file)
        assert each.tokens == tokens
    part = client.part("files", search="b <", sort="file")
    assert "1 to 1 of 1 file" in part
    assert "<i>" not in part
    assert f"{next(each for each in files.values() if '<' in each.file).bytes_per_token:.2f}" in part
    assert "No file" in client.part("files", search="nothing like that")
    assert sorted(each.file for each in files.values() if each.has_failed) == [
        each["file"] for each in info(store.path)["failed_files"]
    ]
    assert len(files) == info(store.path)["source"]["files"] == 4
    assert "d.parquet failed" in text_of(client.part("files"))


def test_lists_have_pages(client, monkeypatch):
    monkeypatch.setattr("tokenmill.dashboard.store_parts.PAGE", 2)
    first = client.part("files", sort="file")
    assert "1 to 2 of 4 files" in first
    assert "first=2" in first
    assert "before" not in text_of(first)
    assert "3 to 4 of 4 files" in client.part("files", sort="file", first=2)


@pytest.mark.parametrize("seq_len", [1, 7, 64, 2048])
def test_packing_is_what_pack_says(client, store, seq_len):
    part = client.part("packing", seq_len=seq_len, only=1)
    found = {}
    for span in re.findall(r"<span data-strategy=[^>]+>", part):
        values = dict(re.findall(r'data-([\w-]+)="([^"]*)"', span))
        name = values.pop("strategy")
        found[name] = {figure: float(value) for figure, value in values.items()}
    variants = {
        "concat": {},
        "concat, row_start document": {"row_start": "document"},
        "best_fit": {},
        "pad": {},
        "pad, long_docs truncate": {"long_docs": "truncate"},
        f"windows, overlap {seq_len // 4}": {"overlap": seq_len // 4},
    }
    assert set(found) == set(variants)
    for name, options in variants.items():
        stats = tm.pack(store, seq_len, strategy=name.split(",")[0], **options).stats
        assert found[name] == {figure: pytest.approx(float(stats[figure])) for figure in found[name]}, name


def test_the_bar_of_a_packing_shows_what_is_lost(client, store):
    part = client.part("packing", seq_len=8, only=1)
    row = next(each for each in part.split("<tr>") if "row_start document" in each)
    stats = tm.pack(store, 8, strategy="concat", row_start="document").stats
    lost = stats.truncated + stats.dropped
    assert lost > stats.tokens / 2
    width = float(re.search(r'class="part-lost" x="[\d.]+" y="0" width="([\d.]+)"', row)[1])
    assert width == pytest.approx(600 * lost / (stats.positions + lost), abs=0.1)
    assert f"{percent(lost, stats.tokens)} of tokens lost" in row
    assert "truncated or dropped" in part


def test_packing_of_a_large_store_is_estimated_from_a_part(store, monkeypatch):
    monkeypatch.setattr("tokenmill.dashboard.inspection.QUICK_DOCUMENTS", 100)
    inspection = Inspection(store)
    packed, documents = inspection.packed(64, quick=True)
    assert 0 < documents <= 150 < len(store)
    assert packed[0].stats.documents == documents
    estimated = packing_part(inspection, 64, quick=True)
    exact, whole = inspection.packed(64, quick=False)
    assert whole == len(store)
    rows = int(re.search(r"about ([\d,]+)</td>", estimated)[1].replace(",", ""))
    assert rows == pytest.approx(exact[0].stats.rows, rel=0.02)  # of the whole store
    assert "about" not in packing_part(inspection, 64, quick=False)
    assert exact[0].stats == tm.pack(store, 64).stats
    assert not (store.path / "plans").exists() or not list((store.path / "plans").glob("*-64*"))


def test_packing_says_that_text_for_evaluation_counts(store, tmp_path):
    for name in ("train", "valid"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{name}.txt").write_text(name)
    named = tm.build(tmp_path / "data", "bytes", tmp_path / "store", workers=0, progress="quiet")
    assert "text for evaluation (validation) counts too" in packing_part(Inspection(named), 8, quick=False)
    assert "evaluation" not in packing_part(Inspection(store), 8, quick=False)


def test_spread_is_even():
    assert spread(3, 5) == [0, 1, 2]
    assert spread(10, 5) == [0, 2, 4, 6, 8]


def test_a_store_without_a_tokenizer_has_frequencies(shown_store, tmp_path):
    shutil.copytree(shown_store, tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "tokenizer")
    with serving(library_at(str(tmp_path / "store"))) as asked:
        assert "<code>?</code>" in asked.part("tokens")
        assert "has no tokenizer" in text_of(asked.get("/part/documents").text)


# Quarantine.


def test_quarantined_rows_with_their_text(client):
    part = client.part("quarantine")
    assert EVIL not in part
    assert "1 to 2 of 2 quarantined documents" in part
    assert "d.parquet" in part  # the file that failed
    entries = re.findall(r'data-row="(\d+)"', part)
    texts = [text_of(client.part("row", entry=entry)) for entry in entries]
    assert texts == [EVIL, '{"text": 5}']
    assert EVIL not in client.part("row", entry=entries[0])
    assert "no such entry" in client.part("row", entry=99)
    assert "1 to 1 of 1 quarantined document" in client.part("quarantine", reason="bad json")


def test_a_source_that_is_gone_is_said(tmp_path, tokenizer_path):
    (tmp_path / "c.jsonl").write_text('{"text": "good"}\nnot json\n', "utf-8")
    tm.build(tmp_path / "c.jsonl", tokenizer_path, tmp_path / "store", workers=0, progress="quiet", engine="reference")
    (tmp_path / "c.jsonl").unlink()
    with serving(library_at(str(tmp_path / "store"))) as asked:
        assert "is gone" in text_of(asked.part("row", entry=0))


# Documents.


def test_a_document_with_its_tokens(client, store):
    part = client.part("documents", document=8)
    place = store.locate(8)
    assert f"from a.jsonl, row {place.row}" in text_of(part)
    assert f'title="{place.file}"' in part
    spans = re.findall(r'<span class="token t\d"[^>]*>(.*?)</span>', part, re.DOTALL)
    text = "".join(html.unescape(span).replace("⏎\n", "\n") for span in spans)
    assert text.removesuffix("<|endoftext|>") == store.text(8)
    assert EVIL not in client.part("documents", document=7)
    assert "The store has" in text_of(client.part("documents", document=10**9))


def test_tokens_of_a_character_are_shown_together(store):
    shown = list(token_texts(store.tokenizer, store[8], 0, len(store[8])))
    assert [token for each in shown for token in each.ids] == store[8].tolist()
    assert "".join(each.text for each in shown).removesuffix("<|endoftext|>") == store.text(8)
    assert any(len(each.ids) > 1 for each in shown)


def test_a_position_leads_to_its_document(client, store):
    position = int(store.stream_ends[4]) + 3
    part = client.part("documents", token=position)
    assert f"Token {position:,} of the store is token 3 of document 5." in part
    assert part.count("token t3 marked") + part.count(" marked") >= 1
    assert "The store has" in client.part("documents", token=store.num_tokens)


def test_search_finds_documents_and_goes_on(client, store, monkeypatch):
    part = client.part("documents", search="NEEDLE in a hay")
    number = next(i for i in range(len(store)) if "needle" in store.text(i))
    assert f"document {number:,}" in text_of(part)
    assert "<mark>needle in a hay</mark>" in part
    inspection = Inspection(store)
    wanted = [i for i in range(len(store)) if "document 4" in store.text(i)]
    monkeypatch.setattr("tokenmill.dashboard.inspection.SEARCH_TOKENS", 50)
    found, first = [], 0
    while first < len(store):
        some, first = inspection.search("document 4", first, 3)
        found += [each.document for each in some]
    assert found == wanted
    assert inspection.search("not there at all", 0, 3) == ([], len(store))
    assert EVIL not in client.part("documents", search="alert(")


@pytest.mark.parametrize("before", ["", "İİİ", "İ" * 200])
def test_what_was_found_is_marked_also_after_letters_that_are_longer_in_lower_case(before):
    text = f"{before} NeedleİX after"
    at, end = find_lower(text, "needleİ".lower())
    assert text[at:end] == "Needleİ"
    assert find_lower(text, "nothing")[0] == -1


def test_a_search_decodes_no_more_than_it_shows(store, monkeypatch):
    """Every document holds the text: only those that are shown are looked at one by one."""
    inspection, decoded = Inspection(store), []
    monkeypatch.setattr(tm.Store, "text", lambda self, document: decoded.append(document) or "the document")
    found, after = inspection.search("d", 0, 3)
    assert ([each.document for each in found], after) == (decoded[:3], decoded[3])
    assert len(decoded) == 4


def test_tokens_that_begin_with_a_space_show_it(tmp_path):
    """Also of tokenizers that leave out the space at the start of a text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"▁a": 0, "a": 1, "▁": 2}, [("▁", "a")], byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    made.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    source = write_jsonl(tmp_path / "a.jsonl", ["a a aa"])
    options = {"workers": 0, "progress": "quiet", "engine": "reference", "eos": None}
    inspection = Inspection(tm.build(source, tmp_path / "tokenizer.json", tmp_path / "store", **options))
    assert [inspection.token_text(token) for token in (0, 1, 2)] == [" a", "a", " "]


# Places.


def test_a_running_build_has_no_store_yet(tmp_path, shown_store):
    lines = CheckedLines(tmp_path / "events.jsonl")
    lines.append({"event": "begun", "time": 1.0, "run": "r", "folder": str(tmp_path), "pid": 1, "host": "elsewhere"})
    lines.close()
    with serving(library_at(str(tmp_path))) as asked:
        answer = asked.get("/part/facts")
        assert (answer.status, "is being built" in answer.text) == (404, True)
        shutil.copytree(shown_store, tmp_path, dirs_exist_ok=True)
        assert asked.get("/part/facts").status == 200


@pytest.mark.parametrize("name", ["nothing", "file", "empty"])
def test_other_places_are_refused(tmp_path, name):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is not a store or a cache"):
        library_at(str(tmp_path / name))


def test_a_cache_lists_its_stores_and_why_they_were_built(tmp_path, tokenizer_path):
    build = CachedBuilds(tmp_path / "cache", tokenizer_path)
    source = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    first = build(source)
    write_jsonl(tmp_path / "a.jsonl", ["one", "two", "three"])
    second = build(source)
    with serving(library_at(str(tmp_path / "cache"))) as asked:
        part = text_of(asked.part("cache"))
        assert "2 stores in the cache" in part
        assert first.path.name in part
        assert second.path.name in part
        assert re.search(r"Why the last build was needed: .*a\.jsonl", part)
        assert str(second.num_tokens) in text_of(asked.part("facts", store=second.path.name))
        assert asked.get("/part/facts?store=nothing").status == 404
        assert asked.get("/part/facts?store=..").status == 404
        assert asked.get("/part/facts").status == 404
        assert f'store="{first.path.name}"' in asked.get("/metrics").text


def test_a_cache_calls_a_store_incomplete_also_without_its_log(tmp_path, tokenizer_path):
    build = CachedBuilds(tmp_path / "cache", tokenizer_path)
    (tmp_path / "corpus").mkdir()
    write_jsonl(tmp_path / "corpus" / "a.jsonl", ["one", "two"])
    (tmp_path / "corpus" / "b.parquet").write_bytes(b"PAR1 is damaged")
    with pytest.warns(UserWarning, match="1 input file failed"):
        store = build(tmp_path / "corpus")
    with serving(library_at(str(tmp_path / "cache"))) as asked:
        assert 'class="state incomplete"' in asked.part("cache")
        (store.path / "events.jsonl").unlink()
        assert 'class="state incomplete"' in asked.part("cache")


def test_a_store_that_was_removed_from_the_cache_is_forgotten(tmp_path, tokenizer_path):
    build = CachedBuilds(tmp_path / "cache", tokenizer_path)
    store = build(write_jsonl(tmp_path / "a.jsonl", ["one", "two"]))
    library = library_at(str(tmp_path / "cache"))
    assert library.get(store.path.name) is library.get(store.path.name)
    shutil.rmtree(store.path)
    with pytest.raises(StoreError, match="may have been removed"):
        library.get(store.path.name)


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems take only Unicode")
def test_a_folder_whose_name_is_not_utf_8(tmp_path, shown_store):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(shown_store, folder)
    with serving(library_at(str(folder))) as asked:
        for part in ("facts", "files", "documents", "quarantine"):
            assert asked.get(f"/part/{part}").status == 200, part
        assert asked.get("/part/files?" + urlencode({"store": "caf?"})).status == 200
        assert 'store="caf?"' in asked.get("/metrics").text


def test_a_cached_build_is_found_where_it_is_moved(tmp_path, tokenizer_path):
    build = CachedBuilds(tmp_path / "cache", tokenizer_path)
    store = build(write_jsonl(tmp_path / "a.jsonl", ["one", "two"]))
    library = library_at(str(tmp_path / "cache"))
    entry = library.get(build.entries[0].name)
    assert entry.folder == store.path
    entry.update()
    assert entry.history.run.end["event"] == "finished"
    with pytest.raises(StoreError, match="no store"):
        library.get("../stores")
