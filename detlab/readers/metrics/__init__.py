"""Readers of step metrics: console logs and files of numbers become a `Run` without traces.

One file and one line here for each format.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from detlab.errors import InputError, TraceError
from detlab.progress import Told, reading_files
from detlab.readers.metrics.assemble import FileContent, assemble, in_natural_order
from detlab.readers.metrics.console import Dialect, detect, read_console
from detlab.readers.metrics.deepspeed import DEEPSPEED
from detlab.readers.metrics.fairseq import FAIRSEQ
from detlab.readers.metrics.files import FileFormat
from detlab.readers.metrics.frame import METRIC_SCHEMA
from detlab.readers.metrics.golden import GOLDEN
from detlab.readers.metrics.hf_trainer import HF_TRAINER
from detlab.readers.metrics.log import MESSAGE_SCHEMA, Log
from detlab.readers.metrics.maxtext import MAXTEXT
from detlab.readers.metrics.megatron import MEGATRON
from detlab.readers.metrics.messages import FAILURES
from detlab.readers.metrics.nemo import NEMO
from detlab.readers.metrics.per_rank import PER_RANK
from detlab.readers.metrics.restarts import split_at_restarts
from detlab.readers.metrics.step_value import STEP_VALUE
from detlab.readers.metrics.tables import TABLE
from detlab.readers.metrics.tensorboard import TENSORBOARD
from detlab.readers.metrics.torchtitan import TORCHTITAN
from detlab.readers.metrics.trainer_state import TRAINER_STATE
from detlab.readers.metrics.writers import in_order_of_time
from detlab.run import Run
from detlab.store import Manifest, Subset, empty_selection

__all__ = ["CONSOLES", "FILES", "METRIC_SCHEMA", "FileFormat", "Log", "NoRecords", "load"]


CONSOLES: Final[dict[str, Dialect]] = {
    "megatron": MEGATRON,
    "nemo": NEMO,
    "torchtitan": TORCHTITAN,
    "hf-trainer": HF_TRAINER,
    "deepspeed": DEEPSPEED,
    "maxtext": MAXTEXT,
    "fairseq": FAIRSEQ,
    "per-rank": PER_RANK,
}
"""Dialects of console logs by the word that chooses them; the earlier one where a log fits two equally."""

FILES: Final[dict[str, FileFormat]] = {
    "tensorboard": TENSORBOARD,
    "golden": GOLDEN,
    "trainer-state": TRAINER_STATE,
    "step-value": STEP_VALUE,
    "table": TABLE,
}
"""Formats of whole files by the word that chooses them, in the order in which they are tried."""

_HEAD_BYTES: Final = 1 << 16
_STARTS: Final = ("start", "checkpoint loaded")
"""Kinds of messages after which a segment begins."""


def load(paths: Sequence[Path], label: str, subset: Subset, chosen: str = "") -> Run:
    """Load the step metrics of one run from its files, or from all files of a folder.

    Parameters
    ----------
    paths
        Files and folders of one run.
    label
        Name of the run; "" for that of the first path.
    subset
        The steps and ranks to keep.
    chosen
        The word of a format, in place of what the files look like.

    Raises
    ------
    InputError
        There is no such format, or none of the steps was asked for.
    TraceError
        No file holds a record or the message of a failure, or the only one is not text.
    """
    if chosen and chosen not in {**CONSOLES, **FILES}:
        raise InputError(f"'{chosen}' is no format.", f"choose one of: {', '.join([*CONSOLES, *FILES])}")
    files = [file for path in paths for file in _candidates(path)]
    contents, problems = _read_all(files, chosen, is_one_file=files == list(paths))
    metrics, log = assemble(contents)
    if metrics.is_empty() and not _tells_of_failures(log):
        raise _no_records([*problems, *(f"{each.source}: {each.why}" for each in contents if each.format)])
    name = label or paths[0].stem
    kept = _kept(metrics, subset)
    left_out = _left_out(metrics, kept)
    if kept.is_empty() and len(metrics):
        raise empty_selection(paths[0], "steps", subset.steps, left_out)
    return Run(
        label=name,
        source=", ".join(map(str, paths)),
        manifest=Manifest(name, world_size=0),
        ranks=(),
        metrics=kept,
        log=log,
        problems=(*problems, *log.conflicts),
        subset=subset,
        left_out_steps=left_out,
    )


def _tells_of_failures(log: Log) -> bool:
    """Say whether files without step metrics, such as the logs of single ranks, are evidence all the same."""
    return bool(log.messages["kind"].cast(pl.String).is_in(FAILURES).any())


def _candidates(path: Path) -> list[Path]:
    """List the files of a folder, or those below it where it has none of its own; a file is itself."""
    if path.is_file():
        return [path]
    for found in (path.iterdir(), path.rglob("*")):
        files = [each for each in found if each.is_file() and not each.name.startswith(".")]
        if files:
            return sorted(files, key=lambda each: in_natural_order(str(each.relative_to(path))))
    return []


def _recognise(file: Path, chosen: str) -> tuple[str, str] | None:
    """Give the word of a file's format, and what showed it; None when it has no records.

    Raises
    ------
    TraceError
        The file is not text, nor of a format that is not.
    """
    if chosen:
        return chosen, "as asked for"
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
    for word, known in FILES.items():
        why = known.recognise(file, head)
        if why:
            return word, why
    found = detect(file, list(CONSOLES.values()))
    words = {dialect.name: word for word, dialect in CONSOLES.items()}
    return (words[found.dialect.name], found.why) if found else None


def _read_all(
    files: Sequence[Path], chosen: str, *, is_one_file: bool
) -> tuple[list[FileContent], list[str]]:
    """Read every file; one that cannot be read is a problem of the run, unless it is all that was given."""
    read: list[tuple[Path, FileContent]] = []
    problems: list[str] = []
    with reading_files(files, "file") as counted:
        for file, told in counted:
            try:
                read.append((file, _read(file, chosen, told)))
            except TraceError as error:
                if is_one_file:
                    raise
                problems.append(error.finding)
    contents = in_order_of_time(read)
    return contents, [*problems, *(problem for each in contents for problem in each.problems)]


def _read(file: Path, chosen: str, told: Told) -> FileContent:
    word, why = _recognise(file, chosen) or ("", "no record")
    if word in FILES:
        known = FILES[word]
        read = known.read(file)
        metrics = read.metrics.sort("segment", "step", maintain_order=True)
        metrics = metrics.with_columns(source=pl.lit(file.name, pl.Categorical))
        why = f"{why}; {read.note}" if read.note else why
        nothing_said = pl.DataFrame(schema=MESSAGE_SCHEMA)
        return FileContent(
            file.name, known.name, why, metrics, nothing_said, read.problems, read.started, read.ended
        )
    dialect = CONSOLES.get(word)
    metrics, messages, problems, during = read_console(file, dialect, told)
    starts = messages.filter(pl.col("kind").cast(pl.String).is_in(_STARTS))["line"]
    name = dialect.name if dialect else ""
    return FileContent(
        file.name, name, why, split_at_restarts(metrics, starts), messages, problems, during=during
    )


def _kept(metrics: pl.DataFrame, subset: Subset) -> pl.DataFrame:
    """Keep what was asked for; a number of no rank is kept whatever ranks were asked for."""
    for name, asked in (("step", subset.steps), ("rank", subset.ranks)):
        wanted = [pl.col(name).is_between(*ends) for ends in asked.ranges]
        if wanted:
            metrics = metrics.filter(pl.col(name).is_null() | pl.any_horizontal(wanted))
    return metrics


def _left_out(metrics: pl.DataFrame, kept: pl.DataFrame) -> tuple[int, ...]:
    """List the steps of which nothing was kept."""
    if len(kept) == len(metrics):
        return ()
    steps, left = (frame.select(pl.col("step").unique()) for frame in (metrics, kept))
    return tuple(steps.join(left, on="step", how="anti")["step"].sort())


class NoRecords(TraceError):  # noqa: N818 - reads as the finding it is
    """Files hold no record of step metrics of a known format."""

    def __str__(self) -> str:
        return self.finding


def _no_records(problems: Sequence[str]) -> NoRecords:
    known = ", ".join([*(each.name for each in CONSOLES.values()), *(each.name for each in FILES.values())])
    also = "".join(f" {problem.removesuffix('.')}." for problem in problems[:1])
    return NoRecords(
        f"no record of step metrics that it knows ({known}).{also}",
        f"say which format it is ({', '.join([*CONSOLES, *FILES])}), or give the file that has the steps",
    )
