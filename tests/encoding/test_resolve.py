"""Finding a tokenizer by name or path: its ids are those of its own library, or the error says what to do.

What a library reads when it is imported (the Hub's address, plugins, missing modules) is tested in separate processes.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
import tiktoken
import tokenizers
import transformers
from hub_server import Repo, hub_server
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_checks import (
    BERT,
    BERT_WORDS,
    END,
    GPT2,
    REST,
    answer,
    assert_same,
    by_tiktoken,
    by_transformers,
    command,
    documents,
    one_line,
    python,
    texts_for,
)

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import TokenizerError, TokenmillError, UsageError

# Files and folders.


def test_one_tokenizer_by_every_path(tokenizer_path, tmp_path, reference, monkeypatch):
    """A file, a folder, what a store keeps; as text, as a Path, relative, under another name: one tokenizer."""
    file = tokenizer_path / "tokenizer.json"
    renamed = tmp_path / "whatever.txt"
    shutil.copy(file, renamed)
    store = tm.build(iter(["a"]), tokenizer_path, tmp_path / "store", workers=0, progress="quiet")
    monkeypatch.chdir(tokenizer_path.parent)
    specs = [file, str(file), tokenizer_path, str(tokenizer_path), f"{tokenizer_path}/", store.tokenizer.path]
    specs += [
        str(store.tokenizer.path),
        renamed,
        "demo",
        tokenizer_path.name,
        f"./{tokenizer_path.name}/tokenizer.json",
    ]
    text = f"def f(x):\n    return 中文 {END} é\n"
    for spec in specs:
        found = tm.load_tokenizer(spec)
        assert found.encode(text) == reference.encode(text).ids
        assert (found.vocab_size, found.eos_id, found.bos_id) == (4096, 0, None)
        assert found.fingerprint == store.tokenizer.fingerprint


def test_a_folder_with_a_tokenizer_json_and_more(folder, body, like_llama, rank_file):
    """The tokenizer.json is taken: it is what every other tool takes."""
    found = tm.load_tokenizer(
        folder({"tokenizer.json": body, "tokenizer.model": like_llama, "a.tiktoken": rank_file, "vocab.txt": "a\n"})
    )
    assert (found._definition.reference, found.vocab_size) == ("tokenizers", 4096)


@pytest.mark.parametrize("config", [{}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}])
def test_a_folder_with_a_sentencepiece_model(folder, like_llama, real_texts, config):
    """Its ids are sentencepiece's; by the folder, and by the file whatever it is called."""
    where = folder({"tokenizer.model": like_llama, **config})
    shutil.copy(where / "tokenizer.model", where.parent / "x.model.v3")
    own = sentencepiece.SentencePieceProcessor(model_proto=like_llama)
    for spec in (where, str(where), where / "tokenizer.model", where.parent / "x.model.v3"):
        found = tm.load_tokenizer(spec)
        names = re.compile(
            "|".join(found._special_names) + "|<unk>"
        )  # control symbols are not sentencepiece's to parse
        texts = [text for text in texts_for(found, real_texts) if not names.search(text)]
        assert_same(found, own.encode, texts)
        assert (found.eos_id, found.bos_id, found.vocab_size) == (own.eos_id(), own.bos_id(), own.get_piece_size())


@pytest.mark.parametrize(
    "beside",
    [{"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"}}, {"config.json": {"model_type": "xlm-roberta"}}],
)  # fmt: skip
def test_a_model_whose_ids_are_shifted_by_its_class(folder, like_xlmr, real_texts, beside):
    """A folder is what its configuration says; the file alone is the model alone."""
    where = folder({"sentencepiece.bpe.model": like_xlmr, **beside})
    own = transformers.XLMRobertaTokenizer.from_pretrained(str(where))
    found = tm.load_tokenizer(where, engine="reference")
    assert_same(found, by_transformers(own), texts_for(found, real_texts))
    alone = tm.load_tokenizer(where / "sentencepiece.bpe.model", engine="reference")
    plain = sentencepiece.SentencePieceProcessor(model_proto=like_xlmr)
    assert alone.encode("import json") == plain.encode("import json")
    assert found.encode("import json") == [i + 1 for i in plain.encode("import json")]


@pytest.mark.parametrize(
    "beside",
    [
        {"added_tokens.json": {"<new>": 500}},
        {"tokenizer_config.json": {"added_tokens_decoder": {"500": {"content": "<new>", "special": True}}}},
    ],
)
def test_tokens_added_to_a_model(folder, like_llama, beside):
    """They are part of the tokenizer, though the model does not know them."""
    config = {"tokenizer_class": "LlamaTokenizer", **beside.get("tokenizer_config.json", {})}
    where = folder({"tokenizer.model": like_llama, **beside, "tokenizer_config.json": config})
    found = tm.load_tokenizer(where, engine="reference")
    assert found.added["<new>"] in found.encode("a <new> b")


@pytest.mark.parametrize("name", ["demo.tiktoken", "tokenizer.model"])
def test_a_folder_with_tiktoken_ranks(folder, rank_file, encoding, real_texts, name):
    """Ranks are known by their content: Llama 3's are called tokenizer.model. Pattern and specials lie beside them."""
    where = folder({name: rank_file, "tiktoken.json": REST})
    for spec in (where, str(where), where / name):
        found = tm.load_tokenizer(spec, engine="reference")
        assert_same(found, by_tiktoken(encoding), texts_for(found, real_texts))
        assert (found._definition.reference, found.eos_id, found.vocab_size) == ("tiktoken", 0, 4096)


def test_a_folder_with_a_vocabulary_of_bert(folder, real_texts):
    """transformers knows how to read it; from then on it is a tokenizer.json."""
    where = folder({"vocab.txt": "\n".join(BERT_WORDS) + "\n", "tokenizer_config.json": BERT})
    found = tm.load_tokenizer(where, engine="reference")
    own = transformers.BertTokenizer.from_pretrained(str(where))
    assert_same(found, by_transformers(own), texts_for(found, real_texts))
    assert found.vocab_size == len(BERT_WORDS)
    parts = ("import", "##ing", "the", "self")
    assert found.encode("Importing the self") == [BERT_WORDS.index(part) for part in parts]


@pytest.mark.parametrize(
    "config", [{"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, {"config.json": {"model_type": "gpt2"}}]
)
def test_a_folder_with_a_vocabulary_of_gpt2(folder, body, tokenizer_path, config):
    """It is the very tokenizer that the tokenizer.json is."""
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in body["model"]["merges"])
    found = tm.load_tokenizer(folder({"vocab.json": body["model"]["vocab"], "merges.txt": merges, **config}))
    assert found.fingerprint == tm.load_tokenizer(tokenizer_path).fingerprint
    assert (found.eos_id, found.choose_engine()) == (0, tm.load_tokenizer(tokenizer_path).choose_engine())


def test_transformers_says_nothing_on_the_terminal(folder, jsonl, tmp_path):
    """It has advice about PyTorch, which nobody asked for who wants tokens."""
    vocabulary, out = "\n".join(BERT_WORDS), tmp_path / "out"
    where = folder({"vocab.txt": vocabulary, "tokenizer_config.json": BERT, "config.json": {"model_type": "?"}})
    options = ["--eos", "[SEP]", "--engine", "reference", "-q"]
    done = command("build", jsonl(["the self is"]), "-t", where, "-o", out, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert documents(tm.open(out)) == [[BERT_WORDS.index(word) for word in ("the", "self", "is", "[SEP]")]]


# Names on the Hub.

LOAD = """
import json, sys
import tokenmill as tm
found = [tm.load_tokenizer(spec, engine="reference") for spec in sys.argv[1:]]
print(json.dumps([[one.name, one.fingerprint, one.eos_id, one.encode("some text")] for one in found]))
"""


def test_names_on_the_hub(tmp_path, jsonl, tokenizer_path, kinds, reference):
    """By name and by revision; a build by name; and both again when the Hub is gone."""
    files = {path.name: path.read_bytes() for path in tokenizer_path.iterdir()}
    repo = Repo()
    repo.commit({"tokenizer.json": kinds["byte_level"].read_bytes()}, "v1")
    repo.commit({**files, "modeling.py": b"raise SystemExit"}, "main")
    texts = ["one document", f"another {END} one"]
    source, specs = jsonl(texts), ["org/model", "org/model@v1", "gpt2"]
    local = [
        tm.load_tokenizer(path, engine="reference") for path in (tokenizer_path, kinds["byte_level"], tokenizer_path)
    ]
    expected = [
        [spec, one.fingerprint, one.eos_id, one.encode("some text")] for spec, one in zip(specs, local, strict=True)
    ]
    with hub_server({"org/model": repo, "gpt2": files}) as hub:
        where = {**hub.environment(tmp_path), "TOKENMILL_CACHE": os.environ["TOKENMILL_CACHE"]}
        assert answer(python("-c", LOAD, *specs, only=where)) == expected
        failed = command("build", source, "-t", "org/nothing", "-o", tmp_path / "none", only=where)
        assert failed.returncode == 1
        assert "org/nothing@main: no such model" in one_line(failed)
        hub.stop()
        options = ["--engine", "reference", "-q"]
        done = command("build", source, "-t", "org/model", "-o", tmp_path / "out", *options, only=where)
        assert (done.returncode, done.stderr) == (0, "")
        assert answer(python("-c", LOAD, *specs, only=where)) == expected
    store = tm.open(tmp_path / "out")
    assert documents(store) == [[*reference.encode(text).ids, 0] for text in texts]
    assert (store.tokenizer.name, store.tokenizer.fingerprint) == ("org/model", local[0].fingerprint)
    assert not (tmp_path / "none").exists()


def test_a_folder_goes_before_a_name_on_the_hub(tmp_path, tokenizer_path, monkeypatch):
    shutil.copytree(tokenizer_path, tmp_path / "org" / "model")
    monkeypatch.chdir(tmp_path)
    assert tm.load_tokenizer("org/model").vocab_size == 4096


# tiktoken's names.

PLUGIN = """
import base64
from pathlib import Path

def demo():
    lines = (line.split() for line in Path(__file__).with_suffix(".ranks").read_text().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return {"name": "tokenmill_demo", "pat_str": %r, "mergeable_ranks": ranks, "special_tokens": {%r: 0}}

ENCODING_CONSTRUCTORS = {"tokenmill_demo": demo}
"""


def test_tiktokens_encodings_by_name(tmp_path, jsonl, rank_file, encoding, real_texts):
    """Those that come with tiktoken and those of its plugins; an unknown name is answered with the known ones."""
    plugin = tmp_path / "site" / "tiktoken_ext"
    plugin.mkdir(parents=True)
    (plugin / "tokenmill_demo.py").write_text(PLUGIN % (GPT2, END))
    (plugin / "tokenmill_demo.ranks").write_bytes(rank_file)
    where = {"PYTHONPATH": str(plugin.parent)}
    texts = [text[:5000] for text in real_texts[::20]] + [f"a {END} b"]
    out = tmp_path / "out"
    options = ["--engine", "reference", "-q"]
    done = command("build", jsonl(texts), "-t", "tiktoken:tokenmill_demo", "-o", out, *options, **where)
    assert (done.returncode, done.stderr) == (0, "")
    assert documents(tm.open(out)) == [[*encoding.encode(text, allowed_special="all"), 0] for text in texts]
    assert tm.open(out).tokenizer.fingerprint == tm.load_tokenizer(encoding).fingerprint
    failed = command("build", jsonl(texts), "-t", "tiktoken:nothing", "-o", tmp_path / "none", **where)
    assert failed.returncode == 1
    assert re.search(r"no encoding 'nothing'; it has cl100k_base, .*tokenmill_demo", one_line(failed))


# Bytes.


def test_bytes(jsonl, tmp_path):
    """Every byte is its id; the special tokens come after them."""
    found = tm.load_tokenizer("bytes")
    assert (found.vocab_size, found.eos_id, found.bos_id) == (259, 256, 257)
    assert found.added == {END: 256, "<|startoftext|>": 257, "<|pad|>": 258}
    texts = ["plain", "", "é中👍\x00\n", f"a{END}b", "<|", END[:-1]]
    store = tm.build(jsonl(texts), "bytes", tmp_path / "out", engine="bytes", workers=0, progress="quiet")
    expected = [list(text.encode()) for text in texts]
    expected[3] = [*b"a", 256, *b"b"]
    assert documents(store) == [[*ids, 256] for ids in expected]
    assert store.dtype == np.uint16
    as_text = tm.load_tokenizer("bytes", engine="reference", special_tokens="text")
    assert as_text.encode(texts[3]) == list(texts[3].encode())


def test_bytes_there_and_back():
    found = tm.load_tokenizer("bytes", engine="bytes")

    @settings(max_examples=100, deadline=None)
    @given(st.text() | st.lists(st.sampled_from([END, "<|pad|>", "<|", "|>", "é", " "])).map("".join))
    def check(text):
        ids = found.encode(text)
        assert found.decode(ids) == text
        assert found.decode_bytes(ids) == text.encode()

    check()


# What is no tokenizer.

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234567\n"
GARBAGE = random.Random(9).randbytes(5000)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, r"no tokenizer\.json in the folder {0}.*it holds nothing\. Give the folder or the file"),
        ({"model.safetensors": b"", "README.md": b""}, r"{0}.*it holds README\.md, model\.safetensors"),
        ({"tokenizer.json": b""}, r"{0}/tokenizer\.json is empty"),
        ({"tokenizer.json": b'{"version": "1.0", "model": {"type": "BPE", "voc'}, r"{0}/tokenizer\.json.*cut short"),
        ({"tokenizer.json": b'{"text": "a line of a corpus"}'}, r"{0}/tokenizer\.json is not a tokenizer\.json"),
        ({"tokenizer.json": gzip.compress(b"{}")}, r"{0}/tokenizer\.json is compressed.*gunzip -k {0}/tokenizer\.json"),
        ({"tokenizer.json.gz": gzip.compress(b"{}")}, r"{0}/tokenizer\.json\.gz is compressed.*gunzip -k {0}/tok"),
        ({"tokenizer.json": POINTER}, r"{0}/tokenizer\.json is a Git LFS pointer.*git lfs pull"),
        ({"tokenizer.model": POINTER}, r"{0}/tokenizer\.model is a Git LFS pointer.*git lfs pull"),
        ({"qwen.tiktoken": POINTER}, r"{0}/qwen\.tiktoken is a Git LFS pointer.*git lfs pull"),
        ({"some.tiktoken": b"YQ== 0\n", "tiktoken.json": POINTER}, r"{0}/tiktoken\.json is a Git LFS pointer.*git lfs pull"),
        ({"tokenizer.json": b"{}", "tokenizer_config.json": POINTER}, r"{0}/tokenizer_config\.json is a Git LFS pointer"),
        ({"tokenizer.model": GARBAGE}, r"{0}/tokenizer\.model: not a complete SentencePiece model.*another kind of file"),
        ({"tokenizer.model": b""}, r"{0}/tokenizer\.model: .*is empty"),
        ({"some.tiktoken": GARBAGE}, r"{0}/some\.tiktoken, line 1: .* is not a rank.*or another kind of file"),
        ({"some.tiktoken": b"YQ== 0\n"}, r"{0}/some\.tiktoken has 1 ranks.*put a tiktoken\.json beside it"),
        ({"some.tiktoken": b"YQ== 0\n", "tiktoken.json": b"{"}, r"{0}/tiktoken\.json is not valid JSON"),
        ({"some.tiktoken": b"YQ== 0\n", "tiktoken.json": REST}, "some: 242 of the bytes that occur in UTF-8 have no rank"),
        ({"tokenizer_config.json": BERT}, r"{0} has no vocabulary: BertTokenizer needs vocab\.txt"),
        ({"tokenizer_config.json": BERT, "vocab.txt": b""}, r"{0} has no vocabulary: BertTokenizer needs vocab\.txt"),
        ({"vocab.txt": b"a\nb\n"}, r"{0}: transformers cannot load it.*tokenizer_class"),
        ({"vocab.json": b"{}", "merges.txt": b""}, r"{0}: transformers cannot load it.*tokenizer_class"),
        ({"vocab.json": b"{", "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, r"{0}.*missing or damaged"),
        ({"vocab.txt": b"a\n", "tokenizer_config.json": b"{"}, r"{0}/tokenizer_config\.json is not valid JSON"),
        ({"tokenmill.json": b"{}"}, r"{0}/tokenmill\.json is damaged"),
        ({"tokenmill.json": {"version": 99}}, r"{0}/tokenmill\.json: version 99.*upgrade"),
    ],
)  # fmt: skip
def test_folders_that_hold_no_tokenizer(folder, files, said):
    """The file that is wrong is named, and what to do about it, in one line."""
    where = folder(files)
    with pytest.raises(TokenizerError, match=said.replace("{0}", re.escape(str(where)))) as caught:
        tm.load_tokenizer(where)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tokenizer(tmp_path, folder):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(TokenizerError, match=r"a\.parquet is not valid JSON.*another kind of file"):
        tm.load_tokenizer(tmp_path / "a.parquet")
    where = folder({"vocab.txt": "a\n", "tokenizer_config.json": BERT})
    for name in ("vocab.txt", "tokenizer_config.json"):
        with pytest.raises(TokenizerError, match=rf"{name} is one of several files.*give the folder"):
            tm.load_tokenizer(where / name)


@pytest.mark.parametrize(("ids", "shown"), [({"zz": 1 << 32}, "4294967296"), ({"zz": -1}, "-1"), ({"zz": 1.5}, "1.5")])
def test_ids_that_are_none(folder, body, ids, shown):
    model = {**body["model"], "vocab": {**body["model"]["vocab"], **ids}}
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json: tokenizers cannot load it: .*{shown}"):
        tm.load_tokenizer(folder({"tokenizer.json": {**body, "model": model}}))
    token = {**body["added_tokens"][0], "content": "zz", "id": ids["zz"]}
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json: tokenizers cannot load it: .*{shown}"):
        tm.load_tokenizer(folder({"tokenizer.json": {**body, "added_tokens": [token]}}))


@pytest.mark.parametrize(
    "spec", [5, 2.5, None, True, [], ["gpt2"], {"model": {}}, b"gpt2", object(), json, tokenizers.Tokenizer]
)
def test_objects_that_are_no_tokenizer(spec):
    kind = type(spec).__name__
    with pytest.raises(
        UsageError, match=rf"tokenmill cannot use a \S*{kind} as a tokenizer: give a path, a name, or an obj"
    ):
        tm.load_tokenizer(spec)


def test_parts_written_in_python(reference):
    class Own:
        def pre_tokenize(self, text):
            text.split(lambda i, part: [part])

    held = tokenizers.Tokenizer.from_str(reference.to_str())
    held.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Own())
    with pytest.raises(TokenizerError, match=r"tokenizers\.Tokenizer cannot be written.*in Python are not supported"):
        tm.load_tokenizer(held)


@pytest.mark.parametrize("spec", ["", " ", "\n"])
def test_an_empty_name(spec, tokenizer_path, monkeypatch):
    """Not even where the folder one happens to be in holds a tokenizer."""
    monkeypatch.chdir(tokenizer_path)
    with pytest.raises(UsageError, match="name is empty; give a path"):
        tm.load_tokenizer(spec)


@pytest.mark.parametrize(
    "spec", ["nowhere/at/all", "./model", "nowhere.json", "/nowhere", "a\0b", Path("org/model"), "a b"]
)
def test_a_path_that_leads_nowhere(spec, tmp_path, monkeypatch):
    """What cannot be a name on the Hub is not looked for there; nor is what is said to be a path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        TokenizerError, match=rf"no tokenizer at {re.escape(str(spec))}: give a tokenizer\.json, a folder"
    ):
        tm.load_tokenizer(spec)


def test_options_that_cannot_be(tokenizer_path, encoding):
    for options, said in (
        ({"special_tokens": "nonsense"}, "special_tokens='nonsense' is not one of parse, text, error"),
        ({"engine": "nonsense"}, "engine='nonsense' is not one of auto, reference, gigatoken"),
    ):
        with pytest.raises(UsageError, match=said):
            tm.load_tokenizer(tokenizer_path, **options)
    for spec, engine in (
        (tokenizer_path, "sentencepiece"),
        (tokenizer_path, "bytes"),
        (encoding, "python"),
        (transformers.ByT5Tokenizer(), "gigatoken"),
        (transformers.ByT5Tokenizer(), "tokenizers"),
    ):
        with pytest.raises(TokenizerError, match=rf"engine='{engine}' cannot run this tokenizer; these may: "):
            tm.load_tokenizer(spec, engine=engine)


# What is not installed.

MISSING = """
import importlib.metadata, sys
NAME = {0!r}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == NAME:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def version(name, real=importlib.metadata.version):
    if name == NAME:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)

sys.meta_path.insert(0, Missing())
if {1!r}:
    importlib.metadata.version = version
"""


def without(library: str, tmp_path: Path, metadata: bool = True) -> dict[str, str]:
    """An environment in which a library cannot be imported, and a cache that knows nothing."""
    where = tmp_path / f"without_{library}"
    where.mkdir()
    (where / "sitecustomize.py").write_text(MISSING.format(library, metadata))
    return {
        "PYTHONPATH": os.pathsep.join((str(where), *filter(None, [os.environ.get("PYTHONPATH")]))),
        "TOKENMILL_CACHE": str(where / "cache"),
    }


COMMANDS = """
import contextlib, io, json, os, sys
from tokenmill.cli import main
found = []
for cache, arguments in json.loads(sys.argv[1]):
    os.environ["TOKENMILL_CACHE"] = cache
    with contextlib.redirect_stderr(io.StringIO()) as said:
        found.append((main(arguments), said.getvalue()))
print(json.dumps(found))
"""


@pytest.mark.parametrize("library", ["sentencepiece", "tiktoken", "transformers"])
def test_a_library_that_is_missing_is_named(library, tmp_path, folder, jsonl, like_llama, rank_file, tokenizer_path):
    """With what installs it, also where all is known of the tokenizer; and nothing else needs it."""
    specs = {
        "sentencepiece": [folder({"tokenizer.model": like_llama})],
        "tiktoken": [folder({"a.tiktoken": rank_file, "tiktoken.json": REST}), "tiktoken:gpt2"],
        "transformers": [folder({"vocab.txt": "a\n", "tokenizer_config.json": BERT})],
    }
    if library == "transformers":
        specs[library].append(folder({}))
        tm.load_tokenizer(transformers.ByT5Tokenizer())._definition.save(specs[library][-1])
    missing = without(library, tmp_path)
    source, out = jsonl(["a"]), tmp_path / "out"
    builds = []
    for spec in specs[library]:
        if spec != "tiktoken:gpt2":
            tm.load_tokenizer(spec)
        options = ["build", str(source), "-t", str(spec), "-o", str(out), "--eos", "none"]
        builds += [(cache, options) for cache in (missing["TOKENMILL_CACHE"], os.environ["TOKENMILL_CACHE"])]
    failed = answer(python("-c", COMMANDS, json.dumps(builds), **missing))
    assert len(failed) == len(builds)
    for code, said in failed:
        assert code == 1
        (line,) = said.splitlines()
        assert line.startswith("tokenmill: ")
        assert re.search(rf"needs {library}|{library} is needed", line)
        assert f"pip install 'tokenmill[{library}]'" in line
    done = command("build", source, "-t", tokenizer_path, "-o", out, "--engine", "reference", "-q", **missing)
    assert (done.returncode, done.stderr) == (0, "")


# The command line.


@pytest.mark.parametrize(
    ("spec", "options", "code", "said"),
    [
        ("", [], 2, "the tokenizer's name is empty"),
        ("nowhere/at/all", [], 1, "no tokenizer at nowhere/at/all"),
        ("corpus.jsonl", [], 1, "corpus.jsonl is not a tokenizer.json"),
        (".", [], 1, "no tokenizer.json in the folder ."),
        ("tiktoken:nothing", [], 1, "tiktoken has no encoding 'nothing'"),
        ("bytes", ["--engine", "tiktoken"], 1, "engine='tiktoken' cannot run this tokenizer"),
        ("bytes", ["--eos", "nonsense"], 2, "eos='nonsense' is not a token of bytes"),
        ("none.json", [], 1, "--eos a name, an id, or none"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    spec, options, code, said, body, tmp_path, jsonl, monkeypatch, capsys
):
    """And leaves nothing behind."""
    jsonl(["a"])
    (tmp_path / "none.json").write_text(json.dumps({**body, "added_tokens": []}))
    monkeypatch.chdir(tmp_path)
    assert main(["build", "corpus.jsonl", "-t", spec, "-o", "out/of/sight", *options]) == code
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("tokenmill: ")
    assert said in line
    assert out == ""
    assert not (tmp_path / "out").exists()


# What was learned is kept.

FACTS = """
import json, sys
import tokenmill as tm
one = tm.load_tokenizer(sys.argv[1])
print(json.dumps([one.fingerprint, one.vocab_size, one.eos_id, one.added, one._definition.json]))
"""


def test_what_was_learned_is_kept(tmp_path, folder, rank_file, tokenizer_path):
    """A second load makes nothing anew: not even `tokenizers` is needed. What is damaged is learned again."""
    where = folder({"a.tiktoken": rank_file, "tiktoken.json": REST})
    bare = without("tokenizers", tmp_path, metadata=False)
    cache = {"TOKENMILL_CACHE": bare["TOKENMILL_CACHE"]}
    assert python("-c", FACTS, where, **bare).returncode != 0
    first = answer(python("-c", FACTS, where, **cache))
    assert first[:3] == [tm.load_tokenizer(tokenizer_path).fingerprint, 4096, 0]
    assert answer(python("-c", FACTS, where, **bare)) == first
    kept = [path for path in Path(cache["TOKENMILL_CACHE"]).rglob("*") if path.is_file()]
    assert kept
    for damage in (lambda raw: raw[: len(raw) // 2], lambda raw: raw.replace(b"4096", b"4095"), lambda raw: b""):
        for path in kept:
            path.write_bytes(damage(path.read_bytes()))
        assert python("-c", FACTS, where, **bare).returncode != 0
        assert answer(python("-c", FACTS, where, **cache)) == first


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path, tokenizer_path, monkeypatch):
    expected = tm.load_tokenizer(tokenizer_path)
    (tmp_path / "cache").write_bytes(b"a file")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    assert tm.load_tokenizer(tokenizer_path) == expected


def test_another_content_at_the_same_path_is_another_tokenizer(tmp_path, body):
    """Nothing is kept by path or date."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(body))
    os.utime(path, (1000, 1000))
    first = tm.load_tokenizer(path)
    changed = {**body, "added_tokens": [{**body["added_tokens"][0], "lstrip": True}]}
    path.write_text(json.dumps(changed))
    os.utime(path, (1000, 1000))
    assert tm.load_tokenizer(path).fingerprint != first.fingerprint
    path.write_text(json.dumps(body))
    assert tm.load_tokenizer(path) == first


def test_every_error_is_one_of_ours(tmp_path):
    """Whatever bytes a file holds, under whatever name."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(["tokenizer.json", "tokenizer.model", "a.tiktoken", "tokenmill.json", "vocab"]),
        st.binary(max_size=60) | st.sampled_from([b'{"model": {"vocab": []}}', b'{"model": {"type": "BPE"}}', b"[[]]", b"1"]),
    )  # fmt: skip
    def check(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        try:
            for spec in (path, tmp_path):
                with pytest.raises(TokenmillError) as caught:
                    tm.load_tokenizer(spec)
                assert str(tmp_path) in str(caught.value)
        finally:
            path.unlink()

    check()


def test_a_tiktoken_pattern_that_tokenizers_cannot_read(tokenizer_path):
    """tiktoken runs it alone: encoding, decoding and names come from there."""

    base = json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))
    from tokenmill.encoding.tokenizer_json import byte_alphabet

    to_byte = {character: i for i, character in enumerate(byte_alphabet())}
    vocabulary = {name: i for name, i in base["model"]["vocab"].items() if name != "<|endoftext|>"}
    ranks = {bytes(to_byte[c] for c in name): i for name, i in vocabulary.items()}
    own = tiktoken.Encoding("odd", pat_str=r"(?s:.{1,7})", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 0})
    tokenizer = tm.load_tokenizer(own)
    assert (tokenizer._definition.json, tokenizer.choose_engine(), tokenizer.eos_id) == (None, "tiktoken", 0)
    text = "some words, <|endoftext|> é 中文\n"
    ids = tokenizer.encode(text)
    assert ids == own.encode(text, allowed_special="all")
    assert tokenizer.decode(ids) == text
