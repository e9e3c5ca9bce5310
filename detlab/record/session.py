"""Everything that exists only while a selected rank is recorded: files, hooks, patches and the mode."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from detlab.digest import ALGORITHM
from detlab.errors import RecordingError
from detlab.record.captures import CaptureChoices, CaptureChooser
from detlab.record.communicators import Communicators
from detlab.record.dispatch import Choices, DispatchRecorder
from detlab.record.events import EventLog
from detlab.record.geometry import place_of
from detlab.record.layout import Layout, current_layout
from detlab.record.recipe import rank_recipe
from detlab.record.scopes import Scopes, unwrap
from detlab.record.snapshot import parameter_names, states_of
from detlab.schema import Flag
from detlab.store import Manifest, MetricLog, RankHeader, Selection, TraceWriter, write_manifest
from detlab.store.layout import CAPTURES


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked of the recorder."""

    folder: Path
    label: str
    steps: Selection
    ranks: Selection
    ops: bool
    choices: Choices
    captures: CaptureChoices
    compress: bool
    arguments: Mapping[str, object]


class Session:
    """One rank's recording, from entering the recorder to leaving it.

    Parameters
    ----------
    settings
        What was asked for.
    undo
        Takes back every patch and closes every file, whatever happens.
    """

    def __init__(self, settings: Settings, undo: ExitStack) -> None:
        self._settings, self._undo = settings, undo
        self._layout = current_layout()
        self._configs: dict[str, object] = {}
        self._metrics: MetricLog | None = None
        self.scopes = Scopes()
        self._log = EventLog(self._open_writer)
        captures = self._captures = CaptureChooser(
            settings.folder / CAPTURES, self._layout.rank, settings.captures
        )
        self._mode = DispatchRecorder(
            self._log, self.scopes, Communicators(self._layout.labels), settings.choices, captures
        )
        self._mode.collectives.install(undo)
        self._is_entered = self._is_recording = self._has_failed = False
        self._chunks: list[nn.Module] = []
        undo.callback(self._leave_mode)

    def attach(self, chunks: Sequence[nn.Module], optimizer: object | None) -> None:
        """Follow the modules of a model, and open the files with what its configuration says."""
        owners = {"model": unwrap(chunks[0]) if chunks else None, "optimizer": optimizer}
        configs = {name: getattr(owner, "config", None) for name, owner in owners.items()}
        self._configs |= {name: config for name, config in configs.items() if config is not None}
        self._chunks = list(chunks)
        self._log.open()
        self.scopes.watch(chunks, self._undo)
        if "megatron.core" in sys.modules:
            from detlab.record.megatron import follow_grad_reduce

            follow_grad_reduce(chunks, self.scopes, self._undo)

    def _open_writer(self) -> TraceWriter:
        """Create this rank's files, as late as possible, so that the header knows the configuration."""
        settings, layout = self._settings, self._layout
        recipe = rank_recipe(settings.arguments, self._configs, self._chunks)
        header = RankHeader(layout.rank, layout.coordinate, layout.groups, recipe, ALGORITHM)
        self._has_failed = True  # until all files are there
        try:
            writer = TraceWriter(settings.folder, header, compress=settings.compress)
            self._undo.callback(writer.close)
            write_manifest(settings.folder, _manifest(settings, layout))
        except OSError as error:
            raise RecordingError(
                f"{settings.folder} cannot be written into: {error.strerror or error}.",
                "give Recorder a folder that can be made or is there and writable, with space left",
            ) from error
        self._has_failed = False
        return writer

    def begin_step(self, step: int) -> None:
        """End the step before, and record this one if it is selected."""
        if self._is_recording:
            self._end_step(self._log.step)
        self._is_recording = step in self._settings.steps
        is_recorded = self._is_recording and self._settings.ops
        if not is_recorded and self._mode.is_on:
            self._pause()
        self._log.begin_step(step)
        self.scopes.begin_step(recorded=is_recorded)
        if is_recorded and not self._mode.is_on:
            self._distrust_scratch_memory()
        self._mode.is_on = is_recorded
        if is_recorded and not self._is_entered:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            self._is_entered = True

    def _distrust_scratch_memory(self) -> None:
        """Know of the buffers that were made while nobody looked and that nobody may ever write to."""
        if "megatron.core" in sys.modules:
            from detlab.record.megatron import scratch_memory

            for tensor in scratch_memory():
                self._mode.memory.mark(tensor, place_of(tensor), Flag.FRESH_MEMORY)

    def _end_step(self, step: int) -> None:
        """Make the step readable; a collective may be waited for in the step after its own, not later."""
        self._mode.collectives.abandon(before_step=step)
        self._log.flush()

    def _pause(self) -> None:
        self._mode.is_on = False
        self._mode.collectives.abandon(before_step=sys.maxsize)
        self._mode.memory.forget()
        self._log.flush()
        if _get_current_dispatch_mode() is self._mode:  # otherwise it lets every op pass
            self._leave_mode()

    def _leave_mode(self) -> None:
        if self._is_entered:
            self._is_entered = False
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Record nothing more, and leave everything as it is."""
        self._mode.is_on = self._is_recording = False
        self.scopes.begin_step(recorded=False)

    def snapshot(
        self,
        moment: str,
        chunks: Sequence[nn.Module],
        optimizer: object | None,
        states: Mapping[str, object],
    ) -> None:
        """Write states of the current step, if it is recorded."""
        if self._is_recording:
            names = parameter_names(chunks or self._chunks)
            self._mode.write_states(moment, states_of(chunks, optimizer, states, names))

    def metric(self, step: int, name: str, value: float) -> None:
        """Write one number of a step."""
        if self._metrics is None:
            self._log.open()
            self._metrics = MetricLog(self._settings.folder, self._layout.rank)
            self._undo.callback(self._metrics.close)
        self._metrics.add(step, name, value)

    def end(self) -> None:
        """Write what is left; what was never waited for has no output evidence.

        Files that could not be made were told of when they were needed; a second error would hide that one.
        """
        if self._has_failed:
            return
        self._log.open()
        self._pause()
        self._captures.warn_of_unused()


def _manifest(settings: Settings, layout: Layout) -> Manifest:
    choices = settings.choices
    recorder = {
        "steps": settings.steps.text,
        "ranks": settings.ranks.text,
        "ops": settings.ops,
        "inputs": choices.inputs,
        "views": choices.views,
        "details": choices.details,
        "stats": choices.stats,
        "capture": settings.captures.texts,
    }
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(settings.label, layout.world_size, dict(layout.sizes), recorder, created)
