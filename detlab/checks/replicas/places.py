"""On which host and device a rank ran, as far as its recipe tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from detlab.run import Run
from detlab.store import RankHeader

_SHOWN: Final = 4


def host_name(header: RankHeader) -> str:
    """Give the host that a rank recorded, or ""."""
    host = header.recipe.get("host")
    return host if isinstance(host, str) else ""


def device_name(header: RankHeader) -> str:
    """Give host and device, for example ``n55 device 3``; "" where either was not recorded."""
    device = header.recipe.get("local_rank")
    known = isinstance(device, int) and not isinstance(device, bool)
    return f"{host_name(header)} device {device}" if host_name(header) and known else ""


def place_name(header: RankHeader) -> str:
    """Give the device of a rank, or else its host, or ""."""
    return device_name(header) or host_name(header)


def places_of(run: Run, ranks: Iterable[int]) -> list[str]:
    """Give the places of some ranks, where they are known."""
    headers = {trace.header.rank: trace.header for trace in run.ranks}
    named = [place_name(headers[rank]) for rank in ranks if rank in headers]
    return [name for name in named if name]


def places_text(places: Sequence[str]) -> str:
    """Write places behind the ranks that ran there."""
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f" on {', '.join(places[:_SHOWN])}{more}" if places else ""
