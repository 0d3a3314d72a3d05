"""What people write who know other libraries is answered with what to write here, which runs."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import tokenmill as tm
from tokenmill import user_cache
from tokenmill.errors import UnknownOptionError
from tokenmill.synonyms import table

TEXTS = [" ".join(["the cat sat on the mat"] * (i % 7 + 1)) for i in range(60)]
NAMED = [(of, text, name) for many, text, names in table("names") for of in many.split() for name in names.split()]
OBJECTS = ("Store", "View", "Source", "Loader", "Tokenizer", "Estimate", "Recipe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("habits")
    (folder / "data").mkdir()
    (folder / "bin").mkdir()
    (folder / "data/corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "recipe.yaml").write_text(
        "sources: {web: data/corpus.jsonl}\ntokenizer: bytes\npack: {seq_len: 64}\nsplit: {train: 0.5, eval: 0.5}\n"
        "load: {batch_size: 2}\n"
    )
    ids = np.arange(200, dtype=np.uint16)
    ids[9::10] = 256  # eos
    ids.tofile(folder / "bin/train.bin")
    np.save(folder / "bin/train.npy", ids)
    tm.build(folder / "data/corpus.jsonl", "bytes", folder / "store", progress="quiet")
    return folder


@pytest.fixture
def world(folder, monkeypatch):
    """The names in the answers, in a folder with the files of the answers."""
    monkeypatch.chdir(folder)
    store = tm.open(folder / "store")
    view = tm.pack(store, 64)
    loader = tm.load(view, 4, epochs=1)
    return {
        "tm": tm, "np": np, "torch": pytest.importorskip("torch"), "store": store, "view": view, "loader": loader,
        "batches": iter(loader), "mixture": tm.mix({"a": (view, 1)}), "source": tm.read("data/corpus.jsonl"),
        "tokenizer": tm.load_tokenizer("bytes"), "estimate": tm.estimate("data/corpus.jsonl", "bytes"),
        "recipe": tm.recipe("recipe.yaml"), "state": loader.state_dict(), "ids": store[0], "range": range, "len": len,
        "print": print, "list": list, "next": next, "iter": iter,
    }  # fmt: skip


@pytest.mark.parametrize("text", sorted({text for _, text, _ in NAMED}))
def test_what_to_write_runs(world, text):
    code = text.removeprefix("write ").replace("{self}", "view").replace("{name}", "UsageError")
    names = {*world, "id"}  # "id" in comprehensions
    for owner, name in re.findall(
        r"(?<!')\b(tm|store|view|mixture|loader|tokenizer|source|estimate|recipe)\.(\w+)", code
    ):
        assert hasattr(world[owner], name), text
    if text.startswith("write "):
        end = max(end for end in range(len(code) + 1) if _is_expression(code[:end], names))
        eval(code[:end], world)  # noqa: S307


def _is_expression(code: str, names: set[str]) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(code, mode="eval")))
    except SyntaxError:
        return False
    return {node.id for node in nodes if isinstance(node, ast.Name)} <= names


def test_every_name_of_another_library_is_answered(world):
    for of, text, name in NAMED:
        found = {"tm": tm} | {each: world[each.lower()] for each in OBJECTS}
        if of not in found or name.startswith(("__", "[")):
            continue
        words = text.replace("{name}", name).replace("{self}", of.lower())
        for answers in [found[of]] if of == "tm" else [found[of], type(found[of])]:
            with pytest.raises(AttributeError) as caught:
                raise ValueError(f"{of}.{name} is there: {getattr(answers, name)}")
            assert str(caught.value).endswith(f": {words}"), (of, name)


def test_a_name_has_one_meaning():
    assert len({(of, name) for of, _, name in NAMED}) == len(NAMED)


@pytest.mark.parametrize("name", ["n_docs", "total_documents", "numDocs", "get_num_documents"])
def test_a_name_is_known_by_its_words(world, name):
    with pytest.raises(AttributeError, match=re.escape(f"Store has no {name!r}: write len(store)")):
        getattr(world["store"], name)


def test_a_misspelt_name_is_answered_with_the_nearest(world):
    with pytest.raises(AttributeError, match=r"'View' object has no attribute 'seqlen'; did you mean seq_len\?"):
        _ = world["view"].seqlen
    with pytest.raises(AttributeError, match="did you mean import_tokens"):
        _ = tm.import_token
    for folder in (Path(tm.__file__).parent / "__init__.py").parent.iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            exec(f"from tokenmill import {folder.name}")


def test_other_names_are_not_there(world):
    for name in OBJECTS:
        with pytest.raises(AttributeError, match=rf"'{name}' object has no attribute 'xyzzy'; it has \w+, .*\w$"):
            _ = world[name.lower()].xyzzy
        assert not hasattr(world[name.lower()], "__cuda_array_interface__")
        assert not hasattr(type(world[name.lower()]), "__torch_function__")


def test_an_error_in_a_property_is_its_own(world, monkeypatch):
    monkeypatch.setattr(tm.Store, "num_shards", property(lambda self: self.nothing_of_this_name))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = world["store"].num_shards


def test_copies_and_pickles(world):
    for name in set(OBJECTS) - {"Loader", "Recipe"}:
        for made in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):  # noqa: S301
            assert repr(made(world[name.lower()])) == repr(world[name.lower()])


@pytest.mark.parametrize(
    ("typed", "kind", "said"),
    [
        ("tm.Store('store')", TypeError, "tm.open('store')"),
        ("tm.View(store, 64)", TypeError, "tm.pack(store, 64)"),
        ("tm.Loader(view, batch_size=4)", TypeError, "tm.load(view, 4)"),
        ("tm.Tokenizer('gpt2')", TypeError, "tm.load_tokenizer("),
        ("tm.Source('data')", TypeError, "tm.read("),
        ("tm.Tokenizer.from_pretrained('gpt2')", AttributeError, "tm.load_tokenizer("),
        ("store[0, :10]", TypeError, "store[0][:10]"),
        ("store['text']", TypeError, "store.text(0)"),
        ("store['input_ids']", TypeError, "store.to_arrow()"),
        ("view['labels']", TypeError, "view.rows("),
        ("view[0, :10]", TypeError, "view[0]['input_ids'][:10]"),
        ("np.asarray(store)", TypeError, "np.concatenate(list(store))"),
        ("store + store", TypeError, "tm.build"),
        ("view + view", TypeError, "tm.mix("),
        ("tokenizer.encode('a', return_tensors='pt')", UnknownOptionError, "torch.tensor"),
        ("tokenizer.encode('a', xyzzy=1)", TypeError, "unexpected keyword argument 'xyzzy'"),
        ("tm.export(store, 'out', 'nanogpt')", TypeError, "by position it takes data, out; by keyword format='nanogpt'"),
        ("tm.load('data/corpus.jsonl', 4, 'bytes', 32)", TypeError, "by keyword"),
        ("tm.mix([view, view], [0.7, 0.3])", TypeError, '{"web": (web, 0.7)'),
        ("tm.open('store', mode='r')", UnknownOptionError, "has no option 'mode'"),
        ("tm.open()", TypeError, "tm.open() missing 1 required positional argument: 'path'"),
        ("tokenizer.decode(tokenizer('a'))", TypeError, "ids must be a list or array of integers, not dict"),
        ("tokenizer.decode(5, skip_special_tokens=True)", TypeError, "must be a list or array of integers, not int"),
        ("tm.load('store')", tm.errors.UsageError, "tm.open"),
        ("tm.export(loader, 'out', format='pt')", TypeError, "loader.data"),
        ("tm.pack(tm.read('data'), 64)", TypeError, "tm.build(source"),
        ("tm.import_tokens(np.arange(9), 'out')", TypeError, "ids.tofile("),
        ("tm.import_tokens('bin/train.npy', 'out')", tm.errors.InputError, "np.load("),
        ("tm.import_tokens('data/corpus.jsonl', 'out')", tm.errors.InputError, "tm.build"),
        ("tm.import_tokens([1, 2], 'out')", TypeError, "tofile('train.bin')"),
        ("tm.pack([store, store], 64)", TypeError, "one tm.build"),
        ("tm.open(store)", TypeError, "it is a store already"),
        ("tm.estimate(store, 'bytes')", TypeError, "it has tokens, not text"),
        ("tm.build([[1, 2], [3]], 'bytes')", TypeError, "tm.import_tokens"),
        ("tm.build({'a': 'one text', 'b': 'another'}, 'bytes')", TypeError, "list(texts.values())"),
        ("tm.build('data\\\\corpus.jsonl', 'bytes')", tm.errors.MissingInputError, "is it data/corpus.jsonl?"),
        ("tm.build('a b c d e ' * 100, 'bytes')", tm.errors.MissingInputError, "e a b c d e '; is it a text?"),
        ("tm.build('data/corpus.jsonl', 'bytes', split='train')", tm.errors.UsageError, "leave split out to read all"),
        ("tm.build('data/corpus.jsonl', 'bytes', split='train[:9]')", tm.errors.UsageError, "max_rows="),
        ("tm.build('data/corpus.jsonl', 'bytes', 'data')", tm.errors.UsageError, "another folder for the store"),
        ("tm.export(store, 'out', format='hf', split=0.1)", TypeError, "view.split(train=0.9, val=0.1)"),
        ("tm.export(store, 'out', format='npy')", tm.errors.UsageError, "np.concatenate(list(store))"),
        ("tokenizer('a', return_tensors='pt')", UnknownOptionError, "torch.tensor"),
        ("tokenizer[70]", TypeError, "tokenizer.token_name(70)"),
        ("tokenizer['a']", TypeError, "tokenizer.encode('a text')"),
        ("source[0]", TypeError, "max_rows=10).text(0)"),
        ("recipe['pack']", TypeError, "recipe.view()"),
        ("tm.build([('a', 1)], 'bytes')", TypeError, "row['text']"),
        ("tm.build([('a', [1, 2])], 'bytes')", TypeError, "row['text']"),
        ("tm.build({'text': {'a': 'one', 'b': 'two'}}, 'bytes')", TypeError, "frame.to_dict('list')"),
        ("tm.build('data', 'bytes', pattern='*.jsonl')", UnknownOptionError, "give the pattern as the input"),
        ("tm.build('data', 'bytes', callback=print)", UnknownOptionError, "progress takes a function"),
        ("tm.build('data', 'bytes', filter_fn=len)", UnknownOptionError, "give a generator"),
        ("tm.load(view, 4, limit=10)", UnknownOptionError, "leave its loop"),
        ("tm.mix(web=(view, 0.7), code=(view, 0.3))", UnknownOptionError, "tm.mix({'web'"),
        ("tm.export(store, 'out', format='nanogpt', dtype=np.uint16)", tm.errors.UsageError, "by the size of the vocabulary"),
        ("estimate['tokens']", TypeError, "estimate.tokens"),
        ("store.text([0, 1])", TypeError, "[store.text(i) for i in"),
        ("loader.load_state_dict({})", tm.errors.MismatchError, "loader.state_dict()"),
    ],
)  # fmt: skip
def test_calls_of_another_library_are_answered(world, typed, kind, said):
    with pytest.raises(kind) as caught:
        eval(typed, world)  # noqa: S307
    assert said in str(caught.value)


def test_shares_are_text_or_a_dict(world, tmp_path):
    for number, shares in enumerate(["train=0.5,val=0.5", {"train": 0.5, "val": 0.5}]):
        tm.export(world["store"], tmp_path / str(number), format="nanogpt", shares=shares)
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_encodings_of_tiktoken_need_no_prefix(monkeypatch):
    asked = []
    monkeypatch.setattr("tokenmill.encoding.conversion.tiktoken_bpe.named", lambda name: asked.append(name) or 1 / 0)
    for name in ("cl100k_base", "o200k_harmony", "p50k_edit"):
        with pytest.raises(ZeroDivisionError):
            tm.load_tokenizer(name)
    assert asked == ["cl100k_base", "o200k_harmony", "p50k_edit"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("tm.xyzzy", "it has Loader, Source, Store, "),
        ("tm.errors.XyzzyErr", "it has BuildError, CorruptError, "),
        ("tm.errors.StoresError", "did you mean StoreError?"),
        ("mixture.xyzzy", "it has counts, fingerprint, "),
        ("view.stats.xyzzy", "it has as_dict, boundaries, "),
        ("view.stats['waste']", "it has as_dict, boundaries, "),
        ("view.stats.fil", "did you mean fill?"),
        ("tm.export(store, 'of_names', format='nanogpt').xyzzy", "it has bytes, failed, files, "),
    ],
)
def test_every_unknown_name_is_answered_with_what_there_is(world, code, says):
    with pytest.raises((AttributeError, KeyError), match=re.escape(says)):
        eval(code, world)  # noqa: S307


def test_names_that_are_imported_are_answered():
    with pytest.raises(ImportError, match=r"write tm\.load\(view, 4, seed=1\)"):
        from tokenmill import DataLoader  # noqa: F401
    with pytest.raises(ImportError, match="has no attribute 'xyzzy'"):
        from tokenmill import xyzzy  # noqa: F401


def test_a_view_is_an_array_of_its_rows(world):
    view = world["view"]
    found = np.asarray(view)
    assert (found == np.stack([row["input_ids"] for row in view])).all()
    assert np.array(view, dtype=np.uint16).dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.uint16, np.dtype("uint16"), "uint16"])
def test_dtypes_of_numpy_are_taken_for_imports(world, dtype, tmp_path):
    assert tm.import_tokens("bin/train.bin", tmp_path / "out", dtype=dtype, eos=256).num_tokens == 200


def test_a_variable_of_the_environment_that_is_not_read(monkeypatch):
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", "mine")
    user_cache._check_variables.cache_clear()
    with pytest.warns(UserWarning, match=r"TOKENMILL_CACHE_DIR is not read; the variables are TOKENMILL_CACHE, "):
        user_cache.cache_folder()
    user_cache.cache_folder()  # says it once


def test_a_recipe_with_a_variable():
    with pytest.raises(tm.errors.UsageError, match=r"has no variables: --set pack\.seq_len"):
        tm.recipe({}, set=["pack={seq_len: ${SEQ_LEN}}"])
