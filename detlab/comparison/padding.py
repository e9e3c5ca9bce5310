"""Differences in bytes that nothing reads, such as the rows beyond the last token of a padded buffer."""

from __future__ import annotations

import numpy as np

from detlab.comparison.lineage import follow
from detlab.comparison.ranks import RankComparison
from detlab.ops import is_view
from detlab.schema import Kind, Mask, Phase, Verdict

_SHORT_LIVED = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
"""Parts of a step whose results end with it; an optimizer's results are read in the next."""


def set_padding_aside(rank: RankComparison) -> RankComparison:
    """Set aside origins in the first divergent step whose differing bytes no recorded call reads.

    That is so when every call that takes the output is a view of other bytes of it: a view whose input
    differs and whose output does not. A call that computes and absorbs the difference proves nothing of
    the kind: it may have rounded it away.
    """
    step = rank.first_step()
    if step is None:
        return rank
    here = rank.differing_in(step, step)
    absorbed = here[rank.verdicts[here] == Verdict.ABSORBED]
    views = absorbed[rank.has_op(absorbed, is_view)]
    origins = here[rank.verdicts[here] == Verdict.ORIGIN]
    if not len(views) or not len(origins):
        return rank
    lineage = follow(rank, step, step)
    facts = rank.events(origins, ("kind", "phase"))
    lives = np.isin(facts["phase"], _SHORT_LIVED) & (facts["kind"] != Kind.COLLECTIVE)
    unread: list[int] = []
    for origin in origins[lives].tolist():
        readers = np.unique(lineage.changes["position"][lineage.sources == origin])
        if len(readers) and np.isin(readers, views).all():
            unread += [origin, *readers.tolist()]
    return rank.with_masks(np.array(sorted(set(unread)), np.intp), Mask.SET_ASIDE | Mask.PADDING)
