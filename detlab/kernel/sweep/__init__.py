"""The same call at reduced sizes: a race may need many blocks, so that "not seen" holds for one size only.

Field reports tell of kernels that race only from 128 blocks on, so "0/50 at reduced size" has to stand beside
"3/50 at full size", each with what it proves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import torch

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel.ops import find_op
from detlab.kernel.report import ReplayReport
from detlab.kernel.statistics import percent
from detlab.kernel.sweep.cut import cut_capture, find_cut

if TYPE_CHECKING:
    import polars as pl

SCHEMA: Final = "detlab.size_sweep/1"

SIZES: Final = (Fraction(1, 16), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1))
"""Shares of the rows that are tried unless others are asked for."""

_COLUMNS: Final = (
    "rows",
    "share",
    "trials",
    "distinct",
    "mismatches",
    "upper_bound_95",
    "interval_low",
    "interval_high",
)


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The trials at one size.

    Attributes
    ----------
    rows
        Rows of the arguments that were cut.
    trials, distinct
        Number of trials and of different results.
    mismatches
        Results other than the most frequent one.
    upper_bound_95
        With 95 % confidence the rate of other results is below this; None when some were seen.
    interval_95
        Two-sided 95 % interval of that rate, see `detlab.kernel.statistics.interval_95`.
    notes
        What may have kept a race from showing at this size, and other remarks, one sentence each.
    """

    rows: int
    trials: int
    distinct: int
    mismatches: int
    upper_bound_95: float | None
    interval_95: tuple[float, float] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class SizeSweep:
    """The trials of one captured call at several sizes, the smallest first.

    Attributes
    ----------
    op
        Which call it was.
    rows
        Rows at full size.
    cut
        The arguments whose rows were cut; all others stayed whole.
    condition
        Under what the trials were made.
    sizes
        One row per size.
    """

    op: str
    rows: int
    cut: tuple[str, ...]
    condition: str
    sizes: tuple[SizeResult, ...]

    @property
    def frame(self) -> pl.DataFrame:
        """One row per size, the smallest first.

        Returns
        -------
        Columns ``rows``, ``share`` (of the rows at full size), ``trials``, ``distinct``, ``mismatches``,
        ``upper_bound_95``, ``interval_low``, ``interval_high``; see `SizeResult`.
        """
        import polars as pl

        whole = ("rows", "trials", "distinct", "mismatches")
        columns = {name: pl.Int64 if name in whole else pl.Float64 for name in _COLUMNS}
        rows = [
            (
                size.rows,
                size.rows / self.rows,
                size.trials,
                size.distinct,
                size.mismatches,
                size.upper_bound_95,
            )
            + (size.interval_95 or (None, None))
            for size in self.sizes
        ]
        return pl.DataFrame(rows, schema=columns, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Give the document that ``detlab/schemas/size_sweep.json`` describes."""
        return {"schema": SCHEMA} | asdict(self)

    @property
    def exit_code(self) -> int:
        """0 when no result differed at any size, 1 when some did, 2 when a size has no trial."""
        if any(size.mismatches for size in self.sizes):
            return 1
        return 0 if self.sizes and all(size.trials for size in self.sizes) else 2

    def __repr__(self) -> str:
        """Give the table: ``62,500 of 1,000,000 rows   0/50   a rate above 5.8 % is excluded at 95 %``."""
        width = max((len(f"{size.rows:,}") for size in self.sizes), default=1)
        lines = [f"{self.op} with the first rows of {', '.join(self.cut)} ({self.condition})"]
        for size in self.sizes:
            seen = f"{size.mismatches:,}/{size.trials:,}"
            lines.append(f"  {size.rows:>{width},} of {self.rows:,} rows  {seen:>11}  {_proved(size)}")
        notes = dict.fromkeys(note for size in self.sizes for note in size.notes)
        return "\n".join(lines + [f"  note: {note}" for note in notes])


def replay_sizes(  # noqa: PLR0913 - each is a condition of the trials
    capture: Capture,
    *,
    sizes: Sequence[float | Fraction | int] = SIZES,
    trials: int = 50,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
    call: Callable[..., Any] | None = None,
    allow: Collection[str] = (),
) -> SizeSweep:
    """Replay a captured call with a part of its rows only, at several sizes.

    Tensors that share their leading dimension are cut to their first rows together; the table says which. The
    cut call is another call than that of training: what it shows is from which size on the kernel races.

    Parameters
    ----------
    sizes
        Shares of the rows, above 0 and up to 1; sizes that give the same number of rows count once.
    trials
        How often the call is made at each size.
    threads, deterministic, device, call, allow
        As of `detlab.kernel.replay`.

    Raises
    ------
    CaptureError
        The call cannot be made with fewer rows, or not here.
    InputError
        A size that is none.
    """
    if not sizes or not all(0 < size <= 1 for size in sizes):
        raise InputError(f"sizes={list(sizes)} are not shares of the rows.", "say sizes=[1/16, 1/4, 1]")
    func = call or find_op(capture, allow)
    place = device or capture.device
    options: dict[str, Any] = {"threads": threads, "deterministic": deterministic, "device": device}
    if call is not None:
        options["call"] = call
    found = []
    with torch.random.fork_rng(devices=[] if place == "cpu" else [torch.device(place)]):
        cut = find_cut(capture, func, place, float(min(sizes)))
        for rows in sorted({max(1, int(cut.rows * size)) for size in sizes}):
            reduced = cut_capture(capture, cut, rows, func, place)
            found.append((rows, _replay(reduced, trials=trials, allow=allow, **options)))
    names = [report.conditions[0].name for _, report in found if report.conditions]
    results = tuple(_result(rows, report) for rows, report in found)
    return SizeSweep(capture.op, cut.rows, cut.names, names[0] if names else "", results)


def _replay(capture: Capture, **options: Any) -> ReplayReport:
    from detlab.kernel.trials import replay  # which may itself ask for a sweep

    return replay(capture, **options)


def _result(rows: int, report: ReplayReport) -> SizeResult:
    notes = report.problems
    if not report.conditions:
        return SizeResult(rows, 0, 0, 0, None, None, notes)
    made = report.conditions[0]
    mismatches = made.trials - round(made.modal_share * made.trials)
    return SizeResult(
        rows, made.trials, made.distinct, mismatches, made.upper_bound_95, made.interval_95, notes
    )


def _proved(size: SizeResult) -> str:
    if size.upper_bound_95 is not None:
        return f"a rate above {percent(size.upper_bound_95)} is excluded at 95 %"
    if size.interval_95 is None:
        return "no trial was made"
    low, high = map(percent, size.interval_95)
    return f"{size.distinct:,} distinct; the rate of others lies between {low} and {high}"
