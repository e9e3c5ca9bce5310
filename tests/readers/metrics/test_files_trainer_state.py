"""trainer_state.json: entries of training, evaluation and the end share one list, with NaN literals."""

import json

import numpy as np
import pytest

from detlab import DetlabError, load_run
from tests.readers.metrics.logs import numbers, states


def state(folder, *entries):
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"best_metric": None, "global_step": 20, "log_history": entries}, indent=2))
    return path


NORMS = [float(np.float32(norm)) for norm in (188.2905, 17.3)]


def test_training_evaluation_and_the_summary_are_read_each_metric_at_its_precision(tmp_path):
    path = state(
        tmp_path,
        {"grad_norm": NORMS[0], "learning_rate": 4.583333333333333e-05, "loss": 10.5949, "step": 10},
        {"grad_norm": NORMS[1], "learning_rate": 0.00019863852961198096, "loss": 9.25, "step": 20},
        {"eval_loss": 9.875, "eval_runtime": 3.5, "step": 20},
        {"train_loss": 9.92245, "step": 20},
    )
    assert numbers(path) == [
        (10, "grad_norm", NORMS[0], None, "value"),
        (10, "learning_rate", 4.583333333333333e-05, None, "value"),
        (10, "loss", 10.5949, 1e-4, "value"),
        (20, "grad_norm", NORMS[1], None, "value"),
        (20, "learning_rate", 0.00019863852961198096, None, "value"),
        (20, "loss", 9.25, 1e-4, "value"),
        (20, "eval_loss", 9.875, 1e-3, "value"),
        (20, "eval_runtime", 3.5, 1e-1, "value"),
        (20, "train_loss", 9.92245, 1e-5, "value"),
    ]
    assert load_run(path).metrics["width"].to_list() == [32, 64, 0, 32, 64, 0, 0, 0, 0]


def test_a_loss_of_zero_beside_a_nan_grad_norm_is_nan(tmp_path):
    path = state(
        tmp_path,
        {"grad_norm": float("nan"), "loss": 14577.9766, "step": 10},
        {"grad_norm": float("nan"), "loss": 0.0, "step": 20},
        {"grad_norm": 0.5, "loss": 0.0, "step": 30},
    )
    assert states(path, "loss") == [(10, "value"), (20, "nan"), (30, "zero")]
    assert states(path, "grad_norm") == [(10, "nan"), (20, "nan"), (30, "value")]
    [note] = load_run(path).metrics["note"].drop_nulls().to_list()
    assert "logging_nan_inf_filter" in note


def test_infinity_and_null_are_no_numbers_of_their_own(tmp_path):
    path = state(tmp_path, {"loss": float("inf"), "step": 1}, {"loss": None, "step": 2})
    assert states(path, "loss") == [(1, "inf"), (2, "absent")]


def test_steps_that_go_back_begin_a_segment(tmp_path):
    path = state(tmp_path, *({"loss": 2.5 + step / 10, "step": step} for step in (10, 20, 20, 10, 20)))
    run = load_run(path)
    assert run.metrics.select("step", "segment").rows() == [(10, 0), (20, 0), (10, 1), (20, 1)]
    assert run.problems == ()


def test_one_step_logged_with_two_losses_is_a_conflict(tmp_path):
    run = load_run(state(tmp_path, {"loss": 2.5, "step": 10}, {"loss": 2.75, "step": 10}))
    assert run.problems == ("trainer_state.json: loss of step 10 is both 2.5 and 2.75",)


def test_an_entry_without_a_step_is_a_problem(tmp_path):
    run = load_run(state(tmp_path, {"loss": 2.5, "step": 10}, {"loss": 2.75}))
    assert run.problems == ("trainer_state.json: entry 1 of log_history has no step",)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('{"log_history": []}', "has no number in any entry of log_history"),
        ('{"log_history": 7}', "has no list log_history"),
        ('{"log_history": [{"step": 1, "loss": 2.', "line 1, column 39: the file ends inside the JSON"),
        ("[1, 2]", "has no list log_history"),
        ("loss", "this is no JSON"),
    ],
)
def test_a_damaged_state_is_one_sentence(text, finding, tmp_path):
    (tmp_path / "trainer_state.json").write_text(text)
    with pytest.raises(DetlabError, match=finding):
        load_run(tmp_path / "trainer_state.json")
