"""Parameters as the runtime holds them, against the master weights that they are rebuilt from.

After a load the parameters of 16 bits are cast again from the copies of 32 bits. Where a checkpoint holds
both, each must be the other, rounded to nearest even; a side where they are not took another path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from detlab.checks.checkpoints.blocks import Source, boxes
from detlab.checks.checkpoints.files import OpenFiles
from detlab.checks.checkpoints.layout import Checkpoint, TensorLeaf
from detlab.checks.result import NotChecked, Verified
from detlab.checks.resume.components import MASTER, PARAMETERS, component_of, without_file
from detlab.checks.resume.negative_controls import Control
from detlab.checks.resume.state import Judged
from detlab.checks.resume.words import MORE_COLUMNS, Stage, counted, listed
from detlab.errors import InputError

NARROW: Final = ("bfloat16", "float16")
_BLOCK: Final = 1 << 20
"""Elements that are read of a tensor at a time."""

_MASTER_NAME: Final = re.compile(
    r"(?:^|\.)(?:fp32_param|main_params?|master_params?|master_weights?)(?=\.|$)|"
    r"^(?:[\w-]+\.)*?optim(?:izer)?(?:\.state)?(?:\.param)?(?=\.)"
)
_PREFIX: Final = re.compile(r"^(?:(?:model\d*|module|state_dict)\.)+")

Pair = tuple[str, TensorLeaf, TensorLeaf]
"""Name of a parameter, the parameter, and its master weights."""


@dataclass
class Rebuilt:
    """What the two representations say of each other.

    Attributes
    ----------
    judged, not_checked
        What was found, and why nothing was looked at.
    controls
        Runs the negative control.
    """

    judged: Judged = field(default_factory=Judged)
    not_checked: list[NotChecked] = field(default_factory=list)
    controls: Callable[[], Iterable[Control]] = tuple


def pairs_of(checkpoint: Checkpoint) -> list[Pair]:
    """Pair parameters of 16 bits with master weights of the same name and shape."""
    masters: dict[str, TensorLeaf] = {}
    narrow: dict[str, TensorLeaf] = {}
    for name, leaf in checkpoint.leaves.items():
        if not isinstance(leaf, TensorLeaf):
            continue
        component = component_of(name, is_tensor=True)
        if component == MASTER and leaf.dtype == "float32":
            masters[_bare(_MASTER_NAME.sub("", without_file(name)), name)] = leaf
        elif component == PARAMETERS and leaf.dtype in NARROW:
            narrow[_bare(name)] = leaf
    return [
        (name, narrow[name], masters[name])
        for name in sorted(narrow.keys() & masters.keys())
        if narrow[name].shape == masters[name].shape
    ]


def _bare(name: str, of: str = "") -> str:
    """Give the name of a parameter without what a framework puts before it, but for the file of its rank."""
    given = of or name
    file = given[: len(given) - len(without_file(given))]
    return file + _PREFIX.sub("", without_file(name).strip(".")).strip(".")


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint16]:
    """Cast numbers of 32 bits to 16, to nearest and ties to even; a NaN becomes the NaN of torch's cast.

    Parameters
    ----------
    values
        Any shape, float32.
    dtype
        ``bfloat16`` or ``float16``.

    Returns
    -------
    The bits, of the same shape.
    """
    if dtype == "float16":
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32).astype(np.uint64)
    up = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), up)


def num_not_cast(parameter: TensorLeaf, master: TensorLeaf, flip: bool = False) -> int:
    """Count the elements of a parameter that are not the cast of their master weight; two NaNs are alike.

    Parameters
    ----------
    parameter, master
        Tensors of one shape.
    flip
        Flip the last bit of the first element of the parameter: a negative control.

    Raises
    ------
    InputError, EOFError, OSError
        A tensor cannot be read whole.
    """
    different = 0
    order = tuple(range(len(parameter.shape)))
    with OpenFiles() as files:
        sources = [Source(leaf, order, files) for leaf in (parameter, master)]
        buffers = [np.empty(_BLOCK * source.item, np.uint8) for source in sources]
        for offsets, shape in boxes(parameter.shape, _BLOCK):
            raw = [
                source.read(offsets, shape, buffer) for source, buffer in zip(sources, buffers, strict=True)
            ]
            found, values = raw[0].view(np.uint16), raw[1].view(np.float32)
            if flip:
                found[0], flip = found[0] ^ 1, False
            wrong = found != rounded(values, parameter.dtype)
            if wrong.any():
                both_nan = _is_nan(found, parameter.dtype) & np.isnan(values)
                different += int((wrong & ~both_nan).sum())
    return different


def _is_nan(bits: NDArray[np.uint16], dtype: str) -> NDArray[np.bool_]:
    infinite = 0x7F80 if dtype == "bfloat16" else 0x7C00
    return np.asarray((bits & 0x7FFF) > infinite)


def check_rebuilt(a: Checkpoint, b: Checkpoint, stage: Stage) -> Rebuilt:
    """Check in each side that parameters are the cast of their master weights.

    Parameters
    ----------
    a, b
        The reference's checkpoint and the resumed run's.
    stage
        When they were saved.
    """
    sides = [pairs_of(each) for each in (a, b)]
    if not sides[1]:
        has = [any(component_of(name, is_tensor=True) == MASTER for name in each.leaves) for each in (a, b)]
        why = "its master weights cannot be paired with parameters by name: flat buffers, or other names"
        return Rebuilt(not_checked=[NotChecked(REBUILT, why)] if any(has) else [])
    try:
        wrong = [_not_cast(pairs) for pairs in sides]
    except (InputError, EOFError, OSError) as error:
        return Rebuilt(not_checked=[NotChecked(REBUILT, f"a tensor cannot be read: {error}")])
    num = len(sides[1])
    if not wrong[1]:
        said = (
            f"{counted(num, 'parameter')} of 16 bits are their master weights rounded to nearest even, "
            f"{stage.words}"
        )
        return Rebuilt(
            Judged(verified=(Verified(REBUILT, said, "exact: every bit"),)),
            controls=lambda: [_control(min(sides[1], key=lambda pair: int(np.prod(pair[1].shape))))],
        )
    if wrong[0] and len(wrong[0]) < len(sides[0]):
        return Rebuilt(Judged(findings=(_damaged(wrong[0], len(sides[0]), stage),)))
    if wrong[0]:
        note = (
            f"{REBUILT}: no parameter of the reference is its master weight rounded to nearest even: another "
            "rounding, or saved between the update and the cast"
        )
        return Rebuilt(Judged(notes=(note,)), [NotChecked(REBUILT, "the reference does not hold it either")])
    return Rebuilt(Judged(findings=(_finding(wrong[1], num, len(sides[0]), stage),)))


REBUILT: Final = "runtime parameters"


def _not_cast(pairs: Iterable[Pair]) -> dict[str, int]:
    """Give the number of elements that are not the cast, of each parameter with any."""
    found = {name: num_not_cast(parameter, master) for name, parameter, master in pairs}
    return {name: num for name, num in found.items() if num}


def _finding(wrong: dict[str, int], num: int, num_reference: int, stage: Stage) -> dict[str, Any]:
    holds = f"; in the reference all {num_reference:,} are" if num_reference else ""
    return _row(wrong, num, stage) | {
        "component": PARAMETERS,
        "severity": "error",
        "found": f"{_not_rounded(wrong, num)}{holds}: {_named(wrong)}",
        "why": "the resumed run holds parameters of one origin and master weights of another: the next "
        "update jumps to the master weights",
        "next": "copy the master weights to the parameters after the load, as the optimizer's step does",
    }


def _damaged(wrong: dict[str, int], num: int, stage: Stage) -> dict[str, Any]:
    """Tell of a checkpoint of the reference that does not hold one state."""
    return _row(wrong, num, stage) | {
        "component": MASTER,
        "severity": "warning",
        "found": f"in what the reference saved {_not_rounded(wrong, num)}, and the others are: "
        f"{_named(wrong)}",
        "why": "a rounding of another kind would change all of them: these master weights are not those that "
        "the reference trained with, so that no run can go on from this checkpoint as it did",
        "next": "save again with another sharding, and compare the master weights of both",
        # fully_reshardable checkpoints of a buffer of several buckets, until it was mended in May 2026
        "source": "as in NVIDIA/Megatron-LM#5077",
    }


def _row(wrong: dict[str, int], num: int, stage: Stage) -> dict[str, Any]:
    return {
        **dict.fromkeys(MORE_COLUMNS),
        "expected": "every parameter the cast of its master weight",
        "where": listed(list(wrong), 3),
        "stage": stage.label,
        "kind": "rebuilt",
        "names": list(wrong)[:20],
        "num_leaves": len(wrong),
        "of_leaves": num,
    }


def _not_rounded(wrong: dict[str, int], num: int) -> str:
    verb, whose = ("is", "its") if len(wrong) == 1 else ("are", "their")
    all_of = f"{len(wrong):,} of {counted(num, 'parameter')} of 16 bits"
    return f"{all_of} {verb} not rounded to nearest even from {whose} master weights"


def _named(wrong: dict[str, int]) -> str:
    return f"{listed(list(wrong), 2)} ({counted(sum(wrong.values()), 'element')})"


def _control(pair: Pair) -> Control:
    """Flip one bit of a cast parameter as it is read, and look for it."""
    name, parameter, master = pair
    caught = num_not_cast(parameter, master, flip=True) == 1
    return Control(REBUILT, "checkpoint", "one bit of a parameter", name, caught)
