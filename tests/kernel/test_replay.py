"""What replay says of real kernels; those that race are repeated until seen, within a bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
import torch

from detlab.captures import Capture
from detlab.kernel import Progress, ReplayClass, ReplayReport, replay
from detlab.kernel.ops import gives_fresh_memory

aten = torch.ops.aten
SCHEMA = json.loads(files("detlab").joinpath("schemas/replay.json").read_text("utf-8"))


def matches_schema(report: ReplayReport) -> bool:
    jsonschema.validate(json.loads(json.dumps(report.to_json())), SCHEMA, jsonschema.Draft202012Validator)
    return True


def stopping_after(number: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.made == number:
            raise KeyboardInterrupt

    return stop


def test_unordered_float_adds_are_a_race(racing: Capture) -> None:
    report = replay(racing, trials=20, threads=4)
    assert (report.outcome, report.exit_code) == (ReplayClass.RACE, 1)
    assert report.conditions[0].distinct > 1
    assert report.conditions[0].upper_bound_95 is None
    (output,) = report.outputs  # the mutated argument is what the call returns, and counts once
    assert output.elements_different > 0
    assert output.max_ulp is not None
    assert output.quantum_log2 is not None


@pytest.mark.parametrize("held", [{"threads": 1}, {"threads": 4, "deterministic": True}], ids=str)
def test_race_is_not_seen_where_the_order_is_fixed(racing: Capture, held: dict[str, int]) -> None:
    report = replay(racing, trials=20, **held)  # type: ignore[arg-type]
    assert (report.outcome, report.exit_code, report.num_distinct) == (ReplayClass.NOT_SEEN, 0, 1)


def test_index_add_of_the_same_data_is_not_seen_to_differ(
    racing: Capture, captured: Callable[..., Capture]
) -> None:
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 1000, (1_000_000,), generator=generator)
    values = torch.randn(1_000_000, generator=generator)
    capture = captured(aten.index_add_.default, torch.zeros(1000), 0, index, values)
    assert racing.input_digests == tuple(capture.input_digests)
    report = replay(capture, trials=20, threads=4)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert report.conditions[0].name == "4 threads"


def test_report_of_nothing_seen_says_its_bound_and_no_more(captured: Callable[..., Capture]) -> None:
    text = repr(replay(captured(aten.neg.default, torch.ones(3)), trials=60, threads=4))
    assert "no mismatch in 60 trials in this process (4 threads)" in text
    assert "a rate above 4.9 % is excluded at 95 %" in text
    assert "deterministic" not in text


def test_report_of_a_race_fits_one_screen_with_the_verdict_first(racing: Capture) -> None:
    lines = repr(replay(racing, trials=20, threads=4)).splitlines()
    assert lines[0].startswith("verdict   race: ")
    assert len(lines) < 25


def changed(capture: Capture, *, outputs: tuple[int, ...] = (0,), **state: object) -> Capture:
    """Give a capture whose training gave other outputs, or ran in another state."""
    return replace(capture, output_digests=outputs, state={**capture.state, **state})


def test_result_of_training_is_looked_for_among_the_trials(captured: Callable[..., Capture]) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    assert replay(capture, trials=2).traced_output_seen is True
    assert replay(changed(capture), trials=2).traced_output_seen is False
    assert replay(changed(capture, outputs=()), trials=2).traced_output_seen is None


def test_another_result_in_training_under_the_same_conditions_is_a_mismatch(
    captured: Callable[..., Capture],
) -> None:
    report = replay(changed(captured(aten.neg.default, torch.full((3,), 0.1))), trials=60)
    assert (report.outcome, report.exit_code, report.num_distinct) == (ReplayClass.RACE, 1, 1)
    assert report.differs_from_training
    text = repr(report)
    assert text.startswith("verdict   differs from training: equal inputs and conditions gave another result")
    assert "not seen" not in text
    assert "a rate above 4.9 % is excluded at 95 %" in text
    assert "same conditions as far as the capture says" in text
    assert matches_schema(report)
    assert ["under the same conditions" in problem["what"] for problem in problems_of(report)] == [True]


def problems_of(report: ReplayReport) -> list[dict[str, str]]:
    return json.loads(json.dumps(report.to_json()["problems"]))  # type: ignore[no-any-return]


def test_fresh_memory_that_held_something_else_in_training_is_uninitialised(
    captured: Callable[..., Capture],
) -> None:
    capture = captured(aten.resize_.default, torch.ones(3), [2])
    report = replay(changed(capture), trials=2)
    assert (report.outcome, report.exit_code) == (ReplayClass.UNINITIALISED, 1)


def test_another_number_of_threads_in_training_is_no_evidence_and_the_line_says_so(
    captured: Callable[..., Capture],
) -> None:
    capture = changed(captured(aten.sum.default, torch.full((3,), 0.1)), threads=4)
    report = replay(capture, trials=2, threads=1)
    assert (report.outcome, report.exit_code, report.differs_from_training) == (
        ReplayClass.NOT_SEEN,
        0,
        False,
    )
    text = repr(report)
    assert text.startswith("verdict   not seen: no mismatch in 2 trials")
    assert "its result is not among these: other conditions, no evidence either way;" in text
    assert "recorded with 4 threads, replayed with 1: another summation order" in text
    assert any("no evidence either way" in problem["what"] for problem in problems_of(report))


def test_threads_change_no_summation_order_where_nothing_adds_up(captured: Callable[..., Capture]) -> None:
    capture = changed(captured(aten.neg.default, torch.ones(3)), threads=4)
    text = repr(replay(capture, trials=2, threads=1))
    assert "recorded with 4 threads, replayed with 1" in text
    assert "summation" not in text


def test_other_algorithms_and_other_versions_in_training_are_no_evidence(
    captured: Callable[..., Capture],
) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    text = repr(replay(changed(capture), trials=2, deterministic=True))
    assert "recorded with default algorithms, replayed with deterministic algorithms" in text
    older = changed(capture, versions={**capture.state["versions"], "torch": "2.9.1"})
    report = replay(older, trials=2)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert "recorded with another torch" in repr(report)


def test_other_conditions_are_no_matter_when_the_result_of_training_is_seen(
    captured: Callable[..., Capture],
) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    text = repr(replay(changed(capture, outputs=capture.output_digests, threads=4), trials=2, threads=1))
    assert "training  its result is among these" in text
    assert "evidence" not in text


def test_race_calls_the_result_of_training_one_more_under_the_same_conditions(racing: Capture) -> None:
    report = replay(changed(racing, threads=4), trials=20)
    text = repr(report)
    assert text.startswith("verdict   race: ")
    assert "its result is one more, not among these, under the same conditions" in text
    assert "evidence" not in text


def test_mutated_argument_counts_as_an_output(captured: Callable[..., Capture]) -> None:
    report = replay(captured(aten._foreach_mul_.Scalar, [torch.ones(3), torch.ones(2)], 0.1), trials=2)
    assert [output.index for output in report.outputs] == [0, 1]
    assert report.traced_output_seen is True


def test_argument_that_changes_behind_the_schema_is_restored_and_told(
    captured: Callable[..., Capture],
) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, 4, 4, generator=generator)
    state = (torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3))
    capture = captured(aten.native_batch_norm.default, image, *state, True, 0.1, 1e-5)
    report = replay(capture, trials=4)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert len(report.outputs) == 5  # three returned, running mean and running variance
    assert [p for p in report.problems if "running_mean, running_var" in p] == list(report.problems)


def test_whole_numbers_hide_a_race_and_the_report_says_so(captured: Callable[..., Capture]) -> None:
    index = torch.arange(1_000_000) % 1000
    capture = captured(aten.index_put_.default, torch.zeros(1000), [index], torch.ones(1_000_000), True)
    report = replay(capture, trials=5, threads=4)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert ["whole numbers" in problem for problem in report.problems] == [True]


def test_whole_numbers_are_no_matter_where_nothing_adds_up(captured: Callable[..., Capture]) -> None:
    assert replay(captured(aten.neg.default, torch.ones(3)), trials=2).problems == ()


def test_one_trial_says_that_it_has_nothing_to_differ_from(captured: Callable[..., Capture]) -> None:
    (problem,) = replay(captured(aten.neg.default, torch.tensor([0.1])), trials=1).problems
    assert "one trial" in problem


def test_interrupt_keeps_the_trials_so_far(captured: Callable[..., Capture]) -> None:
    report = replay(captured(aten.neg.default, torch.ones(3)), trials=60, progress=stopping_after(3))
    assert report.conditions[0].trials == 3
    assert report.problems == ("stopped by the user after 3 of 60 trials",)


def test_interrupt_before_the_first_trial_proves_nothing(
    captured: Callable[..., Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("detlab.kernel.trials.in_process.Trials.make_one", interrupted)
    report = replay(captured(aten.neg.default, torch.ones(3)))
    assert (report.outcome, report.exit_code, report.conditions) == (ReplayClass.INVALID, 2, ())
    assert "no trial was made" in repr(report)
    assert matches_schema(report)


def test_json_of_a_race_and_of_nothing_seen_match_the_schema(racing: Capture) -> None:
    assert matches_schema(replay(racing, trials=20, threads=4))
    assert matches_schema(replay(racing, trials=2, threads=1))


def test_schema_refuses_a_field_it_does_not_know(racing: Capture) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(replay(racing, trials=2, threads=1).to_json() | {"green": True}, SCHEMA)


def test_memory_that_nobody_wrote_is_told_from_a_race() -> None:
    assert gives_fresh_memory("aten.empty.memory_format")
    assert gives_fresh_memory("aten.new_empty_strided.default")
    assert not gives_fresh_memory("aten.index_put_.default")


def test_training_conditions_are_the_default(captured: Callable[..., Capture]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        capture = captured(aten.neg.default, torch.ones(3))
    finally:
        torch.set_num_threads(before)
    assert replay(capture, trials=2).conditions[0].name == "3 threads"


def test_other_versions_than_in_training_are_told(
    captured: Callable[..., Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    capture = captured(aten.neg.default, torch.ones(3))
    versions = {**capture.state["versions"], "torch": "2.9.1", "megatron-core": "0.9"}
    state = {**capture.state, "versions": versions, "env": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}}
    other = Capture.from_json({**capture.to_json(), "state": state}, capture.path)
    assert replay(other, trials=2).problems == (
        f"torch was 2.9.1 in training and is {capture.state['versions']['torch']} here",
        "CUBLAS_WORKSPACE_CONFIG was :4096:8 in training and is absent here",
    )


def test_result_of_another_function_says_nothing_of_the_one_that_training_recorded(
    captured: Callable[..., Capture],
) -> None:
    capture = captured(aten.sum.default, torch.randn(1000, generator=torch.Generator().manual_seed(1)))

    def largest(self: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self.amax()

    report = replay(capture, trials=5, call=largest)
    assert (report.outcome, report.traced_output_seen) == (ReplayClass.NOT_SEEN, False)
    assert not report.differs_from_training
    assert report.other_conditions == "recorded with aten.sum.default, replayed with largest"
    assert replay(capture, trials=5, call=aten.sum.default).other_conditions == ""
