"""The HTML report: one file that opens offline, the answer first, then everything it rests on."""

from __future__ import annotations

import os
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template

from detlab.comparison import Comparison
from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.views.palette import DARK, LIGHT, VERDICT_COLOURS, Theme, css
from detlab.views.sections import SECTIONS, banner
from detlab.views.text import html


def report(cmp: Comparison, path: str | PathLike[str]) -> Path:
    """Write a comparison as one self-contained HTML file.

    The file holds no script, and its policy forbids the browser every request: it can be mailed, kept as
    a build artefact and opened anywhere. All text from the runs is escaped.

    Parameters
    ----------
    path
        Where to write; folders are made, and a file that is there is replaced at once or not at all.

    Returns
    -------
    The path written.

    Raises
    ------
    InputError
        The file cannot be written there.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    text = report_html(cmp)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, "utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(
            f"{target} cannot be written: {error}", "give the path of a file in a writable folder"
        ) from error
    return target


def report_html(cmp: Comparison) -> str:
    """Give the text of the report."""
    template = Template(files("detlab.views").joinpath("document.html").read_text("utf-8"))
    sections = [(name, title, write(cmp)) for name, title, write in SECTIONS]
    shown = [section for section in sections if section[2]]
    return template.substitute(
        title=html(f"{cmp.a.label} against {cmp.b.label}: {cmp.verdict}"),
        light=_variables(LIGHT),
        dark=_variables(DARK),
        origin=css(VERDICT_COLOURS[Verdict.ORIGIN]),
        banner=banner(cmp),
        contents="".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in shown),
        sections="".join(
            f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in shown
        ),
    )


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name.replace('_', '-')}: {value};" for name, value in theme._asdict().items())
