"""For tests: synthetic runs with one planted thing, and guards that a kernel or a module gives the same bits.

The synthetic runs need no torch; the guards do, and load it when they are first asked for.

>>> from detlab.testing import Call, make_run
>>> make_run({0: [Call("aten.mm.default", inputs=["w", "x"], outputs=["y"])]})
Run('synthetic': 1 of 1 ranks, steps 1, 1 events)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from detlab.testing.guards import assert_bitwise_repeatable
    from detlab.testing.module_guard import assert_module_repeatable
    from detlab.testing.synthetic import Call, make_metrics_run, make_rows, make_run, save_run, word_digest

__all__ = [
    "Call",
    "assert_bitwise_repeatable",
    "assert_module_repeatable",
    "make_metrics_run",
    "make_rows",
    "make_run",
    "save_run",
    "word_digest",
]

_HOME: Final = {
    "assert_bitwise_repeatable": "guards",
    "assert_module_repeatable": "module_guard",
}
"""The module of each name that is not of the synthetic runs."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'detlab.testing' has no attribute '{name}'")
    value = getattr(import_module(f"detlab.testing.{_HOME.get(name, 'synthetic')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
