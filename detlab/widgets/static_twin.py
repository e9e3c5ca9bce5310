"""What a widget shows without a kernel: the same content as plain HTML, a picture and text."""

from __future__ import annotations

from base64 import b64encode
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from detlab.errors import InputError
from detlab.store.layout import write_bytes
from detlab.views.text import html

VIEW: Final = "application/vnd.jupyter.widget-view+json"
"""The MIME type of a live view."""


class Twin(NamedTuple):
    """What stands in for a widget.

    Attributes
    ----------
    html
        Plain tags and inline styles, so that it says all where a host strips scripts and style sheets.
    text
        The same in short, for a host that shows no HTML.
    picture
        A PNG, or nothing.
    """

    html: str
    text: str
    picture: bytes = b""

    def bundle(self) -> dict[str, Any]:
        """Give the twin by MIME type, as Jupyter takes it."""
        data: dict[str, Any] = {"text/html": self.html, "text/plain": self.text}
        if self.picture:
            data["image/png"] = b64encode(self.picture).decode()
        return data


class Snapshot:
    """A widget's content at one moment: displayed, it stays as it is, with or without a kernel."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.twin.bundle()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the snapshot as one HTML file that opens offline; give the path back.

        Raises
        ------
        InputError
            The file cannot be written there.
        """
        target = Path(path)
        title = html(self.twin.text.partition("\n")[0])
        try:
            write_bytes(target, _PAGE.format(title=title, body=self.twin.html).encode("utf-8", "replace"))
        except OSError as error:
            raise InputError(
                f"{target} cannot be written: {error.strerror}.", "give a file in a writable folder"
            ) from error
        return target

    def __repr__(self) -> str:
        return self.twin.text


_PAGE = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'\">"
    '<meta name="color-scheme" content="light dark"></head>'
    '<body style="max-width:1240px;margin:20px auto;padding:0 20px;font:15px/1.5 sans-serif">{body}</body>'
    "</html>\n"
)


_HIDE: Final = (
    "body:has(.{live}) .{twin} {{ display: none; }} "
    # in JupyterLab itself the view takes a moment to come, and what lies below is not to jump
    ".lm-Widget .{twin} {{ animation: detlab-wait 2s; }} "
    "@keyframes detlab-wait {{ from, to {{ display: none; }} }}"
)


class StaticTwin:
    """Base of a widget whose MIME bundle holds its static twin beside the live view.

    Jupyter shows the live view where a kernel answers, and the twin where none does. Name this base before
    the widget's, and write `twin`.
    """

    _display_id = ""

    def twin(self) -> Twin:
        """Give what stands in for the widget in its present state."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """Give the present state to display or to save; it does not change any more."""
        return Snapshot(self.twin())

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        live = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        data, metadata = live if isinstance(live, tuple) else (live or {}, {})
        return {**data, **self.twin().bundle()}, metadata

    def _ipython_display_(self) -> None:
        """Display the live view and, beneath it, the twin, which nobody sees while the view is alive.

        Of one output JupyterLab shows one form only: in a notebook that it trusts the live view, though no
        kernel may know it any more.
        """
        from IPython.display import display

        show: Any = display
        self._display_id = self._display_id or uuid4().hex
        self.add_class(f"detlab-live-{self._display_id}")  # type: ignore[attr-defined]  # of every widget
        data, metadata = self._repr_mimebundle_()
        show({VIEW: data[VIEW], "text/plain": ""}, metadata=metadata, raw=True)
        show(self._beneath(), raw=True, display_id=self._display_id)

    def _beneath(self) -> dict[str, Any]:
        """Give the twin, hidden by a style sheet as long as its live view is on the same page."""
        bundle, name = self.twin().bundle(), f"detlab-twin-{self._display_id}"
        style = _HIDE.format(live=f"detlab-live-{self._display_id}", twin=name)
        return {
            **bundle,
            "text/html": f'<style>{style}</style><div class="{name}">{bundle["text/html"]}</div>',
        }
