"""The shipped resumes: one is right, one lacks a component, and one was damaged when it was saved."""

import pytest

from detlab import check_replicas, check_resume, compare, load_run
from detlab.samples import sample_path
from detlab.schema import Kind
from tests.record.traces import read_events

SAMPLE = sample_path("resume")


@pytest.fixture(scope="module")
def runs():
    return {name: load_run(SAMPLE / name) for name in ("reference", "resumed", "no_moments", "shifted")}


def errors(result):
    """Give the component and the first step of each error."""
    rows = result.findings.filter(severity="error").sort("component").select("component", "first_step")
    return dict(rows.iter_rows())


def test_the_right_resume_is_certified_and_each_of_its_controls_is_caught(runs):
    result = check_resume(runs["reference"], runs["resumed"])
    assert (result.verdict, errors(result)) == ("pass", {})
    assert len(result.table) and all(result.table["caught"])


@pytest.mark.parametrize(
    ("name", "lost"), [("no_moments", {"moments"}), ("shifted", {"moments", "master weights"})]
)
def test_what_a_wrong_resume_lost_is_named_with_the_first_step_that_shows_it(name, lost, runs):
    result = check_resume(runs["reference"], runs[name])
    assert result.verdict == "fail"
    assert errors(result) == {**dict.fromkeys(lost), "grad norm": 4, "loss": 4}


def test_the_samples_hold_states_alone():
    for rank in (0, 1):
        assert {event.kind for event in read_events(SAMPLE / "reference", rank)} == {Kind.STATE}


def test_data_parallel_ranks_of_the_reference_hold_the_same_parameters(runs):
    assert check_replicas(runs["reference"]).verdict == "pass"


def test_two_resumes_compared_as_runs_differ_first_in_a_state(runs):
    result = compare(runs["resumed"], runs["no_moments"])
    assert result.verdict == "diverged"
    assert set(result.findings["class"]) == {"state"}
    assert all("exp_avg" in scope for scope in result.first["scope"])
