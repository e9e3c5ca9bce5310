"""Panels for notebooks, each of which stands alone: ``dl.widgets.map(cmp)``.

Nothing here loads ipywidgets before a panel is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_HOME: Final = {
    "checks": "checks_panel.ChecksPanel",
    "details": "details_panel.DetailsPanel",
    "explore": "explorer.explore",
    "findings": "findings_panel.FindingsPanel",
    "map": "divergence_map.DivergenceMap",
    "metrics": "metrics_panel.MetricsPanel",
    "replay": "replay_panel.ReplayPanel",
}
"""The module and the class that each panel lives in."""

__all__ = ["checks", "details", "explore", "findings", "map", "metrics", "replay"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'detlab.widgets' has no attribute '{name}'")
    module, _, attribute = _HOME[name].partition(".")
    value = getattr(import_module(f"detlab.widgets.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)
