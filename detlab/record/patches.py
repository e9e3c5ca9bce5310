"""Replace an attribute for as long as a recorder is open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

_ABSENT: Final = object()


def replace_attribute(undo: ExitStack, owner: Any, name: str, value: object) -> None:
    """Set an attribute and have ``undo`` put back exactly what was there, or nothing."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    if before is _ABSENT:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, before)
