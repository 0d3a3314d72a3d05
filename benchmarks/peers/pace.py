"""Tokens per second over the full batches of one or more passes, after a warm-up. The readers beside this file import it.

Their arguments: path, seq_len, batch size, seconds of warm-up, seconds to measure, and what is specific to the reader.
"""

import itertools
import json
import sys
import time

path, seq_len, batch, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[6:]
warm_up, seconds = float(sys.argv[4]), float(sys.argv[5])


def report(passes, **facts):
    """Measure, and print the result as JSON. `passes` is an iterable of iterables of id arrays."""
    print(json.dumps({"pace": _pace(passes), **facts}))


def again(loader):
    """The same loader, one pass after another."""
    return itertools.repeat(loader)


def _pace(passes):
    began, spent, count = None, 0.0, 0
    for batches in passes:
        last = None  # the time between two passes does not count
        for ids in batches:
            now = time.perf_counter()
            began = began or now
            if ids.shape != (batch, seq_len):
                continue
            if last is not None and last - began >= warm_up:
                spent, count = spent + now - last, count + 1
            last = now
            if spent >= seconds:
                return count * batch * seq_len / spent
    raise SystemExit("the data ended before the clock did")
