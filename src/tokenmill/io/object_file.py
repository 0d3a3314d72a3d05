"""An object as a file: reads by ranges, and fetches what will be read next while the reader works on what it has."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any

from tokenmill.io import object_store

PART_BYTES = 4 << 20  # of one request, where it is known what will be read
PARTS_AHEAD = 6  # requests on their way
PARTS_KEPT = 8  # that were read, in case a reader goes back
SMALLEST_READ = 1 << 16  # where it is not known what will be read
FOOTERS_KEPT = 16  # ends of objects, by this process: the next task often reads another part of the same file
LARGEST_FOOTER = 1 << 20
THREADS = 24  # of this process, for all of its files

_footers: OrderedDict[tuple[str, str | None, int], Future[bytes]] = OrderedDict()
_footers_lock = Lock()
ReadRange = Callable[[str, int, int | None, str | None], bytes]  # of an URL, from, to, with this tag
