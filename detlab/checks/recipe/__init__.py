"""The recipe of a run: whether it was set up to be deterministic, and whether two runs were set up alike."""

from __future__ import annotations

from detlab.checks.recipe.check import check_recipe
from detlab.checks.recipe.preflight import compare_recipes
from detlab.checks.recipe.settings import Setting, Settings, gather

__all__ = ["Setting", "Settings", "check_recipe", "compare_recipes", "gather"]
