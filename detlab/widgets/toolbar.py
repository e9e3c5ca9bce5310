"""Export of what is shown: as Python, as a snapshot, and as notes and hypotheses that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets
import traitlets

from detlab.comparison import Comparison
from detlab.comparison.journal import Journal
from detlab.errors import DetlabError, InputError
from detlab.views.text import html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.panel_css import PANEL_CSS, static_text
from detlab.widgets.selection import Selection, clicked_call, place_of
from detlab.widgets.toolbar_html import journal_html
from detlab.widgets.work import error_sentences


class CopyCode(anywidget.AnyWidget):
    """A button that copies lines and shows them; Escape in the explorer around it clears the selection.

    Attributes
    ----------
    code
        The lines.
    shown
        Whether they are shown.
    """

    _esm = static_text("copy_code.js")
    _css = PANEL_CSS
    code = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Bool(False).tag(sync=True)

    def __init__(self, on_clear: Callable[[], None]) -> None:
        super().__init__()
        self.on_msg(lambda _, content, __: on_clear() if content.get("type") == "clear" else None)


class Said(HtmlPanel):
    """One line that says what a button has done."""

    _css = PANEL_CSS


class Toolbar(ipywidgets.VBox):  # type: ignore[misc]
    """The buttons of an explorer.

    Parameters
    ----------
    on_clear
        Clears the selection.
    save
        Writes a snapshot to a file and gives its path as text.
    keep
        Lets the notebook hold the present state as what it shows without a kernel; says whether one does.
    """

    def __init__(
        self, on_clear: Callable[[], None], save: Callable[[], str], keep: Callable[[], bool]
    ) -> None:
        self.copy, self.said, self._save = CopyCode(on_clear), Said(), save
        self.snapshot = ipywidgets.Button(
            description="Snapshot to a file", tooltip="the present state as one HTML file that opens offline"
        )
        self.keep = ipywidgets.Button(
            description="Keep in notebook",
            tooltip="the present state is what the saved notebook shows without a kernel",
        )
        self.clear = ipywidgets.Button(description="Clear selection", tooltip="or press Escape")
        buttons = ipywidgets.HBox([self.copy, self.snapshot, self.keep, self.clear, self.said])
        buttons.add_class("dl-controls")
        super().__init__([buttons])
        self.add_class("detlab-panel")
        self.snapshot.on_click(lambda _: self._take())
        self.keep.on_click(lambda _: self._keep(keep))
        self.clear.on_click(lambda _: on_clear())

    def _keep(self, keep: Callable[[], bool]) -> None:
        kept = "Once saved, the notebook shows this state where there is no kernel."
        said = kept if keep() else "This view is not displayed in a notebook."
        self.said.html = f'<p role="status">{said}</p>'

    def _take(self) -> None:
        try:
            path = self._save()
        except DetlabError as error:
            self.said.html = f'<p role="status">{html(_told(error))}</p>'
            return
        self.said.html = (
            f'<p role="status">Saved: <code>{html(path)}</code>. In a cell of its own: '
            "<code>explorer.snapshot()</code></p>"
        )


class NotesPanel(ipywidgets.VBox):  # type: ignore[misc]
    """Takes down notes on the selected call, and hypotheses and what became of them."""

    def __init__(
        self, cmp: Comparison, journal: Journal | InputError, selection: Selection | None = None
    ) -> None:
        self._cmp, self.selection = cmp, selection or Selection()
        self.journal = journal if isinstance(journal, Journal) else None
        self.text = ipywidgets.Text(description="text", placeholder="what you saw, or what you suppose")
        self.note = ipywidgets.Button(description="Add note", tooltip="about the selected call, if one is")
        self.hypothesis = ipywidgets.Button(description="Add hypothesis")
        self.why = ipywidgets.Text(description="why", placeholder="what confirms or falsifies it")
        self.list, self.said = Said(), Said()
        controls = ipywidgets.HBox([self.text, self.note, self.hypothesis, self.why])
        controls.add_class("dl-controls")
        super().__init__([controls, self.said, self.list] if self.journal else [self.said])
        self.add_class("detlab-panel")
        if isinstance(journal, InputError):
            self._say(f"No notes are kept: {_told(journal)}")
        self.note.on_click(lambda _: self._add_note())
        self.hypothesis.on_click(lambda _: self._add_hypothesis())
        self.list.on_act(self._act)
        self.selection.observe(lambda _: self._say(""), "called")
        self._draw()

    def _draw(self) -> None:
        if self.journal:
            self.list.html = journal_html(self.journal, self._cmp.notes)

    def _say(self, text: str) -> None:
        if self.journal or text:
            self.said.html = f'<p role="status">{html(text)}</p>' if text else ""

    def _try(self, change: Callable[[], object], done: str) -> bool:
        try:
            change()
        except InputError as error:
            self._say(_told(error))
            return False
        self._say(done)
        self._draw()
        return True

    def _add_note(self) -> None:
        if self.journal is None:
            return
        journal, place = self.journal, place_of(self._cmp, self.selection.called)
        rank, site = place or (None, None)
        done = f"Kept in {journal.path}."
        if self._try(lambda: journal.add_note(self.text.value, rank=rank, site=site), done):
            self.text.value = ""

    def _add_hypothesis(self) -> None:
        journal = self.journal
        if journal and self._try(lambda: journal.add_hypothesis(self.text.value), f"Kept in {journal.path}."):
            self.text.value = ""

    def _act(self, data: dict[str, Any]) -> None:
        """Judge a hypothesis, or go to the call of a note; data comes from a browser."""
        journal = self.journal
        if journal is None:
            return
        try:
            if "hypothesis" in data:
                number, state = int(data["hypothesis"]), str(data["state"])
                self._try(lambda: journal.judge(number, state, self.why.value), "")
                self.why.value = ""
            else:
                self.selection.called = clicked_call(self._cmp, data)
        except InputError as error:
            self._say(_told(error))
        except (KeyError, ValueError, TypeError):
            return


def _told(error: DetlabError) -> str:
    """Give finding and hint as the line of a panel."""
    return " ".join(error_sentences(error))
