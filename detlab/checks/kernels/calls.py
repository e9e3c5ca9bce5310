"""The calls of a comparison by what a source of choices knows of them: product, op with shapes, or name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from detlab.checks.kernels.products import Product, layout_of_call, of_call
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison, read_rows
from detlab.schema import Kind, Meta, Verdict
from detlab.store import RankTrace

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

Outcome = Literal["bits", "values", "untested", "unknown"]
"""What a comparison shows of a call: equal inputs and other outputs; equal in both, with evidence; inputs
that differ, so that it is untested; anything else."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("bits", "values", "untested", "unknown")
_MAX_SITES: Final = 4


@dataclass(frozen=True)
class CallGroup:
    """Calls of one rank that one key fits.

    Attributes
    ----------
    rank
        The comparison of that rank.
    total_a, total_b
        How many each run made, also in steps that were not compared.
    positions
        Where those of run a stand in the comparison, in their order; -1 for one that was not compared.
    """

    rank: RankComparison
    total_a: int
    total_b: int
    positions: NDArray[np.int64]

    @cached_property
    def outcomes(self) -> NDArray[np.int64]:
        """Give the number of the outcome of each call in `Outcome`."""
        return outcomes_at(self.rank, self.positions)

    def by_meta(self) -> Iterator[tuple[Meta, CallGroup]]:
        """Give the calls that are alike in shapes and dtypes; those that were not compared are left out."""
        at = self.positions[self.positions >= 0]
        metas = read_rows(self.rank.a, self.rank.rows(at)[0], ("meta",))["meta"] if len(at) else at
        for meta in np.unique(metas).tolist():
            alike = at[metas == meta]
            yield self.rank.a.names.metas[meta], CallGroup(self.rank, len(alike), len(alike), alike)

    def with_outcome(self, outcome: Outcome) -> NDArray[np.int64]:
        """Give which of its calls have an outcome, as numbers in their order."""
        return np.flatnonzero(self.outcomes == OUTCOMES.index(outcome))

    def sites(self, numbers: NDArray[np.int64]) -> list[str]:
        """Give the sites of the first few of some calls."""
        return [str(site_at(self.rank, int(at))) for at in self.positions[numbers[:_MAX_SITES]]]


def outcomes_at(rank: RankComparison, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give what a comparison shows at some positions, as numbers in `Outcome`."""
    found = np.full(len(positions), OUTCOMES.index("unknown"))
    known = np.flatnonzero(positions >= 0)
    at = positions[known]
    if not len(at):
        return found
    verdicts = rank.verdicts[at]
    levels = rank.events(at, ("evidence",))["evidence"]
    proven = ((levels & 15) != 0) & ((levels >> 4) != 0)
    counted = rank.is_counted(at)
    found[known[(verdicts == Verdict.ORIGIN) & counted]] = OUTCOMES.index("bits")
    found[known[(verdicts == Verdict.MATCH) & proven]] = OUTCOMES.index("values")
    differs = np.isin(verdicts, (Verdict.RECEIVER, Verdict.ABSORBED)) & counted
    found[known[differs]] = OUTCOMES.index("untested")
    return found


class RankCalls:
    """The calls of one rank, found by key.

    Keys are ``("product", Product)``, ``("product", Product, layout)``, ``("shapes", op and shapes)`` as a
    profiler writes them, and ``("name", name)`` for each part of the name of an op.
    """

    def __init__(self, rank: RankComparison) -> None:
        self.rank = rank
        self._a, self._b = _by_key(rank.a), _by_key(rank.b)
        self._groups: dict[Hashable, CallGroup] = {}

    def group(self, key: Hashable) -> CallGroup | None:
        """Give the calls that a key fits; None where run a makes none."""
        rows = self._a.get(key)
        if rows is None:
            return None
        if key not in self._groups:
            mine = np.sort(np.concatenate(rows))
            theirs = _num_rows(self._b.get(key, []))
            self._groups[key] = CallGroup(self.rank, len(mine), theirs, self.rank.positions_of(mine))
        return self._groups[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._a

    def num_products(self) -> tuple[int, int]:
        """Give how many matrix products run a and run b compute on this rank."""
        counts = [
            sum(_num_rows(rows) for key, rows in each.items() if _is_product(key))
            for each in (self._a, self._b)
        ]
        return counts[0], counts[1]

    def products(self) -> list[Product]:
        """Give every matrix product that run a computes on this rank."""
        return [key[1] for key in self._a if isinstance(key, tuple) and _is_product(key)]


def _is_product(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[0] == "product" and len(key) == 2


def _num_rows(parts: Sequence[NDArray[np.int64]]) -> int:
    return sum(map(len, parts))


def calls_by_rank(cmp: Comparison) -> dict[int, RankCalls]:
    """Give the calls of every compared rank."""
    return {rank.rank: RankCalls(rank) for rank in cmp.ranks}


def _by_key(trace: RankTrace) -> dict[Hashable, list[NDArray[np.int64]]]:
    """Put the rows of a trace under every key that fits them; collectives are left out."""
    found: dict[Hashable, list[NDArray[np.int64]]] = defaultdict(list)
    for start, block in trace.blocks(0, trace.num_events, ("callee", "meta", "kind")):
        rows = np.flatnonzero(block["kind"] != Kind.COLLECTIVE)
        code = block["callee"][rows].astype(np.uint64) << np.uint64(32) | block["meta"][rows]
        order = np.argsort(code, kind="stable")
        ordered = code[order]
        edges = np.flatnonzero(np.diff(ordered)) + 1
        for part in np.split(order, edges) if len(order) else ():
            callee, meta = divmod(int(code[part[0]]), 1 << 32)
            for key in _keys(trace.names.callees[callee].op, trace.names.metas[meta]):
                found[key].append(start + rows[part])
    return found


def _keys(op: str, meta: Meta) -> Iterable[Hashable]:
    product = of_call(op, meta)
    if product is not None:
        yield "product", product
        layout = layout_of_call(op, meta)
        if layout:
            yield "product", product, layout
    yield "shapes", shapes_key(op, [each.shape for each in meta.inputs])
    for name in dict.fromkeys((*_parts(op), *(text for name, text in meta.attributes if name == "kernel"))):
        yield "name", name


def _parts(op: str) -> list[str]:
    return [part for part in op.replace("::", ".").split(".") if part not in ("aten", "default", "triton")]


def shapes_key(op: str, shapes: Sequence[Sequence[int]]) -> str:
    """Write op and shapes as both a trace and a profiler know them: no overload, no empty shapes."""
    parts = op.replace("::", ".").split(".")
    return f"{'.'.join(parts[:2])} {json.dumps([list(each) for each in shapes if each])}"


def shapes_of_profile(problem: str) -> str:
    """Write the problem of a profiler's kernel as such a key; empty where it names no op with shapes."""
    op, _, text = problem.partition(" ")
    try:
        shapes = json.loads(text)
        return shapes_key(op, [each for each in shapes if each and all(isinstance(n, int) for n in each)])
    except (ValueError, TypeError, RecursionError):
        return ""
