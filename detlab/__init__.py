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
    from detlab import samples, testing, views, widgets
    from detlab.captures import Capture, load_capture
    from detlab.checks import (
        Certificate,
        CheckResult,
        certify,
        check_kernels,
        check_recipe,
        check_recompute,
        check_replicas,
        check_resume,
        check_tax,
        check_trace,
        compare_recipes,
    )
    from detlab.comparison import (
        Association,
        ChangeComparison,
        Comparison,
        MetricsComparison,
        Triage,
        associate,
        attribute_failure,
        attribute_failures,
        compare,
        compare_change,
        compare_many,
        compare_metrics,
        find_failures,
        load_comparison,
        recurs_at,
        triage,
    )
    from detlab.errors import DetlabError
    from detlab.kernel import (
        Condition,
        FixProof,
        ReplayReport,
        capture,
        capture_module,
        load_replay,
        prove_fix,
        replay,
        replay_sizes,
    )
    from detlab.readers import load_run
    from detlab.record import Recorder
    from detlab.run import Run
    from detlab.views import report
    from detlab.widgets import explore

__version__ = "0.1.0"

__all__ = [
    "Association",
    "Capture",
    "Certificate",
    "ChangeComparison",
    "CheckResult",
    "Comparison",
    "Condition",
    "DetlabError",
    "FixProof",
    "MetricsComparison",
    "Recorder",
    "ReplayReport",
    "Run",
    "Triage",
    "associate",
    "attribute_failure",
    "attribute_failures",
    "capture",
    "capture_module",
    "certify",
    "check_kernels",
    "check_recipe",
    "check_recompute",
    "check_replicas",
    "check_resume",
    "check_tax",
    "check_trace",
    "compare",
    "compare_change",
    "compare_many",
    "compare_metrics",
    "compare_recipes",
    "explore",
    "find_failures",
    "load_capture",
    "load_comparison",
    "load_replay",
    "load_run",
    "prove_fix",
    "recurs_at",
    "replay",
    "replay_sizes",
    "report",
    "samples",
    "testing",
    "triage",
    "views",
    "widgets",
]

_HOME: Final = {
    "Association": "comparison",
    "Capture": "captures",
    "Certificate": "checks",
    "ChangeComparison": "comparison",
    "CheckResult": "checks",
    "Comparison": "comparison",
    "Condition": "kernel",
    "DetlabError": "errors",
    "FixProof": "kernel",
    "MetricsComparison": "comparison",
    "Recorder": "record",
    "ReplayReport": "kernel",
    "Run": "run",
    "Triage": "comparison",
    "associate": "comparison",
    "attribute_failure": "comparison",
    "attribute_failures": "comparison",
    "capture": "kernel",
    "capture_module": "kernel",
    "certify": "checks",
    "check_kernels": "checks",
    "check_recipe": "checks",
    "check_recompute": "checks",
    "check_replicas": "checks",
    "check_resume": "checks",
    "check_tax": "checks",
    "check_trace": "checks",
    "compare": "comparison",
    "compare_change": "comparison",
    "compare_many": "comparison",
    "compare_metrics": "comparison",
    "compare_recipes": "checks",
    "explore": "widgets",
    "find_failures": "comparison",
    "load_capture": "captures",
    "load_comparison": "comparison",
    "load_replay": "kernel",
    "load_run": "readers",
    "prove_fix": "kernel",
    "recurs_at": "comparison",
    "replay": "kernel",
    "replay_sizes": "kernel",
    "report": "views",
    "triage": "comparison",
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
