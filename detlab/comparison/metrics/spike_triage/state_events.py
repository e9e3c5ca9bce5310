"""Numbers that are none: NaN and Inf, a loss of exactly zero, a loss that was not printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.spikes.bands import WINDOW
from detlab.comparison.metrics.spikes.events import (
    GAP,
    NOT_FINITE,
    NOT_PRINTED,
    ZERO,
    Event,
    counted,
    is_a_loss,
    the_rank,
)
from detlab.comparison.metrics.spikes.series import (
    log_interval,
    named,
    names_in,
    record_steps,
    uninformative,
)
from detlab.readers.metrics.names import choose_names, is_loss, is_measurement, is_norm
from detlab.run import spans

_STATES: Final = ("nan", "inf")
_SKIPPED: Final = "(?i)skipped iterations"
_MAY_BE_NAN: Final = "zero, negative or NaN"
"""In the note of a loss that was not printed; without it, it is known why."""


def state_events(metrics: pl.DataFrame) -> Iterator[Event]:
    """Find NaN, Inf, losses of zero, and losses that are not printed although nothing was skipped."""
    names = names_in(metrics)
    suspects = metrics.filter(pl.col("state").is_in([*_STATES, "absent", "zero"]))
    suspects = suspects.filter(named(choose_names(suspects, lambda name: ~is_measurement(name))))
    suspects = suspects.with_columns(kind=_kind(choose_names(names, is_loss), metrics))
    wanted = suspects.filter(pl.col("kind") != "").select("name", "rank").unique()
    if wanted.is_empty():
        return
    rows = metrics.join(wanted, on=["name", "rank"], how="semi", nulls_equal=True, maintain_order="left")
    rows = _not_skipped(rows.with_columns(kind=_kind(choose_names(names, is_loss), metrics)), metrics)
    parts = _stretches(rows.sort("name", "rank", "segment", "step", maintain_order=True))
    parts = _filtered_nan(parts)
    for key in (NOT_FINITE, NOT_PRINTED, ZERO):
        yield from _joined(parts.filter(pl.col("kind") == key), key, metrics)


def _kind(losses: Sequence[str], metrics: pl.DataFrame) -> pl.Expr:
    """Give the kind of event that a number belongs to; "" for one that is as it should be."""
    state, note = pl.col("state"), pl.col("note").cast(pl.String)
    alive = [name for name in losses if name not in uninformative(metrics)["name"]]
    return (
        pl.when(state.is_in(_STATES))
        .then(pl.lit(NOT_FINITE))
        .when(named(losses) & (state == "absent") & note.str.contains(_MAY_BE_NAN, literal=True))
        .then(pl.lit(NOT_PRINTED))
        .when(named(alive) & (state == "zero"))
        .then(pl.lit(ZERO))
        .otherwise(pl.lit(""))
    )


def _not_skipped(rows: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is not finite because its step was skipped: that is how a loss scale is found."""
    counters = choose_names(metrics, lambda name: name.cast(pl.String).str.contains(_SKIPPED))
    skipped = metrics.filter(named(counters), pl.col("value") > 0).select("segment", "step").unique()
    if skipped.is_empty():
        return rows
    marked = rows.join(skipped.with_columns(skip=True), on=["segment", "step"], how="left")
    is_skip = pl.col("skip").fill_null(False) & pl.col("state").is_in(_STATES) & (pl.col("note").is_null())
    return marked.filter(~is_skip).drop("skip")


def _stretches(rows: pl.DataFrame) -> pl.DataFrame:
    """Give each stretch of one kind its first step, the record before it and the first one after it.

    A value that is not there for a known reason neither belongs to a stretch nor ends one.
    """
    there = (pl.col("kind") != "") | pl.col("value").is_not_null()
    key = ["name", "rank", "segment"]
    runs = rows.filter(there).with_columns(run=pl.struct(*key, "kind").rle_id())
    found = (
        runs.group_by("run", maintain_order=True)
        .agg(
            pl.col("name", "rank", "segment", "kind", "state").first(),
            onset=pl.col("step").first(),
            last=pl.col("step").last(),
            num_records=pl.len(),
            level=pl.col("value").tail(WINDOW).median(),
            lately=pl.col("value").last(),
        )
        .with_columns(
            recovery=pl.col("onset").shift(-1).over(key),
            before=pl.col("last").shift(1).over(key),
            level=pl.col("level").shift(1).over(key),
            lately=pl.col("lately").shift(1).over(key),
        )
    )
    return found.filter(pl.col("kind") != "")


def _filtered_nan(parts: pl.DataFrame) -> pl.DataFrame:
    """Take a loss of zero beside a norm that is NaN for what it is: a NaN that the logger made zero."""
    nans = parts.filter((pl.col("kind") == NOT_FINITE) & is_norm(pl.col("name")))
    onsets = nans["onset"].to_list()
    beside = (pl.col("kind") == ZERO) & pl.col("onset").is_in(onsets)
    return parts.with_columns(kind=pl.when(beside).then(pl.lit(NOT_FINITE)).otherwise("kind"))


def _joined(parts: pl.DataFrame, kind: str, metrics: pl.DataFrame) -> Iterator[Event]:
    """Put the stretches of several metrics that begin together or overlap into one event."""
    rows = parts.sort("segment", "onset", maintain_order=True).to_dicts()
    group: list[dict[str, Any]] = []
    for row in rows:
        ends = [_end(each["recovery"]) for each in group]
        if group and (row["segment"] != group[0]["segment"] or row["onset"] > max(ends)):
            yield _state_event(group, kind, metrics)
            group = []
        group.append(row)
    if group:
        yield _state_event(group, kind, metrics)


def _end(step: int | None) -> float:
    """Give a step, or infinity for none."""
    return float("inf") if step is None else step


def _state_event(rows: Sequence[dict[str, Any]], kind: str, metrics: pl.DataFrame) -> Event:
    first = min(rows, key=lambda each: (each["onset"], not is_a_loss(each["name"])))
    main = next((each for each in rows if is_a_loss(each["name"])), first)
    recoveries = [each["recovery"] for each in rows]
    lead = main["onset"] - first["onset"]
    event = Event(
        kind=kind,
        metric=main["name"],
        rank=the_rank([each["rank"] for each in rows]),
        segment=first["segment"],
        onset=first["onset"],
        peak=first["onset"],
        recovery=None if None in recoveries else max(recoveries),
        before=first["before"],
        led_by=first["name"] if lead > 0 else "",
        lead_steps=lead,
        height=None,
        confidence="medium" if kind == NOT_PRINTED else "high",
        says="",
        metrics=tuple(dict.fromkeys(each["name"] for each in rows)),
    )
    ranks = sorted({each["rank"] for each in rows if each["rank"] is not None})
    on_rank = f" on rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}" if ranks else ""
    return replace(event, says=" ".join(_state_words(event, main, first, metrics, on_rank)))


def _state_words(
    event: Event, main: dict[str, Any], first: dict[str, Any], metrics: pl.DataFrame, on_rank: str
) -> Iterator[str]:
    names = " and ".join(event.metrics[:3])
    if event.kind == NOT_FINITE:
        yield f"{names} not finite from step {event.onset}{on_rank}."
    elif event.kind == ZERO:
        yield f"{main['name']} is exactly 0 from step {event.onset}{on_rank}: suspicious."
        if main["level"] is not None and 0 < main["lately"] < main["level"]:
            yield f"It fell to {main['lately']:.3g} before that, and was not NaN."
        yield "Look at the loss mask: a mask that is changed in place shrinks to nothing."
    else:
        yield (
            f"{main['name']} is not printed from step {event.onset}{on_rank} although nothing was skipped: "
            "it is zero, negative or NaN. Suspicious; look at the loss mask."
        )
        if main["level"] is None:
            yield "It was never printed before, so that it may always be negative."
    if event.led_by:
        yield f"{first['name']} led by {counted(event.lead_steps, 'step')}."
    if event.recovery is not None:
        yield f"Back at step {event.recovery}."
    steps = record_steps(metrics, event.segment)
    if event.before is not None and event.onset - event.before > 1:
        yield f"It began between iterations {event.before} and {event.onset}."
        last = int(steps[steps < event.onset].max(initial=event.before))  # it may have skipped its step
        if event.onset - last > GAP * log_interval(steps):
            yield f"No record for {last}..{event.onset}."
