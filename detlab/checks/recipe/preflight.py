"""``compare_recipes``: were two runs set up alike."""

from __future__ import annotations

from detlab.checks.recipe.check import Recipe
from detlab.checks.result import CheckResult


def compare_recipes(a: Recipe, b: Recipe) -> CheckResult:
    """Compare."""
    raise NotImplementedError
