"""A bar for work that takes a while, where somebody looks: in a terminal or a notebook."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from detlab.text import shorten, visible

PATIENCE_S: Final = 1.0
"""Work that is done sooner is never shown: a bar that flashes up tells nobody anything."""

SWITCH: Final = "DETLAB_PROGRESS"
"""The environment variable that turns all bars off when it is 0."""

_WIDEST_NAME: Final = 30

Told = Callable[[int], object]
"""Told how much more has been done."""

Item = TypeVar("Item")


class Bar:
    """Counts what is done, and shows it with the time left once the work has lasted a while.

    Any thread may count. A bar that cannot be drawn is left out: no work fails because of it.

    Parameters
    ----------
    what
        What is done, such as ``comparing``; text from files is made safe to show.
    total
        How much there is.
    unit
        What is counted: ``"rank"``; ``"B"`` for bytes, which are shown as kB, MB and so on.
    """

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit, self._done = what, total, unit, 0
        self._is_off = total <= 0 or not is_watched()
        self._began, self._started = time.monotonic(), time.time()
        self._lock = threading.RLock()
        self._drawn: _Drawn | None = None

    def add(self, number: int = 1) -> None:
        """Count what was done."""
        if self._is_off:
            return
        with self._lock:
            self._done += number
            self._draw(number)

    def say(self, what: str) -> None:
        """Say what is done from here on."""
        self._what = what

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Give items one after another, and count each when the next one is asked for."""
        for item in items:
            yield item
            self.add()

    def close(self) -> None:
        """Take the bar away; the line it stood on is clean again."""
        with self._lock:
            self._is_off = True
            if self._drawn is not None:
                with suppress(OSError, ValueError):
                    self._drawn.close()

    def _draw(self, number: int) -> None:
        try:
            if self._drawn is not None:
                self._drawn.update(visible(self._what), number)
            elif time.monotonic() - self._began >= PATIENCE_S:
                self._drawn = _Drawn(visible(self._what), self._total, self._done, self._unit, self._started)
        except (OSError, ValueError):  # the terminal is gone, or was closed
            self._is_off = True


class _Drawn:
    """A bar of tqdm: a line of a terminal, or a widget of a notebook that leaves no trace in its file."""

    def __init__(self, name: str, total: int, done: int, unit: str, started: float) -> None:
        kind = _tqdm()
        is_widget = any(each.__module__ == "tqdm.notebook" for each in kind.__mro__)
        # it draws nothing by itself before it has its name
        options: dict[str, Any] = {"display": False} if is_widget else {"dynamic_ncols": True, "delay": 1e-9}
        space = "" if unit == "B" else " "
        self._bar = kind(
            total=total, initial=done, unit=space + unit, unit_scale=unit == "B", leave=False,
            smoothing=0, file=sys.stderr, **options,
        )  # fmt: skip
        self._handle = _show(self._bar.container) if is_widget else None
        # the work began before it was shown: the time left is reckoned from its beginning
        self._bar.initial, self._bar.start_t = 0, started
        self.update(name, 0)
        self._bar.refresh()

    def update(self, name: str, number: int) -> None:
        # never given to the constructor, which puts it into a page as it is, and markup would be live
        self._bar.set_description_str(name, refresh=False)
        self._bar.update(number)

    def close(self) -> None:
        self._bar.total = self._bar.n  # what was interrupted is no bar that failed and stays
        self._bar.close()
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it says so, and draws text
        from tqdm.auto import tqdm
    return tqdm


def _show(container: Any) -> Any:
    """Display a widget so that it can be taken out of the notebook again."""
    from IPython import display

    show: Any = display.display
    return show(container, display_id=True)


def is_watched() -> bool:
    """Say whether somebody would see a bar: in a kernel, or on a terminal, and not turned off."""
    if os.environ.get(SWITCH) == "0":
        return False
    return _in_kernel() or (sys.stderr is not None and sys.stderr.isatty())


def _in_kernel() -> bool:
    """Say whether cells of a notebook run here; that IPython was imported shows nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Bar]:
    """Show how far some work is while a block runs; see `Bar`."""
    shown = Bar(what, total, unit)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def reading_files(files: Collection[Path], unit: str) -> Iterator[Iterator[tuple[Path, Told]]]:
    """Show how many bytes of how many files have been read while a block runs.

    Gives the files one after another, each with what counts its bytes. What a reader leaves of a file, as
    where it is damaged, counts as read once the next one is asked for.
    """
    with bar("reading", sum(map(_num_bytes, files)), "B") as shown:
        yield _counted_files(files, shown, unit)


def _counted_files(files: Collection[Path], shown: Bar, unit: str) -> Iterator[tuple[Path, Told]]:
    for number, file in enumerate(files, 1):
        at = f", {unit} {number:,} of {len(files):,}" if len(files) > 1 else ""
        shown.say(f"reading {shorten(file.name, _WIDEST_NAME)}{at}")
        counted = _Counted(shown)
        yield file, counted
        shown.add(max(0, _num_bytes(file) - counted.total))


class _Counted:
    """Passes on what is read of one file, and keeps the sum."""

    def __init__(self, shown: Bar) -> None:
        self._shown, self.total = shown, 0

    def __call__(self, number: int) -> None:
        self.total += number
        self._shown.add(number)


def _num_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
