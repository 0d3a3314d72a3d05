"""Ids: exactly those of `tokenizers`, from any engine, in the right dtype, with what stands around a document said aloud."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import KINDS, NASTY, ids_of

import tokenmill as tm
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.encoder import Encoder, LongDocument
from tokenmill.encoding.engines import make_engine
from tokenmill.errors import EncodingError, TokenizerError, UsageError

nasty_text = st.lists(st.sampled_from([*NASTY, " ", " ", "word", "The"]), max_size=30).map("".join)
any_text = st.one_of(st.text(max_size=60), nasty_text)


@pytest.fixture(params=["shipped", *KINDS])
def kind(request, kinds):
    """Each kind: (its loaded tokenizer, the reference for it)."""
    path = kinds[request.param]
    return tm.load_tokenizer(path), tokenizers.Tokenizer.from_file(str(path))


def documents(tokens) -> list[list[int]]:
    return [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]]


# Exactness.


def test_real_text_is_exact(kind, real_texts):
    """Real text through the engine that was chosen gives the reference's ids, document by document."""
    tokenizer, reference = kind
    texts = (
        real_texts[::6] if tokenizer.choose_engine() == "gigatoken" else [text[:20_000] for text in real_texts[::12]]
    )
    assert documents(tokenizer._encoder().encode(pa.array(texts, pa.large_string()))) == ids_of(reference, texts)


def test_any_text_is_exact(kind):
    """So does any text there is, in any company."""
    tokenizer, reference = kind
    encoder = tokenizer._encoder()

    @settings(max_examples=100, deadline=None)
    @given(st.lists(any_text, max_size=6))
    def check(texts):
        assert documents(encoder.encode(pa.array(texts, pa.large_string()))) == ids_of(reference, texts)

    check()


def test_slices_of_arrays(kind):
    """An array that starts in the middle of its buffers is encoded from there."""
    tokenizer, reference = kind
    texts = ["first words", "", "zweites é", "三", "last"]
    values, encoder = pa.array(texts, pa.large_string()), tokenizer._encoder()
    for start in range(6):
        for length in range(6 - start):
            tokens = encoder.encode(values.slice(start, length))
            assert documents(tokens) == ids_of(reference, texts[start : start + length])


def test_no_documents(kind):
    tokens = kind[0]._encoder(eos_id=1, bos_id=0).encode(pa.array([], pa.large_string()))
    assert (len(tokens.ids), len(tokens.ends)) == (0, 0)


def test_bos_and_eos_stand_around_every_document(kind):
    """Empty documents included, and nothing else is added."""
    tokenizer, reference = kind
    texts = ["some words", "", "\n", "中文 <|endoftext|> x"]
    inner = ids_of(reference, texts)
    for bos, eos in ((None, None), (None, 1), (0, None), (0, 1), (5, 5)):
        tokens = tokenizer._encoder(bos_id=bos, eos_id=eos).encode(pa.array(texts, pa.large_string()))
        lead, trail = [bos] * (bos is not None), [eos] * (eos is not None)
        assert documents(tokens) == [[*lead, *ids, *trail] for ids in inner]
        assert tokens.ids.dtype == tokenizer.dtype
        assert tokens.ends.dtype == np.int64


def test_encode_and_decode_one_text(tokenizer_path, reference):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    text = "def f(x):\n    return 中文 <|endoftext|> é\n"
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_refresh_changes_no_id(tokenizer_path):
    """An engine loaded anew is the same engine."""
    encoder = tm.load_tokenizer(tokenizer_path)._encoder(eos_id=0)
    values = pa.array(["one", "two words", ""], pa.large_string())
    before = documents(encoder.encode(values))
    encoder.refresh()
    assert documents(encoder.encode(values)) == before


# What a file says beside its ids.


@pytest.fixture
def saved(tmp_path):
    """Write a tokenizer.json, changed; returns its path."""

    def save(reference, change=lambda body: None, name="tokenizer.json", **dump):
        body = json.loads(reference.to_str())
        change(body)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, **dump), "utf-8")
        return path

    return save


def decorated(reference: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer, with everything in its file that would change what a document becomes."""
    made = tokenizers.Tokenizer.from_str(reference.to_str())
    made.enable_truncation(5)
    made.enable_padding(length=64, pad_id=3)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    return made


def test_truncation_padding_and_templates_in_the_file_are_ignored(saved, tokenizer_path, reference):
    """A file's side effects change no document, and make no other tokenizer."""
    plain = tm.load_tokenizer(tokenizer_path)
    tokenizer = tm.load_tokenizer(saved(decorated(reference)))
    text = "a text of more than five tokens, which is not cut and not padded"
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.fingerprint == plain.fingerprint


def test_dropout_in_the_file_is_ignored(saved, tokenizer_path, reference):
    """Dropout would make every build another corpus."""
    path = saved(reference, lambda body: body["model"].update(dropout=0.5))
    tokenizer = tm.load_tokenizer(path)
    text = "a text that dropout would cut in other places each time " * 5
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.fingerprint == tm.load_tokenizer(tokenizer_path).fingerprint


def test_a_reformatted_file_is_the_same_tokenizer(saved, tokenizer_path, reference):
    """Indents, the order of keys, escapes, the file's name, a folder or a file: none of it decides an id."""
    prints = {
        tm.load_tokenizer(tokenizer_path).fingerprint,
        tm.load_tokenizer(str(tokenizer_path / "tokenizer.json")).fingerprint,
        tm.load_tokenizer(saved(reference, indent=4)).fingerprint,
        tm.load_tokenizer(saved(reference, name="sorted.json", sort_keys=True)).fingerprint,
        tm.load_tokenizer(saved(reference, name="raw.json", ensure_ascii=False)).fingerprint,
        tm.load_tokenizer(saved(reference, name="folder/tokenizer.json").parent).fingerprint,
    }
    assert len(prints) == 1


def _swap_merges(body):
    merges = body["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]


def _swap_ids(body):
    vocabulary = body["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def _add_token(body):
    body["added_tokens"].append(
        {**body["added_tokens"][0], "id": len(body["model"]["vocab"]) + 7, "content": "<|new|>"}
    )


def _normalize(body):
    body["normalizer"] = {"type": "NFC"}


def _prefix_space(body):
    body["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize("change", [_swap_merges, _swap_ids, _add_token, _normalize, _prefix_space])
def test_another_tokenizer_has_another_fingerprint(saved, tokenizer_path, reference, change):
    """Whatever can decide an id is in the fingerprint."""
    changed = tm.load_tokenizer(saved(reference, change))
    assert changed.fingerprint != tm.load_tokenizer(tokenizer_path).fingerprint


def test_a_loaded_tokenizer_is_taken_as_it_is(tokenizer_path):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert tm.load_tokenizer(tokenizer) is tokenizer


def test_what_a_store_keeps_brings_the_tokenizer_back(kind, tmp_path):
    """The files of a tokenizer make that tokenizer."""
    tokenizer, _ = kind
    tokenizer._definition.save(tmp_path)
    again = tm.load_tokenizer(tmp_path)
    facts = ("fingerprint", "vocab_size", "engine", "eos_id", "bos_id", "dtype")
    assert [getattr(again, fact) for fact in facts] == [getattr(tokenizer, fact) for fact in facts]


def test_loading_again_gives_the_same(kind, kinds):
    """What was learned of a file and kept is what would be learned anew."""
    path = next(path for path in kinds.values() if str(path) == kind[0].name)
    assert tm.load_tokenizer(path) == kind[0]


# Which ids stand around a document.


def with_added(reference, *names):
    made = tokenizers.Tokenizer.from_str(reference.to_str())
    made.add_special_tokens(list(names))
    return made


def test_eos_by_every_name(tokenizer_path):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert tokenizer.eos_id == tokenizer._resolve("eos", "auto") == 0
    assert tokenizer._resolve("eos", "<|endoftext|>") == 0
    assert tokenizer._resolve("eos", 17) == tokenizer._resolve("eos", "17") == 17
    assert tokenizer._resolve("eos", None) is tokenizer._resolve("eos", "none") is None
    assert tokenizer._resolve("bos", "auto") is None
    assert tokenizer._resolve("bos", tokenizer.vocab_size - 1) == tokenizer.vocab_size - 1


@pytest.mark.parametrize("wanted", ["<|nope|>", 4096, "4096", 1 << 40, -1, ""])
def test_eos_that_is_not_there(tokenizer_path, wanted):
    """Neither a name nor an id that the tokenizer does not have is taken."""
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert tokenizer.vocab_size == 4096
    with pytest.raises(UsageError, match="eos"):
        tokenizer._resolve("eos", wanted)


def test_eos_that_could_be_two_tokens(saved, reference):
    """Two tokens that other models end documents with: nobody guesses which; the error names them."""
    tokenizer = tm.load_tokenizer(saved(with_added(reference, "</s>")))
    assert tokenizer.eos_id is None
    with pytest.raises(TokenizerError, match=r"--eos.*<\|endoftext\|>, </s>"):
        tokenizer._resolve("eos", "auto")
    assert tokenizer._resolve("eos", "</s>") == 4096


def test_eos_of_a_tokenizer_that_has_none(saved, reference, tmp_path):
    def rename(body):
        body["added_tokens"] = []

    tokenizer = tm.load_tokenizer(saved(reference, rename), "reference")
    with pytest.raises(TokenizerError, match="--eos"):
        tokenizer._resolve("eos", "auto")
    with pytest.raises(TokenizerError, match="--eos"):
        tm.build(iter(["a"]), tokenizer, tmp_path / "out", workers=0, progress="quiet")
    store = tm.build(iter(["a"]), tokenizer, tmp_path / "none", eos="none", workers=0, progress="quiet")
    assert store[0].tolist() == reference.encode("a").ids


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("tokenizer_config.json", {"eos_token": "</s>", "bos_token": "<s>"}),
        ("tokenizer_config.json", {"eos_token": {"content": "</s>", "lstrip": False}, "bos_token": {"content": "<s>"}}),
        ("special_tokens_map.json", {"eos_token": "</s>", "bos_token": "<s>"}),
    ],
)
def test_eos_as_the_files_beside_say(saved, reference, name, config):
    """What a model's configuration says settles what its tokenizer.json leaves open."""
    path = saved(with_added(reference, "<s>", "</s>"))
    path.with_name(name).write_text(json.dumps(config))
    tokenizer = tm.load_tokenizer(path.parent)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (4096, 4097)


def test_eos_that_the_configuration_made_up(saved, reference):
    path = saved(reference)
    path.with_name("tokenizer_config.json").write_text('{"eos_token": "<|made up|>"}')
    with pytest.raises(TokenizerError, match=r"<\|made up\|>.*--eos"):
        tm.load_tokenizer(path)._resolve("eos", "auto")


# Ids and dtypes.


def words(count: int) -> tokenizers.Tokenizer:
    """A vocabulary of so many words."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return made


@pytest.mark.parametrize(("count", "dtype"), [(65535, np.uint16), (65536, np.uint16), (65537, np.uint32)])
def test_the_dtype_holds_every_id(tmp_path, count, dtype):
    """65,536 ids fit two bytes and not one more; the largest comes out whole."""
    words(count).save(str(tmp_path / "tokenizer.json"))
    tokenizer = tm.load_tokenizer(tmp_path, "reference")
    assert (tokenizer.vocab_size, tokenizer.dtype) == (count, dtype)
    assert tokenizer.encode(f"w1 w{count - 1}") == [1, count - 1]
    store = tm.build(iter([f"w{count - 1}"]), tokenizer, tmp_path / "out", eos=count - 1, workers=0, progress="quiet")
    assert store.dtype == dtype
    assert store[0].tolist() == [count - 1, count - 1]


def test_an_added_token_can_make_ids_larger_than_the_vocabulary(tmp_path):
    """The dtype is by the largest id there is, not by how many there are."""
    made = words(65536)
    made.add_special_tokens(["<eos>"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tm.load_tokenizer(tmp_path)
    assert (tokenizer.eos_id, tokenizer.vocab_size, tokenizer.dtype) == (65536, 65537, np.uint32)


class Wrong:
    """An engine that gives one id for every document."""

    name, version = "wrong", "0"

    def __init__(self, token: int) -> None:
        self.token = token

    def encode(self, values):
        return np.full(len(values), self.token, np.uint32), np.arange(len(values) + 1)


@pytest.mark.parametrize("token", [4096, 65535, 65536, 65537, (1 << 32) - 1])
def test_an_id_outside_the_vocabulary_is_never_stored(tokenizer_path, token):
    """Nor wrapped into one that is inside; not in a document, and not in a part of one."""
    encoder = tm.load_tokenizer(tokenizer_path)._encoder(eos_id=0)
    encoder.engine = Wrong(token)
    with pytest.raises(EncodingError, match=str(token)):
        encoder.encode(pa.array(["a", "b"], pa.large_string()))
    with pytest.raises(EncodingError, match=str(token)):
        LongDocument(encoder).finish()


def test_the_last_id_of_the_vocabulary_is_inside(tokenizer_path):
    encoder = tm.load_tokenizer(tokenizer_path)._encoder()
    encoder.engine = Wrong(4095)
    assert encoder.encode(pa.array(["a"], pa.large_string())).ids.tolist() == [4095]


# Files that are no tokenizer.


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"model": null}',
        b'{"model": {}}',
        b'{"model": {"type": "Nonsense", "vocab": {}}}',
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c d"]}}',
        b"\x80\x02}q\x00.",
        b"\xff\xfe\x00",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_files_that_are_no_tokenizer(tmp_path, content):
    """Named by path, whatever they are."""
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"broken\.json"):
        tm.load_tokenizer(path)


@pytest.mark.parametrize("part", [0.001, 0.3, 0.9, 0.9999])
def test_a_tokenizer_cut_short(tmp_path, tokenizer_path, part):
    whole = (tokenizer_path / "tokenizer.json").read_bytes().rstrip()
    (tmp_path / "cut.json").write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(TokenizerError, match=r"cut\.json"):
        tm.load_tokenizer(tmp_path / "cut.json")


def test_a_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "notes.txt").write_text("a")
    with pytest.raises(TokenizerError, match=r"notes\.txt"):
        tm.load_tokenizer(tmp_path)
    with pytest.raises(TokenizerError, match="nowhere"):
        tm.load_tokenizer(tmp_path / "nowhere")


def test_a_broken_configuration_is_named(saved, reference):
    path = saved(reference)
    path.with_name("tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        tm.load_tokenizer(path)


def test_an_unknown_engine(tokenizer_path):
    with pytest.raises(UsageError, match=r"engine='fastest'.*reference, gigatoken"):
        tm.load_tokenizer(tokenizer_path, engine="fastest")


def test_engines_do_not_depend_on_what_they_saw_before(tokenizer_path, reference, real_texts):
    """A cache makes an engine quicker, never different."""
    engine = make_engine("gigatoken", Definition((tokenizer_path / "tokenizer.json").read_text("utf-8")))
    texts = [text[:5000] for text in real_texts[:40]]
    expected = ids_of(reference, texts)
    order = list(range(len(texts))) * 2
    random.Random(5).shuffle(order)
    for i in order:
        assert engine.encode(pa.array([texts[i]], pa.large_string()))[0].tolist() == expected[i]


def test_an_encoder_is_made_from_plain_values(tokenizer_path, reference):
    """What a worker is told is enough: names, numbers and the file's text."""
    body = (tokenizer_path / "tokenizer.json").read_text("utf-8")
    encoder = Encoder(Definition(body), "tokenizers", 4096, bos_id=None, eos_id=0)
    tokens = encoder.encode(pa.array(["some words"], pa.large_string()))
    assert tokens.ids.tolist() == [*reference.encode("some words").ids, 0]


def test_lists_of_texts_and_of_ids(tokenizer_path, reference):
    """A list gives a list, in order; everything else is refused by name."""
    tokenizer = tm.load_tokenizer(tokenizer_path, engine="reference")
    texts = ["one", "", "two words", "<|endoftext|>"]
    encoded = tokenizer.encode(texts)
    assert encoded == ids_of(reference, texts)
    assert (tokenizer.encode([]), tokenizer.decode([])) == ([], "")
    assert tokenizer.encode(tuple(texts))[2] == tokenizer.encode(texts[2])
    one_by_one = [tokenizer.decode(ids) for ids in encoded]
    assert tokenizer.decode(encoded) == tokenizer.decode([np.array(ids, np.uint16) for ids in encoded]) == one_by_one
    assert tokenizer.decode(np.array([encoded[0], encoded[0]])) == one_by_one[:1] * 2
    for wrong, says in ((17, "int 17"), (b"a", "bytes b'a'"), (["a", None], "NoneType None"), ([["a"]], "list")):
        with pytest.raises(TypeError, match=f"encode takes a text or a list of texts, not {says}"):
            tokenizer.encode(wrong)
    with pytest.raises(UsageError, match="ids must be a list or array of integers, not int"):
        tokenizer.decode(17)


# Other processes, and Python's own checks.


def test_a_tokenizer_in_use_is_pickled_without_its_engine(tokenizer_path, real_texts):
    """`Dataset.map(num_proc=2)` and joblib send it to processes, which construct engines of their own."""
    tokenizer = tm.load_tokenizer(tokenizer_path)
    fresh = pickle.dumps(tokenizer)
    ids = tokenizer.encode(real_texts[0])
    assert tokenizer.decode(ids) == real_texts[0]
    assert pickle.dumps(tokenizer) == fresh, "what was done with it shows, so that caches which digest it would miss"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(tokenizer.encode, (real_texts[0],)) == ids
    assert copy.deepcopy(tokenizer).encode(real_texts[0]) == ids


def test_the_development_mode_of_python(tokenizer_path):
    """`python -X dev` checks more, also what libraries do while they are imported. Here every warning is an error."""
    code = f"""
from pathlib import Path
from tokenmill.documents import text_array
from tokenmill.encoding.engines import import_fast_engine, make_engine
from tokenmill.encoding.definition import Definition
import_fast_engine()
definition = Definition(Path({str(tokenizer_path / "tokenizer.json")!r}).read_text("utf-8"))
texts = text_array(["hello", "world"])
ids = [make_engine(name, definition).encode(texts)[0].tolist() for name in ("gigatoken", "tokenizers")]
assert ids[0] == ids[1], ids
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
