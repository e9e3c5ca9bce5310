"""A certificate as one page of HTML that opens offline and prints."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Final

from detlab.checks.certificate import REQUIRED, Certificate
from detlab.schema import Verdict
from detlab.views.pages import variables, write_page
from detlab.views.palette import DARK, LIGHT, VERDICT_COLOURS, css
from detlab.views.text import html

_OUTCOMES: Final = {
    "pass": "✓ pass",
    "fail": "✗ fail",
    "invalid": "! not decided",
    "not shown": "- not shown",
}
_MAX_HOSTS: Final = 20


def write_certificate(found: Certificate, path: str | PathLike[str]) -> Path:
    """Write a certificate as one self-contained page; it makes no request and runs no script.

    Returns
    -------
    The path written.

    Raises
    ------
    InputError
        The file cannot be written there.
    """
    return write_page(path, certificate_html(found))


def certificate_html(found: Certificate) -> str:
    """Give the text of the page; everything from the runs is escaped."""
    document = found.to_json()
    template = Template(files("detlab.views").joinpath("certificate.html").read_text("utf-8"))
    return template.substitute(
        title=html(f"Certificate: {found.verdict}"),
        light=variables(LIGHT),
        dark=variables(DARK),
        bad=css(VERDICT_COLOURS[Verdict.ORIGIN]),
        verdict=found.verdict,
        statement=html(found.statement),
        scope="".join(f"<dt>{html(name)}</dt><dd>{html(value)}</dd>" for name, value in _scope(found)),
        gates="".join(_gate(each) for each in document["gates"]),
        not_shown="".join(f"<li>{html(each)}</li>" for each in found.not_shown),
        made=html(f"Made by detlab {document['detlab']} at {found.created}."),
    )


def _scope(found: Certificate) -> Iterator[tuple[str, str]]:
    scope = found.scope
    yield "recipe", scope.recipe
    yield "runs", ", ".join(scope.runs)
    yield "steps", scope.steps or "none in common"
    if scope.ranks:
        layout = ", ".join(f"{axis} {size}" for axis, size in scope.layout.items() if size > 1)
        yield "ranks", f"{scope.ranks} of {scope.world_size}" + (f" ({layout})" if layout else "")
    yield "allocation", scope.allocation
    for label, hosts in scope.hosts.items():
        more = [f"and {len(hosts) - _MAX_HOSTS} more"] if len(hosts) > _MAX_HOSTS else []
        yield f"hosts of {label}", ", ".join([*hosts[:_MAX_HOSTS], *more])
    yield "resumes", str(scope.resumes)


def _gate(gate: dict[str, object]) -> str:
    name = f"{gate['name']}" + (" (required)" if gate["name"] in REQUIRED else "")
    cells = [_OUTCOMES[str(gate["verdict"])], name, gate["says"], gate["evidence"]]
    return f"<tr>{''.join(f'<td>{html(cell)}</td>' for cell in cells)}</tr>"
