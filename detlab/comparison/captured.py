"""The captured calls of two runs, by site: enough of each to offer it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from detlab.comparison.places import site_in
from detlab.comparison.ranks import RankComparison
from detlab.run import Run


class Captured(NamedTuple):
    """One capture: the rank that took it (-1 where it does not say), and its folder."""

    rank: int
    path: str


CapturedCalls = tuple[Mapping[str, Sequence[Captured]], Mapping[str, Sequence[Captured]]]
"""The captures of run a and of run b, each by the sites of its own run."""


def recorder_of(where: str, site: str) -> str:
    """Write the recorder that captures the call at a site, ready to paste; ``where`` says on which ranks."""
    return f"detlab.Recorder(…, {where}, capture=[{json.dumps(site, ensure_ascii=False)}])"


def captured_calls(a: Run, b: Run) -> CapturedCalls:
    """Give the captures of two runs; an unreadable capture is simply not offered."""
    return _by_site(a), _by_site(b)


def _by_site(run: Run) -> Mapping[str, Sequence[Captured]]:
    found: dict[str, list[Captured]] = defaultdict(list)
    for folder in run.captures:
        try:
            content = json.loads((folder / "capture.json").read_text("utf-8"))
            site, rank = str(content["site"]), content.get("rank")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        found[site].append(Captured(rank if type(rank) is int else -1, str(folder)))
    return found


def captures_at(rank: RankComparison, position: int, captured: CapturedCalls) -> list[Captured]:
    """Give the captures of one compared call: each run may have made it under a site of its own."""
    found: list[Captured] = []
    sides = zip(captured, (rank.a, rank.source_b), rank.rows_at(position), strict=True)
    for of_run, trace, row in sides:
        if of_run and row >= 0:
            found += of_run.get(str(site_in(trace, row)), ())
    return found
