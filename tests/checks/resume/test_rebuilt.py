"""Parameters of 16 bits against the master weights they are rebuilt from, however they are sharded."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.checkpoints.layout import Checkpoint, Piece, TensorLeaf
from detlab.checks.resume.rebuilt import REBUILT, check_rebuilt, num_not_cast, pairs_of, rounded
from detlab.checks.resume.words import AT_LOAD

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("dtype", DTYPES)
@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
def test_the_cast_is_that_of_torch(dtype, bits):
    values = np.array(bits, np.uint32).view(np.float32)
    expected = torch.from_numpy(values.copy()).to(DTYPES[dtype]).view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(values)
    assert np.array_equal(rounded(values, dtype)[number], expected[number])


def leaf(folder, name, array, dtype, cuts=(1, 1)):
    """Write a matrix into a file in boxes, each row-major, and say where they lie."""
    path = folder / f"{name}.bin"
    pieces, content = [], b""
    for rows in np.array_split(np.arange(array.shape[0]), cuts[0]):
        for columns in np.array_split(np.arange(array.shape[1]), cuts[1]):
            if not len(rows) or not len(columns):
                continue
            box = np.ascontiguousarray(array[np.ix_(rows, columns)])
            place = (int(rows[0]), int(columns[0]))
            pieces.append(Piece(place, box.shape, path, len(content), (box.shape[1], 1)))
            content += box.tobytes()
    path.write_bytes(content)
    return TensorLeaf(name, array.shape, dtype, tuple(pieces))


PARAMETER, MASTER = "decoder.layers.mlp.weight", "optimizer.state.fp32_param.decoder.layers.mlp.weight"


def checkpoint(folder, values, *, broken=False, dtype="bfloat16", cuts=((1, 1), (1, 1))):
    folder.mkdir()
    narrow = rounded(values, dtype).copy()
    if broken:
        narrow[0, 0] ^= 1
    leaves = {
        PARAMETER: leaf(folder, PARAMETER, narrow, dtype, cuts[0]),
        MASTER: leaf(folder, MASTER, values, "float32", cuts[1]),
    }
    return Checkpoint(folder, "torch.save", leaves)


VALUES = np.random.default_rng(3).normal(size=(12, 10)).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_that_are_the_cast_are_verified_in_any_shards(tmp_path, dtype):
    a = checkpoint(tmp_path / "a", VALUES, dtype=dtype)
    b = checkpoint(tmp_path / "b", VALUES, dtype=dtype, cuts=((2, 1), (3, 5)))
    found = check_rebuilt(a, b, AT_LOAD)
    assert [each.what for each in found.judged.verified] == [REBUILT]
    assert [control.caught for control in found.controls()] == [True]


def test_a_resumed_side_that_is_not_the_cast_fails_and_the_reference_is_said_to_hold(tmp_path):
    a, b = checkpoint(tmp_path / "a", VALUES), checkpoint(tmp_path / "b", VALUES, broken=True)
    (row,) = check_rebuilt(a, b, AT_LOAD).judged.findings
    assert (row["component"], row["severity"], row["kind"]) == ("parameters", "error", "rebuilt")
    assert (
        "1 of 1 parameter of 16 bits is not rounded to nearest even from its master weights" in row["found"]
    )
    assert "in the reference all 1 are" in row["found"]
    assert "(1 element)" in row["found"]


def test_two_sides_that_are_not_the_cast_are_told_and_not_judged(tmp_path):
    sides = [checkpoint(tmp_path / name, VALUES, broken=True) for name in "ab"]
    found = check_rebuilt(*sides, AT_LOAD)
    assert found.judged.findings == found.judged.verified == ()
    assert "another rounding" in found.judged.notes[0]


def test_a_reference_of_which_some_master_weights_are_others_is_told_to_be_damaged(tmp_path):
    side = checkpoint(tmp_path / "a", VALUES, broken=True)
    other = checkpoint(tmp_path / "b", VALUES)
    leaves = dict(side.leaves)
    for name, each in other.leaves.items():
        leaves[name.replace("mlp", "attention")] = each
    whole = Checkpoint(side.path, side.format, leaves)
    (row,) = check_rebuilt(whole, whole, AT_LOAD).judged.findings
    assert (row["component"], row["severity"]) == ("master weights", "warning")
    assert row["found"].startswith("in what the reference saved 1 of 2 parameters of 16 bits is not rounded")


def test_a_nan_is_a_nan_whatever_its_payload(tmp_path):
    values = np.array([[np.nan, 1.0]], np.float32)
    narrow = np.array([[0xFFC1, 0x3F80]], np.uint16)
    parameter = leaf(tmp_path, "p", narrow, "bfloat16")
    assert num_not_cast(parameter, leaf(tmp_path, "m", values, "float32")) == 0


def test_flat_master_weights_are_said_to_be_out_of_reach(tmp_path):
    whole = checkpoint(tmp_path / "a", VALUES)
    flat = {
        "optimizer.distributed.bucket_idx_0.param": whole.leaves[MASTER],
        PARAMETER: whole.leaves[PARAMETER],
    }
    side = Checkpoint(tmp_path, "megatron torch_dist", flat)
    assert pairs_of(side) == []
    assert "flat buffers" in check_rebuilt(side, side, AT_LOAD).not_checked[0].why


@pytest.mark.parametrize("size", [0, 10, 239])
def test_a_file_that_is_cut_is_said_to_be_unreadable(tmp_path, size):
    a = checkpoint(tmp_path / "a", VALUES)
    path = a.leaves[PARAMETER].pieces[0].path
    path.write_bytes(path.read_bytes()[:size])
    assert "cannot be read" in check_rebuilt(a, a, AT_LOAD).not_checked[0].why


def test_a_tensor_with_a_hole_is_said_to_be_unreadable(tmp_path):
    a = checkpoint(tmp_path / "a", VALUES, cuts=((3, 1), (1, 1)))
    whole = a.leaves[PARAMETER]
    holed = {**a.leaves, PARAMETER: TensorLeaf(PARAMETER, whole.shape, whole.dtype, whole.pieces[:2])}
    found = check_rebuilt(a, Checkpoint(a.path, a.format, holed), AT_LOAD)
    assert "cannot be read" in found.not_checked[0].why


@pytest.mark.parametrize("block", [1, 7, 10, 25, 119])
def test_a_tensor_is_read_block_by_block(tmp_path, block, monkeypatch):
    monkeypatch.setattr("detlab.checks.resume.rebuilt._BLOCK", block)
    values = VALUES.copy()
    side = checkpoint(tmp_path / "a", values, broken=True, cuts=((2, 3), (5, 1)))
    ((_, parameter, master),) = pairs_of(side)
    assert num_not_cast(parameter, master) == 1
