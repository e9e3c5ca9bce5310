"""The checks panel: what a run shows against itself, without a second run; the kernel stays free."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from os import PathLike
from typing import Any

import ipywidgets
import traitlets

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run
from detlab.text import plural
from detlab.views.text import html, visible
from detlab.widgets.check_outcomes import CHECKS, Check, Outcome, outcome_of, outcomes_html, verdicts
from detlab.widgets.replay_panel_html import block
from detlab.widgets.saved_output import SavedOutput
from detlab.widgets.static_twin import Twin
from detlab.widgets.work import Work, error_sentences

_BUSY = ("running", "stopping")
_WRAPPED = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "4px 16px"}


class ChecksPanel(SavedOutput, ipywidgets.VBox):  # type: ignore[misc]
    """Makes the checks of a run, or of both runs of a comparison, one after another in a thread.

    Parameters
    ----------
    runs
        A run, the path of one, a comparison, or a list of runs and paths.

    Attributes
    ----------
    state
        ``idle``, ``running``, ``stopping``, ``done``, ``cancelled`` or ``failed``.
    outcomes
        What was found so far, in order.
    """

    state = traitlets.Unicode("idle")

    def __init__(self, runs: Comparison | Run | str | PathLike[str] | Iterable[Any]) -> None:
        self._runs = _runs_of(runs)
        self.outcomes: list[Outcome] = []
        self._work: Work | None = None
        self._now, self._num_shown = "", 0
        self._lock = threading.RLock()  # what is shown is changed by the user's clicks and by the watcher
        self._boxes = [(check, _box(check.name, check.asks)) for check in CHECKS]
        self._sides = [
            _box(f"run {run.label}" if isinstance(run, Run) else f"run {run}", "") for run in self._runs
        ]
        self._start = ipywidgets.Button(description="Check", icon="play", button_style="primary")
        self._cancel = ipywidgets.Button(description="Cancel", icon="stop", disabled=True)
        self._status, self._result = ipywidgets.HTML(), ipywidgets.HTML()
        self._start.on_click(lambda _: self.start())
        self._cancel.on_click(lambda _: self.cancel())
        sides = self._sides if len(self._sides) > 1 else []
        super().__init__(
            [
                ipywidgets.Box([*(box for _, box in self._boxes), *sides], layout=_WRAPPED),
                ipywidgets.Box([self._start, self._cancel], layout=_WRAPPED),
                self._status,
                self._result,
            ]
        )
        self._name_parts()

    def _name_parts(self) -> None:
        """Give stable names to what a style sheet or a test looks for."""
        self.add_class("detlab-panel")
        self.add_class("detlab-checks")
        parts = {"start": self._start, "cancel": self._cancel, "status": self._status, "result": self._result}
        for name, part in parts.items():
            part.add_class(f"detlab-checks-{name}")

    def start(self) -> None:
        """Make the chosen checks of the chosen runs; what stands against it is shown as a sentence."""
        if self.state in _BUSY:
            self._say("These checks are still running: wait for them, or cancel them.")
            return
        checks = [check for check, box in self._boxes if box.value]
        runs = [run for run, side in zip(self._runs, self._sides, strict=True) if side.value]
        if not checks or not runs:
            self._say("Nothing is chosen: choose a check and a run.")
            return
        self.outcomes, self._num_shown, self._result.value = [], 0, ""
        self._work = Work(lambda cancel: self._check(runs, checks, cancel), self._show, self._end)
        self._enter("running", "Checking.")
        self._work.start()

    def _check(self, runs: list[Any], checks: list[Check], cancel: threading.Event) -> bool:
        """Do the work, in its thread; say whether all of it was done."""
        for given in runs:
            self._now = f"Reading {given}." if not isinstance(given, Run) else ""
            run = as_run(given)
            for check in checks:
                if cancel.is_set():
                    return False
                self._now = f"Checking {check.name} of {run.label}."
                outcome = outcome_of(check, run)
                self.outcomes = [*self.outcomes, outcome]
        return True

    def cancel(self) -> None:
        """Stop before the next check; the one that runs is waited for."""
        with self._lock:
            if self._work is not None and self.state == "running":
                self._enter("stopping", "Stopping after the running check.")
                self._work.cancel.set()

    def wait(self, timeout_s: float | None = None) -> list[Outcome]:
        """Wait until the checks have ended, in code; give what was found."""
        if self._work is not None:
            self._work.join(timeout_s)
        return self.outcomes

    def _show(self) -> None:
        """Show how far it is; called about ten times a second."""
        with self._lock:
            if self.state == "running" and self._now:
                self._say(self._now)
            outcomes = self.outcomes
            if len(outcomes) != self._num_shown:
                self._num_shown, self._result.value = len(outcomes), outcomes_html(outcomes)

    def _end(self, is_whole: bool | None, error: BaseException | None) -> None:
        num, ends = len(self.outcomes), verdicts(self.outcomes)
        said = f"{num} {plural('check', num)} made{': ' if ends else ''}{ends}"
        with self._lock:
            self._show()
            if error is not None:
                self._enter("failed", *error_sentences(error))
            elif not is_whole:
                self._enter("cancelled", f"Cancelled: {said}.")
            else:
                self._enter("done", f"Done: {said}.")
        self.save_output()

    def _enter(self, state: str, *said: str) -> None:
        is_busy = state in _BUSY
        self._start.disabled, self._cancel.disabled = is_busy, state != "running"
        for box in (*(box for _, box in self._boxes), *self._sides):
            box.disabled = is_busy
        self._say(*said)
        self.state = state

    def _say(self, *said: str) -> None:
        text = f'<div role="status">{block("".join(f"<p>{html(each)}</p>" for each in said))}</div>'
        if self._status.value != text:
            self._status.value = text

    def twin(self) -> Twin:
        """Give what was found; before that, what can be asked."""
        asks = "".join(f"<li>{html(check.name)}: {html(check.asks)}</li>" for check in CHECKS)
        shown = self._status.value + self._result.value if self.outcomes else f"<ul>{asks}</ul>"
        names = ", ".join(check.name for check in CHECKS)
        return Twin(
            f"<div><p><b>Checks</b></p>{shown}</div>", f"checks panel: {names}; {len(self.outcomes)} made"
        )

    def close(self) -> None:
        """Take the panel away, and make no other check."""
        if work := getattr(self, "_work", None):
            work.abandon()
        super().close()


def _box(name: str, asks: str) -> ipywidgets.Widget:
    return ipywidgets.Checkbox(
        True, description=visible(name), tooltip=asks, indent=False, layout={"width": "auto"}
    )


def _runs_of(given: Any) -> list[Any]:
    """Give the runs that were named; a path is read when it is checked."""
    if isinstance(given, Comparison):
        return [given.a, given.b]
    if isinstance(given, Run | str | PathLike):
        return [given]
    runs = list(given)
    if not runs or not all(isinstance(run, Run | str | PathLike) for run in runs):
        raise InputError("these are no runs to check.", "give a run, its path, or a comparison")
    return runs
