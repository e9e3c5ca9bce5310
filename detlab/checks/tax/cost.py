"""What the tax comes to for a whole training: GPU-days, with every assumption said."""

from __future__ import annotations

from dataclasses import dataclass

from detlab.checks.tax.interval import Ratio
from detlab.errors import InputError

_MS_OF_A_DAY = 86_400_000.0


@dataclass(frozen=True)
class Plan:
    """A training to reckon the tax for.

    Attributes
    ----------
    gpus
        How many it uses.
    days
        How long it takes without determinism; or
    train_steps
        how many steps it has.
    """

    gpus: int
    days: float | None = None
    train_steps: int | None = None


def plan_of(gpus: int | None, days: float | None, train_steps: int | None) -> Plan | None:
    """Take the numbers that somebody gave for a training together; None where nobody asked.

    Raises
    ------
    InputError
        They do not make a training: no GPUs, or neither days nor steps, or both, or one that is not positive.
    """
    if gpus is None and days is None and train_steps is None:
        return None
    given = [each for each in (gpus, days, train_steps) if each is not None]
    if gpus is None or (days is None) == (train_steps is None) or any(not 0 < each < 1e12 for each in given):
        raise InputError(
            f"gpus={gpus}, days={days}, train_steps={train_steps} make no training.",
            "give gpus and either days or train_steps, all positive",
        )
    return Plan(gpus, days, train_steps)


def cost_text(plan: Plan, ratio: Ratio, default_ms: float | None) -> str:
    """Say what determinism costs a training, with what was assumed.

    Parameters
    ----------
    plan
        The training.
    ratio
        Of the step times.
    default_ms
        The median step time of the default side; None where only a rate was logged.

    Raises
    ------
    InputError
        Steps were given, and how long one takes is not known.
    """
    if plan.days is not None:
        days, of = plan.days, f"{plan.days:,.4g} days without determinism"
    elif default_ms is None:
        raise InputError(
            "How long a step takes is not logged, only a rate.", "give days instead of train_steps"
        )
    else:
        steps = plan.train_steps or 0
        days = steps * default_ms / _MS_OF_A_DAY
        of = f"{steps:,} steps of {default_ms:,.6g} ms, which are {days:,.4g} days"
    said = f"GPU-days that determinism adds: {_gpu_days(plan, days, ratio.value)}"
    if ratio.ends:
        low, high = (_gpu_days(plan, days, end) for end in ratio.ends)
        said += f" (95 % interval {low} to {high})"
    return (
        f"{said}, assuming {plan.gpus:,} GPUs, {of}, every step as the median of those measured, "
        "the same ratio at this scale, and no time for checkpoints, evaluation and restarts"
    )


def _gpu_days(plan: Plan, days: float, ratio: float) -> str:
    return f"{plan.gpus * days * (ratio - 1):+,.4g}"
