"""A plotly figure that shows itself where plotly does not run, and that sends nothing anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go

from detlab.views.figure_svg import WIDTH, figure_svg
from detlab.views.figure_text import words_of
from detlab.views.text import html

CONFIG: Final = {"showSendToCloud": False, "displaylogo": False, "responsive": True}
"""What plotly.js is told wherever a figure is shown: by itself it offers to upload the data."""

_PLOTLY: Final = "application/vnd.plotly.v1+json"


class StaticFigure(go.Figure):  # type: ignore[misc]
    """A figure with a static twin beside it.

    JupyterLab draws it with plotly. A page without plotly, such as one that nbconvert writes, shows the same
    as a picture with its words; a terminal shows the words. No button uploads it.
    """

    def static_html(self) -> str:
        """Give the figure as plain HTML: one picture that needs no script and no request, and its words."""
        words = words_of(self)
        title, _, rest = words.partition("\n")
        picture = b64encode(figure_svg(self).encode()).decode()
        said = f"<figcaption><b>{html(title)}</b><br>{'<br>'.join(map(html, rest.splitlines()))}</figcaption>"
        no_formulas = 'class="tex2jax_ignore mathjax_ignore"'  # what stands between dollar signs is a name
        return (
            f'<figure {no_formulas} style="margin:0">{said}<img alt="{html(" ".join(words.split()))}" '
            f'style="width:100%;max-width:{WIDTH}px;height:auto" '
            f'src="data:image/svg+xml;base64,{picture}"></figure>'
        )

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        bundle = dict(super()._repr_mimebundle_(*args, **kwargs))
        if _PLOTLY in bundle:
            drawn = bundle[_PLOTLY]
            bundle[_PLOTLY] = {**drawn, "config": _without_upload(drawn.get("config"))}
        twin = {"text/html": self.static_html(), "text/plain": words_of(self)}
        return {**bundle, **twin, **{kind: shown for kind, shown in bundle.items() if kind in twin}}

    def _repr_html_(self) -> str:
        return self.static_html()

    def _ipython_display_(self) -> None:
        from IPython.display import display
        from plotly import io

        bundle = self._repr_mimebundle_()
        if _PLOTLY in bundle or not io.renderers.default:
            display(bundle, raw=True)  # type: ignore[no-untyped-call]
        else:  # somebody chose another way to show figures
            super()._ipython_display_()

    def show(self, *args: Any, config: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """Show it as plotly does."""
        return super().show(*args, config=_without_upload(config), **kwargs)

    def to_html(self, config: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Write it as plotly does."""
        return super().to_html(_without_upload(config), *args, **kwargs)

    def write_html(
        self, file: Any, config: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Write it into a file as plotly does."""
        return super().write_html(file, _without_upload(config), *args, **kwargs)


def _without_upload(config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**CONFIG, **(config or {}), "showSendToCloud": False, "plotlyServerURL": ""}
