"""The experiment with three arms, read from supplied results: plain, deterministic, and without the fill.

``torch.use_deterministic_algorithms(True)`` also fills fresh memory. A result that becomes stable under it
was either a sum without an order or a read of what nobody wrote, and only the third arm, deterministic
algorithms without the fill, tells the two apart. `detlab.kernel.replay` makes these arms from a capture; this
is for results that were made elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from detlab.kernel.verdict import FILL, ReplayClass, Row, judge
from detlab.text import plural

ARMS: Final = (
    "plain",
    "deterministic algorithms with memory fill",
    "deterministic algorithms without memory fill",
)
"""Names of the arms; the last two are conditions of `detlab.kernel.replay`."""

_BY_DESIGN: Final = "deterministic algorithms"


class Result(NamedTuple):
    """One result of one repeat.

    Attributes
    ----------
    digest
        What is equal only for equal bytes: a hash of all of them, or the bytes themselves.
    num_nan
        Number of NaNs in it.
    """

    digest: Hashable
    num_nan: int = 0


@dataclass(frozen=True, repr=False)
class Experiment:
    """What three arms say.

    Attributes
    ----------
    rows
        One line an arm: its name, how many results it has, how many different ones, and how many of them hold
        NaNs.
    outcome
        The class.
    conclusion
        What is likely, in words.
    why
        What decided it.
    """

    rows: tuple[tuple[str, int, int, int], ...]
    outcome: ReplayClass
    conclusion: str
    why: tuple[str, ...]

    def __repr__(self) -> str:
        width = max(len(name) for name in ARMS)
        table = [f"{name:<{width}}  {_counted(*counts)}" for name, *counts in self.rows]
        return "\n".join(
            [f"{self.conclusion}: {'; '.join(self.why)}" if self.why else self.conclusion, *table]
        )


def read_experiment(
    plain: Sequence[Result], filled: Sequence[Result], unfilled: Sequence[Result]
) -> Experiment:
    """Say what three arms of repeats of one call, on equal inputs, show.

    Parameters
    ----------
    plain
        Results without deterministic algorithms.
    filled
        Results with them, as torch turns them on: fresh memory is filled with NaN.
    unfilled
        Results with them and ``torch.utils.deterministic.fill_uninitialized_memory = False``.

    Returns
    -------
    ``uninitialised`` where NaNs come with the fill alone, or where the variation that the flag stopped
    returns without the fill: a read of memory that nobody wrote is likely, and the flag hid it. ``race``
    where deterministic algorithms end the variation with and without the fill, or do not end it.
    """
    arms = tuple(zip(ARMS, (plain, filled, unfilled), strict=True))
    rows = [_row(name, results) for name, results in arms if results]
    verdict = judge(rows)
    why = (*verdict.why, *_returns(filled, unfilled, verdict.why))
    return Experiment(
        rows=tuple(
            (
                name,
                len(results),
                len({each.digest for each in results}),
                sum(each.num_nan > 0 for each in results),
            )
            for name, results in arms
        ),
        outcome=verdict.outcome,
        conclusion=_conclusion(verdict.outcome, [{each.digest for each in results} for _, results in arms]),
        why=why,
    )


def result_of(values: object) -> Result:
    """Give the result that an array, or anything numpy reads as one, is: its bytes, and its NaNs.

    A dtype that numpy does not have, such as bfloat16, must be viewed as integers: its NaNs are not seen.
    """
    array = np.ascontiguousarray(values)
    has_nans = np.issubdtype(array.dtype, np.inexact)
    digest = (str(array.dtype), array.shape, array.tobytes())
    return Result(digest, int(np.isnan(array).sum()) if has_nans else 0)


def _row(name: str, results: Sequence[Result]) -> Row:
    nans = [each.num_nan for each in results]
    return Row(
        name=name,
        groups=(tuple(each.digest for each in results),),
        design="" if name == ARMS[0] else _BY_DESIGN,
        memory=FILL if name == ARMS[1] else "",
        least_nan=min(nans),
        most_nan=max(nans),
    )


def _returns(filled: Sequence[Result], unfilled: Sequence[Result], said: Sequence[str]) -> Iterator[str]:
    """Say that the variation is back without the fill, where the verdict does not say so itself."""
    with_fill, without = ({each.digest for each in results} for results in (filled, unfilled))
    if len(with_fill) == 1 and len(without) > 1 and not any("variation returns" in why for why in said):
        counts = f"{len(without)} of {len(unfilled)}"
        yield f"one result with the fill, and variation returns without it ({counts})"


def _conclusion(outcome: ReplayClass, distinct: Sequence[set[Hashable]]) -> str:
    plain, filled, unfilled = map(len, distinct)
    if outcome is ReplayClass.UNINITIALISED:
        return "uninitialised read likely"
    if outcome is ReplayClass.RACE:
        if filled == unfilled == 1 < plain:
            return "unordered reduction likely, which deterministic algorithms order"
        return "race, which deterministic algorithms do not end"
    return outcome.replace("_", " ")


def _counted(trials: int, distinct: int, with_nan: int) -> str:
    nans = f", {with_nan} with NaN" if with_nan else ""
    return f"{distinct} distinct of {trials} {plural('result', trials)}{nans}"
