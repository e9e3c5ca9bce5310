"""What autotuners keep on disk: Triton's ``*.autotune.json`` and Inductor's ``*.best_config``.

Both are JSON and are read as data. Triton keeps the times of all configurations and takes the fastest one,
as `triton.runtime.autotuner` does; Inductor keeps the one that it took.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detlab.readers.choices.configuration import configuration, problem_key
from detlab.readers.choices.frame import Process, Use

TRITON_SUFFIX: Final = ".autotune.json"
INDUCTOR_SUFFIX: Final = ".best_config"

_MAX_BYTES: Final = 1 << 26
_BOOKKEEPING: Final = frozenset(
    ("configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash", "extra_options")
)
"""What Inductor keeps beside the configuration."""

Found = tuple[str, Process, Use]


class BadCache(ValueError):  # noqa: N818 - reads as the finding it is
    """A file of a cache that cannot be used."""


def is_cache_file(name: str) -> bool:
    """Say whether a file of this name is one that an autotuner keeps."""
    return name.endswith((TRITON_SUFFIX, INDUCTOR_SUFFIX))


def read_cache_file(path: Path, rank: int | None) -> Found:
    """Read the choice that a file of an autotuner's cache holds.

    Parameters
    ----------
    path
        The file.
    rank
        Whose cache it is; None for one that the ranks share, or of which nobody says whose it is.

    Raises
    ------
    BadCache
        It is cut, or does not hold what its name says.
    """
    content = _content(path)
    owner = Process(rank, "cache" if rank is None else f"rank {rank}")
    if path.name.endswith(TRITON_SUFFIX):
        return "triton cache", owner, _of_triton(path, content)
    return "inductor cache", owner, _of_inductor(path, content)


def _content(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadCache(f"has more than {_MAX_BYTES:,} bytes, which no autotuner writes")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BadCache(f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadCache):
            raise
        raise BadCache(f"is no JSON, or was cut: {error}") from error
    if not isinstance(content, dict):
        raise BadCache(f"holds a {type(content).__name__}, not an object")
    return content


def _of_triton(path: Path, content: Mapping[str, Any]) -> Use:
    timings = content.get("configs_timings")
    if not isinstance(timings, list) or "key" not in content:
        raise BadCache("holds no key with times of configurations")
    timed = [each for each in timings if _is_timed(each)]
    if not timed or len(timed) < len(timings):
        raise BadCache("has a configuration without a time, so that the fastest one is not known")
    best, time = min(timed, key=lambda each: _times(each[1]))
    if not math.isfinite(_times(time)[0]):
        raise BadCache("has no configuration that ran, so that the fastest one is not known")
    own = best.get("kwargs")
    values = {**(own if isinstance(own, dict) else {}), **{n: v for n, v in best.items() if n != "kwargs"}}
    name = path.name.removesuffix(TRITON_SUFFIX)
    details = f"cache={path.parent.name[:12]} time_ms={_times(time)[0]:.6g} configurations={len(timed)}"
    return Use(name, problem_key(content["key"]), configuration(values), details)


def _is_timed(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], dict):
        return False
    times = entry[1] if isinstance(entry[1], list) else [entry[1]]
    return bool(times) and all(type(each) in (int, float) and not math.isnan(each) for each in times)


def _times(time: Any) -> list[float]:
    return list(time) if isinstance(time, list) else [time]


def _of_inductor(path: Path, content: Mapping[str, Any]) -> Use:
    values = {name: value for name, value in content.items() if name not in _BOOKKEEPING}
    if "num_warps" not in values:
        raise BadCache("holds no configuration of a Triton kernel")
    digest = path.name.removesuffix(INDUCTOR_SUFFIX)
    details = f"configs_hash={str(content.get('configs_hash', ''))[:12]}"
    return Use(f"inductor kernel {digest[:16]}", "", configuration(values), details)
