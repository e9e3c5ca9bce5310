"""torch.distributed.checkpoint: names and global shapes of the metadata, whatever ranks saved which part."""

import io
import pickle  # noqa: TID251 - writes the hostile files that the reader must refuse
import shutil

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from detlab.checks.checkpoints import open_checkpoint
from detlab.checks.checkpoints.metadata import read_metadata
from detlab.errors import InputError
from tests.checks.checkpoints.saved import compared, distributed, flip, row, saved, states
from tests.megatron_cpu.processes import run_on_ranks

STATE = {
    "model": {
        "w": torch.arange(600.0).reshape(20, 30),
        "b": torch.arange(7).bfloat16(),
        "e": torch.zeros(0, 3),
    },
    "step": 3,
    "note": "a word",
    "lr": 0.1,
    "cube": torch.arange(210, dtype=torch.int64).reshape(5, 6, 7),
}


def save_sharded(folder, axes):
    """Save `STATE` on this rank, its tensors cut along an axis each (None: replicated)."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))

    def cut(tensor, axis):
        return distribute_tensor(tensor, mesh, [Replicate() if axis is None else Shard(axis)])

    state = {**STATE, "model": dict(STATE["model"])}
    state["model"]["w"] = cut(STATE["model"]["w"], axes[0])
    state["cube"] = cut(STATE["cube"], axes[1])
    dcp.save(state, checkpoint_id=folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return distributed(tmp_path_factory.mktemp("whole") / "c", STATE)


@pytest.fixture(scope="module")
def by_rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows") / "c"
    run_on_ranks(2, save_sharded, str(folder), (0, 2))
    return folder


@pytest.fixture(scope="module")
def by_columns(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns") / "c"
    run_on_ranks(3, save_sharded, str(folder), (1, 0))  # 20, 30, 5: uneven parts
    return folder


def test_a_checkpoint_of_one_process_equals_the_torch_save_file_of_the_same_state(whole, tmp_path):
    assert open_checkpoint(whole).format == "torch.distributed.checkpoint"
    assert states(compared(whole, saved(tmp_path / "a.pt", STATE))) == {}


def test_how_it_was_sharded_is_no_difference(whole, by_rows, by_columns):
    assert len(open_checkpoint(by_columns).leaves["model.w"].pieces) == 3
    for a, b in ((whole, by_rows), (by_rows, by_columns), (by_columns, whole)):
        frame = compared(a, b)
        assert states(frame) == {}
        assert len(frame) == 7


def test_one_flipped_bit_is_found_at_its_global_index_however_it_is_sharded(
    whole, by_rows, by_columns, tmp_path
):
    folder = tmp_path / "c"
    shutil.copytree(by_columns, folder)
    last = open_checkpoint(folder).leaves["model.w"].pieces[-1]
    flip(last.path, last.start)  # the first byte of its element (0, 0)
    for other in (whole, by_rows, by_columns):
        frame = compared(other, folder)
        assert states(frame) == {"model.w": "different"}
        assert row(frame, "model.w")["first_different"] == list(last.offsets)
        assert row(frame, "model.w")["num_different"] == 1


def test_a_file_that_is_missing_makes_its_tensors_unreadable_and_no_others(by_rows, tmp_path):
    folder = tmp_path / "c"
    shutil.copytree(by_rows, folder)
    lost = open_checkpoint(folder).leaves["cube"].pieces[1].path
    lost.unlink()
    checkpoint = open_checkpoint(folder)
    assert any(lost.name in problem and "missing" in problem for problem in checkpoint.problems)
    frame = compared(by_rows, folder)
    assert "elements are missing" in row(frame, "cube")["problem"]
    there = compared(by_rows, by_rows)
    inside = [name for name in there["name"] if lost.name in (row(there, name)["where_a"] or "")]
    assert 0 < len(inside) < len(there)
    assert states(frame) == dict.fromkeys(sorted(inside), "unreadable")


def test_a_cut_file_keeps_what_lies_before_the_cut(whole, tmp_path):
    folder = tmp_path / "c"
    shutil.copytree(whole, folder)
    leaves = open_checkpoint(folder).leaves
    pieces = sorted((leaves[name].pieces[0].start, name) for name in ("model.w", "model.b", "cube"))
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[: pieces[-1][0]])
    frame = compared(whole, folder)
    assert row(frame, pieces[-1][1])["state"] == "unreadable"
    assert row(frame, pieces[0][1])["state"] == "equal"


def entry(shape, *boxes, dtype=torch.float32):
    chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in boxes]
    return TensorStorageMetadata(TensorProperties(dtype), torch.Size(shape), chunks)


def planted(folder, tensors, pieces):
    """Write a checkpoint: entries by name, and pieces (name, offsets, tensor[, their place])."""
    folder.mkdir(parents=True)
    storage = {}
    with (folder / "__0_0.distcp").open("wb") as file:
        for name, offsets, tensor, *info in pieces:
            stream = io.BytesIO()
            torch.save(tensor, stream)
            place = info[0] if info else ("__0_0.distcp", file.tell(), len(stream.getvalue()))
            storage[MetadataIndex(name, offsets)] = _StorageInfo(*place)
            file.write(stream.getvalue())
    dump(folder, Metadata(tensors, None, storage))
    return folder


def dump(folder, value):
    folder.mkdir(exist_ok=True)
    (folder / ".metadata").write_bytes(value if isinstance(value, bytes) else pickle.dumps(value))
    return folder


HALVES = [((0,), (2,)), ((2,), (2,))]


@pytest.mark.parametrize(
    ("shape", "boxes", "says"),
    [
        ((4,), HALVES[:1], "2 of 4 elements are missing"),
        ((4,), [*HALVES, ((1,), (2,))], "overlap"),
        ((3,), HALVES, "outside of its shape"),
        ((1 << 60,), HALVES, "elements are missing"),
        ((4,), [((1,), (2,)), ((2,), (2,))], "overlap"),
    ],
)
def test_holes_and_overlaps_of_a_tensor_are_unreadable(tmp_path, shape, boxes, says):
    pieces = [("w", offsets, torch.ones(sizes)) for offsets, sizes in boxes]
    folder = planted(tmp_path / "c", {"w": entry(shape, *boxes)}, pieces)
    assert says in row(compared(folder, folder), "w")["problem"]


@pytest.mark.parametrize(
    "place",
    [
        ("../secret", 0, 500), ("/etc/passwd", 0, 500), ("link", 0, 500), ("__0_0.distcp", 1 << 61, 500),
        ("__0_0.distcp", 0, 1 << 61), ("__0_0.distcp", -5, 500), ("__0_0.distcp", 1, 500), ("", 0, 9),
        ("a\nb", 0, 9),
    ],
)  # fmt: skip
def test_a_place_outside_is_not_read(tmp_path, place):
    saved(tmp_path / "secret", torch.ones(4))
    folder = planted(tmp_path / "c", {"w": entry((4,), *HALVES)}, [
        ("w", (0,), torch.ones(2)), ("w", (2,), torch.ones(2), place),
    ])  # fmt: skip
    (folder / "link").symlink_to(tmp_path / "secret")
    checkpoint = open_checkpoint(folder)
    assert [piece.offsets for piece in checkpoint.leaves["w"].pieces] == [(0,)]
    assert checkpoint.problems
    assert states(compared(folder, folder)) == {"w": "unreadable"}


def test_a_piece_of_another_shape_or_dtype_is_no_piece(tmp_path):
    wrong = [("w", (0,), torch.ones(2)), ("w", (2,), torch.ones(2).double())]
    folder = planted(tmp_path / "c", {"w": entry((4,), *HALVES)}, wrong)
    assert any("is float64[2], not float32[2]" in problem for problem in open_checkpoint(folder).problems)


def test_a_save_that_did_not_end_is_said(whole, tmp_path):
    folder = tmp_path / "c"
    shutil.copytree(whole, folder)
    (folder / ".metadata").unlink()
    with pytest.raises(InputError, match="not saved to the end"):
        open_checkpoint(folder)


def test_a_checkpoint_in_the_one_folder_of_a_folder_is_found(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "nemo" / "weights")
    (tmp_path / "nemo" / "context").mkdir()
    assert states(compared(whole, tmp_path / "nemo")) == {}
    shutil.copytree(whole, tmp_path / "nemo" / "step-20")
    with pytest.raises(
        InputError, match=r"holds 2 checkpoints[^\n]*\nHint: give one of them, such as .*weights"
    ):
        open_checkpoint(tmp_path / "nemo")


def test_a_name_with_line_breaks_is_a_name(tmp_path):
    name = "w\n\x1b[31mred"
    folder = planted(tmp_path / "c", {name: entry((2,), ((0,), (2,)))}, [(name, (0,), torch.ones(2))])
    assert states(compared(folder, folder)) == {}


class Marked:
    """Pickled as a call that would leave a mark."""

    def __init__(self, call, *args):
        self.call = (call, args)

    def __reduce__(self):
        return self.call


def test_a_pickle_that_calls_anything_else_is_refused_and_calls_nothing(tmp_path):
    mark = tmp_path / "mark"
    for number, call in enumerate((shutil.rmtree, open, print, getattr, eval, torch.load, exec)):
        planted_call = (
            Marked(call, str(mark), "w") if call is open else Marked(call, f"open({str(mark)!r}, 'w')")
        )
        folder = dump(tmp_path / str(number), Metadata({"w": planted_call}))
        with pytest.raises(InputError, match="is no metadata of a checkpoint"):
            open_checkpoint(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    "tail",
    [
        # BUILD on a class, with a state for its attributes and with one for its slots
        b"}\x8c\x0c__setstate__N\x85sb.",
        b"N}\x8c\x0c__setstate__\x8c\x01xs\x86b.",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["torch\nSize", "torch.distributed.checkpoint.metadata\nMetadata", "collections\nOrderedDict"]
)
def test_no_pickle_changes_a_class_of_the_reader(tmp_path, name, tail):
    good = planted(tmp_path / "good", {"w": entry((2,), ((0,), (2,)))}, [("w", (0,), torch.ones(2))])
    folder = dump(tmp_path / "bad", b"\x80\x04c" + name.encode() + b"\n" + tail)
    with pytest.raises(InputError):
        open_checkpoint(folder)
    assert states(compared(good, good)) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80\x04", b"nonsense", b"\x80\x04N.", b"\x80\x04}.", b"\x80\x04K\x01Q.",
        b"\x80\x04(i__builtin__\neval\n.",
        b"\x80\x04\x8e" + b"\xff" * 8,  # BINBYTES8 of 2^64 bytes
        b"\x80\x04Nr\xff\xff\xff\xff.",  # LONG_BINPUT: a memo of 2^32 places
        b"\x80\x04\x95" + b"\xff" * 8 + b"N.",  # FRAME of 2^64 bytes
        b"\x80\x04" + b"(" * 100_000 + b".", b"\x80\x04" + b"]" + b"\x85" * 100_000 + b".",
        pickle.dumps([1, 2]), pickle.dumps(Metadata(None)), pickle.dumps(Metadata([])),
    ],
)  # fmt: skip
def test_a_damaged_metadata_file_is_refused(tmp_path, content):
    folder = dump(tmp_path / "c", content)
    with pytest.raises(InputError, match=r"\.metadata"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "bad",
    [3, "w", None, ChunkStorageMetadata(torch.Size([0]), torch.Size([2])), entry((2,), ((0, 0), (2,))),
     entry((2,), ((-1,), (2,))), TensorStorageMetadata(None, torch.Size([2]), []),
     TensorStorageMetadata(TensorProperties(torch.float32), None, []),
     TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([2]), [3])],
)  # fmt: skip
def test_an_entry_of_the_wrong_kind_is_a_problem_and_the_others_are_read(tmp_path, bad):
    good = {"w": entry((2,), ((0,), (2,))), "bad": bad}
    checkpoint = open_checkpoint(planted(tmp_path / "c", good, [("w", (0,), torch.ones(2))]))
    assert list(checkpoint.leaves) == ["w"]
    assert any("'bad'" in problem for problem in checkpoint.problems)


def test_an_object_without_a_place_is_unreadable_by_name(tmp_path):
    folder = planted(tmp_path / "c", {"w": entry((2,), ((0,), (2,))), "rng": BytesStorageMetadata()}, [
        ("w", (0,), torch.ones(2)),
    ])  # fmt: skip
    assert states(compared(folder, folder)) == {"rng": "unreadable"}


def test_the_plans_that_megatron_keeps_are_read_over(tmp_path):
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

    metadata = Metadata({"w": entry((2,), ((0,), (2,)))})
    chunk = ChunkStorageMetadata(torch.Size([0]), torch.Size([2]))
    data = TensorWriteData(chunk, TensorProperties(torch.float32), torch.Size([2]))
    item = WriteItem(MetadataIndex("w", [0]), WriteItemType.SHARD, tensor_data=data)
    metadata.all_local_plans = [SavePlan([item])]
    assert list(read_metadata(dump(tmp_path, metadata) / ".metadata").tensors) == ["w"]
