"""The source of a map: it answers every question that a map asks of a comparison, at full resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.comparison import Comparison
from detlab.schema import Verdict
from detlab.views.cells import markers, words
from detlab.views.cells.columns import along_calls, along_steps, widest_program
from detlab.views.cells.counts import ASIDE
from detlab.views.cells.lookup import Called, first_call
from detlab.views.cells.planes import Plane, Planes
from detlab.views.cells.pool import Pooled, pool
from detlab.views.cells.programs import Program
from detlab.views.cells.rows import Group, RankRow, arrange, best_order, offered_orders, rank_rows
from detlab.views.cells.state import (
    DEFAULTS,
    State,
    check_axes,
    check_hidden,
    check_names,
    check_order,
    check_step,
    check_window,
)
from detlab.views.pooling import MAX_COLUMNS, MAX_ROWS, UNTRACED, Codes, factor_for
from detlab.views.text import visible

OVERVIEW_ROWS, OVERVIEW_COLUMNS = 48, 400
"""Size of the minimap, at most."""

_EMPTY: Final = {"rank": "untraced: no call was recorded", "op": "the op is not called here"}


class Shown(NamedTuple):
    """The cells of a state, before its window.

    Attributes
    ----------
    plane, table
        All cells, and the code that each value of one is shown as (None: the value).
    rows
        Row of the cells of each displayed row.
    labels, groups
        Names of the displayed rows and groups of them.
    """

    plane: Plane
    table: bytes | None
    rows: NDArray[np.intp]
    labels: list[str]
    groups: list[Group]

    def view(self, window: Sequence[int], factors: tuple[int, int]) -> markers.View:
        """Look at a window of them."""
        return markers.View(self.plane.cells, self.rows, self.table, window, factors)


class MapSource:
    """Everything that maps of one comparison show, computed when asked for and kept while it is small.

    A *state* says what is shown: ``{"rows": "rank" | "op", "columns": "call" | "step", "step": int | None
    (the worst over steps), "order": "rank" | an axis | "host" | "rack", "hidden": [verdicts drawn as
    matches], "window": None | [r0, r1, c0, c1]}``. Rows and columns are counted as they are displayed.
    """

    def __init__(self, cmp: Comparison) -> None:
        self.cmp = cmp

    @cached_property
    def planes(self) -> Planes:
        """The cells at full resolution."""
        return Planes(self.cmp)

    @cached_property
    def rank_rows(self) -> list[RankRow]:
        """Every place of either run by rank."""
        return rank_rows(self.cmp)

    @cached_property
    def orders(self) -> list[str]:
        """What ranks can be grouped by."""
        return offered_orders(self.rank_rows)

    @cached_property
    def _best_order(self) -> str:
        return best_order(self.cmp, self.rank_rows)

    def best_order(self) -> str:
        """Give the order that separates the ranks best."""
        return self._best_order

    @cached_property
    def _first_step(self) -> int | None:
        found = [step for finding in self.cmp.roots for step in finding.steps if step in self.cmp.steps]
        first = min(found, default=None)
        first = self.planes.first_differing_step() if first is None else first
        return min(self.cmp.steps, default=None) if first is None else first

    def first_step(self) -> int | None:
        """Give the step of the first finding; without one the first that differs, else the first compared."""
        return self._first_step

    def steps_of(self, state: State) -> tuple[int, ...]:
        """Give the steps that a whole state shows."""
        return self.cmp.steps if state["step"] is None else (state["step"],)

    def size(self, state: State) -> tuple[int, int]:
        """Count the rows and the columns of a whole state."""
        num_rows = len(self.planes.ops) if state["rows"] == "op" else len(self.rank_rows)
        return num_rows, self.planes.num_columns(state["columns"], self.steps_of(state))

    def normal(self, state: State) -> dict[str, Any]:
        """Give a state with every part, in whole cells inside the map.

        A part that is missing has its default: ranks by calls, the first step with a finding, the order
        that separates the ranks best. Where columns are steps, ``step`` is None.

        Raises
        ------
        InputError
            There is no such map.
        """
        check_names(state)
        whole = {**DEFAULTS, **state}
        check_axes(whole["rows"], whole["columns"])
        step = whole["step"] if "step" in whole else self.first_step()
        if step is not None:
            step = check_step(step, self.cmp.steps)
        whole["step"] = None if whole["columns"] == "step" else step
        order = whole["order"] if "order" in whole else self.best_order()
        whole["order"] = check_order(order, self.orders)
        whole["hidden"] = check_hidden(whole["hidden"])
        whole["window"] = check_window(whole["window"], self.size(whole))
        return {name: whole[name] for name in ("rows", "columns", "step", "order", "hidden", "window")}

    def shown(self, state: State) -> Shown:
        """Give the cells of a whole state and what its rows are."""
        hidden = hidden_codes(state)
        plane = self.planes.plane(state["rows"], state["columns"], self.steps_of(state), hidden)
        shown = plane, plane.table(hidden)
        if state["rows"] == "op":
            return Shown(*shown, np.arange(len(plane.cells)), list(map(visible, self.planes.ops)), [])
        order, groups = self.arranged(state["order"])
        numbers = np.array([row.number for row in self.rank_rows], np.intp)[order]
        labels = [self.rank_rows[row].label for row in order]
        return Shown(*shown, np.where(numbers < 0, len(plane.cells) - 1, numbers), labels, groups)

    def arranged(self, order: str) -> tuple[NDArray[np.intp], list[Group]]:
        """Give the rows of ranks as an order displays them, and the groups."""
        if order not in self._arranged:
            self._arranged[order] = arrange(self.rank_rows, order)
        return self._arranged[order]

    @cached_property
    def _arranged(self) -> dict[str, tuple[NDArray[np.intp], list[Group]]]:
        return {}

    def window(
        self, state: State, max_rows: int = MAX_ROWS, max_columns: int = MAX_COLUMNS
    ) -> tuple[dict[str, Any], Codes]:
        """Compute what a map draws.

        Parameters
        ----------
        state
            What is shown.
        max_rows, max_columns
            Size of the tile at most: so many whole rows and columns are pooled into one that it is kept.

        Returns
        -------
        meta
            Of the map: ``state`` (whole), ``num_rows`` and ``num_columns``, ``groups`` of rows (label, first,
            one past the last), ``bands`` (phases, so too), ``counts`` of calls by verdict and ``aside``,
            ``steps``, ``orders``. Of the window, itself whole in ``window``: ``height`` and ``width`` of the
            tile, ``row_factor`` and ``column_factor`` (cells that became one; the last may hang over),
            ``row_labels``, ``row_counts`` (origins and differing cells), ``column_counts`` (rows that differ,
            the most of the pooled columns), ``column_labels``, ``layers``, ``markers`` (row, column, code),
            ``num_origins`` (cells), ``has_untraced``. ``bands_of`` is the rank that phases, layers and
            column labels are taken from.
        tile
            The worst code of each block of cells, hidden verdicts as matches.
        """
        state = self.normal(state)
        shown, size = self.shown(state), self.size(state)
        window = state["window"] or [0, size[0], 0, size[1]]
        view = shown.view(window, _factors(window, (max_rows, max_columns)))
        pooled = pool_view(view)
        total = self.planes.counts(self.steps_of(state)).sum(axis=0)
        meta = {
            "state": state,
            "num_rows": size[0],
            "num_columns": size[1],
            "window": window,
            "height": pooled.tile.shape[0],
            "width": pooled.tile.shape[1],
            "row_factor": view.factors[0],
            "column_factor": view.factors[1],
            "row_labels": pooled_labels(shown.labels[window[0] : window[1]], view.factors[0]),
            "groups": [list(group) for group in shown.groups],
            "row_counts": np.stack([pooled.origins, pooled.differing], axis=1).tolist(),
            "column_counts": pooled.column_rows.tolist(),
            "markers": markers.find_markers(view, pooled.tile),
            "num_origins": int(pooled.origins.sum()),
            "counts": {verdict.name.lower(): int(total[1 + verdict]) for verdict in Verdict},
            "aside": int(total[ASIDE]),
            "steps": list(self.cmp.steps),
            "orders": self.orders if state["rows"] == "rank" else [],
            "has_untraced": state["rows"] == "rank" and bool((pooled.tile == UNTRACED).any()),
            **self._along_columns(state, (window[2], window[3]), view.factors[1]),
        }
        return meta, pooled.tile

    def _along_columns(self, state: State, columns: tuple[int, int], factor: int) -> dict[str, Any]:
        if state["columns"] == "step":
            return along_steps(self.cmp.steps, columns, factor)
        return along_calls(self.planes, self.steps_of(state), columns, factor)

    def overview(self, state: State) -> dict[str, Any]:
        """Pool the whole map to the size of a minimap: ``height``, ``width`` and ``tile`` as bytes."""
        state = self.normal(state)
        window = self._window(state, None)
        factors = _factors(window, (OVERVIEW_ROWS, OVERVIEW_COLUMNS))
        tile = pool_view(self.shown(state).view(window, factors)).tile
        return {"height": tile.shape[0], "width": tile.shape[1], "tile": tile.tobytes()}

    def _window(self, state: State, block: Sequence[int] | None) -> list[int]:
        """Give a block of cells in whole ones inside the map; all of it for none."""
        num_rows, num_columns = size = self.size(state)
        found = None if block is None else check_window(list(block), size)
        return found or [0, num_rows, 0, num_columns]

    def row_counts(self, state: State) -> NDArray[np.int64]:
        """Count the calls shown by displayed rank and verdict, see `detlab.views.cells.counts`."""
        numbers = np.array([row.number for row in self.rank_rows], np.intp)[self.arranged(state["order"])[0]]
        counts = self.planes.counts(self.steps_of(state))
        by_row: NDArray[np.int64] = np.where(numbers[:, None] < 0, 0, counts[numbers])
        return by_row

    def first_cells(
        self, meta: Mapping[str, Any], tile: Codes, places: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give displayed row and column of the first cell that gave some cells of a tile their code."""
        factors = meta["row_factor"], meta["column_factor"]
        return markers.first_cells(self.shown(meta["state"]).view(meta["window"], factors), tile, places)

    def widest(self, steps: Sequence[int]) -> Program | None:
        """Give the program with the most calls in one of some steps; the first of equal ones."""
        return widest_program(self.planes, steps)

    def call_in(self, state: State, block: Sequence[int]) -> Called | None:
        """Find the worst call of a block of cells, and of equal ones the first by row, column and step.

        Returns
        -------
        The call; one that matches where nothing in the block differs, None where none was recorded.
        """
        state = self.normal(state)
        shown = self.shown(state)
        cell = markers.worst_cell(shown.view(self._window(state, block), (1, 1)))
        if cell is None:
            return None
        key = state["rows"], state["columns"], self.steps_of(state)
        at = int(shown.rows[cell.row]), cell.column
        return first_call(self.planes, key, at, cell.code, hidden_codes(state))

    def place_of(self, state: State, number: int, position: int) -> tuple[int, int] | None:
        """Give the displayed row and column of a call; None where the state does not show its step."""
        state = self.normal(state)
        program, steps = self._program_of(number), self.steps_of(state)
        step, column = program.place_of(position)
        if step not in steps:
            return None
        if state["rows"] == "op":
            row = int(self.planes.op_rows(program)[position])
        else:
            row = int(np.flatnonzero(self.shown(state).rows == number)[0])
        return row, steps.index(step) if state["columns"] == "step" else column

    def _program_of(self, number: int) -> Program:
        return self.planes.programs[int(self.planes.program_of[number])]

    def describe(self, state: State, block: Sequence[int]) -> str:
        """Say what a block of cells shows: its worst and first call, and of how many it is the worst."""
        state = self.normal(state)
        r0, r1, c0, c1 = self._window(state, block)
        called = self.call_in(state, (r0, r1, c0, c1))
        if called is None:
            rows = "".join(pooled_labels(self.shown(state).labels[r0:r1], max(1, r1 - r0)))
            return f"{state['rows']} {rows} · {_EMPTY[state['rows']]}"
        rank = self.cmp.ranks[called.number]
        column = self._program_of(called.number).place_of(called.position)[1]
        verdict = words.verdict_words(rank, called.position, state["hidden"])
        of = f" · worst of {r1 - r0:,} x {c1 - c0:,} cells" if (r1 - r0) * (c1 - c0) > 1 else ""
        what = words.describe_call(rank, called.position, column)
        return f"rank {rank.rank} · {rank.coordinate} · {what} · {verdict}{of}"

    def search(self, state: State, text: str) -> list[words.Found]:
        """Find text in scopes and ops, in capitals or not; in the labels of rows where columns are no calls.

        Returns
        -------
        Displayed row, first column and one past the last of each find, by column. The row is None where
        the program of the rank whose phases are shown has the call; a call that only other programs have
        names the first displayed row that makes it.
        """
        state, wanted = self.normal(state), text.strip().lower()
        shown, steps = self.shown(state), self.steps_of(state)
        reference = self.widest(steps)
        if not wanted or reference is None:
            return []
        found = []
        if (state["rows"], state["columns"]) == ("rank", "call"):
            found = words.find_calls(self.planes, reference, steps, wanted, shown.rows)
        return found or words.find_labels(shown.labels, wanted, self.size(state)[1])


def pool_view(view: markers.View) -> Pooled:
    """Pool a window of cells."""
    r0, r1, c0, c1 = view.window
    return pool(view.cells, view.rows[r0:r1], slice(c0, c1), view.factors, view.table)


def _factors(window: Sequence[int], limits: tuple[int, int]) -> tuple[int, int]:
    """Give the least number of rows and of columns to pool so that a window fits."""
    return factor_for(window[1] - window[0], limits[0]), factor_for(window[3] - window[2], limits[1])


def hidden_codes(state: State) -> list[int]:
    """Give the codes that a state hides."""
    return [1 + Verdict[name.upper()] for name in state["hidden"]]


def pooled_labels(labels: Sequence[str], factor: int) -> list[str]:
    """Name each group of neighbouring rows by its first and last."""
    if factor == 1:
        return list(labels)
    groups = [labels[start : start + factor] for start in range(0, len(labels), factor)]
    return [group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}" for group in groups]
