"""Step metrics after a resume: one planted number is named with its component and step, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.checks.resume import check_resume
from detlab.checks.resume.numbers import metric_component
from detlab.testing import make_metrics_run
from tests.checks.resume.stories import errors, finding, verified

NAMES = {
    "lm loss": "loss",
    "grad norm": "grad norm",
    "num zeros": "grad norm",
    "params norm": "parameters",
    "learning rate": "param groups",
    "loss scale": "loss scale",
    "consumed samples": "data position",
    "batch-generator thing": "metrics",
}


@pytest.mark.parametrize(("name", "component"), NAMES.items())
def test_a_metric_belongs_to_its_component(name, component):
    assert metric_component(name) == component


def curves(first, last, *, printed, planted=None):
    """Numbers of every metric at every step; one of them is moved by the least that shows."""
    found = {}
    for number, name in enumerate(NAMES):
        values = {}
        for step in range(first, last + 1):
            value = 1.5 + number + step / 50
            if (name, step) == planted:
                value = value + 1e-4 if printed else np.nextafter(value, 10)
            values[step] = f"{value:.4f}" if printed else value
        found[name] = values
    return found


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(1, 8), st.booleans(), st.data())
def test_a_planted_number_is_the_first_finding_and_the_only_one(first, num, printed, data):
    last = first + num
    name = data.draw(st.sampled_from([*NAMES]))
    step = data.draw(st.integers(first, last))
    a = make_metrics_run(curves(1, last, printed=printed), label="a")
    b = make_metrics_run(curves(first, last, printed=printed, planted=(name, step)), label="b")
    result = check_resume(a, b, controls=False)
    assert errors(result) == [NAMES[name]]
    row = finding(result, NAMES[name])
    assert (row["first_step"], row["names"]) == (step, [name])
    assert f"step {step} (resume+{step - first})" in row["found"]
    assert set(verified(result)) == set(NAMES.values()) - {NAMES[name]}


@settings(max_examples=6)
@given(st.integers(2, 6), st.integers(1, 8), st.booleans())
def test_equal_numbers_are_verified_as_strongly_as_they_are_known_and_controls_are_caught(
    first, num, printed
):
    a = make_metrics_run(curves(1, first + num, printed=printed), label="a")
    b = make_metrics_run(curves(first, first + num, printed=printed), label="b")
    result = check_resume(a, b)
    assert result.verdict == "pass"
    assert set(verified(result)) == set(NAMES.values()) == set(result.table["component"])
    assert result.table["caught"].all()
    assert all(each.evidence.startswith("exact") is not printed for each in result.verified)


def test_a_difference_of_constant_sign_is_said():
    a = make_metrics_run({"lm loss": {n: 2.0 - n / 100 for n in range(1, 61)}}, label="a")
    b = make_metrics_run({"lm loss": {n: (2.0 - n / 100) * 1.001 for n in range(10, 61)}}, label="b")
    result = check_resume(a, b)
    assert any("a difference of constant sign" in note for note in result.notes)
