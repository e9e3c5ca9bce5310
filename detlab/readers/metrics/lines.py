"""Log files as frames of lines: of any size, compressed, coloured, with progress bars and bad bytes."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import polars as pl
import pyarrow as pa

from detlab.errors import TraceError
from detlab.progress import Told

CHUNK_BYTES: Final = 1 << 23

_LONGEST_LINE_BYTES: Final = 1 << 26

_COLOUR: Final = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\n]*\x07)")
_COMPRESSED: Final = (".gz", ".bz2", ".zst")
_ZSTD_BYTES: Final = 1 << 16
_DAMAGE: Final = (EOFError, OSError, zlib.error)


def line_frames(
    path: Path, progress: Told | None = None, problems: list[str] | None = None
) -> Iterator[pl.DataFrame]:
    """Read a log piece by piece.

    Colours are taken out, bytes that are not UTF-8 are replaced, and what a progress bar overwrites with
    carriage returns becomes lines of their own with the number of the one line that the file has there.

    Parameters
    ----------
    path
        The file.
    progress
        Told how many bytes were read.
    problems
        Told of a compressed file that is cut or damaged: what is whole before that is read.

    Yields
    ------
    ``line`` (Int64, from 1), ``text`` (String, with the character that ends it), ``whole`` (Boolean: false
    for a last line without its end, which may have been cut anywhere).

    Raises
    ------
    TraceError
        The file is not text.
    """
    line = 1
    for chunk, whole in _chunks(path, progress, [] if problems is None else problems):
        if line == 1 and b"\x00" in chunk[:4096]:
            raise TraceError(
                f"{path} is not text: byte {chunk.index(0)} is zero.",
                "give the console log itself; event files are read from a name with 'tfevents' in it",
            )
        frame = _frame(chunk, line)
        line += chunk.count(b"\n")
        if not whole:
            last = pl.int_range(len(frame)) == len(frame) - 1
            frame = frame.with_columns(whole=~last)
        yield frame


def _chunks(path: Path, progress: Told | None, problems: list[str]) -> Iterator[tuple[bytes, bool]]:
    """Give chunks that end with a line or a bar, and whether the last line of each is whole."""
    rest, told = b"", 0
    with path.open("rb") as file:
        for read in _reads(file, path, problems):
            if progress:
                progress(file.tell() - told)
                told = file.tell()
            end = max(read.rfind(b"\n"), read.rfind(b"\r")) + 1
            if end:
                yield rest + read[:end], True
                rest = read[end:]
            else:
                rest += read
            if len(rest) > _LONGEST_LINE_BYTES:
                raise TraceError(
                    f"{path} is no log: it has a line of {len(rest):,} bytes.", "give the console log"
                )
    if rest:
        yield rest, False


def _reads(file: BinaryIO, path: Path, problems: list[str]) -> Iterator[bytes]:
    """Give the bytes of a file; of a compressed one that is cut or damaged, those before the damage."""
    if path.suffix not in _COMPRESSED:
        while read := file.read(CHUNK_BYTES):
            yield read
        return
    parts: list[bytes] = []
    stream = _decompressed(file, path.suffix)
    while True:
        try:
            part = stream.read1(CHUNK_BYTES)
        except _DAMAGE as error:
            problems.append(f"{path.name} is cut or damaged, and read up to there: {str(error).rstrip('.')}")
            part = b""
        parts.append(part)
        if not part or sum(map(len, parts)) >= CHUNK_BYTES:
            yield b"".join(parts)
            parts.clear()
        if not part:
            return


def _decompressed(file: BinaryIO, suffix: str) -> Any:
    """Open a compressed file; ``read1`` gives what is decompressed before it meets damage."""
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    return bz2.BZ2File(file) if suffix == ".bz2" else _Zstd(file)


class _Zstd:
    """A stream that can tell less of damage: what was not given before is lost."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = pa.input_stream(file, compression="zstd")

    def read1(self, size: int) -> bytes:
        return bytes(self._stream.read(min(size, _ZSTD_BYTES)))


def _frame(chunk: bytes, line: int) -> pl.DataFrame:
    if b"\x1b" in chunk:
        chunk = _COLOUR.sub(b"", chunk)
    if not chunk.isascii():
        chunk = chunk.decode("utf-8", "replace").encode()
    if not chunk.endswith((b"\n", b"\r")):
        chunk += b"\n"
    data = np.frombuffer(chunk, np.uint8)
    breaks = data == 10
    ends = np.flatnonzero(breaks | (data == 13)) if b"\r" in chunk else np.flatnonzero(breaks)
    starts = np.zeros(len(ends) + 1, np.int64)
    starts[1:] = ends + 1
    text = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(starts), pa.py_buffer(chunk))
    before = np.cumsum(breaks[ends]) - breaks[ends]  # lines that ended before this one did
    return pl.DataFrame(
        {"line": line + before, "text": pl.from_arrow(text), "whole": True},
        {"line": pl.Int64, "text": pl.String, "whole": pl.Boolean},
    )
