"""A call restored from its capture is the call that was captured, bit by bit and byte by byte."""

from __future__ import annotations

import json
import math
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.captures import Capture, load_capture, save_capture
from detlab.errors import CaptureError
from detlab.kernel import ReplayClass, replay
from detlab.kernel.memory import alignment_of
from detlab.kernel.ops import find_op
from detlab.kernel.restore import RestoredCall

aten = torch.ops.aten
UNUSUAL = re.compile(r"torch\.(q|u?int[1-7]$)")  # quantized, and integers of less than a byte
ALL_DTYPES = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
DTYPES = sorted((dtype for dtype in ALL_DTYPES if not UNUSUAL.match(str(dtype))), key=str)
COMPLEX = (torch.complex64, torch.complex128)


def bits(raw: bytes, dtype: torch.dtype) -> torch.Tensor:
    """Give a tensor of one dimension over these bytes; what does not fill an element stays unused."""
    storage = torch.frombuffer(bytearray(raw), dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=dtype).set_(storage, 0, (len(raw) // dtype.itemsize,), (1,))


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda t: t,
    "empty": lambda t: t[:0],
    "scalar": lambda t: t[3],
    "offset": lambda t: t[5:],
    "strided": lambda t: t[1::3],
    "transposed": lambda t: t[:12].view(3, 4).t(),
    "expanded": lambda t: t[2:4].view(2, 1).expand(2, 5),
    "overlapping": lambda t: t.as_strided((4, 3), (1, 1), 2),
    "conjugate": lambda t: t.conj(),
    "negative": lambda t: torch._neg_view(t) if t.dtype in (*COMPLEX, torch.float32) else t,
    "imaginary of conjugate": lambda t: t.conj().imag if t.dtype in COMPLEX else t,
    "negative conjugate": lambda t: torch._neg_view(t.conj()) if t.dtype in COMPLEX else t,
}


def geometry(tensor: torch.Tensor) -> tuple[object, ...]:
    """Everything of a tensor but its bytes and their place."""
    size = tensor.untyped_storage().nbytes()
    flags = (tensor.is_conj(), tensor.is_neg())
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), size, *flags


def alignment(tensor: torch.Tensor) -> int:
    """The alignment of a tensor's storage; one without bytes lies anywhere."""
    storage = tensor.untyped_storage()
    return alignment_of(storage.data_ptr()) if storage.nbytes() else 0


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the first one that shares its storage."""
    starts = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [starts.index(start) for start in starts]


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
@settings(max_examples=60, deadline=None)
@given(
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2),
    layouts=st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=1, max_size=4),
    raw=st.binary(min_size=512, max_size=512),
)
def test_every_dtype_layout_and_aliasing_survives(
    dtypes: list[torch.dtype],
    layouts: list[str],
    raw: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bases = [bits(raw, dtype) for dtype in dtypes]
    tensors = [LAYOUTS[layout](base) for base in bases for layout in layouts]
    folder = tmp_path_factory.mktemp("capture")
    save_capture(folder, aten.cat.default, (tensors,), {}, site="here", rank=0).complete([])
    capture = load_capture(folder)
    restored = RestoredCall(capture, find_op(capture), "cpu").tensors  # refuses other digests
    assert list(map(geometry, restored)) == list(map(geometry, tensors))
    assert list(map(alignment, restored)) == list(map(alignment, tensors))
    assert sharing(restored) == sharing(tensors)


NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64)
WRITABLE = sorted(set(LAYOUTS) - {"expanded", "overlapping", "empty", "scalar"})


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(NUMBERS),
    layout=st.sampled_from(WRITABLE),
    is_itself=st.booleans(),
    raw=st.binary(min_size=512, max_size=512),
)
def test_call_that_mutates_what_it_reads_gives_the_same_every_time(
    dtype: torch.dtype,
    layout: str,
    is_itself: bool,
    raw: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    base = bits(raw, dtype)  # both arguments are views of it
    a, b = LAYOUTS[layout](base[:24]), LAYOUTS[layout](base[24:48])
    args = (a, a if is_itself else b)
    folder = tmp_path_factory.mktemp("capture")
    pending = save_capture(folder, aten.mul_.Tensor, args, {}, site="here", rank=0)
    pending.complete([aten.mul_.Tensor(*args)])
    report = replay(load_capture(folder), trials=3)
    assert (report.traced_output_seen, report.num_distinct) == (True, 1)


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
@settings(max_examples=40, deadline=None)
@given(
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2),
    layouts=st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=1, max_size=3),
    raw=st.binary(min_size=512, max_size=512),
)
def test_compact_capture_keeps_values_shapes_strides_and_aliasing(
    dtypes: list[torch.dtype],
    layouts: list[str],
    raw: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bases = [bits(raw, dtype) for dtype in dtypes]
    tensors = [LAYOUTS[layout](base[200 // base.itemsize :]) for base in bases for layout in layouts]
    folder = tmp_path_factory.mktemp("capture")
    save_capture(
        folder, aten.cat.default, (tensors,), {}, site="here", rank=0, compact=True, max_bytes=1024
    ).complete([])
    capture = load_capture(folder)
    is_cut = sum(storage.num_bytes for storage in capture.storages) < 512 * len(dtypes)
    assert is_cut is ("layout no longer exact" in repr(capture))
    restored = RestoredCall(capture, find_op(capture), "cpu").tensors
    assert [(t.dtype, t.shape, t.stride(), t.is_conj(), t.is_neg()) for t in restored] == [
        (t.dtype, t.shape, t.stride(), t.is_conj(), t.is_neg()) for t in tensors
    ]
    assert sharing([t for t in restored if t.numel()]) == sharing([t for t in tensors if t.numel()])


def test_compact_capture_that_cuts_nothing_is_exact(tmp_path: Path) -> None:
    given = (torch.ones(3), torch.ones(3))
    save_capture(tmp_path, aten.add.Tensor, given, {}, site="here", rank=0, compact=True).complete([])
    assert load_capture(tmp_path).notes == ()


def test_size_of_a_call_that_is_too_large_is_named_with_the_way_out(tmp_path: Path) -> None:
    part = torch.ones(1000)[:10]
    with pytest.raises(CaptureError, match=r"have 4,000 bytes; max_bytes allows 3,999") as refusal:
        save_capture(tmp_path / "x", aten.neg.default, (part,), {}, site="here", rank=0, max_bytes=3_999)
    assert "the bytes that its tensors span are 40" in refusal.value.hint
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("offset", [0, 4, 8, 16, 32, 64, 256])
def test_arguments_lie_as_aligned_as_they_did(offset: int, tmp_path: Path) -> None:
    memory = torch.empty(8192, dtype=torch.uint8)
    start = -memory.data_ptr() % 4096 + offset
    given = torch.frombuffer(memory.numpy(), dtype=torch.float32, offset=start, count=100)
    save_capture(tmp_path, aten.neg.default, (given,), {}, site="here", rank=0).complete([])
    capture = load_capture(tmp_path)
    (restored,) = RestoredCall(capture, find_op(capture), "cpu").tensors
    assert alignment(restored) == alignment(given) == (offset or 4096)


def special(value: float) -> torch.Tensor:
    return torch.tensor([1.0, value, -2.0])


def nan_with_payload() -> torch.Tensor:
    return torch.tensor([0x7FC01234, -0x3EDCBB, 0x3F800000], dtype=torch.int32).view(torch.float32)


def aliased() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.arange(12.0)
    return base[:6], base.view(2, 6)[1]


def with_seed(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hard_cases() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Give calls of which a file of tensors alone would lose something: op, arguments, keyword arguments."""
    a, b = aliased()
    matrix = torch.randn(3, 4, dtype=torch.complex64, generator=with_seed(0))
    image = torch.randn(2, 3, 4, 5, generator=with_seed(0))
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_1234))[0]
    return {
        "negative zero": (aten.neg.default, (special(0.0),), {}),
        "NaN payload": (aten.clone.default, (nan_with_payload(),), {}),
        "no dimensions": (aten.add.Tensor, (torch.tensor(1.5), 2), {}),
        "no elements": (aten.add.Tensor, (torch.empty(0, 3), 2), {}),
        "bfloat16": (aten.mul.Tensor, (special(3.0).bfloat16(), 0.1), {}),
        "float8 e8m0": (aten._to_copy.default, (special(4.0),), {"dtype": torch.float8_e8m0fnu}),
        "uint64": (aten.clone.default, (torch.tensor([2**63 + 1], dtype=torch.uint64),), {}),
        "conjugate transposed": (aten.mm.default, (matrix, matrix.conj().t()), {}),
        "negative view": (aten.add.Tensor, (matrix.conj().imag, 1), {}),
        "expanded": (aten.add.Tensor, (torch.ones(1).expand(4), 1), {}),
        "aliased and mutated": (aten.add_.Tensor, (a, b), {"alpha": 2}),
        "argument twice": (aten.mul_.Tensor, (a, a), {}),
        "optional tensors": (
            aten.index_put_.default,
            (torch.zeros(2, 5), [None, torch.tensor([1, 3])], torch.ones(2), False),
            {},
        ),
        "out": (aten.mm.out, (torch.eye(2), torch.full((2, 2), 0.1)), {"out": torch.full((2, 2), 7.0)}),
        "list of tensors": (aten._foreach_add_.List, ([a, torch.ones(3)], [b, torch.ones(3)]), {}),
        "default generator": (aten.bernoulli_.float, (torch.zeros(64), 0.5), {}),
        "given generator": (aten.normal_.default, (torch.zeros(9),), {"generator": with_seed(3)}),
        "memory format": (aten.clone.default, (image,), {"memory_format": torch.channels_last}),
        "dtype, layout, device": (
            aten.full.default,
            ([2, 3], 0.1),
            {"dtype": torch.float64, "layout": torch.strided, "device": torch.device("cpu")},
        ),
        "infinite scalar": (aten.add.Tensor, (special(1.0), -math.inf), {}),
        "NaN scalar": (aten.full_like.default, (special(1.0).double(), nan), {}),
        "complex scalar": (aten.mul.Tensor, (matrix, complex(-0.0, 0.1)), {}),
        "text": (aten.div.Tensor_mode, (special(3.0), special(2.0)), {"rounding_mode": "floor"}),
        "number out": (aten._local_scalar_dense.default, (torch.tensor(0.1),), {}),
        "shape changed in place": (aten.transpose_.default, (torch.randn(2, 3), 0, 1), {}),
        "size changed in place": (aten.resize_.default, (torch.ones(3), [2]), {}),
        "overlapping": (aten.add.Tensor, (torch.arange(6.0).as_strided((4, 3), (1, 1)), 0.1), {}),
        "sliced": (aten.mul.Tensor, (torch.randn(40, generator=with_seed(2))[3::7], 0.1), {}),
        "float4": (aten.clone.default, (bits(bytes(range(8)), torch.float4_e2m1fn_x2),), {}),
        "bool": (aten.logical_not.default, (torch.tensor([True, False]),), {}),
        "foreach in place": (aten._foreach_mul_.Scalar, ([a, b, torch.ones(0)], 0.1), {}),
        "mask and out": (
            aten.masked_select.out,
            (a, a > 2),
            {"out": torch.empty(0)},  # grows
        ),
        "random with a seed of its own": (aten.randperm.generator, (20,), {"generator": with_seed(4)}),
        "dropout": (aten.native_dropout.default, (torch.ones(64), 0.5, True), {}),
        "parameter": (aten.mul.Tensor, (torch.nn.Parameter(special(3.0)), 2), {}),
    }


@pytest.mark.parametrize("name", hard_cases())
def test_hard_case_gives_again_what_training_saw(name: str, captured: Callable[..., Capture]) -> None:
    func, args, kwargs = hard_cases()[name]
    report = replay(captured(func, *args, **kwargs), trials=3)
    assert report.outcome is ReplayClass.NOT_SEEN
    assert report.traced_output_seen is (None if name == "number out" else True)
    assert report.problems == ()


def test_fresh_process_gives_again_what_training_saw(captured: Callable[..., Capture]) -> None:
    cases = {name: case for name, case in hard_cases().items() if name != "number out"}
    folders = [str(captured(func, *args, **kwargs).path) for func, args, kwargs in cases.values()]
    code = (
        "import json, sys\n"
        "from detlab.captures import load_capture\n"
        "from detlab.kernel import replay\n"
        "reports = [replay(load_capture(folder), trials=2) for folder in sys.argv[1:]]\n"
        "print(json.dumps([report.traced_output_seen for report in reports]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True)
    assert dict(zip(cases, json.loads(done.stdout), strict=True)) == dict.fromkeys(cases, True)


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_fresh_process_restores_every_layout_of_every_dtype(tmp_path: Path) -> None:
    raw = bytes(torch.randint(0, 256, (512,), generator=with_seed(1)).tolist())
    expected = []
    for number, dtype in enumerate(DTYPES):
        tensors = [layout(bits(raw, dtype)) for layout in LAYOUTS.values()]
        folder = tmp_path / str(number)
        save_capture(folder, aten.cat.default, (tensors,), {}, site="here", rank=0).complete([])
        expected.append([*map(str, map(geometry, tensors)), sharing(tensors)])
    code = (
        "import json, sys\n"
        "from tests.kernel.test_restore import *\n"
        "captures = [load_capture(folder) for folder in sys.argv[1:]]\n"
        "calls = [RestoredCall(capture, find_op(capture), 'cpu').tensors for capture in captures]\n"
        "print(json.dumps([[*map(str, map(geometry, call)), sharing(call)] for call in calls]))\n"
    )
    folders = [str(tmp_path / str(number)) for number in range(len(DTYPES))]
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


def test_requires_grad_is_kept_as_a_fact(captured: Callable[..., Capture]) -> None:
    capture = captured(aten.mul.Tensor, torch.ones(2, requires_grad=True), torch.ones(2))
    assert [value.requires_grad for _, value in capture.arguments] == [True, False]


def test_replay_leaves_the_default_generator_as_it_was(captured: Callable[..., Capture]) -> None:
    capture = captured(aten.bernoulli_.float, torch.zeros(64), 0.5)
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    replay(capture, trials=2)
    assert torch.rand(4).tolist() == expected.tolist()
