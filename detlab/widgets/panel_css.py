"""The style sheet of every panel that is HTML, in the colours of JupyterLab or, elsewhere, of the palette."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from detlab.schema import Verdict
from detlab.views.palette import DARK, LIGHT, VERDICT_COLOURS, Theme, css


def static_text(name: str) -> str:
    """Give a file of `detlab/views/static`."""
    return files("detlab.views").joinpath("static", name).read_text("utf-8")


def _variables(theme: Theme) -> str:
    """Write a theme as CSS variables; JupyterLab's own colours of page and text go first."""
    lab = {
        "page": "--jp-layout-color1",
        "panel": "--jp-layout-color2",
        "line": "--jp-border-color1",
        "text": "--jp-ui-font-color1",
        "muted": "--jp-ui-font-color2",
    }
    return " ".join(
        f"--dl-{name.replace('_', '-')}: {f'var({lab[name]}, {value})' if name in lab else value};"
        for name, value in theme._asdict().items()
    )


def _css() -> str:
    root, origin = ".detlab-explorer, .detlab-panel, .detlab-html-panel", css(VERDICT_COLOURS[Verdict.ORIGIN])
    dark = f"{{ {_variables(DARK)} --dl-alarm: #ff8f85; }}"
    light = f"{{ {_variables(LIGHT)} --dl-alarm: {origin}; }}"
    themed = [
        f"{root} {light}",
        f"@media (prefers-color-scheme: dark) {{ {root} {dark} }}",
        f'[data-jp-theme-light="true"] :is({root}) {light}',
        f'[data-jp-theme-light="false"] :is({root}) {dark}',
    ]
    return "\n".join([static_text("html_panel.css"), *themed, static_text("explorer.css")])


PANEL_CSS: Final = _css()
"""The style sheet of every panel that is HTML: that of `HtmlPanel` and that of the explorer."""
