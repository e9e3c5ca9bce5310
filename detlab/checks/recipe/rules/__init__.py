"""The rules of a recipe: data with a source each; ``docs/rules.md`` is made of them.

A code is stable: a rule that is given up leaves its code unused.
"""

from __future__ import annotations

from typing import Final

from detlab.checks.recipe.rules.autotune import AUTOTUNE
from detlab.checks.recipe.rules.collectives import COLLECTIVES
from detlab.checks.recipe.rules.megatron import ARGUMENTS, ENVIRONMENT
from detlab.checks.recipe.rules.packages import PACKAGES
from detlab.checks.recipe.rules.process import EFFECTIVE, SEEDS_AND_DATA
from detlab.checks.recipe.rules.rule import Rule
from detlab.checks.recipe.rules.torch_flags import TORCH_FLAGS

__all__ = ["RULES", "Rule"]

RULES: Final[tuple[Rule, ...]] = (
    *ENVIRONMENT,
    *ARGUMENTS,
    *PACKAGES,
    *TORCH_FLAGS,
    *COLLECTIVES,
    *AUTOTUNE,
    *SEEDS_AND_DATA,
    *EFFECTIVE,
)
"""Every rule, by code."""
