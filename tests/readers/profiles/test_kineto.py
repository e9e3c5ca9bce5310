"""Traces of PyTorch's profiler: times of their own, steps, phases, what launched a kernel, and damage."""

import gzip
import json

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.errors import TraceError
from detlab.readers.profiles import PROFILE_SCHEMA, is_profile, json_events, load_profile, read_kineto
from tests.readers.profiles.profiles import ENGINE, event, launched, step, write_kineto


def rows(frame, *columns):
    return frame.select("name", *columns).rows()


@pytest.fixture
def trace(tmp_path):
    return lambda events, **beside: write_kineto(tmp_path / "trace.json", events, **beside)


def test_the_frame_has_every_column(trace):
    frame = read_kineto(trace([event("aten::add", 5, 3)]))
    assert dict(frame.schema) == {
        name: pl.DataFrame(schema=PROFILE_SCHEMA).schema[name] for name in PROFILE_SCHEMA
    }
    assert frame.select("name", "kind", "start_us", "duration_us", "self_us", "count").row(0) == (
        "aten::add", "op", 5.0, 3.0, 3.0, 1,
    )  # fmt: skip


def test_time_of_its_own_is_without_what_is_nested_on_the_same_thread(trace):
    found = [event("outer", 0, 100), event("inner", 10, 30), event("innermost", 15, 5),
             event("elsewhere", 10, 30, tid=ENGINE)]  # fmt: skip
    frame = read_kineto(trace(found))
    assert rows(frame, "self_us", "parent") == [
        ("outer", 70.0, None), ("inner", 25.0, 0), ("innermost", 5.0, 1), ("elsewhere", 30.0, None),
    ]  # fmt: skip


def test_neighbours_that_touch_do_not_nest(trace):
    frame = read_kineto(trace([event("a", 0, 10), event("b", 10, 10), event("c", 20, 0)]))
    assert frame["parent"].to_list() == [None, None, None]


def test_a_kernel_belongs_to_the_step_and_op_that_launched_it(trace):
    found = [step(3, 0, 100), *launched("aten::mm", "gemm", 50, 9, number=4, late=70), step(4, 100, 100)]
    frame = read_kineto(trace(found))
    assert rows(frame.filter(pl.col("kind") == "kernel"), "step", "op", "launch") == [
        ("gemm", 3, "aten::mm", 2)
    ]


def test_a_kernel_whose_launch_was_not_recorded_is_joined_by_the_id_of_its_op(trace):
    found = [each for each in launched("aten::mm", "gemm", 50, 9, number=4) if each["cat"] != "cuda_runtime"]
    assert rows(read_kineto(trace(found)).filter(pl.col("kind") == "kernel"), "op") == [("gemm", "aten::mm")]


def test_phases_follow_the_marks_of_autograd_and_of_the_optimizer(trace):
    seq = {"Sequence number": 5}
    found = [
        event("aten::linear", 0, 10),
        event("aten::addmm", 2, 3, **seq),
        event("autograd::engine::evaluate_function: AddmmBackward0", 20, 10, tid=ENGINE, **seq),
        event("aten::mm", 22, 3, tid=ENGINE),
        event("Optimizer.step#Adam.step", 40, 10, cat="user_annotation"),
        event("aten::add_", 42, 3),
        event("aten::randn", 60, 3),
    ]
    assert read_kineto(trace(found))["phase"].to_list() == [
        None, "forward", "backward", "backward", "optimizer", "optimizer", None,
    ]  # fmt: skip


def test_categories_of_old_and_new_traces_are_the_same_kinds(trace):
    cats = {
        "Kernel": "kernel",
        "kernel": "kernel",
        "Memcpy": "memcpy",
        "gpu_memset": "memset",
        "Runtime": "runtime",
        "cuda_driver": "runtime",
        "python_function": "python",
        "gpu_user_annotation": "device_range",
        "cuda_sync": "sync",
        "Trace": "other",
    }
    frame = read_kineto(trace([event("x", 0, 1, cat=cat) for cat in cats]))
    assert frame["kind"].to_list() == list(cats.values())


def test_rank_and_devices_are_said(trace):
    path = trace([event("x", 0, 1)], distributedInfo={"rank": 3}, deviceProperties=[{"name": "H200"}] * 2)
    profile = load_profile(path)
    assert profile.events["rank"].to_list() == [3]
    assert dict(profile.facts)["devices"] == "H200"


def test_shapes_are_kept_as_json(trace):
    frame = read_kineto(trace([event("aten::mm", 0, 1, **{"Input Dims": [[2, 3], [3, 4]]})]))
    assert json.loads(frame["shapes"][0]) == [[2, 3], [3, 4]]


def test_a_packed_trace_reads_the_same(trace, tmp_path):
    path = trace([step(1, 0, 50), *launched("aten::mm", "gemm", 10, 9, number=4)])
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert is_profile(packed)
    assert read_kineto(packed).equals(read_kineto(path))


def test_a_bare_list_of_events_is_read_also_without_its_end(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps([event("a", 0, 1), event("b", 2, 1)])[:-1])
    assert read_kineto(path)["name"].to_list() == ["a", "b"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_size_of_the_pieces_read_changes_nothing(trace, monkeypatch, size):
    path = trace(
        [event('ü\\u00e9 "x"', 1234567.125, 1e2, **{"External id": 12}), event("b", 2, 1)], number=-12.5
    )
    whole = load_profile(path)
    monkeypatch.setattr(json_events, "_PIECE", size)
    pieces = load_profile(path)
    assert pieces.events.equals(whole.events)
    assert (pieces.facts, pieces.problems) == (whole.facts, ())


def test_a_trace_that_was_cut_anywhere_gives_what_is_whole_and_says_so(trace, tmp_path):
    text = trace([event(f"op{n}", n, 1) for n in range(4)]).read_text()
    cut = tmp_path / "cut.json"
    for size in range(len(text)):
        cut.write_text(text[:size])
        try:
            profile = load_profile(cut)
        except TraceError:
            continue
        assert profile.problems and "what stands before it is used" in profile.problems[0]
        names = profile.events["name"].to_list()
        assert names == [f"op{n}" for n in range(len(names))]
        with pytest.raises(TraceError, match="load_profile"):
            read_kineto(cut)


def test_a_packed_trace_that_was_cut_says_so(trace, tmp_path):
    path = trace([event(f"op{n}", n * 1.25, n % 7 + 0.5) for n in range(3000)])
    packed = gzip.compress(path.read_bytes())
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    assert "cannot be read further" in load_profile(cut).problems[0]


@pytest.mark.parametrize("bad", ["NaN", "Infinity", '"soon"', "null", "-3", "[]"])
def test_an_event_without_a_usable_time_is_a_problem(tmp_path, bad):
    path = tmp_path / "bad.json"
    events = [json.dumps(event("good", 0, 1)), json.dumps(event("bad", 0, "?")).replace('"?"', bad)]
    path.write_text(f'{{"traceEvents": [{",".join(events)}]}}')
    profile = load_profile(path)
    assert profile.events["name"].to_list() == ["good"]
    assert "1 event without a start and a duration" in profile.problems[0]


def test_what_nests_too_deep_is_damage_and_no_crash(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text(f'{{"traceEvents": [{json.dumps(event("a", 0, 1))}, {"[" * 100_000}')
    profile = load_profile(path)
    assert profile.events["name"].to_list() == ["a"]
    assert profile.problems


def test_a_value_without_end_fills_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_events, "_PIECE", 1 << 10)
    monkeypatch.setattr(json_events, "MAX_EVENT", 1 << 12)
    path = tmp_path / "long.json"
    path.write_text(f'{{"traceEvents": [{json.dumps(event("a", 0, 1))}, {{"name": "{"x" * (1 << 16)}"}}]}}')
    profile = load_profile(path)
    assert profile.events["name"].to_list() == ["a"]
    assert "no JSON" in profile.problems[0]


def test_a_trace_without_events_is_refused_with_what_to_do(trace):
    with pytest.raises(TraceError, match="export_chrome_trace"):
        load_profile(trace([{"ph": "M", "name": "process_name"}]))


def test_numbers_that_overflow_are_no_crash(trace):
    frame = read_kineto(trace([event("a", 0, 1, correlation=1 << 70, **{"External id": "x", "stream": -1})]))
    assert frame.select("correlation", "external", "stream").row(0) == (None, None, -1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_times_of_their_own_add_up_to_the_time_of_the_outermost(tmp_path_factory, data):
    """However events nest, what each has of its own is all there is."""
    found = []

    def fill(start, end, depth):
        at = start
        while at < end and len(found) < 40:
            size = data.draw(st.integers(1, end - at))
            found.append(event(f"d{depth}", at, size))
            if depth < 4 and data.draw(st.booleans()):
                fill(at, at + size, depth + 1)
            at += size + data.draw(st.integers(0, 3))

    fill(0, data.draw(st.integers(1, 60)), 0)
    path = write_kineto(tmp_path_factory.mktemp("k") / "t.json", data.draw(st.permutations(found)))
    frame = read_kineto(path)
    outermost = sum(each["dur"] for each in found if each["name"] == "d0")
    assert frame["self_us"].sum() == pytest.approx(outermost)


def test_a_real_trace_of_torch_is_read(tmp_path):
    path = tmp_path / "real.json"
    model = torch.nn.Linear(4, 4)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as prof:
        for _ in range(2):
            with torch.profiler.record_function("decoder.layers.0"):
                loss = model(torch.ones(2, 4)).sum()
            loss.backward()
    prof.export_chrome_trace(str(path))
    frame = read_kineto(path)
    linear = frame.filter(pl.col("name").cast(pl.String) == "aten::linear")
    assert linear["count"].sum() == 2
    assert set(linear["op"].cast(pl.String)) == {"decoder.layers.0"}
    assert {"forward", "backward"} <= set(frame["phase"].drop_nulls().cast(pl.String))
    assert (frame["self_us"] <= frame["duration_us"] + 1e-6).all()
    assert json.loads(linear["shapes"][0])[0] == [2, 4]
