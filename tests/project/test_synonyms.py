"""What people type who know other tools is answered with its name here: on the command line, in Python and in recipes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import load_script

import tokenmill as tm
from tokenmill.cli import main, parser
from tokenmill.errors import UsageError
from tokenmill.option_calls import VERBS, in_verbs
from tokenmill.option_types import declared
from tokenmill.recipes.keys import SECTIONS, TOP, SourceKeys
from tokenmill.synonyms import nearest, table

ROOT = Path(__file__).parents[2]
FUNCTIONS = {name: getattr(tm, name) for name in (*tm.__all__, "open") if inspect.isfunction(getattr(tm, name))}
PARSER = parser()  # making one takes longer than asking it
LINES = {  # up to the word, for each command
    "build": ["build", "x", "-t", "bytes"],
    "estimate": ["estimate", "x", "-t", "bytes"],
    "stats": ["stats", "x", "--seq-len", "8"],
    "export": ["export", "x", "y", "--format", "hf"],
    "show": ["show", "x"],
    "info": ["info", "x"],
    "verify": ["verify", "x"],
}
RECIPE = {"sources": {"web": {"path": "x"}}, "tokenizer": "bytes", "pack": {"seq_len": 8}}
EVERY = [(meaning, word, places) for meaning, words, *places in table("options") for word in words.split()]
GENERAL = [(meaning, word) for meaning, word, places in EVERY if not places]


def python_says(verb: str, word: str) -> str:
    """The answer of a function to a keyword; nothing if it takes it."""
    function = FUNCTIONS[verb]
    if word in inspect.signature(function).parameters:
        return ""
    with pytest.raises(UsageError) as caught:
        function(**{word: 1})
    head = f"tm.{verb} has no option {word!r}"
    assert str(caught.value).startswith(head)
    return str(caught.value).removeprefix(head)


def command_says(name: str, word: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The answer of a command to a flag; nothing if it takes it."""
    flag = f"-{word}" if len(word) == 1 else f"--{word.replace('_', '-')}"
    if flag in PARSER.commands[name].flags:
        return ""
    with pytest.raises(SystemExit) as caught:
        PARSER.parse_args([*LINES[name], flag, "1"])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    head, foot = f"tokenmill {name}: no option {flag!r}", f" (see: tokenmill {name} --help)"
    assert line.startswith(head)
    return line.removeprefix(head).removesuffix(foot)


def recipe_says(section: str, word: str) -> str:
    """The answer of a recipe to a key of a section, "top" or "sources" among them; nothing if it is one."""
    place = {"top": "", "sources": "sources.web."}.get(section, f"{section}.")
    known = {"top": TOP, "sources": declared(SourceKeys)}.get(section) or declared(SECTIONS[section])
    if word in known:
        return ""
    with pytest.raises(UsageError) as caught:
        tm.recipe(RECIPE, set={f"{place}{word}": 1})
    head, foot = f"{place}{word} is not a key of a recipe", rf" \({place.rstrip('.') or 'top'}: .*\)$"
    assert head in str(caught.value)
    return re.sub(foot, "", str(caught.value).partition(head)[2])


def options_in(meaning: str) -> list[str]:
    """The options that an answer may name."""
    return re.findall(r"\{(\w+)\}", meaning) if " " in meaning else meaning.split("|")


def answers(word: str, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """What each place says to a word, where it does not know it."""
    for verb in FUNCTIONS:
        yield f"tm.{verb}", python_says(verb, word)
    for name in LINES:
        yield f"tokenmill {name}", command_says(name, word, capsys)
    for section in ("top", "sources", *SECTIONS):
        yield f"recipe: {section}", recipe_says(section, word)


@pytest.mark.parametrize("word", sorted({word for _, word, _ in EVERY}))
def test_every_synonym_is_answered_everywhere(word, capsys):
    """With the option that is meant, as it is spelled at the place, with the sentence, or with where the word belongs."""
    meanings = [meaning for meaning, other, _ in EVERY if other == word]
    allowed = [part for meaning in meanings for part in re.split(r"\{\w+\}", meaning) if " " in part and len(part) > 5]
    names = {each for meaning in meanings for each in options_in(meaning)}
    for place, said in answers(word, capsys):
        option = re.search(r"did you mean (?:--|sources\.NAME\.|[a-z]+\.)?([\w-]+)", said)
        if option:
            assert option[1].lower().replace("-", "_") in names | {word}, (place, said)
        elif ": it belongs to " not in said and said:
            is_silent = said.startswith(("; it has ", "; help(tm.", "; is it ")) and all(
                places for _, other, places in EVERY if other == word
            )
            assert is_silent or any(part in said for part in allowed), (place, said)


@pytest.mark.parametrize(
    ("word", "python", "command", "recipe"),
    [
        ("chunk_size", "seq_len of tm.pack, tm.load and tm.export", "--seq-len of tokenmill stats and tokenmill", "pack.seq_len"),
        ("block_size", "seq_len of tm.pack, tm.load and tm.export", "--seq-len of tokenmill stats and tokenmill", "pack.seq_len"),
        ("context_length", "seq_len of tm.pack, tm.load and tm.export", "--seq-len of tokenmill stats", "pack.seq_len"),
        ("max_length", "seq_len of tm.pack, tm.load and tm.export", "--seq-len of tokenmill stats", "pack.seq_len"),
        ("seq_length", "seq_len of tm.pack, tm.load and tm.export", "--seq-len of tokenmill stats", "pack.seq_len"),
        ("max_chunks", ": it belongs to tm.export", ": it belongs to tokenmill export", ": it belongs to tm.export"),
        ("batch_size", "; no batches here; rows per step of training: batch_size", "batch_size of tm.load", "load.batch_size"),
        ("num_proc", "did you mean workers?", "did you mean --workers?", "did you mean workers?"),
        ("n_jobs", "did you mean workers?", "did you mean --workers?", "did you mean workers?"),
        ("num_workers", "did you mean workers?", "did you mean --workers?", "did you mean workers?"),
        ("output_dir", "did you mean out?", "did you mean --out?", "did you mean out?"),
        ("save_to", "did you mean out?", "did you mean --out?", "did you mean out?"),
        ("dataset", "did you mean source?", "did you mean source, by position?", "did you mean sources?"),
        ("input_dir", "did you mean source?", "did you mean source, by position?", "did you mean sources?"),
        ("model_name", "did you mean tokenizer?", "did you mean --tokenizer?", "did you mean tokenizer?"),
        ("text_column", "did you mean text_field?", "did you mean --text-field?", "sources.NAME.text_field"),
        ("add_eos", "did you mean eos?", "did you mean --eos?", "did you mean eos?"),
        ("add_bos", "did you mean bos?", "did you mean --bos?", "did you mean bos?"),
        ("resume", "; run the same build again", "; run the same build again", "; run the same build again"),
        ("overwrite", "did you mean force?", "did you mean --force?", "did you mean force?"),
        ("weights", "; tm.mix({'web': (web, 0.7), ...})", "; tm.mix({'web'", "sources.NAME.weight"),
        ("use_cached_tokens", "; what is built is found again by itself; force", "; --force rebuilds", "; force rebuilds"),
        ("cached_tokens_dir", "did you mean cache_dir?", "did you mean --cache-dir?", "did you mean cache_dir?"),
        ("dry_run", "; estimate writes nothing, and max_rows", "nothing, and --max-rows makes", "nothing, and max_rows"),
    ],
)  # fmt: skip
def test_the_words_of_scripts(word, python, command, recipe, capsys):
    """In `tm.build`, `tokenmill build` and the section `build` of a recipe; or at its top, for what belongs there."""
    assert python in python_says("build", word)
    assert command in command_says("build", word, capsys)
    assert recipe in recipe_says("build", word)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (lambda: python_says("load", "num_workers"), "DataLoader with num_workers"),
        (lambda: python_says("load", "resume"), "loader.load_state_dict(state)"),
        (lambda: python_says("load", "mmap"), "stores are mapped"),
        (lambda: python_says("load", "blockSize"), "did you mean seq_len?"),
        (lambda: python_says("load", "drop_remainder"), "did you mean drop_last?"),
        (lambda: python_says("pack", "drop_remainder"), "did you mean tail?"),
        (lambda: python_says("pack", "model_name"), "a store has its own tokenizer"),
        (lambda: python_says("pack", "dataset"), "did you mean store?"),
        (lambda: python_says("open", "store"), "did you mean path?"),
        (lambda: python_says("open", "in_memory"), "stores are mapped"),
        (lambda: python_says("mix", "weights"), "give each view its weight: tm.mix("),
        (lambda: python_says("export", "output_dir"), "did you mean out?"),
        (lambda: python_says("import_tokens", "output_dir"), "did you mean out?"),
        (lambda: python_says("load_tokenizer", "use_fast"), "did you mean engine?"),
        (lambda: recipe_says("sources", "dataset"), "did you mean path?"),
        (lambda: recipe_says("sources", "text_key"), "did you mean text_field?"),
        (lambda: recipe_says("top", "max_length"), "did you mean pack.seq_len?"),
        (lambda: recipe_says("top", "dataset"), "did you mean sources?"),
        (lambda: recipe_says("pack", "tokenizer_path"), "did you mean tokenizer?"),
    ],
)
def test_what_a_word_means_depends_on_the_place(said, expected):
    assert expected in said()


def test_the_table_names_what_there_is():
    """Every option in it is one somewhere, every command is a command, every value is one of some option."""
    options = {name for group in VERBS.values() for name in declared(group)} | {"tokenizer"}
    inputs = {
        "source",
        "sources",
        "store",
        "data",
        "inputs",
        "path",
        "verbose",
        "quiet",
        "pack",
        "load",
        "context_length",
    }
    inputs |= {"spec", "recipe"}
    for meaning, _, *places in table("options"):
        for name in options_in(meaning):
            assert name in options | inputs, meaning
            assert in_verbs(name) or name in inputs, meaning
        for place in " ".join(places).split():
            assert place in FUNCTIONS or place in PARSER.commands or place in ("sources", "top", "loader", "tokenizer")
    values = {
        word
        for group in VERBS.values()
        for each in declared(group).values()
        for word in getattr(each.kind, "words", ())
    }
    values |= {"auto"}
    for meaning, _, *about in table("values"):
        assert set(about or meaning.split("|")) <= values, meaning
    commands = {*PARSER.commands, *(f"cache {name}" for name in PARSER.commands["cache"].commands)}
    for meaning, _ in table("commands"):
        last = meaning.rpartition("|")[2]
        assert last in commands or len(last.split()) > 3, meaning


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("verbose", ["eos", "bos", "force", "seconds"]),
        ("add_eos", ["address", "eos", "dashboard"]),
        ("block_size", ["batch_size", "global_batch_size"]),
        ("max_length", ["max_documents", "max_rows", "max_tokens"]),
        ("min_rows", ["max_rows"]),
        ("log", ["long_docs"]),
        ("size", ["slice", "seq_len", "seed"]),
        ("type", ["template", "tail"]),
        ("rate", ["rank", "tail"]),
        ("lr", ["labels"]),
        ("dataset_size", ["data", "batch_size"]),
        ("se", ["seed", "seq_len"]),
        ("model", ["memory", "labels"]),
        ("name", ["stages", "by"]),
    ],
)
def test_nothing_is_suggested_where_nothing_is_near(typed, names):
    assert nearest(typed, names) == ""


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("max_docs", "max_documents"),
        ("wrokers", "workers"),
        ("worker", "workers"),
        ("seqlen", "seq_len"),
        ("--max_rows", "--max-rows"),
        ("text_filed", "text_field"),
        ("jsn", "jsonl"),
        ("zhs", "zsh"),
        ("packing", "pack"),
        ("epcohs", "epochs"),
    ],
)
def test_a_slip_is_near(typed, name):
    others = ["eos", "address", "batch_size", "max_tokens", "long_docs", "tail"]
    assert nearest(typed, [*others, name]) == f"; did you mean {name}?"


@pytest.mark.parametrize(
    ("meaning", "word"), [(meaning, word) for meaning, words in table("commands") for word in words.split()]
)
def test_commands_of_other_programs(meaning, word, capsys):
    with pytest.raises(SystemExit) as caught:
        PARSER.parse_args([word.replace("_", "-"), "x"])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert meaning.rpartition("|")[2] in line
    assert "did you mean" in line or len(meaning.split()) > 3


@pytest.mark.parametrize(("meaning", "words", "about"), [(*row, "")[:3] for row in table("values")])
def test_values_of_other_programs(meaning, words, about):
    """Wherever an option has one of the values, what is typed is answered with it."""
    kinds = [each.kind for group in VERBS.values() for each in declared(group).values() if hasattr(each.kind, "words")]
    for word in words.split():
        hits = [
            kind for kind in kinds if about in kind.words or (not about and set(meaning.split("|")) & set(kind.words))
        ]
        assert hits
        for kind in hits:
            if word not in kind.words and getattr(kind, "functions", False) is False:
                with pytest.raises(Exception, match="is not one of") as caught:
                    kind.check(word)
                assert (about and meaning in str(caught.value)) or "did you mean" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["recipe", "x.yaml"], "no command 'recipe'; did you mean run?"),
        (["tokenize", "x"], "no command 'tokenize'; did you mean build?"),
        (["train"], "tm.load gives batches to a trainer"),
        (["ls"], "tokenmill cache list lists the stores of the cache"),
        (["cache", "ls"], "did you mean list?"),
        (["build", "x", "-t", "y", "--format", "bin"], "tokenmill export (tm.export) writes tokens in such files"),
        (["export", "x", "y", "--format", "bin"], "did you mean nanogpt or llmc or megatron?"),
        (["stats", "x", "--seq-len", "8", "--verbose"], "it belongs to tokenmill build"),
        (["build", "x", "-t", "y", "--seq-len", "8"], "it belongs to tokenmill stats and tokenmill export"),
    ],
)
def test_what_newcomers_type(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_the_page_of_words_is_up_to_date():
    page, script = ROOT / "docs" / "coming.md", load_script(ROOT / "scripts" / "option_page.py")
    assert page.read_text("utf-8") == script.words_page(), "run scripts/option_page.py"
    assert all(f"`{word}`" in page.read_text("utf-8") for _, word, _ in EVERY)
