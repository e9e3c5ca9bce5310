"""A replay on one screen: the verdict first, then one line a condition, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from detlab.kernel.differences import OutputResult
from detlab.kernel.differences.words import describe, details
from detlab.kernel.statistics import ConditionResult, percent
from detlab.kernel.verdict import ReplayClass
from detlab.text import plural, visible

if TYPE_CHECKING:
    from detlab.kernel.report import ReplayReport

_MAX_OUTPUTS: Final = 6
_MAX_NOTES: Final = 6
_MAX_NAMES: Final = 4
_WIDEST_NAME: Final = 44
_OTHERS: Final = "other results at 95 %"
_IN_NEW: Final = "in "
"""How the note of trials in new processes begins."""


def replay_text(report: ReplayReport) -> str:
    """Write the report on one screen."""
    rows = [("verdict", verdict_lines(report)), ("call", [f"{report.op} at {report.site}"])]
    if len(report.conditions) > 1 or any(row.status != "done" for row in report.conditions):
        rows.append(("trials", _table(report.conditions)))
    rows += _outputs(report.outputs)
    rows += [("training", training_lines(report))] if report.traced_output_seen is not None else []
    rows += [("place", [_place_text(report)])] if report.place else []
    rows += [("note", [problem]) for problem in report.problems[:_MAX_NOTES]]
    if (more := len(report.problems) - _MAX_NOTES) > 0:
        rows.append(("note", [f"… and {more} more: see problems"]))
    lines = [(name, text) for name, texts in rows for name, text in _with_name(name, texts)]
    text = "\n".join(visible(f"{name:<9} {text}") for name, text in lines)
    return text if report.alternatives is None else f"{text}\n\n{report.alternatives!r}"


def training_lines(report: ReplayReport) -> list[str]:
    """Say what the result that training recorded means, one line each."""
    if report.traced_output_seen:
        return [f"its result is among these{_under(report)}"]
    if report.other_conditions:
        return [
            "its result is not among these: other conditions, no evidence either way;",
            report.other_conditions,
        ]
    if report.num_distinct > 1:
        return ["its result is one more, not among these, under the same conditions"]
    return [
        "its result is not among these, under the same conditions as far as the capture says:",
        "a race too rare for these trials, a choice made once a process, memory that nobody wrote,",
        "or a condition that no capture records",
    ]


def _under(report: ReplayReport) -> str:
    """Say under which of several conditions the result of training came."""
    names, asked = report.traced_under, [row.name for row in report.conditions if row.trials]
    if len(asked) < 2:
        return ""
    if len(names) == len(asked):
        return ", under every condition"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f": under {', '.join(names[:_MAX_NAMES])}{more}"


def verdict_lines(report: ReplayReport) -> list[str]:
    """Give the verdict and its bound, one line each."""
    rows, name = [row for row in report.conditions if row.trials], report.outcome.replace("_", " ")
    if not rows:
        return [f"{name}: no trial was made"]
    if len(rows) > 1:
        texts = [*(report.why or ()), *_bounds(report, rows)]
    else:
        texts = [*_condition_texts(rows[0]), *report.why]
    if report.differs_from_training and report.num_distinct == 1 and report.exit_code == 1 and not report.why:
        found = "differs from training: equal inputs and conditions gave another result there;"
        return [found, *(texts if len(rows) > 1 else _one_result(rows[0]))]
    return [f"{name}: {texts[0]}", *texts[1:]]


def _bounds(report: ReplayReport, rows: Sequence[ConditionResult]) -> list[str]:
    """Say how far trials under several conditions reach where nothing varied within any of them."""
    bounds = [row.upper_bound_95 for row in rows if row.upper_bound_95 is not None]
    if report.outcome is not ReplayClass.NOT_SEEN or len(bounds) < len(rows):
        return []
    total = sum(row.trials for row in rows)
    seen = f"no mismatch within any of {len(rows)} conditions, {total:,} trials in all;"
    return [seen, f"a rate above {percent(max(bounds))} is excluded at 95 % in each, see its line"]


def _one_result(row: ConditionResult) -> list[str]:
    """Say what the trials gave where training recorded another result."""
    if row.trials == 1 or row.upper_bound_95 is None:
        return [f"{_trials(row)} cannot show how often that is"]
    bound = percent(row.upper_bound_95)
    return [f"{_trials(row)} gave one result; of others a rate above {bound} is excluded at 95 %"]


def _trials(row: ConditionResult) -> str:
    scope = row.note if row.note.startswith(_IN_NEW) else "in this process"
    return f"{row.trials:,} {plural('trial', row.trials)} {scope} ({row.name})"


def _condition_texts(row: ConditionResult) -> list[str]:
    trials = _trials(row)
    if row.upper_bound_95 is None:
        often = f"the most frequent in {percent(row.modal_share)}"
        return [
            f"{row.distinct:,} distinct results of the same inputs in {trials},",
            "each came once" if row.distinct == row.trials else often,
        ]
    return [f"no mismatch in {trials};", f"a rate above {percent(row.upper_bound_95)} is excluded at 95 %"]


def _table(rows: Sequence[ConditionResult]) -> list[str]:
    """Give a line that names the columns, then one a condition; with usual names each fits 100 columns."""
    made = [row for row in rows if row.trials and row.status == "done"]
    are_isolated = bool(made) and all(row.note.startswith(_IN_NEW) for row in made)
    names = [_name_cell(row, are_isolated) for row in rows]
    head = "condition, in new processes" if are_isolated else "condition"
    counted = max(len(f"{row.trials:,}") for row in rows) + 1
    width = min(max(len(head) + len(" trials") - counted, *map(len, names)), _WIDEST_NAME)
    title = f"{head:<{width + counted - len(' trials')}} trials distinct   modal  {_OTHERS}"
    lines = [f"{name:<{width}}{row.trials:>{counted},}" for name, row in zip(names, rows, strict=True)]
    return [title, *(line + _line(row) for line, row in zip(lines, rows, strict=True))]


def _name_cell(row: ConditionResult, are_isolated: bool) -> str:
    """Put the number of processes behind the name, unless it is one as for all the others."""
    if not row.note.startswith(_IN_NEW) or (are_isolated and row.note.startswith("in 1 ")):
        return row.name
    return f"{row.name}, {row.note.removeprefix('in ').partition(',')[0]}"


def _line(row: ConditionResult) -> str:
    """Give what stands behind name and trials: different results, modal share, bound or interval, status."""
    ended = "" if row.status == "done" else f"  {row.status}"
    note = f"{': ' if ended else '  '}{row.note}" if row.note and not row.note.startswith(_IN_NEW) else ""
    if not row.trials:
        return f"{ended}{note}"
    found = f"{row.distinct:>9,}{percent(row.modal_share):>8}"
    if row.upper_bound_95 is not None:
        return f"{found}  below {percent(row.upper_bound_95)}{ended}{note}"
    low, high = row.interval_95 or (0.0, 1.0)
    return f"{found}  {percent(low)} to {percent(high)}{ended}{note}"


def _outputs(outputs: Sequence[OutputResult]) -> list[tuple[str, list[str]]]:
    """Say of each output that differs how; the first one in full."""
    differing = [row for row in outputs if row.distinct > 1]
    rows = [
        (f"output {row.index}", [describe(row), *(details(row) if number == 0 else [])])
        for number, row in enumerate(differing[:_MAX_OUTPUTS])
    ]
    if (more := len(differing) - _MAX_OUTPUTS) > 0:
        rows.append(("outputs", [f"… and {more} more that differ"]))
    same = len(outputs) - len(differing)
    if differing and same:
        rows.append(("outputs", [f"{same} of {len(outputs)} gave one result"]))
    return rows


def _place_text(report: ReplayReport) -> str:
    place = report.place
    assert place is not None
    driver = f", driver {place.driver}" if place.driver else ""
    versions = ", ".join(f"{name} {version}" for name, version in place.versions.items())
    other = {True: "", None: "", False: "; not that of training"}[report.is_place_of_training]
    return f"{place.device}: {place.name}{driver}, {versions}{other}"


def _with_name(name: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Put the name before the first of several lines only."""
    for number, text in enumerate(texts):
        yield "" if number else name, text
