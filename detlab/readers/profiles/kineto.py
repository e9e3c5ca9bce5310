"""PyTorch's profiler (Kineto): a trace in JSON, plain or packed with gzip, as a frame of events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from detlab.errors import TraceError
from detlab.progress import Told
from detlab.readers.profiles.frame import DEVICE_KINDS, PHASES, Profile, Rows, completed
from detlab.readers.profiles.json_events import TraceEvents
from detlab.readers.profiles.nesting import NONE, inherited, own_time, parents, windows
from detlab.text import plural

_KINDS: Final = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "range",
    "gpu_user_annotation": "device_range",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "python_function": "python",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "privateuse1_runtime": "runtime",
    "runtime": "runtime",
}
"""Kinds by category in lower case; one that ends with ``_runtime`` or ``_driver`` is of the driver."""

_COLUMNS: Final = (
    "name", "report", "thread", "start_us", "duration_us", "device", "stream", "correlation", "external",
    "shapes",
)  # fmt: skip

_MAX_US: Final = 1e18
"""Thirty thousand years: a time beyond is damage, and sums of such overflow."""

_STEP: Final = re.compile(r"ProfilerStep\s*#\s*(\d+)$")
_BACKWARD: Final = r"^autograd::engine::evaluate_function: "
_OPTIMIZER: Final = r"^Optimizer\.step#"


def load_kineto(path: Path, told: Told | None = None) -> Profile:
    """Read a trace of PyTorch's profiler as far as it is whole.

    The file is read in pieces: what is held is a piece of it and the frame, never the whole text.

    Raises
    ------
    TraceError
        Nothing of it is an event that has a duration.
    """
    events = TraceEvents(path, told)
    rows, skipped = Rows((*_COLUMNS, "phase")), 0
    for event in events:
        row = _row(event)
        if row is not None:
            rows.add(row)
        elif event.get("ph") in ("B", "E", "X"):
            skipped += 1
    frame = rows.frame()
    problems = [f"{path.name}: {events.problem}; what stands before it is used"] if events.problem else []
    if frame.is_empty():
        raise _no_events(path, events)
    if skipped:
        said = f"{skipped:,} {plural('event', skipped)} without a start and a duration"
        problems.append(f"{path.name}: {said} cannot be used")
    return Profile(
        str(path),
        "kineto",
        _completed(frame, _rank(events.beside)),
        tuple(problems),
        (),
        _facts(events.beside),
    )


def _no_events(path: Path, events: TraceEvents) -> TraceError:
    why = f" ({events.problem})" if events.problem else ""
    return TraceError(
        f"{path.name} holds no complete event of a PyTorch profiler trace{why}.",
        "give the file that torch.profiler wrote: prof.export_chrome_trace(path)",
    )


def _row(event: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Give the columns of one event that has a duration."""
    start, duration = _number(event.get("ts")), _number(event.get("dur"))
    if event.get("ph") != "X" or start is None or duration is None or duration < 0:
        return None
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    shapes = args.get("Input Dims", args.get("Input dims"))
    is_late = bool(args.get("Fwd thread id")) and "Sequence number" in args
    return (
        str(event.get("name", "")),
        str(event.get("cat", "")),
        f"{event.get('pid')}/{event.get('tid')}",
        start,
        duration,
        _integer(args.get("device")),
        _integer(args.get("stream")),
        _integer(args.get("correlation")),
        _integer(args.get("External id", args.get("external id"))),
        json.dumps(shapes) if shapes else None,
        PHASES[1] if is_late else PHASES[0] if "Sequence number" in args else None,
    )


def _number(value: Any) -> float | None:
    """Give a time; some writers quote it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < _MAX_US else None


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1 << 63 else None


def _rank(beside: Mapping[str, Any]) -> int | None:
    stated = beside.get("distributedInfo")
    return _integer(stated.get("rank")) if isinstance(stated, dict) else None


def _facts(beside: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Give what a trace says of the machine and of itself, as text."""
    said = {name: str(value) for name, value in beside.items() if isinstance(value, str | int | float)}
    devices = beside.get("deviceProperties")
    names = [str(each.get("name")) for each in devices if isinstance(each, dict)] if devices else []
    if names:
        said["devices"] = ", ".join(dict.fromkeys(names))
    return tuple(sorted(said.items()))


def _completed(rows: pl.DataFrame, rank: int | None) -> pl.DataFrame:
    """Add what follows from how events lie in each other."""
    kind = rows.select(_kind()).to_series()
    name = rows["name"].cast(pl.String)
    start, duration = rows["start_us"].to_numpy(), rows["duration_us"].to_numpy()
    thread = rows["thread"].to_physical().cast(pl.Int64).to_numpy()
    parent = parents(thread, start, duration)
    launch = _launches(rows, kind)
    launched_at = np.where(launch >= 0, start[np.maximum(launch, 0)], start)
    around = np.where(launch >= 0, launch, parent)
    return completed(
        rows.with_columns(
            kind=kind,
            count=pl.lit(1, pl.Int64),
            rank=pl.lit(rank, pl.Int64),
            parent=_or_null(parent),
            launch=_or_null(launch),
            self_us=pl.Series(own_time(parent, duration)),
            step=_steps(name, kind, rows, launched_at),
            phase=_phases(name, rows["phase"], around),
            op=_ops(rows["name"], kind, launch, parent),
        )
    )


def _kind() -> pl.Expr:
    category = pl.col("report").cast(pl.String).str.to_lowercase()
    is_driver = category.str.contains(r"_(runtime|driver)$")
    known = category.replace_strict(_KINDS, default="other", return_dtype=pl.String)
    return pl.when(is_driver).then(pl.lit("runtime")).otherwise(known).alias("kind")


def _launches(rows: pl.DataFrame, kind: pl.Series) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Give for each event of a device the row on the host that launched it; -1 where none is known.

    The call of the driver has the same correlation; where it was not recorded, the op has the same id.
    """
    numbered = rows.select("correlation", "external", kind=kind).with_row_index("row")
    wanted = numbered.filter(pl.col("kind").is_in([*DEVICE_KINDS, "device_range"]))
    found = np.full(len(rows), NONE, np.int64)
    for key, kinds in (("external", ["op", "range"]), ("correlation", ["runtime"])):
        hosts = numbered.filter(pl.col("kind").is_in(kinds) & (pl.col(key) > 0))
        hosts = hosts.select(key, at="row").unique(key, keep="last", maintain_order=True)
        joined = wanted.select("row", key).join(hosts, on=key, how="inner")
        found[joined["row"].to_numpy()] = joined["at"].to_numpy()
    return found


def _steps(name: pl.Series, kind: pl.Series, rows: pl.DataFrame, at: Any) -> pl.Series:
    """Give the profiler's step that each event, or what launched it, began in."""
    marks = (
        pl.DataFrame({"name": name, "kind": kind, "start": rows["start_us"], "length": rows["duration_us"]})
        .filter((pl.col("kind") == "range") & pl.col("name").str.contains(_STEP.pattern))
        .with_columns(step=pl.col("name").str.extract(_STEP.pattern).cast(pl.Int64, strict=False))
        .sort("start")
    )
    which = windows(marks["start"].to_list(), (marks["start"] + marks["length"]).to_list(), at)
    return (
        marks["step"].gather(_or_null(which)) if len(marks) else pl.Series([None] * len(rows), dtype=pl.Int64)
    )


def _phases(name: pl.Series, stated: pl.Series, around: Any) -> pl.Series:
    """Tell phases by the marks of autograd and of optimizers on an event or around it.

    An op of the backward pass stands in a node that the engine evaluates; what carries the number of a
    node elsewhere was recorded for it, in the forward pass. Without such a mark the phase is not known.
    """
    marks = stated.cast(pl.Enum(PHASES)).to_physical().cast(pl.Int64).fill_null(NONE).to_numpy().copy()
    marks[name.str.contains(_BACKWARD).fill_null(False).to_numpy()] = PHASES.index("backward")
    marks[name.str.contains(_OPTIMIZER).fill_null(False).to_numpy()] = PHASES.index("optimizer")
    backward = np.where(marks == PHASES.index("forward"), NONE, marks)
    outer = inherited(around, backward)  # a forward mark inside the backward pass is its own number again
    told = np.where(outer != NONE, outer, inherited(around, marks))
    return _or_null(told).cast(pl.UInt8).map_elements(PHASES.__getitem__, return_dtype=pl.String)


def _ops(name: pl.Series, kind: pl.Series, launch: Any, parent: Any) -> pl.Series:
    """Give the name of the innermost op or range around an event, or around what launched it."""
    is_op = kind.is_in(["op", "range"]).to_numpy()
    own = np.where(is_op, np.arange(len(name)), NONE)
    within = inherited(parent, own)
    outer = np.where(parent >= 0, within[np.maximum(parent, 0)], NONE)
    of_launch = np.where(launch >= 0, within[np.maximum(launch, 0)], outer)
    return name.gather(_or_null(of_launch))


def _or_null(positions: Any) -> pl.Series:
    found = pl.Series(np.asarray(positions), dtype=pl.Int64)
    return found.to_frame("at").select(pl.when(pl.col("at") >= 0).then(pl.col("at"))).to_series()
