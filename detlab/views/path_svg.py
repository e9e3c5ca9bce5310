"""The way of a difference from its origin to another rank, as inline SVG: ranks are lanes, time runs down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from detlab.comparison import Finding
from detlab.run import spans
from detlab.schema import Verdict
from detlab.views.map_html import SYMBOLS
from detlab.views.palette import VERDICT_COLOURS, css, ink_on
from detlab.views.routes import FindingRoutes, Route, Stop, is_plain, shorten_route
from detlab.views.text import html, shorten

_LANE, _ROW, _TOP = 72, 26, 38  # pixels: least width of a lane, height of a row, room for names of lanes
_LANES = 480  # pixels that all lanes may take before the names above them are cut
_LETTER, _CODE_LETTER = 6.6, 7.9  # pixels of an average letter of text and of code
_SPACE = 12  # pixels between the columns of text

_NUM_OPEN: Final = 2
"""So many paths of a finding are unfolded; the others are one click away."""

_MAX_NAMED: Final = 4
"""The summary of a path names so many communications between ranks."""


class _Place(NamedTuple):
    """Where a stop is drawn, in pixels."""

    stop: Stop
    x: float
    y: float


def paths_html(finding: Finding, found: FindingRoutes) -> str:
    """Draw how a finding reached other ranks; an empty text when no other rank received anything.

    Parameters
    ----------
    finding
        The finding; the paths of one that is accepted stay folded.
    found
        Its routes.
    """
    num_open = 0 if finding.accepted else _NUM_OPEN
    drawn = "".join(
        f"<details{' open' if number < num_open else ''}><summary>{html(says(route))}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html(_name(route))}">'
        f"{path_svg(shorten_route(route), says(route))}</div></details>"
        for number, route in enumerate(found.routes)
    )
    said = "".join(f"<p>{html(text)}</p>" for text in _rest(found))
    if not drawn and not said:
        return ""
    key = f"<p>{_key(found.routes)}</p>" if drawn else ""
    return f'<div class="paths"><h4>How it reached other ranks</h4>{key}{drawn}{said}</div>'


def _key(routes: Sequence[Route]) -> str:
    """Explain the signs that occur."""
    stops = [stop for route in routes for stop in shorten_route(route)]
    parts = [
        "For each rank one way is drawn, that of the fewest calls, from the top down",
        "a slanted line is communication between ranks",
    ]
    if any(stop.skipped for stop in stops):
        parts.append("a dotted line leaves calls out")
    if any(stop.aside for stop in stops):
        parts.append("a dashed ring is a call that is set aside and stands in the path all the same")
    return "; ".join(parts) + "."


def _rest(found: FindingRoutes) -> list[str]:
    """Say what is not drawn, and claim nothing of it."""
    said = []
    if found.num_more:
        ranks = f"{found.num_more:,} {'more ' if found.routes else ''}receiving rank"
        said.append(f"The paths to {ranks}{'s' if found.num_more > 1 else ''} are not drawn.")
    if found.unreached:
        ranks = f"rank{'s' if len(found.unreached) > 1 else ''} {spans(list(found.unreached))}"
        cut = " A search was stopped at its limit." if found.num_cut else ""
        said.append(f"No recorded path was found from here to the first differing call of {ranks}.{cut}")
    return said


def says(route: Route) -> str:
    """Put a route into one sentence."""
    first = route[0]
    crossings = [
        f"{_called(stop)} from rank {before.rank} to rank {stop.rank}"
        for before, stop in pairwise(route)
        if before.rank != stop.rank
    ]
    named = ", ".join(crossings[:_MAX_NAMED])
    more = f" and {len(crossings) - _MAX_NAMED} more" if len(crossings) > _MAX_NAMED else ""
    start = f"{shorten(first.op, 60)} on rank {first.rank}"
    return f"{_name(route)}: {start}, through {named}{more} ({len(route):,} calls)"


def _name(route: Route) -> str:
    return f"To rank {route[-1].rank}"


def _called(stop: Stop) -> str:
    group = f" in {shorten(stop.group, 24)}" if stop.group else ""
    return f"{shorten(stop.op, 48)}{group}"


def path_svg(route: Route, words: str) -> str:
    """Draw one route.

    Each rank on it is a lane, in the order of their numbers; each call is a node, the origin on top; the
    op, group and module of each call stand beside it.

    Parameters
    ----------
    route
        Its stops, shortened to what there is room for.
    words
        The whole route in words.
    """
    lanes = {stop.rank: stop.coordinate for stop in sorted(route, key=lambda each: each.rank)}
    lane = _lane_width(list(lanes.values()))
    places = _places(route, list(lanes), lane)
    left, height = len(lanes) * lane + _SPACE, places[-1].y + _ROW
    phases, labels = _phases(route), _labels(route)
    beside = left + max(map(len, phases)) * _LETTER + _SPACE
    width = beside + max(label.width for label in labels)
    parts = [
        *(_lane(at, lane, *named, height) for at, named in enumerate(lanes.items())),
        *(_edge(before, after) for before, after in pairwise(places)),
        *(_gap(place, beside) for place in places if place.stop.skipped),
        *(_node(place) for place in places),
        *(_text(left, place, phase) for place, phase in zip(places, phases, strict=True) if phase),
        *(_text(beside, place, label.svg) for place, label in zip(places, labels, strict=True)),
    ]
    return (
        f'<svg class="path" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{html(words)}">{"".join(parts)}</svg>'
    )


def _places(route: Route, lanes: Sequence[int], lane: float) -> list[_Place]:
    """Put one stop in each row, with a row between where calls are left out."""
    places, row = [], 0
    for stop in route:
        row += bool(stop.skipped)
        places.append(_Place(stop, (lanes.index(stop.rank) + 0.5) * lane, _TOP + (row + 0.5) * _ROW))
        row += 1
    return places


def _lane_width(coordinates: Sequence[str]) -> float:
    """Give coordinates the room that they need, unless many lanes would push the calls out of sight."""
    longest = max(map(len, coordinates)) * _LETTER + _SPACE
    return max(_LANE, min(longest, _LANES / len(coordinates)))


def _lane(number: int, width: float, rank: int, coordinate: str, height: float) -> str:
    x, name = (number + 0.5) * width, shorten(coordinate, int((width - _SPACE) / _LETTER))
    return (
        f'<text x="{x:g}" y="8" class="middle lane">rank {rank}</text>'
        f'<text x="{x:g}" y="24" class="middle">{html(name)}'
        f"<title>{html(coordinate)}</title></text>"
        f'<line x1="{x:g}" x2="{x:g}" y1="{_TOP - 4}" y2="{height:g}" class="rail"/>'
    )


def _edge(before: _Place, after: _Place) -> str:
    kind = "way across" if before.x != after.x else "way"
    left_out = " out" if after.stop.skipped else ""
    return (
        f'<line x1="{before.x:g}" y1="{before.y:g}" x2="{after.x:g}" y2="{after.y:g}" '
        f'class="{kind}{left_out}"><title>{html(after.stop.via)}</title></line>'
    )


def _gap(place: _Place, x: float) -> str:
    number = place.stop.skipped
    text = f"… {number:,} call{'s' if number > 1 else ''} …"
    return f'<text x="{x:g}" y="{place.y - _ROW:g}">{text}</text>'


def _text(x: float, place: _Place, inner: str) -> str:
    return f'<text x="{x:g}" y="{place.y:g}">{inner}</text>'


def _node(place: _Place) -> str:
    """Draw a call in the colour and with the sign of its verdict."""
    stop, x, y = place
    title = f"<title>{html(f'rank {stop.rank}, {stop.verdict}: {stop.site}')}</title>"
    if stop.verdict == "origin":
        return f'<g>{title}<use href="#diamond" x="{x:g}" y="{y:g}"/></g>'
    verdict = Verdict[stop.verdict.upper()]
    colour = VERDICT_COLOURS[verdict]
    ring = "box aside" if stop.aside else "box"
    return (
        f'<g>{title}<circle cx="{x:g}" cy="{y:g}" r="8" class="under"/>'
        f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{css(colour)}" class="{ring}"/>'
        f'<text x="{x:g}" y="{y:g}" class="middle sign" style="fill:{ink_on(colour)}">'
        f"{SYMBOLS[verdict]}</text></g>"
    )


def _phases(route: Route) -> list[str]:
    """Name the step and the phase of each stop where they change; empty texts elsewhere."""
    named = [_phase(stop) for stop in route]
    return [here if here != before else "" for before, here in pairwise(["", *named])]


def _phase(stop: Stop) -> str:
    step = f"step {stop.step}" if stop.step >= 0 else "no step"
    return step if stop.phase == "unspecified" else f"{step}, {stop.phase}"


class _Label(NamedTuple):
    """What stands beside a call, as SVG, and about how many pixels wide it is."""

    svg: str
    width: float


def _labels(route: Route) -> list[_Label]:
    return [_label(route, at) for at in range(len(route))]


def _label(route: Route, at: int) -> _Label:
    """Name the op and group of a call, its module, and what is special about it."""
    stop = route[at]
    op, scope, notes = _called(stop), shorten(stop.scope, 44), "; ".join(_notes(route, at))
    svg = f'<title>{html(stop.site)}</title><tspan class="op">{html(op)}</tspan>'
    svg += f'<tspan dx="{_SPACE}">{html(scope)}</tspan>' if scope else ""
    svg += f'<tspan dx="{_SPACE}" class="note">{html(notes)}</tspan>' if notes else ""
    return _Label(svg, len(op) * _CODE_LETTER + (len(scope) + len(notes)) * _LETTER + 2 * _SPACE)


def _notes(route: Route, at: int) -> list[str]:
    """Say where a route begins, between which ranks it went, what was set aside and where it ends."""
    stop, after = route[at], route[at + 1] if at + 1 < len(route) else None
    notes = [f"{stop.verdict}: this finding"] if at == 0 else []
    if at and route[at - 1].rank != stop.rank and not stop.skipped:
        notes.append(f"from rank {route[at - 1].rank}")
    elif not is_plain(stop.via):
        notes.append(stop.via)
    if after and after.rank != stop.rank and not after.skipped:
        notes.append(f"to rank {after.rank}")
    notes += [stop.aside] if stop.aside else []
    return notes if after else [*notes, f"first differing call of rank {stop.rank}"]
