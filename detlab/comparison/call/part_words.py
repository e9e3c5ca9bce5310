"""The words for the parts of a call: its tensors, where they come from and go to, its peers and members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from detlab.comparison.call.links import Link, Links
from detlab.comparison.call.members import Member
from detlab.comparison.call.peers import Peers
from detlab.comparison.call.refs import CallRef
from detlab.comparison.call.tensors import TensorPair, TensorSide
from detlab.run import spans
from detlab.text import plural, shorten

_LONGEST: Final = 60
"""So many characters of another call's names are shown."""

_MAX_NAMED: Final = 10
"""So many lanes or ranks are named one by one in a sentence."""


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Name some numbered things, the first few one by one."""
    named = spans(list(numbers[:_MAX_NAMED]))
    more = f" and {len(numbers) - _MAX_NAMED:,} more" if len(numbers) > _MAX_NAMED else ""
    return f"{plural(noun, len(numbers))} {named}{more}"


def gives_words(member: Member) -> str:
    """Say what one member gave, by its own record."""
    return _GIVES.get(member.gives, member.gives)


_GIVES: Final = {
    "equal": "is equal",
    "differs": "differs",
    "unknown": "not known",
    "nothing": "does not count",
}


def tensor_name(pair: TensorPair) -> str:
    """Name one tensor of a call."""
    if pair.side in _NAMES:
        return _NAMES[pair.side]
    lane = "" if pair.lane is None else f" (lane {pair.lane})"
    return f"{pair.side} {pair.index}{lane}"


_NAMES: Final = {"scalars": "numbers given", "results": "numbers returned", "generator": "generator state"}


def pair_words(pair: TensorPair) -> str:
    """Say what is known of one tensor: the same on which evidence, different, or why nothing can be said."""
    if pair.same is None:
        return pair.why
    if pair.same:
        return f"same ({pair.evidence}{', weak' if pair.is_weak else ''})"
    return f"differs: {pair.why}" if pair.why else "differs"


def form_words(tensor: TensorSide | None) -> str:
    """Write dtype and shape of a tensor; nothing where they were not recorded."""
    if tensor is None or not tensor.dtype:
        return ""
    return f"{tensor.dtype} [{', '.join(map(str, tensor.shape))}]"


def value_words(tensor: TensorSide | None) -> str:
    """Say what its numbers are like; absent, NaN, Inf, zero and empty are different states."""
    if tensor is None or tensor.absmax is None:
        return ""
    if not math.isfinite(tensor.absmax):  # a foreign trace does not count, and says no more than that
        return f"{'NaN' if math.isnan(tensor.absmax) else 'Inf'} in it"
    size = tensor.num_elements if tensor.dtype else -1
    if size == 0:
        return "empty"
    odd = [_how_often("NaN", tensor.nans or 0, size), _how_often("Inf", tensor.infs or 0, size)]
    odd = [each for each in odd if each]
    if any(each.startswith("all ") for each in odd):
        return " and ".join(odd)
    zero = ("the others zero" if odd else "all zero") if tensor.absmax == 0 else ""
    return ", ".join([*odd, zero or f"absmax {tensor.absmax!r}, sum {tensor.total!r}"])


def _how_often(name: str, count: int, size: int) -> str:
    """Count what is no number."""
    if not count:
        return ""
    return f"all {name}" if count == size else f"{count:,} {name}"


def digest_words(pair: TensorPair) -> tuple[str, str]:
    """Write the digests of both runs, short where the short forms tell them apart."""
    a, b = (each.digest if each else None for each in (pair.a, pair.b))
    size = _SHORT if a == b or not (a and b) or a[:_SHORT] != b[:_SHORT] else None
    return tuple("not recorded" if each is None else each[:size] for each in (a, b))  # type: ignore[return-value]


_SHORT: Final = 8


def step_words(step: int) -> str:
    """Name a step; calls such as those of loading a checkpoint are in none."""
    return f"step {step}" if step >= 0 else "no step"


def ref_words(ref: CallRef, of: CallRef) -> str:
    """Name another call: its op, its module, its step where that is another one, and its verdict."""
    step = f" in {step_words(ref.step)}" if ref.step != of.step else ""
    rank = f" on rank {ref.rank}" if ref.rank != of.rank else ""
    aside = ", set aside" if ref.set_aside else ""
    name = f"{shorten(ref.op, _LONGEST)} in {shorten(ref.scope, _LONGEST) or 'no module'}"
    return f"{name}{step}{rank} ({ref.verdict}{aside})"


def link_words(link: Link) -> str:
    """Name the tensor that a link is about, and the run where that is run b."""
    run = "" if link.run == "a" else " in run b"
    return f"{_NAMES.get(link.side, f'{link.side} {link.index}')}{run}"


def way_words(link: Link) -> str:
    """Say how a link is known, where that is less than memory and digest together."""
    known = {"storage": ", known by its bytes in memory", "digest": ", known by an equal digest"}
    return known.get(link.by, "")


def unmade_words(links: Links) -> str:
    """Say which inputs no recorded call near it made; empty when each has a maker."""
    if links.not_followed:
        return f"What made its inputs cannot be followed: {links.not_followed}."
    if not links.unmade:
        return ""
    inputs = numbered("input", links.unmade)
    return f"{inputs[:1].upper()}{inputs[1:]}: made by no recorded call before it, as far as was looked."


def peers_words(peers: Peers) -> str:
    """Count the verdicts of the same site on all other ranks."""
    parts = [f"{count:,} {verdict}" for verdict, count in peers.counts.items()]
    parts += [f"{peers.num_aside:,} set aside"] if peers.num_aside else []
    parts += [f"{peers.num_without:,} without this call"] if peers.num_without else []
    parts += [f"{peers.num_unseen:,} not looked at"] if peers.num_unseen else []
    return ", ".join(parts) if parts else "no other rank was compared"
