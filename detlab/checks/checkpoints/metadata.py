"""The ``.metadata`` file of torch.distributed.checkpoint: its tensors and objects, and where each lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from detlab.checks.checkpoints import plain_pickle
from detlab.checks.checkpoints.plain_pickle import Record
from detlab.errors import InputError

MAX_BYTES: Final = 512 << 20

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and shape, in elements."""


class Stored(NamedTuple):
    """Where one piece lies: a file of the folder, and a run of bytes in it."""

    file: str
    offset: int
    length: int
    transformed: bool


class TensorEntry(NamedTuple):
    """A tensor of the checkpoint: global shape, dtype and the boxes that it was saved in."""

    shape: tuple[int, ...]
    dtype: str
    boxes: tuple[Box, ...]


class Metadata(NamedTuple):
    """What the file says.

    Attributes
    ----------
    tensors
        By name.
    objects
        Names of what is no tensor.
    stored
        The place of each piece by name and offsets; objects have none.
    problems
        Entries that are not what they must be.
    """

    tensors: dict[str, TensorEntry]
    objects: tuple[str, ...]
    stored: dict[tuple[str, tuple[int, ...] | None], Stored]
    problems: tuple[str, ...]


def read_metadata(path: Path) -> Metadata:
    """Read the ``.metadata`` file.

    Raises
    ------
    InputError
        It is damaged, too large, or holds anything but metadata.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path} has more than {MAX_BYTES >> 20} MiB", "no metadata is that large")
    hint = "only files that torch.distributed.checkpoint wrote are read; copy it again if it was cut"
    try:
        found = plain_pickle.load(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path} is refused: {error.finding}", hint) from None
    except MemoryError:
        raise
    except Exception as error:  # a hostile pickle can make the machine raise anything
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}", hint) from None
    if not isinstance(found, plain_pickle.Metadata) or not isinstance(
        found.get("state_dict_metadata"), Mapping
    ):
        raise InputError(f"{path} holds no metadata of a checkpoint", hint)
    return _checked(found, path)


def _checked(found: plain_pickle.Metadata, path: Path) -> Metadata:
    """Take the fields that are needed, and only where they have the right types."""
    tensors: dict[str, TensorEntry] = {}
    objects: list[str] = []
    problems: list[str] = []
    for name, entry in found.get("state_dict_metadata").items():
        kind = entry.kind if isinstance(entry, Record) and isinstance(name, str) else ""
        if kind == "object":
            objects.append(name)
        elif kind == "tensor" and (tensor := _tensor(entry)) is not None:
            tensors[name] = tensor
        else:
            problems.append(f"{path}: the entry of '{str(name)[:80]}' is no tensor and no object")
    return Metadata(tensors, tuple(objects), _places(found.get("storage_data")), tuple(problems))


def _tensor(entry: Record) -> TensorEntry | None:
    properties, chunks = entry.get("properties"), entry.get("chunks")
    state = getattr(properties, "state", None)
    shape = _whole(entry.get("size"))
    if not isinstance(state, tuple) or not state or not isinstance(chunks, list) or shape is None:
        return None
    boxes = [_box(each, len(shape)) for each in chunks]
    if not isinstance(state[0], str) or None in boxes:
        return None
    return TensorEntry(shape, state[0], tuple(box for box in boxes if box is not None))


def _box(chunk: Any, num_dimensions: int) -> Box | None:
    if not isinstance(chunk, plain_pickle.ChunkStorageMetadata):
        return None
    offsets, sizes = _whole(chunk.get("offsets")), _whole(chunk.get("sizes"))
    if offsets is None or sizes is None or not len(offsets) == len(sizes) == num_dimensions:
        return None
    return offsets, sizes


def _whole(values: Any) -> tuple[int, ...] | None:
    """Give a tuple of numbers from 0 that a file of 2^63 bytes could hold; else None."""
    fine = isinstance(values, tuple) and all(type(each) is int and 0 <= each < 1 << 62 for each in values)
    return values if fine else None


def _places(stored: Any) -> dict[tuple[str, tuple[int, ...] | None], Stored]:
    places: dict[tuple[str, tuple[int, ...] | None], Stored] = {}
    for index, info in stored.items() if isinstance(stored, Mapping) else ():
        if not isinstance(index, plain_pickle.MetadataIndex) or not isinstance(
            info, plain_pickle.StorageInfo
        ):
            continue
        name, offsets = index.get("fqn"), index.get("offset")
        file, run = info.get("relative_path"), _whole((info.get("offset"), info.get("length")))
        if isinstance(name, str) and isinstance(file, str) and run is not None:
            places[name, _whole(offsets)] = Stored(
                file, run[0], run[1], bool(info.get("transform_descriptors"))
            )
    return places
