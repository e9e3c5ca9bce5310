"""Which use of a kernel stands beside which, and which instruments bear a name out."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare
from detlab.checks import check_kernels
from detlab.checks.kernels.pairing import Entry, Stretch, pair_choices, pair_stretches
from detlab.checks.kernels.words import split_words
from detlab.readers.choices.frame import Process, Use, Uses
from detlab.testing import Call, make_run
from tests.readers.choices.logs import kineto, product

ENTRY = Entry("cublaslt", "cublasLtMatmul", "p")

CHOICES = st.lists(st.sampled_from("ABC"), max_size=12)
USES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("pq"), st.sampled_from("AB")), max_size=20)


def frame_of(uses):
    """A frame of uses: (rank, problem, choice) in their order."""
    collected = Uses()
    for rank, problem, choice in uses:
        collected.add("cublaslt", Process(rank, f"rank {rank}"), Use("mm", problem, choice), "log:1")
    return collected.frame()[0]


def stretches(choices):
    return [Stretch(choice, 1, "", "") for choice in choices]


def expand(pairs, side):
    """The uses of one side, one by one, in the order of the pairs."""
    return [getattr(pair, side) for pair in pairs for _ in range(pair.num) if getattr(pair, side) is not None]


@given(CHOICES, CHOICES)
def test_every_use_stands_in_exactly_one_pair_in_its_order(a, b):
    pairs = pair_stretches(ENTRY, 0, stretches(a), stretches(b))
    assert expand(pairs, "a") == a
    assert expand(pairs, "b") == b


@given(CHOICES)
def test_equal_sequences_differ_nowhere(a):
    assert all(pair.is_same for pair in pair_stretches(ENTRY, 0, stretches(a), stretches(a)))


@given(CHOICES, st.integers(0, 12), st.sampled_from("ABC"))
def test_one_use_more_makes_no_other_one_differ(a, at, extra):
    b = [*a[:at], extra, *a[at:]]
    pairs = pair_stretches(ENTRY, 0, stretches(a), stretches(b))
    assert not any(pair.is_other for pair in pairs)
    assert any(pair.a is None for pair in pairs)


@given(st.lists(st.sampled_from("ABC"), min_size=1, max_size=12), st.data())
def test_one_other_choice_is_the_one_that_is_named(a, data):
    at = data.draw(st.integers(0, len(a) - 1))
    b = [*a[:at], "Z", *a[at + 1 :]]
    pairs = pair_stretches(ENTRY, 0, stretches(a), stretches(b))
    assert [(pair.first, pair.a, pair.b, pair.num) for pair in pairs if not pair.is_same] == [
        (at, a[at], "Z", 1)
    ]


@given(USES, USES)
def test_the_runs_can_change_places(a, b):
    def counted(one, other, sides):
        pairs = pair_choices(frame_of(one), frame_of(other)).pairs
        return sorted(
            str((pair.entry, pair.rank, *(getattr(pair, side) for side in sides), pair.num))
            for pair in pairs
            if pair.is_same
        )

    assert counted(a, b, "ab") == counted(b, a, "ba")


@given(USES, st.sampled_from("AB"))
def test_uses_of_another_problem_shift_nothing(uses, choice):
    more = [each for use in uses for each in (use, (use[0], "other", choice))]
    pairs = pair_choices(frame_of(uses), frame_of(more)).pairs
    assert not any(pair.is_other for pair in pairs)
    assert all(pair.entry.problem == "other" for pair in pairs if not pair.is_same)


def test_very_many_changes_are_paired_by_their_number():
    a, b = stretches("AB" * 400), stretches("AB" * 400 + "C")
    pairs = pair_stretches(ENTRY, 0, a, b)
    assert [(pair.a, pair.b, pair.num) for pair in pairs] == [
        ("A", "A", 400),
        ("B", "B", 400),
        (None, "C", 1),
    ]


# Names alone


TILES = "nvjet_tst_64x8_64x16_1x4_h_bz_TNT", "nvjet_tst_128x8_64x16_1x4_h_bz_splitK_TNT"
SHAPES = [[16, 4096], [4096, 32]]


def profiles(folder, kernel, num_launches=2, num_logged=None):
    """A profile of some products, and beside it a log with some of them."""
    folder.mkdir()
    kineto(folder / "trace.json", *[("aten::mm", SHAPES, kernel)] * num_launches, rank=0)
    if num_logged is not None:
        (folder / "lt_rank0.log").write_text(product(32, 16, 4096) * num_logged)
    return folder


def test_nothing_is_claimed_from_names_that_one_instrument_alone_saw(tmp_path):
    found = check_kernels(*(profiles(tmp_path / run, name) for run, name in zip("ab", TILES, strict=True)))
    assert found.findings.is_empty()
    assert found.verdict == "invalid"
    assert found.not_checked[0].what == "kernel names of kineto"
    assert "2 launches have other names" in found.not_checked[0].why


def test_nothing_is_claimed_from_names_where_instruments_count_otherwise(tmp_path):
    a, b = (profiles(tmp_path / run, name, 2, 3) for run, name in zip("ab", TILES, strict=True))
    found = check_kernels(a, b)
    assert found.findings.is_empty()
    assert "cublaslt 3, kineto 2" in found.not_checked[0].why


def test_one_run_in_which_instruments_disagree_is_enough_to_claim_nothing(tmp_path):
    a, b = profiles(tmp_path / "a", TILES[0], 2, 2), profiles(tmp_path / "b", TILES[1], 2, 3)
    assert "kineto" not in check_kernels(a, b).findings["instrument"].to_list()


def test_names_are_claimed_where_two_instruments_agree_on_the_launches(tmp_path):
    a, b = (profiles(tmp_path / run, name, 2, 2) for run, name in zip("ab", TILES, strict=True))
    found = check_kernels(a, b)
    assert found.findings.select("severity", "component", "instrument", "choice_a", "choice_b").rows() == [
        ("warning", "selection", "kineto", *TILES)
    ]
    assert "gemm: kineto and cublaslt agree on 2 launches in a" in found.notes


def test_a_trace_is_the_second_instrument_and_names_are_joined_to_its_calls(tmp_path):
    def run(label, odd):
        sizes = {"x": (16, 4096), "w": (4096, 32), "y" + odd: (16, 32), "z": (16, 32)}
        calls = [
            Call("aten.mm.default", scope, ["x", "w"], [y], shapes=sizes)
            for scope, y in (("a", "y" + odd), ("b", "z"))
        ]
        return make_run({0: calls}, label=label)

    a, b = (profiles(tmp_path / run, name) for run, name in zip("ab", TILES, strict=True))
    found = check_kernels(a, b, compare(run("a", ""), run("b", "!")))
    assert found.findings.select("severity", "component", "outcome", "num").rows() == [
        ("error", "selection", "bits", 1),
        ("note", "selection", "values", 1),
    ]
    assert "the kernel splits the sum along k" in found.findings["why"][0]


# Words


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ("algoId=1 tile=64x64", "not split"),
        ("algoId=1 numSplitsK=3 reductionScheme=INPLACE", "3 parts, added up in the output buffer"),
        ("algoId=1 numSplitsK=4 reductionScheme=COMPUTE_TYPE", "in the dtype of the computation"),
        ("algoId=1 numSplitsK=4 reductionScheme=OUTPUT_TYPE", "rounded to the output's dtype"),
        ("algoId=1 numSplitsK=4", "in a way that was not printed"),
        ("algoId=1 numSplitsK=4 reductionScheme=9", "by scheme 9"),
        ("nvjet_tst_64x8_splitK_TNT", "splits the sum along k"),
    ],
)
def test_a_split_sum_is_named_in_words(choice, says):
    assert says in split_words(choice)


def test_a_configuration_of_triton_says_nothing_of_a_split():
    assert not split_words("BLOCK=64 num_warps=4")


def test_a_frame_of_choices_has_one_schema_whatever_is_in_it():
    assert frame_of([]).schema == frame_of([(0, "p", "A")]).schema
    assert isinstance(frame_of([]), pl.DataFrame)
