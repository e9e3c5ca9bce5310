"""The explorer: verdict, findings, map, details, metrics, replay and notes of one comparison, all linked."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import ipywidgets

from detlab.comparison import Comparison, compare
from detlab.comparison.journal import Journal, journal_path
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run
from detlab.views.cells import MapSource
from detlab.widgets.code import code_of
from detlab.widgets.details_panel import DetailsPanel
from detlab.widgets.divergence_map import DivergenceMap
from detlab.widgets.explorer_logs import LogExplorer
from detlab.widgets.findings_panel import FindingsPanel, first_call
from detlab.widgets.metrics_panel import MetricsPanel
from detlab.widgets.replay_panel import ReplayPanel
from detlab.widgets.saved_output import SavedOutput
from detlab.widgets.selection import Selection, find_call, place_of, step_of
from detlab.widgets.static_twin import Twin
from detlab.widgets.static_twin_comparison import comparison_twin
from detlab.widgets.toolbar import NotesPanel, Toolbar
from detlab.widgets.verdict_bar import VerdictBar

Place = str | PathLike[str]
_MAP_STATE = ("rows", "columns", "step", "order", "hidden", "window")


class Explorer(SavedOutput, ipywidgets.VBox):  # type: ignore[misc]
    """One linked view of a comparison.

    Attributes
    ----------
    selection
        The call and the step that every panel shows; set it to move all of them.
    verdict, tools, findings, map, details, metrics, replay, notes
        The panels, top down.
    """

    def __init__(
        self,
        cmp: Comparison,
        *,
        selected: tuple[int, str] | tuple[()] | None = None,
        metric: str = "",
        journal: Place | None = None,
        **state: Any,
    ) -> None:
        self.cmp, self.selection, self._source = cmp, Selection(), MapSource(cmp)
        self._journal_given = journal is not None
        self.map = DivergenceMap(cmp, source=self._source, **state)
        self.verdict, self.findings = VerdictBar(cmp), FindingsPanel(cmp, self.selection)
        self.details = DetailsPanel(cmp, self.selection)
        self.metrics = MetricsPanel(cmp, selection=self.selection, metric=metric)
        self.replay = ReplayPanel(cmp, self.selection)
        self.notes = NotesPanel(cmp, _open_journal(cmp, journal), self.selection)
        self.tools = Toolbar(self.selection.clear, lambda: str(self._save_snapshot()), self._keep)
        super().__init__(self._laid_out())
        self.add_class("detlab-explorer")
        self._link()
        self.selection.called = _first_selected(cmp, selected)
        asked = {name: shown for name, shown in self._source.normal(state).items() if name in state}
        self.map.state = {**self.map.state, **asked}  # what was asked for, also where that hides the call
        self._say_code()

    def _laid_out(self) -> list[ipywidgets.Widget]:
        right = _column([_framed("Metrics", self.metrics), _framed("Replay", self.replay)])
        main = _row(
            [_framed("Findings", self.findings, "dl-findings-panel"), _framed("Map", self.map)], "main"
        )
        below = _row([_framed("Selected call", self.details), right], "below")
        return [self.verdict, self.tools, main, below, _framed("Notes and hypotheses", self.notes)]

    # Links

    def _link(self) -> None:
        """Let every panel follow what is selected in any of them."""
        self.map.observe(self._map_selected, "called")
        self.map.observe(self._map_changed, "state")
        self.selection.observe(self._called_changed, "called")
        self.selection.observe(self._step_changed, "step")
        self.metrics.observe(lambda _: self._say_code(), "metric")

    def _map_selected(self, change: Any) -> None:
        self.selection.called = tuple(change["new"])

    def _map_changed(self, change: Any) -> None:
        """Follow the step of the map; a map of all steps leaves the selected one as it is."""
        step = change["new"].get("step")
        if step is not None and step != (change["old"] or {}).get("step"):
            self.selection.step = step
        self._say_code()

    def _called_changed(self, change: Any) -> None:
        called = tuple(change["new"])
        if not called:
            self.map.clear()
        else:
            if tuple(self.map.called) != called:
                self.map.select(*called)
            self.selection.step = step_of(self.cmp, called)
        self._say_code()

    def _step_changed(self, change: Any) -> None:
        """Show a step in the map, if it was compared; a map of all steps stays one."""
        step, shown = change["new"], self.map.state["step"]
        if step in self.cmp.steps and shown is not None and step != shown:
            self.map.state = {**self.map.state, "step": step}

    # Export

    @property
    def state(self) -> dict[str, Any]:
        """What the map shows: rows, columns, step, order, hidden verdicts and window."""
        return {name: self.map.state[name] for name in _MAP_STATE}

    @property
    def selected(self) -> tuple[int, str] | None:
        """Global rank and site of the selected call; None when none is."""
        return place_of(self.cmp, self.selection.called)

    @property
    def code(self) -> str:
        """Python that brings back what is shown."""
        journal = self.notes.journal.path if self.notes.journal and self._journal_given else None
        return code_of(self.cmp, self.state, self.selection.called, self.metrics.metric, journal)

    def _say_code(self) -> None:
        self.tools.copy.code = self.code

    def _save_snapshot(self) -> Path:
        """Write the present state beside the notes, under a name that is free."""
        folder = (self.notes.journal.path if self.notes.journal else journal_path(self.cmp)).parent
        names = (f"detlab-snapshot-{number}.html" for number in range(1, 10_000))
        return self.snapshot().save(next(folder / name for name in names if not (folder / name).exists()))

    def _keep(self) -> bool:
        """Let the notebook hold the present state; say whether it is displayed in one."""
        self.save_output()
        return bool(self._display_id)

    def twin(self) -> Twin:
        """Give all of it in its present state as plain HTML, text and a picture of the map."""
        return comparison_twin(
            self.cmp,
            self._source,
            self.state,
            self.metrics.metrics,
            selected=self.details.still(),
            replayed=self.replay.twin().html if self.replay.report is not None else "",
            journal=self.notes.journal,
        )

    def __repr__(self) -> str:
        return repr(self.cmp)


def _first_selected(cmp: Comparison, selected: tuple[int, str] | tuple[()] | None) -> tuple[int, ...]:
    """Give the call that is selected at first: the one asked for, else the first of the first finding."""
    if selected is None:
        return (first_call(cmp, cmp.roots[0]) or ()) if cmp.roots else ()
    return find_call(cmp, *selected) if selected else ()


def _open_journal(cmp: Comparison, path: Place | None) -> Journal | InputError:
    """Open the notes; where that is not possible the explorer says why, unless the path was asked for."""
    labels = (cmp.a.label, cmp.b.label)
    try:
        return Journal(path if path is not None else journal_path(cmp), labels)
    except InputError as error:
        if path is not None:
            raise
        return error


def _framed(title: str, panel: ipywidgets.Widget, name: str = "") -> ipywidgets.Widget:
    heading = ipywidgets.HTML(f'<div class="dl-heading" role="heading" aria-level="3">{title}</div>')
    heading.add_class("dl-title-line")
    box = ipywidgets.VBox([heading, panel])
    for each in ("dl-framed", "dl-column", name):
        if each:
            box.add_class(each)
    return box


def _row(panels: Sequence[ipywidgets.Widget], name: str) -> ipywidgets.Widget:
    box = ipywidgets.Box(panels)
    box.add_class("dl-row")
    box.add_class(f"dl-{name}")
    return box


def _column(panels: Sequence[ipywidgets.Widget]) -> ipywidgets.Widget:
    box = ipywidgets.VBox(panels)
    box.add_class("dl-column")
    return box


def explore(
    cmp: Comparison | Run | Place,
    b: Run | Place | None = None,
    *,
    rows: str = "rank",
    columns: str = "call",
    selected: tuple[int, str] | tuple[()] | None = None,
    metric: str = "",
    journal: Place | None = None,
    **state: Any,
) -> Explorer | LogExplorer:
    """Show a comparison as one linked view: verdict, findings, map, details, metrics, replay and notes.

    Parameters
    ----------
    cmp
        A comparison; or, with ``b``, the first of two runs or paths, which are compared first. Two logs are
        shown by their step metrics.
    b
        The second run or path.
    rows, columns
        The map: ``rank`` or ``op`` by ``call`` or ``step``.
    selected
        Global rank and site of the call to select; () for none, None for the first of the first finding.
    metric
        The metric to draw; by default the one that differs first.
    journal
        File of the notes and hypotheses; by default one beside the folder of run b.
    state
        ``step`` (None: the worst over steps; by default the first with a finding), ``order`` of the ranks
        (``rank``, an axis, ``host``, ``rack``), ``hidden`` verdicts, and ``window`` of the map as
        [first row, row after the last, first column, column after the last].

    Returns
    -------
    A widget; where there is no kernel, or none any more, it shows the same as a still.

    Raises
    ------
    InputError
        The runs cannot be compared, or there is no such call, metric, step, order or verdict.
    """
    if isinstance(cmp, Comparison):
        if b is not None:
            raise InputError("a comparison already has both runs.", "dl.explore(cmp), or dl.explore(a, b)")
        found = cmp
    elif b is None:
        raise InputError("one run has nothing to be compared with.", "dl.explore(a, b), or dl.triage(a)")
    else:
        run_a, run_b = as_run(cmp), as_run(b)
        if not run_a.ranks and not run_b.ranks:
            return LogExplorer(run_a, run_b, metric=metric)
        found = compare(run_a, run_b)
    return Explorer(
        found, rows=rows, columns=columns, selected=selected, metric=metric, journal=journal, **state
    )
