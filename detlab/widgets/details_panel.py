"""The details of the selected call: at once what both runs recorded, then the path from the origin."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Any, Final

import polars as pl

from detlab.comparison import Comparison
from detlab.comparison.call import CallDetails, call_details
from detlab.comparison.paths import Tracer
from detlab.errors import DetlabError, InputError
from detlab.views.call_html import call_html
from detlab.views.text import html
from detlab.widgets.details_panel_html import came_from_html, waiting_html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.panel_css import PANEL_CSS
from detlab.widgets.selection import Selection, clicked_call, find_call, place_of
from detlab.widgets.static_twin import StaticTwin, Twin

_NOTHING: Final = (
    "<p>No call is selected. Click on a finding, on a cell of the map, or on a row of a table; in the map "
    "the arrow keys move and Enter selects.</p>"
)


class DetailsPanel(StaticTwin, HtmlPanel):
    """Shows one call in both runs; every call that it names can be selected.

    Parameters
    ----------
    rank, site
        Global rank in run a and text form of the site of the call to show at first.
    """

    _css = PANEL_CSS

    def __init__(
        self,
        cmp: Comparison,
        selection: Selection | None = None,
        *,
        rank: int | None = None,
        site: str | None = None,
    ) -> None:
        self._cmp, self.selection = cmp, selection or Selection()
        if rank is not None and site is not None:
            self.selection.called = find_call(cmp, rank, site)
        self._tracer = Tracer(cmp.ranks, cmp.judge)  # one of its own: it is used by one thread alone
        self._newest, self._drawing = Newest(), Lock()
        self._path_shown: pl.DataFrame | Exception | None = None
        super().__init__(html=_NOTHING)
        self.on_act(self._act)
        self.selection.observe(lambda _: self._show(), "called")
        self._show()

    def _show(self) -> None:
        called = self.selection.called
        details, said = self._details(called)
        with self._drawing:
            self._path_shown = None
            self.html = said
        if details is None:
            self._newest.drop()
            return
        self._newest.ask(lambda: self._path(called), lambda path: self._with_path(called, details, path))

    def _details(self, called: tuple[int, ...]) -> tuple[CallDetails | None, str]:
        """Give the details of a call and their HTML; where a file is damaged, what is said of that."""
        if not called:
            return None, _NOTHING
        try:
            details = call_details(self._cmp, *called)
        except DetlabError as error:
            return None, f"<p>This call cannot be read: {html(error.finding)} {html(error.hint)}</p>"
        return details, waiting_html() + call_html(details, links=True)

    def _path(self, called: tuple[int, ...]) -> pl.DataFrame:
        return self._tracer.path(self._cmp.ranks[called[0]], called[1])

    def _with_path(
        self, called: tuple[int, ...], details: CallDetails, path: pl.DataFrame | Exception
    ) -> None:
        """Show the path, if its call is still selected; the worker calls this."""
        if isinstance(path, Exception):
            said = f"<p>The path cannot be followed: {html(path)}</p>" + call_html(details, links=True)
        else:
            said = came_from_html(path) + call_html(details, path, links=True)
        with self._drawing:
            if self.selection.called == called:
                self._path_shown = path
                self.html = said

    def wait(self, timeout: float = 60) -> bool:
        """Wait until the path is there; say whether it is."""
        return self._newest.wait(timeout)

    def _act(self, data: dict[str, Any]) -> None:
        """Select the call that was clicked; data comes from a browser, and may name what is not there."""
        try:
            self.selection.called = clicked_call(self._cmp, data)
        except InputError:
            return

    def still(self) -> str:
        """Give the selected call as HTML without buttons; empty when none is selected."""
        details, said = self._details(self.selection.called)
        if details is None:
            return said if self.selection.called else ""
        path = self._path_shown
        if not isinstance(path, pl.DataFrame):
            return call_html(details)
        return came_from_html(path, live=False) + call_html(details, path)

    def twin(self) -> Twin:
        """Give the selected call as it is."""
        place = place_of(self._cmp, self.selection.called)
        said = f"rank {place[0]}, {place[1]}" if place else "no call is selected"
        return Twin(self.still() or _NOTHING, said)


class Newest:
    """One thread that works on what was asked last; what is older and not begun is dropped."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._job: tuple[Callable[[], Any], Callable[[Any], None]] | None = None
        self._is_running = False
        self.thread: Thread | None = None

    def ask(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do some work soon and give ``done`` its result, or the exception that it raised."""
        with self._changed:
            self._job = work, done
            if not self._is_running:
                self._is_running = True
                self.thread = Thread(target=self._run, daemon=True, name="detlab path")
                self.thread.start()

    def drop(self) -> None:
        """Forget what has not begun."""
        with self._changed:
            self._job = None

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is asked and nothing runs; say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_running, timeout)

    def _run(self) -> None:
        try:
            while (job := self._take()) is not None:
                work, done = job
                done(_outcome(work))
        except BaseException:  # the next one that asks gets another thread
            with self._changed:
                self._is_running = False
                self._changed.notify_all()
            raise

    def _take(self) -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
        with self._changed:
            job, self._job = self._job, None
            if job is None:
                self._is_running = False
                self._changed.notify_all()
            return job


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # it is shown where the result would stand
        return error
