"""What autotuners keep on disk, read as data."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.readers.choices import read_choices
from tests.readers.choices.logs import config, triton_cache, tuned


def rows(found, *columns):
    return found.frame.select(columns).rows()


def test_the_fastest_configuration_that_triton_keeps_is_the_choice(tmp_path):
    triton_cache(
        tmp_path, "norm", [1024, "torch.float32"], [(64, 4, [0.3, 0.2, 0.4]), (128, 8, [0.2, 0.1, 0.5])]
    )
    assert rows(read_choices(tmp_path), "source", "kernel", "problem", "choice", "details") == [
        (
            "triton cache",
            "norm",
            "1024, torch.float32",
            "BLOCK=128 num_warps=8 num_stages=3",
            "cache=ABCDEF time_ms=0.2 configurations=2",
        )
    ]


def test_a_configuration_that_failed_has_an_infinite_time_and_is_not_taken(tmp_path):
    inf = [float("inf")] * 3
    triton_cache(tmp_path, "norm", [1], [(64, 4, inf), (128, 8, [9.0, 9.0, 9.0])])
    assert rows(read_choices(tmp_path), "choice") == [("BLOCK=128 num_warps=8 num_stages=3",)]


def test_print_and_cache_write_one_configuration_and_key_alike(tmp_path):
    triton_cache(tmp_path, "norm", [1024, "torch.float32"], [(64, 4, 0.1), (128, 8, 0.2)])
    (tmp_path / "console.log").write_text(tuned("norm", "(1024, 'torch.float32')", config(64, 4)))
    found = read_choices(tmp_path).frame
    assert found["source"].to_list() == ["triton print", "triton cache"]
    assert found.select("kernel", "problem", "choice").n_unique() == 1


@given(st.permutations(range(5)), st.lists(st.integers(1, 3), min_size=5, max_size=5))
def test_the_choice_is_the_one_that_triton_takes_from_its_cache(tmp_path_factory, order, times):
    """`triton.runtime.autotuner` takes the first of the fastest, comparing lists of times."""
    timings = [(16 << n, 4, [float(times[n]), 0.0]) for n in order]
    folder = tmp_path_factory.mktemp("cache")
    triton_cache(folder, "norm", [1], timings)
    best = min(timings, key=lambda each: each[2])
    assert rows(read_choices(folder), "choice") == [(f"BLOCK={best[0]} num_warps=4 num_stages=3",)]


def test_what_the_installed_triton_would_keep_is_read(tmp_path):
    triton = pytest.importorskip("triton")
    timings = {
        triton.Config({"BLOCK": 64}, num_warps=2): [0.2, 0.1, 0.3],
        triton.Config({"BLOCK": 32}): [0.3] * 3,
    }
    kept = {
        "key": (8, "torch.float32"),
        "configs_timings": [(each.__dict__, t) for each, t in timings.items()],
    }
    (tmp_path / "add.autotune.json").write_text(json.dumps(kept))
    assert rows(read_choices(tmp_path), "problem", "choice") == [
        ("8, torch.float32", "BLOCK=64 num_warps=2 num_stages=3")
    ]


def test_what_inductor_keeps_is_read_without_its_bookkeeping(tmp_path):
    kept = {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1, "configs_hash": "f" * 64,
            "found_by_coordesc": False, "time_taken_ms": 3, "triton_cache_hash": "ABC"}  # fmt: skip
    (tmp_path / "cabc123.best_config").write_text(json.dumps(kept))
    assert rows(read_choices(tmp_path), "source", "kernel", "choice") == [
        ("inductor cache", "inductor kernel cabc123", "XBLOCK=1024 num_warps=4 num_stages=1")
    ]


def test_a_cache_for_each_rank_tells_ranks_by_its_folder(tmp_path):
    for rank in (0, 1):
        triton_cache(tmp_path / f"rank{rank}", "norm", [1], [(64 << rank, 4, 0.1)])
    assert rows(read_choices(tmp_path), "rank", "choice") == [
        (rank, f"BLOCK={64 << rank} num_warps=4 num_stages=3") for rank in (0, 1)
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON, or was cut"),
        ('{"key": [1], "configs_timings": [[{"kwargs"', "is no JSON, or was cut"),
        ("[]", "holds a list, not an object"),
        ("{}", "holds no key with times of configurations"),
        ('{"key": [1], "configs_timings": []}', "has a configuration without a time"),
        ('{"key": [1], "configs_timings": [[{}, null]]}', "has a configuration without a time"),
        ('{"key": [1], "configs_timings": [[{}, []], [{}, 1]]}', "has a configuration without a time"),
        ('{"key": [1], "configs_timings": [[{}, NaN], [{}, 1]]}', "has a configuration without a time"),
        ('{"key": [1], "configs_timings": [[{}, true], [{}, 1]]}', "has a configuration without a time"),
        ('{"key": [1], "configs_timings": [[{}, Infinity]]}', "has no configuration that ran"),
        ("[" * 100_000, "is no JSON, or was cut"),
    ],
)
def test_a_damaged_file_is_a_problem_with_its_place(tmp_path, text, says):
    (tmp_path / "norm.autotune.json").write_text(text)
    found = read_choices(tmp_path)
    assert found.frame.is_empty()
    ((where, what),) = found.problems
    assert where == "norm.autotune.json"
    assert what.startswith(says)


def test_other_files_of_a_cache_are_passed_over(tmp_path):
    for name in ("norm.json", "__grp__norm.json", "norm.ptx", "norm.cubin", "norm.ttir", "launcher.so"):
        (tmp_path / name).write_bytes(b'{"num_warps": 4}\0')
    found = read_choices(tmp_path)
    assert found.frame.is_empty()
    assert not found.problems
