"""Follow a shell script from line to line: what it assigns, exports and starts, and under which condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from detlab.checks.recipe.sources.shell.expand import Field, Variable
from detlab.checks.recipe.sources.shell.launch import Launch, launch_of
from detlab.checks.recipe.sources.shell.variables import WHOLE, Variables, is_assignment
from detlab.checks.recipe.sources.shell.words import Command, Token, UnfinishedError, commands_of

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
SUCCEEDS: Final = "succeeds"
"""How the condition of a command ends that follows, by ``&&``, one that is no test and should not fail."""
_TESTS: Final = frozenset({"[", "[[", "test", "!"})
_CLOSES: Final = frozenset({"fi", "done", "esac"})
_SKIPPED: Final = frozenset({"then", "do", "!", "{", "}", "time", "elif", "else"})
_MAX_DEPTH: Final = 10
_MAX_COMMANDS: Final = 20_000


@dataclass
class Started:
    """A program that the script starts, with the environment that it exports at that line.

    ``conditions`` are those of the command; ``given`` is the one under which the text of the command is what
    it is, where it comes out of a variable as a whole.
    """

    launch: Launch
    environment: dict[str, list[Variable]]
    conditions: tuple[str, ...] = ()
    given: str = ""

    @property
    def condition(self) -> str:
        """The innermost condition; empty for none."""
        return self.conditions[-1] if self.conditions else ""


@dataclass
class Script:
    """What a script does, as far as its text tells.

    Attributes
    ----------
    variables
        Its variables.
    started
        The Python programs that it starts, in order; one more than once where what it is given may differ.
    problems
        Pairs of a place and what could not be read there.
    """

    variables: Variables = field(default_factory=Variables)
    started: list[Started] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    _conditions: list[str] = field(default_factory=list)
    _functions: dict[str, list[Command]] = field(default_factory=dict)
    _called: set[str] = field(default_factory=set)
    _saved: list[Variables] = field(default_factory=list)
    _depth: int = 0
    _given: str = ""
    _follows_test: bool = False
    _num_commands: int = 0

    def run(self, text: str, line: int = 1) -> None:
        """Follow a text, and then the functions that it defines and does not call."""
        self.follow(text, line)
        for name, body in list(self._functions.items()):
            if name not in self._called:
                self._within(f"only in the function {name}, which the script does not call", body)
        for each in sorted(self.variables.too_many):
            self.problems.append((f"line {each}", "more branches meet here than are looked at"))

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
                raise UnfinishedError(commands[at].words[0].line, WHOLE)
            command = commands[at]
            named = _function_name(command)
            if named:
                at = self._define(named, commands, at)
                continue
            before = commands[at - 1].words[0].text if at and commands[at - 1].words else ""
            self._follows_test = before in _TESTS
            try:
                self._command(command)
            except UnfinishedError as error:
                if error.args[1] == WHOLE:
                    raise
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
            is_chain = command.before == "&&" and not self._follows_test
            what = SUCCEEDS if is_chain else "allows"
            self._conditions.append(f"only if the command before it on line {words[0].line} {what}")
        try:
            self._simple(words, command)
        finally:
            self._conditions = outer

    def _subshell(self, parenthesis: str) -> None:
        """Forget what a subshell assigned when it ends."""
        if parenthesis == "(":
            self._saved.append(self.variables.copy())
        elif self._saved:
            self.variables = self._saved.pop()

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
            self.variables.held.pop(token.text, None)

    @property
    def _condition(self) -> str:
        return self._conditions[-1] if self._conditions else ""

    def _simple(self, words: Sequence[Token], command: Command) -> None:
        """Follow a command without keywords."""
        at = 0
        while at < len(words) and is_assignment(words[at]):
            at += 1
        if at == len(words):
            for token in words:
                self.variables.assign(token, self._condition)
            return
        fields = self.variables.expanded(words[at:])
        name = fields[0].text if fields else ""
        if name in _DECLARES:
            self.variables.declare(name, words[at + 1 :], self._condition)
        elif name == "unset":
            self.variables.unset(fields[1:], self._condition)
        elif name == "set":
            self.variables.set_options(fields[1:])
        elif name in self._functions and name not in self._called:
            self._called.add(name)
            self._depth += 1
            self._follow(self._functions[name])
            self._depth -= 1
            self._called.add(name)
        else:
            self._bodies(command, fields)
            scopes = self.variables.scopes(words[at:])
            each = [tuple(self.variables.expanded(words[at:], scope)) for scope in scopes]
            for alternative in dict.fromkeys(each):
                self._start(alternative, words[:at])

    def _start(self, fields: Sequence[Field], assigned: Sequence[Token]) -> None:
        """Follow a command that may start a program."""
        if not fields:
            return
        name, line = fields[0].text, fields[0].line
        if name == "eval":
            outer, self._given = self._given, _condition_of(fields) or self._given
            self.follow(" ".join(each.text for each in fields[1:]), line)
            self._given = outer
        elif name in ("source", "."):
            what = fields[1].text if len(fields) > 1 else "nothing"
            self.problems.append((f"line {line}", f"what {what} sets is not read; give that file too"))
        else:
            launch = launch_of(fields, line)
            if launch is not None:
                self._launch(launch, assigned)

    def _launch(self, launch: Launch, assigned: Sequence[Token]) -> None:
        """Keep a program that is started, or follow the shell that is."""
        variables = self.variables.copy()
        for token in assigned:
            variables.assign(token, exports=True)
        self.problems += [(f"line {launch.line}", note) for note in launch.notes]
        if launch.shell is not None:
            self._inner(launch, variables)
        elif launch.script:
            environment = variables.environment()
            self.started.append(Started(launch, environment, tuple(self._conditions), self._given))

    def _inner(self, launch: Launch, variables: Variables) -> None:
        """Follow the script that a shell is given as text; what wraps the shell wraps its programs."""
        assert launch.shell is not None  # asked before
        given = launch.shell.condition or self._given
        inner = Script(_handed_on(variables), _depth=self._depth, _given=given)
        inner.run(launch.shell.text, launch.shell.line)
        self.problems += inner.problems
        for each in inner.started:
            own = each.launch
            own.variables = [*launch.variables, *own.variables]
            own.only = own.only if launch.only is None else launch.only | (own.only or set())
            own.starts = own.starts or launch.starts
            each.conditions = (*self._conditions, *each.conditions)
            self.started.append(each)

    def _bodies(self, command: Command, fields: Sequence[Field]) -> None:
        """Follow here-documents that are scripts for a shell or for Slurm; others are data."""
        is_script = any(each.text.rpartition("/")[2] in ("bash", "sh", "sbatch") for each in fields[:8])
        for body in command.bodies if is_script else ():
            text = body.text if body.is_quoted else _in_body(body.text, self.variables.held)
            inner = Script(_handed_on(self.variables), _depth=self._depth)
            inner.run(text, body.line)
            self.started += inner.started
            self.problems += inner.problems


def _condition_of(fields: Sequence[Field]) -> str:
    return next((each.condition for each in fields if each.condition), "")


def _handed_on(variables: Variables) -> Variables:
    """Give the variables that a shell has which another one starts."""
    environment = variables.environment()
    return Variables({name: held for name, held in environment.items() if held}, set(environment))


def _function_name(command: Command) -> str:
    """Give the name of the function that a command begins to define; empty for none."""
    words = command.words
    if words and words[0].kind == "function":
        return words[0].text
    if len(words) > 1 and words[0].text == "function":
        return words[1].text.removesuffix("()")
    return ""


def _in_body(text: str, variables: dict[str, list[Variable]]) -> str:
    """Expand the variables in a here-document; quotes are characters there."""
    held = {name: values[-1] for name, values in variables.items() if values and values[-1].fields}

    def value(match: re.Match[str]) -> str:
        variable = held.get(match[1] or match[2])
        return " ".join(each.text for each in variable.fields or ()) if variable else match[0]

    return re.sub(r"(?<!\\)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value, text).replace("\\$", "$")
