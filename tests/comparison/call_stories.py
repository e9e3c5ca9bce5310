"""Pairs of runs with one thing planted, by name, and the details of the call that it is about."""

from functools import cache

from detlab import compare
from detlab.comparison.call import call_details
from detlab.schema import Evidence, Flag, Kind, Phase, Verdict
from detlab.testing import Call, make_run
from tests.comparison.stories import (
    ADAMW,
    ALL_GATHER,
    ALL_REDUCE,
    INDEX_ADD,
    MM,
    collective,
    held,
    mm,
)
from tests.comparison.test_ignored import PLANTED
from tests.comparison.test_verdict_traps import accumulated
from tests.comparison.test_verdict_traps import padded as padded_rows
from tests.comparison.test_verdict_traps_evidence import used_after_gather

XOR = {"evidence": Evidence.SCREEN, "algorithm": "torch.hash_tensor"}
OTHER = mm("p", "q", "other")
"""A call that both runs make alike, so that nothing is refused for want of evidence."""


def run(calls, **more):
    return make_run({0: [*calls, OTHER]}, **more)


def one(call, other, **options):
    """The call that both runs make first, which may differ between them."""
    return compare(run([call]), run([other]), **options), 0, 0


def op(inputs=("i",), outputs=("o",), name=INDEX_ADD, **more):
    return Call(name, "moe", list(inputs), list(outputs), **more)


def origin(**more):
    """A call with equal inputs and another output, in both runs alike otherwise."""
    return one(op(**more), op(outputs=["O"], **more))


def first(cmp, verdict):
    """The first call of a verdict, on the first rank that has one."""
    for number, rank in enumerate(cmp.ranks):
        found = (rank.verdicts == verdict).nonzero()[0]
        if len(found):
            return cmp, number, int(found[0])
    raise AssertionError(f"no call is {verdict.name}")


def group(ranks, others, verdict=None, rank=0, groups=None):
    """A collective that is the only call of each rank."""
    runs = [make_run(dict(enumerate(map(list, zip(each)))), groups=groups or {"dp": range(len(each))})
            for each in (ranks, others)]  # fmt: skip
    cmp = compare(*runs)
    return (cmp, rank, 0) if verdict is None else first(cmp, verdict)


def sums(given, gave, **more):
    return [collective(ALL_REDUCE, *pair, **more) for pair in zip(given, gave, strict=True)]


def lacking_member():
    """Three ranks of which one makes the call in run a only."""
    runs = [
        make_run({0: sums("a", word), 1: sums("b", "s"), 2: last}, groups={"dp": [0, 1, 2]})
        for word, last in (("s", [*sums("c", "s"), OTHER]), ("S", [OTHER]))
    ]
    return compare(*runs), 0, 0


def sent(given, gave):
    return [
        collective("c10d.broadcast_.default", *pair, attributes={"root": "0"})
        for pair in zip(given, gave, strict=True)
    ]


def gathered(given, gave):
    return [collective(ALL_GATHER, own, list(gave)) for own in given]


def adamw(odd_inputs=(), odd_outputs=()):
    """An optimizer call of six lanes: parameters, gradients, and what becomes of the parameters."""
    grads = [f"g{n}{'!' * (n in odd_inputs)}" for n in range(6)]
    made = [f"q{n}{'!' * (n in odd_outputs)}" for n in range(6)]
    return Call(ADAMW, "", [*(f"p{n}" for n in range(6)), *grads], made, phase=Phase.OPTIMIZER)


def exchanged(order):
    made = [Call(MM, "lin", ["w", f"x{n}"], [f"y{n}"]) for n in order]
    return run([*made, Call("aten.cat.default", "", ["y0", "y1"], ["c"])])


def snapshot(word):
    return run([Call(INDEX_ADD, "moe", ["x"], [word]), held("moe.table", word)])


def planted(kind, **options):
    one_run, other = (run(calls) for calls in PLANTED[kind])
    cmp = compare(one_run, other, **options)
    at = int(cmp.ranks[0].differing[0]) if len(cmp.ranks[0].differing) else 0
    return cmp, 0, at


def ambiguous():
    """Run b lost the first of two alike calls and gained one: which is the partner is open."""
    made, again = ([op(outputs=[word]) for word in words] for words in (("m1", "m2"), ("m2", "m2")))
    return compare(run(made), run([*again, mm("a", "b", "extra")]))


MANY = [f"g{n}" for n in range(20)]

STORIES = {
    "match": lambda: one(op(), op()),
    "match screen": lambda: one(op(evidence=Evidence.SCREEN), op(evidence=Evidence.SCREEN)),
    "match weak": lambda: one(*[op(dtypes={"i": "bool"}, flags=Flag.WEAK_INPUT, **XOR)] * 2),
    "match partial": lambda: one(*[op(evidence=Evidence.PARTIAL, algorithm="sha256-sampled:8")] * 2),
    "match without inputs": lambda: one(op([None]), op([None])),
    "match without outputs": lambda: one(op(outputs=[None]), op(outputs=[None])),
    "match with outputs in one run": lambda: one(op(), op(outputs=[None])),
    "match of shapes": lambda: one(*[op(evidence=Evidence.STRUCTURE)] * 2),
    "match of a buffer": lambda: group(sent("abc", "aaa"), sent("aBc", "aaa"), rank=1),
    "match exchanged": lambda: (compare(exchanged([0, 1]), exchanged([1, 0])), 0, 0),
    "match of a barrier": lambda: one(
        *[Call("c10d.barrier.default", kind=Kind.COLLECTIVE, group="world")] * 2
    ),
    "absorbed": lambda: one(op(["i", "j"]), op(["i", "J"])),
    "match of what a broadcast gave": lambda: group(sent("abc", "aaa"), sent("Abc", "aaa"), rank=1),
    "receiver": lambda: one(op(["i", "j"]), op(["i", "J"], ["O"])),
    "receiver of a number": lambda: one(op(scalars=[0.5]), op(outputs=["O"], scalars=[0.25])),
    "receiver of a state of a generator": lambda: one(
        op(generator="s", flags=Flag.SEEDED), op(outputs=["O"], generator="t", flags=Flag.SEEDED)
    ),
    "receiver from a member": lambda: group(sums("abc", "sss"), sums("aBc", "SSS")),
    "receiver of a state": lambda: first(compare(snapshot("t"), snapshot("T")), Verdict.RECEIVER),
    "receiver in a large group": lambda: group(sums(MANY, ["s"] * 20), sums([*MANY[:-1], "G"], ["S"] * 20)),
    "origin": origin,
    "origin screen": lambda: origin(evidence=Evidence.SCREEN),
    "origin weak": lambda: origin(dtypes={"i": "int64"}, flags=Flag.WEAK_INPUT, **XOR),
    "origin of a lane": lambda: one(adamw(), adamw({1}, {1, 4})),
    "origin by order": lambda: first(
        compare(run(accumulated("g1", "g2")), run(accumulated("g2", "g1"))), Verdict.ORIGIN
    ),
    "origin random": lambda: origin(flags=Flag.SEEDED),
    "origin of a state": lambda: one(held("moe.table", "t"), held("moe.table", "T")),
    "origin without inputs": lambda: one(op([]), op([], ["O"])),
    "origin of a sum": lambda: group(sums("abc", "sss"), sums("abc", "SSS")),
    "origin of a piece": lambda: group(
        gathered("ab", "ab"), [*gathered("a", "ab"), *gathered("b", "aX")], rank=1
    ),
    "origin in a large group": lambda: group(sums(MANY, ["s"] * 20), sums(MANY, ["S"] * 20)),
    "only a": lambda: (compare(run([op()]), run([])), 0, 0),
    "only b": lambda: (compare(run([]), run([op()])), 0, 0),
    "changed": lambda: one(op(), op(["J"], ["o", "p"])),
    "changed without inputs": lambda: one(op([None]), op([None], ["o", "p"])),
    "configuration": lambda: planted("configuration", count="configuration"),
    "configuration of a match": lambda: planted("configuration"),
    "unknown where a member was not recorded": lambda: group(
        sums("ab", "ss"), sums("ab", "SS"), groups={"dp": [0, 1, 2]}
    ),
    "unknown where a member lacks the call": lambda: lacking_member(),
    "unknown without inputs": lambda: one(op([None, "x"]), op([None, "x"], ["O"])),
    "unknown other digest": lambda: one(op(), op(outputs=["O"], algorithm="crc32")),
    "unknown statistic": lambda: origin(evidence=Evidence.STATISTIC),
    "unknown printed": lambda: origin(evidence=Evidence.PRINTED),
    "unknown view": lambda: origin(name="aten.view.default", flags=Flag.VIEW),
    "unknown open": lambda: origin(flags=Flag.OPEN_INPUTS),
    "unknown open to a number": lambda: origin(name="aten.mul.Tensor", flags=Flag.OPEN_INPUTS),
    "unknown contradiction": lambda: origin(name="aten.add.Tensor"),
    "unknown weak contradiction": lambda: origin(name="aten.add.Tensor", evidence=Evidence.SCREEN),
    "unknown ambiguous": lambda: first(ambiguous(), Verdict.UNKNOWN),
    "unknown in flight": lambda: first(
        compare(used_after_gather("y"), used_after_gather("Y")), Verdict.UNKNOWN
    ),
    "unknown padding": lambda: first(
        compare(run(padded_rows("b", "y")), run(padded_rows("B", "Y"))), Verdict.UNKNOWN
    ),
    "unknown slices": lambda: group(
        [collective("c10d._reduce_scatter_base_.default", *pair) for pair in zip("abc", "uvw", strict=True)],
        [collective("c10d._reduce_scatter_base_.default", *pair) for pair in zip("aBc", "Uvw", strict=True)],
    ),
    **{f"aside {kind}": (lambda kind=kind: planted(kind)) for kind in PLANTED if kind != "configuration"},
}
"""By name a function that gives a comparison, and the number of the rank and the position of the call."""


@cache
def story(name):
    """Give the details of the call that a story is about."""
    return call_details(*STORIES[name]())
