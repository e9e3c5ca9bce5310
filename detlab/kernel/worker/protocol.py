"""What goes to a worker and what comes back, as JSON: nothing in it is code, and everything is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import torch

from detlab.errors import InputError
from detlab.kernel.conditions import MAX_TRIALS, Condition, condition_from_json
from detlab.kernel.differences import OutputResult
from detlab.kernel.statistics import Status

REQUEST: Final = "detlab.replay-request/1"
BEGUN: Final = "begun.json"
"""The file that a worker writes before its first trial, for the case that it does not come to its end."""

Result = tuple[int, ...]
"""The digest of every output of one trial."""

_NAMESPACE: Final = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is otherwise in the replay than it was in training.

    Attributes
    ----------
    name
        What it is: a version, a variable of the environment, a flag.
    note
        One sentence for the reader; empty for what the user chose and the condition's name says.
    there, here
        What it was in training and what it is in the replay; only for what a user of replay can choose.
    """

    name: str
    note: str
    there: str = ""
    here: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where trials were made: device, its model, its driver (None on a CPU), versions; no host, no path."""

    device: str
    name: str
    driver: str | None
    versions: dict[str, str]


@dataclass(slots=True)
class Made:
    """What the trials under one condition gave.

    Attributes
    ----------
    groups
        The results, one list a process.
    outputs
        Each output over the trials of the process that gave most results.
    changes
        In what the conditions differ from those of training.
    hides
        What may have kept a race from showing.
    is_moved
        Whether a trial began from other bits than the one before.
    is_isolated
        Whether it was made in processes that no other condition shares.
    firsts
        The first result, where it was made in this process; never sent.
    """

    name: str
    groups: list[list[Result]] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    hides: list[str] = field(default_factory=list)
    is_moved: bool = False
    is_isolated: bool = False
    least_nan: int = 0
    most_nan: int = 0
    place: Place | None = None
    status: Status = "done"
    note: str = ""
    firsts: list[torch.Tensor] = field(default_factory=list)

    @property
    def results(self) -> list[Result]:
        """The results of all processes."""
        return [result for group in self.groups for result in group]

    def to_json(self) -> dict[str, Any]:
        """Give everything but the tensors; digests are hexadecimal text, each different one once."""
        known = {digest: n for n, digest in enumerate(dict.fromkeys(d for r in self.results for d in r))}
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("groups", "firsts")}
        plain = {name: plain_json(value) for name, value in body.items()}
        groups = [[[known[d] for d in result] for result in group] for group in self.groups]
        return plain | {"digests": [f"{digest:016x}" for digest in known], "groups": groups}


def made_from_json(body: object) -> Made:
    """Read what a worker wrote; the inverse of `Made.to_json`.

    Raises
    ------
    InputError
        It is not exactly of this form.
    """
    if not isinstance(body, dict) or not isinstance(body.get("digests"), list):
        raise InputError("the result of a worker is not of its form.", "")
    digests = [_digest(text) for text in body["digests"]]
    try:
        groups = [[tuple(digests[d] for d in result) for result in group] for group in body["groups"]]
    except (KeyError, TypeError, IndexError) as error:
        raise InputError("the result of a worker refers to digests that it does not hold.", "") from error
    rest = {name: value for name, value in body.items() if name not in ("digests", "groups")}
    made: Made = decode(Made, rest, "result")
    made.groups = groups
    return made


@dataclass(frozen=True, slots=True)
class Request:
    """One condition to be replayed elsewhere: which capture, how often, which namespaces may run."""

    capture: Path
    condition: Condition
    trials: int
    allow: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the form that `request_from_json` reads."""
        return {
            "schema": REQUEST,
            "capture": str(self.capture),
            "condition": self.condition.to_json(),
            "trials": self.trials,
            "allow": list(self.allow),
        }


def request_from_json(body: object) -> Request:
    """Read a request and refuse everything that is not exactly one.

    Raises
    ------
    InputError
        An unknown field, a wrong type, a condition that must not be set.
    """
    known = {"schema", "capture", "condition", "trials", "allow"}
    if not isinstance(body, dict) or set(body) != known or body["schema"] != REQUEST:
        raise InputError(f"a request is {REQUEST!r} with exactly {', '.join(sorted(known))}.", "")
    allow, trials = body["allow"], body["trials"]
    if not isinstance(allow, list) or not all(isinstance(n, str) and _NAMESPACE.fullmatch(n) for n in allow):
        raise InputError("a request allows namespaces of ops, by name.", "")
    if type(trials) is not int or not 1 <= trials <= MAX_TRIALS:
        raise InputError(f"a request for {trials!r} trials cannot be met.", "")
    if not isinstance(body["capture"], str):
        raise InputError("a request names the folder of a capture.", "")
    return Request(Path(body["capture"]), condition_from_json(body["condition"]), trials, tuple(allow))


def plain_json(value: object) -> Any:
    """Write dataclasses, tuples and enums as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain_json(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON knows neither infinity nor NaN
    return value


def decode(kind: Any, body: object, place: str) -> Any:
    """Read a value of a declared type from JSON: dataclasses, tuples, lists, unions, literals, plain values.

    Raises
    ------
    InputError
        The value is of another type, or an object has a field that its dataclass has not.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(arguments, body, place)
    if kind is Any or type(body) is kind or (origin is Literal and body in arguments):
        return body
    if origin in (list, tuple) and isinstance(body, list):
        return _sequence(origin, arguments, body, place)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {str(n): decode(arguments[1], v, f"{place}.{n}") for n, v in _object(body, place).items()}
    if is_dataclass(kind):
        return _dataclass(kind, _object(body, place), place)
    return _plain(kind, body, place)


def _plain(kind: Any, body: object, place: str) -> Any:
    if kind is float and type(body) is int:
        return float(body)
    if isinstance(kind, type) and issubclass(kind, str) and isinstance(body, str):
        return _enum(kind, body, place)
    raise InputError(f"{place} holds {str(body)[:60]!r}, which it must not.", "write it again with detlab")


def _enum(kind: Any, body: str, place: str) -> Any:
    try:
        return kind(body)
    except ValueError as error:
        raise InputError(f"{place} is {body!r}.", "write it again with detlab") from error


def _dataclass(kind: Any, body: Mapping[str, object], place: str) -> Any:
    hints = get_type_hints(kind)
    if unknown := set(body) - set(hints):
        raise InputError(
            f"{place} has an unknown field {sorted(unknown)[0]!r}.", "read it with a newer detlab"
        )
    found = {name: decode(hints[name], value, f"{place}.{name}") for name, value in body.items()}
    try:
        return kind(**found)
    except TypeError as error:
        raise InputError(f"{place} lacks a field: {error}", "write it again with detlab") from error


def _one_of(kinds: tuple[Any, ...], body: object, place: str) -> Any:
    if body is None and NoneType in kinds:
        return None
    for number, kind in enumerate(known := [kind for kind in kinds if kind is not NoneType]):
        try:
            return decode(kind, body, place)
        except InputError:
            if number == len(known) - 1:
                raise
    raise InputError(f"{place} holds what it must not.", "write it again with detlab")


def _sequence(origin: Any, arguments: tuple[Any, ...], body: list[object], place: str) -> Any:
    if origin is tuple and (len(arguments) < 2 or arguments[1] is not Ellipsis):
        if len(arguments) != len(body):
            raise InputError(f"{place} has {len(body)} entries, not {len(arguments)}.", "")
        return tuple(
            decode(a, item, f"{place}[{i}]") for i, (a, item) in enumerate(zip(arguments, body, strict=True))
        )
    return origin(decode(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(body))


def _object(body: object, place: str) -> Mapping[str, object]:
    if not isinstance(body, dict):
        raise InputError(f"{place} is no object.", "write it again with detlab")
    return body


def _digest(text: object) -> int:
    if not isinstance(text, str) or not re.fullmatch("[0-9a-f]{16}", text):
        raise InputError("the result of a worker holds what is not a 64-bit digest.", "")
    return int(text, 16)
