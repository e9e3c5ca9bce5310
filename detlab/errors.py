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


class DetlabError(Exception):
    """The root of detlab's errors.

    Parameters
    ----------
    finding
        One sentence that names the place and what was found there.
    hint
        The call or the change that fixes it, without the leading word.
    """

    def __init__(self, finding: str, hint: str = "") -> None:
        self.finding = finding
        self.hint = hint
        super().__init__(f"{finding}\nHint: {hint}" if hint else finding)


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
