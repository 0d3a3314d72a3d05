"""What is public on the objects that users hold, and what help shows of it."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from pages import load_script

import tokenmill as tm
from tokenmill.option_calls import VERBS
from tokenmill.option_types import declared

ROOT = Path(__file__).parents[2]
NAMES = {
    "Store": """
        close column columns complete document_at dtype failed fingerprint input_files lengths locate name num_shards num_tokens
        path quarantine source splits stream_ends text to_arrow tokenizer url verify
    """,
    "View": "buckets documents fingerprint rows seq_len shape split stats store strategy",
    "Loader": """
        batch batch_size data dataset drop_last epoch epochs fingerprint global_batch_size load_state_dict prefetch progress
        rank restart seed seen shuffle state_dict step world_size
    """,
    "Tokenizer": """
        added bos_id bos_token_id choose_engine decode decode_bytes describe dtype encode engine engine_version eos_id
        eos_token_id fingerprint name pad_token_id proof reference_line special_ids special_tokens token_name vocab_size
    """,
    "Source": """
        config delimiter files format ignored ignored_by_reason inputs num_bytes on_error revision separator
        separator_newlines split streaming template text_field
    """,
}
# Results whose type checkers see by overloads, and those that may be anything.
UNTYPED = {
    *("Loader.data", "Loader.__iter__", "Loader.batch", "Loader.dataset", "Stats.__getitem__"),
    *("Store.__getitem__", "Tokenizer.encode", "Tokenizer.decode"),
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> dict[str, object]:
    source = tm.read(str(ROOT / "README.md"))
    store = tm.build(source, "bytes", tmp_path_factory.mktemp("public") / "store", progress="quiet", workers=0)
    view = tm.pack(store, 32)
    found = [source, store, view, tm.load(view, 2), tm.load_tokenizer("bytes")]
    return {type(each).__name__: each for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_these_names_are_public(objects, name):
    """A public name is a promise: it is added on purpose, and explained in docs/api.md."""
    found = [each for each in dir(objects[name]) if not each.startswith("_")]
    assert found == sorted(NAMES[name].split())
    section = (ROOT / "docs" / "api.md").read_text("utf-8").split(f"\n## tm.{name}\n")[1].split("\n## ")[0]
    assert [
        each for each in found if f"\n### {name}.{each}\n" not in section and f"\n| `{each}` |" not in section
    ] == []


def help_of(thing: object) -> list[str]:
    return pydoc.render_doc(thing, renderer=pydoc.plaintext).splitlines()


def test_help_of_the_package_is_two_screens_and_the_first_is_a_map():
    lines = help_of(tm)
    assert len(lines) <= 80
    assert sorted({*re.findall(r"\btm\.(\w+)", "\n".join(lines[:40])), "__version__"}) == dir(tm)
    assert set(dir(tm)) <= {name for name, _ in inspect.getmembers(tm)}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "tm.read"])
def test_help_lists_each_parameter_once_with_its_help(verb):
    function, options = getattr(tm, verb.removeprefix("tm.")), declared(VERBS[verb])
    lines = [line.strip() for line in help_of(function)]
    start = lines.index("Parameters:") + 1
    listed = lines[start : lines.index("", start)]
    parameters = inspect.signature(function).parameters
    assert [line.partition(": ")[0] for line in listed] == list(parameters)
    assert all(line.partition(": ")[2] for line in listed)
    for line, name in zip(listed, parameters, strict=True):
        assert name not in options or line == f"{name}: {options[name].help_line}"


def test_help_of_build_begins_with_what_everyone_gives():
    shown = help_of(tm.build)
    assert shown[2] == "build(source, tokenizer, out=None, *, ...) -> Store | None"
    start = shown.index("    Parameters:") + 1
    assert [line.split(":")[0].strip() for line in shown[start : start + 3]] == ["source", "tokenizer", "out"]


@pytest.mark.parametrize("name", [name for name in dir(tm) if inspect.isroutine(getattr(tm, name))])
def test_hints_and_signatures_agree(name):
    function = getattr(tm, name)
    signature = inspect.signature(function, eval_str=True)
    said = {each.name: each.annotation for each in signature.parameters.values()}
    assert {**said, "return": signature.return_annotation} == get_type_hints(function)


def test_results_have_types():
    """The result of everything public is typed. JSON values are dicts of Any; `stats[name]` is any of its figures."""
    classes = {name: getattr(tm, name) for name in dir(tm) if inspect.isclass(getattr(tm, name))}
    classes |= load_script(ROOT / "scripts" / "api_page.py").returned_classes()
    found = {}
    for owner, each in classes.items():
        for name, member in vars(each).items():
            function = getattr(member, "func", None) or getattr(member, "fget", None) or member
            if inspect.isfunction(function) and (not name.startswith("_") or name in ("__getitem__", "__iter__")):
                found[f"{owner}.{name}"] = inspect.signature(function).return_annotation
    assert {name for name, kind in found.items() if kind in ("Any", "Iterator[Any]")} <= UNTYPED


def test_the_script_of_a_user_runs(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(8):
        (tmp_path / "data" / f"{number}.txt").write_text(f"text {number}, which is long enough for a row or two")
    script = Path(__file__).with_name("user_script.py")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1.0, ")
