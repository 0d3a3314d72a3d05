"""`tokenmill run`, the JSON Schema of recipes, and what the page and the example show."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pages import load_script, run_page

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.errors import UsageError
from tokenmill.option_types import declared
from tokenmill.options import SplitOptions
from tokenmill.recipes.keys import SECTIONS, SourceKeys, TokenizerKeys

ROOT = Path(__file__).parents[2]
SHIPPED = Path(tm.__file__).parent / "recipes" / "recipe.schema.json"
RECIPE = """\
sources:
  web: {path: web.jsonl, weight: 2}
  code: {path: "code/*.jsonl", weight: 1}
tokenizer: bytes
build: {out: stores, workers: 0, progress: quiet}
pack: {seq_len: 32}
split: {eval: 0.25}
load: {global_batch_size: 4}
"""


@pytest.fixture
def here(tmp_path, monkeypatch, jsonl):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    jsonl([f"text {i} " * 5 for i in range(40)], "web.jsonl")
    jsonl([f"code {i} " * 3 for i in range(30)], "code/a.jsonl")
    Path("recipe.yaml").write_text(RECIPE)
    return tmp_path


def test_run_says_what_there_is_and_how_to_load_it(here, capsys):
    assert main(["run", "recipe.yaml", "--json", "--set", "pack.seq_len=16"]) == 0
    told = json.loads(capsys.readouterr().out)
    recipe = tm.recipe("recipe.yaml", set={"pack.seq_len": 16})
    for name, store in recipe.stores().items():
        counts = {"documents": len(store), "tokens": store.num_tokens, "store": str(store.path), "failed": 0}
        assert counts.items() <= told["sources"][name].items()
    assert [told["sources"][name]["weight"] for name in ("web", "code")] == [2, 1]
    assert list(told["splits"]) == ["train", "eval"]
    for split, facts in told["splits"].items():
        views = recipe.views(split)
        assert facts["rows_of"] == {name: len(view) for name, view in views.items()}
        assert facts["rows"] == sum(facts["rows_of"].values())
        assert facts["tokens"] == sum(view.stats.tokens for view in views.values())
        assert facts["batches"] == len(recipe.loader(split, epochs=1))
    assert sum(facts["tokens"] for facts in told["splits"].values()) == 10 * 36 + 30 * 41 + 10 * 22 + 20 * 25
    loaded: dict[str, tm.Loader] = {}
    exec("\n".join(told["python"]), loaded)
    assert loaded["loader"].fingerprint == recipe.loader().fingerprint


def test_run_for_people(here, capsys):
    assert main(["run", "recipe.yaml", "--set", "load.global_batch_size=1000"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^web +40 +[\d,]+ +2 +\S+/stores/web$", shown, re.MULTILINE)
    assert re.search(r"^split +rows of 32 +tokens +fill +batches per epoch$", shown, re.MULTILINE)
    assert re.search(r"^eval +\d+ +[\d,]+ +[\d.]+% +-$", shown, re.MULTILINE)
    assert "eval: a global batch of 1,000 rows is larger than the data" in shown
    loader = "tm.recipe('recipe.yaml', set=['load.global_batch_size=1000']).loader('train', batch_size=8)"
    assert f"    loader = {loader}" in shown


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ".loader('train')"),
        (["load={}"], ".loader('train', batch_size=8)"),
        (["load={batch_size: 2000, drop_last: false, epochs: 1}"], ".loader('train')"),
        (["load={batch_size: 2, device: nothing}"], ".loader('train', device=None)"),
        (["pack.seq_len=4096", "load={}"], ".loader('train', batch_size=1)"),
        (["split={by: folder, first: a, second: b}", "sources={web: {path: '[ab]/*.jsonl'}}"], ".loader('first')"),
        (["split={by: name}", "sources={web: {path: s}}"], ".loader('train')"),
        (["build.force=true"], ".loader('train')"),
        (["build={force: true, workers: 0, progress: quiet}"], "'build.force=false']).loader('train')"),
        (["pack.min_doc_tokens=1000"], ".stores()"),
    ],
)
def test_the_code_that_run_prints_works(here, jsonl, capsys, monkeypatch, changes, expected):
    for path in ("a/0.jsonl", "b/0.jsonl", "s/test.jsonl", "s/train.jsonl"):
        Path(path).parent.mkdir(exist_ok=True)
        jsonl([f"text {i} " * 9 for i in range(20)], path)
    Path("recipe.yaml").write_text(RECIPE.replace('  code: {path: "code/*.jsonl", weight: 1}\n', ""))
    main(["run", "recipe.yaml", "--json", *(part for change in changes for part in ("--set", change))])
    told = json.loads(capsys.readouterr().out)
    assert told["python"][1].endswith(expected)
    before = sorted((path, path.stat().st_mtime_ns) for path in here.rglob("*.ids.npy"))
    names: dict[str, object] = {}
    exec("\n".join(told["python"]), names)
    if "loader" in names:
        next(iter(names["loader"]))
    assert (
        sorted((path, path.stat().st_mtime_ns) for path in here.rglob("*.ids.npy")) == before
    )  # nothing is built again


def test_text_for_evaluation_is_not_in_a_recipe_unless_it_says_what_for(here, jsonl):
    for path in ("s/valid.jsonl", "s/train.jsonl"):
        Path(path).parent.mkdir(exist_ok=True)
        jsonl([f"text {i} " * 9 for i in range(20)], path)

    def documents(*changes):
        sets = ["sources={web: {path: s}}", *changes]
        recipe = tm.recipe("recipe.yaml", set=sets)
        return {split: recipe.view(split).stats.documents for split in recipe.splits}

    with pytest.warns(UserWarning, match="leave out the split validation"):
        assert sum(documents("split={eval: 0.25}").values()) == 20
    assert sum(documents("split={eval: 0.25}", "pack={seq_len: 32, split: all}").values()) == 40
    assert documents("split={by: name}") == {"train": 20, "validation": 20}
    assert documents("split={by: name, eval: valid}") == {"eval": 20}


def test_run_says_how_often_the_rows_of_a_source_come(here, capsys):
    """By weight a small source is repeated, and of a large one some rows are left out: as the loader gives them."""
    changes = ["sources.code.weight=6", "split={eval: 0.01}", "load.global_batch_size=1"]
    given = [part for change in changes for part in ("--set", change)]
    assert main(["run", "recipe.yaml", *given, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["splits"]["train"]
    loader = tm.recipe("recipe.yaml", set=changes).loader(epochs=1)
    for _ in loader:
        pass
    for name, rows in told["rows_of"].items():
        assert told["times_of"][name] == pytest.approx(loader.progress()["epochs"][name], abs=1.5 / rows)
    assert told["times_of"]["code"] > 2 > 1 > told["times_of"]["web"]
    assert main(["run", "recipe.yaml", *given]) == 0
    assert re.search(
        r"train: epochs per source, by weight: web 0\.\d, code [23]\.\d$", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("split", "splits", "complaint"),
    [
        ("{by: name}", ["train", "validation"], None),
        ("{by: name, train: train, eval: validation}", ["train", "eval"], None),
        (
            "{by: name, train: train, eval: test}",
            None,
            "split of web: {web} has no split 'test'; it has train, validation",
        ),
        ("{by: folder, train: a, eval: b}", ["train", "eval"], None),
        ("{by: folder, train: a, eval: c}", None, "no file of the store is below such a folder"),
        ("{test: 0.1}", ["train", "test"], None),
    ],
)
def test_check_knows_splits_and_a_source_may_lack_some(here, jsonl, capsys, split, splits, complaint):
    """The source code has training data only; each split must be in one source at least."""
    for path in ("web/a/train.jsonl", "web/b/valid.jsonl", "more/a/train.jsonl"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        jsonl([f"text {i} " * 9 for i in range(20)], path)
    sets = ["sources={web: {path: web}, code: {path: more}}", f"split={split}", "build={workers: 0, progress: quiet}"]
    sets += ["pack.split=all"] if split == "{test: 0.1}" else []  # drawn from all documents
    flags = [word for each in sets for word in ("--set", each)]
    code = main(["run", "recipe.yaml", "--check", "--json", *flags])
    out, err = capsys.readouterr()
    if complaint:
        assert code == 2
        assert complaint.format(web=here / "web") in err
        with pytest.raises(UsageError, match=r"split of web: the store of .*web has no split|below such a folder"):
            tm.recipe("recipe.yaml", set=sets).view("eval")
        return
    assert json.loads(out)["splits"] == splits
    recipe = tm.recipe("recipe.yaml", set=sets)
    assert sorted(recipe.splits) == sorted(splits)
    sources = [["web", "code"]] * 2 if split == "{test: 0.1}" else [["web", "code"], ["web"]]
    assert [list(recipe.views(name)) for name in splits] == sources
    assert all(len(recipe.loader(name, epochs=1)) for name in splits)


def test_check_builds_nothing(here, capsys, tokenizer_path):
    assert main(["run", "recipe.yaml", "--check"]) == 0
    assert capsys.readouterr().out == "ok: web has 1 file of 2.1 kB, code has 1 file of 1.1 kB; splits train, eval\n"
    assert not Path("stores").exists()
    assert main(["run", "recipe.yaml", "--check", "--set", "tokenizer=org/model"]) == 0
    assert capsys.readouterr().out.endswith("; org/model was not looked up\n")
    assert main(["run", "recipe.yaml", "--check", "--json", "--set", f"tokenizer={tokenizer_path}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["tokenizer_found"], told["sources"]["web"]["files"]) == (True, True, 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["pack.seq_len=0"], "--set pack.seq_len=0: pack.seq_len: 0 is not a whole number from 1 to 2147483647"),
        (["pack.seqlen=8"], "--set pack.seqlen=8: pack.seqlen is not a key of a recipe; did you mean seq_len?"),
        (["sources.code.path=cod/*.jsonl"], "--set sources.code.path=cod/*.jsonl: sources.code: no file matches"),
        (["tokenizer=gone/tokenizer.json"], "gone/tokenizer.json does not exist"),
        (["tokenizer=web.jsonl"], "web.jsonl is not valid JSON"),
        (["sources.web={store: gone, weight: 1}"], "--set sources.web={store: gone, weight: 1}: sources.web: "),
        (["sources.web.separator=x"], "sources.web: separator applies to plain text"),
        (["sources.code.text_field=body"], "line 3: sources.code: "),
    ],
)
def test_check_finds_what_is_wrong(here, capsys, changes, complaint):
    flags = [part for change in changes for part in ("--set", change)]
    assert main(["run", "recipe.yaml", "--check", *flags]) in (1, 2, 3)
    told = capsys.readouterr()
    assert complaint in told.err
    assert not told.out
    assert not Path("stores").exists()


def test_failed_files_have_their_exit_code(here, capsys):
    os.symlink("gone.jsonl", "code/b.jsonl")
    assert main(["run", "recipe.yaml"]) == 4
    told = capsys.readouterr()
    assert "1 input file failed" in told.err
    assert "in Python:" in told.out


def test_a_recipe_must_be_named(capsys):
    assert main(["run"]) == 2
    assert "name the recipe: tokenmill run recipe.yaml" in capsys.readouterr().err


# The schema


def fits(value, schema):
    """Whether a value fits a JSON Schema: the words that ours uses, and no other goes unnoticed."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    checks = {
        "type": lambda kind: (
            isinstance(value, kinds[kind])
            if kind in kinds
            else isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
        ),
        "enum": lambda words: value in words,
        "minimum": lambda low: not isinstance(value, int | float) or value >= low,
        "exclusiveMinimum": lambda low: not isinstance(value, int | float) or value > low,
        "maximum": lambda high: not isinstance(value, int | float) or value <= high,
        "minLength": lambda least: not isinstance(value, str) or len(value) >= least,
        "minItems": lambda least: not isinstance(value, list) or len(value) >= least,
        "minProperties": lambda least: not isinstance(value, dict) or len(value) >= least,
        "pattern": lambda pattern: not isinstance(value, str) or bool(re.search(pattern, value)),
        "items": lambda each: not isinstance(value, list) or all(fits(item, each) for item in value),
        "anyOf": lambda ways: any(fits(value, way) for way in ways),
        "oneOf": lambda ways: sum(fits(value, way) for way in ways) == 1,
        "required": lambda names: not isinstance(value, dict) or value.keys() >= set(names),
        "propertyNames": lambda each: not isinstance(value, dict) or all(fits(name, each) for name in value),
        "properties": lambda of: (
            not isinstance(value, dict) or all(fits(value[name], of[name]) for name in of if name in value)
        ),
        "additionalProperties": lambda each: (
            not isinstance(value, dict)
            or all(each and fits(value[name], each) for name in value if name not in schema.get("properties", {}))
        ),
    }
    words = schema.keys() - {"$schema", "title", "description"}
    return all(checks[word](schema[word]) for word in words)


@pytest.fixture(scope="module")
def schema():
    return json.loads(SHIPPED.read_text("utf-8"))


def test_the_shipped_schema_is_the_table(capsys):
    script = load_script(ROOT / "scripts" / "recipe_schema.py")
    assert SHIPPED.read_text("utf-8") == script.schema(), "run scripts/recipe_schema.py"
    assert main(["run", "--schema"]) == 0
    assert capsys.readouterr().out == script.schema()


def test_the_schema_refuses_what_a_recipe_refuses_and_takes_what_it_takes(schema):
    whole = yaml.safe_load(RECIPE)
    good = [
        {},
        {"sources": {"web": ["a", "b"]}},
        {"sources": {"web": {"store": "x"}, "code": "y"}},
        {"build": {"eos": None, "shard_bytes": "1.5GiB", "workers": None}},
        {"pack": {"seq_len": 8, "mask_labels": [], "fields": "cu_seqlens"}},
        {"pack": {"seq_len": 8, "strategy": "pad", "mask_labels": ["first", "padding"]}},
        {"split": {"by": "folder", "train": "a"}},
        {"tokenizer": {"tokenizer_name": "x", "context_length": 32, "overlap": 3, "num_proc": None}},
    ]
    bad = [
        {"sources": {}},
        {"sources": "x"},
        {"sources": {"w.b": "x"}},
        {"sources": {"web": {"path": "x", "store": "y"}}},
        {"sources": {"web": {"text_field": "x"}}},
        {"sources": {"web": {"path": []}}},
        {"sources": {"web": {"path": "x", "weight": -1}}},
        {"tokenizer": 3},
        {"tokenizer": {"tokenizer_name": "x"}},
        {"tokenizer": {"tokenizer_name": "x", "context_length": 32, "num_proc": 33}},
        {"build": {"eos": False}},
        {"build": {"shard_bytes": "big"}},
        {"pack": {"seq_len": 0}},
        {"pack": {"seq_len": 8.5}},
        {"pack": {"seq_len": 8, "strategy": "first"}},
        {"split": {"eval": 0}},
        {"split": {"eval": 1.5}},
        {"load": {"rank": 0}},
        {"load": {"shuffle": 1}},
        {"more": 1},
    ]
    for changes in good:
        recipe = {**whole, **changes}
        recipe = {
            name: value for name, value in recipe.items() if name != "pack" or "context_length" not in str(recipe)
        }
        assert fits(recipe, schema), changes
        assert tm.recipe(recipe).config.sources
    for changes in bad:
        assert not fits({**whole, **changes}, schema), changes
        with pytest.raises(UsageError):
            tm.recipe({**whole, **changes})


def shown_recipes():
    """Every recipe in the documents and the examples."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    blocks = [block for block in blocks if not block.startswith("# Needs ")]
    return [*blocks, (ROOT / "examples" / "recipe.yaml").read_text("utf-8")]


def test_what_the_documents_show_is_a_recipe(schema):
    recipes = shown_recipes()
    assert len(recipes) >= 4
    for text in recipes:
        recipe = yaml.safe_load(text)
        assert fits(recipe, schema), text
        assert tm.recipe(recipe).splits


# The page and the example


def test_the_page_runs(tmp_path, tokenizer_path, proved):
    """Every bash and Python block of docs/recipes.md, in order, as it stands, in a folder with the files it speaks of."""
    for kind in ("web", "code/x"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    table = pa.table({"text": [f"Article {i} of the web. " * (i % 60 + 1) for i in range(400)]})
    pq.write_table(table, tmp_path / "data" / "web" / "a.parquet")
    lines = "".join(json.dumps({"content": f"print({i}) # code\n" * (i % 30 + 1)}) + "\n" for i in range(300))
    with pa.CompressedOutputStream(str(tmp_path / "data" / "code" / "x" / "b.jsonl.zst"), "zstd") as out:
        out.write(lines.encode())
    shutil.copytree(tokenizer_path, tmp_path / "path" / "to")
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    for name, text in re.findall(r"```yaml\n# (\w+\.yaml)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text)
    assert page.count("```python\n") == 1
    more = [
        "assert len(loader.batch(0)['input_ids']) == 8 and len(held_out) and longer.view().views['web'].seq_len == 2048",
        "assert longer.stores()['web'].path == recipe.stores()['web'].path",
    ]
    shutil.copytree(proved, tmp_path / "cache")
    outputs = run_page(page, tmp_path, "\n".join(more))
    assert outputs["run recipe.yaml --check"].startswith("ok: ")
    heads = [line.split() for line in outputs["run recipe.yaml"].splitlines() if line.startswith(("source ", "split "))]
    shown = [line.split() for line in page.splitlines() if line.startswith(("source ", "split "))]
    assert heads == shown
    assert json.loads(outputs["run recipe.yaml --set pack.seq_len=512 --json"])["seq_len"] == 512


def test_the_page_names_every_key():
    page = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("recipes.md", "packing.md", "options.md"))
    for group in (SourceKeys, *SECTIONS.values(), SplitOptions, TokenizerKeys):
        for name in declared(group):
            assert re.search(rf"`[^`\n]*\b{name}\b|^.*\b{name}: ", page, re.MULTILINE), name


def test_the_example_runs(capsys, tmp_path):
    out = ["--set", f"build.out={tmp_path}", "--set", "build.progress=quiet", "--set", "build.workers=0"]
    assert main(["run", str(ROOT / "examples" / "recipe.yaml"), "--json", *out]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["splits"]["train"]["batches"] > 10
    assert told["splits"]["eval"]["batches"] > 0
