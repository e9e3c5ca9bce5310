"""Tests of the comparison; what their helper asserts is shown like what they assert themselves."""

import pytest

pytest.register_assert_rewrite("tests.comparison.stories")
