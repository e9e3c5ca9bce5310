"""Follow a shell script from line to line: what it assigns, exports and starts, and under which condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from detlab.checks.recipe.sources.shell.expand import Field, Variable, expand, expand_text
from detlab.checks.recipe.sources.shell.launch import Launch, launch_of
from detlab.checks.recipe.sources.shell.words import Command, Token, UnfinishedError, commands_of

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARES: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_OPENS: Final = {
    "if": "if",
    "while": "loop",
    "until": "loop",
    "for": "loop",
    "select": "loop",
    "case": "case",
}
_IN_CASE: Final = "only in the case"
"""How the condition of a branch of ``case`` begins, where parentheses end patterns."""
_CLOSES: Final = frozenset({"fi", "done", "esac"})
_SKIPPED: Final = frozenset({"then", "do", "!", "{", "}", "time", "elif", "else"})
_MAX_DEPTH: Final = 10
_MAX_COMMANDS: Final = 20_000
_MAX_WORDS: Final = 200_000
"""Words that all commands of a script expand to."""


@dataclass
class Started:
    """A program that the script starts, with the environment that it exports at that line."""

    launch: Launch
    environment: dict[str, list[Variable]]
    condition: str = ""


@dataclass
class Script:
    """What a script does, as far as its text tells.

    Attributes
    ----------
    variables
        Every variable that it assigns; several values where some were assigned under a condition.
    exported
        The names that go into the environment of what it starts.
    started
        The Python programs that it starts, in order.
    problems
        Pairs of a place and what could not be read there.
    """

    variables: dict[str, list[Variable]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    started: list[Started] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    _conditions: list[str] = field(default_factory=list)
    _functions: dict[str, list[Command]] = field(default_factory=dict)
    _called: set[str] = field(default_factory=set)
    _saved: list[tuple[dict[str, list[Variable]], set[str]]] = field(default_factory=list)
    _exports_all: bool = False
    _depth: int = 0
    _num_commands: int = 0
    _num_words: int = 0

    def run(self, text: str, line: int = 1) -> None:
        """Follow a text, and then the functions that it defines and does not call."""
        self.follow(text, line)
        for name, body in list(self._functions.items()):
            if name not in self._called:
                self._within(f"only in the function {name}, which the script does not call", body)

    def follow(self, text: str, line: int) -> None:
        """Follow a text from its first line to its last."""
        if self._depth >= _MAX_DEPTH:
            self.problems.append((f"line {line}", "scripts within scripts are not read any deeper"))
            return
        self._depth += 1
        commands, problem = commands_of(text, line)
        if problem:
            where, _, what = problem.partition(": ")
            self.problems.append((where, what))
        self._follow(commands)
        self._depth -= 1

    def _follow(self, commands: Sequence[Command]) -> None:
        at = 0
        while at < len(commands):
            self._num_commands += 1
            if self._num_commands > _MAX_COMMANDS:
                raise UnfinishedError(commands[at].words[0].line, "script")
            command = commands[at]
            named = _function_name(command)
            if named:
                at = self._define(named, commands, at)
                continue
            try:
                self._command(command)
            except UnfinishedError as error:
                self.problems.append((f"line {error.args[0]}", f"the {error.args[1]} here is not read"))
            at += 1

    def _define(self, name: str, commands: Sequence[Command], at: int) -> int:
        """Keep the body of a function, up to the brace that closes it; give where what follows begins."""
        rest = commands[at].words[1 if commands[at].words[0].kind == "function" else 2 :]
        body = [replace(commands[at], words=list(rest))] if rest else []
        depth = sum(word.text == "{" for word in rest[:1])
        at += 1
        while at < len(commands) and (depth > 0 or not body or body[-1].words[0].text not in ("}", ")")):
            first = commands[at].words[0].text if commands[at].words else ""
            depth += (first in ("{", "(")) - (first in ("}", ")"))
            body.append(commands[at])
            at += 1
            if depth <= 0 and first in ("}", ")"):
                break
        self._functions[name] = body
        self._called.discard(name)
        return at

    def _within(self, condition: str, commands: Sequence[Command]) -> None:
        self._depth += 1
        if self._depth < _MAX_DEPTH:
            outer, self._conditions = self._conditions, [*self._conditions, condition]
            self._follow(commands)
            self._conditions = outer
        self._depth -= 1

    def _command(self, command: Command) -> None:
        """Follow one command: take off what controls the flow, then assignments, then what it does."""
        words = self._without_keywords(command.words)
        if not words:
            self._bodies(command, [])
            return
        if words[0].kind == "operator":
            is_pattern = bool(self._conditions) and self._conditions[-1].startswith(_IN_CASE)
            if not is_pattern:
                self._subshell(words[0].text)
            return
        outer = self._conditions
        self._conditions = list(outer)
        if command.before in ("&&", "||"):
            self._conditions.append(f"only if the command before it on line {words[0].line} allows")
        try:
            self._simple(words, command)
        finally:
            self._conditions = outer

    def _subshell(self, parenthesis: str) -> None:
        """Forget what a subshell assigned when it ends."""
        if parenthesis == "(":
            copied = {name: list(held) for name, held in self.variables.items()}
            self._saved.append((copied, set(self.exported)))
        elif self._saved:
            self.variables, self.exported = self._saved.pop()

    def _without_keywords(self, words: Sequence[Token]) -> list[Token]:
        """Take keywords off the front of a command, and keep which conditions they open and close."""
        left = list(words)
        while left and left[0].kind == "word":
            text, line = left[0].text, left[0].line
            if text in _OPENS:
                self._conditions.append(f"only in the {_OPENS[text]} of line {line}")
                if text in ("for", "select", "case"):
                    self._forget(left[1:2] if text != "case" else [])
                    return []
            elif text in _CLOSES:
                if self._conditions:
                    self._conditions.pop()
            elif text in ("else", "elif"):
                if self._conditions:
                    self._conditions[-1] = f"only in the {text} of line {line}"
            elif text not in _SKIPPED:
                break
            left = left[1:]
        return left

    def _forget(self, names: Sequence[Token]) -> None:
        """Forget the variables of loops: nobody can name their values."""
        for token in names:
            self.variables.pop(token.text, None)

    def _simple(self, words: Sequence[Token], command: Command) -> None:
        at = 0
        while at < len(words) and (words[at].kind == "array" or _ASSIGNMENT.fullmatch(words[at].text)):
            at += 1
        if at == len(words):
            for token in words:
                self._assign(token)
            return
        fields = self._expanded(words[at:])
        if not fields:
            return
        name = fields[0].text
        if name in _DECLARES:
            self._declare(name, words[at + 1 :])
        elif name == "unset":
            self._unset(fields[1:])
        elif name == "set":
            self._set_options(fields[1:])
        elif name in self._functions and name not in self._called:
            self._called.add(name)
            self._depth += 1
            self._follow(self._functions[name])
            self._depth -= 1
            self._called.add(name)
        else:
            self._start(fields, words[:at], command)

    def _expanded(self, tokens: Sequence[Token]) -> list[Field]:
        """Expand words, up to what a script that starts a program can need."""
        fields = [each for token in tokens for each in expand(token, self.variables)]
        self._num_words += len(fields)
        if self._num_words > _MAX_WORDS:
            self._num_commands = _MAX_COMMANDS  # nothing more is followed
        return fields

    def _assign(self, token: Token, *, exports: bool = False) -> None:
        """Follow ``NAME=value``, ``NAME+=value`` or ``NAME=(…)``."""
        match = _ASSIGNMENT.fullmatch(token.text)
        if match is None:
            return
        name, appends, text = match.groups()
        condition = self._conditions[-1] if self._conditions else ""
        if token.kind == "array":
            fields = tuple(self._expanded(token.items))
        else:
            fields = (expand_text(text, self.variables, token.line),)
        held = self.variables.get(name, [])
        before = held[-1] if held else None
        if condition:
            fields = tuple(each._replace(condition=each.condition or condition) for each in fields)
        if appends and before is not None and before.fields is not None:
            fields = _appended(before, fields, is_array=token.kind == "array")
            is_array = before.is_array or token.kind == "array"
            self.variables[name] = [*held[:-1], replace(before, fields=fields, is_array=is_array)]
        else:
            over = () if condition else tuple(each.line for each in held)
            made = Variable(fields, token.line, token.kind == "array", condition, over)
            self.variables[name] = [*held, made] if condition else [made]
        if exports or self._exports_all:
            self.exported.add(name)

    def _declare(self, name: str, words: Sequence[Token]) -> None:
        """Follow ``export``, ``declare -x`` and their kin."""
        options = "".join(word.text for word in words if word.text.startswith("-"))
        exports = (name == "export" and "n" not in options) or "x" in options
        for token in words:
            if token.text.startswith(("-", "+")) or (name == "export" and "f" in options):
                continue
            if token.kind == "array" or _ASSIGNMENT.fullmatch(token.text):
                self._assign(token, exports=exports)
            elif exports:
                self.exported |= {each.text for each in expand(token, self.variables)}
            elif name == "export":
                self.exported -= {each.text for each in expand(token, self.variables)}

    def _unset(self, fields: Sequence[Field]) -> None:
        condition = self._conditions[-1] if self._conditions else ""
        for each in fields:
            if each.text.startswith("-"):
                continue
            held = self.variables.get(each.text, [])
            over = () if condition else tuple(value.line for value in held)
            made = Variable(None, each.line, condition=condition, over=over)
            self.variables[each.text] = [*held, made] if condition else [made]
            self.exported.add(each.text)

    def _set_options(self, fields: Sequence[Field]) -> None:
        texts = [each.text for each in fields]
        on = any(re.fullmatch(r"-[a-zA-Z]*a[a-zA-Z]*", text) for text in texts) or texts == [
            "-o",
            "allexport",
        ]
        off = "+a" in texts or texts == ["+o", "allexport"]
        self._exports_all = on or (self._exports_all and not off)

    def _start(self, fields: Sequence[Field], assigned: Sequence[Token], command: Command) -> None:
        """Follow a command that may start a program."""
        name, line = fields[0].text, fields[0].line
        if name == "eval":
            self.follow(" ".join(each.text for each in fields[1:]), line)
            return
        if name in ("source", "."):
            what = fields[1].text if len(fields) > 1 else "nothing"
            self.problems.append((f"line {line}", f"what {what} sets is not read; give that file too"))
            return
        if fields[0].is_open and len(fields) == 1:
            return
        self._bodies(command, fields)
        launch = launch_of(fields, line)
        if launch is None:
            return
        environment = {each: list(self.variables.get(each, [])) for each in sorted(self.exported)}
        scope = Script(dict(self.variables), set())
        for token in assigned:
            scope._assign(token, exports=True)
        environment |= {each: scope.variables[each] for each in sorted(scope.exported)}
        self.problems += [(f"line {line}", note) for note in launch.notes]
        if launch.shell is not None:
            self._inner(launch, environment)
        elif launch.script:
            self.started.append(
                Started(launch, environment, self._conditions[-1] if self._conditions else "")
            )

    def _inner(self, launch: Launch, environment: dict[str, list[Variable]]) -> None:
        """Follow the script that a shell is given as text; what wraps the shell wraps its programs."""
        assert launch.shell is not None  # asked before
        inner = Script(environment, set(environment), _depth=self._depth)
        inner.run(launch.shell.text, launch.shell.line)
        self.problems += inner.problems
        for each in inner.started:
            own = each.launch
            own.variables = [*launch.variables, *own.variables]
            own.only = own.only if launch.only is None else launch.only | (own.only or set())
            own.starts = own.starts or launch.starts
            self.started.append(each)

    def _bodies(self, command: Command, fields: Sequence[Field]) -> None:
        """Follow here-documents that are scripts for a shell or for Slurm; others are data."""
        is_script = any(each.text.rpartition("/")[2] in ("bash", "sh", "sbatch") for each in fields[:8])
        for body in command.bodies if is_script else ():
            text = body.text if body.is_quoted else _in_body(body.text, self.variables)
            inner = Script(
                {each: list(self.variables.get(each, [])) for each in self.exported}, set(self.exported)
            )
            inner._depth = self._depth
            inner.run(text, body.line)
            self.started += inner.started
            self.problems += inner.problems


def _function_name(command: Command) -> str:
    """Give the name of the function that a command begins to define; empty for none."""
    words = command.words
    if words and words[0].kind == "function":
        return words[0].text
    if len(words) > 1 and words[0].text == "function":
        return words[1].text.removesuffix("()")
    return ""


def _appended(before: Variable, fields: tuple[Field, ...], *, is_array: bool) -> tuple[Field, ...]:
    held = before.fields or ()
    if is_array or before.is_array:
        return (*held, *fields)
    first, more = (held or (Field("", before.line),))[0], fields[0]
    joined = first._replace(
        text=first.text + more.text,
        unknown=(*first.unknown, *more.unknown),
        condition=first.condition or more.condition,
    )
    return (joined,)


def _in_body(text: str, variables: dict[str, list[Variable]]) -> str:
    """Expand the variables in a here-document; quotes are characters there."""
    held = {name: values[-1] for name, values in variables.items() if values and values[-1].fields}

    def value(match: re.Match[str]) -> str:
        variable = held.get(match[1] or match[2])
        return " ".join(each.text for each in variable.fields or ()) if variable else match[0]

    return re.sub(r"(?<!\\)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value, text).replace("\\$", "$")
