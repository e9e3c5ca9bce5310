"""Find a function that could stand in a captured call's place by the name that a user typed."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from detlab.errors import InputError
from detlab.kernel import fixed
from detlab.kernel.worker.__main__ import import_callable

_MAX_NEAR = 3


def function_by_name(name: str) -> Callable[..., Any]:
    """Give a function of `detlab.kernel.fixed`, or import ``module:name`` on the user's word.

    Raises
    ------
    InputError
        There is none of this name.
    """
    if ":" in name:
        return import_callable(name)
    if name in fixed.__all__:
        found: Callable[..., Any] = getattr(fixed, name)
        return found
    near = get_close_matches(name, fixed.__all__, _MAX_NEAR, 0.4)
    known = f"is it {' or '.join(near)}?" if near else f"choose one of {', '.join(fixed.__all__)},"
    raise InputError(f"detlab.kernel.fixed has no {name!r}.", f"{known} or name your own as module:function")
