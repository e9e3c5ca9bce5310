"""What people say of runs whose logs do not: on which hosts they ran, and other facts."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from detlab.errors import InputError

Hosts = Mapping[str, Sequence[str]]
"""The hosts of each run, by the run's label."""

Facts = Mapping[str, Mapping[str, object]]
"""What else is known of each run, by the run's label: ``{"A1": {"racks": 1}}``."""

Place = str | PathLike[str]

_SHOWN: Final = 5


def as_hosts(hosts: Hosts | Place | None) -> dict[str, tuple[str, ...]]:
    """Give the hosts of each run, from a mapping or a small file.

    Parameters
    ----------
    hosts
        ``{"monday": ["n1", "n2"]}``, or the path of a TOML or JSON file of that shape, or of a CSV file
        whose lines are a label and one or more hosts; lines of one label add up, and a first line
        ``label,host`` is a header.

    Raises
    ------
    InputError
        The file cannot be read, or a label has something else than a list of hosts.
    """
    if hosts is None:
        return {}
    content = hosts if isinstance(hosts, Mapping) else _read(hosts)
    where = "the host list" if isinstance(hosts, Mapping) else fspath(hosts)
    found = {}
    for label, names in content.items():
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(isinstance(each, str) for each in names)
        ):
            raise InputError(
                f"{where}: {label} has no list of hosts but {names!r}.", 'write it like A1 = ["n1", "n2"]'
            )
        found[str(label)] = tuple(dict.fromkeys(names))
    return found


def as_facts(facts: Facts | Place | None) -> dict[str, dict[str, object]]:
    """Give what else is known of each run, from a mapping or a TOML or JSON file of that shape.

    Raises
    ------
    InputError
        The file cannot be read, or a label has something else than facts with names.
    """
    if facts is None:
        return {}
    content = facts if isinstance(facts, Mapping) else _read(facts)
    wrong = [str(label) for label, each in content.items() if not isinstance(each, Mapping)]
    if wrong:
        raise InputError(f"The facts of {wrong[0]} have no names.", 'give them like {"A1": {"racks": 1}}')
    return {str(label): dict(each) for label, each in content.items()}


def _read(place: Place) -> Mapping[str, Any]:
    path = Path(place)
    try:
        text = path.read_text("utf-8-sig")
        if path.suffix == ".csv":
            return _of_lines(text)
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:  # both parsers' errors are ValueErrors
        raise InputError(f"{path} cannot be read: {error}", "give a TOML, JSON or CSV file") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds no labels of runs.", 'write it like A1 = ["n1", "n2"]')
    return content


def _of_lines(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for number, line in enumerate(csv.reader(text.splitlines())):
        cells = [cell.strip() for cell in line if cell.strip()]
        if not cells or (
            number == 0 and [cell.lower() for cell in cells] in (["label", "host"], ["run", "host"])
        ):
            continue
        found.setdefault(cells[0], []).extend(cells[1:])
    return found


def refuse_strangers(given: Sequence[str], labels: Sequence[str], what: str) -> None:
    """Refuse a list that names runs which are not there: most likely a label was misspelt.

    Raises
    ------
    InputError
        It does.
    """
    strangers = [label for label in given if label not in labels]
    if strangers:
        raise InputError(
            f"{what} name {', '.join(strangers[:_SHOWN])}, and there is no such run.",
            f"the runs are {', '.join(labels)}",
        )
