"""Which files of a folder can hold choices, and how each of them is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from detlab.errors import InputError, TraceError
from detlab.progress import Told
from detlab.readers import native
from detlab.readers.choices import cublaslt, printed
from detlab.readers.choices.cached import BadCache, is_cache_file, read_cache_file
from detlab.readers.choices.lines import Gathered, MakeReader, line_of, rank_in_path
from detlab.readers.choices.profiled import add_kernels
from detlab.readers.choices.traced import add_calls
from detlab.store import Subset

LINE_READERS: Final[tuple[MakeReader, ...]] = (
    cublaslt.Reader,
    printed.TritonReader,
    printed.InductorReader,
)
"""What reads choices out of the lines of logs."""

_NO_LOG: Final = frozenset(
    """
    .arrow .bin .cpp .cu .cubin .distcp .fatbin .fp .gif .h .hsaco .html .ipc .ipynb .jpg .jsonl .llir .lock
    .nsys-rep .npy .npz .parquet .pdf .pkl .png .pt .pth .ptx .py .pyc .qdrep .safetensors .sass .so .spv
    .sqlite .svg .tar .toml .ttgir .ttir .yaml .yml .zip
    """.split()
)
"""Endings of files that hold no log; a folder is full of them."""

_PROFILES: Final = (".json", ".json.gz", ".csv")


class Found(NamedTuple):
    """A file, its path as it is shown, and whether it was named by itself."""

    path: Path
    name: str
    is_alone: bool


def files_of(places: Sequence[Path]) -> list[Found]:
    """List the files to read: those given, and of folders those that can hold choices, sorted by path.

    Raises
    ------
    InputError
        A place does not exist.
    """
    found = []
    for place in places:
        if not place.exists():
            raise InputError(
                f"{place} does not exist.", "give a log, a profile, a cache, or a folder of them"
            )
        if place.is_file():
            found.append(Found(place, place.name, True))
            continue
        inside = [Path(folder) / name for folder, _, names in os.walk(place) for name in names]
        found += [
            Found(path, path.relative_to(place).as_posix(), False)
            for path in sorted(inside)
            if path.is_file() and (is_cache_file(path.name) or _can_hold(path))
        ]
    return found


def _can_hold(path: Path) -> bool:
    return path.name.endswith(_PROFILES) or path.suffix.lower() not in _NO_LOG


def read_file(gathered: Gathered, file: Found, told: Told | None = None) -> list[tuple[str, str]]:
    """Read one file into what was gathered; give (where, what) for what is damaged."""
    rank = rank_in_path(file.name)
    if is_cache_file(file.path.name):
        return _read_cache(gathered, file, rank)
    try:
        if file.path.name.endswith(_PROFILES):
            return _read_profile(gathered, file, rank)
        return _read_log(gathered, file, rank, told)
    except TraceError as error:  # in a folder lies much that is none
        return [(file.name, error.finding)] if file.is_alone else []
    except OSError as error:
        return [(file.name, f"cannot be read: {error.strerror}")]


def _read_cache(gathered: Gathered, file: Found, rank: int | None) -> list[tuple[str, str]]:
    try:
        source, owner, use = read_cache_file(file.path, rank)
    except BadCache as error:
        return [(file.name, str(error))]
    gathered.uses.add(source, owner, use, file.name)
    return []


def _read_profile(gathered: Gathered, file: Found, rank: int | None) -> list[tuple[str, str]]:
    from detlab.readers.profiles import is_profile, load_profile

    if not file.is_alone and not is_profile(file.path):
        return []
    profile = load_profile(file.path)
    if not add_kernels(gathered.uses, profile, file.name, rank):
        gathered.count(f"profiles without a kernel of a device, such as {file.name}")
    return [(file.name, problem) for problem in profile.problems]


def _read_log(gathered: Gathered, file: Found, rank: int | None, told: Told | None) -> list[tuple[str, str]]:
    from detlab.readers.metrics.lines import line_frames

    if not file.is_alone and b"\0" in _begin(file.path):
        return []
    readers = [make(gathered) for make in LINE_READERS]
    markers = [marker for reader in readers for marker in reader.markers]
    problems: list[str] = []
    for frame in line_frames(file.path, told, problems):
        for number, text, whole in frame.filter(pl.col("text").str.contains_any(markers)).iter_rows():
            line = line_of(text, number, file.name, rank, whole=whole)
            for reader in readers:
                if any(marker in text for marker in reader.markers):
                    reader.take(line)
    for reader in readers:
        reader.end()
    return [(file.name, problem) for problem in problems]


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096) if path.suffix not in (".gz", ".bz2", ".zst") else b""


def read_trace(gathered: Gathered, place: Path) -> list[tuple[str, str]]:
    """Read the choices of a folder that a recorder wrote into, if it is one."""
    if not native.matches(place):
        return []
    try:
        add_calls(gathered.uses, native.load(place, "", Subset.parse(None, None)))
    except TraceError as error:
        return [(str(place), error.finding)]
    return []
