"""MaxText: ``completed step: 0, seconds: 56.766, total_weights: 262144, loss: 12.260``.

Its steps count from 0.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import NUMBER, WORD_START, Dialect, Memory, find_records, take_apart

_RECORD: Final = WORD_START + r"completed step: \d+, "
_HEAD: Final = r"completed step: (?<step>\d+)(?<fields>, .*)"
_FIELD: Final = rf", (?<name>[A-Za-z][^,:]*): (?<text>{NUMBER})"


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their commas."""
    return take_apart(find_records(lines, _RECORD), _HEAD, _FIELD)


MAXTEXT: Final = Dialect("MaxText", ("completed step: ",), _RECORD, parse)
