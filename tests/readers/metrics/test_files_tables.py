"""Tables: W&B and MLflow exports and those of own scripts, in CSV, JSON lines and parquet."""

import json

import numpy as np
import polars as pl
import pytest

from detlab import DetlabError, load_run
from tests.readers.metrics.logs import numbers, states

LOSSES = [float(np.float32(loss)) for loss in (2.3456, 2.2345, 2.1234)]
RATES = [1e-05, 4.583333333333333e-05, 3e-05]


def write(folder, text, name="metrics.csv"):
    path = folder / name
    path.write_text(text)
    return path


def why(path):
    return load_run(path).log.files["why"][0]


# ---------------------------------------------------------------- CSV


def test_a_wide_table_has_a_metric_a_column_each_at_its_precision(tmp_path):
    rows = [
        f"{step},{loss},{rate},{4.25 + step}"
        for step, (loss, rate) in enumerate(zip(LOSSES, RATES, strict=True), 1)
    ]
    path = write(tmp_path, "\n".join(["step,loss,lr,norm", *rows, ""]))
    assert numbers(path)[:3] == [
        (1, "loss", LOSSES[0], None, "value"),
        (1, "lr", RATES[0], None, "value"),
        (1, "norm", 5.25, 1e-2, "value"),
    ]
    metrics = load_run(path).metrics
    assert metrics["width"].to_list() == [32, 64, 0] * 3
    assert metrics["bits"][0] == int(np.float32(LOSSES[0]).view(np.uint32))
    assert metrics["line"].to_list() == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert load_run(path).problems == ()


@pytest.mark.parametrize("step", ["_step", "step", "Step", "iteration", "global_step", "train/global_step"])
def test_the_column_of_steps_has_one_of_the_usual_names(step, tmp_path):
    assert numbers(write(tmp_path, f"{step},loss\n7,2.5\n"), "loss") == [(7, 2.5)]


def test_the_steps_of_training_come_before_the_calls_that_wandb_counts(tmp_path):
    path = write(
        tmp_path, "_step,_runtime,_timestamp,global_step,loss\n0,1.5,1.7e9,100,2.5\n1,2.5,1.7e9,200,2.25\n"
    )
    assert numbers(path) == [(100, "loss", 2.5, 1e-2, "value"), (200, "loss", 2.25, 1e-2, "value")]
    assert "steps are of the column global_step" in why(path)


def test_a_wandb_chart_loses_its_minimum_and_maximum_and_says_so(tmp_path):
    head = '"Step","gpt - loss","gpt - loss__MIN","gpt - loss__MAX","gpt - _step","gpt - _step__MIN"'
    path = write(tmp_path, f'{head}\n"1","2.5","2.4","2.6","1","1"\n')
    assert numbers(path) == [(1, "loss", 2.5, 0.1, "value")]
    assert "3 columns of W&B's MIN and MAX are left out" in why(path)
    assert "columns are of the run gpt" in why(path)


def test_a_wandb_chart_of_two_runs_keeps_their_names(tmp_path):
    path = write(tmp_path, "Step,a - loss,b - loss\n1,2.5,2.25\n")
    assert load_run(path).metrics["name"].to_list() == ["a - loss", "b - loss"]
    assert "columns are of 2 runs" in why(path)


def test_a_download_of_tensorboard_has_its_metric_in_its_name(tmp_path):
    path = write(tmp_path, "Wall time,Step,Value\n1700000000.5,1,2.5\n", "run-train-tag-lm loss.csv")
    assert numbers(path, "lm loss") == [(1, 2.5)]


def test_tabs_and_semicolons_and_a_byte_order_mark_and_windows_line_ends(tmp_path):
    for separator in "\t;":
        path = write(tmp_path, f"\ufeffstep{separator}loss\r\n1{separator}2.5\r\n")
        assert numbers(path, "loss") == [(1, 2.5)]


def test_nan_and_infinity_are_states_and_an_empty_cell_among_numbers_is_absent(tmp_path):
    path = write(tmp_path, "step,loss\n1,2.5\n2,NaN\n3,-Infinity\n4,\n5,0.0\n")
    assert states(path, "loss") == [(1, "value"), (2, "nan"), (3, "inf"), (4, "absent"), (5, "zero")]
    assert load_run(path).problems == ()


def test_empty_cells_of_a_metric_that_is_seldom_logged_are_no_rows(tmp_path):
    path = write(tmp_path, "step,loss,eval\n1,2.5,\n2,2.5,\n3,2.5,1.5\n")
    assert states(path, "eval") == [(3, "value")]


def test_columns_without_numbers_are_left_out_and_said(tmp_path):
    path = write(tmp_path, "step,loss,phase\n1,2.5,train\n")
    assert load_run(path).metrics["name"].to_list() == ["loss"]
    assert "1 columns without numbers are left out: phase" in why(path)


def test_a_column_of_ranks_is_the_rank(tmp_path):
    path = write(tmp_path, "step,rank,loss\n1,0,2.5\n1,1,2.25\n")
    assert load_run(path).metrics.select("rank", "name", "value").rows() == [
        (0, "loss", 2.5),
        (1, "loss", 2.25),
    ]


def test_steps_that_go_back_begin_a_segment(tmp_path):
    path = write(tmp_path, "step,loss,norm\n1,2.5,1\n2,2.5,1\n3,2.5,1\n2,2.5,1\n3,2.25,1\n")
    assert load_run(path).metrics.filter(name="norm").select("segment", "step").rows() == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
    ]


def test_a_table_with_its_last_step_first_has_no_restarts(tmp_path):
    path = write(tmp_path, "step,loss\n3,2.5\n2,2.25\n1,2.75\n")
    assert load_run(path).metrics.select("segment", "step").rows() == [(0, 1), (0, 2), (0, 3)]


# ---------------------------------------------------------------- MLflow


def test_a_long_table_of_mlflow_is_read_in_the_order_of_time(tmp_path):
    rows = ["loss,2.25,2,200,0", "loss,2.5,1,100,0", "norm,0,1,100,1", "norm,0.5,2,200,0"]
    path = write(tmp_path, "\n".join(["key,value,step,timestamp,is_nan", *rows, ""]))
    assert numbers(path, "loss") == [(1, 2.5), (2, 2.25)]
    assert states(path, "norm") == [(1, "nan"), (2, "value")]
    assert load_run(path).metrics["segment"].unique().to_list() == [0]


def test_a_long_table_sorted_by_metric_has_no_restarts(tmp_path):
    path = write(tmp_path, "key,value,step\nloss,2.5,1\nloss,2.25,2\nnorm,0.5,1\nnorm,0.25,2\n")
    assert load_run(path).metrics["segment"].unique().to_list() == [0]


def test_a_long_table_of_two_runs_is_refused(tmp_path):
    path = write(tmp_path, "run_uuid,key,value,step\na,loss,2.5,1\nb,loss,2.25,1\n")
    with pytest.raises(DetlabError, match="holds 2 runs in its column run_uuid"):
        load_run(path)


# ---------------------------------------------------------------- JSON


def test_json_lines_keep_the_precision_and_tell_null_from_no_key(tmp_path):
    lines = [
        json.dumps({"step": 1, "loss": LOSSES[0], "lr": 0.5}),
        json.dumps({"step": 2, "loss": None, "eval": {"x": 1}, "ok": True, "lr": 0.25}),
        json.dumps({"step": 3, "loss": float("nan")}),
        json.dumps({"step": 4, "loss": "NaN"}),
        json.dumps({"step": 5, "lr": 0.125}),
    ]
    path = write(tmp_path, "\n".join([*lines, ""]), "history.jsonl")
    assert states(path, "loss") == [(1, "value"), (2, "absent"), (3, "nan"), (4, "nan")]
    assert numbers(path, "lr") == [(1, 0.5), (2, 0.25), (5, 0.125)]
    metrics = load_run(path).metrics
    assert metrics.filter(name="loss", step=1)["width"].to_list() == [32]
    assert metrics["line"].to_list() == [1, 1, 2, 2, 3, 4, 5]
    assert sorted(metrics["name"].unique()) == ["loss", "lr"]


def test_a_json_list_of_objects_is_a_table(tmp_path):
    path = write(
        tmp_path, json.dumps([{"_step": 0, "loss": 2.5}, {"_step": 1, "loss": 2.25}]), "history.json"
    )
    assert numbers(path, "loss") == [(0, 2.5), (1, 2.25)]


# ---------------------------------------------------------------- parquet


def test_parquet_has_the_width_of_its_columns(tmp_path):
    path = tmp_path / "history.parquet"
    pl.DataFrame(
        {
            "step": [1, 2],
            "loss": pl.Series([0.1, -0.0], dtype=pl.Float32),
            "lr": [0.1, float("nan")],
            "n": [3, None],
        }
    ).write_parquet(path)
    metrics = load_run(path).metrics
    rows = metrics.select("step", "name", "width", "bits", "state").rows()
    assert sorted(rows, key=lambda row: row[:2]) == [
        (1, "loss", 32, 0x3DCCCCCD, "value"),
        (1, "lr", 64, 0x3FB999999999999A, "value"),
        (1, "n", 64, 0x4008000000000000, "value"),
        (2, "loss", 32, 0x80000000, "zero"),
        (2, "lr", 64, 0x7FF8000000000000, "nan"),
        (2, "n", 0, None, "absent"),
    ]


def test_a_long_parquet_with_categories_is_read_by_them(tmp_path):
    frame = pl.DataFrame(
        {"key": pl.Series(["a", "b", "a"], dtype=pl.Categorical), "value": [0.5, 0.25, 0.75]}
    )
    frame.with_columns(step=pl.Series([1, 1, 2])).write_parquet(tmp_path / "m.parquet", use_pyarrow=True)
    assert numbers(tmp_path / "m.parquet", "a") == [(1, 0.5), (2, 0.75)]


def test_a_long_parquet_is_read_like_a_long_csv(tmp_path):
    pl.DataFrame(
        {"key": ["a", "b"], "value": [0.5, 0.25], "step": [1, 1], "is_nan": [False, True]}
    ).write_parquet(tmp_path / "m.parquet")
    assert load_run(tmp_path / "m.parquet").metrics.select("name", "state", "width").rows() == [
        ("a", "value", 64),
        ("b", "nan", 64),
    ]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "m.csv",
            "step,loss\n1,2.5\n2,2.5,7\n",
            "m.csv, line 3: 3 fields, where the header has 2; it is left out",
        ),
        ("m.csv", "step,loss,norm\n1,2.5,1.5\n2,2.", "m.csv, line 3: the last line was cut; it is left out"),
        ("m.csv", "step,loss\n1,2.5\n2,2.x\n", "m.csv, line 3: loss is '2.x', which is no number"),
        (
            "m.csv",
            "step,loss\n1,2.5\nx,2.5\n",
            "m.csv: 1 rows have no whole number in the column step; they are left out",
        ),
        (
            "m.csv",
            "step,loss\n1,2.5\n1.5,2.5\n",
            "m.csv: 1 rows have no whole number in the column step; they are left out",
        ),
        (
            "m.jsonl",
            '{"step": 1, "loss": 2.5}\n{"step": 2, "lo',
            "m.jsonl, line 2: the last line was cut; it is left out",
        ),
        ("m.jsonl", '{"step": 1, "loss": 2.5}\nword\n', "m.jsonl, line 2: no JSON object; it is left out"),
    ],
)
def test_a_damaged_line_is_a_problem_and_the_others_are_read(name, text, problem, tmp_path):
    run = load_run(write(tmp_path, text, name))
    assert run.metrics.select("step", "value").rows()[0] == (1, 2.5)
    assert run.metrics["step"].unique().to_list() == [1]
    assert run.problems == (problem,)


def test_a_last_cell_that_was_cut_is_left_out(tmp_path):
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(LOSSES, 1))
    cut = write(tmp_path, f"step,loss\n{rows}4,2.01234")
    assert [step for step, _ in numbers(cut, "loss")] == [1, 2, 3]
    assert load_run(cut).problems == (
        "metrics.csv, line 5: the last number may have been cut; it is left out",
    )
    whole = write(tmp_path, f"step,loss\n{rows.rstrip()}")
    assert [step for step, _ in numbers(whole, "loss")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "finding"),
    [
        ("m.csv", b"", "is empty"),
        ("m.csv", b"a,b\n1,2\n", "has no column of steps; its columns are: a, b"),
        ("m.csv", b"step,phase\n1,x\n", "has no number beside a step"),
        ("m.csv", b"step,loss\n", "has no number beside a step"),
        ("m.jsonl", b"", "is empty"),
        ("m.parquet", b"PAR1....PAR1", "cannot be read as parquet"),
        ("m.parquet", b"", "cannot be read as parquet"),
    ],
)
def test_a_file_that_is_no_table_of_metrics_is_one_sentence(name, content, finding, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DetlabError, match=finding):
        load_run(tmp_path / name)


def test_a_folder_with_one_damaged_table_loads_the_other_with_a_problem(tmp_path):
    write(tmp_path, "step,loss\n1,2.5\n", "a.csv")
    write(tmp_path, "PAR1", "b.parquet")
    run = load_run(tmp_path)
    assert run.metrics["step"].to_list() == [1]
    assert len(run.problems) == 1
    assert "b.parquet" in run.problems[0]
