"""Watching a page: what it logs as an error, what it throws, and what it asks of the network."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOCAL: Final = re.compile(r"(https?|wss?)://127\.0\.0\.1[:/]|file://|data:|blob:|about:")
"""Addresses that do not leave the machine."""


@dataclass
class Watched:
    """A page and everything about it that must not happen.

    Attributes
    ----------
    problems
        Errors on the console, exceptions that nobody caught, and requests that leave this machine, as text.
    requests
        Every address that the page asked for, web sockets too, in order.
    received
        Bytes of each frame that came over a web socket.
    expected
        What JupyterLab itself is bound to log; a message that holds it is no problem.
    """

    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    expected: str = "\0"

    def __post_init__(self) -> None:
        """Listen."""
        self.page.on("console", lambda message: self._log(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.on("websocket", self._listen)

    def _log(self, kind: str, text: str) -> None:
        if kind == "error" and self.expected not in text:
            self.problems.append(f"console: {text}")

    def _ask(self, address: str) -> None:
        self.requests.append(address)
        if not LOCAL.match(address):
            self.problems.append(f"request: {address}")

    def _listen(self, socket: object) -> None:
        self._ask(socket.url)  # type: ignore[attr-defined]
        socket.on("framereceived", lambda frame: self.received.append(len(frame)))  # type: ignore[attr-defined]

    def check(self) -> None:
        """Fail with everything that happened since the last check."""
        problems = list(self.problems)
        self.problems.clear()
        assert not problems, "\n".join(problems)
