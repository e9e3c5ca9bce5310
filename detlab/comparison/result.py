"""The comparison of two runs: its verdict, what stands beside it, and every table behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from detlab.comparison.captured import CapturedCalls, captured_calls
from detlab.comparison.communication import GroupJudge
from detlab.comparison.discriminate import discriminate
from detlab.comparison.findings import Finding
from detlab.comparison.ignored import ignored
from detlab.comparison.overrides import Pairs
from detlab.comparison.paths import Tracer
from detlab.comparison.places import SITE_COLUMNS, call_row, calls_frame, position_of
from detlab.comparison.ranks import RankComparison
from detlab.comparison.structure import Structure, structure_of
from detlab.comparison.text import as_html
from detlab.comparison.verdicts import EXIT_CODES
from detlab.errors import InputError
from detlab.run import Run, left_out, spans
from detlab.schema import Coordinate, Evidence, Site, Verdict

if TYPE_CHECKING:
    from detlab.comparison.call import CallDetails, Programs

SCHEMA: Final = "detlab.comparison/1"

FINDING_COLUMNS: Final[dict[str, Any]] = {
    "class": pl.String,
    "op": pl.String,
    "scopes": pl.List(pl.String),
    "phase": pl.String,
    "ranks": pl.List(pl.Int64),
    "num_ranks": pl.Int64,
    "of_ranks": pl.Int64,
    "receivers": pl.List(pl.Int64),
    "steps": pl.List(pl.Int64),
    "sites": pl.List(pl.String),
    "num_sites": pl.Int64,
    "evidence": pl.String,
    "axis": pl.String,
    "chance": pl.Float64,
    "matched_before": pl.Int64,
    "untested_after": pl.Int64,
    "why": pl.String,
    "next": pl.String,
    "accepted": pl.String,
}
"""Columns of `Comparison.findings`, as in the JSON form."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two runs compared, event by event.

    Attributes
    ----------
    a, b
        The runs.
    steps
        The steps that were compared.
    ranks
        The verdicts of each rank that both runs recorded.
    roots
        Where differences begin, grouped; see `findings` for the frame.
    problems
        (where, what) for each thing that is missing or damaged.
    judge
        Knows what each member of a communicator gave; paths across ranks go through it.
    pairs
        Names of run b that were given names of run a.
    notes
        What people wrote about it.
    counted
        Kinds of things that were counted on request instead of being set aside.
    """

    a: Run
    b: Run
    steps: tuple[int, ...]
    ranks: tuple[RankComparison, ...]
    roots: tuple[Finding, ...]
    problems: tuple[tuple[str, str], ...]
    judge: GroupJudge
    pairs: Pairs = Pairs()  # noqa: RUF009 - frozen, and empty
    notes: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """Calls by verdict, without what was set aside."""
        total = np.zeros(len(Verdict), np.int64)
        for rank in self.ranks:
            total += rank.counts()
        return {verdict: int(total[verdict]) for verdict in Verdict}

    @property
    def num_ranks(self) -> int:
        """Ranks of which any call was compared; of a rank whose file was cut at its start none was."""
        return sum(bool(len(rank.verdicts)) for rank in self.ranks)

    @property
    def num_calls(self) -> int:
        """Calls compared, over all ranks."""
        return sum(len(rank.verdicts) for rank in self.ranks)

    @property
    def verdict(self) -> str:
        """``diverged``, ``match`` or ``incomplete``; a refused comparison never gets here."""
        if sum(self.counts.values()) - self.counts[Verdict.MATCH]:
            return "diverged"
        return "match" if self.complete else "incomplete"

    @property
    def complete(self) -> bool:
        """Whether every rank and step that either run has was whole and compared."""
        return not self.problems

    @property
    def exit_code(self) -> int:
        """0 match, 1 diverged, 2 incomplete; 0 too when every finding of a complete one is accepted."""
        if self.roots and self.complete and all(finding.accepted for finding in self.roots):
            return 0
        return EXIT_CODES[self.verdict]

    @cached_property
    def evidence(self) -> Evidence:
        """The least evidence of any output that was compared; NONE when none has any."""
        levels: set[int] = set()
        for rank in self.ranks:
            for trace in (rank.a, rank.b):
                compared = trace.index[np.isin(trace.index["step"], self.steps)]
                levels.update((compared["evidence"] & 15).tolist())
        return Evidence(min(levels - {0}, default=0))

    @cached_property
    def num_without_evidence(self) -> int:
        """Calls of run a whose outputs were not recorded in both runs; they never count as identical."""
        return self._count("no_output") + sum(_num_lacking_in_b(rank, self.steps) for rank in self.ranks)

    def _count(self, column: str) -> int:
        """Add up a count of the index over the compared steps of run a."""
        return sum(
            int(rank.a.index[column][np.isin(rank.a.index["step"], self.steps)].sum(dtype=np.int64))
            for rank in self.ranks
        )

    @cached_property
    def untraced(self) -> tuple[Coordinate, ...]:
        """Places that only one of the runs has a trace of."""
        compared = {rank.coordinate for rank in self.ranks}
        return tuple(sorted((self.a.by_coordinate.keys() | self.b.by_coordinate.keys()) - compared))

    @cached_property
    def structure(self) -> Structure:
        """How the programs of the runs differ."""
        return structure_of(self.ranks)

    @cached_property
    def first(self) -> pl.DataFrame:
        """First divergence of each rank that diverges, in that rank's own order.

        Returns
        -------
        One row per rank that diverges, by rank: ``rank`` (global rank of run a), ``coordinate``,
        ``step``, ``microbatch``, ``phase``, ``scope``, ``op``, ``call``, ``verdict``, ``seq_a`` and
        ``seq_b`` (order of the call on the rank; null where a run lacks it), ``site``. No order across
        ranks is claimed.
        """
        firsts = [(rank, rank.divergent()[:1]) for rank in self.ranks]
        return _calls([(rank, int(found[0])) for rank, found in firsts if len(found)])

    @cached_property
    def first_origin(self) -> pl.DataFrame:
        """First origin of each rank that has one; columns as in `first`."""
        firsts = [(rank, rank.counted(Verdict.ORIGIN)[:1]) for rank in self.ranks]
        return _calls([(rank, int(found[0])) for rank, found in firsts if len(found)])

    @cached_property
    def findings(self) -> pl.DataFrame:
        """Every place where a difference begins, grouped.

        Returns
        -------
        One row per finding, earliest step first; its columns are those of `detlab.comparison.Finding`,
        ``class`` for its class and ``num_ranks`` for the number of its ranks.
        """
        return pl.DataFrame([finding.to_json() for finding in self.roots], FINDING_COLUMNS)

    @cached_property
    def ignored(self) -> list[dict[str, Any]]:
        """What was set aside: kind, count and why, as in the JSON form."""
        return ignored(self.ranks, self.steps, self.counted)

    def sites(self, *, step: int, rank: int) -> pl.DataFrame:
        """List every call of one step on one rank.

        Parameters
        ----------
        step
            A compared step.
        rank
            Global rank in run a.

        Returns
        -------
        One row per call in the rank's order, with the columns of `first` and ``how`` (how the two runs'
        calls were matched: site, aligned or override).

        Raises
        ------
        InputError
            The rank or the step was not compared.
        """
        found = self._rank(rank)
        if step not in self.steps:
            raise InputError(f"step {step} was not compared.", f"choose one of {spans(list(self.steps))}")
        return calls_frame(found, found.positions_in(step))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the comparison to one file; `detlab.load_comparison` opens it again.

        The runs stay where they are: the file holds verdicts and findings, not events.
        """
        from detlab.comparison.saved import save_comparison

        return save_comparison(self, path)

    def with_note(self, text: str) -> Comparison:
        """Give the same comparison with one more note, which is saved and shown with it."""
        return replace(self, notes=(*self.notes, text))

    def path(self, *, rank: int, site: str) -> pl.DataFrame:
        """Follow how a difference reached one call, back to where it began.

        Parameters
        ----------
        rank
            Global rank in run a.
        site
            Text form of the call's site, as in `first` and `sites`.

        Returns
        -------
        One row per call on the way, the call itself first: ``hop``, ``from_hop`` (the hop that this one
        explains; null for the first), ``via`` (the input, scalar or communication it came through), the
        columns of `first`, and ``set_aside`` (an observer artefact that stands in the way all the same).
        Branches are followed breadth first; a call that differs in several inputs has several.

        Raises
        ------
        InputError
            The rank was not compared, makes no such call, or the text is no site.
        """
        found = self._rank(rank)
        return self._tracer.path(found, self._position(found, site))

    def call(self, *, rank: int, site: str) -> CallDetails:
        """Give everything that can be said about one call; printed, it is about one screen of text.

        Parameters
        ----------
        rank
            Global rank in run a.
        site
            Text form of the call's site, as in `first` and `sites`. Where both runs make a call of that
            site and they were matched with other ones, it is run a's.

        Returns
        -------
        `detlab.comparison.call.CallDetails`, with

        - ``call``: the columns of `first`, ``position`` on the rank and ``set_aside``; ``number`` of the rank
          in `ranks`, ``labels`` of the runs
        - ``kind``, ``group`` (communicator), ``how`` (the runs' calls were matched), ``flags`` in either run
        - ``set_aside``: (kind, why) for each reason to set it aside
        - ``inputs``, ``outputs``: ``same`` (None where nothing can be said), ``evidence``, ``why``
        - ``tensors``: each tensor, scalar fold and generator state in both runs: dtype, shape, stride,
          digest, absmax, sum, NaN, Inf, ``same``, ``evidence``; those that say most of ``num_tensors``
        - ``num_lanes``, ``differing_lanes``, ``origin_lanes`` of a list op
        - ``attributes`` (what was chosen, such as the kernel) and ``call_sites`` of both runs
        - ``why``: for an unknown, why none of the other verdicts can be given; ``notes``: what else is known
        - ``before``, ``after``: the calls around it
        - ``links``: which calls made its inputs, and which take its outputs
        - ``members``: what each member of its communicator gave
        - ``peers``: the same site on every other rank
        - ``findings`` (row numbers), their ``finding_classes``, ``findings_elsewhere`` (those of other ranks
          alone), ``captures`` (rank and folder) and ``next``

        and ``to_json()``. How a difference got here is asked apart, see `path`.

        Raises
        ------
        InputError
            The rank was not compared, makes no such call, or the text is no site.
        """
        from detlab.comparison.call import call_details

        found = self._rank(rank)
        number = next(n for n, each in enumerate(self.ranks) if each is found)
        return call_details(self, number, self._position(found, site))

    @cached_property
    def _programs(self) -> Programs:
        from detlab.comparison.call.peers import Programs

        return Programs(self.ranks)

    @cached_property
    def _captured(self) -> CapturedCalls:
        return captured_calls(self.a, self.b)

    @staticmethod
    def _position(rank: RankComparison, site: str) -> int:
        try:
            wanted = Site.parse(site)
        except ValueError as error:
            raise InputError(str(error), "copy a site from first, sites or a finding") from error
        position = position_of(rank, wanted)
        if position < 0:
            raise InputError(
                f"rank {rank.rank} makes the call {site}, which was not compared.",
                "choose a call of a compared step, as sites lists them",
            )
        return position

    @cached_property
    def _tracer(self) -> Tracer:
        return Tracer(self.ranks, self.judge)

    def discriminate(self, finding: int) -> pl.DataFrame:
        """Ask the trace itself which axis separates the divergent calls of a finding's op from clean ones.

        Parameters
        ----------
        finding
            Row number in `findings`.

        Returns
        -------
        One row per axis and value, axes as they come: ``axis`` (dtypes, layout, shapes, size, phase, and
        what was chosen at run time), ``value``, ``divergent`` and ``clean`` (calls with equal inputs whose
        output differs or not; a call with differing inputs is untested and not counted), ``separates``
        (no value has both), ``chance`` (how often chance separates as well; null where nothing is
        separated), ``says`` (the axis in one sentence, or what ruled it out).

        Raises
        ------
        InputError
            There is no such finding.
        """
        if not 0 <= finding < len(self.roots):
            raise InputError(
                f"there is no finding {finding}.", f"there are {len(self.roots)}, counted from 0"
            )
        return discriminate(self.ranks, self.steps, self.roots[finding])

    def _rank(self, number: int) -> RankComparison:
        found = next((each for each in self.ranks if each.rank == number), None)
        if found is None:
            ranks = spans([each.rank for each in self.ranks])
            raise InputError(f"rank {number} was not compared.", f"choose one of {ranks}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Give the comparison in its JSON form, see ``detlab/schemas/comparison.json``."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "evidence": self.evidence.name.lower(),
            "complete": self.complete,
            "coverage": self.coverage,
            "first": self.first.to_dicts(),
            "first_origin": self.first_origin.to_dicts(),
            "findings": [finding.to_json() for finding in self.roots],
            "structure": self.structure.to_json(),
            "ignored": self.ignored,
            **({"counted": list(self.counted)} if self.counted else {}),
            "problems": [{"where": where, "what": what} for where, what in self.problems],
        }

    @property
    def is_part(self) -> bool:
        """Whether a run was loaded with chosen ranks or steps, so that the verdict is about these alone."""
        return not (self.a.subset.takes_all and self.b.subset.takes_all)

    @property
    def left_out(self) -> dict[str, list[int]]:
        """Ranks and steps that were left out by request, in either run."""
        return left_out((self.a, self.b))

    @property
    def coverage(self) -> dict[str, Any]:
        """What was looked at: ranks, steps, events, and the places that were not."""
        return {
            "ranks": self.num_ranks,
            "of_ranks": self.a.manifest.world_size,
            "steps": list(self.steps),
            "events": self.num_calls,
            "without_evidence": self.num_without_evidence,
            "untraced": [str(place) for place in self.untraced],
            **({"left_out": self.left_out} if self.is_part else {}),
        }

    def __repr__(self) -> str:
        from detlab.comparison.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _num_lacking_in_b(rank: RankComparison, steps: Sequence[int]) -> int:
    """Count the calls of both runs whose outputs run a has recorded and run b has not.

    Where the segments of both have as many calls without, these are taken to be the same calls.
    """
    in_a, in_b = (each.index["no_output"][np.isin(each.index["step"], steps)] for each in (rank.a, rank.b))
    if np.array_equal(in_a, in_b):
        return 0
    blocks = rank.blocks[(np.minimum(rank.blocks["a"], rank.blocks["b"]) >= 0) & (rank.blocks["equal"] == 0)]
    total = 0
    for first_a, first_b, size in zip(
        *(blocks[name].tolist() for name in ("a", "b", "num_rows")), strict=True
    ):
        records = np.searchsorted(rank.b.starts, [first_b, first_b + size - 1], side="right") - 1
        if rank.b.index["no_output"][records[0] : records[1] + 1].any():
            mine, theirs = (
                trace.columns(first, first + size, ["evidence"])["evidence"] & 15
                for trace, first in ((rank.a, first_a), (rank.b, first_b))
            )
            total += int(((mine != 0) & (theirs == 0)).sum())
    return total


def _calls(places: list[tuple[RankComparison, int]]) -> pl.DataFrame:
    return pl.DataFrame([call_row(rank, position) for rank, position in places], SITE_COLUMNS)
