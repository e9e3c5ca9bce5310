"""Top-k whose ties go to the lowest index, in place of whichever the selection meets first.

torch leaves open which of several equal elements ``topk`` takes and in which order it lists them (its own
documentation: the indices of tied elements may vary between invocations). A router that sums in that order,
or drops the last of the tied experts, then differs from run to run. A stable sort has no such freedom.
"""

from __future__ import annotations

import torch


def topk(
    self: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand in for ``aten.topk``: the k largest (smallest) in order, equal ones by ascending index.

    NaN counts as the largest number, as in the op. The result is always sorted.

    Returns
    -------
    Values and int64 indices, of size `k` along `dim`.

    Raises
    ------
    IndexError
        `k` is below zero or above the size of `dim`.
    """
    size = self.shape[dim] if self.dim() else 1
    if not 0 <= k <= size:
        raise IndexError(f"k is {k}, and the dimension has {size} elements")
    values, indices = torch.sort(self, dim=dim, descending=largest, stable=True)
    if self.dim() == 0:
        return (values, indices) if k else (values.new_empty(0), indices.new_empty(0))
    return values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()
