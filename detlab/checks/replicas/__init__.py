"""Check runs against themselves: do ranks hold the same bits, and does recomputation give them again."""

from detlab.checks.replicas.drift import check_replicas
from detlab.checks.replicas.recompute import check_recompute

__all__ = ["check_recompute", "check_replicas"]
