"""Text that every machine has: the source files of the running Python, with a small tokenizer shipped in the package."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import sysconfig
from pathlib import Path

SUFFIXES = (".py", ".rst", ".txt")


def demo_tokenizer() -> Path:
    """The folder of the byte-level BPE tokenizer in the package, made by scripts/train_demo_tokenizer.py."""
    from tokenmill.encoding.resolve import DEMO_FOLDER

    return DEMO_FOLDER


def demo_globs() -> list[str]:
    """Globs for the .py, .rst and .txt files of the running Python: the standard library and installed packages."""
    roots = dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "purelib"))
    patterns = (str(Path(root) / "**" / f"*{suffix}") for root in roots for suffix in SUFFIXES)
    return [pattern for pattern in patterns if next(glob.iglob(pattern, recursive=True), None)]


def demo(out: str) -> int:
    """Build the demo store, and print its facts and the next steps. Returns the exit code."""
    from tokenmill.building.api import build
    from tokenmill.formatting import printable
    from tokenmill.reading import read
    from tokenmill.store.facts import info, info_table

    source = read(*demo_globs(), format="text")
    print(f"building {out} from the .py, .rst and .txt files of {sys.prefix}", file=sys.stderr)
    store = build(source, "demo", out)
    file, row = store.locate(len(store) // 2)
    print(printable(info_table(info(out), brief=True)))
    if shutil.which("tokenmill") is None:
        print(f"\nTo put the command tokenmill on the path: . {os.path.relpath(sys.prefix)}/bin/activate")
    print(f"""
Next steps:
  tokenmill show {out} --doc {len(store) // 2}        # a document: {Path(file).name}, row {row}
  tokenmill verify {out}                  # compare all checksums
  tokenmill stats {out} --seq-len 1024 --split all --compare     # rows, also of folders called test; what strategies waste
  tokenmill build 'data/*.jsonl' -t path/to/tokenizer.json -o corpus/     # your own text

  import tokenmill as tm
  store = tm.open({out!r}); store[0]; store.num_tokens; store.locate(0)
  loader = tm.load(store, 8, seq_len=1024, split="all"); next(iter(loader))""")
    return 0
