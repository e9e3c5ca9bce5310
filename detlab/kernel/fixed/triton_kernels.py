# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, index, operator"
"""Triton kernels that add with atomics, and their twins with a fixed order; imported in functions only."""

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]


@triton.jit
def add_rows_with_atomics(out, index, source, width, block: tl.constexpr):
    """Add one row of `source` to its place; rows of one place come in the order of their programs' finish."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    place = tl.load(index + row)
    values = tl.load(source + row * width + columns, mask=inside)
    tl.atomic_add(out + place * width + columns, values, mask=inside)


@triton.jit
def add_sorted_rows(out, places, starts, order, source, width, block: tl.constexpr):
    """Add all rows of one place, first to last, in one program: nobody else writes to that place."""
    segment = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    start, stop = tl.load(starts + segment), tl.load(starts + segment + 1)
    total = tl.zeros([block], dtype=tl.float32)
    for position in range(start, stop):
        row = tl.load(order + position)
        total += tl.load(source + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    where = out + tl.load(places + segment) * width + columns
    before = tl.load(where, mask=inside, other=0.0)
    tl.store(where, (before.to(tl.float32) + total).to(before.dtype), mask=inside)


@triton.jit
def multiply_part(  # noqa: PLR0913, PLR0917 - pointers and sizes, as kernels take them
    a, b, out, m, n, k, part_size, atomic: tl.constexpr, block: tl.constexpr
):
    """Multiply one tile over one part of the inner dimension, into a sum that all parts share or a slot.

    With `atomic` the parts are added to ``out[m, n]`` as they finish; without it each part is written to a
    slot of its own, ``out[part, m, n]``.
    """
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    part = tl.program_id(2)
    stop = min((part + 1) * part_size, k)
    total = tl.zeros([block, block], dtype=tl.float32)
    for start in range(part * part_size, stop, block):
        inner = start + tl.arange(0, block)
        left = (rows[:, None] < m) & (inner[None, :] < stop)
        right = (inner[:, None] < stop) & (columns[None, :] < n)
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=left, other=0.0)
        y = tl.load(b + inner[:, None] * n + columns[None, :], mask=right, other=0.0)
        total += tl.dot(x, y, input_precision="ieee")
    tile = (rows[:, None] < m) & (columns[None, :] < n)
    where = rows[:, None] * n + columns[None, :]
    if atomic:
        tl.atomic_add(out + where, total, mask=tile)
    else:
        tl.store(out + part * m * n + where, total, mask=tile)


@triton.jit
def add_slots(slots, out, size, num_slots, block: tl.constexpr):
    """Add the slots of every element by their number, first to last."""
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < size
    total = tl.load(slots + places, mask=inside, other=0.0)
    for slot in range(1, num_slots):
        total += tl.load(slots + slot * size + places, mask=inside, other=0.0)
    tl.store(out + places, total, mask=inside)
