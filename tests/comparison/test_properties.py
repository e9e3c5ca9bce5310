"""What holds for any two runs, and the truth table of the overall verdict, one row a test."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare, load_run
from detlab.cli import main
from detlab.errors import NotComparable, TraceError
from detlab.schema import Flag, Phase, Verdict
from detlab.store import NameTables, memory_trace
from detlab.testing import Call, make_rows, make_run, save_run
from tests.comparison.stories import (
    ALL_GATHER,
    ALL_REDUCE,
    INDEX_ADD,
    MM,
    REDUCE_SCATTER,
    collective,
    item,
    mm,
)

FLAGS = [
    0,
    0,
    0,
    Flag.WEAK_INPUT | Flag.WEAK_OUTPUT,
    Flag.SEEDED,
    Flag.FRESH_MEMORY,
    Flag.VIEW,
    Flag.OPEN_INPUTS,
]


@st.composite
def some_call(draw):
    """A call of a small vocabulary, so that chains, ties and shared storages abound."""
    word = st.sampled_from("abcd")
    phase = draw(st.sampled_from([Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE]))
    place = {"phase": phase, "step": draw(st.integers(1, 2)), "microbatch": draw(st.integers(0, 1))}
    match draw(st.integers(0, 5)):
        case 0:
            return collective(ALL_REDUCE, draw(word), draw(word), **place)
        case 1:
            return replace(item(draw(word), draw(st.sampled_from([1.0, 2.0]))), **place)
    return Call(
        draw(st.sampled_from(["aten.mm.default", "aten.add.Tensor", "aten._foreach_add_.List"])),
        draw(st.sampled_from(["layers.0", "layers.1", ""])),
        draw(st.lists(word, max_size=2)),
        draw(st.lists(word, min_size=1, max_size=2)),
        scalars=draw(st.sampled_from([[], [0.5], [0.25]])),
        generator=draw(st.sampled_from(["", "", "s", "t"])),
        flags=draw(st.sampled_from(FLAGS)),
        places={name: ("pool", n * 8, n * 8 + 12) for n, name in enumerate("abcd")},
        **place,
    )  # fmt: skip


RANKS = st.lists(st.lists(some_call(), min_size=4, max_size=16), min_size=2, max_size=2)
GROUPS = {"dp": [0, 1]}


def run_of(ranks, **options):
    return make_run(dict(enumerate(ranks)), groups=GROUPS, **options)


@st.composite
def pairs(draw):
    """Two runs of two ranks, the second like the first but for a few calls; both have step 1."""
    first = Call(MM, "first", ["a"], ["b"])
    one = [[first, *rank] for rank in draw(RANKS)]
    other = [list(rank) for rank in one]
    for _ in range(draw(st.integers(0, 3))):
        rank = draw(st.sampled_from(other))
        at = draw(st.integers(1, len(rank)))
        rank[at : at + draw(st.integers(0, 1))] = draw(st.lists(some_call(), max_size=1))
    return one, other


def answer(cmp):
    """All that a comparison says, without the names of the runs."""
    return {name: value for name, value in cmp.to_json().items() if name != "problems"}


@given(RANKS)
def test_any_run_matches_itself_everywhere(ranks):
    run = run_of(ranks)
    cmp = compare(run, run)
    assert (cmp.verdict, cmp.roots, cmp.counts[Verdict.MATCH]) == ("match", (), run.num_events)


SWAPPED = {Verdict.ONLY_A: Verdict.ONLY_B, Verdict.ONLY_B: Verdict.ONLY_A}


@given(pairs())
def test_swapping_the_runs_swaps_the_sides_and_nothing_else(pair):
    one, other = map(run_of, pair)
    there, back = compare(one, other), compare(other, one)
    assert {SWAPPED.get(verdict, verdict): n for verdict, n in back.counts.items()} == there.counts
    assert told(there) == told(back)


def told(cmp):
    return sorted((finding.finding_class, finding.op, finding.ranks) for finding in cmp.roots)


OPS = [ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, "c10d.broadcast_.default"]


@st.composite
def lacking(draw):
    """Two runs of three ranks that communicate, where in each at most one rank lacks one call."""
    ops = draw(st.lists(st.sampled_from(OPS), min_size=2, max_size=6))
    words = st.sampled_from(["", "", "!"])
    runs = []
    for _ in "ab":
        ends = [[(draw(words), draw(words)) for _ in ops] for _ in range(3)]
        ranks = [
            [
                mm("x", "y"),
                *(
                    collective(op, f"g{n}{ends[rank][n][0]}", f"r{n}{ends[rank][n][1]}")
                    for n, op in enumerate(ops)
                ),
            ]
            for rank in range(3)
        ]
        gone = draw(st.integers(1, len(ops) + 1))
        del draw(st.sampled_from(ranks))[gone : gone + 1]
        runs.append(make_run(dict(enumerate(ranks)), groups={"dp": [0, 1, 2]}))
    return runs


@given(lacking())
def test_swapping_the_runs_swaps_the_sides_where_ranks_lack_collectives(runs):
    there, back = compare(*runs), compare(*reversed(runs))
    swapped = {"only_a": "only_b", "only_b": "only_a"}
    mirrored = {(rank, b, a, swapped.get(verdict, verdict)) for rank, a, b, verdict in calls_of(back)}
    assert mirrored == calls_of(there)
    assert told(there) == told(back)


def calls_of(cmp):
    """Every call of every rank: rank, place in run a and in run b, verdict."""
    frames = [cmp.sites(step=1, rank=rank.rank) for rank in cmp.ranks]
    return {row for each in frames for row in each.select("rank", "seq_a", "seq_b", "verdict").iter_rows()}


@given(pairs(), st.sampled_from([1, 2, 3, 5]))
def test_the_size_of_batches_never_matters(tmp_path_factory, pair, size):
    folder = tmp_path_factory.mktemp("batches")
    in_memory = compare(*map(run_of, pair))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("detlab.store.writer.MAX_BATCH_ROWS", size)
        saved = [save_run(run_of(ranks), folder / name) for ranks, name in zip(pair, "ab", strict=True)]
    assert answer(compare(*map(load_run, saved))) == answer(in_memory)


@given(pairs(), st.randoms(use_true_random=False))
def test_the_order_of_names_and_detail_rows_never_matters(pair, random):
    one, other = map(run_of, pair)
    shuffled = [_shuffled(trace, calls, random) for trace, calls in zip(other.ranks, pair[1], strict=True)]
    assert answer(compare(one, replace(other, ranks=tuple(shuffled)))) == answer(compare(one, other))


def _shuffled(trace, calls, random):
    """Give the same trace with other ids of names, and details in another order."""
    names = NameTables()
    mixed = list(calls)
    random.shuffle(mixed)
    make_rows(mixed, names)
    events, details = make_rows(calls, names)
    order = list(range(len(details)))
    random.shuffle(order)
    return memory_trace(trace.header, names, events, details[np.array(order, np.intp)])


@given(pairs())
def test_other_hosts_labels_and_addresses_change_nothing(pair):
    one, other = map(run_of, pair)
    moved = [[replace(call, places=_moved(call.places)) for call in rank] for rank in pair[1]]
    hosts = {rank: {"hostname": f"node{rank + 7}", "device": f"cuda:{rank + 3}"} for rank in (0, 1)}
    elsewhere = run_of(moved, label="elsewhere", recipes=hosts)
    assert answer(compare(one, elsewhere)) == answer(compare(one, other))


def _moved(places):
    return {word: (f"moved {storage}", start, stop) for word, (storage, start, stop) in places.items()}


@given(st.data())
def test_deleting_calls_of_a_long_repetitive_run_yields_just_these_and_no_origin(data):
    whole = [Call(MM, f"layers.{n % 3}", [f"x{n}"], [f"x{n + 1}"]) for n in range(120)]
    gone = data.draw(st.sets(st.integers(0, 119), max_size=40))
    rest = [call for n, call in enumerate(whole) if n not in gone]
    there, back = compare(*map(one_rank, (whole, rest))), compare(*map(one_rank, (rest, whole)))
    for cmp, side in ((there, Verdict.ONLY_A), (back, Verdict.ONLY_B)):
        expected = {Verdict.MATCH: 120 - len(gone), side: len(gone)}
        assert {verdict: n for verdict, n in cmp.counts.items() if n} == {
            v: n for v, n in expected.items() if n
        }
        assert {finding.finding_class for finding in cmp.roots} <= {"structure"}


def one_rank(calls):
    return make_run({0: calls})


# The overall verdict


def judged(one, other=None):
    """Compare two lists of calls of one rank; the answer's verdict, exit code and classes."""
    cmp = compare(one_rank(one), one_rank(one if other is None else other))
    return cmp.verdict, cmp.exit_code, {finding.finding_class for finding in cmp.roots}


def planted(given, made, **more):
    return [mm("x", "h"), Call(INDEX_ADD, "moe", [given], made if isinstance(made, list) else [made], **more)]


def test_an_origin_makes_it_diverged():
    assert judged(planted("i", "o"), planted("i", "O")) == ("diverged", 1, {"kernel"})


def test_a_receiver_makes_it_diverged():
    assert judged(planted("i", "o"), planted("I", "O")) == ("diverged", 1, {"upstream"})


def test_an_absorbed_difference_makes_it_diverged():
    assert judged(planted("i", "o"), planted("I", "o")) == ("diverged", 1, {"upstream"})


def test_an_unknown_makes_it_diverged():
    assert judged(planted(None, "o"), planted(None, "O")) == ("diverged", 1, {"unknown"})


def test_a_changed_call_makes_it_diverged():
    assert judged(planted("i", "o"), planted("I", ["o", "p"])) == ("diverged", 1, {"upstream"})


def test_a_call_that_computes_in_one_run_only_makes_it_diverged_in_structure():
    assert judged(planted("i", "o"), planted("i", "o")[:1]) == ("diverged", 1, {"structure"})
    assert judged(planted("i", "o")[1:], planted("i", "o")) == ("diverged", 1, {"structure"})


def test_a_reorder_of_calls_that_share_a_generator_makes_it_diverged_in_structure():
    one, other = (
        [
            Call("aten.rand.default", scope, [], [f"m{n}"], generator=f"s{n}", flags=Flag.SEEDED)
            for n, scope in enumerate(scopes)
        ]
        for scopes in ("ab", "ba")
    )
    assert judged(one, other) == ("diverged", 1, {"structure"})


def test_a_view_in_one_run_only_is_a_match():
    view = Call("aten.view.default", "", ["h"], ["h"], flags=Flag.VIEW)
    assert judged(planted("i", "o"), [*planted("i", "o"), view]) == ("match", 0, set())


def test_a_detach_in_one_run_only_is_a_match():
    detach = Call("aten.detach.default", "", ["h"], ["h"])
    assert judged([detach, *planted("i", "o")], planted("i", "o")) == ("match", 0, set())


def test_a_recomputation_in_one_run_only_is_a_match():
    again = [replace(call, phase=Phase.RECOMPUTE) for call in planted("i", "o")]
    assert judged(planted("i", "o"), [*planted("i", "o"), *again]) == ("match", 0, set())


def test_a_plain_reorder_is_a_match():
    one = planted("i", "o")
    assert judged(one, one[::-1]) == ("match", 0, set())


def test_nothing_that_differs_is_a_match():
    assert judged(planted("i", "o")) == ("match", 0, set())


def test_a_match_with_a_rank_on_one_side_only_is_incomplete():
    calls = planted("i", "o")
    runs = [make_run(dict.fromkeys(range(n), calls), layout={"dp": 2}, world_size=2) for n in (1, 2)]
    cmp = compare(*runs)
    assert (cmp.verdict, cmp.exit_code) == ("incomplete", 2)


def test_a_match_with_a_step_on_one_side_only_is_incomplete():
    calls = planted("i", "o")
    later = [replace(call, step=2) for call in calls]
    assert judged(calls, [*calls, *later]) == ("incomplete", 2, set())


def cut(folder):
    """Cut the end off a rank's stream, as a killed run leaves it."""
    stream = folder / "rank00000.events.arrows"
    stream.write_bytes(stream.read_bytes()[:-8])
    return folder


def test_a_match_with_a_file_that_was_cut_is_incomplete(tmp_path):
    a, b = (save_run(one_rank(planted("i", "o")), tmp_path / name) for name in "ab")
    cmp = compare(a, cut(b))
    assert (cmp.verdict, cmp.exit_code) == ("incomplete", 2)


def test_a_divergence_with_a_file_that_was_cut_is_diverged(tmp_path):
    a, b = (save_run(one_rank(planted("i", word)), tmp_path / word) for word in "oP")
    cmp = compare(a, cut(b))
    assert (cmp.verdict, cmp.exit_code, cmp.complete) == ("diverged", 1, False)


def exit_code(*paths):
    return main(["compare", *map(str, paths)])


def test_runs_that_may_not_be_compared_are_invalid(tmp_path):
    one, other = one_rank(planted("i", "o")), one_rank([replace(c, step=9) for c in planted("i", "o")])
    with pytest.raises(NotComparable):
        compare(one, other)
    assert exit_code(save_run(one, tmp_path / "a"), save_run(other, tmp_path / "b")) == 2


def test_digests_of_which_no_pair_can_be_compared_are_invalid(tmp_path):
    one, other = (one_rank(planted("i", "o", algorithm=name)[1:]) for name in ("xxh3-64", "crc32"))
    with pytest.raises(NotComparable):
        compare(one, other)
    assert exit_code(save_run(one, tmp_path / "a"), save_run(other, tmp_path / "b")) == 2


def test_files_damaged_beyond_use_are_invalid(tmp_path):
    a, b = (save_run(one_rank(planted("i", "o")), tmp_path / name) for name in "ab")
    (b / "rank00000.names.jsonl").write_bytes(b"\xff")
    (b / "rank00000.header.json").write_bytes(b"\xff")
    with pytest.raises(TraceError):
        compare(a, b)
    assert exit_code(a, b) == 2


def test_what_is_set_aside_alone_is_a_match():
    flags = {"flags": Flag.POINTERS}
    assert judged(planted("i", "o", **flags), planted("i", "O", **flags)) == ("match", 0, set())


@given(pairs())
def test_any_pair_is_diverged_just_when_a_counted_call_differs_or_there_is_a_finding(pair):
    cmp = compare(*map(run_of, pair))
    differs = sum(cmp.counts.values()) > cmp.counts[Verdict.MATCH] or bool(cmp.roots)
    steps = [{call.step for rank in side for call in rank} for side in pair]
    whole = "match" if steps[0] == steps[1] else "incomplete"
    assert cmp.verdict == ("diverged" if differs else whole)
