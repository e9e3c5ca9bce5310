"""Bytes of files, read in pieces: nothing is mapped, and no name from a file leads out of its folder."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from detlab.errors import InputError

_MAX_OPEN: Final = 64
"""Files held open at a time; a checkpoint may have thousands."""


_MAX_BUFFERS: Final = 1024
"""Buffers that one call of the system fills; Linux and macOS take so many."""


class OpenFiles:
    """Descriptors of the files that were read last."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def whole(self, path: Path) -> Region:
        """Give the region of a whole file."""
        return Region(path, 0, path.stat().st_size, self)

    def read(self, path: Path, start: int, length: int) -> bytes:
        """Read bytes at a place; fewer come back at the end of the file."""
        found = os.pread(self._descriptor(path), length, start)
        if len(found) == length or not found:
            return found
        # one call of the system gives at most 2 GiB
        return found + self.read(path, start + len(found), length - len(found))

    def read_into(self, path: Path, start: int, into: memoryview) -> None:
        """Fill a buffer with the bytes at a place.

        Raises
        ------
        EOFError
            The file ends before.
        """
        descriptor = self._descriptor(path)
        while into:
            num = os.preadv(descriptor, [into], start)
            if num == 0:
                raise EOFError(f"{path} ends at byte {start}")
            into, start = into[num:], start + num

    def scatter(self, path: Path, start: int, into: list[memoryview], size: int) -> None:
        """Fill many buffers of that size in all, one after the other, with the bytes at a place.

        Raises
        ------
        EOFError
            The file ends before.
        """
        if len(into) <= _MAX_BUFFERS and os.preadv(self._descriptor(path), into, start) == size:
            return
        for each in into:
            self.read_into(path, start, each)
            start += len(each)

    def _descriptor(self, path: Path) -> int:
        known = self._open.get(path)
        if known is not None:
            self._open.move_to_end(path)
            return known
        while len(self._open) >= _MAX_OPEN:
            os.close(self._open.popitem(last=False)[1])
        # a pipe of that name must not be waited for
        self._open[path] = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        return self._open[path]

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])


class Region(NamedTuple):
    """A run of bytes of one file."""

    path: Path
    start: int
    length: int
    files: OpenFiles

    def read(self, start: int, length: int) -> bytes:
        """Read bytes of the region; fewer come back at its end."""
        length = max(0, min(length, self.length - start))
        return self.files.read(self.path, self.start + start, length)


class MemoryFiles(OpenFiles):
    """One file that is in memory already."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content

    def read(self, path: Path, start: int, length: int) -> bytes:
        """Give bytes at a place."""
        return self.content[start : start + length]

    def scatter(self, path: Path, start: int, into: list[memoryview], size: int) -> None:
        """Fill many buffers, one after the other."""
        for each in into:
            self.read_into(path, start, each)
            start += len(each)

    def read_into(self, path: Path, start: int, into: memoryview) -> None:
        """Fill a buffer with the bytes at a place."""
        into[:] = self.content[start : start + len(into)]


class RegionFile(io.RawIOBase):
    """A region as a file to seek and read in."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._place = 0

    def seekable(self) -> bool:
        """Say that it seeks."""
        return True

    def readable(self) -> bool:
        """Say that it reads."""
        return True

    def tell(self) -> int:
        """Give the place in the region."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in the region."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._region.length}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning")
        self._place = base + offset
        return self._place

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        """Read at the place."""
        found = self._region.read(self._place, len(into))
        into[: len(found)] = found
        self._place += len(found)
        return len(found)


def inside(folder: Path, name: str) -> Path:
    """Give the file of a folder that a name from a file means.

    Raises
    ------
    InputError
        The name leads out of the folder, by its words or by a link, or to no plain file.
    """
    pure = PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts or "\0" in name:
        raise InputError(f"{folder}: the name '{name}' leads out of the folder")
    root = folder.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise InputError(f"{folder}: '{name}' is a link that leads out of the folder")
    if not path.is_file():
        raise InputError(f"{folder}: '{name}' is missing")
    return path
