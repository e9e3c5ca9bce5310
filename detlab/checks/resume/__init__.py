"""Did the resumed run resume: the state at load, the data, and the steps after it, with negative controls."""

from detlab.checks.resume.check import check_resume, controls
from detlab.checks.resume.negative_controls import Control

__all__ = ["Control", "check_resume", "controls"]
