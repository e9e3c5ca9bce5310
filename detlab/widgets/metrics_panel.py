"""The metrics panel: light curves at once, a zoomable chart on request, both linked to the selected step."""

from __future__ import annotations

from typing import Any, Final

import anywidget
import ipywidgets
import traitlets

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.readers import as_run
from detlab.run import Run
from detlab.schema import Verdict
from detlab.text import visible
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.text import html
from detlab.widgets.html_panel import HtmlPanel
from detlab.widgets.metrics_panel_data import Metrics
from detlab.widgets.metrics_panel_html import NO_METRICS, metric_html, metrics_still
from detlab.widgets.panel_css import PANEL_CSS, static_text
from detlab.widgets.selection import Selection
from detlab.widgets.static_twin import StaticTwin, Twin

_ZOOM, _CLOSE = "zoomable chart", "close the chart"
PLOTLY_CONFIG: Final = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
}
"""What every chart of plotly is told: it has no button that uploads the data."""


class MetricsPanel(StaticTwin, ipywidgets.VBox):  # type: ignore[misc]
    """Draws one metric of two runs over the steps; a click on a curve selects its step.

    Attributes
    ----------
    metric
        Name of the metric that is drawn; empty where none was logged.
    """

    metric = traitlets.Unicode()

    def __init__(
        self, a: Comparison | Run | Any, b: Run | Any = None, *, selection: Selection | None = None,
        metric: str = "",
    ) -> None:  # fmt: skip
        runs = (a.a, a.b) if isinstance(a, Comparison) else (as_run(a), as_run(b if b is not None else a))
        self.metrics, self.selection = Metrics(*runs), selection or Selection()
        self.chart = _Chart()
        self._figure: Any = None
        self._holder = ipywidgets.Box([])
        self._holder.add_class("dl-chart")
        self._choice = ipywidgets.Dropdown(options=self.metrics.names, description="metric")
        self._zoom = ipywidgets.Button(description=_ZOOM, tooltip="a chart of plotly: zoom, pan, hover")
        super().__init__(self._parts())
        self.add_class("detlab-panel")
        self.chart.on_act(self._act)
        self._zoom.on_click(lambda _: self._toggle())
        self._choose(metric)
        self.selection.observe(lambda _: self._draw(), "step")
        self._draw()

    def _parts(self) -> list[ipywidgets.Widget]:
        if not self.metrics.names:
            return [self.chart]
        controls = ipywidgets.HBox([self._choice, self._zoom])
        controls.add_class("dl-controls")
        return [controls, self.chart, self._holder, _Fit()]

    def _choose(self, metric: str) -> None:
        """Take the metric asked for, else the one that differs first, and follow the choice from now on."""
        names = self.metrics.names
        if metric and metric not in names:
            raise InputError(
                f"neither run has a metric '{metric}'.", f"choose one of {', '.join(names) or 'none'}"
            )
        self.metric = metric or next(iter(names), "")
        if names:
            traitlets.link((self, "metric"), (self._choice, "value"))
        self.observe(lambda _: self._redraw(), "metric")

    def _redraw(self) -> None:
        self._draw()
        if self._figure is not None:
            self._open()

    def _draw(self) -> None:
        if self.metric:
            self.chart.html = metric_html(self.metrics, self.metric, self.selection.step)
        else:
            self.chart.html = f"<p>{html(NO_METRICS)}</p>"
        self._mark()

    def _act(self, data: dict[str, Any]) -> None:
        """Select the step that was clicked; data comes from a browser."""
        try:
            self.selection.step = int(data["step"])
        except (KeyError, ValueError, TypeError):
            return

    def _toggle(self) -> None:
        if self._figure is None:
            self._open()
        else:
            self._figure, self._holder.children, self._zoom.description = None, (), _ZOOM

    def _open(self) -> None:
        """Make the one figure of plotly; loading it takes some seconds the first time."""
        self._zoom.description = "loading …"
        import plotly.graph_objects as go

        from detlab.views.curves import curves

        figure = go.FigureWidget(curves(self.metrics.a, self.metrics.b, self.metric))
        figure._config = dict(PLOTLY_CONFIG)
        self._shapes = tuple(figure.layout.shapes)
        for trace in figure.data:
            trace.on_click(self._on_point)
        self._figure, self._holder.children, self._zoom.description = figure, (figure,), _CLOSE
        self._mark()

    def _on_point(self, _trace: Any, points: Any, _state: Any) -> None:
        if points.xs:
            self.selection.step = int(points.xs[0])

    def _mark(self) -> None:
        """Draw a line at the selected step into the figure, if there is one."""
        if self._figure is None:
            return
        step, line = self.selection.step, {"width": 2, "color": css(VERDICT_COLOURS[Verdict.RECEIVER])}
        mark = {"type": "line", "x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper", "line": line}
        self._figure.layout.shapes = self._shapes + ((mark,) if step is not None else ())

    def twin(self) -> Twin:
        """Give the first metrics as pictures and where each first differs."""
        names = self.metrics.names
        said = "\n".join(visible(f"{name}: {self.metrics.says(name)}") for name in names) or NO_METRICS
        return Twin(f"<div>{metrics_still(self.metrics)}</div>", said)


class _Fit(anywidget.AnyWidget):
    """Gives the chart in its panel the width that the panel has."""

    _esm = static_text("fit_chart.js")


class _Chart(HtmlPanel):
    """The curves, with the style sheet of all panels."""

    _css = PANEL_CSS
