"""Where the tax goes: rows of two profiles joined by name, counted once, with their share of the whole."""

import json
from importlib.resources import files

import jsonschema
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab import check_tax
from detlab.checks.tax import TAX_COLUMNS, table_lines
from detlab.checks.tax.names import plain_name, table_of
from detlab.errors import InputError, NotComparable
from detlab.testing import make_metrics_run
from tests.readers.profiles.profiles import (
    ENGINE,
    TRACE,
    event,
    kern_sum,
    launched,
    notice,
    nvtx_sum,
    step,
    trace_row,
    write_kineto,
)

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))


def said(result):
    return " ".join(repr(result).split())


def rows(result, table, *columns):
    found = result.table.filter(pl.col("table") == table)
    return [tuple(row[name] for name in ("name", *columns)) for row in found.iter_rows(named=True)]


def steps_of(times, length, *, before=0.0):
    """Steps of one length, each with the same ops of planted times one after another."""
    found = []
    for number in range(2):
        start = before + number * 10_000
        found.append(step(number, start, length))
        at = start + 10
        for name, time in times:
            found.append(event(name, at, time))
            at += time
    return found


@pytest.fixture
def pair(tmp_path):
    def check(default, deterministic, beside=({}, {}), **options):
        paths = [
            write_kineto(tmp_path / f"{name}.json", events, **more)
            for name, events, more in zip(("a", "b"), (default, deterministic), beside, strict=True)
        ]
        return check_tax(*paths, **options)

    return check


@pytest.fixture
def tables(tmp_path):
    def check(default, deterministic, **options):
        for name, text in (("a", default), ("b", deterministic)):
            (tmp_path / f"{name}.csv").write_text(text)
        return check_tax(tmp_path / "a.csv", tmp_path / "b.csv", **options)

    return check


def test_the_op_that_costs_stands_first_with_its_share(pair):
    default = steps_of([("aten::mm", 100.0), ("aten::index_add_", 50.0)], 1000)
    det = steps_of([("aten::mm", 110.0), ("aten::index_add_", 130.0)], 1100)
    result = pair(default, det)
    assert rows(result, "op", "delta_ms", "share", "count_default", "count_deterministic", "only_in") == [
        ("aten::index_add_", pytest.approx(0.08), pytest.approx(0.8), 2, 2, ""),
        ("aten::mm", pytest.approx(0.01), pytest.approx(0.1), 2, 2, ""),
    ]
    assert "not checked: the rest of the difference: +0.01 of +0.1 ms a step (10 %)" in said(result)
    assert list(result.table.columns) == list(TAX_COLUMNS)
    jsonschema.validate(result.to_json(), SCHEMA)


def test_substitutes_are_named_as_standing_in_one_run_only(pair):
    default = steps_of([("aten::scatter_add_", 50.0)], 1000)
    det = steps_of([("aten::arange", 30.0), ("aten::index_put_", 60.0)], 1100)
    result = pair(default, det)
    assert rows(result, "op", "only_in") == [
        ("aten::index_put_", "deterministic"),
        ("aten::scatter_add_", "default"),
        ("aten::arange", "deterministic"),
    ]
    assert "only in the deterministic run: aten::index_put_, aten::arange" in said(result)
    assert "only in the default run: aten::scatter_add_" in said(result)


def test_time_in_a_nested_row_of_the_same_table_is_counted_once(pair):
    def nested(inner):
        return [
            step(0, 0, 1000),
            event("aten::linear", 10, 100 + inner),
            event("aten::addmm", 20, 50 + inner),
        ]

    result = pair(nested(0), nested(30))
    assert rows(result, "op", "delta_ms") == [
        ("aten::addmm", pytest.approx(0.03)), ("aten::linear", pytest.approx(0.0)),
    ]  # fmt: skip


def test_modules_and_nodes_are_counted_with_their_ops_but_without_each_other(pair):
    def nested(more):
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        return [
            step(0, 0, 1000),
            event("decoder.layers.0", 10, 200 + more, cat="user_annotation"),
            event("decoder.layers.0.mlp", 20, 100 + more, cat="user_annotation"),
            event("aten::mm", 30, 80 + more),
            event(name, 400, 50 + more, tid=ENGINE),
            event("AddmmBackward0", 401, 45 + more, tid=ENGINE),
            event("aten::mm", 402, 40 + more, tid=ENGINE),
        ]

    result = pair(nested(0), nested(10))
    assert rows(result, "forward", "delta_ms", "count_default") == [
        ("decoder.layers.*.mlp", pytest.approx(0.01), 1), ("decoder.layers.*", pytest.approx(0.0), 1),
    ]  # fmt: skip
    assert rows(result, "backward", "default_ms", "delta_ms", "count_default") == [
        ("AddmmBackward0", pytest.approx(0.05), pytest.approx(0.01), 1)
    ]
    assert rows(result, "op", "default_ms", "delta_ms") == [
        ("aten::mm", pytest.approx(0.12), pytest.approx(0.02))
    ]


def test_layers_are_kept_apart_on_request(pair):
    def layers(more):
        return [
            event(f"decoder.layers.{n}.mlp", n * 100, 10 + n * more, cat="user_annotation") for n in range(2)
        ]

    assert rows(pair(layers(0), layers(5)), "forward", "count_default") == [("decoder.layers.*.mlp", 2)]
    apart = pair(layers(0), layers(5), by_layer=True)
    assert rows(apart, "forward", "count_default") == [
        ("decoder.layers.1.mlp", 1),
        ("decoder.layers.0.mlp", 1),
    ]


@pytest.mark.parametrize(
    ("written", "plain", "table"),
    [
        ("aten::addmm, seq = 12, op_id = 34", "aten::addmm", "op"),
        ("aten::mm, op_id = 7, sizes = [[2, 3], [3, 4]]", "aten::mm", "op"),
        ("autograd::engine::evaluate_function: AddmmBackward0, seq = 3", "AddmmBackward0", "backward"),
        ("torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad", "backward"),
        ("aten::threshold_backward", "aten::threshold_backward", "op"),
        (":decoder.layers.11.self_attention", "decoder.layers.*.self_attention", "forward"),
        ("decoder.layers.1.2.mlp", "decoder.layers.*.*.mlp", "forward"),
        ("decoder.layers.3.mlp.backward", "decoder.layers.*.mlp.backward", "backward"),
        ("iteration 17", "iteration …", "range"),
        ("ProfilerStep#4", "ProfilerStep#…", "range"),
        ("Optimizer.step#Adam.step", "Optimizer.step#Adam.step", "range"),
        ("<Node at 0x7f3a>", "<Node at 0x…>", "range"),
        ("microbatch 3", "microbatch …", "range"),
    ],
)
def test_names_lose_what_counts_on_and_find_their_table(written, plain, table):
    frame = pl.DataFrame({"name": [written], "kind": ["range"]}).with_columns(
        plain=plain_name(pl.col("name"))
    )
    assert frame.select("plain", table_of(pl.col("plain"), pl.col("kind")).alias("t")).row(0) == (
        plain,
        table,
    )


def test_numbers_that_name_something_stay():
    names = ["layernorm2", "gemm_128x64", "Conv2d", "void f<int, 4>(float *)"]
    frame = pl.DataFrame({"name": names}).with_columns(plain=plain_name(pl.col("name")))
    assert frame["plain"].to_list() == names


def test_time_of_the_device_counts_for_the_op_that_launched_it(pair):
    def work(gemm, fill):
        return [
            step(0, 0, 1000),
            *launched("aten::mm", "gemm", 10, gemm, number=1, late=500),
            *launched("aten::fill_", "fill", 20, fill, number=2, late=1500),
        ]

    result = pair(work(100, 10), work(103, 60))
    assert rows(result, "op", "clock", "delta_ms") == [
        ("aten::fill_", "device", pytest.approx(0.05)), ("aten::mm", "device", pytest.approx(0.003)),
    ]  # fmt: skip
    assert [row[:2] for row in rows(result, "kernel", "clock", "delta_ms")] == [
        ("fill", "device"),
        ("gemm", "device"),
    ]


def test_filling_of_new_memory_is_told_apart_from_other_fills(pair):
    def work(*fills):
        found = [step(0, 0, 1000), event("aten::zeros", 500, 40), event("aten::fill_", 501, 20)]
        return found + [
            each for n, size in enumerate(fills)
            for each in (event("aten::empty", 100 * n, size + 5), event("aten::fill_", 100 * n + 1, size))
        ]  # fmt: skip

    result = pair(
        [step(0, 0, 900), event("aten::zeros", 500, 40), event("aten::fill_", 501, 20)], work(30, 40)
    )
    (row,) = result.findings.iter_rows(named=True)
    assert (row["component"], row["severity"]) == ("filling of new memory", "note")
    assert row["found"].startswith("+0.07 ms a step")
    assert "fill_uninitialized_memory" in row["next"]
    assert result.verdict == "pass"


def test_without_steps_shares_are_of_the_sum_and_times_of_the_whole_profile(pair):
    result = pair([event("aten::mm", 0, 10), event("aten::add", 20, 10)],
                  [event("aten::mm", 0, 20), event("aten::add", 20, 40)])  # fmt: skip
    assert rows(result, "op", "share") == [
        ("aten::add", pytest.approx(0.75)),
        ("aten::mm", pytest.approx(0.25)),
    ]
    assert "how many steps the profiles cover is not known" in said(result)
    assert "not checked: step time: no step is marked" in said(result)
    assert rows(result, "step") == []


def test_a_budget_without_a_known_step_time_is_not_judged(pair):
    result = pair([event("aten::mm", 0, 10)], [event("aten::mm", 0, 20)], budget=0.1, gpus=8, days=1)
    assert result.verdict == "invalid"
    assert "not checked: GPU-days: not reckoned" in said(result)


def test_a_step_that_took_no_time_is_no_crash(pair):
    assert pair([step(0, 0, 0), event("aten::mm", 0, 0)], [step(0, 0, 5)]).verdict == "pass"


def test_marked_steps_are_held_against_the_budget(pair):
    def steps(length):
        return [step(n, 1000 * n, length + n % 2) for n in range(10)]

    assert pair(steps(100), steps(150), budget=0.1).verdict == "fail"
    assert pair(steps(100), steps(101), budget=0.1).verdict == "pass"


def test_logs_beside_profiles_give_the_size_and_profiles_the_places(tmp_path):
    default = make_metrics_run({"iteration-time": dict.fromkeys(range(30), 1.0)}, label="a")
    det = make_metrics_run({"iteration-time": dict.fromkeys(range(30), 1.1)}, label="b")
    a = write_kineto(tmp_path / "a.json", steps_of([("aten::mm", 100.0)], 1000))
    b = write_kineto(tmp_path / "b.json", steps_of([("aten::mm", 50_100.0 / 100)], 1400))
    result = check_tax([default, a], [det, b])
    assert rows(result, "step", "clock", "delta_ms") == [("iteration-time", "log", pytest.approx(100.0))]
    assert rows(result, "op", "share") == [("aten::mm", pytest.approx(0.401 / 100))]
    assert "shares are of the difference of the logged step times" in said(result)


def test_no_share_is_given_of_a_difference_that_is_none(pair):
    def steps(shift):
        return [
            each for n in range(12)
            for each in (step(n, 1000 * n, 100 + (n + shift) % 3), event("aten::mm", 1000 * n, 50 + shift))
        ]  # fmt: skip

    result = pair(steps(0), steps(1))
    assert [share for _, share in rows(result, "op", "share")] == [None]
    assert "no shares" in said(result)


@settings(max_examples=20, deadline=None)
@given(
    times=st.lists(st.tuples(st.floats(1, 300), st.floats(1, 300)), min_size=1, max_size=5),
    scale=st.floats(0.1, 10),
)
def test_scaling_all_times_scales_the_table(tmp_path_factory, times, scale):
    folder = tmp_path_factory.mktemp("scaled")

    def check(factor, label, swap=False):
        paths = []
        for side in (0, 1):
            events = steps_of(
                [(f"aten::op{n}", each[side]) for n, each in enumerate(times)], 2000 + 50 * side
            )
            for each in events:
                each["ts"], each["dur"] = each["ts"] * factor, each["dur"] * factor
            paths.append(write_kineto(folder / f"{label}{side}.json", events))
        return (
            check_tax(*(reversed(paths) if swap else paths))
            .table.filter(pl.col("table") == "op")
            .sort("name")
        )

    one, other, swapped = check(1, "one"), check(scale, "other"), check(1, "one", swap=True)
    for a, b, c in zip(*(each.iter_rows(named=True) for each in (one, other, swapped)), strict=True):
        assert b["delta_ms"] == pytest.approx(scale * a["delta_ms"], abs=1e-6 * scale)
        assert b["share"] == pytest.approx(a["share"], abs=1e-4)
        assert c["delta_ms"] == pytest.approx(-a["delta_ms"], abs=1e-12)
        assert c["ratio"] * a["ratio"] == pytest.approx(1)


def test_ranges_of_nsight_systems_join_without_what_counts_on(tables):
    default = nvtx_sum(
        [(":decoder.layers.0.mlp, op_id = 1", 4_000_000, 10), ("aten::mm, seq = 3", 2_000_000, 10)]
    )
    det = nvtx_sum([(":decoder.layers.0.mlp, op_id = 9", 9_000_000, 10), ("aten::mm, seq = 8", 1_000_000, 10),
                    ("aten::fill_, op_id = 3", 500_000, 40)])  # fmt: skip
    result = tables(default, det)
    assert rows(result, "forward", "delta_ms") == [("decoder.layers.*.mlp", pytest.approx(5.0))]
    assert rows(result, "op", "delta_ms", "only_in") == [
        ("aten::mm", pytest.approx(-1.0), ""), ("aten::fill_", pytest.approx(0.5), "deterministic"),
    ]  # fmt: skip
    assert "its rows overlap and do not add up" in said(result)
    assert {share for _, share in rows(result, "op", "share")} == {None}


def test_a_range_of_each_step_tells_how_many_there_are(tables):
    default = nvtx_sum(
        [("iteration 1", 10_000_000, 1), ("iteration 2", 10_000_000, 1), ("aten::mm", 4_000_000, 8)]
    )
    det = nvtx_sum([("iteration 1", 14_000_000, 1), ("aten::mm", 3_000_000, 4)])
    result = tables(default, det)
    assert rows(result, "op", "default_ms", "delta_ms", "share") == [
        ("aten::mm", pytest.approx(2.0), pytest.approx(1.0), pytest.approx(0.25))
    ]
    assert rows(result, "step", "default_ms", "deterministic_ms", "low") == [
        ("ranges around steps", pytest.approx(10.0), pytest.approx(14.0), None)
    ]
    assert "step time: +40.0 %: mean 10 ms without" in said(result)
    assert tables(default, det, budget=0.1).verdict == "invalid"
    assert "GPU-days that determinism adds: +4," in said(tables(default, det, gpus=10, days=1))


def test_profiles_of_other_numbers_of_steps_are_refused_unless_said(tables):
    default = kern_sum([("gemm", 1_000_000, 10), ("fill", 1_000_000, 20), ("odd", 1, 3)])
    det = kern_sum([("gemm", 600_000, 5), ("fill", 900_000, 10), ("odd", 1, 9)])
    with pytest.raises(NotComparable, match=r"counted 0\.5 times as often"):
        tables(default, det)
    result = tables(default, det, profile_steps=(10, 5))
    assert rows(result, "kernel", "delta_ms")[:2] == [
        ("fill", pytest.approx(0.08)),
        ("gemm", pytest.approx(0.02)),
    ]


def test_own_times_of_ranges_in_a_trace_add_up(tables):
    def trace(more):
        text = trace_row("model.mlp", 0, 100_000 + more, 60_000) + trace_row(
            "model.mlp.fc1", 10_000, 40_000 + more, 9
        )
        return notice("nvtx_pushpop_trace") + TRACE + "\n" + text

    result = tables(trace(0), trace(5_000))
    assert rows(result, "forward", "default_ms", "delta_ms") == [
        ("model.mlp.fc1", pytest.approx(0.04), pytest.approx(0.005)), ("model.mlp", pytest.approx(0.06), 0.0),
    ]  # fmt: skip
    assert "overlap" not in said(result)


def test_several_reports_of_a_side_are_one_profile(tmp_path):
    for side, more in (("a", 0), ("b", 5000)):
        (tmp_path / f"{side}_nvtx.csv").write_text(nvtx_sum([("model.mlp", 9000 + more, 1)]))
        (tmp_path / f"{side}_kern.csv").write_text(kern_sum([("gemm", 8000 + more, 1)]))
    sides = [[tmp_path / f"{side}_{kind}.csv" for kind in ("nvtx", "kern")] for side in "ab"]
    result = check_tax(*sides)
    assert rows(result, "forward") == [("model.mlp",)]
    assert rows(result, "kernel", "share") == [("gemm", pytest.approx(1.0))]


def test_profiles_of_two_profilers_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(kern_sum([("gemm", 1, 1)]))
    b = write_kineto(tmp_path / "b.json", [event("aten::mm", 0, 1)])
    with pytest.raises(NotComparable, match="two profilers"):
        check_tax(tmp_path / "a.csv", b)


def test_reports_of_other_kinds_are_refused(tables):
    with pytest.raises(NotComparable, match="no report in common"):
        tables(kern_sum([("gemm", 1, 1)]), nvtx_sum([("x", 1, 1)]))


def test_profiles_of_other_devices_are_refused(pair):
    beside = [{"deviceProperties": [{"name": name}]} for name in ("H100", "H200")]
    with pytest.raises(NotComparable, match="H100 and on H200"):
        pair([event("aten::mm", 0, 1)], [event("aten::mm", 0, 1)], beside)


def test_a_profile_against_a_log_is_refused(tmp_path):
    path = write_kineto(tmp_path / "a.json", [event("aten::mm", 0, 1)])
    run = make_metrics_run({"iteration-time": dict.fromkeys(range(9), 1.0)})
    with pytest.raises(InputError, match="Only one side has runs"):
        check_tax(path, run)


def test_a_profile_that_was_cut_lowers_the_verdict(tmp_path):
    a = write_kineto(tmp_path / "a.json", [event("aten::mm", 0, 1), event("aten::mm", 2, 1)])
    b = tmp_path / "b.json"
    b.write_text(a.read_text()[:-120])
    result = check_tax(a, b)
    assert result.verdict == "invalid"
    assert "the file ends in the middle" in result.problems[0].what


def test_hostile_names_are_shown_as_text(pair):
    name = "\x1b[31mred\u202e" + "x" * 5000
    result = pair([event(name, 0, 1)], [event(name, 0, 3)])
    text = repr(result) + "\n".join(table_lines(result.table))
    assert "\x1b" not in text and "\u202e" not in text
    assert max(map(len, text.splitlines())) < 200


def test_the_terminal_shows_the_largest_rows_and_says_that_there_are_more(pair):
    default = [event(f"aten::op{n}", 10 * n, 1) for n in range(15)]
    det = [event(f"aten::op{n}", 10 * n, 1 + n / 10) for n in range(15)]
    lines = list(table_lines(pair(default, det).table, 3))
    assert [line.split()[0] for line in lines if line.startswith("aten::")] == [
        "aten::op14",
        "aten::op13",
        "aten::op12",
    ]
    assert lines[-1] == "… and 12 more: see table, or --json"


def test_a_real_model_with_and_without_determinism_names_what_differs(tmp_path):
    """Deterministic algorithms fill new memory on the CPU as well; no time is asserted."""
    paths = []
    for deterministic in (False, True):
        path = tmp_path / f"{deterministic}.json"
        _profile(path, deterministic=deterministic)
        paths.append(path)
    result = check_tax(*paths)
    table = {row["name"]: row for row in result.table.filter(pl.col("table") == "op").iter_rows(named=True)}
    assert table["aten::fill_"]["count_deterministic"] > table["aten::fill_"]["count_default"]
    assert table["aten::index_put_"]["count_default"] > 0
    deltas = result.table.filter(pl.col("table") == "op")["delta_ms"].abs().to_list()
    assert deltas == sorted(deltas, reverse=True)
    assert rows(result, "forward", "count_default") == [("model.embed", 3)]
    assert rows(result, "step", "count_default") == [("marked steps", 3)]


def _profile(path, *, deterministic):
    was = torch.are_deterministic_algorithms_enabled()
    weight = torch.ones(64, 8, requires_grad=True)
    at = torch.arange(2000) % 64
    plan = torch.profiler.schedule(wait=0, warmup=1, active=3)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    try:
        torch.use_deterministic_algorithms(deterministic)
        with torch.profiler.profile(
            activities=kinds, schedule=plan, acc_events=True,
            on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
        ) as prof:  # fmt: skip
            for _ in range(4):
                with torch.profiler.record_function("model.embed"):
                    out = torch.zeros(64, 8).index_put((at,), weight[at], accumulate=True)
                    out = out + torch.empty(64, 8).copy_(weight)
                out.sum().backward()
                prof.step()
    finally:
        torch.use_deterministic_algorithms(was)
