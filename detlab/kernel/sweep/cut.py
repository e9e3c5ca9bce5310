"""A captured call with fewer rows: which of its tensors can be cut, and the capture that has them cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from detlab.captures import Capture
from detlab.captures.save import tensor_digests
from detlab.captures.values import TensorSpec, Value, leaves
from detlab.errors import CaptureError
from detlab.kernel.restore import RestoredCall

_SIZE_ARGUMENTS: Final = frozenset(
    {
        "size",
        "sizes",
        "shape",
        "stride",
        "split_sizes",
        "output_size",
        "input_size",
        "self_sizes",
        "input_sizes",
    }
)
"""Arguments that give sizes as numbers, which would no longer be those of the tensors."""

_INDICES: Final = frozenset({"index", "indices"})
_INDEXED: Final = frozenset({"self", "input", "weight"})
"""Arguments that indices point into: cut, they would be pointed past their end."""

_POINTERS: Final = ("offs", "cu_seq", "cum_seq")
"""How the names of tensors begin that say where each piece of another one's rows begins."""

_HINT: Final = "capture the call at another size"


@dataclass(frozen=True, slots=True)
class Cut:
    """The tensors that share the rows that are cut.

    Attributes
    ----------
    rows
        Length of their leading dimension at full size.
    names
        The arguments that they belong to, in order.
    places
        Their positions among all tensors of the call.
    """

    rows: int
    names: tuple[str, ...]
    places: frozenset[int]


def find_cut(capture: Capture, func: Callable[..., Any], device: str, fraction: float) -> Cut:
    """Find tensors that share their leading dimension and that the call can be made with fewer rows of.

    With indices, those tensors are tried that share the rows of the first of them, without what they point
    into; else those that share the rows of the first tensor, then of the next. Of each: all of them, those
    with as many axes as the first, the first alone. The first that the call can be made with is taken.

    Raises
    ------
    CaptureError
        The call gets sizes as numbers or offsets of rows, has no rows to cut, or cannot be made with fewer.
    """
    if pointing := [name for name, _ in _tensors(capture) if name.startswith(_POINTERS)]:
        raise CaptureError(f"{capture.op} takes {pointing[0]} that point into its rows.", _HINT)
    if named := [name for name, value in capture.arguments if name in _SIZE_ARGUMENTS and value is not None]:
        raise CaptureError(f"{capture.op} gets sizes as numbers ({', '.join(named)}).", _HINT)
    tensors = _tensors(capture)
    if device != "cpu" and not capture.is_op and any("int" in spec.dtype for _, spec in tensors):
        raise CaptureError(
            f"{capture.op} takes integers, which may be indices: one past the end would end the process.",
            _HINT,
        )
    reason = "no tensor that it could do with fewer rows of has two or more"
    for cut in _candidates(tensors):
        try:
            reduced = cut_capture(capture, cut, max(1, int(cut.rows * fraction)), func, device)
            if any(output.numel() for output in RestoredCall(reduced, func, device).run()):
                return cut
        except CaptureError as error:
            reason = str(error).partition("\n")[0]
    raise CaptureError(f"{capture.op} cannot be made with fewer rows: {reason}", _HINT)


def cut_capture(capture: Capture, cut: Cut, rows: int, func: Callable[..., Any], device: str) -> Capture:
    """Give the call with the first rows only; storages, addresses and strides stay as they were.

    What training recorded of the results is left out: it was of the whole call.
    """
    if rows >= cut.rows:
        return capture
    counter = iter(range(len(capture.input_digests)))
    arguments = tuple((name, _cut(value, cut, rows, counter)) for name, value in capture.arguments)
    whole = RestoredCall(capture, func, device).tensors
    digests = tensor_digests([t[:rows] if i in cut.places else t for i, t in enumerate(whole)])
    return replace(capture, arguments=arguments, in_digest=None, input_digests=digests, output_digests=())


def _candidates(tensors: list[tuple[str, TensorSpec]]) -> Iterator[Cut]:
    """Give the sets of tensors to try, each once."""
    places = [place for place, (_, spec) in enumerate(tensors) if spec.shape and spec.shape[0] > 1]
    indices = [place for place in places if tensors[place][0] in _INDICES]
    if any(name in _INDICES for name, _ in tensors):
        places = [place for place in places if tensors[place][0] not in _INDEXED]
    leading = [tensors[place][1].shape[0] for place in indices[:1] or places]
    tried: set[tuple[int, ...]] = set()
    for rows in dict.fromkeys(leading):
        sharing = [place for place in places if tensors[place][1].shape[0] == rows]
        axes = len(tensors[sharing[0]][1].shape)
        alike = [place for place in sharing if len(tensors[place][1].shape) == axes]
        for chosen in (sharing, alike, sharing[:1]):
            if tuple(chosen) not in tried:
                tried.add(tuple(chosen))
                names = tuple(dict.fromkeys(tensors[place][0] for place in chosen))
                yield Cut(rows, names, frozenset(chosen))


def _tensors(capture: Capture) -> list[tuple[str, TensorSpec]]:
    return [
        (name, leaf)
        for name, value in capture.arguments
        for leaf in leaves(value)
        if isinstance(leaf, TensorSpec)
    ]


def _cut(value: Value, cut: Cut, rows: int, counter: Iterator[int]) -> Value:
    """Cut the chosen tensors of a value, counting all of them in order."""
    match value:
        case TensorSpec():
            if next(counter) in cut.places:
                return replace(value, shape=(rows, *value.shape[1:]))
        case list():
            return [_cut(item, cut, rows, counter) for item in value]
        case tuple():
            return tuple(_cut(item, cut, rows, counter) for item in value)
        case dict():
            return {name: _cut(item, cut, rows, counter) for name, item in value.items()}
    return value
