"""Which ranks and steps are meant: ``"1-3,8"`` and the like, when a run is recorded and when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Final

from detlab.errors import DetlabError, InputError

_PART: Final = re.compile(r"\s*(-1|\d+)(?:(?<!-1)\s*-\s*(\d+))?\s*")
"""A number or a range; the calls in no step, -1, stand alone."""

Selectable = str | int | Iterable[int] | None
"""What a selection can be given as: ``"1-3,8"``, one number, several numbers, or None for all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A set of numbers as inclusive ranges; no ranges means all numbers.

    Attributes
    ----------
    text
        The selection as people write it, empty when it takes all.
    ranges
        Inclusive (first, last) pairs.
    """

    text: str = ""
    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, number: int) -> bool:
        return not self.text or any(first <= number <= last for first, last in self.ranges)

    @property
    def takes_all(self) -> bool:
        """Whether nothing was selected, so that every number is meant."""
        return not self.text

    @classmethod
    def parse(
        cls, given: Selectable, what: str, error: type[DetlabError] = InputError, *, least: int = 0
    ) -> Selection:
        """Read a selection.

        Parameters
        ----------
        given
            ``"1-3,8"``, one number, several numbers, or None for all.
        what
            Name of what is selected, for the error.
        error
            What is raised when it is not a selection, is empty, or a range runs backwards.
        least
            The least number there is: -1 where calls in no step can be asked for.
        """
        if given is None:
            return cls()
        if isinstance(given, int | Integral):  # numpy's integers too
            given = str(given)
        text = given if isinstance(given, str) else ",".join(map(str, given))
        ranges = [(part, _range_of(part)) for part in text.split(",")]
        for part, (first, last) in ranges:
            if not least <= first <= last:
                raise error(
                    f"{what}={text!r} does not select {what}: {part.strip()!r} is no number or range.",
                    f'write {what}="1-3,8", {what}=[1, 2, 3, 8], or leave it out for all',
                )
        return cls(text, tuple(found for _, found in ranges))


def _range_of(part: str) -> tuple[int, int]:
    """Read one number or range; give one that runs backwards for anything else."""
    match = _PART.fullmatch(part)
    return (int(match[1]), int(match[2] or match[1])) if match else (1, 0)


@dataclass(frozen=True, slots=True)
class Subset:
    """The part of a run that was asked for when it was loaded."""

    ranks: Selection = Selection()
    steps: Selection = Selection()

    @classmethod
    def parse(cls, ranks: Selectable = None, steps: Selectable = None) -> Subset:
        """Read both selections; raise `InputError` when one is none."""
        return cls(Selection.parse(ranks, "ranks"), Selection.parse(steps, "steps", least=-1))

    @property
    def takes_all(self) -> bool:
        """Whether the whole run is meant."""
        return self.ranks.takes_all and self.steps.takes_all

    def choose_ranks(self, found: Sequence[int], place: object) -> tuple[list[int], tuple[int, ...]]:
        """Divide the ranks of a run into those that were asked for and those left out.

        Raises
        ------
        InputError
            There are ranks, and none of them was asked for.
        """
        kept = [rank for rank in found if rank in self.ranks]
        if found and not kept:
            raise empty_selection(place, "ranks", self.ranks, found)
        return kept, tuple(rank for rank in found if rank not in self.ranks)


def empty_selection(place: object, what: str, asked: Selection, found: Sequence[int]) -> InputError:
    """Make the error about a selection that takes nothing of a run."""
    return InputError(
        f"{place} has none of {what}={asked.text!r}: it has {what} {spans(found)}.",
        f"ask for {what} that it has, or leave {what} out for all of them",
    )


def spans(numbers: Sequence[int]) -> str:
    """Write ascending numbers as spans, for example ``0-3, 8``; ``none`` when there are none.

    Negative ones, such as the -1 of calls in no step, stand alone: a span of them would be misread.
    """
    parts: list[str] = []
    start = 0
    for position, number in enumerate(numbers):
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1 or number < 0:
            first = numbers[start]
            parts.append(str(number) if first == number else f"{first}-{number}")
            start = position + 1
    return ", ".join(parts) or "none"
