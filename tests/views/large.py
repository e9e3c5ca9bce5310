"""A comparison of 2,432 ranks in memory; ``python -m tests.views.large`` prints what maps of it take."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace

import numpy as np

from detlab.comparison import Comparison
from detlab.comparison.communication import GroupJudge
from detlab.comparison.findings import Finding
from detlab.comparison.places import site_at
from detlab.comparison.ranks import RankComparison
from detlab.comparison.segments import BLOCK_DTYPE
from detlab.digest import ALGORITHM
from detlab.readers.metrics.frame import recorded_metrics
from detlab.run import Run
from detlab.schema import (
    DETAIL_DTYPE,
    EVENT_DTYPE,
    Callee,
    Coordinate,
    Evidence,
    Kind,
    Meta,
    Phase,
    Side,
    TensorMeta,
    Verdict,
    pack_evidence,
)
from detlab.store import Manifest, NameTables, RankHeader, memory_trace

TP, PP = 8, 2
_LAYERS = 8
_MICROBATCHES = 4
_LANES = 3
"""Each call reads what the call three before it gave, so that a difference spreads over a third of them."""

_OPS = (
    ("aten.mm.default", "self_attention.linear_qkv"),
    ("aten.view.default", "self_attention"),
    ("aten._scaled_dot_product_flash_attention.default", "self_attention.core_attention"),
    ("aten.mm.default", "self_attention.linear_proj"),
    ("aten.add.Tensor", ""),
    ("aten.native_layer_norm.default", "mlp.norm"),
    ("aten.mm.default", "mlp.linear_fc1"),
    ("aten.gelu.default", "mlp"),
    ("aten.mm.default", "mlp.linear_fc2"),
    ("aten.add.Tensor", ""),
)


def large_comparison(num_ranks=2432, num_calls=20_000, num_steps=10):
    """Compare two runs of many ranks that share their traces: two programs, one per pipeline stage.

    In step 3 (or the last) the ranks at ``dp=1`` have an origin in the last forward pass; a third
    of their later calls are receivers, and from the next step on the same third of every rank's calls. Of one
    rank one call in step 2 (or the first) is unknown: no run recorded its inputs.
    """
    at = min(3, num_steps)
    origin = _in_lane((at - 1) * num_calls + num_calls * 7 // 10)
    spread = _in_lane(at * num_calls)
    lone = _in_lane((min(2, num_steps) - 1) * num_calls + num_calls // 4) + 1
    traces = {}
    for stage in range(PP):
        mine = _trace(stage, num_calls, num_steps, lone)
        for kind, place in (("origin", origin), ("receiver", spread), ("lone", spread)):
            theirs = _trace(stage, num_calls, num_steps, lone, (kind, place))
            traces[stage, kind] = mine, theirs, *_verdicts(kind, num_calls * num_steps, place, lone)
    ranks = []
    for number in range(num_ranks):
        place = Coordinate(tp=number % TP, pp=number // TP % PP, dp=number // (TP * PP))
        kind = "origin" if place.dp == 1 else "lone" if number == num_ranks * 3 // 4 else "receiver"
        ranks.append(_rank(number, place, *traces[place.pp, kind]))
    layout = {"tp": TP, "pp": PP, "dp": -(-num_ranks // (TP * PP))}
    runs = [
        Run(label, "memory", Manifest(label, num_ranks, layout), tuple(sides), recorded_metrics([]))
        for label, sides in (("a", [rank.a for rank in ranks]), ("b", [rank.b for rank in ranks]))
    ]
    steps = tuple(range(1, num_steps + 1))
    roots = _finding(ranks, at, origin)
    return Comparison(*runs, steps, tuple(ranks), roots, (), GroupJudge(ranks))


def _in_lane(row):
    return row + -row % _LANES


def _trace(stage, num_calls, num_steps, lone, differs=None):
    """Make the trace of one stage; lane 0 gives other bits from a call on, and one call alone does."""
    names = NameTables()
    events = np.zeros(num_calls * num_steps, EVENT_DTYPE)
    rows = np.arange(len(events))
    events["seq"], events["kind"] = rows, Kind.OP
    events["step"] = 1 + rows // num_calls
    for name, column in _step(stage, num_calls, names).items():
        events[name] = np.tile(column, num_steps)
    made = rows.copy()  # which tensor each call gives
    if differs is not None:
        kind, place = differs
        made[place::_LANES] += len(rows)
        made[lone] += len(rows) if kind == "lone" else 0
    read = np.concatenate([rows[:_LANES] + 10 * len(rows), made[:-_LANES]])
    if differs is not None:
        read[place : place + 1] += 0 if kind == "origin" else len(rows)  # what came from other ranks
        read[lone + _LANES] = lone  # what reads it writes over it first
    inputs, outputs = _digests(read), _digests(made)
    events["in_digest"], events["out_digest"], events["n_in"], events["n_out"] = inputs, outputs, 1, 1
    events["evidence"] = pack_evidence(Evidence.EXACT, Evidence.EXACT)
    events["evidence"][lone] = pack_evidence(Evidence.NONE, Evidence.EXACT)
    header = RankHeader(0, Coordinate(), algorithm=ALGORITHM)
    return memory_trace(header, names, events, _details(rows, inputs, outputs))


def _digests(numbers):
    """Give a number for each number, the same for the same one."""
    return numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)


def _step(stage, num_calls, names):
    """Give the columns of one step: microbatches forward and backward, reduction, optimizer."""
    tensor = TensorMeta("bfloat16", (4096, 1024), (1024, 1))
    names.meta_id(Meta((tensor,), (tensor,), ALGORITHM))
    columns = {
        name: np.zeros(num_calls, EVENT_DTYPE[name]) for name in ("microbatch", "phase", "callee", "call")
    }
    edges = np.linspace(0, 0.9 * num_calls, 2 * _MICROBATCHES + 1).astype(int)
    for part in range(2 * _MICROBATCHES):
        here = slice(edges[part], edges[part + 1])
        size = here.stop - here.start
        columns["microbatch"][here], backward = part // 2, part % 2
        columns["phase"][here] = Phase.BACKWARD if backward else Phase.FORWARD
        columns["callee"][here] = [_layer_callee(stage, n, size, backward, names) for n in range(size)]
    reduce = slice(edges[-1], int(0.95 * num_calls))
    columns["phase"][reduce], columns["phase"][reduce.stop :] = Phase.GRAD_REDUCE, Phase.OPTIMIZER
    columns["callee"][reduce] = names.callee_id(Callee("", "aten.div_.Tensor"))
    columns["callee"][reduce.stop :] = names.callee_id(Callee("", "aten.addcmul_.default"))
    for key in np.unique(columns["microbatch"] * 8 + columns["phase"]):
        here = np.flatnonzero(columns["microbatch"] * 8 + columns["phase"] == key)
        for callee in np.unique(columns["callee"][here]):
            same = here[columns["callee"][here] == callee]
            columns["call"][same] = np.arange(len(same))
    return columns


def _layer_callee(stage, number, size, backward, names):
    layer = number * _LAYERS // size
    layer = stage * _LAYERS + (_LAYERS - 1 - layer if backward else layer)
    op, module = _OPS[number % len(_OPS)]
    return names.callee_id(Callee(f"decoder.layers.{layer}.{module}".rstrip("."), op))


def _details(rows, inputs, outputs):
    details = np.zeros(2 * len(rows), DETAIL_DTYPE)
    details["seq"] = np.repeat(rows, 2)
    for side, digests, made_by in ((Side.INPUT, inputs, rows - _LANES), (Side.OUTPUT, outputs, rows)):
        mine = details[side::2]
        mine["side"], mine["digest"], mine["storage"] = side, digests, 1 + (made_by + _LANES) % 4096
        mine["stop"] = 4096 * 1024 * 2
    return details


def _verdicts(kind, size, place, lone):
    """Give the verdict at each position, and the positions that differ."""
    verdicts = np.zeros(size, np.uint8)
    verdicts[place::_LANES] = Verdict.RECEIVER
    if kind == "origin":
        verdicts[place] = Verdict.ORIGIN
    if kind == "lone":
        verdicts[lone] = Verdict.UNKNOWN
    return verdicts, np.flatnonzero(verdicts)


def _rank(number, place, mine, theirs, verdicts, differing):
    recipe = {"host": f"node{number // 8:03}", "rack": f"rack{number // 128:02}", "local_rank": number % 8}
    header = RankHeader(number, place, recipe=recipe, algorithm=ALGORITHM)
    a, b = (replace(trace, header=header) for trace in (mine, theirs))
    return RankComparison(
        a,
        b,
        _blocks(len(verdicts)),
        np.array([0, len(verdicts)]),
        verdicts.copy(),
        _no_masks(len(verdicts)),
        differing,
    )


_SHARED = {}


def _blocks(size):
    return _SHARED.setdefault(("blocks", size), np.array([(0, 0, size, 0, 0, 0)], BLOCK_DTYPE))


def _no_masks(size):
    return _SHARED.setdefault(("masks", size), np.zeros(size, np.uint8))


def _finding(ranks, step, origin):
    have = [rank for rank in ranks if rank.verdicts[origin] == Verdict.ORIGIN]
    if not have:
        return ()
    site = site_at(have[0], origin)
    found = Finding(
        "kernel", site.callee.op, (site.callee.scope,), site.phase.name.lower(),
        tuple(rank.rank for rank in have), len(ranks),
        tuple(rank.rank for rank in ranks if rank.coordinate.dp != 1), (step,), (str(site),), 1, "exact",
        "dp=1", 1 / len(ranks), origin, 0, "equal inputs, another output", "replay it",
    )  # fmt: skip
    return (found,)


def _time(text, work):
    """Print what some work took: on the clock, and of the processor, which a busy machine changes less."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{text:<36} {1_000 * took:>8.1f} ms, processor {1_000 * cpu:>8.1f} ms")
    return result


def _memory():
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB at most"


def main():
    """Print how long each question of a map takes at full size."""
    from detlab.views.cells import MapSource

    sizes = [int(text) for text in sys.argv[1:]] or [2432, 20_000, 10]
    cmp = _time(f"made {' x '.join(map(str, sizes))}", lambda: large_comparison(*sizes))
    print(_memory())
    source, limits = MapSource(cmp), (480, 1200)
    step = min(3, sizes[2])
    _time("first window of one step", lambda: source.window({"step": step}, *limits))
    _time("the same window again", lambda: source.window({"step": step}, *limits))
    inside = {"step": step, "window": [100, 700, 5_000, 12_000]}
    _time("a window inside", lambda: source.window(inside, *limits))
    _time("receivers hidden", lambda: source.window({"step": step, "hidden": ["receiver"]}, *limits))
    _time("by rank", lambda: source.window({"step": step, "order": "rank"}, *limits))
    _time("overview", lambda: source.overview({"step": step}))
    _time("another step", lambda: source.window({"step": sizes[2]}, *limits))
    _time("worst over steps, first", lambda: source.window({"step": None}, *limits))
    _time("worst over steps, again", lambda: source.window({"step": None}, *limits))
    _time("ranks by steps, first", lambda: source.window({"columns": "step"}, *limits))
    _time("ranks by steps, again", lambda: source.window({"columns": "step"}, *limits))
    ops = {"rows": "op", "columns": "step"}
    _time("ops by steps, first", lambda: source.window(ops, *limits))
    _time("ops by steps, again", lambda: source.window(ops, *limits))
    called = _time("call of a block", lambda: source.call_in({"step": step}, [0, 6, 14_000, 14_017]))
    _time("call of a block, worst over steps", lambda: source.call_in({"step": None}, [0, 6, 14_000, 14_017]))
    _time("call of a cell of ops by steps", lambda: source.call_in(ops, [0, 1, 9, 10]))
    _time("place of it", lambda: source.place_of({"step": step}, *called))
    _time("hover", lambda: source.describe({"step": step}, [0, 6, 14_000, 14_017]))
    _time("search", lambda: source.search({"step": step}, "linear_fc1"))
    print(_memory())


if __name__ == "__main__":
    main()
