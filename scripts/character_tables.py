"""Write the tables about characters that come with tokenmill, from what proofs find out on this machine.

    python scripts/character_tables.py TOKENIZERS... [--keep]

TOKENIZERS are as for scripts/conformance.py. A table holds for a pattern, a normalizer, and the versions of engine and reference.
With `--keep`, tables for other versions stay: run the script once with each line of `tokenizers`. Of versions of `tokenizers`
that give the same answers, the tables of the first one are kept.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conformance import specs_of  # beside this script
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.engines import engine_version
from tokenmill.encoding.engines.guarded import outside
from tokenmill.encoding.selection import characters, proof
from tokenmill.errors import TokenmillError

PATH = Path(__file__).parent.parent / "src" / "tokenmill" / "data" / proof.TABLES
ENGINE = "gigatoken"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--keep", action="store_true", help="keep tables for other versions")
    options = parser.parse_args()
    always = {"not_asked": characters.not_asked(composes=True), "private": characters.not_asked(composes=False)}
    before: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    same = options.keep and all(before.get(name) == [list(each) for each in ranges] for name, ranges in always.items())
    tables: dict[str, Any] = before["tables"] if same else {}
    equal: dict[str, str] = before["same_answers"] if same else {}
    for spec in specs_of(options.tokenizers):
        try:
            definition = load_tokenizer(spec)._definition
        except TokenmillError as error:
            print(f"{Path(spec).name}: {error}", flush=True)
            continue
        key = proof.table_key(definition, ENGINE)
        if key in tables or characters.question_definition(definition) is None:
            continue
        found = proof.prove(definition, ENGINE)
        table = proof.cached_table(key)
        print(f"{Path(spec).name}: {found.why}", flush=True)
        if table is not None:
            known = always["not_asked" if characters.normalizes(definition) else "private"]
            tables[key] = {**asdict(table), "guard": outside(table.guard, known), "name": Path(spec).name}
    equal |= _without_equal_ones(tables)
    lines = [f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(tables.items())]
    head = json.dumps({**always, "same_answers": equal})[:-1]
    PATH.write_text(f'{head}, "tables": {{\n' + ",\n".join(lines) + "\n}}\n", "utf-8")
    print(f"{len(tables)} tables in {PATH.name}")


def _without_equal_ones(tables: dict[str, Any]) -> dict[str, str]:
    """Remove the tables of the installed `tokenizers` if another version has given the same answers. Returns which one."""
    own = f"tokenizers {engine_version('tokenizers')}"
    mine = {key: table for key, table in tables.items() if f", {own}, " in key}
    for other in sorted({match[1] for key in tables if (match := re.search(r", (tokenizers [^,]+), ", key))} - {own}):
        if mine and all(tables.get(key.replace(own, other)) == table for key, table in mine.items()):
            for key in mine:
                del tables[key]
            return {own: other}
    return {}


if __name__ == "__main__":
    main()
