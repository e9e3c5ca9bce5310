"""The pytest plugin: the fixture ``bitwise_repeatable``, which is `detlab.testing.assert_bitwise_repeatable`.

It is loaded into every run of pytest where detlab is installed, so it imports nothing until it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def bitwise_repeatable() -> Callable[..., Any]:
    """Give `assert_bitwise_repeatable`: make a call many times and fail when one trial gave other bits."""
    from detlab.testing import assert_bitwise_repeatable

    return assert_bitwise_repeatable
