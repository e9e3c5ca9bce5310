"""A trace on disk: what is written is read, and what is cut is read as far as it is whole."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.errors import RecordingError, TraceError
from detlab.schema import DETAIL_DTYPE, EVENT_DTYPE, Callee, Coordinate, Meta, TensorMeta
from detlab.store import (
    FileBatches,
    Manifest,
    MetricLog,
    NameTables,
    RankHeader,
    TraceWriter,
    layout,
    open_rank,
    read_manifest,
    read_metric_logs,
    write_manifest,
    writer,
)
from detlab.store.layout import RankFiles
from detlab.store.reader import rebuild_index

HEADER = RankHeader(3, Coordinate(tp=1, dp=1), {"dp": (1, 3)}, {"torch": "2.13.0"}, "xxh3-64")
NUM_NAMES = 5


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Batches of a few rows, so that small traces have many."""
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", 7)


@st.composite
def traces(draw):
    """Event rows in segments of random lengths, with detail rows for some of them."""
    lengths = draw(st.lists(st.integers(1, 17), max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    events = np.zeros(sum(lengths), EVENT_DTYPE)
    for name in EVENT_DTYPE.names:
        limit = NUM_NAMES if name in ("callee", "meta") else np.iinfo(EVENT_DTYPE[name]).max
        events[name] = rng.integers(0, limit, len(events), dtype=EVENT_DTYPE[name])
    events["seq"] = rng.permutation(len(events))
    for name, values in zip(("step", "phase"), divmod(np.arange(len(lengths)), 3), strict=True):
        events[name] = np.repeat(values, lengths)
    events["microbatch"] = 0
    seqs = np.repeat(events["seq"], rng.integers(0, 3, len(events)))
    details = np.zeros(len(seqs), DETAIL_DTYPE)
    details["seq"], details["digest"] = seqs, rng.integers(0, 2**63, len(seqs))
    return events, details


def write(folder, events, details, *, chunk=1000, compress=False):
    trace = TraceWriter(folder, HEADER, compress=compress)
    for number in range(NUM_NAMES):
        trace.names.callee_id(Callee(f"layers.{number}", "aten.mm.default", "dp"))
        tensor = TensorMeta("float32", (number, 2), (2, 1))
        trace.names.meta_id(Meta((tensor,), (tensor,), "xxh3-64", (("op", "sum"),), "model.py:7"))
    for start in range(0, len(events), chunk):
        rows = events[start : start + chunk]
        trace.append(rows, details[np.isin(details["seq"], rows["seq"])])
    trace.close()
    return RankFiles(folder, HEADER.rank)


def rows_of(trace):
    columns = trace.columns(0, trace.num_events, EVENT_DTYPE.names)
    rows = np.empty(trace.num_events, EVENT_DTYPE)
    for name in EVENT_DTYPE.names:
        rows[name] = columns[name]
    return rows


@given(traces(), st.integers(1, 30), st.booleans())
def test_what_is_written_is_read(trace, chunk, compress):
    events, details = trace
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), events, details, chunk=chunk, compress=compress)
        read = open_rank(Path(folder), HEADER.rank)
        assert (read.header, read.complete, read.problems) == (HEADER, True, ())
        assert list(read.names.callees) == (
            [Callee(f"layers.{n}", "aten.mm.default", "dp") for n in range(5)] if len(events) else []
        )
        assert rows_of(read).tobytes() == events.tobytes()
        for row, seq in enumerate(events["seq"]):
            assert read.details_of(row).tobytes() == details[details["seq"] == seq].tobytes()


@given(traces(), st.integers(1, 30), st.integers(1, 30))
def test_the_files_do_not_depend_on_how_rows_were_appended(trace, chunk, other_chunk):
    with tempfile.TemporaryDirectory() as folder:
        one = write(Path(folder) / "one", *trace, chunk=chunk)
        other = write(Path(folder) / "other", *trace, chunk=other_chunk)
        for path, twin in (
            (one.events, other.events),
            (one.index, other.index),
            (one.details, other.details),
        ):
            assert path.read_bytes() == twin.read_bytes()


@settings(max_examples=25)
@given(traces(), st.data(), st.booleans())
def test_a_stream_cut_at_any_byte_gives_a_prefix_and_says_where_it_stops(trace, data, compress):
    events, details = trace
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), events, details, compress=compress)
        whole = files.events.read_bytes()
        cut = data.draw(st.integers(0, len(whole) - 1))
        files.events.write_bytes(whole[:cut])
        read = open_rank(Path(folder), HEADER.rank)
        assert rows_of(read).tobytes() == events[: read.num_events].tobytes()
        assert not read.complete
        assert len(read.problems) == 1
        assert read.problems[0].startswith("rank00003.events.arrows")


@given(traces(), st.booleans())
def test_an_index_rebuilt_is_the_index_written(trace, compress):
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), *trace, compress=compress)
        written = open_rank(Path(folder), HEADER.rank)
        files.index.unlink()
        rebuilt = open_rank(Path(folder), HEADER.rank)
        assert rebuilt.index.tobytes() == written.index.tobytes()
        assert rebuilt.complete


def test_a_batch_holds_whole_segments_unless_one_is_larger(tmp_path):
    events = np.zeros(5 + 3 + 16, EVENT_DTYPE)
    events["step"] = np.repeat([1, 2, 3], [5, 3, 16])
    write(tmp_path, events, np.zeros(0, DETAIL_DTYPE))
    read = open_rank(tmp_path, HEADER.rank)
    assert np.diff(read.batch_starts()).tolist() == [5, 3, 7, 7, 2]


KILLED_RANK = """
import os, signal, sys
from pathlib import Path
import numpy as np
from detlab.schema import EVENT_DTYPE, Callee, Coordinate, Meta
from detlab.store import RankHeader, TraceWriter
trace = TraceWriter(Path(sys.argv[1]), RankHeader(3, Coordinate()))
trace.names.callee_id(Callee("", "aten.mm.default"))
trace.names.meta_id(Meta())
events = np.zeros(30, EVENT_DTYPE)
events["seq"] = np.arange(30)
trace.append(events[:20])
trace.flush()
trace.append(events[20:])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_columns_of_a_batch_that_were_decoded_together_are_not_decoded_again(tmp_path, monkeypatch):
    events = np.zeros(9, EVENT_DTYPE)
    events["seq"] = np.arange(9)
    write(tmp_path, events, np.zeros(0, DETAIL_DTYPE))
    batches, decoded, decode = open_rank(tmp_path, HEADER.rank).events, [], FileBatches._decode
    monkeypatch.setattr(FileBatches, "_decode", lambda *asked: decoded.append(asked[2]) or decode(*asked))
    whole = batches.read(0, ("seq", "kind", "callee"))
    assert list(batches.read(0, ("callee", "seq"))) == ["callee", "seq"]
    assert (batches.read(0, ("seq",))["seq"] == whole["seq"]).all()
    assert decoded == [("seq", "kind", "callee")]
    assert batches.read(1, ("seq",))["seq"].tolist() == [7, 8]
    batches.read(0, ("flags",))
    assert decoded[1:] == [("seq",), ("flags",)]


def test_a_killed_rank_leaves_what_it_flushed(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED_RANK, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    read = open_rank(tmp_path, 3)
    assert rows_of(read)["seq"].tolist() == list(range(20))
    assert read.problems == (
        f"rank00003.events.arrows stops after 1 whole batches, at byte {read.index['end'][-1]}: "
        "the run did not close it",
    )


def test_segment_digests_do_not_depend_on_ids(tmp_path):
    tables = NameTables(), NameTables()
    names = [Callee("a", "op"), Callee("b", "op")]
    for table, order in zip(tables, (names, names[::-1]), strict=True):
        for callee in order:
            table.callee_id(callee)
        table.meta_id(Meta())
    events = np.zeros(2, EVENT_DTYPE)
    events["callee"] = [0, 1]
    swapped = events.copy()
    swapped["callee"] = [1, 0]
    indexes = []
    for table, rows, folder in zip(tables, (events, swapped), "ab", strict=True):
        trace = TraceWriter(tmp_path / folder, HEADER)
        trace.names = table
        trace.append(rows)
        trace.close()
        indexes.append(open_rank(tmp_path / folder, HEADER.rank).index)
    assert indexes[0]["identity"].tolist() == indexes[1]["identity"].tolist()


def test_a_trace_is_never_overwritten(tmp_path):
    TraceWriter(tmp_path, HEADER).close()
    with pytest.raises(RecordingError, match=r"rank 3 was recorded there before.\nHint: record into a new"):
        TraceWriter(tmp_path, HEADER)


def test_damaged_bytes_are_an_error_with_their_place(tmp_path):
    events = np.zeros(50, EVENT_DTYPE)
    events["out_digest"] = np.random.default_rng(0).integers(0, 2**63, 50)
    files = write(tmp_path, events, np.zeros(0, DETAIL_DTYPE), compress=True)
    read = open_rank(tmp_path, HEADER.rank)
    offset, end = int(read.index["offset"][1]), int(read.index["end"][1])
    raw = bytearray(files.events.read_bytes())
    raw[offset + 500 : end] = bytes(end - offset - 500)
    files.events.write_bytes(raw)
    with pytest.raises(TraceError, match=f"damaged in batch 1, bytes {offset} to {end}"):
        open_rank(tmp_path, HEADER.rank).columns(0, 50, EVENT_DTYPE.names)


def test_a_stream_of_other_columns_is_refused(tmp_path):
    files = write(tmp_path, np.zeros(3, EVENT_DTYPE), np.zeros(0, DETAIL_DTYPE))
    shutil.copy(files.details, files.events)
    with pytest.raises(TraceError, match="has the columns seq, side, index"):
        open_rank(tmp_path, HEADER.rank)


@pytest.mark.parametrize("damage", ["other name", "swapped"])
def test_names_that_do_not_match_their_digest_end_the_trace(tmp_path, damage):
    files = write(tmp_path, np.zeros(3, EVENT_DTYPE), np.zeros(0, DETAIL_DTYPE))
    lines = files.names.read_text("utf-8").splitlines(keepends=True)
    damaged = {
        "other name": [lines[0].replace("layers.0", "layers.9"), *lines[1:]],
        "swapped": [lines[0].replace("callee", "meta"), *lines[1:]],
    }[damage]
    files.names.write_text("".join(damaged), "utf-8")
    with pytest.raises(TraceError, match=r"rank00003.names.jsonl stops making sense at line 1"):
        open_rank(tmp_path, HEADER.rank).names.callees[0]


def test_names_that_are_cut_give_the_events_that_use_whole_names(tmp_path):
    files = write(tmp_path, np.zeros(3, EVENT_DTYPE), np.zeros(0, DETAIL_DTYPE))
    files.names.write_bytes(files.names.read_bytes()[:-10])
    read = open_rank(tmp_path, HEADER.rank)
    assert (read.num_events, read.complete) == (3, False)
    assert read.problems == ("rank00003.names.jsonl is cut inside its last line",)


def test_events_that_use_lost_names_are_left_out(tmp_path):
    events = np.zeros(20, EVENT_DTYPE)
    events["step"] = np.repeat([1, 2, 3, 4], 5)
    events["callee"] = np.repeat([0, 1, 4, 0], 5)
    files = write(tmp_path, events, np.zeros(0, DETAIL_DTYPE))
    lines = files.names.read_text("utf-8").splitlines(keepends=True)
    files.names.write_text("".join(line for line in lines if "layers.4" not in line), "utf-8")
    files.index.unlink()
    read = open_rank(tmp_path, HEADER.rank)
    assert read.num_events == 10
    assert read.problems == ("batch 2 and all after it use names that the name tables do not hold",)


def test_details_that_are_gone_cost_no_event(tmp_path):
    files = write(tmp_path, np.zeros(3, EVENT_DTYPE), np.zeros(0, DETAIL_DTYPE))
    files.details.unlink()
    read = open_rank(tmp_path, HEADER.rank)
    assert read.num_events == 3
    assert len(read.details_of(0)) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema version 99; this detlab reads version 1"),
        ({"rank": 4}, "says that it is rank 4"),
        ({"coordinate": None}, "is not a rank header"),
        ({"coordinate": {"warp": 1}}, "is not a rank header"),
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path, change, message):
    files = write(tmp_path, np.zeros(0, EVENT_DTYPE), np.zeros(0, DETAIL_DTYPE))
    content = json.loads(files.header.read_text("utf-8"))
    files.header.write_text(json.dumps(content | change), "utf-8")
    with pytest.raises(TraceError, match=message):
        open_rank(tmp_path, HEADER.rank)


def test_a_group_met_while_recording_is_in_the_header(tmp_path):
    trace = TraceWriter(tmp_path, HEADER)
    trace.add_group("tp", (2, 3))
    trace.close()
    assert open_rank(tmp_path, HEADER.rank).header.groups == {"dp": (1, 3), "tp": (2, 3)}


def test_the_first_manifest_stays(tmp_path):
    write_manifest(tmp_path, Manifest("monday", 4, {"tp": 2, "dp": 2}))
    write_manifest(tmp_path, Manifest("tuesday", 8))
    assert read_manifest(tmp_path) == Manifest("monday", 4, {"tp": 2, "dp": 2})


@given(st.floats(allow_nan=False))
def test_a_metric_keeps_every_bit(value):
    with tempfile.TemporaryDirectory() as folder:
        log = MetricLog(Path(folder), 0)
        log.add(1, "lm loss", value)
        log.close()
        rows, problems = read_metric_logs(Path(folder))
        assert (rows[0][:3], problems) == ((1, 0, "lm loss"), [])
        assert rows[0][3].hex() == value.hex()


def test_a_metric_file_cut_inside_a_line_gives_the_lines_before(tmp_path):
    log = MetricLog(tmp_path, 0)
    for step in (1, 2):
        log.add(step, "lm loss", 0.5)
    log.close()
    path = tmp_path / "metrics.rank00000.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    rows, problems = read_metric_logs(tmp_path)
    assert rows == [(1, 0, "lm loss", 0.5)]
    assert problems == ["metrics.rank00000.jsonl stops making sense at line 2"]


def test_json_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "manifest.json"
    layout.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        layout.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_a_rebuilt_index_stops_at_a_damaged_batch(tmp_path):
    events = np.zeros(30, EVENT_DTYPE)
    events["step"] = np.repeat(np.arange(6), 5)
    files = write(tmp_path, events, np.zeros(0, DETAIL_DTYPE), compress=True)
    names = open_rank(tmp_path, HEADER.rank).names
    index = open_rank(tmp_path, HEADER.rank).index
    raw = bytearray(files.events.read_bytes())
    offset, end = int(index["offset"][2]), int(index["end"][2])
    raw[offset + 500 : end] = bytes(end - offset - 500)
    files.events.write_bytes(raw)
    rebuilt, problems = rebuild_index(FileBatches(files.events, EVENT_DTYPE), names)
    assert rebuilt["num_rows"].sum() == 10
    assert len(problems) == 1
    assert f"bytes {offset} to {end}" in problems[0]


@given(traces(), st.data())
def test_an_index_that_is_damaged_or_cut_is_never_believed(trace, data):
    """Whatever byte is lost or changed, the index that is used is the one that the events give."""
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), *trace)
        right = open_rank(Path(folder), HEADER.rank).index
        raw = bytearray(files.index.read_bytes())
        at = data.draw(st.integers(0, len(raw) - 1))
        if data.draw(st.booleans()):
            raw = raw[:at]
        else:
            raw[at] ^= data.draw(st.integers(1, 255))
        files.index.write_bytes(raw)
        read = open_rank(Path(folder), HEADER.rank)
        assert read.index.tobytes() == right.tobytes()
        assert read.complete


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_details_that_are_lost_are_said_to_be(tmp_path, damage):
    files = write(tmp_path, np.zeros(3, EVENT_DTYPE), np.zeros(2, DETAIL_DTYPE))
    whole = files.details.read_bytes()
    files.details.unlink()
    if damage == "cut":
        files.details.write_bytes(whole[:-30])
    read = open_rank(tmp_path, HEADER.rank)
    assert not read.complete
    assert read.problems[0].startswith("rank00003.details.arrows")
