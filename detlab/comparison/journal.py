"""What people write about a comparison: notes and hypotheses, kept in a small JSON file beside it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from xxhash import xxh3_64_hexdigest

from detlab.errors import InputError
from detlab.store.layout import write_json
from detlab.text import plural

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

SCHEMA: Final = "detlab.notes/1"

State = Literal["open", "confirmed", "falsified"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""What becomes of a hypothesis."""

_ELSEWHERE: Final = "move that file away, or give another place: dl.explore(cmp, journal=path)"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark; ``rank`` and ``site`` name the call it is about, None: the comparison as a whole.

    ``at`` is the time of writing, ISO 8601 in UTC.
    """

    text: str
    at: str
    rank: int | None = None
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A supposed cause, what became of it and why; ``at`` is the time of its last change."""

    text: str
    state: State = "open"
    why: str = ""
    at: str = ""


class Journal:
    """The notes and hypotheses about one comparison; every change is on disk when the call returns.

    The file is read again before each change, so that two notebooks can write into one journal.

    Parameters
    ----------
    path
        A file that need not be there yet.
    runs
        Labels of the two runs; a file about others is refused.

    Raises
    ------
    InputError
        The file is damaged, is no journal, or is about other runs; it stays as it is.
    """

    def __init__(self, path: str | PathLike[str], runs: tuple[str, str] | None = None) -> None:
        self.path = Path(path)
        self._asked = runs
        self._notes: tuple[Note, ...] = ()
        self._hypotheses: tuple[Hypothesis, ...] = ()
        self.runs = runs or ("a", "b")
        self.read()

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes, oldest first."""
        return self._notes

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses, in the order in which they were made."""
        return self._hypotheses

    def read(self) -> None:
        """Read the file again; one that is not there is an empty journal."""
        try:
            content = _read(self.path)
        except FileNotFoundError:
            return
        runs, self._notes, self._hypotheses = content
        if self._asked and runs != self._asked:
            raise InputError(
                f"{self.path} holds notes on {runs[0]} and {runs[1]}, not on {' and '.join(self._asked)}.",
                _ELSEWHERE,
            )
        self.runs = runs

    def add_note(self, text: str, *, rank: int | None = None, site: str | None = None) -> Note:
        """Write a note; with ``rank`` and ``site`` about one call."""
        note = Note(_said(text), _now(), rank, site)
        self._change(lambda: setattr(self, "_notes", (*self._notes, note)))
        return note

    def add_hypothesis(self, text: str) -> Hypothesis:
        """Write down a supposed cause, open until it is judged."""
        hypothesis = Hypothesis(_said(text), at=_now())
        self._change(lambda: setattr(self, "_hypotheses", (*self._hypotheses, hypothesis)))
        return hypothesis

    def judge(self, number: int, state: str, why: str = "") -> Hypothesis:
        """Say what became of a hypothesis.

        Parameters
        ----------
        number
            Its place in `hypotheses`.
        state
            ``confirmed``, ``falsified``, or ``open`` again.
        why
            What shows it.

        Raises
        ------
        InputError
            There is no such hypothesis or state.
        """
        if state not in STATES:
            raise InputError(f"{state!r} is no state of a hypothesis.", f"choose one of {', '.join(STATES)}")
        self._change(lambda: self._judge(number, state, why.strip()))
        return self._hypotheses[number]

    def _judge(self, number: int, state: State, why: str) -> None:
        every = list(self._hypotheses)
        if not 0 <= number < len(every):
            raise InputError(f"there is no hypothesis {number}.", f"there are {len(every)}, counted from 0")
        every[number] = replace(every[number], state=state, why=why, at=_now())
        self._hypotheses = tuple(every)

    def _change(self, change: Callable[[], None]) -> None:
        self.read()
        before = self._notes, self._hypotheses
        change()
        try:
            write_json(self.path, self.to_json())
        except (OSError, UnicodeEncodeError) as error:
            self._notes, self._hypotheses = before
            why = error.strerror if isinstance(error, OSError) else "half a character is no text"
            raise InputError(f"{self.path} cannot be written: {why}.", _ELSEWHERE) from error

    def to_json(self) -> dict[str, Any]:
        """Give the journal in its JSON form, see ``detlab/schemas/notes.json``."""
        return {
            "schema": SCHEMA,
            "runs": list(self.runs),
            "notes": [asdict(note) for note in self._notes],
            "hypotheses": [asdict(hypothesis) for hypothesis in self._hypotheses],
        }

    def __repr__(self) -> str:
        notes, hypotheses = len(self._notes), len(self._hypotheses)
        return (
            f"Journal({str(self.path)!r}: {notes} {plural('note', notes)}, {hypotheses} "
            f"{'hypothesis' if hypotheses == 1 else 'hypotheses'} on {' and '.join(self.runs)})"
        )


_Content = tuple[tuple[str, str], tuple[Note, ...], tuple[Hypothesis, ...]]


def _read(path: Path) -> _Content:
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
            raise ValueError("its schema is another one")
        return _checked(content)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.", _ELSEWHERE) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} is damaged or holds no notes of detlab: {error}.", _ELSEWHERE) from error


def _checked(content: Mapping[str, Any]) -> _Content:
    """Take over what has the form of the schema; anything else is an error, so that nothing gets lost."""
    a, b = (_text(label) for label in content["runs"])
    notes = tuple(
        Note(_text(each["text"]), _text(each["at"]), _rank(each["rank"]), _site(each["site"]))
        for each in _entries(content["notes"], Note)
    )
    hypotheses = tuple(
        Hypothesis(_text(each["text"]), _state(each["state"]), _text(each["why"]), _text(each["at"]))
        for each in _entries(content["hypotheses"], Hypothesis)
    )
    if content.keys() != {"schema", "runs", "notes", "hypotheses"}:
        raise ValueError("it has other entries")
    return (a, b), notes, hypotheses


def _entries(entries: Any, kind: type) -> list[Mapping[str, Any]]:
    names = set(kind.__slots__)  # type: ignore[attr-defined]
    if not isinstance(entries, list) or any(not isinstance(e, dict) or e.keys() != names for e in entries):
        raise ValueError(f"an entry is no {kind.__name__.lower()}")
    return entries


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _rank(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{value!r:.40} is no rank")
    return value


def _site(value: Any) -> str | None:
    return None if value is None else _text(value)


def _state(value: Any) -> State:
    if value not in STATES:
        raise ValueError(f"{value!r:.40} is no state of a hypothesis")
    return value  # type: ignore[no-any-return]


def _said(text: str) -> str:
    if not text.strip():
        raise InputError("an empty text says nothing.", "write what you saw or suppose")
    return text.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def journal_path(cmp: Comparison, saved: str | PathLike[str] | None = None) -> Path:
    """Choose where the notes on a comparison are kept.

    Parameters
    ----------
    saved
        The file that the comparison was saved in, if any.

    Returns
    -------
    A file beside the saved comparison, beside the folder of run b, or in the working folder: the first
    that is there already, else the first that can be written.
    """
    names = "-against-".join(_file_name(run.label) for run in (cmp.a, cmp.b))
    sources = xxh3_64_hexdigest(f"{cmp.a.source}\n{cmp.b.source}".encode("utf-8", "surrogatepass"))[:6]
    places = [Path(saved).with_suffix(".notes.json")] if saved else []
    if Path(cmp.b.source).exists():
        places.append(Path(cmp.b.source).resolve().parent / f"{names}.notes.json")
    places.append(Path(f"{names}-{sources}.notes.json"))  # many runs meet in a working folder
    there = (place for place in places if place.is_file())
    writable = (place for place in places if os.access(place.resolve().parent, os.W_OK))
    return next(there, None) or next(writable, places[-1])


def _file_name(label: str) -> str:
    """Make a file's name of a label, which comes from a file and may hold anything."""
    return re.sub(r"[^\w.-]+", "_", label).strip("._")[:60] or "run"
