"""A replay as HTML that needs no style sheet: what was seen and its bound, by condition, in ULP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from detlab.text import plural
from detlab.views.palette import NEUTRAL
from detlab.views.tables import Markup
from detlab.views.text import html, shorten
from detlab.widgets.static_twin_tables import plain_table

_MAX_OUTPUTS: Final = 6
_MAX_NOTES: Final = 6


def report_html(report: Mapping[str, Any], verdict: Sequence[str], training: Sequence[str], text: str) -> str:
    """Write what a replay saw.

    Parameters
    ----------
    report
        A report in its JSON form.
    verdict, training
        The report's own words on what was seen, with its bound, and on what training recorded.
    text
        The whole report as text.
    """
    word, _, said = joined(verdict).partition(": ")
    outputs = [output for output in report["outputs"] if output["distinct"] > 1]
    parts = [
        f"<p><strong>{html(word.upper())}</strong> {html(said)}</p>",
        conditions_table(report["conditions"]),
        *(_output(output) for output in outputs[:_MAX_OUTPUTS]),
        f"<p>… and {len(outputs) - _MAX_OUTPUTS} more outputs that differ.</p>"
        if len(outputs) > _MAX_OUTPUTS
        else "",
        f"<p>Training: {html(joined(training))}</p>" if training else "",
        _notes([problem["what"] for problem in report["problems"] if problem["where"] != "training"]),
        f'<details><summary>The report as text</summary><pre tabindex="0">{html_lines(text)}</pre></details>',
    ]
    return block("".join(parts))


def block(body: str) -> str:
    """Set safe HTML as text is set; a widget spaces its lines like controls."""
    return f'<div style="line-height:1.45">{body}</div>'


def joined(lines: Sequence[str]) -> str:
    """Put the lines of a report into one sentence; some end in a comma or a semicolon of their own."""
    said = "".join(f"{line} " if line.endswith((",", ";", ":")) else f"{line}; " for line in lines)
    return said.rstrip("; ,:")


def html_lines(text: str) -> str:
    """Escape text line by line, so that its lines stay."""
    return "\n".join(map(html, text.splitlines()))


def conditions_table(conditions: Sequence[Mapping[str, Any]]) -> str:
    """List what each condition gave."""
    if not conditions:
        return ""
    headings = (
        "condition",
        "trials",
        "distinct results",
        "most frequent",
        "rate of others at 95 %",
        "remarks",
    )
    return plain_table(headings, [_condition(row) for row in conditions])


def _condition(row: Mapping[str, Any]) -> tuple[Any, ...]:
    status, note = row.get("status", "done"), row.get("note", "")
    remarks = f"{status}: {note}" if status != "done" else note or None
    if not row["trials"]:
        return row["name"], 0, None, None, None, remarks
    return row["name"], row["trials"], row["distinct"], rate(row["modal_share"]), _others(row), remarks


def _others(row: Mapping[str, Any]) -> str:
    if row["upper_bound_95"] is not None:
        return f"below {rate(row['upper_bound_95'])}"
    low, high = row.get("interval_95") or (0.0, 1.0)
    return f"{rate(low)} to {rate(high)}"


def rate(share: float) -> str:
    """Write a share from 0 to 1 as the report does."""
    return f"{100 * share:.{1 if share >= 0.01 else 2}f} %"


def _output(output: Mapping[str, Any]) -> str:
    facts = [f"{output['distinct']:,} distinct results"]
    facts += [output["pattern"]] if output.get("pattern") else []
    facts += [f"up to {output['max_ulp']:,} ULP"] if output["max_ulp"] else []
    facts += [f"{output['num_nan']:,} times a NaN"] if output.get("num_nan") else []
    facts += [f"{output['num_signed_zero']:,} times 0.0 and -0.0"] if output.get("num_signed_zero") else []
    if output["quantum_log2"] is not None:
        means = output.get("quantum_text", "").partition(": ")[2]
        facts.append(f"always by a multiple of 2^{output['quantum_log2']}{f', {means}' if means else ''}")
    said = f"<p><b>Output {output['index']}</b>: {html('; '.join(facts))}</p>"
    return said + histogram_table(output.get("ulp_histogram", ()))


def histogram_table(histogram: Sequence[int]) -> str:
    """Draw how far the numbers of an output lie from its first result; the bars are beside their numbers."""
    total = sum(histogram)
    if not total:
        return ""
    most = max(histogram)
    rows = [
        (f"{span(bucket)} ULP", number, _bar(number / most, rate(number / total)))
        for bucket, number in enumerate(histogram)
        if number
    ]
    return plain_table(("distance from the first result", "numbers", "share"), rows)


def span(bucket: int) -> str:
    """Name the distances of a bucket: ``4..7`` for the third."""
    return "1" if bucket == 0 else f"{2**bucket:,}..{2 ** (bucket + 1) - 1:,}"


def _bar(share: float, text: str) -> Markup:
    width = max(round(100 * share), 1)
    bar = f'<span style="display:inline-block;width:{width}px;height:11px;background:{NEUTRAL}"></span>'
    return Markup(f'<span style="white-space:nowrap">{bar} {html(text)}</span>')


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    listed = "".join(f"<li>{html(shorten(note, 400))}</li>" for note in notes[:_MAX_NOTES])
    more = f"<li>… and {len(notes) - _MAX_NOTES} more</li>" if len(notes) > _MAX_NOTES else ""
    return f"<ul>{listed}{more}</ul>"


def progress_html(progress: Any, seconds: float) -> str:
    """Draw how far a replay is.

    Parameters
    ----------
    progress
        A `detlab.kernel.Progress`.
    """
    results = f"{progress.distinct:,} distinct {plural('result', progress.distinct)}"
    found = f" · {results} under {html(progress.condition)}" if progress.trials else ""
    return (
        f'<progress max="{progress.asked}" value="{progress.made}" aria-label="trials made"></progress> '
        f"{progress.made:,} of {progress.asked:,} trials{found} · {seconds:.1f} s"
    )


def copy_html(code: str) -> str:
    """Write a line to copy."""
    return block(f'<p>The same in code:</p><pre tabindex="0">{html(code)}</pre>') if code else ""
