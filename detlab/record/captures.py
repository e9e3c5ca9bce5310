"""Choose which calls are saved whole: by op, by site, or those where a comparison found its first origins."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch._ops import OpOverload

from detlab.captures import PendingCapture, save_capture
from detlab.errors import CaptureError, RecordingError
from detlab.record.events import Call, EventLog
from detlab.schema import Site

_CHOOSE_HINT: Final = "name ops with their overload, sites in their text form, or give a comparison"


@dataclass(frozen=True, slots=True)
class Selector:
    """What calls to save: the name of an op or a site in its text form, on one rank or on all (None)."""

    text: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureChoices:
    """What the user asked to be saved whole.

    Attributes
    ----------
    limit
        How many calls each selector saves on a rank.
    max_bytes, compact
        See `detlab.captures.save.save_call`.
    """

    selectors: tuple[Selector, ...] = ()
    limit: int = 1
    max_bytes: int | None = None
    compact: bool = False

    @property
    def texts(self) -> list[str]:
        """The texts of the selectors, each once."""
        return list(dict.fromkeys(selector.text for selector in self.selectors))


def read_selectors(given: object) -> tuple[Selector, ...]:
    """Read the ``capture`` argument of a recorder.

    Parameters
    ----------
    given
        A name of an op, a site, a comparison (the site of the first origin of each rank), a frame with the
        columns ``rank`` and ``site`` such as ``cmp.first``, or a list of these.

    Raises
    ------
    RecordingError
        Something else, a text that is neither, or a comparison that found no origin.
    """
    if isinstance(given, str):
        return (Selector(_checked(given)),)
    origins = getattr(given, "first_origin", None)
    if origins is not None:
        if not len(origins):
            raise RecordingError(
                "The comparison given to capture= has no origin.", "name the sites or ops to be captured"
            )
        return read_selectors(origins)
    if hasattr(given, "to_dicts") and {"rank", "site"} <= set(getattr(given, "columns", ())):
        return tuple(Selector(_checked(row["site"]), int(row["rank"])) for row in given.to_dicts())
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        return tuple(selector for item in given for selector in read_selectors(item))
    raise RecordingError(f"capture= was given a {type(given).__name__}.", _CHOOSE_HINT)


def _checked(text: str) -> str:
    if "/" not in text:
        return text
    try:
        return str(Site.parse(text))
    except ValueError as error:
        raise RecordingError(f"capture= was given {text!r}, which is no site.", _CHOOSE_HINT) from error


class GuardedCapture:
    """A capture whose call has yet to end; that it cannot be ended is told, and the training goes on."""

    def __init__(self, pending: PendingCapture, site: str) -> None:
        self._pending, self._site = pending, site

    def complete(self, outputs: Sequence[torch.Tensor]) -> None:
        """Add what the call gave, see `PendingCapture.complete`."""
        try:
            self._pending.complete(outputs)
        except CaptureError as error:
            warnings.warn(f"{self._site} was not captured. {error}", RuntimeWarning, stacklevel=2)


class CaptureChooser:
    """The calls of one rank that are saved.

    Parameters
    ----------
    folder
        Where captures go, each into a folder of its own.
    rank
        Global rank, part of a capture's name.
    choices
        What was asked for; what is of another rank is left to it.
    """

    def __init__(self, folder: Path, rank: int, choices: CaptureChoices) -> None:
        self._folder, self._rank, self._choices = folder, rank, choices
        chosen = [selector.text for selector in choices.selectors if selector.rank in (None, rank)]
        self._left = dict.fromkeys(chosen, choices.limit)
        self._ops = frozenset(name if "/" not in name else Site.parse(name).callee.op for name in chosen)
        self._num_saved = 0
        self._used: set[str] = set()

    def warn_of_unused(self) -> None:
        """Say which selectors chose no call, so that it is known before the next run."""
        unused = [name for name in self._left if name not in self._used]
        if unused:
            names = ", ".join(unused)
            text = f"no call was captured for {names}. Hint: name the op as the trace does, with its overload"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def begin(
        self,
        log: EventLog,
        call: Call,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> GuardedCapture | None:
        """Save a call that is about to run, if it is one of those chosen."""
        if not self._ops or str(func) not in self._ops:
            return None
        site = str(log.site(call))
        selector = next((name for name in (site, str(func)) if self._left.get(name)), None)
        if selector is None:
            return None
        self._left[selector] -= 1
        self._used.add(selector)
        self._num_saved += 1
        folder = self._folder / f"rank{self._rank:05d}-{self._num_saved}-{func}"
        try:
            pending = save_capture(
                folder,
                func,
                tuple(args),
                kwargs,
                site=site,
                rank=self._rank,
                in_digest=call.inputs.digest(),
                max_bytes=self._choices.max_bytes,
                compact=self._choices.compact,
            )
            return GuardedCapture(pending, site)
        except CaptureError as error:  # the training goes on
            warnings.warn(f"{site} was not captured. {error}", RuntimeWarning, stacklevel=2)
            return None
