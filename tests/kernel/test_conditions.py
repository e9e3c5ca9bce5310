"""Names of conditions, what a file may say of one, and that everything that is set is put back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.captures import Capture
from detlab.captures.state import matmul_precision
from detlab.errors import CaptureError, InputError
from detlab.kernel import Condition, ReplayClass, replay
from detlab.kernel import capture as capture_call
from detlab.kernel.conditions import condition_from_json, conditions_of, named, standard
from detlab.kernel.perturb.memory import last_level_cache_bytes, poisoned
from detlab.kernel.perturb.settings import current_settings

aten = torch.ops.aten
Captured = Callable[..., Capture]


def names(asked: object, device: str = "cpu") -> list[str]:
    return [condition.name for condition in conditions_of(asked, device)]


def test_names_mean_what_they_say() -> None:
    assert named("8 threads", "cpu") == [Condition(name="8 threads", threads=8)]
    assert named("Cold  Caches", "cpu") == [Condition(name="cold caches", caches="cold")]
    assert named("poisoned", "cpu")[0].poison == "nan"
    assert named("cuBLAS workspace :16:8", "cuda")[0].env == (("CUBLAS_WORKSPACE_CONFIG", ":16:8"),)
    assert [c.offset_bytes for c in named("allocation offsets", "cpu")] == [16, 64, 256]


@pytest.mark.parametrize(
    ("name", "near"),
    [("competing lode", "'competing load'"), ("2 treads", "'N threads'"), ("#", "all are in")],
)
def test_unknown_name_gives_the_nearest_and_where_all_stand(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"no condition is named '{name}'") as refusal:
        conditions_of([name], "cpu")
    assert near in refusal.value.hint
    assert refusal.value.hint.endswith("in detlab.kernel.conditions.NAMES")
    assert len(refusal.value.hint) < 200


@pytest.mark.parametrize("asked", [[], 3, [3], ["0 threads"], {"baseline": 0}, {"baseline": True}], ids=str)
def test_conditions_that_are_none(asked: object) -> None:
    with pytest.raises(InputError):
        conditions_of(asked, "cpu")


def test_each_condition_may_have_its_own_number_of_trials() -> None:
    found = conditions_of({"baseline": 200, "fresh process": 20}, "cpu")
    assert [(c.name, c.trials) for c in found] == [("baseline", 200), ("fresh process", 20)]


def test_one_name_cannot_mean_two_conditions() -> None:
    mine = Condition(name="baseline", threads=2)
    with pytest.raises(InputError, match="two conditions are named 'baseline'"):
        conditions_of([mine, "baseline"], "cpu")


def test_what_exists_on_a_gpu_only_is_standard_there_only() -> None:
    cpu, cuda = ([c.name for c in standard(device)] for device in ("cpu", "cuda"))
    assert "1 thread" in cpu
    assert "mkldnn off" in cpu
    assert not [name for name in cpu if "blas" in name or "cudnn" in name]
    assert {"cudnn benchmark on", "cublas workspace :16:8", "tf32 off"} <= set(cuda)
    assert not [name for name in cuda if "thread" in name]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_condition_survives_json(device: str) -> None:
    for condition in standard(device):
        assert condition_from_json(json.loads(json.dumps(condition.to_json()))) == condition


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"name": 3},
        {"name": "x", "import": "os"},
        {"name": "x", "env": [["LD_PRELOAD", "evil.so"]]},
        {"name": "x", "env": [["PYTHONPATH", "."]]},
        {"name": "x", "env": [["OMP_TOOL_LIBRARIES", "evil.so"]]},
        {"name": "x", "env": "OMP_NUM_THREADS=1"},
        {"name": "x", "threads": "4"},
        {"name": "x", "threads": True},
        {"name": "x", "threads": 10**9},
        {"name": "x", "deterministic": 1},
        {"name": "x", "device": 3},
        {"name": "x", "poison": "evil"},
        {"name": "x", "poison": ["nan"]},
        {"name": "x", "caches": "boiling"},
        {"name": "x", "offset_bytes": -16},
        {"name": "x", "offset_bytes": 3},
        {"name": "x", "float32_matmul_precision": "none"},
        {"name": "x", "trials_per_process": 0},
    ],
    ids=str,
)
def test_hostile_condition_is_refused(body: object) -> None:
    with pytest.raises(InputError):
        condition_from_json(body)


ALL_FLAGS = Condition(
    name="all flags",
    threads=3,
    deterministic=True,
    fill_memory=False,
    float32_matmul_precision="medium",
    mkldnn=False,
    cudnn_benchmark=True,
    tf32=False,
)


def test_settings_are_put_back_after_every_condition(captured: Captured) -> None:
    before = current_settings()
    replay(
        captured(aten.neg.default, torch.ones(3)), trials=2, conditions=[ALL_FLAGS, "poisoned", "1 thread"]
    )
    assert current_settings() == before


def test_settings_are_set_while_the_trials_are_made(captured: Captured) -> None:
    seen = []
    capture = captured(aten.neg.default, torch.ones(3))
    replay(capture, trials=1, conditions=ALL_FLAGS, progress=lambda *_: seen.append(current_settings()))
    assert (seen[-1].threads, seen[-1].deterministic, seen[-1].fill_uninitialized_memory) == (3, True, False)
    assert (seen[-1].mkldnn, seen[-1].cudnn_benchmark) == (False, True)


def test_settings_and_generators_are_put_back_after_an_error(captured: Captured) -> None:
    capture = captured(aten.sum.dim_IntList, torch.ones(2, 3), [0])
    content: Any = capture.to_json()
    for argument in content["arguments"]:
        argument["value"] = {"list": [7]} if argument["name"] == "dim" else argument["value"]
    broken = Capture.from_json(content, capture.path)
    before, drawn = current_settings(), torch.get_rng_state()
    with pytest.raises(CaptureError, match="raised IndexError"):
        replay(broken, conditions=[ALL_FLAGS, "poisoned", "competing load"])
    assert current_settings() == before
    assert drawn.tolist() == torch.get_rng_state().tolist()


def test_condition_that_cannot_be_had_is_a_row(captured: Captured) -> None:
    report = replay(
        captured(aten.neg.default, torch.ones(3)), trials=2, conditions=["baseline", "device cuda:77"]
    )
    assert [row.status for row in report.conditions] == ["done", "refused"]
    assert "no cuda:77" in report.conditions[1].note
    assert report.exit_code == 0


@pytest.mark.parametrize("size", [100, 3_000, 1_000_000, 20_000_000])
@pytest.mark.parametrize(("poison", "byte"), [("nan", 0xFF), ("max", 0x7F), ("zeros", 0)])
def test_poison_fills_memory_that_is_allocated(size: int, poison: Any, byte: int) -> None:
    with poisoned(poison, "cpu", [size]):
        fresh = torch.empty(size, dtype=torch.uint8)
    assert (fresh == byte).all()


def test_poison_ends_with_its_block() -> None:
    with poisoned("nan", "cpu"):
        pass
    assert not (torch.empty(50_000_000, dtype=torch.uint8) == 0xFF).all()


def test_cold_caches_write_more_than_the_last_level_cache() -> None:
    assert last_level_cache_bytes("cpu") >= 32 << 20


def precisions() -> list[str]:
    backends: Any = torch.backends
    held = (backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    return [each.fp32_precision for each in held]


@pytest.fixture
def mixed_precisions() -> Iterator[None]:
    """Set TF32 in the older way and in a newer one, so that torch refuses to read the older one."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.usefixtures("mixed_precisions")
def test_precisions_that_torch_refuses_to_sum_up_are_captured_replayed_and_put_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="checking the matmul precision"):
        torch.get_float32_matmul_precision()
    before = precisions()
    capture = capture_call(torch.ops.aten.mm.default, torch.ones(3, 3), torch.ones(3, 3), path=tmp_path / "c")
    assert capture.state["float32_matmul_precision"] == "high"  # of the CPU, where the call was made
    assert matmul_precision("cuda") == "highest"
    report = replay(capture, trials=2, conditions=["baseline", "tf32 on", "tf32 off"])
    assert (report.outcome, [row.status for row in report.conditions]) == (ReplayClass.NOT_SEEN, ["done"] * 3)
    assert precisions() == before


def test_names_of_conditions_are_known_without_torch() -> None:
    code = "import sys; from detlab.kernel.conditions import offered"
    code += "; print(*offered('cpu'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("baseline fresh process 1 thread")
    assert done.stdout.endswith("False\n")
