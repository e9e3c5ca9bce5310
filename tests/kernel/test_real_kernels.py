"""Real kernels, that really race or do not; chance is tried again until it shows, within a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.kernel import ReplayClass, ReplayReport, replay
from detlab.kernel.by_hand import capture as capture_by_hand

aten = torch.ops.aten
Captured = Callable[..., Capture]

NUM_ADDS, NUM_ROWS = 1_000_000, 1000
MAX_TRIES = 10
"""So many replays of 20 trials may show nothing; measured, more than 9 of 10 trials differ in each."""


def replay_until(seen: ReplayClass, capture: Capture, **options: Any) -> ReplayReport:
    """Replay again and again until the report is of a class; give the last report."""
    for _ in range(MAX_TRIES):
        report = replay(capture, trials=20, **options)
        if report.outcome is seen:
            break
    return report


def rows_and_values() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, NUM_ROWS, (NUM_ADDS,), generator=generator)
    return index, torch.randn(NUM_ADDS, generator=generator)


# --- float adds that several threads make in no order ------------------------------------------------------


def test_index_put_with_a_million_adds_races_with_four_threads(racing: Capture) -> None:
    report = replay_until(ReplayClass.RACE, racing, threads=4)
    assert report.outcome is ReplayClass.RACE
    assert report.num_distinct >= 2
    assert report.conditions[0].trials == 20
    assert report.conditions[0].modal_share < 1.0


@pytest.mark.parametrize("held", [{"threads": 1}, {"threads": 4, "deterministic": True}], ids=str)
def test_index_put_gives_one_result_where_its_order_is_fixed(racing: Capture, held: dict[str, Any]) -> None:
    report = replay(racing, trials=20, **held)
    assert (report.outcome, report.num_distinct) == (ReplayClass.NOT_SEEN, 1)


def test_backward_of_a_lookup_of_float_rows_races(captured: Captured) -> None:
    index = torch.randint(0, 16, (20_000,), generator=torch.Generator().manual_seed(1))
    weight = torch.zeros(16, 64, requires_grad=True)
    gradient = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(2))
    capture = captured(aten.index_put.default, torch.zeros_like(weight), [index], gradient, True)
    assert replay_until(ReplayClass.RACE, capture, threads=4).outcome is ReplayClass.RACE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_index_put_of_another_precision_is_not_seen_to_race(captured: Captured, dtype: torch.dtype) -> None:
    index, values = rows_and_values()
    zeros = torch.zeros(NUM_ROWS, dtype=dtype)
    capture = captured(aten.index_put_.default, zeros, [index], values.to(dtype), True)
    assert replay(capture, trials=20, threads=4).outcome is ReplayClass.NOT_SEEN


def test_index_add_is_not_seen_to_race_and_the_report_gives_the_bound(captured: Captured) -> None:
    index, values = rows_and_values()
    report = replay(captured(aten.index_add_.default, torch.zeros(NUM_ROWS), 0, index, values), threads=4)
    text = repr(report)
    assert (report.outcome, report.num_distinct) == (ReplayClass.NOT_SEEN, 1)
    assert "no mismatch in 60 trials" in text
    assert "a rate above 4.9 % is excluded at 95 %" in text
    assert "deterministic" not in text


def test_whole_numbers_hide_the_race_and_the_report_warns_of_it(captured: Captured) -> None:
    index, values = rows_and_values()
    capture = captured(aten.index_put_.default, torch.zeros(NUM_ROWS), [index], values.round(), True)
    report = replay(capture, trials=20, threads=4)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert "whole numbers" in repr(report)


# --- a compiled kernel with atomics ------------------------------------------------------------------------

INDUCTOR_LOADS_WHAT_TORCH_DEPRECATED = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script:DeprecationWarning"
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., torch.Tensor]]:
    """Compile an accumulating index_put with inductor, whose C++ adds with atomics."""
    from torch._inductor import config
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:  # CI lets a skipped test fail, so there it must be
        pytest.skip("inductor finds no C++ compiler, without which it has no CPU kernel to test")

    def index_put(
        self: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
    ) -> torch.Tensor:
        return torch.index_put(self, indices, values, accumulate)

    with pytest.MonkeyPatch.context() as patch, config.patch(compile_threads=1):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield torch.compile(index_put, fullgraph=True)
        torch.compiler.reset()


@INDUCTOR_LOADS_WHAT_TORCH_DEPRECATED
def test_compiled_kernel_with_atomics_races_and_does_not_with_one_thread(
    captured: Captured, compiled: Callable[..., torch.Tensor]
) -> None:
    index, values = rows_and_values()
    capture = captured(aten.index_put.default, torch.zeros(NUM_ROWS), [index], values, True)
    report = replay_until(ReplayClass.RACE, capture, call=compiled, threads=4)
    assert report.outcome is ReplayClass.RACE
    assert report.num_distinct >= 2
    assert replay(capture, call=compiled, trials=20, threads=1).num_distinct == 1


# --- memory that nobody wrote ------------------------------------------------------------------------------


def test_empty_is_memory_that_nobody_wrote(captured: Captured) -> None:
    report = replay_until(ReplayClass.UNINITIALISED, captured(aten.empty.memory_format, [100_000]))
    assert report.outcome is ReplayClass.UNINITIALISED
    assert report.num_distinct >= 2


def rows_in_use(values: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Compute the first rows only, as a grouped product does with room for more tokens than it is given."""
    out = torch.empty_like(values)
    torch.mul(values[:num_rows], 2.0, out=out[:num_rows])
    return out


def test_rows_that_a_kernel_leaves_unwritten_show_when_memory_is_filled(tmp_path: Path) -> None:
    values = torch.randn(704, 128, generator=torch.Generator().manual_seed(1))
    made = capture_by_hand(rows_in_use, values, 698, path=tmp_path / "capture")
    report = replay(
        made, call=rows_in_use, conditions=["poisoned with zeros", "poisoned with nan"], trials=20
    )
    assert report.outcome is ReplayClass.UNINITIALISED, repr(report)
    assert report.decided_by == ("poisoned with zeros", "poisoned with nan")
    assert report.outputs[0].elements_different == 768  # the six rows of 128 that nothing writes


def test_rows_that_are_all_written_do_not_depend_on_what_memory_held(tmp_path: Path) -> None:
    values = torch.randn(704, 128, generator=torch.Generator().manual_seed(1))
    made = capture_by_hand(rows_in_use, values, 704, path=tmp_path / "capture")
    report = replay(
        made, call=rows_in_use, conditions=["poisoned with zeros", "poisoned with nan"], trials=20
    )
    assert report.outcome is ReplayClass.NOT_SEEN, repr(report)


# --- a choice that the number of threads makes -------------------------------------------------------------

THREADS = ["1 thread", "2 threads", "4 threads"]


def million_floats(seed: int) -> tuple[Any, ...]:
    return (torch.randn(1_000_000, generator=torch.Generator().manual_seed(seed)),)


def layer_norm_backward(seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    gradient, values = (torch.randn(4096, 256, generator=generator) for _ in range(2))
    mean, var = values.mean(1, keepdim=True), values.var(1, keepdim=True, correction=0)
    return gradient, values, [256], mean, (var + 1e-5).rsqrt(), torch.ones(256), torch.zeros(256), [True] * 3


CHOICES = {
    "sum": (aten.sum.default, million_floats),
    "layer norm backward": (aten.native_layer_norm_backward.default, layer_norm_backward),
}


@pytest.mark.parametrize("name", CHOICES)
def test_sum_whose_order_follows_from_the_number_of_threads_is_a_selection(
    name: str, captured: Captured
) -> None:
    func, make = CHOICES[name]
    for seed in range(MAX_TRIES):  # the roundings of two orders may agree by chance
        report = replay(captured(func, *make(seed)), conditions=THREADS, trials=20)
        assert [row.distinct for row in report.conditions] == [1, 1, 1]  # no race within any
        if report.outcome is ReplayClass.SELECTION:
            break
    assert report.outcome is ReplayClass.SELECTION, repr(report)


def test_kernel_that_splits_no_sum_gives_one_result_with_any_number_of_threads(captured: Captured) -> None:
    values = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    report = replay(captured(aten._softmax.default, values, -1, False), conditions=THREADS, trials=20)
    assert report.outcome is ReplayClass.NOT_SEEN, repr(report)


def test_race_is_told_from_the_choices_around_it(racing: Capture) -> None:
    asked = ["1 thread", "4 threads", "deterministic algorithms"]
    report = replay_until(ReplayClass.RACE, racing, conditions=asked)
    assert report.outcome is ReplayClass.RACE, repr(report)
    assert report.decided_by[0] != "1 thread"
    rows = {row.name: row.distinct for row in report.conditions}
    assert (rows["1 thread"], rows["deterministic algorithms"]) == (1, 1)
    assert rows["4 threads"] >= 2
