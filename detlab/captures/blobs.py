"""The bytes of a storage as a file inside the capture's folder, written whole and read with suspicion."""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

from detlab.captures.values import StorageSpec
from detlab.errors import CaptureError
from detlab.store.layout import write_bytes

COPY_HINT: Final = "copy the capture's folder again, whole, or take the capture again"


def blob_path(folder: Path, blob: str) -> Path:
    """Name the file of a blob; half of its hash tells any two apart, all of it is checked."""
    return folder / f"{blob[:32]}.bin"


def write_blob(folder: Path, address: int, size: int) -> str:
    """Write bytes of this process, whole or not at all; give their sha256."""
    raw = (ctypes.c_char * size).from_address(address) if size else b""
    blob = hashlib.sha256(raw).hexdigest()
    write_bytes(blob_path(folder, blob), raw)
    return blob


def remove_blobs(folder: Path, storages: Iterable[StorageSpec]) -> None:
    """Take the blobs of a capture that came to nothing away again, and the folder if it held nothing else."""
    for storage in storages:
        blob_path(folder, storage.blob).unlink(missing_ok=True)
    with suppress(OSError):  # something else stands in it
        folder.rmdir()


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedReader]:
    """Open a file that stands in its folder itself: neither a link out of it nor a device or a pipe.

    Raises
    ------
    CaptureError
        It is not there, cannot be read, or is something else than a plain file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if path.is_symlink():
            raise CaptureError(f"{path} is a link, and a capture holds its own files.", COPY_HINT)
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CaptureError(f"{path} is not a plain file.", COPY_HINT)
            yield file
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror}.", COPY_HINT) from error


@contextmanager
def open_blob(folder: Path, storage: StorageSpec) -> Iterator[BufferedReader]:
    """Open the blob of a storage after comparing its size, so that a file of a wrong size is never read."""
    path = blob_path(folder, storage.blob)
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != storage.num_bytes:
            raise CaptureError(f"{path} has {size} bytes; the capture says {storage.num_bytes}.", COPY_HINT)
        yield file


def check_blob(folder: Path, storage: StorageSpec) -> None:
    """Compare the size and the hash of a blob with what the capture says."""
    with open_blob(folder, storage) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != storage.blob:
        path = blob_path(folder, storage.blob)
        raise CaptureError(f"{path} does not hash to the {storage.blob[:12]}… of the capture.", COPY_HINT)
