"""Record a training run op by op, without adding a collective or changing a bit of it."""

from detlab.record.recorder import Recorder

__all__ = ["Recorder"]
