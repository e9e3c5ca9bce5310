"""What a call really reads, for traces that list tensors and say nothing else about them.

A trace of this kind lists every tensor argument, also one that the op only writes to or takes the shape
of. Three rules take bytes out of the judgement, and each rests on what the op is:

- **unread**: the target of an overwriting op, an ``out=`` argument, and the example of ``zeros_like`` or
  ``new_zeros`` are no inputs. They are dropped, and the attribute ``unread`` names their positions.
- **scaled**: ``baddbmm`` and its like ignore their first argument when ``beta`` is zero, and the trace
  does not list ``beta``. An argument as large as the output that no recorded call has written counts as
  such a buffer: its bytes prove nothing. The call stays open, because ``beta`` might not be zero; only
  where the bytes are all zero is it closed, for then they add nothing whatever ``beta`` is.
- **fresh**: what ``empty`` gives, and views of it until somebody writes to it, prove nothing.

Whatever else reads such memory keeps its digests: an uninitialised read is a cause, not an artefact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detlab import ops
from detlab.readers.rows import Tensor
from detlab.schema import Flag

EXAMPLES: Final = frozenset(
    """
    empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like rand_like
    randint_like randn_like zeros_like
    """.split()
)
"""Ops that take shape, dtype and device of their first argument, never its bytes."""

SCALED_SELF: Final = frozenset("addbmm addmm addr baddbmm".split())
"""Ops that do not read their first argument when ``beta`` is zero, and do not write to it either."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The tensors of one call as they are to be judged.

    Attributes
    ----------
    inputs, outputs
        Without what is unread; a tensor without digest is there, and proves nothing.
    flags
        FRESH_MEMORY where a call meets memory that no recorded call has written, OPEN_INPUTS where such
        memory might be read.
    attributes
        What is known of the call beside its tensors.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    flags: int = 0
    attributes: tuple[tuple[str, str], ...] = ()


class Memory:
    """Which digests the recorded calls of one rank have written so far, and which fresh memory had.

    A digest of zero is remembered nowhere: too many tensors have it.
    """

    def __init__(self) -> None:
        self._written: set[int] = set()
        self._fresh: set[int] = set()

    def look(self, op: str, inputs: list[Tensor], outputs: list[Tensor]) -> Sides:
        """Sort the tensors of one call, and remember what it wrote."""
        unread = unread_positions(op, len(inputs), len(outputs))
        kept = [tensor for position, tensor in enumerate(inputs) if position not in unread]
        named = (("unread", ",".join(map(str, unread))),) if unread else ()
        flags = int(Flag.FRESH_MEMORY) if self._overwrites_unwritten(op, inputs, unread) else 0
        is_fresh = any(self._is_fresh(tensor) for tensor in kept)
        if ops.makes_fresh_memory(op) or (is_fresh and ops.is_view(op)):
            self._fresh.update(tensor.digest for tensor in outputs if tensor.digest)
            flags |= Flag.FRESH_MEMORY
            return Sides(_without_digests(kept), _without_digests(outputs), flags, named)
        if is_fresh:
            flags |= Flag.FRESH_MEMORY
        elif self._is_scaled_buffer(op, kept, outputs):
            flags |= 0 if _is_all_zero(kept[0]) else Flag.FRESH_MEMORY | Flag.OPEN_INPUTS
            kept[:1] = _without_digests(kept[:1])
        self.write(outputs)
        return Sides(kept, outputs, flags, named)

    def write(self, tensors: Sequence[Tensor]) -> None:
        """Remember what a call gave."""
        self._written.update(tensor.digest for tensor in tensors if tensor.digest)

    def _overwrites_unwritten(self, op: str, inputs: list[Tensor], unread: tuple[int, ...]) -> bool:
        is_target = ops.base_name(op) not in EXAMPLES
        return is_target and any(self._is_unwritten(inputs[position]) for position in unread)

    def _is_unwritten(self, tensor: Tensor) -> bool:
        return bool(tensor.digest) and tensor.digest not in self._written

    def _is_fresh(self, tensor: Tensor) -> bool:
        return tensor.digest in self._fresh and tensor.digest not in self._written

    def _is_scaled_buffer(self, op: str, inputs: list[Tensor], outputs: list[Tensor]) -> bool:
        if ops.base_name(op) not in SCALED_SELF or len(inputs) != 3 or len(outputs) != 1:
            return False
        buffer = inputs[0]
        if buffer.digest is None or buffer.meta.shape != outputs[0].meta.shape:  # a bias is smaller
            return False
        return buffer.digest == 0 or self._is_unwritten(buffer)


def unread_positions(op: str, num_inputs: int, num_outputs: int) -> tuple[int, ...]:
    """Give the positions of recorded inputs whose bytes cannot reach the result, by the name of the op."""
    name = ops.base_name(op)
    if name == "_foreach_zero_":
        return tuple(range(num_inputs))
    if name == "_foreach_copy_":
        return tuple(range(num_inputs // 2))
    if op.endswith(".out") and num_outputs <= num_inputs:  # given by keyword, so listed last
        return tuple(range(num_inputs - num_outputs, num_inputs))
    if num_inputs and (ops.overwrites_target(op) or name in EXAMPLES):
        return (0,)
    return ()


def _without_digests(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor(tensor.meta, None) for tensor in tensors]


def _is_all_zero(tensor: Tensor) -> bool:
    return tensor.digest == 0 and tensor.stats.recorded and not tensor.stats.absmax
