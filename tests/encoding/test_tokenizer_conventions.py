"""What people know tokenizers by from other libraries, on a loaded tokenizer and on that of a store."""

from __future__ import annotations

import copy
import io
import json
import pickle
import shutil
import typing

import pytest

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.selection import choosing
from tokenmill.errors import StoreError, UsageError

KINDS = ["loaded", "of a store", "pickled", "pickled, of a store"]


@pytest.fixture(scope="module")
def store(tmp_path_factory, tokenizer_path) -> tm.Store:
    out = tmp_path_factory.mktemp("conventions") / "corpus"
    return tm.build(iter(["hello world", "a\n\nb"]), tokenizer_path, out, workers=0, progress="quiet")


@pytest.fixture(params=KINDS)
def tokenizer(request, store, tokenizer_path) -> tm.Tokenizer:
    found = store.tokenizer if "store" in request.param else tm.load_tokenizer(tokenizer_path)
    return pickle.loads(pickle.dumps(found)) if "pickled" in request.param else found  # noqa: S301


def test_words_of_other_libraries(tokenizer, store, tokenizer_path):
    ids = store[0][:-1].tolist()
    table = {
        "encode": tokenizer.encode("hello world") == ids,
        "encode, as scripts do": tokenizer.encode("hello world", add_special_tokens=False) == ids,
        "encode a list": tokenizer.encode(["hello world"]) == [ids],
        "one more id": tokenizer.encode("hello world") + ids == ids + ids,
        "call": tokenizer("hello world") == {"input_ids": ids},
        "call with a list": tokenizer(["hello world"]) == {"input_ids": [ids]},
        "decode": tokenizer.decode(ids) == "hello world",
        "decode a document": tokenizer.decode(store[0]) == "hello world<|endoftext|>",
        "decode without eos": tokenizer.decode(store[0], skip_special_tokens=True) == "hello world",
        "decode several": tokenizer.decode(list(store), skip_special_tokens=True) == ["hello world", "a\n\nb"],
        "decode nothing": tokenizer.decode([], skip_special_tokens=True) == "",
        "len": len(tokenizer) == tokenizer.vocab_size == 4096,
        "eos": tokenizer.eos_token_id == tokenizer.eos_id == 0,
        "bos and pad": (tokenizer.bos_token_id, tokenizer.pad_token_id) == (None, None),
        "names": tokenizer.token_name(0) == "<|endoftext|>",
        "equal": tokenizer == tm.load_tokenizer(tokenizer_path) and tokenizer == store.tokenizer,
        "equal the other way": tm.load_tokenizer(tokenizer_path) == tokenizer,
        "not equal": tokenizer not in (tm.load_tokenizer("bytes"), tokenizer.fingerprint, None),
        "hash": len({tokenizer, store.tokenizer, tm.load_tokenizer(tokenizer_path, engine="reference")}) == 1,
        "a key": {tm.load_tokenizer(store): 1}[tokenizer] == 1,
        "copy": copy.deepcopy(tokenizer).encode("hello world") == ids,
    }
    assert [name for name, holds in table.items() if not holds] == []
    with pytest.raises(UsageError, match="encode adds no special tokens: tm"):
        tokenizer.encode("a", add_special_tokens=True)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("convert_tokens_to_ids", "write tokenizer.added"),
        ("batch_decode", r"write tokenizer.decode\(\[\[70"),
        ("encode_batch", r"write tokenizer.encode\(\["),
        ("n_vocab", "write tokenizer.vocab_size"),
        ("eot_token", "write tokenizer.eos_id"),
        ("get_vocab", "write {tokenizer.token_name"),
        ("nonsense", "has no attribute 'nonsense'; it has .*bos_id, "),
    ],
)
def test_what_it_lacks_is_answered(tokenizer, name, answer):
    with pytest.raises(AttributeError, match=answer):
        getattr(tokenizer, name)
    assert not hasattr(tokenizer, name)


def test_what_fails_inside_is_not_told_as_a_missing_attribute(tokenizer_path, monkeypatch):
    tokenizer = tm.load_tokenizer(tokenizer_path)
    monkeypatch.setattr(type(tokenizer), "special_ids", property(lambda self: None.inside))
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'inside'"):
        _ = tokenizer.special_ids


@pytest.mark.parametrize(
    ("files", "pad"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"pad_token": "hello"}}, None),  # which is no token
        ({"tokenizer_config.json": {"pad_token": "<|endoftext|>"}}, 0),
        ({"special_tokens_map.json": {"pad_token": {"content": "<|endoftext|>"}}}, 0),
        ({"tokenizer.json": "<pad>"}, 4096),
    ],
)
def test_pad(files, pad, tokenizer_path, tmp_path):
    """What the files name, or else what has a usual name."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    body = json.loads((tokenizer_path / "tokenizer.json").read_text())
    if "tokenizer.json" in files:
        body["added_tokens"].append({**body["added_tokens"][0], "id": 4096, "content": "<pad>"})
    for name, content in {**files, "tokenizer.json": body}.items():
        (folder / name).write_text(json.dumps(content))
    assert tm.load_tokenizer(folder).pad_token_id == pad
    store = tm.build(iter(["a"]), folder, tmp_path / "store", workers=0, progress="quiet")
    assert store.tokenizer.pad_token_id == pad


def test_a_store_tells_which_ids_are_around_its_documents(tmp_path, tokenizer_path):
    """Those that the build was given, not those of the tokenizer's files."""
    around = {"eos": 7, "bos": 5}
    store = tm.build(iter(["a"]), tokenizer_path, tmp_path / "store", workers=0, progress="quiet", **around)
    assert (store.tokenizer.eos_token_id, store.tokenizer.bos_token_id) == (7, 5) == (store[0][-1], store[0][0])
    assert store.tokenizer.load().eos_id == tm.load_tokenizer(store).eos_id == 0


class Names(pickle.Unpickler):
    """Notes what a pickle imports."""

    def __init__(self, body: bytes) -> None:
        super().__init__(io.BytesIO(body))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> typing.Any:
        self.modules.add(module.partition(".")[0])
        return super().find_class(module, name)


def test_pickles_hold_data_and_no_object_of_another_library():
    """A tokenizer of transformers is loaded from its files again, in the process that reads the pickle."""
    import transformers

    tokenizer = tm.load_tokenizer(transformers.ByT5Tokenizer())
    reader = Names(pickle.dumps(tokenizer))
    again = reader.load()
    assert reader.modules <= {"tokenmill", "builtins", "copyreg"}
    assert again == tokenizer
    assert again.encode("é") == tokenizer.encode("é")


def test_an_object_that_only_this_process_has_is_not_pickled():
    import transformers

    class Local(transformers.ByT5Tokenizer):
        pass

    with pytest.raises(TypeError, match=r"cannot be pickled: slow Python tokenizer, .* runs only in this process"):
        pickle.dumps(tm.load_tokenizer(Local()))


# A store, its tokenizer, its path.


@pytest.fixture(params=["store", "its tokenizer", "path", "str", "of its tokenizer", "loaded"])
def spec(request, store) -> object:
    return {
        "store": store,
        "its tokenizer": store.tokenizer,
        "path": store.path,
        "str": f"{store.path}/",
        "of its tokenizer": store.tokenizer.path,
        "loaded": store.tokenizer.load(),
    }[request.param]


def test_a_store_wherever_a_tokenizer_is_expected(spec, store, tmp_path):
    assert tm.load_tokenizer(spec) == store.tokenizer
    assert type(tm.load_tokenizer(spec)) is tm.Tokenizer
    options = {"workers": 0, "progress": "quiet"}
    built = tm.build(iter(["hello world"]), spec, tmp_path / "out", **options)
    assert (built[0].tolist(), built.tokenizer) == (store[0].tolist(), store.tokenizer)
    again = tm.build(iter(["hello world"]), store.tokenizer.path, tmp_path / "again", **options)
    assert built == again
    (tmp_path / "a.txt").write_text("hello world")
    assert tm.estimate(tmp_path / "a.txt", spec).tokens == len(store[0])
    with pytest.raises(UsageError, match="special_tokens='none' is not one of"):
        tm.load_tokenizer(spec, special_tokens="none")
    assert tm.load_tokenizer(spec, special_tokens="text") != store.tokenizer
    store[0].tofile(tmp_path / "ids.bin")
    imported = tm.import_tokens(tmp_path / "ids.bin", tmp_path / "imported", tokenizer=spec, format="nanogpt")
    assert (imported.tokenizer, imported[0].tolist()) == (store.tokenizer, store[0].tolist())


def test_a_store_on_the_command_line_and_in_a_recipe(store, tmp_path):
    (tmp_path / "a.txt").write_text("hello world")
    shutil.copytree(store.path, tmp_path / "corpus")
    out = tmp_path / "from-command"
    assert main(["build", str(tmp_path / "a.txt"), "-t", str(store.path), "-o", str(out), "-q"]) == 0
    (tmp_path / "recipe.yaml").write_text(
        "sources: {a: a.txt}\ntokenizer: corpus/\nbuild: {workers: 0}\npack: {seq_len: 4}\n"
    )
    (made,) = tm.recipe(tmp_path / "recipe.yaml").stores().values()
    for each in (tm.open(out), made):
        assert (each.tokenizer, each[0].tolist()) == (store.tokenizer, store[0].tolist())


def test_a_store_without_a_tokenizer(store, tmp_path):
    copied = shutil.copytree(store.path, tmp_path / "copied")
    shutil.rmtree(copied / "tokenizer")
    opened = tm.open(copied)
    assert (opened.tokenizer == store.tokenizer, opened.tokenizer.eos_token_id, len(opened.tokenizer)) == (
        True,
        0,
        4096,
    )
    for ask in (
        lambda: opened.tokenizer.encode("a"),
        lambda: tm.load_tokenizer(opened),
        lambda: opened.tokenizer.added,
    ):
        with pytest.raises(StoreError, match=r"has no tokenizer to decode with: .* run its build again"):
            ask()


def test_a_tokenizer_in_a_folder_goes_before_one_below_it(store, tmp_path):
    shutil.copytree(store.tokenizer.path, tmp_path / "tokenizer")
    tm.load_tokenizer("bytes")._definition.save(tmp_path)
    assert tm.load_tokenizer(tmp_path) == tm.load_tokenizer("bytes")


# The engine.


def test_properties_cost_nothing(tokenizer_path, tmp_path, monkeypatch):
    """The proof of an engine, which takes seconds, is in a method."""
    import transformers

    proved = []
    prove = choosing.prove
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path))
    monkeypatch.setattr(choosing, "prove", lambda definition, name: proved.append(name) or prove(definition, name))
    tokenizer = tm.load_tokenizer(tokenizer_path)
    known = tokenizer.engine, tokenizer.engine_version, tokenizer.proof
    assert (known, proved) == (("auto", "", ""), [])
    assert tokenizer.choose_engine() == "gigatoken"
    assert (tokenizer.engine, proved) == ("gigatoken", ["gigatoken"])
    assert tokenizer.proof.startswith("proved to give the ids of tokenizers")
    other = tm.load_tokenizer(tokenizer_path)  # what is remembered is known
    assert (other.engine, other.engine_version, proved) == ("gigatoken", tokenizer.engine_version, ["gigatoken"])
    assert tm.load_tokenizer(tokenizer_path, engine="reference").engine == "tokenizers"
    slow = tm.load_tokenizer(transformers.ByT5Tokenizer())
    assert (slow.engine, slow.choose_engine(), slow.engine) == ("auto", "python", "python")
    kept = tm.build(
        iter(["a"]), tokenizer, tmp_path / "store", workers=0, engine="reference", progress="quiet"
    ).tokenizer
    assert kept.choose_engine() == "gigatoken"  # for a large corpus
    assert (kept.engine, kept.proof) == ("tokenizers", "chosen by hand; it is the reference")  # of the store
