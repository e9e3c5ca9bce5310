"""Text from files, made safe to show: what steers a terminal or the reading direction becomes visible."""

from __future__ import annotations

from typing import Final
from unicodedata import category

from detlab.redaction import redacted

LONGEST_WORD: Final = 400
"""Characters without a space that a line shows; paths are shorter, and a longer name was made to flood."""

LONGEST_LINE: Final = 4000


def visible(text: object) -> str:
    """Write characters that nobody sees as their escapes: control, direction, zero-width, lone surrogates."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(each if _is_seen(each) else _escape(each) for each in shown)


def _is_seen(character: str) -> bool:
    """Say whether a character takes up room; to Python no space but the usual one is printable."""
    return character.isprintable() or category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def plural(noun: str, number: int) -> str:
    """Give a noun as it stands after a number."""
    return noun if number == 1 else f"{noun}s"


def capitalized(text: str) -> str:
    """Give text as it begins a sentence; the rest of it stays as it is, for it may hold names."""
    return text[:1].upper() + text[1:]


def shorten(text: str, size: int = 80) -> str:
    """Cut the middle out of long text; its end says more than its middle."""
    text = redacted(text)  # of a name that is cut in two nobody could tell what must be taken out
    if len(text) <= size:
        return text
    head = size // 3
    return f"{text[:head]}…{text[len(text) - (size - head - 1) :]}"


def bounded(line: str) -> str:
    """Cut the middle out of words and of a line that are too long for anybody to read."""
    if len(line) <= LONGEST_WORD:
        return line
    words = [shorten(word, LONGEST_WORD) for word in line.split(" ")]
    return shorten(" ".join(words), LONGEST_LINE)
