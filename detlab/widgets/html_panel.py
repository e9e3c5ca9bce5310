"""A panel of HTML that was made and escaped in Python, whose buttons tell Python what was clicked."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

_STATIC = files("detlab.views").joinpath("static")


class HtmlPanel(anywidget.AnyWidget):
    """Shows HTML; a click on a button with ``data-*`` attributes gives these to the callbacks.

    Scroll position, the focused button and the open ``details`` stay as they are when the HTML changes.
    A button that is to be found again needs ``data-*`` attributes that no other one has.

    Attributes
    ----------
    html
        What is shown. Every text from a file must be escaped before it gets here.
    """

    _esm = _STATIC.joinpath("html_panel.js").read_text("utf-8")
    _css = _STATIC.joinpath("html_panel.css").read_text("utf-8")

    html = traitlets.Unicode().tag(sync=True)

    def __init__(self, html: str = "", **options: Any) -> None:
        self._callbacks: list[Callable[[dict[str, Any]], object]] = []
        super().__init__(html=html, **options)
        self.on_msg(self._receive)

    def on_act(self, callback: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with the ``data-*`` attributes of every button that is clicked."""
        self._callbacks.append(callback)

    def _receive(self, _: object, message: Any, __: object) -> None:
        """Take a message of the page; one of another form is none of ours."""
        if not isinstance(message, dict) or message.get("type") != "act":
            return
        data = message.get("data")
        if isinstance(data, dict):
            for callback in tuple(self._callbacks):
                callback(dict(data))
