"""Is one trace whole enough to be compared: its invariants, each with a code, a reason and a source."""

from detlab.checks.trace.check import check_trace
from detlab.checks.trace.invariants import INVARIANTS, Invariant

__all__ = ["INVARIANTS", "Invariant", "check_trace"]
