"""Runs to verdicts: align events, judge each pair by the site rule, group what belongs together."""

from detlab.comparison.arms import arm_gates, arm_pairs
from detlab.comparison.association import Association, associate
from detlab.comparison.findings import Finding
from detlab.comparison.many import ManyComparison, compare_many
from detlab.comparison.metrics import MetricsComparison, compare_metrics
from detlab.comparison.metrics.change import ChangeComparison, compare_change
from detlab.comparison.metrics.failures import find_failures, recurs_at
from detlab.comparison.metrics.spike_triage import Triage, triage
from detlab.comparison.metrics.validation import attribute_failure, attribute_failures
from detlab.comparison.pairwise import compare
from detlab.comparison.replicas import find_drift
from detlab.comparison.result import Comparison
from detlab.comparison.saved import load_comparison
from detlab.comparison.within import find_recompute_differences

__all__ = [
    "Association",
    "ChangeComparison",
    "Comparison",
    "Finding",
    "ManyComparison",
    "MetricsComparison",
    "Triage",
    "arm_gates",
    "arm_pairs",
    "associate",
    "attribute_failure",
    "attribute_failures",
    "compare",
    "compare_change",
    "compare_many",
    "compare_metrics",
    "find_drift",
    "find_failures",
    "find_recompute_differences",
    "load_comparison",
    "recurs_at",
    "triage",
]
