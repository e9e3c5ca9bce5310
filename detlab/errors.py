"""Every error that detlab raises on purpose: place, finding and one hint.

::

    DetlabError
    ├── InputError            what was given cannot be used (exit code 2)
    │   ├── TraceError        a trace is damaged, foreign or empty
    │   ├── CaptureError      a capture cannot be read, trusted or run here
    │   └── NotComparable     two runs that must not be compared
    └── RecordingError        the recorder cannot do what was asked of it
"""

from __future__ import annotations

from detlab.text import bounded, visible


class DetlabError(Exception):
    """The root of detlab's errors.

    Parameters
    ----------
    finding
        One sentence that names the place and what was found there. What it repeats from a file steers no
        terminal and begins no line of its own.
    hint
        The call or the change that fixes it, without the leading word.
    """

    def __init__(self, finding: str, hint: str = "") -> None:
        self.finding = bounded(visible(finding))
        self.hint = bounded(visible(hint))
        super().__init__(f"{self.finding}\nHint: {self.hint}" if hint else self.finding)


class InputError(DetlabError):
    """What was given cannot be used; the command line answers with exit code 2."""


class TraceError(InputError):
    """A trace is damaged beyond use, of an unknown format, or empty."""


class CaptureError(InputError):
    """A capture cannot be read, does not hold what it claims, or cannot run on this machine."""


class NotComparable(InputError):  # noqa: N818 - reads as the verdict it is
    """Two runs whose bits must not be compared, for a stated reason."""


class RecordingError(DetlabError):
    """The recorder cannot do what was asked of it."""
