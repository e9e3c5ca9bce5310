"""Readers of profiles: what took how long, from PyTorch's profiler and from Nsight Systems, in one frame."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Final

import polars as pl

from detlab.errors import TraceError
from detlab.progress import reading_files
from detlab.readers.profiles.frame import DEVICE_KINDS, KINDS, PROFILE_SCHEMA, Profile
from detlab.readers.profiles.kineto import load_kineto
from detlab.readers.profiles.nsys import load_nsys

__all__ = [
    "DEVICE_KINDS",
    "KINDS",
    "PROFILE_SCHEMA",
    "Profile",
    "is_profile",
    "load_profile",
    "read_kineto",
    "read_nsys",
]

_FORMATS: Final = {"kineto": load_kineto, "nsys": load_nsys}


def read_kineto(path: str | PathLike[str]) -> pl.DataFrame:
    """Read a trace of PyTorch's profiler, as ``prof.export_chrome_trace`` writes it, plain or gzip.

    Returns
    -------
    One row per event that has a duration, with the columns of `PROFILE_SCHEMA`.

    Raises
    ------
    TraceError
        It holds no such event, or it was cut or damaged: `load_profile` gives what is whole of it.
    """
    return _whole(_load(Path(path), "kineto"))


def read_nsys(path: str | PathLike[str]) -> pl.DataFrame:
    """Read the tables of a CSV file of ``nsys stats --format csv``.

    Ranges (``nvtx_sum``) are summed with what is nested in them: their times overlap and do not add up.

    Returns
    -------
    One row per row of a table, with the columns of `PROFILE_SCHEMA`; ``report`` names the table, and rows of
    several tables may be about the same time.

    Raises
    ------
    TraceError
        It holds no table that is known, or rows that cannot be used: `load_profile` gives what is whole.
    """
    return _whole(_load(Path(path), "nsys"))


def _whole(profile: Profile) -> pl.DataFrame:
    if profile.problems:
        raise TraceError(
            f"{profile.problems[0]}.",
            "detlab.readers.profiles.load_profile(path) gives what is whole, and says what is missing",
        )
    return profile.events


def load_profile(path: str | PathLike[str]) -> Profile:
    """Load a profile of either kind as far as it is whole.

    Raises
    ------
    TraceError
        It is neither a trace of PyTorch's profiler nor a CSV file of ``nsys stats``, or holds nothing.
    """
    file = Path(path)
    return _load(file, _format(file))


def is_profile(path: str | PathLike[str]) -> bool:
    """Say whether a file looks like a profile that can be read here."""
    file = Path(path)
    return file.is_file() and bool(_recognised(file))


def _load(file: Path, known: str) -> Profile:
    if not file.is_file():
        raise TraceError(f"{file} is no file.", "give one file of a profile")
    with reading_files([file], "file") as counted:
        return next(_FORMATS[known](each, told) for each, told in counted)


def _format(file: Path) -> str:
    known = _recognised(file) if file.is_file() else ""
    if known:
        return known
    if file.suffix in (".nsys-rep", ".qdrep", ".sqlite"):
        raise TraceError(
            f"{file.name} is a report of Nsight Systems in its own format.",
            f"write its tables: nsys stats --report nvtx_sum,cuda_gpu_kern_sum --format csv {file.name}",
        )
    raise TraceError(
        f"{file} is no profile that can be read.",
        "give a trace of torch.profiler (JSON, also gzip) or a CSV file of nsys stats",
    )


def _recognised(file: Path) -> str:
    """Tell a format by the first characters of a file."""
    from detlab.readers.json_lines import head

    with file.open("rb") as opened:
        is_packed = opened.read(2) == b"\x1f\x8b"
    begin = _unpacked(file) if is_packed else head(file, 1 << 16)
    text = begin.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("{", "[") and ('"ph"' in text or '"traceEvents"' in text or '"deviceProperties"' in text):
        return "kineto"
    is_table = any(
        part in text
        for part in ("Total Time (", "Total Proj Time (", "DurNonChild", "Processing [", "CorrId")
    )
    return "nsys" if is_table and text[:1] not in ("{", "[") else ""


def _unpacked(file: Path) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.open(file) as stream:
            return stream.read(1 << 16)
    except (OSError, EOFError, zlib.error):
        return b""
