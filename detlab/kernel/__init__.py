"""One kernel, alone: replay a captured call many times and say what was seen, and how far that reaches."""

from detlab.kernel.by_hand import capture, capture_module
from detlab.kernel.conditions import Condition
from detlab.kernel.fix_proof import prove_fix
from detlab.kernel.fix_proof.report import FixProof
from detlab.kernel.report import ReplayClass, ReplayReport, load_replay
from detlab.kernel.sweep import SizeSweep, replay_sizes
from detlab.kernel.trials import replay

__all__ = [
    "Condition",
    "FixProof",
    "ReplayClass",
    "ReplayReport",
    "SizeSweep",
    "capture",
    "capture_module",
    "load_replay",
    "prove_fix",
    "replay",
    "replay_sizes",
]
