"""A recipe means what the verbs mean, and everything that is wrong with it is said before anything runs."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import tokenmill as tm
from tokenmill.errors import StoreError, UsageError

WHOLE = """\
sources:
  web:  {path: "data/web/*.jsonl", weight: 0.7}
  code: {path: "data/code/**/*.jsonl", text_field: content, weight: 0.3}
tokenizer: bytes
build: {out: stores, workers: 0, progress: quiet}
pack:  {seq_len: 64, strategy: best_fit}
split: {eval: 0.2}
load:  {global_batch_size: 8, seed: 7}
"""
SMALL = {"sources": {"web": "web.jsonl"}, "tokenizer": "bytes", "pack": {"seq_len": 64}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A recipe beside its data; the program is in another folder."""
    for kind, field, count in (("web", "text", 60), ("code", "content", 40)):
        for part in ("a", "b"):
            path = (
                tmp_path / "data" / kind / part / "x.jsonl"
                if kind == "code"
                else tmp_path / "data" / kind / f"{part}.jsonl"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [{field: f"{kind} {part} {i} " * (i % 12 + 1)} for i in range(count)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(WHOLE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def said(text, tmp_path, **more):
    """The complaint about a recipe, with the file's name alone."""
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        tm.recipe(path, **more)
    return str(caught.value).replace(f"{path}", "recipe.yaml")


def same_batches(one, other, count=5):
    for step in range(count):
        mine, theirs = one.batch(step), other.batch(step)
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert np.array_equal(np.asarray(mine[name]), np.asarray(theirs[name]))


# What it means


def test_a_recipe_is_what_the_verbs_are(folder):
    recipe = tm.recipe(folder / "recipe.yaml")
    web = tm.build(str(folder / "data/web/*.jsonl"), "bytes", folder / "w", workers=0, progress="quiet")
    code = tm.build(
        str(folder / "data/code/**/*.jsonl"), "bytes", folder / "c", text_field="content", workers=0, progress="quiet"
    )
    stores = recipe.stores()
    assert {name: store.fingerprint for name, store in stores.items()} == {
        "web": web.fingerprint,
        "code": code.fingerprint,
    }
    assert stores["web"].path == folder / "stores" / "web"
    parts = {
        name: tm.pack(store, 64, strategy="best_fit").split(eval=0.2, train=0.8)
        for name, store in {"web": web, "code": code}.items()
    }
    for split in ("train", "eval"):
        by_hand = tm.mix({"web": (parts["web"][split], 0.7), "code": (parts["code"][split], 0.3)})
        assert recipe.view(split).fingerprint == by_hand.fingerprint
        same_batches(recipe.loader(split), tm.load(by_hand, global_batch_size=8, seed=7))
    assert recipe.view().fingerprint == recipe.view("train").fingerprint


def test_train_is_what_the_other_splits_leave(folder):
    recipe = tm.recipe(folder / "recipe.yaml", set={"split.test": 0.1})
    assert recipe.splits == ("train", "eval", "test")
    seen = []
    for split in recipe.splits:
        view = recipe.views(split)["web"]
        seen += [{document for row in range(len(view)) for document, _, _ in view.documents(row)}]
    assert len(set.union(*seen)) == sum(map(len, seen)) == 120
    assert all(seen)
    larger = tm.recipe(folder / "recipe.yaml", set={"split.eval": 0.4}).views("eval")["web"]
    assert seen[1] < {document for row in range(len(larger)) for document, _, _ in larger.documents(row)}


def test_a_recipe_without_split_is_all_train(folder):
    recipe = tm.recipe({**SMALL, "sources": {"web": str(folder / "data/web/*.jsonl")}, "build": {"out": folder / "s"}})
    assert recipe.splits == ("train",)
    assert recipe.view().fingerprint == tm.pack(folder / "s" / "web", 64).fingerprint
    with pytest.raises(UsageError, match=r"no split 'eval'; it has train"):
        recipe.view("eval")


def test_splits_by_folder(folder):
    changes = {"split": {"by": "folder", "train": "a", "eval": "b"}, "sources": {"code": WHOLE_CODE}}
    recipe = tm.recipe(folder / "recipe.yaml", set=changes)
    assert recipe.splits == ("train", "eval")
    assert [recipe.view(split).stats.documents for split in recipe.splits] == [40, 40]
    unnamed = tm.recipe(folder / "recipe.yaml", set={**changes, "split": {"by": "folder"}})
    assert unnamed.splits == ("a", "b")
    assert unnamed.view("b").fingerprint == recipe.view("eval").fingerprint
    with pytest.raises(UsageError, match=r"no split 'train'; it has a, b"):
        unnamed.loader()


WHOLE_CODE = {"path": "data/code/**/*.jsonl", "text_field": "content"}


def test_an_unknown_split_is_told_before_anything_is_built(folder):
    with pytest.raises(UsageError, match=r"recipe.yaml has no split 'valid'; it has train, eval"):
        tm.recipe(folder / "recipe.yaml").loader("valid")
    assert not (folder / "stores").exists()


def test_sources_without_weights_end_together(folder):
    changes = {"sources.web.weight": None, "sources.code.weight": None, "load.global_batch_size": 1}
    recipe = tm.recipe(folder / "recipe.yaml", set=changes)
    mixture = recipe.view()
    assert mixture.counts(len(mixture)) == {name: len(view) for name, view in recipe.views().items()}


def test_what_a_loader_is_given_goes_before_the_recipe(folder):
    recipe = tm.recipe(folder / "recipe.yaml")
    loader = recipe.loader("eval", batch_size=2, rank=1, world_size=2, epochs=1, seed=1)
    assert (loader.batch_size, loader.global_batch_size, loader.rank, loader.seed) == (2, 4, 1, 1)
    assert len(loader) == len(recipe.view("eval")) // 4
    with pytest.raises(UsageError, match="loader has no option 'epoch'; did you mean epochs"):
        recipe.loader(epoch=1)
    with pytest.raises(UsageError, match=r"load.batch_size or load.global_batch_size is missing"):
        tm.recipe(folder / "recipe.yaml", set={"load": {"seed": 1}}).loader()


def test_set_changes_keys_and_leaves_the_stores(folder):
    short = tm.recipe(folder / "recipe.yaml")
    built = {name: store.path for name, store in short.stores().items()}
    as_dict = tm.recipe(folder / "recipe.yaml", set={"pack.seq_len": 128, "pack.mask_labels": ["padding", "first"]})
    as_text = tm.recipe(folder / "recipe.yaml", set=["pack.seq_len=128", "pack.mask_labels=[padding, first]"])
    assert as_dict.view().fingerprint == as_text.view().fingerprint != short.view().fingerprint
    assert {name: store.path for name, store in as_dict.stores().items()} == built
    plain = tm.recipe(
        {**SMALL, "sources": {"web": "web.jsonl"}}, set={"sources.web.text_field": "body", "load.seed": 3}
    )
    assert plain.config.sources == {"web": {"path": ("web.jsonl",), "text_field": "body"}}
    assert plain.config.load == {"seed": 3}
    (sweep,) = (tm.recipe(SMALL, set={"pack.seq_len": length}) for length in np.array([256]))
    assert sweep.config.pack == {"seq_len": 256}


def test_without_out_stores_are_in_the_cache(folder):
    changes = {"build": {"cache_dir": "kept", "workers": 0, "progress": "quiet"}}
    stores = tm.recipe(folder / "recipe.yaml", set=changes).stores()
    assert all(folder / "kept" in store.path.parents for store in stores.values())
    (folder / "other").mkdir()
    moved = (folder / "recipe.yaml").rename(folder / "other" / "recipe.yaml")
    (folder / "data").rename(folder / "other" / "data")
    again = tm.recipe(moved, set={"build": {**changes["build"], "cache_dir": "../kept"}}).stores()
    assert {name: store.path.resolve() for name, store in again.items()} == {
        name: store.path.resolve() for name, store in stores.items()
    }


def test_a_store_is_a_source(folder):
    built = tm.recipe(folder / "recipe.yaml").stores()
    changes = {"sources": {"web": {"store": "stores/web"}, "code": {"store": str(built["code"].path)}}}
    recipe = tm.recipe({"pack": {"seq_len": 64}, **changes})
    with pytest.raises(StoreError, match=r"recipe: sources.web: .*elsewhere/stores/web"):
        recipe.stores()
    os.chdir(folder)
    recipe = tm.recipe({"pack": {"seq_len": 64}, **changes})
    assert {name: store.fingerprint for name, store in recipe.stores().items()} == {
        name: store.fingerprint for name, store in built.items()
    }


def test_paths_are_relative_to_the_recipe(folder, tokenizer_path):
    odd = folder / "run [1]*"  # a folder's name is no pattern
    odd.mkdir()
    (odd / "in[1].jsonl").write_text('{"text": "one"}\n')
    (odd / "b.jsonl").write_text('{"text": "two"}\n')
    (odd / "list.txt").write_text(f"{odd}/b.jsonl\n")
    (odd / "tok").mkdir()
    for file in tokenizer_path.iterdir():
        (odd / "tok" / file.name).write_bytes(file.read_bytes())
    text = """
sources:
  glob: "*.jsonl"
  files: ["in[1].jsonl", b.jsonl]
  listed: {path: "@list.txt"}
tokenizer: tok
build: {out: out, workers: 0, progress: quiet}
pack: {seq_len: 8}
"""
    (odd / "recipe.yaml").write_text(text)
    recipe = tm.recipe(os.path.relpath(odd / "recipe.yaml"))
    assert {name: len(store) for name, store in recipe.stores().items()} == {"glob": 2, "files": 2, "listed": 1}
    assert recipe.stores()["glob"].tokenizer.fingerprint == tm.load_tokenizer(odd / "tok").fingerprint


def test_a_tokenizer_that_lies_in_the_wrong_folder_is_not_guessed(folder, tokenizer_path):
    (folder / "elsewhere" / "tok.json").write_bytes((tokenizer_path / "tokenizer.json").read_bytes())
    recipe = tm.recipe(folder / "recipe.yaml", set={"tokenizer": "tok.json"})
    with pytest.raises(UsageError, match=r"tokenizer: tok.json is in the current folder.*write elsewhere/tok.json"):
        recipe.stores()
    with pytest.raises(tm.errors.MissingTokenizerError, match=r"tokenizer: .*/gone/tok.json does not exist"):
        tm.recipe(folder / "recipe.yaml", set={"tokenizer": "gone/tok.json"}).stores()


def test_every_source_is_found_before_one_is_built(folder):
    recipe = tm.recipe(folder / "recipe.yaml", set={"sources.code.path": "data/cod/*.jsonl"})
    with pytest.raises(tm.errors.MissingInputError, match=r"sources.code: no file matches '.*/data/cod/\*.jsonl'"):
        recipe.stores()
    assert not (folder / "stores").exists()


# The block of other tools

BLOCK = """\
tokenizer: {tokenizer_name: bytes, context_length: 32, overlap: 8, batch_size: 1000, num_proc: 2, verbose_level: INFO}
sources: {web: "data/web/*.jsonl"}
build: {out: stores}
"""


def test_the_block_people_have_means_windows(folder):
    (folder / "recipe.yaml").write_text(BLOCK)
    recipe = tm.recipe(folder / "recipe.yaml", set={"tokenizer.show_progress": False})
    assert recipe.config.build == {"out": "stores", "workers": 2, "progress": "plain"}
    store = recipe.stores()["web"]
    assert recipe.view().fingerprint == tm.pack(store, 32, strategy="windows", overlap=8).fingerprint
    # As a tokenizer that cuts each document with a stride would: every window begins overlap tokens before the last ended.
    ids = store[11]
    mine = [row for row in range(len(recipe.view())) if recipe.view().documents(row)[0][0] == 11]
    spans = [recipe.view().documents(row)[0][1:] for row in mine]
    assert spans == [(low, min(low + 32, len(ids))) for low in range(0, max(len(ids) - 8, 1), 24)]
    other = tm.recipe(folder / "recipe.yaml", set={"tokenizer.batch_size": 1})
    assert other.view().fingerprint == recipe.view().fingerprint  # no token depends on it


@pytest.mark.parametrize(
    ("changes", "pack", "build"),
    [
        ({"overlap": 0}, {"seq_len": 32, "strategy": "windows"}, {}),
        ({"overlap": None, "num_proc": None, "batch_size": None}, {"seq_len": 32, "strategy": "windows"}, {}),
        ({"num_proc": 32}, {"seq_len": 32, "strategy": "windows"}, {"workers": 32}),
        ({"verbose_level": "DEBUG"}, {"seq_len": 32, "strategy": "windows"}, {"progress": "verbose"}),
        ({"verbose_level": "ERROR"}, {"seq_len": 32, "strategy": "windows"}, {"progress": "quiet"}),
        (
            {"verbose_level": "WARNING", "show_progress": True},
            {"seq_len": 32, "strategy": "windows"},
            {"progress": "bar"},
        ),
        ({"show_progress": True}, {"seq_len": 32, "strategy": "windows"}, {"progress": "auto"}),
    ],
)
def test_the_block_in_the_words_of_the_verbs(changes, pack, build):
    block = {"tokenizer_name": "bytes", "context_length": 32, **changes}
    config = tm.recipe({"sources": {"web": "web.jsonl"}, "tokenizer": block}).config
    assert (config.tokenizer, config.pack, config.build) == ("bytes", pack, build)


def test_the_block_goes_with_another_strategy():
    block = {"tokenizer_name": "bytes", "context_length": 32, "overlap": 0}
    config = tm.recipe({"sources": {"web": "x.jsonl"}, "tokenizer": block, "pack": {"strategy": "best_fit"}}).config
    assert config.pack == {"strategy": "best_fit", "seq_len": 32}
    config = tm.recipe({**SMALL, "tokenizer": {**block, "context_length": 64, "overlap": 8}}).config  # both say 64
    assert config.pack == {"seq_len": 64, "overlap": 8, "strategy": "windows"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("batch_size: 0", "tokenizer.batch_size: 0 is not a whole number from 1 to 10000"),
        ("batch_size: 10001", "tokenizer.batch_size: 10001 is not a whole number from 1 to 10000"),
        ("num_proc: 33", "tokenizer.num_proc: 33 is not a whole number from 1 to 32"),
        ("num_proc: 0", "tokenizer.num_proc: 0 is not a whole number from 1 to 32"),
        ("overlap: 32", "tokenizer.overlap: 32 is not a whole number from 0 to 31, below context_length"),
        ("overlap: -1", "tokenizer.overlap: -1 is not a whole number from 0 to"),
        ("verbose_level: info", "tokenizer.verbose_level: info is not one of DEBUG, INFO, WARNING, ERROR"),
        ("show_progress: 1", "tokenizer.show_progress: 1 is not true or false"),
        ("context_len: 2", "tokenizer.context_len is not a key of a recipe; did you mean context_length?"),
        ("overlap: 8}\npack: {strategy: best_fit", "pack: overlap=8 is for strategy 'concat' and 'windows'"),
    ],
)
def test_the_block_is_checked(tmp_path, change, complaint):
    text = f"sources: {{web: x.jsonl}}\ntokenizer:\n  {{tokenizer_name: bytes, context_length: 32,\n   {change}}}\n"
    assert said(text, tmp_path).startswith(f"recipe.yaml, line 4: {complaint}")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("pack: {seq_len: 64}", "pack.seq_len is 64, but tokenizer.context_length (recipe.yaml, line 1) means 32"),
        ("pack: {overlap: 4}", "pack.overlap is 4, but tokenizer.overlap (recipe.yaml, line 1) means 8"),
        ("build: {workers: 4}", "build.workers is 4, but tokenizer.num_proc (recipe.yaml, line 1) means 2"),
        (
            "build: {progress: bar}",
            "build.progress is 'bar', but tokenizer.verbose_level (recipe.yaml, line 1) means 'auto'",
        ),
    ],
)
def test_the_block_and_the_sections_do_not_contradict(tmp_path, more, complaint):
    text = BLOCK.replace("build: {out: stores}", more)
    assert said(text, tmp_path) == f"recipe.yaml, line 3: {complaint}; give one of them"


def test_the_block_needs_its_length_and_a_name():
    with pytest.raises(UsageError, match=r"tokenizer.context_length is missing"):
        tm.recipe({"sources": {"web": "x.jsonl"}, "tokenizer": {"tokenizer_name": "bytes"}})
    with pytest.raises(UsageError, match=r"tokenizer.tokenizer_name is missing: web is text"):
        tm.recipe({"sources": {"web": "x.jsonl"}, "tokenizer": {"context_length": 32}})


# What is wrong, and where


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("seq_len: 64", "seq_len: 0", "line 6: pack.seq_len: 0 is not a whole number from 1 to 2147483647"),
        ("seq_len: 64", "seqlen: 64", "line 6: pack.seqlen is not a key of a recipe; did you mean seq_len?"),
        ("seq_len: 64", "seq-len: 64", "line 6: pack.seq-len is not a key of a recipe; did you mean seq_len?"),
        ("seq_len: 64, ", "", "line 1: pack.seq_len is missing"),
        (
            "seq_len: 64",
            'seq_len: "64"',
            "line 6: pack.seq_len: '64' is not a whole number from 1 to 2147483647; write it",
        ),
        ("seq_len: 64", "seq_len: true", "line 6: pack.seq_len: true is not a whole number"),
        ("seq_len: 64", "seq_len: [64]", "line 6: pack.seq_len: a list is not a whole number"),
        (
            "seq_len: 64",
            "seq_len: 64.0",
            "line 6: pack.seq_len: 64.0 is not a whole number from 1 to 2147483647; write 64",
        ),
        ("seq_len: 64", "seq_len: ", "line 6: pack.seq_len has no value"),
        ("best_fit", "bestfit", "line 6: pack.strategy: bestfit is not one of concat, best_fit, pad, windows"),
        ("best_fit", "best_fit, overlap: 4", "line 6: pack: overlap=4 is for strategy 'concat' and 'windows'"),
        ("best_fit", "pad, buckets: [32, 16]", "line 6: pack: buckets="),
        (
            "best_fit",
            "pad, buckets: [16, 32]",
            "line 6: pack.buckets gives rows of several widths, which cannot be mixed",
        ),
        (
            "best_fit",
            "pad, mask_labels: [first, last]",
            "line 6: pack.mask_labels[1]: last is not one of padding, first, overlap",
        ),
        ("best_fit", "pad, fields: []", "line 6: pack: fields is empty"),
        ("pack:  {seq_len: 64, strategy: best_fit}", "pack:", "line 6: pack has nothing below it"),
        ("pack:  {", "pack: 64 # {", "line 6: pack must be keys and values, as in pack: {...}, not 64"),
        ("pack: ", "packing: ", "line 6: packing is not a key of a recipe; did you mean pack?"),
        ("weight: 0.7", "weight: -1", "line 2: sources.web.weight: -1 is not a number from 0 to"),
        ("weight: 0.7", "weight: .inf", "line 2: sources.web.weight: .inf is not a number from 0 to"),
        ("weight: 0.7", "weight: .nan", "line 2: sources.web.weight: .nan is not a number from 0 to"),
        ("weight: 0.7", "max_rows: 3", "line 2: sources.web has no weight, but code has one"),
        ("weight: 0.7", "weight: 0, max_rows: 0", "line 2: sources.web.max_rows: 0 is not a whole number from 1 to"),
        ("weight: 0.7", "weight: 1, limit: 3", "line 2: sources.web.limit is not a key of a recipe"),
        ('path: "data/web/*.jsonl"', "text_field: body", "line 2: sources.web has no path"),
        (
            'path: "data/web/*.jsonl"',
            "store: x, text_field: body",
            "line 2: sources.web.text_field: a store is not read again",
        ),
        ('path: "data/web/*.jsonl"', "store: x, path: y", "line 2: sources.web.path: a store is not read again"),
        ('path: "data/web/*.jsonl"', "path: '-'", "line 2: sources.web.path: standard input can be read once"),
        ('path: "data/web/*.jsonl"', "path: []", "line 2: sources.web.path: a list is empty"),
        (
            'path: "data/web/*.jsonl"',
            "path: [a, 3]",
            "line 2: sources.web.path[1]: 3 is not text; write a number that is meant as text in quotes",
        ),
        ("  web: ", "  we.b: ", "line 2: 'we.b' cannot be the name of a source"),
        ("  web: ", "  ../web: ", "line 2: '../web' cannot be the name of a source"),
        ("text_field: content", "template: '{a'", "line 3: sources.code.template: template '{a' is not valid"),
        (
            "text_field: content",
            "format: json",
            "line 3: sources.code.format: json is not one of auto, text, lines, jsonl",
        ),
        (
            "text_field: content",
            "seq_len: 3",
            "line 3: sources.code.seq_len is not a key of a recipe; did you mean pack.seq_len?",
        ),
        ("tokenizer: bytes\n", "", "line 1: tokenizer is missing: web is text"),
        ("tokenizer: bytes", "tokenizer:", "line 4: tokenizer has no value"),
        (
            "tokenizer: bytes",
            "tokenizer: 3",
            "line 4: tokenizer: 3 is not text; write a number that is meant as text in quotes",
        ),
        ("workers: 0", "workers: -1", "line 5: build.workers: -1 is not a whole number from 0 to"),
        ("workers: 0", "shard_bytes: big", "line 5: build.shard_bytes: big is not a size; write it like 64MB"),
        ("workers: 0", "shard_bytes: 1000", "line 5: build.shard_bytes: 1000 is less than 1KiB"),
        ("workers: 0", "cache_dir: x", "line 5: build.cache_dir: with build.out no store is in the cache"),
        ("workers: 0", "engine: fast", "line 5: build.engine: fast is not one of auto, reference,"),
        ("workers: 0", "eos: no", "line 5: build.eos: no is not a token, an id from 0, auto or none: YAML reads false"),
        (
            "workers: 0",
            "template: x",
            "line 5: build.template is not a key of a recipe; did you mean sources.NAME.template?",
        ),
        ("eval: 0.2", "eval: 0", "line 7: split.eval: 0 is not a number above 0 and up to 1"),
        ("eval: 0.2", "eval: 1", "line 7: split: the shares sum to 1, which leaves nothing for train"),
        ("eval: 0.2", "eval: 0.2, train: 0.9", "line 7: split: eval=0.2, train=0.9: the shares sum to 1.1, above 1"),
        ("eval: 0.2", "seed: 3", "line 7: split has no named part"),
        ("eval: 0.2", "eval: 0.2, seed: x", "line 7: split.seed: x is not a whole number"),
        ("eval: 0.2", "by: folder, eval: 0.2", "line 7: split.eval: 0.2 is not text"),
        ("eval: 0.2", "by: rows, eval: 0.2", "line 7: split.by: rows is not one of document, folder"),
        ("eval: 0.2", "self: 0.2", "line 7: split.self: a split cannot have this name"),
        ("seed: 7", "batch_size: 4", "line 8: load.batch_size (rows per rank) and load.global_batch_size"),
        ("seed: 7", "rank: 0", "line 8: load.rank is not a key of a recipe"),
        ("seed: 7", "seed: -1", "line 8: load.seed: -1 is not a whole number from 0 to 9223372036854775807"),
        ("seed: 7", "shuffle: 1", "line 8: load.shuffle: 1 is not true or false"),
        ("seed: 7", "verify: always", "line 8: load.verify: always is not one of first-touch"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, old, new, complaint):
    assert WHOLE.count(old) == 1
    assert said(WHOLE.replace(old, new), tmp_path).startswith(f"recipe.yaml, {complaint}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "recipe.yaml is empty"),
        ("# nothing\n", "recipe.yaml is empty"),
        (
            "- a\n- b\n",
            "recipe.yaml, line 1: a recipe must be keys and values, as in sources: {web: 'data/*.jsonl'}, not a list",
        ),
        ("web.jsonl\n", "recipe.yaml, line 1: a recipe must be keys and values"),
        ("tokenizer: bytes\n", "recipe.yaml, line 1: sources is missing"),
        ("sources: data.jsonl\n", "recipe.yaml, line 1: sources must be keys and values"),
        ("sources: {}\n", "recipe.yaml, line 1: sources is empty"),
        ("sources:\n\tweb: a.jsonl\n", "recipe.yaml, line 2: this is not YAML: "),
        ("sources: {web: *.jsonl}\n", "recipe.yaml, line 1: this is not YAML: "),
        ("a: 1\nb: 2\na: 3\n", "recipe.yaml, line 3: a is given twice, in line 1 too"),
        ("pack: {seq_len: 1,\n seq_len: 2}\n", "recipe.yaml, line 2: seq_len is given twice, in line 1 too"),
        ("a: 1\n b: 2\n", "recipe.yaml, line 2: this is not YAML: "),
        ("a: 'x\n", "recipe.yaml, line 2: this is not YAML: "),
        ("a: 1\n---\nb: 2\n", "recipe.yaml, line 2: this is not YAML: "),
        ("a: 1\nb: \x07\n", "recipe.yaml, line 2: a character that YAML does not allow, '\\x07'"),
        ("a: 1\n? [x]\n: 2\n", "recipe.yaml, line 2: a key must be a word"),
        ("a: &x {b: *x}\n", "recipe.yaml, line 1: lists and mappings are nested"),
        ("a: " + "[" * 5000, "recipe.yaml"),
        ("base: &x {a: 1}\npack: {<<: *x}\n", "recipe.yaml, line 2: << is not supported"),
        (
            "a: 1\nb: !!python/object/apply:os.mkdir [made]\n",
            "recipe.yaml, line 2: the tag !!python/object/apply:os.mkdir",
        ),
        ("a: !!python/name:os.system x\n", "recipe.yaml, line 1: the tag !!python/name:os.system is not supported"),
        ("a: !own {b: 1}\n", "recipe.yaml, line 1: the tag !own is not supported"),
        ("a: !!set {b, c}\n", "recipe.yaml, line 1: the tag !!set is not supported"),
    ],
)
def test_what_is_no_recipe_at_all(tmp_path, monkeypatch, text, complaint):
    monkeypatch.chdir(tmp_path)
    assert said(text, tmp_path).startswith(complaint)
    assert os.listdir(tmp_path) == ["recipe.yaml"]


def test_what_cannot_go_together_is_told_where_it_stands(tmp_path):
    text = WHOLE.replace("weight: 0.7", "weight: 0.7, max_rows: 5").replace("workers: 0", "\n  max_rows: 3")
    assert said(text, tmp_path) == (
        "recipe.yaml, line 6: build.max_rows: sources.web has its own max_rows (recipe.yaml, line 2); give one of them"
    )


def test_hints_for_what_yaml_says_badly(tmp_path):
    assert "indent with spaces, not tabs" in said("sources:\n\tweb: a.jsonl\n", tmp_path)
    assert "write text that begins with * & @ % or ` in quotes" in said("sources: {web: *.jsonl}\n", tmp_path)
    assert "write text that begins with * & @ % or ` in quotes" in said("sources:\n  web: @list.txt\n", tmp_path)


def test_lines_that_end_with_a_carriage_return_are_counted(tmp_path):
    """Lines are those of YAML, for which a carriage return alone ends one."""
    assert said("sources:\r  web: x\rpack: {a: 3\rb: 4: 5\r", tmp_path).startswith(
        "recipe.yaml, line 4: this is not YAML"
    )


def test_aliases_do_not_blow_up(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 15)]
    assert said("\n".join(lines), tmp_path).startswith("recipe.yaml, line 1: a0 is not a key of a recipe")


def test_an_anchor_serves_two_places_and_set_changes_one(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "sources: {a: &s {path: x, weight: 1}, b: *s}\ntokenizer: bytes\npack: {seq_len: 8}\n"
    )
    config = tm.recipe(tmp_path / "r.yaml", set=["sources.b.weight=2"]).config
    assert [source["weight"] for source in config.sources.values()] == [1, 2]


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(tm.errors.MissingInputError, match=r"cannot read the recipe .*gone.yaml: No such file"):
        tm.recipe(tmp_path / "gone.yaml")
    (tmp_path / "bin.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"bin.yaml is not UTF-8 text \(byte 0\)"):
        tm.recipe(tmp_path / "bin.yaml")
    with pytest.raises(UsageError, match="the path of a YAML file or a dict, not int"):
        tm.recipe(3)
    with pytest.raises(UsageError, match=r"recipe: a recipe cannot hold a set, only text, numbers, lists and mappings"):
        tm.recipe({**SMALL, "pack": {"seq_len": {1}}})
    with pytest.raises(UsageError, match=r"recipe: pack.seq_len: 0 is not a whole number"):
        tm.recipe({**SMALL, "pack": {"seq_len": 0}})


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [
        ("load.seed=1_000", ("load", "seed"), 1000),
        ("load.seed=+5", ("load", "seed"), 5),
        ("load.shuffle=no", ("load", "shuffle"), False),
        ("load.epochs=endless", ("load", "epochs"), "endless"),
        ("build.eos=null", ("build", "eos"), None),
        ("build.eos=0", ("build", "eos"), 0),
        ("build.eos='0'", ("build", "eos"), "0"),
        ("build.eos=<|end|>", ("build", "eos"), "<|end|>"),
        ("build.eos='no'", ("build", "eos"), "no"),
        ("build.memory=4GB", ("build", "memory"), "4GB"),
        ("build.shard_bytes=1_000_000", ("build", "shard_bytes"), 1_000_000),
        ("build.cache_dir=2024-01-01", ("build", "cache_dir"), "2024-01-01"),
        ("pack.mask_labels=first", ("pack", "mask_labels"), ("first",)),
        ("pack.mask_labels=[]", ("pack", "mask_labels"), ()),
        ("split={eval: .25, seed: -3}", ("split", "eval"), 0.25),
        ("split={eval: 1e-3}", ("split", "eval"), 0.001),
        ('sources.web.template="{a}\\n{b}"', ("sources", "web"), {"path": ("web.jsonl",), "template": "{a}\n{b}"}),
        ("sources.no=x.jsonl", ("sources", "no"), {"path": ("x.jsonl",)}),
        ("sources.web=[a, b=c]", ("sources", "web"), {"path": ("a", "b=c")}),
    ],
)
def test_values_mean_what_people_type(typed, key, value):
    found = getattr(tm.recipe(SMALL, set=[typed]).config, key[0])[key[1]]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("load.seed=1e3", "load.seed: 1e3 is not a whole number from 0 to 9223372036854775807; write 1000"),
        ("load.seed=017", "load.seed: 017 is not a whole number"),
        ("load.seed=0x1F", "load.seed: 0x1F is not a whole number"),
        ("load.seed=1:30", "load.seed: 1:30 is not a whole number"),
        ("load.seed=1.5", "load.seed: 1.5 is not a whole number from 0 to 9223372036854775807"),
        ("load.seed=~", "load.seed: ~ is not a whole number"),
        ("build.eos=yes", "build.eos: yes is not a token, an id from 0, auto or none: YAML reads true"),
        ("build.eos=-1", "build.eos: -1 is not a token"),
        ("build.memory=1.5", "build.memory: 1.5 is not a size"),
        ("build.out=off", "build.out: off is not text: YAML reads false there"),
        ("sources.web.weight=1:30", "sources.web.weight: 1:30 is not a number"),
        ("sources.web.weight='1'", "sources.web.weight: '1' is not a number from 0 to 1.79769e+308; write it without"),
        ("sources.web.template='{a}\\n{b}'", "sources.web.template: '{a}\\\\n{b}' has \\n or \\t as two characters"),
        ("sources.web.template={a}", "sources.web.template: a mapping is not text"),
        ("pack.seqlen=1", "pack.seqlen is not a key of a recipe; did you mean seq_len?"),
        ("tokenizer.overlap=1", "tokenizer is 'bytes' (recipe), which has no keys to set"),
        ("pack.=1", "'pack.' is not the name of a key"),
        ("=1", "'' is not the name of a key"),
    ],
)
def test_what_is_wrong_with_set_is_told(typed, complaint):
    with pytest.raises(UsageError) as caught:
        tm.recipe(SMALL, set=[typed])
    assert str(caught.value).startswith(f"--set {typed}: {complaint}")


def test_set_needs_a_key_and_a_value():
    with pytest.raises(UsageError, match=r"--set pack.seq_len: give a key and its value"):
        tm.recipe(SMALL, set=["pack.seq_len"])
    with pytest.raises(UsageError, match=r"--set pack.seq_len= has no value"):
        tm.recipe(SMALL, set=["pack.seq_len="])
    with pytest.raises(UsageError, match=r"set pack.seq_len: pack.seq_len: 0 is not a whole number"):
        tm.recipe(SMALL, set={"pack.seq_len": 0})
    with pytest.raises(UsageError, match=r"--set pack.seq_len=\[: this is not YAML"):
        tm.recipe(SMALL, set=["pack.seq_len=["])
