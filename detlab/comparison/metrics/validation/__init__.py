"""Whose fault a result is that failed validation: Megatron's three-way logic, from results that are supplied.

``megatron/core/rerun_state_machine.py`` runs a step again when a result looks wrong. First in place: another
result on the same device is a *transient* fault. Then, after a resume, elsewhere: another result there is a
*persistent* fault of the first device, and the same result is right, or a fault of the *application*. A rerun
elsewhere that came back to the same device decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.comparison.metrics.validation.equality import Value, are_equal
from detlab.comparison.metrics.validation.rows import CASE_COLUMNS, validation_cases
from detlab.comparison.text import wrapped
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run

ATTEMPTS: Final = ("initial", "first rerun", "second rerun")
"""The run that failed, the rerun in place, and reruns after a resume, meant for another device."""

TRANSIENT: Final = "transient"
PERSISTENT: Final = "persistent"
APPLICATION: Final = "application"
INSUFFICIENT: Final = "insufficient evidence"


class ValidationResult(NamedTuple):
    """One result of the same calculation.

    Attributes
    ----------
    attempt
        One of `ATTEMPTS`.
    node, device
        Where it ran; None: not known.
    value
        A float is exact, a text was printed (a number, or anything else); None: not known.
    status
        What Megatron called it, for example ``FIRST_RERUN_REPRODUCIBLE``; "" where it said nothing.
    """

    attempt: str
    node: str | None
    device: int | str | None
    value: Value
    status: str = ""

    @property
    def place(self) -> str:
        """The device for people."""
        return f"{self.node} device {self.device}"

    @property
    def has_place(self) -> bool:
        """Whether it is known where it ran."""
        return self.node is not None and self.device is not None


@dataclass(frozen=True, slots=True, repr=False)
class Attribution:
    """What results say together.

    Attributes
    ----------
    conclusion
        ``transient``, ``persistent``, ``application`` or ``insufficient evidence``.
    node, device
        The suspect of a transient or persistent fault; None otherwise.
    evidence
        ``exact``, or ``printed`` when a result is known as text alone.
    why, next
        What showed it, and the cheapest experiment that would decide.
    results
        What it rests on.
    """

    conclusion: str
    node: str | None
    device: int | str | None
    evidence: str
    why: str
    next: str
    results: tuple[ValidationResult, ...]

    def __repr__(self) -> str:
        suspect = f" fault suspected on {self.node} device {self.device}" if self.node is not None else ""
        lines = [f"{self.conclusion.upper()}{suspect}: {self.why}", f"  next: {self.next}"]
        lines.append(f"{len(self.results)} results. Evidence: {self.evidence}")
        return "\n".join(map(wrapped, lines))


def attribute_failure(
    results: pl.DataFrame | Iterable[ValidationResult | Mapping[str, Any] | tuple[Any, ...]],
    *,
    tolerance: float | None = None,
) -> Attribution:
    """Decide whether a wrong result is a transient or persistent fault of a device, or of the application.

    Parameters
    ----------
    results
        All results of one calculation: `ValidationResult`, or its fields as a mapping or a tuple
        ``(attempt, node, device, value)``; or a frame with these columns.
    tolerance
        Greatest relative difference of results that count as equal; by default they are equal when their
        bits are, or when they were printed alike. NaN equals NaN.

    Raises
    ------
    InputError
        A result has fields or an attempt that do not exist.
    """
    table = results.iter_rows(named=True) if isinstance(results, pl.DataFrame) else results
    told = tuple(_result(each) for each in table)
    by_attempt = {name: [each for each in told if each.attempt == name] for name in ATTEMPTS}
    conclusion, suspect, why, then = _decide(by_attempt, tolerance)
    exact = all(isinstance(each.value, float) for each in told)
    return Attribution(
        conclusion,
        suspect.node if suspect else None,
        suspect.device if suspect else None,
        "exact" if exact else "printed",
        f"{why}{_contradiction(told, tolerance)}.",
        then,
        told,
    )


def attribute_failures(run: Run | str | PathLike[str], *, tolerance: float | None = None) -> pl.DataFrame:
    """Attribute every failed validation that the logs or the tracker file of a run tell of.

    Parameters
    ----------
    run
        A run with a log, or the path of its log or of Megatron's tracker file.
    tolerance
        As in `attribute_failure`; Megatron itself allows 0.001 for grad norms and the loss.

    Returns
    -------
    One row per failure, in the order of the log: ``step`` and ``rank`` (null: not known), ``message`` (what
    failed), ``conclusion``, ``node`` and ``device`` (the suspect), ``num_results``, ``evidence``, ``why``,
    ``next``.
    """
    log = as_run(run).log
    rows = []
    for case in validation_cases(log.messages) if log else ():
        known = [ValidationResult(*each) for each in case.results]
        found = attribute_failure(known, tolerance=tolerance)
        rows.append(
            {
                "step": case.step,
                "rank": case.rank,
                "message": case.message,
                "num_results": len(known),
                **{name: getattr(found, name) for name in CASE_COLUMNS if hasattr(found, name)},
            }
        )
    return pl.DataFrame(rows, CASE_COLUMNS)


_Decision = tuple[str, ValidationResult | None, str, str]
"""Conclusion, suspect, why and next."""


def _decide(results: Mapping[str, list[ValidationResult]], tolerance: float | None) -> _Decision:
    if not results["initial"]:
        return INSUFFICIENT, None, "the result of the initial run is missing", "give the result that failed"
    initial = results["initial"][0]
    if not initial.has_place:
        return INSUFFICIENT, None, "it is not known on which device the initial run ran", "give its device"
    reruns = [each for name in ATTEMPTS[1:] for each in results[name]]
    lost = [each for each in reruns if not each.has_place]
    if lost:
        why = f"it is not known on which device the {_called(lost[0])} ran"
        return INSUFFICIENT, None, why, "give its device"
    in_place = [each for each in results["first rerun"] if _same_place(each, initial)]
    for each in in_place:
        if are_equal(each.value, initial.value, tolerance) is False:
            return _transient(initial, each)
    return _elsewhere(initial, reruns, tolerance)


def _transient(initial: ValidationResult, rerun: ValidationResult) -> _Decision:
    why = (
        f"{initial.place} gave {initial.value}, and {rerun.value} when the step was run again there: the "
        "result does not come back"
    )
    then = (
        f"replay the step many times on {initial.place} and on another device; if it differs on both, "
        "the calculation is not deterministic"
    )
    return TRANSIENT, initial, why, then


def _elsewhere(
    initial: ValidationResult, reruns: list[ValidationResult], tolerance: float | None
) -> _Decision:
    """Judge the reruns on other devices, when the first rerun in place gave nothing else."""
    verdicts = [
        (each, _same_place(each, initial), are_equal(each.value, initial.value, tolerance)) for each in reruns
    ]
    same = [each for each, here, equal in verdicts if not here and equal]
    differing = [each for each, here, equal in verdicts if not here and equal is False]
    came_back = [each for each, here, equal in verdicts if here and equal]
    against = differing + [each for each, here, equal in verdicts if here and equal is False]
    if same and against:
        why = f"{same[0].place} gave {initial.value} as {initial.place} did, and {_gave(against[0])}"
        return INSUFFICIENT, None, why, "replay the step on each of these devices many times"
    if same:
        why = f"{same[0].place} and {initial.place} both gave {initial.value}, so that no device is suspect"
        return APPLICATION, None, why, "look for the cause in data, code and optimisation: record these steps"
    if differing and came_back:
        why = f"{initial.place} gave {initial.value} in both runs, and {_gave(differing[0])}"
        return PERSISTENT, initial, why, f"take {initial.place} out and test it; the step can go on elsewhere"
    return _open(initial, differing, reruns)


def _open(
    initial: ValidationResult, differing: list[ValidationResult], reruns: list[ValidationResult]
) -> _Decision:
    """Say what is missing for a conclusion."""
    unknown = [each for each in (initial, *reruns) if each.value is None]
    elsewhere = "resume from the same checkpoint, with another device for this rank"
    if any(each.attempt == "second rerun" and _same_place(each, initial) for each in reruns):
        why, then = f"the second rerun was on the same device, {initial.place}", elsewhere
    elif unknown:
        why = f"the result of the {_called(unknown[0])} on {unknown[0].place} is not known"
        then = "give the result itself"
    elif differing:
        why = (
            f"{_gave(differing[0])}, but no rerun on {initial.place} says whether {initial.value} comes back"
        )
        then = f"run the step again on {initial.place}"
    elif reruns:
        why = f"{initial.place} gave {initial.value} in both runs, and no other device ran the step"
        then = elsewhere
    else:
        why = f"only {initial.place} ran the step, and only once"
        then = f"run the step again on {initial.place}"
    return INSUFFICIENT, None, why, then


def _called(result: ValidationResult) -> str:
    return "initial run" if result.attempt == "initial" else result.attempt


def _gave(other: ValidationResult) -> str:
    return f"{other.place} gave {other.value}"


def _same_place(one: ValidationResult, other: ValidationResult) -> bool:
    return (one.node, one.device) == (other.node, other.device)


def _contradiction(results: tuple[ValidationResult, ...], tolerance: float | None) -> str:
    """Say where Megatron, with a tolerance of its own, called a rerun otherwise."""
    initial = next((each for each in results if each.attempt == "initial"), None)
    for each in results:
        equal = are_equal(each.value, initial.value, tolerance) if initial else None
        said = each.status.upper()
        if each.attempt != "initial" and equal is not None and said.endswith("REPRODUCIBLE"):
            reproducible = not said.endswith("NOT_REPRODUCIBLE")
            if reproducible != equal:
                called = "reproducible" if reproducible else "not reproducible"
                return f"; Megatron called the {each.attempt} {called}, within a tolerance of its own"
    return ""


def _result(given: ValidationResult | Mapping[str, Any] | tuple[Any, ...]) -> ValidationResult:
    try:
        found = ValidationResult(**given) if isinstance(given, Mapping) else ValidationResult(*given)
    except TypeError as error:
        raise InputError(
            f"{given!r} is no result of a validation.", "give (attempt, node, device, value)"
        ) from error
    if found.attempt not in ATTEMPTS:
        raise InputError(f"'{found.attempt}' is no attempt.", f"name one of: {', '.join(ATTEMPTS)}")
    value = found.value if found.value is None or isinstance(found.value, str) else float(found.value)
    return found._replace(value=value)
