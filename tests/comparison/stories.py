"""Calls to tell the stories of the comparison with, and how the whole answer to each is expected."""

import polars as pl

from detlab import compare
from detlab.schema import Kind, Phase
from detlab.testing import Call, make_run


def expect(a, b, sites, *findings, verdict="diverged", ignored=None, reordered=0, recomputed=0):
    """Compare two runs and expect just this answer: every site, finding, note and thing set aside.

    Parameters
    ----------
    a, b
        Runs, or lists of calls of one rank.
    sites
        Verdicts of every call of a rank in one text, for one rank or for each.
    findings
        (class, op, ranks) of each, in any order.
    ignored
        Number of calls set aside by kind.
    """
    cmp = compare(*(make_run({0: each}) if isinstance(each, list) else each for each in (a, b)))
    wanted = [each.split() for each in ([sites] if isinstance(sites, str) else sites)]
    one_sided = [sum(each.count(side) for each in wanted) for side in ("only_a", "only_b")]
    answers = {
        "sites": ([verdicts_of(cmp, rank.rank) for rank in cmp.ranks], wanted),
        "findings": (
            sorted((each.finding_class, each.op, each.ranks) for each in cmp.roots),
            sorted(findings),
        ),
        "verdict": (cmp.verdict, verdict),
        "ignored": ({each["kind"]: each["count"] for each in cmp.ignored}, ignored or {}),
        "structure": (
            [getattr(cmp.structure, name) for name in ("only_a", "only_b", "reordered", "recomputed")],
            [*one_sided, reordered, recomputed],
        ),
    }
    wrong = {
        name: {"found": found, "right": right} for name, (found, right) in answers.items() if found != right
    }
    assert not wrong
    return cmp


def verdicts_of(cmp, rank):
    """Verdicts of every call of one rank, in its order."""
    frames = [cmp.sites(step=step, rank=rank) for step in cmp.steps]
    return pl.concat(frames)["verdict"].to_list()


def why(cmp):
    """What the only finding says of its cause and of what to do next."""
    (finding,) = cmp.roots
    return f"{finding.why}; {finding.next}"


def route(cmp, rank, site):
    """Ranks and ops that a difference came through, from a call back to where it began."""
    return [(row["rank"], row["op"]) for row in cmp.path(rank=rank, site=site).iter_rows(named=True)]


def site(scope, op, step=1, microbatch=0, phase="forward", call=0):
    """Text of a site, as users paste it."""
    return f"{step}/{microbatch}/{phase}/{scope}/{op}#{call}"


MM = "aten.mm.default"
ADAMW = "aten._fused_adamw_.default"
DROPOUT = "aten.native_dropout.default"
INDEX_ADD = "aten.index_add.default"
ADD = "aten.add_.Tensor"
MUL = "aten.mul_.Tensor"
NORM = "aten.linalg_vector_norm.default"
ITEM = "aten._local_scalar_dense.default"
ALL_REDUCE = "c10d.allreduce_.default"
ALL_GATHER = "c10d.allgather_.default"
REDUCE_SCATTER = "c10d.reduce_scatter_.default"


def mm(given, made, scope="lin", **more):
    """A product with a weight of its own."""
    return Call(MM, scope, ["w of " + scope, given], [made], **more)


def item(tensor, number):
    """A tensor of one element read by Python."""
    return Call(ITEM, "", [tensor], results=[number], kind=Kind.HOST_READ)


def collective(op, given, received, group="dp", **more):
    """A call that communicates; one word or several on each side."""
    given, received = ([each] if isinstance(each, str) else list(each or []) for each in (given, received))
    more = {"phase": Phase.GRAD_REDUCE, "microbatch": -1, "scope": ""} | more
    return Call(op, inputs=given, outputs=received, kind=Kind.COLLECTIVE, group=group, **more)


def held(scope, word, step=1, phase=Phase.STATE):
    """A snapshot of one tensor as a rank holds it."""
    return Call("state.tensor", scope, [], [word], step=step, phase=phase, kind=Kind.STATE, microbatch=-1)
