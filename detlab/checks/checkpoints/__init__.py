"""Checkpoints of any format, read as named leaves and compared byte by byte."""

from detlab.checks.checkpoints.comparing import compare_checkpoints
from detlab.checks.checkpoints.layout import Checkpoint, Leaf, Piece, ScalarLeaf, TensorLeaf
from detlab.checks.checkpoints.opening import open_checkpoint
from detlab.checks.checkpoints.replacing import Replacement, replaced
from detlab.checks.checkpoints.tensors import leaf_bytes_equal, read_bytes, read_values

__all__ = [
    "Checkpoint",
    "Leaf",
    "Piece",
    "Replacement",
    "ScalarLeaf",
    "TensorLeaf",
    "compare_checkpoints",
    "leaf_bytes_equal",
    "open_checkpoint",
    "read_bytes",
    "read_values",
    "replaced",
]
