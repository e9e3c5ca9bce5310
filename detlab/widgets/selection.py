"""What is selected: one call, one step; every panel takes it and follows it."""

from __future__ import annotations

from typing import Any

import traitlets

from detlab.comparison import Comparison
from detlab.comparison.places import call_row, position_of, site_at
from detlab.errors import InputError
from detlab.schema import Site


class Selection(traitlets.HasTraits):
    """The call and the step that all panels of a view show.

    Attributes
    ----------
    called
        (number of the rank in ``cmp.ranks``, position there), or () for no call.
    step
        A step, or None for no step in particular.
    """

    called = traitlets.Tuple()
    step = traitlets.Int(None, allow_none=True)

    def clear(self) -> None:
        """Select nothing."""
        self.called = ()
        self.step = None


def find_call(cmp: Comparison, rank: int, site: str) -> tuple[int, int]:
    """Give the call at a site as `Selection.called` names it.

    Parameters
    ----------
    rank
        Global rank in run a.
    site
        Text form of the call's site.

    Raises
    ------
    InputError
        The rank was not compared, makes no such call, or the text is no site.
    """
    number = next((n for n, each in enumerate(cmp.ranks) if each.rank == rank), None)
    if number is None:
        raise InputError(f"rank {rank} was not compared.", "choose one of those in Comparison.first")
    try:
        wanted = Site.parse(site)
    except ValueError as error:
        raise InputError(str(error), "copy a site from first, sites or a finding") from error
    position = position_of(cmp.ranks[number], wanted)
    if position < 0:
        raise InputError(f"rank {rank} has the call {site}, and it was not compared.", "choose another step")
    return number, position


def place_of(cmp: Comparison, called: tuple[int, ...]) -> tuple[int, str] | None:
    """Give the global rank and the site of a selected call, which name it beyond this session; None: none."""
    if not called:
        return None
    number, position = called
    return cmp.ranks[number].rank, str(site_at(cmp.ranks[number], position))


def step_of(cmp: Comparison, called: tuple[int, ...]) -> int | None:
    """Give the step of a selected call."""
    return cmp.ranks[called[0]].step_at(called[1]) if called else None


def row_of(cmp: Comparison, called: tuple[int, ...]) -> dict[str, Any]:
    """Give a selected call as a row of `detlab.comparison.places.SITE_COLUMNS`."""
    return call_row(cmp.ranks[called[0]], called[1])
