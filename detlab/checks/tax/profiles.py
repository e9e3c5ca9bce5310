"""Where the time went: rows of two profiles joined by name, as modules, backward nodes, ops and kernels.

Time is counted once in each table: what is nested in a row of the same table is taken out of the row around
it. Tables look at the same time from several sides, so their sums do not add up to more than the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.checks.tax.names import KERNEL, RANGE, TABLES, is_step, plain_name, table_of
from detlab.errors import NotComparable
from detlab.readers.profiles import DEVICE_KINDS, Profile
from detlab.readers.profiles.nesting import NONE, inherited, own_time
from detlab.text import plural

_RANGE_REPORTS: Final = ("nvtx_gpu_proj_sum", "nvtx_pushpop_trace", "nvtx_pushpop_sum", "nvtx_sum")
_INCLUSIVE: Final = ("nvtx_gpu_proj_sum", "nvtx_pushpop_sum", "nvtx_sum")
_KERNEL_REPORTS: Final = (
    "cuda_gpu_trace",
    "cuda_gpu_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_kern_gb_sum",
    "nvtx_kern_sum",
)
_ALLOCATES: Final = r"^aten::(new_)?empty|^aten::resize_"
_COPY_REPORTS: Final = ("cuda_gpu_mem_time_sum",)

_FEW_ROWS: Final = 3
"""Fewer common rows say nothing about the number of steps."""

_UNUSED: Final = {
    "python": "Python functions",
    "runtime": "calls of the driver",
    "sync": "waiting for the device",
    "device_range": "ranges as projected onto the device",
}
"""Kinds of events of which no table is made, for their time is that of ops and kernels."""

ROW_COLUMNS: Final[dict[str, Any]] = {
    "table": pl.String,
    "name": pl.String,
    "clock": pl.String,
    "ms": pl.Float64,
    "count": pl.Int64,
}


@dataclass(frozen=True)
class Measured:
    """What the profiles of one side say.

    Attributes
    ----------
    rows
        ``table``, ``name`` (plain), ``clock`` (host or device), ``ms`` in all, ``count``.
    step_ms
        The time of each step that is marked; empty where none is.
    total_ms
        The time of all marked steps together; None where none is marked.
    num_steps
        How many steps are marked or were stated; None where nothing says it.
    fill_ms
        Time in fills of memory that an op such as ``aten::empty`` just allocated; None where it is not known.
    """

    rows: pl.DataFrame
    step_ms: tuple[float, ...]
    total_ms: float | None
    num_steps: int | None
    fill_ms: float | None = None


@dataclass(frozen=True)
class Places:
    """Two sides joined.

    Attributes
    ----------
    rows
        ``table``, ``name``, ``clock``, ``default_ms`` and ``deterministic_ms`` (of a step where ``per_step``,
        else of the whole profile), ``count_default`` and ``count_deterministic`` in the whole profiles.
    per_step
        Whether times are those of one step.
    num_steps
        Steps of each side.
    whole_ms
        How much longer a step, or the profile, took; None where no mark tells.
    step_ms
        The times of the marked steps of each side.
    mean_ms
        The mean time of a step of each side; None where no mark tells.
    notes
        How it was measured.
    overlaps
        Whether rows count what is nested in them, so that they do not add up; those of kernels always do.
    fill_ms
        How much longer fills of memory that was just allocated took; None where it is not known.
    """

    rows: pl.DataFrame
    per_step: bool
    num_steps: tuple[int | None, int | None]
    whole_ms: float | None
    step_ms: tuple[tuple[float, ...], tuple[float, ...]]
    mean_ms: tuple[float, float] | None
    notes: tuple[str, ...]
    overlaps: bool
    fill_ms: float | None


def join_profiles(
    default: Sequence[Profile],
    deterministic: Sequence[Profile],
    *,
    num_steps: tuple[int, int] | None = None,
    by_layer: bool = False,
) -> Places:
    """Join the profiles of two sides by name.

    Parameters
    ----------
    default, deterministic
        Files of each side: those of several ranks, or several reports of one.
    num_steps
        Steps in the profiles of each side, where they are not marked.
    by_layer
        Keep layers apart.

    Raises
    ------
    NotComparable
        They are of two profilers, have no table in common, or cover other numbers of steps.
    """
    sides = [default, deterministic]
    kinds = {profile.format for side in sides for profile in side}
    if len(kinds) > 1:
        raise NotComparable(
            "The profiles are of two profilers (PyTorch's and Nsight Systems).", "give two of the same"
        )
    measure = _kineto if kinds == {"kineto"} else _nsys
    measured, notes = measure([_events(side) for side in sides], by_layer)
    steps = num_steps or (measured[0].num_steps, measured[1].num_steps)
    if None in steps:
        _refuse_other_counts(*measured)
    per_step = None not in steps
    scale = [1.0 / (num or 1) if per_step else 1.0 for num in steps]
    rows = _joined(measured[0].rows, measured[1].rows, scale)
    whole, means = None, None
    if measured[0].total_ms is not None and measured[1].total_ms is not None:
        totals = (measured[0].total_ms * scale[0], measured[1].total_ms * scale[1])
        whole, means = totals[1] - totals[0], totals if per_step else None
    fills = [each.fill_ms for each in measured]
    fill = None if None in fills else (fills[1] or 0.0) * scale[1] - (fills[0] or 0.0) * scale[0]
    marks = (measured[0].step_ms, measured[1].step_ms)
    overlaps = any(note.startswith(each) for each in _INCLUSIVE for note in notes)
    return Places(rows, per_step, steps, whole, marks, means, tuple(notes), overlaps, fill)


def _events(side: Sequence[Profile]) -> pl.DataFrame:
    """Put the events of several files one below the other; rows keep pointing at each other."""
    parts, before = [], 0
    for profile in side:
        moved = [pl.col(name) + before for name in ("parent", "launch")]
        parts.append(profile.events.with_columns(moved))
        before += len(profile.events)
    return pl.concat(parts, rechunk=True)


def _joined(a: pl.DataFrame, b: pl.DataFrame, scale: Sequence[float]) -> pl.DataFrame:
    key = ["table", "name", "clock"]
    sides = [
        each.select(*key, (pl.col("ms") * factor).alias(f"{name}_ms"), pl.col("count").alias(f"count_{name}"))
        for each, factor, name in zip((a, b), scale, ("default", "deterministic"), strict=True)
    ]
    joined = sides[0].join(sides[1], on=key, how="full", coalesce=True)
    filled = joined.with_columns(pl.col("^.*_ms$").fill_null(0.0), pl.col("^count_.*$").fill_null(0))
    delta = (pl.col("deterministic_ms") - pl.col("default_ms")).abs()
    order = pl.col("table").cast(pl.Enum(TABLES))
    return filled.sort(order, delta, "name", descending=[False, True, False])


def _kineto(sides: Sequence[pl.DataFrame], by_layer: bool) -> tuple[list[Measured], list[str]]:
    """Measure traces of PyTorch's profiler: on the device where both sides have one, else on the host."""
    has_device = all(side["kind"].is_in(DEVICE_KINDS).any() for side in sides)
    notes = [
        "times are those of the device: kernels, copies and fills, counted for what launched them"
        if has_device
        else "times are those of the host, without what is nested in the same table"
    ]
    notes.append(
        "a profiler slows what it watches: the places are from here, the size of the tax is better taken "
        "from step times of runs without one"
    )
    notes += _left_out(sides)
    return [_measured(side, by_layer, on_device=has_device) for side in sides], notes


def _left_out(sides: Sequence[pl.DataFrame]) -> list[str]:
    """Say which events stand in no table."""
    notes = []
    outside = [len(side.filter(pl.col("step").is_null())) for side in sides]
    has_steps = [len(side) > num for side, num in zip(sides, outside, strict=True)]
    left = [num if has else 0 for num, has in zip(outside, has_steps, strict=True)]
    if any(left):
        notes.append(f"events outside the marked steps are in no table: {left[0]:,} and {left[1]:,}")
    kinds = pl.concat([side.select(pl.col("kind").cast(pl.String)) for side in sides])["kind"].unique()
    unused = sorted(set(kinds) & set(_UNUSED))
    if unused:
        notes.append(f"in no table: {', '.join(_UNUSED[kind] for kind in unused)}")
    return notes


def _measured(events: pl.DataFrame, by_layer: bool, *, on_device: bool) -> Measured:
    marked = events.with_row_index("row").with_columns(plain=plain_name(pl.col("name"), by_layer=by_layer))
    marked = marked.with_columns(table=table_of(pl.col("plain"), pl.col("kind")))
    steps = marked.filter((pl.col("kind") == "range") & is_step(pl.col("plain")))
    inside = (
        marked["step"].is_not_null()
        if marked["step"].is_not_null().any()
        else pl.Series([True] * len(marked))
    )
    parts = []
    for table in TABLES:
        if table == KERNEL:
            chosen = inside & marked["kind"].is_in(DEVICE_KINDS)
            parts.append(_summed(marked.filter(chosen), pl.col("duration_us"), "device"))
            continue
        chosen = inside & (marked["table"] == table) & marked["kind"].is_in(["op", "range"])
        chosen = chosen & ~is_step_series(marked) if table == RANGE else chosen
        parts.append(_table(marked, chosen, on_device=on_device, table=table))
    rows = pl.concat([pl.DataFrame(schema=ROW_COLUMNS), *parts])
    lengths = tuple((steps.sort("start_us")["duration_us"] / 1e3).to_list())
    total = sum(lengths) if lengths else None
    fills = _fill_time(marked, inside, on_device=on_device)
    return Measured(rows, lengths, total, len(steps) or None, fills)


def _fill_time(rows: pl.DataFrame, inside: pl.Series, *, on_device: bool) -> float:
    """Give the milliseconds in fills that stand directly in an op which allocates memory."""
    outer = rows["plain"].gather(rows["parent"])
    is_fill = inside & (rows["plain"] == "aten::fill_") & outer.str.contains(_ALLOCATES).fill_null(False)
    if not on_device:
        return float(rows.filter(is_fill)["self_us"].sum()) / 1e3
    at = np.flatnonzero(is_fill.to_numpy())
    own = np.full(len(rows), NONE)
    own[at] = at
    within = inherited(rows["parent"].fill_null(NONE).to_numpy(), own)
    return float(_device_time(rows, within).sum()) / 1e3


def is_step_series(rows: pl.DataFrame) -> pl.Series:
    """Say of each row whether it is a whole step."""
    return rows.select(is_step(pl.col("plain"))).to_series()


def _table(rows: pl.DataFrame, chosen: pl.Series, *, on_device: bool, table: str) -> pl.DataFrame:
    """Sum the rows of one table by name; time in a nested row of the same table is counted there."""
    parent = rows["parent"].fill_null(NONE).to_numpy()
    is_one = chosen.fill_null(False).to_numpy()
    own = np.where(is_one, np.arange(len(rows)), NONE)
    within = inherited(parent, own)
    outer = np.where(parent >= 0, within[np.maximum(parent, 0)], NONE)
    chosen_at = np.flatnonzero(is_one)
    if on_device:
        time = _device_time(rows, within)[chosen_at]
    else:
        place = np.full(len(rows), NONE)
        place[chosen_at] = np.arange(len(chosen_at))
        around = outer[chosen_at]
        time = own_time(
            np.where(around >= 0, place[np.maximum(around, 0)], NONE),
            rows["duration_us"].to_numpy()[chosen_at],
        )
    plain = rows["plain"]
    around_name = plain.gather(pl.Series(np.maximum(outer[chosen_at], 0)))
    is_again = (around_name == plain.gather(pl.Series(chosen_at))).to_numpy() & (outer[chosen_at] >= 0)
    found = rows[chosen_at].with_columns(time=pl.Series(time), once=pl.Series(~is_again).cast(pl.Int64))
    found = found.with_columns(count=pl.col("once"), table=pl.lit(table))
    return _summed(found, pl.col("time"), "device" if on_device else "host")


def _device_time(rows: pl.DataFrame, within: Any) -> Any:
    """Give the time of the device for each row that is the innermost of its table around a launch."""
    work = rows.filter(pl.col("kind").is_in(DEVICE_KINDS) & pl.col("launch").is_not_null())
    owner = within[work["launch"].to_numpy()]
    known = owner >= 0
    return np.bincount(owner[known], work["duration_us"].to_numpy()[known], minlength=len(rows))


def _summed(rows: pl.DataFrame, time: pl.Expr, clock: str) -> pl.DataFrame:
    return (
        rows.group_by("table", name="plain")
        .agg(ms=time.sum() / 1e3, count=pl.col("count").sum())
        .select("table", "name", pl.lit(clock).alias("clock"), "ms", "count")
        .select(pl.col(name).cast(kind) for name, kind in ROW_COLUMNS.items())
    )


def _nsys(sides: Sequence[pl.DataFrame], by_layer: bool) -> tuple[list[Measured], list[str]]:
    """Measure reports of Nsight Systems: the same reports on both sides."""
    reports = [set(side["report"].cast(pl.String).unique()) for side in sides]
    both = reports[0] & reports[1]
    ranges = next((each for each in _RANGE_REPORTS if each in both), None)
    kernels = next((each for each in _KERNEL_REPORTS if each in both), None)
    used = [each for each in (ranges, kernels, *(each for each in _COPY_REPORTS if each in both)) if each]
    if not used:
        raise NotComparable(
            f"The profiles have no report in common that is used here: {_listed(reports[0])}; and "
            f"{_listed(reports[1])}.",
            "write the same for both: nsys stats --report nvtx_sum,cuda_gpu_kern_sum --format csv FILE",
        )
    notes = [f"measured by {', '.join(used)}"]
    if ranges in _INCLUSIVE:
        notes.append(
            f"{ranges} counts a range with all that is nested in it: its rows overlap and do not add up; "
            "nvtx_pushpop_trace tells them apart"
        )
    unused = sorted((reports[0] | reports[1]) - set(used))
    if unused:
        notes.append(f"not used: {', '.join(unused)}")
    return [_measured_nsys(side, ranges, used, by_layer) for side in sides], notes


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _measured_nsys(side: pl.DataFrame, ranges: str | None, used: Sequence[str], by_layer: bool) -> Measured:
    if ranges == "nvtx_pushpop_trace":
        chosen = side.with_columns(step=pl.lit(None, pl.Int64))
        keep = pl.col("report").cast(pl.String).is_in(used)
        # rows of other reports are taken out of the tables, never out of the frame: parents are row numbers
        kind = pl.when(keep).then(pl.col("kind")).otherwise(pl.lit("other", side["kind"].dtype))
        return _measured(chosen.with_columns(kind=kind), by_layer, on_device=False)
    rows = side.filter(pl.col("report").cast(pl.String).is_in(used))
    rows = rows.with_columns(plain=plain_name(pl.col("name"), by_layer=by_layer))
    rows = rows.with_columns(table=table_of(pl.col("plain"), pl.col("kind")))
    steps = rows.filter(is_step(pl.col("plain")) & (pl.col("table") == RANGE))
    longest = steps.group_by("plain").agg(pl.col("duration_us").sum(), pl.col("count").sum())
    longest = longest.sort("duration_us", "plain", descending=True).head(1)
    parts = [
        _summed(
            rows.filter((pl.col("kind").cast(pl.String) == kind) & ~is_step(pl.col("plain"))),
            pl.col("duration_us"),
            "host" if kind == "range" else "device",
        )
        for kind in ("range", "device_range", *DEVICE_KINDS)
    ]
    total = float(longest["duration_us"][0]) / 1e3 if len(longest) else None
    num = int(longest["count"][0]) if len(longest) else None
    return Measured(pl.concat([pl.DataFrame(schema=ROW_COLUMNS), *parts]), (), total, num)


def _refuse_other_counts(a: Measured, b: Measured) -> None:
    """Refuse profiles of other numbers of steps: then most rows are counted as often more on one side.

    Raises
    ------
    NotComparable
        More than half of the rows that both have were counted by the same factor more often.
    """
    both = a.rows.join(b.rows, on=["table", "name", "clock"], how="inner", suffix="_b")
    both = both.filter((pl.col("count") > 0) & (pl.col("count_b") > 0))
    ratios = both.select((pl.col("count_b") / pl.col("count")).round(6).alias("ratio"))["ratio"]
    counts = ratios.value_counts(sort=True)
    if len(ratios) < _FEW_ROWS or counts["ratio"][0] == 1.0 or 2 * counts["count"][0] <= len(ratios):
        return
    num, factor = counts["count"][0], counts["ratio"][0]
    raise NotComparable(
        f"The profiles cover other numbers of steps: {num} of {len(ratios)} "
        f"{plural('row', len(ratios))} were counted {factor:g} times as often in the deterministic one.",
        "say how many steps each has: profile_steps=(10, 5), on the command line --profile-steps 10,5",
    )
