"""Which rank said that something is wrong, where it stands, and whether it says so again in another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final

import polars as pl

from detlab.comparison.metrics.spikes.series import log_interval, record_steps
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.readers.metrics.messages import FAILURES, place_messages
from detlab.run import Run
from detlab.schema import RANK_ORDER, Coordinate, rank_coordinate

AXES: Final = ("tp", "cp", "ep", "dp", "pp")

FAILURE_COLUMNS: Final[dict[str, Any]] = {
    "rank": pl.Int64,
    "step": pl.Int64,
    "node": pl.String,
    "device": pl.Int64,
    "kind": pl.String,
    "text": pl.String,
    "source": pl.String,
    "line": pl.Int64,
    "after_step": pl.Int64,
    "num_ranks": pl.Int64,
    **dict.fromkeys(AXES, pl.Int64),
}
"""Columns of `find_failures`."""

RECURRENCE_COLUMNS: Final[dict[str, Any]] = {
    "rank": pl.Int64,
    "step": pl.Int64,
    "kind": pl.String,
    "rerun": pl.String,
    "recurs": pl.String,
    "same_device": pl.Boolean,
    "conclusion": pl.String,
    "why": pl.String,
    "next": pl.String,
}
"""Columns of `recurs_at`."""


def find_failures(
    run: Run | str | PathLike[str], layout: Mapping[str, int] | None = None, *, order: str = RANK_ORDER
) -> pl.DataFrame:
    """List the messages in which a rank says that something went wrong on it.

    Parameters
    ----------
    run
        A run with a log, or the path of its log or of a folder of logs.
    layout
        Size of each parallel axis, with ``dp``; by default what the manifest says.
    order
        The axes in the order in which Megatron counts ranks, the innermost first.

    Returns
    -------
    ``rank``; ``step`` (null: not printed), ``node``, ``device``; ``kind`` and ``text`` of the message, its
    ``source`` and ``line``; ``after_step`` (the last step recorded before it in its file); ``num_ranks`` (how
    many ranks say this at this step: one alone is where it began, all of them are where it arrived);
    ``tp``, ``cp``, ``ep``, ``dp``, ``pp`` (null where the layout is not known). In the order of the log.

    Raises
    ------
    InputError
        A rank is not in the layout, or the layout does not say how many data-parallel replicas there are.
    """
    run = as_run(run)
    if run.log is None:
        return pl.DataFrame(schema=FAILURE_COLUMNS)
    said = run.log.messages.filter(
        pl.col("kind").cast(pl.String).is_in(FAILURES), pl.col("rank").is_not_null()
    )
    found = place_messages(said, run.metrics).with_columns(
        num_ranks=pl.col("rank").n_unique().over("kind", "step")
    )
    places = _coordinates(run, layout, order, found["rank"].unique().to_list())
    return found.join(places, on="rank", how="left", maintain_order="left").select(
        pl.col(name).cast(kind) for name, kind in FAILURE_COLUMNS.items()
    )


def _coordinates(run: Run, layout: Mapping[str, int] | None, order: str, ranks: list[int]) -> pl.DataFrame:
    """Give the place of each rank: as it recorded it, or from the sizes of the axes."""
    sizes = run.manifest.layout if layout is None else layout
    recorded = {each.header.rank: each.header.coordinate for each in run.ranks} if layout is None else {}
    places = {rank: recorded.get(rank) or _place(rank, sizes, order) for rank in ranks}
    rows = [(rank, *(getattr(place, axis) for axis in AXES)) for rank, place in places.items() if place]
    return pl.DataFrame(rows, ["rank", *AXES], orient="row").cast(pl.Int64)


def _place(rank: int, sizes: Mapping[str, int], order: str) -> Coordinate | None:
    if not sizes:
        return None
    if "dp" not in sizes:
        raise InputError(f"the layout {dict(sizes)} does not say the size of dp.", "add 'dp' to it")
    try:
        return rank_coordinate(rank, sizes, order)
    except ValueError as error:
        raise InputError(
            f"{error}.", "give the sizes of tp, cp, ep, dp and pp of the run that wrote the log"
        ) from error


DETERMINISTIC: Final = "deterministic"
TRANSIENT: Final = "transient"
INSUFFICIENT: Final = "insufficient evidence"


def recurs_at(run: Run | str | PathLike[str], reruns: Sequence[Run | str | PathLike[str]]) -> pl.DataFrame:
    """Say of each failure of a run whether it comes back in reruns, and what that means.

    Parameters
    ----------
    run
        The run that failed, or the path of its log.
    reruns
        The same steps again: resumes from a checkpoint before the failure, or whole runs; or their paths.

    Returns
    -------
    One row per failure and rerun: ``rank``, ``step`` (null: not printed), ``kind``, ``rerun`` (its label);
    ``recurs`` (``same rank and step``, ``same rank, step not printed``, ``other rank, same step``, ``same
    rank, other step``, ``gone``, or ``not reached``: nothing shows that the rerun passed the step);
    ``same_device`` (whether it was on the same node and device; null: not known); ``conclusion``
    (``deterministic``, ``transient`` or ``insufficient evidence``), ``why``, ``next``.
    """
    run = as_run(run)
    failures = find_failures(run, {}).unique(["rank", "step", "kind"], keep="first", maintain_order=True)
    failures = failures.with_columns(step_at_the_latest=_at_the_latest(run))
    rows = []
    for rerun in map(as_run, reruns):
        again = find_failures(rerun, {})
        rows += [_recurrence(row, again, rerun) for row in failures.iter_rows(named=True)]
    return pl.DataFrame(rows, RECURRENCE_COLUMNS)


def _at_the_latest(run: Run) -> pl.Expr:
    """Give the step that must have run for a failure to show; null: not known.

    One whose step is not printed is in the log interval after the last record before it: in its file, or of
    the run where another rank prints the records, unless a restart leaves open after which.
    """
    last = run.metrics["step"].max() if run.metrics["segment"].n_unique() == 1 else None
    after = pl.col("after_step").fill_null(pl.lit(last, pl.Int64))
    return pl.col("step").fill_null(after + log_interval(record_steps(run.metrics)))


_Told = tuple[str, str, str]
"""Conclusion, why and next."""


def _recurrence(failure: Mapping[str, Any], again: pl.DataFrame, rerun: Run) -> dict[str, Any]:
    recurs, found = _find_again(failure, again.filter(pl.col("kind") == failure["kind"]))
    same_device = _same_device(failure, found)
    if not recurs:
        recurs = "gone" if _passed(failure, rerun) else "not reached"
    conclusion, why, then = _judge(failure, recurs, found, same_device)
    known = {name: failure[name] for name in ("rank", "step", "kind")}
    told = {"conclusion": conclusion, "why": why, "next": then}
    return {**known, "rerun": rerun.label, "recurs": recurs, "same_device": same_device, **told}


def _find_again(failure: Mapping[str, Any], said: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """Find the messages most like a failure among those of its kind, and say how like they are."""
    printed = failure["step"] is not None
    rank = pl.col("rank") == failure["rank"]
    step = pl.col("step") == failure["step"] if printed else pl.lit(False)
    unknown = pl.col("step").is_null() if printed else pl.lit(True)
    for name, holds in (
        ("same rank and step", rank & step),
        ("same rank, step not printed", rank & unknown),
        ("other rank, same step", step),
        ("same rank, other step", rank),
    ):
        found = said.filter(holds)
        if len(found):
            return name, found
    return "", said.clear()


def _same_device(failure: Mapping[str, Any], found: pl.DataFrame) -> bool | None:
    place = failure["node"], failure["device"]
    places = set(found.select("node", "device").rows())
    if None in place or not places:
        return None
    if place in places:
        return True
    return None if any(None in each for each in places) else False


def _passed(failure: Mapping[str, Any], rerun: Run) -> bool:
    """Say whether a rerun ran the step that failed, and went on."""
    last = rerun.metrics["step"].max()
    step = failure["step_at_the_latest"]
    if step is None or last is None or rerun.log is None:
        return False
    kind = pl.col("kind").cast(pl.String)
    loaded = rerun.log.messages.filter(kind == "checkpoint loaded")["step"].min()
    return bool(last >= step and (loaded is None or loaded < step))


def _judge(failure: Mapping[str, Any], recurs: str, found: pl.DataFrame, same_device: bool | None) -> _Told:
    rank, step, kind = failure["rank"], failure["step"], failure["kind"]
    where = f"rank {rank}" + (f" at step {step}" if step is not None else "")
    if recurs == "same rank and step":
        return _deterministic(where, rank, same_device)
    if recurs == "gone":
        why = f"{kind} on {where} does not come back: a fault of the hardware, or a race"
        then = "replay the step many times on the device that rank had, and on another one"
        return TRANSIENT, why, then
    if recurs == "not reached":
        why = f"nothing shows that the rerun ran the step after which {where} failed, and went on"
        return INSUFFICIENT, why, "give a rerun whose log has records of later steps"
    rows = found.select("rank", "step").head(3).rows()
    others = ", ".join(f"rank {row[0]} at step {'?' if row[1] is None else row[1]}" for row in rows)
    why = f"{kind} on {where} comes back in another way: {others}"
    return INSUFFICIENT, why, "run the same steps again, from the same checkpoint"


def _deterministic(where: str, rank: int, same_device: bool | None) -> _Told:
    why = f"{where} says the same again: the data or the software"
    if same_device is False:
        then = f"look at what rank {rank} is given at that step: record the steps before it"
        return DETERMINISTIC, f"{why}, as another device had that rank", then
    shown = "the same device had that rank" if same_device else "the device is not known"
    then = f"run the step again with another device for rank {rank}"
    return DETERMINISTIC, f"{why}, or, since {shown}, a persistent fault of it", then
