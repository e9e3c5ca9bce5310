"""Choose which calls are saved whole, by op or by site."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch._ops import OpOverload

from detlab.captures import PendingCapture, save_capture
from detlab.errors import CaptureError
from detlab.record.events import Call, EventLog


class CaptureChooser:
    """The calls of one rank that are saved.

    Parameters
    ----------
    folder
        Where captures go, each into a folder of its own.
    rank
        Global rank, part of a capture's name.
    selectors
        Names of ops with their overload, or sites in their text form.
    limit
        How many calls each selector saves.
    """

    def __init__(self, folder: Path, rank: int, selectors: Sequence[str], limit: int) -> None:
        self._folder, self._rank = folder, rank
        self._left = dict.fromkeys(selectors, limit)
        self._ops = frozenset(name if "/" not in name else _op_of(name) for name in selectors)
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
    ) -> PendingCapture | None:
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
            return save_capture(
                folder,
                func,
                tuple(args),
                kwargs,
                site=site,
                rank=self._rank,
                in_digest=call.inputs.digest(),
            )
        except CaptureError as error:  # the training goes on
            warnings.warn(f"{site} was not captured. {error}", RuntimeWarning, stacklevel=2)
            return None


def _op_of(site: str) -> str:
    """Give the op of a site's text form."""
    from detlab.schema import Site

    return Site.parse(site).callee.op
