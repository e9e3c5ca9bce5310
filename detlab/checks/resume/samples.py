"""The order of the data, independent of the model: sample ids as a sequence and as a set."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from detlab.checks.result import Verified
from detlab.checks.resume.components import ORDER, POSITION
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import MORE_COLUMNS, listed
from detlab.errors import InputError, NotComparable
from detlab.run import spans
from detlab.text import shorten

Batch = tuple[Hashable, ...]

_HINT: Final = (
    "give a list of ids or of lists of ids in the order of their batches, a mapping from step to ids, or a "
    "JSON or text file of these (text: a batch a line)"
)
_SHOWN: Final = 8
_WHY: Final = (
    "the order of the data is no part of what was restored: an epoch counter or a seed of the sampler that "
    "is not in the checkpoint gives another shuffle at the right place"
)


@dataclass(frozen=True)
class Samples:
    """Which samples a run took, batch by batch.

    Attributes
    ----------
    batches
        The ids of each batch, in order.
    steps
        The step of each batch; empty where nobody says.
    source
        The file that they were read from; empty where they were given.
    """

    batches: tuple[Batch, ...]
    steps: tuple[int, ...] = ()
    source: str = field(default="", compare=False)


def as_samples(source: Any) -> Samples:
    """Give sample ids from a list, a mapping from step to ids, or a JSON or text file.

    Raises
    ------
    InputError
        It is none of these, or holds no batch.
    """
    if isinstance(source, Samples):
        return source
    if isinstance(source, str | PathLike):
        path = Path(source)
        return replace(_from(_read(path), fspath(source)), source=str(path.resolve()))
    return _from(source, "the samples")


def _read(path: Path) -> Any:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", _HINT) from error
    if path.suffix == ".json" or text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is no JSON: {error}", _HINT) from error
    lines = [line.replace(",", " ").split() for line in text.splitlines()]
    return [line for line in lines if line and not line[0].startswith("#")]


def _from(content: Any, where: str) -> Samples:
    try:
        if isinstance(content, Mapping):
            by_step = sorted((int(step), _batch(ids)) for step, ids in content.items())
            found = Samples(tuple(ids for _, ids in by_step), tuple(step for step, _ in by_step))
        elif isinstance(content, Sequence) and not isinstance(content, str):
            found = Samples(tuple(map(_batch, content)))
        else:
            raise TypeError(f"it is a {type(content).__name__}")
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: no batches of sample ids: {error}", _HINT) from error
    if not any(found.batches):
        raise InputError(f"{where}: no sample ids.", _HINT)
    return found


def _batch(ids: Any) -> Batch:
    """Give the ids of one batch; numbers and words of the same digits are the same id."""
    many = ids if isinstance(ids, Sequence) and not isinstance(ids, str) else [ids]
    for each in many:
        if not isinstance(each, str | int):
            raise TypeError(f"{shorten(repr(each), 40)} is no id")
    return tuple(str(each) for each in many)


@dataclass(frozen=True)
class Window:
    """The batches after the resume on both sides, and what the reference took before.

    Attributes
    ----------
    before, ours, theirs
        Batches of the reference before the resume; its batches after it; those of the resumed run.
    steps
        The step of each batch after the resume; empty where nobody says.
    all_from_start
        Whether ``before`` reaches back to the first batch of training, so that epochs can be counted.
    """

    before: tuple[Batch, ...]
    ours: tuple[Batch, ...]
    theirs: tuple[Batch, ...]
    steps: tuple[int, ...] = ()
    all_from_start: bool = False


def window_of(reference: Samples, resumed: Samples, offset: int | None) -> Window:
    """Lay the batches of both runs beside each other.

    Raises
    ------
    NotComparable
        It is not known which batch of the reference the first batch after the resume is.
    """
    if reference.source and reference.source == resumed.source:
        raise NotComparable(
            f"{reference.source} was given twice: samples that are compared with themselves show no resume.",
            "give the samples of the resumed run beside it",
        )
    if reference.steps and resumed.steps:
        return _by_steps(reference, resumed, offset or 0)
    start = offset
    if start is None and len(reference.batches) == len(resumed.batches):
        start = 0
    if start is None:
        raise NotComparable(
            f"the reference lists {len(reference.batches):,} batches and the resumed run "
            f"{len(resumed.batches):,}: it is not known where these begin.",
            "give offset=N, the number of batches before the resume, or the step of every batch",
        )
    ours = reference.batches[start:]
    if not 0 <= start < len(reference.batches):
        raise NotComparable(
            f"the reference lists {len(reference.batches)} batches, and offset={start} is not among them.",
            "give the number of its batches before the resume",
        )
    size = min(len(ours), len(resumed.batches))
    return Window(reference.batches[:start], ours[:size], resumed.batches[:size], all_from_start=start > 0)


def _by_steps(reference: Samples, resumed: Samples, offset: int) -> Window:
    ours = dict(zip(reference.steps, reference.batches, strict=True))
    theirs = {step + offset: ids for step, ids in zip(resumed.steps, resumed.batches, strict=True)}
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise NotComparable(
            "the lists of samples have no step in common.",
            "give offset=N, added to the steps of the resumed run",
        )
    before = tuple(ours[step] for step in sorted(ours) if step < common[0])
    return Window(
        before,
        tuple(ours[step] for step in common),
        tuple(theirs[step] for step in common),
        tuple(common),
        min(ours) <= 1 and len(before) == common[0] - min(ours),
    )


def lacking(reference: Samples, resumed: Samples, offset: int) -> list[int]:
    """List the steps, between the first and the last that both have, of which one side has no samples."""
    ours, theirs = set(reference.steps), {step + offset for step in resumed.steps}
    both = ours & theirs
    return sorted(step for step in ours ^ theirs if both and min(both) < step < max(both))


def one_aside(window: Window) -> tuple[Batch, ...]:
    """Give the batches of the resumed run, had it begun one earlier; one later where none is known before."""
    earlier = (*window.before[-1:], *window.theirs[:-1])
    return earlier if window.before else (*window.theirs[1:], ("\0",))


def shows_position(window: Window) -> bool:
    """Say whether another position in the same order would be seen: not in one batch, nor in equal ones."""
    known = [*window.before[-1:], *window.theirs]
    return len(known) > 2 and len(window.theirs) > 1 and len(set(known)) > 1


def judge_order(window: Window, what: str = "samples", evidence: str = "exact: every id") -> Judged:
    """Say whether the samples after the resume are the same, as a sequence and as a set.

    Parameters
    ----------
    window
        The batches.
    what
        What the ids name.
    evidence
        What equality of two ids proves.
    """
    num = len(window.ours)
    batches = f"{num:,} batch{'es' if num != 1 else ''}"
    if window.ours == window.theirs:
        said = f"{batches} after the resume{_at(window)}, the same {what} in the same order"
        order, position = Verified(ORDER, said, evidence), Verified(POSITION, _position(window), evidence)
        return Judged(verified=(order, position) if shows_position(window) else (order,))
    moved, epoch = _moved(window)
    first = next(
        n for n, pair in enumerate(zip(window.ours, window.theirs, strict=True)) if pair[0] != pair[1]
    )
    place = f"step {window.steps[first]}" if window.steps else f"batch {first + 1} after the resume"
    if moved and epoch is None:
        found, kind, component = _moved_words(moved, window), "position", POSITION
    else:
        found, kind, component = f"same number of batches ({num:,}), {_sets(window, what)}", "order", ORDER
        found += f"; it is the order of epoch {epoch} at this position" if epoch is not None else ""
    row: dict[str, Any] = {
        "component": component,
        "severity": "error",
        "found": f"{found}; first at {place}",
        "expected": f"{what} {_ids(window.ours[first])} there, and not {_ids(window.theirs[first])}",
        "where": place,
        "why": _WHY if kind == "order" else "the resumed run begins at another batch of the same order",
        "next": "save and restore the epoch and the seed of the sampler beside its position"
        if kind == "order"
        else "compare the consumed samples that were saved with those that the data loader starts from",
        "source": "huggingface/accelerate#4195" if kind == "order" else "",
        "stage": "data",
        "kind": kind,
        "names": [],
        "num_leaves": sum(a != b for a, b in zip(window.ours, window.theirs, strict=True)),
        "of_leaves": num,
        "first_step": window.steps[first] if window.steps else None,
    }
    return Judged(findings=({**dict.fromkeys(MORE_COLUMNS), **row},))


def _at(window: Window) -> str:
    return f" (steps {spans(window.steps)})" if window.steps else ""


def _position(window: Window) -> str:
    if not window.before:
        return "both begin with the same batch"
    return f"the first batch after the resume is the one that follows the {len(window.before):,} before it"


def _flat(batches: Sequence[Batch]) -> list[Hashable]:
    return [each for batch in batches for each in batch]


def _epoch_before(window: Window) -> tuple[list[Hashable], int]:
    """Give what the reference took before in the epoch of the resume, and the number of that epoch.

    An epoch ends where a sample comes again: a sampler without replacement gives each once.
    """
    seen: dict[Hashable, None] = {}
    epoch = 0
    for each in _flat(window.before):
        if each in seen:
            seen, epoch = {}, epoch + 1
        seen[each] = None
    after = _flat(window.ours)
    if after and after[0] in seen:
        return [], epoch + 1
    return list(seen), epoch


def _sets(window: Window, what: str) -> str:
    """Compare what both take after the resume as sets."""
    ours, theirs = _flat(window.ours), _flat(window.theirs)
    if sorted(map(str, ours)) == sorted(map(str, theirs)):
        return f"the same {what} in another order"
    before, epoch = _epoch_before(window)
    rest = _until_again(ours, before)
    theirs = theirs[: len(rest)]
    repeated = sorted(set(theirs) & set(before), key=_by_number)
    unseen = sorted(set(rest) - set(theirs) - set(before), key=_by_number)
    others = sorted(set(theirs) - set(before) - set(rest), key=_by_number)
    said = []
    if repeated:
        said.append(f"repeats ids {_set(repeated)}")
    if unseen:
        said.append(f"never sees {_set(unseen)}")
    if others:
        said.append(f"takes {_set(others)}, which the reference does not")
    within = (
        f"within epoch {epoch}, "
        if before and window.all_from_start
        else ("within this epoch, " if before else "")
    )
    return f"different {what}; {within}the resumed run {' and '.join(said) or 'takes them in another order'}"


def _until_again(ids: Sequence[Hashable], before: Sequence[Hashable]) -> list[Hashable]:
    """Give the ids up to the end of the epoch."""
    seen = set(before)
    for number, each in enumerate(ids):
        if each in seen:
            return list(ids[:number])
        seen.add(each)
    return list(ids)


def _by_number(each: Hashable) -> tuple[bool, int, str]:
    text = str(each)
    return (not text.isdigit(), int(text) if text.isdigit() else 0, text)


def _set(ids: Sequence[Hashable]) -> str:
    more = f", … {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return "{" + ", ".join(shorten(str(each), 24) for each in ids[:_SHOWN]) + more + "}"


def _ids(batch: Batch) -> str:
    return listed([str(each) for each in batch], 4) or "none"


def _moved(window: Window) -> tuple[int, int | None]:
    """Find by how many batches the order of the resumed run is moved, and whether to another epoch.

    Returns
    -------
    moved
        0 where it is not the same order.
    epoch
        The epoch that it is the order of, where that is another one at the same position; else None.
    """
    order = [*window.before, *window.ours]
    start, theirs = len(window.before), list(window.theirs)
    for at in sorted(range(len(order)), key=lambda at: abs(at - start)):
        part = order[at : at + len(theirs)]
        if at != start and len(part) > 1 and len(part) * 2 > len(theirs) and part == theirs[: len(part)]:
            places = _places(order)
            same_place = places[at][0] != places[start][0] and places[at][1] == places[start][1]
            return at - start, places[at][0] if same_place else None
    return 0, None


def _places(order: Sequence[Batch]) -> list[tuple[int, int]]:
    """Give the epoch and the position in it of every batch."""
    seen: set[Hashable] = set()
    epoch = position = 0
    found = []
    for batch in order:
        if seen & set(batch):
            seen, epoch, position = set(), epoch + 1, 0
        seen |= set(batch)
        found.append((epoch, position))
        position += 1
    return found


def _moved_words(moved: int, window: Window) -> str:
    way = "earlier" if moved < 0 else "later"
    effect = "seen twice" if moved < 0 else "never seen"
    num = abs(moved)
    skipped = window.before[moved:] if moved < 0 else window.ours[:moved]
    noun = "batch" if num == 1 else "batches"
    return (
        f"the same order, {num:,} {noun} {way} than the reference: {_set(_flat(skipped))} "
        f"{'is' if len(_flat(skipped)) == 1 else 'are'} {effect}"
    )
