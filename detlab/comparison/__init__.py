"""Two runs to verdicts: align events, judge each pair by the site rule, group what belongs together."""

from detlab.comparison.compare import compare
from detlab.comparison.findings import Finding
from detlab.comparison.result import Comparison
from detlab.comparison.saved import load_comparison

__all__ = ["Comparison", "Finding", "compare", "load_comparison"]
