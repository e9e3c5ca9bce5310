"""YAML: Megatron's functional-test recipes, Megatron-Bridge, NeMo and anything else that is mappings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detlab.checks.recipe.settings import Settings
from detlab.checks.recipe.sources.found import Found
from detlab.checks.recipe.sources.reading import decoded
from detlab.checks.recipe.sources.tree import MAX_DEPTH, MAX_SETTINGS, Word, tree_settings
from detlab.errors import InputError

if TYPE_CHECKING:
    import yaml

_START: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:---|[\w\"'.-]+:(?=\s))")
_MAX_CHARS: Final = 1 << 20
_MERGE: Final = "<<"
_ORDINARY_TAGS: Final = "tag:yaml.org,2002:"


def recognise(path: Path, content: bytes) -> bool:
    """Say whether a file begins with a key and a colon."""
    return bool(_START.match(decoded(content)))


def read(path: Path, content: bytes) -> Settings:
    """Read the settings of a YAML file."""
    found = Found(path.name)
    documents = parse(decoded(content, found), found)
    if not any(isinstance(document, Mapping | list) for document in documents):
        raise InputError(f"{path} holds no settings: it is no mapping.", "give the configuration of a run")
    if len(documents) == 1:
        return tree_settings(documents[0], found, path.name)
    merged: dict[str, Any] = {}
    for number, document in enumerate(documents, 1):
        for key, value in document.items() if isinstance(document, Mapping) else ():
            if key in merged and merged[key] != value:
                found.miss(f"document {number}", f"it says {key} again; the last one is taken")
            merged[key] = value
    return tree_settings(merged, found, path.name)


def parse(text: str, found: Found) -> list[Any]:
    """Read every document of a YAML text as mappings, lists and text; nothing in it is ever made an object.

    Raises
    ------
    InputError
        It is no YAML, or it unfolds without end.
    """
    import yaml

    if len(text) > _MAX_CHARS:
        raise InputError(
            f"{found.place} is longer than {_MAX_CHARS >> 20} Mi characters: no configuration is.",
            "give the configuration of one run",
        )
    try:
        unfold = _Unfold(found)
        return [unfold.value(node, ()) for node in yaml.compose_all(text, yaml.SafeLoader)]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is no YAML"
        raise InputError(f"{found.at(where)}: {what}.", "give YAML that a YAML reader accepts") from None
    except RecursionError:
        raise InputError(
            f"{found.place} is nested deeper than any configuration.", "give the configuration of one run"
        ) from None


class _Unfold:
    """Turns nodes into mappings, lists and text, and stops where aliases unfold without end.

    Nodes are what a YAML reader makes before it makes values: nothing has been constructed from them.
    """

    def __init__(self, found: Found) -> None:
        from yaml.resolver import Resolver

        self._found = found
        self._num_nodes = 0
        self._resolver = Resolver()

    def value(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        """Unfold one node."""
        import yaml

        self._num_nodes += 1
        if self._num_nodes > 2 * MAX_SETTINGS or len(path) > MAX_DEPTH:
            raise InputError(
                f"{self._found.at(_line(node))}: aliases unfold to more than a configuration holds.",
                "give the configuration of one run",
            )
        if not node.tag.startswith(_ORDINARY_TAGS) or "python" in node.tag:
            self._found.miss(
                _line(node), f"the tag {node.tag} is not followed; what it marks is read as data"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, str(index))) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> str | None:
        """Give the text of a value; only one without quotes and without a tag may be a number or a flag."""
        import yaml

        text = str(node.value)
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        if not is_plain or node.tag != self._resolver.resolve(yaml.ScalarNode, text, (True, False)):  # type: ignore[no-untyped-call]
            return text
        return Word(text) if text else None

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        """Unfold a mapping; what it says itself goes before what it merges in."""
        import yaml

        own: dict[str, Any] = {}
        lines: dict[str, str] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._found.miss(_line(key), "a key that is no text is left out")
            elif key.value == _MERGE and key.style is None:
                merged = {**self._merged(item, path), **merged}
            else:
                if key.value in own:
                    place = ".".join((*path, key.value))
                    self._found.miss(
                        _line(key), f"{place} stands on {lines[key.value]} already; the last one is taken"
                    )
                own[key.value] = self.value(item, (*path, key.value))
                lines[key.value] = _line(key)
        return {**{name: value for name, value in merged.items() if name not in own}, **own}

    def _merged(self, node: yaml.Node, path: tuple[str, ...]) -> dict[str, Any]:
        """Give what ``<<`` brings in: of several mappings the first one that says a thing counts."""
        value = self.value(node, path)
        found: dict[str, Any] = {}
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping):
                found = {**each, **found}
            else:
                self._found.miss(_line(node), "what is merged in is no mapping and is left out")
        return found


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
