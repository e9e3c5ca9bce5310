"""What two runs say about how they were made: what differs, what that is worth, and the versions of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from detlab.checks.recipe.differences import difference, weight
from detlab.checks.recipe.said import shown
from detlab.checks.recipe.settings import Setting, Settings
from detlab.checks.recipe.sources import read_settings
from detlab.comparison import Comparison
from detlab.run import Run
from detlab.schema import Coordinate


class Entry(NamedTuple):
    """One setting that two runs do not share: its name, what that is worth, and what each run says."""

    name: str
    group: str
    a: str
    b: str


class Recipes(NamedTuple):
    """What two runs say: the settings that differ, worst first, and the versions that do not."""

    differing: list[Entry]
    versions: list[tuple[str, str]]
    is_empty: bool


def compared_recipes(cmp: Comparison) -> Recipes:
    """Compare the manifests and the recipes of the compared ranks, see `detlab.checks.recipe`."""
    places = {rank.coordinate for rank in cmp.ranks}
    a, b = _settings(cmp.a, places), _settings(cmp.b, places)
    names = sorted(set(a.by_name) | set(b.by_name))
    found = sorted(filter(None, (difference(name, a, b) for name in names)), key=weight)
    differs = {each.setting for each in found}
    return Recipes(
        differing=[Entry(each.setting, each.group, each.a, each.b) for each in found],
        versions=[
            (name, shown(a.by_name[name]))
            for name in names
            if name.startswith("version.") and name not in differs
        ],
        is_empty=not names,
    )


def _settings(run: Run, places: set[Coordinate]) -> Settings:
    """Read the settings of the compared ranks, and what the manifest says beside them."""
    ranks = tuple(trace for trace in run.ranks if trace.header.coordinate in places)
    settings = read_settings(replace(run, ranks=ranks))
    told = run.manifest
    manifest: Mapping[str, object] = {
        "time.created": told.created,
        **{f"recorder.{name}": value for name, value in told.recorder.items()},
        "place.racks": told.racks or None,
    }
    more = {
        name: (Setting(name, value if isinstance(value, str) else json.dumps(value), f"manifest: {name}"),)
        for name, value in manifest.items()
        if value is not None
    }
    known = frozenset(settings.kinds | {"place", "version", "args", "time", "recorder"})
    return replace(settings, by_name={**settings.by_name, **more}, kinds=known, env_prefixes=())
