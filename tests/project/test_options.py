"""Every option is declared once: what Python, the command line, recipes, the schema and the docs say about it agrees."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pages import load_script

import tokenmill as tm
from tokenmill import options
from tokenmill.building.terminal import MODES
from tokenmill.cli import parser
from tokenmill.cli.flags import given_options
from tokenmill.encoding.definition import SPECIALS
from tokenmill.encoding.engines import ENGINES
from tokenmill.errors import UsageError
from tokenmill.option_calls import VERBS as TAKEN
from tokenmill.option_kinds import (
    Device,
    DTypeName,
    Flag,
    Kind,
    Number,
    OneOf,
    Size,
    SomeOf,
    Text,
    Texts,
    Token,
    Whole,
    Wholes,
)
from tokenmill.option_types import Option, declared, option_name
from tokenmill.reading import FORMATS
from tokenmill.recipes.keys import SECTIONS, SourceKeys

ROOT = Path(__file__).parents[2]
VERBS = {
    "read": (tm.read, options.ReadOptions),
    "build": (tm.build, options.BuildArguments),
    "estimate": (tm.estimate, options.EstimateArguments),
    "pack": (tm.pack, options.PackOptions),
    "load": (tm.load, options.LoadArguments),
}
POSITIONAL = {"inputs", "source", "tokenizer", "store", "data"}
EVERY = [(verb, name) for verb, (_, group) in VERBS.items() for name in declared(group)]
IN_RECIPES = [("sources.web", SourceKeys), *SECTIONS.items()]


def script(name: str):
    return load_script(ROOT / "scripts" / f"{name}.py")


def wrong_values(kind: Kind) -> list[object]:
    """Values just outside what a kind takes."""
    if isinstance(kind, Whole):
        if kind.or_text:
            return [kind.low - 1, kind.high + 1, True, "1", 1.5, "0%", "101%", "80 %"]
        return [kind.low - 1, kind.high + 1, True, "1", 1.5]
    if isinstance(kind, Number):
        return [kind.low - 1, float("nan"), "1", True]
    if isinstance(kind, Wholes):
        return [[kind.item.low - 1], [kind.item.high + 1], 3, "3"]
    if isinstance(kind, SomeOf):
        return ["nonsense", [kind.item.words[0], "nonsense"], 3]
    if isinstance(kind, Size):
        return [0, -1, "big", 1.5, kind.low - 1]
    same_for_all = {Flag: [1, "yes"], Token: [-1, "", True, 1.5], Device: ["", True, []], Texts: [[], 3, [""]]}
    if type(kind) in same_for_all:
        return same_for_all[type(kind)]
    assert isinstance(kind, OneOf | Text), kind
    return ["nonsense", 3] if isinstance(kind, OneOf) else ["", 3, True]


def is_of_wrong_type(kind: Kind, value: object) -> bool:
    """Whether a value that a kind refuses is of a type that it never takes. Of what is in a list, nothing is said."""
    if isinstance(value, bool) or isinstance(kind, Flag):
        return True
    if isinstance(kind, Whole):
        return not isinstance(value, int)
    if isinstance(kind, Number | Size):
        return isinstance(value, str) and isinstance(kind, Number)
    return value == 3 and not isinstance(kind, DTypeName)


# Declarations


@pytest.mark.parametrize(("verb", "name"), EVERY)
def test_a_declaration_is_complete(verb, name):
    """Help is one line, a default is a value the option takes, and None means something that the help says."""
    option: Option = declared(VERBS[verb][1])[name]
    assert option.help.text
    assert "\n" not in option.help_line
    assert len(option.help.text) < 100
    if not option.required:
        assert option.check(option.default) == option.default
        assert option.optional or option.default is not None
        json.dumps(option.default)


def test_choices_are_those_of_the_rooms():
    assert get_args(options.Format) == ("auto", *FORMATS)
    assert get_args(options.Engine) == ("auto", "reference", *ENGINES)
    assert declared(options.TokenOptions)["special_tokens"].kind.words == SPECIALS
    assert declared(options.RunOptions)["progress"].kind.words == MODES


# Python


@pytest.mark.parametrize("verb", VERBS)
def test_signatures_are_the_declarations(verb):
    function, group = VERBS[verb]
    parameters = {name: each for name, each in inspect.signature(function).parameters.items() if name not in POSITIONAL}
    assert parameters.keys() == declared(group).keys()
    for name, option in declared(group).items():
        expected = inspect.Parameter.empty if option.required else option.default
        assert parameters[name].default == expected, name
        assert f"    {name}: {option.help_line}" in function.__doc__ or verb == "read"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tm.read("x", text_filed="a"), "tm.read has no option 'text_filed'; did you mean text_field?"),
        (lambda: tm.build("x", "bytes", worker=2), "tm.build has no option 'worker'; did you mean workers?"),
        (lambda: tm.estimate("x", "bytes", samples=2), "tm.estimate has no option 'samples'; did you mean sample?"),
        (
            lambda: tm.pack("x", 8, min_doc_token=2),
            "tm.pack has no option 'min_doc_token'; did you mean min_doc_tokens?",
        ),
        (lambda: tm.load("x", 8, epoch=2), "tm.load has no option 'epoch'; did you mean epochs?"),
        (
            lambda: tm.build("x", "bytes", seq_len=128),
            "tm.build has no option 'seq_len': it belongs to tm.pack, tm.load and tm.export",
        ),
        (lambda: tm.build("x", "bytes", seqlen=8), "'seqlen'; did you mean seq_len of tm.pack, tm.load and tm.export?"),
        (lambda: tm.read("x", text="a"), "tm.read has no option 'text'; did you mean text_field?"),
        (lambda: tm.load("x", 8, text="a"), "did you mean text_field of tm.read, tm.build, tm.estimate and tm.export?"),
        (lambda: tm.load("x", 8, memory=1), "tm.load has no option 'memory': it belongs to tm.build"),
        (
            lambda: tm.load_tokenizer("bytes", engin="a"),
            "tm.load_tokenizer has no option 'engin'; did you mean engine?",
        ),
        (lambda: tm.mix({}, stage=[]), "tm.mix has no option 'stage'; did you mean stages?"),
        (lambda: tm.recipe({}, sett={}), "tm.recipe has no option 'sett'; did you mean set?"),
        (lambda: tm.pack("x", 8, wibble=2), "tm.pack has no option 'wibble'; help(tm.pack) lists its options"),
        (lambda: tm.pack("x", 8, eod_mask_loss=1), "'eod_mask_loss'; is it mask_labels or fields?"),
        (lambda: tm.load("x", 8, distributed=True), "'distributed'; is it rank or world_size?"),
        (lambda: tm.recipe({}, wibble=2), "tm.recipe has no option 'wibble'; it has "),
        (
            lambda: tm.pack("x", 8, strategy="bestfit"),
            "strategy='bestfit' is not one of concat, best_fit, pad, windows",
        ),
        (lambda: tm.pack("x", 8, strategy="bestfit"), "; did you mean best_fit?"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_the_nearest(call, says):
    with pytest.raises(UsageError) as caught:
        call()
    assert says in str(caught.value)
    assert isinstance(caught.value, TypeError) == (" has no option " in str(caught.value))


def test_missing_and_doubled_arguments_name_the_verb():
    with pytest.raises(TypeError, match=r"tm.pack: missing a required argument: 'seq_len'"):
        tm.pack("x")
    with pytest.raises(TypeError, match=r"tm.pack: multiple values for argument 'seq_len'"):
        tm.pack("x", 8, seq_len=8)


@pytest.mark.parametrize(("verb", "name"), EVERY)
def test_every_verb_refuses_a_wrong_value_by_name(tmp_path, verb, name):
    """Before anything is opened: neither the source nor the store exists."""
    function, group = VERBS[verb]
    option = declared(group)[name]
    arguments = {"read": (), "build": ("bytes",), "estimate": ("bytes",), "pack": (8,), "load": ()}[verb]
    if name == "seq_len" and verb == "pack":
        arguments = ()
    for value in wrong_values(option.kind):
        with pytest.raises(UsageError) as caught:
            function(tmp_path / "nowhere", *arguments, **{name: value})
        assert str(caught.value).startswith(f"{name}={value!r} "), value
        assert isinstance(caught.value, TypeError) == is_of_wrong_type(option.kind, value), value


SNIPPET = """\
import tokenmill as tm

tm.pack("store", 8, strategy="best_fit", fields=["input_ids", "cu_seqlens"], buckets=(1, 2))
tm.build("data/*.jsonl", "bytes", "out", workers=0, text_field="body", progress=print)
tm.load("store", 8, seq_len=64, strategy="pad", device="cuda", dtype="int32")
tm.estimate("data/*.jsonl", "bytes", sample="1MB", format="jsonl")
tm.read("a", "b", format="lines")
[value.tolist() for batch in tm.load("store", 8, epochs="endless") for value in (batch["input_ids"], *batch.values())]
tm.pack("store", 8, strategy="bestfit")
tm.pack("store", 8, dtype="int16")
tm.pack("store", 8, fields=["tokens"])
tm.pack("store")
tm.build("data/*.jsonl", "bytes", worker=2)
tm.build("data/*.jsonl", "bytes", on_error="ignore")
tm.load("store", 8, shuffle="no")
tm.estimate("data/*.jsonl", "bytes", engine="fast")
tm.read("a", format="xml")
tm.read("a", limit=3)
tm.bild("a", "bytes")
ids: int = tm.load("store", 8).batch(0)["input_ids"]
"""


def test_type_checkers_know_every_option(tmp_path):
    """One run of mypy: it takes the calls that are right and refuses each that is wrong."""
    (tmp_path / "snippet.py").write_text(SNIPPET)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "snippet.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    lines = [line for line in ran.stdout.splitlines() if "snippet.py" in line and ": error:" in line]
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert {int(line.split("snippet.py:")[1].split(":")[0]) for line in lines} == set(range(9, 21)), ran.stdout
    assert "strategy" in lines[0]
    assert "best_fit" in lines[0]


# The command line, recipes, the schema and the docs


def test_flags_are_the_keywords():
    """A flag is parsed as its option, and what is not given is left to the library."""
    given = ["build", "x", "-t", "y", "--max-rows", "3", "--template", r"{a}\n{b}", "--force", "--shard-bytes", "4KB"]
    found = given_options(parser().parse_args(given), options.BuildArguments)
    assert found == {"max_rows": 3, "template": "{a}\n{b}", "force": True, "shard_bytes": "4KB"}
    given = ["stats", "x", "--seq-len", "8", "--buckets", "2,4", "--strategy", "pad"]
    assert given_options(parser().parse_args(given), options.PackOptions) == {
        "seq_len": 8,
        "buckets": (2, 4),
        "strategy": "pad",
    }


@pytest.mark.parametrize(
    ("section", "name"), [(section, name) for section, group in IN_RECIPES for name in declared(group)]
)
def test_recipes_and_their_schema_refuse_what_the_verbs_refuse(section, name):
    option = declared(dict(IN_RECIPES)[section])[name]
    recipe = {"sources": {"web": {"path": "x"}}, "tokenizer": "bytes", "pack": {"seq_len": 8}}
    for value in wrong_values(option.kind):
        if value != value:  # NaN is not JSON
            continue
        with pytest.raises(UsageError) as caught:
            tm.recipe(recipe, set={f"{section}.{name}": value})
        assert f"{section}.{name}" in str(caught.value)
    properties = json.loads((ROOT / "src/tokenmill/recipes/recipe.schema.json").read_text("utf-8"))["properties"]
    if section == "sources.web":
        keys = properties["sources"]["additionalProperties"]["anyOf"][1]["properties"]
    else:
        keys = properties[section]["properties"]
    assert keys[name] == json.loads(json.dumps(option.schema()))
    assert option.optional == ({"type": "null"} in keys[name].get("anyOf", []))


@pytest.mark.parametrize(("page", "writer"), [("options.md", "option_page"), ("commands.md", "command_pages")])
def test_the_reference_pages_are_up_to_date(page, writer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert (ROOT / "docs" / page).read_text("utf-8") == script(writer).page(), f"run scripts/{writer}.py"


@pytest.mark.parametrize("verb", TAKEN)
def test_every_option_is_on_the_page(verb):
    """In a section that names the function which takes it."""
    page = (ROOT / "docs" / "options.md").read_text("utf-8")
    sections = [section for section in page.split("\n## ")[1:] if f"`{verb}`" in section.split("\n|")[0]]
    for name in declared(TAKEN[verb]):
        assert any(f"\n| `{name}` |" in section for section in sections), (
            f"{verb} {name}: add it to scripts/option_page.py"
        )


def test_messages_of_the_library_name_options_as_commands_and_python_do():
    """`option_name` spells both; a flag alone helps nobody who calls `tm.build`."""
    flags = {f"--{name.replace('_', '-')}" for _, group in VERBS.values() for name in declared(group)}
    library = ROOT / "src" / "tokenmill"
    for path in library.rglob("*.py"):
        if path.relative_to(library).parts[0] in ("cli", "estimating", "demo_data.py"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
                alone = flags & set(re.findall(r"--[a-z-]+", node.value))
                assert not alone, f"{path}, line {node.lineno}: {alone}; use option_name"


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        (("text_field",), "--text-field (text_field=...)"),
        (("special_tokens", "text"), "--special-tokens text (special_tokens='text')"),
        (("force", True), "--force (force=True)"),
        (("separator", "<|end|>\n"), r"--separator '<|end|>\n' (separator='<|end|>\n')"),
    ],
)
def test_an_option_in_a_message(given, spelled):
    assert option_name(*given) == spelled
