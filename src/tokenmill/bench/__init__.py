"""Measure, in one run, on this machine.

Whole builds against other ways (`builds`), engines side by side (`engines`), packing against TRL and numpy (`packing`),
loading against Mosaic's streaming, litData and numpy (`loading`), the cache against tokenizing and a look at each file (`cache`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenmill.bench.builds import builds_table, corpus_texts, measure_builds
from tokenmill.bench.cache import cache_table, measure_cache
from tokenmill.bench.engines import engines_table, measure_engines
from tokenmill.bench.loading import loading_table, measure_loading
from tokenmill.bench.packing import LARGE, measure_packing, packing_table
from tokenmill.formatting import parse_size


def bench(options: argparse.Namespace) -> int:
    """Measure and print; exit code 0 whatever the figures, which speak for themselves."""
    work = Path(options.work or tempfile.mkdtemp(prefix="tokenmill-bench-"))
    try:
        found, table = _measured(work, options)
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(found, indent=1) if options.json else table(found))
    return 0


def _measured(work: Path, options: argparse.Namespace) -> tuple[Any, Callable[[Any], str]]:
    """What was asked for, and how it is shown."""
    rounds = options.rounds
    if options.packing:
        large = LARGE if options.large else 0
        return measure_packing(work, options.documents, rounds, peer=options.peer, large=large), packing_table
    if options.loading:
        return measure_loading(work, rounds, mosaic=options.mosaic, litdata=options.litdata), loading_table
    if options.cache:
        size = parse_size(options.size or "250MB", "size")
        return measure_cache(work, options.corpus, options.tokenizer, size, rounds), cache_table
    if options.tokenizers:
        size = parse_size(options.size or "40MB", "size")
        return measure_engines(options.tokenizers, corpus_texts(options.corpus), size, rounds), engines_table
    size = parse_size(options.size or "300MB", "size")
    return measure_builds(work, options.corpus, options.tokenizer, size, rounds), builds_table
