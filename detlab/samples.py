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
    ``resume`` holds traces of the states of four runs: ``reference``, and ``resumed``, ``no_moments`` and
    ``shifted``, which went on from its checkpoint.

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
