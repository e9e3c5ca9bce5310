"""One kernel, alone: replay a captured call many times and say what was seen, and how far that reaches.

torch is loaded when a public name is first used, so that the names of the conditions cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from detlab.kernel.by_hand import capture, capture_module
    from detlab.kernel.conditions import Condition
    from detlab.kernel.fix_proof import prove_fix
    from detlab.kernel.fix_proof.report import FixProof
    from detlab.kernel.report import ReplayClass, ReplayReport, load_replay
    from detlab.kernel.sweep import SizeSweep, replay_sizes
    from detlab.kernel.trials import replay
    from detlab.kernel.trials.progress import Progress
    from detlab.kernel.verdict.experiment import read_experiment

__all__ = [
    "Condition",
    "FixProof",
    "Progress",
    "ReplayClass",
    "ReplayReport",
    "SizeSweep",
    "capture",
    "capture_module",
    "load_replay",
    "prove_fix",
    "read_experiment",
    "replay",
    "replay_sizes",
]

_HOME: Final = {
    "Condition": "conditions",
    "FixProof": "fix_proof.report",
    "Progress": "trials.progress",
    "ReplayClass": "report",
    "ReplayReport": "report",
    "SizeSweep": "sweep",
    "capture": "by_hand",
    "capture_module": "by_hand",
    "load_replay": "report",
    "prove_fix": "fix_proof",
    "read_experiment": "verdict.experiment",
    "replay": "trials",
    "replay_sizes": "sweep",
}
"""The module that each public name lives in."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'detlab.kernel' has no attribute '{name}'")
    value = getattr(import_module(f"detlab.kernel.{_HOME[name]}"), name)
    globals()[name] = value
    return value
