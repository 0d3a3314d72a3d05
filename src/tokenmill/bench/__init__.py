"""Measure, in one run, on this machine.

Whole builds against other ways (`builds`), engines side by side (`engines`), packing against TRL and numpy (`packing`),
loading against Mosaic's streaming, litData and numpy (`loading`).
"""

from __future__ import annotations

import argparse
import json

from tokenmill.bench.builds import bench_builds, corpus_texts
from tokenmill.bench.engines import bench_engines, table
from tokenmill.bench.loading import bench_loading
from tokenmill.bench.packing import bench_packing
from tokenmill.building.machine import parse_size


def bench(options: argparse.Namespace) -> int:
    """Measure and print; exit code 0 whatever the figures, which speak for themselves."""
    if options.packing:
        return bench_packing(options)
    if options.loading:
        return bench_loading(options)
    if not options.tokenizers:
        return bench_builds(options)
    size = parse_size(options.size or "40MB", "size")
    found = bench_engines(options.tokenizers, corpus_texts(options.corpus), size, options.rounds)
    print(json.dumps(found, indent=1) if options.json else "\n\n".join(map(table, found)))
    return 0
