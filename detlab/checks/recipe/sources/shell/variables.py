"""The variables of a script: what each may hold, where branches part, and which of them it exports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from detlab.checks.recipe.sources.shell.expand import Field, Scope, Variable, expand, expand_text
from detlab.checks.recipe.sources.shell.words import Token, UnfinishedError

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_NAMED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
_MAX_HELD: Final = 32
"""Values that one variable may have; a script with more branches is told to have too many."""
_MAX_WORDS: Final = 200_000
_MAX_CHARS: Final = 1 << 24
"""Words and characters that all commands of a script expand to."""


WHOLE: Final = "script"
"""What is too large where everything together is."""


def is_assignment(token: Token) -> bool:
    """Say whether a word assigns a variable."""
    return token.kind == "array" or bool(_ASSIGNMENT.fullmatch(token.text))


@dataclass
class Variables:
    """The variables of a script at one line of it.

    Attributes
    ----------
    held
        For each name what it may hold, the value that the last line gives it last; several where a branch
        that nobody can decide assigns it.
    exported
        The names that go into the environment of what the script starts.
    exports_all
        Whether every name that is assigned is exported (``set -a``).
    too_many
        Lines on which a variable has more values than are looked at.
    """

    held: dict[str, list[Variable]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    exports_all: bool = False
    too_many: set[int] = field(default_factory=set)
    _num_words: int = 0
    _num_chars: int = 0

    def copy(self) -> Variables:
        """Give the same variables, for a subshell."""
        return replace(
            self, held={name: list(held) for name, held in self.held.items()}, exported=set(self.exported)
        )

    def environment(self) -> dict[str, list[Variable]]:
        """Give what is exported."""
        return {name: list(self.held.get(name, [])) for name in sorted(self.exported)}

    def scopes(self, tokens: Iterable[Token]) -> Iterator[Scope]:
        """Give the variables once for each value that one of those named in some words may have.

        The last value of each comes last; where several have more than one, they change one at a time.
        """
        texts = [text for token in tokens for text in (token.text, *(item.text for item in token.items))]
        names = dict.fromkeys(name for text in texts for name in _NAMED.findall(text))
        for name in names:
            for other in self.held.get(name, [])[:-1]:
                yield {**self.held, name: [other]}
        yield self.held

    def expanded(self, tokens: Sequence[Token], scope: Scope | None = None) -> list[Field]:
        """Expand words, up to what a script that starts a program can need."""
        held = self.held if scope is None else scope
        found: list[Field] = []
        for token in tokens:
            fields = expand(token, held)
            self._count(fields, token.line)
            found += fields
        return found

    def _count(self, fields: Sequence[Field], line: int) -> None:
        self._num_words += len(fields)
        self._num_chars += sum(len(each.text) for each in fields)
        if self._num_words > _MAX_WORDS or self._num_chars > _MAX_CHARS:
            raise UnfinishedError(line, WHOLE)

    def assign(self, token: Token, condition: str = "", *, exports: bool = False) -> None:
        """Follow ``NAME=value``, ``NAME+=value`` or ``NAME=(…)``, perhaps under a condition."""
        match = _ASSIGNMENT.fullmatch(token.text)
        if match is None:
            return
        name, appends, text = match.groups()
        held = self.held.get(name, [])
        made = list(self._values(token, text, condition))
        if appends and held:
            made = self._appended(held, made, token, condition)
        elif condition:
            made = [*held, *made]
        else:
            over = tuple(dict.fromkeys(each.line for each in held))
            made = [replace(each, over=over) for each in made]
        self._hold(name, made, token.line)
        if exports or self.exports_all:
            self.exported.add(name)

    def _values(self, token: Token, text: str, condition: str) -> Iterator[Variable]:
        """Give what an assignment may give."""
        is_array = token.kind == "array"
        for scope in self.scopes([token]):
            fields = self.expanded(token.items, scope) if is_array else [expand_text(text, scope, token.line)]
            self._count([] if is_array else fields, token.line)
            if condition:
                fields = [each._replace(condition=each.condition or condition) for each in fields]
            yield Variable(tuple(fields), token.line, is_array, condition)

    def _appended(
        self, held: Sequence[Variable], made: Sequence[Variable], token: Token, condition: str
    ) -> list[Variable]:
        """Give what a variable may hold after more was put behind it."""
        if token.kind == "array" or not condition:  # each item of an array has the condition of its own
            return [_joined(each, made[-1]) for each in held[:-1]] + [
                _joined(held[-1], more) for more in made
            ]
        return [*held, *(_joined(held[-1], more) for more in made)]

    def _hold(self, name: str, made: Sequence[Variable], line: int) -> None:
        """Keep what a variable may hold, each value once."""
        last = {(each.fields, each.is_array): each for each in reversed(made)}
        values = list(last.values())[::-1]
        if len(values) > _MAX_HELD:
            self.too_many.add(line)
            values = values[-_MAX_HELD:]
        self.held[name] = values

    def unset(self, fields: Iterable[Field], condition: str = "") -> None:
        """Follow ``unset``."""
        for each in fields:
            if not each.text.startswith("-"):
                held = self.held.get(each.text, [])
                over = () if condition else tuple(value.line for value in held)
                made = Variable(None, each.line, condition=condition, over=over)
                self._hold(each.text, [*held, made] if condition else [made], each.line)
                self.exported.add(each.text)

    def declare(self, name: str, words: Sequence[Token], condition: str = "") -> None:
        """Follow ``export``, ``declare -x`` and their kin."""
        options = "".join(word.text for word in words if word.text.startswith("-"))
        exports = (name == "export" and "n" not in options) or "x" in options
        for token in words:
            if token.text.startswith(("-", "+")) or (name == "export" and "f" in options):
                continue
            if is_assignment(token):
                self.assign(token, condition, exports=exports)
            elif exports:
                self.exported |= {each.text for each in expand(token, self.held)}
            elif name == "export":
                self.exported -= {each.text for each in expand(token, self.held)}

    def set_options(self, fields: Sequence[Field]) -> None:
        """Follow ``set -a`` and ``set +a``."""
        texts = [each.text for each in fields]
        spelled = texts == ["-o", "allexport"]
        on = spelled or any(re.fullmatch(r"-[a-zA-Z]*a[a-zA-Z]*", text) for text in texts)
        off = "+a" in texts or texts == ["+o", "allexport"]
        self.exports_all = on or (self.exports_all and not off)


def _joined(before: Variable, more: Variable) -> Variable:
    """Put one value behind another: items behind items, text behind text."""
    held, added = before.fields or (), more.fields or ()
    if before.is_array or more.is_array:
        return replace(before, fields=(*held, *added), is_array=True)
    first, last = (held or (Field("", before.line),))[0], added[0]
    text = Field(
        first.text + last.text,
        first.line,
        (*first.unknown, *last.unknown),
        first.condition or last.condition,
    )
    return replace(before, fields=(text,), condition=before.condition or more.condition)
