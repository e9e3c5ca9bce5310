"""Judge a state against another, leaf by leaf: what is missing, extra, zeroed, reset or different.

Whatever recorded the two states, a checkpoint or a trace, they come here as one frame of leaves; so a
negative control goes through the same judgement as the check itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from detlab.checks.result import Verified
from detlab.checks.resume.components import BOOKKEEPING, COMPONENTS, RECIPE, RNG
from detlab.checks.resume.words import MORE_COLUMNS, Stage, counted, leaves, listed

STATE_SCHEMA: Final[dict[str, Any]] = {
    "name": pl.String,
    "rank": pl.Int64,
    "component": pl.Enum(COMPONENTS),
    "kind": pl.String,
    "state": pl.String,
    "zeroed_a": pl.Boolean,
    "zeroed_b": pl.Boolean,
    "num_different": pl.Int64,
    "num_elements": pl.Int64,
    "max_abs": pl.Float64,
    "value_a": pl.String,
    "value_b": pl.String,
    "initial": pl.Boolean,
    "evidence": pl.String,
    "num_bytes": pl.Int64,
    "problem": pl.String,
}
"""One row per leaf of either state.

``name``; ``rank`` (null: of no one rank); ``component``; ``kind`` (tensor or scalar); ``state`` (equal,
different, only_a, only_b, changed, unreadable); ``zeroed_a`` and ``zeroed_b`` (every byte is zero);
``num_different`` of ``num_elements``, and by how much at most (``max_abs``; null: not known); ``value_a`` and
``value_b`` (scalars as text); ``initial`` (b is what the state was before training); ``evidence`` of an
equality; ``num_bytes``; ``problem`` (why it is unreadable; null: it is not, or its evidence says nothing).
"""

REASONS: Final = ("missing", "extra", "zeroed", "reset", "different")
"""What can be wrong with a leaf, worst first."""

INITIAL_SCALES: Final = {
    "65536": "torch.amp.GradScaler and DeepSpeed begin with 2**16",
    "4294967296": "Megatron-LM begins with --initial-loss-scale 2**32",
}
"""Loss scales that training begins with, and who does."""

_MAX_NAMES: Final = 20
_NOTHING: Final = r"^(?:None|empty \w+)?$"
"""Scalars that hold nothing, as text."""


@dataclass(frozen=True)
class Judged:
    """What a comparison of two states says.

    Attributes
    ----------
    findings
        Rows of findings, what is missing first.
    verified
        Components of which every leaf is equal.
    unreadable
        One sentence for each component with leaves that could not be compared.
    notes
        What a reader must know beside it.
    """

    findings: tuple[dict[str, Any], ...] = ()
    verified: tuple[Verified, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Judged) -> Judged:
        return Judged(
            self.findings + other.findings,
            self.verified + other.verified,
            self.unreadable + other.unreadable,
            self.notes + other.notes,
        )


def reason() -> pl.Expr:
    """Say of each leaf what is wrong with it; null where nothing is, or nothing could be compared."""
    differs = pl.col("state").is_in(["different", "changed"])
    reset = pl.col("initial").fill_null(False) | _is_reset()
    return (
        pl.when(pl.col("state") == "only_a")
        .then(pl.lit("missing"))
        .when(pl.col("state") == "only_b")
        .then(pl.lit("extra"))
        .when(differs & reset)
        .then(pl.lit("reset"))
        .when(differs & pl.col("zeroed_b").fill_null(False) & ~pl.col("zeroed_a").fill_null(False))
        .then(pl.when(pl.col("num_elements") == 1).then(pl.lit("reset")).otherwise(pl.lit("zeroed")))
        .when(differs)
        .then(pl.lit("different"))
    )


def _is_reset() -> pl.Expr:
    """Say whether a number went back to zero, or a loss scale to one that training begins with."""
    numbers = [pl.col(f"value_{side}").cast(pl.Float64, strict=False) for side in "ab"]
    to_zero = (numbers[1] == 0) & (numbers[0] != 0)
    scales = [float(scale) for scale in INITIAL_SCALES]
    to_initial = (pl.col("component") == "loss scale") & numbers[1].is_in(scales) & (numbers[0] != numbers[1])
    return (to_zero | to_initial).fill_null(False)


def judge(rows: pl.DataFrame, stage: Stage) -> Judged:
    """Judge two states.

    Parameters
    ----------
    rows
        Leaves with the columns of `STATE_SCHEMA`.
    stage
        When these states were, and what they were read from.
    """
    told = rows.with_columns(_shown(), reason=reason()).sort("component", "name", "rank", nulls_last=True)
    parts = {str(part["component"][0]): part for part in told.partition_by("component", maintain_order=True)}
    found = [_finding(part, stage) for part in parts.values() if part["reason"].count()]
    order = {name: number for number, name in enumerate(REASONS)}
    found.sort(key=lambda row: (row["severity"] != "error", order[row["kind"]]))
    unreadable = [
        (stage.label, _unread(part, component))
        for component, part in parts.items()
        if (part["state"] == "unreadable").any() and component != BOOKKEEPING
    ]
    return Judged(
        tuple(_with_all(found, told)),
        tuple(_verified(part, stage) for component, part in parts.items() if _holds(component, part)),
        tuple(unreadable),
        tuple(_trivial(parts)),
    )


def _holds(component: str, part: pl.DataFrame) -> bool:
    is_state = component not in (BOOKKEEPING, RECIPE)
    return is_state and not _is_empty(part) and bool((part["state"] == "equal").all())


def _is_empty(part: pl.DataFrame) -> bool:
    """Say whether no leaf holds anything on either side: that equality shows no restore."""
    empty = pl.col("num_elements").fill_null(1) == 0
    for side in "ab":
        empty |= (pl.col("kind") == "scalar") & pl.col(f"value_{side}").str.contains(_NOTHING).fill_null(
            False
        )
    return bool(part.select(((pl.col("state") == "equal") & empty).all()).item())


def _verified(part: pl.DataFrame, stage: Stage) -> Verified:
    component = str(part["component"][0])
    evidence = ", ".join(sorted(set(part["evidence"].drop_nulls())))
    values = part.filter(pl.col("kind") == "scalar")
    shown = (
        f" ({values['name'][0]}: {values['value_a'][0]})" if len(values) == 1 and values["value_a"][0] else ""
    )
    ranks = part["rank"].n_unique()
    of_ranks = f" on {counted(ranks, 'rank')}" if ranks > 1 else ""
    return Verified(component, f"{leaves(part)}{of_ranks} equal{shown}, {stage.words}", evidence)


def _unread(part: pl.DataFrame, component: str) -> str:
    lost = part.filter(pl.col("state") == "unreadable")
    why = lost["problem"].drop_nulls()
    because = f" ({why[0]})" if len(why) else ""
    return f"{leaves(lost)} of {component} cannot be compared: {listed(_names(lost))}{because}"


def _trivial(parts: Mapping[str, pl.DataFrame]) -> Iterable[str]:
    """Say where equality shows little: a state that is zero on both sides looks the same after a reset."""
    for component, part in parts.items():
        if component not in (BOOKKEEPING, RECIPE) and _is_empty(part):
            yield f"{component}: empty on both sides ({listed(_names(part), 2)}): nothing of it is shown"
        tensors = part.filter((pl.col("kind") == "tensor") & (pl.col("num_elements").fill_null(2) > 0))
        if component in (BOOKKEEPING, RECIPE) or not len(tensors):
            continue
        if bool((tensors["zeroed_a"] & tensors["zeroed_b"]).fill_null(False).all()):
            yield f"{component}: every byte is zero on both sides, as after a reset: a restore is not shown"


def _shown() -> pl.Expr:
    """Name a leaf, with its rank where its component has leaves of several."""
    of_rank = pl.concat_str(pl.lit("rank "), "rank", pl.lit(" "), "name")
    many = pl.col("rank").n_unique().over("component") > 1
    return pl.when(many & pl.col("rank").is_not_null()).then(of_rank).otherwise("name").alias("shown")


def _names(part: pl.DataFrame) -> list[str]:
    return part["shown"].to_list()


def _finding(part: pl.DataFrame, stage: Stage) -> dict[str, Any]:
    component = str(part["component"][0])
    wrong = part.filter(pl.col("reason").is_not_null())
    groups = {each: wrong.filter(pl.col("reason") == each) for each in REASONS}
    groups = {each: rows for each, rows in groups.items() if len(rows)}
    kind = next(iter(groups))
    severity = {BOOKKEEPING: "note", RECIPE: "warning"}.get(component, "error")
    if severity != "error":
        return _beside(component, severity, part, wrong, stage)
    said = "; ".join(_sentence(component, each, rows, part, stage) for each, rows in groups.items())
    return {
        "component": component,
        "severity": severity,
        "found": said,
        "expected": f"the bits that the reference {stage.had}",
        "where": listed(_names(groups[kind]), 3),
        "why": _why(component, kind, groups[kind]),
        "next": _NEXT.get(component, _NEXT_OF_KIND[kind]),
        "stage": stage.label,
        "kind": kind,
        "names": _names(wrong)[:_MAX_NAMES],
        "num_leaves": len(wrong),
        "of_leaves": len(part),
        "max_abs": wrong["max_abs"].max(),
        "evidence": ", ".join(sorted(set(part["evidence"].drop_nulls()))),
    }


def _beside(
    component: str, severity: str, part: pl.DataFrame, wrong: pl.DataFrame, stage: Stage
) -> dict[str, Any]:
    """Sum up what is no state in one line."""
    shown = [f"{row['name']} {_change(row)}" for row in wrong.head(3).iter_rows(named=True)]
    what = "leaves that keep the books (dates, paths, versions)" if component == BOOKKEEPING else "arguments"
    return {
        "component": component,
        "severity": severity,
        "found": f"{len(wrong):,} of {len(part):,} {what} differ: {listed(shown, 3)}",
        "why": "no state of training: not judged" if component == BOOKKEEPING else "the recipes differ",
        "next": "" if component == BOOKKEEPING else "compare the recipes: detlab check recipe A B",
        "stage": stage.label,
        "kind": str(wrong["reason"][0]),
        "names": _names(wrong)[:_MAX_NAMES],
        "num_leaves": len(wrong),
        "of_leaves": len(part),
    }


def _sentence(component: str, kind: str, rows: pl.DataFrame, part: pl.DataFrame, stage: Stage) -> str:
    """Say what is wrong with some leaves of a component."""
    count = f"{len(rows):,} of {leaves(part, component)}"
    names = listed(_names(rows), 2)
    if kind == "missing":
        return f"{count} missing{stage.missing}: {names}"
    if kind == "extra":
        return f"{count} {'is' if len(rows) == 1 else 'are'} in the resumed state alone: {names}"
    if kind == "zeroed":
        return f"{count} all zero{stage.after}: {names}"
    row = rows.row(0, named=True)
    if kind == "reset" or (len(rows) == 1 and row["kind"] == "scalar"):
        more = f" ({count}: {names})" if len(part) > 1 or row["name"] != component else ""
        return f"{component} {_change(row)}{more}"
    return f"{count} {'differs' if len(rows) == 1 else 'differ'}{stage.after}: {names}{_size(rows)}"


def _change(row: Mapping[str, Any]) -> str:
    """Write what a leaf was and is, such as ``3000 -> 0``."""
    if row["state"] == "only_a":
        return "missing"
    if row["state"] == "only_b":
        return "added"
    if row["value_a"] is not None or row["value_b"] is not None:
        return f"{listed([str(row['value_a'])])} -> {listed([str(row['value_b'])])}"
    if row["initial"]:
        return "back at its state before training"
    if row["zeroed_b"] and row["max_abs"] is not None:
        return f"{row['max_abs']:g} -> 0"
    return "-> 0" if row["zeroed_b"] else "differs"


def _size(rows: pl.DataFrame) -> str:
    """Say how many elements differ and by how much at most."""
    said = []
    changed = int(rows["num_different"].fill_null(0).sum())
    of = int(rows.filter(pl.col("num_different").is_not_null())["num_elements"].fill_null(0).sum())
    if changed:
        said.append(f"{changed:,} of {of:,} elements")
    most = rows["max_abs"].max()
    if most is not None:
        said.append(f"by up to {float(str(most)):.3g}")
    shapes = int((rows["state"] == "changed").sum())
    if shapes:
        said.append(f"{shapes} with another shape or dtype")
    return f" ({', '.join(said)})" if said else ""


def _why(component: str, kind: str, rows: pl.DataFrame) -> str:
    if component == RNG and kind == "reset":
        return (
            "the generator stands where it stood before training: restored and seeded again, or not restored"
        )
    if component == "loss scale" and kind == "reset":
        value = str(rows["value_b"][0]).removesuffix(".0")
        return INITIAL_SCALES.get(value, "")
    return _WHY.get((component, kind), _WHY_OF_KIND[kind])


_WHY_OF_KIND: Final = {
    "missing": "what a state does not hold goes on from its initial value",
    "extra": "the resumed run holds a state that the reference did not save: it was made anew",
    "zeroed": "it was allocated, and nothing was copied into it",
    "reset": "it went back to where training begins",
    "different": "every later step starts from other bits",
}
_WHY: Final = {
    (
        "moments",
        "missing",
    ): "a fresh optimizer holds no moments, so that a loader which fills what is there fills nothing",
    ("moments", "zeroed"): "the moments begin anew; the loss shows it steps later than the gradients",
    ("optimizer step", "reset"): "the bias correction of Adam begins anew, and every update has another size",
    ("data position", "reset"): "the data begin anew: samples are seen twice",
}
_NEXT_OF_KIND: Final = {
    "missing": "look for its key in what the loader asks for; load strictly",
    "extra": "look for what makes it after the load",
    "zeroed": "look at the order: allocate, load, and nothing after that",
    "reset": "look for what sets it after the load",
    "different": "save again right after the load and compare with the file that was loaded",
}
_NEXT: Final = {
    "moments": "make the optimizer's state before it is loaded (a step with zero gradients), and save "
    "after the load",
}


def _with_all(found: Sequence[dict[str, Any]], told: pl.DataFrame) -> Iterable[dict[str, Any]]:
    """Say with the first error how much of the whole state it is."""
    state = told.filter(~pl.col("component").is_in([BOOKKEEPING, RECIPE]))
    tensors = state.filter(pl.col("kind") == "tensor")
    components = state["component"].n_unique()
    wrong = state.filter(pl.col("reason").is_not_null())["component"].n_unique()
    for number, row in enumerate(found):
        if number == 0 and row["severity"] == "error":
            num = tensors["reason"].count()
            whole = f"{wrong} of {counted(components, 'state group')}"
            if num > 1:
                whole += f", {num:,} of {len(tensors):,} state tensors differ in all"
            row = {**row, "found": f"{row['found']} ({whole})"}
        yield {**dict.fromkeys(MORE_COLUMNS), **row}
