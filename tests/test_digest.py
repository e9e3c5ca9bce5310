import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.digest import fold, scalar_text, signature, tensor_digest


def test_negative_zero_has_another_digest():
    assert tensor_digest(torch.tensor([0.0])) != tensor_digest(torch.tensor([-0.0]))


def test_a_nan_payload_has_another_digest():
    quiet, other = (
        torch.frombuffer(bytearray(struct.pack("<I", b)), dtype=torch.float32)
        for b in (0x7FC00000, 0x7FC00001)
    )
    assert tensor_digest(quiet) != tensor_digest(other)


def test_a_permutation_has_another_digest():
    assert tensor_digest(torch.tensor([1.0, 2.0, 3.0])) != tensor_digest(torch.tensor([3.0, 2.0, 1.0]))


def test_strides_do_not_matter_and_values_do():
    rows = torch.arange(6.0).reshape(2, 3)
    assert tensor_digest(rows.t()) == tensor_digest(rows.t().contiguous()) != tensor_digest(rows)


def test_a_conjugate_view_is_hashed_by_value():
    z = torch.tensor([1 + 2j])
    assert tensor_digest(z.conj()) == tensor_digest(torch.tensor([1 - 2j])) != tensor_digest(z)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64, torch.complex64]
)
def test_every_dtype_and_a_scalar_tensor_can_be_hashed(dtype):
    assert tensor_digest(torch.zeros(3, dtype=dtype)) == tensor_digest(torch.zeros(3, dtype=dtype))
    assert isinstance(tensor_digest(torch.zeros((), dtype=dtype)), int)


def test_an_empty_tensor_has_a_digest():
    assert tensor_digest(torch.empty(0)) == tensor_digest(torch.empty(3, 0))


@pytest.mark.parametrize(
    "tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")], ids=["sparse", "meta"]
)
def test_what_has_no_bytes_is_refused(tensor):
    with pytest.raises(TypeError, match="no plain bytes"):
        tensor_digest(tensor)


def test_a_fold_sees_order_shape_dtype_and_number():
    x, y = (1, signature("float32", (2,))), (2, signature("float32", (2,)))
    folds = [
        fold([x, y]),
        fold([y, x]),
        fold([x]),
        fold([x, (2, signature("float32", (1, 2)))]),
        fold([x, (2, signature("int32", (2,)))]),
        fold([x, y], [1]),
    ]
    assert len(set(folds)) == len(folds)


def test_scalars_are_told_apart_by_their_bits_and_types():
    scalars = [
        0,
        0.0,
        -0.0,
        False,
        "0",
        None,
        1,
        1.0,
        True,
        [1],
        [[1]],
        float("nan"),
        float("inf"),
        1j,
        1 + 0j,
    ]
    assert len({scalar_text(value) for value in scalars}) == len(scalars)


@given(st.floats(), st.floats())
def test_two_floats_share_a_text_only_when_they_share_their_bits(x, y):
    same_bits = struct.pack("<d", x) == struct.pack("<d", y)
    assert (scalar_text(x) == scalar_text(y)) == same_bits
