"""tokenmill run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tokenmill.cli.build import failed_files
from tokenmill.errors import UsageError
from tokenmill.formatting import printable


def add(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="a recipe: one YAML file from sources to batches",
        description="Build or find the stores of a recipe, plan its rows, and say what there is and how to load it.",
    )
    command.set_defaults(run=_run)
    command.add_argument("recipe", nargs="?", help="the YAML file; paths in it are relative to its folder")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key with another value, as pack.seq_len=8192; the value is YAML. May be repeated",
    )
    command.add_argument(
        "--check", action="store_true", help="check the recipe, its files and its tokenizer's name; build nothing"
    )
    command.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes, for editors")
    command.add_argument("--json", action="store_true", help="as JSON")


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
        found = overview.check(recipe)
        unseen = "" if found["tokenizer_found"] else f"; {found['tokenizer']} was not looked up"
        print(json.dumps(found, indent=1) if options.json else printable(f"ok: {_found(found['sources'])}{unseen}"))
        return 0
    told = overview.facts(recipe)
    told["python"] = overview.python(options.recipe, options.set, next(iter(told["splits"])))
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        print(
            printable("\n".join([overview.table(told), "", "in Python:", *(f"    {line}" for line in told["python"])]))
        )
    return failed_files(sum(source["failed"] for source in told["sources"].values()))


def _found(sources: dict[str, Any]) -> str:
    from tokenmill.formatting import human, some

    return ", ".join(
        f"{name} has {some(each['files'], 'file')} of {human(each['bytes'])}"
        if "files" in each
        else f"{name} is a store of {some(each['documents'], 'document')}"
        for name, each in sources.items()
    )
