"""Which steps and ranks are recorded: ``"1-3,8"`` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from detlab.errors import RecordingError

_PART: Final = re.compile(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*")


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

    @classmethod
    def parse(cls, given: str | int | Iterable[int] | None, what: str) -> Selection:
        """Read a selection.

        Parameters
        ----------
        given
            ``"1-3,8"``, one number, several numbers, or None for all.
        what
            Name of what is selected, for the error.

        Raises
        ------
        RecordingError
            It is not a selection, or a range runs backwards.
        """
        if given is None:
            return cls()
        if isinstance(given, int):
            given = str(given)
        text = given if isinstance(given, str) else ",".join(map(str, given))
        return cls(text, tuple(_read_range(part, text, what) for part in text.split(",")))


def _read_range(part: str, text: str, what: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise RecordingError(
            f"{what}={text!r} does not select {what}: {part.strip()!r} is neither a number nor a range.",
            f'write {what}="1-3,8", {what}=[1, 2, 3, 8], or leave it out for all',
        )
    return first, last
