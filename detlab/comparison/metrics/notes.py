"""What stands beside the verdict: patterns of a difference that people would ask about next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.pairs import KEY, name_of
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, OUTCOMES, judge
from detlab.run import Run

LONG: Final = 20
"""Numbers in a row that differ to one side before it is said: a coin does that once in 500,000 tries."""

_SHOWN: Final = 5
_MANY: Final = 10_000


def notes_of(runs: Sequence[Run], judged: Sequence[pl.DataFrame], pairs: Mapping[str, str]) -> Iterator[str]:
    """Say what is remarkable about the differences.

    Parameters
    ----------
    runs
        Run a and run b.
    judged
        As from `precision.judge`, one frame for each metric, without measurements.
    pairs
        Metrics that were compared under two names.
    """
    for ours, theirs in pairs.items():
        yield f"{ours} of {runs[0].label} was compared with {theirs} of {runs[1].label}"
    absent = (pl.col("state_a") == "absent") | (pl.col("state_b") == "absent")
    unknown = sum(len(part.filter(pl.col("outcome") == "unknown", absent)) for part in judged)
    if unknown:
        yield (
            f"{unknown:,} numbers were not printed by one run because they were zero, negative or NaN, "
            "as the other's are: not compared"
        )
    differing = [part for part in judged if part["outcome"].is_in(DIFFERENT).any()]
    yield from _moved(runs, differing)
    starts = [_starts(judged, run) for run in "ab"] if differing else []
    for part in differing[:_SHOWN]:
        yield from _first_records(part, starts)
    yield from _one_sided(differing, runs)


def _moved(runs: Sequence[Run], differing: Sequence[pl.DataFrame]) -> Iterator[str]:
    """Say when the numbers are those of the step beside: one run counts from 0, the other from 1."""
    part = differing[0].head(_MANY) if differing else pl.DataFrame(schema={"outcome": pl.Enum(OUTCOMES)})
    common = int(part["outcome"].is_in(COMPARED).sum())
    if common < 4 or int(part["outcome"].is_in(DIFFERENT).sum()) * 2 < common:
        return
    sides = [part.filter(pl.col(f"state_{run}").is_not_null()).select(*KEY, rf"^.*_{run}$") for run in "ab"]
    for offset in (1, -1):
        shifted = sides[1].with_columns(pl.col("step") + offset)
        again = judge(sides[0].join(shifted, on=KEY, nulls_equal=True))
        if len(again) > 2 and not again["outcome"].is_in(DIFFERENT).any():
            yield (
                f"with {offset:+d} on the steps of {runs[1].label} no {name_of(part)} differs "
                f"({len(again):,} steps): one run may count from 0 and the other from 1; compare with "
                f"offset={offset}"
            )
            return


def _first_records(part: pl.DataFrame, starts: Sequence[set[int]]) -> Iterator[str]:
    """Say when only first records after a start differ, which average fewer iterations than others.

    Megatron prints the mean over the iterations since the last record: the first record after a resume, with
    a log interval of 10, is a mean over those that the run has made.
    """
    steps = part.filter(pl.col("outcome").is_in(COMPARED))["step"].unique().sort()
    interval = int(np.median(np.diff(steps.to_numpy()))) if len(steps) > 1 else 1
    places = part.filter(pl.col("outcome").is_in(DIFFERENT))["step"].unique()
    if interval > 1 and set(places) <= starts[0] ^ starts[1]:
        yield (
            f"{name_of(part)} differs only at the first record after a start ({where(places)}): with log "
            f"interval {interval} that record averages fewer iterations in one run. It counts as a difference"
        )


def _starts(judged: Sequence[pl.DataFrame], run: str) -> set[int]:
    """Give the first step of each segment of a run."""
    firsts = [
        part.filter(pl.col(f"state_{run}").is_not_null()).group_by(f"segment_{run}").agg(pl.col("step").min())
        for part in judged
    ]
    return set(pl.concat(firsts).group_by(f"segment_{run}").agg(pl.col("step").min())["step"])


def _one_sided(differing: Sequence[pl.DataFrame], runs: Sequence[Run]) -> Iterator[str]:
    """Say when one run is above the other for long: a state that differs, and no noise around one curve."""
    told: dict[tuple[int, int, int, bool], list[str]] = {}
    for part in differing:
        for rows in part.filter(pl.col("outcome").is_in(COMPARED)).partition_by("rank"):
            found = _longest(rows)
            if found:
                told.setdefault(found, []).append(name_of(part))
                break
    for (num, first, last, above), names in list(told.items())[:_SHOWN]:
        more = f" and {len(names) - _SHOWN} more metrics" if len(names) > _SHOWN else ""
        verb = "is" if len(names) == 1 else "are"
        upper, lower = (runs[1], runs[0]) if above else runs
        shown = ", ".join(names[:_SHOWN])
        yield (
            f"{shown}{more} of {upper.label} {verb} above that of {lower.label} at {num:,} "
            f"steps in a row, {first} to {last}: a difference of constant sign"
        )


def _longest(rows: pl.DataFrame) -> tuple[int, int, int, bool] | None:
    """Find the longest stretch with a difference of one sign: its length, ends, and whether b is above."""
    signs = np.sign(rows["difference"].fill_null(0.0).to_numpy())
    cuts = np.flatnonzero(np.diff(signs)) + 1
    starts, ends = np.r_[0, cuts], np.r_[cuts, len(signs)]
    lengths = np.where(signs[starts] != 0, ends - starts, 0)
    at = int(lengths.argmax())
    if lengths[at] < LONG:
        return None
    first, last = rows["step"][int(starts[at])], rows["step"][int(ends[at]) - 1]
    return int(lengths[at]), first, last, bool(signs[starts[at]] > 0)
