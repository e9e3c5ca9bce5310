"""Make the still picture of a map."""

from __future__ import annotations

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.views.cells import MapSource
from detlab.views.grid import Grid
from detlab.views.pooling import MAX_COLUMNS, MAX_ROWS


def make_grid(
    cmp: Comparison,
    rows: str = "rank",
    columns: str = "call",
    step: int | None = None,
    *,
    max_rows: int = MAX_ROWS,
    max_columns: int = MAX_COLUMNS,
    source: MapSource | None = None,
) -> Grid:
    """Compute the map of a comparison, its ranks in their own order.

    Parameters
    ----------
    rows
        ``rank``, or ``op`` for the worst over ranks by what was called.
    columns
        ``call`` for the position of a call in its step, in the rank's own order; or ``step``.
    step
        A compared step; None: the worst over all of them.
    max_rows, max_columns
        Number of cells at most; whole neighbours are pooled until it is kept.
    source
        What other pictures of the comparison were made from, to look nothing up again.

    Raises
    ------
    InputError
        There is no such picture, or the step was not compared.
    """
    if step is not None and columns == "step":
        raise InputError(f"A map of step {step} alone cannot be made.", "leave step out; columns are steps")
    source = source or MapSource(cmp)
    state = {"rows": rows, "columns": columns, "step": step, "order": "rank"}
    meta, codes = source.window(state, max_rows, max_columns)
    return Grid(source, meta, codes, source.steps_of(meta["state"]))
