"""Tokenizer objects of other libraries: their ids are the library's own, and code that comes with a model is not run."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
import transformers
from tokenizer_checks import (
    END,
    WORDS_ONLY,
    answer,
    assert_same,
    by_tiktoken,
    by_transformers,
    documents,
    python,
    texts_for,
)

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import TokenizerError, UsageError
from tokenmill.events import Event


def test_a_tokenizer_of_tokenizers(reference, real_texts):
    """As it is now, but for what would cut or pad a document."""
    held = tokenizers.Tokenizer.from_str(reference.to_str())
    held.add_tokens(["tokenmill"])
    found = tm.load_tokenizer(held, engine="reference")
    assert_same(found, lambda text: held.encode(text, add_special_tokens=False).ids, texts_for(found, real_texts))
    held.enable_truncation(3)
    held.enable_padding(length=50)
    assert tm.load_tokenizer(held).fingerprint == found.fingerprint
    assert len(tm.load_tokenizer(held, engine="reference").encode("a text of more than three tokens")) > 3


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
        assert (found.encode(text), found.special_tokens) == (as_text, "text")
        parsing = tm.load_tokenizer(spec, engine="reference", special_tokens="parse")
        assert parsing.encode(text) == reference.encode(text).ids
    assert tm.load_tokenizer(slow).encode("a</s>") == slow.encode("a</s>", add_special_tokens=False)


def test_an_encoding_of_tiktoken(encoding, ranks, real_texts):
    found = tm.load_tokenizer(encoding)
    assert_same(found, by_tiktoken(encoding), texts_for(found, real_texts))
    assert (found.name, found.eos_id) == ("tiktoken:demo", 0)


def test_an_encoding_that_leaves_text_out(ranks, real_texts):
    """No tokenizer.json does this, so tiktoken itself runs it."""
    held = tiktoken.Encoding("odd", pat_str=WORDS_ONLY, mergeable_ranks=ranks, special_tokens={END: 0, "<|a|>": 5000})
    found = tm.load_tokenizer(held)
    assert_same(found, by_tiktoken(held), texts_for(found, real_texts))
    assert (found.choose_engine(), found.vocab_size) == ("tiktoken", 5001)


def test_a_processor_of_sentencepiece(like_llama, train, real_texts, tmp_path):
    held = sentencepiece.SentencePieceProcessor(model_proto=like_llama)
    (tmp_path / "x.model").write_bytes(like_llama)
    assert tm.load_tokenizer(held).fingerprint == tm.load_tokenizer(tmp_path / "x.model").fingerprint
    rare = sentencepiece.SentencePieceProcessor(model_proto=train(model_type="char"))  # has no form as a tokenizer.json
    found = tm.load_tokenizer(rare)
    text = real_texts[3][:3000]
    assert found.encode(text) == rare.encode(text)
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
            with open(os.environ["TEST_WHO"], "a") as file:
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
    monkeypatch.setenv("TEST_WHO", str(tmp_path / "who"))
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
        assert found.choose_engine() == "python"


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
    slow = r"slow Python tokenizer, .* MB/s per core; a tokenizer\.json would be about [\d,]+x faster"
    again = tm.load_tokenizer(store.tokenizer.path)
    again.choose_engine()
    for proof in (plan.proof, again.proof):
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
assert tokenizer.encode("a") == [100]
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
    with pytest.raises(TokenizerError, match=r"tokenmill_test_words:Words, not of transformers; pass the object"):
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
print(json.dumps([plan.as_record(), [ids.tolist() for ids in store], os.getpid(), tm.load_tokenizer(held).decode(store[1])]))
"""
    )
    child = python(script, tmp_path / "words.json", jsonl(WORD_TEXTS), tmp_path / "out")
    plan, ids, pid, text = answer(child)
    assert set((tmp_path / "who").read_text().split()) == {str(pid)}
    assert ids == [[*words.encode(text, add_special_tokens=False), 1] for text in WORD_TEXTS]
    assert text == "def the return </s>"
    assert plan["workers"] == "inside this process"
    assert re.search(r"slow Python tokenizer.*runs only in this process: .*__main__:Words", plan["proof"])


def test_a_slow_tokenizer_whose_files_do_not_tell_all(words, jsonl, tmp_path):
    """A copy made from its files would give other ids; so none is used."""
    original = type(words)._tokenize
    words._tokenize = lambda text, **options: original(words, text.replace("-", " "))
    store, plan = built(["def-the", "who the"], words, jsonl, tmp_path / "out", workers=2)
    assert documents(store) == [[3, 6, 1], [2, 6, 1]]
    assert re.search(r"only in this process: a copy loaded from its files differs on", plan.proof)


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


def test_ids_outside_the_vocabulary_of_a_reference_are_a_usage_error(like_xlmr):
    """A Unigram model has no tokenizer.json, so sentencepiece decodes it; it would raise an IndexError."""
    found = tm.load_tokenizer(sentencepiece.SentencePieceProcessor(model_proto=like_xlmr))
    assert found._definition.json is None
    for ids in ([1, found.vocab_size], np.array([-1]), [[1], ["a"]], ["a"]):
        with pytest.raises(UsageError, match="ids"):
            found.decode(ids)
    assert found.decode(found.encode("return x"), 1) == "x"
