"""Small comparisons of every shape, and their maps made cell by cell, to hold computed ones against."""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from detlab.comparison import compare
from detlab.comparison.places import site_at
from detlab.schema import Coordinate, Mask, Phase
from detlab.testing import Call, make_run
from detlab.views.pooling import codes_of

STATES = [
    {"rows": rows, "columns": columns, "step": step}
    for rows in ("rank", "op")
    for columns in ("call", "step")
    for step in ((None, 0, 1) if columns == "call" else (None,))
]
"""Every kind of map; steps are numbers among the compared ones."""

CALLS = [
    Call("aten.mm.default", "decoder.layers.0.mlp", ["a"], ["b"]),
    Call("aten.add.Tensor", "decoder", ["b"], ["c"]),
    Call("aten.mm.default", "decoder.layers.1.mlp", ["c"], ["d"], phase=Phase.BACKWARD),
    Call("aten.relu.default", "head", ["d"], ["e"], phase=Phase.OPTIMIZER),
]


@st.composite
def comparisons(draw, max_ranks=5, max_steps=3):
    """Draw ranks of different programs, in which any call has any verdict and any mask.

    Run b may leave out a call of a rank, make one more, or make two in the other order.
    """
    num_ranks, num_steps = draw(st.integers(1, max_ranks)), draw(st.integers(1, max_steps))
    lists = st.lists(st.sampled_from(CALLS), min_size=1, max_size=5)
    programs = draw(st.lists(lists, min_size=1, max_size=3))
    calls, others = {}, {}
    for rank in range(num_ranks):
        program = programs[draw(st.integers(0, len(programs) - 1))]
        steps = draw(st.sets(st.integers(1, num_steps), min_size=1)) | {1}
        calls[rank] = [dataclasses.replace(call, step=step) for step in sorted(steps) for call in program]
        if draw(st.booleans()):  # as a collective that is waited for in a later step
            calls[rank].append(calls[rank].pop(draw(st.integers(0, len(calls[rank]) - 1))))
        others[rank] = edited(calls[rank], draw(st.sampled_from(["", "less", "more", "swapped"])), draw)
    places = {rank: Coordinate(tp=rank % 2, dp=rank // 2) for rank in range(num_ranks)}
    runs = [make_run(each, coordinates=places) for each in (calls, others)]
    cmp = compare(*runs)
    masks = draw(st.sampled_from([(0,), (0, Mask.SET_ASIDE), (0, Mask.SET_ASIDE, Mask.UNTRACED)]))
    seed = draw(st.integers(0, 2**32 - 1))
    return with_verdicts(cmp, np.random.default_rng(seed), masks)


def edited(calls, how, draw):
    """Change the calls of a rank in one place."""
    at, calls = draw(st.integers(0, len(calls) - 1)), list(calls)
    if how == "less" and len(calls) > 1:
        del calls[at]
    elif how == "more":
        calls.insert(at, dataclasses.replace(calls[at], op="aten.gelu.default", outputs=["new"]))
    elif how == "swapped" and at and calls[at].step == calls[at - 1].step:
        calls[at - 1 : at + 1] = [calls[at], calls[at - 1]]
    return calls


def with_verdicts(cmp, rng, masks=(0,)):
    """Give every call of a comparison a verdict and a mask at random; half of the calls match."""
    ranks = []
    for rank in cmp.ranks:
        size = len(rank.verdicts)
        verdicts = (rng.integers(0, 8, size) * rng.integers(0, 2, size)).astype(np.uint8)
        marks = rng.choice(np.array(masks, np.uint8), size)
        differing = np.flatnonzero(verdicts)
        ranks.append(
            dataclasses.replace(
                rank, verdicts=verdicts, masks=marks, differing=differing, any_aside=bool(marks.any())
            )
        )
    return dataclasses.replace(cmp, ranks=tuple(ranks))


def named(state, cmp):
    """Turn the number of a step into the step."""
    if state["step"] is None:
        return state
    return {**state, "step": cmp.steps[min(state["step"], len(cmp.steps) - 1)]}


def calls_of(cmp, state):
    """List every call that a map shows: row and column of its cell, its rank's number, position and code.

    Rows of ranks are counted in the order of ranks, and each event is read for itself.
    """
    steps = cmp.steps if state["step"] is None else (state["step"],)
    traces = [trace for rank in cmp.ranks for trace in (rank.a, rank.b)]
    ops = list(dict.fromkeys(callee.op for trace in traces for callee in trace.names.callees))
    for number, rank in enumerate(cmp.ranks):
        codes = codes_of(rank.verdicts, rank.masks)
        for step in steps:
            for call, position in enumerate(rank.positions_in(step).tolist()):
                row = ops.index(site_at(rank, position).callee.op) if state["rows"] == "op" else number
                column = steps.index(step) if state["columns"] == "step" else call
                yield row, column, number, position, int(codes[position])


def brute_cells(cmp, state, shape):
    """Make a map call by call."""
    cells = np.zeros(shape, np.uint8)
    for row, column, _, _, code in calls_of(cmp, state):
        cells[row, column] = max(cells[row, column], code)
    return cells
