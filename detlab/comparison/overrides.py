"""What a user says about two runs: names that mean the same, and differences that are known."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from detlab.comparison.findings import Finding
from detlab.errors import InputError
from detlab.schema import Callee
from detlab.store import NameTables, RankTrace
from detlab.store.reader import rebuild_index

_MATCHED: Final = ("class", "op", "scope", "phase")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names of run b by the names that run a has for the same thing.

    Attributes
    ----------
    scopes, ops
        Name in run b to name in run a.
    """

    scopes: Mapping[str, str] = field(default_factory=dict)
    ops: Mapping[str, str] = field(default_factory=dict)

    def rename(self, callee: Callee) -> Callee:
        """Give a callee of run b the names of run a."""
        return callee._replace(
            scope=self.scopes.get(callee.scope, callee.scope), op=self.ops.get(callee.op, callee.op)
        )

    @classmethod
    def read(cls, source: Pairs | Mapping[str, Mapping[str, str]] | str | PathLike[str] | None) -> Pairs:
        """Read pairs from a TOML file or a mapping with the tables ``scopes`` and ``ops``.

        Raises
        ------
        InputError
            The file cannot be read, or holds something else.
        """
        if isinstance(source, Pairs):
            return source
        tables = _read_toml(Path(source)) if isinstance(source, (str, PathLike)) else dict(source or {})
        for name, table in tables.items():
            fits = name in ("scopes", "ops") and isinstance(table, Mapping)
            if not fits or not all(isinstance(value, str) for value in table.values()):
                raise InputError(
                    f"pairs: '{name}' is no table of names.",
                    'write [scopes] and [ops] with lines such as "feed_forward" = "layers.2.feed_forward"',
                )
        return cls(**tables)

    def apply(self, trace: RankTrace) -> RankTrace:
        """Give a trace of run b with the names of run a; its events are the same."""
        if not (self.scopes or self.ops):
            return trace
        trace.check(np.arange(len(trace.index)))  # the new index would hide damage from now on
        names = NameTables()
        names.callees = [self.rename(callee) for callee in trace.names.callees]
        names.metas = list(trace.names.metas)
        index, _ = rebuild_index(trace.events, names)
        return replace(trace, names=names, index=index)

    def renamed(self, trace: RankTrace) -> frozenset[int]:
        """Give the ids of the callees of a trace of run b that get other names."""
        if not (self.scopes or self.ops):
            return frozenset()
        return frozenset(n for n, callee in enumerate(trace.names.callees) if self.rename(callee) != callee)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A difference that is known, and why it is accepted; parts left empty accept anything.

    Attributes
    ----------
    finding_class, op, scope, phase
        What it concerns; ``*`` in them stands for any text.
    reason
        Why it is accepted; shown wherever the finding is.
    """

    reason: str
    finding_class: str = "*"
    op: str = "*"
    scope: str = "*"
    phase: str = "*"

    def covers(self, finding: Finding) -> bool:
        """Say whether every scope of a finding is one that this entry speaks of."""
        return (
            fnmatchcase(finding.finding_class, self.finding_class)
            and fnmatchcase(finding.op, self.op)
            and fnmatchcase(finding.phase, self.phase)
            and all(fnmatchcase(scope, self.scope) for scope in finding.scopes)
        )


def read_accepted(path: str | PathLike[str] | None) -> list[Accepted]:
    """Read a file of accepted differences: TOML with one ``[[accept]]`` table each.

    Raises
    ------
    InputError
        The file cannot be read, an entry has no reason, or a key is none of class, op, scope and phase.
    """
    if path is None:
        return []
    content = _read_toml(Path(path))
    entries = content.get("accept")
    if content.keys() != {"accept"} or not isinstance(entries, list):
        found = ", ".join(content) or "nothing"
        raise InputError(
            f"{path} has {found} instead of [[accept]] tables.", "write one [[accept]] table each"
        )
    return [_accepted(Path(path), number, entry) for number, entry in enumerate(entries, start=1)]


def _accepted(path: Path, number: int, entry: Any) -> Accepted:
    known = isinstance(entry, dict) and entry.keys() <= {"reason", *_MATCHED}
    if not known or not all(isinstance(value, str) for value in entry.values()) or not entry.get("reason"):
        raise InputError(
            f"{path}: entry {number} is no accepted difference.",
            f"give it a reason and some of {', '.join(_MATCHED)}, all as text",
        )
    if not entry.keys() & set(_MATCHED):
        raise InputError(
            f"{path}: entry {number} would accept every difference.",
            f"name at least one of {', '.join(_MATCHED)}",
        )
    values = dict(entry)
    if "class" in values:
        values["finding_class"] = values.pop("class")
    return Accepted(**values)


def accept(findings: Sequence[Finding], accepted: Sequence[Accepted]) -> list[Finding]:
    """Mark the findings that some entry covers; none is left out."""
    marked = []
    for finding in findings:
        reason = next((entry.reason for entry in accepted if entry.covers(finding)), "")
        marked.append(replace(finding, accepted=reason) if reason else finding)
    return marked


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", "give the path of a TOML file"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}", "docs/verdicts.md has an example") from error
