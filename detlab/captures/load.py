"""Find a capture, read it and believe nothing: every field, size and hash is checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from detlab.captures.blobs import COPY_HINT, check_blob, open_plain
from detlab.captures.call import CAPTURE_JSON, Capture
from detlab.captures.fields import EDITED_HINT
from detlab.errors import CaptureError
from detlab.store.layout import CAPTURES

_MAX_JSON_BYTES: Final = 2**26
"""Far more than the arguments of any call need, far less than what fills a machine's memory."""


def load_capture(path: str | Path) -> Capture:
    """Read a capture and check every field, size and hash; torch is not needed.

    Parameters
    ----------
    path
        The capture's folder, or a run or captures folder that holds exactly one.

    Raises
    ------
    CaptureError
        There is no capture, it is unfinished, or it does not hold what it claims.
    """
    capture = read_capture(path)
    for storage in capture.storages:
        check_blob(capture.path, storage)
    return capture


def read_capture(path: str | Path) -> Capture:
    """Read what a capture says of itself, without its blobs: enough to list it, and quick for any size.

    Parameters
    ----------
    path
        As of `load_capture`, which is to be used before the call is made.

    Raises
    ------
    CaptureError
        There is no capture, it is unfinished, or a field is not what it must be.
    """
    folder = find_capture(Path(path))
    try:
        return Capture.from_json(_read_json(folder / CAPTURE_JSON), folder)
    except RecursionError as error:
        raise CaptureError(f"{folder / CAPTURE_JSON} nests too deeply.", EDITED_HINT) from error


def find_capture(path: Path) -> Path:
    """Give the folder of a capture: the path itself, or the only one in a run or captures folder."""
    if (path / CAPTURE_JSON).is_file():
        return path
    places = (path / CAPTURES, path)
    found = sorted(file.parent for place in places for file in place.glob(f"*/{CAPTURE_JSON}"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(folder.name for folder in found)
        raise CaptureError(f"{path} holds {len(found)} captures: {names}.", f"name one, such as {found[0]}")
    if any(path.glob("*.bin")):
        raise CaptureError(
            f"{path} has blobs and no {CAPTURE_JSON}: the process ended inside the call.",
            "take the capture again, or use another one of the run",
        )
    raise CaptureError(f"{path} holds no capture.", "give the path of a folder captures/<id> of a run")


def _read_json(path: Path) -> object:
    with open_plain(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _MAX_JSON_BYTES:
            raise CaptureError(f"{path} has {size:,} bytes, more than any capture needs.", EDITED_HINT)
        text = file.read()
    try:
        return json.loads(text.decode(), parse_constant=_refuse, object_pairs_hook=_object)
    except ValueError as error:
        raise CaptureError(f"{path} cannot be read: {error}", COPY_HINT) from error


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field stands there twice")
    return content
