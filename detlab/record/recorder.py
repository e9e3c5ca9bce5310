"""Record a training run: one context manager around the loop."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torch import nn

from detlab.errors import RecordingError
from detlab.record.captures import CaptureChoices, read_selectors
from detlab.record.dispatch import Choices
from detlab.record.layout import current_rank
from detlab.record.patches import replace_attribute
from detlab.record.session import Session, Settings
from detlab.schema import Phase
from detlab.store import Selectable, Selection

_open: list[Recorder] = []


def _forget_in_child() -> None:
    """Leave the files alone in a forked child, such as a data loader's worker: they are the parent's."""
    while _open:
        _open.pop()._forget()


os.register_at_fork(after_in_child=_forget_in_child)


class Recorder:
    """Record what runs inside the ``with`` block, on the ranks and steps that are selected.

    Enter it after torch.distributed and Megatron's groups are initialised, attach the model first, and
    attach it when its configuration is complete. A rank that is not selected does nothing at all.
    The environment variables ``DETLAB_HOST`` and ``DETLAB_RACK`` name the host and its rack in the recipe.

    Parameters
    ----------
    folder
        Folder of the run, one for all ranks.
    steps, ranks
        ``"1-3,8"``, a number, numbers, or None for all. Steps are the run's global ones.
    label
        Name of the run for people; the folder's name when left out.
    start_step
        The step that runs first; a resumed run passes its global step.
    ops
        Write every op that runs. Without them only what `snapshot` and `metric` are given is written, and
        nothing else costs anything.
    inputs
        Hash inputs too. Without them no origin can be told from a receiver.
    views
        Write events of views.
    details
        Write a row per tensor beside the event.
    stats
        Put absmax, sum and the numbers of NaN and Inf into these rows.
    capture
        Ops (``"aten.index_put.default"``) or sites whose calls are saved whole; a comparison saves, on each
        rank, the call of its first origin there (``capture=dl.compare(monday, tuesday)``), and a frame such
        as ``cmp.first`` the calls of its rows.
    capture_limit
        How many calls each of them saves per rank.
    capture_max_bytes
        Calls whose storages are larger are not saved, and that is told; None saves all.
    capture_compact
        Save only the bytes that tensors span, not whole storages; such a capture says that its layout is no
        longer exact.
    compress
        Compress the trace.
    arguments
        Arguments of the training script, kept in the recipe.

    Examples
    --------
    >>> with Recorder("runs/monday", steps="1-3") as rec:  # doctest: +SKIP
    ...     rec.attach(model, optimizer)
    ...     train(model, optimizer)
    """

    def __init__(  # noqa: PLR0913 - one keyword for each choice reads better than an object to fill in
        self,
        folder: str | Path,
        *,
        steps: Selectable = None,
        ranks: Selectable = None,
        label: str = "",
        start_step: int = 1,
        ops: bool = True,
        inputs: bool = True,
        views: bool = True,
        details: bool = True,
        stats: bool = False,
        capture: object = (),
        capture_limit: int = 1,
        capture_max_bytes: int | None = 16 << 30,
        capture_compact: bool = False,
        compress: bool = True,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self._steps = Selection.parse(steps, "steps", RecordingError)
        self._ranks = Selection.parse(ranks, "ranks", RecordingError)
        self._settings = Settings(
            folder=Path(folder),
            label=label or Path(folder).name,
            steps=self._steps,
            ranks=self._ranks,
            ops=ops,
            choices=Choices(inputs=inputs, views=views, details=details or stats, stats=stats),
            captures=CaptureChoices(
                read_selectors(capture), capture_limit, capture_max_bytes, capture_compact
            ),
            compress=compress,
            arguments=dict(arguments or {}),
        )
        self._step = start_step
        self._has_ended = False
        self._undo = ExitStack()
        self._session: Session | None = None

    def __enter__(self) -> Self:
        if current_rank() not in self._ranks:
            return self
        if _open:
            raise RecordingError(
                "Another recorder is open in this process.",
                "leave its with block before entering a second one",
            )
        _open.append(self)
        self._undo.callback(_open.remove, self)
        self._session = Session(self._settings, self._undo)
        self._session.begin_step(self._step)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        with self._undo:
            if session is not None:
                session.end()

    def _forget(self) -> None:
        """Become a recorder of a rank that is not selected, without closing anything."""
        session, self._session = self._session, None
        self._undo.pop_all()
        if session is not None:
            session.forget()

    def attach(
        self, model: nn.Module | Sequence[nn.Module] | None = None, optimizer: object | None = None
    ) -> None:
        """Follow a model's modules and an optimizer's steps.

        Parameters
        ----------
        model
            A module, or the list of a pipeline rank's model chunks.
        optimizer
            Anything with a ``step`` method; a step of the run ends when it returns.

        Raises
        ------
        RecordingError
            Something else was given, or the folder of the run cannot be written into.
        """
        chunks = _read_chunks(model)
        _check_optimizer(optimizer)
        if self._session is None:
            return
        self._session.attach(chunks, optimizer)
        if optimizer is not None:
            replace_attribute(self._undo, optimizer, "step", self._follow_step(optimizer.step))  # type: ignore[attr-defined]

    def _follow_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            with self.phase(Phase.OPTIMIZER):
                result = original(*args, **kwargs)
            self.step(self._step + 1)
            self._has_ended = True
            return result

        return step

    def step(self, number: int) -> None:
        """Say that what follows belongs to this step; only for a loop without an attached optimizer."""
        changes, self._step = number != self._step, number
        self._has_ended = False
        if self._session is not None and changes:
            self._session.begin_step(number)

    def microbatch(self, number: int) -> None:
        """Say that what follows belongs to this microbatch of the step; forwards count by themselves."""
        if self._session is not None:
            self._session.scopes.begin_microbatch(number)

    @contextmanager
    def phase(self, phase: Phase | str) -> Iterator[None]:
        """Put what happens inside into a phase, such as ``"data"``."""
        chosen = _read_phase(phase)
        if self._session is None:
            yield
            return
        with self._session.scopes.phase(chosen):
            yield

    def snapshot(
        self,
        moment: str,
        model: nn.Module | Sequence[nn.Module] | None = None,
        optimizer: object | None = None,
        **states: object,
    ) -> None:
        """Write the state that the current step begins with, every byte of it in a digest.

        It belongs to the step that comes next: after step 2, and in a run that goes on from there before
        its first step, that is step 3. Steps and ranks that are not selected write nothing.

        Parameters
        ----------
        moment
            When this is: ``saved``, ``loaded``, ``first use``, or any other word.
        model
            A module, or the list of a pipeline rank's model chunks: parameters, buffers, extra states.
        optimizer
            One of torch, or of Megatron-Core in any of its wrappers: the states and steps of each parameter,
            the copies in higher precision, the groups and the loss scale.
        states
            Anything else that the training depends on, by name: tensors, numbers, text, bytes, mappings and
            lists of these, and objects with a ``state_dict``, such as a schedule or a data loader.

        The states of torch's, Python's and NumPy's random generators and of Megatron's tracker are always
        written; with nothing else given, they alone are, as before the first forward after loading.

        Raises
        ------
        RecordingError
            The moment is no word, or the model or the optimizer is none.

        Examples
        --------
        >>> rec.snapshot("saved", model, optimizer, scheduler=scheduler)  # doctest: +SKIP
        """
        chunks = _read_chunks(model, "rec.snapshot")
        _check_optimizer(optimizer, "rec.snapshot")
        if not isinstance(moment, str) or not moment.strip():
            finding = f"rec.snapshot was given {_described(moment)} as the moment."
            raise RecordingError(finding, "give it a word, such as saved, loaded or first use")
        if self._session is not None:
            self._session.snapshot(moment, chunks, optimizer, states)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        """Write one number of a step, at full precision.

        Without ``step`` it is the current step; between an optimizer's step and the next forward, where
        training loops log, it is the step that has just ended.
        """
        if self._session is None:
            return
        if step is None:
            step = self._step - (self._has_ended and not self._session.scopes.has_begun)
        self._session.metric(step, name, value)


_HINT: Final = "give it a module or a list of model chunks, and an optimizer with a step; either may be None"


def _read_chunks(model: object, caller: str = "rec.attach") -> list[nn.Module]:
    """Give the chunks of a model that is one module, several, or none."""
    if model is None or isinstance(model, nn.Module):
        return [] if model is None else [model]
    if not isinstance(model, Iterable) or isinstance(model, str):
        raise RecordingError(f"{caller} was given {_described(model)} as the model.", _HINT)
    chunks = list(model)
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, nn.Module):
            finding = f"{caller} was given {_described(chunk)} as model chunk {number}."
            raise RecordingError(finding, _HINT)
    return chunks


def _check_optimizer(optimizer: object, caller: str = "rec.attach") -> None:
    if optimizer is not None and not callable(getattr(optimizer, "step", None)):
        finding = f"{caller} was given {_described(optimizer)} as the optimizer, which has no step method."
        raise RecordingError(finding, _HINT)


def _described(given: object) -> str:
    """Name what was given; plain values are shown, everything else is too long for a sentence."""
    shown = f" {given!r}" if isinstance(given, bool | int | float | str) else ""
    return f"{type(given).__name__}{shown[:80]}"


def _read_phase(phase: Phase | str) -> Phase:
    try:
        return phase if isinstance(phase, Phase) else Phase[phase.upper()]
    except KeyError:
        names = ", ".join(item.name.lower() for item in Phase)
        raise RecordingError(f"{phase!r} is no phase.", f"use one of {names}") from None
