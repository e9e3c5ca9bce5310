"""What autotuners print: Triton (``TRITON_PRINT_AUTOTUNING=1``) and torch's Inductor (``AUTOTUNE mm(…)``).

A print goes over several lines, and processes that share a log write between each other's lines. Lines are
told apart by the tag of their rank; where two prints of one writer are open at once, neither is believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from detlab.readers.choices.configuration import printed_configuration, problem_key
from detlab.readers.choices.frame import Use
from detlab.readers.choices.lines import Gathered, Line

_MIXED: Final = "prints of {} that several processes wrote into each other"
_CUT: Final = "a print of {} that is cut"


@dataclass(slots=True)
class _Open:
    """A print that has begun.

    Attributes
    ----------
    line
        Its first line.
    name, problem
        The kernel, and for what it was tuned.
    num
        How many of them are open at once: with more than one, no line can be told to be of either.
    """

    line: Line
    name: str
    problem: str = ""
    num: int = 1


class _Prints:
    """The open prints of each writer."""

    def __init__(self, gathered: Gathered, what: str) -> None:
        self._gathered, self._what = gathered, what
        self._open: dict[str, _Open] = {}

    def begin(self, line: Line, name: str, problem: str = "") -> None:
        """Note that a print begins."""
        before = self._open.get(line.writer.name)
        if before is None:
            self._open[line.writer.name] = _Open(line, name, problem)
        else:
            before.num += 1

    def now(self, line: Line) -> _Open | None:
        """Give the one print that a line can belong to."""
        found = self._open.get(line.writer.name)
        return found if found and found.num == 1 else None

    def is_open(self, line: Line) -> bool:
        """Say whether the writer of a line has begun a print and not ended it."""
        return line.writer.name in self._open

    def end(self, line: Line) -> _Open | None:
        """Close a print, and give it if it was the only one."""
        found = self._open.get(line.writer.name)
        if found is None:
            self._gathered.damage(line, _CUT.format(self._what))
            return None
        found.num -= 1
        if not found.num:
            del self._open[line.writer.name]
            return found if found.name else None
        found.name = ""  # what follows cannot be told apart, down to the last one
        self._gathered.damage(line, _MIXED.format(self._what))
        return None

    def drop(self, line: Line) -> None:
        """Forget what is open of a writer, and say so."""
        found = self._open.pop(line.writer.name, None)
        if found is not None:
            self._gathered.damage(found.line, _CUT.format(self._what))

    def all_ended(self) -> None:
        """Say what was not finished."""
        for found in self._open.values():
            self._gathered.damage(found.line, _CUT.format(self._what))
        self._open.clear()


class TritonReader:
    """Takes prints of Triton's autotuner; older versions print all on one line, and name no key."""

    markers = ("Triton autotuning for function ", "with key as ", "best config selected: ")
    _BEGIN: Final = re.compile(r"Triton autotuning for function ([^\s,;]+)")
    _KEY: Final = re.compile(r"with key as (.*?)(?:,\s*finished after|,?\s*$)")
    _CHOSEN: Final = re.compile(r"best config selected: (.*?)\s*(?:with benchmark time|;|$)")

    def __init__(self, gathered: Gathered) -> None:
        self._gathered, self._prints = gathered, _Prints(gathered, "Triton's autotuner")

    def take(self, line: Line) -> None:
        """Take a line of a print."""
        begins = len(self._BEGIN.findall(line.text))
        if begins > 1:
            self._gathered.damage(line, _MIXED.format("Triton's autotuner"))
            return
        if found := self._BEGIN.search(line.text):
            self._prints.begin(line, found[1])
        if found := self._KEY.search(line.text):
            now = self._prints.now(line)
            if now is not None:
                now.problem = problem_key(found[1])
        if found := self._CHOSEN.search(line.text):
            self._close(line, found[1])

    def _close(self, line: Line, config: str) -> None:
        tuned = self._prints.end(line)
        if tuned is None:
            return
        choice = printed_configuration(config)
        if not choice or not line.whole:
            self._gathered.damage(line, _CUT.format("Triton's autotuner"))
            return
        self._gathered.uses.add(
            "triton print", line.writer, Use(tuned.name, tuned.problem, choice), line.where
        )

    def end(self) -> None:
        """Say what was not finished."""
        self._prints.all_ended()


class InductorReader:
    """Takes tables of Inductor's autotuning: the first choice is the fastest, and the one that is used."""

    markers = ("AUTOTUNE ", "strides: ", "dtypes: ", " ms ")
    _BEGIN: Final = re.compile(r"\bAUTOTUNE (\w+)\((.*)\)\s*$")
    _FACT: Final = re.compile(r"^(?:.*\s)?(strides|dtypes): (.*)$")
    _ROW: Final = re.compile(r"(?:^|\s)(\w+) (\d+(?:\.\d+)?|inf) ms (?:100(?:\.0+)?%|<DIVIDED)\s*(.*)$")
    _END: Final = re.compile(r"AUTOTUNE benchmarking takes ")

    def __init__(self, gathered: Gathered) -> None:
        self._gathered, self._prints = gathered, _Prints(gathered, "Inductor's autotuner")

    def take(self, line: Line) -> None:
        """Take a line of a table."""
        if found := self._BEGIN.search(line.text):
            self._prints.begin(line, found[1], found[2].strip())
        elif self._END.search(line.text):
            self._prints.drop(line)
        elif (now := self._prints.now(line)) is not None:
            self._inside(line, now)
        elif self._prints.is_open(line) and self._ROW.search(line.text):
            self._prints.end(line)

    def _inside(self, line: Line, now: _Open) -> None:
        if found := self._FACT.match(line.text):
            now.problem = f"{now.problem}; {found[1]} {found[2].strip().replace('torch.', '')}"
        elif found := self._ROW.search(line.text):
            tuned = self._prints.end(line)
            if tuned is None:
                return
            if not line.whole:
                self._gathered.damage(line, _CUT.format("Inductor's autotuner"))
                return
            name = re.sub(r"_\d+$", "", found[1]) if found[3] else found[1]  # candidates are numbered
            choice = " ".join(filter(None, (name, printed_configuration(found[3]))))
            use = Use(tuned.name, tuned.problem, choice, f"time_ms={found[2]}")
            self._gathered.uses.add("inductor print", line.writer, use, line.where)

    def end(self) -> None:
        """Say what was not finished."""
        self._prints.all_ended()
