"""A bar for files that take a while, where somebody looks: in a terminal or a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LARGE_BYTES: Final = 100_000_000
"""Smaller files are read before a bar could be drawn."""

Progress = Callable[[int], None]
"""Told how many more bytes of a file have been read."""


@contextmanager
def reading(path: Path) -> Iterator[Progress | None]:
    """Show how much of a large file has been read; give None for one that nobody waits for."""
    size = path.stat().st_size
    if size < LARGE_BYTES or not (_in_notebook() or sys.stderr.isatty()):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=size, unit="B", unit_scale=True, desc=path.name, leave=False) as bar:
        yield bar.update


def _in_notebook() -> bool:
    """Say whether cells of IPython run here; that it was imported shows nothing."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
