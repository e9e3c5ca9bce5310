"""Files to read: written by torch, or by hand where torch would refuse to write them."""

import json
import struct
import warnings
import zipfile

import polars as pl
import torch

from detlab.checks.checkpoints import compare_checkpoints, open_checkpoint

WORDS = {
    torch.float32: "F32", torch.bfloat16: "BF16", torch.float64: "F64", torch.uint8: "U8", torch.int64: "I64",
}  # fmt: skip


def saved(path, value, **options):
    """Save with torch.save; give the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path, **options)
    return path


def distributed(folder, state):
    """Save with torch.distributed.checkpoint in this one process; give the folder."""
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.save(state, checkpoint_id=str(folder), no_dist=True)
    return folder


def tensor_bytes(tensor):
    if not tensor.numel():
        return b""
    plain = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()


def safetensors(path, tensors, header=None):
    """Write a safetensors file; ``header`` replaces entries."""
    entries, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor_bytes(tensor)
        place = [len(data), len(data) + len(raw)]
        entries[name] = {"dtype": WORDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        data += raw
    text = json.dumps({**entries, **(header or {})}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def compared(a, b, **options):
    """Compare two paths (or opened checkpoints); give the frame."""
    return compare_checkpoints(
        *(each if hasattr(each, "leaves") else open_checkpoint(each) for each in (a, b)), **options
    )


def states(frame):
    """Give the state of each leaf that is not equal."""
    rows = frame.filter(pl.col("state") != "equal").sort("name")
    return dict(zip(rows["name"].to_list(), rows["state"].to_list(), strict=True))


def row(frame, name):
    return frame.row(by_predicate=pl.col("name") == name, named=True)


def flip(path, place, bit=0):
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def rezipped(path, change):
    """Write a zip anew; ``change`` takes a member's name and bytes and gives (bytes, compression) or None."""
    with zipfile.ZipFile(path) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members:
            if (changed := change(name, data)) is not None:
                new.writestr(name, changed[0], compress_type=changed[1])
    return path
