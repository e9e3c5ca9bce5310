"""Differences in bytes that nothing reads, such as the rows beyond the last token of a padded buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.communication import Judgement
from detlab.comparison.lineage import Lineage, follow
from detlab.comparison.ranks import RankComparison
from detlab.comparison.tensors import tensors_of
from detlab.comparison.verdicts import ONE_SIDED
from detlab.ops import is_view
from detlab.schema import Kind, Mask, Phase, Side, Verdict

_MAX_READERS = 10_000
"""Calls of one run only that are searched for a reader."""

_SHORT_LIVED = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
"""Parts of a step whose results end with it; an optimizer's results are read in the next."""


def set_padding_aside(rank: RankComparison) -> RankComparison:
    """Set aside origins in the first divergent step whose differing bytes no recorded call reads.

    That is so when every call that takes the output is a view of other bytes of it: a view whose input
    differs and whose output does not. A call that computes and absorbs the difference proves nothing of
    the kind: it may have rounded it away.
    """
    unread: list[int] = []
    for origin, views, others, _ in _viewed_buffers(rank):
        if not len(others) and not _is_read_by_one_run(rank, origin):
            unread += [origin, *views.tolist()]
    return rank.with_masks(np.array(sorted(set(unread)), np.intp), Mask.SET_ASIDE | Mask.PADDING)


def _is_read_by_one_run(rank: RankComparison, origin: int) -> bool:
    """Say whether a call that only one run makes takes the output of an origin."""
    divergent = rank.divergent()
    alone = divergent[np.isin(rank.verdicts[divergent], ONE_SIDED)]
    alone = alone[alone > origin][:_MAX_READERS]
    tensors = tensors_of(rank, np.union1d(alone, origin))
    made = tensors[(tensors["position"] == origin) & (tensors["side"] == Side.OUTPUT)]
    taken = tensors[(tensors["position"] != origin) & (tensors["side"] == Side.INPUT)]
    return any(
        np.intersect1d(made[name], taken[name][taken[name] != 0]).size for name in ("digest_a", "digest_b")
    )


def judge_padded_inputs(rank: RankComparison) -> dict[int, Judgement]:
    """Judge calls that take a whole buffer of which only the rows beyond a view of its beginning differ.

    Whether such a call uses those rows was not recorded, so that it may have received the difference or
    be an origin itself: its verdict is unknown. A view of less than half of the buffer says nothing of
    what the rest is for.
    """
    found: dict[int, Judgement] = {}
    for origin, views, others, lineage in _viewed_buffers(rank):
        if rank.has_op(others, is_view).any():  # the rest is read on, as a part of its own
            continue
        others = others[rank.events(others, ("kind",))["kind"] == Kind.OP]
        if len(others) and _holds_the_beginning(rank, origin, views):
            receivers = others[rank.verdicts[others] == Verdict.RECEIVER]
            alone = [
                at for at in receivers.tolist() if all(source == origin for _, source, _ in lineage.of(at))
            ]
            found |= dict.fromkeys(alone, Judgement(Verdict.UNKNOWN, "padding"))
    return found


def _viewed_buffers(
    rank: RankComparison,
) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp], Lineage]]:
    """Give the origins whose output is viewed without its difference: the views, and what else takes it."""
    step = rank.first_step()
    if step is None:
        return
    here = rank.differing_in(step, step)
    absorbed = here[rank.verdicts[here] == Verdict.ABSORBED]
    views = absorbed[rank.has_op(absorbed, is_view)]
    origins = here[rank.verdicts[here] == Verdict.ORIGIN]
    if not len(views) or not len(origins):
        return
    lineage = follow(rank, step, step)
    facts = rank.events(origins, ("kind", "phase"))
    lives = np.isin(facts["phase"], _SHORT_LIVED) & (facts["kind"] != Kind.COLLECTIVE)
    for origin in origins[lives].tolist():
        readers = np.unique(lineage.changes["position"][lineage.sources == origin])
        is_blind = np.isin(readers, views)
        if is_blind.any():
            yield origin, readers[is_blind], readers[~is_blind], lineage


def _holds_the_beginning(rank: RankComparison, origin: int, views: NDArray[np.intp]) -> bool:
    """Say whether a view holds the first bytes of a buffer, and more than half of it."""
    tensors = tensors_of(rank, np.union1d(views, origin))
    outputs = tensors[tensors["side"] == Side.OUTPUT]
    buffers, seen = outputs[outputs["position"] == origin], outputs[outputs["position"] != origin]
    for buffer in buffers[buffers["storage"] != 0]:
        first = (seen["storage"] == buffer["storage"]) & (seen["start"] == buffer["start"])
        if (first & (2 * seen["stop"] > buffer["start"] + buffer["stop"])).any():
            return True
    return False
