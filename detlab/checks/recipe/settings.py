"""What a run says about how it was set up: named settings, each with the place that says it.

Names have a prefix that says what kind of thing is set:

===========  ========================================================================================
prefix       what
===========  ========================================================================================
``env.``     an environment variable: ``env.NCCL_ALGO``
``args.``    an argument of the training script or a field of its configuration, in Megatron's spelling with
             underscores where it has one: ``args.deterministic_mode``, ``args.micro_batch_size``
``torch.``   a flag of the process, as `detlab.captures.state.STATE_FIELDS` names it: ``torch.deterministic``
``version.`` the version of a package, ``version.causal_conv1d``, or of a driver or container
``module.``  what a module of the model really has: ``module.embedding.deterministic_mode``
``time.``    when something happened, in seconds since the process began: ``time.cuda_initialized``,
             ``time.model_built``, ``time.env.CUBLAS_WORKSPACE_CONFIG``, ``time.torch.deterministic``
``place.``   where it ran: ``place.host``, ``place.rack``, ``place.world_size``, ``place.layout.tp``
===========  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KINDS: Final = ("env", "args", "torch", "version", "module", "time", "place")
"""The prefixes of names."""

Value = str | int | float | bool | None
"""What a setting can hold; lists are joined by commas."""


class Setting(NamedTuple):
    """One value of one setting and where it stands, such as ``model_config.yaml: ENV_VARS.NCCL_ALGO``.

    ``condition`` says when it has this value, where nothing is said of what it has otherwise, such as ``only
    in the if of line 3``.
    """

    name: str
    value: Value
    where: str
    condition: str = ""


@dataclass(frozen=True)
class Settings:
    """Everything that one source says about how a run was set up.

    Attributes
    ----------
    label
        Name for people: of the run, or the file's.
    framework
        ``megatron-lm``, ``megatron-bridge``, ``nemo``, ``torchtitan``, ``torch``, or empty where it is not
        known.
    by_name
        For each name what is said of it; several where ranks or lines do not agree.
    kinds
        Of which `KINDS` the source says all there is: a name of such a kind that is missing is *unset*; a
        missing name of another kind is *not known*.
    problems
        One sentence for each thing that could not be read, with its place.
    partly
        Of which `KINDS` the source says all that it sets itself, while more may be inherited or be a default
        that stands elsewhere, such as the environment of a launch script: a missing name of such a kind is
        *unset here*, and what it is in the run is not known.
    env_prefixes
        With which letters the environment variables begin that the source speaks of at all; empty where it
        speaks of all. A recorder keeps those that training reads, and no others.

    A value of None says that something is unset, such as after ``unset NCCL_ALGO`` in a script.
    """

    label: str
    framework: str
    by_name: Mapping[str, tuple[Setting, ...]]
    kinds: frozenset[str]
    problems: tuple[str, ...] = field(default=())
    partly: frozenset[str] = frozenset()
    env_prefixes: tuple[str, ...] = ()

    def values(self, name: str) -> tuple[Value, ...]:
        """Give the different values of a setting, in the order they are said; empty where it is not said."""
        said = {repr(each.value): each.value for each in self.by_name.get(name, ())}  # True and 1 are two
        return tuple(said.values())

    def condition(self, name: str) -> str:
        """Give the condition of a setting of which nothing is said otherwise; empty for none."""
        said = self.by_name.get(name, ())
        return said[0].condition if all(each.condition for each in said) and said else ""

    def where(self, name: str) -> str:
        """Name the first place that speaks of a setting."""
        said = self.by_name.get(name, ())
        return said[0].where if said else ""

    def says_all_of(self, name: str) -> bool:
        """Say whether a missing name is unset, and not merely unknown."""
        return name.partition(".")[0] in self.kinds and self._speaks_of(name)

    def unset_here(self, name: str) -> bool:
        """Say whether a missing name is not set by this source, whatever the run inherits from elsewhere."""
        return name.partition(".")[0] in self.kinds | self.partly and self._speaks_of(name)

    def _speaks_of(self, name: str) -> bool:
        kind, _, rest = name.partition(".")
        return kind != "env" or not self.env_prefixes or rest.startswith(self.env_prefixes)


def gather(said: Iterable[Setting]) -> dict[str, tuple[Setting, ...]]:
    """Group settings by name, in the order they are said."""
    found: dict[str, list[Setting]] = {}
    for each in said:
        found.setdefault(each.name, []).append(each)
    return {name: tuple(each) for name, each in found.items()}
