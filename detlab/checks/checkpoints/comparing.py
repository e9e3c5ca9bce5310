"""Compares two checkpoints leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, Final

import polars as pl

from detlab.checks.checkpoints.dtypes import ITEM_SIZE
from detlab.checks.checkpoints.files import OpenFiles
from detlab.checks.checkpoints.layout import Checkpoint, Leaf, Scalar, ScalarLeaf, TensorLeaf
from detlab.checks.checkpoints.tensors import compare_tensors
from detlab.digest import scalar_text
from detlab.errors import InputError

Names = Mapping[str, str] | Callable[[str], str]
"""The name in ``a`` of what ``b`` calls otherwise."""

STATES: Final = ("equal", "different", "only_a", "only_b", "changed", "unreadable")
COLUMNS: Final[dict[str, Any]] = {
    "name": pl.String,
    "kind": pl.Enum(["tensor", "scalar"]),
    "state": pl.Enum(STATES),
    "zeroed_a": pl.Boolean,
    "zeroed_b": pl.Boolean,
    "shape_a": pl.List(pl.Int64),
    "shape_b": pl.List(pl.Int64),
    "dtype_a": pl.String,
    "dtype_b": pl.String,
    "num_different": pl.Int64,
    "num_elements": pl.Int64,
    "first_different": pl.List(pl.Int64),
    "max_abs": pl.Float64,
    "value_a": pl.String,
    "value_b": pl.String,
    "where_a": pl.String,
    "where_b": pl.String,
    "num_bytes": pl.Int64,
    "problem": pl.String,
}

_Row = dict[str, Any]


def compare_checkpoints(a: Checkpoint, b: Checkpoint, names: Names | None = None) -> pl.DataFrame:
    """Compare two checkpoints byte by byte, with bounded memory, however each is sharded.

    Parameters
    ----------
    a, b
        What `open_checkpoint` or `replaced` gave.
    names
        The name in ``a`` of a leaf that ``b`` calls otherwise: a mapping (a name that is not in it stays)
        or a function of the name.

    Returns
    -------
    One row per leaf of either, those of ``a`` first, in its order:

    ``name``; ``kind`` (tensor, scalar); ``state``: equal, different, only_a, only_b, changed (another shape,
    dtype or kind, or a scalar of another type), unreadable; ``zeroed_a``, ``zeroed_b``: all bytes are zero
    (null where they were not read); ``shape_a``, ``shape_b``, ``dtype_a``, ``dtype_b``; ``num_different``,
    ``num_elements``; ``first_different``: the index of the first element, row-major, whose bytes differ;
    ``max_abs``: the largest absolute difference, infinity where one side alone is NaN; ``value_a``,
    ``value_b``: scalars as text; ``where_a``, ``where_b``: files; ``num_bytes`` of one side; ``problem``:
    why it is unreadable. What does not apply is null.

    Raises
    ------
    InputError
        Two leaves of ``b`` get the same name.
    """
    others = _renamed(b.leaves, names)
    unreadable_b = _renamed(b.unreadable, names)
    order = dict.fromkeys([*a.leaves, *a.unreadable, *others, *unreadable_b])
    with OpenFiles() as files:
        rows = [
            _row(name, a.leaves.get(name), others.get(name), files)
            | _refusal(a.unreadable.get(name), unreadable_b.get(name))
            for name in order
        ]
    return pl.DataFrame(rows, COLUMNS)


def _renamed(leaves: Mapping[str, Any], names: Names | None) -> dict[str, Any]:
    if names is None:
        return dict(leaves)
    rename = names if callable(names) else lambda name: names.get(name, name)
    renamed: dict[str, Any] = {}
    for name, leaf in leaves.items():
        if rename(name) in renamed:
            raise InputError(f"two leaves of b are given the name '{rename(name)}'")
        renamed[rename(name)] = leaf
    return renamed


def _refusal(why_a: str | None, why_b: str | None) -> _Row:
    """Give what makes a row unreadable: one side is known by its name alone."""
    why = "; ".join(f"{side}: {why}" for side, why in (("a", why_a), ("b", why_b)) if why is not None)
    return {"state": "unreadable", "problem": why} if why else {}


def _row(name: str, a: Leaf | None, b: Leaf | None, files: OpenFiles) -> _Row:
    """Compare one leaf."""
    row: _Row = dict.fromkeys(COLUMNS)
    row |= {"name": name, "kind": "tensor" if isinstance(a or b, TensorLeaf) else "scalar"}
    row |= _facts(a, "a") | _facts(b, "b")
    if a is None or b is None:
        return row | {"state": "only_b" if a is None else "only_a"}
    if isinstance(a, TensorLeaf) and isinstance(b, TensorLeaf):
        return row | _tensors(a, b, files)
    if isinstance(a, ScalarLeaf) and isinstance(b, ScalarLeaf):
        return row | {"state": _scalars(a.value, b.value)}
    return row | {"state": "changed"}


def _facts(leaf: Leaf | None, side: str) -> _Row:
    if leaf is None:
        return {}
    if isinstance(leaf, ScalarLeaf):
        return {f"value_{side}": _text(leaf.value), f"where_{side}": leaf.where}
    count = prod(leaf.shape)
    return {
        f"shape_{side}": list(leaf.shape),
        f"dtype_{side}": leaf.dtype,
        f"where_{side}": ", ".join(_places(leaf)),
        "num_elements": count if count < 1 << 63 else None,
        "num_bytes": size if (size := count * ITEM_SIZE[leaf.dtype]) < 1 << 63 else None,
    }


def _places(leaf: TensorLeaf) -> Iterator[str]:
    paths = list(dict.fromkeys(str(piece.path) for piece in leaf.pieces))
    yield from paths[:2]
    if len(paths) > 2:
        yield f"and {len(paths) - 2} more"


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else repr(value)


def _scalars(a: Scalar, b: Scalar) -> str:
    if type(a) is not type(b):
        return "changed"
    return "equal" if scalar_text(a) == scalar_text(b) else "different"


def _tensors(a: TensorLeaf, b: TensorLeaf, files: OpenFiles) -> _Row:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return {"state": "changed"}
    try:
        found = compare_tensors(a, b, files)
    except InputError as error:
        return {"state": "unreadable", "problem": error.finding}
    row = {key: value for key, value in found._asdict().items() if key != "first_different"}
    first = None if found.first_different is None else list(found.first_different)
    return {**row, "state": "different" if found.num_different else "equal", "first_different": first}
