"""The tensors of one compared call, and the calls that they come from and go to."""

from dataclasses import replace

import pytest

from detlab import compare
from detlab.comparison.call import call_details
from detlab.comparison.call.part_words import (
    digest_words,
    link_words,
    pair_words,
    tensor_name,
    unmade_words,
    value_words,
    way_words,
)
from detlab.comparison.call.words import (
    sentences,
)
from detlab.schema import Evidence, Flag, Phase, Side
from detlab.store import memory_trace
from detlab.testing import Call, make_run, save_run
from detlab.testing.synthetic import word_digest
from tests.comparison.call_stories import OTHER, XOR, one, op, run, story
from tests.comparison.stories import ALL_GATHER, INDEX_ADD, MM, collective, item, mm

# Tensors


def words_of(details):
    return {tensor_name(pair): pair_words(pair) for pair in details.tensors}


def test_each_tensor_says_what_is_known_of_it():
    one_call = op(["i", "j", None], ["o", "p"], scalars=[0.5], generator="s")
    other = op(["i", "J", None], ["o", "P"], scalars=[0.5], generator="t")
    assert words_of(call_details(*one(one_call, other))) == {
        "input 0": "same (exact)",
        "input 1": "differs",
        "input 2": "its bits were not recorded",
        "numbers given": "same (exact)",
        "generator state": "differs",
        "output 0": "same (exact)",
        "output 1": "differs",
    }


def test_a_number_that_a_call_returns_is_a_result():
    details = call_details(*one(item("loss", 2.0), item("loss", 2.5)))
    assert words_of(details) == {"input 0": "same (exact)", "numbers returned": "differs"}


def test_another_dtype_or_shape_is_said_and_another_stride_is_not_a_difference():
    details = call_details(*one(op(shape=(2, 3)), op(shape=(3, 2))))
    assert words_of(details)["input 0"] == "differs: shape differs"
    details = call_details(*one(op(shape=(2, 3)), op(shape=(2, 3), dtype="bfloat16")))
    assert words_of(details)["input 0"] == "differs: dtype differs"
    details = call_details(*one(op(shape=(2, 3)), op(shape=(2, 3), strides={"i": (1, 2)})))
    assert words_of(details)["input 0"] == "same (exact)"
    assert "Input 0 has other strides" in " ".join(sentences(details))


def test_a_zero_xor_digest_over_several_elements_is_weak_and_an_exact_one_is_not():
    def pair(**more):
        return [each.is_weak for each in call_details(*one(op(**more), op(**more))).tensors]

    assert pair(**XOR) == [False, False]
    assert pair(**XOR, dtypes={"i": "int64"}) == [True, False]
    assert pair(dtypes={"i": "int64"}) == [False, False]
    assert pair(**XOR, dtypes={"i": "int64"}, shapes={"i": ()}) == [False, False]
    zeroed = {"stats": {"i": (0.0, 0.0, 0, 0)}, "dtypes": {"i": "int64"}}
    assert pair(**XOR, **zeroed) == [False, False]


def test_a_digest_of_zero_is_weak_where_it_is_an_xor():
    runs = [run([op(**XOR)]) for _ in "ab"]
    cmp = compare(*(with_digest(each, word_digest("i"), 0) for each in runs))
    first_input, output = call_details(cmp, 0, 0).tensors
    assert (first_input.is_weak, pair_words(first_input)) == (True, "same (screen, weak)")
    assert (output.is_weak, pair_words(output)) == (False, "same (screen)")


def test_an_absmax_that_differs_overrides_equal_digests():
    calls = [op(stats={"i": (absmax, 0.0, 0, 0)}) for absmax in (1.0, 2.0)]
    pair = call_details(*one(*calls)).tensors[0]
    assert (pair.same, pair.evidence) == (False, "statistic")
    assert "the digest missed it" in pair_words(pair)


def test_a_sum_that_differs_beside_an_equal_digest_leaves_open_which_tensor_differs():
    """What is folded beside a screen counts: the inputs differ, and no digest of theirs shows it."""

    def pair(totals, **more):
        calls = [op(stats={"i": (1.0, total, 0, 0)}, **more) for total in totals]
        return call_details(*one(*calls))

    details = pair((1.0, 2.0), evidence=Evidence.SCREEN)
    assert (details.call.verdict, details.inputs.same, details.tensors[0].same) == ("absorbed", False, None)
    assert "equal digests and other sums" in pair_words(details.tensors[0])
    assert "which of them is not known; of 1 nothing can be said" in " ".join(sentences(details))
    assert pair((1.0, 1.0), evidence=Evidence.SCREEN).tensors[0].same is True
    assert pair((1.0, 2.0)).tensors[0].same is True  # a sum says nothing beside an exact digest


def test_a_difference_that_no_digest_of_a_tensor_shows_is_said():
    calls = [op(["i", "j"]), op(["i", "j"], scalars=[0.5])]
    cmp = compare(*(without_scalars(run([call])) for call in calls))
    assert "Its inputs differ, which no digest of theirs shows." in sentences(call_details(cmp, 0, 0))


def without_scalars(each):
    (trace,) = each.ranks
    details = trace.details.rows[0]
    kept = details[details["side"] != Side.SCALARS]
    return replace(each, ranks=(memory_trace(trace.header, trace.names, trace.events.rows[0], kept),))


def test_a_missing_tensor_does_not_lower_what_the_others_prove():
    call = op(["i", None], evidence=Evidence.PARTIAL)
    assert words_of(call_details(*one(call, call)))["input 0"] == "same (exact)"
    sampled = op(["i", None], evidence=Evidence.PARTIAL, algorithm="sha256-sampled:8")
    assert words_of(call_details(*one(sampled, sampled)))["input 0"] != "same (exact)"


@pytest.mark.parametrize(
    ("stats", "shape", "words"),
    [
        (None, (4,), ""),
        ((1.5, 3.0, 0, 0), (4,), "absmax 1.5, sum 3.0"),
        ((0.0, 0.0, 0, 0), (4,), "all zero"),
        ((0.0, 0.0, 4, 0), (4,), "all NaN"),
        ((0.0, 0.0, 0, 4), (4,), "all Inf"),
        ((0.0, 0.0, 1, 0), (4,), "1 NaN, the others zero"),
        ((2.0, 2.0, 1, 2), (4,), "1 NaN, 2 Inf, absmax 2.0, sum 2.0"),
        ((0.0, 0.0, 0, 0), (0,), "empty"),
        ((float("nan"), float("nan"), 1, 0), (4,), "NaN in it"),
        ((float("inf"), float("inf"), 0, 1), (4,), "Inf in it"),
    ],
)
def test_absent_nan_inf_zero_and_empty_are_different_states(stats, shape, words):
    call = op(shape=shape, stats={"i": stats} if stats else {})
    assert value_words(call_details(*one(call, call)).tensors[0].a) == words


def test_digests_are_short_unless_that_would_make_different_ones_look_alike():
    pair = story("origin").tensors[1]
    a, b = digest_words(pair)
    assert (len(a), len(b), a == b) == (8, 8, False)
    near = replace(pair, b=replace(pair.b, digest=pair.a.digest[:-1] + "x"))
    assert digest_words(near) == (pair.a.digest, near.b.digest)


def test_a_side_whose_tensors_were_not_recorded_one_by_one_says_so():
    cmp = compare(*(without_details(run([op(["i"], [word])])) for word in "oO"))
    details = call_details(cmp, 0, 0)
    text = " ".join(sentences(details))
    assert "Its inputs match (exact" in text
    assert "Its outputs differ, and which of them is not known; of 1 nothing can be said." in text
    assert "cannot be followed: its tensors were not recorded one by one" in unmade_words(details.links)


def without_details(each):
    (trace,) = each.ranks
    return replace(each, ranks=(memory_trace(trace.header, trace.names, trace.events.rows[0]),))


def test_of_a_long_list_the_lanes_that_differ_are_kept_and_all_are_counted():
    def adamw(grads):
        return Call("aten._fused_adamw_.default", "", [*WORDS, *grads], WORDS, phase=Phase.OPTIMIZER)

    words = [f"g{n}" for n in range(200)]
    details = call_details(*one(adamw(words), adamw([*words[:150], "G", *words[151:]])))
    assert details.num_tensors == 600
    assert len(details.tensors) <= 256
    assert [pair.index for pair in details.tensors if pair.same is False] == [350]
    assert details.differing_lanes == (150,)
    assert "input 350 (lane 150): differs" in repr(details)


WORDS = [f"p{n}" for n in range(200)]


# The calls that tensors come from and go to


def chain(*words):
    """Calls that each take what the one before gave."""
    return [Call(INDEX_ADD, f"l{n}", [given], [made]) for n, (given, made) in enumerate(words)]


def links_at(cmp, position, number=0):
    links = call_details(cmp, number, position).links
    return (
        [(link.index, link.call.scope, link.run) for link in links.makers],
        [(link.index, link.call.scope) for link in links.users],
    )


def told(link):
    """The module of the other call, and the words for the tensor and for how the link is known."""
    return link.call.scope, link_words(link) + way_words(link)


@pytest.mark.parametrize("end", ["", "!"])
def test_the_calls_that_made_and_take_a_tensor_are_found_whether_it_differs_or_not(end):
    calls = [
        chain(("x", "y" + e), ("y" + e, "z" + e), ("z" + e, "t" + e), ("y" + e, "u" + e)) for e in ("", end)
    ]
    cmp = compare(*(make_run({0: each}) for each in calls))
    assert links_at(cmp, 0) == ([], [(0, "l1"), (0, "l3")])
    assert links_at(cmp, 1) == ([(0, "l0", "a")], [(0, "l2")])
    assert links_at(cmp, 2) == ([(0, "l1", "a")], [])


def test_a_tensor_is_followed_by_its_bytes_where_its_digest_is_another():
    places = {"y": ("pool", 0, 64), "row": ("pool", 16, 32)}
    calls = [
        Call(INDEX_ADD, "whole", ["x"], ["y"], places=places),
        Call(MM, "part", ["row"], ["z"], places=places),
    ]
    cmp = compare(run(calls), run(calls))
    (maker,) = call_details(cmp, 0, 1).links.makers
    assert told(maker) == ("whole", "input 0, known by its bytes in memory")
    (user,) = call_details(cmp, 0, 0).links.users
    assert told(user) == ("part", "output 0, known by its bytes in memory")


def test_of_two_tensors_of_zeros_the_one_in_the_same_memory_is_the_maker():
    places = {"zeros": ("mine", 0, 64)}
    other = {"zeros": ("other", 0, 64)}
    calls = [
        Call("aten.zeros.default", "mine", [], ["zeros"], places=places),
        Call("aten.zeros.default", "other", [], ["zeros"], places=other),
        Call(MM, "takes", ["zeros"], ["y"], places=places),
    ]
    cmp = compare(run(calls), run(calls))
    (maker,) = call_details(cmp, 0, 2).links.makers
    assert told(maker) == ("mine", "input 0")
    assert call_details(cmp, 0, 1).links.users == ()


def test_an_equal_digest_in_other_memory_is_said_to_be_all_that_is_known_and_nothing_for_one_number():
    def makers(**more):
        calls = [
            op(["x"], ["y"], places={"y": ("one", 0, 64)} | more),
            mm("y", "z", places={"y": ("two", 0, 64)}),
        ]
        return [told(link)[1] for link in call_details(compare(run(calls), run(calls)), 0, 1).links.makers]

    assert makers() == ["input 1, known by an equal digest"]
    assert makers(y=("", 0, 0)) == ["input 1, known by an equal digest"]  # a trace that records no storages
    assert makers(y=("one", 0, 4)) == []


def test_a_digest_of_zero_alone_leads_nowhere():
    def links(digest):
        nowhere = dict.fromkeys("xyz", ("", 0, 0))
        runs = [run([op(["x"], ["y"], places=nowhere), mm("y", "z", places=nowhere)]) for _ in "ab"]
        cmp = compare(*(with_digest(each, word_digest("y"), digest) for each in runs))
        return len(call_details(cmp, 0, 0).links.users)

    assert (links(7), links(0)) == (1, 0)


def with_digest(each, old, new):
    """Give a run in which one digest of tensors is another."""
    (trace,) = each.ranks
    details = trace.details.rows[0].copy()
    details["digest"][details["digest"] == old] = new
    return replace(each, ranks=(memory_trace(trace.header, trace.names, trace.events.rows[0], details),))


def test_memory_that_was_written_again_is_made_by_the_last_write():
    places = dict.fromkeys(("y", "new", "z"), ("pool", 0, 64))
    calls = [
        Call(INDEX_ADD, "old", ["x"], ["y"], places=places),
        Call(INDEX_ADD, "last", ["x2"], ["new"], places=places),
        Call(MM, "reads", ["z"], ["t"], places=places | {"z": ("pool", 8, 16)}),
    ]
    cmp = compare(run(calls), run(calls))
    assert [link.call.scope for link in call_details(cmp, 0, 2).links.makers] == ["last"]
    assert call_details(cmp, 0, 0).links.users == ()


def test_an_input_that_another_call_made_in_run_b_names_both():
    made = [Call(INDEX_ADD, "one", ["x"], ["y1"]), Call(INDEX_ADD, "two", ["x"], ["y2"])]
    cmp = compare(*(run([*made, Call(MM, "takes", [word], ["z" + word])]) for word in ("y1", "y2")))
    makers = call_details(cmp, 0, 2).links.makers
    assert [(link.call.scope, link_words(link)) for link in makers] == [
        ("one", "input 0"), ("two", "input 0 in run b"),
    ]  # fmt: skip


def test_a_number_that_differs_leads_to_the_host_read_before_it():
    calls = [
        [Call("aten.linalg_vector_norm.default", "", ["g"], [norm]), item(norm, number),
         Call("aten.mul_.Tensor", "", ["g"], [f"c{number}"], scalars=[number])]
        for norm, number in (("n", 2.0), ("N", 2.5))
    ]  # fmt: skip
    (maker, *_) = [
        link for link in call_details(compare(*map(run, calls)), 0, 2).links.makers if link.side == "scalars"
    ]
    assert (maker.call.op, link_words(maker)) == (item("n", 2.0).op, "numbers given")


def test_an_input_that_nothing_made_is_said_and_one_that_something_made_is_not():
    cmp = compare(*[make_run({0: chain(("x", "y"), ("y", "z"))})] * 2)
    unmade = [unmade_words(call_details(cmp, 0, position).links) for position in (0, 1)]
    assert unmade == ["Input 0: made by no recorded call before it, as far as was looked.", ""]


def test_users_are_counted_and_only_the_nearest_named():
    calls = [Call(INDEX_ADD, "made", ["x"], ["y"]), *(mm("y", f"z{n}", f"u{n}") for n in range(30))]
    links = call_details(compare(run(calls), run(calls)), 0, 0).links
    assert links.num_users == 30
    assert [link.call.scope for link in links.users] == [f"u{n}" for n in range(8)]


def test_links_are_the_same_however_a_trace_is_cut_into_batches(tmp_path, monkeypatch):
    calls = chain(("x", "y"), ("y", "z"), ("z", "t"))
    in_memory = compare(*[make_run({0: calls})] * 2)
    monkeypatch.setattr("detlab.store.writer.MAX_BATCH_ROWS", 2)
    saved = [save_run(make_run({0: calls}), tmp_path / name) for name in "ab"]
    for position in range(3):
        assert links_at(compare(*saved), position) == links_at(in_memory, position)


# Where NaN are born


def births(call):
    """What is said of NaN in a call that both runs make."""
    cmp = compare(*[make_run({0: [call, OTHER], 1: [OTHER]}, groups={"dp": [0, 1]})] * 2)
    return [note for note in call_details(cmp, 0, 0).notes if "NaN" in note]


FINITE, NAN = (1.0, 1.0, 0, 0), (1.0, 1.0, 2, 0)


def test_nan_are_born_where_no_input_has_any():
    assert len(births(op(stats={"i": FINITE, "o": NAN}))) == 2  # in either run


@pytest.mark.parametrize(
    "call",
    [
        op(stats={"i": NAN, "o": NAN}),
        op(stats={"i": FINITE, "o": FINITE}),
        op(stats={"o": NAN}),
        op(["i", None], stats={"i": FINITE, "o": NAN}),
        op([], stats={"o": NAN}),
        op(stats={"i": FINITE, "o": NAN}, flags=Flag.OPEN_INPUTS),
        collective(ALL_GATHER, "i", "o", stats={"i": FINITE, "o": NAN}),
    ],
)
def test_nan_that_may_have_come_in_are_not_born(call):
    assert births(call) == []


@pytest.mark.parametrize(
    ("stats", "flags", "words"),
    [
        ((0.0, 0.0, 0, 0), 0, "only the sign of zeros differs"),
        ((0.0, 0.0, 4, 0), 0, "only the payload differs"),
        ((0.0, 0.0, 0, 4), Flag.INF, ""),
        ((1.0, 1.0, 0, 0), 0, ""),
    ],
)
def test_bits_that_no_arithmetic_tells_apart_are_said_and_infinities_are_no_zeros(stats, flags, words):
    calls = [op(outputs=[word], stats={word: stats}, flags=flags) for word in "oO"]
    notes = " ".join(call_details(*one(*calls)).notes)
    assert words in notes
    assert ("only the" in notes) == bool(words)
