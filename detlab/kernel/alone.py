"""One replay at a time in a process: what it sets is the same for all threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from detlab.errors import InputError

_RUNNING: Final = RLock()
"""Held by the thread that replays; it may replay again inside, as a sweep over sizes does."""


@contextmanager
def alone() -> Iterator[None]:
    """Keep other threads of this process from replaying while a block runs.

    Raises
    ------
    InputError
        Another thread replays.
    """
    if not _RUNNING.acquire(blocking=False):
        raise InputError(
            "another replay is running in this process, and what it sets is the same for all threads.",
            "wait until it has ended, or stop it",
        )
    try:
        yield
    finally:
        _RUNNING.release()
