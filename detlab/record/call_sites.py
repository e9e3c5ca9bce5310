"""The line of user code that a call comes from, for people."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

import torch

_SKIPPED: Final = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parent) + os.sep)
_OWN_FRAMES: Final = 2

_files: dict[CodeType, str | None] = {}


def call_site() -> str:
    """Give ``file:line`` of the innermost frame outside of torch and the recorder, if there is one."""
    frame = sys._getframe(_OWN_FRAMES)
    while True:
        code = frame.f_code
        try:
            file = _files[code]
        except KeyError:
            file = _files[code] = _relative(code.co_filename)
        if file is not None:
            return f"{file}:{frame.f_lineno}"
        if frame.f_back is None:
            return ""
        frame = frame.f_back


@cache
def _relative(path: str) -> str | None:
    """Shorten a path by the longest import path before it; None for torch's and our own files."""
    if path.startswith(_SKIPPED) or path.startswith("<frozen"):
        return None
    roots = [root for root in map(os.path.abspath, sys.path) if path.startswith(root + os.sep)]
    return path[len(max(roots, key=len)) + 1 :] if roots else Path(path).name
