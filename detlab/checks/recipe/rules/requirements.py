"""The kinds of values that a rule may ask for: each says in words what it accepts, and judges one value."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final, NamedTuple, Protocol

from detlab.checks.recipe.said import ranks_of, written
from detlab.checks.recipe.settings import Settings, Value

_ON: Final = frozenset({"1", "true", "on", "yes", "y"})
_OFF: Final = frozenset({"0", "false", "off", "no", "n", "none", ""})

_OF_A_RANK: Final = re.compile(
    r"\$\{?\w*(rank|host|node|procid|localid|job_?id|task_?id|random)|\$\$|\$\(|\b(rank|node|host)[-_]?[0-9]",
    re.IGNORECASE,
)
"""What stands in the name of a folder that is another one for every rank, host or job."""

_OF_A_NODE: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names to look for, not to use
"""Where a node keeps what it does not share."""


class Requirement(Protocol):
    """What a setting must be."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether one value of a setting is accepted, among all settings."""


class OneOf(NamedTuple):
    """These texts and no other."""

    values: tuple[str, ...]

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return " or ".join(value for value in self.values if value)

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return written(value) in self.values


class NoneOf(NamedTuple):
    """Any text but these."""

    values: tuple[str, ...]

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"not {' or '.join(self.values)}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return written(value) not in self.values


class Tokens(NamedTuple):
    """A list with commas of which every item is one of these."""

    items: tuple[str, ...]

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"only {', '.join(self.items[:-1])} and {self.items[-1]}, with commas"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        said = {item.strip() for item in written(value).split(",") if item.strip()}
        return bool(said) and said <= set(self.items)


class LeavesOut(NamedTuple):
    """A choice of NCCL's algorithms that cannot fall on this one or its kin.

    NCCL's grammar: ``name,name``, ``^name`` for all but these, and ``function:…;function:…``.
    """

    algorithm: str

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"a choice without {self.algorithm}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        choices = [part.rpartition(":")[2].strip() for part in written(value).lower().split(";")]
        return all(self._is_left_out_of(choice) for choice in choices)

    def _is_left_out_of(self, choice: str) -> bool:
        names = [name.strip() for name in choice.removeprefix("^").split(",")]
        algorithm = self.algorithm.lower()
        if choice.startswith("^"):
            return algorithm in names
        return not any(name.startswith(algorithm) for name in names)


class Chosen(NamedTuple):
    """A choice of NCCL's algorithms for every function that adds: ``ring``, not ``broadcast:ring`` alone."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "a choice for all_reduce and reduce_scatter"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        parts = [part.partition(":") for part in written(value).lower().split(";") if part.strip()]
        functions = {function.strip() if colon else "" for function, colon, _ in parts}
        return "" in functions or {"allreduce", "reducescatter"} <= functions


class StartsWith(NamedTuple):
    """A text that begins like this; the empty text counts as unset."""

    text: str

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"a text that begins with {self.text}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        text = written(value)
        return not text or text.startswith(self.text)


class AtLeast(NamedTuple):
    """A version, and newer ones."""

    version: str

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"{self.version} or newer"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return not is_older(written(value), self.version)


class Switched(NamedTuple):
    """A flag that is on, or one that is off."""

    on: bool

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "on" if self.on else "off"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return written(value).lower() in (_ON if self.on else _OFF)


class Contains(NamedTuple):
    """A text with this in it."""

    text: str

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"with {self.text}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return self.text in written(value)


class MoreThan(NamedTuple):
    """A number above this one."""

    number: int

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"more than {self.number}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        number = _number(written(value))
        return number is not None and number > self.number


class Given(NamedTuple):
    """Any value but none, false, zero and the empty text."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "set"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        text = written(value)
        return text.lower() not in _OFF and _number(text) != 0


class Number(NamedTuple):
    """A whole number."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "a whole number"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        return written(value).isdecimal()


class Before(NamedTuple):
    """A time that is not later than the one of another setting, where that is known."""

    other: str

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return f"not later than {self.other}"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        time, event = _number(written(value)), self.event(settings)
        return time is None or event is None or time <= event

    def event(self, settings: Settings) -> float | None:
        """Give the time of the other setting, in seconds; None where it is not known."""
        known = [_number(written(value)) for value in settings.values(self.other)]
        return min((time for time in known if time is not None), default=None)


class Same(NamedTuple):
    """Any value that all ranks share; two places of one rank that do not agree are another matter."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "the same on all ranks"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        said = settings.by_name.get(name, ())
        return len(settings.values(name)) == 1 or not any(map(ranks_of, said))


class Shared(NamedTuple):
    """A folder that all ranks share: no rank, host or job in its name, and on no disk of a node's own."""

    @property
    def spoken(self) -> str:
        """What is accepted, in words."""
        return "one folder that all ranks share"

    def accepts(self, name: str, value: Value, settings: Settings) -> bool:
        """Say whether a value is accepted."""
        text = written(value)
        if len(settings.values(name)) > 1 or _OF_A_RANK.search(text):
            return False
        is_local = any(text == place or text.startswith(f"{place}/") for place in _OF_A_NODE)
        nodes = [settings.values(name) for name in ("place.nodes", "args.trainer.num_nodes", "args.nnodes")]
        is_spread = any((_number(written(number)) or 0) > 1 for said in nodes for number in said)
        return not (is_local and (is_spread or len(settings.values("place.host")) > 1))


def is_older(version: str, than: str) -> bool:
    """Compare two versions by their numbers; a release candidate or a build counts as its release.

    >>> is_older("1.5.4", "1.6.0"), is_older("1.6", "1.6.0"), is_older("1.10.0+cu12", "1.6.0")
    (True, False, False)
    """
    pairs = zip_longest(_numbers(version), _numbers(than), fillvalue=0)
    return next((a < b for a, b in pairs if a != b), False)


def _numbers(version: str) -> list[int]:
    found = re.match(r"\D{0,2}([0-9]+(?:\.[0-9]+)*)", version)
    return [int(part[:9]) for part in found[1].split(".")] if found else []


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
