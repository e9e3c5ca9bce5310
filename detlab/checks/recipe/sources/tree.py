"""Walk what a configuration file holds: mappings, lists and values become settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from detlab.checks.recipe.settings import KINDS, Settings, Value
from detlab.checks.recipe.sources import names
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.values import joined, literal
from detlab.errors import InputError

MAX_SETTINGS: Final = 100_000
"""No configuration has more; a file that unfolds to more was made to flood."""

MAX_DEPTH: Final = 100

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_SECTION: Final = re.compile(
    r"(?i)env|envs|env_?vars|env_variables|environ|environment(?:_variables|_vars)?"
)

_ABOUT: Final = ("kinds", "framework", "label")
"""Keys of a mapping of settings that are no settings."""

_SECTION_OF_KIND: Final = {"arguments": "args", "versions": "version", "modules": "module", "state": "torch"}


_TARGETS: Final = {"megatron.bridge": "megatron-bridge", "nemo.": "nemo"}
"""Texts in the names of classes and whose they are."""

_SHAPES: Final = (
    ("nemo", {"trainer"}, {"model", "exp_manager", "optim", "data"}),
    ("torchtitan", {"training"}, {"parallelism", "job", "activation_checkpoint", "debug"}),
    ("megatron-bridge", {"model"}, {"ddp", "train", "rng", "dist", "scheduler", "mixed_precision"}),
)
"""Frameworks with sections that all have to be there, and sections of which one has to."""


class Word(str):
    """Text that stood without quotes where quotes would make it text: perhaps a number or a flag."""

    __slots__ = ()


class Leaf(NamedTuple):
    """One value of a configuration and the keys that lead to it."""

    path: tuple[str, ...]
    value: Value

    @property
    def where(self) -> str:
        """The keys, joined by dots."""
        return ".".join(self.path)


def tree_settings(tree: Any, found: Found, label: str) -> Settings:
    """Make settings of what a configuration file or a mapping holds.

    Parameters
    ----------
    tree
        Mappings, lists and values as JSON knows them.
    found
        Where they are kept.
    label
        Name of the source for people.
    """
    if not isinstance(tree, Mapping):
        if not isinstance(tree, list | tuple):
            raise InputError(f"{found.place} holds no settings.", "give a mapping, such as a configuration")
        tree = {str(index): item for index, item in enumerate(tree)}
    if _is_own_form(tree):
        return _own_form(tree, found, label)
    if _is_environment(tree):
        return _own_form({"env": dict(tree), "kinds": ["env"] if "PATH" in tree else []}, found, label)
    framework = framework_of(tree)
    leaves = list(walk(tree))
    for leaf in leaves:
        _say(leaf, found, framework)
    _tell_kinds(tree, leaves, found, framework)
    return found.finish(label, framework)


def walk(tree: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Give the values of a tree with the keys that lead to them.

    A list of values is one value, joined by commas; a list of anything else is counted from 0.

    Raises
    ------
    InputError
        The tree holds itself, is too deep or too large.
    """
    for number, leaf in enumerate(_walk(tree, path)):
        if number >= MAX_SETTINGS:
            raise InputError(
                f"The configuration unfolds to more than {MAX_SETTINGS:,} values.",
                "give the configuration of one run; aliases that repeat aliases are not followed further",
            )
        yield leaf


def _walk(tree: Any, path: tuple[str, ...]) -> Iterator[Leaf]:
    if len(path) > MAX_DEPTH:
        raise InputError(
            f"The configuration is nested deeper than {MAX_DEPTH} levels at {'.'.join(path[:5])}….",
            "give the configuration of one run; a value must not hold itself",
        )
    if isinstance(tree, Mapping):
        if not tree and path:
            yield Leaf(path, "{}")
        for key, value in tree.items():
            yield from _walk(value, (*path, str(key)))
    elif isinstance(tree, list | tuple):
        variables = _listed_variables(tree) if path and _ENV_SECTION.fullmatch(path[-1]) else None
        if variables:
            yield from _walk(variables, path)
        elif any(isinstance(item, Mapping | list | tuple) for item in tree):
            for index, item in enumerate(tree):
                yield from _walk(item, (*path, str(index)))
        else:
            yield Leaf(path, joined(_understood(_plain(item)) for item in tree))
    else:
        yield Leaf(path, _plain(tree))


def _plain(value: Any) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _understood(value: Value) -> Value:
    """Take a word for the number or flag that it is; text that was quoted stays text."""
    return literal(value) if isinstance(value, Word) else value


def _listed_variables(items: Sequence[Any]) -> dict[str, Any] | None:
    """Read ``- NAME=value`` or ``- name: NAME`` with its value; None where the list holds anything else."""
    found: dict[str, Any] = {}
    for item in items:
        if isinstance(item, Mapping) and "name" in item:
            found[str(item["name"])] = item.get("value", f"${{{item['name']}}}")
        elif isinstance(item, str) and _VARIABLE.fullmatch(item.partition("=")[0]):
            name, equals, value = item.partition("=")
            found[name] = value if equals else f"${{{name}}}"  # taken over from who starts it
        else:
            return None
    return found


def _say(leaf: Leaf, found: Found, framework: str) -> None:
    """Say one value: an environment variable, an argument given as a flag, or a field."""
    variable = variable_of(leaf.where)
    last = leaf.path[-1]
    if variable:
        found.say_variable(variable, leaf.value, leaf.where)
    elif last.startswith("--"):
        value = literal(leaf.value) if isinstance(leaf.value, str) else leaf.value
        found.say(*names.flag(last.lstrip("-"), value), leaf.where)
    else:
        found.say(names.field(leaf.path, framework), _understood(leaf.value), leaf.where)


def variable_of(dotted: str) -> str:
    """Give the environment variable that a dotted name sets, as in ``executor.env_vars.NCCL_ALGO``; or ""."""
    *sections, last = dotted.split(".")
    is_inside = bool(sections) and _ENV_SECTION.fullmatch(sections[-1])
    return last if is_inside and _VARIABLE.fullmatch(last) and last.upper() == last else ""


def framework_of(tree: Mapping[str, Any]) -> str:
    """Tell whose configuration a tree is by its sections; empty where it could be anybody's."""
    sections = {str(key).partition(".")[0] for key in tree}
    if "MODEL_ARGS" in sections or any(key.startswith("--") for key in sections):
        return "megatron-lm"
    targets = " ".join(_targets(tree))
    known = [name for text, name in _TARGETS.items() if text in targets]
    known += [name for name, all_of, any_of in _SHAPES if all_of <= sections and sections & any_of]
    return known[0] if known else ""


def _targets(tree: Mapping[str, Any]) -> Iterator[str]:
    """Give the classes that the first two levels of a configuration name; they are text and nothing else."""
    for value in (tree, *tree.values()):
        target = value.get("_target_") if isinstance(value, Mapping) else None
        if isinstance(target, str):
            yield target


def _tell_kinds(tree: Mapping[str, Any], leaves: Sequence[Leaf], found: Found, framework: str) -> None:
    """Say of what the configuration says all there is.

    A recipe of Megatron-LM's functional tests is the whole command line and the environment that goes with
    it. A configuration that was written out by the program, with the class of every section, says all
    arguments; one that a person wrote says what differs from defaults that stand elsewhere.
    """
    found.partly |= {"args", "env"}
    if "MODEL_ARGS" in tree:
        found.kinds |= {"args", "env"}
    if sum(leaf.path[-1] == "_target_" for leaf in leaves) >= 3:
        found.kinds.add("args")
    if framework == "torchtitan":
        found.kinds.add("args")


def _is_own_form(tree: Mapping[str, Any]) -> bool:
    """Say whether the keys are the prefixes of settings, alone or with a name after them."""
    keys = [str(key).partition(".")[0] for key in tree if key not in _ABOUT]
    known = {*KINDS, *_SECTION_OF_KIND}
    return bool(keys) and all(key in known for key in keys)


def _is_environment(tree: Mapping[str, Any]) -> bool:
    """Say whether a mapping is variables and texts, such as ``dict(os.environ)`` written down."""
    is_text = all(isinstance(value, str) for value in tree.values())
    return (
        bool(tree) and is_text and all(str(key).upper() == key and _VARIABLE.fullmatch(key) for key in tree)
    )


def _own_form(tree: Mapping[str, Any], found: Found, label: str) -> Settings:
    """Read a mapping of settings by their own names: nested by kind, or with dotted names.

    ``env``, ``args`` and ``torch`` that are sections of their own are whole, and what they lack is unset;
    dotted names at the top say no more than they say. ``kinds`` (a list) says otherwise; ``framework`` and
    ``label`` name the framework and the run. Times are seconds since the process began: ``time.env.NAME``,
    ``time.torch.deterministic``, ``time.args.deterministic_mode``, ``time.cuda_initialized`` and
    ``time.model_built``.
    """
    for leaf in walk({key: value for key, value in tree.items() if key not in _ABOUT}):
        kind, _, rest = leaf.where.partition(".")
        kind = _SECTION_OF_KIND.get(kind, kind)
        if not rest:
            found.miss(leaf.where, "it has no name after its kind")
        elif kind == "env":
            found.say_variable(rest, leaf.value, leaf.where)
        elif kind == "version":
            found.say(f"version.{rest.lower().replace('-', '_')}", leaf.value, leaf.where)
        else:
            found.say(f"{kind}.{rest}", _understood(leaf.value), leaf.where)
    told = tree.get("kinds")
    sections = {str(key) for key, value in tree.items() if isinstance(value, Mapping)}
    whole = {"env", "args", "torch"} & {_SECTION_OF_KIND.get(each, each) for each in sections}
    found.kinds |= set(map(str, told)) if isinstance(told, list | tuple | set | frozenset) else whole
    found.partly |= {"env", "args"}
    return found.finish(str(tree.get("label", label)), str(tree.get("framework", "")))
