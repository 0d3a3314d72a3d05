"""Which tokenizer: every way to name one, or to hand one over, leads to the ids its own library gives, or to an error
that helps.

What a library reads when it is imported (the Hub's address, plugins, missing modules) is tested in processes of their own.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
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

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.probes import probes
from tokenmill.errors import TokenizerError, TokenmillError, UsageError
from tokenmill.events import Event

END = "<|endoftext|>"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
WORDS_ONLY = r" ?\p{Ll}+|\s"  # what it does not match, tiktoken leaves out
BERT = {"tokenizer_class": "BertTokenizer"}
BERT_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "def", "import", "the", "is", "self", "##s", "##ing"]  # fmt: skip


# What the tests share.


@pytest.fixture(scope="module")
def body(tokenizer_path) -> dict:
    """The demo tokenizer's tokenizer.json."""
    return json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def ranks(body) -> dict[bytes, int]:
    """The demo tokenizer's tokens as bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(byte): byte for byte in printed}
    hidden = [byte for byte in range(256) if byte not in printed]
    byte_of |= {chr(256 + place): byte for place, byte in enumerate(hidden)}
    return {bytes(map(byte_of.__getitem__, name)): i for name, i in body["model"]["vocab"].items() if name != END}


@pytest.fixture(scope="module")
def encoding(ranks) -> tiktoken.Encoding:
    return tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={END: 0})


@pytest.fixture(scope="module")
def rank_file(ranks) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())


REST = {"pattern": GPT2, "special_tokens": {END: 0}}


@pytest.fixture(scope="module")
def train(real_texts):
    """Trains a SentencePiece model."""

    def train(**options) -> bytes:
        lines = [line for text in real_texts[:40] for line in text.splitlines() if line.strip()]
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(random.Random(0).sample(lines, 1500)),
            model_writer=out,
            minloglevel=3,
            num_threads=1,
            **{"vocab_size": 500, "hard_vocab_limit": False} | options,
        )
        return out.getvalue()

    return train


@pytest.fixture(scope="module")
def like_llama(train) -> bytes:
    return train(
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False
    )


@pytest.fixture(scope="module")
def like_xlmr(train) -> bytes:
    return train(model_type="unigram")


@pytest.fixture
def folder(tmp_path):
    """Makes a folder with files: bytes and text as they are, other things as JSON."""
    made = iter(range(100))

    def make(files: dict[str, object]) -> Path:
        where = tmp_path / f"folder{next(made)}"
        where.mkdir()
        for name, content in files.items():
            text = content if isinstance(content, str | bytes) else json.dumps(content)
            (where / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return where

    return make


def texts_for(tokenizer: tm.Tokenizer, real_texts: list[str]) -> list[str]:
    """A part of the adversarial suite for a tokenizer, and some real text."""
    return [text for text in probes(tokenizer.definition, 60) if len(text) < 1000] + [
        text[:3000] for text in real_texts[::10]
    ]


def ids_of(tokenizer: tm.Tokenizer, texts: list[str]) -> list[list[int]]:
    tokens = tokenizer.encoder().encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]]


def assert_same(tokenizer: tm.Tokenizer, own, texts: list[str]) -> None:
    """Document by document, the ids are those that `own` gives."""
    assert len(texts) > 1000
    for text, ids in zip(texts, ids_of(tokenizer, texts), strict=True):
        assert ids == own(text), ascii(text[:80])


def by_transformers(made):
    return lambda text: made.encode(text, add_special_tokens=False)


def by_tiktoken(made):
    return lambda text: made.encode(text, allowed_special="all")


def python(*arguments: object, only: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own; in this environment with `more`, or with `only` what is given."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **more} if only is None else only,
        capture_output=True,
        text=True,
        timeout=120,
    )


def command(*arguments: object, only: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "tokenmill.cli", *arguments, only=only, **more)


def answer(child: subprocess.CompletedProcess[str]):
    """What a process that went well printed, as JSON."""
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def one_line(child: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command that failed said."""
    assert "Traceback" not in child.stderr
    (line,) = child.stderr.splitlines()
    assert line.startswith("tokenmill: ")
    return line


def documents(store: tm.Store) -> list[list[int]]:
    return [ids.tolist() for ids in store]


# Files and folders.


def test_one_tokenizer_by_every_path(tokenizer_path, tmp_path, reference, monkeypatch):
    """A file, a folder, what a store keeps; as text, as a Path, relative, under another name: one tokenizer."""
    file = tokenizer_path / "tokenizer.json"
    renamed = tmp_path / "whatever.txt"
    shutil.copy(file, renamed)
    store = tm.build(iter(["a"]), tokenizer_path, tmp_path / "store", workers=0, progress="quiet")
    monkeypatch.chdir(tokenizer_path.parent)
    specs = [file, str(file), tokenizer_path, str(tokenizer_path), f"{tokenizer_path}/", store.tokenizer.path]
    specs += [str(store.tokenizer.path), renamed, tokenizer_path.name, f"./{tokenizer_path.name}/tokenizer.json"]
    text = f"def f(x):\n    return 中文 {END} é\n"
    for spec in specs:
        found = tm.load_tokenizer(spec)
        assert found.encode(text).tolist() == reference.encode(text).ids
        assert (found.vocab_size, found.eos_id, found.bos_id) == (4096, 0, None)
        assert found.fingerprint == store.tokenizer.fingerprint


def test_a_folder_with_a_tokenizer_json_and_more(folder, body, like_llama, rank_file):
    """The tokenizer.json is taken: it is what every other tool takes."""
    found = tm.load_tokenizer(
        folder({"tokenizer.json": body, "tokenizer.model": like_llama, "a.tiktoken": rank_file, "vocab.txt": "a\n"})
    )
    assert (found.definition.reference, found.vocab_size) == ("tokenizers", 4096)


@pytest.mark.parametrize("config", [{}, {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}])
def test_a_folder_with_a_sentencepiece_model(folder, like_llama, real_texts, config):
    """Its ids are sentencepiece's; by the folder, and by the file whatever it is called."""
    where = folder({"tokenizer.model": like_llama, **config})
    shutil.copy(where / "tokenizer.model", where.parent / "x.model.v3")
    own = sentencepiece.SentencePieceProcessor(model_proto=like_llama)
    for spec in (where, str(where), where / "tokenizer.model", where.parent / "x.model.v3"):
        found = tm.load_tokenizer(spec)
        names = re.compile("|".join(found.special_names) + "|<unk>")  # control symbols are not sentencepiece's to parse
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
    assert alone.encode("import json").tolist() == plain.encode("import json")
    assert found.encode("import json").tolist() == [i + 1 for i in plain.encode("import json")]


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
    assert found.added["<new>"] in found.encode("a <new> b").tolist()


@pytest.mark.parametrize("name", ["demo.tiktoken", "tokenizer.model"])
def test_a_folder_with_tiktoken_ranks(folder, rank_file, encoding, real_texts, name):
    """Ranks are known by their content: Llama 3's are called tokenizer.model. Pattern and specials lie beside them."""
    where = folder({name: rank_file, "tiktoken.json": REST})
    for spec in (where, str(where), where / name):
        found = tm.load_tokenizer(spec)
        assert_same(found, by_tiktoken(encoding), texts_for(found, real_texts))
        assert (found.definition.reference, found.eos_id, found.vocab_size) == ("tiktoken", 0, 4096)


def test_a_folder_with_a_vocabulary_of_bert(folder, real_texts):
    """transformers knows how to read it; from then on it is a tokenizer.json."""
    where = folder({"vocab.txt": "\n".join(BERT_WORDS) + "\n", "tokenizer_config.json": BERT})
    found = tm.load_tokenizer(where, engine="reference")
    own = transformers.BertTokenizer.from_pretrained(str(where))
    assert_same(found, by_transformers(own), texts_for(found, real_texts))
    assert found.vocab_size == len(BERT_WORDS)
    parts = ("import", "##ing", "the", "self")
    assert found.encode("Importing the self").tolist() == [BERT_WORDS.index(part) for part in parts]


@pytest.mark.parametrize(
    "config",
    [{"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, {"config.json": {"model_type": "gpt2"}}],
)
def test_a_folder_with_a_vocabulary_of_gpt2(folder, body, tokenizer_path, config):
    """It is the very tokenizer that the tokenizer.json is."""
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in body["model"]["merges"])
    found = tm.load_tokenizer(folder({"vocab.json": body["model"]["vocab"], "merges.txt": merges, **config}))
    assert found.fingerprint == tm.load_tokenizer(tokenizer_path).fingerprint
    assert (found.eos_id, found.engine) == (0, tm.load_tokenizer(tokenizer_path).engine)


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
print(json.dumps([[one.name, one.fingerprint, one.eos_id, one.encode("some text").tolist()] for one in found]))
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
        [spec, one.fingerprint, one.eos_id, one.encode("some text").tolist()]
        for spec, one in zip(specs, local, strict=True)
    ]
    with hub_server({"org/model": repo, "gpt2": files}) as hub:
        where = {**hub.environment(tmp_path), "TOKENMILL_CACHE": os.environ["TOKENMILL_CACHE"]}
        assert answer(python("-c", LOAD, *specs, only=where)) == expected
        failed = command("build", source, "-t", "org/nothing", "-o", tmp_path / "none", only=where)
        assert failed.returncode == 1
        assert "org/nothing@main: no such model" in one_line(failed)
        hub.stop()
        done = command("build", source, "-t", "org/model", "-o", tmp_path / "out", "-q", only=where)
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
    done = command("build", jsonl(texts), "-t", "tiktoken:tokenmill_demo", "-o", out, "-q", **where)
    assert (done.returncode, done.stderr) == (0, "")
    assert documents(tm.open(out)) == [[*encoding.encode(text, allowed_special="all"), 0] for text in texts]
    assert tm.open(out).tokenizer.fingerprint == tm.load_tokenizer(encoding).fingerprint
    failed = command("build", jsonl(texts), "-t", "tiktoken:nothing", "-o", tmp_path / "none", **where)
    assert failed.returncode == 1
    assert re.search(r"no encoding 'nothing'; it has cl100k_base, .*tokenmill_demo", one_line(failed))


# Objects.


def test_a_tokenizer_of_tokenizers(reference, real_texts):
    """As it is now, but for what would cut or pad a document."""
    held = tokenizers.Tokenizer.from_str(reference.to_str())
    held.add_tokens(["tokenmill"])
    found = tm.load_tokenizer(held, engine="reference")
    assert_same(found, lambda text: held.encode(text, add_special_tokens=False).ids, texts_for(found, real_texts))
    held.enable_truncation(3)
    held.enable_padding(length=50)
    assert tm.load_tokenizer(held).fingerprint == found.fingerprint
    assert tm.load_tokenizer(held, engine="reference").encode("a text of more than three tokens").size > 3


def test_a_fast_tokenizer_of_transformers(reference, real_texts):
    held = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, eos_token="<|done|>", bos_token=END)
    found = tm.load_tokenizer(held, engine="reference")
    assert_same(found, by_transformers(held), texts_for(found, real_texts))
    assert (found.eos_id, found.bos_id) == (held.eos_token_id, held.bos_token_id) == (4096, 0)


def test_objects_that_leave_special_tokens_in_the_text(reference):
    """Made so by the user, they stay so, unless told otherwise."""
    text = f"a {END} b"
    held = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, eos_token=END, split_special_tokens=True)
    bare = tokenizers.Tokenizer.from_str(reference.to_str())
    bare.encode_special_tokens = True
    slow = transformers.ByT5Tokenizer(split_special_tokens=True)
    as_text = held.encode(text, add_special_tokens=False)
    assert 0 not in as_text
    for spec in (held, bare):
        found = tm.load_tokenizer(spec, engine="reference")
        assert (found.encode(text).tolist(), found.special_tokens) == (as_text, "text")
        parsing = tm.load_tokenizer(spec, engine="reference", special_tokens="parse")
        assert parsing.encode(text).tolist() == reference.encode(text).ids
    assert tm.load_tokenizer(slow).encode("a</s>").tolist() == slow.encode("a</s>", add_special_tokens=False)


def test_an_encoding_of_tiktoken(encoding, ranks, real_texts):
    found = tm.load_tokenizer(encoding)
    assert_same(found, by_tiktoken(encoding), texts_for(found, real_texts))
    assert (found.name, found.eos_id) == ("tiktoken:demo", 0)


def test_an_encoding_that_leaves_text_out(ranks, real_texts):
    """No tokenizer.json does this, so tiktoken itself runs it."""
    held = tiktoken.Encoding("odd", pat_str=WORDS_ONLY, mergeable_ranks=ranks, special_tokens={END: 0, "<|a|>": 5000})
    found = tm.load_tokenizer(held)
    assert_same(found, by_tiktoken(held), texts_for(found, real_texts))
    assert (found.engine, found.vocab_size) == ("tiktoken", 5001)


def test_a_processor_of_sentencepiece(like_llama, train, real_texts, tmp_path):
    held = sentencepiece.SentencePieceProcessor(model_proto=like_llama)
    (tmp_path / "x.model").write_bytes(like_llama)
    assert tm.load_tokenizer(held).fingerprint == tm.load_tokenizer(tmp_path / "x.model").fingerprint
    rare = sentencepiece.SentencePieceProcessor(model_proto=train(model_type="char"))  # has no form as a tokenizer.json
    found = tm.load_tokenizer(rare)
    text = real_texts[3][:3000]
    assert found.encode(text).tolist() == rare.encode(text)
    assert found.decode(found.encode("import json")) == "import json"


WORDS = '''
import json
import os
from pathlib import Path

from transformers import PreTrainedTokenizer


class Words(PreTrainedTokenizer):
    """A word is an id. Writes down which process tokenizes a document that says so."""

    vocab_files_names = {"vocab_file": "words.json"}

    def __init__(self, vocab_file, **options):
        self.words = json.loads(Path(vocab_file).read_text())
        self.names = {number: word for word, number in self.words.items()}
        super().__init__(**{"unk_token": "<unk>", "eos_token": "</s>", **options})

    @property
    def vocab_size(self):
        return len(self.words)

    def get_vocab(self):
        return {**self.words, **self.added_tokens_encoder}

    def _tokenize(self, text, **options):
        if "who" in text.split():
            with open(os.environ["TOKENMILL_TEST_WHO"], "a") as file:
                file.write(f"{os.getpid()}\\n")
        return text.split()

    def _convert_token_to_id(self, token):
        return self.words.get(token, self.words["<unk>"])

    def _convert_id_to_token(self, index):
        return self.names[index]

    def convert_tokens_to_string(self, tokens):
        return " ".join(tokens)

    def save_vocabulary(self, save_directory, filename_prefix=None):
        path = Path(save_directory) / ((filename_prefix or "") + "words.json")
        path.write_text(json.dumps(self.words))
        return (str(path),)
'''
VOCABULARY = ["<unk>", "</s>", "who", "def", "import", "return", "the", "self"]
WORD_TEXTS = ["who imports the self", "def the return", "", "</s> who", "import import"] * 20


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A slow tokenizer of a class that the user wrote, in a module that can be imported; its file; the log of who ran it."""
    monkeypatch.setenv("TOKENMILL_TEST_WHO", str(tmp_path / "who"))
    monkeypatch.syspath_prepend(tmp_path / "own")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tokenmill_test_words.py").write_text(WORDS)
    (tmp_path / "words.json").write_text(json.dumps({word: i for i, word in enumerate(VOCABULARY)}))
    importlib.invalidate_caches()
    yield importlib.import_module("tokenmill_test_words").Words(str(tmp_path / "words.json"))
    del sys.modules["tokenmill_test_words"]


def test_slow_tokenizers_of_transformers(words, real_texts):
    """Both those that come with transformers and the user's own."""
    for held in (transformers.ByT5Tokenizer(), words):
        found = tm.load_tokenizer(held)
        assert_same(found, by_transformers(held), texts_for(found, real_texts))
        assert (found.eos_id, found.vocab_size) == (held.eos_token_id, len(held))
        assert found.engine == "python"


def built(texts, tokenizer, jsonl, out: Path, **options) -> tuple[tm.Store, dict]:
    """A store, and what was said of the plan."""
    events: list[Event] = []
    store = tm.build(jsonl(texts), tokenizer, out, progress=events.append, **options)
    (plan,) = [event for event in events if event.name == "planned"]
    return store, plan


def test_a_slow_tokenizer_in_workers(jsonl, tmp_path, real_texts):
    """As exact as anything, told to be slow; the store brings it back in another process."""
    held = transformers.ByT5Tokenizer()
    texts = [text[:8000] for text in real_texts[::8]] + ["", "é </s> <extra_id_7>"]
    store, plan = built(texts, held, jsonl, tmp_path / "out", workers=2, shard_bytes="50KB")
    assert documents(store) == [[*held.encode(text, add_special_tokens=False), 1] for text in texts]
    assert plan.engine.startswith("python ")
    assert plan.workers.startswith("2 workers")
    slow = r"slow Python tokenizer, .* MB/s a core; a tokenizer\.json would be about [\d,]+x faster"
    for proof in (plan.proof, tm.load_tokenizer(store.tokenizer.path).proof):
        assert re.fullmatch(slow, proof)
    child = python("-c", DECODE, store.path)
    assert child.stderr == ""
    assert answer(child) == [held.decode(store[0]), held.decode(store[-1]), store.tokenizer.fingerprint]
    assert held.decode(store[0]) == texts[0] + "</s>"


DECODE = """
import json, sys
import tokenmill as tm
store = tm.open(sys.argv[1])
tokenizer = tm.load_tokenizer(store.tokenizer.path)
assert tokenizer.encode("a").tolist() == [100]
print(json.dumps([tokenizer.decode(store[0]), tokenizer.decode(store[-1]), tokenizer.fingerprint]))
"""


def test_a_class_of_the_users_own_in_workers(words, jsonl, tmp_path):
    """What can be imported here can be imported there. The store is read without the class; its text is not."""
    store, plan = built(WORD_TEXTS, words, jsonl, tmp_path / "out", workers=2)
    ran = (tmp_path / "who").read_text().split()
    assert ran
    assert str(os.getpid()) not in ran
    assert (plan.workers[:9], plan.engine[:7]) == ("2 workers", "python ")
    assert documents(store) == [[*words.encode(text, add_special_tokens=False), 1] for text in WORD_TEXTS]
    with pytest.raises(
        TokenizerError, match=r"tokenmill_test_words:Words, which is not of transformers; pass the object"
    ):
        tm.load_tokenizer(store.tokenizer.path)
    assert tm.load_tokenizer(words).decode(store[1]) == "def the return </s>"


def test_a_class_that_only_the_script_has(words, jsonl, tmp_path):
    """It cannot be made again elsewhere: it runs in the script's own process, and the plan says why."""
    script = tmp_path / "script.py"
    script.write_text(
        WORDS
        + """
import sys
import tokenmill as tm
words, source, out = sys.argv[1:]
events = []
held = Words(words)
store = tm.build(source, held, out, workers=2, progress=events.append)
(plan,) = [event for event in events if event.name == "planned"]
print(json.dumps([plan, [ids.tolist() for ids in store], os.getpid(), tm.load_tokenizer(held).decode(store[1])]))
"""
    )
    child = python(script, tmp_path / "words.json", jsonl(WORD_TEXTS), tmp_path / "out")
    plan, ids, pid, text = answer(child)
    assert set((tmp_path / "who").read_text().split()) == {str(pid)}
    assert ids == [[*words.encode(text, add_special_tokens=False), 1] for text in WORD_TEXTS]
    assert text == "def the return </s>"
    assert plan.workers == "inside this process"
    assert re.search(r"slow Python tokenizer.*runs in this process alone, since .*__main__:Words", plan.proof)


def test_a_slow_tokenizer_whose_files_do_not_tell_all(words, jsonl, tmp_path):
    """A copy made from its files would give other ids; so none is used."""
    original = type(words)._tokenize
    words._tokenize = lambda text, **options: original(words, text.replace("-", " "))
    store, plan = built(["def-the", "who the"], words, jsonl, tmp_path / "out", workers=2)
    assert documents(store) == [[3, 6, 1], [2, 6, 1]]
    assert re.search(r"in this process alone, since a copy made from its files differs on", plan.proof)


def test_a_class_that_a_file_names_is_not_imported(tokenizer_path, tmp_path, jsonl, monkeypatch, capsys):
    """Whoever sends a store must not get code run by it."""
    store, _ = built(["a"], transformers.ByT5Tokenizer(), jsonl, tmp_path / "out", workers=0)
    copied = tmp_path / "copied"
    shutil.copytree(store.tokenizer.path, copied)
    own = json.loads((copied / "tokenmill.json").read_text())
    monkeypatch.syspath_prepend(tmp_path / "evil")
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass X: pass\n")
    for name in ("evil_module:X", "evil_module", "transformers_evil:X", "os:system", 7, ["evil_module:X"]):
        (copied / "tokenmill.json").write_text(json.dumps({**own, "python_class": name}))
        for spec in (copied, str(copied)):
            with pytest.raises(TokenizerError, match=r"tokenmill\.json names the class .*pass the object"):
                tm.load_tokenizer(spec)
        assert main(["build", str(jsonl(["a"])), "-t", str(copied), "-o", str(tmp_path / "none")]) == 1
    (copied / "tokenmill.json").write_text(json.dumps({**own, "python_class": "transformers.utils.logging:get_logger"}))
    with pytest.raises(TokenizerError, match=r"transformers\.utils\.logging:get_logger"):
        tm.load_tokenizer(copied).encode("a")
    assert not (tmp_path / "ran").exists()
    assert "evil_module" not in sys.modules


def test_code_that_comes_with_a_model_is_not_run(folder, tmp_path, like_llama, body):
    """Neither from the tokenizer's configuration nor the model's. With a tokenizer.json there is no need for it."""
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nclass Own: pass\n"
    names = {"AutoTokenizer": ["own.Own", None]}
    files = {"vocab.txt": "a\n", "own.py": code}
    for more in (
        {"tokenizer_config.json": {"tokenizer_class": "Own", "auto_map": names}},
        {"tokenizer_config.json": {"tokenizer_class": "Own", "auto_map": ["own.Own", None]}},
        {"config.json": {"model_type": "own", "auto_map": {**names, "AutoConfig": "own.Own"}}},
        {"tokenizer.model": like_llama, "tokenizer_config.json": {"tokenizer_class": "Own", "auto_map": names}},
    ):
        where = folder({**files, **more})
        with pytest.raises(TokenizerError, match=rf"{where}.*trust_remote_code stays off.*pass the object"):
            tm.load_tokenizer(where)
    assert tm.load_tokenizer(folder({**files, **more, "tokenizer.json": body})).vocab_size == 4096
    assert not ran.exists()


# One fingerprint.


def test_one_fingerprint_however_it_was_reached(tokenizer_path, tmp_path, folder, body, reference, encoding, rank_file):
    """Names, paths, dates, the order and the form of a file decide no id."""
    expected = tm.load_tokenizer(tokenizer_path).fingerprint
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, eos_token=END)
    fast.save_pretrained(tmp_path / "saved")
    renamed = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, name_or_path="some/where")
    reordered = json.dumps({key: body[key] for key in reversed(body)}, indent=3, sort_keys=True, ensure_ascii=True)
    shuffled = dict(random.Random(1).sample(sorted(body["model"]["vocab"].items()), len(body["model"]["vocab"])))
    old_merges = [f"{left} {right}" for left, right in body["model"]["merges"]]  # as older tokenizers wrote them
    old = tmp_path / "old.json"
    old.write_text(reordered)
    os.utime(old, (1, 1))
    for spec in (
        reference,
        tokenizers.Tokenizer.from_str(reference.to_str(pretty=True)),
        fast,
        renamed,
        tmp_path / "saved",
        old,
        folder({"tokenizer.json": {**body, "model": {**body["model"], "vocab": shuffled}}}),
        folder({"tokenizer.json": {**body, "model": {**body["model"], "merges": old_merges}}}),
        folder({"tokenizer.json": body, "tokenizer_config.json": {"eos_token": END, "model_max_length": 7}}),
        tm.load_tokenizer(tokenizer_path),
        encoding,  # the ranks of this tokenizer.json, with its pattern
        folder({"a.tiktoken": rank_file, "tiktoken.json": {**REST, "name": "another"}}),
        folder({"tokenizer.model": b"".join(sorted(rank_file.splitlines(True))), "tiktoken.json": REST}),
    ):
        assert tm.load_tokenizer(spec).fingerprint == expected, spec


def test_one_fingerprint_of_a_slow_tokenizer(tmp_path):
    held = transformers.ByT5Tokenizer()
    held.save_pretrained(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "copied")
    read_back = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "saved"))
    specs = (held, tmp_path / "saved", tmp_path / "copied", read_back, transformers.ByT5Tokenizer())
    assert len({tm.load_tokenizer(spec).fingerprint for spec in specs}) == 1
    others = (transformers.ByT5Tokenizer(extra_ids=7), transformers.CanineTokenizer())
    assert len({tm.load_tokenizer(spec).fingerprint for spec in (held, *others)}) == 3


def _flag(name, value):
    def change(body):
        body["added_tokens"][0][name] = value

    return change


def _swap_merges(body):
    merges = body["model"]["merges"]
    merges[7], merges[8] = merges[8], merges[7]


def _add(body):
    body["added_tokens"].append({**body["added_tokens"][0], "id": 4096, "content": "<|new|>"})


def _lower(body):
    body["normalizer"] = {"type": "Lowercase"}


def _ignore_merges(body):
    body["model"]["ignore_merges"] = True


@pytest.mark.parametrize(
    "change",
    [_swap_merges, _add, _lower, _ignore_merges, _flag("special", False), _flag("lstrip", True), _flag("normalized", True)],
)  # fmt: skip
def test_what_decides_an_id_decides_the_fingerprint(folder, body, tokenizer_path, change):
    changed = json.loads(json.dumps(body))
    change(changed)
    found = tm.load_tokenizer(folder({"tokenizer.json": changed}))
    assert found.fingerprint != tm.load_tokenizer(tokenizer_path).fingerprint


def test_the_policy_for_special_tokens_decides_the_fingerprint(tokenizer_path):
    """Except that an error is no other id."""
    prints = {
        policy: tm.load_tokenizer(tokenizer_path, special_tokens=policy).fingerprint
        for policy in ("parse", "text", "error")
    }
    assert prints["parse"] == prints["error"] != prints["text"]


def test_ranks_that_differ_have_other_fingerprints(ranks, encoding):
    swapped = {**ranks, b"th": ranks[b"in"], b"in": ranks[b"th"]}
    assert swapped != ranks
    others = [
        tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=swapped, special_tokens={END: 0}),
        tiktoken.Encoding("demo", pat_str=WORDS_ONLY, mergeable_ranks=ranks, special_tokens={END: 0}),
        tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|end|>": 0}),
    ]
    assert len({tm.load_tokenizer(one).fingerprint for one in (encoding, *others)}) == 4


# Bytes.


def test_bytes(jsonl, tmp_path):
    """Every byte is its id; the special tokens come after them."""
    found = tm.load_tokenizer("bytes")
    assert (found.vocab_size, found.eos_id, found.bos_id) == (259, 256, 257)
    assert found.added == {END: 256, "<|startoftext|>": 257, "<|pad|>": 258}
    texts = ["plain", "", "é中👍\x00\n", f"a{END}b", "<|", END[:-1]]
    store = tm.build(jsonl(texts), "bytes", tmp_path / "out", workers=0, progress="quiet")
    expected = [list(text.encode()) for text in texts]
    expected[3] = [*b"a", 256, *b"b"]
    assert documents(store) == [[*ids, 256] for ids in expected]
    assert store.dtype == np.uint16
    as_text = tm.load_tokenizer("bytes", engine="bytes", special_tokens="text")
    assert as_text.encode(texts[3]).tolist() == list(texts[3].encode())


def test_bytes_there_and_back():
    found = tm.load_tokenizer("bytes")

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
        ({"tokenizer.json": POINTER}, r"{0}/tokenizer\.json is a Git LFS pointer.*git lfs pull"),
        ({"tokenizer.model": POINTER}, r"{0}/tokenizer\.model is a Git LFS pointer.*git lfs pull"),
        ({"qwen.tiktoken": POINTER}, r"{0}/qwen\.tiktoken is a Git LFS pointer.*git lfs pull"),
        ({"tokenizer.json": b"{}", "tokenizer_config.json": POINTER}, r"{0}/tokenizer_config\.json is a Git LFS pointer"),
        ({"tokenizer.model": GARBAGE}, r"{0}/tokenizer\.model: not a whole SentencePiece model.*another kind of file"),
        ({"tokenizer.model": b""}, r"{0}/tokenizer\.model: .*is empty"),
        ({"some.tiktoken": GARBAGE}, r"{0}/some\.tiktoken, line 1: .* is not a rank.*of another kind"),
        ({"some.tiktoken": b"YQ== 0\n"}, r"{0}/some\.tiktoken holds 1 ranks.*put a tiktoken\.json beside it"),
        ({"some.tiktoken": b"YQ== 0\n", "tiktoken.json": b"{"}, r"{0}/tiktoken\.json is not valid JSON"),
        ({"some.tiktoken": b"YQ== 0\n", "tiktoken.json": REST}, "some: 242 of the bytes that text is made of have no rank"),
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
        UsageError, match=rf"{kind} is no tokenizer that tokenmill knows: give a path, a name, or an obj"
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
    return {"PYTHONPATH": str(where), "TOKENMILL_CACHE": str(where / "cache")}


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
        tm.load_tokenizer(transformers.ByT5Tokenizer()).definition.save(specs[library][-1])
    missing = without(library, tmp_path)
    source, out = jsonl(["a"]), tmp_path / "out"
    for spec in specs[library]:
        if spec != "tiktoken:gpt2":
            tm.load_tokenizer(spec)
        for cache in (missing["TOKENMILL_CACHE"], os.environ["TOKENMILL_CACHE"]):
            environment = {**missing, "TOKENMILL_CACHE": cache}
            failed = command("build", source, "-t", spec, "-o", out, "--eos", "none", **environment)
            assert failed.returncode == 1
            line = one_line(failed)
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
        ("bytes", ["--engine", "nonsense"], 2, "engine='nonsense' is not one of"),
        ("bytes", ["--engine", "tiktoken"], 1, "engine='tiktoken' cannot run this tokenizer"),
        ("bytes", ["--eos", "nonsense"], 2, "eos='nonsense' is not a token of bytes"),
        ("none.json", [], 1, "--eos NAME, an id, or none"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    spec, options, code, said, body, tmp_path, jsonl, monkeypatch, capsys
):
    """And leaves nothing behind."""
    jsonl(["a"])
    (tmp_path / "none.json").write_text(json.dumps({**body, "added_tokens": []}))
    monkeypatch.chdir(tmp_path)
    assert main(["build", "corpus.jsonl", "-t", spec, "-o", "out", *options]) == code
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
print(json.dumps([one.fingerprint, one.vocab_size, one.eos_id, one.added, one.definition.json]))
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
    import tiktoken

    base = json.loads((tokenizer_path / "tokenizer.json").read_text("utf-8"))
    from tokenmill.encoding.definition import byte_alphabet

    to_byte = {character: i for i, character in enumerate(byte_alphabet())}
    vocabulary = {name: i for name, i in base["model"]["vocab"].items() if name != "<|endoftext|>"}
    ranks = {bytes(to_byte[c] for c in name): i for name, i in vocabulary.items()}
    own = tiktoken.Encoding("odd", pat_str=r"(?s:.{1,7})", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 0})
    tokenizer = tm.load_tokenizer(own)
    assert (tokenizer.definition.json, tokenizer.engine, tokenizer.eos_id) == (None, "tiktoken", 0)
    text = "some words, <|endoftext|> é 中文\n"
    ids = tokenizer.encode(text).tolist()
    assert ids == own.encode(text, allowed_special="all")
    assert tokenizer.decode(ids) == text
