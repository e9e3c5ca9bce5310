"""Messages of ranks that met NaN or Inf: which rank, at which step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.spikes.events import NOT_FINITE, Event
from detlab.comparison.metrics.spikes.series import log_interval, record_steps
from detlab.readers.metrics.message_patterns import TRACKER, UNEXPECTED
from detlab.readers.metrics.messages import place_messages
from detlab.run import Run, spans
from detlab.text import plural

_NOT_FINITE: Final = r"(?i)\b(nan|inf|infinity)\b"
_SHOWN: Final = 120


def message_events(run: Run) -> Iterator[Event]:
    """Find the messages that a result is NaN or Inf, and make one event of those of one step.

    A step that a message does not name (some say -1) is one of the log interval after the last record before
    it, in its own file or, where that has no records, in the run: from the onset to the peak of its event.
    """
    if run.log is None:
        return
    rows = _not_finite(run.log.messages)
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in place_messages(rows, run.metrics).iter_rows(named=True) if len(rows) else ():
        step, segment, is_told = _place(row, run.metrics)
        groups.setdefault((segment, step), []).append(row | {"told": is_told})
    for (segment, step), group in groups.items():
        yield _event(segment, step, group, log_interval(record_steps(run.metrics)))


def _not_finite(messages: pl.DataFrame) -> pl.DataFrame:
    """Keep what the log says of results, and what the tracker file alone says."""
    kind, value = pl.col("kind").cast(pl.String), pl.col("value")
    bad = value.is_nan() | value.is_infinite() | pl.col("text").str.contains(_NOT_FINITE)
    said, tracked = (messages.filter(kind == each, bad) for each in (UNEXPECTED, TRACKER))
    alone = tracked.join(said, on=["step", "rank"], how="anti", maintain_order="left")
    return pl.concat([said, alone])


def _event(segment: int, step: int, rows: list[dict[str, Any]], every: int) -> Event:
    first, is_told = rows[0], any(row["told"] for row in rows)
    ranks = sorted({row["rank"] for row in rows if row["rank"] is not None})
    who = f"{plural('rank', len(ranks))} {spans(ranks)}" if ranks else "a rank"
    places = sorted({row["node"] for row in rows if row["node"]})
    where = f" on {', '.join(places[:3])}" if places else ""
    devices = {row["device"] for row in rows if row["device"] is not None}
    where += f", device {devices.pop()}," if len(devices) == 1 else ""
    last = step if is_told else step + every - 1
    which = "the one" if every == 1 else f"one of the {every}"
    guess = "" if is_told else f" The message names no step: it is {which} after the last record before it."
    return Event(
        kind=NOT_FINITE,
        metric=UNEXPECTED,
        rank=ranks[0] if len(ranks) == 1 else None,
        segment=segment,
        onset=step,
        peak=last,
        recovery=None,
        before=None,
        led_by="",
        lead_steps=0,
        height=None,
        confidence="high" if is_told else "medium",
        says=f"{who}{where} met NaN or Inf at step{_span(step, last)}: {_message(first)}.{guess}",
        metrics=(UNEXPECTED,),
    )


def _span(first: int, last: int) -> str:
    return f" {first}" if first == last else f"s {first} to {last}"


def _message(row: dict[str, Any]) -> str:
    text = " ".join(str(row["text"]).split()).rstrip(".")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _place(row: dict[str, Any], metrics: pl.DataFrame) -> tuple[int, int, bool]:
    """Give the step and segment of a message, and whether it names the step itself."""
    own = metrics.filter(pl.col("source").cast(pl.String) == str(row["source"]))
    if own.is_empty() and len(metrics):  # another rank printed the records: it stands after all of them
        last = int(metrics["segment"].max())  # type: ignore[arg-type]
        own = metrics.filter(pl.col("segment") == last)
        row = row | {"after_step": own["step"].max()}
    earlier = own.filter(pl.col("step") == row["after_step"]) if row["after_step"] is not None else own[:0]
    segment = int(earlier["segment"][-1]) if len(earlier) else 0
    if row["step"] is not None and row["step"] >= 0:
        return int(row["step"]), segment, True
    return (int(row["after_step"]) + 1 if len(earlier) else 0), segment, False
