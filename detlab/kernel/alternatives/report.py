"""What a comparison of alternatives saw: determinism, closeness and time of each, as text, JSON and frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from detlab.kernel.statistics import percent
from detlab.text import plural

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Closeness:
    """How far results lie from a float64 reference: the farthest of those measured, over all float outputs.

    Attributes
    ----------
    max_abs
        Largest absolute difference of two finite numbers.
    max_ulp
        Largest number of representable numbers between a result and the reference rounded to its dtype; None
        when there is no such pair.
    relative_l2
        Euclidean norm of the difference as a share of that of the reference; None where the reference is
        zero and the result is not.
    not_finite
        Number of elements that are NaN or infinite on one side and not the same on the other.
    """

    max_abs: float
    max_ulp: int | None
    relative_l2: float | None
    not_finite: int


@dataclass(frozen=True, slots=True)
class PairedTime:
    """The time of one contender beside the captured op, round by round.

    Attributes
    ----------
    median_ms
        Median time of one call, in milliseconds, without restoring its arguments.
    ratio
        Median over the rounds of its time divided by the op's time in the same round: for an alternative
        with one result, the determinism tax of this kernel.
    ratio_95
        Order-statistics interval of that median, which covers it in at least 95 % of the cases whatever the
        distribution, for independent rounds; None with fewer than 6 of them.
    """

    median_ms: float
    ratio: float
    ratio_95: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ContenderResult:
    """One contender: the captured op, or a callable in its place.

    Attributes
    ----------
    name
        The op's name or the name that the callable was given.
    is_captured_op
        Whether it is the op itself.
    trials, distinct, modal_share, upper_bound_95
        Timed trials, different results among them, share of the most frequent one, and, when there was one
        result only, the rate of others that is excluded at 95 %; see `detlab.kernel.statistics`.
    closeness
        None without a reference, or where its outputs are not of the op's shapes.
    time
        None without a trial of it and the op in one round.
    problem
        What keeps it from standing in for the op, one sentence; empty when nothing does.
    """

    name: str
    is_captured_op: bool
    trials: int
    distinct: int
    modal_share: float
    upper_bound_95: float | None
    closeness: Closeness | None
    time: PairedTime | None
    problem: str


_HEADER: Final = ("", "distinct", "other results", "max |d|", "max ULP", "rel. L2", "median", "x op (95 %)")


@dataclass(frozen=True, slots=True, repr=False)
class AlternativesReport:
    """A captured op and what could stand in its place, from one run.

    Attributes
    ----------
    op, site
        Which call it was.
    condition
        Device, threads and flags of all trials.
    warmup
        Calls of each contender before the first that was timed.
    reference
        What the results were measured against, or why there was nothing to measure them against.
    contenders
        The op first, then the alternatives in the order given.
    problems
        What the reader must know before believing the rest, one sentence each.
    """

    op: str
    site: str
    condition: str
    warmup: int
    reference: str
    contenders: tuple[ContenderResult, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Give the document that ``detlab/schemas/alternatives.json`` describes."""
        rows = [asdict(row) for row in self.contenders]
        for row in rows:
            if row["time"] and row["time"]["ratio_95"]:
                row["time"]["ratio_95"] = list(row["time"]["ratio_95"])
        return {
            "schema": "detlab.alternatives/1",
            "op": self.op,
            "condition": self.condition,
            "warmup": self.warmup,
            "reference": self.reference,
            "contenders": rows,
            "problems": [{"where": self.site, "what": problem} for problem in self.problems],
        }

    def frame(self) -> pl.DataFrame:
        """Give one row a contender.

        Returns
        -------
        Columns ``name``, ``is_captured_op``, ``trials``, ``distinct``, ``modal_share``, ``upper_bound_95``,
        ``max_abs``, ``max_ulp``, ``relative_l2``, ``not_finite``, ``median_ms``, ``ratio``, ``ratio_low``,
        ``ratio_high``, ``problem``; null where a contender has no such number.
        """
        import polars as pl

        return pl.DataFrame([_flat(row) for row in self.contenders], schema=_schema())

    def __repr__(self) -> str:
        rounds = max(row.trials for row in self.contenders)
        calls = f"{self.warmup} untimed {plural('call', self.warmup)} of each"
        lines = [
            f"alternatives to {self.op} at {self.site}",
            f"{rounds:,} trials of each, in turns, in this process ({self.condition}), after {calls}",
            *_table([_HEADER, *(_cells(row) for row in self.contenders)]),
            f"d, ULP, L2  {self.reference}",
            "x op        median of the time divided by the op's in the same round",
        ]
        lines += [f"note        {row.name} {row.problem}" for row in self.contenders if row.problem]
        lines += [f"note        {problem}" for problem in self.problems]
        return "\n".join(lines)


def _cells(row: ContenderResult) -> tuple[str, ...]:
    if not row.trials:
        return (row.name, *["-"] * 7)
    others = (
        percent(1 - row.modal_share) if row.upper_bound_95 is None else f"< {percent(row.upper_bound_95)}"
    )
    far, time = row.closeness, row.time
    return (
        row.name,
        f"{row.distinct:,} of {row.trials:,}",
        others,
        f"{far.max_abs:.2g}" if far else "-",
        "-" if far is None or far.max_ulp is None else f"{far.max_ulp:,}",
        "-" if far is None or far.relative_l2 is None else f"{far.relative_l2:.2g}",
        f"{time.median_ms:.3g} ms" if time else "-",
        _ratio(row),
    )


def _ratio(row: ContenderResult) -> str:
    if row.time is None:
        return "-"
    if row.is_captured_op:
        return "1"
    interval = row.time.ratio_95
    return f"{row.time.ratio:.3g}" + (f" ({interval[0]:.3g} to {interval[1]:.3g})" if interval else "")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Set rows in columns: the first one to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _flat(row: ContenderResult) -> dict[str, object]:
    far, time = row.closeness, row.time
    low, high = time.ratio_95 if time and time.ratio_95 else (None, None)
    return {
        "name": row.name,
        "is_captured_op": row.is_captured_op,
        "trials": row.trials,
        "distinct": row.distinct,
        "modal_share": row.modal_share if row.trials else None,
        "upper_bound_95": row.upper_bound_95,
        "max_abs": far.max_abs if far else None,
        "max_ulp": far.max_ulp if far else None,
        "relative_l2": far.relative_l2 if far else None,
        "not_finite": far.not_finite if far else None,
        "median_ms": time.median_ms if time else None,
        "ratio": time.ratio if time else None,
        "ratio_low": low,
        "ratio_high": high,
        "problem": row.problem,
    }


def _schema() -> dict[str, Any]:
    import polars as pl

    kinds = {
        pl.String: ("name", "problem"),
        pl.Boolean: ("is_captured_op",),
        pl.Int64: ("trials", "distinct", "not_finite"),
        pl.UInt64: ("max_ulp",),
    }
    known = {name: kind for kind, names in kinds.items() for name in names}
    names = (
        "name is_captured_op trials distinct modal_share upper_bound_95 max_abs max_ulp relative_l2 "
        "not_finite median_ms ratio ratio_low ratio_high problem"
    )
    return {name: known.get(name, pl.Float64) for name in names.split()}
