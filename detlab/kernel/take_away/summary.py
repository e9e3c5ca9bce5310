"""The Markdown summary of a take-away, and what must not stand in it: host, user, paths."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from detlab.captures import Capture
from detlab.captures.call import value_text
from detlab.kernel.differences.words import describe, details
from detlab.kernel.report import ReplayReport
from detlab.kernel.report.text import training_lines
from detlab.kernel.statistics import ConditionResult, percent
from detlab.kernel.worker.protocol import Place
from detlab.redaction import replace_paths, whole_word

_TITLES: Final = {
    "race": "gives different bits for the same inputs",
    "selection": "gives other bits under other conditions",
    "uninitialised": "gives bits that depend on memory that nobody wrote",
    "not_seen": "was not seen to give different bits for the same inputs",
    "invalid": "could not be judged",
}


class Scrubber:
    """Takes the names of this host and user, and all paths, out of text.

    Parameters
    ----------
    folder
        A folder whose path must not be told either, however short it is.
    """

    def __init__(self, folder: Path) -> None:
        paths = {str(folder), str(folder.resolve()), str(Path.home()), str(Path.cwd())} - {"/", "."}
        self._paths = sorted(paths, key=len, reverse=True)
        names = {_user(): "USER", platform.node(): "HOST", platform.node().partition(".")[0]: "HOST"}
        self._names = [(whole_word(name), word) for name, word in names.items() if name]

    def __call__(self, text: str) -> str:
        """Give the text on one line, with a word in the place of what it must not tell."""
        text = " ".join(text.split())
        for path in self._paths:
            text = text.replace(path, "PATH")
        text = replace_paths(text, lambda _: "PATH")
        for pattern, word in self._names:
            text = pattern.sub(word, text)
        return text


def summary_text(
    report: ReplayReport,
    capture: Capture,
    *,
    clean: Scrubber,
    files: Mapping[str, int],
    left_out: Sequence[str],
    env: Mapping[str, str],
    needs_import: bool,
) -> str:
    """Write the summary.

    Parameters
    ----------
    files
        Size in bytes of every file that stands beside it.
    left_out
        Names of conditions that the runnable file does not repeat.
    env
        The variables that reach kernels.
    needs_import
        Whether the reader has to put an import into the runnable file.
    """
    sections = [
        [f"# `{_code(capture.op)}` {_TITLES[report.outcome.value]}"],
        _verdict(report, clean),
        _trials(report, clean),
        ["## What differs", *_differences(report)],
        ["## The call", *_call(capture, clean)],
        ["## Where it was captured", *_place(capture, env)],
        *([["## Where it was replayed", *_replayed(report.place)]] if report.place else []),
        ["## How to run it", *_how(report, capture, files, clean, left_out, needs_import)],
    ]
    if report.problems:
        sections.append(["## Notes", *(f"- {_text(clean(problem))}" for problem in report.problems)])
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def verdict_line(report: ReplayReport) -> str:
    """Say the verdict and what it rests on, in one line."""
    word = report.outcome.value.replace("_", " ")
    if not report.conditions:
        return f"{word}: no trial was made"
    row = max(report.conditions, key=lambda row: (row.distinct, row.trials))
    seen = f"{_row_text(row)} ({row.name})"
    if row.distinct > 1:
        return f"{word}: {seen}"
    if report.why:
        return f"{word}: {'; '.join(report.why)}"
    if report.differs_from_training and report.exit_code == 1:
        return f"{word}: training recorded another result of the same inputs and conditions; here {seen}"
    return f"{word}: {seen}"


def _verdict(report: ReplayReport, clean: Scrubber) -> list[str]:
    word, _, rest = verdict_line(report).partition(": ")
    rest = clean(rest)
    lines = [f"**Verdict: {word}.** {_text(rest[:1].upper() + rest[1:])}."]
    told = [why for why in report.why if why not in rest]
    if report.traced_output_seen is not None:
        told.append(f"training: {' '.join(training_lines(report))}")
    return lines + [f"- {_text(clean(why))}" for why in told]


def _row_text(row: ConditionResult) -> str:
    if row.upper_bound_95 is None:
        found = f"{row.distinct:,} distinct results of the same inputs in {row.trials:,} trials"
        each = "each came once" if row.distinct == row.trials else ""
        return f"{found}, {each or f'the most frequent in {percent(row.modal_share)}'}"
    bound = percent(row.upper_bound_95)
    return f"no mismatch in {row.trials:,} trials: a rate above {bound} is excluded at 95 %"


def _trials(report: ReplayReport, clean: Scrubber) -> list[str]:
    lines = [
        "| condition | trials | distinct | most frequent | rate of other results, 95 % |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in report.conditions:
        bound = "" if row.upper_bound_95 is None else f"below {percent(row.upper_bound_95)}"
        if row.upper_bound_95 is None and row.interval_95 is not None:
            bound = " to ".join(map(percent, row.interval_95))
        name = _text(clean(row.name)) + ("" if row.status == "done" else f" ({row.status})")
        lines.append(f"| {name} | {row.trials:,} | {row.distinct:,} | {percent(row.modal_share)} | {bound} |")
    notes = [f"- {_text(clean(f'{row.name}: {row.note}'))}" for row in report.conditions if row.note]
    return lines + (["", *notes] if notes else [])


def _differences(report: ReplayReport) -> list[str]:
    found = []
    for row in report.outputs:
        if row.distinct > 1:
            found.append(f"- output {row.index}: {_text(describe(row))}")
            found += [f"  - {_text(line)}" for line in details(row)]
    return found or ["Nothing was seen to differ between the trials of one condition."]


def _call(capture: Capture, clean: Scrubber) -> list[str]:
    lines = [f"- site: {_text(clean(capture.site))}"]
    lines += [f"- schema: `{_code(capture.schema)}`"] if capture.schema else []
    return lines + [
        f"- {_text(name)}: {_text(clean(value_text(value)))}" for name, value in capture.arguments
    ]


def _place(capture: Capture, env: Mapping[str, str]) -> list[str]:
    state = capture.state
    algorithms = "deterministic algorithms" if state["deterministic"] else "default algorithms"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(state["versions"].items()))
    lines = [
        f"- device: {capture.device}, {_text(state['device_name'])}, {_text(state['cpu_capability'])}",
        f"- {state['threads']} threads, {algorithms}, "
        f"float32 matmul precision {_text(state['float32_matmul_precision'])}",
        f"- {_text(versions)}",
    ]
    return lines + [f"- `{name}={value}`" for name, value in env.items()]


def _replayed(place: Place) -> list[str]:
    driver = f", driver {_text(place.driver)}" if place.driver else ""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(place.versions.items()))
    return [f"- device: {_text(place.device)}, {_text(place.name)}{driver}", f"- {_text(versions)}"]


def _how(
    report: ReplayReport,
    capture: Capture,
    files: Mapping[str, int],
    clean: Scrubber,
    left_out: Sequence[str],
    needs_import: bool,
) -> list[str]:
    lines = ["`python reproduce.py` needs torch and the files beside it; see also `--help`."]
    if needs_import:
        lines.append(
            f"`{_code(capture.op)}` does not come with torch: put its import at the marked place of "
            "`reproduce.py` first."
        )
    if report.differs_from_training:
        lines.append(
            "The file does not hold what training recorded, so it says only what its own trials give."
        )
    if left_out:
        names = ", ".join(clean(name) for name in left_out)
        lines.append(f"It does not repeat these conditions: {_text(names)}.")
    return lines + [""] + [f"- `{name}`: {size:,} bytes" for name, size in files.items()]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _text(text: str) -> str:
    """Escape what Markdown would read as more than text."""
    return re.sub(r"([\\`*_|\[\]<>])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")
