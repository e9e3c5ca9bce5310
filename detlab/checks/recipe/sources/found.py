"""What the reader of a source collects: settings with their places, and what it could not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from detlab.checks.recipe.settings import KINDS, Setting, Settings, Value, gather
from detlab.checks.recipe.sources.values import as_text, without_secrets


@dataclass
class Found:
    """Settings of one source while they are being read.

    Attributes
    ----------
    place
        Name of the file or source, which every place begins with.
    """

    place: str
    settings: list[Setting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)

    def say(self, name: str, value: Value, where: str = "", condition: str = "") -> None:
        """Keep a setting; ``where`` is its place inside the source."""
        kept = without_secrets(name, _whole(value) if isinstance(value, str) else value)
        self.settings.append(Setting(_whole(name), kept, _whole(self.at(where)), condition))

    def say_variable(self, name: str, value: Value, where: str = "", condition: str = "") -> None:
        """Keep an environment variable, whose value is always text; None says that it is unset."""
        self.say(f"env.{name}", None if value is None else as_text(value), where, condition)

    def miss(self, where: str, what: str) -> None:
        """Keep a sentence about something that could not be read."""
        self.problems.append(f"{self.at(where)}: {what}")

    def at(self, where: str) -> str:
        """Name a place inside the source."""
        return f"{self.place}: {where}" if where else self.place

    def finish(self, label: str, framework: str, problems: Iterable[str] = ()) -> Settings:
        """Give what was collected."""
        return Settings(
            label=label,
            framework=framework,
            by_name=gather(self.settings),
            kinds=frozenset(self.kinds) & frozenset(KINDS),
            problems=(*problems, *self.problems),
            partly=frozenset(self.partly - self.kinds),
        )


def _whole(text: str) -> str:
    """Join halves of characters, and show those that are alone, which no text of a table can hold."""
    if text.isascii():
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "backslashreplace").decode("utf-8")
