"""The tokenizer of a store and its exports has the files that it came with, as they came, for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenmill as tm
from tokenmill.encoding.resolve import folder as tokenizer_folder
from tokenmill.errors import TokenizerError

CONFIG = {
    "eos_token": "</s>", "pad_token": "<pad>", "bos_token": "<s>", "model_max_length": 77, "chat_template": "{{ 'inner' }}",
    "tokenizer_class": "PreTrainedTokenizerFast",
}  # fmt: skip
TEMPLATE = "{% for m in messages %}{{ m.content }}é{% endfor %}"


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer that puts <s> before a text, with the files that transformers writes beside it."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1, "world": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken(name) for name in ("<s>", "</s>", "<pad>")])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 3)])
    made.enable_truncation(50)
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    (folder / "special_tokens_map.json").write_text('{"pad_token":   "<pad>"}')
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenization_evil.py").write_text("raise SystemExit")
    (folder / ".env").write_text("HF_TOKEN=secret")
    return folder


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_transformers(folder: Path) -> None:
    import transformers

    for kind in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast):
        loaded = kind.from_pretrained(str(folder), local_files_only=True)
        assert (loaded.pad_token, loaded.eos_token, loaded.chat_template) == ("<pad>", "</s>", TEMPLATE)
        assert loaded("hello world")["input_ids"] == [3, 1, 2]


def test_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = write_tokenizer(tmp_path / "tokenizer")
    store = tm.build(["hello world"], source, tmp_path / "store", progress="quiet")
    assert next(iter(store)).tolist() == [1, 2, 4]  # the ids around a document are the user's
    tm.export(store, tmp_path / "out", format="megatron")
    again = tm.import_tokens(tmp_path / "out", tmp_path / "again")
    assert again.fingerprint == store.fingerprint
    assert store.verify() == again.verify() == []
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}
    for folder in (tmp_path / "store" / "tokenizer", tmp_path / "out" / "tokenizer", tmp_path / "again" / "tokenizer"):
        files = kept(folder)
        assert files.keys() == {*names, "tokenmill.json", "effective_tokenizer.json"}
        assert all(files[name] == (source / name).read_bytes() for name in names)
        check_transformers(folder)
        loaded = tm.load_tokenizer(folder)
        assert loaded.fingerprint == tm.load_tokenizer(source).fingerprint == store.tokenizer.fingerprint
        assert loaded.encode("hello world") == [1, 2]


def test_the_identity_is_that_of_the_tokenizer_alone(tmp_path):
    source = write_tokenizer(tmp_path / "tokenizer")
    first = tm.build(["hello world"], source, tmp_path / "first", progress="quiet")
    for name in ("special_tokens_map.json", "chat_template.jinja"):
        (source / name).unlink()
    (source / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    second = tm.build(["hello world"], source, tmp_path / "second", progress="quiet")
    assert first.fingerprint == second.fingerprint


def test_from_a_file(tmp_path):
    source = write_tokenizer(tmp_path / "tokenizer")
    tm.build(["hello world"], source / "tokenizer.json", tmp_path / "store", progress="quiet")
    check_transformers(tmp_path / "store" / "tokenizer")


def test_from_an_object_of_transformers(tmp_path):
    import transformers

    source = write_tokenizer(tmp_path / "tokenizer")
    loaded = transformers.AutoTokenizer.from_pretrained(str(source), token="hf_abcdefghijklmnop", local_files_only=True)
    store = tm.build(["hello world"], loaded, tmp_path / "store", progress="quiet")
    files = kept(tmp_path / "store" / "tokenizer")
    assert b"hf_abcdefghijklmnop" not in b"".join(files.values())
    assert str(tmp_path).encode() not in b"".join(files.values())
    assert store.tokenizer.fingerprint == tm.load_tokenizer(source).fingerprint
    check_transformers(tmp_path / "store" / "tokenizer")


def test_from_an_object_of_tokenizers(tmp_path):
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(write_tokenizer(tmp_path / "tokenizer") / "tokenizer.json"))
    tm.build(["hello world"], made, tmp_path / "store", progress="quiet", eos="</s>")
    whole = Tokenizer.from_file(str(tmp_path / "store" / "tokenizer" / "tokenizer.json"))
    assert whole.encode("hello world").ids == [3, 1, 2]


def test_workers_read_it(tmp_path):
    """Other processes find the effective tokenizer in the store."""
    source = write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.jsonl").write_text('{"text": "hello world"}\n' * 50)
    store = tm.build(str(tmp_path / "a.jsonl"), source, tmp_path / "store", workers=2, progress="quiet")
    assert {tuple(ids.tolist()) for ids in store} == {(1, 2, 4)}


def test_what_is_too_large_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_folder, "LARGEST_BESIDE", 40)
    source = write_tokenizer(tmp_path / "tokenizer")
    tm.build(["hello world"], source, tmp_path / "store", progress="quiet")
    assert "chat_template.jinja" not in kept(tmp_path / "store" / "tokenizer")


def test_a_forged_list_leads_nowhere(tmp_path):
    source = write_tokenizer(tmp_path / "tokenizer")
    tm.build(["hello world"], source, tmp_path / "store", progress="quiet")
    own = tmp_path / "store" / "tokenizer" / "tokenmill.json"
    own.write_text(json.dumps({**json.loads(own.read_text()), "beside": ["../../tokenizer/.env"]}))
    with pytest.raises(TokenizerError, match="names files in other folders"):
        tm.load_tokenizer(own.parent)
