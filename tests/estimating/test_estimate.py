"""Estimates: counted where everything fits the sample, near the truth where it does not, and right about what is odd."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import UsageError
from tokenmill.estimating import survey
from tokenmill.estimating.spread import Grid

ROOT = Path(__file__).parents[2]
EOS = "<|endoftext|>"
PATIENT = 120.0  # seconds: no sample of these tests is cut short by a slow machine


def write_jsonl(texts, path):
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)), "utf-8")


def write_gzip(texts, path):
    write_jsonl(texts, path)
    path.write_bytes(gzip.compress(path.read_bytes(), 1))


def write_bz2(texts, path):
    write_jsonl(texts, path)
    path.write_bytes(bz2.compress(path.read_bytes(), 1))


def write_parquet(texts, path, rows=1 << 20):
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), path, row_group_size=rows)


def write_groups(texts, path):
    write_parquet(texts, path, 50)


def write_arrow(texts, path):
    table = pa.table({"text": texts})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=40)


def write_stream(texts, path):
    table = pa.table({"text": texts})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=40)


def write_csv(texts, path):
    with open(path, "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["id", "text"], *([i, text] for i, text in enumerate(texts))])


def write_separated(texts, path):
    path.write_text("<|sep|>".join(texts), "utf-8")


def write_folder(texts, path):
    path.mkdir()
    for i, text in enumerate(texts):
        (path / f"{i:05}.txt").write_text(text, "utf-8")


WRITERS = {
    "a.jsonl": write_jsonl,
    "a.jsonl.gz": write_gzip,
    "a.jsonl.bz2": write_bz2,
    "one-group.parquet": write_parquet,
    "a.parquet": write_groups,
    "a.arrow": write_arrow,
    "stream.arrow": write_stream,
    "a.csv": write_csv,
    "separated.txt": write_separated,
    "folder": write_folder,
}


def options_of(name):
    return {"separator": "<|sep|>", "separator_newlines": "keep"} if name == "separated.txt" else {}


@pytest.fixture(scope="module")
def sorted_texts(real_texts):
    """Some 5 MB in an order that misleads whoever reads only the beginning: Python, then something like Chinese."""
    chance = random.Random(5)
    code = [text[at : at + chance.randrange(500, 9000)] for text in real_texts for at in range(0, len(text), 9000)]
    code = [text for text in code if text.isprintable() or text.strip()][:700]
    other = [
        "".join(chr(chance.randrange(0x4E00, 0x5600)) for _ in range(chance.randrange(100, 2500))) for _ in range(500)
    ]
    return [text.replace("\r", "") for text in code + other]


@pytest.fixture(scope="module")
def truth(sorted_texts, reference):
    """Tokens of all texts, each with its eos."""
    return sum(len(one.ids) + 1 for one in reference.encode_batch(sorted_texts, add_special_tokens=False))


@pytest.mark.parametrize("name", WRITERS)
def test_a_small_corpus_is_counted(name, tmp_path, real_texts, tokenizer_path):
    texts = [text[:700] for text in real_texts[:60]]
    WRITERS[name](texts, tmp_path / name)
    found = tm.estimate(tmp_path / name, tokenizer_path, seconds=PATIENT, **options_of(name))
    store = tm.build(tmp_path / name, tokenizer_path, tmp_path / "store", workers=0, **options_of(name))
    assert found.exact
    assert (found.tokens, found.documents) == (store.num_tokens, len(store))
    assert found.low == found.tokens == found.high
    assert found.text_bytes == sum(len(text.encode()) for text in texts)
    assert found.source_bytes == sum(
        f.stat().st_size for f in [tmp_path / name, *(tmp_path / name).glob("*")] if f.is_file()
    )
    on_disk = sum(file.stat().st_size for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert found.disk_bytes == pytest.approx(on_disk, rel=0.15)
    assert found.quantiles[0.5] == sorted(store.lengths)[len(store) // 2 - 1]
    assert found.seconds > 0
    assert found.memory > 0
    assert [one.kind for one in found.warnings] == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_sample_tells_the_whole_although_it_is_sorted(name, tmp_path, sorted_texts, truth, tokenizer_path):
    WRITERS[name](sorted_texts, tmp_path / name)
    found = tm.estimate(tmp_path / name, tokenizer_path, sample="800kB", seconds=PATIENT, **options_of(name))
    assert not found.exact
    assert found.sampled_bytes < 1_600_000 < 4_000_000 < found.text_bytes
    assert found.tokens == pytest.approx(truth, rel=0.06)
    assert found.low <= truth <= found.high
    assert found.high - found.low < 0.3 * truth
    assert found.documents == pytest.approx(len(sorted_texts), rel=0.12)
    assert found.text_bytes == pytest.approx(sum(len(text.encode()) for text in sorted_texts), rel=0.04)
    assert found.head_share == 0
    again = tm.estimate(tmp_path / name, tokenizer_path, sample="800kB", seconds=PATIENT, **options_of(name))
    assert again.tokens == found.tokens


def test_files_of_several_kinds_and_sizes(tmp_path, sorted_texts, truth, tokenizer_path):
    """Each kind has its own ratio of tokens to bytes; a mean over files would be far off."""
    for i, part in enumerate(range(0, len(sorted_texts), 100)):
        name = ("a.jsonl", "a.jsonl.gz", "a.parquet", "a.csv")[i % 4]
        WRITERS[name](sorted_texts[part : part + 100], tmp_path / f"{i:02}{name}")
    found = tm.estimate(tmp_path, tokenizer_path, sample="800kB", seconds=PATIENT)
    assert found.tokens == pytest.approx(truth, rel=0.08)
    assert found.low <= truth <= found.high


def test_one_document_in_a_large_file(tmp_path, sorted_texts, truth, tokenizer_path):
    (tmp_path / "all.txt").write_text("\n".join(sorted_texts), "utf-8")
    found = tm.estimate(tmp_path / "all.txt", tokenizer_path, sample="500kB", seconds=PATIENT)
    assert found.documents == 1
    assert found.tokens == pytest.approx(truth, rel=0.08)
    assert found.quantiles[0.5] == pytest.approx(truth, rel=0.5)
    (warning,) = found.warnings
    assert warning.kind == "one document"
    assert str(tmp_path / "all.txt") in warning.what
    assert "--format lines" in warning.remedy


def test_a_document_that_was_encoded_in_part_is_not_counted(tmp_path, real_texts, tokenizer_path):
    """It is smaller than the sample, and yet not all of it was encoded."""
    path = tmp_path / "long.txt"
    path.write_text("\n".join(real_texts)[:5_000_000], "utf-8")
    found = tm.estimate(path, tokenizer_path, sample="16MB")
    tokens = tm.build(path, tokenizer_path, tmp_path / "store", workers=0, progress="quiet").num_tokens
    assert not found.exact
    assert found.low < found.tokens < found.high
    assert found.low <= tokens <= found.high


def test_compressed_text_files_are_a_document_each(tmp_path, sorted_texts, truth, tokenizer_path):
    for i in range(9):
        text = "\n".join(sorted_texts[i::9])
        (tmp_path / f"{i}.txt.gz").write_bytes(gzip.compress(text.encode(), 1))
    found = tm.estimate(tmp_path, tokenizer_path, sample="900kB", seconds=PATIENT)
    assert found.documents == 9
    assert found.tokens == pytest.approx(truth, rel=0.08)
    assert found.quantiles[0.5] == pytest.approx(truth / 9, rel=0.5)


def test_a_column_with_many_empty_texts(tmp_path, tokenizer_path):
    texts = ["" if i % 3 else f"Document {i}, " * 90 for i in range(4000)]
    write_groups(texts, tmp_path / "a.parquet")
    found = tm.estimate(tmp_path / "a.parquet", tokenizer_path, sample="200kB", seconds=PATIENT)
    assert found.documents == 4000
    (warning,) = found.warnings
    assert warning.kind == "empty"
    assert warning.count == pytest.approx(2666, rel=0.2)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.bz2", "a.csv", "stream.arrow", "one-group.parquet"])
def test_where_only_a_head_is_read_it_says_so(name, tmp_path, sorted_texts, truth, tokenizer_path, monkeypatch):
    monkeypatch.setattr(survey, "READ_BYTES", 1_200_000)
    shuffled = sorted_texts[:]
    random.Random(3).shuffle(shuffled)
    WRITERS[name](shuffled, tmp_path / name)
    found = tm.estimate(tmp_path / name, tokenizer_path, sample="800kB", seconds=PATIENT)
    assert 0.5 < found.head_share < 0.9
    assert found.tokens == pytest.approx(truth, rel=0.12)  # how much is behind the head is known from what went into it
    assert "head" in [one.kind for one in found.warnings]


def test_row_groups_that_are_read_in_part_are_not_counted_as_files(tmp_path, sorted_texts, tokenizer_path, monkeypatch):
    monkeypatch.setattr(survey, "READ_BYTES", 1_200_000)
    write_parquet(sorted_texts, tmp_path / "a.parquet", 300)
    found = tm.estimate(tmp_path / "a.parquet", tokenizer_path, sample="800kB", seconds=PATIENT)
    (warning,) = found.warnings
    assert (warning.kind, warning.seen) == ("head", 1)
    assert "of 1 file was read" in warning.what


def test_few_of_many_files_are_opened(tmp_path, real_texts, tokenizer_path):
    for i in range(150):
        write_parquet([f"{i} " + real_texts[i % 40][:20000]], tmp_path / f"{i:03}.parquet")
    found = tm.estimate(tmp_path, tokenizer_path, sample="400kB", seconds=PATIENT)
    assert found.files == 150
    assert found.sampled_files <= 64


def test_ids_around_documents_are_counted(jsonl, tokenizer_path):
    path = jsonl(["one", "two", "three"])
    plain = tm.estimate(path, tokenizer_path, eos="none")
    assert tm.estimate(path, tokenizer_path).tokens == plain.tokens + 3
    assert tm.estimate(path, tokenizer_path, bos=EOS).tokens == plain.tokens + 6


def test_what_cannot_be_estimated_is_refused(jsonl, tmp_path, tokenizer_path):
    path = jsonl(["one"])
    with pytest.raises(UsageError, match="only once"):
        tm.estimate(iter(["a", "b"]), tokenizer_path)
    with pytest.raises(UsageError, match="no option 'max_rows'"):
        tm.estimate(path, tokenizer_path, max_rows=3)
    with pytest.raises(UsageError, match="sample='1kB'"):
        tm.estimate(path, tokenizer_path, sample="1kB")
    with pytest.raises(UsageError, match="seconds=0"):
        tm.estimate(path, tokenizer_path, seconds=0)
    with pytest.raises(UsageError, match="no field 'body'"):
        tm.estimate(path, tokenizer_path, text_field="body")


def test_an_empty_corpus(tmp_path, tokenizer_path):
    (tmp_path / "a.jsonl").write_text("")
    found = tm.estimate(tmp_path / "a.jsonl", tokenizer_path)
    assert (found.tokens, found.documents, found.quantiles) == (0, 0, {})


def test_grid_takes_in_proportion_to_length():
    """Over many rows of items, an item of any length stands for its own share of the whole."""
    lengths = [10, 300, 0, 50, 2000, 40, 700] * 30
    stands_for = dict.fromkeys(set(lengths), 0.0)
    for seed in range(100):
        grid: Grid[int] = Grid(16, 20, str(seed))
        for length in lengths:
            grid.add(length, length)
        chosen = grid.chosen()
        assert len(chosen) <= 20
        assert sum(share for _, share in chosen) == pytest.approx(1)
        for length, share in chosen:
            stands_for[length] += share / 100
    for length in stands_for:
        assert stands_for[length] == pytest.approx(30 * length / sum(lengths), rel=0.25, abs=0.004)


def test_grid_looks_at_each_item_a_few_times(monkeypatch):
    """Its time is linear in the items, however many points it keeps."""
    calls, points_in = [], Grid._points_in
    monkeypatch.setattr(Grid, "_points_in", lambda self, one: calls.append(1) or points_in(self, one))
    grid: Grid[int] = Grid(100, 500, "seed")
    for i in range(5000):
        grid.add(i, 100)
    assert len(calls) < 20_000


def test_records_longer_than_the_places_that_are_read(tmp_path, sorted_texts, truth, tokenizer_path):
    """Most places hold no beginning of a record: what was read is little, and the interval says so."""
    records = ["\n".join(sorted_texts[i::8]) for i in range(8)]
    write_jsonl(records, tmp_path / "a.jsonl")
    found = tm.estimate(tmp_path / "a.jsonl", tokenizer_path, sample="500kB", seconds=PATIENT)
    assert found.low < truth < found.high
    assert found.high > found.low


def test_time_that_is_up_leaves_a_smaller_sample(tmp_path, sorted_texts, tokenizer_path):
    write_jsonl(sorted_texts, tmp_path / "a.jsonl")
    found = tm.estimate(tmp_path / "a.jsonl", tokenizer_path, engine="reference", seconds=0.2)
    assert not found.exact
    assert 0 < found.sampled_bytes < 3_000_000
    assert found.low < found.tokens < found.high


def test_time_that_is_up_after_one_place(tmp_path, tokenizer_path):
    """Several blocks from one place are one observation, with no neighbour to compare it with."""
    write_jsonl([f"Document {i}, " * 60 for i in range(3000)], tmp_path / "a.jsonl")
    found = tm.estimate(tmp_path / "a.jsonl", tokenizer_path, sample="300kB", seconds=1e-9)
    assert found.low < found.tokens < found.high


# What is odd about a corpus.


@pytest.fixture
def warned(tmp_path, tokenizer_path):
    """The warnings about some records, or about files that are there already."""

    def look(records=None, **options):
        if records is not None:
            lines = (json.dumps({"text": one} if isinstance(one, str) else one, ensure_ascii=False) for one in records)
            (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        return tm.estimate(tmp_path, tokenizer_path, seconds=PATIENT, **options).warnings

    return look


CLEAN = {
    "french": "Où est l’été ? Une idée : « à Noël », disait-elle à la fenêtre… Çà et là, l'œuvre — déjà naïve — coûte 3 €. ",
    "german": "„Spaß“ und »Größe« — Übung macht den Meister; „süß“, „Fuß“, ärgerlich … ÄÖÜ. ",
    "portuguese": "NÃO, A MAÇÃ É DA IRMÃ; “MAÇÔ e “AVÔ … SÃO JOÃO. Coração, mãe, à noite. ",
    "polish": "Zażółć gęślą jaźń — „Łódź”. Święty Mikołaj… ",
    "vietnamese": "Tiếng Việt: ÂM NHẠC, Âu Cơ, đẹp quá… Ấn Độ. ",
    "icelandic": "Það er gott að ÞÓRÐUR sé ÐÐ… hér. ",
    "russian": "Привет, мир! «Как дела?» — спросил он… ",
    "chinese": "今天天气很好，我们去公园散步吧。“好的”，她说。 ",
    "japanese": "こんにちは、世界。「元気ですか」と彼は言った…… ",
    "korean": "안녕하세요, 세계! “잘 지내요?” ",
    "mathematics": "Let x² ≤ ½·π ± ε, where α → ∞; 5 °C; © 2020 ® ™ § ¶ £ ¥ ¿Qué? ¡Sí! ",
    "code": "def f(x):\n    return x['ã'] if x else None  # §±\n",
}


def test_good_text_raises_no_alarm(warned, real_texts):
    chance = random.Random(1)
    texts = [f"{i} " + text * chance.randrange(1, 9) for text in CLEAN.values() for i in range(40)]
    texts += [text[:3000] for text in real_texts[:100]]
    texts += ["UTF-8 read as Latin-1 turns é into Ã© and ’ into â€™; what is unreadable becomes \ufffd."]
    assert warned(texts) == ()


def test_a_field_that_is_not_the_text(warned):
    body = "It was a long text, with words in it, and more than one sentence. " * 20
    found = {one.kind: one for one in warned([{"text": f"Title {i}", "body": body + str(i)} for i in range(40)])}
    assert "--text-field body" in found["field"].remedy
    found = {one.kind: one for one in warned([{"text": f"https://example.org/{i}?a=b"} for i in range(40)])}
    assert found["ids"].seen == 40
    assert "--text-field" in found["ids"].remedy
    found = {one.kind: one for one in warned([{"text": "The same, every time, and long enough for a text."}] * 40)}
    assert found["same"].count == 40


def test_another_long_field_is_no_alarm_beside_real_text(warned):
    text, page = "A summary is a text too, if it is as long as this one is. " * 30, "<p>Much more of it.</p> " * 300
    assert warned([{"text": f"{i} {text}", "html": f"{i} {page}", "id": "0" * 5000} for i in range(40)]) == ()


def test_documents_that_end_in_eos(warned):
    found = warned([f"Text number {i}.{EOS}" for i in range(30)] + [f"Text without, {i}" for i in range(10)])
    (warning,) = found
    assert (warning.kind, warning.seen, warning.count) == ("eos", 30, 30)
    assert warning.place.endswith("a.jsonl, row 0")
    assert "--eos none" in warning.remedy
    assert warned([f"Text number {i}.{EOS}" for i in range(30)], eos="none")[0].kind == "special_tokens"


def test_special_tokens_in_the_text(warned):
    texts = [f"Text {i}" for i in range(20)] + [f"They write {EOS} in the middle."]
    (warning,) = warned(texts)
    assert (warning.kind, warning.seen) == ("special_tokens", 1)
    assert warning.place.endswith("a.jsonl, row 20")
    assert "--special-tokens text" in warning.remedy
    assert warned(texts, special_tokens="text", engine="reference") == ()
    assert "stop" in warned(texts, special_tokens="error")[0].remedy


def test_copies_of_documents_and_of_files(warned, tmp_path):
    texts = [f"Document {i} has some words of its own and is not very short." for i in range(90)]
    (warning,) = warned(texts + texts[:10])
    assert (warning.kind, warning.seen) == ("copies", 10)
    assert warning.place.endswith("row 90")
    assert "at least" not in warning.what
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    found = {one.kind: one for one in warned()}
    assert found["equal files"].count == 1
    assert "b.jsonl" in found["equal files"].what
    assert warned(["Yes", "No"] * 9 + [f"Something else {i}" for i in range(90)]) != ()  # the copy of the file is gone


def test_copies_in_a_sample_are_a_lower_bound(warned):
    texts = [f"Document {i} has some words of its own, " * 40 for i in range(1500)]
    found = {one.kind: one for one in warned(texts + texts, sample="700kB")}
    assert "at least" in found["copies"].what
    assert "sampled" in found["copies"].what


def test_characters_gone_wrong(warned):
    good = "Voilà l’été : « ça coûte 3 € » à Noël, déjà."
    bad = [good.encode().decode("latin-1"), good.replace("à", "é").encode().decode("cp1252")]
    russian = "Привет, мир".encode().decode("cp1252", "replace").replace("\ufffd", "\x81")
    chinese = "今天天气很好".encode().decode("latin-1")
    for text in (*bad, russian, chinese):
        (warning,) = warned([f"{i} {text}" for i in range(5)] + [f"{i} {good}" for i in range(45)])
        assert (warning.kind, warning.seen) == ("garbled", 5), text
        assert warning.place.endswith("row 0")
    (warning,) = warned([f"{i} caf\ufffd" for i in range(5)] + [f"{i} {good}" for i in range(45)])
    assert (warning.kind, warning.seen) == ("replaced", 5)


def test_bad_rows_by_reason(warned, tmp_path):
    lines = [json.dumps({"text": f"fine {i}"}) for i in range(20)]
    lines[4], lines[7], lines[9] = '{"text": ', '{"text": null}', '{"text": null}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = {one.what: one for one in warned()}
    (bad,) = (one for what, one in found.items() if "bad json" in what)
    assert (bad.seen, bad.place) == (1, f"{tmp_path / 'a.jsonl'}, row 4")
    (null,) = (one for what, one in found.items() if "null field" in what)
    assert (null.seen, null.place) == (2, f"{tmp_path / 'a.jsonl'}, row 7")
    assert "10% of the rows" in null.what
    assert "quarantine" in null.remedy


def test_bad_rows_are_named_where_only_a_sample_is_read(tmp_path, tokenizer_path):
    lines = [json.dumps({"text": f"Document {i}, " * 60}) for i in range(3000)]
    lines[::4] = ["{" for _ in lines[::4]]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = tm.estimate(tmp_path / "a.jsonl", tokenizer_path, sample="300kB", seconds=PATIENT)
    (warning,) = found.warnings
    assert warning.count == pytest.approx(750, rel=0.15)
    assert found.documents == pytest.approx(2250, rel=0.05)
    row = int(warning.place.rpartition(" ")[2])
    assert lines[row] == "{"


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.arrow", "a.parquet", "stream.arrow"])
def test_a_place_in_a_sample_is_the_right_one(name, tmp_path, tokenizer_path):
    texts = [f"Document {i}, " * 50 + EOS * (i > 700 and i % 7 == 3) for i in range(2000)]
    WRITERS[name](texts, tmp_path / name)
    (warning,) = tm.estimate(tmp_path / name, tokenizer_path, sample="200kB", seconds=PATIENT).warnings
    assert warning.kind == "eos"
    row = int(warning.place.rpartition(" ")[2])
    assert row % 7 == 3
    assert 700 < row < 1000
    assert warning.count == pytest.approx(1300 / 7, rel=0.25)


def test_empty_documents(warned):
    (warning,) = warned([f"Some text {i}" for i in range(60)] + [""] * 10)
    assert (warning.kind, warning.seen) == ("empty", 10)
    assert "14%" in warning.what


def test_files_that_cannot_be_read(warned, tmp_path, real_texts):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": real_texts[0]}).encode() * 3)[:-20])
    (warning,) = warned(["Some text.", "Some more."])
    assert (warning.kind, warning.count) == ("unreadable", 2)
    assert "broken.parquet" in warning.what
    assert "cut.jsonl.gz" in warning.what


def test_one_huge_document_among_others(warned, real_texts):
    found = warned(["Some text.", "Some more.", "".join(real_texts)[:1_500_000]])
    assert [one.kind for one in found] == ["one document"]


# The command.


def test_the_command(jsonl, tokenizer_path, capsys):
    path = jsonl([f"Text number {i}." for i in range(30)])
    assert main(["estimate", str(path), "-t", str(tokenizer_path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^documents +30, ", shown, re.M)
    assert "warning" not in shown
    path = jsonl([f"Text number {i}.{EOS}" for i in range(30)])
    assert main(["estimate", str(path), "-t", str(tokenizer_path)]) == 0
    assert re.search(r"^warning: .*--eos none", capsys.readouterr().out, re.M)
    assert main(["estimate", str(path), "-t", str(tokenizer_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["exact"], facts["files"]) == (30, True, 1)
    assert facts["quantiles"]["p50"] > 0
    assert facts["warnings"][0]["kind"] == "eos"


def test_the_command_refuses_what_it_cannot_do(jsonl, tmp_path, tokenizer_path, capsys):
    assert main(["estimate", str(tmp_path / "nothing.jsonl"), "-t", str(tokenizer_path)]) == 2
    assert main(["estimate", "-", "--format", "lines", "-t", str(tokenizer_path)]) == 2
    assert "only once" in capsys.readouterr().err
    assert main(["estimate", str(jsonl(["a"])), "-t", str(tmp_path)]) in (1, 2)


def test_estimate_page_runs(tmp_path, tokenizer_path):
    """The commands and the Python of docs/estimate.md, as they stand."""
    (tmp_path / "data").mkdir()
    write_jsonl([f"Document {i} of the corpus.\n" * 30 for i in range(200)], tmp_path / "data" / "a.jsonl")
    shutil.copytree(tokenizer_path, tmp_path / "path" / "to")
    blocks = re.findall(r"```(bash|python)\n(.*?)```", (ROOT / "docs" / "estimate.md").read_text("utf-8"), re.DOTALL)
    assert {kind for kind, _ in blocks} == {"bash", "python"}
    for kind, block in blocks:
        lines = block.splitlines() if kind == "bash" else [block]
        for line in lines:
            given = ["-c", line] if kind == "python" else ["-m", "tokenmill.cli", *shlex.split(line, comments=True)[1:]]
            run = subprocess.run([sys.executable, *given], cwd=tmp_path, timeout=60, capture_output=True)
            assert run.returncode == 0, run.stderr.decode()
