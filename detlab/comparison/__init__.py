"""Runs to verdicts: align events, judge each pair by the site rule, group what belongs together."""

from detlab.comparison.arms import arm_gates, arm_pairs
from detlab.comparison.findings import Finding
from detlab.comparison.many import ManyComparison, compare_many
from detlab.comparison.pairwise import compare
from detlab.comparison.replicas import check_replicas
from detlab.comparison.result import Comparison
from detlab.comparison.saved import load_comparison
from detlab.comparison.within import check_recompute

__all__ = [
    "Comparison",
    "Finding",
    "ManyComparison",
    "arm_gates",
    "arm_pairs",
    "check_recompute",
    "check_replicas",
    "compare",
    "compare_many",
    "load_comparison",
]
