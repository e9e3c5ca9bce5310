"""The HTML report: one file that opens offline, the answer first, then everything it rests on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from detlab.comparison import Comparison
from detlab.comparison.journal import Journal
from detlab.redaction import redacting
from detlab.schema import Verdict
from detlab.views.cells import MapSource
from detlab.views.document_script import csp_hash, page_script
from detlab.views.encoded_calls import EncodedCalls, encode_calls
from detlab.views.encoded_map import EncodedMap, encode_map
from detlab.views.pages import variables, write_page
from detlab.views.palette import DARK, LIGHT, VERDICT_COLOURS, css
from detlab.views.redact import Redactor, kinds_of
from detlab.views.scripts import read_static
from detlab.views.sections import SECTIONS, banner, by_step, picture
from detlab.views.sections_map import map_section
from detlab.views.sections_notes import journal_of, notes_section
from detlab.views.text import html

MAX_BYTES: Final = 950_000
"""A report is to stay below a megabyte: the map gets what everything else leaves of this."""

_LEAST_MAP_BYTES: Final = 150_000
_MAX_CALL_BYTES: Final = 52_000
_BASE64: Final = 4 / 3


def report(
    cmp: Comparison,
    path: str | PathLike[str],
    journal: Journal | None = None,
    *,
    redact: bool | str | Iterable[str] = False,
) -> Path:
    """Write a comparison as one self-contained HTML file.

    It can be mailed, kept as a build artefact and opened anywhere: the map can be zoomed and asked for calls
    without a kernel, and nothing is lost where scripts do not run but that. Its policy forbids the browser
    every request and every script but its own. All text from the runs is escaped.

    Parameters
    ----------
    path
        Where to write; folders are made, and a file that is there is replaced at once or not at all.
    journal
        Notes and hypotheses to show; by default those that are kept beside the comparison.
    redact
        True, or any of ``hosts`` and ``paths``: names of hosts become ``host 1``, absolute paths
        ``PATH/name``, wherever they stand in the file.

    Returns
    -------
    The path written.

    Raises
    ------
    InputError
        The file cannot be written there, or there is no such thing to redact.
    """
    return write_page(path, report_html(cmp, journal, redact=redact))


def report_html(
    cmp: Comparison, journal: Journal | None = None, *, redact: bool | str | Iterable[str] = False
) -> str:
    """Give the text of the report; see `report`."""
    kinds = kinds_of(redact)
    with redacting(Redactor(cmp, kinds) if kinds else None):
        return _page(cmp, journal_of(cmp) if journal is None else journal)


class _Living(NamedTuple):
    """What makes the map of a page live."""

    map: EncodedMap
    calls: EncodedCalls

    def payload(self) -> str:
        """Give the data block of the page: JSON of base64, so that no text of the runs stands in it."""
        return json.dumps({"map": self.map.payload, "details": self.calls.payload})


def _page(cmp: Comparison, journal: Journal | None) -> str:
    source = MapSource(cmp)
    with_more = {
        "map": partial(picture, source=source),
        "steps": partial(by_step, source=source),
        "notes": partial(notes_section, journal=journal),
    }
    sections = {name: with_more.get(name, write)(cmp) for name, _, write in SECTIONS}
    fixed = sum(map(len, sections.values())) + len(page_script())
    living = _living(source, fixed) if all(source.size(source.normal({}))) else None
    sections["map"] = map_section(cmp, sections["map"], *(living or (None, None)))
    shown = [(name, title, sections[name]) for name, title, _ in SECTIONS if sections[name]]
    script = page_script() if living else ""
    template = Template(files("detlab.views").joinpath("document.html").read_text("utf-8"))
    return template.substitute(
        title=html(f"{cmp.a.label} against {cmp.b.label}: {cmp.verdict}"),
        scripts=f"; script-src {csp_hash(script)}" if script else "",
        light=variables(LIGHT),
        dark=variables(DARK),
        origin=css(VERDICT_COLOURS[Verdict.ORIGIN]),
        styles=f"{read_static('map.css')}{read_static('html_panel.css')}" if living else "",
        banner=banner(cmp),
        contents="".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in shown),
        sections="".join(
            f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in shown
        ),
        payload=f'<script type="application/json" id="detlab-payload">{living.payload()}</script>'
        if living
        else "",
        script=f'<script type="module">{script}</script>' if script else "",
    )


def _living(source: MapSource, fixed: int) -> _Living:
    """Write details of calls, then the map in what is left of the file."""
    calls = encode_calls(source, _MAX_CALL_BYTES)
    left = (MAX_BYTES - fixed - len(calls.payload)) / _BASE64
    return _Living(encode_map(source, max(_LEAST_MAP_BYTES, int(left))), calls)
