"""Negative controls: each component that was verified would have been missed, had it not been restored.

Each control goes the way of the check itself, on a small sample: it takes one leaf, number, batch or call of
the resumed side, puts in what a failed restore leaves there, and must get an error that names the component.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from detlab.checks.resume.calls import CALLS, Calls, with_one_bit
from detlab.checks.resume.components import OPTIMIZER, ORDER, POSITION, component_of
from detlab.checks.resume.data_calls import DataSequence, judge_data
from detlab.checks.resume.events import Key, Recorded, judge_first_use, state_rows
from detlab.checks.resume.numbers import Numbers, altered, judge_numbers, metric_component
from detlab.checks.resume.samples import Batch, Window, judge_order, one_aside, shows_position
from detlab.checks.resume.state import Judged, judge
from detlab.checks.resume.words import Stage
from detlab.errors import DetlabError


class Control(NamedTuple):
    """One negative control.

    Attributes
    ----------
    component
        The component that was not restored on purpose.
    source
        In what: checkpoint, states of a trace, metrics, samples or calls.
    how
        What was put in its place: missing, zeroed, reset, other bytes, another order.
    where
        The leaf, metric or call.
    caught
        Whether an error named the component.
    """

    component: str
    source: str
    how: str
    where: str
    caught: bool


_DIGEST: Final = 0x5EED5EED5EED5EED
_SAMPLE: Final = 3
"""States of a component that are compared again."""


def catches(judged: Judged, component: str) -> bool:
    """Say whether a judgement has an error that names a component."""
    return any(row["severity"] == "error" and row["component"] == component for row in judged.findings)


def state_controls(
    ours: Mapping[Key, Recorded],
    theirs: Mapping[Key, Recorded],
    components: Iterable[str],
    stage: Stage,
) -> Iterator[Control]:
    """Take recorded states of each component away, reset them, or put others in their place."""
    samples: dict[str, list[Key]] = {}
    for key in sorted(theirs):
        state = theirs[key]
        sample = samples.setdefault(component_of(state.name, is_tensor=state.is_tensor), [])
        if len(sample) < _SAMPLE and key in ours:
            sample.append(key)
    for component in components:
        keys = samples.get(component)
        if not keys:
            continue
        key = keys[0]
        has_others = len(keys) > 1 or any(samples.get(each) for each in OPTIMIZER if each != component)
        part = {each: theirs[each] for each in keys}
        for how, changed in _changed_states(part, key, component in OPTIMIZER and has_others):
            judged = judge(state_rows({each: ours[each] for each in keys}, changed), stage)
            yield Control(component, "states of a trace", how, key[0], catches(judged, component))


def _changed_states(
    theirs: Mapping[Key, Recorded], key: Key, can_miss: bool
) -> Iterator[tuple[str, Mapping[Key, Recorded]]]:
    """Give the same states with one zeroed or reset; and without it, where its absence shows."""
    state = theirs[key]
    how = "zeroed" if state.is_tensor else "reset"
    yield how, {**theirs, key: replace(state, digest=state.digest ^ _DIGEST, zeroed=True)}
    if can_miss:
        yield "missing", {name: each for name, each in theirs.items() if name != key}


def use_controls(
    saved: Mapping[Key, Recorded], loaded: Mapping[Key, Recorded], used: Mapping[Key, Recorded]
) -> Iterator[Control]:
    """Put another state in place of one that was as loaded at its first use."""
    for key in sorted(used):
        if key not in saved or key not in loaded or saved[key].digest != loaded[key].digest:
            continue
        component = component_of(used[key].name, is_tensor=used[key].is_tensor)
        other = {**used, key: replace(used[key], digest=used[key].digest ^ _DIGEST)}
        judged = judge_first_use(saved, loaded, other, {})
        how = "other bytes at first use"
        yield Control(component, "states of a trace", how, key[0], catches(judged, component))
        return


def number_controls(numbers: Numbers, components: Iterable[str]) -> Iterator[Control]:
    """Change one number of each component by the least that its numbers can show."""
    for component in components:
        names = [
            name for name in numbers.cmp.compared["name"].to_list() if metric_component(name) == component
        ]
        if not names:
            continue
        changed = altered(numbers, names)
        if changed is None:
            continue
        judged, _ = judge_numbers(changed)
        yield Control(component, "metrics", "least visible change", names[0], catches(judged, component))


def order_controls(window: Window) -> Iterator[Control]:
    """Give the resumed run its batches in another order, and from another position."""
    moved, how = window.theirs[::-1], "another order"
    if moved == window.theirs:
        moved, how = (("\0",), *window.theirs[1:]), "another sample"
    yield _order_control(window, moved, ORDER, how)
    if shows_position(window):
        way = "earlier" if window.before else "later"
        yield _order_control(window, one_aside(window), POSITION, f"one batch {way}")


def _order_control(window: Window, theirs: tuple[Batch, ...], component: str, how: str) -> Control:
    judged = judge_order(replace(window, theirs=theirs))
    # where batches come again, another order can be a move of the same one, and a move another order
    caught = any(catches(judged, each) for each in (ORDER, POSITION))
    return Control(component, "samples", how, "batch 1 after the resume", caught)


def data_controls(sequences: list[DataSequence], first: int, components: Iterable[str]) -> Iterator[Control]:
    """Give the resumed run other data at the last step that both recorded."""
    for component in components:
        for number, each in enumerate(sequences):
            if ("loss_mask" in each.name) is (component == ORDER):
                continue
            last = max(each.theirs)
            other = tuple(digest ^ _DIGEST for digest in each.theirs[last])
            changed = [*sequences]
            changed[number] = replace(each, theirs={**each.theirs, last: other})
            yield Control(
                component, "calls", "other data", each.name, catches(judge_data(changed, first), component)
            )
            break


def call_control(calls: Calls) -> Iterator[Control]:
    """Flip one bit of one output of the resumed run."""
    try:
        cmp = with_one_bit(calls)
    except DetlabError as error:
        yield Control(CALLS, "calls", f"one bit: {error}", "", False)
        return
    if cmp is not None:
        first = cmp.first
        where = str(first["site"][0]) if len(first) else ""
        yield Control(CALLS, "calls", "one bit of an output", where, cmp.verdict == "diverged")


def as_rows(controls: Iterable[Control]) -> list[dict[str, Any]]:
    """Give controls as rows of a table."""
    return [control._asdict() for control in controls]
