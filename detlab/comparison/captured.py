"""The captured calls of two runs, by site: enough of each to offer it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from detlab.run import Run


class Captured(NamedTuple):
    """One capture: the rank that took it (-1 where it does not say), and its folder."""

    rank: int
    path: str


def captured_calls(runs: Iterable[Run]) -> Mapping[str, Sequence[Captured]]:
    """Give the captures of some runs by site; an unreadable capture is simply not offered."""
    found: dict[str, list[Captured]] = defaultdict(list)
    for folder in (folder for run in runs for folder in run.captures):
        try:
            content = json.loads((folder / "capture.json").read_text("utf-8"))
            site, rank = str(content["site"]), content.get("rank")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        found[site].append(Captured(rank if type(rank) is int else -1, str(folder)))
    return found
