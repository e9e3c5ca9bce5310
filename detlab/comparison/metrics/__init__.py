"""Step metrics: compare runs of which only the numbers were kept, each by what it can prove."""

from detlab.comparison.metrics.compare import compare_metrics
from detlab.comparison.metrics.description import MetricsDescription, describe_metrics
from detlab.comparison.metrics.replays import replays_of
from detlab.comparison.metrics.result import MetricsComparison

__all__ = [
    "MetricsComparison",
    "MetricsDescription",
    "compare_metrics",
    "describe_metrics",
    "replays_of",
]
