"""Prove a fix on one captured call: from the same bits, with it and without it, in turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from math import comb
from typing import Any, Final

import torch

from detlab.captures import Capture
from detlab.digest import tensor_digest
from detlab.errors import CaptureError, InputError
from detlab.kernel.conditions import Condition
from detlab.kernel.differences import OutputWatch
from detlab.kernel.fix_proof.report import FixProof, FixVerdict, Pair
from detlab.kernel.ops import find_op
from detlab.kernel.perturb.settings import settings_for
from detlab.kernel.restore import RestoredCall
from detlab.kernel.statistics import ConditionResult, percent, summarize

Func = Callable[..., Any]

_NUM_ROUNDS: Final = 5
"""In how many turns the two sides alternate, so that what else the machine does meets both alike."""

_ALPHA: Final = 0.05


def prove_fix(  # noqa: PLR0913 - each is a condition of both sides
    capture: Capture,
    fixed: Func | Mapping[str, Any] | Condition,
    *,
    trials: int = 60,
    call: Func | None = None,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
    allow: Collection[str] = (),
) -> FixProof:
    """Make a captured call without and with a fix, in turns and from the same bits, and compare the results.

    Parameters
    ----------
    fixed
        The fix: a callable that takes the captured arguments in place of the op; or what to set, such as
        ``{"deterministic": True}`` or ``{"threads": 1}``: any setting of a `detlab.kernel.Condition`.
    trials
        How often each side is called, 2 or more.
    call
        The captured function, where the capture is one of a Python function.
    threads, deterministic, device
        What both sides have unless the fix says so itself; None: as in training.
    allow
        Namespaces of ops, beside torch's own, that may run.

    Returns
    -------
    Verdict and table. ``holds``: results without the fix differ, none with it was seen to, and that is no
    luck at 95 %; ``fails``: results with the fix differ; ``undecided``: nothing differs without the fix, or
    so seldom that the trials cannot tell; ``invalid``: the fix cannot be run or gives something else.

    Raises
    ------
    CaptureError
        The captured call itself must not, or cannot, be made here.
    InputError
        Fewer than two trials, or a fix that is neither a callable nor a setting that can be had here.
    """
    if trials < 2:
        raise InputError(f"{trials} trials have nothing to differ from.", "say trials=2 or more")
    func = call or find_op(capture, allow)
    base = Condition(name="", threads=threads, deterministic=deterministic, device=device)
    setting = _setting(fixed).on(base) if not callable(fixed) else base
    unfixed = _Side(capture, func, base, "")
    other = _Side(capture, fixed if callable(fixed) else func, setting, _name(fixed))
    problems = _take_turns(unfixed, other, trials)
    return _judged(capture, unfixed, other, problems)


def chance_of_luck(mismatches: int, trials: int, fixed_trials: int) -> float:
    """Give the probability that all mismatches fall on the side without the fix, were the fix to do nothing.

    Fisher's exact test, one-sided (Fisher, The Design of Experiments, 1935): of all ways to lay so many
    mismatches among the trials of both sides, the share with none on the side of the fix. Trials that run
    back to back are not quite independent; the sides take turns, so that this meets both.
    """
    return comb(trials, mismatches) / comb(trials + fixed_trials, mismatches)


class _Side:
    """The trials of one side."""

    def __init__(self, capture: Capture, func: Func, condition: Condition, name: str) -> None:
        self._settings = settings_for(capture, condition)
        self.name = ", ".join(filter(None, [name, self._settings.name]))
        self.results: list[tuple[int, ...]] = []
        self.firsts: list[torch.Tensor] = []
        self.watches: list[OutputWatch] = []
        self.problem = ""
        with self._settings.applied():
            self._call = RestoredCall(capture, func, self._settings.device)

    def make(self, trials: int) -> None:
        """Make so many trials more."""
        with self._settings.applied():
            for _ in range(trials):
                outputs = self._run()
                if not self.watches:
                    if self._call.adopt_silent_writes():
                        outputs = self._run()
                    self.firsts = [output.clone() for output in outputs]
                    self.watches = [OutputWatch(output) for output in outputs]
                pairs = zip(self.watches, outputs, strict=True)
                self.results.append(tuple(watch.add(output) for watch, output in pairs))

    def summary(self) -> ConditionResult:
        """Sum up the trials."""
        status: Any = "crashed" if self.problem else "done"
        return summarize(self.name, self.results, status=status, note=self.problem)

    def spread_ulp(self) -> int | None:
        """Give how far its results lie apart, in ULP; None when no two numbers differ."""
        found = [watch.result(index).max_ulp for index, watch in enumerate(self.watches)]
        return max((ulp for ulp in found if ulp is not None), default=None)

    def _run(self) -> list[torch.Tensor]:
        self._call.reset()
        return self._call.run()


def _take_turns(unfixed: _Side, fixed: _Side, trials: int) -> list[str]:
    """Make the trials of both sides in turns; an error of the fix ends its side, the user ends both."""
    ends = [trials * turn // min(_NUM_ROUNDS, trials) for turn in range(min(_NUM_ROUNDS, trials) + 1)]
    try:
        for start, end in pairwise(ends):
            unfixed.make(end - start)
            if not fixed.problem:
                _make_fixed(fixed, end - start)
    except KeyboardInterrupt:
        made = f"{len(unfixed.results)} and {len(fixed.results)}"
        return [f"stopped by the user after {made} of {trials} trials"]
    return []


def _make_fixed(fixed: _Side, trials: int) -> None:
    try:
        fixed.make(trials)
    except CaptureError as error:
        fixed.problem = error.finding.partition("\n")[0]


def _judged(capture: Capture, unfixed: _Side, fixed: _Side, problems: list[str]) -> FixProof:
    if not unfixed.results:
        raise InputError("Stopped before the first trial.", "prove it again")
    rows = unfixed.summary(), fixed.summary()
    pairs = _pairs(unfixed, fixed)
    luck = None
    if fixed.results and rows[1].distinct == 1:
        mismatches = round(rows[0].trials * (1.0 - rows[0].modal_share))
        luck = chance_of_luck(mismatches, rows[0].trials, rows[1].trials)
    verdict, why = _verdict(*rows, pairs, luck)
    return FixProof(
        op=capture.op,
        site=capture.site,
        verdict=verdict,
        why=why,
        unfixed=rows[0],
        fixed=rows[1],
        pairs=pairs,
        is_among_unfixed=_is_among(fixed, unfixed),
        spread_ulp=unfixed.spread_ulp(),
        chance_of_luck=luck,
        input_digests=capture.input_digests,
        problems=(*problems, *_notes(unfixed, fixed, pairs, capture.input_digests)),
    )


def _pairs(unfixed: _Side, fixed: _Side) -> tuple[Pair, ...]:
    """Measure the first result with the fix against the first without it, output by output."""
    found = []
    for index, (a, b) in enumerate(zip(unfixed.firsts, fixed.firsts, strict=False)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            kinds = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (a, b)]
            found.append(Pair(index, f"gives {kinds[1]} in place of {kinds[0]}", 0, None, False))
            continue
        watch = OutputWatch(a)
        watch.add(a)
        watch.add(b)
        row = watch.result(index)
        found.append(Pair(index, "", row.elements_different, row.max_ulp, row.distinct == 1))
    return tuple(found)


def _is_among(fixed: _Side, unfixed: _Side) -> bool | None:
    """Say whether both sides gave one result alike, as far as both give outputs."""
    if not fixed.results:
        return None
    both = min(len(fixed.firsts), len(unfixed.firsts))
    return bool({result[:both] for result in fixed.results} & {result[:both] for result in unfixed.results})


def _verdict(
    unfixed: ConditionResult, fixed: ConditionResult, pairs: tuple[Pair, ...], luck: float | None
) -> tuple[FixVerdict, str]:
    """Name what was seen, and say it with its bound."""
    if fixed.status != "done" or not fixed.trials:
        return FixVerdict.INVALID, f"the fix cannot be run: {fixed.note or 'no trial was made'}"
    if odd := [pair for pair in pairs if pair.problem]:
        return FixVerdict.INVALID, f"the fix is none of this call: output {odd[0].index} {odd[0].problem}"
    counted = f"{fixed.distinct:,} distinct results in {fixed.trials:,} trials with it"
    if fixed.upper_bound_95 is None or luck is None:
        return FixVerdict.FAILS, f"results still differ with the fix: {counted}"
    seen = f"no mismatch in {fixed.trials:,} trials with the fix"
    bound = f"a rate above {percent(fixed.upper_bound_95)} is excluded at 95 %"
    if unfixed.distinct == 1:
        nothing = f"no mismatch in {unfixed.trials:,} trials without the fix either"
        return FixVerdict.UNDECIDED, f"{nothing}: nothing that it could have fixed was seen"
    before = f"{unfixed.distinct:,} distinct results in {unfixed.trials:,} trials without the fix"
    if luck > _ALPHA:
        why = f"{before}, {seen}: too few mismatches to tell the fix from luck (chance {percent(luck)})"
        return FixVerdict.UNDECIDED, why
    return FixVerdict.HOLDS, f"{before}, {seen}: {bound}"


def _notes(unfixed: _Side, fixed: _Side, pairs: tuple[Pair, ...], inputs: Collection[int]) -> list[str]:
    """Say what a reader must know of the fixed result before believing that it is right."""
    notes = []
    if more := len(fixed.firsts) - len(unfixed.firsts):
        rest = fixed.firsts[len(unfixed.firsts) :]
        if rest and all(tensor_digest(tensor) in inputs for tensor in rest):
            notes.append("the fix returns its result and leaves the argument that the call changes as it was")
        elif fixed.firsts:
            notes.append(
                f"the fix gives {abs(more)} {'more' if more > 0 else 'fewer'} outputs and mutated arguments "
                "than the call: only those that both give are compared"
            )
    spread, farthest = unfixed.spread_ulp(), max((pair.max_ulp or 0 for pair in pairs), default=0)
    if farthest > (spread or 0):
        beside = f"the results without it lie {spread:,} ULP apart" if spread else "the others do not differ"
        notes.append(
            f"the result with the fix lies {farthest:,} ULP away, {beside}: look whether it is right"
        )
    return notes


def _setting(fixed: Mapping[str, Any] | Condition) -> Condition:
    if not isinstance(fixed, Condition):
        if not isinstance(fixed, Mapping) or not fixed:
            raise InputError(
                f"{fixed!r} is no fix.", 'give a callable, or what to set: {"deterministic": True}'
            )
        try:
            fixed = Condition(**{"name": "fix", **fixed})
        except TypeError as error:
            known = ", ".join(name for name in Condition.__slots__ if name != "name")
            raise InputError(f"A fix cannot set that: {error}", f"set one of {known}") from error
    needs_more = fixed.load or fixed.caches or fixed.poison or fixed.offset_bytes or fixed.needs_process
    if needs_more or not fixed.changed:
        raise InputError(f"{fixed} is no setting that a fix can be.", 'set, for example, {"threads": 1}')
    return replace(fixed, trials=None)


def _name(fixed: Func | Mapping[str, Any] | Condition) -> str:
    if callable(fixed):
        return str(getattr(fixed, "__qualname__", None) or getattr(fixed, "__name__", type(fixed).__name__))
    chosen = _setting(fixed)
    return ", ".join(f"{name}={getattr(chosen, name)}" for name in sorted(chosen.changed))
