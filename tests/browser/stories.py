"""Comparisons that the browser tests look at, here and in a notebook's kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import detlab as dl
from detlab.comparison import Comparison
from detlab.schema import Coordinate
from detlab.testing import Call, make_run
from detlab.testing.synthetic import save_run
from tests.views.stories import with_metric

MARK: Final = "window.detlabOwned = true"
"""What each hostile name tries to run."""
EVIL: Final = (
    f"</title></style></script><script>{MARK}</script><img src=x onerror='{MARK}'>"
    f'<svg onload="{MARK}">"{{{{{MARK}}}}}\x1b[2J\x1b]0;owned\x07\x1b[31m'
)
"""A script, handlers, a template and an ANSI bomb in one name."""
FILE_NAME: Final = f"<img src=x onerror='{MARK}'>\x1b[31m"


def race() -> Comparison:
    """Compare the shipped runs that a racing kernel made different: four ranks, two steps, captures."""
    folder = dl.samples.sample_path("race")
    return dl.compare(folder / "a", folder / "b")


def hostile(folder: Path) -> Comparison:
    """Compare two runs whose ops, scopes, groups, hosts, metrics, labels and files have hostile names."""
    runs = []
    for label, word in (("a", "y"), ("b", "z")):
        ranks = {rank: [*_calls(word if rank else "y")] for rank in range(2)}
        recipe = {EVIL: EVIL + label, "env": {EVIL: label}}
        run = make_run(
            ranks,
            label=EVIL + label,
            coordinates={rank: Coordinate(dp=rank) for rank in ranks},
            recipes={rank: {"host": f"{rank}{EVIL}", "rack": f"{EVIL}{rank}", **recipe} for rank in ranks},
        )
        path = save_run(run, folder / f"{FILE_NAME}{label}")
        runs.append(with_metric(dl.load_run(path), [1.0, 2.0 if word == "y" else 3.0], EVIL))
    return dl.compare(*runs)


def _calls(word: str) -> list[Call]:
    attributes = {EVIL: EVIL}
    return [
        Call(EVIL, EVIL, ["w"], ["x"], step=1, attributes=attributes),
        Call(EVIL, EVIL, ["x"], [word], step=1, group=EVIL, attributes=attributes, scalars=[EVIL]),
        Call(EVIL + "next", EVIL, [word], ["r" + word], step=2, attributes=attributes),
    ]
