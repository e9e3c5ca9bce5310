"""What is selected: one call, one step; every panel takes it and follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from detlab.comparison import Comparison
from detlab.comparison.places import position_of, site_at
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


def find_call(cmp: Comparison, rank: int, site: str, *, in_b: bool = False) -> tuple[int, int]:
    """Give the call at a site as `Selection.called` names it.

    Parameters
    ----------
    rank
        Global rank in run a.
    site
        Text form of the call's site.
    in_b
        Whether it is the site of a call that only run b makes: one of run a may have it too.

    Raises
    ------
    InputError
        The rank was not compared, makes no such call, or the text is no site.
    """
    number = _number_of(cmp, rank)
    try:
        wanted = Site.parse(site)
    except ValueError as error:
        raise InputError(str(error), "copy a site from first, sites or a finding") from error
    position = position_of(cmp.ranks[number], wanted, in_b=in_b)
    if position < 0:
        raise InputError(f"rank {rank} has the call {site}, and it was not compared.", "choose another step")
    return number, position


def clicked_call(cmp: Comparison, data: Mapping[str, Any]) -> tuple[int, int]:
    """Give the call that a button names by ``rank`` and ``position``, or by ``rank``, ``site`` and ``run``.

    Raises
    ------
    InputError
        There is no such call: the data comes from a browser.
    """
    try:
        rank = int(data["rank"])
        position = int(data["position"]) if "position" in data else None
        site = str(data["site"]) if position is None else ""
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("this names no call.", "click on a call") from error
    if position is None:
        return find_call(cmp, rank, site, in_b=data.get("run") == "b")
    number = _number_of(cmp, rank)
    if not 0 <= position < len(cmp.ranks[number].verdicts):
        raise InputError(f"rank {rank} has no call at {position}.", "click on a call")
    return number, position


def _number_of(cmp: Comparison, rank: int) -> int:
    number = next((n for n, each in enumerate(cmp.ranks) if each.rank == rank), None)
    if number is None:
        raise InputError(f"rank {rank} was not compared.", "choose one of those in Comparison.first")
    return number


def place_of(cmp: Comparison, called: tuple[int, ...]) -> tuple[int, str] | None:
    """Give the global rank and the site of a selected call, which name it beyond this session; None: none."""
    if not called:
        return None
    number, position = called
    return cmp.ranks[number].rank, str(site_at(cmp.ranks[number], position))


def step_of(cmp: Comparison, called: tuple[int, ...]) -> int | None:
    """Give the step of a selected call."""
    return cmp.ranks[called[0]].step_at(called[1]) if called else None
