"""Find a capture, read it and believe nothing: every field, size and hash is checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from detlab.captures.call import CAPTURE_JSON, Capture
from detlab.captures.saver import blob_path
from detlab.captures.values import EDITED_HINT, StorageSpec
from detlab.errors import CaptureError
from detlab.store.layout import CAPTURES

_COPY_HINT: Final = "copy the capture's folder again, whole"


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
    folder = find_capture(Path(path))
    try:
        capture = Capture.from_json(_read_json(folder / CAPTURE_JSON), folder)
    except RecursionError as error:
        raise CaptureError(f"{folder / CAPTURE_JSON} nests too deeply.", EDITED_HINT) from error
    for storage in capture.storages:
        _check_blob(blob_path(folder, storage.blob), storage)
    return capture


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
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_refuse, object_pairs_hook=_object)
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path} cannot be read: {error}", _COPY_HINT) from error


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field stands there twice")
    return content


def _check_blob(path: Path, storage: StorageSpec) -> None:
    """Compare size before hash, so that a file of a wrong size is never read."""
    try:
        size = path.stat().st_size
        if size != storage.num_bytes:
            raise CaptureError(f"{path} has {size} bytes; the capture says {storage.num_bytes}.", _COPY_HINT)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror}.", _COPY_HINT) from error
    if found != storage.blob:
        raise CaptureError(f"{path} does not hash to the {storage.blob[:12]}… of the capture.", _COPY_HINT)
