"""The captures that a replay panel offers: of given folders, or of the runs of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from detlab.captures import Capture, read_capture
from detlab.captures.call import CAPTURE_JSON
from detlab.comparison import Comparison
from detlab.comparison.captured import recorder_of
from detlab.errors import CaptureError
from detlab.store.layout import CAPTURES
from detlab.views.text import shorten, visible

MAX_LISTED: Final = 200
"""So many captures are read and offered; each is one small file."""


class Offer(NamedTuple):
    """What can be replayed.

    Attributes
    ----------
    captures
        What each says of itself, with the label of its run, or nothing.
    problems
        One sentence for each that cannot be read.
    num_more
        How many were not looked at.
    """

    captures: tuple[tuple[str, Capture], ...]
    problems: tuple[str, ...]
    num_more: int


def find_captures(given: object) -> Offer:
    """Read what captures say of themselves, without their blobs.

    Parameters
    ----------
    given
        A comparison, a capture, the path of one or of a run or folder that holds some, or a list of these.
    """
    places = list(_places(given))
    found: list[tuple[str, Capture]] = []
    problems = []
    for label, place in places[:MAX_LISTED]:
        try:
            found.append((label, place if isinstance(place, Capture) else read_capture(place)))
        except (CaptureError, OSError) as error:
            problems.append(str(error).partition("\n")[0])
    return Offer(tuple(found), tuple(problems), max(0, len(places) - MAX_LISTED))


def _places(given: Any) -> Iterable[tuple[str, Capture | Path]]:
    """Give every capture and folder of one, with the label of its run."""
    if isinstance(given, Comparison):
        for run in (given.a, given.b):
            yield from ((run.label, folder) for folder in run.captures)
    elif isinstance(given, Capture):
        yield "", given
    elif isinstance(given, str | PathLike):
        yield from (("", folder) for folder in _folders(Path(given)))
    else:
        for each in given:
            yield from _places(each)


def _folders(path: Path) -> list[Path]:
    """Give the folders of captures in a run or a folder of captures; the path itself where it is one."""
    if (path / CAPTURE_JSON).is_file():
        return [path]
    found = (file.parent for place in (path / CAPTURES, path) for file in place.glob(f"*/{CAPTURE_JSON}"))
    return sorted(set(found)) or [path]


def ordered(
    captures: Sequence[tuple[str, Capture]], site: str, rank: int | None
) -> list[tuple[str, Capture]]:
    """Put the captures of a site first, those of the rank before others."""
    return sorted(captures, key=lambda each: (each[1].site != site, each[1].rank != rank))


def option(label: str, capture: Capture) -> str:
    """Name a capture in a list; a drop-down shows text as it is."""
    named = capture.site if capture.op in capture.site else f"{shorten(capture.op, 30)} · {capture.site}"
    return visible(f"{shorten(named, 44)} · rank {capture.rank}{f' · {label}' if label else ''}")


def how_to_capture(place: tuple[int, str] | None) -> str:
    """Give the line that would capture the selected call, or without one the first origins."""
    if place is None:
        return "detlab.Recorder(…, capture=cmp)  # the call of the first origin of each rank"
    rank, site = place
    step = site.partition("/")[0]
    steps = f'steps="{step}", ' if step.isdecimal() else ""
    return recorder_of(f'{steps}ranks="{rank}"', site)
