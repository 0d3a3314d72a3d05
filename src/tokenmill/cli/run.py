"""tokenmill run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tokenmill.cli.build import failed_files
from tokenmill.cli.flags import add_command, add_json, print_result
from tokenmill.errors import UsageError
from tokenmill.formatting import human, some


def add(commands: Any) -> None:
    command = add_command(
        commands,
        "run",
        _run,
        help="run a recipe: one YAML file from sources to batches",
        description="Build or find the stores of a recipe, plan its rows, and show the result and how to load it.",
        resumes=True,
    )
    command.add_argument("recipe", nargs="?", help="the YAML file; paths in it are relative to its folder")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key, such as pack.seq_len=8192; the value is YAML. May be repeated",
    )
    command.add_argument(
        "--check",
        action="store_true",
        help="check the recipe, its files, their splits and the name of its tokenizer; build nothing",
    )
    command.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes, for editors")
    add_json(command)


def _run(options: argparse.Namespace) -> int:
    from tokenmill import recipes
    from tokenmill.recipes import overview

    if options.schema:
        print(Path(recipes.__file__).with_name("recipe.schema.json").read_text("utf-8"), end="")
        return 0
    if options.recipe is None:
        raise UsageError("name the recipe: tokenmill run recipe.yaml")
    recipe = recipes.recipe(options.recipe, set=options.set)
    if options.check:
        facts = overview.check(recipe)
        splits = f"{'split' if len(facts['splits']) == 1 else 'splits'} {', '.join(facts['splits'])}"
        unchecked = "" if facts["tokenizer_found"] else f"; {facts['tokenizer']} was not looked up"
        print_result(facts, f"ok: {_inputs(facts['sources'])}; {splits}{unchecked}", as_json=options.json)
        return 0
    facts = overview.facts(recipe)
    rows = {split: each["rows"] for split, each in facts["splits"].items()}
    facts["python"] = overview.python(options.recipe, options.set, recipe, rows)
    text = "\n".join([overview.table(facts), "", "in Python:", *(f"    {line}" for line in facts["python"])])
    print_result(facts, text, as_json=options.json)
    return failed_files(sum(source["failed"] for source in facts["sources"].values()))


def _inputs(sources: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} has {some(each['files'], 'file')} of {human(each['bytes'])}"
        if "files" in each
        else f"{name} is a store of {some(each['documents'], 'document')}"
        for name, each in sources.items()
    )
