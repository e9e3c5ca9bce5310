"""More than two runs: classes of equal bits, and what goes with them."""

import math
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare_many, samples
from detlab.comparison import arm_gates, arm_pairs
from detlab.errors import NotComparable
from detlab.readers.metrics.frame import recorded_metrics
from detlab.schema import Flag
from detlab.store import Selection, select_steps
from detlab.testing import Call, make_run


def run(label, words="y", **recipe):
    """A run whose step *n* puts out the *n*-th word; its recipe is the same on its one rank."""
    calls = [Call("aten.mm.default", "lin", ["w"], [word], step=step) for step, word in enumerate(words, 1)]
    return stated(make_run({0: calls}, label=label), [recipe])


def stated(run, recipes):
    """The same run with a recipe for each rank."""
    ranks = [
        replace(rank, header=replace(rank.header, recipe=recipe))
        for rank, recipe in zip(run.ranks, recipes, strict=True)
    ]
    return replace(run, ranks=tuple(ranks))


def with_metric(run, *values, name="grad norm"):
    rows = [(step, 0, name, value) for step, value in enumerate(values, 1)]
    return replace(run, metrics=recorded_metrics(rows))


def metric_run(label, *values):
    """A run of which only a console log is known."""
    return replace(with_metric(run(label), *values), ranks=())


def test_bit_exact_in_one_rack_and_in_two_racks_is_environment():
    many = compare_many(
        [
            with_metric(run("A1", "y", host="n1", racks=1), 18.417),
            with_metric(run("A2", "y", host="n2", racks=1), 18.417),
            with_metric(run("B1", "Z", host="n3", racks=2), 18.4170001),
            with_metric(run("B2", "Z", host="n4", racks=2), 18.4170001),
        ]
    )
    assert many.classes == (("A1", "A2"), ("B1", "B2"))
    assert (many.verdict, many.exit_code, many.first_step) == ("diverged", 1, 1)
    assert many.conclusion == "environment"
    racks, host = many.facts.to_dicts()
    assert (racks["fact"], racks["separates"], racks["p"]) == ("racks", True, pytest.approx(1 / 3))
    assert racks["note"] == "association, not proof; chance explains it as well"
    assert (host["fact"], host["separates"], host["p"]) == ("host", False, 1.0)
    counts = many.fact_counts.filter(fact="racks").drop("fact").rows()
    assert counts == [("1", "1", 2), ("2", "2", 2)]
    assert "environment: every class repeats itself" in repr(many)
    assert "association, not proof" in repr(many)
    assert len(repr(many).splitlines()) < 25


def test_arguments_that_separate_the_classes_are_no_environment():
    runs = [
        run(f"{seed}{n}", "yZ"[seed], host="n1", arguments={"seed": seed}) for seed in (0, 1) for n in "ab"
    ]
    assert compare_many(runs).conclusion == "recipe"


def test_runs_that_state_the_same_and_differ_are_run_to_run():
    runs = [run("a", "y", host="n1"), run("b", "y", host="n1"), run("c", "Z", host="n1")]
    many = compare_many(runs)
    assert (many.conclusion, many.facts.is_empty()) == ("run_to_run", True)


def test_without_hosts_nothing_is_called_run_to_run():
    many = compare_many([run("a", "y"), run("b", "y"), run("c", "Z")])
    assert many.conclusion == "unknown"
    assert "do not state on which hosts" in repr(many)


def test_classes_of_one_run_show_no_environment():
    places = {"a": 1, "b": 2, "c": 1}
    many = compare_many([run(each, "yZ"[at - 1], host="n1", racks=at) for each, at in places.items()])
    assert many.conclusion == "unknown"
    assert "a class of one run" in repr(many)


def test_equal_runs_are_one_class():
    many = compare_many([run(label, host=label) for label in "abc"])
    assert (many.verdict, many.exit_code, many.conclusion) == ("match", 0, "equal")
    assert many.classes == (("a", "b", "c"),)


def test_classes_split_step_by_step():
    many = compare_many([run("a", "xyz"), run("b", "xyZ"), run("c", "xYQ")])
    by_step = many.by_step.partition_by("step", as_dict=True)
    assert {step: frame["class"].to_list() for (step,), frame in by_step.items()} == {
        1: [1, 1, 1],
        2: [1, 1, 2],
        3: [1, 2, 3],
    }
    assert (many.first_step, many.by_step["num_classes"].to_list()[::3]) == (2, [1, 2, 3])


def test_a_view_more_splits_no_class():
    plain = [Call("aten.mm.default", "lin", ["w"], ["y"]), Call("aten.mm.default", "lin", ["y"], ["z"])]
    view = Call("aten.detach.default", "lin", ["y"], ["y"], flags=Flag.VIEW)
    runs = [make_run({0: calls}, label=str(len(calls))) for calls in (plain, [plain[0], view, plain[1]])]
    assert compare_many(runs).classes == (("2", "3"),)
    other = make_run({0: [plain[0], view, replace(plain[1], outputs=["Z"])]}, label="Z")
    assert compare_many([*runs, other]).classes == (("2", "3"), ("Z",))


def test_metrics_alone_are_enough():
    many = compare_many([metric_run("a", 1.0, 2.0), metric_run("b", 1.0, 2.0), metric_run("c", 1.0, 3.0)])
    assert many.classes == (("a", "b"), ("c",))
    assert (many.first_step, many.conclusion) == (2, "unknown")
    assert many.by_metric.filter(step=2)["class"].to_list() == [1, 1, 2]


def test_metrics_are_compared_by_their_bits():
    assert len(compare_many([metric_run("a", 0.0), metric_run("b", -0.0)]).classes) == 2
    assert len(compare_many([metric_run("a", math.nan), metric_run("b", math.nan)]).classes) == 1


def test_a_run_that_lacks_a_step_has_no_class_there():
    many = compare_many([run("a", "xy"), run("b", "xy"), run("c", "x")])
    assert many.by_step.filter(step=2)["class"].to_list() == [1, 1, None]
    assert (many.verdict, many.exit_code) == ("incomplete", 2)
    assert many.pair_verdict("a", "b") == ("match", None)
    assert many.pair_verdict("a", "c") == ("incomplete", None)


def test_the_last_step_of_a_cut_file_has_no_class():
    cut = run("c", "xy")
    cut = replace(cut, ranks=tuple(replace(rank, complete=False) for rank in cut.ranks))
    many = compare_many([run("a", "xy"), run("b", "xy"), cut])
    assert many.by_step.filter(step=2)["class"].to_list() == [1, 1, None]
    assert [where for where, _ in many.problems] == ["c"]


def test_other_evidence_is_no_class():
    calls = [Call("aten.mm.default", "lin", [word], ["y"], step=at) for at, word in ((1, None), (2, "w"))]
    blind = make_run({0: calls}, label="blind")
    many = compare_many([run("a", "yy"), run("b", "yy"), blind])
    assert many.by_step["class"].to_list() == [1, 1, None, 1, 1, 1]
    assert many.problems == (("blind", "step 1 has other evidence, or none"),)
    with pytest.raises(NotComparable, match="nothing of blind can be compared"):
        compare_many([run("a"), run("b"), make_run({0: calls[:1]}, label="blind")])


def test_ranks_that_not_every_run_has_are_left_out_and_said():
    two = {rank: [Call("aten.mm.default", "lin", ["w"], [word])] for rank, word in enumerate("yq")}
    runs = [make_run(two, label="a"), make_run({0: two[0]}, label="b", layout={"dp": 2}, world_size=2)]
    many = compare_many(runs)
    assert (many.classes, many.verdict) == ((("a", "b"),), "incomplete")
    assert many.problems == (("a", "1 of its ranks are not in every run, and were left out"),)


def test_runs_that_cannot_be_compared_are_refused():
    wide = make_run({0: []}, label="wide", layout={"tp": 2}, world_size=2)
    with pytest.raises(NotComparable, match=r"different parallel layouts .*wide"):
        compare_many([run("a"), run("b"), wide])
    other = run("other")
    rank = other.ranks[0]
    other = replace(other, ranks=(replace(rank, header=replace(rank.header, algorithm="crc32")),))
    with pytest.raises(NotComparable, match=r"different digests .*crc32: other"):
        compare_many([run("a"), run("b"), other])
    with pytest.raises(NotComparable, match="nothing to compare"):
        compare_many([run("a")])
    with pytest.raises(NotComparable, match="no step and no metric"):
        compare_many([run("a", "x"), metric_run("b", 1.0)])


def test_equal_labels_get_numbers():
    assert compare_many([run("a"), run("a"), run("b")]).labels == ("a #1", "a #2", "b")


@given(st.permutations(range(5)), st.text("pqr", min_size=5, max_size=5))
def test_order_and_labels_of_runs_change_nothing_but_labels(order, words):
    runs = [run(str(at), word, racks=at % 2) for at, word in enumerate(words)]
    one, other = compare_many(runs), compare_many([runs[at] for at in order])
    assert set(map(frozenset, one.classes)) == set(map(frozenset, other.classes))
    assert (one.verdict, one.conclusion, one.first_step) == (
        other.verdict,
        other.conclusion,
        other.first_step,
    )
    assert one.facts.drop("num_values").equals(other.facts.drop("num_values"))
    renamed = compare_many([replace(each, label=f"run {each.label}") for each in runs])
    assert renamed.numbers == one.numbers


def test_real_runs_fall_into_the_classes_that_their_recipes_say():
    many = compare_many([samples.sample_path(name) / label for name in ("clean", "race") for label in "ab"])
    assert [len(members) for members in many.classes] == [2, 1, 1]
    assert (many.first_step, many.conclusion) == (1, "unknown")


ARMS = {"broken": ["b1", "b2"], "fixed": ["f1", "f2"]}


FINDING = ("kernel", "aten.mm.default", ["lin"], "forward", [0])


def seen(*runs):
    """What each finding is, in how many pairs it was seen, and what is said of that."""
    rows = compare_many(list(runs)).findings.rows(named=True)
    told = (
        "class",
        "op",
        "scopes",
        "phase",
        "ranks",
        "first_step",
        "num_pairs",
        "of_pairs",
        "runs_in_all",
        "note",
    )
    assert all(tuple(row) == told for row in rows)
    return [(tuple(row[name] for name in told[:5]), *(row[name] for name in told[5:])) for row in rows]


def mixed(label, *words):
    """A run of three calls on one step, in two layers and a head."""
    scopes = ("layers.0.mlp", "layers.1.mlp", "head")
    ops = ("aten.mm.default", "aten.mm.default", "aten.bmm.default")
    calls = [
        Call(op, scope, [f"x {scope}"], [word]) for op, scope, word in zip(ops, scopes, words, strict=True)
    ]
    return make_run({0: calls}, label=label)


def test_a_finding_is_seen_in_every_pair_with_the_odd_run_and_says_so():
    odd = seen(run("A", "yy"), run("B", "yy"), run("C", "yZ"), run("D", "yy"))
    assert odd == [(FINDING, 2, 3, 6, ["C"], "always with C")]


def test_runs_that_all_differ_show_a_finding_in_every_pair_and_no_run_stands_out():
    assert seen(run("A", "y"), run("B", "z"), run("C", "w")) == [(FINDING, 1, 3, 3, [], "")]


def test_one_pair_of_runs_is_an_anecdote():
    assert seen(run("A", "y"), run("B", "z")) == [(FINDING, 1, 1, 1, ["A", "B"], "one pair is an anecdote")]


def test_a_finding_in_another_layer_of_another_pair_is_the_same_and_another_op_is_not():
    runs = mixed("A", "a", "b", "c"), mixed("B", "A", "b", "c"), mixed("C", "a", "B", "C")
    mlp, head = seen(*runs)
    assert mlp == (
        ("kernel", "aten.mm.default", ["layers.0.mlp", "layers.1.mlp"], "forward", [0]), 1, 3, 3, [], ""
    )  # fmt: skip
    assert head == (("kernel", "aten.bmm.default", ["head"], "forward", [0]), 1, 2, 3, ["C"], "always with C")


def test_equal_runs_have_no_finding():
    many = compare_many([run("A"), run("B"), run("C")])
    assert many.findings.is_empty()
    assert many.pair_findings == {(0, 1): (), (0, 2): (), (1, 2): ()}


def test_runs_without_a_trace_or_a_common_step_are_in_no_pair_of_traces():
    later = run("C", "yyZ")
    only_last = replace(
        later, ranks=tuple(select_steps(each, Selection.parse(3, "steps")) for each in later.ranks)
    )
    many = compare_many([with_metric(run("A", "yy"), 1.0), with_metric(run("B", "yZ"), 1.0),
                         with_metric(only_last, 1.0), metric_run("D", 1.0)])  # fmt: skip
    assert set(many.pair_findings) == {(0, 1)}
    assert many.findings["of_pairs"].to_list() == [1]


def test_the_text_says_in_how_many_pairs_a_finding_was_seen():
    text = " ".join(repr(compare_many([run("A", "yy"), run("B", "yy"), run("C", "yZ")])).split())
    assert "kernel: aten.mm.default in lin, forward, from step 2: in 2 of 3 pairs (always with C)" in text


def test_pairs_within_and_between_arms_are_listed_apart():
    runs = [run("b1", "xy"), run("b2", "xY"), run("f1", "xz"), run("f2", "xz")]
    pairs = arm_pairs(runs, ARMS)
    assert pairs.select("arm_a", "arm_b", "verdict", "first_step", "num_agree", "num_pairs").rows() == [
        ("broken", "broken", "diverged", 2, 0, 1),
        ("fixed", "fixed", "match", None, 1, 1),
        *[("broken", "fixed", "diverged", 2, 0, 4)] * 4,
    ]
    assert pairs["note"].to_list() == ["one pair is an anecdote"] * 2 + [""] * 4


def test_four_runs_of_one_arm_are_six_pairs():
    pairs = arm_pairs([run(label) for label in "abcd"], {"fixed": list("abcd")})
    assert (len(pairs), pairs["num_agree"][0], pairs["num_pairs"][0]) == (6, 6, 6)


def test_a_change_can_repeat_itself_and_still_not_be_the_baseline():
    runs = [run("b1", "x"), run("b2", "x"), run("f1", "Q"), run("f2", "Q")]
    gates = arm_gates(runs, ARMS, baseline="broken")
    assert gates.select("arm", "gate", "verdict").rows() == [
        ("broken", "repeatability", "pass"),
        ("broken", "restart_replay", "untested"),
        ("fixed", "repeatability", "pass"),
        ("fixed", "baseline_equivalence", "fail"),
        ("fixed", "restart_replay", "untested"),
    ]


def test_an_arm_of_one_run_is_untested_and_another_environment_is_said():
    runs = [run("a", "x", host="n1"), run("b", "x", host="n2"), run("c", "x", host="n1")]
    gates = arm_gates(runs, {"one": ["c"], "two": ["a", "b"]}, baseline="one")
    found = {(row["arm"], row["gate"]): row for row in gates.to_dicts()}
    assert found["one", "repeatability"]["verdict"] == "untested"
    assert found["two", "repeatability"]["why"].endswith("their environments differ")
    assert found["two", "baseline_equivalence"]["verdict"] == "pass"


@pytest.mark.parametrize("arms", [{"a": ["x"]}, {"a": ["b1"], "b": ["b1"]}])
def test_an_arm_names_each_run_once(arms):
    with pytest.raises(NotComparable, match="Arms name"):
        arm_pairs([run("b1"), run("b2")], arms)


def test_a_baseline_is_an_arm():
    with pytest.raises(NotComparable, match="old is no arm"):
        arm_gates([run(label) for label in chain(*ARMS.values())], ARMS, baseline="old")
