"""From what was made under each condition to the report: verdict, outputs, training, place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detlab.captures import Capture
from detlab.kernel.conditions import Condition
from detlab.kernel.differences import OutputResult, OutputWatch
from detlab.kernel.ops import gives_fresh_memory
from detlab.kernel.report import ReplayReport
from detlab.kernel.statistics import ConditionResult, summarize
from detlab.kernel.verdict import FILL, ReplayClass, Row, Verdict, judge
from detlab.kernel.verdict.training import conditions_text
from detlab.kernel.worker.protocol import Change, Made, Result

_CHOOSES: Final[tuple[str, ...]] = (
    "float32_matmul_precision", "mkldnn", "cudnn_benchmark", "blas", "tf32", "env", "offset_bytes",
)  # fmt: skip
"""What may choose another kernel and could differ between two runs of one recipe, beside threads."""

_WORDS: Final = {
    "float32_matmul_precision": "float32 matmul precision",
    "cudnn_benchmark": "cuDNN benchmark",
    "env": "environment",
    "offset_bytes": "where the arguments begin (layout)",
    "threads": "number of threads",
}

_NOT_IN_TRAINING: Final = {
    "offset_bytes",
    "poison",
    "float32_matmul_precision",
    "blas",
    "tf32",
    "fill_memory",
}
"""What a condition may set that the capture says nothing of, or that training did not have."""

_PLACE: Final = {"device", "cpu_capability", "device_name"}


def build_report(capture: Capture, conditions: Sequence[Condition], made: Sequence[Made]) -> ReplayReport:
    """Judge the trials of all conditions; those that the user's stop left out are missing from `made`."""
    pairs = list(zip(conditions, made, strict=False))
    seen_under = _traced_under(capture, made)
    is_seen = bool(seen_under) if capture.output_digests and any(m.results for m in made) else None
    as_training = [m for c, m in pairs if m.results and not m.changes and not c.changed & _NOT_IN_TRAINING]
    verdict = judge(
        [_row(capture, condition, each) for condition, each in pairs],
        fresh_memory=gives_fresh_memory(capture.op),
        disagrees=is_seen is False and bool(as_training),
        moved=any(each.is_moved for each in made),
    )
    outputs, problems = _outputs(made, verdict)
    first = next((each for each in made if each.place), None)
    changes = first.changes if first else []
    return ReplayReport(
        op=capture.op,
        site=capture.site,
        outcome=verdict.outcome,
        conditions=tuple(_results(each) for each in made if each.results or each.status != "done"),
        outputs=tuple(outputs),
        traced_output_seen=is_seen,
        other_conditions="" if as_training else conditions_text(capture, changes),
        problems=(*capture.notes, *_problems(made, changes, verdict), *problems),
        why=verdict.why,
        decided_by=verdict.decided_by if len(made) > 1 else (),
        traced_under=seen_under,
        place=first.place if first else None,
        is_place_of_training=not any(map(_is_of_place, changes)) if first else None,
    )


def _results(made: Made) -> ConditionResult:
    return summarize(made.name, made.results, status=made.status, note=made.note)


def _traced_under(capture: Capture, made: Sequence[Made]) -> tuple[str, ...]:
    traced = capture.output_digests
    return tuple(m.name for m in made if traced and traced in {result[: len(traced)] for result in m.results})


def _row(capture: Capture, condition: Condition, made: Made) -> Row:
    """Give a condition as the verdict sees it, with what it leaves open as training had it."""
    state = capture.state
    device = condition.device or capture.device
    deterministic = state["deterministic"] if condition.deterministic is None else condition.deterministic
    fills = state["fill_uninitialized_memory"] if condition.fill_memory is None else condition.fill_memory
    chosen: dict[str, object] = {
        name: getattr(condition, name) for name in _CHOOSES if name in condition.changed
    }
    chosen["device"] = device
    if device == "cpu":
        chosen["threads"] = condition.threads or max(state["threads"], 1)
    return Row(
        name=made.name,
        groups=tuple(tuple(group) for group in made.groups),
        choice=tuple((_WORDS.get(name, name), str(value)) for name, value in chosen.items()),
        design=f"{device.partition(':')[0]}{', deterministic' if deterministic else ''}",
        process=made.name if made.is_isolated else "",
        memory=condition.poison or (FILL if deterministic and fills else ""),
        least_nan=made.least_nan,
        most_nan=made.most_nan,
    )


def _outputs(made: Sequence[Made], verdict: Verdict) -> tuple[list[OutputResult], list[str]]:
    """Give the outputs under the condition that decided, or between those that did."""
    deciding = [each for each in made if each.name in verdict.decided_by and each.results]
    varying = [each for each in deciding or made if any(row.distinct > 1 for row in each.outputs)]
    if varying:
        return max(varying, key=lambda each: max(row.distinct for row in each.outputs)).outputs, []
    if len(_all_results(deciding)) < 2:
        return next((each.outputs for each in made if each.outputs), []), []
    if any(not each.firsts for each in deciding) or len({len(each.firsts) for each in deciding}) > 1:
        problem = "results were held against each other by digest alone: which elements differ is not known"
        return next((each.outputs for each in made if each.outputs), []), [problem]
    watches = [OutputWatch(first) for first in deciding[0].firsts]
    for each in deciding:
        for watch, first in zip(watches, each.firsts, strict=True):
            watch.add(first)
    return [watch.result(index) for index, watch in enumerate(watches)], []


def _all_results(made: Sequence[Made]) -> set[Result]:
    return {result for each in made for result in each.results}


def _problems(made: Sequence[Made], changes: Sequence[Change], verdict: Verdict) -> list[str]:
    found = [change.note for change in changes if change.note]
    for each in made:
        prefix = f"{each.name}: " if len(made) > 1 else ""
        found += [f"{prefix}{problem}" for problem in each.problems]
    if verdict.outcome is ReplayClass.NOT_SEEN:
        found += _hidden_in_all([each for each in made if each.results])
    return found


def _hidden_in_all(made: Sequence[Made]) -> list[str]:
    """Give what hid a race under every condition; what hid it under some only did not hide it."""
    return [hidden for hidden in made[0].hides if all(hidden in each.hides for each in made)] if made else []


def _is_of_place(change: Change) -> bool:
    """Say whether a change is one of device or version, not of a flag or a variable."""
    return change.name in _PLACE or not (
        change.there or change.name.isupper() or change.name.startswith("cudnn_")
    )
