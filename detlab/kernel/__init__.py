"""One kernel, alone: replay a captured call many times and say what was seen, and how far that reaches."""

from detlab.kernel.report import ReplayClass, ReplayReport
from detlab.kernel.trials import replay

__all__ = ["ReplayClass", "ReplayReport", "replay"]
