"""Lines of a log that are no records and still evidence: what failed, was skipped, saved, loaded, begun."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import polars as pl

from detlab.readers.metrics.log import MESSAGE_SCHEMA


class Pattern(NamedTuple):
    """A kind of message.

    Attributes
    ----------
    kind
        Its name in `Log.messages`.
    marker
        A literal text that stands in every such line.
    form
        Regular expression with the named groups that it has of ``step``, ``rank``, ``node``, ``device``
        and ``value``.
    """

    kind: str
    marker: str
    form: str


PATTERNS: Final = (
    Pattern("start", "[before the start of training step]", r"before the start of training step"),
    Pattern(
        "checkpoint saved", "saved checkpoint", r"successfully saved checkpoint.*at iteration +(?<step>\d+)"
    ),
    Pattern(
        "checkpoint loaded",
        "loaded checkpoint",
        r"successfully loaded checkpoint.*at iteration +(?<step>\d+)",
    ),
)
"""Every known kind of message, in the order in which they are tried: a line has the first kind that fits."""

MARKERS: Final = [pattern.marker for pattern in PATTERNS]


def find_messages(lines: pl.DataFrame) -> pl.DataFrame:
    """Find messages in lines that hold one of the `MARKERS`.

    Parameters
    ----------
    lines
        ``line`` and ``text``.

    Returns
    -------
    The columns of `MESSAGE_SCHEMA`, in the order of the lines; ``source`` is null.
    """
    found = [pl.DataFrame(schema=MESSAGE_SCHEMA)]
    for pattern in PATTERNS if len(lines) else ():
        fits = pl.col("text").str.contains(pattern.form)
        found.append(_messages(lines.filter(fits), pattern))
        lines = lines.filter(~fits)
    return pl.concat(found).sort("line", maintain_order=True)


def _messages(lines: pl.DataFrame, pattern: Pattern) -> pl.DataFrame:
    groups = lines.select("line", "text", parts=pl.col("text").str.extract_groups(pattern.form))
    parts = groups.unnest("parts") if "(?<" in pattern.form else groups
    known: dict[str, Any] = {"kind": pl.lit(pattern.kind)}
    columns = {name: pl.col(name) if name in parts.columns else pl.lit(None) for name in MESSAGE_SCHEMA}
    return parts.select(
        expr.cast(MESSAGE_SCHEMA[name]).alias(name) for name, expr in (columns | known).items()
    )
