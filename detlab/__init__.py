"""detlab: where, on which ranks and because of which kernel did two training runs stop being the same bits.

>>> import detlab as dl
>>> cmp = dl.compare("monday", "tuesday")  # doctest: +SKIP

Every public name is imported when it is first used: ``import detlab`` loads none of the libraries
that the parts stand on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from detlab import samples, testing, views
    from detlab.captures import Capture, load_capture
    from detlab.comparison import (
        Comparison,
        check_recompute,
        check_replicas,
        compare,
        compare_many,
        load_comparison,
    )
    from detlab.errors import DetlabError
    from detlab.kernel import ReplayReport, replay
    from detlab.readers import load_run
    from detlab.record import Recorder
    from detlab.run import Run
    from detlab.views import report

__version__ = "0.1.0"

__all__ = [
    "Capture",
    "Comparison",
    "DetlabError",
    "Recorder",
    "ReplayReport",
    "Run",
    "check_recompute",
    "check_replicas",
    "compare",
    "compare_many",
    "load_capture",
    "load_comparison",
    "load_run",
    "replay",
    "report",
    "samples",
    "testing",
    "views",
]

_HOME: Final = {
    "Capture": "captures",
    "Comparison": "comparison",
    "DetlabError": "errors",
    "Recorder": "record",
    "ReplayReport": "kernel",
    "Run": "run",
    "check_recompute": "comparison",
    "check_replicas": "comparison",
    "compare": "comparison",
    "compare_many": "comparison",
    "load_capture": "captures",
    "load_comparison": "comparison",
    "load_run": "readers",
    "replay": "kernel",
    "report": "views",
}
"""The module that each public name lives in; names that are not here are modules themselves."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'detlab' has no attribute '{name}'")
    home = _HOME.get(name)
    module = import_module(f"detlab.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
