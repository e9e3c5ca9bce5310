"""What replay refuses to run, each with a sentence, and what it leaves behind when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.errors import CaptureError, InputError
from detlab.kernel import replay

aten = torch.ops.aten
Captured = Callable[..., Capture]


def edited(capture: Capture, **changes: Any) -> Capture:
    """Give a capture whose JSON was changed; what a hostile or a foreign file would hold."""
    return Capture.from_json({**capture.to_json(), **changes}, capture.path)


def with_argument(capture: Capture, name: str, value: object) -> Capture:
    """Give a capture with another value of one argument."""
    content: Any = capture.to_json()["arguments"]
    return edited(capture, arguments=[a | {"value": value} if a["name"] == name else a for a in content])


@pytest.fixture
def negation(captured: Captured) -> Capture:
    return captured(aten.neg.default, torch.ones(3))


def state_of_torch() -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_rng_state().tolist(),
    )


def test_inputs_of_another_digest(negation: Capture) -> None:
    digests: Any = negation.to_json()["digests"]
    hostile = edited(negation, digests={**digests, "inputs": ["0" * 16]})
    with pytest.raises(CaptureError, match="does not restore to its captured digests"):
        replay(hostile)


def test_blob_that_changes_after_loading(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.tensor([1.25, 2.5]))
    (blob,) = capture.path.glob("*.bin")
    blob.write_bytes(bytes(8))
    with pytest.raises(CaptureError, match="does not restore to its captured digests"):
        replay(capture)


def test_tensor_larger_than_its_storage(negation: Capture) -> None:
    arguments: Any = negation.to_json()["arguments"]
    arguments[0]["value"]["tensor"] |= {"shape": [4]}
    with pytest.raises(CaptureError, match="larger than its storage"):
        replay(edited(negation, arguments=arguments))


def test_dtype_that_torch_does_not_have(negation: Capture) -> None:
    arguments: Any = negation.to_json()["arguments"]
    arguments[0]["value"]["tensor"] |= {"dtype": "load"}
    with pytest.raises(CaptureError, match="torch has no dtype 'load'"):
        replay(edited(negation, arguments=arguments))


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        ("aten.negg.default", "not registered"),
        ("aten.save.default", "not registered"),  # known to TorchScript only, writes a file
        ("aten.neg.nosuch", "not registered"),
        ("c10d.allreduce_.default", "communicates"),
        ("_c10d_functional.all_reduce.default", "communicates"),
        ("os.system.default", "not one of torch's own"),
        ("prims.neg.default", "not one of torch's own"),
    ],
)
def test_op_that_is_not_to_be_run(negation: Capture, op: str, sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        replay(edited(negation, op=op))


@pytest.mark.parametrize("func", [aten.from_file.default, aten.from_file.out], ids=str)
def test_op_that_reads_files(negation: Capture, func: torch._ops.OpOverload) -> None:
    with pytest.raises(CaptureError, match="reads or writes files"):
        replay(edited(negation, op=str(func), op_schema=str(func._schema)))


def test_op_that_only_acts_on_the_process(negation: Capture) -> None:
    func = aten._print.default
    with pytest.raises(CaptureError, match="nothing to compare"):
        replay(edited(negation, op=str(func), op_schema=str(func._schema)))


def test_communication_is_refused_also_when_allowed(negation: Capture) -> None:
    with pytest.raises(CaptureError, match="communicates"):
        replay(edited(negation, op="c10d.allreduce_.default"), allow=["c10d"])


def test_other_namespace_runs_on_the_users_word(captured: Captured) -> None:
    capture = captured(torch.ops.prims.neg.default, torch.tensor([0.5]))
    with pytest.raises(CaptureError, match="allow="):
        replay(capture)
    assert replay(capture, trials=2, allow=["prims"]).num_distinct == 1


def test_schema_that_has_changed_says_both(negation: Capture) -> None:
    old = "aten::neg(Tensor self, int more) -> Tensor"
    with pytest.raises(CaptureError) as refusal:
        replay(edited(negation, op_schema=old))
    assert old in refusal.value.finding
    assert str(aten.neg.default._schema) in refusal.value.finding


def test_device_that_is_not_here_needs_the_users_word(negation: Capture) -> None:
    storages: Any = negation.to_json()["storages"]
    elsewhere = edited(negation, storages=[{**storages[0], "device": "cuda:77"}])
    with pytest.raises(CaptureError, match="no cuda:77"):
        replay(elsewhere)
    report = replay(elsewhere, trials=2, device="cpu")
    assert report.num_distinct == 1
    assert "training called it on cuda:77, this replay on cpu" in report.problems


def test_generator_cannot_move_to_another_device(captured: Captured) -> None:
    capture = captured(aten.bernoulli_.float, torch.zeros(4), 0.5)
    content: Any = capture.to_json()
    content["storages"][0]["device"] = content["generators"][0]["device"] = "cuda:77"
    with pytest.raises(CaptureError, match="cannot move"):
        replay(Capture.from_json(content, capture.path), device="cpu")


@pytest.mark.parametrize("count", [{"trials": 0}, {"trials": -1}, {"threads": 0}], ids=str)
def test_counts_below_one(negation: Capture, count: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"trials|threads"):
        replay(negation, **count)  # type: ignore[arg-type]


def test_failing_op_is_a_refusal_and_leaves_torch_as_it_was(captured: Captured) -> None:
    capture = captured(aten.sum.dim_IntList, torch.ones(2, 3), [0])
    broken = with_argument(capture, "dim", {"list": [7]})
    before = state_of_torch()
    with pytest.raises(CaptureError, match="raised IndexError"):
        replay(broken, threads=before[0] + 1, deterministic=True)  # type: ignore[operator]
    assert state_of_torch() == before


@pytest.mark.parametrize("device", ["tpu", "cuda:one", "meta"])
def test_device_that_replay_does_not_know(negation: Capture, device: str) -> None:
    with pytest.raises(CaptureError, match=f"no {device}"):
        replay(negation, device=device)
