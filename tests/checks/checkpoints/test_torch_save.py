"""torch.save files: every tensor and scalar is a leaf, whatever class it was saved in, and nothing runs."""

import argparse
import enum
import io
import random
import zipfile

import numpy as np
import pytest
import torch

from detlab.checks.checkpoints import ScalarLeaf, TensorLeaf, open_checkpoint, read_bytes, read_values
from detlab.errors import InputError
from tests.checks.checkpoints.saved import compared, rezipped, row, saved, states, tensor_bytes


class Colour(enum.Enum):
    RED = 3


class Scaler:
    """A class of the training script, as DeepSpeed's loss scaler is."""

    def __init__(self):
        self.cur_scale = 65536.0
        self.window = torch.arange(3.0)


def values(path):
    leaves = open_checkpoint(path).leaves
    return {name: leaf.value for name, leaf in leaves.items() if isinstance(leaf, ScalarLeaf)}


def test_tied_tensors_and_views_are_each_read_through_their_own_strides(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    views = {
        "whole": base, "turned": base.t(), "every other": base[1:, ::2], "row": base[2], "one": base[3, 5],
        "expanded": base[:1].expand(5, 6), "parameter": torch.nn.Parameter(base[:, 3:]), "none": base[:0],
    }  # fmt: skip
    checkpoint = open_checkpoint(saved(tmp_path / "a.pt", views))
    assert checkpoint.problems == ()
    for name, tensor in views.items():
        leaf = checkpoint.leaves[name]
        assert (leaf.shape, leaf.dtype) == (tuple(tensor.shape), "float32")
        assert read_bytes(leaf) == tensor_bytes(tensor.detach())


def test_a_transposed_tensor_equals_its_contiguous_copy(tmp_path):
    tensor = torch.randn(700, 900).t()
    a, b = saved(tmp_path / "a.pt", {"w": tensor}), saved(tmp_path / "b.pt", {"w": tensor.contiguous()})
    assert states(compared(a, b)) == states(compared(b, a)) == {}


def test_names_are_dotted_paths_of_keys(tmp_path):
    state = {
        "optimizer": {"state": {3: {"exp_avg": torch.ones(2), "step": 4}}, "param_groups": [{"lr": 0.5}]}
    }
    assert list(open_checkpoint(saved(tmp_path / "a.pt", state)).leaves) == [
        "optimizer.state.3.exp_avg", "optimizer.state.3.step", "optimizer.param_groups.0.lr",
    ]  # fmt: skip


def test_two_leaves_of_one_spelling_are_both_kept(tmp_path):
    path = saved(tmp_path / "a.pt", {"a": {"b": 1}, "a.b": 2, 3: 4, "3": 5})
    assert values(path) == {"a.b": 1, "a.b#2": 2, "3": 4, "3#2": 5}


def test_a_value_alone_has_a_name_too(tmp_path):
    assert list(open_checkpoint(saved(tmp_path / "a.pt", torch.ones(2))).leaves) == ["value"]


def test_arguments_enums_and_unknown_classes_are_read_as_data(tmp_path):
    state = {"args": argparse.Namespace(lr=1e-3, dtype=torch.bfloat16, act=torch.nn.functional.gelu)}
    state |= {"colour": Colour.RED, "scaler": Scaler(), "size": torch.Size([2, 3])}
    path = saved(tmp_path / "a.pt", state)
    found = values(path)
    assert found["args.lr"] == 1e-3
    assert found["args.dtype"] == "torch.bfloat16"
    assert found["args.act"] == "torch._C._nn.gelu"
    assert (found["colour.__class__"].rpartition(".")[2], found["colour.__args__.0"]) == ("Colour", 3)
    assert found["scaler.cur_scale"] == 65536.0
    assert isinstance(open_checkpoint(path).leaves["scaler.window"], TensorLeaf)


def test_states_of_generators_are_digests_that_tell_states_apart(tmp_path):
    def state(seed):
        random.seed(seed)
        np.random.seed(seed)
        return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}

    kept = random.getstate(), np.random.get_state()
    paths = [saved(tmp_path / f"{n}.pt", state(seed)) for n, seed in enumerate((1, 1, 2))]
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    assert states(compared(paths[0], paths[1])) == {}
    assert states(compared(paths[0], paths[2])) == {"python.1": "different", "numpy.1": "different"}


@pytest.mark.parametrize(
    ("one", "other", "state"),
    [
        (0.0, -0.0, "different"), (1, 1.0, "changed"), (1, True, "changed"), ("a", "b", "different"),
        (None, 0, "changed"), (float("nan"), float("nan"), "equal"), ({}, [], "different"),
        (np.float32(1), np.float32(2), "different"), (np.float32(1), np.float64(1), "different"),
        (b"ab", b"ac", "different"), (2**70, 2**70 + 1, "different"),
        ([1] * 100, [1] * 99 + [2], "different"),
        (np.zeros(3), np.zeros(3, np.float32), "different"), ({1, 2}, {1, 3}, "different"),
    ],
)  # fmt: skip
def test_scalars_are_compared_by_type_and_bits(tmp_path, one, other, state):
    a, b = saved(tmp_path / "a.pt", {"x": one}), saved(tmp_path / "b.pt", {"x": other})
    assert set(states(compared(a, b)).values()) == ({state} if state != "equal" else set())
    assert states(compared(a, a)) == {}


def test_an_absent_container_is_not_an_empty_one(tmp_path):
    a, b = saved(tmp_path / "a.pt", {"x": 1, "state": {}}), saved(tmp_path / "b.pt", {"x": 1})
    assert states(compared(a, b)) == {"state": "only_a"}


def test_a_stream_inside_of_a_checkpoint_is_opened(tmp_path):
    def extra(scale):
        stream = io.BytesIO()
        torch.save({"scale_fwd": torch.tensor([scale, 1.0]), "recipe": "delayed"}, stream)
        return {"_extra_state": stream}

    a, b = saved(tmp_path / "a.pt", extra(2.0)), saved(tmp_path / "b.pt", extra(4.0))
    frame = compared(a, b)
    assert states(frame) == {"_extra_state.scale_fwd": "different"}
    assert row(frame, "_extra_state.scale_fwd")["max_abs"] == 2.0
    assert values(a)["_extra_state.recipe"] == "delayed"


def test_other_bytes_in_a_stream_are_one_digest(tmp_path):
    a = saved(tmp_path / "a.pt", {"x": io.BytesIO(b"plain")})
    b = saved(tmp_path / "b.pt", {"x": io.BytesIO(b"other")})
    assert states(compared(a, b)) == {"x": "different"}


@pytest.mark.parametrize(
    "tensor", [torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, dtype=torch.complex64).conj().imag]
)
def test_a_view_that_negates_is_unreadable_and_the_rest_is_read(tmp_path, tensor):
    path = saved(tmp_path / "a.pt", {"view": tensor, "w": torch.ones(2)})
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.leaves) == ["w"]
    assert "resolve_conj" in checkpoint.unreadable["view"]
    assert states(compared(path, path)) == {"view": "unreadable"}


def test_a_sparse_tensor_is_unreadable_and_the_rest_is_read(tmp_path):
    path = saved(tmp_path / "a.pt", {"s": torch.eye(3).to_sparse(), "w": torch.ones(2)})
    assert "sparse_coo" in open_checkpoint(path).unreadable["s"]
    assert list(open_checkpoint(path).leaves) == ["w"]


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_tensor_is_refused_in_one_sentence(tmp_path):
    path = saved(tmp_path / "a.pt", {"q": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)})
    with pytest.raises(
        InputError, match="weights_only: Could not run 'aten::_empty_affine_quantized'"
    ) as error:
        open_checkpoint(path)
    assert len(error.value.finding) < 300


def test_the_format_before_torch_1_6_is_refused_with_the_way_out(tmp_path):
    path = saved(tmp_path / "a.pt", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
    with pytest.raises(
        InputError, match=r"no whole torch.save file[^\n]*\nHint: it was written in the format before"
    ):
        open_checkpoint(path)


def test_members_in_another_order_are_found_by_their_names(tmp_path):
    state = {"a": torch.arange(8.0), "b": torch.arange(8.0) + 100}
    path = saved(tmp_path / "a.pt", state)
    with zipfile.ZipFile(path) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in sorted(members, reverse=True):
            new.writestr(name, data)
    leaves = open_checkpoint(path).leaves
    assert [read_values(leaves[name])[0] for name in "ab"] == [0.0, 100.0]


def test_a_compressed_member_is_unreadable_by_name(tmp_path):
    path = saved(tmp_path / "a.pt", {"a": torch.zeros(999), "b": torch.ones(9)})
    rezipped(
        path,
        lambda name, data: (data, zipfile.ZIP_DEFLATED if name.endswith("data/0") else zipfile.ZIP_STORED),
    )
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.unreadable) == ["a"]
    assert "compressed" in checkpoint.unreadable["a"]
    assert list(checkpoint.leaves) == ["b"]


def test_another_byte_order_is_refused(tmp_path):
    path = saved(tmp_path / "a.pt", {"a": torch.zeros(9)})
    rezipped(path, lambda name, data: (b"big" if name.endswith("byteorder") else data, zipfile.ZIP_STORED))
    with pytest.raises(InputError, match="big-endian"):
        open_checkpoint(path)


def test_a_missing_member_is_unreadable_by_name(tmp_path):
    path = saved(tmp_path / "a.pt", {"a": torch.zeros(9), "b": torch.ones(9)})
    rezipped(path, lambda name, data: None if name.endswith("data/1") else (data, zipfile.ZIP_STORED))
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.unreadable) == ["b"]
    assert states(compared(path, path)) == {"b": "unreadable"}


def test_nothing_big_is_loaded_to_open(tmp_path):
    """A storage of 2^40 elements that only the pickle claims is found out, not allocated."""
    path = saved(tmp_path / "a.pt", {"a": torch.zeros(4)})
    rezipped(
        path, lambda name, data: (data.replace(b"K\x04", b"\x8a\x06" + (1 << 40).to_bytes(6, "little")), 0)
    )
    assert "reaches beyond its storage" in open_checkpoint(path).unreadable["a"]


def test_a_storage_without_a_tensor_is_unreadable_by_name(tmp_path):
    path = saved(tmp_path / "a.pt", {"bare": torch.ones(3).untyped_storage(), "w": torch.ones(3)})
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.leaves) == ["w"]
    assert "bytes are not plain" in checkpoint.unreadable["bare"]
