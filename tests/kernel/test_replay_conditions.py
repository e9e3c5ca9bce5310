"""Replay of real kernels under several conditions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from detlab.captures import Capture
from detlab.kernel import Condition, Progress, ReplayClass, ReplayReport, replay
from detlab.kernel import capture as capture_call
from tests.kernel import misbehaving

aten = torch.ops.aten
Captured = Callable[..., Capture]
FILLED = "deterministic algorithms with memory fill"
NOT_FILLED = "deterministic algorithms without memory fill"


def distinct(report: ReplayReport) -> dict[str, int]:
    return {row.name: row.distinct for row in report.conditions}


@pytest.fixture(scope="session")
def summed(captured: Captured) -> Capture:
    return captured(aten.sum.default, torch.randn(1_000_000, generator=torch.Generator().manual_seed(1)))


def by_hand(func: Callable[..., torch.Tensor], folder: Path, size: int = 5_000) -> Capture:
    return capture_call(
        func, torch.randn(size, generator=torch.Generator().manual_seed(1)), path=folder / "call"
    )


def test_race_is_seen_where_it_can_run_and_constant_where_it_cannot(racing: Capture) -> None:
    asked = ["4 threads", "1 thread", FILLED, NOT_FILLED, "poisoned with zeros"]
    report = replay(racing, trials=20, conditions=asked)
    found = distinct(report)
    assert report.outcome is ReplayClass.RACE
    assert report.decided_by == ("4 threads",)
    assert found["4 threads"] > 1
    assert [found[name] for name in ("1 thread", FILLED, NOT_FILLED)] == [1, 1, 1]
    assert report.outputs[0].elements_different > 0


def test_poison_never_touches_what_accumulation_reads(racing: Capture) -> None:
    poisons = ["poisoned with nan", "poisoned with zeros", "poisoned with max"]
    report = replay(racing, trials=5, threads=1, conditions=poisons)
    assert distinct(report) == dict.fromkeys(poisons, 1)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert report.outputs[0].num_nan == 0


def test_sum_that_depends_on_the_thread_count_is_a_selection(summed: Capture) -> None:
    report = replay(summed, trials=20, conditions=["1 thread", "2 threads", FILLED])
    assert report.outcome is ReplayClass.SELECTION
    assert report.why[1] == "it depends on: number of threads"
    assert report.outputs[0].elements_different == 1
    assert report.outputs[0].max_ulp is not None
    assert report.exit_code == 1


def test_large_results_are_told_apart_by_digest_alone(
    summed: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detlab.kernel.worker.firsts.MAX_BYTES", 3)
    report = replay(summed, trials=20, conditions=["1 thread", "2 threads"])
    assert report.outcome is ReplayClass.SELECTION
    assert "by digest alone" in report.problems[-1]


def test_thread_counts_are_told_apart_in_other_processes_too(summed: Capture) -> None:
    report = replay(summed, trials=20, conditions=["1 thread", "2 threads"], isolate=True)
    assert report.outcome is ReplayClass.SELECTION
    assert report.outputs[0].elements_different == 1


def test_selection_is_not_said_of_a_trial_each(summed: Capture) -> None:
    report = replay(summed, trials=1, conditions=["1 thread", "2 threads"])
    assert (report.outcome, report.exit_code) == (ReplayClass.INVALID, 2)


def test_result_of_training_is_found_under_the_condition_that_gave_it(summed: Capture) -> None:
    here = f"{summed.state['threads']} thread{'' if summed.state['threads'] == 1 else 's'}"
    report = replay(summed, trials=20, conditions=["baseline", here, "3 threads"])
    assert report.traced_output_seen is True
    assert report.traced_under == ("baseline", here)
    assert f"under baseline, {here}" in repr(report)


def test_empty_memory_is_uninitialised_and_shows_the_fill(captured: Captured) -> None:
    capture = captured(aten.empty.memory_format, [100_000])
    report = replay(capture, trials=3, conditions=["baseline", FILLED, NOT_FILLED])
    assert report.outcome is ReplayClass.UNINITIALISED
    assert distinct(report)[FILLED] == 1


def test_read_of_memory_that_nobody_wrote_is_no_race(tmp_path: Path) -> None:
    capture = by_hand(misbehaving.reads_what_nobody_wrote, tmp_path)
    asked = ["baseline", "poisoned with zeros", "poisoned with nan"]
    report = replay(capture, call=misbehaving.reads_what_nobody_wrote, trials=3, conditions=asked)
    assert report.outcome is ReplayClass.UNINITIALISED
    assert "NaNs of filled memory" in report.why[0]


def test_write_only_out_argument_is_poisoned_and_written_over(captured: Captured) -> None:
    capture = captured(aten.mul.out, torch.ones(40_000), torch.full((40_000,), 0.1), out=torch.zeros(40_000))
    report = replay(capture, trials=2, conditions=["baseline", "poisoned with nan"])
    assert report.outcome is ReplayClass.NOT_SEEN
    assert report.traced_under == ("baseline", "poisoned with nan")


def test_out_argument_that_is_read_as_well_is_left_alone(captured: Captured) -> None:
    both = torch.full((40_000,), 0.1)
    capture = captured(aten.mul.out, both, both, out=both)
    report = replay(capture, trials=2, conditions=["baseline", "poisoned with nan"])
    assert report.outcome is ReplayClass.NOT_SEEN


def test_arguments_carved_out_of_larger_buffers_hold_the_captured_bits(captured: Captured) -> None:
    half = torch.arange(80_000, dtype=torch.float64).reshape(400, 200).t()[3:].conj()
    capture = captured(aten.addcmul_.default, torch.ones(197, 400, dtype=torch.float64), half, half)
    report = replay(capture, trials=2, conditions=["baseline", "allocation offsets"])
    assert list(distinct(report).values()) == [1, 1, 1, 1]
    assert len(report.traced_under) == 4


@pytest.mark.parametrize("name", ["competing load", "cold caches", "warm caches", "mkldnn off"])
def test_perturbation_leaves_an_ordered_call_alone(name: str, captured: Captured) -> None:
    capture = captured(aten.mm.default, torch.randn(64, 64), torch.randn(64, 64))
    report = replay(capture, trials=3, conditions=[name])
    assert report.outcome is ReplayClass.NOT_SEEN
    assert report.conditions[0].name == name


def test_random_op_draws_the_same_under_every_condition(captured: Captured) -> None:
    capture = captured(aten.bernoulli_.float, torch.zeros(10_000), 0.5)
    report = replay(capture, trials=2, conditions=["baseline", "poisoned", "offset 64 bytes", "1 thread"])
    assert report.outcome is ReplayClass.NOT_SEEN
    assert len(report.traced_under) == 4


def test_choice_made_once_a_process_is_a_selection(tmp_path: Path) -> None:
    capture = by_hand(misbehaving.differs_between_processes, tmp_path, size=3)
    asked = [Condition(name="new", trials_per_process=10)]
    report = replay(capture, call=misbehaving.differs_between_processes, trials=20, conditions=asked)
    assert report.outcome is ReplayClass.SELECTION
    assert report.conditions[0].note == "in 2 new processes, 10 trials each"


def test_stop_keeps_the_conditions_so_far(captured: Captured) -> None:
    def stop(progress: Progress) -> None:
        assert progress.asked == 15
        if progress.made == 7:
            raise KeyboardInterrupt

    report = replay(
        captured(aten.neg.default, torch.ones(3)),
        trials=5,
        conditions=["baseline", "1 thread", "poisoned"],
        progress=stop,
    )
    assert [(row.name, row.trials) for row in report.conditions] == [("baseline", 5), ("1 thread", 2)]
    assert report.problems == ("1 thread: stopped by the user after 2 of 5 trials",)


def test_empty_arguments_have_no_caches_to_warm(captured: Captured) -> None:
    capture = captured(aten.cat.default, [torch.ones(3), torch.empty(0)])
    assert replay(capture, trials=2, conditions="warm caches").outcome is ReplayClass.NOT_SEEN


def test_error_under_one_condition_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    capture = by_hand(misbehaving.refuses_one_thread, tmp_path)
    asked = ["2 threads", "1 thread", "3 threads"]
    report = replay(capture, call=misbehaving.refuses_one_thread, trials=2, conditions=asked)
    assert [row.status for row in report.conditions] == ["done", "refused", "done"]
    assert "raised RuntimeError: one thread is not enough" in report.conditions[1].note
    assert report.outcome is ReplayClass.NOT_SEEN


def test_one_thread_hides_a_race_only_where_no_other_condition_has_more(captured: Captured) -> None:
    values = torch.randn(100_000, generator=torch.Generator().manual_seed(1))
    capture = captured(aten.sum.default, values)
    alone = replay(capture, trials=2, conditions="1 thread")
    assert len([problem for problem in alone.problems if "with 1 thread" in problem]) == 1
    both = replay(capture, trials=2, conditions=["1 thread", "competing load"], threads=2)
    assert not [problem for problem in both.problems if "with 1 thread" in problem]


def test_whole_numbers_are_told_once_for_all_conditions(captured: Captured) -> None:
    index = torch.arange(100_000) % 1000
    capture = captured(aten.index_put_.default, torch.zeros(1000), [index], torch.ones(100_000), True)
    report = replay(capture, trials=3, conditions=["4 threads", "competing load"])
    assert report.outcome is ReplayClass.NOT_SEEN
    assert len([p for p in report.problems if "whole numbers" in p]) == 1


def test_report_of_all_standard_conditions_fits_one_screen(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.full((3,), 0.1))
    text = repr(replay(capture, trials=4, conditions="standard"))
    assert text.startswith("verdict   not seen: no mismatch within any of 16 conditions, 64 trials in all;")
    assert "a rate above 52.7 % is excluded at 95 % in each" in text
    assert len(text.splitlines()) < 25
    assert "deterministic," not in text
