"""Invariants of a run against itself: its recomputation, and the deterministic mode that it recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from detlab.checks.trace.told import Breach, Holds, Skipped, Subject, Told, on_ranks
from detlab.comparison.text import PROVES
from detlab.comparison.within import compare_recompute
from detlab.errors import NotComparable, TraceError
from detlab.text import plural


def recompute_is_equal(subject: Subject) -> Told:
    """TRC018: calls that were made again gave the bits of the forward."""
    try:
        found = compare_recompute(subject.run)
    except NotComparable:
        yield Skipped("TRC018", "the run makes no call of its forward again")
        return
    except TraceError as error:
        yield Skipped("TRC018", error.finding)
        return
    if len(found.differing):
        num, ranks = len(found.differing), sorted(set(found.differing["rank"].to_list()))
        first = found.differing.row(0, named=True)
        told = f"{num:,} {plural('call', num)} made again {on_ranks(ranks)} give other bits"
        yield Breach(told, ranks, num, f"rank {first['rank']}: {first['forward']}")
    elif found.num_equal:
        num = sum(found.num_equal.values())
        least = min(level for _, level in found.num_equal)
        yield Holds(f"{num:,} {plural('call', num)} made again give the bits of the forward", PROVES[least])
    if found.num_unseen:
        num = found.num_unseen
        yield Skipped(f"TRC018: {num:,} {plural('call', num)} made again", "no evidence of their outputs")


_ASKED: Final = (("arguments", "deterministic_mode"), ("model", "deterministic_mode"))
_IN_EFFECT: Final = ("state", "deterministic")


def mode_is_on(subject: Subject) -> Told:
    """TRC019: what the recipes say of deterministic mode, and of torch's own flag, on every rank."""
    states: dict[str, list[int]] = defaultdict(list)
    for each in subject.surveys:
        states[_mode(each.trace.header.recipe)].append(each.rank)
    recorded = {state: ranks for state, ranks in states.items() if state}
    if not recorded:
        yield Skipped("TRC019", "the trace records no arguments and no flags")
        return
    if len(states) > 1:
        told = "; ".join(f"{state or 'not recorded'} {on_ranks(ranks)}" for state, ranks in states.items())
        yield Breach(
            f"not the same on all ranks: {told}",
            sorted(rank for its in states.values() for rank in its),
            severity="error",
        )
        return
    ((state, ranks),) = recorded.items()
    if state == _ON:
        yield Holds(f"{state} {on_ranks(ranks)}", "as recorded in the recipe")
    else:
        yield Breach(f"{state} {on_ranks(ranks)}", ranks, len(ranks))


_ON: Final = "deterministic mode is on"


def _mode(recipe: Mapping[str, object]) -> str:
    """Say what a recipe records; "" where it records nothing of it."""
    asked = [value for place in _ASKED if isinstance(value := _find(recipe, place), bool)]
    effect = _find(recipe, _IN_EFFECT)
    if isinstance(effect, bool) and any(asked) and not effect:
        return "deterministic mode was asked for, and torch's own flag is off"
    if isinstance(effect, bool) and effect:
        return _ON
    if asked:
        return _ON if any(asked) else "deterministic mode is off"
    return "torch's deterministic flag is off" if effect is False else ""


def _find(recipe: Mapping[str, object], place: tuple[str, str]) -> object:
    section = recipe.get(place[0])
    return section.get(place[1]) if isinstance(section, Mapping) else None


ITSELF: Final[dict[str, Callable[[Subject], Told]]] = {
    "TRC018": recompute_is_equal,
    "TRC019": mode_is_on,
}
"""How each of these invariants is looked at."""
