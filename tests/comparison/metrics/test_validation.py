"""Whose fault a result is that failed validation: the three-way logic, and where it must not conclude."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run
from detlab.comparison.metrics.validation import (
    APPLICATION,
    ATTEMPTS,
    INSUFFICIENT,
    PERSISTENT,
    TRANSIENT,
    Attribution,
    ValidationResult,
    attribute_failure,
    attribute_failures,
)
from detlab.errors import InputError
from tests.readers.metrics.logs import record, write

HERE, THERE = ("nodeA", 3), ("nodeB", 1)
INITIAL = ("initial", *HERE, "nan")

FIRST = {
    "none": [],
    "here, equal": [("first rerun", *HERE, "nan")],
    "here, differs": [("first rerun", *HERE, "2.31")],
    "elsewhere, equal": [("first rerun", *THERE, "nan")],
    "elsewhere, differs": [("first rerun", *THERE, "2.31")],
    "here, not known": [("first rerun", *HERE, None)],
}
SECOND = {
    "none": [],
    "here, equal": [("second rerun", *HERE, "nan")],
    "here, differs": [("second rerun", *HERE, "2.31")],
    "elsewhere, equal": [("second rerun", *THERE, "nan")],
    "elsewhere, differs": [("second rerun", *THERE, "2.31")],
    "elsewhere, not known": [("second rerun", *THERE, None)],
}
T, P, A, I = TRANSIENT, PERSISTENT, APPLICATION, INSUFFICIENT  # noqa: E741
TABLE = {  # for each first rerun, the conclusions in the order of the second ones
    "none":               (I, I, I, A, I, I),
    "here, equal":        (I, I, I, A, P, I),
    "here, differs":      (T, T, T, T, T, T),
    "elsewhere, equal":   (A, A, I, A, I, A),
    "elsewhere, differs": (I, P, I, I, I, I),
    "here, not known":    (I, I, I, A, I, I),
}  # fmt: skip
COMBINATIONS = [
    (first, second, conclusion)
    for first, conclusions in TABLE.items()
    for second, conclusion in zip(SECOND, conclusions, strict=True)
]


@pytest.mark.parametrize(("first", "second", "conclusion"), COMBINATIONS)
def test_every_combination_of_reruns_has_its_conclusion(first, second, conclusion):
    found = attribute_failure([INITIAL, *FIRST[first], *SECOND[second]])
    assert found.conclusion == conclusion
    suspect = HERE if conclusion in (TRANSIENT, PERSISTENT) else (None, None)
    assert (found.node, found.device) == suspect
    assert found.why.endswith(".")
    assert found.next


def test_the_same_result_in_place_and_another_one_elsewhere_is_a_persistent_fault_of_the_first_device():
    found = attribute_failure([INITIAL, *FIRST["here, equal"], ("second rerun", *THERE, "2.31")])
    assert found == Attribution(
        "persistent", "nodeA", 3, "printed",
        "nodeA device 3 gave nan in both runs, and nodeB device 1 gave 2.31.",
        "take nodeA device 3 out and test it; the step can go on elsewhere",
        found.results,
    )  # fmt: skip


@pytest.mark.parametrize("value", ["nan", "2.31", None])
def test_a_second_rerun_on_the_same_device_is_insufficient_evidence(value):
    found = attribute_failure([INITIAL, *FIRST["here, equal"], ("second rerun", *HERE, value)])
    assert found.conclusion == "insufficient evidence"
    assert found.why == "the second rerun was on the same device, nodeA device 3."


@pytest.mark.parametrize(
    ("elsewhere", "conclusion", "suspect"),
    [("nodeB,gpu1,2.31", PERSISTENT, "nodeA"), ("nodeA,gpu3,nan", INSUFFICIENT, None)],
)
def test_a_table_of_results_is_attributed_as_it_is(tmp_path, elsewhere, conclusion, suspect):
    """O36 and its variant, as somebody would write them down."""
    rows = ["attempt,node,device,value", "initial,nodeA,gpu3,nan", "first rerun,nodeA,gpu3,nan"]
    path = tmp_path / "results.csv"
    path.write_text("\n".join([*rows, f"second rerun,{elsewhere}"]))
    found = attribute_failure(pl.read_csv(path, infer_schema=False))
    assert (found.conclusion, found.node) == (conclusion, suspect)
    if suspect is None:
        assert found.why == "the second rerun was on the same device, nodeA device gpu3."


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(InputError, match="is no result of a validation"):
        attribute_failure(pl.DataFrame({"value": ["nan"]}))


@pytest.mark.parametrize("other", [("nodeA", 1), ("nodeB", 3)])
def test_a_device_is_another_one_when_either_its_node_or_its_number_is(other):
    found = attribute_failure([INITIAL, *FIRST["here, equal"], ("second rerun", *other, "2.31")])
    assert found.conclusion == "persistent"


def test_a_second_rerun_that_came_back_to_the_device_is_made_good_by_one_elsewhere():
    back = ("second rerun", *HERE, None)
    elsewhere = ("second rerun", *THERE, "2.31")
    assert attribute_failure([INITIAL, *FIRST["here, equal"], back, elsewhere]).conclusion == "persistent"


def test_two_other_devices_that_disagree_decide_nothing():
    reruns = [("second rerun", *THERE, "nan"), ("second rerun", "nodeC", 0, "2.31")]
    found = attribute_failure([INITIAL, *FIRST["here, equal"], *reruns])
    assert found.conclusion == "insufficient evidence"
    assert "nodeB device 1 gave nan as nodeA device 3 did, and nodeC device 0 gave 2.31" in found.why


@pytest.mark.parametrize("lost", [(None, 3), ("nodeA", None), (None, None)])
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_result_without_its_device_decides_nothing(lost, attempt):
    results = [INITIAL, *FIRST["here, differs"], ("second rerun", *THERE, "2.31")]
    results = [(each[0], *lost, each[3]) if each[0] == attempt else each for each in results]
    found = attribute_failure(results)
    assert found.conclusion == "insufficient evidence"
    assert "not known on which device" in found.why


def test_without_the_initial_result_nothing_is_decided():
    found = attribute_failure(FIRST["here, equal"])
    assert (found.conclusion, found.why) == (INSUFFICIENT, "the result of the initial run is missing.")


# Equality -------------------------------------------------------------------------------------------------


def in_place(a, b, tolerance=None):
    """Say whether two results count as equal, by what a rerun in place that gives the second shows."""
    found = attribute_failure(
        [("initial", *HERE, a), ("first rerun", *HERE, b), ("second rerun", *THERE, "0.5")],
        tolerance=tolerance,
    )
    return found.conclusion != TRANSIENT


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (0.0, -0.0, False),
        (1.0, math.nextafter(1.0, 2.0), False),
        (math.nan, -math.nan, True),
        (math.inf, -math.inf, False),
        (math.nan, math.inf, False),
        ("2.31", "2.310", True),
        ("2.31", "2.32", False),
        ("0.0", "-0.0", False),
        ("NaN", "nan", True),
        ("inf", "nan", False),
        ("2.31", 2.3149, True),
        ("2.31", 2.3151, False),
        ("2.31E+02", 231.4, True),
        (2.0, "nan", False),
        (math.nan, "nan", True),
        ("[1, 2]", "[1, 2]", True),
        ("[1, 2]", "[1, 3]", False),
    ],
)
def test_equality_is_that_of_bits_where_they_are_known_and_of_what_was_printed_otherwise(a, b, equal):
    assert in_place(a, b) == equal
    assert in_place(b, a) == equal


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "equal"),
    [(1.0, 1.0009, 0.001, True), (1.0, 1.0011, 0.001, False), (1.0, -1.0, 0.5, False),
     (math.nan, 1.0, 9.0, False),
     (math.inf, math.inf, 0.0, True), (0.0, -0.0, 0.0, True), (math.nan, math.nan, 0.0, True)],
)  # fmt: skip
def test_a_tolerance_is_a_relative_difference_as_megatron_has_it(a, b, tolerance, equal):
    assert in_place(a, b, tolerance) == equal


@given(value=st.floats(), other=st.floats())
def test_without_a_tolerance_exact_results_are_equal_only_when_their_bits_are(value, other):
    same = value.hex() == other.hex() and math.copysign(1, value) == math.copysign(1, other)
    assert in_place(value, other) == (same or (math.isnan(value) and math.isnan(other)))


def test_evidence_is_printed_as_soon_as_one_result_is_text():
    exact = [("initial", *HERE, 1.0), ("first rerun", *HERE, 2.0)]
    assert attribute_failure(exact).evidence == "exact"
    assert attribute_failure([exact[0], ("first rerun", *HERE, "2.0")]).evidence == "printed"


def test_where_megatron_called_it_otherwise_that_is_said():
    rerun = ValidationResult("first rerun", *HERE, "1.0001", "FIRST_RERUN_REPRODUCIBLE")
    found = attribute_failure([("initial", *HERE, "1.0"), rerun])
    assert found.conclusion == "transient"
    assert "Megatron called the first rerun reproducible, within a tolerance of its own" in found.why
    assert "Megatron" not in attribute_failure([("initial", *HERE, "1.0"), rerun], tolerance=0.001).why


def test_results_can_be_given_as_mappings():
    results = [ValidationResult(*INITIAL)._asdict(), *FIRST["here, differs"]]
    assert attribute_failure(results).conclusion == "transient"


@pytest.mark.parametrize(
    "given", [("third rerun", *HERE, 1.0), ("initial",), {"attempt": "initial", "gpu": 3}]
)
def test_what_is_no_result_is_refused_in_one_sentence(given):
    with pytest.raises(InputError, match="is no "):
        attribute_failure([given])


# From the tracker file and the log ------------------------------------------------------------------------


def tracked(status, result, place=HERE, *, job=1, rank=0, step=15, message="loss is NaN"):
    node, device = place
    return (
        f"ts=2026-03-02 08:15:00.25 node={node} device={device} jobID={job} rank={rank} iteration={step} "
        f"status=RerunValidationStatus.{status} result={result} message='{message}'\n"
    )


LOST = tracked("INITIAL_RUN", "nan"), tracked("FIRST_RERUN_REPRODUCIBLE", "tensor(nan, device='cuda:3')")
PLACE = "ERROR:megatron.core.rerun_state_machine:Rank 0, node nodeA, device 3, iteration #15: "
CONSOLE = (
    "ERROR:x:Unexpected result nan on rank 0 at iteration #15 invocation #1 (message='loss is NaN')\n",
    PLACE
    + "First rerun: unexpected result is reproducible within the tolerance (nan = nan). Need to rerun\n",
)


def attributed(tmp_path, *lines, **options):
    """Attribute what stands in a log beside one record."""
    found = attribute_failures(load_run(write(tmp_path, record(1), *lines)), **options)
    return found.select("step", "rank", "message", "conclusion", "node", "device", "num_results").rows()


def test_a_tracker_file_over_two_jobs_is_attributed(tmp_path):
    second = tracked("SECOND_RERUN_NOT_REPRODUCIBLE", "2.31", THERE, job=2)
    assert attributed(tmp_path, *LOST, second) == [(15, 0, "loss is NaN", "persistent", "nodeA", 3, 3)]


def test_a_tracker_file_of_a_right_result_names_nobody(tmp_path):
    second = tracked("SECOND_RERUN_REPRODUCIBLE", "nan", THERE, job=2)
    assert attributed(tmp_path, *LOST, second) == [(15, 0, "loss is NaN", "application", None, None, 3)]


def test_failures_of_other_ranks_and_steps_are_kept_apart(tmp_path):
    other = (
        tracked("INITIAL_RUN", "inf", THERE, rank=1),
        tracked("FIRST_RERUN_NOT_REPRODUCIBLE", "1", THERE, rank=1),
    )
    assert attributed(tmp_path, LOST[0], other[0], LOST[1], other[1]) == [
        (15, 0, "loss is NaN", "insufficient evidence", None, None, 2),
        (15, 1, "loss is NaN", "transient", "nodeB", 1, 2),
    ]


def test_a_new_initial_run_at_the_same_place_is_another_failure(tmp_path):
    assert [row[-1] for row in attributed(tmp_path, *LOST, *LOST)] == [2, 2]


def test_with_reruns_disabled_the_same_failure_after_a_resume_is_a_rerun(tmp_path):
    first, second = (
        tracked("RERUN_DISABLED", "nan", place, job=job) for job, place in enumerate((HERE, THERE))
    )
    assert attributed(tmp_path, first, second)[0][3] == "application"
    assert attributed(tmp_path, first, first)[0][3] == "insufficient evidence"


def test_failures_at_steps_that_are_not_known_are_never_the_same(tmp_path):
    one = tracked("RERUN_DISABLED", "nan", HERE, step=-1)
    assert [row[3] for row in attributed(tmp_path, one, one)] == ["insufficient evidence"] * 2


def test_the_log_alone_is_attributed(tmp_path):
    second = (
        "WARNING:x:Second rerun: unexpected result is not reproducible on a different GPU, therefore was "
        "likely incorrect (2.31 != nan)\n",
        PLACE.replace("nodeA, device 3", "nodeB, device 1") + "Possible persistent error!!\n",
    )
    assert attributed(tmp_path, *CONSOLE, *second) == [(15, 0, "loss is NaN", "persistent", "nodeA", 3, 3)]


def test_a_transient_error_in_the_log_alone_is_attributed(tmp_path):
    rerun = PLACE + "First rerun: unexpected result is not reproducible within the tolerance (2.31 != nan)!\n"
    verdict = PLACE + "Possible transient error!!\n"
    assert attributed(tmp_path, CONSOLE[0], rerun, verdict)[0][3:] == ("transient", "nodeA", 3, 2)


def test_a_log_that_came_back_to_the_same_device_decides_nothing(tmp_path):
    back = "Got rescheduled on the same GPU. Need to resume again (node: nodeA, gpu: 3)\n"
    found = attribute_failures(load_run(write(tmp_path, record(1), *CONSOLE, back)))
    assert found["why"].to_list() == ["the second rerun was on the same device, nodeA device 3."]


def test_where_log_and_tracker_tell_the_same_it_counts_once(tmp_path):
    assert [row[-1] for row in attributed(tmp_path, CONSOLE[0], LOST[0], CONSOLE[1], LOST[1])] == [2]


def test_an_exception_that_is_printed_twice_is_one_result_until_a_restart(tmp_path):
    said = "RuntimeError: Rank 0, node nodeA, device 3, iteration 15: Unexpected result nan (message='x')\n"
    assert [row[-1] for row in attributed(tmp_path, said, "[rank0]: " + said)] == [1]
    start = "[before the start of training step] datetime: x\n"
    assert [row[-1] for row in attributed(tmp_path, said, start, said)] == [2]


def test_a_result_that_is_no_number_is_not_known(tmp_path):
    pair = tracked("INITIAL_RUN", "tensor([1., 2.])"), tracked("FIRST_RERUN_REPRODUCIBLE", "tensor([1., 3.])")
    found = attribute_failures(load_run(write(tmp_path, record(1), *pair)))
    assert found["why"].to_list() == ["the result of the initial run on nodeA device 3 is not known."]


def test_megatrons_tolerance_can_be_given(tmp_path):
    pair = tracked("INITIAL_RUN", "1.0"), tracked("FIRST_RERUN_REPRODUCIBLE", "1.0001")
    assert attributed(tmp_path, *pair)[0][3] == "transient"
    assert attributed(tmp_path, *pair, tolerance=0.001)[0][3] == "insufficient evidence"


def test_a_log_without_a_failure_has_none(tmp_path):
    assert attributed(tmp_path, record(2)) == []


def test_a_path_does_as_well_as_a_run(tmp_path):
    log = write(tmp_path, record(1), *LOST)
    assert attribute_failures(log).equals(attribute_failures(load_run(log)))
    assert len(attribute_failures(str(log))) == 1


def test_the_text_says_the_conclusion_and_the_suspect_first():
    results = [
        ("initial", "n1", 3, "nan"),
        ("first rerun", "n1", 3, "nan"),
        ("second rerun", "n2", 1, "2.31"),
    ]
    lines = repr(attribute_failure(results)).splitlines()
    assert lines[0].startswith("PERSISTENT fault suspected on n1 device 3: n1 device 3 gave nan in both runs")
    assert lines[-2].startswith("  next: ") and lines[-1] == "3 results. Evidence: printed"
    assert repr(attribute_failure([])).startswith("INSUFFICIENT EVIDENCE: ")
