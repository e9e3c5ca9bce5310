"""Check what a capture says as a whole, and read the formats before this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from detlab.captures.fields import EDITED_HINT, printable, texts
from detlab.captures.values import GeneratorSpec, TensorSpec, leaves
from detlab.errors import CaptureError

if TYPE_CHECKING:
    from detlab.captures.call import Capture

FORMAT: Final = "detlab.capture/2"
FIRST_FORMAT: Final = "detlab.capture/1"
"""The format of captures before those of Python functions; read as well."""

_PRECISIONS: Final = frozenset({"highest", "high", "medium"})


def check_whole(capture: Capture, place: str) -> None:
    """Check what no field can be checked for alone.

    Raises
    ------
    CaptureError
        Text that is shown steers a terminal, a tensor names a storage that is not there, or an argument is
        named that the call has not.
    """
    _check_texts(capture, place)
    _check_references(capture, place)
    _check_arguments(capture, place)


def as_of_today(content: object, place: str) -> object:
    """Give the content in the newest format; older ones lack what they could not hold."""
    found = content.get("schema") if isinstance(content, dict) else type(content).__name__
    if isinstance(content, dict) and found == FIRST_FORMAT:
        storages, state = content.get("storages"), content.get("state")
        if isinstance(storages, list):
            storages = [_whole_storage(row) for row in storages]
        if isinstance(state, dict):
            state = {"autocast": ""} | state
        return {"num_positional": 0, "mutates": []} | content | {"storages": storages, "state": state}
    if found != FORMAT:
        raise CaptureError(
            f"{place} is {found!r}; this detlab reads {FORMAT!r}.",
            "read it with the version of detlab that wrote it",
        )
    return content


def _whole_storage(row: object) -> object:
    return {"start": 0, "full_bytes": row.get("num_bytes")} | row if isinstance(row, dict) else row


def _check_arguments(capture: Capture, place: str) -> None:
    names = [name for name, _ in capture.arguments]
    if len(set(names)) != len(names):
        raise CaptureError(f"{place} gives one argument twice.", EDITED_HINT)
    if not 0 <= capture.num_positional <= len(names):
        raise CaptureError(
            f"{place} passes {capture.num_positional} of {len(names)} arguments by position.", EDITED_HINT
        )
    if odd := [name for name in capture.mutates if name not in names]:
        raise CaptureError(f"{place} says that the call changes {odd[0]!r}, which it has not.", EDITED_HINT)
    if capture.rank < 0:
        raise CaptureError(f"{place} is of rank {capture.rank}.", EDITED_HINT)


def _check_texts(capture: Capture, place: str) -> None:
    """Check what is shown to people, which must not steer their terminal."""
    printable(capture.site, f"{place}: site")
    printable(capture.schema, f"{place}: op_schema")
    for name in ("float32_matmul_precision", "autocast", "cpu_capability", "device_name"):
        printable(capture.state[name], f"{place}: state.{name}")
    if capture.state["float32_matmul_precision"] not in _PRECISIONS:
        raise CaptureError(f"{place}: state.float32_matmul_precision is none of torch's.", EDITED_HINT)
    for name in ("versions", "env"):
        texts(capture.state[name], f"{place}: state.{name}")


def _check_references(capture: Capture, place: str) -> None:
    values = [value for _, value in capture.arguments]
    for value in (*leaves(values), *capture.generators):
        index = (
            value.storage
            if isinstance(value, TensorSpec)
            else value.state
            if isinstance(value, GeneratorSpec)
            else 0
        )
        if index >= max(len(capture.storages), 1):
            raise CaptureError(f"{place} names storage {index} of {len(capture.storages)}.", EDITED_HINT)
