"""The table that decides the class, row by row, on results that need no kernel."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.kernel.verdict import FILL, MIN_TRIALS, ReplayClass, Row, Verdict, judge

N = MIN_TRIALS
ONE = ((1,) * N,)
OTHER = ((2,) * N,)
MANY = (tuple(range(N)),)
TWO_THREADS = (("threads", "2"),)
DETERMINISTIC = "cpu, deterministic"


def row(groups: Any = ONE, name: str = "baseline", **fields: Any) -> Row:
    return Row(name=name, groups=groups, **fields)


def outcome(*rows: Row, **facts: bool) -> ReplayClass:
    return judge(rows, **facts).outcome


def test_results_that_differ_within_one_process_are_a_race() -> None:
    verdict = judge([row(MANY), row(ONE, "1 thread", choice=(("threads", "1"),))])
    assert verdict.outcome is ReplayClass.RACE
    assert verdict.decided_by == ("baseline",)
    assert "one result each in: 1 thread" in verdict.why[1]


def test_race_under_load_only_is_a_race() -> None:
    assert outcome(row(ONE), row(((1,) * 19 + (2,),), "competing load")) is ReplayClass.RACE


def test_one_result_everywhere_is_not_seen() -> None:
    assert judge([row(), row(ONE, "cold caches")]) == Verdict(ReplayClass.NOT_SEEN)


def test_no_trial_and_moved_arguments_are_invalid() -> None:
    assert outcome() is ReplayClass.INVALID
    assert outcome(row(())) is ReplayClass.INVALID
    assert outcome(row(MANY), moved=True) is ReplayClass.INVALID


def test_constant_within_and_different_between_thread_counts_is_a_selection() -> None:
    verdict = judge([row(), row(OTHER, "2 threads", choice=TWO_THREADS)])
    assert verdict.outcome is ReplayClass.SELECTION
    assert verdict.decided_by == ("baseline", "2 threads")
    assert verdict.why[1] == "it depends on: threads"


@pytest.mark.parametrize("trials", [1, 2, N - 1])
def test_selection_needs_enough_trials_under_each_condition(trials: int) -> None:
    few = row(((2,) * trials,), "2 threads", choice=TWO_THREADS)
    verdict = judge([row(), few])
    assert verdict.outcome is ReplayClass.INVALID
    assert f"make {N} or more" in verdict.why[1]


def test_deterministic_algorithms_are_another_algorithm_and_no_selection() -> None:
    verdict = judge([row(design="cpu"), row(OTHER, "deterministic", design=DETERMINISTIC)])
    assert verdict.outcome is ReplayClass.NOT_SEEN
    assert "by design" in verdict.why[0]


def test_another_kind_of_device_is_no_selection() -> None:
    assert outcome(row(design="cuda"), row(OTHER, "device cpu", design="cpu")) is ReplayClass.NOT_SEEN


def test_thread_counts_under_deterministic_algorithms_are_compared_with_each_other() -> None:
    rows = [
        row(ONE, "a", design=DETERMINISTIC, memory=FILL),
        row(OTHER, "b", design=DETERMINISTIC, memory=FILL, choice=TWO_THREADS),
    ]
    assert outcome(*rows) is ReplayClass.SELECTION


def test_constant_results_that_differ_under_load_are_a_race() -> None:
    assert outcome(row(), row(OTHER, "competing load")) is ReplayClass.RACE


def test_race_that_shows_under_load_is_no_selection_beside_a_thread_count() -> None:
    rows = [row(), row(OTHER, "competing load"), row(OTHER, "2 threads", choice=TWO_THREADS)]
    verdict = judge(rows)
    assert (verdict.outcome, verdict.decided_by) == (ReplayClass.RACE, ("baseline", "competing load"))


def test_constant_results_of_two_processes_are_no_race_even_under_load() -> None:
    verdict = judge([row(process="baseline"), row(OTHER, "competing load", process="competing load")])
    assert verdict.outcome is ReplayClass.SELECTION
    assert verdict.why[1] == "it depends on: a choice of each process"


def test_thread_counts_in_two_processes_may_also_be_a_choice_of_each() -> None:
    verdict = judge([row(process="a"), row(OTHER, "b", process="b", choice=TWO_THREADS)])
    assert verdict.why[1] == "it depends on: threads, or a choice of each process"


def test_choice_made_once_a_process_is_a_selection() -> None:
    processes = tuple((number,) * 4 for number in range(5))
    verdict = judge([row(), row(processes, "fresh process", process="fresh process")])
    assert verdict.outcome is ReplayClass.SELECTION
    assert "fresh process" in verdict.decided_by
    assert verdict.why[1] == "it depends on: a choice of each process"


def test_one_trial_a_process_cannot_tell_a_choice_from_a_race() -> None:
    processes = tuple((number,) for number in range(N))
    assert outcome(row(processes, "fresh process", process="fresh process")) is ReplayClass.INVALID


def test_variation_inside_a_process_is_a_race_also_where_processes_differ() -> None:
    processes = tuple((number, number, -1, number) for number in range(5))
    assert outcome(row(), row(processes, "fresh process", process="fresh process")) is ReplayClass.RACE


def test_nan_that_appears_with_filled_memory_is_an_uninitialised_read() -> None:
    """Three different results of three; one with NaN under the fill; two without it: no unordered sum."""
    verdict = judge([
        row(((1, 2, 3),)),
        row(((9, 9, 9),), "fill", design=DETERMINISTIC, memory=FILL, least_nan=4, most_nan=4),
        row(((1, 2, 1),), "no fill", design=DETERMINISTIC),
    ])  # fmt: skip
    assert verdict.outcome is ReplayClass.UNINITIALISED
    assert verdict.decided_by == ("no fill", "fill")  # which differ in what fills memory and in nothing else


def test_variation_that_returns_without_the_fill_is_an_uninitialised_read() -> None:
    rows = [row(MANY), row(ONE, "fill", design=DETERMINISTIC, memory=FILL)]
    assert outcome(*rows, row(MANY, "no fill", design=DETERMINISTIC)) is ReplayClass.UNINITIALISED
    assert outcome(*rows, row(ONE, "no fill", design=DETERMINISTIC)) is ReplayClass.RACE


def test_nan_that_lies_in_memory_by_itself_hides_no_uninitialised_read() -> None:
    rows = [row(MANY, most_nan=4), row(((3,),), "nan", memory="nan", least_nan=4, most_nan=4)]
    assert outcome(*rows) is ReplayClass.RACE
    assert outcome(*rows, row(((5,),), "zeros", memory="zeros")) is ReplayClass.UNINITIALISED


def test_nan_is_held_against_the_row_that_differs_in_memory_alone() -> None:
    rows = [
        row(ONE, "zeros", memory="zeros"),
        row(OTHER, "nan", memory="nan", least_nan=4, most_nan=4),
        row(((3,),), "fill", design=DETERMINISTIC, memory=FILL, least_nan=4, most_nan=4),
    ]
    verdict = judge(rows)
    assert verdict.decided_by == ("zeros", "nan")
    assert "nan, fill, not of zeros" in verdict.why[0]
    assert judge([rows[0], rows[2]]).decided_by == ("zeros", "fill")


def test_nan_that_the_call_gives_anyway_says_nothing_of_memory() -> None:
    rows = [row(MANY, most_nan=4, least_nan=4), row(MANY, "nan", memory="nan", most_nan=4, least_nan=4)]
    assert outcome(*rows) is ReplayClass.RACE


def test_nan_in_some_results_only_says_nothing_of_memory() -> None:
    assert outcome(row(MANY), row(MANY, "nan", memory="nan", most_nan=4)) is ReplayClass.RACE


def test_result_that_depends_on_the_poison_is_an_uninitialised_read() -> None:
    assert outcome(row(), row(OTHER, "zeros", memory="zeros")) is ReplayClass.UNINITIALISED
    two = [row(ONE, "max", memory="max"), row(OTHER, "zeros", memory="zeros")]
    assert outcome(*two) is ReplayClass.UNINITIALISED


def test_few_trials_cannot_tell_that_memory_matters() -> None:
    few = [row(((1, 1),), "max", memory="max"), row(((2, 2),), "zeros", memory="zeros")]
    assert outcome(*few) is ReplayClass.INVALID


def test_race_that_poison_leaves_alone_stays_a_race() -> None:
    assert outcome(row(MANY), row(MANY, "zeros", memory="zeros")) is ReplayClass.RACE


def test_variation_with_poison_only_is_uninitialised() -> None:
    assert outcome(row(), row(MANY, "nan", memory="nan")) is ReplayClass.UNINITIALISED


def test_op_that_gives_fresh_memory_has_no_race() -> None:
    assert outcome(row(MANY), fresh_memory=True) is ReplayClass.UNINITIALISED
    assert outcome(row(), disagrees=True, fresh_memory=True) is ReplayClass.UNINITIALISED
    assert outcome(row(), fresh_memory=True) is ReplayClass.NOT_SEEN


def test_another_result_in_training_is_a_race_unless_a_selection_explains_it() -> None:
    assert outcome(row(), disagrees=True) is ReplayClass.RACE
    rows = [row(), row(OTHER, "2 threads", choice=TWO_THREADS)]
    assert outcome(*rows, disagrees=True) is ReplayClass.SELECTION


def test_crashed_condition_says_nothing_of_the_others() -> None:
    assert outcome(row(), row((), "competing load")) is ReplayClass.NOT_SEEN
