"""JSON whose numbers stay as they were written, so that their precision can be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detlab.errors import TraceError


class Written(str):
    """A number as it stands in a file; a plain `str` is a string of the file."""

    __slots__ = ()


def parse_json(text: str) -> Any:
    """Read JSON with every number, and the literals NaN and Infinity, as a `Written`."""
    return json.loads(text, parse_float=Written, parse_int=Written, parse_constant=Written)


def read_json(path: Path) -> Any:
    """Read a JSON file with every number, and the literals NaN and Infinity, as a `Written`.

    Raises
    ------
    TraceError
        The file is not JSON, or cut.
    """
    text = path.read_bytes().decode("utf-8-sig", "replace")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        cut = text.lstrip().startswith(("{", "[")) and not text.rstrip().endswith(("}", "]"))
        finding = "the file ends inside the JSON" if cut else f"this is no JSON ({error.msg})"
        hint = "copy the file again; it was cut" if cut else "give the file as the program wrote it"
        raise TraceError(f"{where}: {finding}.", hint) from None
    except RecursionError:
        raise TraceError(f"{path} nests too deep to be a file of metrics.", "give the file itself") from None


def step_of(value: object) -> int | None:
    """Give a step, written as a whole number in digits or as a string of these; None for anything else."""
    digits = value.removesuffix(".0") if isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) < 19 else None
