"""Print every table of measured ratios: ``make bench``, or ``python -m tests.bench comparing`` for one."""

from __future__ import annotations

import sys
from importlib import import_module

TABLES = ("starting", "reading", "comparing", "checkpoints", "recorder", "replaying", "browser")

for name in sys.argv[1:] or TABLES:
    import_module(f"tests.bench.{name}").main()
