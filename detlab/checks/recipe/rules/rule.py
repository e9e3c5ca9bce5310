"""What a rule about a recipe is made of: a setting, what it must be, when that holds, and the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from detlab.catalog import Source
from detlab.checks.recipe.rules.requirements import Contains, Requirement, Switched

Severity = Literal["error", "warning", "note"]


class Versions(NamedTuple):
    """A range of versions of a package: from ``since`` on, and older than ``before``; empty is open.

    Where a recipe does not name the version, it is taken for the newest: a range that ends holds only for a
    version that is known.
    """

    package: str
    since: str = ""
    before: str = ""


class Need(NamedTuple):
    """A condition on another setting, or on any of several.

    Attributes
    ----------
    names
        The settings; it is met where one of them has an accepted value. Whether it is *not* met, or not
        known, goes by the first of them.
    accepts
        The values that meet it.
    """

    names: tuple[str, ...]
    accepts: Requirement


class Filled(NamedTuple):
    """A value that something puts where nobody set one.

    Attributes
    ----------
    value
        The value.
    by
        What puts it there.
    when
        When it does so.
    versions
        The versions that do so; with ``must_know`` the version has to be known, as older ones do not.
    overwrites
        Whether it replaces a value that somebody set, so that nothing need be known of it.
    frameworks
        The frameworks that do so; none for all.
    """

    value: str
    by: str
    when: tuple[Need, ...] = ()
    versions: Versions | None = None
    must_know: bool = False
    overwrites: bool = False
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement on a recipe.

    Attributes
    ----------
    code
        ``DET001``…: stable, and never given to another rule.
    settings
        Names of `detlab.checks.recipe.settings`, or patterns of names with ``*``: each must be accepted.
    accepts
        The values that are accepted.
    unset
        Whether it may be left unset: ``accepted``, ``rejected``, or what fills it; where nothing of that
        applies it is rejected.
    severity
        ``error`` where bits are known to vary or the framework refuses to start, ``warning`` where they vary
        under conditions that a recipe does not show, ``note`` for what should be known.
    why
        What makes the other values vary, in one sentence.
    otherwise
        What it leads to.
    fix
        The line to paste.
    sources
        Where all this can be read.
    frameworks
        The frameworks it is for, ``""`` among them for an unknown one; none for all.
    versions
        The versions it is for.
    when, unless
        Conditions: all of the first and none of the second.
    finding
        Words in front of the names that break it, where "NAME is VALUE" would not say it.
    """

    code: str
    settings: tuple[str, ...]
    accepts: Requirement
    unset: Literal["accepted", "rejected"] | tuple[Filled, ...]
    severity: Severity
    why: str
    otherwise: str
    fix: str
    sources: tuple[Source, ...]
    frameworks: tuple[str, ...] = ()
    versions: Versions | None = None
    when: tuple[Need, ...] = ()
    unless: tuple[Need, ...] = ()
    finding: str = field(default="")


ON: Final = Switched(on=True)
OFF: Final = Switched(on=False)

FRAMEWORKS: Final = ("megatron-lm", "megatron-bridge", "nemo", "torchtitan", "torch")
"""The frameworks that rules are written for."""

MEGATRON: Final = ("megatron-lm", "megatron-bridge", "nemo")
"""Frameworks whose models are megatron-core's."""

OTHERS: Final = ("torchtitan", "torch", "")
"""Frameworks without a deterministic mode of Megatron's kind, and the unknown one."""

CPU_ONLY: Final = Need(("version.torch",), Contains("+cpu"))
"""Torch was built for CPUs alone: nothing of CUDA, cuBLAS, NCCL or Transformer Engine can be in use."""
