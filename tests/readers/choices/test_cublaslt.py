"""Logs of cuBLASLt: every product that was run, and nothing that was not."""

import random
from itertools import groupby

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.readers.choices import CHOICE_SCHEMA, read_choices
from tests.readers.choices.logs import HOPPER, SPLIT, WHOLE, heuristic, product


def read(tmp_path, text, name="lt.log"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_choices(path)


def rows(choices, *columns):
    return choices.frame.select(columns).rows()


def test_a_product_has_its_problem_and_its_algorithm(tmp_path):
    found = read(tmp_path, product(64, 32, 8192, SPLIT, layout="TN"))
    assert found.frame.schema == pl.Schema(CHOICE_SCHEMA)
    assert rows(found, "kernel", "problem", "choice", "order", "num", "where") == [
        (
            "cublasLtMatmul",
            "m=64 n=32 k=8192 TN; A=R_16BF 8192x64 ld=8192; B=R_16BF 8192x32 ld=8192; C=R_16BF 64x32 ld=64; "
            "D=R_16BF 64x32 ld=64; computeType=COMPUTE_32F scaleType=R_32F; beta=0",
            "algoId=21 tile=64x64 stages=32x3 numSplitsK=3 reductionScheme=INPLACE",
            0,
            1,
            "lt.log:1",
        )
    ]
    assert not found.problems


def test_questions_to_the_heuristic_are_counted_apart_and_are_no_uses(tmp_path):
    found = read(tmp_path, heuristic(8, 8, 8) * 3 + product(8, 8, 8))
    assert found.frame["num"].sum() == 1
    assert found.notes == ("3 questions to the heuristic of cuBLASLt, which run nothing",)


def test_the_announcement_of_a_product_is_not_counted_beside_its_trace(tmp_path):
    line = product(8, 8, 8)
    assert read(tmp_path, line.replace("[Trace]", "[Api]") + line).frame["num"].sum() == 1


def test_addresses_streams_and_times_do_not_tell_products_apart(tmp_path):
    text = product(8, 8, 8) + product(8, 8, 8, address="7FFF", time="2026-05-04 15:09:59")
    assert rows(read(tmp_path, text), "order", "num") == [(0, 2)]


def test_uses_are_numbered_for_each_problem_by_itself(tmp_path):
    text = product(8, 8, 8) + product(9, 9, 9) + product(8, 8, 8, SPLIT) + product(8, 8, 8)
    found = read(tmp_path, text).frame.filter(pl.col("problem").str.starts_with("m=8 "))
    assert found.select("order", "num").rows() == [(0, 1), (1, 1), (2, 1)]
    assert found["choice"].str.contains("numSplitsK").to_list() == [False, True, False]


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace("[2026-05-04 15:08:47]", ""),  # before version 11.4
        lambda line: line.replace("] B=", "]  B="),
        lambda line: line.replace(f"algo=[{WHOLE}]", "algo=[" + " ".join(reversed(WHOLE.split())) + "]"),
        lambda line: line.replace(
            f"[{WHOLE}]", f"[{WHOLE} numSplitsK=1 reductionScheme=NONE ctaSwizzling=0]"
        ),
        lambda line: line.replace("MATMUL_TILE_", "").replace("MATMUL_STAGES_", ""),
        lambda line: line.replace("cublasLtTSTMatmul", "cublasLtMatmul"),
        lambda line: "\x1b[32m" + line.rstrip("\n") + "\x1b[0m\n",
        lambda line: line.replace("\n", "\r\n"),
        lambda line: "[rank0]:" + line,
    ],
)
def test_order_spacing_and_version_do_not_change_a_choice(tmp_path, change):
    plain = read(tmp_path, product(8, 8, 8))
    other = read(tmp_path, change(product(8, 8, 8)), "other.log")
    assert rows(other, "problem", "choice") == rows(plain, "problem", "choice")
    assert not other.problems


@pytest.mark.parametrize("change", [{"layout": "TN"}, {"dtype": "R_32F"}, {"beta": "1"}, {"n": 16}])
def test_another_layout_dtype_or_beta_is_another_problem(tmp_path, change):
    wanted = {"m": 8, "n": 8, "k": 8} | change
    found = read(tmp_path, product(8, 8, 8) + product(**wanted))
    assert found.frame["problem"].n_unique() == 2


def test_an_unknown_field_is_kept_with_the_choice_that_has_it(tmp_path):
    found = read(tmp_path, product(8, 8, 8, HOPPER) + product(8, 8, 8, HOPPER + " futureOption=7"))
    assert found.frame["choice"].to_list() == [
        "algoId=66 tile=128x128 stages=128xAUTO clusterShape=1x1x1 customOption=3",
        "algoId=66 tile=128x128 stages=128xAUTO clusterShape=1x1x1 customOption=3 futureOption=7",
    ]


def test_text_of_another_process_in_front_of_a_product_is_passed_over(tmp_path):
    found = read(tmp_path, " iteration 5/ 100 | lm loss: 1.2E+00 |" + product(8, 8, 8))
    assert found.frame["num"].sum() == 1
    assert not found.problems


def test_two_whole_products_on_one_line_are_two(tmp_path):
    found = read(tmp_path, product(8, 8, 8, pid=1).rstrip("\n") + product(8, 8, 8, pid=2))
    assert sorted(rows(found, "process", "num")) == [("pid 1 in lt.log", 1), ("pid 2 in lt.log", 1)]


@given(st.integers(1, len(product(8, 8, 8, pid=1)) - 2))
def test_a_product_that_another_one_was_written_into_is_never_guessed(tmp_path_factory, at):
    first, second = product(8, 8, 8, SPLIT, pid=1), product(9, 9, 9, WHOLE, pid=2)
    mixed = first[:at] + second.rstrip("\n") + first[at:]
    found = read(tmp_path_factory.mktemp("mixed"), mixed)
    whole = {("pid 1 in lt.log", "m=8"), ("pid 2 in lt.log", "m=9")}
    assert {(who, problem[:3]) for who, problem in rows(found, "process", "problem")} <= whole
    assert found.problems or len(found.frame) == 2


@given(st.integers(60, len(product(8, 8, 8)) - 2))
def test_a_line_that_is_cut_is_a_problem_and_no_product(tmp_path_factory, at):
    found = read(tmp_path_factory.mktemp("cut"), product(9, 9, 9) + product(8, 8, 8)[:at])
    assert found.frame["problem"].str.slice(0, 3).to_list() == ["m=9"]
    assert [where for where, _ in found.problems] == ["lt.log:2"]


def test_a_file_for_each_process_tells_ranks_by_its_name(tmp_path):
    for rank in (0, 1, 10):
        read(tmp_path, product(8, 8, 8, pid=100 + rank), f"rank{rank}/lt.log")
    assert read_choices(tmp_path).frame["rank"].to_list() == [0, 1, 10]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("lt_rank3.log", 3), ("rank-3/lt_55.log", 3), ("attempt_0/3/stdout.log", 3), ("RANK_3.txt", 3),
        ("lt_55.log", None), ("frank3.log", None), ("3/lt.log", None),
    ],
)  # fmt: skip
def test_only_names_that_say_rank_tell_one(tmp_path, name, rank):
    read(tmp_path, product(8, 8, 8), name)
    assert read_choices(tmp_path).frame["rank"].to_list() == [rank]


def test_a_rank_that_two_processes_claim_is_given_to_neither(tmp_path):
    found = read(tmp_path, product(8, 8, 8, pid=1) + product(8, 8, 8, pid=2), "rank0.log")
    assert found.frame["rank"].to_list() == [None, None]
    assert found.not_told == (
        (
            "rank 0 in cublaslt",
            "2 processes claim to be it (pid 1 in rank0.log, pid 2 in rank0.log): a restart, several nodes "
            "or a child",
        ),
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(7, 9), st.sampled_from((SPLIT, WHOLE))), max_size=30),
    st.randoms(),
)
def test_shuffling_processes_against_each_other_changes_no_choice(
    tmp_path_factory, calls, rng: random.Random
):
    ordered = sorted(calls, key=lambda call: call[0])
    queues = [list(group) for _, group in groupby(ordered, key=lambda call: call[0])]
    shuffled = []
    while any(queues):
        shuffled.append(rng.choice([queue for queue in queues if queue]).pop(0))
    texts = [
        "".join(product(m, 8, 8, algo, pid=who) for who, m, algo in each) for each in (ordered, shuffled)
    ]
    found = [read(tmp_path_factory.mktemp("log"), text).frame.drop("where") for text in texts]
    assert found[0].equals(found[1])
    assert found[0]["num"].sum() == len(calls)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\n\n", b"[cublasLt]", b"[cublasLt][x][Trace][cublasLtMatmul] algo=[]\n",
        b"\xff\xfe[cublasLt]\n",
        b"[cublasLt][1][Trace][cublasLtMatmul]" + b"A=[" * 5_000 + b"\n",
        b"[cublasLt][" + b"9" * 5_000 + b"][Trace][cublasLtMatmul] Adesc=[] algo=[algoId=1]\n",
    ],
)  # fmt: skip
def test_hostile_lines_are_no_products(tmp_path, text):
    assert read(tmp_path, text).frame.is_empty()


def test_a_long_value_is_kept_by_its_digest_so_that_equal_ones_stay_equal(tmp_path):
    long = WHOLE + " x=" + "y" * 100_000
    found = read(tmp_path, product(8, 8, 8, long) + product(8, 8, 8, long) + product(8, 8, 8, long + "z"))
    assert found.frame["num"].to_list() == [2, 1]
    assert found.frame["choice"].str.len_chars().max() < 2_000


def test_a_log_that_is_packed_is_read_as_it_is(tmp_path):
    import gzip

    found = read(tmp_path, gzip.compress(product(8, 8, 8).encode()), "lt.log.gz")
    assert found.frame["num"].to_list() == [1]
