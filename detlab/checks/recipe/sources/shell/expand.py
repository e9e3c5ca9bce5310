"""What words of a script expand to, from what the script itself assigns; the rest stays as it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from detlab.checks.recipe.sources.shell.words import Token, UnfinishedError, piece_end

_NAME: Final = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])")
_ALL_ITEMS: Final = re.compile(r'"\$(?:@|\{\w+\[@\]\})"')
"""Of which a shell makes as many words as there are items, and none of none."""
_BRACES: Final = re.compile(r"([A-Za-z_]\w*)(?:\[([@*]|[0-9]+)\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_MAX_CHARS: Final = 1 << 18
_MAX_DEPTH: Final = 20


class Field(NamedTuple):
    """One word of a command after expansion.

    Attributes
    ----------
    text
        The word; what the script does not say stays in it as ``${NAME}`` or ``$(command)``.
    line
        The line that it was written on, which is another one where it came out of a variable.
    unknown
        What the script does not say of it.
    condition
        Under which condition it is there, such as ``only in the if of line 3``; empty for none.
    """

    text: str
    line: int
    unknown: tuple[str, ...] = ()
    condition: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is nothing but one thing that the script does not say, perhaps many words or none."""
        return len(self.unknown) == 1 and self.text == self.unknown[0]


class _Expansion(NamedTuple):
    """One ``$NAME`` or ``${NAME…}``, and the piece of text that it is."""

    name: str
    item: str
    operator: str
    rest: str
    piece: str


@dataclass(frozen=True)
class Variable:
    """One assignment.

    Attributes
    ----------
    fields
        What it holds: one for text, any number for an array; None once it is unset.
    line
        The line of the assignment.
    is_array
        Whether it is an array.
    condition
        Under which condition it was assigned.
    over
        Lines of the assignments that it replaced.
    """

    fields: tuple[Field, ...] | None
    line: int
    is_array: bool = False
    condition: str = ""
    over: tuple[int, ...] = ()


Scope = Mapping[str, Sequence[Variable]]
"""What each variable may hold: several where some were assigned under a condition."""


def expand(token: Token, scope: Scope) -> list[Field]:
    """Expand one word to the words that a shell would make of it.

    Parameters
    ----------
    token
        A word with its quotes.
    scope
        The variables that the script assigned before it.
    """
    word = _Word(token.line, scope)
    word.expand(token.text, is_quoted=False)
    word.flush()
    return word.done


def expand_text(text: str, scope: Scope, line: int) -> Field:
    """Expand what stands right of ``=``: it stays one word."""
    word = _Word(line, scope, splits=False)
    word.expand(text, is_quoted=False)
    word.flush()
    found = word.done or [Field("", line)]
    condition = next((each.condition for each in found if each.condition), "")
    unknown = tuple(name for each in found for name in each.unknown)
    return Field(" ".join(each.text for each in found), line, unknown, condition)


class _Word:
    """The fields of one word while it is being expanded."""

    def __init__(self, line: int, scope: Scope, *, splits: bool = True) -> None:
        self.done: list[Field] = []
        self._line, self._scope, self._splits = line, scope, splits
        self._depth = self._num_chars = 0
        self._cuts = False
        self._start("")
        self._text: str | None = None

    def _start(self, condition: str) -> None:
        self._text = None
        self._unknown: tuple[str, ...] = ()
        self._condition = condition
        self._from_line: int | None = None

    def _add(self, text: str, line: int | None = None, condition: str = "") -> None:
        self._num_chars += len(text)
        if self._num_chars > _MAX_CHARS:
            raise UnfinishedError(self._line, "expansion")
        self._from_line = line if self._text in (None, "") else None
        self._text = (self._text or "") + text
        self._condition = self._condition or condition

    def _add_unknown(self, raw: str) -> None:
        self._add(raw)
        self._unknown = (*self._unknown, raw)

    def flush(self) -> None:
        """End a field, if one was begun."""
        if self._text is not None:
            line = self._line if self._from_line is None else self._from_line
            self.done.append(Field(self._text, line, self._unknown, self._condition))
        self._start("")

    def expand(self, text: str, *, is_quoted: bool) -> None:
        """Add what a piece of text expands to."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnfinishedError(self._line, "expansion")
        at = 0
        while at < len(text):
            at = self._piece(text, at, is_quoted=is_quoted)
        self._depth -= 1

    def _piece(self, text: str, at: int, *, is_quoted: bool) -> int:
        """Expand one piece; give where the next one begins."""
        here = text[at]
        name = _NAME.match(text, at)
        if name:
            self._variable(_Expansion(name[1], "", "", "", name[0]), is_quoted=is_quoted)
            return name.end()
        if here == "'" and is_quoted:  # inside double quotes it is a character
            self._add(here)
            return at + 1
        end = piece_end(text, at, self._line, self._depth)
        piece = text[at:end]
        if here == "\\":
            is_escape = not is_quoted or piece[1:] in ("$", "`", '"', "\\", "\n")
            self._add(piece[1:] if is_escape else piece)
        elif here in "'\"" and not is_quoted:
            self._quotes(piece)
        elif (here == "$" and len(piece) > 1) or here == "`":
            self._dollar(piece, is_quoted=is_quoted)
        elif self._cuts and not is_quoted and piece.isspace():
            self.flush()
        else:
            self._add(piece)
        return end

    def _quotes(self, piece: str) -> None:
        """Expand what stands in quotes."""
        if piece[0] == "'":
            self._add(piece[1:-1])
            return
        if not _ALL_ITEMS.fullmatch(piece):
            self._add("")  # quotes make a word, be there nothing in it
        self.expand(piece[1:-1], is_quoted=True)

    def _dollar(self, piece: str, *, is_quoted: bool) -> None:
        """Expand ``${…}`` and ``$'…'``; what a command would print stays as it is written."""
        if piece.startswith("${"):
            self._braces(piece, is_quoted=is_quoted)
        elif piece.startswith("$'"):
            escaped = re.sub(r"\\(.)", lambda each: _ESCAPES.get(each[1], each[0]), piece[2:-1])
            self._add(piece if is_quoted else escaped)
        else:
            self._add_unknown(piece)

    def _braces(self, piece: str, *, is_quoted: bool) -> None:
        """Expand ``${…}``; operators that cut or replace text stay as they are written."""
        parts = _BRACES.fullmatch(piece[2:-1])
        if parts is None:
            self._add_unknown(piece)
        else:
            name, index, operator, rest = (part or "" for part in parts.groups())
            self._variable(_Expansion(name, index, operator, rest, piece), is_quoted=is_quoted)

    def _variable(self, asked: _Expansion, *, is_quoted: bool) -> None:
        """Add what a variable holds, or what stands for it."""
        held = self._scope.get(asked.name, ())
        last = held[-1] if held else None
        fields = last.fields if last is not None else None
        is_empty = not any(each.text for each in fields or ())
        kind = asked.operator[-1:]
        is_missing = fields is None or (asked.operator.startswith(":") and is_empty)
        if kind == "+" and fields is not None:
            if not is_missing:
                self._expand_rest(asked.rest, is_quoted=is_quoted)
        elif is_missing and kind in ("-", "="):
            if not held:
                self._condition = self._condition or f"unless {asked.name} is set before"
            self._expand_rest(asked.rest, is_quoted=is_quoted)
        elif last is None or fields is None:
            is_plain = asked.name.isidentifier() and not asked.operator
            self._add_unknown(f"${{{asked.name}}}" if is_plain else asked.piece)
        else:
            if last.is_array and asked.item not in ("@", "*"):
                first = int(asked.item or 0)
                fields = fields[first : first + 1]
            if asked.item == "*" and is_quoted:
                fields = _as_one(fields)
            self._put(fields, last, splits=self._splits and not is_quoted)

    def _expand_rest(self, rest: str, *, is_quoted: bool) -> None:
        """Expand what stands for a variable; without quotes its blanks cut it into words."""
        outer, self._cuts = self._cuts, self._splits and not is_quoted
        self.expand(rest, is_quoted=is_quoted)
        self._cuts = outer

    def _put(self, fields: Sequence[Field], variable: Variable, *, splits: bool) -> None:
        """Add the fields of a variable; without quotes blanks cut them into more."""
        for number, each in enumerate(fields):
            if number:
                self.flush()
            condition = each.condition or variable.condition
            pieces = _split_around(each.text, each.unknown) if splits else [each.text]
            for count, piece in enumerate(pieces):
                if count:
                    self.flush()
                self._add(piece, each.line, condition)
                self._unknown = (*self._unknown, *(raw for raw in each.unknown if raw in piece))


def _as_one(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Join the items of an array, as ``"${NAME[*]}"`` does."""
    if not fields:
        return ()
    condition = next((each.condition for each in fields if each.condition), "")
    unknown = tuple(raw for each in fields for raw in each.unknown)
    return (Field(" ".join(each.text for each in fields), fields[0].line, unknown, condition),)


def _split_around(text: str, unknown: Sequence[str]) -> list[str]:
    """Cut at blanks, though not inside of what is not known: ``$(git describe)`` is one word or many."""
    kept = [re.escape(raw) for raw in sorted(set(unknown), key=len, reverse=True)]
    return re.findall(rf"(?:{'|'.join([*kept, chr(92) + 'S'])})+", text)
