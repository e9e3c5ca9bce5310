"""Losses that are means over other steps: never compared, and said not to be."""

import numpy as np
import pytest

import detlab as dl
from detlab.comparison.metrics.averages import spans_of
from detlab.errors import NotComparable
from tests.readers.metrics.logs import record, write

CURVE = {step: 3 - 0.01 * step + 0.1 * (step * 7 % 5) for step in range(1, 101)}
LOADED = "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration {}\n"


def lines(every=1, first=1, shift=0.0, norm=1.25):
    """Log a run as Megatron does: the loss is the mean since the last record, or since the first step."""
    told, since = [], first
    for step in range(first, 101):
        if step % every == 0:
            mean = np.mean([CURVE[each] for each in range(since, step + 1)]) + shift
            told.append(record(step, lm_loss=f"{mean:.6E}", grad_norm=f"{norm:.3f}"))
            since = step + 1
    return told


def run(folder, *text, name="a"):
    return dl.load_run(write(folder, *text, name=f"{name}.log"))


def test_runs_of_another_log_interval_do_not_differ_in_their_losses(tmp_path):
    cmp = dl.compare_metrics(run(tmp_path, *lines()), run(tmp_path, *lines(10), name="b"))
    assert (cmp.verdict, cmp.first_step) == ("incomplete", None)
    where = "10 steps from 10 to 100"
    assert ("b", f"averages lm loss over other steps than a at {where}: not compared") in cmp.problems
    assert not any("zero, negative or NaN" in note for note in cmp.notes)
    row = cmp.metrics.filter(name="lm loss").row(0, named=True)
    assert (row["steps_common"], row["first_step"]) == (0, None)
    assert "lm loss                       not compared" in repr(cmp)


def test_their_other_numbers_are_compared(tmp_path):
    cmp = dl.compare_metrics(run(tmp_path, *lines()), run(tmp_path, *lines(10, norm=1.5), name="b"))
    assert (cmp.verdict, cmp.first_step) == ("diverged", 10)
    assert cmp.first["name"].to_list() == ["grad norm"]


def test_losses_of_one_log_interval_are_compared(tmp_path):
    cmp = dl.compare_metrics(run(tmp_path, *lines(10)), run(tmp_path, *lines(10, shift=1e-3), name="b"))
    assert (cmp.verdict, cmp.first_step, cmp.problems) == ("diverged", 10, ())


def test_with_nothing_but_such_losses_the_comparison_is_refused(tmp_path):
    runs = run(tmp_path, *lines()), run(tmp_path, *lines(10), name="b")
    with pytest.raises(NotComparable, match=r"b averages lm loss over other steps than a .* nothing else"):
        dl.compare_metrics(*runs, names=["lm loss"])


@pytest.mark.parametrize("loaded", [None, 47])
def test_the_first_record_after_a_resume_averages_over_the_steps_since_its_checkpoint(loaded, tmp_path):
    text = [LOADED.format(loaded)] if loaded else []
    whole, resumed = run(tmp_path, *lines(10)), run(tmp_path, *text, *lines(10, first=48), name="b")
    assert spans_of(resumed)["span"].to_list() == [3 if loaded else None, 10, 10, 10, 10, 10]
    cmp = dl.compare_metrics(whole, resumed)
    assert cmp.first_step is None
    assert ("b", "averages lm loss over other steps than a at step 50: not compared") in cmp.problems


def test_a_resume_at_a_record_averages_over_the_same_steps(tmp_path):
    resumed = run(tmp_path, LOADED.format(50), *lines(10, first=51, shift=1e-3), name="b")
    assert dl.compare_metrics(run(tmp_path, *lines(10)), resumed).first_step == 60


def test_both_resumed_from_one_checkpoint_are_compared_from_the_first_record_on(tmp_path):
    runs = [run(tmp_path, *lines(10, first=48, shift=shift), name=f"{shift}") for shift in (0.0, 1e-3)]
    assert dl.compare_metrics(*runs).first_step == 50


def test_an_own_restart_is_no_replay_of_that_record(tmp_path):
    again = run(tmp_path, *lines(10)[:8], *lines(10, first=48))
    losses = dl.compare_metrics(again, again).replays.filter(name="lm loss")
    assert losses.select("steps_common", "steps_different").row(0) == (3, 0)


def test_steps_that_were_asked_for_average_as_they_do_in_the_whole_log(tmp_path):
    part = dl.load_run(write(tmp_path, *lines(10)), steps="45-100")
    assert spans_of(part)["span"].to_list() == [10] * 6


def test_among_many_runs_the_losses_of_those_steps_are_left_out(tmp_path):
    runs = [run(tmp_path, *lines(every), name=name) for name, every in (("a", 1), ("b", 1), ("c", 10))]
    many = dl.compare_many(runs)
    assert many.classes == (("a", "b", "c"),)
    assert (
        "c",
        "averages lm loss over other steps than others at 10 steps from 10 to 100: not compared",
    ) in (many.problems)
    assert dl.compare_many([*runs[:2], run(tmp_path, *lines(shift=1e-3), name="d")]).problems == ()


def test_a_change_of_the_log_interval_is_no_change_of_the_losses(tmp_path):
    before = [run(tmp_path, *lines(), name=name) for name in "ab"]
    after = [run(tmp_path, *lines(10), name=name) for name in "cd"]
    change = dl.compare_change(before, after)
    assert [gate.verdict for gate in change.judged][:2] == ["pass", "pass"]
    assert any(what.startswith("averages lm loss over other steps") for _, what in change.problems)
