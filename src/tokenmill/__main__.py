"""`python -m tokenmill` runs the command line."""

from __future__ import annotations

import sys

from tokenmill.cli import main

sys.exit(main())
