"""What autotuners print: Triton over four lines or one, Inductor as a table."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.readers.choices import read_choices
from tests.readers.choices.logs import config, table, tuned, tuned_before

KEY = "(1024, 768, 'torch.float32', 'torch.float32')"


def read(tmp_path, text, name="console.log"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_choices(path)


def rows(found, *columns):
    return found.frame.select(columns).rows()


def test_a_print_over_four_lines_is_one_choice(tmp_path):
    found = read(tmp_path, "iteration 1\n" + tuned("l2norm_fwd_kernel", KEY, config(64, 4)) + "iteration 2\n")
    assert rows(found, "source", "kernel", "problem", "choice", "where") == [
        (
            "triton print",
            "l2norm_fwd_kernel",
            "1024, 768, torch.float32, torch.float32",
            "BLOCK=64 num_warps=4 num_stages=3",
            "console.log:5",
        )
    ]
    assert not found.problems


@pytest.mark.parametrize(
    "text",
    [
        "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None",
        "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 2",
        "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, "
        "num_consumer_groups: 0, reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None",
        "num_stages: 2, BLOCK: 128, num_warps: 4",
    ],
)
def test_what_versions_print_of_one_configuration_is_one_choice(tmp_path, text):
    found = read(tmp_path, tuned_before("add_kernel", text))
    assert rows(found, "kernel", "problem", "choice") == [
        ("add_kernel", "", "BLOCK=128 num_warps=4 num_stages=2")
    ]


def test_candidates_that_are_tried_are_no_choices(tmp_path):
    tried = f"Autotuning kernel add with config {config(64, 4)}\n"
    found = read(tmp_path, tried + tuned("add", KEY, config(128, 8)))
    assert found.frame["choice"].to_list() == ["BLOCK=128 num_warps=8 num_stages=3"]


def test_a_time_after_the_configuration_is_no_part_of_it(tmp_path):
    line = tuned_before("bmm", "BLOCK: 64, num_warps: 4 with benchmark time [0.1, 0.2]")
    assert read(tmp_path, line).frame["choice"].to_list() == ["BLOCK=64 num_warps=4"]


@given(st.permutations([0] * 4 + [1] * 4 + [2] * 4))
def test_tagged_prints_are_told_apart_however_ranks_mix_them(tmp_path_factory, order):
    prints = [tuned("norm", KEY, config(32 << n, 4), f"[rank{n}]:").splitlines(True) for n in range(3)]
    mixed = "".join(prints[n].pop(0) for n in order)
    found = read(tmp_path_factory.mktemp("log"), mixed)
    assert rows(found, "rank", "choice") == [
        (n, f"BLOCK={32 << n} num_warps=4 num_stages=3") for n in range(3)
    ]
    assert not found.problems


@given(st.permutations([0] * 4 + [1] * 4))
def test_prints_without_a_tag_that_mix_are_believed_only_one_after_the_other(tmp_path_factory, order):
    prints = [tuned(name, f"({n},)", config(32 << n, 4)).splitlines(True) for n, name in enumerate("ab")]
    mixed = "".join(prints[n].pop(0) for n in order)
    found = read(tmp_path_factory.mktemp("log"), mixed)
    whole = {("a", "0", "BLOCK=32 num_warps=4 num_stages=3"), ("b", "1", "BLOCK=64 num_warps=4 num_stages=3")}
    assert set(rows(found, "kernel", "problem", "choice")) <= whole
    assert (len(found.frame) == 2) == (order in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4))
    assert bool(found.problems) == (len(found.frame) < 2)


def test_a_print_that_the_end_of_the_file_cuts_is_a_problem(tmp_path):
    found = read(tmp_path, "".join(tuned("a", KEY, config(64, 4)).splitlines(True)[:3]))
    assert found.frame.is_empty()
    assert found.problems == (("console.log:1", "a print of Triton's autotuner that is cut"),)


def test_the_end_of_a_print_whose_beginning_is_missing_is_a_problem(tmp_path):
    found = read(tmp_path, "best config selected: BLOCK: 64, num_warps: 4;\n")
    assert found.frame.is_empty()
    assert found.problems == (("console.log:1", "a print of Triton's autotuner that is cut"),)


def test_the_first_row_of_a_table_is_what_inductor_took(tmp_path):
    given = "ACC_TYPE='tl.float32', BLOCK_K=128, BLOCK_M=64, num_stages=5, num_warps=4"
    row = f"triton_mm_27 0.0223 ms 100.0% {given}"
    found = read(tmp_path, table("mm", "128x4096, 4096x4096", row, "mm 0.0234 ms 95.4% "))
    assert rows(found, "source", "kernel", "problem", "choice") == [
        (
            "inductor print",
            "mm",
            "128x4096, 4096x4096; strides [4096, 1], [1, 4096]; dtypes float16, float16",
            "triton_mm ACC_TYPE=tl.float32 BLOCK_K=128 BLOCK_M=64 num_warps=4 num_stages=5",
        )
    ]
    assert not found.problems


def test_the_number_of_a_candidate_with_a_configuration_is_no_part_of_the_choice(tmp_path):
    texts = [
        table("mm", "8x8, 8x8", f"triton_mm_{n} 0.02 ms 100.0% BLOCK_M=64, num_warps=4") for n in (3, 44)
    ]
    assert len(read(tmp_path, "".join(texts)).frame) == 1


def test_a_second_row_as_fast_as_the_first_is_not_taken(tmp_path):
    found = read(tmp_path, table("mm", "8x8, 8x8", "mm 0.0100 ms 100.0% ", "bias_mm 0.0100 ms 100.0% "))
    assert found.frame["choice"].to_list() == ["mm"]
    assert not found.problems


def test_a_table_as_torch_prints_it_on_a_cpu_is_read(tmp_path):
    """Written by torch 2.13 with max_autotune and freezing for one linear layer."""
    text = (
        'Autotune Choices Stats:\n{"num_choices": 2, "num_triton_choices": 0, "best_kernel": '
        '"cpp_CppMicroGemmFP32Vec_0", "best_time": 8.007772004930303}\n'
        "AUTOTUNE packed_linear(64x256, 1459233x1, 512x256)\nstrides: [256, 1], [1, 0], [256, 1]\n"
        "dtypes: torch.float32, torch.float32, torch.float32\n"
        "  cpp_CppMicroGemmFP32Vec_0 8.0078 ms 100.0% \n  _mkl_linear 15.9934 ms 50.1% \n"
        "SingleProcess AUTOTUNE benchmarking takes 2.1425 seconds and 0.0001 seconds precompiling for 2 "
        "choices\n"
    )
    found = read(tmp_path, text)
    assert rows(found, "kernel", "choice") == [("packed_linear", "cpp_CppMicroGemmFP32Vec_0")]
    assert not found.problems


def test_two_tables_that_mix_are_not_believed(tmp_path):
    one, other = (table(op, "8x8, 8x8", f"{op} 0.01 ms 100.0% ").splitlines(True) for op in ("mm", "bmm"))
    found = read(tmp_path, "".join(line for pair in zip(one, other, strict=True) for line in pair))
    assert found.frame.is_empty()
    assert found.problems


def test_a_table_without_a_row_is_a_problem(tmp_path):
    found = read(tmp_path, table("mm", "8x8, 8x8"))
    assert found.problems == (("console.log:1", "a print of Inductor's autotuner that is cut"),)


def test_prose_about_autotuning_is_no_choice(tmp_path):
    text = "AUTOTUNE is on\nit takes 3 ms 100% of the time\nstrides: long\nwe read with key as well\n"
    found = read(tmp_path, text)
    assert found.frame.is_empty()
    assert not found.problems


_KERNEL = """
import torch, triton, triton.language as tl
def bench(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]
configs = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 32})]
@triton.autotune(configs, ["n"], do_bench=bench)
@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
for n in (100, 200, 100):
    add_one[lambda given: (triton.cdiv(n, given["BLOCK"]),)](torch.zeros(n), n)
"""


def test_what_the_installed_triton_prints_is_read(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(_KERNEL)
    asked = {"TRITON_INTERPRET": "1", "TRITON_PRINT_AUTOTUNING": "1"}
    done = subprocess.run(
        [sys.executable, script], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    found = read(tmp_path, done.stdout)
    assert rows(found, "kernel", "problem", "choice") == [
        ("add_one", f"{n}, torch.float32", "BLOCK=64 num_warps=2 num_stages=3") for n in (100, 200)
    ]
    assert not found.problems
