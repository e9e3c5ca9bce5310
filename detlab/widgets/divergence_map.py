"""The divergence map as a widget: the browser says what it wants to show, and Python answers with a tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anywidget
import traitlets

from detlab.comparison import Comparison
from detlab.comparison.places import site_at
from detlab.comparison.text import headline
from detlab.errors import DetlabError
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.map_html import SYMBOLS
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.scripts import map_script, read_static
from detlab.views.text import html
from detlab.widgets.static_twin import StaticTwin, Twin
from detlab.widgets.static_twin_map import still

MAX_SIZE: Final = (600, 1_600)
"""No tile has more rows and columns, whatever a browser asks for."""

MAX_HITS: Final = 1_000
"""So many hits of a search are drawn at most; all are counted and visited."""

VERDICTS: Final = [
    [verdict.name.lower(), css(VERDICT_COLOURS[verdict]), SYMBOLS[verdict], 1 + verdict]
    for verdict in Verdict
]
"""Name, colour, sign and code of each verdict, as the browser draws them."""


class DivergenceMap(StaticTwin, anywidget.AnyWidget):
    """Where and when two runs differ, to zoom into and to select calls from.

    Parameters
    ----------
    cmp
        The comparison.
    source
        What computes its maps; give it to share its cells with other views.
    height
        Pixels that the cells are high at most.
    state
        What to show at first: ``rows``, ``columns``, ``step``, ``order``, ``hidden``, ``window``; see
        `detlab.views.cells.MapSource`.

    Attributes
    ----------
    called
        The call that is selected, as (number of the rank in ``cmp.ranks``, position there), or ().
    selected
        The same for the browser: displayed row and column, and what names the call.
    state
        What is shown; setting it shows something else.
    size
        Rows and columns that the browser has pixels for; at first a coarse tile is sent, to be seen at once.
    meta, tile, overview
        What is drawn: the cells of the window, pooled to ``size``, and the whole map small.
    verdicts
        Name, colour, sign and code of each verdict.
    """

    _esm = map_script()
    _css = read_static("map.css")

    called = traitlets.Tuple()
    state = traitlets.Dict().tag(sync=True)
    size = traitlets.List([190, 500]).tag(sync=True)
    meta = traitlets.Dict().tag(sync=True)
    tile = traitlets.Bytes().tag(sync=True)
    overview = traitlets.Dict().tag(sync=True)
    selected = traitlets.Dict().tag(sync=True)
    verdicts = traitlets.List(VERDICTS).tag(sync=True)
    height = traitlets.Int(380).tag(sync=True)

    def __init__(
        self, cmp: Comparison, *, source: MapSource | None = None, height: int = 380, **state: Any
    ) -> None:
        self.cmp, self.source = cmp, source or MapSource(cmp)
        self._seq = 0
        self._answered: Any = None
        self._looked: Any = None
        self._hits: tuple[Any, list[Any], int] = (None, [], 0)
        super().__init__(state=self.source.normal(state), height=height)
        self._answer()
        self.observe(self._wanted, ["state", "size"])
        self.on_msg(self._hear)

    # What is shown

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the browser asks for; it waits for an answer, also where that is the present tile."""
        before = self._seq
        super().set_state(sync_data)
        if self._seq == before and {"state", "size"} & sync_data.keys():
            self._seq += 1
            self.state, self.meta = self.meta["state"], {**self.meta, "seq": self._seq}

    def _wanted(self, _: Any) -> None:
        """Answer what the browser or the user asks for; a state that no map has is taken back."""
        try:
            self._answer()
        except DetlabError as error:
            self.state = self.meta["state"]
            self._say(str(error))

    def _answer(self) -> None:
        """Send the tile of the present state; a small map too where more than the window has changed."""
        state = self.source.normal(self.state)
        size = tuple(min(max(1, int(wanted)), most) for wanted, most in zip(self.size, MAX_SIZE, strict=True))
        if (state, size) == self._answered:
            return
        meta, tile = self.source.window(state, *size)
        look = {**state, "window": None}
        self._seq += 1
        with self.hold_sync():
            if look != self._looked:
                self.overview = self.source.overview(state)
                self._looked = look
            self._answered = (state, size)
            self.state = state
            self.meta = {**meta, "seq": self._seq}
            self.tile = tile.tobytes()
            self.selected = self._selection()

    # What is selected

    def select(self, number: int, position: int) -> None:
        """Select a call, and show its step and its place.

        Parameters
        ----------
        number
            Which rank, as an index into ``cmp.ranks``.
        position
            Which of its calls.
        """
        with self.hold_sync():
            self._reveal(number, position)
            self.called = (number, position)
            self.selected = self._selection()

    def clear(self) -> None:
        """Select nothing."""
        self.called = ()
        self.selected = {}

    def _reveal(self, number: int, position: int) -> None:
        """Show the step of a call, and move the window, without zooming, so that its cell is seen."""
        state = dict(self.state)
        place = self.source.place_of(state, number, position)
        if place is None:
            state["step"] = self.cmp.ranks[number].step_at(position)
            place = self.source.place_of(state, number, position)
        if place and state["window"]:
            r0, r1, c0, c1 = state["window"]
            num_rows, num_columns = self.source.size(state)
            state["window"] = [*_around(place[0], r0, r1, num_rows), *_around(place[1], c0, c1, num_columns)]
        self.state = state

    def _selection(self) -> dict[str, Any]:
        """Name the selected call and its place in the present map; nothing where the map does not show it."""
        if not self.called:
            return {}
        number, position = self.called
        place = self.source.place_of(self.state, number, position)
        if place is None:
            return {}
        rank = self.cmp.ranks[number]
        block = [place[0], place[0] + 1, place[1], place[1] + 1]
        return {
            "row": place[0],
            "column": place[1],
            "rank": rank.rank,
            "coordinate": str(rank.coordinate),
            "step": rank.step_at(position),
            "site": str(site_at(rank, position)),
            "verdict": Verdict(int(rank.verdicts[position])).name.lower(),
            "text": f"selected: {self.source.describe(self.state, block)}",
        }

    # What the browser says

    def _hear(self, _: Any, message: Any, __: Any) -> None:
        """Act on a message; what goes wrong is said where the user looks, not in a log."""
        acts = {"select": self._click, "hover": self._hover, "search": self._search}
        try:
            if message["type"] == "clear":
                self.clear()
            else:
                acts[message["type"]](message)
        except DetlabError as error:
            self._say(str(error))
        except (LookupError, TypeError, ValueError) as error:
            self._say(f"The map did not understand a message: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        self.send({"type": "say", "text": text})

    def _click(self, message: dict[str, Any]) -> None:
        called = self.source.call_in(self.state, message["block"])
        if called is None:
            self.clear()
            self._say(self.source.describe(self.state, message["block"]))
        else:
            self.select(called.number, called.position)

    def _hover(self, message: dict[str, Any]) -> None:
        block = message["block"]
        self.send({"type": "hover", "block": block, "text": self.source.describe(self.state, block)})

    def _search(self, message: dict[str, Any]) -> None:
        """Go to the first hit of a text, or to the next one of the text before."""
        text = str(message["text"])
        key = text, {**self.state, "window": None, "hidden": None}
        known, hits, at = self._hits
        if key != known:
            hits, at = self.source.search(self.state, text), 0
        at = at % len(hits) + 1 if message.get("next") and hits else min(1, len(hits))
        self._hits = key, hits, at
        first = min(max(0, at - 1 - MAX_HITS // 2), max(0, len(hits) - MAX_HITS))
        shown = hits[first : first + MAX_HITS]
        self.send(
            {
                "type": "found",
                "text": text,
                "rows": [row for row, _, _ in shown],
                "columns": [[start, stop] for _, start, stop in shown],
                "at": at,
                "of": len(hits),
                "from": first,
            }
        )

    # What is shown without a kernel

    def twin(self) -> Twin:
        """Give the present map as plain HTML, text and a picture."""
        content, picture = still(self.source, self.state)
        return Twin(f"<p><b>{html(headline(self.cmp))}</b></p>{content}", repr(self), picture)

    def __repr__(self) -> str:
        state, counts = self.state, self.meta["counts"]
        shown = "worst over steps" if state["step"] is None else f"step {state['step']}"
        counted = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no calls"
        return f"Map of {state['rows']}s by {state['columns']}s, {shown}: {counted}\n{headline(self.cmp)}"


def _around(at: int, start: int, stop: int, size: int) -> Sequence[int]:
    """Move a range, without changing its length, so that it holds a place; centred where it has to move."""
    if start <= at < stop:
        return start, stop
    length = stop - start
    first = min(max(0, at - length // 2), max(0, size - length))
    return first, first + length
