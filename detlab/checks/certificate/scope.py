"""What a certificate is about: recipe, runs, the steps and ranks that all of them show, and their hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

from detlab.checks.certificate.gates import common_ranks, common_steps
from detlab.comparison.facts import recorded_hosts
from detlab.run import Run, spans
from detlab.text import plural

Allocation = Literal["same", "other", "not known"]


class Scope(NamedTuple):
    """What a certificate is about, and about nothing else.

    Attributes
    ----------
    recipe
        Where the recipe was read.
    runs
        Labels of the runs.
    steps, ranks
        Steps and global ranks that all runs show, as text such as ``1-3``.
    world_size
        Number of ranks that trained; 0 where it is not known.
    layout
        Size of each parallel axis.
    allocation
        Whether every rank ran on the same host in all runs, some on another, or that is not known of all.
    hosts
        The hosts of each run by its label.
    resumes
        Number of resumes that were checked.
    """

    recipe: str
    runs: tuple[str, ...]
    steps: str
    ranks: str
    world_size: int
    layout: Mapping[str, int]
    allocation: Allocation
    hosts: Mapping[str, tuple[str, ...]]
    resumes: int

    def to_json(self) -> dict[str, Any]:
        """Give the scope as it stands in the document."""
        hosts = {label: list(each) for label, each in self.hosts.items()}
        return {**self._asdict(), "runs": list(self.runs), "layout": dict(self.layout), "hosts": hosts}


def scope_of(runs: Sequence[Run], recipe: Any, num_resumes: int) -> Scope:
    """Give what a certificate on these runs is about."""
    traced = [run for run in runs if run.ranks]
    first = traced[0].manifest if traced else None
    hosts = {run.label: recorded_hosts(run) for run in traced if recorded_hosts(run)}
    return Scope(
        recipe=_named(recipe),
        runs=tuple(run.label for run in runs),
        steps=spans(common_steps(runs)),
        ranks=spans(common_ranks(traced)),
        world_size=first.world_size if first else 0,
        layout=dict(first.layout) if first else {},
        allocation=_allocation(runs),
        hosts=hosts,
        resumes=num_resumes,
    )


def _named(recipe: Any) -> str:
    """Name a recipe; what is in it stays there, for it may hold secrets."""
    if recipe is None:
        return "as each run recorded it"
    if isinstance(recipe, Mapping):
        return f"a mapping of {len(recipe)} {plural('setting', len(recipe))}"
    return str(getattr(recipe, "label", recipe))


def _allocation(runs: Sequence[Run]) -> Allocation:
    """Say whether each rank ran on the host that it ran on before; ranks without a trace may not have."""
    places = [{rank.header.rank: rank.header.recipe.get("host") for rank in run.ranks} for run in runs]
    for a, b in combinations(places, 2):
        if any(a[rank] and b[rank] and a[rank] != b[rank] for rank in a.keys() & b.keys()):
            return "other"
    size = max((run.manifest.world_size for run in runs), default=0)
    known = all(len([host for host in each.values() if host]) == max(size, 1) for each in places)
    return "same" if len(runs) > 1 and known else "not known"
