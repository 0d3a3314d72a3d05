"""Writes src/tokenmill/recipes/recipe.schema.json, for editors, from the declared options.

python scripts/recipe_schema.py            # rewrite the file; a test fails while it is out of date
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "src" / "tokenmill" / "recipes" / "recipe.schema.json"


def schema() -> str:
    """The JSON Schema of recipes (draft 7, which every editor reads)."""
    from tokenmill.option_types import Options, declared
    from tokenmill.options import SplitOptions
    from tokenmill.recipes import keys
    from tokenmill.recipes.checking import NAME

    def section(group: type[Options], description: str, **more: Any) -> dict[str, Any]:
        properties = {name: option.schema() for name, option in declared(group).items()}
        return {
            "type": "object",
            "description": description,
            "properties": properties,
            "additionalProperties": False,
            **more,
        }

    names = {"pattern": f"^{NAME.pattern}$"}
    source = section(keys.SourceKeys, "one source", oneOf=[{"required": ["path"]}, {"required": ["store"]}])
    sources = {
        "type": "object",
        "description": "what to read: a name for each source, with its path or with several keys",
        "propertyNames": names,
        "minProperties": 1,
        "additionalProperties": {"anyOf": [declared(keys.SourceKeys)["path"].schema(), source]},
    }
    block = section(keys.TokenizerKeys, "the tokenizer block of other tools", required=["context_length"])
    tokenizer = {
        "description": "a path, a name on the Hugging Face Hub (org/model@revision), tiktoken:ENCODING, bytes or demo",
        "anyOf": [keys.TOKENIZER.schema(), block],
    }
    split = {
        **section(SplitOptions, "named parts of the documents, such as eval: 0.01; the rest is train"),
        "propertyNames": names,
        "additionalProperties": {"anyOf": [keys.SHARE.schema(), keys.FOLDER.schema()]},
    }
    recipe = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A recipe of tokenmill",
        "description": "One file from sources to batches. Written by scripts/recipe_schema.py.",
        "type": "object",
        "required": ["sources"],
        "additionalProperties": False,
        "properties": {
            "sources": sources,
            "tokenizer": tokenizer,
            "build": section(keys.SECTIONS["build"], "options of tm.build"),
            "pack": section(keys.SECTIONS["pack"], "options of tm.pack"),
            "split": split,
            "load": section(keys.SECTIONS["load"], "options of tm.load"),
        },
    }
    assert tuple(recipe["properties"]) == keys.TOP
    return json.dumps(recipe, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema(), "utf-8")
