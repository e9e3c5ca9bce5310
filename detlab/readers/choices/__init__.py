"""Which kernels a run chose: logs of cuBLASLt, autotuners' prints and caches, kernel names, its own trace.

A source of lines is a class that takes lines (`detlab.readers.choices.lines.LineReader`), with one entry in
`detlab.readers.choices.files.LINE_READERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from detlab.progress import reading_files
from detlab.readers.choices.files import files_of, read_file, read_trace
from detlab.readers.choices.frame import CHOICE_SCHEMA, SOURCES, USED, Choices
from detlab.readers.choices.lines import Gathered
from detlab.readers.choices.traced import add_calls
from detlab.run import Run

__all__ = ["CHOICE_SCHEMA", "SOURCES", "USED", "Choices", "read_choices"]

Place = str | PathLike[str]


def read_choices(source: Run | Choices | Place | Sequence[Place]) -> Choices:
    """Read which kernels a run chose, from whatever tells it.

    Parameters
    ----------
    source
        A log (console, or of cuBLASLt), a profile of torch.profiler or nsys, a file or folder of the cache of
        an autotuner, a folder of any of these with one file a rank or process, several of them, or a run,
        whose calls may carry what was chosen for them. Files are read as data; of a folder, files that hold
        no choices are passed over.

    Returns
    -------
    `Choices`; its frame has the columns of `CHOICE_SCHEMA`.

    Raises
    ------
    InputError
        There is nothing there.
    """
    if isinstance(source, Choices):
        return source
    gathered = Gathered()
    if isinstance(source, Run):
        add_calls(gathered.uses, source)
        return _gathered(gathered, [], source.label)
    places = [Path(each) for each in ([source] if isinstance(source, str | PathLike) else source)]
    problems = _read_places(gathered, places)
    return _gathered(gathered, problems, ", ".join(map(str, places)))


def _read_places(gathered: Gathered, places: Sequence[Path]) -> list[tuple[str, str]]:
    files = files_of(places)
    problems: list[tuple[str, str]] = []
    with reading_files([file.path for file in files], "file") as counted:
        for file, (_, told) in zip(files, counted, strict=True):
            problems += read_file(gathered, file, told)
    for place in places:
        problems += read_trace(gathered, place)
    return problems


def _gathered(gathered: Gathered, problems: list[tuple[str, str]], label: str) -> Choices:
    frame, not_told = gathered.uses.frame()
    notes = [f"{num:,} {what}" for what, num in sorted(gathered.counts.items())]
    return Choices(frame, (*problems, *gathered.problems()), tuple(not_told), tuple(notes), label)
