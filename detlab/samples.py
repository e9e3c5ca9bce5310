"""The recorded runs that ship with detlab: real traces and logs to try everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from detlab.errors import InputError

_PLACES: Final = (
    Path(__file__).parent.parent / "sample_traces",  # a checkout
    Path(__file__).parent / "sample_traces",  # an installed package
)


def sample_path(name: str) -> Path:
    """Give the folder of a shipped sample; what each shows stands in its README.

    ``race`` and ``clean`` hold traces of two runs each, ``a`` and ``b``. ``spike`` holds console logs:
    ``monday.log``, whose loss spikes, ``rerun.log``, and ``data.log`` and ``data_rerun.log`` of other runs.

    Raises
    ------
    InputError
        There is no sample of this name.
    """
    for place in _PLACES:
        if (place / name).is_dir() and name:
            return place / name
    known = sorted(path.name for place in _PLACES for path in place.glob("*/"))
    choice = f"choose one of: {', '.join(known)}" if known else "none is installed; use a checkout"
    raise InputError(f"There is no sample '{name}'.", choice)
