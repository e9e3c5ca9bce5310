"""How far a replay has come: what its callback is told, and the count behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from detlab.kernel.worker.protocol import Result


class Progress(NamedTuple):
    """How far a replay has come.

    Attributes
    ----------
    condition
        Name of the condition whose trials are being made; empty where it has none.
    trials, distinct
        Trials made under this condition, and how many different results they gave.
    made, asked
        Trials made and asked for over all conditions.
    """

    condition: str
    trials: int
    distinct: int
    made: int
    asked: int


@dataclass(slots=True)
class ProgressCount:
    """Counts trials and different results for the user's callback."""

    callback: Callable[[Progress], object] | None
    asked: int
    _condition: str = ""
    _trials: int = 0
    _made: int = 0
    _seen: set[Result] = field(default_factory=set)

    def begin(self, condition: str) -> None:
        """Begin a condition and tell it, before its first trial."""
        self._condition, self._trials = condition, 0
        self._seen.clear()
        self._tell()

    def one(self, result: Result) -> None:
        """Count one trial more."""
        self._trials += 1
        self._made += 1
        self._seen.add(result)
        self._tell()

    def _tell(self) -> None:
        if self.callback is not None:
            distinct = len(self._seen)
            self.callback(Progress(self._condition, self._trials, distinct, self._made, self.asked))
