"""Megatron's golden values: the string "nan" is a step that was not run; a file has one precision."""

import json

import numpy as np
import pytest

from detlab import DetlabError, load_run
from tests.readers.metrics.logs import numbers, states


def golden(path, /, **metrics):
    """Write a golden file of each metric's values by step."""
    content = {
        name.replace("_", " "): {"start_step": 1, "end_step": 99, "step_interval": 1, "values": values}
        for name, values in metrics.items()
    }
    path.write_text(json.dumps(content, indent=4))
    return path


def test_a_file_of_five_decimals_has_that_precision_in_every_number(tmp_path):
    path = golden(
        tmp_path / "g.json", lm_loss={"1": 10.49226, "5": 10.4983}, zeros={"1": 2098.0, "5": 2869.0}
    )
    assert numbers(path) == [
        (1, "lm loss", 10.49226, 1e-5, "value"),
        (1, "zeros", 2098.0, 1e-5, "value"),
        (5, "lm loss", 10.4983, 1e-5, "value"),
        (5, "zeros", 2869.0, 1e-5, "value"),
    ]
    assert load_run(path).metrics["width"].unique().to_list() == [0]
    assert load_run(path).problems == ()


def test_steps_that_are_the_string_nan_in_every_metric_were_not_run(tmp_path):
    path = golden(tmp_path / "g.json", lm_loss={"1": "nan", "2": 9.68681}, zeros={"1": "nan", "2": 5.0})
    assert numbers(path, "lm loss") == [(2, 9.68681)]
    run = load_run(path)
    assert run.metrics["step"].unique().to_list() == [2]
    assert "1 steps of which every metric is the string" in run.log.files["why"][0]
    assert run.problems == ()


def test_the_string_nan_beside_other_numbers_of_its_step_is_absent(tmp_path):
    path = golden(tmp_path / "g.json", lm_loss={"1": 9.5, "2": 9.25}, zeros={"1": "nan", "2": 5.0})
    assert states(path, "zeros") == [(1, "absent"), (2, "value")]
    assert load_run(path).metrics.filter(state="absent")["note"].to_list() == [
        'written as "nan": not logged, or NaN'
    ]


def test_the_literal_nan_is_nan(tmp_path):
    path = golden(tmp_path / "g.json", lm_loss={"1": float("nan"), "2": 9.68681, "3": float("-inf")})
    assert states(path, "lm loss") == [(1, "nan"), (2, "value"), (3, "inf")]


def test_values_of_full_precision_have_their_bits(tmp_path):
    losses = np.float32([10.493, 10.251, 9.9])
    path = golden(
        tmp_path / "g.json",
        lm_loss={str(step): float(loss) for step, loss in enumerate(losses, 1)},
        zeros={"1": 2098.0, "2": 2869.0, "3": 12.0},
    )
    metrics = load_run(path).metrics
    assert metrics["width"].unique().to_list() == [32]
    assert metrics.filter(name="lm loss")["bits"].to_list() == losses.view(np.uint32).tolist()
    assert metrics["resolution"].null_count() == len(metrics)


def test_an_older_file_has_lists_of_values(tmp_path):
    path = tmp_path / "g.json"
    path.write_text(
        '{"lm loss": {"start_step": 0, "end_step": 15, "step_interval": 5, "values": [10.5, 9.25]}}'
    )
    assert numbers(path, "lm loss") == [(0, 10.5), (5, 9.25)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"a": {"start_step": 1, "values": {"1": 2.5, "x": 3.5}}}',
            "'a' has a value at 'x', which is no step",
        ),
        ('{"a": {"start_step": 1, "values": {"1": 2.5, "2": [3]}}}', "'a' of step 2 is "),
        ('{"a": {"start_step": 1, "values": {"1": 2.5}}, "b": 7}', "'b' has no values by step"),
    ],
)
def test_one_damaged_value_is_a_problem_and_the_others_are_read(text, problem, tmp_path):
    (tmp_path / "g.json").write_text(text)
    run = load_run(tmp_path / "g.json")
    assert run.metrics.select("step", "value").rows() == [(1, 2.5)]
    assert len(run.problems) == 1
    assert problem in run.problems[0]


def test_a_cut_file_is_refused_with_its_place(tmp_path):
    path = golden(tmp_path / "g.json", lm_loss={"1": 10.49226, "5": 10.4983})
    path.write_text(path.read_text()[:-40])
    with pytest.raises(DetlabError, match=r"g\.json, line \d+, column \d+: the file ends inside the JSON"):
        load_run(path)


def test_no_golden_value_at_all_is_one_sentence(tmp_path):
    (tmp_path / "g.json").write_text('{"start_step": 1, "values": 3}')
    with pytest.raises(DetlabError, match="holds no golden value"):
        load_run(tmp_path / "g.json")


def test_a_folder_with_one_cut_file_loads_the_other_with_a_problem(tmp_path):
    golden(tmp_path / "a.json", lm_loss={"1": 10.49226})
    golden(tmp_path / "b.json", lm_loss={"2": 10.49226}).write_text(
        '{"lm loss": {"start_step": 1, "values": {'
    )
    run = load_run(tmp_path)
    assert run.metrics["step"].to_list() == [1]
    assert len(run.problems) == 1
    assert "b.json" in run.problems[0]
