"""The results of many trials of one call, each held against the first, and the message when one differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import torch

from detlab.digest import tensor_digest
from detlab.kernel.statistics import ConditionResult, percent, summarize
from detlab.testing.difference import Difference, find_difference, plain_copy, tensor_text

_MAX_SHOWN: Final = 8
_Bits = tuple[int, torch.dtype, torch.Size]


class ComparedTrials:
    """Trials under one condition; the first one's results are kept, of every other only what differs.

    Parameters
    ----------
    condition
        The condition in a few words.
    """

    def __init__(self, condition: str) -> None:
        self.condition = condition
        self.first: dict[str, torch.Tensor] = {}
        self._results: list[tuple[tuple[str, _Bits], ...]] = []
        self._seen: dict[str, Counter[_Bits]] = {}
        self._found: dict[str, tuple[int, Difference | str]] = {}

    def add(self, results: Mapping[str, torch.Tensor]) -> None:
        """Add the named results of one trial."""
        digests = {name: _bits(tensor) for name, tensor in results.items()}
        self._results.append(tuple(digests.items()))
        if len(self._results) == 1:
            self.first = {name: plain_copy(tensor) for name, tensor in results.items()}
        for name, digest in digests.items():
            self._seen.setdefault(name, Counter())[digest] += 1
            if name not in self._found:
                self._look(name, results[name])
        for name in self.first.keys() - results.keys():
            self._found.setdefault(name, (len(self._results), "it is not there"))

    def names_that_differ(self) -> list[str]:
        """Give the results that were not the same in every trial, in order."""
        return [name for name in self._seen if name in self._found]

    def summary(self) -> ConditionResult:
        """Sum up the trials; a result is all outputs together."""
        return summarize(self.condition, self._results)

    def message(self) -> str:
        """Say what differs, where, how far and how often; empty when nothing does."""
        names = self.names_that_differ()
        if not names:
            return ""
        row = self.summary()
        lines = [
            f"not bitwise repeatable: {row.distinct:,} distinct results of the same inputs in {row.trials:,} "
            f"trials ({row.name}), the most frequent in {percent(row.modal_share)}"
        ]
        lines += [self._line(name) for name in names[:_MAX_SHOWN]]
        if len(names) > _MAX_SHOWN:
            lines.append(f"  and {len(names) - _MAX_SHOWN} more")
        return "\n".join(lines)

    def _look(self, name: str, tensor: torch.Tensor) -> None:
        first = self.first.get(name)
        found = "it was not there" if first is None else find_difference(first, plain_copy(tensor))
        if found is not None:
            self._found[name] = (len(self._results), found)

    def _line(self, name: str) -> str:
        counts, (trial, found) = self._seen[name], self._found[name]
        first = self.first.get(name)
        kind = f" ({tensor_text(first)})" if first is not None else ""
        others = len(self._results) - (self._num_equal_to_first(name) if first is not None else 0)
        return (
            f"  {name}{kind} differs from trial 1 in {others:,} of {len(self._results):,} trials, "
            f"{len(counts):,} distinct; in trial {trial} {found}"
        )

    def _num_equal_to_first(self, name: str) -> int:
        return self._seen[name][_bits(self.first[name])]


def _bits(tensor: torch.Tensor) -> _Bits:
    """Give what two results of the same bits have in common: the same bytes of another shape are others."""
    return tensor_digest(tensor.detach()), tensor.dtype, tensor.shape
