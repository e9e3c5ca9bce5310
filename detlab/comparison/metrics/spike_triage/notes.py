"""What stands beside a triage: failed validations, what the other runs show, metrics that prove nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from detlab.comparison.metrics.spike_triage.rules import find_events, first_difference
from detlab.comparison.metrics.spikes.bands import ENOUGH
from detlab.comparison.metrics.spikes.events import Event, counted
from detlab.comparison.metrics.spikes.series import (
    kinds_of_names,
    log_interval,
    named,
    record_steps,
    uninformative,
    zero_stretches,
)
from detlab.comparison.metrics.validation import attribute_failures
from detlab.run import Run

_NO_LIMIT: Final = 2**62
_ENDED: Final = 2
"""A metric that is not printed for more than so many of its own intervals has ended."""


def tell_of_others(run: Run, main: Event | None, others: Sequence[Run]) -> Iterator[str]:
    """Where nothing went wrong in a run, say what did in the others, or since when they differ."""
    for other in others if main is None else ():
        found = find_events(other)
        if found:
            yield f"{other.label} has one: {found[0].says} Triage that run, with {run.label} as a rerun"
            continue
        first = first_difference(run, other, _NO_LIMIT)
        if first.step is not None:
            since = f"from step {first.step} on ({', '.join(first.names[:3])})"
            yield f"{other.label} differs from {run.label} {since}: compare the metrics"


def tell_of_validations(run: Run) -> Iterator[str]:
    """Say what the reruns of a failed validation show, where the logs tell of any."""
    for row in attribute_failures(run).filter(pl.col("num_results") > 1).iter_rows(named=True):
        step = "" if row["step"] is None else f" at step {row['step']}"
        rank = "" if row["rank"] is None else f" on rank {row['rank']}"
        failure = f"failed validation{step}{rank} ({row['message']})"
        yield f"{failure}: {row['conclusion']}: {row['why']} Next: {row['next']}"


def with_numbers(metrics: pl.DataFrame) -> pl.DataFrame:
    """Leave out what has no value: a rank without the last pipeline stage prints a loss that is none."""
    return metrics.filter(pl.col("value").is_not_null())


def _ended(metrics: pl.DataFrame, names: Sequence[str]) -> Iterator[str]:
    """Say which metrics are printed no more while records go on: Megatron prints no loss that is NaN."""
    steps = record_steps(metrics)
    for name in names:
        own = record_steps(metrics.filter(named([name])))
        if len(own) > 1 and steps[-1] - own[-1] > _ENDED * log_interval(own):
            on = f"and records go on to {steps[-1]}"
            yield f"{name} is not printed after step {own[-1]}, {on}: it may be NaN"


def tell_of_metrics(metrics: pl.DataFrame, spikes: Sequence[Event]) -> Iterator[str]:
    """Say which losses and norms prove nothing, and where."""
    norms = kinds_of_names(metrics)
    known = {*kinds_of_names(with_numbers(metrics)), *(name for each in spikes for name in each.metrics)}
    num = len(record_steps(metrics))
    if known and not spikes and num <= ENOUGH:
        shows = "a loss that jumps by 30 % or more, or a norm fivefold"
        yield f"{counted(num, 'record')} make no band: only {shows}, is found"
    for name in norms:
        if name not in known:
            yield f"{name} has no number in any record: give the log of the rank that has it"
    yield from _ended(metrics, [name for name in norms if not any(name in each.metrics for each in spikes)])
    for name, value, num, resolution in uninformative(metrics).iter_rows():
        decimals = 0 if not resolution else max(0, round(-pl.Series([resolution]).log10()[0]))
        text = f"{value:.{decimals}f}" if resolution else f"{value:g}"
        zero = ", never evidence of a zero gradient" if value == 0 and norms[name] else ""
        yield f"{name} is {text} in all {num:,} records: not informative (not logged, or broken){zero}"
    for name, first, last, num in zero_stretches(metrics).iter_rows():
        yield (
            f"{name} is zero from step {first} to {last} ({num:,} records): not informative there (not "
            "logged, or broken)"
        )
