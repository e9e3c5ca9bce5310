"""Small comparisons with one planted thing, for every test of the views."""

import dataclasses

import numpy as np

from detlab.comparison import compare
from detlab.digest import ALGORITHM
from detlab.readers.metrics.frame import recorded_metrics
from detlab.run import Run
from detlab.schema import EVENT_DTYPE, Callee, Coordinate, Evidence, Flag, Meta, Phase, pack_evidence
from detlab.store import Manifest, NameTables, RankHeader, memory_trace
from detlab.testing import Call, make_run


def step_calls(step, word="y", scope="lin", op="aten.mm.default", flags=0):
    """Give three calls of one step: an embedding, the call that may differ, and one that reads its output."""
    return [
        Call("aten.embedding.default", "emb", ["w"], ["e"], step=step),
        Call(op, scope, ["e"], [word], step=step, phase=Phase.BACKWARD, flags=flags),
        Call("aten.add.default", "opt", [word], ["p" + word], step=step, phase=Phase.OPTIMIZER),
    ]


def story(label, words, **options):
    """Make a run: for each rank the word that its second call gives in each step from 1 on."""
    calls = {
        rank: [call for step, word in enumerate(each, 1) for call in step_calls(step, word, **options)]
        for rank, each in words.items()
    }
    return make_run(calls, label=label)


def one_origin(**options):
    """Compare two ranks over two steps; rank 1 diverges in step 2, at its call 1."""
    a = story("a", {0: ["y", "y"], 1: ["y", "y"]}, **options)
    return compare(a, story("b", {0: ["y", "y"], 1: ["y", "z"]}, **options))


def set_aside():
    """Compare two runs whose only difference is an observer artefact."""
    flags = Flag.POINTERS
    a = make_run({0: [Call("aten.mm.default", "lin", ["x"], ["y"], flags=flags)]}, label="a")
    b = make_run({0: [Call("aten.mm.default", "lin", ["x"], ["z"], flags=flags)]}, label="b")
    return compare(a, b)


def one_in_a_million(*places):
    """Compare a rank of a million calls of which one, or a few, give other bits."""
    return compare(_million("a", ()), _million("b", places))


def _million(label, changed):
    names = NameTables()
    names.callee_id(Callee("lin", "aten.mm.default"))
    names.meta_id(Meta(algorithm=ALGORITHM))
    events = np.zeros(1_000_000, EVENT_DTYPE)
    events["seq"] = np.arange(len(events))
    events["step"], events["phase"], events["n_in"], events["n_out"] = 1, Phase.FORWARD, 1, 1
    events["evidence"] = pack_evidence(Evidence.EXACT, Evidence.EXACT)
    events["out_digest"][list(changed)] = 1
    trace = memory_trace(RankHeader(0, Coordinate(), algorithm=ALGORITHM), names, events)
    return Run(label, "memory", Manifest(label, 1), (trace,), recorded_metrics([]))


def with_metric(run, values, name="loss"):
    """Give a run one metric of rank 0, by step from 1 on; None: not logged in that step."""
    rows = [(step, 0, name, value) for step, value in enumerate(values, 1) if value is not None]
    return dataclasses.replace(run, metrics=recorded_metrics(rows))


def with_recipe(run, recipe):
    """Give every rank of a run a recipe."""
    ranks = [
        dataclasses.replace(trace, header=dataclasses.replace(trace.header, recipe=recipe))
        for trace in run.ranks
    ]
    return dataclasses.replace(run, ranks=tuple(ranks))
