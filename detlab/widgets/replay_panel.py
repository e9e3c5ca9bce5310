"""The replay panel: choose a captured call, watch its results come, stop it at once, read the bound."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import ipywidgets
import traitlets

from detlab.captures import load_capture
from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.views.text import html
from detlab.widgets.replay_captures import find_captures, option
from detlab.widgets.replay_controls import Asked, Controls
from detlab.widgets.replay_panel_html import block, copy_html, progress_html, report_html
from detlab.widgets.saved_output import SavedOutput
from detlab.widgets.selection import Selection, place_of
from detlab.widgets.static_twin import Twin
from detlab.widgets.work import Work, error_sentences

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from detlab.kernel import Progress, ReplayReport

_BUSY: Final = ("starting", "running", "stopping")


class _Run:
    """One replay: what was asked for, how far it is."""

    def __init__(
        self, asked: Asked, replay: Callable[[_Run, threading.Event], Any], panel: ReplayPanel
    ) -> None:
        self.asked, self.began = asked, time.monotonic()
        self.progress: Progress | None = None
        self.is_replaying = False
        self.work = Work(
            lambda cancel: replay(self, cancel),
            lambda: panel._show(self),
            lambda report, error: panel._end(self, report, error),
        )

    def hear(self, progress: Progress) -> None:
        self.progress = progress

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class ReplayPanel(SavedOutput, ipywidgets.VBox):  # type: ignore[misc]
    """Replays a captured call in a thread, while the kernel stays free.

    Parameters
    ----------
    captures
        A comparison, whose runs' captures are offered; a capture; the path of one, or of a run that holds
        some; or a list of these.
    selection
        The selection of a view: captures of its call are offered first.
    call, allow
        As of `detlab.kernel.replay`.

    Attributes
    ----------
    state
        ``idle``, ``starting``, ``running``, ``stopping``, ``done``, ``cancelled`` or ``failed``.
    report
        The report of the last replay, also of a cancelled one that made a trial; else None.
    """

    state = traitlets.Unicode("idle")

    def __init__(
        self,
        captures: object,
        selection: Selection | None = None,
        *,
        call: Callable[..., Any] | None = None,
        allow: Collection[str] = (),
    ) -> None:
        self._cmp = captures if isinstance(captures, Comparison) else None
        self.selection = selection or Selection()
        self.report: ReplayReport | None = None
        self._call, self._allow = call, tuple(allow)
        self._run: _Run | None = None
        self._shown = ""
        self._lock = threading.RLock()  # what is shown is changed by the user's clicks and by the watcher
        self.controls = Controls(find_captures(captures))
        self._start = ipywidgets.Button(description="Replay", icon="play", button_style="primary")
        self._cancel = ipywidgets.Button(description="Cancel", icon="stop", disabled=True)
        self._progress, self._status, self._result = (ipywidgets.HTML() for _ in range(3))
        buttons = [self._buttons()] if self.controls.offer.captures else []
        super().__init__([*self.controls.rows, *buttons, self._status, self._result])
        self._name_parts()
        self.selection.observe(lambda _: self._follow(), "called")
        self._follow()

    def _buttons(self) -> ipywidgets.Widget:
        self._start.on_click(lambda _: self.start())
        self._cancel.on_click(lambda _: self.cancel())
        wrapped = {"flex_flow": "row wrap", "align_items": "center", "grid_gap": "4px 8px"}
        return ipywidgets.Box([self._start, self._cancel, self._progress], layout=wrapped)

    def _name_parts(self) -> None:
        """Give stable names to what a style sheet or a test looks for."""
        self.add_class("detlab-panel")
        self.add_class("detlab-replay")
        parts = {"start": self._start, "cancel": self._cancel, "progress": self._progress}
        parts |= {"status": self._status, "result": self._result, "capture": self.controls.capture}
        parts |= {"note": self.controls.note, "conditions": self.controls.conditions}
        for name, part in parts.items():
            part.add_class(f"detlab-replay-{name}")

    def _follow(self) -> None:
        """Offer the captures of the selected call first."""
        self._is_behind = self.state in _BUSY
        if not self._is_behind:
            self._arrange()

    def _arrange(self) -> None:
        self.controls.arrange(place_of(self._cmp, self.selection.called) if self._cmp else None)

    def start(self) -> None:
        """Replay what is chosen; what stands against it is shown as a sentence."""
        if self.state in _BUSY:
            self._say("This replay is still running: wait for it, or cancel it.")
            return
        try:
            asked = self.controls.asked()
        except InputError as error:
            self._say(*error_sentences(error))
            return
        if "torch" in sys.modules:
            # a thread that asks for it first while trials are made would take their number of threads over
            sys.modules["torch"].get_num_threads()
        self.report, self._result.value = None, ""
        self._run = _Run(asked, self._replay, self)
        self._enter("starting", "Reading the capture and loading torch.")
        self._run.work.start()

    def _replay(self, run: _Run, cancel: threading.Event) -> ReplayReport | None:
        """Do the work, in its thread."""
        capture = load_capture(run.asked.capture.path)
        from detlab.kernel import replay  # which loads torch

        if cancel.is_set():
            return None
        run.is_replaying = True
        options = run.asked.options()
        return replay(
            capture, **options, call=self._call, allow=self._allow, progress=run.hear, cancel=cancel
        )

    def cancel(self) -> None:
        """Stop: no other trial begins, and a process that makes trials is ended at once."""
        with self._lock:
            run = self._run
            if run is None or self.state not in ("starting", "running"):
                return
            if not run.is_replaying:
                run.work.abandon()  # torch goes on loading, and then nothing is made
                self._run = None
                self._enter("cancelled", "Cancelled before the first trial.")
                return
            here = "Ending the process." if run.asked.isolate else "Stopping after the running trial."
            self._enter("stopping", here)
            run.work.cancel.set()

    def wait(self, timeout_s: float | None = None) -> ReplayReport | None:
        """Wait until the replay has ended, in code; give its report."""
        if self._run is not None:
            self._run.work.join(timeout_s)
        return self.report

    def _show(self, run: _Run) -> None:
        """Show how far it is; called about ten times a second."""
        with self._lock:
            progress = run.progress
            if run is not self._run or progress is None:
                return
            if self.state == "starting" or (self.state == "running" and self._shown != progress.condition):
                self._enter("running", f"Replaying under {progress.condition}.")
                self._shown = progress.condition
            self._progress.value = progress_html(progress, run.seconds)

    def _end(self, run: _Run, report: ReplayReport | None, error: BaseException | None) -> None:
        """Show what it gave; called once."""
        with self._lock:
            if run is not self._run:
                return
            if run.progress is not None:
                self._progress.value = progress_html(run.progress, run.seconds)
            if error is not None:
                self._enter("failed", *error_sentences(error))
            elif report is None:
                self._enter("cancelled", "Cancelled before the first trial.")
            else:
                self._take(run, report)
        self.save_output()

    def _take(self, run: _Run, report: ReplayReport) -> None:
        made = sum(row.trials for row in report.conditions)
        asked = run.progress.asked if run.progress else 0
        is_cancelled = run.work.cancel.is_set() and made < asked
        if made or not is_cancelled:
            self.report = report
            self._result.value = _report_html(report) + copy_html(run.asked.code())
        if is_cancelled:
            kept = (
                f"after {made:,} of {asked:,} trials; what they gave stands below"
                if made
                else "before the first trial"
            )
            self._enter("cancelled", f"Cancelled {kept}.")
        else:
            self._enter("done", f"Done: {made:,} trials in {run.seconds:,.1f} s.")

    def _enter(self, state: str, *said: str) -> None:
        """Change the state, what can be pressed, and the sentence."""
        is_busy = state in _BUSY
        self._start.disabled, self._cancel.disabled = is_busy, not is_busy or state == "stopping"
        for control in self.controls.all:
            control.disabled = is_busy
        self.controls.limit.disabled = is_busy or not self.controls.isolate.value
        if state == "starting":
            self._shown, self._progress.value = "", ""
        self._say(*said)
        if self._is_behind and not is_busy:
            self._is_behind = False
            self._arrange()
        self.state = state  # last, so that who waits for it sees all the rest

    def _say(self, *said: str) -> None:
        sentences = block("".join(f"<p>{html(each)}</p>" for each in said))
        self._status.value = f'<div role="status">{sentences}</div>'

    @property
    def code(self) -> str:
        """The line that makes the same replay in code; empty where nothing can be replayed."""
        try:
            return self.controls.asked().code()
        except InputError:
            return ""

    def figures(self) -> list[go.Figure]:
        """Draw the report with plotly: different results by condition, and how far results lie apart."""
        if self.report is None:
            return []
        from detlab.views import distinct_results, ulp_histogram

        return [distinct_results(self.report), ulp_histogram(self.report)]

    def twin(self) -> Twin:
        """Give what was replayed and what it gave; without a report how to replay in code."""
        chosen = self.controls.chosen
        said = (
            f"<p>Capture: <code>{html(option('', chosen))}</code></p>" if chosen else self.controls.note.value
        )
        shown = self._status.value + (self._result.value or copy_html(self.code))
        text = repr(self.report) if self.report is not None else f"replay panel: {self.code or 'no capture'}"
        return Twin(f"<div><p><b>Replay</b></p>{said}{shown}</div>", text)

    def close(self) -> None:
        """Take the panel away, and stop what it does."""
        if run := getattr(self, "_run", None):
            run.work.abandon()
        super().close()


def _report_html(report: ReplayReport) -> str:
    from detlab.kernel.report.text import training_lines, verdict_lines

    training = training_lines(report) if report.traced_output_seen is not None else []
    return report_html(report.to_json(), verdict_lines(report), training, repr(report))
