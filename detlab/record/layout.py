"""Where this rank stands among the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.distributed as dist

from detlab.schema import Coordinate


@dataclass(frozen=True, slots=True)
class Layout:
    """A rank and the parallel layout around it.

    Attributes
    ----------
    rank, world_size
        Global rank and number of ranks.
    coordinate, sizes
        Place in the layout, and the size of each axis.
    groups
        Members of each labelled communicator of this rank, as global ranks in group order.
    labels
        Label of each communicator by the name that torch.distributed gave it.
    """

    rank: int
    world_size: int
    coordinate: Coordinate
    sizes: Mapping[str, int]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def current_rank() -> int:
    """Give this process's global rank, from torch.distributed or from the launcher."""
    return dist.get_rank() if _is_distributed() else int(os.environ.get("RANK", "0"))


def current_layout() -> Layout:
    """Read the layout from Megatron-Core where it is in use; ranks of a plain loop stand on the dp axis."""
    if "megatron.core" in sys.modules:
        from detlab.record.megatron import megatron_layout

        found = megatron_layout()
        if found is not None:
            return found
    rank = current_rank()
    size = dist.get_world_size() if _is_distributed() else int(os.environ.get("WORLD_SIZE", "1"))
    return Layout(rank, size, Coordinate(dp=rank), {"dp": size})


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
