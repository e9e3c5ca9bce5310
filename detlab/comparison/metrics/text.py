"""The comparison of metrics as one screen of text: the verdict first, then each metric and what it proves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from detlab.comparison.metrics.coverage import where
from detlab.comparison.text import left_out_text, wrapped
from detlab.run import spans
from detlab.schema import Evidence
from detlab.text import plural

if TYPE_CHECKING:
    from detlab.comparison.metrics.result import MetricsComparison

_MAX_ROWS: Final = 12
_MAX_LINES: Final = 6
_NAME: Final = 28

PRINTED_PROVES: Final = "no difference visible at the printed precision; this proves nothing about the bits"
"""What equality of printed numbers is worth."""


def summary(cmp: MetricsComparison) -> str:
    """Write the comparison on one screen."""
    lines = [headline(cmp), *onset_lines(cmp)]
    table = metric_lines(cmp.metrics)
    below = [coverage_line(cmp), *replay_lines(cmp.replays), *segment_lines(cmp.segments)]
    below += [f"problem: {who} {what}" for who, what in cmp.problems[:_MAX_LINES]]
    if len(cmp.problems) > _MAX_LINES:
        below.append(f"… and {len(cmp.problems) - _MAX_LINES} more problems: see problems")
    below += [f"note: {note}" for note in cmp.notes]
    return "\n".join([*map(wrapped, lines), "", *table, "", *map(wrapped, below)])


def headline(cmp: MetricsComparison) -> str:
    """Say the verdict in one sentence that can be pasted into a chat."""
    names = f"{cmp.a.label} and {cmp.b.label}"
    if cmp.verdict == "diverged":
        metrics = cmp.first["name"].cast(pl.String).unique(maintain_order=True).to_list()
        more = f" and {len(metrics) - 4} more metrics" if len(metrics) > 4 else ""
        return f"DIVERGED: {names} differ first at step {cmp.first_step}, in {', '.join(metrics[:4])}{more}."
    if cmp.verdict == "match":
        return f"MATCH between {names} at {where(cmp.steps)}: {equality_words(cmp)}."
    return (
        f"INCOMPLETE: {names} at {where(cmp.steps)}: {equality_words(cmp)}. But not all that either run has "
        f"could be compared{_how_to_leave_out(cmp)}."
    )


def _how_to_leave_out(cmp: MetricsComparison) -> str:
    """Say how to ask for the steps alone that both runs have, where one lacks some."""
    common = spans(cmp.steps.to_list()).replace(" ", "")
    lacking = any(what.startswith("has no step") for _, what in cmp.problems)
    return f'; steps="{common}" leaves other steps out by request' if lacking and len(common) < _NAME else ""


def equality_words(cmp: MetricsComparison) -> str:
    """Say what it means that nothing differs."""
    if cmp.evidence == Evidence.PRINTED:
        return PRINTED_PROVES
    if (cmp.compared["resolution"] == "integers").all():
        return "every integer that both have is the same; no other number was compared"
    return "every number that both have is the same to its last bit"


def onset_lines(cmp: MetricsComparison) -> list[str]:
    """Say since when the bits differ, and since when anybody could see it."""
    if cmp.first_step is None:
        return []
    at_the_latest = " at the latest (printed digits)" if not bool(cmp.first["exact"].any()) else ""
    visible = cmp.visible
    if not len(visible):
        return [f"The bits differ from step {cmp.first_step}{at_the_latest}, the curves nowhere visibly."]
    return [
        f"The bits differ from step {cmp.first_step}{at_the_latest}, the curves from step "
        f"{visible['visible_step'][0]} ({', '.join(visible['name'][:3])})."
    ]


def metric_lines(metrics: pl.DataFrame) -> list[str]:
    """Write one line per metric: those that differ first, by their first step; measurements last."""
    numbers = metrics.filter(pl.col("kind") == "compared").sort(
        "first_step", nulls_last=True, maintain_order=True
    )
    alone = metrics.filter(pl.col("kind").str.starts_with("only"))
    machine = metrics.filter(pl.col("kind") == "measurement")
    rows = [_cells(row) for row in numbers.head(_MAX_ROWS).iter_rows(named=True)]
    lines = lined_up(rows)
    if len(numbers) > _MAX_ROWS:
        lines.append(f"  … and {len(numbers) - _MAX_ROWS} more metrics: see metrics")
    lines += [_alone_line(alone)] if len(alone) else []
    lines += [_machine_line(machine)] if len(machine) else []
    return lines


def lined_up(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write cells in columns, the last one as wide as it is."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  " + "  ".join(line).rstrip() for line in lines]


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """Give the name of a metric, how often it differs, by how much, and how precisely it is known."""
    ulp = f" ({row['resolution_ulp']:,.3g} ulp)" if row["resolution_ulp"] else ""
    states = [f"{each['state']} {each['a']}/{each['b']}" for each in row["states"] if _is_odd(each)]
    known = f"{row['resolution']}{ulp}{'; ' if states else ''}{', '.join(states)}"
    if not row["steps_common"]:
        no_step = row["steps_only_a"] and row["steps_only_b"]
        return short_name(row["name"]), "no common step" if no_step else "not compared", "", known
    if not row["steps_different"]:
        equal = "equal" if row["evidence"] == "exact" else "equal as printed"
        return short_name(row["name"]), f"{equal} at {row['steps_common']:,}", "", known
    often = f"differs at {row['steps_different']:,} of {row['steps_common']:,}, first {row['first_step']}"
    return short_name(row["name"]), often, _size(row), known


def _size(row: dict[str, Any]) -> str:
    if row["max_relative"] is None:
        return "in state"
    if row["max_ulp"] is not None and row["resolution"] != "integers":
        ulp = f"{row['max_ulp']:,.0f}" if row["max_ulp"] >= 1 else f"{row['max_ulp']:.2g}"
        return f"by up to {ulp} ulp ({row['max_relative']:.1e})"
    return f"by up to {row['max_difference']:.2g} ({row['max_relative']:.1e})"


def _is_odd(state: dict[str, Any]) -> bool:
    return state["state"] not in ("value", "zero")


def short_name(name: str) -> str:
    """Give a name of at most so many characters, none of which controls a terminal."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "…"


def _alone_line(alone: pl.DataFrame) -> str:
    told = [f"{row['name']} ({row['kind']})" for row in alone.head(_MAX_LINES).iter_rows(named=True)]
    more = f" and {len(alone) - _MAX_LINES} more" if len(alone) > _MAX_LINES else ""
    return wrapped(f"  not compared: {', '.join(told)}{more}")


def _machine_line(machine: pl.DataFrame) -> str:
    told = [
        f"{row['name']} {_mean(row['mean_a'])} and {_mean(row['mean_b'])}"
        for row in machine.head(_MAX_LINES).iter_rows(named=True)
    ]
    more = f" and {len(machine) - _MAX_LINES} more" if len(machine) > _MAX_LINES else ""
    return wrapped(f"  measurements (means of a and b; no evidence): {'; '.join(told)}{more}")


def _mean(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def coverage_line(cmp: MetricsComparison) -> str:
    """Say what was compared, and what equality is worth there."""
    printed = cmp.evidence == Evidence.PRINTED
    proves = (
        "printed: lines that differ prove a difference, lines that agree prove nothing about the bits"
        if printed
        else "exact: the bits of every number are known"
    )
    num = len(cmp.compared)
    return (
        f"compared {num} {plural('metric', num)} at {where(cmp.steps)}. "
        f"Evidence: {proves}{left_out_text((cmp.a, cmp.b))}"
    )


def segment_lines(segments: pl.DataFrame) -> list[str]:
    """List the stretches of runs that restarted."""
    lines = []
    for part in segments.partition_by("run", maintain_order=True):
        if len(part) > 1:
            told = [f"{row['first_step']}-{row['last_step']}" for row in part.to_dicts()[:_MAX_LINES]]
            more = f" and {len(part) - _MAX_LINES} more" if len(part) > _MAX_LINES else ""
            lines.append(
                f"{part['run'][0]} has {len(part)} segments between restarts: {', '.join(told)}{more}"
            )
    return lines


def replay_lines(replays: pl.DataFrame) -> list[str]:
    """Say of each segment whose steps ran before whether they gave the same numbers again."""
    lines = []
    for part in replays.partition_by("run", "segment", "against", maintain_order=True)[:_MAX_LINES]:
        first = part.row(0, named=True)
        what = f"restart replay in {first['run']}, segment {first['segment']} against {first['against']}"
        differing = part.filter(pl.col("steps_different") > 0).sort("first_step", maintain_order=True)
        steps = part["steps_common"].max()
        if len(differing):
            row = differing.row(0, named=True)
            lines.append(
                f"{what}: {row['name']} differs first, at step {row['first_step']}; {len(differing)} of "
                f"{len(part)} metrics differ over {steps!r} steps"
            )
        else:
            printed = (part["evidence"] == "printed").any()
            told = PRINTED_PROVES if printed else "every number is the same to its last bit"
            lines.append(f"{what}, {steps!r} steps: {told}")
    return lines
