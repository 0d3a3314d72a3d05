"""Write the tables about characters that come with tokenmill, from what proofs find out on this machine.

    python scripts/character_tables.py TOKENIZERS... [--keep]

TOKENIZERS are as for scripts/conformance.py. A table holds for a pattern, a normalizer, and the versions of engine and reference.
With `--keep`, tables for other versions stay: run the script once with each line of `tokenizers`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conformance import specs_of  # beside this script
from tokenmill.encoding.api import load_tokenizer
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
    always = characters.not_asked(knows_unicode=True)
    before: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    same = options.keep and before["not_asked"] == [list(each) for each in always]
    tables: dict[str, Any] = before["tables"] if same else {}
    for spec in specs_of(options.tokenizers):
        try:
            definition = load_tokenizer(spec).definition
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
            tables[key] = {**asdict(table), "guard": outside(table.guard, always), "name": Path(spec).name}
    lines = [f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(tables.items())]
    head = json.dumps({"not_asked": always})[:-1]
    PATH.write_text(f'{head}, "tables": {{\n' + ",\n".join(lines) + "\n}}\n", "utf-8")
    print(f"{len(tables)} tables in {PATH.name}")


if __name__ == "__main__":
    main()
