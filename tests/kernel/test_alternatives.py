"""A captured op beside its alternatives: determinism, closeness and time of each, whatever they do."""

from __future__ import annotations

import json
import math
from importlib.resources import files

import jsonschema
import pytest
import torch

from detlab.digest import tensor_digest
from detlab.errors import CaptureError, InputError
from detlab.kernel import capture, fixed, replay
from detlab.kernel.alternatives import compare_alternatives
from detlab.kernel.alternatives.contender import order_statistics_95
from detlab.kernel.alternatives.reference import closeness
from tests.kernel.conftest import SITE

SCHEMA = json.loads(files("detlab").joinpath("schemas/alternatives.json").read_text("utf-8"))
MAX_ROUNDS = 10
aten = torch.ops.aten


@pytest.fixture(scope="module")
def adding(captured):
    """A small call that adds into its first argument and reads the second."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(50, generator=generator) for _ in range(2))
    return captured(aten.add_.Tensor, a, b)


def like_the_op(self, other, alpha=1):
    return self.add_(other)


def row(report, name):
    """The row of one contender."""
    return next(each for each in report.contenders if each.name == name)


def compare(capture, against, trials=2, **options):
    return compare_alternatives(capture, against, trials=trials, warmup=0, **options)


# --- what is told of each ----------------------------------------------------------------------------------


def test_the_op_races_and_its_alternative_repeats_is_closer_and_has_a_price(racing):
    for _ in range(MAX_ROUNDS):  # a race shows by chance
        report = compare_alternatives(racing, fixed.index_put_, trials=20, threads=4)
        op, alternative = report.contenders
        if op.distinct >= 2:
            break
    assert (op.is_captured_op, op.time.ratio, op.upper_bound_95) == (True, 1.0, None)
    assert op.distinct >= 2
    assert (alternative.name, alternative.distinct, alternative.problem) == ("index_put_", 1, "")
    assert alternative.upper_bound_95 == pytest.approx(1 - 0.05 ** (1 / 20))
    assert alternative.closeness.relative_l2 < op.closeness.relative_l2
    low, high = alternative.time.ratio_95
    assert 0 < low <= alternative.time.ratio <= high
    assert "to the same op in float64 on the CPU" in repr(report)


def test_replay_takes_alternatives_beside_its_own_trials(racing):
    report = replay(racing, trials=6, against={"sorted segments": fixed.index_put_})
    assert [each.name for each in report.alternatives.contenders] == [racing.op, "sorted segments"]
    assert "sorted segments" in repr(report)


def test_contenders_are_called_in_turns_and_each_begins_as_often(adding):
    calls = []
    against = {
        name: lambda name=name, **kw: calls.append(name) or like_the_op(**kw) for name in ("x", "y", "z")
    }
    compare(adding, against, trials=8)
    rounds = [calls[start : start + 3] for start in range(3, len(calls), 3)]  # after one look at each
    assert all(sorted(names) == ["x", "y", "z"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 2


def test_warm_up_is_said_and_not_timed(adding):
    calls = []
    against = {"x": lambda **kw: calls.append(1) or like_the_op(**kw)}
    report = compare_alternatives(adding, against, trials=2, warmup=5)
    assert len(calls) == 1 + 5 + 2
    assert row(report, "x").trials == 2
    assert "after 5 untimed calls of each" in repr(report)


def test_every_call_begins_from_the_captured_bits(adding):
    seen = set()

    def alternative(self, other):
        seen.add((tensor_digest(self), tensor_digest(other)))
        return self.add_(other)

    compare(adding, alternative, trials=5)
    assert seen == {adding.input_digests}


def test_threads_and_flags_hold_for_all_and_are_put_back(adding):
    seen = set()

    def alternative(self, other):
        seen.add((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
        return self.add_(other)

    before = torch.get_num_threads()
    report = compare(adding, alternative, threads=3, deterministic=True)
    assert seen == {(3, True)}
    assert "3 threads, use_deterministic_algorithms" in repr(report)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (before, False)


def test_progress_counts_the_rounds(adding):
    told = []
    compare(adding, like_the_op, trials=3, progress=lambda *counts: told.append(counts))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_stop_by_the_user_keeps_the_rounds_so_far(adding):
    calls = []

    def alternative(self, other):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return self.add_(other)

    report = compare(adding, alternative, trials=100)
    assert 2 <= row(report, "alternative").trials < 4
    assert report.problems == ("stopped by the user in round 3 of 100",)


# --- alternatives that cannot stand in for the op ----------------------------------------------------------


@pytest.mark.parametrize(
    ("alternative", "problem"),
    [
        (lambda self, other: self.add_(other).double(), "gives float64[50], float32[50] where the op gives"),
        (lambda self, other: self.add_(other)[:3], "gives float32[3], float32[50] where the op gives"),
        (
            lambda self, other: self.add(other),
            "gives float32[50], float32[50] where the op gives float32[50]",
        ),
        (lambda self, other: self.add_(other.zero_()), "changes other, which the op only reads"),
        (lambda self, other: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda self: self, "raised TypeError"),
        (lambda self, other: object(), "which has no bits to compare"),
    ],
)
def test_what_keeps_an_alternative_from_standing_in_is_said_in_its_row(adding, alternative, problem):
    report = compare(adding, {"it": alternative})
    assert problem in row(report, "it").problem
    assert problem in repr(report)
    assert row(report, adding.op).problem == ""


def test_one_that_fails_later_keeps_its_trials_so_far(adding):
    calls = []

    def alternative(self, other):
        calls.append(1)
        assert len(calls) < 4, "too often"
        return self.add_(other)

    found = row(compare(adding, alternative, trials=9), "alternative")
    assert (found.trials, found.distinct) == (2, 1)
    assert found.problem.startswith("raised AssertionError: too often")


def test_a_write_that_comes_late_is_found(adding):
    calls = []

    def alternative(self, other):
        calls.append(1)
        return self.add_(other.zero_() if len(calls) > 2 else other)

    found = row(compare(adding, alternative, trials=4), "alternative")
    assert found.problem == "changes other, which the op only reads"


def test_an_op_that_cannot_run_here_is_an_error(captured):
    made_with_another_shape = captured(aten.add.Tensor, torch.ones(2), torch.ones(2))
    with pytest.raises(CaptureError, match="raised ValueError: no"):
        compare(
            made_with_another_shape, like_the_op, call=lambda *a, **k: (_ for _ in ()).throw(ValueError("no"))
        )


@pytest.mark.parametrize(
    "against", [[], {}, [like_the_op, like_the_op], {"aten.add_.Tensor": like_the_op}, {"it": 3}], ids=str
)
def test_alternatives_need_names_of_their_own(adding, against):
    with pytest.raises(InputError, match="not callables of different names"):
        compare(adding, against)


@pytest.mark.parametrize("counts", [{"trials": 0}, {"trials": 1, "warmup": -1}])
def test_no_trial_is_refused(adding, counts):
    with pytest.raises(InputError, match="show nothing"):
        compare_alternatives(adding, like_the_op, **counts)


# --- the reference -----------------------------------------------------------------------------------------


def test_the_result_nearest_to_float64_is_0_ulp_from_it(adding):
    found = row(compare(adding, like_the_op), "like_the_op").closeness
    assert found.max_ulp == 0
    assert 0 < found.max_abs < 1e-6


def test_a_given_reference_gets_float64_on_the_cpu(adding):
    seen = []

    def exact(self, other):
        seen.append((self.dtype, other.dtype, self.device.type))
        return self.add_(other).add_(1)

    report = compare(adding, like_the_op, reference=exact)
    assert seen == [(torch.float64, torch.float64, "cpu")]
    assert report.reference == "to the given reference"
    assert row(report, adding.op).closeness.max_abs == pytest.approx(1)


def test_a_dtype_among_the_arguments_is_float64_as_well(captured):
    made = captured(aten.sum.default, torch.full((1000,), 0.1, dtype=torch.bfloat16), dtype=torch.bfloat16)
    report = compare(made, {"same": torch.sum})
    assert report.reference == "to the same op in float64 on the CPU"
    assert row(report, made.op).closeness.max_abs > 0.01


def test_a_random_op_has_no_reference(captured):
    report = compare(captured(aten.bernoulli_.float, torch.zeros(9), 0.5), {"it": torch.Tensor.bernoulli_})
    assert "draws random numbers" in report.reference
    assert all(each.closeness is None for each in report.contenders)


def test_a_python_function_that_draws_has_no_reference(tmp_path):
    def noisy(x):
        return x + torch.randn(3)

    made = capture(noisy, torch.ones(3), path=tmp_path / "noisy")
    report = compare(made, {"same": noisy}, call=noisy)
    assert "draws random numbers" in report.reference
    assert row(report, "same").distinct == 1


def test_an_op_on_shared_memory_has_no_reference(captured):
    memory = torch.arange(10.0)
    report = compare(captured(aten.add_.Tensor, memory[:5], memory[:5]), like_the_op)
    assert "memory that two of its arguments share" in report.reference


def test_a_reference_that_fails_or_gives_other_shapes_is_said(adding):
    failing = compare(adding, like_the_op, reference=lambda self, other: 1 / 0)
    assert failing.reference == "no float64 reference could be made: division by zero"
    other = compare(adding, like_the_op, reference=lambda self, other: self.add_(other)[:2])
    assert "it gives shapes [(2,), (50,)], the op gives [(50,)]" in other.reference


def test_an_op_without_floats_has_nothing_to_measure(captured):
    made = captured(aten.bitwise_and.Tensor, torch.arange(9), torch.arange(9))
    report = compare(made, {"it": torch.bitwise_and})
    assert all(each.closeness is None for each in report.contenders)


def test_a_python_function_is_compared_with_gradients(tmp_path):
    def gradient(x, w):
        return torch.autograd.grad((x @ w).square().sum(), w)[0]

    def by_hand(x, w):
        return 2 * (x.t() @ (x @ w))

    x, w = torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)
    made = capture(gradient, x, w, path=tmp_path / "gradient")
    report = compare(made, by_hand, call=gradient)
    assert report.reference == "to the same op in float64 on the CPU"
    assert row(report, "by_hand").problem == ""
    assert row(report, "by_hand").closeness.relative_l2 < 1e-6


def test_nan_inf_and_signed_zero_are_told_apart_from_numbers():
    nan, inf = math.nan, math.inf
    found = closeness(
        [torch.tensor([nan, nan, inf, -inf, -0.0, 1.0])],
        [torch.tensor([nan, 1.0, inf, inf, 0.0, 1.5], dtype=torch.float64)],
    )
    assert (found.max_abs, found.not_finite) == (0.5, 2)


def test_what_float64_cannot_say_overflows_into_no_number_that_json_cannot_hold():
    far = torch.tensor([1e308, 3.0], dtype=torch.float64)
    found = closeness([far], [-far])
    assert math.isfinite(found.max_abs)
    assert found.relative_l2 == pytest.approx(2, rel=0.2)


def test_a_difference_from_zero_is_no_share_of_it():
    zeros = torch.zeros(2, dtype=torch.float64)
    assert closeness([torch.ones(2)], [zeros]).relative_l2 is None
    assert closeness([torch.zeros(2)], [zeros]).relative_l2 == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_narrow_and_complex_floats_are_measured_in_their_own_ulp(dtype):
    exact = torch.tensor([1.0, -2.0, 0.5]).to(torch.complex128 if dtype.is_complex else torch.float64)
    found = closeness([exact.to(dtype)], [exact])
    assert (found.max_abs, found.max_ulp, found.relative_l2) == (0.0, 0, 0.0)


# --- numbers and documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num", "ranks"), [(5, None), (6, (1, 6)), (9, (2, 8)), (20, (6, 15)), (60, (22, 39)), (100, (40, 61))]
)
def test_the_interval_of_a_median_has_the_tabulated_ranks(num, ranks):
    """Two-sided 95 % ranks of the sign test (Conover, Practical Nonparametric Statistics, 1999, 3.2)."""
    assert order_statistics_95([float(rank) for rank in range(num, 0, -1)]) == ranks


def test_the_document_is_of_its_schema_also_for_one_that_fails(adding):
    against = {"same": like_the_op, "fails": lambda **_: 1 / 0}
    for trials in (1, 6):
        document = json.loads(json.dumps(compare(adding, against, trials=trials).to_json(), allow_nan=False))
        jsonschema.validate(document, SCHEMA)
        assert [each["name"] for each in document["contenders"]] == [adding.op, "same", "fails"]


def test_problems_of_the_run_name_the_site(adding):
    def alternative(self, other):
        raise KeyboardInterrupt

    document = compare(adding, alternative).to_json()
    jsonschema.validate(document, SCHEMA)
    assert document["problems"][0]["where"] == SITE


def test_the_frame_has_one_schema_whatever_the_contenders_did(adding):
    frames = [
        compare(adding, against, trials=trials).frame()
        for against, trials in ((like_the_op, 6), ({"fails": lambda **_: 1 / 0}, 1))
    ]
    assert frames[0].schema == frames[1].schema
    assert frames[1]["name"].to_list() == [adding.op, "fails"]
    assert frames[1]["ratio"].to_list() == [1.0, None]
