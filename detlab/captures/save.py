"""Save a call before it is made, and what it gave after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.captures.blobs import remove_blobs
from detlab.captures.call import CAPTURE_JSON, Capture, main_device
from detlab.captures.saver import Saver
from detlab.captures.state import call_state
from detlab.captures.values import leaves
from detlab.digest import tensor_digest
from detlab.errors import CaptureError
from detlab.store.layout import write_json

if TYPE_CHECKING:
    import torch


class PendingCapture:
    """A capture whose blobs are written and whose call has yet to end.

    Attributes
    ----------
    capture
        All of it but the digests of what the call gives.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    def complete(self, outputs: Sequence[torch.Tensor], mutates: Iterable[str] | None = None) -> None:
        """Add what the call gave and write capture.json, without which the capture counts as unfinished.

        Parameters
        ----------
        outputs
            The outputs, then the mutated arguments, each object once.
        mutates
            Names of the arguments that the call was seen to change; None: as said before.
        """
        folder = self.capture.path
        with _capture_errors(folder):
            digests = tuple(tensor_digest(tensor) for tensor in outputs)
            done = replace(self.capture, output_digests=digests)
            if mutates is not None:
                done = replace(done, mutates=tuple(mutates))
            write_json(folder / CAPTURE_JSON, done.to_json())

    def discard(self) -> None:
        """Take the blobs away again: the call did not end."""
        remove_blobs(self.capture.path, self.capture.storages)


@dataclass(frozen=True, slots=True)
class CallToSave:
    """A call that is about to be made, before anything is mutated.

    Attributes
    ----------
    op, schema
        See `Capture`.
    given
        (name, value) of every argument.
    num_positional, mutates
        See `Capture`.
    is_seeded
        Whether it may draw from a default generator.
    """

    op: str
    schema: str
    given: Sequence[tuple[str, object]]
    num_positional: int
    mutates: tuple[str, ...]
    is_seeded: bool


def save_capture(  # noqa: PLR0913 - one keyword for each fact of the call and each choice
    folder: Path,
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    site: str,
    rank: int,
    in_digest: int | None = None,
    max_bytes: int | None = None,
    compact: bool = False,
) -> PendingCapture:
    """Save a call of an op that is about to be made; its blobs are on disk when this returns.

    Parameters
    ----------
    folder
        Where capture.json and the blobs go; created when absent.
    func, args, kwargs
        The op and what it is called with, before anything is mutated.
    in_digest
        The fold of the inputs that the recorder computed for the event.
    max_bytes, compact
        See `save_call`.

    Raises
    ------
    CaptureError
        See `save_call`.
    """
    call = CallToSave(
        op=str(func),
        schema=str(func._schema),
        given=_in_schema_order(func, args, kwargs),
        num_positional=0,
        mutates=(),
        is_seeded=_is_seeded(func),
    )
    return save_call(
        folder, call, site=site, rank=rank, in_digest=in_digest, max_bytes=max_bytes, compact=compact
    )


def save_call(
    folder: Path,
    call: CallToSave,
    *,
    site: str,
    rank: int,
    in_digest: int | None = None,
    max_bytes: int | None = None,
    compact: bool = False,
) -> PendingCapture:
    """Save a call of an op or of a Python callable.

    Parameters
    ----------
    max_bytes
        The most that its storages may take on disk; None: as much as they have.
    compact
        Hold only the bytes from the first to the last that tensors span, not whole storages. The capture
        says then that its layout is no longer exact.

    Raises
    ------
    CaptureError
        An argument has no bytes of its own (a wrapper, sparse or meta tensor), two arguments overlap
        without sharing a storage, the call is larger than allowed, or the folder holds a capture or cannot
        be written.
    """
    if (folder / CAPTURE_JSON).exists():
        raise CaptureError(f"{folder} holds a capture already.", "give every capture a folder of its own")
    with _capture_errors(folder):
        saver = Saver(compact=compact)
        arguments = [(name, saver.value(value, name)) for name, value in call.given]
        device = main_device(saver.devices, arguments)
        generators = saver.default_generators(device) if call.is_seeded else ()
        _check_size(saver, call.op, max_bytes, compact=compact)
        digests, state = tensor_digests([value for _, value in call.given]), call_state(device)
        folder.mkdir(parents=True, exist_ok=True)
        capture = Capture(
            op=call.op,
            schema=call.schema,
            arguments=tuple((name, saver.placed(value)) for name, value in arguments),
            num_positional=call.num_positional,
            mutates=call.mutates,
            storages=saver.write(folder),
            generators=generators,
            site=site,
            rank=rank,
            in_digest=in_digest,
            input_digests=digests,
            output_digests=(),
            state=state,
            path=folder,
        )
    return PendingCapture(capture)


def tensor_digests(values: Sequence[object]) -> tuple[int, ...]:
    """Digest every tensor among values and the lists in them, in order."""
    import torch

    return tuple(tensor_digest(leaf) for leaf in leaves(values) if isinstance(leaf, torch.Tensor))


def _check_size(saver: Saver, op: str, max_bytes: int | None, *, compact: bool) -> None:
    size, least = saver.num_bytes(compact=compact), saver.num_bytes(compact=True)
    if max_bytes is None or size <= max_bytes:
        return
    smaller = f", or say compact=True: the bytes that its tensors span are {least:,}" if least < size else ""
    raise CaptureError(
        f"The storages of this call of {op} have {size:,} bytes; max_bytes allows {max_bytes:,}.",
        f"allow more{smaller}",
    )


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
