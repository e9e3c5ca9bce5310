"""What a replay saw, in one screen, as JSON, as frames, and read back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel.alternatives.report import AlternativesReport
from detlab.kernel.differences import OutputResult
from detlab.kernel.report.text import replay_text, training_lines
from detlab.kernel.statistics import ConditionResult
from detlab.kernel.verdict import ReplayClass
from detlab.kernel.worker.protocol import Place, decode, plain_json

if TYPE_CHECKING:
    import polars as pl

    from detlab.kernel.take_away import TakeAway

__all__ = ["ReplayClass", "ReplayReport", "load_replay"]

SCHEMA: Final = "detlab.replay/1"
_TRAINING: Final = "training"


@dataclass(frozen=True, slots=True)
class Source:
    """What was replayed here, and what the user held in every condition otherwise than training."""

    capture: Capture | None
    threads: int | None = None
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ReplayReport:
    """The trials of one captured call.

    Attributes
    ----------
    op, site
        Which call it was.
    outcome
        The class of what was seen, see `detlab.kernel.verdict`.
    conditions
        One row per condition.
    outputs
        One row per output, then per mutated argument: under the condition that decided, or between the
        conditions where they decided.
    traced_output_seen
        Whether what training saw is among the results; None when the capture does not say what that was.
    other_conditions
        In what the conditions of training differ from those of the replay, in a few words; empty when they
        are the same as far as the capture records them.
    problems
        What the reader must know before believing the rest, one sentence each.
    why
        What decided the class, one sentence each; empty where the numbers of one condition say it all.
    decided_by
        Names of the conditions that decided.
    traced_under
        Names of the conditions that gave what training saw.
    place
        Device, driver and versions of the trials; None without a trial.
    is_place_of_training
        Whether these are those of training, as far as the capture records them.
    alternatives
        What could stand in the call's place, and its price; None when not asked for.
    source
        What was replayed; known only in the process that did, no part of the JSON, and not compared.
    """

    op: str
    site: str
    outcome: ReplayClass
    conditions: tuple[ConditionResult, ...]
    outputs: tuple[OutputResult, ...]
    traced_output_seen: bool | None
    other_conditions: str
    problems: tuple[str, ...]
    why: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    traced_under: tuple[str, ...] = ()
    place: Place | None = None
    is_place_of_training: bool | None = None
    alternatives: AlternativesReport | None = None
    source: Source | None = field(default=None, compare=False)

    @property
    def num_distinct(self) -> int:
        """Number of different results under the condition that gave most; 0 without a trial."""
        return max((row.distinct for row in self.conditions), default=0)

    @property
    def differs_from_training(self) -> bool:
        """Whether training recorded another result of the same inputs under the same conditions."""
        return self.traced_output_seen is False and not self.other_conditions

    @property
    def exit_code(self) -> int:
        """0 when nothing was seen, 1 when something was, 2 when the replay proves nothing."""
        return {ReplayClass.NOT_SEEN: 0, ReplayClass.INVALID: 2}.get(self.outcome, 1)

    @property
    def frame(self) -> pl.DataFrame:
        """One row per condition.

        Returns
        -------
        Columns ``name``, ``trials``, ``distinct``, ``modal_share``, ``upper_bound_95``, ``interval_low``,
        ``interval_high``, ``status``, ``note``; see `detlab.kernel.statistics.ConditionResult`.
        """
        import polars as pl

        rows = [_row(row) for row in self.conditions]
        kinds = {"name": pl.String, "trials": pl.Int64, "distinct": pl.Int64}
        kinds |= {"status": pl.String, "note": pl.String}
        return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in _COLUMNS})

    @property
    def elements(self) -> pl.DataFrame:
        """Some of the elements that differ most, those with a NaN first.

        Returns
        -------
        Columns ``output``, ``index`` (one number an axis), ``first``, ``other`` (text), ``ulp``.
        """
        import polars as pl

        rows = [
            (out.index, list(each.index), each.first, each.other, each.ulp)
            for out in self.outputs
            for each in out.elements
        ]
        kinds: Any = {"output": pl.Int64, "index": pl.List(pl.Int64), "first": pl.String, "other": pl.String}
        return pl.DataFrame(rows, schema={**kinds, "ulp": pl.UInt64}, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Give the document that ``detlab/schemas/replay.json`` describes; `load_replay` reads it."""
        training = training_lines(self) if self.traced_output_seen is False else []
        told = [{"where": _TRAINING, "what": f"training: {' '.join(training)}"}] if training else []
        body = {
            "schema": SCHEMA,
            "class": self.outcome.value,
            "problems": told + [{"where": self.site, "what": problem} for problem in self.problems],
        }
        rest = (f.name for f in fields(self) if f.name not in ("outcome", "problems", "source"))
        return body | {name: plain_json(getattr(self, name)) for name in rest}

    def export(
        self,
        folder: str | Path,
        capture: Capture | str | Path | None = None,
        *,
        threads: int | None = None,
        deterministic: bool | None = None,
    ) -> TakeAway:
        """Write one runnable file, raw blobs and a Markdown summary, see `detlab.kernel.take_away.export`.

        A report that was made in this process knows its capture and what was held; of one that was read back
        the capture must be given.
        """
        from detlab.kernel.take_away import export  # which knows this module

        source = self.source or Source(None)
        if capture is None and source.capture is None:
            raise InputError("This report does not hold its capture.", "say export(folder, capture)")
        return export(
            self,
            capture or source.capture,  # type: ignore[arg-type]
            folder,
            threads=source.threads if threads is None else threads,
            deterministic=source.deterministic if deterministic is None else deterministic,
        )

    def __repr__(self) -> str:
        return replay_text(self)


def load_replay(source: str | Path | dict[str, Any]) -> ReplayReport:
    """Read a report that ``detlab replay --json`` or `ReplayReport.to_json` gave, perhaps on another machine.

    Parameters
    ----------
    source
        The path of the file, or its content.

    Returns
    -------
    A report equal to the one that was written.

    Raises
    ------
    InputError
        It is no such document, or one without trials, which only says why there were none.
    """
    content, place = (source, "report") if isinstance(source, dict) else (_read(Path(source)), str(source))
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"{place} is no {SCHEMA}.", "write it with: detlab replay CAPTURE --json")
    problems = content.get("problems")
    if not isinstance(problems, list) or not all(isinstance(p, dict) and "what" in p for p in problems):
        raise InputError(f"{place} has no list of problems.", "write it with: detlab replay CAPTURE --json")
    if "op" not in content:
        said = "; ".join(str(problem["what"]) for problem in problems)
        raise InputError(f"{place} holds no trial: {said}", "replay the capture again, with this detlab")
    if "source" in content:
        raise InputError(f"{place} has an unknown field 'source'.", "read it with a newer detlab")
    body = {name: value for name, value in content.items() if name not in ("schema", "class", "problems")}
    body["outcome"] = content.get("class")
    body["problems"] = [p["what"] for p in problems if p.get("where") != _TRAINING]
    report: ReplayReport = decode(ReplayReport, body, place)
    return report


_COLUMNS: Final = (
    "name", "trials", "distinct", "modal_share", "upper_bound_95", "interval_low", "interval_high",
    "status", "note",
)  # fmt: skip


def _row(row: ConditionResult) -> dict[str, object]:
    low, high = row.interval_95 or (None, None)
    found = {name: getattr(row, name, None) for name in _COLUMNS}
    return found | {"interval_low": low, "interval_high": high}


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}", "give the file that --json wrote") from error
