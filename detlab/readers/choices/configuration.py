"""Configurations of autotuned kernels as text that is equal for equal ones, whatever version wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from detlab.readers.choices.frame import written

_PAIR: Final = re.compile(r",\s*(?=[A-Za-z_]\w*\s*[:=])")
_UNSAID: Final = {
    "num_ctas": "1",
    "num_buffers_warp_spec": "0",
    "num_consumer_groups": "0",
    "reg_dec_producer": "0",
    "reg_inc_consumer": "0",
}
"""Values that some versions write and others leave out."""

_SIZES: Final = ("num_warps", "num_ctas", "num_stages", "maxnreg")


def configuration(values: Mapping[str, Any]) -> str:
    """Write a configuration: the parameters of the kernel by name, then how it is compiled.

    What is None, or has the value that other versions leave out, is left out.
    """
    kept = {
        name: _plain(value)
        for name, value in values.items()
        if value is not None and _plain(value) not in ("None", _UNSAID.get(name, ""))
    }
    launch: dict[str, str] = {name: kept[name] for name in _SIZES if name in kept}
    own = {name: text for name, text in kept.items() if name not in launch}
    return " ".join(filter(None, (written(own), written(launch, _SIZES))))


def printed_configuration(text: str) -> str:
    """Write what was printed as ``BLOCK_M: 64, num_warps: 4`` or ``BLOCK_M=64, num_warps=4``."""
    pairs = (re.split(r"\s*[:=]\s*", each, maxsplit=1) for each in _PAIR.split(text.strip(" ,;")))
    return configuration({pair[0]: pair[1] for pair in pairs if len(pair) == 2})


def problem_key(key: object) -> str:
    """Write the key of an autotuner, so that what is printed equals what is kept in JSON."""
    if isinstance(key, list | tuple):
        return ", ".join(map(_plain, key))
    parts = str(key).strip().strip("()[]").split(",")
    return ", ".join(filter(None, map(_plain, parts)))


def _plain(value: object) -> str:
    return " ".join(str(value).split()).strip("'\"")
