"""Step metrics of a recorded run, one JSON line each, at full precision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class MetricLog:
    """Append-only metrics of one rank; the number is kept as hexadecimal text, so no bit is lost.

    Parameters
    ----------
    folder
        The run's folder.
    rank
        Global rank; each rank writes its own file.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / f"metrics.rank{rank:05d}.jsonl"
        self._rank = rank
        self._file = path.open("x", encoding="utf-8", buffering=1)

    def add(self, step: int, name: str, value: float) -> None:
        """Append one number of one step."""
        line = {"step": step, "rank": self._rank, "name": name, "value": float(value).hex()}
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metric_logs(folder: Path) -> tuple[list[tuple[int, int, str, float]], list[str]]:
    """Read every metric of a run's folder.

    Returns
    -------
    rows
        (step, rank, name, value), sorted by name, step and rank.
    problems
        One sentence for each file that could not be read to its end.
    """
    rows: list[tuple[int, int, str, float]] = []
    problems: list[str] = []
    for path in sorted(folder.glob("metrics.rank*.jsonl")):
        lines = path.read_bytes().splitlines()
        good = list(_rows(lines))
        rows += good
        if len(good) < len(lines):
            problems.append(f"{path.name} stops making sense at line {len(good) + 1}")
    return sorted(rows, key=lambda row: (row[2], row[0], row[1])), problems


def _rows(lines: list[bytes]) -> Iterator[tuple[int, int, str, float]]:
    for line in lines:
        try:
            item: dict[str, Any] = json.loads(line)
            row = int(item["step"]), int(item["rank"]), str(item["name"]), float.fromhex(item["value"])
        except (KeyError, TypeError, ValueError):
            return
        yield row
