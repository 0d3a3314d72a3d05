"""Write the verdicts on the engines of well-known tokenizers into the package, from what trials on this machine found out.

    python scripts/shipped_verdicts.py TOKENIZERS...

TOKENIZERS are as for scripts/conformance.py, which has to have been run with them: this script holds trials only where none is
remembered. The guards are those of this Python's Unicode: run it with the oldest Python that is supported. A newer one knows
more characters, and leaves the same ones to the reference.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

from conformance import specs_of  # beside this script
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.engines import engine_traits
from tokenmill.encoding.engines.guarded import outside
from tokenmill.encoding.selection import probes
from tokenmill.encoding.selection.rare_characters import unassigned
from tokenmill.encoding.selection.shipped import FILE, versions

PATH = Path(__file__).parent.parent / "src" / "tokenmill" / "data" / FILE


def main() -> None:
    always = unassigned()
    verdicts: dict[str, dict[str, Any]] = {}
    for spec in specs_of(sys.argv[1:]):
        for policy in ("parse", "text"):
            tokenizer = load_tokenizer(spec, special_tokens=policy)
            entries = verdicts.setdefault(tokenizer.fingerprint, {"name": f"{Path(spec).name}, {policy}"})
            for verdict in tokenizer.choice.verdicts:
                knows = engine_traits(verdict.engine).knows_unicode
                entries[versions(tokenizer.definition, verdict.engine)] = {
                    "agrees": verdict.agrees,
                    "why": verdict.why,
                    "knows_unicode": knows,
                    "guard": outside(verdict.guard, always) if knows else verdict.guard,
                }
    body = {"suite": probes.VERSION, "unicode": unicodedata.unidata_version, "unassigned": always}
    lines = [f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(verdicts.items())]
    head = json.dumps(body)[:-1]
    PATH.write_text(f'{head}, "verdicts": {{\n' + ",\n".join(lines) + "\n}}\n", "utf-8")
    print(f"{len(verdicts)} tokenizers in {PATH.name}")


if __name__ == "__main__":
    main()
