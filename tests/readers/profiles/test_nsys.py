"""CSV files of ``nsys stats``: tables among notices, units, names of every age, and damage."""

import polars as pl
import pytest

from detlab.errors import TraceError
from detlab.readers.profiles import PROFILE_SCHEMA, is_profile, load_profile, read_nsys
from tests.readers.profiles.profiles import (
    KERNELS,
    NVTX,
    TRACE,
    kern_sum,
    kernel_row,
    notice,
    nvtx_row,
    nvtx_sum,
    trace_row,
)


@pytest.fixture
def table(tmp_path):
    def write(text, name="profile.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def rows(frame, *columns):
    return frame.select(pl.col("name").cast(pl.String), *columns).rows()


def test_several_tables_in_one_file_are_told_apart(table):
    path = table(nvtx_sum([("decoder", 5000, 2)]) + "\n" + kern_sum([("gemm", 3000, 6)]))
    assert is_profile(path)
    frame = read_nsys(path)
    assert rows(frame, "kind", "report", "duration_us", "count") == [
        ("decoder", "range", "nvtx_sum", 5.0, 2),
        ("gemm", "kernel", "cuda_gpu_kern_sum", 3.0, 6),
    ]
    assert frame.columns == list(PROFILE_SCHEMA)


def test_a_table_is_known_by_its_columns_where_no_notice_names_it(table):
    frame = read_nsys(table(f"{KERNELS}\n{kernel_row('gemm', 3000, 6)}"))
    assert rows(frame, "report") == [("gemm", "cuda_gpu_kern_sum")]


def test_the_names_of_older_reports_are_those_of_today(table):
    old = KERNELS.replace("Avg (ns)", "Average").replace("Time (%)", "Time(%)")
    frame = read_nsys(table(f"{notice('gpukernsum')}{old}\n{kernel_row('gemm', 3000, 6)}"))
    assert rows(frame, "report", "duration_us") == [("gemm", "cuda_gpu_kern_sum", 3.0)]


@pytest.mark.parametrize(("unit", "us"), [("ns", 0.25), ("us", 250.0), ("ms", 250e3), ("s", 250e6)])
def test_units_are_taken_from_the_columns(table, unit, us):
    frame = read_nsys(table(f"{KERNELS.replace('(ns)', f'({unit})')}\n{kernel_row('gemm', 250, 1)}"))
    assert frame["duration_us"].to_list() == [us]


def test_separators_between_thousands_are_read(table):
    frame = read_nsys(table(f'{NVTX}\n1.0,"20,740,491","1,000",1,1,1,1,0,PushPop,:step\n'))
    assert rows(frame, "duration_us", "count") == [(":step", 20740.491, 1000)]


def test_a_kernel_name_with_commas_that_nobody_quoted_is_one_name(table):
    frame = read_nsys(table(f"{KERNELS}\n1.0,10,1,1,1,1,1,0,void f<int, 4>(float *, int)\n"))
    assert rows(frame) == [("void f<int, 4>(float *, int)",)]


def test_ranges_of_a_trace_have_their_own_time_and_what_is_around_them(table):
    text = TRACE + "\n" + trace_row("step", 0, 100_000, 60_000) + trace_row("mlp", 10_000, 40_000, 40_000)
    frame = read_nsys(table(nvtx_sum([("x", 1, 1)]) + "\n" + notice("nvtx_pushpop_trace") + text))
    assert rows(frame, "start_us", "duration_us", "self_us", "parent", "count")[1:] == [
        ("step", 0.0, 100.0, 60.0, None, 1),
        ("mlp", 10.0, 40.0, 40.0, 1, 1),
    ]


def test_projected_ranges_are_of_the_device(table):
    header = (
        "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),Proj Med (ns),"
        "Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num Child"
    )
    frame = read_nsys(table(f"{header}\n:mlp,PushPop,9000,500,3,1,1,1,1,0,4,1,0,0\n"))
    assert rows(frame, "kind", "duration_us", "count") == [(":mlp", "device_range", 9.0, 3)]


def test_copies_fills_and_calls_of_the_system_have_their_kinds(table):
    memory = KERNELS.replace("Instances", "Count").replace("Name", "Operation")
    calls = KERNELS.replace("Instances", "Num Calls")
    api = f"{notice('cuda_api_sum')}{calls}\n{kernel_row('cudaLaunch', 10, 1)}"
    text = (
        f"{notice('cuda_gpu_mem_time_sum')}{memory}\n{kernel_row('[CUDA memcpy HtoD]', 10, 1)}"
        f"{kernel_row('[CUDA memset]', 10, 1)}\n{api}\n"
        f"{notice('osrt_sum')}{calls}\n{kernel_row('poll', 10, 1)}"
    )
    assert read_nsys(table(text))["kind"].to_list() == ["memcpy", "memset", "runtime", "other"]


def test_what_nsys_skipped_is_said(table):
    profile = load_profile(table(kern_sum([("gemm", 1, 1)]) + "SKIPPED: run.sqlite has no NVTX data.\n"))
    assert profile.problems == ()
    assert any("has no NVTX data" in note for note in profile.notes)


def test_a_table_that_is_not_read_is_said(table):
    text = kern_sum([("gemm", 1, 1)]) + "\nStart (ns),Duration (ns),Name\n0,1,x\n"
    profile = load_profile(table(text))
    assert profile.events["name"].to_list() == ["gemm"]
    assert any("is not read" in note for note in profile.notes)


@pytest.mark.parametrize("bad", ["many", "", "nan", "-5", "1e99"])
def test_a_row_without_a_time_is_a_problem_and_the_others_are_used(table, bad):
    path = table(kern_sum([("gemm", 1000, 1), ("broken", bad, 1)]))
    profile = load_profile(path)
    assert profile.events["name"].to_list() == ["gemm"]
    assert "1 row without a time" in profile.problems[0]
    with pytest.raises(TraceError, match="without a time"):
        read_nsys(path)


def test_a_quote_that_is_never_closed_is_damage(table):
    path = table(kern_sum([("gemm", 1000, 1)]) + '1.0,10,1,1,1,1,1,0,"cut here\n' + kernel_row("lost", 10, 1))
    profile = load_profile(path)
    assert profile.events["name"].to_list() == ["gemm"]
    assert "is no CSV" in profile.problems[0]


def test_control_characters_and_marks_of_the_encoding_do_no_harm(table):
    frame = read_nsys(table("\ufeff" + f"{NVTX}\n" + nvtx_row("a\x1b[31m\x00b", 10, 1)))
    assert rows(frame) == [("a\x1b[31m\ufffdb",)]


def test_a_report_in_its_own_format_is_refused_with_the_command_that_writes_its_tables(tmp_path):
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"\x00\x01binary")
    with pytest.raises(TraceError, match="nsys stats --report"):
        load_profile(path)


@pytest.mark.parametrize("text", ["", "a,b,c\n1,2,3\n", "{}", '{"lm loss": {"values": {}}}', "\x00\x01"])
def test_what_is_no_profile_is_refused(table, text):
    path = table(text)
    assert not is_profile(path)
    with pytest.raises(TraceError, match="no profile"):
        load_profile(path)


def test_a_folder_and_a_missing_file_are_no_profiles(tmp_path):
    assert not is_profile(tmp_path)
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(TraceError, match="no profile"):
            load_profile(path)
