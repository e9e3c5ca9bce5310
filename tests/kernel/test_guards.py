"""The guard of a function fails on a real race, a silent write and leftover state, and names where."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from detlab.errors import InputError
from detlab.kernel import Condition
from detlab.testing import assert_bitwise_repeatable
from detlab.testing.difference import find_difference

pytest_plugins = ["pytester"]

FOUR_THREADS = [{"threads": 4}]


def failure_of(check: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as failure:
        check(*args, **kwargs)
    return str(failure.value)


def adds(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    index = torch.randint(0, 1000, (1_000_000,), generator=torch.Generator().manual_seed(1))
    return torch.zeros(1000), index, values


def floats() -> torch.Tensor:
    return torch.randn(1_000_000, generator=torch.Generator().manual_seed(1))


def accumulate(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return table.index_put((index,), values, accumulate=True)


class Once:
    """A call that gives other bits from its second time on: what a cache or a counter does."""

    def __init__(self, first: torch.Tensor, later: torch.Tensor) -> None:
        self.results = [first, later]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


def test_racing_kernel_is_caught_and_the_message_names_the_element_and_the_distance() -> None:
    message = failure_of(assert_bitwise_repeatable, accumulate, *adds(floats()), conditions=FOUR_THREADS)
    assert re.search(r"\d+ distinct results of the same inputs in 20 trials \(4 threads\)", message)
    assert re.search(r"output \(float32\[1000\]\) differs from trial 1 in \d+ of 20 trials", message)
    assert re.search(r"element \[\d+\] is -?[\d.]+ and was -?[\d.]+, [\d,]+ ULP apart", message)
    assert re.search(r"of 1,000 elements differ, by up to [\d,]+ ULP", message)


@pytest.mark.gpu
def test_racing_kernel_on_a_device_is_caught() -> None:
    table, index, values = (tensor.cuda() for tensor in adds(floats()))
    message = failure_of(assert_bitwise_repeatable, torch.index_add, table, 0, index, values)
    assert re.search(r"output \(float32\[1000\]\) differs from trial 1 in \d+ of 20 trials", message)
    assert "(cuda:0)" in message
    assert assert_bitwise_repeatable(torch.neg, values, conditions=["baseline", "competing load"])


def test_quiet_kernel_passes_with_its_bound() -> None:
    (row,) = assert_bitwise_repeatable(accumulate, *adds(floats()), conditions=[{"threads": 1}])
    assert (row.name, row.trials, row.distinct) == ("1 thread", 20, 1)
    assert row.upper_bound_95 == pytest.approx(0.139, abs=1e-3)


def test_each_condition_has_trials_of_its_own_and_everything_is_put_back() -> None:
    before = torch.get_num_threads()
    conditions = [{"threads": 3, "deterministic": True}, {"threads": 1}]
    rows = assert_bitwise_repeatable(torch.neg, torch.ones(3), trials=2, conditions=conditions)
    assert [row.name for row in rows] == ["3 threads, use_deterministic_algorithms", "1 thread"]
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_named_conditions_of_a_replay_are_conditions_of_a_guard() -> None:
    conditions = [
        "1 thread",
        "competing load",
        "mkldnn off",
        {"load": False},
        Condition(name="mine", trials=3),
    ]
    rows = assert_bitwise_repeatable(torch.neg, torch.ones(3), trials=2, conditions=conditions)
    assert [(row.name, row.trials) for row in rows[:3]] == [
        ("1 thread", 2),
        ("competing load", 2),
        ("mkldnn off", 2),
    ]
    assert (rows[4].name, rows[4].trials) == ("mine", 3)
    assert torch.backends.mkldnn.enabled


def test_memory_that_nobody_wrote_shows_when_it_is_poisoned_in_two_ways() -> None:
    def forgets_the_last(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(50_000)
        out[:-1] = x[:-1]
        return out

    conditions = ["poisoned with nan", "poisoned with zeros"]
    message = failure_of(
        assert_bitwise_repeatable,
        forgets_the_last,
        torch.ones(50_000),
        trials=3,
        conditions=conditions,
        same_across_conditions=True,
    )
    assert "element [49999] is 0.0 and was nan; 1 of 50,000 elements differ" in message
    assert "trial 1: poisoned with nan; trial 2: poisoned with zeros" in message


def test_sum_that_depends_on_the_threads_differs_across_conditions_alone() -> None:
    values = torch.randn(10_000_000, generator=torch.Generator().manual_seed(0))
    conditions = [{"threads": 1}, {"threads": 2}, {"threads": 4}]
    assert len(assert_bitwise_repeatable(torch.sum, values, trials=2, conditions=conditions)) == 3
    message = failure_of(
        assert_bitwise_repeatable,
        torch.sum,
        values,
        trials=2,
        conditions=conditions,
        same_across_conditions=True,
    )
    assert "trial 1: 1 thread; trial 2: 2 threads; trial 3: 4 threads" in message


def test_silently_mutated_argument_is_caught() -> None:
    def scale(x: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        weights["w"][1] = 2.0
        return x * weights["w"]

    x, weight = torch.ones(3), torch.ones(3)
    message = failure_of(assert_bitwise_repeatable, scale, x, {"w": weight})
    assert message.startswith("the call changes its argument weights['w'] (float32[3])")
    assert "element [1] is 2.0 and was 1.0" in message
    assert "say mutates=['weights']" in message
    assert weight.tolist() == [1.0, 1.0, 1.0]
    assert assert_bitwise_repeatable(scale, x, {"w": weight}, trials=2, mutates=["weights"])


def test_mutated_argument_is_compared_and_put_back() -> None:
    table, index, values = adds(floats())
    call = torch.ops.aten.index_put_.default
    for name in ("self", 0):
        message = failure_of(
            assert_bitwise_repeatable,
            call,
            table,
            [index],
            values,
            True,
            mutates=[name],
            conditions=FOUR_THREADS,
        )
        assert "argument self (float32[1000]) differs from trial 1" in message
    assert not table.any()


def test_argument_that_changes_its_size_is_put_back() -> None:
    x, view = torch.ones(3), torch.arange(6.0)[2:4]
    assert_bitwise_repeatable(
        lambda a, b: (a.resize_(7).fill_(2.0), b.t_()), x, view, trials=3, mutates=["a"]
    )
    assert (x.tolist(), view.tolist(), view.storage_offset()) == ([1.0, 1.0, 1.0], [2.0, 3.0], 2)


def test_view_of_a_mutated_argument_may_change_with_it() -> None:
    x = torch.ones(4)
    assert_bitwise_repeatable(
        lambda out, view: out.mul_(2.0 + 0 * view.sum()), x, x[1:3], trials=2, mutates=["out"]
    )


def test_generators_are_restored_so_that_dropout_passes() -> None:
    generator = torch.Generator().manual_seed(3)

    def draws(x: torch.Tensor, given: torch.Generator) -> tuple[object, ...]:
        mask = torch.nn.functional.dropout(x, 0.5)
        return mask, torch.rand(4, generator=given), random.random(), float(np.random.rand())  # noqa: S311

    torch.manual_seed(5)
    before = torch.get_rng_state(), generator.get_state()
    assert_bitwise_repeatable(draws, torch.ones(64), generator, trials=3)
    assert [state.tolist() for state in before] == [
        torch.get_rng_state().tolist(),
        generator.get_state().tolist(),
    ]


def test_state_elsewhere_is_restored_when_named() -> None:
    tracker = {"state": 1.0}

    def draw() -> float:
        tracker["state"] *= 0.5
        return tracker["state"]

    assert "output (float64[]) differs" in failure_of(assert_bitwise_repeatable, draw, trials=2)
    pair = (lambda: dict(tracker), tracker.update)
    assert assert_bitwise_repeatable(draw, trials=2, more_state=[pair])


def test_gradients_that_the_call_leaves_are_compared_and_taken_away() -> None:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight.grad = torch.ones(64, 64)
    index = torch.randint(0, 64, (40_000,), generator=torch.Generator().manual_seed(1))
    upstream = torch.randn(40_000, 64, generator=torch.Generator().manual_seed(2))

    def backward(table: torch.Tensor) -> None:
        table[index].backward(upstream)

    message = failure_of(assert_bitwise_repeatable, backward, weight, conditions=FOUR_THREADS)
    assert "gradient of table (float32[64, 64]) differs" in message
    assert weight.grad is not None
    assert weight.grad.unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("first", "later", "sentence"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "is -0.0 and was 0.0, another sign of zero"),
        (
            torch.tensor([1.0, 2.0]),
            torch.tensor([1.0, float("nan")]),
            "element [1] is nan and was 2.0; 1 of 2",
        ),
        (torch.ones(2, 3), torch.ones(3, 2), "it is float32[3, 2] and was float32[2, 3]"),
        (torch.ones(2), torch.ones(2).double(), "it is float64[2] and was float32[2]"),
        (torch.tensor(True), torch.tensor(False), "the one element is False and was True; 1 of 1"),
        (torch.tensor([3, 4]), torch.tensor([3, 5]), "element [1] is 5 and was 4; 1 of 2 elements differ"),
        (torch.tensor([1.0]).bfloat16(), torch.tensor([1.0078125]).bfloat16(), "1 ULP apart"),
        (torch.tensor([1.0]).to(torch.float8_e4m3fn), torch.tensor([1.25]).to(torch.float8_e4m3fn), "2 ULP"),
    ],
    ids=str,
)
def test_bits_decide_and_the_message_says_how(
    first: torch.Tensor, later: torch.Tensor, sentence: str
) -> None:
    message = failure_of(assert_bitwise_repeatable, Once(first, later), torch.ones(1), trials=3)
    assert sentence in message
    assert "in 2 of 3 trials, 2 distinct; in trial 2" in message


def test_payload_of_a_nan_and_packed_values_are_told_by_their_bytes() -> None:
    a, b = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC01234, 0x7FC01235))
    assert "is nan (0x7fc01235) and was nan (0x7fc01234); 1 of 1" in str(find_difference(a, b))
    x, y = (torch.tensor([byte], dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for byte in (1, 2))
    assert "is a packed pair (0x02) and was a packed pair (0x01)" in str(find_difference(x, y))
    part = find_difference(torch.tensor([1 + 1j]), torch.tensor([1 + 1.0000001j]))
    assert "1 ULP apart" in str(part)
    assert find_difference(a, a.clone()) is None


def test_result_that_comes_or_goes_is_a_difference() -> None:
    results = iter([{"a": torch.ones(1)}, {"b": torch.ones(1)}])
    message = failure_of(assert_bitwise_repeatable, lambda: next(results), trials=2)
    assert "output['a'] (float32[1]) differs from trial 1 in 1 of 2 trials" in message
    assert "it is not there" in message
    assert "output['b'] differs" in message


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), trials=1), "nothing to differ from"),
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), conditions=[]), "No condition"),
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), mutates=["out"]), "no argument"),
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), mutates=[7]), "no argument"),
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), conditions=[{"fans": 2}]), "'fans'"),
        (
            lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), conditions="fresh process"),
            "cannot have",
        ),
        (
            lambda: assert_bitwise_repeatable(torch.neg, torch.ones(1), conditions=["fans"]),
            "no condition is named",
        ),
        (lambda: assert_bitwise_repeatable(object), "is a object, whose bits cannot"),
        (lambda: assert_bitwise_repeatable(torch.neg, torch.ones(2).to_sparse()), "cannot be held"),
    ],
)
def test_what_can_show_nothing_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()


def test_fixture_works_in_a_run_of_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = pytester.mkdir("installed") / "plugin-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[pytest11]\ndetlab = detlab.testing.plugin\n")
    monkeypatch.setenv("PYTHONPATH", str(installed.parent), prepend=os.pathsep)
    pytester.makepyfile(
        """
        import torch

        def test_quiet(bitwise_repeatable):
            bitwise_repeatable(torch.neg, torch.ones(3))

        def test_leaking(bitwise_repeatable):
            total = torch.zeros(1)
            bitwise_repeatable(lambda x: total.add_(x).clone(), torch.ones(1))
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E*AssertionError: not bitwise repeatable: 20 distinct results of the same*"]
    )
