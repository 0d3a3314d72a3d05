"""What looks wrong about the input of a build is said: on the terminal, as a warning, in the store; and nothing is no store."""

from __future__ import annotations

import gzip
import json
import warnings

import pyarrow as pa
import pytest
from written_tokenizers import Written, template, word_level

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import InputError, UsageError
from tokenmill.store.facts import info_table

PLAIN = "\n".join(f'{{"text": "words of document {i}"}}' for i in range(40)) + "\n"


def build(source, out, **options):
    """The store, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = tm.build(source, "bytes", out, workers=0, progress="quiet", **options)
    return store, [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("good", "bad", "is_told"),
    [(9, 1, False), (2, 1, True), (97, 3, False), (90, 10, True), (300, 9, False), (2, 98, True)],
)
def test_many_bad_rows_are_told(tmp_path, good, bad, is_told):
    """From 3% on, unless they are very few; again whenever the store is found, and in its facts."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * good + '{"body": "a", "id": 1}\n' * bad)
    for _ in range(2):
        store, said = build(path, tmp_path / "store")
        assert len(store) == good
        assert len(said) == is_told
        assert ("warning " in info_table(tm.store.facts.info(store.path))) == is_told
    if is_told:
        assert f"{bad} of {good + bad} documents" in said[0]
        assert "a.jsonl: missing field (no field 'text'); its first records have text, body, id" in said[0]
    clean, said = build([f"a {i}" for i in range(5)], tmp_path / "clean")
    assert said == []
    assert "doubts" not in clean._manifest.source


def test_the_terminal_and_the_facts_tell_it(tmp_path, capsys):
    """Not a build that was asked to print nothing but errors, but what it made."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 2 + "{'text': 1}\n" * 9)
    command = ["build", str(tmp_path / "a.jsonl"), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
    assert main(command) == 0
    assert "warning: 9 of 11 documents (81.8%) left out; " in capsys.readouterr().err
    assert main([*command, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["info", str(tmp_path / "store")]) == 0
    assert "\nwarning     9 of 11 documents (81.8%) left out; " in capsys.readouterr().out


def test_a_file_that_gives_nothing_among_many_is_told(tmp_path):
    for i in range(200):
        (tmp_path / f"{i}.txt").write_text(f"text {i}")
    (tmp_path / "77.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "88.txt").write_text("")  # which is no loss
    _, [said] = build(tmp_path, tmp_path / "store")
    assert "1 of 200 documents (0.5%) left out, all of 1 file; " in said
    assert "77.txt: invalid utf-8" in said
    assert "perhaps Latin-1" in said


def test_text_with_nul_bytes_is_told(tmp_path):
    """It is valid UTF-8, so that nothing is left out."""
    for name, encoding, cause in (("a", "utf-16-le", "UTF-16"), ("b", "utf-32-be", "UTF-32")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_bytes("Plain text.".encode(encoding))
        (tmp_path / name / "z.txt").write_text("Plain text.")
        store, [said] = build(tmp_path / name, tmp_path / f"store-{name}")
        assert len(store) == 2
        assert f"a.txt: it is {cause} text: iconv" in said


def test_documents_without_text_are_told(tmp_path):
    _, [said] = build(pa.table({"text": [""] * 50}), tmp_path / "store")
    assert "no text: 50 documents, and all are empty" in said


def test_warnings_are_about_the_line_of_the_caller(tmp_path, monkeypatch):
    """Whichever function reads, builds or opens."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    path = str(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"text": "a b c d"}\n' * 3 + '{"body": "a"}\n' * 5)
    given = {"seq_len": 4, "tokenizer": "bytes"}
    calls = [
        lambda: tm.load(path, 1, **given),
        lambda: tm.build([path], "bytes", progress="quiet"),
        lambda: tm.build((path, path), "bytes", tmp_path / "store", progress="quiet"),
        lambda: tm.load((path, path), 1, **given),
    ]
    for call, count in zip(calls, (1, 2, 2, 2), strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [each.filename for each in caught] == [__file__] * count


@pytest.mark.parametrize("limit", ["max_documents", "max_rows", "max_tokens"])
def test_a_trial_of_nothing_is_no_store_either(tmp_path, limit):
    """But a limit of tokens may be smaller than the first document."""
    (tmp_path / "a.jsonl").write_text("\n" * 9)
    if limit == "max_tokens":
        (tmp_path / "a.jsonl").write_text(PLAIN)
        assert len(build(tmp_path / "a.jsonl", tmp_path / "store", max_tokens=2)[0]) == 0
        return
    with pytest.raises(InputError, match="the input is empty or blank"):
        build(tmp_path / "a.jsonl", tmp_path / "store", **{limit: 5})


NO_DATA = {
    "UTF-16 text: iconv": PLAIN.encode("utf-16"),
    "UTF-32 text: iconv": PLAIN.encode("utf-32-be"),
    "perhaps Latin-1": PLAIN.replace("words", "wörds").encode("latin-1"),
    "only zeros": bytes(5000),
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    "--format parquet": b"PAR1" + bytes(100),
    "must end|end in .gz": gzip.compress(PLAIN.encode()),
    "zip archive": b"PK\x03\x04" + bytes(100),
    "a web page": b"\n<!DOCTYPE html>\n<html></html>\n",
    "not JSON; --format": b"id,text\n1,a\n2,b\n",
    "NUL bytes": b"\x07\x00\x13" * 1000,
    "a list, not an object": b'["a", "b"]\n',
}


@pytest.mark.parametrize("cause", NO_DATA)
def test_no_documents_are_an_error_that_names_the_cause(tmp_path, cause):
    """The store that was there stays; and without one, other options can be tried at the same place."""
    path = tmp_path / "a.jsonl"
    for is_first in (True, False):
        path.write_bytes(NO_DATA[cause])
        with pytest.raises(InputError, match=f"no document in .*a.jsonl, so no store is published: .*({cause})"):
            build(path, tmp_path / "store", **({} if is_first else {"eos": "none"}))
        path.write_text(PLAIN)
        store, _ = build(path, tmp_path / "store", eos="none")
        assert len(store) == 40
        assert len(tm.open(tmp_path / "store")) == 40


def test_the_cause_of_a_file_that_fails(tmp_path, capsys):
    (tmp_path / "a.csv").write_bytes("text\nä\n".encode("utf-16"))
    command = ["build", str(tmp_path / "a.csv"), "-t", "bytes", "-o", str(tmp_path / "store"), "--workers", "0"]
    assert main(command) == 1
    assert "UTF-16" in capsys.readouterr().err
    (tmp_path / "b.json").write_text('[{"text": "a"}')
    with pytest.raises(InputError, match=r"no document in .*b\.json: ends inside a JSON array"):
        build(tmp_path / "b.json", tmp_path / "store")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "table"])
def test_fields_that_make_a_text_together(tmp_path, name):
    rows = [{"instruction": "Add", "input": "1 2", "output": "3"}] * 3
    source = tmp_path / name
    if name == "a.jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "a.csv":
        source.write_text("instruction,input,output\nAdd,1 2,3\n")
    else:
        source = pa.Table.from_pylist(rows)
    with pytest.raises(UsageError, match=r"--template '\{instruction\}\\n\{input\}\\n\{output\}'"):
        build(source, tmp_path / "store")


def test_fields_without_text(tmp_path):
    """As long as no record has text there: null may be text in another."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}], "n": 1}) + "\n")
    with pytest.raises(
        UsageError, match=r"a.jsonl: no text in the first records: 'messages' is of type list; .* holds chats"
    ):
        build(path, tmp_path / "store", text_field="messages")
    with pytest.raises(UsageError, match="'n' is of type int"):
        build(path, tmp_path / "store", text_field="n")
    assert len(build(path, tmp_path / "store", template="{n}")[0]) == 1
    path.write_text('{"n": 1}\n{"n": "one"}\n')
    assert len(build(path, tmp_path / "other", text_field="n")[0]) == 1


def tokenizer_with(*names):
    """A tokenizer with these added tokens."""
    words = {"model": word_level(["<unk>", "a"], "<unk>"), "pre_tokenizer": {"type": "WhitespaceSplit"}}
    return Written(words).with_tokens(*names)


def with_bos(ids):
    return {"type": "Sequence", "processors": [template({"<s>": ids["<s>"]}, {})]}


def with_cls(ids):
    return {"type": "BertProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]]}


@pytest.mark.parametrize("processor", [with_bos, with_cls])
def test_a_bos_that_is_left_out_is_told(tmp_path, capsys, processor):
    plain = tokenizer_with("<s>", "</s>")
    tokenizer = plain.changed(post_processor=processor(plain.vocabulary)).library
    for options, is_told in (({}, True), ({"bos": "<s>"}, False)):
        store = tm.build(["a a"], tokenizer, tmp_path / f"store{is_told}", workers=0, progress="plain", **options)
        assert len(store[0]) == 3 + (not is_told)
        note = "the tokenizer itself begins a text with <s>: --bos '<s>' (bos='<s>')"
        assert (f"note: {note}\n" in capsys.readouterr().err) == is_told
        assert (note in info_table(tm.store.facts.info(store.path))) == is_told


def test_an_eos_of_chats_is_told(tmp_path, capsys):
    folder = tmp_path / "chat"
    folder.mkdir()
    tokenizer_with("<|endoftext|>", "<|im_end|>").save(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    for options, is_told in (({}, True), ({"eos": "<|endoftext|>"}, False)):
        tm.build(["a a"], folder, tmp_path / f"store{is_told}", workers=0, progress="plain", **options)
        said = capsys.readouterr().err
        assert (
            "<|im_end|> ends a turn of a chat, and <|endoftext|> ends a text: --eos '<|endoftext|>'" in said
        ) == is_told


def test_a_repaired_store_says_the_same(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "b"}\n{"body": "b"}\n' * 9)
    store, [said] = build(tmp_path / "a.jsonl", tmp_path / "store")
    damaged = store.path / "shards" / f"{store._manifest.shard_ids[0]}.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["verify", str(store.path), "--repair"]) == 0
    again = tm.open(store.path)
    assert again.verify() == []
    assert [f"{again.name}: {doubt}" for doubt in again._manifest.source["doubts"]] == [said]
