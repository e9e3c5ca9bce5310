"""Matrix products in parts, each with an output of its own, and the parts added in a stated order.

A product that is split so that several blocks work on one output adds their parts with atomics, in the order
in which they finish. Here every part is written to its own slot, and the slots are added by their number. It
costs the memory of the slots. What the library does inside one part is not touched.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from detlab.kernel.fixed.segments import check_within, segment_sum, segments_of


def split_k_mm(self: torch.Tensor, mat2: torch.Tensor, *, num_splits: int = 4) -> torch.Tensor:
    """Stand in for ``aten.mm``: split along the inner dimension, the parts added first to last.

    The cuts follow from the inner size and `num_splits` alone. Each part and their sum are of float32 where
    the inputs are narrower.

    Parameters
    ----------
    self, mat2
        Matrices of shapes (m, k) and (k, n).
    num_splits
        Number of parts, 1 or more; with k below it, some are empty.

    Raises
    ------
    ValueError
        Fewer than one part.
    """
    if num_splits < 1:
        raise ValueError(f"{num_splits} parts hold nothing: say num_splits=1 or more")
    dtype = self.dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    cuts = [number * self.shape[1] // num_splits for number in range(num_splits + 1)]
    slots = [self[:, start:stop].to(wide) @ mat2[start:stop].to(wide) for start, stop in pairwise(cuts)]
    total = slots[0]
    for slot in slots[1:]:
        total = total + slot
    return total.to(dtype)


def grouped_mm_add(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor, rows: torch.Tensor, num_rows: int
) -> torch.Tensor:
    """Multiply each group of rows with its own matrix and add the results into the rows they belong to.

    It is what a layer of experts does when it gives the tokens back: several experts write to one token.
    With atomics their order is that in which the blocks finish. Here each product is written to the slot of
    its row, and the slots of a token are added along a fixed tree, in the order of the experts.

    Parameters
    ----------
    x
        Rows sorted by group: shape (r, k).
    weights
        One matrix a group: shape (g, k, n).
    offsets
        Where each group ends: shape (g,), int; rows behind the last end are padding and never read.
    rows
        The row of the output to which each row goes: shape (r,), int64.
    num_rows
        Number of rows of the output.

    Returns
    -------
    Shape (num_rows, n), of the dtype of `x`; zero where no row goes.
    """
    ends = offsets.tolist()
    parts = zip([0, *ends[:-1]], ends, weights, strict=True)
    slots = torch.cat([x[:0] @ weights[0], *(x[start:end] @ weight for start, end, weight in parts)])
    rows = rows[: len(slots)]
    check_within(rows, num_rows)
    out = x.new_zeros(num_rows, weights.shape[2])
    order, places, counts = segments_of(rows)
    out[places] = segment_sum(slots[order], counts).to(out.dtype)
    return out
