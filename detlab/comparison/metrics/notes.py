"""What stands beside the verdict: patterns of a difference that people would ask about next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.precision import COMPARED, DIFFERENT, judge
from detlab.run import Run

LONG: Final = 20
"""Numbers in a row that differ to one side before it is said: a coin does that once in 500,000 tries."""

_SHOWN: Final = 5


def notes_of(runs: Sequence[Run], judged: pl.DataFrame, pairs: Mapping[str, str]) -> Iterator[str]:
    """Say what is remarkable about the differences.

    Parameters
    ----------
    runs
        Run a and run b.
    judged
        As from `precision.judge`, without measurements.
    pairs
        Metrics that were compared under two names.
    """
    for ours, theirs in pairs.items():
        yield f"{ours} of {runs[0].label} was compared with {theirs} of {runs[1].label}"
    unknown = judged.filter(pl.col("outcome") == "unknown")
    if len(unknown):
        yield (
            f"{len(unknown):,} numbers were not printed by one run because they were zero, negative or NaN, "
            "as the other's are: not compared"
        )
    common = judged.filter(pl.col("outcome").is_in(COMPARED))
    differing = common.filter(pl.col("outcome").is_in(DIFFERENT))
    yield from _moved(runs, judged, common, differing)
    names = differing["name"].unique(maintain_order=True)
    for name in names[:_SHOWN]:
        rows = common.filter(pl.col("name") == name)
        yield from _first_records(str(name), rows, judged)
        yield from _one_sided(str(name), rows, runs)


def _moved(
    runs: Sequence[Run], judged: pl.DataFrame, common: pl.DataFrame, differing: pl.DataFrame
) -> Iterator[str]:
    """Say when the numbers are those of the step beside: one run counts from 0, the other from 1."""
    if len(common) < 4 or len(differing) * 2 < len(common):
        return
    name = differing["name"].value_counts(sort=True)["name"][0]
    rows = judged.filter(pl.col("name") == name)
    sides = [
        rows.filter(pl.col(f"state_{run}").is_not_null()).select("name", "rank", "step", rf"^.*_{run}$")
        for run in "ab"
    ]
    for offset in (1, -1):
        shifted = sides[1].with_columns(pl.col("step") + offset)
        again = judge(sides[0].join(shifted, on=["name", "rank", "step"], nulls_equal=True))
        if len(again) > 2 and not again.filter(pl.col("outcome").is_in(DIFFERENT)).height:
            yield (
                f"with {offset:+d} on the steps of {runs[1].label} no {name} differs ({len(again):,} steps): "
                f"one run may count from 0 and the other from 1; compare with offset={offset}"
            )
            return


def _first_records(name: str, rows: pl.DataFrame, judged: pl.DataFrame) -> Iterator[str]:
    """Say when only first records after a start differ, which average fewer iterations than others.

    Megatron prints the mean over the iterations since the last record: the first record after a resume, with
    a log interval of 10, is a mean over those that the run has made.
    """
    steps = rows["step"].unique().sort()
    interval = int(np.median(np.diff(steps.to_numpy()))) if len(steps) > 1 else 1
    differing = rows.filter(pl.col("outcome").is_in(DIFFERENT))
    if interval < 2:
        return
    firsts = [_starts(judged, run) for run in "ab"]
    one_alone = set(firsts[0]) ^ set(firsts[1])
    places = differing["step"].unique().sort()
    if set(places) <= one_alone:
        yield (
            f"{name} differs only at the first record after a start ({where(places)}): with log interval "
            f"{interval} that record averages fewer iterations in one run. It counts as a difference"
        )


def _starts(judged: pl.DataFrame, run: str) -> list[int]:
    """List the first step of each segment of a run."""
    segments = judged.filter(pl.col(f"state_{run}").is_not_null()).group_by(f"segment_{run}")
    return segments.agg(pl.col("step").min())["step"].to_list()


def _one_sided(name: str, rows: pl.DataFrame, runs: Sequence[Run]) -> Iterator[str]:
    """Say when one run is above the other for long: a state that differs, and no noise around one curve."""
    for part in rows.partition_by("rank"):
        signs = np.sign(part["difference"].fill_null(0.0).to_numpy())
        cuts = np.flatnonzero(np.diff(signs)) + 1
        starts, ends = np.r_[0, cuts], np.r_[cuts, len(signs)]
        lengths = np.where(signs[starts] != 0, ends - starts, 0)
        longest = int(lengths.argmax())
        if lengths[longest] >= LONG:
            first, last = part["step"][int(starts[longest])], part["step"][int(ends[longest]) - 1]
            above, below = (1, 0) if signs[starts[longest]] > 0 else (0, 1)
            yield (
                f"{name} of {runs[above].label} is above that of {runs[below].label} at {lengths[longest]:,} "
                f"steps in a row, {first} to {last}: a difference of constant sign"
            )
            return
