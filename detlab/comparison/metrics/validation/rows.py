"""From the messages of Megatron's result validation to the results of each failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.readers.metrics.message_patterns import (
    CONCLUSION,
    FIRST_RERUN,
    SAME_DEVICE,
    SECOND_RERUN,
    TRACKER,
    UNEXPECTED,
)

CASE_COLUMNS: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "rank": pl.Int64,
    "message": pl.String,
    "conclusion": pl.String,
    "node": pl.String,
    "device": pl.Int64,
    "num_results": pl.Int64,
    "evidence": pl.String,
    "why": pl.String,
    "next": pl.String,
}
"""Columns of `detlab.comparison.metrics.validation.attribute_failures`."""

_STATUS: Final = r" status=(?:\w+\.)?(\w+)"
_MESSAGE: Final = r"message='(.*)'"
_RESULT: Final = r"(?:result=|Unexpected result )(?:tensor\()?([^\s,)]+)"
_RERUN_RESULT: Final = r" rerun: [^(]*\((?:tensor\()?([^\s,)]+)"
_RESTARTS: Final = ("start", "checkpoint loaded")


class Case(NamedTuple):
    """One failure: a result that failed validation, and its reruns.

    Attributes
    ----------
    step, rank
        Where; None: not known.
    message
        What failed.
    results
        (attempt, node, device, value as printed, status) of each run.
    """

    step: int | None
    rank: int | None
    message: str
    results: tuple[tuple[str, str | None, int | None, str | None, str], ...]


def validation_cases(messages: pl.DataFrame) -> Iterator[Case]:
    """Put the results of each failure together.

    A failure is one rank at one step until the next initial run there. Where the tracker file tells of a
    rank and step, what the log says of them is the same again and left out.

    Parameters
    ----------
    messages
        `Log.messages` of a run.
    """
    kind = pl.col("kind").cast(pl.String)
    said = messages.with_row_index("order").with_columns(
        kind, restarts=kind.is_in(_RESTARTS).cast(pl.UInt32).cum_sum().over("source")
    )
    tracked = _tracked(said)
    logged = _logged(said).join(tracked, on=["rank", "step"], how="anti", nulls_equal=True)
    rows = pl.concat([tracked, logged]).sort("order")
    key = ["rank", "step"]
    first = pl.int_range(pl.len()).over(*key) == 0
    again = pl.col("attempt") == "again"
    begins = first | (pl.col("attempt") == "initial") | pl.col("step").is_null()
    attempt = pl.when(begins & again).then(pl.lit("initial")).when(again).then(pl.lit("second rerun"))
    rows = rows.with_columns(
        attempt=attempt.otherwise("attempt"), case=begins.cast(pl.UInt32).cum_sum().over(*key)
    )
    returned = said.filter(pl.col("kind") == SAME_DEVICE).select("node", "device").unique().rows()
    for _, case in rows.group_by([*key, "case"], maintain_order=True):
        yield _case(case, returned)


def _case(rows: pl.DataFrame, returned: list[tuple[str, int]]) -> Case:
    """Make one case; a first rerun is in place, so that it shows where the initial run was."""
    results = list(rows.select("attempt", "node", "device", "printed", "status").rows())
    places = [row[1:3] for row in results if row[0] == "first rerun"]
    if places:
        results = [(row[0], *places[0], *row[3:]) if row[1] is None else row for row in results]
        if places[0] in returned:
            results.append(("second rerun", *places[0], None, ""))
    message = rows["message"].drop_nulls()
    return Case(rows["step"][0], rows["rank"][0], message[0] if len(message) else "", tuple(results))


def _tracked(said: pl.DataFrame) -> pl.DataFrame:
    """Give the results in a tracker file."""
    status = pl.col("text").str.extract(_STATUS).str.to_uppercase()
    attempt = (
        pl.when(status.str.starts_with("FIRST"))
        .then(pl.lit("first rerun"))
        .when(status.str.starts_with("SECOND"))
        .then(pl.lit("second rerun"))
        .when(status == "INITIAL_RUN")
        .then(pl.lit("initial"))
        .otherwise(pl.lit("again"))  # RERUN_DISABLED: the next one is after a resume
    )
    rows = said.filter(pl.col("kind") == TRACKER)
    return _rows(rows, attempt, pl.col("text").str.extract(_RESULT), status)


def _logged(said: pl.DataFrame) -> pl.DataFrame:
    """Give the results that a console log tells of; an exception may be printed more than once."""
    once = ["source", "restarts", "kind", "step", "rank", "node", "device", "value"]
    at_once = said.filter(pl.col("kind").is_in([UNEXPECTED, FIRST_RERUN])).unique(
        once, keep="first", maintain_order=True
    )
    attempt = (
        pl.when(pl.col("kind") == FIRST_RERUN)
        .then(pl.lit("first rerun"))
        .when(pl.col("node").is_null())
        .then(pl.lit("initial"))
        .otherwise(pl.lit("again"))
    )
    text = pl.col("text")
    printed = pl.coalesce(
        text.str.extract(_RESULT), text.str.extract(_RERUN_RESULT), text.str.extract("found (NaN) in")
    )
    nothing = pl.lit("")
    after_resume = _rows(_concluded(said), pl.lit("second rerun"), pl.col("printed"), nothing)
    return pl.concat([_rows(at_once, attempt, printed, nothing), after_resume])


def _concluded(said: pl.DataFrame) -> pl.DataFrame:
    """Join what a second rerun gave with the line after it, which says on which rank and device."""
    elsewhere = pl.col("text").str.contains("Possible persistent error|Correct result")
    lines = said.filter((pl.col("kind") == CONCLUSION) & elsewhere).sort("line")
    values = (
        said.filter(pl.col("kind") == SECOND_RERUN)
        .select("source", "line", printed=pl.col("text").str.extract(_RERUN_RESULT))
        .sort("line")
    )
    return lines.join_asof(values, on="line", by="source", check_sortedness=False)


def _rows(said: pl.DataFrame, attempt: pl.Expr, printed: pl.Expr, status: pl.Expr) -> pl.DataFrame:
    return said.select(
        "order",
        "step",
        "rank",
        "node",
        "device",
        attempt=attempt.cast(pl.String),
        printed=pl.when(printed.cast(pl.Float64, strict=False).is_not_null()).then(printed.cast(pl.String)),
        status=status.cast(pl.String),
        message=pl.col("text").str.extract(_MESSAGE),
    )
