"""One call as one screen of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from detlab.comparison.call.part_words import (
    digest_words,
    form_words,
    link_words,
    pair_words,
    peers_words,
    ref_words,
    tensor_name,
    unmade_words,
    value_words,
    way_words,
)
from detlab.comparison.call.refs import CallRef
from detlab.comparison.call.tensors import TensorPair, TensorSide, most_telling
from detlab.comparison.call.words import (
    headline,
    place,
    sentences,
)
from detlab.comparison.text import wrapped

if TYPE_CHECKING:
    from detlab.comparison.call.details import CallDetails

_MAX_TENSORS: Final = 8
_MAX_OTHERS: Final = 3


def screen(details: CallDetails) -> str:
    """Write what is known of a call on one screen; the words are those of the HTML."""
    lines = [headline(details), place(details), "", *sentences(details), "", *_tensors(details), ""]
    lines += [*_links(details), *_around(details)]
    lines.append(f"other ranks: {peers_words(details.peers)}")
    lines += [f"capture: rank {each.rank}: {each.path}" for each in details.captures[:_MAX_OTHERS]]
    lines.append(f"  next: {details.next}")
    return "\n".join(map(wrapped, lines))


def _tensors(details: CallDetails) -> Iterator[str]:
    """List the tensors that say most."""
    shown = most_telling(details.tensors, _MAX_TENSORS)
    for pair in shown:
        facts = ", ".join(filter(None, [_digests(pair), _form(pair.a, pair.b)]))
        yield f"  {tensor_name(pair)}: {pair_words(pair)}; {facts}"
    more = details.num_tensors - len(shown)
    if more > 0:
        yield f"  … and {more:,} more tensors"


def _digests(pair: TensorPair) -> str:
    a, b = digest_words(pair)
    if a == b:
        return f"{a} in both"
    sides = ((a, "a", pair.a), (b, "b", pair.b))
    return ", ".join(f"{digest} in {name}" for digest, name, side in sides if side is not None)


def _form(a: TensorSide | None, b: TensorSide | None) -> str:
    """Write dtype, shape and values once where they are the same in both runs."""
    mine, theirs = (", ".join(filter(None, [form_words(each), value_words(each)])) for each in (a, b))
    if mine == theirs or not (mine and theirs):
        return mine or theirs
    return f"{mine} in a, {theirs} in b"


def _links(details: CallDetails) -> Iterator[str]:
    links = details.links
    for link in links.makers[:_MAX_OTHERS]:
        yield f"{link_words(link)} made by {ref_words(link.call, details.call)}{way_words(link)}"
    if links.makers[_MAX_OTHERS:]:
        yield f"… and {len(links.makers) - _MAX_OTHERS} more inputs made by recorded calls"
    if unmade_words(details.links):
        yield unmade_words(details.links)
    for link in links.users[:_MAX_OTHERS]:
        yield f"{link_words(link)} taken by {ref_words(link.call, details.call)}{way_words(link)}"
    if links.num_users > _MAX_OTHERS:
        yield f"… and {links.num_users - _MAX_OTHERS:,} more calls that take it"


def _around(details: CallDetails) -> Iterator[str]:
    yield from _named("before", details.before[-2:], details)
    yield from _named("after", details.after[:2], details)


def _named(word: str, calls: Sequence[CallRef], details: CallDetails) -> Iterator[str]:
    for call in calls:
        yield f"{word}: {ref_words(call, details.call)}"
