"""Metrics that must not be compared: one clear sentence each, and what to do."""

from dataclasses import replace

import polars as pl
import pytest

import detlab as dl
from detlab.comparison.metrics.refusals import near_names
from detlab.errors import InputError, NotComparable
from detlab.testing import Call, make_metrics_run, make_run


def refused(a, b, error=NotComparable, **options):
    runs = [make_metrics_run(each, label=label) for each, label in ((a, "a"), (b, "b"))]
    with pytest.raises(error) as caught:
        dl.compare_metrics(*runs, **options)
    assert caught.value.finding.endswith(".")
    assert caught.value.hint
    return caught.value


def test_no_common_step_gives_both_spans_and_the_offset_that_would_meet():
    error = refused({"loss": {1: 1.0, 2: 2.0}}, {"loss": {101: 1.0, 102: 2.0}})
    assert (
        error.finding == "a and b have no step in common: 2 steps from 1 to 2, and 2 steps from 101 to 102."
    )
    assert error.hint.startswith("with -100 on the steps of b, 2 steps meet")
    assert error.hint.endswith("compare with offset=-100")


def test_counting_from_zero_and_from_one_is_said():
    error = refused(
        {"loss": dict.fromkeys(range(1, 9, 2), 1.0)}, {"loss": dict.fromkeys(range(0, 8, 2), 1.0)}
    )
    assert "as where one run counts from 0 and the other from 1" in error.hint
    assert error.hint.endswith("compare with offset=1")


def test_steps_that_no_offset_makes_meet_are_not_moved():
    error = refused({"loss": {1: 1.0, 3: 1.0, 8: 1.0}}, {"loss": {20: 1.0, 21: 1.0, 40: 1.0}})
    assert "offset" not in error.hint


def test_no_common_metric_lists_both_and_offers_pairs():
    error = refused({"loss": {1: 1.0}, "grad_norm": {1: 1.0}}, {"lm loss": {1: 1.0}, "grad norm": {1: 1.0}})
    assert error.finding.startswith(
        "a and b have no metric in common: loss, grad_norm; and lm loss, grad norm"
    )
    assert (
        error.hint
        == 'if two names mean one metric, say so: pairs={"loss": "lm loss", "grad_norm": "grad norm"}'
    )


def test_measurements_in_common_are_not_enough():
    refused({"loss": {1: 1.0}, "elapsed time": {1: 1.0}}, {"ce": {1: 1.0}, "elapsed time": {1: 1.0}})


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        (["loss"], ["lm loss"], {"loss": "lm loss"}),
        (["grad_norm"], ["grad norm", "params norm"], {"grad_norm": "grad norm"}),
        (["train/loss", "loss"], ["loss_train"], {"train/loss": "loss_train"}),
        (["loss"], ["grad norm"], {}),
    ],
)
def test_near_names_are_guessed_by_their_words(ours, theirs, found):
    assert near_names(ours, theirs) == found


def test_two_values_of_one_step_are_refused():
    run = make_metrics_run({"lm loss": {1: "1.0"}}, label="a")
    conflict = "log, lines 1 and 2: lm loss of step 1 is both 1.0 and 2.0"
    twice = replace(run, log=replace(run.log, conflicts=(conflict, "and more")))
    with pytest.raises(NotComparable) as caught:
        dl.compare_metrics(twice, run)
    finding = f"a (a) has two values of one number: {conflict} (1 more in Run.problems)."
    assert caught.value.finding == finding
    assert caught.value.hint.startswith("load the files of one run only")


def test_a_run_without_metrics_is_refused():
    traced = make_run({0: [Call("aten.mm.default", "lin", ["x"], ["y"])]}, label="traced")
    with pytest.raises(NotComparable, match=r"traced .* holds no step metrics"):
        dl.compare_metrics(traced, make_metrics_run({"loss": {1: 1.0}}))


def test_an_unknown_name_names_the_nearest():
    error = refused(
        {"lm loss": {1: 1.0}, "lr": {1: 1.0}}, {"lm loss": {1: 1.0}}, InputError, names=["lm los"]
    )
    assert error.finding == "neither run has a metric 'lm los'."
    assert error.hint == "choose one of: lm loss, lr"


def test_a_pair_of_an_unknown_metric_is_refused():
    error = refused({"loss": {1: 1.0}}, {"lm loss": {1: 1.0}}, InputError, pairs={"loss": "lm los"})
    assert error.finding == "b has no metric 'lm los' to pair."


def test_numbers_of_several_ranks_do_not_meet_those_of_none():
    a, b = (make_metrics_run({"loss": {1: 1.0, 2: 1.0}}, label=label) for label in "ab")
    ranks = pl.concat([b.metrics.with_columns(rank=pl.lit(rank, pl.Int64)) for rank in (0, 1)])
    object.__setattr__(b, "metrics", ranks)
    with pytest.raises(
        NotComparable, match=r"no number of the same rank in common: .* of no rank and of 2 ranks"
    ):
        dl.compare_metrics(a, b)
