"""Triage: each row of the table that decides between data and optimisation, a race, hardware and no idea."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import polars as pl
import pytest

import detlab as dl
from detlab.readers.metrics.frame import exact_metrics, join_metrics, printed_metrics
from detlab.testing import make_metrics_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/triage.json").read_text("utf-8"))

LOSSES = (2.199, 2.220, 2.595, 2.242, 2.345, 5.098, 3.492, 2.910, 2.604)
NORMS = (0.242, 0.947, 2.390, 15.9, 145.0, 960.0, 80.2, 12.1, 3.14)
FIRST = 31214


def spiky(history=0, until=FIRST + 8, *, exact=False, label="a", every=1, **more):
    """The nine records of a real spike, after a quiet history, and on until it has recovered at 31250."""
    rng = np.random.default_rng(1)
    before = range(FIRST - history, FIRST)
    after = range(FIRST + 9, until + 1)
    loss = {step: 2.2 + 0.02 * rng.normal() for step in before}
    norm = {step: 0.24 * np.exp(0.1 * rng.normal()) for step in before}
    loss |= {FIRST + i: value for i, value in enumerate(LOSSES)}
    norm |= {FIRST + i: value for i, value in enumerate(NORMS)}
    loss |= {step: 2.5 if step < 31250 else 2.2 for step in after}
    norm |= {step: 1.5 if step < 31250 else 0.25 for step in after}
    return run_of(loss, norm, exact=exact, label=label, **more)


def run_of(loss, norm, *, exact=False, label="a", samples=None, rate=None):
    curves = {"lm loss": (loss, "{:.6E}"), "grad norm": (norm, "{:.3f}")}
    if samples is not None:
        curves["consumed samples"] = {step: samples + 8 * step for step in loss}, "{}"
    if rate is not None:
        curves["learning rate"] = dict.fromkeys(loss, rate), "{}"
    parts = []
    for name, (numbers, form) in curves.items():
        rows = pl.DataFrame({"step": numbers.keys(), "name": name})
        if exact:
            parts.append(
                exact_metrics(rows.with_columns(value=pl.Series(numbers.values(), dtype=pl.Float64)))
            )
        else:
            text = pl.Series(map(form.format, numbers.values()), dtype=pl.String)
            parts.append(printed_metrics(rows.with_columns(text=text)))
    return replace(make_metrics_run({"lm loss": {1: 1.0}}, label=label), metrics=join_metrics(parts))


def values_of(run, name):
    rows = run.metrics.filter(run.metrics["name"].cast(str) == name)
    return dict(rows.select("step", "value").iter_rows())


def calm(run, since, label="b", shift=0.0, **more):
    """The same run without the spike: equal before a step, quiet from it on."""
    loss, norm = values_of(run, "lm loss"), values_of(run, "grad norm")
    exact = bool((run.metrics["width"] == 64).all())
    loss = {step: value if step < since else 2.2 + shift for step, value in loss.items()}
    norm = {step: value if step < since else 0.24 + shift for step, value in norm.items()}
    return run_of(loss, norm, exact=exact, label=label, **more)


def checked(triage):
    """A triage whose JSON follows its schema and whose text is one screen."""
    jsonschema.validate(triage.to_json(), SCHEMA)
    assert len(repr(triage).splitlines()) <= 24
    return triage


class TestRealSpikeOf176B:
    """O35: the nine records alone, and with the records around them."""

    def test_the_norm_leads_the_loss_by_four_steps(self):
        spike = checked(dl.triage(spiky())).main
        assert (spike.metric, spike.onset, spike.peak, spike.recovery) == ("lm loss", 31215, 31219, None)
        assert (spike.led_by, spike.lead_steps) == ("grad norm", 4)
        assert spike.confidence == "low"
        assert "rests on few points" in spike.says

    def test_it_recovers_where_the_curve_is_back(self):
        assert dl.triage(spiky(until=31250)).main.recovery == 31250
        assert dl.triage(spiky(until=31249)).main.recovery is None

    @pytest.mark.parametrize(("history", "confidence"), [(12, "medium"), (300, "high")])
    def test_with_a_history_it_is_the_same_and_surer(self, history, confidence):
        triage = checked(dl.triage(spiky(history, until=31300)))
        assert len(triage.spikes) == 1
        spike = triage.main
        assert (spike.onset, spike.peak, spike.recovery) == (31215, 31219, 31250)
        assert spike.led_by == "grad norm"
        assert spike.lead_steps in (3, 4)
        assert spike.height > 100
        assert spike.confidence == confidence

    def test_an_equal_rerun_says_data_or_optimisation(self):
        triage = checked(dl.triage(spiky(50), reruns=[spiky(50, label="b1")]))
        assert triage.conclusion == "deterministic"
        assert "hardware is unlikely" in triage.why
        assert "equal as printed, which does not prove equal bits" in triage.why
        assert "same bits" not in triage.why

    def test_an_equal_rerun_of_known_bits_says_so(self):
        triage = checked(dl.triage(spiky(50, exact=True), reruns=[spiky(50, exact=True, label="b1")]))
        assert triage.conclusion == "deterministic"
        assert "with the same bits in every metric" in triage.why
        assert triage.to_json()["reruns"][0]["evidence"] == "exact"

    @pytest.mark.parametrize("exact", [True, False])
    def test_a_calm_rerun_that_differs_before_the_onset_is_decided_there(self, exact):
        a = spiky(50, exact=exact)
        triage = checked(dl.triage(a, reruns=[calm(a, since=31214)]))
        assert triage.conclusion == "diverged before onset"
        assert "first difference is at step 31214 (lm loss, grad norm), before the onset" in triage.why
        assert "equal up to step 31213" in triage.why
        assert 'steps="31212-31214"' in triage.next

    @pytest.mark.parametrize("exact", [True, False])
    def test_a_calm_rerun_that_is_equal_up_to_the_onset_cannot_be_of_a_deterministic_pair(self, exact):
        a = spiky(50, exact=exact)
        triage = checked(dl.triage(a, reruns=[calm(a, since=31215)]))
        assert triage.conclusion == "not reproduced"
        assert "the first difference is at step 31215" in triage.why
        assert "cannot happen in a deterministic pair" in triage.why
        assert ("equal bit for bit" in triage.why) == exact
        assert ("too coarse" in triage.why) != exact
        assert 'steps="31213-31215"' in triage.next

    def test_a_norm_that_is_always_zero_is_not_informative_and_no_zero_gradient(self):
        loss = dict(enumerate((2.77, 2.77, 2.76, 7.34, 8.72), 10))
        triage = checked(dl.triage(run_of(loss, dict.fromkeys(loss, 0.0))))
        assert triage.main.metrics == ("lm loss",)
        assert triage.main.onset == 13
        assert triage.notes == (
            "grad norm is 0.000 in all 5 records: not informative (not logged, or broken), never evidence of "
            "a zero gradient",
        )


class TestTable:
    def test_one_run_alone_is_not_enough(self):
        triage = checked(dl.triage(spiky(50)))
        assert triage.conclusion == "not enough evidence"
        assert 'dl.Recorder("…", steps="31213-31215")' in triage.next
        assert triage.exit_code == 1

    def test_no_spike(self):
        triage = checked(dl.triage(calm(spiky(50), since=31214)))
        assert (triage.conclusion, triage.spikes, triage.main, triage.next) == ("no spike", (), None, "")
        assert triage.exit_code == 0
        assert repr(triage).startswith("NO SPIKE in b.")
        assert "looked at lm loss, grad norm in 59 records, steps 31164 to 31222" in repr(triage)

    def test_metrics_of_measurements_are_not_looked_at(self):
        loss = {step: 2.0 + 0.01 * (step % 5) for step in range(1, 31)}
        curves = {
            "loss": loss,
            "elapsed time per iteration (ms)": loss | {20: 900.0},
            "loss scale": loss | {9: 1e6},
        }
        triage = checked(dl.triage(make_metrics_run(curves)))
        assert triage.conclusion == "no spike"
        assert triage.coverage == {"metrics": ["loss"], "records": 30, "first_step": 1, "last_step": 30}

    def test_a_rerun_that_stops_before_it_says_nothing(self):
        short = calm(spiky(50), since=31214)
        short = make_metrics_run(
            {"lm loss": {s: v for s, v in values_of(short, "lm loss").items() if s < 31200}}
        )
        triage = checked(dl.triage(spiky(50), reruns=[short]))
        assert triage.conclusion == "not enough evidence"
        assert "does not cover steps 31215 to 31219" in triage.why

    def test_a_rerun_of_another_recipe_that_is_calm_says_nothing(self):
        a = spiky(50, rate="3.0E-04")
        triage = checked(dl.triage(a, reruns=[calm(a, since=31214, rate="1.5E-04")]))
        assert triage.conclusion == "not enough evidence"
        assert "asked for something else (learning rate differs)" in triage.why

    def test_a_rerun_on_other_data_that_is_calm_says_nothing(self):
        a = spiky(50, samples=0)
        assert dl.triage(a, reruns=[calm(a, since=31214, samples=512)]).conclusion == "not enough evidence"

    def test_at_the_same_step_with_other_values_it_recurs(self):
        a = spiky(50)
        loss = {step: value + 1e-3 for step, value in values_of(a, "lm loss").items()}
        triage = checked(dl.triage(a, reruns=[run_of(loss, values_of(a, "grad norm"), label="b")]))
        assert triage.conclusion == "recurs"
        assert "at the same step, with other values: the first difference is at step 31164" in triage.why
        assert 'steps="31213-31215"' in triage.next
        assert "hardware is unlikely" in triage.why

    def moved(self, by, **more):
        a = spiky(200, until=31300)
        loss, norm = values_of(a, "lm loss"), values_of(a, "grad norm")
        return run_of(
            {step + by: value for step, value in loss.items()},
            {step + by: value for step, value in norm.items()},
            label="b",
            **more,
        )

    def test_at_nearly_the_same_step_it_recurs(self):
        triage = checked(dl.triage(spiky(200), reruns=[self.moved(4)]))
        assert triage.conclusion == "recurs"
        assert "has it nearby, at step 31219" in triage.why

    def test_far_away_it_does_not_recur(self):
        triage = checked(dl.triage(spiky(200), reruns=[self.moved(60)]))
        assert triage.conclusion == "diverged before onset"
        assert "(but one at step 31275)" in triage.why

    def test_at_the_same_samples_and_another_step_it_is_the_data(self):
        """The other run consumed the same samples 60 steps later."""
        a = spiky(200, samples=0)
        triage = checked(dl.triage(a, reruns=[self.moved(60, samples=-8 * 60)]))
        assert triage.conclusion == "samples"
        assert "the same consumed samples" in triage.why
        assert "(samples 249712 to 249720)" in triage.next

    def test_a_reference_is_held_against_it_as_a_rerun_is(self):
        a = spiky(50)
        b = calm(a, since=31214)
        assert dl.triage(a, b).to_json() == dl.triage(a, reruns=[b]).to_json()

    def test_one_calm_rerun_outweighs_those_that_recur(self):
        a = spiky(50)
        triage = checked(dl.triage(a, reruns=[spiky(50, label="b1"), calm(a, 31214, label="b2")]))
        assert triage.conclusion == "diverged before onset"
        assert "It recurs in 1 of 2 passes: it comes and goes. With the same numbers again" in triage.why

    def test_a_rerun_that_begins_right_before_the_spike_is_judged_by_the_history_of_the_run(self):
        """Three records of its own before the onset would give a band of none."""
        a = spiky(100)
        tail = {
            name: {s: v for s, v in values_of(a, name).items() if s >= 31213}
            for name in ("lm loss", "grad norm")
        }
        b = run_of({s: v + 1e-3 for s, v in tail["lm loss"].items()}, tail["grad norm"], label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.conclusion == "recurs"
        assert triage.outcomes[0].event.height > 100

    def test_a_rerun_that_begins_with_the_spike_itself_has_it_by_its_numbers(self):
        """Its first record alone is high, which is no spike by itself after a restart."""
        loss = {step: 2.0 + 0.01 * (step % 5) for step in range(1, 101)} | {80: 6.0}
        norm = dict.fromkeys(loss, 0.25)
        a = run_of(loss, norm)
        b = run_of(*({s: v for s, v in each.items() if s >= 80} for each in (loss, norm)), label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.outcomes[0].event is None
        assert triage.conclusion == "deterministic"

    def test_what_differs_after_the_peak_says_nothing_of_its_cause(self):
        a = spiky(50, until=31240)
        loss = {step: value + 1e-3 * (step > 31219) for step, value in values_of(a, "lm loss").items()}
        b = run_of(loss, values_of(a, "grad norm"), label="b")
        assert checked(dl.triage(a, reruns=[b])).conclusion == "deterministic"

    def test_without_a_step_in_common_nothing_is_said_to_be_equal(self):
        """Both log every tenth step, five steps apart."""
        loss = {step: 2.0 + 0.01 * (step % 3) for step in range(10, 1000, 10)} | {800: 6.0, 810: 6.0}
        a = run_of(loss, dict.fromkeys(loss, 0.25))
        moved = {step - 5: value for step, value in loss.items()}
        triage = checked(dl.triage(a, reruns=[run_of(moved, dict.fromkeys(moved, 0.25), label="b")]))
        assert triage.conclusion == "recurs"
        assert "no step in common" in triage.why

    def test_a_later_pass_of_the_same_run_is_a_rerun(self):
        a = spiky(100)
        curves = [{name: values_of(a, name) for name in ("lm loss", "grad norm")}]
        again = calm(a, since=31214, shift=0.001)
        curves.append({n: {s: v for s, v in values_of(again, n).items() if s > 31200} for n in curves[0]})
        triage = checked(dl.triage(make_metrics_run(curves, label="run")))
        assert triage.conclusion == "diverged before onset"
        assert triage.outcomes[0].name == "run after the restart at step 31201"
        assert triage.outcomes[0].first.step == 31214

    def test_the_spike_that_reruns_speak_of_is_chosen(self):
        a = spiky(400)
        loss = values_of(a, "lm loss") | {30_900: 9.0}
        a = run_of(loss, values_of(a, "grad norm"))
        b = calm(a, since=31214)
        b = make_metrics_run(
            {"lm loss": {s: v for s, v in values_of(b, "lm loss").items() if s > 31000}}, label="b"
        )
        triage = checked(dl.triage(a, reruns=[b]))
        assert [each.onset for each in triage.spikes] == [30_900, 31215]
        assert triage.main.onset == 31215
        assert "also: lm loss rose from" in repr(triage)


class TestStates:
    """Numbers that are none; O33's messages are in test_triage_logs."""

    def losses(self, **more):
        values = {step: 2.0 + 0.01 * (step % 7) for step in range(1, 41)}
        return values | more

    def test_nan_is_an_event_of_its_own_from_its_first_step(self):
        loss = self.losses() | dict.fromkeys(range(30, 41), float("nan"))
        event = checked(dl.triage(make_metrics_run({"loss": loss}))).main
        assert (event.kind, event.onset, event.recovery, event.before) == ("not finite", 30, None, 29)
        assert event.says == "loss not finite from step 30."

    def test_inf_that_goes_away_is_back(self):
        loss = self.losses() | {30: float("inf")}
        event = checked(dl.triage(make_metrics_run({"loss": loss}))).main
        assert (event.kind, event.onset, event.recovery) == ("not finite", 30, 31)

    def test_a_norm_that_is_nan_before_the_loss_leads(self):
        loss = self.losses() | dict.fromkeys(range(31, 41), float("nan"))
        norm = self.losses() | dict.fromkeys(range(30, 41), float("nan"))
        triage = checked(dl.triage(make_metrics_run({"loss": loss, "grad_norm": norm})))
        assert [each.metrics for each in triage.spikes] == [("grad_norm", "loss")]
        assert (triage.main.onset, triage.main.led_by, triage.main.lead_steps) == (30, "grad_norm", 1)

    def test_a_norm_of_a_skipped_step_is_no_event(self):
        curves = {
            "loss": self.losses(),
            "grad norm": self.losses() | {30: float("inf")},
            "number of skipped iterations": dict.fromkeys(range(1, 41), 0.0) | {30: 1.0},
        }
        assert dl.triage(make_metrics_run(curves)).conclusion == "no spike"
        curves["number of skipped iterations"][30] = 0.0
        assert dl.triage(make_metrics_run(curves)).main.onset == 30

    def test_a_loss_that_decays_to_exactly_zero_is_suspicious(self):
        """O26: no NaN, nothing skipped; a loss mask that is changed in place."""
        loss = self.losses() | {35: 0.9, 36: 0.2, 37: 0.01, 38: 0.0, 39: 0.0, 40: 0.0}
        event = checked(dl.triage(make_metrics_run({"lm loss": loss}))).main
        assert (event.kind, event.onset, event.recovery) == ("zero", 38, None)
        assert "exactly 0 from step 38: suspicious" in event.says
        assert "fell to 0.01 before" in event.says
        assert "loss mask" in event.says

    def test_a_loss_that_is_always_zero_is_not_informative(self):
        curves = {"lm loss": self.losses(), "load_balancing_loss": dict.fromkeys(range(1, 41), 0.0)}
        triage = checked(dl.triage(make_metrics_run(curves)))
        assert triage.conclusion == "no spike"
        assert triage.notes == (
            "load_balancing_loss is 0 in all 40 records: not informative (not logged, or broken)",
        )

    def test_a_zero_loss_beside_a_norm_of_nan_is_nan(self):
        """Loggers that filter NaN write 0.0."""
        loss = self.losses() | dict.fromkeys(range(30, 41), 0.0)
        norm = self.losses() | dict.fromkeys(range(30, 41), float("nan"))
        triage = checked(dl.triage(make_metrics_run({"loss": loss, "grad_norm": norm})))
        assert [each.kind for each in triage.spikes] == ["not finite"]

    def test_a_norm_that_is_zero_for_a_stretch_is_not_informative_there(self):
        norm = self.losses() | dict.fromkeys(range(20, 30), 0.0)
        triage = checked(dl.triage(make_metrics_run({"loss": self.losses(), "grad norm": norm})))
        assert triage.conclusion == "no spike"
        assert "zero from step 20 to 29 (10 records): not informative there" in triage.notes[0]

    def test_nan_again_at_the_same_step_with_equal_numbers_is_deterministic(self):
        loss = self.losses() | dict.fromkeys(range(30, 41), float("nan"))
        a, b = (make_metrics_run({"loss": loss}, label=label) for label in "ab")
        assert checked(dl.triage(a, reruns=[b])).conclusion == "deterministic"

    def test_nan_that_is_gone_in_a_rerun_with_equal_numbers_before_is_not_reproduced(self):
        a = make_metrics_run({"loss": self.losses() | {30: float("nan")}}, label="a")
        triage = checked(dl.triage(a, reruns=[make_metrics_run({"loss": self.losses()}, label="b")]))
        assert triage.conclusion == "not reproduced"
        assert "A NaN with no earlier divergence" in triage.why


class TestRanks:
    """Metrics of a recorder are of one rank each."""

    def run(self, **by_rank):
        parts = []
        for rank in range(4):
            values = {step: 2.0 + 0.01 * (step % 7) for step in range(1, 101)} | by_rank.get(f"r{rank}", {})
            rows = pl.DataFrame({"step": values.keys(), "value": values.values(), "name": "loss"})
            parts.append(exact_metrics(rows.with_columns(rank=pl.lit(rank, pl.Int64))))
        return replace(make_metrics_run({"loss": {1: 1.0}}), metrics=join_metrics(parts))

    def test_a_spike_of_one_rank_names_it(self):
        triage = checked(dl.triage(self.run(r2={80: 7.0})))
        assert [each.rank for each in triage.spikes] == [2]
        assert "loss (rank 2) rose" in triage.main.says

    def test_a_spike_of_several_ranks_is_one_event_of_no_rank(self):
        triage = checked(dl.triage(self.run(r1={80: 7.0}, r2={80: 7.5, 81: 7.5})))
        assert [(each.rank, each.onset, each.recovery) for each in triage.spikes] == [(None, 80, 82)]
        assert "loss (ranks 1-2) rose from 2.03 to 7.5" in triage.main.says

    def test_nan_of_one_rank_names_it(self):
        triage = checked(dl.triage(self.run(r3={80: float("nan")})))
        assert triage.main.rank == 3
        assert "loss not finite from step 80 on rank 3." in triage.main.says
        both = dl.triage(self.run(r3={80: float("nan")}, r1={80: float("nan")}))
        assert both.main.says.startswith("loss not finite from step 80 on ranks 1, 3.")


class TestGaps:
    def every_ten(self, numbers, first=7000):
        return make_metrics_run({"lm loss": {first + 10 * at: value for at, value in numbers.items()}})

    def test_a_jump_of_three_records_is_named_between_its_steps(self):
        triage = checked(
            dl.triage(self.every_ten({0: "6.444662E+00", 1: "1.142026E+01", 22: "7.155109E+00"}))
        )
        says = triage.main.says
        assert "onset between iterations 7000 and 7010" in says
        assert "No record for 7010..7220." in says
        assert "rests on few points: 1 record before the onset" in says
        assert triage.main.confidence == "low"
        assert 'steps="6999-7010"' in triage.next

    def test_a_climb_of_five_records(self):
        numbers = ("6.365808E+00", "6.598378E+00", "7.314456E+00", "9.121927E+00", "1.023865E+01")
        spike = checked(dl.triage(self.every_ten(dict(enumerate(numbers)), first=6900))).main
        assert (spike.before, spike.onset, spike.peak, spike.confidence) == (6900, 6910, 6940, "low")

    def test_a_spike_right_after_a_stretch_without_records_is_unsure(self):
        numbers = {at: 2.0 + 0.01 * (at % 5) for at in range(50)} | {90: 6.0, 91: 6.1, 92: 2.0}
        triage = checked(dl.triage(self.every_ten(numbers)))
        spike = triage.main
        assert (spike.onset, spike.confidence) == (7900, "low")
        assert 'steps="7489-7900"' in triage.next
        assert "No record for 7490..7900." in spike.says
        numbers |= {at: 2.0 + 0.01 * (at % 5) for at in range(50, 90)}
        assert dl.triage(self.every_ten(numbers)).main.confidence == "high"


def test_a_run_without_loss_and_norm_is_refused():
    with pytest.raises(dl.DetlabError, match="has no loss and no norm"):
        dl.triage(make_metrics_run({"learning rate": {1: 0.1, 2: 0.1}}))


def test_problems_of_every_run_are_told():
    a, b = spiky(50), make_metrics_run([{"lm loss": {1: 2.0}}], label="b")
    triage = checked(dl.triage(a, reruns=[replace(b, problems=("line 7 is cut",))]))
    assert triage.problems == (("b", "line 7 is cut"),)
    assert "problem: b: line 7 is cut" in repr(triage)


def test_no_control_character_of_a_log_reaches_the_terminal():
    run = spiky(50, label="evil\x1b[2J")
    assert "\x1b" not in repr(dl.triage(run))


def test_the_call_to_paste_stays_on_one_line():
    line = next(each for each in repr(dl.triage(spiky(50))).splitlines() if "Recorder" in each)
    assert re.search(r'dl\.Recorder\("…", steps="\d+-\d+"\)', line)
