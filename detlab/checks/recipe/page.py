"""The rules as a page: ``python -m detlab.checks.recipe.page > docs/rules.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from detlab.checks.recipe.judge import named
from detlab.checks.recipe.rules import RULES, Rule
from detlab.checks.recipe.rules.rule import Filled, Need, Versions
from detlab.checks.recipe.topics import SEVERITY, TOPICS, Topic

_HEAD: Final = """\
# Rules of a deterministic recipe

What `detlab check recipe A` and `dl.check_recipe(…)` hold against a run, a configuration, a launch
script, an environment or this process, and what `detlab check recipe A B` and `dl.compare_recipes(a, b)`
compare. The page is made from `detlab.checks.recipe.rules` and `detlab.checks.recipe.topics` by `python
-m detlab.checks.recipe.page`.

A rule holds, is broken, is for other recipes, or could not be looked at, because the source does not say
enough; what could not be looked at is listed and never counts as fine. Only an `error` makes a check
fail. A version that a recipe does not name is taken for the newest. A code is stable. Rules are as good
as their sources: a recipe that keeps them all can still vary, and whether it does, only two runs tell.
"""

_TWO: Final = """\
## Two runs

What must be equal before the comparison of two runs means anything. A setting belongs to the first topic that
has its name; a difference *breaks the comparison* (an error), *may explain a difference* (a warning) or is
*harmless* (a note).
"""

_COLUMNS: Final = "| code | setting | must be | severity | frameworks |\n| --- | --- | --- | --- | --- |"
_TOPIC_COLUMNS: Final = "| topic | a difference | why | names |\n| --- | --- | --- | --- |"


def page() -> str:
    """Give the whole page as Markdown."""
    rows = [
        f"| [{rule.code}](#{rule.code.lower()}) | {_ticked(rule.settings)} | {rule.accepts.spoken} "
        f"| {rule.severity} | {_frameworks(rule)} |"
        for rule in RULES
    ]
    topics = "\n".join([_TOPIC_COLUMNS, *map(_topic, TOPICS)])
    sections = ["\n".join(_section(rule)) for rule in RULES]
    parts = [_HEAD, "\n".join([_COLUMNS, *rows]), *sections, _TWO, topics]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code}\n"
    yield f"{_ticked(rule.settings)}: {rule.accepts.spoken}. {_unset(rule)}\n"
    yield f"- **Severity:** {rule.severity}"
    yield f"- **For:** {_frameworks(rule)}{_range(rule.versions)}{_conditions(rule)}"
    yield f"- **Why:** {rule.why}."
    yield f"- **Otherwise:** {rule.otherwise}."
    yield f"- **Fix:** `{rule.fix}`"
    yield f"- **Source:** {', '.join(f'[{source.title}]({source.url})' for source in rule.sources)}"


def _unset(rule: Rule) -> str:
    if rule.unset == "accepted":
        return "Unset is accepted."
    if rule.unset == "rejected":
        return "Unset is rejected."
    return f"Unset: {'; '.join(map(_fill, rule.unset))}; else it is rejected."


def _fill(fill: Filled) -> str:
    when = f", with {' and '.join(map(_need, fill.when))}" if fill.when else ""
    return f"{fill.by} makes it {fill.value}{when}{_range(fill.versions)}"


def _conditions(rule: Rule) -> str:
    when = f"; only with {' and '.join(map(_need, rule.when))}" if rule.when else ""
    unless = f"; not with {' nor '.join(map(_need, rule.unless))}" if rule.unless else ""
    return when + unless


def _need(need: Need) -> str:
    return f"{_ticked(need.names, ' or ')} {need.accepts.spoken}"


def _range(versions: Versions | None) -> str:
    if versions is None:
        return ""
    bounds = [
        f"{word} {bound}" for word, bound in (("from", versions.since), ("before", versions.before)) if bound
    ]
    return f" ({named(versions.package).removeprefix('version of ')} {' and '.join(bounds)})"


def _frameworks(rule: Rule) -> str:
    return ", ".join(name or "unknown" for name in rule.frameworks) or "all"


def _topic(topic: Topic) -> str:
    severity = SEVERITY[topic.group]
    return f"| {topic.name} | {topic.group} ({severity}) | {topic.why} | {_ticked(topic.patterns, ' ')} |"


def _ticked(names: Sequence[str], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(page())
