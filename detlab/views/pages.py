"""What every page that we write stands on: colours as variables, and a file that is whole or not there."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from detlab.errors import InputError
from detlab.store.layout import write_bytes
from detlab.views.palette import Theme


def variables(theme: Theme) -> str:
    """Give the colours of a theme as CSS variables."""
    return " ".join(f"--{name.replace('_', '-')}: {value};" for name, value in theme._asdict().items())


def write_page(path: str | PathLike[str], text: str) -> Path:
    """Write a page; folders are made, and a file that is there is replaced at once or not at all.

    Raises
    ------
    InputError
        The file cannot be written there.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error.strerror or error}.",
            "give the path of a file in a writable folder",
        ) from error
    return target
