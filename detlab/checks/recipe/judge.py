"""One rule held against the settings of one recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from detlab.checks.recipe.rules.requirements import Before, Given, Same, Shared, is_older
from detlab.checks.recipe.rules.rule import Filled, Need, Rule, Versions
from detlab.checks.recipe.said import is_open, shown, written
from detlab.checks.recipe.settings import Setting, Settings

State = Literal["holds", "broken", "not checked", "does not apply"]

_MAX_NAMED: Final = 8
_MAX_PLACES: Final = 3
_ANY: Final = "*"
_OF_TEXTS: Final = (Given, Same, Shared)
"""Requirements that a text with a variable in it can meet or break as it stands."""


class Outcome(NamedTuple):
    """What one rule says of one recipe.

    Attributes
    ----------
    rule
        The rule.
    state
        Whether it holds, is broken, could not be looked at, or is for other recipes.
    says
        What was found, or why it was not looked at.
    where
        The places that say so.
    """

    rule: Rule
    state: State
    says: str
    where: str = ""


def judge(rule: Rule, settings: Settings) -> Outcome:
    """Hold one rule against one recipe.

    What the recipe does not say is not taken for unset: that takes a source which says all there is of this
    kind, see `detlab.checks.recipe.settings.Settings.kinds`.
    """
    reason = _other_recipes(rule, settings)
    if reason:
        return Outcome(rule, "does not apply", reason)
    if rule.frameworks and settings.framework not in rule.frameworks:
        known = ", ".join(name for name in rule.frameworks if name)
        return Outcome(rule, "not checked", f"a rule of {known}; the source does not name its framework")
    unknown = next((need for need in rule.when if is_met(need, settings) is None), None)
    if unknown is not None:
        return Outcome(
            rule,
            "not checked",
            f"whether it is needed is not known: the source does not say {named(unknown.names[0])}",
        )
    said = [name for pattern in rule.settings for name in _matching(pattern, settings)]
    return _of_values(rule, said, settings) if said else _of_nothing(rule, settings)


def is_met(need: Need, settings: Settings) -> bool | None:
    """Say whether a condition is met; None where the recipe does not say."""
    accepted = [name for name in need.names if _is_accepted(need, name, settings)]
    if any(not settings.condition(name) for name in accepted):
        return True
    first = need.names[0]
    if accepted or any(is_open(each) for name in need.names for each in settings.by_name.get(name, ())):
        return None
    return False if settings.values(first) or settings.says_all_of(first) else None


def _is_accepted(need: Need, name: str, settings: Settings) -> bool:
    values = settings.values(name)
    return any(value is not None for value in values) and all(
        need.accepts.accepts(name, value, settings) for value in values
    )


def is_in(versions: Versions, settings: Settings) -> bool | None:
    """Say whether the recipe is of a range of versions; None where it does not name its version."""
    found = [written(value) for value in settings.values(versions.package)]
    if not found:
        return None
    since, before = versions.since, versions.before
    return not any(
        (since and is_older(version, since)) or (before and not is_older(version, before))
        for version in found
    )


def named(name: str) -> str:
    """Give a setting as people write it: ``env.NCCL_ALGO`` as ``NCCL_ALGO``."""
    kind, _, rest = name.partition(".")
    if kind == "version":
        return f"version of {rest}"
    return rest.removeprefix("*") if kind in ("env", "args") else name


def _other_recipes(rule: Rule, settings: Settings) -> str:
    """Say why a rule is not for this recipe; nothing where it is, or may be."""
    framework = settings.framework
    if rule.frameworks and framework and framework not in rule.frameworks:
        return f"not a rule of {framework}"
    if rule.versions is not None:
        is_of_them = is_in(rule.versions, settings)
        if is_of_them is False or (is_of_them is None and rule.versions.before):
            return "a rule of other versions"
    for need in rule.when:
        if is_met(need, settings) is False:
            return f"only with {_words(need)}"
    for need in rule.unless:
        if is_met(need, settings):
            return f"not with {_words(need)}"
    return ""


def _words(need: Need) -> str:
    return f"{' or '.join(map(named, need.names))} {need.accepts.spoken}"


def _matching(pattern: str, settings: Settings) -> list[str]:
    """Find the settings that have a value; one that is said to be unset has none."""
    names = [pattern] if _ANY not in pattern else sorted(settings.by_name)
    matching = (name for name in names if name == pattern or fnmatchcase(name, pattern))
    return [name for name in matching if any(value is not None for value in settings.values(name))]


def _of_nothing(rule: Rule, settings: Settings) -> Outcome:
    """Judge a rule of whose settings the recipe says nothing."""
    name = rule.settings[0]
    is_unset = bool(settings.values(name)) or settings.says_all_of(name)
    filled = list(_fills(rule, settings, is_unset=is_unset))
    for fill, holds in filled:
        if holds:
            unset = f"{named(name)} is not set; " if is_unset else ""
            says = f"{unset}{fill.by} makes {named(name)} {fill.value}{_if_new(fill, settings)}"
            return Outcome(rule, "holds", says)
    if not is_unset and settings.unset_here(name):
        why = f"{named(name)} is not set here, and what the run inherits is not known"
        return Outcome(rule, "not checked", why)
    if not is_unset:
        return Outcome(rule, "not checked", f"the source does not say {named(name)}")
    if rule.unset == "accepted":
        return Outcome(rule, "holds", f"{named(name)} is not set, which is accepted")
    if any(holds is None for _, holds in filled):
        return Outcome(
            rule, "not checked", f"{named(name)} is not set, and the source does not say what fills it"
        )
    return Outcome(rule, "broken", f"{named(name)} is not set")


def _fills(rule: Rule, settings: Settings, *, is_unset: bool) -> Iterator[tuple[Filled, bool | None]]:
    """Give what may fill the setting, and whether it does."""
    for fill in rule.unset if isinstance(rule.unset, tuple) else ():
        if not (is_unset or fill.overwrites) or not _is_of(fill, settings):
            continue
        needs = [is_met(need, settings) for need in fill.when]
        if fill.versions is not None:
            of_them = is_in(fill.versions, settings)
            needs.append(True if of_them is None and not fill.must_know else of_them)
        yield fill, False if False in needs else None if None in needs else True


def _if_new(fill: Filled, settings: Settings) -> str:
    """Say which versions do so, where the recipe does not name its own."""
    if fill.versions is None or settings.values(fill.versions.package):
        return ""
    package = named(fill.versions.package).removeprefix("version of ")
    return f", from {package} {fill.versions.since} on; the source does not say which this is"


def _is_of(fill: Filled, settings: Settings) -> bool:
    return not fill.frameworks or settings.framework in fill.frameworks


def _of_values(rule: Rule, said: Sequence[str], settings: Settings) -> Outcome:
    """Judge a rule by the values that the recipe gives."""
    every = [each for name in said for each in settings.by_name[name]]
    unset = [] if isinstance(rule.accepts, Same) else [each for each in every if each.value is None]
    unknown = [] if isinstance(rule.accepts, _OF_TEXTS) else [each for each in every if is_open(each)]
    bad = [
        each
        for each in every
        if each not in unknown and each not in unset and not _accepts(rule, each, settings)
    ]
    if bad:
        return Outcome(rule, "broken", _words_of(rule, bad, settings), _places(bad))
    if unknown:
        text = f"{named(unknown[0].name)} is {shown(unknown)}, and what that is in the run is not known"
        return Outcome(rule, "not checked", text, _places(unknown))
    if unset and (otherwise := _of_nothing(rule, settings)).state != "holds":
        return otherwise._replace(says=f"{named(unset[0].name)} is {shown(every)}", where=_places(unset))
    perhaps = next((name for name in said if settings.condition(name)), "")
    if perhaps and not (rule.unset == "accepted" and settings.says_all_of(perhaps)):
        values = settings.by_name[perhaps]
        text = f"{named(perhaps)} is {shown(values)} {values[0].condition}; what it is otherwise is not known"
        return Outcome(rule, "not checked", text, _places(values))
    return Outcome(rule, "holds", _good(rule, said, settings), _places(settings.by_name[said[0]]))


def _accepts(rule: Rule, each: Setting, settings: Settings) -> bool:
    return rule.accepts.accepts(each.name, each.value, settings)


def _words_of(rule: Rule, bad: Sequence[Setting], settings: Settings) -> str:
    """Say what breaks a rule: its own words and the names, or each name with its value."""
    names = list(dict.fromkeys(each.name for each in bad))
    parts = [_shown(rule, name, bad, settings) for name in names[:_MAX_NAMED]]
    parts += [f"{len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return f"{rule.finding} {', '.join(parts)}" if rule.finding else "; ".join(parts)


def _shown(rule: Rule, name: str, bad: Sequence[Setting], settings: Settings) -> str:
    """Give one broken setting with the values that break the rule."""
    values = shown([each for each in bad if each.name == name])
    if isinstance(rule.accepts, Before):
        times = [f"{float(written(each.value)):.4g}" for each in bad if each.name == name]
        return (
            f"{named(name.removeprefix('time.'))} at {times[0]} s, after {rule.accepts.event(settings):.4g} s"
        )
    if isinstance(rule.accepts, Same):
        return f"{named(name)} ({values})"
    if name.startswith("module."):
        return name.removeprefix("module.").rpartition(".")[0]
    return f"{named(name)} is {values}"


def _good(rule: Rule, said: Sequence[str], settings: Settings) -> str:
    if len(said) > 1:
        return f"{len(said)} settings: {rule.accepts.spoken}"
    return f"{named(said[0])} is {shown(settings.by_name[said[0]])}"


def _places(said: Sequence[Setting]) -> str:
    places = list(dict.fromkeys(each.where for each in said if each.where))
    more = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
    return ", ".join(places[:_MAX_PLACES]) + more
