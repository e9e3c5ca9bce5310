"""The comparison of a deliberate change as one screen of text: the gates first, then spreads by metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from detlab.comparison.metrics.change.gates import FAIL, PASS
from detlab.comparison.text import wrapped
from detlab.schema import Evidence

if TYPE_CHECKING:
    from detlab.comparison.metrics.change import ChangeComparison

_MAX_ROWS: Final = 12
_MAX_PROBLEMS: Final = 6
_NAME: Final = 24


def summary(cmp: ChangeComparison) -> str:
    """Write the comparison on one screen."""
    sets = f"{_runs(cmp.baseline, 'baseline')} against {_runs(cmp.changed, 'changed')}"
    lines = [f"a deliberate change: {sets}", ""]
    lines += [f"{gate.name}: {_verdict(gate.verdict, cmp.evidence)}: {gate.why}" for gate in cmp.judged]
    rows = cmp.metrics.to_dicts()
    table = [_HEAD, *map(_row, rows[:_MAX_ROWS])]
    if len(rows) > _MAX_ROWS:
        table.append(f"… and {len(rows) - _MAX_ROWS} more metrics: see metrics")
    below = [
        _evidence(cmp.evidence),
        "zero spread: the runs of a set repeat each other there. See spread and gates.",
    ]
    below += [f"problem: {where} {what}" for where, what in cmp.problems[:_MAX_PROBLEMS]]
    if len(cmp.problems) > _MAX_PROBLEMS:
        below.append(f"… and {len(cmp.problems) - _MAX_PROBLEMS} more problems: see problems")
    return "\n".join([*map(wrapped, lines), "", *table, "", *map(wrapped, below)])


def _runs(labels: tuple[str, ...], name: str) -> str:
    num = f"1 {name} run" if len(labels) == 1 else f"{len(labels)} {name} runs"
    return f"{num} ({', '.join(labels)})"


def _verdict(verdict: str, evidence: Evidence) -> str:
    if verdict == PASS:
        return "PASS as printed" if evidence is Evidence.PRINTED else "PASS"
    return "FAIL" if verdict == FAIL else verdict


_CELL: Final = 20
_HEAD: Final = "".join(
    [f"{'largest at any step':<{_NAME}}"]
    + [f" {title:>{_CELL}}" for title in ("spread, baseline", "spread, changed", "difference")]
    + ["  ranges"]
)


def _row(row: dict[str, Any]) -> str:
    name = row["name"] if len(row["name"]) <= _NAME else row["name"][: _NAME - 1] + "…"
    cells = [
        _amount(row[each], row[f"{each}_ulp"]) for each in ("baseline_spread", "changed_spread", "difference")
    ]
    ranges = "overlap" if row["first_apart"] is None else f"apart from step {row['first_apart']} on"
    told = f"{name:<{_NAME}} {cells[0]:>{_CELL}} {cells[1]:>{_CELL}} {cells[2]:>{_CELL}}  {ranges}"
    return "".join(c if c.isprintable() else "?" for c in told)


def _amount(size: float | None, ulp: float | None) -> str:
    if size is None:
        return "one run"
    return "0" if size == 0 else f"{size:.3g} ({ulp or 0:,.3g} ulp)"


def _evidence(evidence: Evidence) -> str:
    if evidence is Evidence.PRINTED:
        return "Evidence: printed: equal means as printed, and proves nothing about the bits."
    return "Evidence: exact: equal means to the last bit."
