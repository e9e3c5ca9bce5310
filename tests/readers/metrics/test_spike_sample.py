"""The logs in sample_traces/spike show what their README says."""

import re

import polars as pl
import pytest

from detlab import load_run
from detlab.comparison.metrics.spike_triage import triage
from detlab.samples import sample_path
from tests.megatron_cpu.logged import Flip, turn_over
from tests.megatron_cpu.record_spike import (
    FLIP,
    RECIPE,
    SAVE_INTERVAL,
    STOP_AFTER,
    check_spike,
    damaged_steps,
    describe,
    first_rise,
    last_losses,
    lose_page,
    printed,
)

LOGS = ["monday", "rerun", "data", "data_rerun"]
SPIKE = sample_path("spike")
CHECKPOINT = STOP_AFTER // SAVE_INTERVAL * SAVE_INTERVAL


@pytest.fixture(scope="module")
def runs():
    return {name: load_run(SPIKE / f"{name}.log") for name in LOGS}


def numbers(text):
    """Take the losses and norms out of a log with a pattern of their own, so that no reader is trusted."""
    return re.findall(r"iteration +(\d+)/.* lm loss: (\S+) .* grad norm: (\S+) ", text)


def text(name):
    return (SPIKE / f"{name}.log").read_text("utf-8")


def test_the_logs_show_what_the_readme_says_of_them():
    check_spike(SPIKE)
    assert (SPIKE / "README.md").read_text("utf-8").split("## What was run")[0] == (
        describe().split("## What was run")[0]
    )


def test_the_rerun_prints_what_monday_printed_up_to_the_step_of_the_fault_and_no_further():
    monday, rerun = ({int(step): rest for step, *rest in numbers(text(name))} for name in ("monday", "rerun"))
    assert [step for step in rerun if monday[step] != rerun[step]] == list(
        range(FLIP.step + 1, RECIPE.num_steps + 1)
    )


def test_the_steps_that_the_restart_repeats_are_printed_twice_with_the_same_numbers():
    monday = numbers(text("monday"))
    repeated = [record for record in monday if CHECKPOINT < int(record[0]) <= STOP_AFTER]
    assert len(repeated) == 2 * (STOP_AFTER - CHECKPOINT)
    assert repeated[: len(repeated) // 2] == repeated[len(repeated) // 2 :]


def test_the_data_spikes_again_with_every_number_the_same():
    assert numbers(text("data")) == numbers(text("data_rerun"))
    assert len(numbers(text("data"))) == RECIPE.num_steps


def test_monday_rises_right_after_the_fault_and_the_data_where_the_page_is_lost():
    rises = {name: first_rise(printed(SPIKE / f"{name}.log")) for name in LOGS}
    assert rises == {
        "monday": FLIP.step + 1,
        "rerun": None,
        "data": damaged_steps()[0],
        "data_rerun": damaged_steps()[0],
    }


def test_the_losses_to_their_last_bit_part_where_the_printed_ones_do():
    monday, rerun = (last_losses(SPIKE / f"{name}.losses.txt") for name in ("monday", "rerun"))
    assert [a == b for a, b in zip(monday, rerun, strict=True)].index(False) == FLIP.step
    run = load_run(SPIKE / "monday.losses.txt")
    assert run.metrics["width"].unique().to_list() == [32]


def test_the_printed_losses_are_those_to_their_last_bit(runs):
    logged = runs["rerun"].metrics.filter(pl.col("name") == "lm loss")["value"]
    exact = load_run(SPIKE / "rerun.losses.txt").metrics["value"]
    assert (logged - exact).abs().max() <= 0.5e-6


def test_every_log_is_read_whole_and_the_restart_is_found_without_being_told(runs):
    assert not any(run.problems for run in runs.values())
    segments = {name: len(run.log.segments) for name, run in runs.items()}
    assert segments == {"monday": 2, "rerun": 1, "data": 1, "data_rerun": 1}
    second = runs["monday"].log.segments.row(1, named=True)
    assert (second["first_step"], second["last_step"]) == (CHECKPOINT + 1, RECIPE.num_steps)
    kinds = runs["monday"].log.messages["kind"].cast(pl.String)
    assert kinds.to_list().count("checkpoint loaded") == 1
    assert kinds.to_list().count("checkpoint saved") == RECIPE.num_steps // SAVE_INTERVAL


def test_the_sample_is_small_and_names_no_place():
    files = list(SPIKE.iterdir())
    assert sum(path.stat().st_size for path in files) < 600_000
    assert {path.suffix for path in files} == {".log", ".txt", ".md"}
    for path in files:
        content = path.read_text("utf-8")
        assert not re.search(r"/(tmp|home|root|work)\b", content), f"{path.name} names a place"
        if path.suffix == ".log":
            assert set(re.findall(r"(?m)^\[(\w+):0\]: ", content)) <= {"n1", "n2"}
            assert all(re.match(r"\[n[12]:0\]: ", line) for line in content.splitlines())


def test_one_log_alone_is_not_enough_and_the_log_without_a_spike_has_none(runs):
    assert triage(runs["monday"]).conclusion == "not enough evidence"
    assert triage(runs["rerun"], reruns=[runs["monday"]]).conclusion == "no spike"


def test_the_triage_tells_the_spike_of_the_machine_from_that_of_the_data(runs):
    monday = triage(runs["monday"], reruns=[runs["rerun"]])
    data = triage(runs["data"], reruns=[runs["data_rerun"]])
    assert (monday.conclusion, monday.main.onset) == ("not reproduced", FLIP.step + 1)
    assert (data.conclusion, data.main.onset) == ("deterministic", damaged_steps()[0])
    assert f'steps="{FLIP.step - 1}-{FLIP.step + 1}"' in monday.next
    assert f"checkpoint of step {CHECKPOINT} " in monday.next


class Optimizer:
    """What has learning rates."""

    def __init__(self, *rates):
        self.param_groups = [{"lr": rate} for rate in rates]


def test_the_bit_that_turns_over_makes_one_learning_rate_256_times_as_high():
    rate = printed_rate(FLIP.step)
    optimizer = Optimizer(rate, rate)
    turn_over(FLIP, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [rate, 256 * rate]
    turn_over(FLIP, optimizer)
    assert optimizer.param_groups[FLIP.group]["lr"] == rate


def printed_rate(step):
    """The learning rate of a step is the one that was printed after the step before it."""
    (rate,) = re.findall(rf"iteration +{step - 1}/.* learning rate: (\S+) ", text("rerun"))
    return float(rate)


def test_only_the_learning_rate_of_the_group_is_hit():
    optimizer = Optimizer(0.5, 0.5)
    turn_over(Flip(step=1, group=0, bit=63), optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [-0.5, 0.5]


def test_a_lost_page_is_zeros_and_nothing_else_of_the_file_changes(tmp_path):
    shard = tmp_path / "shard.bin"
    shard.write_bytes(bytes([1]) * 50_000)
    lose_page(shard)
    content = shard.read_bytes()
    assert content == bytes([1]) * 36_864 + bytes(4_096) + bytes([1]) * (50_000 - 40_960)


@pytest.mark.parametrize(
    ("file", "step", "loss", "why"),
    [
        ("rerun.log", 100, "1.0E+00", "monday and rerun differ before the fault"),
        ("data_rerun.log", 300, "1.0E+00", "data and data_rerun differ"),
        ("rerun.log", 300, "9.0E+00", "rerun rises at 300"),
        ("monday.log", 310, "1.0E+00", "has not recovered"),
        ("data.log", 9, "", "data lacks steps"),
    ],
)
def test_logs_that_show_something_else_are_not_kept(tmp_path, file, step, loss, why):
    for path in SPIKE.iterdir():
        content = path.read_text("utf-8")
        if path.name == file:
            record = rf"(iteration +{step}/.* lm loss: )\S+( .* grad norm: )\S+( .*)"
            content, count = re.subn(record, rf"\g<1>{loss}\g<2>9.000\g<3>" if loss else "", content)
            assert count == 1
        (tmp_path / path.name).write_text(content, "utf-8")
    with pytest.raises(AssertionError, match=why):
        check_spike(tmp_path)


def test_losses_that_differ_in_their_last_bits_before_the_fault_are_not_kept(tmp_path):
    for path in SPIKE.iterdir():
        lines = path.read_text("utf-8").splitlines(keepends=True)
        if path.name == "rerun.losses.txt":
            lines[FLIP.step - 1] = f"{FLIP.step} 1.5576171875\n"
        (tmp_path / path.name).write_text("".join(lines), "utf-8")
    with pytest.raises(AssertionError, match="the losses differ before the fault"):
        check_spike(tmp_path)
