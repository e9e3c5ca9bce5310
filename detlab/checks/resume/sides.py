"""The two sides of a resume: what each was given as, checkpoints, a trace, logs or lists of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from detlab.checks.checkpoints.layout import Checkpoint
from detlab.checks.checkpoints.opening import open_checkpoint
from detlab.checks.resume.samples import Samples, as_samples
from detlab.errors import InputError, TraceError
from detlab.readers import FORMATS, as_run
from detlab.run import Run

KINDS: Final = ("checkpoint", "later", "trace", "metrics", "samples")
"""What a side can be given as, beside one thing of a kind that shows itself."""

_HINT: Final = (
    'give a checkpoint, the folder of a trace, a log, or several: {"checkpoint": …, "later": …, "trace": …, '
    '"metrics": …, "samples": …}'
)
_MARKS: Final = (
    ".metadata", "metadata.json", "common.pt", "latest_checkpointed_iteration.txt", "latest",
    "model.safetensors.index.json", "*.distcp", "*.safetensors", "*.pt", "*.pth", "*.bin", "*.ckpt",
    "mp_rank_*", "iter_*", "global_step*",
)  # fmt: skip
"""Names of which a folder of a checkpoint has some."""

_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".distcp")


@dataclass(frozen=True)
class ResumeSide:
    """One side of a resume.

    Attributes
    ----------
    label
        What it is called.
    checkpoint
        What the reference saved, or what the resumed run held right after loading it.
    later
        A checkpoint of some steps after that.
    trace, metrics
        Runs with recorded calls or states, and with step metrics.
    samples
        The ids of the samples it took.
    """

    label: str
    checkpoint: Checkpoint | None = None
    later: Checkpoint | None = None
    trace: Run | None = None
    metrics: Run | None = None
    samples: Samples | None = None

    @property
    def kinds(self) -> list[str]:
        """What it was given as."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]


def as_side(source: Any, role: str) -> ResumeSide:
    """Give one side of a resume.

    Parameters
    ----------
    source
        A path, a run, a checkpoint, or a mapping of several of these by their kind.
    role
        ``reference`` or ``resumed``, for errors.

    Raises
    ------
    InputError
        It is none of these, does not exist, or cannot be read.
    """
    if isinstance(source, ResumeSide):
        return source
    if isinstance(source, Mapping):
        return _of_mapping(source, role)
    if isinstance(source, Checkpoint):
        return ResumeSide(str(source.path), checkpoint=source)
    if isinstance(source, Run):
        return _of_run(source)
    if isinstance(source, str | PathLike):
        return _of_path(Path(source), role)
    raise InputError(f"the {role} is a {type(source).__name__}.", _HINT)


def _of_mapping(source: Mapping[Any, Any], role: str) -> ResumeSide:
    strangers = [str(kind) for kind in source if kind not in KINDS]
    if strangers or not source:
        raise InputError(f"the {role} is given as '{strangers[0] if strangers else 'nothing'}'.", _HINT)
    found: dict[str, Any] = {}
    labels = []
    for kind in KINDS:
        given = source.get(kind)
        if given is None:
            continue
        if kind == "samples":
            found[kind] = as_samples(given)
            continue
        if kind in ("checkpoint", "later"):
            found[kind] = given if isinstance(given, Checkpoint) else open_checkpoint(_existing(given, role))
            labels.append(str(found[kind].path))
        else:
            found[kind] = given if isinstance(given, Run) else as_run(_existing(given, role))
            labels.append(found[kind].label)
    trace = found.get("trace")
    if trace is not None and "metrics" not in found and not trace.metrics.is_empty():
        found["metrics"] = trace
    return ResumeSide(labels[0] if labels else role, **found)


def _of_run(run: Run) -> ResumeSide:
    trace = run if run.ranks else None
    return ResumeSide(run.label, trace=trace, metrics=None if run.metrics.is_empty() else run)


def _existing(place: Any, role: str) -> Path:
    if not isinstance(place, str | PathLike):
        raise InputError(f"the {role} has a {type(place).__name__} where a path belongs.", _HINT)
    path = Path(place)
    if not path.exists():
        raise InputError(f"{fspath(path)} does not exist.", "give the path of the " + role)
    return path


def _of_path(path: Path, role: str) -> ResumeSide:
    _existing(path, role)
    if any(known.matches(path) for known in FORMATS.values()):
        return _of_run(as_run(path))
    if looks_like_checkpoint(path):
        return ResumeSide(str(path), checkpoint=open_checkpoint(path))
    try:
        run = as_run(path)
    except TraceError as error:
        raise InputError(f"{path} is no checkpoint, no trace and no log: {error.finding}", _HINT) from error
    return _of_run(run)


def is_one_run(a: Run, b: Run) -> bool:
    """Say whether one run was given twice."""
    return a is b or (a.source == b.source and Path(a.source).exists())


def looks_like_checkpoint(path: Path) -> bool:
    """Say whether a path has the name of a file of a checkpoint, or a folder files of such names."""
    if path.is_file():
        return path.suffix in _SUFFIXES
    return any(next(path.glob(mark), None) is not None for mark in _MARKS)
