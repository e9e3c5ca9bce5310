"""Two checkpoints as one frame of leaves, and what they say of their step and their parallel layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl

from detlab.checks.checkpoints.comparing import compare_checkpoints
from detlab.checks.checkpoints.layout import Checkpoint, Leaf, ScalarLeaf, TensorLeaf
from detlab.checks.checkpoints.replacing import Replacement, replaced
from detlab.checks.result import NotChecked, Problem
from detlab.checks.resume.components import FP8, component_of, without_file
from detlab.checks.resume.negative_controls import Control, catches
from detlab.checks.resume.state import STATE_SCHEMA, judge
from detlab.checks.resume.words import Stage, counted, listed
from detlab.errors import InputError, NotComparable

Names = Mapping[str, str] | Callable[[str], str] | None
"""Names of the resumed side that the reference has other names for."""

EVERY_BYTE: Final = "exact: every byte"
_RANK: Final = re.compile(r"^rank(\d+)\.")
_FILE: Final = re.compile(r"^(?:mp_rank|(?:bf16_)?zero_pp_rank)_\w+")
_AXES: Final = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "data_parallel_size": "dp", "world_size": "world size",
    "mp_world_size": "tp", "dp_world_size": "dp",
}  # fmt: skip
"""Arguments that say how a run was laid out: Megatron's, and DeepSpeed's."""

_ITERATION: Final = re.compile(r"^(?:iteration|global_steps?|train_state\.step)$")
_MOST_BYTES: Final = 1 << 20
"""Bytes that are made up at most for a control."""

_WEIGHTS_ONLY: Final = ("safetensors",)
"""Formats that hold tensors of a model alone."""


def compare_states(a: Checkpoint, b: Checkpoint) -> pl.DataFrame:
    """Compare two checkpoints; columns of `STATE_SCHEMA`, one row per leaf of either."""
    frame = compare_checkpoints(a, b)
    rows = [_row(row) for row in frame.sort("name").iter_rows(named=True)]
    return pl.DataFrame(rows, STATE_SCHEMA).filter(~_is_empty())


def _is_empty() -> pl.Expr:
    """Say of the extra state of a module whether there is none: outside of FP8 its place holds nothing."""
    nothing = [pl.col(f"value_{side}").is_in(["None", ""]).fill_null(False) for side in "ab"]
    return (pl.col("component") == FP8) & (pl.col("kind") == "scalar") & nothing[0] & nothing[1]


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    name = str(row["name"])
    rank = _RANK.match(name)
    is_tensor = row["kind"] == "tensor"
    return {
        "name": name[rank.end() :] if rank else name,
        "rank": int(rank[1]) if rank else None,
        "component": component_of(name, is_tensor=is_tensor),
        "evidence": EVERY_BYTE,
        **{each: row[each] for each in STATE_SCHEMA if each in row and each != "name"},
    }


def set_silent_aside(
    a: Checkpoint, b: Checkpoint, rows: pl.DataFrame
) -> tuple[pl.DataFrame, list[NotChecked]]:
    """Set components aside that the format of a side cannot hold: a file of weights has no optimizer."""
    aside: list[NotChecked] = []
    for side, only in ((b, "only_a"), (a, "only_b")):
        if side.format not in _WEIGHTS_ONLY:
            continue
        alone = rows.group_by("component").agg((pl.col("state") == only).all()).filter("state")["component"]
        aside += [
            NotChecked(each, f"{side.path.name} is {side.format}, which holds weights alone")
            for each in alone.sort()
        ]
        rows = rows.filter(~pl.col("component").is_in(alone.implode()))
    return rows, aside


def step_of(checkpoint: Checkpoint) -> int | None:
    """Give the step that a checkpoint says it is of; None where it says none, or several."""
    found = {
        leaf.value
        for name, leaf in checkpoint.leaves.items()
        if isinstance(leaf, ScalarLeaf) and _ITERATION.search(without_file(name.lower()))
    }
    numbers = {each for each in found if isinstance(each, int) and not isinstance(each, bool)}
    return numbers.pop() if len(numbers) == 1 else None


def layout_of(checkpoint: Checkpoint) -> dict[str, int]:
    """Give the sizes of the parallel axes that a checkpoint states."""
    found: dict[str, int] = {}
    for name, leaf in checkpoint.leaves.items():
        axis = _AXES.get(name.rsplit(".", 1)[-1])
        if axis and isinstance(leaf, ScalarLeaf) and isinstance(leaf.value, int):
            found[axis] = leaf.value
    return found


def other_layout(a: Checkpoint, b: Checkpoint) -> str:
    """Say how the parallel layouts of two checkpoints differ; empty where they do not, as far as is known."""
    ours, theirs = layout_of(a), layout_of(b)
    axes = [axis for axis in sorted(ours.keys() & theirs.keys()) if ours[axis] != theirs[axis]]
    if axes:
        return ", ".join(f"{axis} {ours[axis]} and {theirs[axis]}" for axis in axes)
    if (
        a.format != b.format
    ):  # a file for all ranks and one for each say nothing of how the runs were laid out
        return ""
    num = sum(_boxes(a.leaves[name]) != _boxes(b.leaves[name]) for name in a.leaves.keys() & b.leaves.keys())
    return f"{counted(num, 'tensor')} in other shards" if num else ""


def _boxes(leaf: Leaf) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    return {(each.offsets, each.shape) for each in leaf.pieces} if isinstance(leaf, TensorLeaf) else set()


def is_same(a: Checkpoint, b: Checkpoint) -> bool:
    """Say whether both are one checkpoint, or one is a part of the other: the bytes of one place."""
    if a.path.exists() and b.path.exists() and a.path.samefile(b.path):
        return True
    ours, theirs = (
        {leaf.pieces for leaf in each.leaves.values() if isinstance(leaf, TensorLeaf) and leaf.pieces}
        for each in (a, b)
    )
    return bool(ours and theirs) and (ours <= theirs or theirs <= ours)


def rank_files(checkpoint: Checkpoint) -> frozenset[str]:
    """Give the files of single ranks that a checkpoint is kept in, such as ``mp_rank_00``."""
    names = (_FILE.match(name) for name in (*checkpoint.leaves, *checkpoint.unreadable))
    return frozenset(name[0] for name in names if name)


def refuse_other_ranks(a: Checkpoint, b: Checkpoint) -> None:
    """Refuse files of ranks that have no partner: the shards in them are of other parameters.

    Raises
    ------
    NotComparable
        One side has files of ranks that the other has not.
    """
    ours, theirs = rank_files(a), rank_files(b)
    if ours != theirs:
        said = [
            f"{each.path} has {listed(sorted(found), 3) or 'one file'}"
            for each, found in ((a, ours), (b, theirs))
        ]
        raise NotComparable(
            f"{' and '.join(said)}: the files are of other ranks, or of another parallel layout.",
            "save both in a format that is put together by name: torch_dist or torch.distributed.checkpoint",
        )


def other_ranks(checkpoint: Checkpoint) -> list[NotChecked]:
    """Say of a checkpoint in a file per rank which part of the model parallel ranks it is of."""
    sizes = layout_of(checkpoint)
    num, of = max(1, len(rank_files(checkpoint))), sizes.get("tp", 1) * sizes.get("pp", 1)
    if checkpoint.format != "torch.save" or num >= of:
        return []
    why = f"{checkpoint.path.name} is of {counted(num, 'rank')} of {of} (tp x pp): the others were not given"
    return [NotChecked("other ranks", why)]


def problems_of(*checkpoints: Checkpoint) -> list[Problem]:
    """Give what could not be read of checkpoints."""
    return [Problem(each.path.name, problem) for each in checkpoints for problem in each.problems]


def saved_controls(
    a: Checkpoint, b: Checkpoint, rows: pl.DataFrame, components: Iterable[str], stage: Stage
) -> Iterator[Control]:
    """Compare small leaves of each component again, each time with what a failed restore leaves there."""
    for component in components:
        part = rows.filter((pl.col("component") == component) & (pl.col("state") == "equal"))
        for name, how, replacement in _replacements(part):
            found = compare_states(_only(a, [name]), replaced(_only(b, [name]), {name: replacement}))
            yield Control(component, "checkpoint", how, name, catches(judge(found, stage), component))


def _only(checkpoint: Checkpoint, names: Iterable[str]) -> Checkpoint:
    return replace(checkpoint, leaves={name: checkpoint.leaves[name] for name in names})


def renamed(checkpoint: Checkpoint, names: Names) -> Checkpoint:
    """Give a checkpoint with the names that the reference has for its leaves.

    Raises
    ------
    InputError
        Two leaves would have one name.
    """
    if names is None:
        return checkpoint
    known = {*checkpoint.leaves, *checkpoint.unreadable}
    strangers = [] if callable(names) else sorted(set(names) - known)
    if strangers:
        raise InputError(
            f"{checkpoint.path} has no leaf '{strangers[0]}' that could be renamed.",
            "give names as {name in the resumed checkpoint: name in the reference}",
        )
    found: dict[str, Leaf] = {}
    for name, leaf in checkpoint.leaves.items():
        new = names(name) if callable(names) else names.get(name, name)
        if new in found:
            raise InputError(
                f"{checkpoint.path}: two leaves would be called '{new}'.", "give each a name of its own"
            )
        found[new] = replace(leaf, name=new)
    lost = {names(n) if callable(names) else names.get(n, n): why for n, why in checkpoint.unreadable.items()}
    return replace(checkpoint, leaves=found, unreadable=lost)


def _replacements(part: pl.DataFrame) -> Iterator[tuple[str, str, Replacement]]:
    """Choose leaves of a component, small ones, and what to put in their place: name, how, replacement."""
    tensors = part.filter((pl.col("kind") == "tensor") & (pl.col("num_bytes") > 0)).sort("num_bytes", "name")
    numbers = part.filter(pl.col("kind") == "scalar").sort("name")
    told = tensors.filter(~pl.col("zeroed_b").fill_null(False))
    if len(told):
        yield _full(told), "zeroed", Replacement("zeros")
    elif len(tensors) and (size := int(tensors["num_bytes"][0])) <= _MOST_BYTES:
        yield (
            _full(tensors),
            "other bytes",
            Replacement("bytes", content=b"\1" * size),
        )
    if len(tensors):
        yield _full(tensors), "missing", Replacement("missing")
    counts = numbers.filter(pl.col("value_b").cast(pl.Float64, strict=False).fill_null(0) != 0)
    if len(counts):
        yield _full(counts), "reset", Replacement("zeros")
    elif len(numbers):
        yield _full(numbers), "another value", Replacement("scalar", value="\0another")
    if len(numbers):
        yield _full(numbers), "missing", Replacement("missing")


def _full(rows: pl.DataFrame) -> str:
    """Give the name of the first of some leaves as the checkpoint has it."""
    name, rank = rows.select("name", "rank").row(0)
    return str(name) if rank is None else f"rank{rank}.{name}"
