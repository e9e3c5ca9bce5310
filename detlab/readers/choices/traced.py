"""Choices that the events of a trace carry: an autotuner's configuration, the kernel, how it was launched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from detlab.readers.choices.frame import Process, Use, Uses, written
from detlab.run import Run
from detlab.schema import Kind, Meta
from detlab.store import RankTrace

_CHOICE: Final = re.compile(
    r"config|kernel|algo|tile|autotun|launch|grid|block|warps|stages|backend|split|cluster|swizzle",
    re.IGNORECASE,
)
"""Names of attributes that say what was chosen to run; others, such as a layout, belong to the problem."""

_BOOKKEEPING: Final = frozenset(("lanes", "parts", "unread"))


def is_choice(name: str) -> bool:
    """Say whether an attribute of this name tells what was chosen to run, and not what was asked for."""
    return bool(_CHOICE.search(name))


def choice_of(meta: Meta) -> str:
    """Write what was chosen for a call; empty where its attributes do not tell."""
    return written({name: text for name, text in meta.attributes if is_choice(name)})


def problem_of(meta: Meta) -> str:
    """Write for what it was chosen: dtypes and shapes of the inputs, and what else was asked for."""
    tensors = ", ".join(f"{each.dtype}[{'x'.join(map(str, each.shape))}]" for each in meta.inputs)
    asked = {n: text for n, text in meta.attributes if not is_choice(n) and n not in _BOOKKEEPING}
    return "; ".join(filter(None, (tensors, written(asked))))


def add_calls(uses: Uses, run: Run) -> int:
    """Take every call of a run for which something was chosen; give their number."""
    return sum(_add_rank(uses, trace) for trace in run.ranks)


def _add_rank(uses: Uses, trace: RankTrace) -> int:
    metas = trace.names.metas
    choices = [choice_of(meta) for meta in metas]
    if not any(choices):
        return 0
    telling = np.array([bool(each) for each in choices])
    process = Process(trace.header.rank, f"rank {trace.header.rank}")
    total = 0
    for callee, meta, seq in _calls(trace, telling):
        use = Use(trace.names.callees[callee].op, problem_of(metas[meta]), choices[meta])
        uses.add("trace", process, use, f"rank {process.rank}, event {seq}")
        total += 1
    return total


def _calls(
    trace: RankTrace, telling: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[tuple[int, int, int]]:
    """Give callee, meta and number of the calls whose meta tells a choice, collectives left out."""
    for _, block in trace.blocks(0, trace.num_events, ("callee", "meta", "kind", "seq")):
        rows = np.flatnonzero(telling[block["meta"]] & (block["kind"] != Kind.COLLECTIVE))
        yield from zip(*(block[name][rows].tolist() for name in ("callee", "meta", "seq")), strict=True)
