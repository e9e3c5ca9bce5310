"""States that a trace recorded: what was saved, what was loaded, and what stood there at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.result import NotChecked, Problem, Verified
from detlab.checks.resume.components import OPTIMIZER, RNG, component_of
from detlab.checks.resume.state import STATE_SCHEMA, Judged
from detlab.checks.resume.words import MORE_COLUMNS, counted, listed
from detlab.comparison.text import PROVES
from detlab.digest import ALGORITHM, fold, signature, zeros_digest
from detlab.errors import NotComparable
from detlab.run import Run, spans
from detlab.schema import Coordinate, Evidence, Meta, Phase, Side
from detlab.store import RankTrace, select_segments
from detlab.text import plural

SAVED: Final = "saved"
LOADED: Final = "loaded"
FIRST_USE: Final = "first use"
INITIAL: Final = "initial"
_COLUMNS: Final = ("seq", "step", "callee", "meta", "out_digest", "n_out", "evidence")
_MOST_ZEROS: Final = 1 << 30
"""Bytes of zeros that are hashed at most to tell whether a state is zero."""

_ZEROS: Final = tuple(fold((), [zero]) for zero in (0, 0.0, False))
"""Digests of a recorded number that is zero."""


@dataclass(frozen=True)
class Recorded:
    """One state at one moment on one rank.

    Attributes
    ----------
    name, moment, step, rank, place
        What it is called, when it was, on which rank and at which coordinate.
    digest, num, evidence
        Fold over its tensors and numbers, how many they are, and what equality proves.
    meta
        Shapes and dtypes; its attributes may hold the ``value`` of a number.
    zeroed
        Whether every element is zero; None where that is not known.
    """

    name: str
    moment: str
    step: int
    rank: int
    place: Coordinate
    digest: int
    num: int
    evidence: Evidence
    meta: Meta
    zeroed: bool | None

    @property
    def value(self) -> str | None:
        """The number or word, where it was recorded as text."""
        return dict(self.meta.attributes).get("value")

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, or several."""
        return bool(self.meta.outputs)


def recorded_states(run: Run) -> list[Recorded]:
    """List the states that a run recorded, rank by rank, in their order there."""
    return [state for trace in run.ranks for state in _of_rank(trace)]


def _of_rank(trace: RankTrace) -> Iterator[Recorded]:
    is_state = trace.index["phase"] == Phase.STATE
    if not is_state.any():
        return
    part = select_segments(trace, is_state)
    zeroed = _zeroed(part)
    rows = part.columns(0, part.num_events, _COLUMNS)
    for seq, step, callee, meta, digest, num, evidence in zip(
        *(rows[name].tolist() for name in _COLUMNS), strict=True
    ):
        called = trace.names.callees[callee]
        known = zeroed.get(seq)
        yield Recorded(
            called.scope, called.op, step, trace.header.rank, trace.header.coordinate, digest, num,
            Evidence(evidence & 15), trace.names.metas[meta], True if digest in _ZEROS else known,
        )  # fmt: skip


def _zeroed(part: RankTrace) -> dict[int, bool]:
    """Say of events whether all of their tensors are zero, by the statistics of these where there are any."""
    found: dict[int, bool] = {}
    for number in range(len(part.details)):
        rows = part.details.read(number, ("seq", "side", "has_stats", "absmax", "nans", "infs"))
        known = (rows["side"] == Side.OUTPUT) & (rows["has_stats"] > 0)
        zero = (rows["absmax"] == 0) & (rows["nans"] == 0) & (rows["infs"] == 0)
        for seq, is_zero in zip(rows["seq"][known].tolist(), zero[known].tolist(), strict=True):
            found[seq] = found.get(seq, True) and is_zero
    return found


def without_states(run: Run) -> Run:
    """Give a run without its recorded states, which are judged here and are no calls of a step."""
    ranks = tuple(select_segments(each, each.index["phase"] != Phase.STATE) for each in run.ranks)
    return replace(run, ranks=tuple(each for each in ranks if each.num_events))


def at_steps(run: Run, chosen: Sequence[int]) -> Run:
    """Give a run with some of its steps only."""
    ranks = (select_segments(each, _is_in(each.index["step"], chosen)) for each in run.ranks)
    return replace(run, ranks=tuple(each for each in ranks if each.num_events))


def _is_in(steps: NDArray[np.int32], chosen: Sequence[int]) -> NDArray[np.bool_]:
    return np.isin(steps, np.array(sorted(chosen), np.int32))


Key = tuple[str, Coordinate]


def of_moment(states: Sequence[Recorded], moment: str, step: int | None = None) -> dict[Key, Recorded]:
    """Give the states of one moment by name and place; of several times the last one."""
    return {
        (each.name, each.place): each
        for each in states
        if each.moment == moment and (step is None or each.step == step)
    }


def saved_before(
    ours: Sequence[Recorded], theirs: Sequence[Recorded], offset: int | None
) -> dict[Key, Recorded]:
    """Find which of the saved states of the reference the resumed run loaded.

    Raises
    ------
    NotComparable
        The reference saved at no step that is that of the load.
    """
    steps = sorted({each.step for each in ours if each.moment == SAVED})
    loads = sorted({each.step + (offset or 0) for each in theirs if each.moment == LOADED})
    if not loads or not steps or (len(steps) == 1 and loads[-1] <= 1):
        return of_moment(ours, SAVED)
    # A recorder counts a state to the step before or after it.
    step = next((each for each in (loads[-1], loads[-1] - 1, loads[-1] + 1) if each in steps), None)
    if step is None:
        raise NotComparable(
            f"the reference saved its state at {plural('step', len(steps))} {spans(steps)}, and the "
            f"resumed run loaded at step {loads[-1]}.",
            "record it with its global step, Recorder(…, start_step=…), or give offset=N",
        )
    return of_moment(ours, SAVED, step)


def state_rows(
    ours: Mapping[Key, Recorded],
    theirs: Mapping[Key, Recorded],
    initial: Mapping[Key, set[int]] | None = None,
) -> pl.DataFrame:
    """Lay recorded states beside each other.

    Parameters
    ----------
    ours, theirs
        States of the reference and of the resumed run.
    initial
        Digests of states that are known to be of before training.

    Returns
    -------
    The columns of `STATE_SCHEMA`.
    """
    keys = sorted(ours.keys() | theirs.keys())
    known = initial or {}
    rows = [_row(key, ours.get(key), theirs.get(key), known.get(key, set())) for key in keys]
    return pl.DataFrame(rows, STATE_SCHEMA)


def _row(key: Key, a: Recorded | None, b: Recorded | None, initial: set[int]) -> dict[str, Any]:
    one = a or b
    assert one is not None
    is_tensor = one.is_tensor or (b is not None and b.is_tensor)
    state, evidence = _outcome(a, b)
    shapes = [each.shape for each in one.meta.outputs]
    return {
        "name": key[0],
        "rank": one.rank,
        "component": component_of(key[0], is_tensor=is_tensor),
        "kind": "tensor" if is_tensor else "scalar",
        "state": state,
        "zeroed_a": a.zeroed if a else None,
        "zeroed_b": _is_zero(b) if b and state == "different" else (b.zeroed if b else None),
        "num_elements": sum(map(prod, shapes)) if is_tensor else None,
        "value_a": a.value if a else None,
        "value_b": b.value if b else None,
        "initial": bool(
            b and state == "different" and b.digest in initial and not (a and a.digest in initial)
        ),
        "evidence": evidence,
    }


def _is_zero(state: Recorded) -> bool | None:
    """Say whether a state is zero: by its statistics, or by the digest that as many zeros have."""
    if state.zeroed is not None or state.evidence is not Evidence.EXACT or state.meta.algorithm != ALGORITHM:
        return state.zeroed
    parts = []
    for each in state.meta.outputs:
        num_bytes = prod(each.shape) * ITEM_SIZE.get(each.dtype, 0)
        if not 0 < num_bytes <= _MOST_ZEROS:
            return None
        parts.append((zeros_digest(num_bytes), signature(each.dtype, each.shape)))
    return bool(parts) and fold(parts) == state.digest


def _outcome(a: Recorded | None, b: Recorded | None) -> tuple[str, str | None]:
    if a is None or b is None:
        return ("only_b" if a is None else "only_a"), None
    least = min(a.evidence, b.evidence)
    if least in (Evidence.NONE, Evidence.STRUCTURE) or a.meta.algorithm != b.meta.algorithm:
        return "unreadable", None
    geometry = [[(each.dtype, each.shape) for each in side.meta.outputs] for side in (a, b)]
    if geometry[0] != geometry[1] or a.num != b.num:
        return "changed", None
    if a.digest == b.digest:
        return "equal", PROVES[least]
    # A statistic such as a norm is a float reduction: its difference proves nothing.
    return ("unreadable" if least is Evidence.STATISTIC else "different"), PROVES[least]


def of_both_ranks(
    ours: Mapping[Key, Recorded], theirs: Mapping[Key, Recorded]
) -> tuple[dict[Key, Recorded], dict[Key, Recorded], list[Problem]]:
    """Keep the states of ranks that both runs recorded; say which one alone did."""
    places = [{key[1] for key in side} for side in (ours, theirs)]
    problems = []
    for side, others, label in ((ours, places[1], "reference"), (theirs, places[0], "resumed run")):
        alone = sorted({each.rank for key, each in side.items() if key[1] not in others})
        if alone:
            what = f"the {label} alone recorded states on {plural('rank', len(alone))} {spans(alone)}"
            problems.append(Problem("states", what))
    ours, theirs = (
        {key: each for key, each in side.items() if key[1] in places[0] & places[1]}
        for side in (ours, theirs)
    )
    return ours, theirs, problems


def silent(
    ours: Mapping[Key, Recorded], theirs: Mapping[Key, Recorded]
) -> tuple[dict[Key, Recorded], dict[Key, Recorded], list[NotChecked], list[Problem]]:
    """Set the components aside of which one run recorded nothing at all.

    An optimizer is one: where any of its parts was recorded, a part that is not there is missing.

    Returns
    -------
    ours
        The states of the reference that are left.
    theirs
        Those of the resumed run.
    not_checked, problems
        What was set aside; it makes a check without findings invalid.
    """
    said = {_family(each) for each in theirs.values()}
    lost: dict[str, int] = {}
    kept: dict[Key, Recorded] = {}
    for key, each in ours.items():
        if _family(each) in said:
            kept[key] = each
        else:
            component = component_of(each.name, is_tensor=each.is_tensor)
            lost[component] = lost.get(component, 0) + 1
    why = "the resumed run recorded nothing of it after loading"
    not_checked = [
        NotChecked(name, f"{why}, the reference {counted(num, 'state')}") for name, num in lost.items()
    ]
    known = {_family(each) for each in ours.values()}
    alone = {
        component_of(each.name, is_tensor=each.is_tensor)
        for each in theirs.values()
        if _family(each) not in known
    }
    not_checked += [NotChecked(name, "the reference recorded nothing of it") for name in sorted(alone)]
    problems = [Problem("state at load", f"{name}: {why}") for name in lost]
    theirs = {key: each for key, each in theirs.items() if _family(each) in known}
    return kept, theirs, not_checked, problems


def _family(each: Recorded) -> str:
    component = component_of(each.name, is_tensor=each.is_tensor)
    return "optimizer" if component in OPTIMIZER else component


def known_initial(
    ours: Sequence[Recorded], theirs: Sequence[Recorded], saved: Mapping[Key, Recorded]
) -> Mapping[Key, set[int]]:
    """Give the digests that states had before they were saved, or in a run that had not loaded yet."""
    found: dict[Key, set[int]] = {}
    steps = {key: each.step for key, each in saved.items()}
    for each in ours:
        key = (each.name, each.place)
        if each.step < steps.get(key, -1) or each.moment == INITIAL:
            found.setdefault(key, set()).add(each.digest)
    for each in theirs:
        if each.moment == INITIAL:
            found.setdefault((each.name, each.place), set()).add(each.digest)
    return found


def judge_first_use(
    saved: Mapping[Key, Recorded],
    loaded: Mapping[Key, Recorded],
    used: Mapping[Key, Recorded],
    initial: Mapping[Key, set[int]],
) -> Judged:
    """Say of states that were loaded as saved whether something wrote to them before their first use."""
    lost: list[tuple[Recorded, bool]] = []
    held: dict[str, list[Recorded]] = {}
    for key, each in used.items():
        before = saved.get(key), loaded.get(key)
        if before[0] is None or before[1] is None or _outcome(*before)[0] != "equal":
            continue
        outcome = _outcome(before[1], each)[0]
        if outcome == "equal":
            held.setdefault(component_of(each.name, is_tensor=each.is_tensor), []).append(each)
        if outcome in ("different", "changed"):
            lost.append((each, each.digest in initial.get(key, set())))
    wrong = {component_of(each.name, is_tensor=each.is_tensor) for each, _ in lost}
    verified = tuple(
        Verified(
            component,
            f"{counted(len(states), 'state')} at first use as loaded",
            PROVES[min(each.evidence for each in states)],
        )
        for component, states in held.items()
        if component not in wrong
    )
    return Judged(tuple(_overwritten(lost)), verified)


def _overwritten(lost: Sequence[tuple[Recorded, bool]]) -> Iterator[dict[str, Any]]:
    parts: dict[str, list[tuple[Recorded, bool]]] = {}
    for each in lost:
        parts.setdefault(component_of(each[0].name, is_tensor=each[0].is_tensor), []).append(each)
    for component, states in parts.items():
        names = sorted({each.name for each, _ in states})
        ranks = sorted({each.rank for each, _ in states})
        seeded = all(is_initial for _, is_initial in states)
        yield {
            **dict.fromkeys(MORE_COLUMNS),
            "component": component,
            "severity": "error",
            "found": f"{listed(names, 3)}: the state was restored but overwritten before first use"
            + (", with the state that it had before training" if seeded else ""),
            "expected": "at first use the state that was loaded",
            "where": f"{listed([f'rank {rank}' for rank in ranks], 4)}, step {states[0][0].step}",
            "why": "something between the load and the first step seeds again or draws from it, such as "
            "a data "
            "iterator that is made after the load",
            "next": "load the state last, or record it once more after each part of the start: the first "
            "that differs "
            "follows what overwrote it",
            "source": "modelscope/ms-swift#9935" if component == RNG else "",
            "stage": FIRST_USE,
            "kind": "overwritten",
            "names": names[:20],
            "num_leaves": len(states),
            "of_leaves": len(states),
        }
