"""A fix is proven by what its trials show beside those without it, and never beyond that."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import torch

from detlab.captures import Capture
from detlab.errors import CaptureError, InputError
from detlab.kernel.conditions import Condition
from detlab.kernel.fix_proof import chance_of_luck, prove_fix
from detlab.kernel.fix_proof.report import FixProof, FixVerdict
from detlab.kernel.fixed import accumulate

aten = torch.ops.aten
Captured = Callable[..., Capture]
SCHEMA = json.loads(files("detlab").joinpath("schemas/fix_proof.json").read_text("utf-8"))


def reversed_adds(
    self: torch.Tensor, indices: list[torch.Tensor], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """Add in a fixed order: from the last to the first, as no thread does, however loaded the machine is."""
    assert accumulate
    return self.index_add(0, indices[0].flip(0), values.flip(0))


def matches_schema(proof: FixProof) -> bool:
    jsonschema.validate(json.loads(json.dumps(proof.to_json())), SCHEMA, jsonschema.Draft202012Validator)
    return True


@pytest.fixture(scope="module")
def holding(racing: Capture) -> FixProof:
    return prove_fix(racing, reversed_adds, trials=20, threads=4)


def test_fix_by_another_callable_holds_from_the_same_bits(holding: FixProof, racing: Capture) -> None:
    assert (holding.verdict, holding.exit_code) == (FixVerdict.HOLDS, 0)
    assert holding.unfixed.distinct > 1
    assert (holding.unfixed.trials, holding.fixed.trials, holding.fixed.distinct) == (20, 20, 1)
    assert holding.fixed.upper_bound_95 == pytest.approx(0.139, abs=1e-3)
    assert holding.input_digests == racing.input_digests
    assert holding.chance_of_luck is not None
    assert holding.chance_of_luck < 1e-3
    assert matches_schema(holding)


def test_result_with_the_fix_is_measured_against_one_without(holding: FixProof) -> None:
    pair = holding.pairs[0]
    assert (pair.is_equal, pair.problem) == (False, "")
    assert pair.elements_different > 0
    assert pair.max_ulp is not None
    assert holding.is_among_unfixed is False
    assert holding.spread_ulp is not None
    told = "the fix returns its result and leaves the argument that the call changes as it was"
    assert told in holding.problems


def test_table_has_three_rows_and_claims_no_more_than_was_seen(holding: FixProof) -> None:
    lines = repr(holding).splitlines()
    assert lines[0].startswith("verdict   holds: ")
    assert "no mismatch in 20 trials with the fix: a rate above 13.9 % is excluded at 95 %" in holding.why
    names = [line[:20].strip() for line in lines if " vs " in line[:20]]
    assert names[:3] == ["unfixed vs unfixed", "fixed vs fixed", "fixed vs unfixed"]
    assert "deterministic" not in repr(holding)
    assert all(len(line) <= 110 for line in lines)


@pytest.mark.parametrize(
    ("fix", "name"),
    [
        ({"deterministic": True}, "deterministic=True, 4 threads, use_deterministic_algorithms"),
        ({"threads": 1}, "threads=1, 1 thread"),
        (Condition(name="one", threads=1), "threads=1, 1 thread"),
    ],
)
def test_fix_by_a_setting_holds(racing: Capture, fix: Any, name: str) -> None:
    before = torch.get_num_threads()
    proof = prove_fix(racing, fix, trials=10, threads=4)
    assert (proof.verdict, proof.fixed.distinct) == (FixVerdict.HOLDS, 1)
    assert (proof.unfixed.name, proof.fixed.name) == ("4 threads", name)
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_worked_alternative_in_place_holds_and_leaves_no_note_of_another_form(racing: Capture) -> None:
    proof = prove_fix(racing, accumulate.index_put_, trials=20, threads=4)
    assert proof.verdict is FixVerdict.HOLDS
    assert proof.fixed.name == "index_put_, 4 threads"
    assert not any("outputs" in problem or "leaves" in problem for problem in proof.problems)


def test_fix_that_gives_a_result_of_the_call_itself_is_said_to(captured: Captured) -> None:
    capture = captured(aten.neg_.default, torch.tensor([0.5, 2.5]))
    proof = prove_fix(capture, lambda self: -self, trials=2)
    assert proof.is_among_unfixed is True
    assert proof.pairs[0].is_equal
    assert "the result with the fix is one of the unfixed results" in repr(proof)


@pytest.mark.gpu
def test_fix_by_a_setting_holds_on_a_device(captured: Captured) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 1000, (1_000_000,), generator=generator).cuda()
    values = torch.randn(1_000_000, generator=generator).cuda()
    capture = captured(aten.index_add_.default, torch.zeros(1000).cuda(), 0, rows, values)
    proof = prove_fix(capture, {"deterministic": True}, trials=20)
    assert proof.verdict is FixVerdict.HOLDS
    assert (proof.unfixed.name, proof.fixed.distinct) == ("cuda:0", 1)


def test_fix_that_races_as_well_fails(racing: Capture) -> None:
    def no_fix(self: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
        return self.index_put(indices, values, accumulate=accumulate)

    proof = prove_fix(racing, no_fix, trials=20, threads=4)
    assert (proof.verdict, proof.exit_code, proof.chance_of_luck) == (FixVerdict.FAILS, 1, None)
    assert "results still differ with the fix" in proof.why
    assert matches_schema(proof)


def test_nothing_is_proven_where_nothing_differs_without_the_fix(racing: Capture) -> None:
    proof = prove_fix(racing, reversed_adds, trials=3, threads=1)
    assert (proof.verdict, proof.exit_code) == (FixVerdict.UNDECIDED, 2)
    assert "nothing that it could have fixed was seen" in proof.why
    assert "luck" not in repr(proof)


class Seldom:
    """A call that gives other bits once, in a given trial."""

    def __init__(self, trial: int) -> None:
        self.made, self.trial = 0, trial

    def negate(self, x: torch.Tensor) -> torch.Tensor:
        self.made += 1
        return -x + (self.made == self.trial)


def test_one_mismatch_cannot_be_told_from_luck(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.tensor([0.5, 2.5]))
    seldom = Seldom(7)
    proof = prove_fix(capture, aten.neg.default, trials=20, call=lambda self: seldom.negate(self))
    assert (proof.verdict, proof.exit_code) == (FixVerdict.UNDECIDED, 2)
    assert (proof.unfixed.distinct, proof.chance_of_luck) == (2, 0.5)
    assert "too few mismatches to tell the fix from luck (chance 50.0 %)" in proof.why
    assert proof.is_among_unfixed is True


def test_luck_is_what_fisher_counts() -> None:
    assert chance_of_luck(1, 60, 60) == 0.5
    assert chance_of_luck(0, 60, 60) == 1.0
    assert chance_of_luck(5, 60, 60) == pytest.approx(0.0286, abs=1e-4)
    assert chance_of_luck(20, 20, 20) == pytest.approx(1 / 137846528820)  # 1 / C(40, 20)


def test_fix_of_another_shape_or_that_cannot_run_is_invalid(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    proof = prove_fix(capture, lambda self: self.double(), trials=2)
    assert (proof.verdict, proof.exit_code) == (FixVerdict.INVALID, 2)
    assert proof.why == "the fix is none of this call: output 0 gives float64[3] in place of float32[3]"
    broken = prove_fix(capture, lambda: None, trials=2)
    assert broken.verdict is FixVerdict.INVALID
    assert "the fix cannot be run" in broken.why
    assert broken.fixed.trials == 0
    assert matches_schema(proof)
    assert matches_schema(broken)
    assert "verdict   invalid" in repr(broken)


def test_fix_whose_result_is_far_away_holds_with_a_note(racing: Capture) -> None:
    proof = prove_fix(racing, lambda self, indices, values, accumulate: self + 1.0, trials=10, threads=4)
    assert proof.verdict is FixVerdict.HOLDS
    assert any("look whether it is right" in problem for problem in proof.problems)


def test_captured_function_is_given_by_the_user(captured: Captured, racing: Capture) -> None:
    def racing_call(self: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
        return self.index_put(indices, values, accumulate=accumulate)

    proof = prove_fix(racing, reversed_adds, call=racing_call, trials=10, threads=4)
    assert proof.verdict is FixVerdict.HOLDS


def test_interrupt_keeps_the_trials_so_far(captured: Captured) -> None:
    made = []

    def stops(self: torch.Tensor) -> torch.Tensor:
        made.append(1)
        if len(made) == 5:
            raise KeyboardInterrupt
        return -self

    proof = prove_fix(captured(aten.neg.default, torch.ones(3)), stops, trials=10)
    assert any("stopped by the user" in problem for problem in proof.problems)
    assert proof.fixed.trials == 4


@pytest.mark.parametrize(
    ("fix", "sentence"),
    [
        ({}, "is no fix"),
        (3, "is no fix"),
        ({"fans": 2}, "cannot set that"),
        ({"load": True}, "no setting that a fix can be"),
        (Condition(name="nothing"), "no setting that a fix can be"),
    ],
)
def test_what_is_no_fix_is_refused(captured: Captured, fix: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        prove_fix(captured(aten.neg.default, torch.ones(3)), fix, trials=2)


def test_one_trial_and_a_call_that_must_not_run_are_refused(captured: Captured) -> None:
    capture = captured(torch.ops.prims.neg.default, torch.ones(3))
    with pytest.raises(InputError, match="nothing to differ from"):
        prove_fix(capture, torch.neg, trials=1)
    with pytest.raises(CaptureError, match="not one of torch's own"):
        prove_fix(capture, torch.neg, trials=2)
