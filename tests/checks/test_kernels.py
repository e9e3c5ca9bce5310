"""Did both runs choose the same kernels: selection, execution, or neither can be said."""

import os
import subprocess
import sys

import pytest

from detlab import compare
from detlab.checks import check_kernels
from detlab.schema import Coordinate
from detlab.testing import Call, make_run, save_run
from tests.readers.choices.logs import SPLIT, WHOLE, config, product, triton_cache, tuned, tuned_before

SMALL, LARGE = {"config": "{BLOCK:64,warps:4}"}, {"config": "{BLOCK:128,warps:8}"}


def told(result, *columns):
    """The findings, as (severity, component, …)."""
    return result.findings.select("severity", "component", *columns).rows()


def logs(folder, *lines, ranks=(0,)):
    """The same log for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        (folder / f"lt_rank{rank}.log").write_text("".join(lines))
    return folder


# O15: an autotuner chose differently on two ranks


def tuned_run(label, other=(), differs=()):
    """Eight ranks that normalise with an autotuned kernel: another configuration, other bits on some."""

    def calls(rank):
        result = "y!" if rank in differs else "y"
        chosen = LARGE if rank in other else SMALL
        return [
            Call("aten.mul.Tensor", "norm", ["x", "s"], ["n"]),
            Call("l2norm_fwd_kernel", "norm", ["n"], [result], attributes=chosen),
            Call("aten.mm.default", "fc", [result, "w"], ["z" + result]),
        ]

    return make_run({rank: calls(rank) for rank in range(8)}, label=label)


def test_other_bits_are_explained_by_another_configuration_and_equal_values_are_information():
    a, b = tuned_run("a"), tuned_run("b", other=(2, 5), differs=(2,))
    found = check_kernels(a, b, compare(a, b))
    assert found.verdict == "fail"
    assert told(found, "kernel", "ranks", "outcome") == [
        ("error", "selection", "l2norm_fwd_kernel", [2], "bits"),
        ("warning", "ranks of b", "l2norm_fwd_kernel", [], ""),
        ("note", "selection", "l2norm_fwd_kernel", [5], "values"),
    ]
    error, _, note = found.findings.to_dicts()
    assert "explained by a different kernel configuration" in error["why"].lower()
    assert (error["choice_a"], error["choice_b"]) == (
        "config={BLOCK:64,warps:4}",
        "config={BLOCK:128,warps:8}",
    )
    assert "TRITON_CACHE_AUTOTUNING=1" in error["next"]
    assert "TRITON_CACHE_DIR" in error["next"]
    assert "information, no divergence" in note["found"]
    assert not note["next"]


def test_without_a_comparison_another_configuration_is_a_warning():
    found = check_kernels(tuned_run("a"), tuned_run("b", other=(2, 5), differs=(2,)))
    assert found.verdict == "pass"
    assert told(found, "ranks") == [("warning", "selection", [2, 5]), ("warning", "ranks of b", [])]
    assert "may explain a difference" in found.findings["found"][0]
    assert "what came of the choices" in {each.what for each in found.not_checked}


def test_the_same_configuration_and_other_bits_are_execution():
    a, b = tuned_run("a"), tuned_run("b", differs=(2,))
    found = check_kernels(a, b, compare(a, b))
    assert told(found, "kernel", "ranks") == [("warning", "execution", "l2norm_fwd_kernel", [2])]
    assert "inside the kernel" in found.findings["why"][0]


def test_a_call_whose_inputs_differ_is_untested_by_its_configuration():
    def run(label, word, chosen):
        first = Call("norm", "a", ["x"], [word])
        return make_run({0: [first, Call("norm", "b", [word], [word + "y"], attributes=chosen)]}, label=label)

    a, b = run("a", "h", SMALL), run("b", "H", LARGE)
    assert told(check_kernels(a, b, compare(a, b)), "outcome") == [("warning", "selection", "untested")]


def test_equal_configurations_are_verified_with_their_extent():
    a, b = tuned_run("a"), tuned_run("b")
    found = check_kernels(a, b, compare(a, b))
    assert found.verdict == "pass"
    assert found.findings.is_empty()
    says = [(each.what, each.says) for each in found.verified]
    assert says[0] == ("trace", "the same choice for 1 entry of kernel and problem, 8 uses on 8 ranks")
    assert {what for what, _ in says[1:]} == {"ranks of a in trace", "ranks of b in trace"}


def test_reduce_ops_and_layouts_are_no_choices():
    a = make_run({0: [Call("gemm", "a", ["x"], ["y"], attributes={"layout": "NT", "reduce_op": "sum"})]})
    assert check_kernels(a, a).verdict == "invalid"


def autotuned(folder, disagreeing, other=()):
    """Prints of 8 ranks for 22 entries, some of which ranks disagree about; others chosen elsewhere anew."""
    for rank in range(8):
        text = ""
        for entry in range(22):
            name = "l2norm_fwd_kernel" if entry == 21 else f"kernel_{entry}"
            block = 64 << (rank % 2 if entry < disagreeing else 0)
            text += tuned(name, f"({entry}, 'torch.float32')", config(32 if name in other else block, 4))
        (folder / f"rank{rank}.log").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{rank}.log").write_text(text)
    return folder


def test_ranks_that_disagree_within_a_run_are_counted_over_its_entries(tmp_path):
    a = autotuned(tmp_path / "a", 13)
    b = autotuned(tmp_path / "b", 13, other=("l2norm_fwd_kernel",))
    found = check_kernels(a, b)
    assert told(found, "kernel", "ranks") == [
        ("warning", "selection", "l2norm_fwd_kernel", list(range(8))),
        ("warning", "ranks of a", "kernel_0", []),
        ("warning", "ranks of b", "kernel_0", []),
    ]
    assert (
        found.findings["found"].to_list()[1:]
        == ["ranks chose differently for 13 of 22 entries of kernel and problem"] * 2
    )
    assert "other choice on ranks 0-7" in found.findings["found"][0]
    assert [(each.what, each.says) for each in found.verified] == [
        ("triton print", "the same choice for 21 entries of kernel and problem, 168 uses on 8 ranks")
    ]


def test_prints_of_an_autotuner_explain_other_bits_as_the_calls_own_record_does(tmp_path):
    def plain(label, differs=()):
        def calls(rank):
            result = "y!" if rank in differs else "y"
            return [Call("l2norm_fwd_kernel", "norm", ["n"], [result], shape=(1024, 768))]

        return make_run({rank: calls(rank) for rank in range(8)}, label=label)

    for run, other in (("a", ()), ("b", (2, 5))):
        (tmp_path / run).mkdir()
        for rank in range(8):
            text = tuned(
                "l2norm_fwd_kernel", "(768, 'torch.float32')", config(128 if rank in other else 64, 4)
            )
            (tmp_path / run / f"rank{rank}.log").write_text(text)
    found = check_kernels(tmp_path / "a", tmp_path / "b", compare(plain("a"), plain("b", (2,))))
    assert told(found, "instrument", "ranks", "outcome") == [
        ("error", "selection", "triton print", [2], "bits"),
        ("warning", "ranks of b", "triton print", [], ""),
        ("note", "selection", "triton print", [5], "values"),
    ]
    assert found.findings["confidence"][0] == "medium: told once for all uses"


def test_ranks_that_have_other_numbers_in_the_other_run_are_paired_by_their_place(tmp_path):
    places = {0: Coordinate(dp=0), 1: Coordinate(dp=1)}
    turned = {0: places[1], 1: places[0]}
    runs = [
        make_run({rank: [Call("aten.mm.default", "fc", ["x", "w"], ["y"], shape=(8, 8))] for rank in (0, 1)},
                 label=label, coordinates=where)
        for label, where in (("a", places), ("b", turned))
    ]  # fmt: skip
    for run, order in (("a", (SPLIT, WHOLE)), ("b", (WHOLE, SPLIT))):
        (tmp_path / run).mkdir()
        for rank, algo in enumerate(order):
            (tmp_path / run / f"rank{rank}.log").write_text(product(8, 8, 8, algo, dtype="R_32F"))
    paired = check_kernels(tmp_path / "a", tmp_path / "b", compare(*runs))
    assert "selection" not in paired.findings["component"].to_list()
    assert paired.verified[0].says == "the same choice for 1 entry of kernel and problem, 2 uses on 2 ranks"


# O16: a split sum


def products_run(
    label, odd="", shapes=((512, 512, 512), (64, 8192, 64), (4096, 64, 4096)), odd_shape=(64, 8192, 64)
):
    """Two ranks that multiply matrices of several shapes; those of one give other bits."""

    def calls(rank):
        made = []
        for layer in range(3):
            for m, k, n in shapes:
                x, w, y = (f"{word}{layer}{m}{n}{k}" for word in "xwy")
                y += odd if (m, k, n) == odd_shape else ""
                sizes = {x: (m, k), w: (k, n), y: (m, n)}
                made.append(
                    Call(
                        "aten.mm.default",
                        f"layers.{layer}.linear_fc2",
                        [x, w],
                        [y],
                        shapes=sizes,
                        dtype="bfloat16",
                    )
                )
        return made

    return make_run({rank: calls(rank) for rank in (0, 1)}, label=label)


def products_log(folder, algo, layers=3, ranks=(0, 1)):
    """The log of such a run; the library counts columns first, and the operands change places."""
    lines = [product(512, 512, 512), product(64, 64, 8192, algo), product(4096, 4096, 64)] * layers
    return logs(folder, *lines, ranks=ranks)


@pytest.fixture
def split_runs():
    a, b = products_run("a"), products_run("b", "!")
    return a, b, compare(a, b)


def test_a_product_restricted_to_one_class_of_shapes_suggests_a_split_sum(split_runs):
    found = check_kernels(*split_runs)
    assert told(found, "kernel", "ranks") == [
        ("warning", "selection or execution", "aten.mm.default", [0, 1])
    ]
    (finding,) = found.findings.to_dicts()
    assert finding["problems"] == ["64x64 with k=8192 of bfloat16"]
    assert "workspace or split-K" in finding["why"]
    assert finding["confidence"] == "medium, unless a replay of the call reproduces it"
    assert "capture" in finding["next"]
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in finding["next"]
    assert found.verdict == "invalid"  # nothing tells what was chosen
    assert {each.where for each in found.problems} == {"run a", "run b"}


def test_nothing_is_suggested_where_products_of_every_shape_differ():
    shapes = ((512, 512, 512), (4096, 64, 4096))
    a, b = products_run("a", shapes=shapes), products_run("b", "!", shapes, (512, 512, 512))
    assert check_kernels(a, b, compare(a, b)).findings.is_empty()


def test_the_same_split_and_other_bits_are_inside_the_kernel(split_runs, tmp_path):
    a, b = (products_log(tmp_path / run, SPLIT) for run in "ab")
    found = check_kernels(a, b, split_runs[2])
    assert told(found, "kernel", "ranks", "num") == [("warning", "execution", "cublasLtMatmul", [0, 1], 6)]
    (finding,) = found.findings.to_dicts()
    assert "cut into 3 parts" in finding["why"]
    assert "INPLACE" in finding["why"]
    assert "only 64x64 with k=8192" in finding["why"].lower()
    assert finding["confidence"] == "medium, unless a replay of the call reproduces it"
    assert finding["how"] == "log and trace agree on 3 uses"
    assert finding["next"].startswith("capture the call")


def test_another_algorithm_and_other_bits_are_selection(split_runs, tmp_path):
    a, b = products_log(tmp_path / "a", SPLIT), products_log(tmp_path / "b", WHOLE)
    found = check_kernels(a, b, split_runs[2])
    assert told(found, "kernel", "ranks", "num", "outcome") == [
        ("error", "selection", "cublasLtMatmul", [0, 1], 6, "bits")
    ]
    (finding,) = found.findings.to_dicts()
    assert finding["confidence"].startswith("high")
    assert "In a: split-K" in finding["why"]
    assert "in b: the sum along k is not split" in finding["why"]
    assert len(finding["sites"]) == 3
    assert finding["comparison_findings"] == [0]
    assert found.exit_code == 1


def test_another_algorithm_and_equal_values_are_information(tmp_path):
    run = products_run("a")
    a, b = products_log(tmp_path / "a", SPLIT), products_log(tmp_path / "b", WHOLE)
    found = check_kernels(a, b, compare(run, products_run("b")))
    assert told(found, "outcome") == [("note", "selection", "values")]
    assert found.verdict == "pass"


def test_what_the_choice_was_given_is_named_where_it_differs(tmp_path):
    a = logs(tmp_path / "a", product(8, 8, 8, SPLIT, workspace="33554432"))
    b = logs(tmp_path / "b", product(8, 8, 8, WHOLE, workspace="0"))
    why = check_kernels(a, b).findings["why"][0]
    assert "workSpaceSizeInBytes 33554432 in a and 0 in b" in why


def test_only_the_use_that_differs_is_named_where_log_and_trace_agree_on_the_number(split_runs, tmp_path):
    once = [product(512, 512, 512), product(64, 64, 8192, SPLIT), product(4096, 4096, 64)]
    other = [product(512, 512, 512), product(64, 64, 8192, WHOLE), product(4096, 4096, 64)]
    a = logs(tmp_path / "a", *once * 3, ranks=(0, 1))
    b = logs(tmp_path / "b", *once, *other, *once, ranks=(0, 1))
    found = check_kernels(a, b, split_runs[2])
    assert told(found, "num") == [("error", "selection", 2), ("warning", "execution", 4)]
    assert {site.split("/")[3] for site in found.findings["sites"][0]} == {"layers.1.linear_fc2"}


# Where the join is not sure


def test_a_longer_log_is_joined_where_every_use_has_one_choice(split_runs, tmp_path):
    a, b = (products_log(tmp_path / run, algo, layers=30) for run, algo in (("a", SPLIT), ("b", WHOLE)))
    found = check_kernels(a, b, split_runs[2])
    assert told(found, "num") == [("error", "selection", 6)]
    assert found.findings["confidence"][0].startswith("medium: every use has this choice")


def test_a_longer_log_with_several_choices_is_ambiguous_and_only_warns(split_runs, tmp_path):
    mixed = [product(64, 64, 8192, SPLIT), product(64, 64, 8192, WHOLE)]
    a = logs(tmp_path / "a", *mixed * 9, ranks=(0, 1))
    b = logs(tmp_path / "b", *mixed * 4, *[product(64, 64, 8192, WHOLE)] * 10, ranks=(0, 1))
    found = check_kernels(a, b, split_runs[2])
    assert found.verdict == "pass"
    assert set(found.findings["severity"]) == {"warning"}
    ambiguous = [each for each in found.not_checked if "ambiguous" in each.why]
    assert [each.what for each in ambiguous] == ["cublasLtMatmul on rank 0", "cublasLtMatmul on rank 1"]


def test_a_log_with_fewer_uses_than_the_trace_has_calls_is_ambiguous(split_runs, tmp_path):
    a, b = (products_log(tmp_path / run, algo, layers=2) for run, algo in (("a", SPLIT), ("b", WHOLE)))
    found = check_kernels(a, b, split_runs[2])
    assert "error" not in found.findings["severity"].to_list()
    assert any("cublaslt tells of 2 uses, the traces of 3" in each.why for each in found.not_checked)


def test_a_product_that_no_call_computes_is_said_to_be_joined_to_none(split_runs, tmp_path):
    a = logs(tmp_path / "a", product(7, 7, 7, SPLIT))
    b = logs(tmp_path / "b", product(7, 7, 7, WHOLE))
    found = check_kernels(a, b, split_runs[2])
    assert ("warning", "selection") in told(found)
    assert [each.what for each in found.not_checked] == ["what came of 1 choice of cublaslt"]


def test_the_layout_tells_products_of_one_size_apart(tmp_path):
    def run(label, odd):
        def call(scope, stride, result):
            return Call("aten.mm.default", scope, [f"x{scope}", f"w{scope}"], [result], shape=(64, 64),
                        dtype="bfloat16", strides={f"w{scope}": stride})  # fmt: skip

        return make_run({0: [call("forward", (1, 64), "f" + odd), call("dgrad", (64, 1), "d")]}, label=label)

    def log(folder, algo):
        return logs(folder, product(64, 64, 64, algo, layout="TN"), product(64, 64, 64, layout="NN"))

    a, b = run("a", ""), run("b", "!")
    found = check_kernels(log(tmp_path / "a", SPLIT), log(tmp_path / "b", WHOLE), compare(a, b))
    assert told(found, "sites") == [("error", "selection", ["1/0/forward/forward/aten.mm.default#0"])]


def normalised_run(label, odd=""):
    """Two calls of a Triton kernel; the one with 1,024 rows can give other bits."""

    def call(rows, result):
        sizes = {f"x{rows}": (rows, 768), result: (rows, 768)}
        return Call("l2norm_fwd_kernel", f"norm{rows}", [f"x{rows}"], [result], shapes=sizes)

    return make_run({0: [call(1024, "y" + odd), call(2048, "z")]}, label=label)


def normalised_prints(folder, **blocks):
    """What Triton prints of that kernel: the block by the rows of its key."""
    folder.mkdir()
    texts = [
        tuned("l2norm_fwd_kernel", f"({rows[1:]}, 768)", config(block, 4)) for rows, block in blocks.items()
    ]
    (folder / "rank0.log").write_text("".join(texts))
    return folder


def test_a_kernel_of_triton_is_joined_by_its_name_and_by_the_sizes_in_its_key(tmp_path):
    cmp = compare(normalised_run("a"), normalised_run("b", "!"))
    a = normalised_prints(tmp_path / "a", n1024=64, n2048=64)
    b = normalised_prints(tmp_path / "b", n1024=128, n2048=64)
    assert told(check_kernels(a, b, cmp), "outcome", "sites") == [
        ("error", "selection", "bits", ["1/0/forward/norm1024/l2norm_fwd_kernel#0"])
    ]
    other = normalised_prints(tmp_path / "other", n1024=64, n2048=128)
    assert told(check_kernels(a, other, cmp), "outcome", "sites") == [
        ("warning", "execution", "bits", ["1/0/forward/norm1024/l2norm_fwd_kernel#0"]),
        ("note", "selection", "values", ["1/0/forward/norm2048/l2norm_fwd_kernel#0"]),
    ]


def test_a_key_with_other_numbers_than_the_sizes_of_a_call_is_joined_to_nothing(tmp_path):
    cmp = compare(normalised_run("a"), normalised_run("b", "!"))
    a, b = (normalised_prints(tmp_path / run, n77=block) for run, block in (("a", 64), ("b", 128)))
    found = check_kernels(a, b, cmp)
    assert told(found, "outcome") == [("warning", "selection", "")]
    assert [each.what for each in found.not_checked] == ["l2norm_fwd_kernel on rank 0"]


# What is missing


def test_one_place_given_twice_shows_nothing(tmp_path):
    folder = logs(tmp_path / "a", product(8, 8, 8))
    link = tmp_path / "link"
    link.symlink_to(folder)
    for again in (str(folder), link, [link]):
        result = check_kernels(folder, again)
        assert result.verdict == "invalid"
        assert any("equal to themselves" in each.what for each in result.problems)


def test_a_source_that_only_one_run_has_is_not_checked(tmp_path):
    a = logs(tmp_path / "a", product(8, 8, 8))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rank0.log").write_text(tuned_before("add", config(64, 4)))
    found = check_kernels(a, tmp_path / "b")
    assert found.verdict == "invalid"
    assert [each.what for each in found.not_checked][:2] == ["cublaslt", "triton print"]


def test_a_rank_that_only_one_run_has_is_not_checked(tmp_path):
    a, b = logs(tmp_path / "a", product(8, 8, 8), ranks=(0, 1)), logs(tmp_path / "b", product(8, 8, 8))
    found = check_kernels(a, b)
    assert found.verdict == "pass"
    assert ("rank 1 in cublaslt", "only run a has it") in [tuple(each) for each in found.not_checked]


def test_a_problem_that_only_one_run_has_is_not_checked(tmp_path):
    a = logs(tmp_path / "a", product(8, 8, 8), product(9, 9, 9))
    found = check_kernels(a, logs(tmp_path / "b", product(8, 8, 8)))
    assert found.not_checked[0].what == "1 use in cublaslt that only run a has"


def test_a_damaged_log_is_never_a_pass(tmp_path):
    a = logs(tmp_path / "a", product(8, 8, 8))
    found = check_kernels(a, logs(tmp_path / "b", product(8, 8, 8), product(9, 9, 9)[:200]))
    assert found.verdict == "invalid"
    assert found.problems[0].where == "b: lt_rank0.log:2"


def test_logs_without_ranks_are_compared_as_sets(tmp_path):
    def log(folder, *algos):
        folder.mkdir()
        for pid, algo in enumerate(algos, 100):
            (folder / f"lt_{pid}.log").write_text(product(8, 8, 8, algo, pid=pid))
        return folder

    same = check_kernels(log(tmp_path / "a", SPLIT, WHOLE), log(tmp_path / "b", WHOLE, SPLIT))
    assert told(same) == [("warning", "ranks of a"), ("warning", "ranks of b")]
    assert "as sets" in same.not_checked[0].why
    assert "the same set of several choices" in same.verified[0].says
    other = check_kernels(tmp_path / "a", log(tmp_path / "c", WHOLE, WHOLE))
    assert ("warning", "selection") in told(other)


def test_prints_of_several_ranks_in_one_log_without_tags_are_known_to_be_mixed(tmp_path):
    for run in "ab":
        prints = [tuned("norm", "(8,)", config(block, 4)) for block in (64, 64, 128)]
        (tmp_path / f"{run}.log").write_text("".join(prints if run == "a" else prints[::-1]))
    found = check_kernels(tmp_path / "a.log", tmp_path / "b.log")
    assert told(found, "kernel") == [("warning", "ranks of a", "norm"), ("warning", "ranks of b", "norm")]
    assert "as sets" in found.not_checked[0].why


_AUTOTUNED = """
import sys, torch, triton, triton.language as tl
fastest = iter([float(each) for each in sys.argv[1:]])
def bench(call, quantiles):
    call()
    return [next(fastest)] * 3
configs = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 32})]
@triton.autotune(configs, ["n"], do_bench=bench)
@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
add_one[lambda given: (triton.cdiv(100, given["BLOCK"]),)](torch.zeros(100), 100)
"""


def test_two_runs_of_the_installed_triton_that_timed_otherwise_chose_differently(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(_AUTOTUNED)
    asked = os.environ | {"TRITON_INTERPRET": "1", "TRITON_PRINT_AUTOTUNING": "1"}
    for run, times in (("a", ("1", "2")), ("b", ("2", "1"))):
        with (tmp_path / f"{run}.log").open("w") as log:
            subprocess.run([sys.executable, script, *times], env=asked, stdout=log, check=True)
    found = check_kernels(tmp_path / "a.log", tmp_path / "b.log")
    assert told(found, "kernel", "choice_a", "choice_b") == [
        (
            "warning",
            "selection",
            "add_one",
            "BLOCK=64 num_warps=2 num_stages=3",
            "BLOCK=32 num_warps=4 num_stages=3",
        )
    ]
    assert not found.problems


def test_one_process_in_each_run_needs_no_rank(tmp_path):
    for run, algo in (("a", SPLIT), ("b", WHOLE)):
        (tmp_path / f"{run}.log").write_text(product(8, 8, 8, algo, pid=ord(run)))
    found = check_kernels(tmp_path / "a.log", tmp_path / "b.log")
    assert told(found, "num") == [("warning", "selection", 1)]


def test_caches_of_two_runs_are_compared(tmp_path):
    for run, times in (("a", (0.1, 0.2)), ("b", (0.2, 0.1))):
        triton_cache(tmp_path / run, "norm", [8], [(64, 4, times[0]), (128, 8, times[1])])
    found = check_kernels(tmp_path / "a", tmp_path / "b")
    assert told(found, "choice_a", "choice_b") == [
        ("warning", "selection", "BLOCK=64 num_warps=4 num_stages=3", "BLOCK=128 num_warps=8 num_stages=3")
    ]


def test_a_saved_trace_is_a_source_by_its_folder(tmp_path):
    a = save_run(tuned_run("a"), tmp_path / "a")
    b = save_run(tuned_run("b", other=(2,)), tmp_path / "b")
    assert told(check_kernels(a, b), "ranks") == [
        ("warning", "selection", [2]),
        ("warning", "ranks of b", []),
    ]


def test_hostile_names_are_shown_harmlessly(tmp_path):
    for run in "ab":
        (tmp_path / run).mkdir()
        text = tuned("\x1b[31m\u202eevil", "(1,)", config(64 if run == "a" else 128, 4))
        (tmp_path / run / "rank0.log").write_text(text)
    assert "\x1b" not in repr(check_kernels(tmp_path / "a", tmp_path / "b"))
    assert "\u202e" not in repr(check_kernels(tmp_path / "a", tmp_path / "b"))
