"""Two runs' metrics: the verdict, since when they differ, and what stands beside it."""

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detlab as dl
from detlab.comparison.metrics.coverage import where
from detlab.comparison.metrics.result import VALUE_COLUMNS
from detlab.comparison.metrics.summary import METRIC_COLUMNS
from detlab.testing import make_metrics_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/metrics.json").read_text("utf-8"))


def runs(a, b):
    return make_metrics_run(a, label="a"), make_metrics_run(b, label="b")


def compare(a, b, **options):
    cmp = dl.compare_metrics(*runs(a, b), **options)
    jsonschema.validate(cmp.to_json(), SCHEMA)
    json.dumps(cmp.to_json(), allow_nan=False)
    assert cmp.values.columns == list(VALUE_COLUMNS)
    assert dict(cmp.metrics.schema) == METRIC_COLUMNS
    return cmp


def text_of(cmp):
    return " ".join(repr(cmp).split())


CURVE = {step: 10.0 / step for step in range(1, 101)}
TEXTS = {step: f"{value:.5f}" for step, value in CURVE.items()}


def test_equal_exact_numbers_match():
    cmp = compare({"loss": CURVE}, {"loss": CURVE})
    assert (cmp.verdict, cmp.exit_code, cmp.evidence.name, cmp.first_step) == ("match", 0, "EXACT", None)
    assert cmp.first.is_empty()
    assert text_of(cmp).startswith(
        "MATCH between a and b at steps 1-100: every number that both have is the same to its last bit."
    )


def test_equal_printed_numbers_match_and_prove_nothing():
    cmp = compare({"loss": TEXTS}, {"loss": TEXTS})
    assert (cmp.verdict, cmp.exit_code, cmp.evidence.name) == ("match", 0, "PRINTED")
    assert "this proves nothing about the bits" in text_of(cmp)


def test_equal_integers_are_not_called_more():
    cmp = compare({"consumed samples": {1: "8"}}, {"consumed samples": {1: "8"}})
    assert "every integer that both have is the same; no other number was compared" in text_of(cmp)


def test_the_first_step_names_every_metric_that_differs_there():
    other = CURVE | {40: 0.3, 50: 0.3}
    cmp = compare(
        {"loss": CURVE, "grad norm": CURVE, "lr": CURVE, "loss scale": CURVE},
        {"loss": other, "grad norm": other, "lr": CURVE, "loss scale": CURVE | {50: 1.0}},
    )
    assert (cmp.verdict, cmp.exit_code, cmp.first_step) == ("diverged", 1, 40)
    assert cmp.first["name"].to_list() == ["loss", "grad norm"]
    assert cmp.to_json()["first"] == {"step": 40, "metrics": ["loss", "grad norm"]}
    assert dict(cmp.metrics.select("name", "first_step").rows()) == {
        "loss": 40, "grad norm": 40, "lr": None, "loss scale": 50,
    }  # fmt: skip
    assert dict(cmp.metrics.select("name", "steps_different").rows()) == {
        "loss": 2, "grad norm": 2, "lr": 0, "loss scale": 1,
    }  # fmt: skip


def test_the_bits_differ_before_the_curves():
    drift = {step: value * (1 + 1e-8 * max(0, step - 20) ** 4) for step, value in CURVE.items()}
    cmp = compare({"loss": CURVE, "num zeros": CURVE}, {"loss": drift, "num zeros": CURVE | {15: 9.9}})
    scale = np.quantile(list(CURVE.values()), 0.98, method="nearest") - np.quantile(
        list(CURVE.values()), 0.02, method="nearest"
    )
    seen = next(step for step in CURVE if abs(drift[step] - CURVE[step]) > 0.005 * scale)
    assert cmp.first_step == 15
    assert cmp.visible["name"].to_list() == ["loss"]
    assert cmp.visible["visible_step"].to_list() == [seen]
    assert f"The bits differ from step 15, the curves from step {seen} (loss)." in text_of(cmp)


def test_a_spike_does_not_hide_what_is_seen_beside_it():
    spiky = CURVE | {50: 1e6}
    cmp = compare({"loss": spiky}, {"loss": spiky | {60: 1.0}})
    assert cmp.visible["visible_step"].to_list() == [60]


def test_one_ulp_is_not_seen_in_a_curve_that_does_not_move():
    flat = dict.fromkeys(range(10), float(np.float32(2.2)))
    cmp = compare({"loss": flat}, {"loss": flat | {5: float(np.nextafter(np.float32(2.2), np.float32(3)))}})
    assert cmp.first_step == 5
    assert cmp.visible.is_empty()
    assert "the curves nowhere visibly" in text_of(cmp)


def test_a_nan_is_seen_at_once():
    cmp = compare({"loss": TEXTS}, {"loss": TEXTS | {30: "nan"}})
    assert cmp.visible["visible_step"].to_list() == [30]
    assert cmp.metrics["states"].to_list() == [
        [{"state": "value", "a": 100, "b": 99}, {"state": "nan", "a": 0, "b": 1}]
    ]


def test_printed_differences_are_dated_at_the_latest():
    cmp = compare({"loss": TEXTS}, {"loss": TEXTS | {30: "0.4"}})
    assert "The bits differ from step 30 at the latest (printed digits)" in text_of(cmp)


def test_measurements_are_shown_and_never_decide():
    a = {"loss": CURVE, "elapsed time per iteration (ms)": {1: "10.0", 2: "20.0"}}
    b = {"loss": CURVE, "elapsed time per iteration (ms)": {1: "11.0", 3: "21.0"}}
    hidden, shown = compare(a, b), compare(a, b, measurements=True)
    for cmp, different in ((hidden, None), (shown, 1)):
        assert cmp.verdict == "match"
        row = cmp.metrics.row(1, named=True)
        assert (row["kind"], row["mean_a"], row["mean_b"]) == ("measurement", 15.0, 16.0)
        assert (row["steps_common"], row["steps_different"]) == (1, different)
    assert hidden.values["outcome"].null_count() == 1
    assert "elapsed time per iteration (ms) 15 and 16" in text_of(hidden)


def test_a_step_that_one_run_lacks_is_no_difference_but_lowers_the_verdict():
    cmp = compare({"loss": CURVE}, {"loss": {step: CURVE[step] for step in range(51, 101)}})
    assert (cmp.verdict, cmp.exit_code) == ("incomplete", 2)
    assert cmp.problems == (("b", "has no steps 1-50"),)
    assert cmp.metrics.select("steps_common", "steps_only_a", "steps_only_b").row(0) == (50, 50, 0)


def test_a_difference_weighs_more_than_what_is_missing():
    cmp = compare({"loss": CURVE}, {"loss": {50: 1.0}})
    assert (cmp.verdict, cmp.exit_code) == ("diverged", 1)


def test_a_metric_that_one_run_lacks_is_said():
    cmp = compare({"loss": CURVE, "num zeros": CURVE}, {"loss": CURVE})
    assert cmp.problems == (("b", "has no num zeros"),)
    assert cmp.metrics["kind"].to_list() == ["compared", "only in a"]
    assert cmp.verdict == "incomplete"
    assert compare({"loss": CURVE, "num zeros": CURVE}, {"loss": CURVE}, names=["loss"]).verdict == "match"


def test_a_number_missing_at_one_step_is_said_with_its_step():
    lacking = {step: value for step, value in CURVE.items() if step != 3}
    cmp = compare({"loss": CURVE, "lr": CURVE}, {"loss": lacking, "lr": CURVE})
    assert cmp.problems == (("b", "has no loss at step 3"),)


def test_what_a_run_left_out_by_request_is_not_missing(tmp_path):
    lines = [
        f" iteration {step}/ 9 | lm loss: {10 - step}.000000E+00 | number of skipped iterations: 0 |"
        f" number of nan iterations: 0 |\n"
        for step in range(1, 10)
    ]
    for name, part in (("a", lines), ("b", lines[4:])):
        (tmp_path / f"{name}.log").write_text("".join(part))
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    assert dl.compare_metrics(a, b).problems == (("b", "has no steps 1-4"),)
    assert dl.compare_metrics(dl.load_run(a, steps="5-9"), b).verdict == "match"
    assert dl.compare_metrics(a, dl.load_run(b, steps="5-9")).verdict == "match"
    asked = dl.load_run(a, steps="5-7")
    for cmp in (dl.compare_metrics(asked, a), dl.compare_metrics(a, asked)):
        assert (cmp.verdict, cmp.steps.to_list()) == ("match", [5, 6, 7])


def test_what_was_left_out_by_request_is_found_through_an_offset(tmp_path):
    for name, first in (("a", 1), ("b", 101)):
        lines = [f" iteration {first + step}/ 999 | lm loss: {step + 1}.000E+00 |\n" for step in range(9)]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    for pair in ((dl.load_run(a, steps="5-7"), b), (a, dl.load_run(b, steps="105-107"))):
        cmp = dl.compare_metrics(*pair, offset=-100)
        assert (cmp.problems, cmp.steps.to_list()) == ((), [5, 6, 7])


def test_o07_a_missing_loss_shifts_nothing(tmp_path):
    losses = {1: "10", 2: "9", 4: "7", 5: "6"}
    for name, there in (("a", losses), ("b", losses | {3: "8"})):
        lines = [
            f" iteration {step}/ 5 | consumed samples: {step} |"
            + (f" lm loss: {there[step]}.000000E+00 |" if step in there else "")
            + " grad norm: 1.000 | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
            for step in range(1, 6)
        ]
        lines.insert(2, "NCCL INFO \xff\n")
        (tmp_path / f"{name}.log").write_bytes("".join(lines).encode("latin-1"))
    cmp = dl.compare_metrics(tmp_path / "a.log", tmp_path / "b.log")
    loss = cmp.values.filter(pl.col("name") == "lm loss")
    assert loss["value_a"].to_list() == [10, 9, None, 7, 6]
    assert loss["state_a"].to_list()[2] == "absent"
    assert loss["outcome"].to_list() == [
        *["equal as printed"] * 2,
        "state differs",
        *["equal as printed"] * 2,
    ]
    assert cmp.first["name"].to_list() == ["lm loss"]


def golden(path, **metrics):
    """Write a golden file; a step that was not run holds the text nan."""
    content = {
        name.replace("_", " "): {
            "start_step": 1,
            "end_step": len(values),
            "step_interval": 1,
            "values": {str(step): value for step, value in enumerate(values, 1)},
        }
        for name, values in metrics.items()
    }
    path.write_text(json.dumps(content))
    return path


def test_golden_values_of_a_resumed_run_are_compared_where_it_ran(tmp_path):
    whole = golden(tmp_path / "whole.json", lm_loss=[9.55048, 9.53695, 9.50426, 9.45403])
    resumed = golden(tmp_path / "resumed.json", lm_loss=["nan", "nan", 9.50426, 9.45403])
    cmp = dl.compare_metrics(whole, resumed)
    assert (cmp.verdict, cmp.problems) == ("incomplete", (("resumed", "has no steps 1-2"),))
    assert cmp.metrics["steps_common"].to_list() == [2]
    assert "as printed, 5 decimals" in repr(cmp)
    assert dl.compare_metrics(dl.load_run(whole, steps="3-4"), resumed).verdict == "match"


def test_golden_counts_may_differ_before_the_loss(tmp_path):
    a = golden(tmp_path / "a.json", lm_loss=[10.15986, 10.10839, 10.10793], num_zeros=[957.0, 1047.0, 929.0])
    b = golden(tmp_path / "b.json", lm_loss=[10.15986, 10.1084, 10.10792], num_zeros=[942.0, 1058.0, 920.0])
    cmp = dl.compare_metrics(a, b)
    assert cmp.to_json()["first"] == {"step": 1, "metrics": ["num zeros"]}
    assert dict(cmp.metrics.select("name", "first_step").rows()) == {"lm loss": 2, "num zeros": 1}
    assert cmp.metrics["resolution"].to_list() == ["as printed, 5 decimals"] * 2


def test_o25_reset_moments_are_seen_in_the_grad_norm_first():
    equal = {step: f"{0.8 + step / 1000:.3f}" for step in range(1, 9)}
    loss = {step: f"{4 - step / 100:.4f}" for step in range(1, 13)}
    a = {"loss": loss, "grad_norm": equal | {9: "0.855", 10: "0.930", 11: "0.91", 12: "0.92"}}
    b = {
        "loss": loss | {12: "3.8906"},
        "grad_norm": equal | {9: "0.855", 10: "0.973", 11: "0.96", 12: "0.97"},
    }
    cmp = compare(a, b)
    assert cmp.to_json()["first"] == {"step": 10, "metrics": ["grad_norm"]}
    assert dict(cmp.metrics.select("name", "first_step").rows()) == {"loss": 12, "grad_norm": 10}


def test_o30_a_difference_of_constant_sign_is_said():
    a = {step: 3.0 - step / 1e4 for step in range(3001, 3051)}
    cmp = compare({"lm loss": a}, {"lm loss": {step: value * 1.001 for step, value in a.items()}})
    assert cmp.notes == (
        "lm loss of b is above that of a at 50 steps in a row, 3001 to 3050: a difference of constant sign",
    )


def test_noise_around_one_curve_has_no_constant_sign():
    signs = np.random.default_rng(0).choice([-1, 1], 100)
    noisy = {step: value + 1e-3 * sign for (step, value), sign in zip(CURVE.items(), signs, strict=True)}
    assert compare({"loss": CURVE}, {"loss": noisy}).notes == ()


def test_a_first_record_that_averages_fewer_iterations_is_noted_and_still_differs():
    a = {step: 1 / step for step in range(10, 101, 10)}
    resumed = [
        {step: a[step] for step in range(10, 51, 10)},
        {60: 0.5} | {k: a[k] for k in range(70, 101, 10)},
    ]
    run_b = make_metrics_run([{"loss": part} for part in resumed], label="b")
    cmp = dl.compare_metrics(make_metrics_run({"loss": a}, label="a"), run_b)
    assert cmp.verdict == "diverged"
    assert cmp.notes == (
        "loss differs only at the first record after a start (step 60): with log interval 10 that record "
        "averages fewer iterations in one run. It counts as a difference",
    )


def test_a_first_record_of_both_runs_is_not_explained_away():
    a = {step: 1 / step for step in range(10, 101, 10)}
    pair = []
    for label, curve in (("a", a), ("b", a | {60: 0.5})):
        parts = [{k: v for k, v in curve.items() if (k < 60) == early} for early in (True, False)]
        pair.append(make_metrics_run([{"loss": part} for part in parts], label=label))
    assert dl.compare_metrics(*pair).notes == ()


@pytest.mark.parametrize("interval", [1, 10])
def test_a_first_record_that_differs_among_others_is_not_explained_away(interval):
    a = {step * interval: 1 / step for step in range(1, 11)}
    b = a | ({6: 0.5} if interval == 1 else {60: 0.5, 70: 0.5})
    parts = [
        {k: v for k, v in b.items() if k < 6 * interval},
        {k: v for k, v in b.items() if k >= 6 * interval},
    ]
    run_b = make_metrics_run([{"loss": part} for part in parts], label="b")
    assert dl.compare_metrics(make_metrics_run({"loss": a}, label="a"), run_b).notes == ()


def test_the_last_segment_that_has_a_step_counts():
    first, second = {"loss": {1: 1.0, 2: 2.0, 3: 9.0}}, {"loss": {3: 3.0, 4: 4.0}}
    cmp = dl.compare_metrics(
        make_metrics_run([first, second], label="a"),
        make_metrics_run({"loss": {step: float(step) for step in range(1, 5)}}, label="b"),
    )
    assert cmp.verdict == "match"
    assert cmp.values["segment_a"].to_list() == [0, 0, 1, 1]
    assert cmp.segments["run"].to_list() == ["a", "a", "b"]
    assert "a has 2 segments between restarts: 1-3, 3-4" in text_of(cmp)


def test_a_metric_without_a_common_step_is_not_counted_as_compared():
    cmp = compare({"loss": CURVE, "lr": {1: 1.0}}, {"loss": CURVE, "lr": {2: 1.0}})
    assert cmp.compared["name"].to_list() == ["loss"]
    assert "lr no common step" in text_of(cmp)
    assert "compared 1 metric at steps 1-100" in text_of(cmp)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([7], "step 7"),
        ([3, 1, 2, 2], "steps 1-3"),
        ([1, 2, 5, 9], "steps 1-2, 5, 9"),
        ([10, 20, 30, 40, 50], "5 steps from 10 to 50"),
    ],
)
def test_steps_are_written_as_spans_where_these_are_few(steps, words):
    assert where(pl.Series(steps)) == words


def test_metrics_of_two_names_are_paired_on_request():
    cmp = compare({"loss": CURVE}, {"lm loss": CURVE}, pairs={"loss": "lm loss"})
    assert cmp.verdict == "match"
    assert cmp.metrics["name"].to_list() == ["loss"]
    assert cmp.notes == ("loss of a was compared with lm loss of b",)


def test_an_offset_moves_the_steps_of_run_b():
    cmp = compare({"loss": CURVE}, {"loss": {k - 100: v for k, v in CURVE.items()}}, offset=100)
    assert cmp.verdict == "match"
    assert cmp.steps.to_list() == list(CURVE)


def test_a_run_that_counts_from_zero_is_recognised():
    cmp = compare({"loss": CURVE}, {"loss": {k - 1: v for k, v in CURVE.items()}})
    assert cmp.verdict == "diverged"
    assert any("compare with offset=1" in note for note in cmp.notes)
    assert (
        compare({"loss": CURVE}, {"loss": {k - 1: v for k, v in CURVE.items()}}, offset=1).verdict == "match"
    )


def test_numbers_of_one_rank_meet_those_of_no_rank():
    a, b = runs({"loss": CURVE}, {"loss": CURVE})
    object.__setattr__(b, "metrics", b.metrics.with_columns(rank=pl.lit(3, pl.Int64)))
    assert dl.compare_metrics(a, b).verdict == "match"


def test_ranks_are_compared_with_their_own_kind():
    a, b = runs({"loss": CURVE}, {"loss": CURVE})
    for run, other in ((a, 1.0), (b, 2.0)):
        both = [run.metrics.with_columns(rank=pl.lit(0, pl.Int64))]
        both += [run.metrics.with_columns(pl.col("value") * other, rank=pl.lit(1, pl.Int64))]
        object.__setattr__(
            run, "metrics", pl.concat(both).with_columns(bits=pl.col("value").reinterpret(dtype=pl.UInt64))
        )
    cmp = dl.compare_metrics(a, b)
    assert cmp.first_step == 1
    assert cmp.first["rank"].to_list() == [1]


def test_two_runs_of_one_label_are_told_apart():
    cmp = dl.compare_metrics(make_metrics_run({"loss": CURVE}), make_metrics_run({"loss": CURVE}))
    assert (cmp.a.label, cmp.b.label) == ("synthetic (a)", "synthetic (b)")


def test_a_name_cannot_control_a_terminal():
    cmp = compare({"loss\x1b[2J": CURVE}, {"loss\x1b[2J": {1: 3.0}})
    assert "\x1b" not in repr(cmp)
    assert "<pre style=" in cmp._repr_html_()


def test_many_metrics_stay_on_one_screen():
    curves = {f"metric {number}": {1: 1.0} for number in range(100)}
    assert len(repr(compare(curves, curves)).splitlines()) < 30


def test_problems_of_a_run_lower_the_verdict():
    a, b = runs({"loss": CURVE}, {"loss": CURVE})
    object.__setattr__(a, "problems", ("its end is cut",))
    cmp = dl.compare_metrics(a, b)
    assert (cmp.verdict, cmp.problems) == ("incomplete", (("a", "its end is cut"),))


NUMBERS = st.one_of(
    st.none(),
    st.sampled_from(["nan", "inf", "0.000", "-0.000", "1.250", "1.251", "2"]),
    st.sampled_from([0.0, -0.0, 1.25, float("nan"), np.float32(1.25), np.float32(0.1), 0.1]),
)
CURVES = st.dictionaries(st.integers(1, 4), NUMBERS, min_size=1)
MIRRORED = {"only in a": "only in b", "only in b": "only in a"}


@given(CURVES, CURVES)
def test_the_order_of_the_runs_changes_no_outcome(a, b):
    anchor = {"anchor": {1: 1.0}}
    ab, ba = (
        dl.compare_metrics(*runs(x, y))
        for x, y in (
            (anchor | {"loss": a}, anchor | {"loss": b}),
            (anchor | {"loss": b}, anchor | {"loss": a}),
        )
    )
    outcomes = [
        dict(each.values.filter(pl.col("name") == "loss").select("step", "outcome").rows())
        for each in (ab, ba)
    ]
    assert outcomes[0] == {step: MIRRORED.get(each, each) for step, each in outcomes[1].items()}
    assert (ab.verdict, ab.first_step, ab.evidence) == (ba.verdict, ba.first_step, ba.evidence)
    for each in (ab, ba):
        jsonschema.validate(each.to_json(), SCHEMA)
        repr(each)


@given(CURVES)
def test_a_run_never_differs_from_itself(a):
    run = make_metrics_run({"anchor": {1: 1.0}, "loss": a})
    assert dl.compare_metrics(run, run).verdict == "match"


def test_traces_are_compared_by_their_bits():
    a, b = (dl.samples.sample_path("race") / name for name in "ab")
    cmp = dl.compare_metrics(a, b)
    assert cmp.evidence.name == "EXACT"
    assert cmp.first["rank"].null_count() == 0


def test_comparing_logs_loads_neither_torch_nor_plotly(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(" iteration 1/ 9 | lm loss: 1.000000E+00 | grad norm: 1.000 |\n")
    code = (
        "import sys, detlab as dl\n"
        f"print(dl.compare_metrics({str(path)!r}, {str(path)!r}))\n"
        "assert not {'torch', 'plotly', 'ipywidgets'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MATCH")


def test_integers_differ_by_their_difference_and_not_by_ulp():
    cmp = compare({"skipped": {1: 0, 2: 0}}, {"skipped": {1: 0, 2: 1}})
    assert "by up to 1 (1.0e+00)" in text_of(cmp)
    assert "ulp" not in text_of(cmp)


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ({"x": {1: 0.5, 2: 0.5}}, {"x": {2: 0.5}}, True),
        ({"x": {1: 0.5, 2: 0.5}, "y": {1: 0.5}}, {"x": {1: 0.5, 2: 0.5}}, False),
        ({"x": dict.fromkeys(range(1, 100), 0.5)}, {"x": dict.fromkeys(range(5, 100, 5), 0.5)}, False),
    ],
)
def test_leaving_steps_out_is_offered_where_it_helps(a, b, told):
    assert (" leaves other steps out by request" in text_of(compare(a, b))) == told
