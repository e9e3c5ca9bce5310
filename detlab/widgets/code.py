"""What is on the screen as Python: lines that load, compare, select and draw the same again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detlab.comparison import Comparison
from detlab.run import Run
from detlab.widgets.selection import find_call, place_of

_MORE: Final = "; a figure shows the whole map, hides nothing, and has the ranks in their own order"
_MADE: Final = "# runs that were made in memory are not loaded again: give a and b yourself"


def code_of(
    cmp: Comparison,
    state: Mapping[str, Any],
    called: tuple[int, ...] = (),
    metric: str = "",
    journal: Path | None = None,
) -> str:
    """Write the lines that bring back what an explorer shows.

    Parameters
    ----------
    state
        A whole state of the map.
    called
        The selected call, as `Selection.called` names it.
    metric
        Name of the metric that is drawn; empty for none.
    journal
        Where the notes are, if that is not where they are looked for.
    """
    lines = ["import detlab as dl", "", *_runs(cmp), *_compare(cmp)]
    shown = [f"{name}={state[name]!r}" for name in ("rows", "columns", "step", "order")]
    shown += [f"{name}={state[name]!r}" for name in ("hidden", "window") if state[name]]
    selected = place_of(cmp, called)
    by_site = selected is not None and find_call(cmp, *selected) == called
    shown += [f"selected={selected if by_site else ()!r}"]
    shown += [f"metric={metric!r}"] if metric else []
    shown += [f"journal={str(journal)!r}"] if journal else []
    lines += [f"explorer = dl.explore(cmp, {', '.join(shown)})", "explorer", ""]
    if selected and not by_site:  # its site names another call, which run a makes
        lines.insert(-2, f"explorer.selection.called = {called!r}")
    ordered = state["rows"] == "rank" and state["order"] != "rank"
    more = _MORE if ordered or state["hidden"] or state["window"] else ""
    lines += [f"# the same as figures and frames{more}"]
    axes = f"rows={state['rows']!r}, columns={state['columns']!r}, step={state['step']!r}"
    lines += [f"figure = dl.views.heatmap(cmp, {axes})"]
    lines += [f"curve = dl.views.curves(cmp, {metric!r})"] if metric else []
    if selected and by_site:
        place = f"rank={selected[0]}, site={selected[1]!r}"
        lines += [f"call = cmp.call({place})", f"path = cmp.path({place})"]
    elif selected:
        lines += [f"call = dl.comparison.call.call_details(cmp, {called[0]}, {called[1]})"]
    return "\n".join(lines) + "\n"


def _runs(cmp: Comparison) -> list[str]:
    if not all(map(_can_load, (cmp.a, cmp.b))):
        return [_MADE]
    return [load_line(name, run) for name, run in (("a", cmp.a), ("b", cmp.b))]


def _can_load(run: Run) -> bool:
    return Path(run.source).exists()


def load_line(name: str, run: Run) -> str:
    """Write the line that loads a run as it was loaded."""
    asked = [repr(run.source)]
    if run.label not in (Path(run.source).name, Path(run.source).stem):
        asked.append(f"label={run.label!r}")
    asked += [
        f"{what}={chosen.text!r}"
        for what, chosen in (("ranks", run.subset.ranks), ("steps", run.subset.steps))
        if not chosen.takes_all
    ]
    return f"{name} = dl.load_run({', '.join(asked)})"


def _compare(cmp: Comparison) -> list[str]:
    asked = ["a", "b"]
    tables = {"scopes": dict(cmp.pairs.scopes), "ops": dict(cmp.pairs.ops)}
    if any(tables.values()):
        asked.append(f"pairs={tables!r}")
    if cmp.counted:
        asked.append(f"count={list(cmp.counted)!r}")
    known = "  # with accepted=… for the differences that are known"
    comment = known if any(finding.accepted for finding in cmp.roots) else ""
    return [f"cmp = dl.compare({', '.join(asked)}){comment}"]
