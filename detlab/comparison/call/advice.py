"""What to do next about one call: the cheapest thing that would say more."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Final

from detlab.comparison.call.refs import CallRef
from detlab.comparison.call.sides import SideState
from detlab.comparison.captured import Captured, recorder_of

if TYPE_CHECKING:
    from detlab.comparison.result import Comparison

_BY_VERDICT: Final = {
    "receiver": "follow the difference back: cmp.path(rank={rank}, site={site!r})",
    "absorbed": "follow the difference back: cmp.path(rank={rank}, site={site!r})",
    "changed": "follow the difference back: cmp.path(rank={rank}, site={site!r})",
    "unknown": "follow the difference back: cmp.path(rank={rank}, site={site!r})",
    "only_a": "compare the programs: versions, arguments, and the last host read before this call",
    "only_b": "compare the programs: versions, arguments, and the last host read before this call",
}
_RECORD: Final = "record its {what}: detlab.Recorder(…, {where}{more})"


def next_step(
    cmp: Comparison,
    call: CallRef,
    states: Sequence[SideState],
    findings: Sequence[int],
    captures: Sequence[Captured],
    aside: Sequence[tuple[str, str]],
) -> str:
    """Name what to do next, as words or as a line to paste."""
    if captures:
        return f"detlab replay {quote(captures[0].path)}"
    named = [cmp.roots[each].next for each in findings if call.rank in cmp.roots[each].ranks]
    if named and call.verdict != "match":
        return named[0]
    if aside:
        kinds = ",".join(kind for kind, _ in aside)
        return f'see what changes when such calls are counted: detlab.compare(a, b, count="{kinds}")'
    where = f'ranks="{call.rank}"' + (f', steps="{call.step}"' if call.step >= 0 else "")
    if call.verdict == "unknown" and states[0].same is None:
        return _RECORD.format(what="inputs too", where=where, more=", inputs=True")
    if call.verdict == "match":
        return _after_a_match(cmp, states[1], where)
    advice = _BY_VERDICT.get(call.verdict, "").format(rank=call.rank, site=call.site)
    return advice or f"capture the call: {recorder_of(where, call.site)}"


def _after_a_match(cmp: Comparison, outputs: SideState, where: str) -> str:
    """Ask for evidence where there is none, else point to where something differs."""
    if outputs.same is None and outputs.num_parts:
        return _RECORD.format(what="outputs with a digest", where=where, more="")
    if not cmp.roots:
        return "nothing to do here: this call matches"
    return f"this call matches; the first finding begins at {cmp.roots[0].sites[0]}"
