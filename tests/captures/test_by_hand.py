"""A call captured by hand gives again what it gave, and no file ever says which function to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import detlab as dl
from detlab.errors import CaptureError, InputError

aten = torch.ops.aten


def launch(values: torch.Tensor, index: torch.Tensor, out: torch.Tensor, *, scale: float = 1.0) -> None:
    """Stand in for a kernel's launcher: returns nothing and writes into an argument."""
    out.index_put_([index], values * scale, accumulate=True)


def shaped(values: torch.Tensor, part: slice, by_name: dict[str, torch.Tensor], *rest: Any) -> dict[str, Any]:
    """Take what no op takes: a slice, a dictionary, and arguments without a name."""
    return {"sum": values[part] + by_name["b"], "rest": [part.stop, *rest]}


class Square(torch.autograd.Function):
    """An autograd function whose backward is its own."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return values * values

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (values,) = ctx.saved_tensors
        return 2 * values * gradient


def forward_and_backward(values: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    squared = Square.apply(values)
    return squared, *torch.autograd.grad(squared, values, gradient)


def drop(values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(values, 0.5)


@torch.library.custom_op("detlab_test_by_hand::twice", mutates_args=())
def twice(values: torch.Tensor) -> torch.Tensor:
    return values * 2


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def matches(capture: dl.Capture, **options: Any) -> bool:
    """Say whether a replay gives the recorded result and nothing else."""
    report = dl.replay(capture, trials=3, **options)
    return report.traced_output_seen is True and report.num_distinct == 1


def test_launcher_is_replayed_with_what_it_writes(tmp_path: Path) -> None:
    out = torch.zeros(4)
    capture = dl.capture(
        launch, randn(3), torch.tensor([0, 1, 1]), out, mutates=["out"], path=tmp_path, scale=0.1
    )
    assert (capture.mutates, capture.num_positional) == (("out",), 3)
    assert matches(capture, call=launch)
    assert out.tolist() == [0] * 4  # the arguments stay as they are


def test_write_that_nobody_named_is_found(tmp_path: Path) -> None:
    capture = dl.capture(launch, randn(3), torch.tensor([0, 1, 1]), torch.zeros(4), path=tmp_path)
    assert capture.mutates == ("out",)
    assert matches(capture, call=launch)


def test_position_names_a_mutated_argument(tmp_path: Path) -> None:
    capture = dl.capture(
        launch, randn(3), torch.tensor([0, 1, 1]), torch.zeros(4), path=tmp_path, mutates=[2]
    )
    assert capture.mutates == ("out",)


def test_arguments_that_no_op_takes_survive(tmp_path: Path) -> None:
    arguments = (randn(5), slice(None, 3), {"a": randn(2), "b": randn(3)}, None, 0.1, torch.bfloat16)
    capture = dl.capture(lambda *given: shaped(*given[:3], given[4]), *arguments, path=tmp_path)
    assert [name for name, _ in capture.arguments][:2] == ["argument 0", "argument 1"]
    assert matches(capture, call=lambda *given: shaped(*given[:3], given[4]))


def test_autograd_function_is_replayed_forward_and_backward(tmp_path: Path) -> None:
    capture = dl.capture(forward_and_backward, randn(5).requires_grad_(), randn(5), path=tmp_path)
    assert len(capture.output_digests) == 2
    assert matches(capture, call=forward_and_backward)


def test_apply_of_an_autograd_function_is_named_after_it(tmp_path: Path) -> None:
    capture = dl.capture(Square.apply, randn(5), path=tmp_path)
    assert capture.op == f"{__name__}:Square.apply"
    assert matches(capture, call=Square.apply)


def test_op_of_torch_library_runs_on_the_users_word(tmp_path: Path) -> None:
    capture = dl.capture(twice, randn(5), path=tmp_path)
    assert capture.op == "detlab_test_by_hand.twice.default"
    with pytest.raises(CaptureError, match="allow="):
        dl.replay(capture)
    assert matches(capture, allow=["detlab_test_by_hand"])


def test_op_of_torch_needs_no_word(tmp_path: Path) -> None:
    assert matches(dl.capture(aten.mm.default, randn(3, 3), randn(3, 3), path=tmp_path))
    with pytest.raises(InputError, match="has the overloads"):
        dl.capture(aten.add, randn(3), 1, path=tmp_path / "other")


def test_random_function_draws_the_same_again_and_leaves_the_generator(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    capture = dl.capture(drop, randn(64), path=tmp_path)
    assert before.tolist() == torch.get_rng_state().tolist()
    torch.rand(3)
    assert matches(capture, call=drop)


def test_autocast_is_part_of_the_call(tmp_path: Path) -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    with torch.autocast("cpu", torch.bfloat16):
        capture = dl.capture(product, randn(8, 8), randn(8, 8), path=tmp_path)
    assert capture.state["autocast"] == "bfloat16"
    assert matches(capture, call=product)


def test_function_is_never_run_without_the_users_word(tmp_path: Path) -> None:
    capture = dl.capture(drop, randn(4), path=tmp_path)
    with pytest.raises(CaptureError, match="no file may name what to run") as refusal:
        dl.replay(capture)
    assert "call=" in refusal.value.hint


def test_call_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    with pytest.raises(CaptureError, match="raised RuntimeError"):
        dl.capture(torch.mm, randn(2, 3), randn(2, 3), path=folder)
    assert not folder.exists()


def test_call_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nothing to compare"):
        dl.capture(lambda values: None, randn(3), path=tmp_path / "capture")


def test_mutates_must_name_an_argument(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mutates names 'output'"):
        dl.capture(drop, randn(3), mutates=["output"], path=tmp_path)


def test_module_is_no_argument(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="argument values is of type Linear"):
        dl.capture(drop, torch.nn.Linear(2, 2), path=tmp_path)


def test_fresh_process_gives_the_same(tmp_path: Path) -> None:
    dl.capture(forward_and_backward, randn(5).requires_grad_(), randn(5), path=tmp_path)
    code = (
        "import sys, detlab as dl\n"
        "from tests.captures.test_by_hand import forward_and_backward\n"
        "report = dl.replay(dl.load_capture(sys.argv[1]), call=forward_and_backward, trials=3)\n"
        "print(report.traced_output_seen, report.num_distinct)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "True 1\n"


def test_capture_by_hand_leaves_no_event_in_an_open_recording(tmp_path: Path) -> None:
    with dl.Recorder(tmp_path / "run"):
        randn(3).neg()
        dl.capture(forward_and_backward, randn(5).requires_grad_(), randn(5), path=tmp_path / "capture")
    with dl.Recorder(tmp_path / "same"):
        randn(3).neg()
        randn(5), randn(5)
    assert dl.compare(tmp_path / "run", tmp_path / "same").exit_code == 0


def test_function_runs_in_a_fresh_process_where_that_can_import_it(tmp_path: Path) -> None:
    capture = dl.capture(launch, randn(3), torch.tensor([0, 1, 1]), torch.zeros(4), path=tmp_path)
    report = dl.replay(capture, call=launch, trials=2, isolate=True)
    assert (report.traced_output_seen, report.num_distinct) == (True, 1)
