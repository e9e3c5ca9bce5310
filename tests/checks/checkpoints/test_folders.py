"""Folders of checkpoints: Megatron's legacy files, DeepSpeed's zero files, trackers, safetensors."""

import json

import pytest
import torch

from detlab.checks.checkpoints import open_checkpoint
from detlab.errors import InputError
from tests.checks.checkpoints.saved import compared, safetensors, saved, states


def megatron(folder, *, lr=0.1, ranks=("mp_rank_00",)):
    for rank in ranks:
        saved(folder / rank / "model_optim_rng.pt", {"model": {"w": torch.ones(3)}, "lr": lr})
        saved(folder / rank / "distrib_optim.pt", {0: {"exp_avg": torch.zeros(3)}})
    return folder


def test_one_model_parallel_rank_needs_no_prefix(tmp_path):
    checkpoint = open_checkpoint(megatron(tmp_path / "iter_0000010"))
    assert list(checkpoint.leaves) == ["distrib_optim.0.exp_avg", "model.w", "lr"]
    assert checkpoint.format == "torch.save"


def test_several_ranks_are_told_apart_by_their_folder(tmp_path):
    checkpoint = open_checkpoint(megatron(tmp_path, ranks=("mp_rank_00_000", "mp_rank_00_001")))
    assert "mp_rank_00_001.model.w" in checkpoint.leaves
    assert "mp_rank_00_000.distrib_optim.0.exp_avg" in checkpoint.leaves


def test_the_tracker_names_the_iteration(tmp_path):
    megatron(tmp_path / "iter_0000010", lr=0.1)
    megatron(tmp_path / "iter_0000020", lr=0.2)
    with pytest.raises(InputError, match="holds 2 checkpoints"):
        open_checkpoint(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20\n")
    assert open_checkpoint(tmp_path).leaves["lr"].value == 0.2


@pytest.mark.parametrize("word", ["../../etc", "", "-1", "20 ", "nine", "\n", "9" * 500])
def test_a_tracker_that_names_no_iteration_is_refused(tmp_path, word):
    megatron(tmp_path / "iter_0000010")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(word)
    with pytest.raises(InputError):
        open_checkpoint(tmp_path)


def test_files_of_deepspeed_zero_are_told_apart_by_rank(tmp_path):
    step = tmp_path / "global_step10"
    saved(step / "mp_rank_00_model_states.pt", {"module": {"w": torch.ones(4)}})
    for rank in range(2):
        state = {"optimizer_state_dict": {"single_partition_of_fp32_groups": [torch.full((2,), float(rank))]}}
        saved(step / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", state)
    (tmp_path / "latest").write_text("global_step10")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "deepspeed zero"
    assert (
        "bf16_zero_pp_rank_1_mp_rank_00_optim_states.optimizer_state_dict.single_partition_of_fp32_groups.0"
        in (checkpoint.leaves)
    )


def test_a_damaged_file_of_a_folder_is_said_and_the_others_are_read(tmp_path):
    megatron(tmp_path, ranks=("mp_rank_00", "mp_rank_01"))
    damaged = tmp_path / "mp_rank_01" / "model_optim_rng.pt"
    damaged.write_bytes(damaged.read_bytes()[:-200])
    checkpoint = open_checkpoint(tmp_path)
    assert "mp_rank_00.model.w" in checkpoint.leaves
    assert checkpoint.problems
    assert all(str(damaged) in problem for problem in checkpoint.problems)
    assert states(compared(tmp_path, tmp_path)) == {"mp_rank_01": "unreadable"}


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match="no checkpoint of a known format"):
        open_checkpoint(tmp_path)


def test_the_zarr_backend_is_refused_by_name(tmp_path):
    (tmp_path / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr"}))
    with pytest.raises(InputError, match="backend 'zarr'"):
        open_checkpoint(tmp_path)


def test_a_path_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        open_checkpoint(tmp_path / "none")


def indexed(folder, tensors):
    """Write a safetensors file for each tensor, and an index."""
    folder.mkdir()
    names = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        names[name] = f"model-{number}.safetensors"
        safetensors(folder / names[name], {name: tensor})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return folder


def test_safetensors_in_one_file_equal_those_in_several(tmp_path):
    tensors = {"w": torch.randn(5, 7).bfloat16(), "b": torch.randn(3), "e": torch.zeros(0, 2)}
    one = safetensors(tmp_path / "one.safetensors", tensors)
    several = indexed(tmp_path / "several", tensors)
    assert states(compared(one, several)) == {}
    assert states(compared(one, saved(tmp_path / "a.pt", tensors))) == {}


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "gone.safetensors", "a\0b"])
def test_an_index_leads_nowhere_else(tmp_path, name):
    safetensors(tmp_path / "secret.safetensors", {"b": torch.ones(3)})
    folder = indexed(tmp_path / "m", {"w": torch.ones(2)})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-0.safetensors", "b": name}}))
    checkpoint = open_checkpoint(folder)
    assert (list(checkpoint.leaves), list(checkpoint.unreadable)) == (["w"], ["b"])


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    secret = safetensors(tmp_path / "secret.safetensors", {"b": torch.ones(3)})
    folder = indexed(tmp_path / "m", {"w": torch.ones(2)})
    (folder / "link.safetensors").symlink_to(secret)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-0.safetensors", "b": "link.safetensors"}}))
    assert "link that leads out" in open_checkpoint(folder).unreadable["b"]


ENTRY = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}


@pytest.mark.parametrize(
    "entry",
    [
        {**ENTRY, "data_offsets": [0, 11]}, {**ENTRY, "data_offsets": [12, 0]}, {**ENTRY, "shape": [1 << 70]},
        {**ENTRY, "shape": [-3]}, {**ENTRY, "dtype": "F9"}, {**ENTRY, "shape": 3}, {**ENTRY, "shape": [3.0]},
        [], None, {**ENTRY, "more": 1}, {**ENTRY, "data_offsets": [4, 16]}, {**ENTRY, "shape": [True, 3]},
    ],
)  # fmt: skip
def test_a_damaged_entry_of_safetensors_is_refused(tmp_path, entry):
    good = {"a": torch.ones(3), "b": torch.ones(3)}
    path = safetensors(tmp_path / "a.safetensors", good, header={"b": entry})
    with pytest.raises(InputError, match=str(path)):
        open_checkpoint(path)


def test_a_cut_safetensors_file_names_the_tensors_that_are_lost(tmp_path):
    path = safetensors(tmp_path / "a.safetensors", {"a": torch.ones(3), "b": torch.ones(3)})
    path.write_bytes(path.read_bytes()[:-4])
    assert states(compared(path, path)) == {"b": "unreadable"}


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, b"\xff" * 20, b"\2" + b"\0" * 7 + b"[]", b"\1" + b"\0" * 7 + b"{"]
)
def test_a_damaged_header_of_safetensors_is_refused(tmp_path, content):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError):
        open_checkpoint(path)


def test_a_name_that_stands_twice_in_safetensors_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    entry = json.dumps(ENTRY)
    text = f'{{"a": {entry}, "a": {entry}}}'.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))
    with pytest.raises(InputError, match="twice"):
        open_checkpoint(path)
