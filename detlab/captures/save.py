"""Save a call before it is made, and what it gave after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.captures.call import CAPTURE_JSON, Capture, main_device
from detlab.captures.saver import Saver
from detlab.captures.state import torch_state
from detlab.captures.values import leaves
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.store.layout import write_json

if TYPE_CHECKING:
    import torch


class PendingCapture:
    """A capture whose blobs are written and whose call has yet to end."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def complete(self, outputs: Sequence[torch.Tensor]) -> None:
        """Add what the call gave and write capture.json, without which the capture counts as unfinished.

        Parameters
        ----------
        outputs
            The outputs, then the mutated arguments, each object once.
        """
        folder = self._capture.path
        with _capture_errors(folder):
            digests = tuple(tensor_digest(tensor) for tensor in outputs)
            write_json(folder / CAPTURE_JSON, replace(self._capture, output_digests=digests).to_json())


def save_capture(
    folder: Path,
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    site: str,
    rank: int,
    in_digest: int | None = None,
) -> PendingCapture:
    """Save a call that is about to be made; its blobs are on disk when this returns.

    Parameters
    ----------
    folder
        Where capture.json and the blobs go; created when absent.
    func, args, kwargs
        The op and what it is called with, before anything is mutated.
    in_digest
        The fold of the inputs that the recorder computed for the event.

    Raises
    ------
    CaptureError
        An argument has no bytes of its own (a wrapper, sparse or meta tensor), two arguments overlap
        without sharing a storage, or the folder holds a capture or cannot be written.
    """
    if (folder / CAPTURE_JSON).exists():
        raise CaptureError(f"{folder} holds a capture already.", "give every capture a folder of its own")
    given = _in_schema_order(func, args, kwargs)
    with _capture_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        saver = Saver(folder)
        arguments = tuple((name, saver.value(value, name)) for name, value in given)
        device = main_device(saver.storages, arguments)
        generators = saver.default_generators(device) if _is_seeded(func) else ()
        capture = Capture(
            op=str(func),
            schema=str(func._schema),
            arguments=arguments,
            num_positional=0,
            mutates=(),
            storages=tuple(saver.storages),
            generators=generators,
            site=site,
            rank=rank,
            in_digest=in_digest,
            input_digests=tensor_digests([value for _, value in given]),
            output_digests=(),
            state=torch_state(device),
            path=folder,
        )
    return PendingCapture(capture)


def tensor_digests(values: Sequence[object]) -> tuple[int, ...]:
    """Digest every tensor among values and the lists in them, in order."""
    import torch

    return tuple(tensor_digest(leaf) for leaf in leaves(values) if isinstance(leaf, torch.Tensor))


def _is_seeded(func: torch._ops.OpOverload) -> bool:
    import torch

    takes_one = any("Generator" in str(argument.type) for argument in func._schema.arguments)
    return takes_one or torch.Tag.nondeterministic_seeded in func.tags


def _in_schema_order(
    func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[tuple[str, object]]:
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return [(name, given[name]) for name in names if name in given]


@contextmanager
def _capture_errors(folder: Path) -> Iterator[None]:
    """Turn what torch and the disk may raise into the one error that a recorder has to catch."""
    try:
        yield
    except OSError as error:
        finding = f"{folder} cannot be written: {error.strerror}."
        raise CaptureError(finding, "free space, or record into another folder") from error
    except (RuntimeError, TypeError) as error:
        raise CaptureError(
            f"{folder} cannot hold this call: {error}", "capture a call of plain tensors"
        ) from error
