"""The words of the resume check: stages, counts and lists of names, and the columns it adds to a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.checks.resume.components import MASTER, MOMENTS, PARAMETERS
from detlab.text import plural, shorten

MORE_COLUMNS: Final[dict[str, Any]] = {
    "stage": pl.String,
    "kind": pl.String,
    "names": pl.List(pl.String),
    "num_leaves": pl.Int64,
    "of_leaves": pl.Int64,
    "max_abs": pl.Float64,
    "first_step": pl.Int64,
    "evidence": pl.String,
}
"""Columns of a finding beside the shared ones.

``stage`` (state at load, state later, first use, data, metrics, calls); ``kind`` (missing, extra, zeroed,
reset, different, overwritten, order, position, rebuilt, propagated,
boundary); ``names`` of at most 20 leaves, metrics
or calls; ``num_leaves`` of ``of_leaves`` that differ; ``max_abs`` (largest difference of an element; null:
not known); ``first_step`` (null: not of a step); ``evidence`` of what is equal beside it.
"""


class Stage(NamedTuple):
    """When two states were, in the words of findings.

    Attributes
    ----------
    label
        ``state at load``, ``state later`` or ``state``.
    words
        When, as the end of a sentence.
    missing, after
        What is said of a leaf that is not there, and of one that differs; begins with a blank or is empty.
    had
        What the reference did, as in "the bits that the reference …".
    """

    label: str
    words: str
    missing: str = ""
    after: str = ""
    had: str = "has"


AT_LOAD: Final = Stage(
    "state at load",
    "right after loading",
    " after load (present in what the reference saved)",
    " after load: not restored",
    "saved",
)
FIRST_USE: Final = Stage("first use", "at first use", " at first use", " at first use", "used")
LATER: Final = Stage(
    "state later", "some steps after the resume", " in the later state", " in the later state"
)
UNTOLD: Final = Stage("state", "in both checkpoints", " on the resumed side")
"""Two checkpoints of which nobody said whether training went on between the load and the second one."""


_SINGULAR: Final = {
    PARAMETERS: "parameter ",
    MASTER: "master weight ",
    MOMENTS: "moment ",
    "param groups": "param group ",
}


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {plural(noun, number)}"


def leaves(part: pl.DataFrame, component: str = "") -> str:
    """Count leaves in the words of their component: ``38 parameter tensors``, ``3 tensors and 2 scalars``."""
    tensors = int((part["kind"] == "tensor").sum())
    scalars = len(part) - tensors
    if component and tensors and scalars:
        return f"{len(part):,} {component} leaves"
    singular = _SINGULAR.get(component, f"{component} " if component else "")
    said = [counted(tensors, f"{singular}tensor")] if tensors else []
    said += [counted(scalars, "scalar" if tensors else f"{singular}scalar")] if scalars else []
    return " and ".join(said)


def listed(names: Sequence[str], most: int = 5) -> str:
    """List names; of many, the first ones."""
    shown = [shorten(name) for name in names[:most]]
    more = len(names) - most
    return ", ".join([*shown, *([f"… and {more:,} more"] if more > 0 else [])])
