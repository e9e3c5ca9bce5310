"""One kernel, alone: replay a captured call many times and say what was seen, and how far that reaches."""

from detlab.kernel.by_hand import capture, capture_module
from detlab.kernel.conditions import Condition
from detlab.kernel.report import ReplayClass, ReplayReport, load_replay
from detlab.kernel.sweep import SizeSweep, replay_sizes
from detlab.kernel.trials import replay

__all__ = [
    "Condition",
    "ReplayClass",
    "ReplayReport",
    "SizeSweep",
    "capture",
    "capture_module",
    "load_replay",
    "replay",
    "replay_sizes",
]
