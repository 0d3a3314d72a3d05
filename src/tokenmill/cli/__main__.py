"""So that `python -m tokenmill.cli` is the command line too."""

from __future__ import annotations

import sys

from tokenmill.cli import main

sys.exit(main())
