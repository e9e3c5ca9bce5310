"""What two runs say about how they were made: only what differs, and the versions of both."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from detlab.comparison import Comparison
from detlab.run import Run, spans
from detlab.schema import Coordinate


class Entry(NamedTuple):
    """One entry of a recipe: its dotted name and what each run says, empty where it says nothing."""

    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        """Whether the runs disagree."""
        return self.a != self.b


def recipe_entries(cmp: Comparison) -> list[Entry]:
    """List every entry of the manifests and of the recipes of the compared ranks, by name.

    An entry that the ranks of one run do not agree on names the ranks with each value.
    """
    places = {rank.coordinate for rank in cmp.ranks}
    a, b = _recipe(cmp.a, places), _recipe(cmp.b, places)
    return [Entry(name, a.get(name, ""), b.get(name, "")) for name in sorted(a | b)]


def is_version(entry: Entry) -> bool:
    """Say whether an entry is the version of something."""
    return "version" in entry.name.lower()


def _recipe(run: Run, places: set[Coordinate]) -> dict[str, str]:
    ranks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    compared = [trace for trace in run.ranks if trace.header.coordinate in places]
    for trace in compared:
        for name, value in _flat(trace.header.recipe):
            ranks[name][value].append(trace.header.rank)
    merged = {name: _merged(values, len(compared)) for name, values in ranks.items()}
    told = run.manifest
    manifest = {
        "created": told.created,
        "recorder": told.recorder,
        "layout": told.layout,
        "racks": told.racks,
    }
    return merged | dict(_flat(manifest, "manifest."))


def _merged(values: Mapping[str, list[int]], num_ranks: int) -> str:
    if len(values) == 1:
        value, ranks = next(iter(values.items()))
        return value if len(ranks) == num_ranks else f"{value} (only ranks {spans(ranks)})"
    return "; ".join(f"{value} (ranks {spans(ranks)})" for value, ranks in sorted(values.items()))


def _flat(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield (
                f"{prefix}{name}",
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
            )
