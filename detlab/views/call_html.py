"""One call in both runs as HTML: run a and run b side by side, what is equal in grey, what differs strong.

The words are those of `detlab.comparison.call.words`; its style is ``static/html_panel.css``.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from detlab.comparison.call import CallDetails, CallRef, Link, Members, Peers, TensorPair, TensorSide
from detlab.comparison.call.part_words import (
    digest_words,
    form_words,
    gives_words,
    link_words,
    pair_words,
    peers_words,
    step_words,
    tensor_name,
    unmade_words,
    value_words,
    way_words,
)
from detlab.comparison.call.tensors import most_telling
from detlab.comparison.call.words import (
    place,
    sentences,
)
from detlab.schema import Verdict
from detlab.text import capitalized
from detlab.views.map_html import SYMBOLS
from detlab.views.palette import VERDICT_COLOURS, css, ink_on
from detlab.views.tables import Markup, table
from detlab.views.text import html, shorten

_MAX_TENSORS: Final = 24
_MAX_HOPS: Final = 20
_LONGEST: Final = 80


def call_html(details: CallDetails, path: pl.DataFrame | None = None, *, links: bool = False) -> str:
    """Write everything that is known of a call.

    Parameters
    ----------
    details
        What `detlab.comparison.Comparison.call` gives.
    path
        What `detlab.comparison.Comparison.path` gives for it; None leaves it out.
    links
        Make every call that is named a button with ``data-rank`` and ``data-site``.

    Returns
    -------
    Safe HTML: every text of the runs is escaped.
    """
    parts = [
        _head(details),
        _says(details),
        _tensors(details),
        _links(details, links),
        _around(details, links),
        _members(details.members, links),
        _peers(details.peers, details.call, links),
        _path(path, details.call, links),
        _captures(details),
        f'<p class="next"><b>Next:</b> <code>{html(details.next)}</code></p>',
    ]
    return f'<div class="detlab-call">{"".join(parts)}</div>'


def verdict_badge(name: str) -> str:
    """Write a verdict with its sign on its colour."""
    verdict = Verdict[name.upper()]
    colour = VERDICT_COLOURS[verdict]
    style = f"background:{css(colour)};color:{ink_on(colour)}"
    sign = f'<span class="sign" style="{style}" aria-hidden="true">{SYMBOLS[verdict]}</span>'
    return f'<span class="badge">{sign} {name}</span>'


def _head(details: CallDetails) -> str:
    call = details.call
    group = f" on <code>{_named(details.group)}</code>" if details.group else ""
    return (
        f'<p class="head">{verdict_badge(call.verdict)} <code class="op">{_named(call.op)}</code>{group} in '
        f'<code class="scope">{_named(call.scope) or "no module"}</code> ({html(call.phase)})</p>'
        f'<p class="place">{html(place(details))}</p>'
    )


def _named(name: str) -> str:
    """Write a name from a file, cut in the middle where it is long, with the whole as a tooltip."""
    short = shorten(name, _LONGEST)
    return html(name) if short == name else f'<span title="{html(name)}">{html(short)}</span>'


def _says(details: CallDetails) -> str:
    first, *rest = sentences(details)
    listed = "".join(f"<li>{html(sentence)}</li>" for sentence in rest)
    return f'<p class="meaning">{html(first)}</p><ul class="says">{listed}</ul>'


def _tensors(details: CallDetails) -> str:
    """Put the tensors of both runs side by side; of many those that differ."""
    shown = most_telling(details.tensors, _MAX_TENSORS)
    if not shown:
        return "<p>No tensor of this call was recorded.</p>"
    heads = (
        "tensor",
        "what is known",
        *(f"run {name}: {label}" for name, label in zip("ab", details.labels, strict=True)),
    )
    rows = [_tensor_row(pair) for pair in shown]
    return table(tuple(map(_short, heads)), rows, "Tensors of both runs", details.num_tensors - len(rows))


def _short(text: str) -> str:
    return shorten(text, 40)


def _tensor_row(pair: TensorPair) -> tuple[Any, ...]:
    return tensor_name(pair), _statement(pair), _cell(pair, 0), _cell(pair, 1)


def _statement(pair: TensorPair) -> Markup:
    kind = {True: "same", False: "odd", None: "unsaid"}[pair.same]
    strength = f" {pair.evidence}" if pair.same else ""
    return Markup(f'<span class="{kind}{strength}">{html(pair_words(pair))}</span>')


def _cell(pair: TensorPair, which: int) -> Markup:
    """Write one run's tensor; each part is grey where the other run has the same and strong where not."""
    tensors = pair.a, pair.b
    tensor = tensors[which]
    if tensor is None:
        return Markup('<span class="unsaid">not there</span>')
    digests = digest_words(pair)
    digest = (
        f'<code class="digest" title="{html(tensor.digest)}">{html(digests[which])}</code>'
        if tensor.digest
        else "not recorded"
    )
    parts = [_part(digest, digests[0] == digests[1])]
    for words in (form_words, _stride_words, value_words):
        mine, other = words(tensors[which]), words(tensors[1 - which])
        if mine and (words is not _stride_words or (other and mine != other)):
            more = " values" if words is value_words else ""
            parts.append(_part(html(mine), mine == other or not other, more))
    return Markup(" ".join(parts))


def _part(inner: str, is_same: bool, more: str = "") -> str:
    return f'<span class="{"same" if is_same else "odd"}{more}">{inner}</span>'


def _stride_words(tensor: TensorSide | None) -> str:
    return f"stride ({', '.join(map(str, tensor.stride))})" if tensor and tensor.stride else ""


def _links(details: CallDetails, links: bool) -> str:
    """List the calls that made its inputs, and those that take its outputs."""
    made = "".join(_link(link, "made by", details.call, links) for link in details.links.makers)
    used = "".join(_link(link, "taken by", details.call, links) for link in details.links.users)
    more = details.links.num_users - len(details.links.users)
    used += f"<li>… and {more:,} more calls that take it.</li>" if more > 0 else ""
    unmade = unmade_words(details.links)
    made += f"<li>{html(unmade)}</li>" if unmade else ""
    return _section("Where its inputs come from", made) + _section("Where its outputs go", used)


def _link(link: Link, word: str, call: CallRef, links: bool) -> str:
    return f"<li>{html(link_words(link))} {word} {_call(link.call, call, links)}{html(way_words(link))}</li>"


def _section(title: str, items: str) -> str:
    return f"<h4>{title}</h4><ul>{items}</ul>" if items else ""


def _call(ref: CallRef, of: CallRef, links: bool) -> str:
    """Name another call, as a button where calls can be opened."""
    step = f" in {step_words(ref.step)}" if ref.step != of.step else ""
    aside = ", set aside" if ref.set_aside else ""
    name = f"<code>{_named(ref.op)}</code> in {_named(ref.scope) or 'no module'}{step}"
    button = _button(name, ref.rank, ref.site, ref.verdict, links, ref.position)
    return f"{button} {verdict_badge(ref.verdict)}{aside}"


def _button(name: str, rank: int, site: str, verdict: str, links: bool, position: int | None = None) -> str:
    """Make a name a button that says which call it is: its site is that of run b where run a has none."""
    if not links:
        return f'<span class="called">{name}</span>'
    at = "" if position is None else f' data-position="{position}"'
    run = ' data-run="b"' if verdict == "only_b" else ""
    data = f'data-rank="{rank}" data-site="{html(site)}"{run}{at}'
    return f'<button type="button" class="called" {data}>{name}</button>'


def _around(details: CallDetails, links: bool) -> str:
    """List the calls before and after this one, in the order of the rank."""
    rows = [
        (str(_order(each)), word, Markup(_call(each, details.call, links)))
        for word, calls in (("before", details.before), ("after", details.after))
        for each in calls
    ]
    if not rows:
        return ""
    return table(("order", "where", "call"), rows, "Around it on this rank")


def _order(ref: CallRef) -> str:
    if ref.seq_a is not None:
        return f"{ref.seq_a:,}"
    return f"{ref.seq_b:,} in b"


def _members(members: Members | None, links: bool) -> str:
    if members is None or not members.listed:
        return ""
    rows = []
    for each in members.listed:
        name = f"rank {each.rank}"
        call = _button(name, each.rank, each.site, each.verdict, links) if each.site else name
        verdict = Markup(verdict_badge(each.verdict)) if each.verdict else "-"
        rows.append((Markup(call), each.coordinate or "not compared", gives_words(each), verdict))
    more = members.num_members - len(rows)
    return table(("rank", "place", "its input", "its verdict"), rows, "Members of the communicator", more)


def _peers(peers: Peers, call: CallRef, links: bool) -> str:
    listed = "".join(
        f"<li>{_button(f'rank {each.rank}', each.rank, call.site, each.verdict, links)} "
        f"{html(each.coordinate)} {verdict_badge(each.verdict)}{', set aside' if each.set_aside else ''}</li>"
        for each in peers.listed
    )
    if not listed:
        return f"<h4>The same site on other ranks</h4><p>{html(_sentence(peers_words(peers)))}</p>"
    more = peers.num_found - len(peers.listed)
    listed += f"<li>… and {more:,} more.</li>" if more > 0 else ""
    return (
        f"<h4>The same site on other ranks</h4><details><summary>{html(peers_words(peers))}</summary>"
        f'<ul class="peers">{listed}</ul></details>'
    )


def _sentence(text: str) -> str:
    return f"{capitalized(text)}."


def _path(path: pl.DataFrame | None, call: CallRef, links: bool) -> str:
    """List the calls on the way back to where the difference began, nearest first."""
    if path is None or (len(path) < 2 and call.verdict == "match"):
        return ""
    if len(path) < 2:
        said = "It begins here" if call.verdict == "origin" else "No recorded call before it explains it"
        return f"<h4>How the difference got here</h4><p>{said}.</p>"
    rows = [_hop(row, call.step, links) for row in path.head(_MAX_HOPS).to_dicts()]
    listed = table(
        ("hop", "from", "through", "call"), rows, "How the difference got here", len(path) - len(rows)
    )
    return listed


def _hop(row: dict[str, Any], step: int, links: bool) -> tuple[Any, ...]:
    name = f"<code>{_named(row['op'])}</code> in {_named(row['scope']) or 'no module'}, rank {row['rank']}"
    name += f", {step_words(row['step'])}" if row["step"] != step else ""
    call = f"{_button(name, row['rank'], row['site'], row['verdict'], links)} {verdict_badge(row['verdict'])}"
    aside = ", set aside" if row["set_aside"] else ""
    before = "" if row["from_hop"] is None else f"hop {row['from_hop']}"
    return str(row["hop"]), before, row["via"], Markup(call + aside)


def _captures(details: CallDetails) -> str:
    items = "".join(
        f"<li>rank {each.rank}: <code>{_named(each.path)}</code></li>" for each in details.captures
    )
    return _section("Captures of this site", items)
