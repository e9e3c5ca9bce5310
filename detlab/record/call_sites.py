"""The line of user code that a call comes from, for people."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

import torch

_SKIPPED: Final = (
    str(Path(torch.__file__).parent) + os.sep,
    str(Path(__file__).parent) + os.sep,
    contextlib.__file__,
)
_OWN_FRAMES: Final = 2


def call_site() -> str:
    """Give ``file:line`` of the innermost frame outside of torch and the recorder, if there is one.

    A function mode stands between the caller and torch, so its handler is not where a call comes from.
    """
    frame: FrameType | None = sys._getframe(_OWN_FRAMES)
    while frame is not None:
        code = frame.f_code
        file = _file(code.co_filename)
        if file is not None and code.co_name != "__torch_function__":
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _file(path: str) -> str | None:
    """Shorten a path by the longest import path before it; None for files that only pass calls on."""
    if path.startswith(_SKIPPED) or path.startswith("<frozen"):
        return None
    roots = [root for root in map(os.path.abspath, sys.path) if path.startswith(root + os.sep)]
    return path[len(max(roots, key=len)) + 1 :] if roots else Path(path).name
