"""Restart replays: the steps that a run ran again, against those of before."""

import polars as pl

from detlab.comparison.metrics import compare_metrics, replays_of
from detlab.comparison.metrics.replays import REPLAY_COLUMNS
from detlab.testing import make_metrics_run


def run_of(*segments):
    return make_metrics_run([{"lm loss": part, "grad norm": part} for part in segments], label="a")


def test_an_equal_replay_is_said_to_be_so():
    run = run_of({1: "1.5", 2: "1.4", 3: "1.3"}, {2: "1.4", 3: "1.3", 4: "1.2"})
    replays = replays_of(run)
    assert dict(replays.schema) == REPLAY_COLUMNS
    assert replays.select("segment", "against", "name", "steps_common", "steps_different").rows() == [
        (1, 0, "grad norm", 2, 0),
        (1, 0, "lm loss", 2, 0),
    ]
    text = " ".join(repr(compare_metrics(run, run_of({1: "1.5"}))).split())
    assert "restart replay in a (a), segment 1 against 0, 2 steps: no difference visible" in text


def test_the_first_step_that_is_replayed_otherwise_is_found():
    run = make_metrics_run(
        [{"lm loss": {1: 1.5, 2: 1.4, 3: 1.3}}, {"lm loss": {2: 1.4, 3: 1.25, 4: 1.2}}], label="a"
    )
    row = replays_of(run).row(0, named=True)
    assert (row["first_step"], row["steps_different"], row["evidence"]) == (3, 1, "exact")
    assert "lm loss differs first, at step 3" in repr(compare_metrics(run, run))


def test_a_replay_that_differs_is_no_difference_between_the_runs():
    run = make_metrics_run([{"lm loss": {1: 1.5, 2: 1.4}}, {"lm loss": {2: 1.25}}])
    assert compare_metrics(run, run).verdict == "match"


def test_each_step_is_held_against_the_segment_that_last_ran_it():
    run = make_metrics_run(
        [{"loss": {1: 1.0, 2: 2.0, 3: 3.0}}, {"loss": {2: 2.0}}, {"loss": {2: 2.5, 3: 3.0}}]
    )
    rows = replays_of(run).select("segment", "against", "steps_common", "steps_different").rows()
    assert rows == [(1, 0, 1, 0), (2, 0, 1, 0), (2, 1, 1, 1)]


def test_a_run_without_a_restart_has_no_replay():
    assert replays_of(run_of({1: "1.5"})).is_empty()


def test_segments_that_share_no_step_have_no_replay():
    assert replays_of(run_of({1: "1.5"}, {2: "1.5"})).is_empty()


def test_timings_are_not_replayed():
    run = make_metrics_run([{"elapsed time": {1: "1.0"}, "loss": {1: 1.0}}, {"elapsed time": {1: "2.0"}}])
    assert replays_of(run).is_empty()


def test_two_values_of_one_segment_are_no_replay():
    run = make_metrics_run([{"loss": {1: 1.0, 2: 2.0}}, {"loss": {2: 2.0}}])
    object.__setattr__(run, "metrics", pl.concat([run.metrics[:2], run.metrics[1:]]))
    assert replays_of(run).select("segment", "against").rows() == [(1, 0)]


def test_a_replay_that_is_printed_with_more_digits_is_equal_as_far_as_both_show():
    values = {step: 2.512345 - 0.00137 * step for step in range(1, 41)}
    run = run_of(
        *({step: form.format(value) for step, value in values.items()} for form in ("{:.4f}", "{:.5f}"))
    )
    replay = replays_of(run).row(0, named=True)
    assert (replay["steps_common"], replay["steps_different"]) == (40, 0)
