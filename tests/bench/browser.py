"""How fast the map answers in JupyterLab and Chromium, beside plotly's FigureWidget heatmap, in one run.

The map shows 2,432 ranks x 20,000 calls x 10 steps; the heatmap, which could not, 500 x 1,500 cells. Times
are taken in the page, from the key, the click or the start of the cell until two frames after the change.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.browser.lab import LIMIT_MS, Lab, ask, running_lab
from tests.browser.tools import chromium, what_is_missing
from tests.browser.watch import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Page

REPEATS: Final = 7

PREPARE: Final = """
import numpy as np, plotly.graph_objects as go, ipywidgets, detlab as dl
from IPython.display import display
from tests.views.large import large_comparison
cmp = large_comparison()
codes = np.random.default_rng(0).choice(6, (500, 1500), p=(.9, .02, .02, .02, .02, .02)).astype(np.uint8)
_ = go.FigureWidget, dl.explore  # both sides are imported before anything is measured
"""
HEATMAP: Final = """
figure, told = go.FigureWidget(go.Heatmap(z=codes)), ipywidgets.HTML('nothing')
told.add_class('plotly-details')
figure.data[0].on_click(lambda trace, points, state: setattr(told, 'value', f'{points.ys} {points.xs}'))
display(figure, told)
"""
MAP: Final = "display(dl.widgets.map(cmp))"
EXPLORER: Final = "display(dl.explore(cmp))"
REPLAY: Final = """
from tests.browser.stories import race
display(dl.widgets.replay(race()))
"""

MAP_CANVAS: Final = ".detlab-map[data-seq] .detlab-cells"
HEATMAP_IMAGE: Final = ".js-plotly-plot .heatmaplayer image"

# an element, and what of it changes
DETAILS: Final = (".plotly-details", "text")
DRAWN: Final = (".detlab-map", "data-seq")
CALL: Final = (".detlab-explorer .dl-below .dl-framed", "text")

_TOOLS: Final = """() => {
  window.frames2 = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  window.until = test => new Promise((done, fail) => {
    const look = () => (test() ? done() : requestAnimationFrame(look));
    setTimeout(() => fail(new Error(`not within a minute: ${test}`)), 60_000);
    look();
  });
}"""
_RUN: Final = """async ([number, selector]) => {
  const {commands, shell} = window.jupyterapp;
  const notebook = shell.currentWidget.content;
  notebook.activeCellIndex = number;
  const start = performance.now();
  commands.execute('notebook:run-cell');
  await until(() => document.querySelector(selector));
  await frames2();
  return performance.now() - start;
}"""
_CLEAR: Final = """async selector => {
  await window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs');
  await until(() => !document.querySelector(selector));
}"""
_CANCEL: Final = """async () => {
  const says = (part, words) => document.querySelector(`.detlab-replay-${part}`).textContent.includes(words);
  const [begin, cancel] = ['start', 'cancel'].map(name => document.querySelector(`.detlab-replay-${name}`));
  await until(() => !begin.disabled);
  begin.click();
  await until(() => !cancel.disabled && says('progress', ' distinct') && !says('status', 'Cancelled'));
  const start = performance.now();
  cancel.click();
  await until(() => says('status', 'Cancelled'));
  return performance.now() - start;
}"""
_START: Final = """([selector, event, what]) => {
  const seen = () => {
    const element = document.querySelector(selector);
    return what === 'text' ? element?.textContent : element?.getAttribute(what);
  };
  const before = seen();
  window.taken = new Promise(done => document.addEventListener(event, async () => {
    const start = performance.now();
    await until(() => seen() !== before);
    await frames2();
    done(performance.now() - start);
  }, {capture: true, once: true}));
}"""


_AFTERPLOT: Final = """() => {
  const start = performance.now();
  window.taken = new Promise(done => document.querySelector('.js-plotly-plot')
    .once('plotly_afterplot', () => frames2().then(() => done(performance.now() - start))));
}"""


class Taken(NamedTuple):
    """Median milliseconds, and bytes that came over the web socket, of something done a few times."""

    ms: float
    received: float


def repeat(watched: Watched, work: Callable[[], float]) -> Taken:
    """Do something a few times, and give the medians."""
    times, sizes = [], []
    for _ in range(REPEATS):
        watched.received.clear()
        times.append(work())
        sizes.append(sum(watched.received))
    return Taken(statistics.median(times), statistics.median(sizes))


def paint(page: Page, cell: int, selector: str) -> float:
    """Run a cell until an element is painted; give milliseconds."""
    page.evaluate(_CLEAR, selector)
    return float(page.evaluate(_RUN, [cell, selector]))


def after(page: Page, event: str, act: Callable[[], object], change: tuple[str, str]) -> float:
    """Give the milliseconds from a DOM event until the text or an attribute of an element is another."""
    selector, what = change
    page.evaluate(_START, [selector, event, what])
    act()
    return float(page.evaluate("() => window.taken"))


def measure(watched: Watched) -> Iterator[tuple[str, Taken]]:
    """Give (what, taken) line by line, with the cells of the notebook in the order of `main`."""
    yield from heatmap(watched)
    yield from divergence_map(watched)
    yield from explorer(watched)
    yield from replay(watched)


def heatmap(watched: Watched) -> Iterator[tuple[str, Taken]]:
    """Measure plotly."""
    page = watched.page
    yield "FigureWidget, 500 x 1,500: first paint", repeat(watched, lambda: paint(page, 0, HEATMAP_IMAGE))
    click = page.locator(".js-plotly-plot .nsewdrag").first.click
    places = iter(range(100, 900, 50))
    yield (
        "FigureWidget: click to details",
        repeat(
            watched,
            lambda: after(page, "mousedown", lambda: click(position={"x": next(places), "y": 50}), DETAILS),
        ),
    )
    yield "FigureWidget: other cells from the kernel", repeat(watched, lambda: other_cells(page))


def divergence_map(watched: Watched) -> Iterator[tuple[str, Taken]]:
    """Measure the map alone."""
    page = watched.page
    watched.received.clear()
    first = paint(page, 1, MAP_CANVAS)
    yield "map, 2,432 x 20,000: the very first paint", Taken(first, sum(watched.received))
    yield "map: first paint", repeat(watched, lambda: paint(page, 1, MAP_CANVAS))
    plot = page.locator(".detlab-plot")
    keys = iter("+-" * REPEATS)
    yield (
        "map: zoom to finer cells, or back",
        repeat(watched, lambda: after(page, "keydown", lambda: plot.press(next(keys)), DRAWN)),
    )
    page.evaluate(_CLEAR, MAP_CANVAS)


def explorer(watched: Watched) -> Iterator[tuple[str, Taken]]:
    """Measure the explorer of the same comparison."""
    page = watched.page
    yield "explorer: first paint of its map", repeat(watched, lambda: paint(page, 2, MAP_CANVAS))
    cells = page.locator(".detlab-cells")
    box = cells.bounding_box() or {}
    places = iter(range(1, 1 + 2 * REPEATS))
    yield (
        "explorer: click on a cell to its details",
        repeat(
            watched,
            lambda: after(
                page,
                "pointerdown",
                lambda: cells.click(
                    position={"x": box["width"] * 0.72 + 9 * next(places), "y": box["height"] / 2}, force=True
                ),
                CALL,
            ),
        ),
    )


def replay(watched: Watched) -> Iterator[tuple[str, Taken]]:
    """Measure how soon a replay that makes trials in another process has stopped."""
    page = watched.page
    paint(page, 3, ".detlab-replay-start")
    trials = page.locator(".detlab-replay input[type=number]").first
    trials.fill("1000000")
    trials.press("Tab")
    yield "replay: cancel to stopped", repeat(watched, lambda: float(page.evaluate(_CANCEL)))


def other_cells(page: Page) -> float:
    """Give the milliseconds from asking the kernel for other cells until plotly has drawn them."""
    page.evaluate(_AFTERPLOT)
    ask(page, "figure.data[0].z = np.roll(figure.data[0].z, 7)")
    return float(page.evaluate("() => window.taken"))


def open_notebook(page: Page, lab: Lab) -> None:
    """Open the notebook of the benchmark with everything imported and in memory."""
    lab.open(page, lab.write("bench.ipynb", HEATMAP, MAP, EXPLORER, REPLAY))
    page.evaluate(_TOOLS)
    assert "Error" not in (told := ask(page, PREPARE)), told


def main() -> None:
    """Print the table."""
    print("\nin JupyterLab and Chromium, median of", REPEATS)
    if missing := what_is_missing():
        print(f"  left out: install {', '.join(missing)}")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_lab(Path(folder) / "lab") as lab,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(LIMIT_MS)
        watched = Watched(page)
        open_notebook(page, lab)
        print(f"  {'':<52} {'ms':>8} {'kB received':>12}")
        for what, taken in measure(watched):
            print(f"  {what:<52} {taken.ms:>8,.0f} {taken.received / 1000:>12,.0f}", flush=True)


if __name__ == "__main__":
    main()
