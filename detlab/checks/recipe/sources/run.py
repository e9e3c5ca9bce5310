"""The recipe of a recorded run: what its manifest says, and what every rank saw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from detlab.checks.recipe.settings import Settings, Value
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.tree import Leaf, walk
from detlab.run import Run, spans
from detlab.text import plural

FIRST_PREFIXES: Final = (
    "CUDA_",
    "FLASH_",
    "MKL_",
    "NCCL_",
    "NVIDIA_",
    "NVTE_",
    "OMP_",
    "PYTORCH_",
    "TORCH_",
    "CUBLAS",
)
"""Beginnings of the variables that a recorder kept which does not say in the recipe which ones it keeps."""

_RECORDER: Final = "recorder"
"""Section of a recipe that says what a recorder keeps, and nothing of the run."""

_PLACE: Final = ("host", "rack", "local_rank")

_MEGATRON_ARGUMENTS: Final = frozenset(
    {"micro_batch_size", "tensor_model_parallel_size", "seed", "train_iters"}
)
"""A mapping of arguments that has all of these is a dump of Megatron's own, which says every argument."""


class _Said(NamedTuple):
    """One thing that a rank says: the name of the setting, its value and the place in the header."""

    name: str
    value: Value
    where: str


def run_settings(run: Run) -> Settings:
    """Give what a run says about how it was set up.

    What all ranks say alike is one setting; where they do not agree there are several, each with its ranks.

    Parameters
    ----------
    run
        A trace. A run of step metrics alone says nothing of its recipe.
    """
    found = Found(run.label)
    headers = {rank.header.rank: rank.header.recipe for rank in run.ranks}
    told = _by_value(headers)
    for said, ranks in [*told, *_unset(told, headers)]:
        is_every = len(ranks) == len(headers) > 1
        who = "every rank" if is_every else f"{plural('rank', len(ranks))} {spans(ranks)}"
        found.say(said.name, said.value, f"{who}: {said.where}")
    found.say("place.world_size", run.manifest.world_size, "manifest: world_size")
    for leaf in walk({"layout": dict(run.manifest.layout)}):
        found.say(f"place.{leaf.where}", leaf.value, f"manifest: {leaf.where}")
    _tell_kinds(headers, found)
    silent = [rank for rank, recipe in headers.items() if not recipe]
    if len(silent) == len(headers):
        found.miss("recipe", "no rank says how it was set up")
    elif silent:
        found.miss(f"{plural('rank', len(silent))} {spans(silent)}", "no word of how it was set up")
    prefixes = _prefixes(headers.values())
    if not prefixes:
        found.kinds.discard("env")  # two recorders that keep nothing in common say nothing whole
    return replace(found.finish(run.label, _framework(headers)), env_prefixes=prefixes)


def _by_value(headers: Mapping[int, Mapping[str, object]]) -> list[tuple[_Said, list[int]]]:
    """Give what is said with the ranks that say it; what many ranks say alike is read once."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, recipe in headers.items():
        for section, content in recipe.items():
            text = json.dumps(content, sort_keys=True, default=str)
            ranks_of.setdefault((section, text), []).append(rank)
    found: dict[tuple[str, str, str], tuple[_Said, list[int]]] = {}
    for (section, _), ranks in ranks_of.items():
        for said in _said(section, headers[ranks[0]][section]):
            key = (said.name, repr(said.value), said.where)  # True and 1 are two values
            found.setdefault(key, (said, []))[1].extend(ranks)
    return [(said, sorted(ranks)) for said, ranks in found.values()]


def _unset(
    told: Iterable[tuple[_Said, list[int]]], headers: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[_Said, list[int]]]:
    """Give the variables and versions that some ranks have and others, which list theirs too, have not."""
    holders: dict[_Said, set[int]] = {}
    for said, ranks in told:
        if said.name.startswith(("env.", "version.")):
            holders.setdefault(said._replace(value=None), set()).update(ranks)
    for said, held in holders.items():
        others = [rank for rank in headers if rank not in held and _lists(headers[rank], said.name)]
        if others:
            yield said, sorted(others)


def _lists(recipe: Mapping[str, Any], name: str) -> bool:
    """Say whether a rank lists all of its variables, or versions."""
    kind, _, rest = name.partition(".")
    if kind == "env":
        return "env" in recipe and rest.startswith(_told(recipe))
    state = recipe.get("state")
    return isinstance(state, Mapping) and bool(state.get("versions"))


def _said(section: str, content: object) -> Iterator[_Said]:
    if section != _RECORDER:
        for leaf in walk({section: content}):
            yield from _settings_of(leaf)


def _settings_of(leaf: Leaf) -> Iterator[_Said]:
    """Name what one entry of a recipe says."""
    section, *rest = leaf.path
    dotted = ".".join(rest)
    if not rest:
        name = f"place.{section}" if section in _PLACE else f"args.{section}"
    elif section == "state" and rest[0] == "versions":
        name = f"version.{package('.'.join(rest[1:]))}"
    elif section == "state":
        name = f"torch.{dotted}"
    elif section in ("env", "place", "time"):
        name = f"{section}.{dotted}"
    elif section == "modules":
        name = f"module.{dotted}"
    elif section == "arguments":
        name = names.field(rest, "")
    else:
        name = names.field(leaf.path, "megatron-lm")
    yield _Said(name, leaf.value, leaf.where)


def package(name: str) -> str:
    """Give the name of a package as settings spell it: ``transformer-engine`` is ``transformer_engine``."""
    return name.lower().replace("-", "_").replace(".", "_")


def _tell_kinds(headers: Mapping[int, Mapping[str, Any]], found: Found) -> None:
    """Say of what every rank says all there is."""
    recipes = list(headers.values())
    if recipes and all("env" in recipe for recipe in recipes):
        found.kinds.add("env")
    if recipes and all("state" in recipe for recipe in recipes):
        found.kinds.add("torch")
    arguments = [recipe.get("arguments") for recipe in recipes]
    if recipes and all(
        isinstance(each, Mapping) and _MEGATRON_ARGUMENTS.issubset(each) for each in arguments
    ):
        found.kinds.add("args")


def _prefixes(recipes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Say of which environment variables every rank's recorder speaks."""
    told = [_told(recipe) for recipe in recipes]
    return tuple(prefix for prefix in told[0] if all(prefix in each for each in told)) if told else ()


def _told(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    recorder = recipe.get(_RECORDER)
    prefixes = recorder.get("environment") if isinstance(recorder, Mapping) else None
    return tuple(map(str, prefixes)) if isinstance(prefixes, list | tuple) and prefixes else FIRST_PREFIXES


_OF_MEGATRON: Final = "tensor_model_parallel_size"
"""A field that every model configuration and every set of arguments of megatron-core has."""


def _framework(headers: Mapping[int, Mapping[str, Any]]) -> str:
    """Tell what trained: megatron-core where a rank shows its settings, else torch where it has a version.

    That a package is installed says nothing of what trained.
    """
    parts = [part for recipe in headers.values() for part in recipe.values() if isinstance(part, Mapping)]
    if any(_OF_MEGATRON in part for part in parts):
        return "megatron-lm"
    told = [part.get("versions") for part in parts]
    return "torch" if any(isinstance(each, Mapping) and "torch" in each for each in told) else ""
