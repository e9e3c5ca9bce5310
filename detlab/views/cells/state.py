"""What a map shows: its rows, columns, step, order, hidden verdicts and window, checked and made whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite
from numbers import Integral, Real
from typing import Any, Final

from detlab.errors import InputError
from detlab.run import spans
from detlab.schema import Verdict

ROWS: Final = ("rank", "op")
COLUMNS: Final = ("call", "step")
HIDEABLE: Final = tuple(verdict.name.lower() for verdict in Verdict if verdict != Verdict.MATCH)

State = Mapping[str, Any]
"""``rows``, ``columns``, ``step``, ``order``, ``hidden`` and ``window``, as JSON has them."""

DEFAULTS: Final[State] = {"rows": "rank", "columns": "call", "hidden": [], "window": None}


def check_names(state: State) -> None:
    """Refuse a state with a part that no state has."""
    known = (*DEFAULTS, "step", "order")
    unknown = [str(name) for name in state if name not in known]
    if unknown:
        raise InputError(f"A map has no {', '.join(unknown)}.", f"it has {', '.join(known)}")


def check_axes(rows: object, columns: object) -> None:
    """Refuse rows and columns that no map has."""
    if rows not in ROWS or columns not in COLUMNS:
        raise InputError(
            f"There is no map of {rows} by {columns}.", "rows are rank or op, columns call or step"
        )


def check_step(step: object, steps: Sequence[int]) -> int:
    """Refuse a step that was not compared."""
    if isinstance(step, bool) or not isinstance(step, Integral) or step not in steps:
        raise InputError(
            f"A map of step {step} alone cannot be made.",
            f"leave step out; the steps {spans(list(steps))} were compared",
        )
    return int(step)


def check_order(order: object, offered: Sequence[str]) -> str:
    """Refuse an order that would not group anything."""
    if not isinstance(order, str) or order not in offered:
        raise InputError(f"Ranks cannot be ordered by {order}.", f"choose one of {', '.join(offered)}")
    return order


def check_hidden(hidden: object) -> list[str]:
    """Give the verdicts to hide once each, by severity; refuse anything else."""
    names = list(hidden) if isinstance(hidden, list | tuple | set | frozenset) else [hidden]
    wrong = [str(name) for name in names if name not in HIDEABLE]
    if wrong:
        raise InputError(f"A map cannot hide {', '.join(wrong)}.", f"it can hide {', '.join(HIDEABLE)}")
    return [name for name in HIDEABLE if name in names]


def check_window(window: object, size: tuple[int, int]) -> list[int] | None:
    """Give a window in whole cells inside the map, at least one; None where it is all of the map."""
    if window is None:
        return None
    if not isinstance(window, list | tuple) or len(window) != 4 or not all(map(_is_number, window)):
        raise InputError(
            f"{window!r} is no window of a map.",
            "give [first row, row after the last, first column, column after the last], or null for all",
        )
    rows, columns = _inside(window[0], window[1], size[0]), _inside(window[2], window[3], size[1])
    return None if (rows, columns) == ((0, size[0]), (0, size[1])) else [*rows, *columns]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and isfinite(value)


def _inside(first: float, stop: float, limit: int) -> tuple[int, int]:
    """Widen a range to whole cells and move its ends inside."""
    start = min(max(floor(first), 0), max(limit - 1, 0))
    return start, min(max(ceil(stop), start + 1), limit)
