"""Two runs to verdicts: align events, judge each pair by the site rule, group what belongs together."""

from detlab.comparison.compare import compare
from detlab.comparison.findings import Finding
from detlab.comparison.result import Comparison

__all__ = ["Comparison", "Finding", "compare"]
