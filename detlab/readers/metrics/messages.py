"""Lines of a log that are no records and still evidence: what failed, was skipped, saved, loaded, begun.

Every message has ``kind``, ``text`` (the whole line: a bucket, a file or Megatron's own wording stands
there), ``source`` and ``line``. Beside them each kind fills what its line names, and leaves the rest null:

==================================  ===========================  ======================================
kind                                fills                        ``value``
==================================  ===========================  ======================================
``validation tracker``              step, rank, node, device,    the result, a line of Megatron's
                                    value                        tracker file; the text has its status
``unexpected result``               step, rank, node, device,    the result that failed validation: NaN
                                    value                        of a loss, of a local grad norm, …
``first rerun``                     step, rank, node, device,    the result of the rerun in place
                                    value
``second rerun``                    value                        the result of the rerun elsewhere
``rescheduled on the same device``  node, device
``validation conclusion``           step, rank, node, device     (transient, persistent, application:
                                                                 in the text)
``timeout``                         value                        milliseconds that the collective ran
``cuda error``                      (rank by its prefix)
``exit``                            step, node, value            exit code: 16 resume to disambiguate,
                                                                 17 failed on result validation
``overflow``                        rank, value                  loss scale that was attempted; of
                                                                 fairseq and apex the next one
``steps to skip``                   (in the text)
``start``                           step                         (Megatron: the last step done before,
                                                                 torchtitan: the first to come)
``checkpoint loaded``               step, rank
``checkpoint saved``                step
``checkpoint save started``         step
``validation``                      step, value                  validation or test loss
``loss not visible``                value                        the rank that has the loss, when this
                                                                 one has none (pipeline parallel)
==================================  ===========================  ======================================

A ``rank`` that the line itself does not name is that of its prefix ``[rank3]``. The local rank in the
prefix ``[default3]`` of torchrun and the task in ``3:`` of srun are no global ranks and fill no column, nor
does ``[Rank 1]`` of a process group, which counts within the group. ``iteration -1`` names no step. An
overflow belongs to a step whose number is not printed: `place_messages` gives the records around it.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from detlab.readers.metrics.log import MESSAGE_SCHEMA
from detlab.readers.metrics.message_patterns import FAILURES, MARKERS, PATTERNS, Pattern

__all__ = ["FAILURES", "MARKERS", "PATTERNS", "find_messages", "place_messages"]

_PREFIX_RANK: Final = r"\[rank(\d+)\]"

_CUT: Final = r"[-+.,\deE]+$"
"""What may be the first half of a number."""


def find_messages(lines: pl.DataFrame) -> pl.DataFrame:
    """Find messages in lines that hold one of the `MARKERS`; of several on one line the first kind counts.

    Parameters
    ----------
    lines
        ``line``, ``text``, and ``whole``: false for a line that the end of the file may have cut, so that
        a number at its end is none.

    Returns
    -------
    The columns of `MESSAGE_SCHEMA`, in the order of the lines; ``source`` is null.
    """
    text = pl.col("text").str.strip_chars_end("\r\n")
    lines = lines.with_columns(text=pl.when("whole").then(text).otherwise(text.str.replace(_CUT, "")))
    found = [pl.DataFrame(schema=MESSAGE_SCHEMA)]
    for pattern in PATTERNS if len(lines) else ():
        marked = pl.col("text").str.contains(pattern.marker, literal=True)
        fits = marked & pl.col("text").str.contains(pattern.form)
        hits = lines.filter(fits)
        if len(hits):
            found.append(_messages(hits, pattern))
            lines = lines.filter(~fits)
    return pl.concat(found).sort("line", maintain_order=True)


def _messages(lines: pl.DataFrame, pattern: Pattern) -> pl.DataFrame:
    groups = lines.select("line", "text", parts=pl.col("text").str.extract_groups(pattern.form))
    parts = groups.unnest("parts") if "(?<" in pattern.form else groups
    known: dict[str, Any] = {"kind": pl.lit(pattern.kind)}
    columns = {name: pl.col(name) if name in parts.columns else pl.lit(None) for name in MESSAGE_SCHEMA}
    read = parts.select(
        expr.cast(MESSAGE_SCHEMA[name]).alias(name) for name, expr in (columns | known).items()
    )
    return read.with_columns(
        step=pl.when(pl.col("step") >= 0).then("step"),
        rank=pl.coalesce("rank", pl.col("text").str.extract(_PREFIX_RANK).cast(pl.Int64)),
    )


def place_messages(messages: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Say between which records of its file each message stands.

    Parameters
    ----------
    messages, metrics
        `Log.messages` and `Run.metrics` of one run.

    Returns
    -------
    The messages in their order, with ``after_step`` and ``before_step``: the steps of the last record before
    and of the first record after the line, null where there is none. What an overflow message reports
    happened in the steps after the one and up to the other; where the second is the earlier step, a restart
    lies between them.
    """
    source = pl.col("source").cast(pl.String)
    records = (
        metrics.filter(pl.col("line").is_not_null())
        .select(by=source, line="line", after_step="step")
        .unique(["by", "line"], keep="first")
        .sort("line")
        .with_columns(before_step="after_step")
    )
    order = messages.with_row_index("order").with_columns(by=source).sort("line")
    for name, side in (("after_step", "backward"), ("before_step", "forward")):
        order = order.join_asof(
            records.select("by", "line", name),
            on="line",
            by="by",
            strategy=side,  # type: ignore[arg-type]
            check_sortedness=False,
        )
    return order.sort("order").drop("order", "by")
