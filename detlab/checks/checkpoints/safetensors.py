"""safetensors files: a length, a header in JSON, and the bytes of all tensors in row-major order."""

from __future__ import annotations

import json
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import OpenFiles, inside
from detlab.checks.checkpoints.layout import Piece, ScalarLeaf, TensorLeaf
from detlab.checks.checkpoints.torch_save import Found
from detlab.errors import InputError

INDEX: Final = ".safetensors.index.json"
MAX_HEADER_BYTES: Final = 100_000_000
"""The limit of the format's own reader (https://github.com/huggingface/safetensors)."""

_DTYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_PLACE: Final = {"dtype", "shape", "data_offsets"}


def read_file(path: Path, files: OpenFiles) -> Found:
    """Give the leaves of one file.

    Raises
    ------
    InputError
        The header is damaged, or its tensors overlap.
    """
    region = files.whole(path)
    length = int.from_bytes(region.read(0, 8), "little")
    if region.length < 8 or length > min(MAX_HEADER_BYTES, region.length - 8):
        raise InputError(f"{path} is no whole safetensors file", "copy the file again; it may have been cut")
    header = _header(path, region.read(8, length))
    found = Found({}, {})
    taken: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            found.leaves.update(_notes(entry, path))
            continue
        leaf, end = _tensor(name, entry, path, 8 + length)
        if end > region.length:
            found.unreadable[name] = f"{path} ends before it"
        found.leaves[name] = (
            leaf if name not in found.unreadable else TensorLeaf(name, leaf.shape, leaf.dtype, ())
        )
        taken += [(piece.start, end, name) for piece in leaf.pieces]
    taken.sort()
    for (_, end, first), (start, _, second) in pairwise(taken):
        if start < end:
            raise InputError(f"{path}: the bytes of '{first}' and '{second}' overlap")
    return found


def _header(path: Path, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name stands in it twice")
        return dict(pairs)

    try:
        header = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: its header cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise InputError(f"{path}: its header is no mapping")
    return header


def _notes(entry: Any, path: Path) -> dict[str, ScalarLeaf]:
    texts = entry.items() if isinstance(entry, dict) else ()
    return {
        f"__metadata__.{key}": ScalarLeaf(f"__metadata__.{key}", str(text)[:4096], str(path))
        for key, text in texts
    }


def _tensor(name: str, entry: Any, path: Path, begin: int) -> tuple[TensorLeaf, int]:
    """Give a tensor and the byte where it ends."""
    fields = entry if isinstance(entry, dict) else {}
    shape: Any = fields.get("shape")
    place: Any = fields.get("data_offsets")
    dtype = _DTYPES.get(str(fields.get("dtype")))
    numbers = [*shape, *place] if isinstance(shape, list) and isinstance(place, list) else [None]
    if not all(type(each) is int and 0 <= each < 1 << 62 for each in numbers) or dtype is None:
        raise InputError(f"{path}: the entry of '{name}' is damaged or of a dtype that is not known")
    size = prod(shape) * ITEM_SIZE[dtype]
    if len(place) != 2 or place[1] - place[0] != size or not set(fields) <= _PLACE:
        raise InputError(f"{path}: the entry of '{name}' does not fit its shape and dtype")
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    piece = Piece((0,) * len(shape), tuple(shape), path, begin + place[0], strides)
    return TensorLeaf(name, tuple(shape), dtype, (piece,) if size else ()), begin + place[1]


def indexed_files(index: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Give the file of each tensor that an index names, and why a file cannot be used, by tensor.

    Raises
    ------
    InputError
        The index is no JSON of the known form.
    """
    try:
        names = json.loads(index.read_bytes())["weight_map"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{index} is no index of safetensors files: {error}") from None
    paths: dict[str, Path] = {}
    refused: dict[str, str] = {}
    for name, file in names:
        try:
            paths[name] = inside(index.parent, str(file))
        except InputError as error:
            refused[name] = error.finding
    return paths, refused
