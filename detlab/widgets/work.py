"""Work in a thread: the kernel stays free, progress shows at most ten times a second, an end is asked for."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from detlab.errors import DetlabError

SHOW_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 2.0
"""How long the end of Python waits for work that was asked to end."""


class Work:
    """One piece of work: done in a thread, watched by another that shows how far it is.

    Parameters
    ----------
    do
        Does the work; it is given the event that asks it to end, and looks at it.
    show
        Called about ten times a second while it is done, from one thread.
    ended
        Called from that thread with what `do` gave and None, or with None and its error, and once more with
        its own error if it raises one. Not called when the work was abandoned.
    """

    def __init__(
        self,
        do: Callable[[threading.Event], Any],
        show: Callable[[], None],
        ended: Callable[[Any, BaseException | None], None],
    ) -> None:
        self.cancel = threading.Event()
        self._do, self._show, self._ended = do, show, ended
        self._found: Any = None
        self._error: BaseException | None = None
        self._is_abandoned = threading.Event()
        self._worker = threading.Thread(target=self._work, name="detlab-work", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="detlab-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        _ALIVE.add(self)
        self._worker.start()
        self._watcher.start()

    @property
    def is_alive(self) -> bool:
        """Whether it is still being done."""
        return self._worker.is_alive()

    def abandon(self) -> None:
        """Ask it to end, and show nothing of it any more."""
        self._is_abandoned.set()
        self.cancel.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until it has ended and has been shown; not from the work itself."""
        self._worker.join(timeout_s)
        if threading.current_thread() is not self._watcher:
            self._watcher.join(timeout_s)

    def _work(self) -> None:
        try:
            self._found = self._do(self.cancel)
        except BaseException as error:  # shown to the user by whoever started it
            self._error = error

    def _watch(self) -> None:
        while self._worker.is_alive():
            if not self._is_abandoned.is_set():
                with suppress(
                    Exception
                ):  # what cannot be shown now, such as to a page that is gone, comes later
                    self._show()
            self._worker.join(SHOW_EVERY_S)
        if self._is_abandoned.is_set():
            return
        try:
            self._ended(self._found, self._error)
        except Exception as error:  # what was found cannot be shown: say so, and be ready again
            self._ended(None, error)


def error_sentences(error: BaseException) -> list[str]:
    """Give an error as a sentence, and its hint as another; never a traceback."""
    if isinstance(error, DetlabError):
        return [error.finding, f"Hint: {error.hint}"] if error.hint else [error.finding]
    first = str(error).partition("\n")[0][:300]
    return [f"It ended with {type(error).__name__}{f': {first}' if first else ''}."]


_ALIVE: Final[weakref.WeakSet[Work]] = weakref.WeakSet()


def _end_all() -> None:
    """End what is still being done when Python ends, so that no process of it stays behind."""
    alive = [work for work in _ALIVE if work.is_alive]
    for work in alive:
        work.abandon()
    for work in alive:
        work.join(_PATIENCE_S)


atexit.register(_end_all)
