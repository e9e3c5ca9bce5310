"""Worked alternatives to kernels that add up or choose in no fixed order: each fixes it, and says how.

They take what the op takes, under its argument names, so that one can stand beside a captured call in
`detlab.kernel.alternatives.compare_alternatives`. They are examples to read and to start from, written with
plain torch ops for any device: they show what a fixed order costs at least in clarity, not at best in speed.

What "fixed" means here: the order of every float addition follows from shapes and index values alone, never
from which thread, block or stream comes first. What a library does inside one matrix product is its own; an
alternative fixes what happens between the products.
"""

from detlab.kernel.fixed.accumulate import (
    embedding_dense_backward,
    index_add,
    index_add_,
    index_put,
    index_put_,
    scatter_add,
    scatter_add_,
)
from detlab.kernel.fixed.matmul import grouped_mm_add, split_k_mm
from detlab.kernel.fixed.segments import segment_sum
from detlab.kernel.fixed.selection import topk

__all__ = [
    "embedding_dense_backward",
    "grouped_mm_add",
    "index_add",
    "index_add_",
    "index_put",
    "index_put_",
    "scatter_add",
    "scatter_add_",
    "segment_sum",
    "split_k_mm",
    "topk",
]
