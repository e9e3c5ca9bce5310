"""The guard of a function: make a call many times from the same bits, and fail when one trial gave others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from detlab.errors import InputError
from detlab.kernel.conditions import Condition
from detlab.kernel.statistics import ConditionResult
from detlab.testing.compared import ComparedTrials
from detlab.testing.difference import find_difference, plain_copy, tensor_text
from detlab.testing.guard_conditions import AskedCondition, condition_applied, guard_conditions
from detlab.testing.hold import (
    HeldGenerators,
    HeldTensors,
    StatePair,
    main_device,
    named_leaves,
    named_results,
)


def assert_bitwise_repeatable(
    fn: Callable[..., Any],
    *args: Any,
    trials: int = 20,
    conditions: Sequence[AskedCondition] = ({},),
    mutates: Collection[str | int] = (),
    same_across_conditions: bool = False,
    more_state: Sequence[StatePair] = (),
    **kwargs: Any,
) -> tuple[ConditionResult, ...]:
    """Make a call many times from the same bits; fail unless every trial gave the same bits.

    Before every trial the tensors among the arguments, the gradients of leaves and the generators (torch,
    Python, NumPy, those among the arguments) are put back. What is compared: everything that is returned, the
    arguments that `mutates` names, and the gradients that the call leaves on arguments. Afterwards all
    arguments and generators are as they were before.

    Parameters
    ----------
    fn, args, kwargs
        The call.
    trials
        How often it is made under each condition, 2 or more. Trials that show nothing exclude a rate above
        about 3 / trials at 95 %, no more.
    conditions
        What is held in each: what to set, such as ``{"threads": 4}`` or ``{"deterministic": True}``, a name
        such as ``"1 thread"``, ``"competing load"`` or ``"poisoned with nan"``, or a
        `detlab.kernel.Condition` that can be had in this process. What is not named stays as it is. The
        trials of one condition are held against each other.
    mutates
        The arguments that the call may change, by name or position. It is a failure when it changes another.
    same_across_conditions
        Whether the conditions must give the same bits as well.
    more_state
        Pairs (read, put back) of further state, such as those of Megatron's generator tracker.

    Returns
    -------
    One row a condition, with the bound that its trials reach.

    Raises
    ------
    AssertionError
        A trial gave other bits, or changed an argument; the message says which output, where, how far and
        in how many of the trials.
    InputError
        Fewer than two trials, no condition, or a name that is none of the arguments.
    """
    check_trials(trials)
    named = _named_arguments(fn, args, kwargs)
    allowed = _allowed(named, mutates)
    leaves = [leaf for name, value in named for leaf in named_leaves(value, name)]
    tensors = HeldTensors((name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor))
    device = main_device(leaf for _, leaf in leaves)
    generators = HeldGenerators([leaf for _, leaf in leaves if isinstance(leaf, torch.Generator)], more_state)

    def trial() -> dict[str, torch.Tensor]:
        tensors.restore()
        generators.restore()
        results = named_results(fn(*args, **kwargs), "output")
        results |= _checked_arguments(tensors, allowed)
        return results | {f"gradient of {name}": grad for name, grad in tensors.gradients().items()}

    try:
        asked = guard_conditions(conditions, device)
        return compare_trials(trial, trials, asked, device, same_across_conditions=same_across_conditions)
    finally:
        tensors.restore_all()
        generators.restore()


def compare_trials(
    trial: Callable[[], Mapping[str, torch.Tensor]],
    trials: int,
    conditions: Sequence[Condition],
    device: str,
    *,
    same_across_conditions: bool = False,
    explain: Callable[[], str] = str,
) -> tuple[ConditionResult, ...]:
    """Make the trials of every condition and fail when they do not agree.

    Parameters
    ----------
    device
        Where the call runs.
    explain
        Gives a further line of the message, or an empty one.
    """
    rows: list[ConditionResult] = []
    firsts = ComparedTrials("one trial of each condition")
    for condition in conditions:
        with condition_applied(condition, device) as applied:
            compared = ComparedTrials(applied.name)
            for _ in range(applied.trials or trials):
                compared.add(applied.make(trial))
        if message := compared.message():
            raise AssertionError("\n".join(filter(None, [message, explain()])))
        firsts.add(compared.first)
        rows.append(compared.summary())
    if same_across_conditions and (message := firsts.message()):
        names = "; ".join(f"trial {number}: {row.name}" for number, row in enumerate(rows, 1))
        raise AssertionError(f"{message}\n  {names}")
    return tuple(rows)


def check_trials(trials: int) -> None:
    """Refuse what can show nothing."""
    if trials < 2:
        raise InputError(f"{trials} trials have nothing to differ from.", "say trials=2 or more")


def _named_arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Name the arguments as the function does; by position where it does not say."""
    names = _parameter_names(fn)
    names += [f"argument {position}" for position in range(len(names), len(args))]
    return [*zip(names, args, strict=False), *kwargs.items()]


def _parameter_names(fn: Callable[..., Any]) -> list[str]:
    if isinstance(fn, torch._ops.OpOverload):
        return [argument.name for argument in fn._schema.arguments]
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # many builtins do not say
        return []
    return [
        each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]


def _allowed(named: Sequence[tuple[str, Any]], mutates: Collection[str | int]) -> dict[str, Any]:
    """Give the arguments that may be changed, by name."""
    known = dict(named)
    chosen = {}
    for each in mutates:
        name = named[each][0] if isinstance(each, int) and each < len(named) else each
        if name not in known:
            raise InputError(
                f"mutates names {each!r}, which is no argument of the call.",
                f"name one of {', '.join(known)}",
            )
        chosen[str(name)] = known[name]
    return chosen


def _checked_arguments(tensors: HeldTensors, allowed: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Give the arguments that may be changed as results; fail when another one was."""
    leaves = [pair for name, value in allowed.items() for pair in named_leaves(value, name)]
    declared = {name: leaf for name, leaf in leaves if isinstance(leaf, torch.Tensor)}
    shared = {leaf.untyped_storage().data_ptr() for leaf in declared.values()}
    for name, before, after in tensors.changed():
        if after.untyped_storage().data_ptr() not in shared:
            found = find_difference(plain_copy(before), plain_copy(after))
            raise AssertionError(
                f"the call changes its argument {name} ({tensor_text(before)}), which mutates does not name; "
                f"{found}\nHint: if it shall, say mutates=[{name.split('[')[0]!r}]"
            )
    return {f"argument {name}": leaf for name, leaf in declared.items()}
