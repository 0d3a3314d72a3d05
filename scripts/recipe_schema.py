"""Writes src/tokenmill/recipes/recipe.schema.json, for editors, from the one table of keys.

python scripts/recipe_schema.py            # rewrite the file; a test fails while it is out of date
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "src" / "tokenmill" / "recipes" / "recipe.schema.json"


def schema() -> str:
    """The table as JSON Schema (draft 7, which every editor reads)."""
    from tokenmill.recipes import keys
    from tokenmill.recipes.checking import NAME

    def section(table: keys.Keys, says: str, **more: Any) -> dict[str, Any]:
        properties = {name: key.schema() for name, key in table.items()}
        return {"type": "object", "description": says, "properties": properties, "additionalProperties": False, **more}

    names = {"pattern": f"^{NAME.pattern}$"}
    one = section(keys.SOURCE, "one source", oneOf=[{"required": ["path"]}, {"required": ["store"]}])
    sources = {
        "type": "object",
        "description": "what to read: a name for each source, and its path, or its path and more",
        "propertyNames": names,
        "minProperties": 1,
        "additionalProperties": {"anyOf": [keys.SOURCE["path"].schema(), one]},
    }
    block = section(keys.BLOCK, "the block of other tools, read as it is", required=["context_length"])
    tokenizer = {
        "description": "a path, a name on the Hugging Face Hub (org/model@revision), tiktoken:ENCODING, or bytes",
        "anyOf": [keys.BLOCK["tokenizer_name"].schema(), block],
    }
    split = {
        **section(keys.SPLIT, "parts of the documents by name, as eval: 0.01; what is left is train"),
        "propertyNames": names,
        "additionalProperties": {"anyOf": [keys.SHARE.schema(), keys.FOLDER.schema()]},
    }
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A recipe of tokenmill",
        "description": "One file from sources to batches. Written by scripts/recipe_schema.py.",
        "type": "object",
        "required": ["sources"],
        "additionalProperties": False,
        "properties": {
            "sources": sources,
            "tokenizer": tokenizer,
            "build": section(keys.BUILD, "options of tm.build"),
            "pack": section(keys.PACK, "options of tm.pack"),
            "split": split,
            "load": section(keys.LOAD, "options of tm.load"),
        },
    }
    assert tuple(whole["properties"]) == keys.TOP
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema(), "utf-8")
