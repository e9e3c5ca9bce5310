"""Comparing checkpoints: exact to the bit, at the right index, whatever the dtype, strides and sharding."""

import json
from dataclasses import replace
from itertools import pairwise, product
from math import inf, isnan, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.checkpoints import (
    Checkpoint,
    Piece,
    Replacement,
    TensorLeaf,
    compare_checkpoints,
    leaf_bytes_equal,
    open_checkpoint,
    read_bytes,
    read_values,
    replaced,
)
from detlab.checks.checkpoints import tensors as engine
from detlab.checks.checkpoints.blocks import boxes
from detlab.checks.checkpoints.dtypes import ITEM_SIZE, as_float64
from detlab.errors import InputError
from tests.checks.checkpoints.saved import compared, distributed, row, saved, states, tensor_bytes

# torch says so once a process, of a dtype that is only stored here
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

DTYPES = [getattr(torch, name) for name in ITEM_SIZE]


@st.composite
def tensors(draw):
    """Any dense tensor: any dtype, bytes, shape and strides (slices, transposes, expanded dimensions)."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 6), max_size=4))
    size = int(np.prod(shape, dtype=int)) * ITEM_SIZE[str(dtype).removeprefix("torch.")]
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype == torch.bool:
        raw = bytearray(byte & 1 for byte in raw)
    tensor = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(shape)
    if shape:
        tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
        axis = draw(st.integers(0, len(shape) - 1))
        tensor = tensor[
            (slice(None),) * axis + (slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 3))),)
        ]
    return tensor.unsqueeze(0).expand(3, *tensor.shape) if draw(st.booleans()) else tensor


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)
states_of_training = st.recursive(
    tensors() | scalars,
    lambda inner: (
        st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(state=states_of_training)
def test_any_state_saved_equals_itself_saved_again(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("c")
    frame = compared(saved(folder / "a.pt", state), saved(folder / "b.pt", state))
    assert states(frame) == {}
    assert not frame["problem"].drop_nulls().to_list()


@given(tensor=tensors())
def test_bytes_are_those_that_torch_shows(tmp_path_factory, tensor):
    leaf = open_checkpoint(saved(tmp_path_factory.mktemp("c") / "a.pt", tensor)).leaves["value"]
    assert read_bytes(leaf) == tensor_bytes(tensor)


@st.composite
def sharded(draw):
    """A shape, and two ways to cut it into boxes: places of the cuts along each dimension."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    cuts = [[draw(st.sets(st.integers(0, extent), max_size=3)) for extent in shape] for _ in range(2)]
    return shape, cuts


def shard(path, array, cuts, order):
    """Write the boxes of an array to a file, each as a run in this order of dimensions; give the leaf."""
    edges = [sorted({0, extent, *cut}) for extent, cut in zip(array.shape, cuts, strict=True)]
    pieces, data = [], b"\0" * 3
    for box in product(*(list(pairwise(each)) for each in edges)):
        part = array[tuple(slice(low, high) for low, high in box)].transpose(order)
        strides = np.array(np.ascontiguousarray(part).strides)[np.argsort(order)] // array.itemsize
        shape = tuple(high - low for low, high in box)
        pieces.append(Piece(tuple(low for low, _ in box), shape, path, len(data), tuple(map(int, strides))))
        data += part.tobytes()
    path.write_bytes(data)
    return TensorLeaf("w", array.shape, str(array.dtype), tuple(reversed(pieces)))


def checkpoint(*leaves):
    return Checkpoint(Path("made"), "torch.save", {leaf.name: leaf for leaf in leaves})


@given(
    plan=sharded(),
    data=st.data(),
    dtype=st.sampled_from(["int8", "int16", "float32", "float64", "complex128"]),
    block=st.sampled_from([16, 48, 1 << 10]),
)
def test_one_flipped_bit_is_found_at_its_index_whatever_the_sharding(
    tmp_path_factory, plan, data, dtype, block
):
    shape, cuts = plan
    folder = tmp_path_factory.mktemp("c")
    array = np.random.default_rng(0).integers(1, 100, shape).astype(dtype)
    other = array.copy()
    place = data.draw(st.integers(0, array.size - 1))
    bit = data.draw(st.integers(0, array.itemsize * 8 - 1))
    other.reshape(-1)[place : place + 1].view(np.uint8)[bit // 8] ^= 1 << bit % 8
    orders = [data.draw(st.permutations(range(len(shape)))) for _ in range(2)]
    a = shard(folder / "a", array, cuts[0], orders[0])
    same, b = (
        shard(folder / name, each, cuts[1], orders[1]) for name, each in (("same", array), ("b", other))
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_RUN_BYTES", "_BOX_BYTES", "_SKEWED_BYTES"):
            patch.setattr(engine, name, block)
        assert leaf_bytes_equal(a, same)
        found = row(compare_checkpoints(checkpoint(a), checkpoint(b)), "w")
    assert (found["state"], found["num_different"]) == ("different", 1)
    assert found["first_different"] == [int(each) for each in np.unravel_index(place, shape)]


@given(shape=st.lists(st.integers(0, 7), max_size=4), size=st.integers(1, 50))
def test_boxes_give_every_element_once_and_in_order(shape, size):
    numbers = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    seen = []
    for offsets, extents in boxes(tuple(shape), size):
        part = numbers[tuple(slice(o, o + n) for o, n in zip(offsets, extents, strict=True))]
        assert part.size <= size
        seen += part.reshape(-1).tolist()
    assert seen == list(range(numbers.size))


@given(raw=st.binary(min_size=16, max_size=16), dtype=st.sampled_from(sorted(ITEM_SIZE)))
def test_values_of_a_dtype_are_those_that_torch_gives(raw, dtype):
    values = as_float64(np.frombuffer(raw, np.uint8), dtype)
    if dtype == "float4_e2m1fn_x2":
        assert values is None
        return
    if dtype == "bool":
        raw = bytes(byte & 1 for byte in raw)
        values = as_float64(np.frombuffer(raw, np.uint8), dtype)
    tensor = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(getattr(torch, dtype))
    expected = tensor.to(torch.complex128 if dtype.startswith("complex") else torch.float64).numpy()
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("a", "b", "num", "first", "max_abs"),
    [
        ([0.0, 1.0], [-0.0, 1.0], 1, [0], 0.0),
        ([1.0, 2.0, 3.0], [1.0, 2.5, 1.0], 2, [1], 2.0),
        ([1.0, nan], [1.0, nan], 0, None, None),
        ([1.0, nan], [1.0, 2.0], 1, [1], inf),
        ([inf], [-inf], 1, [0], inf),
        ([inf, 1.0], [inf, 1.5], 1, [1], 0.5),
    ],
)
def test_differences_are_of_bits_and_measured_in_values(tmp_path, a, b, num, first, max_abs):
    paths = [saved(tmp_path / f"{n}.pt", {"w": torch.tensor(each)}) for n, each in enumerate((a, b))]
    found = row(compared(*paths), "w")
    assert (found["num_different"], found["first_different"], found["max_abs"]) == (num, first, max_abs)


def test_two_nans_of_other_payload_differ_by_nothing(tmp_path):
    bits = [
        torch.tensor([value], dtype=torch.int32).view(torch.float32) for value in (0x7FC00000, 0x7FC00001)
    ]
    found = row(compared(*(saved(tmp_path / f"{n}.pt", {"w": each}) for n, each in enumerate(bits))), "w")
    assert (found["state"], found["max_abs"]) == ("different", 0.0)


def test_what_is_zeroed_missing_or_changed_is_told_apart(tmp_path):
    a = {
        "kept": torch.ones(3),
        "zeroed": torch.ones(3),
        "gone": torch.ones(3),
        "cast": torch.ones(3),
        "kind": 1,
    }
    b = {
        "kept": torch.ones(3),
        "zeroed": torch.zeros(3),
        "cast": torch.ones(3).half(),
        "kind": torch.ones(1),
        "new": 2,
    }
    frame = compared(saved(tmp_path / "a.pt", a), saved(tmp_path / "b.pt", b))
    assert states(frame) == {
        "zeroed": "different", "gone": "only_a", "cast": "changed", "kind": "changed", "new": "only_b",
    }  # fmt: skip
    assert [row(frame, "zeroed")[f"zeroed_{side}"] for side in "ab"] == [False, True]
    assert [row(frame, "kept")[f"zeroed_{side}"] for side in "ab"] == [False, False]
    assert (row(frame, "cast")["dtype_a"], row(frame, "cast")["dtype_b"]) == ("float32", "float16")


def test_minus_zero_is_not_zeroed_and_no_elements_are_not_zeroed(tmp_path):
    path = saved(
        tmp_path / "a.pt", {"minus": torch.full((3,), -0.0), "none": torch.zeros(0), "zero": torch.zeros(3)}
    )
    frame = compared(path, path)
    assert {name: row(frame, name)["zeroed_a"] for name in frame["name"]} == {
        "minus": False, "none": False, "zero": True,
    }  # fmt: skip


def test_names_can_be_mapped_by_a_mapping_or_a_function(tmp_path):
    a = saved(tmp_path / "a.pt", {"model": {"w": torch.ones(2)}})
    b = saved(tmp_path / "b.pt", {"module": {"w": torch.ones(2)}})
    assert states(compared(a, b)) == {"model.w": "only_a", "module.w": "only_b"}
    assert states(compared(a, b, names={"module.w": "model.w"})) == {}
    assert states(compared(a, b, names=lambda name: name.replace("module", "model"))) == {}
    with pytest.raises(InputError, match="two leaves of b"):
        compared(a, saved(tmp_path / "c.pt", {"x": 1, "y": 2}), names=lambda name: "z")


def test_the_schema_is_the_same_whatever_is_compared(tmp_path):
    one = saved(tmp_path / "a.pt", {"x": 1})
    other = saved(tmp_path / "b.pt", {"w": torch.ones(2)})
    assert compared(one, one).schema == compared(one, other).schema == compared(other, other).schema


STATE = {"w": torch.arange(1.0, 5.0).reshape(2, 2), "step": 3, "note": "x", "zero": torch.zeros(2)}


@pytest.mark.parametrize(
    ("name", "by", "state"),
    [
        ("w", Replacement("zeros"), "different"),
        ("w", Replacement("missing"), "only_a"),
        (
            "w",
            Replacement("bytes", content=tensor_bytes(torch.tensor([[1.0, 2.0], [9.0, 4.0]]))),
            "different",
        ),
        ("step", Replacement("zeros"), "different"),
        ("step", Replacement("scalar", 4), "different"),
        ("step", Replacement("scalar", 3.0), "changed"),
        ("note", Replacement("missing"), "only_a"),
    ],
)
def test_a_replaced_leaf_is_found_and_no_other(tmp_path, name, by, state):
    whole = open_checkpoint(saved(tmp_path / "a.pt", STATE))
    changed = replaced(whole, {name: by})
    assert states(compared(whole, changed)) == {name: state}
    assert states(compared(whole, whole)) == {}
    if by.kind == "bytes":
        assert row(compared(whole, changed), name)["first_different"] == [1, 0]


def test_the_same_bytes_are_no_difference_even_replaced(tmp_path):
    whole = open_checkpoint(saved(tmp_path / "a.pt", {"w": STATE["w"].t()}))
    by = Replacement("bytes", content=tensor_bytes(STATE["w"].t()))
    assert states(compared(whole, replaced(whole, {"w": by}))) == {}
    assert states(compared(replaced(whole, {"w": by}), whole)) == {}
    assert (read_values(replaced(whole, {"w": by}).leaves["w"]) == STATE["w"].t().numpy()).all()


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("none", Replacement("zeros")), ("w", Replacement("bytes", content=b"123")),
        ("w", Replacement("scalar", 1)), ("step", Replacement("bytes", content=b"1")),
    ],
)  # fmt: skip
def test_a_replacement_that_does_not_fit_is_refused(tmp_path, name, by):
    with pytest.raises(InputError):
        replaced(open_checkpoint(saved(tmp_path / "a.pt", STATE)), {name: by})


def test_a_file_that_shrinks_after_it_was_opened_is_unreadable(tmp_path):
    path = saved(tmp_path / "a.pt", {"w": torch.ones(10_000)})
    opened = open_checkpoint(path)
    path.write_bytes(path.read_bytes()[:9000])
    assert states(compared(opened, opened)) == {"w": "unreadable"}


def test_a_view_of_more_elements_than_can_be_read_is_unreadable(tmp_path):
    path = saved(tmp_path / "a.pt", {"w": torch.ones(1).expand(1 << 40), "ok": torch.ones(2).expand(5, 2)})
    assert states(compared(path, path)) == {"w": "unreadable"}


def test_a_small_tensor_is_read_and_a_large_one_is_not(tmp_path):
    leaves = open_checkpoint(
        saved(tmp_path / "a.pt", {"step": torch.tensor(7.0), "big": torch.ones(99)})
    ).leaves
    assert float(read_values(leaves["step"])) == 7.0
    with pytest.raises(InputError, match="396 bytes"):
        read_bytes(leaves["big"], max_bytes=100)


def test_the_frame_can_be_written_as_json(tmp_path):
    frame = compared(saved(tmp_path / "a.pt", STATE), distributed(tmp_path / "c", STATE))
    assert states(frame) == {}
    assert [each["name"] for each in json.loads(frame.write_json())] == list(STATE)


def test_comparing_leaves_a_leaf_as_it_was(tmp_path):
    leaf = open_checkpoint(saved(tmp_path / "a.pt", STATE)).leaves["w"]
    assert leaf_bytes_equal(leaf, replace(leaf, name="other"))
    assert not leaf_bytes_equal(leaf, replace(leaf, shape=(4,)))
    assert not isnan(read_values(leaf).sum())
