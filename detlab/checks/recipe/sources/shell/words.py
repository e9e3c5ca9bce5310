"""Cut a shell script into commands and words, as a shell would before it expands anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

_OPERATORS: Final = (
    "&&", "||", ";;&", ";;", ";&", "|&", "&>>", "&>", "<<<", "<<-", "<<", ">>", ">&", "<&", ">|", "<>",
    "&", "|", ";", "(", ")", "<", ">",
)  # fmt: skip
"""Longest first."""

REDIRECTIONS: Final = frozenset({"&>>", "&>", "<<<", ">>", ">&", "<&", ">|", "<>", "<", ">"})
"""Operators after which a word names a file, and is no argument."""

_ARRAY: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_FUNCTION: Final = re.compile(r"[ \t]*\([ \t]*\)")
_MAX_DEPTH: Final = 50


class Token(NamedTuple):
    """One word or operator.

    Attributes
    ----------
    kind
        ``word``; ``array`` for ``NAME=(…)``, whose items are words; ``function`` for a name with ``()``
        after it; ``operator``, which also is the end of a line.
    text
        As it stands in the script, with its quotes.
    line
        The line that it begins on.
    items
        The words of an array.
    """

    kind: Literal["word", "array", "function", "operator"]
    text: str
    line: int
    items: tuple[Token, ...] = ()


class Body(NamedTuple):
    """The text of a here-document; one whose end was quoted expands nothing."""

    text: str
    line: int
    is_quoted: bool


@dataclass
class Command:
    """One simple command.

    Attributes
    ----------
    words
        Its words, redirections left out; a parenthesis of a subshell is the only word of its command.
    before
        The operator before it: ``&&``, ``||``, ``|``, or another end of a command.
    bodies
        The here-documents that it reads.
    """

    words: list[Token]
    before: str
    bodies: list[Body] = field(default_factory=list)


class UnfinishedError(ValueError):
    """A quote, parenthesis or brace does not end; ``args`` are the line and what begins there."""


def commands_of(text: str, line: int = 1) -> tuple[list[Command], str]:
    """Cut a script into commands.

    Parameters
    ----------
    text
        The script.
    line
        The number of its first line.

    Returns
    -------
    The commands, and what is wrong with the script; empty for nothing. What stands before it is read.
    """
    lexer = _Lexer(text, line)
    try:
        lexer.run()
    except UnfinishedError as error:
        return lexer.commands, f"line {error.args[0]}: the {error.args[1]} that begins here does not end"
    return lexer.commands, ""


class _Lexer:
    """Goes through the text once; ``at`` is where it is."""

    def __init__(self, text: str, line: int) -> None:
        self.text, self.at, self.line = text, 0, line
        self.commands: list[Command] = []
        self._command = Command([], "\n")
        self._is_file = False
        self._waiting: list[tuple[Command, str, bool, bool]] = []

    def run(self) -> None:
        """Read all commands."""
        try:
            while self.at < len(self.text):
                self._next()
        finally:
            self._end("\n")

    def _next(self) -> None:
        if self._skip_blank():
            return
        operator = self._operator()
        if operator:
            self.at += len(operator)
            self._take_operator(operator)
        elif self.text[self.at] == "\n":
            self.at += 1
            self.line += 1
            self._end("\n")
            self._read_bodies()
        else:
            self._take_word(self._word())

    def _skip_blank(self) -> bool:
        """Step over blanks, continued lines and comments; say whether there was one."""
        text, at = self.text, self.at
        if text[at] in " \t":
            self.at += 1
        elif text.startswith("\\\n", at):
            self.at += 2
            self.line += 1
        elif text[at] == "#":
            end = text.find("\n", at)
            self.at = len(text) if end < 0 else end
        else:
            return False
        return True

    def _operator(self) -> str:
        return next((each for each in _OPERATORS if self.text.startswith(each, self.at)), "")

    def _take_operator(self, operator: str) -> None:
        if operator in ("<<", "<<-"):
            while self.text[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
            end = self._word().text
            plain = re.sub(r"[\"'\\]", "", end)
            self._waiting.append((self._command, plain, operator == "<<-", plain != end))
        elif operator in REDIRECTIONS:
            last = self._command.words[-1:]
            if last and last[0].text.isdecimal() and self.text[self.at - len(operator) - 1].isdecimal():
                self._command.words.pop()  # the number of what is redirected
            self._is_file = True
        elif operator == "(" and not self._command.words and self.text.startswith("(", self.at):
            self._skip_to("))", "arithmetic")
        else:
            self._end(operator)
            if operator in ("(", ")"):
                self._command.words.append(Token("operator", operator, self.line))
                self._end(operator)

    def _take_word(self, token: Token) -> None:
        if self._is_file:
            self._is_file = False
        elif token.text == "[[" and not self._command.words:
            self._command.words.append(token)
            self._skip_to("]]", "test")
        else:
            self._command.words.append(token)

    def _end(self, operator: str) -> None:
        """End the command."""
        self._is_file = False
        if self._command.words or self._command.bodies:
            self.commands.append(self._command)
            self._command = Command([], operator)
        elif operator != "\n":
            self._command.before = operator

    def _skip_to(self, end: str, what: str) -> None:
        found = self.text.find(end, self.at)
        if found < 0:
            raise UnfinishedError(self.line, what)
        self.line += self.text.count("\n", self.at, found)
        self.at = found + len(end)

    def _read_bodies(self) -> None:
        """Read the here-documents that the line before announced."""
        for command, end, is_indented, is_quoted in self._waiting:
            first, lines = self.line, []
            while True:
                if self.at >= len(self.text):
                    self._waiting = []
                    raise UnfinishedError(first, "here-document")
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at, self.line = stop + 1, self.line + 1
                if (line.lstrip("\t") if is_indented else line) == end:
                    break
                lines.append(line)
            command.bodies.append(Body("\n".join(lines), first, is_quoted))
        self._waiting = []

    def _word(self) -> Token:
        """Read one word with its quotes; ``NAME=(`` begins an array."""
        start, line = self.at, self.line
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in " \t\n" or (here in "&|;()<>" and not self._is_array(start)):
                break
            if here == "(":
                return self._array(self.text[start : self.at], line)
            self.at = self._piece(self.at, 0)
        text = self.text[start : self.at]
        called = _FUNCTION.match(self.text, self.at) if self._names_function() else None
        if called and text:
            self.at = called.end()
            return Token("function", text, line)
        if start == self.at:
            self.at += 1  # whatever it is, it must not be read for ever
        return Token("word", text.replace("\\\n", ""), line)

    def _names_function(self) -> bool:
        """Say whether a name that is read now may be that of a function, whose parentheses follow."""
        return [word.text for word in self._command.words] in ([], ["function"])

    def _is_array(self, start: int) -> bool:
        return self.text[self.at] == "(" and bool(_ARRAY.fullmatch(self.text, start, self.at))

    def _array(self, name: str, line: int) -> Token:
        self.at += 1
        items: list[Token] = []
        while True:
            if self.at >= len(self.text):
                raise UnfinishedError(line, "array")
            here = self.text[self.at]
            if here == ")":
                self.at += 1
                return Token("array", name, line, tuple(items))
            if here == "\n":
                self.at += 1
                self.line += 1
            elif not self._skip_blank():
                if self._operator():
                    self.at += 1
                else:
                    items.append(self._item())

    def _item(self) -> Token:
        start, line = self.at, self.line
        while self.at < len(self.text) and self.text[self.at] not in " \t\n)":
            self.at = self._piece(self.at, 0)
        return Token("word", self.text[start : self.at].replace("\\\n", ""), line)

    def _piece(self, at: int, depth: int) -> int:
        """Step over one character, or over one quoted or bracketed piece, and count its lines."""
        end = piece_end(self.text, at, self.line, depth)
        self.line += self.text.count("\n", at, end)
        return end


_PIECES: Final = (
    ("'", "'", "quote", True),
    ("`", "`", "command substitution", True),
    ('"', '"', "quote", False),
    ("$'", "'", "quote", False),
    ("$((", "))", "arithmetic", True),
    ("$(", ")", "command substitution", False),
    ("${", "}", "expansion", False),
)
"""How a piece begins and ends, what it is, and whether nothing else can stand in it."""


def piece_end(text: str, at: int, line: int = 1, depth: int = 0) -> int:
    """Give where one character of a word ends, or one quoted or bracketed piece."""
    if depth > _MAX_DEPTH:
        raise UnfinishedError(line, "nesting")
    if text[at] == "\\":
        return min(at + 2, len(text))
    for start, end, what, is_plain in _PIECES:
        if text.startswith(start, at):
            first = at + len(start)
            return (
                _after(text, end, first, line, what)
                if is_plain
                else _closed(text, first, end, line, depth, what)
            )
    return at + 1


def _after(text: str, end: str, at: int, line: int, what: str) -> int:
    found = text.find(end, at)
    if found < 0:
        raise UnfinishedError(line, what)
    return found + len(end)


def _closed(text: str, at: int, end: str, line: int, depth: int, what: str) -> int:
    """Find the end of a piece in which other pieces may stand."""
    inner = '\\"$`' if end == '"' else "\\" if end == "'" else "\\\"'$`("
    while at < len(text):
        if text[at] == end:
            return at + 1
        if text[at] == "(" and end == ")":
            at = _closed(text, at + 1, ")", line, depth + 1, what)
        elif text[at] in inner and text[at] != "(":
            at = piece_end(text, at, line, depth + 1)
        else:
            at += 1
    raise UnfinishedError(line, what)
