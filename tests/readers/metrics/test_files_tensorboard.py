"""TensorBoard event files: every kind of scalar with its bits, restarts, several writers, and damage."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import DetlabError, load_run
from detlab.readers.metrics.tfrecord import find_records
from tests.readers.metrics.events import (
    TIME,
    event,
    field,
    header,
    losses,
    record,
    simple,
    tensor,
    write_events,
)
from tests.readers.metrics.logs import numbers

STEPS = [1, 2, 3, 4, 5, 6]


def bits(path):
    return load_run(path).metrics.select("name", "width", "bits").rows()


# ---------------------------------------------------------------- scalars


def test_simple_values_are_32_bits_wide(tmp_path):
    path = write_events(tmp_path, event(0, simple("lm loss", 0.1)), event(1, simple("lm loss", -0.0)))
    first = float(np.float32(0.1))
    assert numbers(path) == [(0, "lm loss", first, None, "value"), (1, "lm loss", -0.0, None, "zero")]
    assert bits(path) == [("lm loss", 32, 0x3DCCCCCD), ("lm loss", 32, 0x80000000)]
    assert load_run(path).problems == ()


def test_one_event_may_hold_many_values(tmp_path):
    path = write_events(tmp_path, event(300, simple("loss", 2.5), simple("norm", 0.5)))
    assert numbers(path) == [(300, "loss", 2.5, None, "value"), (300, "norm", 0.5, None, "value")]


@pytest.mark.parametrize("bits_of_nan", [0x7FC00000, 0xFFC00001, 0x7F800001, 0x7FFFFFFF])
def test_a_nan_keeps_its_bits(bits_of_nan, tmp_path):
    path = write_events(tmp_path, event(1, simple("loss", struct.pack("<I", bits_of_nan))))
    [row] = load_run(path).metrics.select("state", "width", "bits").rows()
    assert row == ("nan", 32, bits_of_nan)


def test_infinity_is_a_state(tmp_path):
    path = write_events(tmp_path, event(1, simple("loss", float("-inf"))))
    assert load_run(path).metrics["state"].to_list() == ["inf"]


FLOAT, DOUBLE = struct.pack("<f", 0.1), struct.pack("<d", 0.1)


@pytest.mark.parametrize(
    ("value", "width"),
    [
        (tensor("loss", 1, field(4, FLOAT)), 32),
        (tensor("loss", 1, field(5, FLOAT)), 32),
        (tensor("loss", 1, b"\x2d" + FLOAT), 32),
        (tensor("loss", 2, field(4, DOUBLE)), 64),
        (tensor("loss", 2, field(6, DOUBLE)), 64),
        (tensor("loss", 2, b"\x31" + DOUBLE), 64),
        (tensor("loss", 2, field(6, DOUBLE), shape=field(2, field(1, 1))), 64),
        (tensor("loss", 2, field(6, DOUBLE), plugin=""), 64),
    ],
    ids=["content32", "packed32", "plain32", "content64", "packed64", "plain64", "one-element", "no-plugin"],
)
def test_a_scalar_in_a_tensor_has_the_width_of_the_tensor(value, width, tmp_path):
    path = write_events(tmp_path, event(1, value))
    assert bits(path) == [("loss", width, 0x3DCCCCCD if width == 32 else 0x3FB999999999999A)]


def test_what_is_no_scalar_is_left_out(tmp_path):
    text = tensor("config", 7, field(8, b"abcd"), plugin="text")
    histogram = tensor("weights", 2, field(4, DOUBLE * 3), shape=field(2, field(1, 3)), plugin="histograms")
    later = tensor("curve", 1, field(4, FLOAT), plugin="")
    path = write_events(
        tmp_path,
        event(1, text, histogram, tensor("curve", 1, field(4, FLOAT), plugin="pr_curves")),
        event(2, later, simple("loss", 2.5)),
        record(field(1, TIME) + field(4, b"graph")),
    )
    assert numbers(path) == [(2, "loss", 2.5, None, "value")]
    assert load_run(path).problems == ()


def test_a_scalar_of_another_width_is_said_to_be_left_out(tmp_path):
    half = tensor("fp8 scale", 19, field(13, b"\x00\x3c"))
    run = load_run(write_events(tmp_path, event(1, simple("loss", 2.5), half)))
    assert run.metrics["name"].to_list() == ["loss"]
    assert "neither 32 nor 64 bits wide are left out: fp8 scale" in run.log.files["why"][0]


def test_metrics_that_count_samples_in_place_of_steps_are_left_out_and_said(tmp_path):
    path = write_events(
        tmp_path, event(2, simple("lm loss", 2.5)), event(64, simple("lm loss vs samples", 2.5))
    )
    assert numbers(path, "lm loss") == [(2, 2.5)]
    run = load_run(path)
    assert run.metrics["step"].to_list() == [2]
    assert "1 tags that end with ' vs samples'" in run.log.files["why"][0]


# ---------------------------------------------------------------- restarts and writers


def test_each_file_after_a_restart_is_a_later_segment_in_the_order_of_time(tmp_path):
    write_events(tmp_path, *losses([1, 2, 3, 4], TIME), time=TIME, name="events.out.tfevents.9.z.1.0")
    write_events(
        tmp_path, *losses([3, 4, 5], TIME + 100), time=TIME + 100, name="events.out.tfevents.10.a.1.0"
    )
    write_events(tmp_path, *losses([5, 6], TIME - 100), time=TIME - 100, name="events.out.tfevents.11.b.1.0")
    segments = load_run(tmp_path).metrics.group_by("segment", maintain_order=True).agg("step").rows()
    assert segments == [(0, [5, 6]), (1, [1, 2, 3, 4]), (2, [3, 4, 5])]


def test_events_without_a_time_are_ordered_by_the_name_of_their_file(tmp_path):
    for time, steps in ((9, [3, 4]), (11, [2, 5]), (10, [1, 2])):
        events = [event(step, simple("loss", 2.5 + time), time=0.0) for step in steps]
        write_events(tmp_path, *events, time=0.0, name=f"events.out.tfevents.{time}.node")
    segments = load_run(tmp_path).metrics.group_by("segment", maintain_order=True).agg("step").rows()
    assert segments == [(0, [3, 4]), (1, [1, 2]), (2, [2, 5])]


def test_a_newest_file_with_nothing_but_its_header_is_skipped_and_said(tmp_path):
    write_events(tmp_path, *losses(STEPS), time=TIME)
    write_events(tmp_path, time=TIME + 100)
    run = load_run(tmp_path)
    assert run.metrics["segment"].unique().to_list() == [0]
    assert run.metrics["step"].to_list() == STEPS
    assert run.log.files["num_records"].to_list() == [6, 0]
    assert run.log.files["why"][1].endswith("; it has no scalars")
    assert run.problems == ()


def test_nothing_but_a_header_is_one_sentence(tmp_path):
    with pytest.raises(DetlabError, match=r"events\.out\.tfevents.*it has no scalars"):
        load_run(write_events(tmp_path))


def test_a_tag_whose_steps_go_back_begins_a_segment_for_all_tags(tmp_path):
    both = [event(step, simple("loss", 2.5), simple("norm", 0.5)) for step in (1, 2, 3, 2, 3, 1)]
    metrics = load_run(write_events(tmp_path, *both)).metrics
    rows = metrics.filter(name="norm").select("segment", "step").rows()
    assert rows == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 1)]


def test_an_evaluation_behind_the_training_is_no_restart(tmp_path):
    path = write_events(
        tmp_path, event(1, simple("loss", 2.5)), event(2, simple("loss", 2.5)), event(1, simple("eval", 2.5))
    )
    assert load_run(path).metrics["segment"].unique().to_list() == [0]


def test_training_and_validation_written_side_by_side_are_two_metrics_and_no_restart(tmp_path):
    write_events(tmp_path / "train", *losses(STEPS))
    write_events(tmp_path / "validation", *losses(STEPS, shift=0.5), time=TIME + 1)
    metrics = load_run(tmp_path).metrics
    assert metrics["segment"].unique().to_list() == [0]
    assert sorted(metrics["name"].unique()) == ["train/loss", "validation/loss"]


def test_folders_of_ranks_give_the_rank(tmp_path):
    for rank in (0, 1):
        write_events(tmp_path / f"rank_{rank}", *losses(STEPS, shift=rank / 2))
    metrics = load_run(tmp_path).metrics
    assert metrics["name"].unique().to_list() == ["loss"]
    assert metrics.filter(step=1).select("rank", "value", "segment").rows() == [
        (0, 2 + 1 / 64, 0),
        (1, 2.5 + 1 / 64, 0),
    ]


def test_a_second_writer_of_other_tags_changes_no_name(tmp_path):
    write_events(tmp_path, *losses(STEPS), name="events.out.tfevents.1.a.0")
    write_events(
        tmp_path, *losses(STEPS, TIME + 1, tag="eval"), time=TIME + 1, name="events.out.tfevents.1.a.1"
    )
    metrics = load_run(tmp_path).metrics
    assert sorted(metrics["name"].unique()) == ["eval", "loss"]
    assert metrics["segment"].unique().to_list() == [0]


def test_two_writers_of_one_tag_in_one_folder_are_told_apart(tmp_path):
    write_events(tmp_path, *losses(STEPS), name="events.out.tfevents.1.a.0")
    write_events(tmp_path, *losses(STEPS, TIME + 1, shift=1.0), name="events.out.tfevents.1.a.1")
    assert sorted(load_run(tmp_path).metrics["name"].unique()) == ["writer_0/loss", "writer_1/loss"]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("lost", [1, 3, 5, 20, 40])
def test_a_file_cut_inside_a_record_gives_what_is_whole_and_says_what_is_missing(lost, tmp_path):
    path = write_events(tmp_path, *losses(STEPS))
    content = path.read_bytes()
    last = len(content) - len(losses(STEPS)[-1])
    path.write_bytes(content[:-lost])
    run = load_run(path)
    assert run.metrics["step"].to_list() == STEPS[:-1]
    [problem] = run.problems
    assert problem.startswith(f"{path.name}, byte {last}: the file ends ")


def test_a_record_that_does_not_fit_its_checksum_is_left_out_and_said(tmp_path):
    path = write_events(tmp_path, *losses(STEPS))
    content = bytearray(path.read_bytes())
    start = len(header()) + 2 * len(losses(STEPS)[0])
    content[start + 12 + 20] ^= 1
    path.write_bytes(content)
    run = load_run(path)
    assert run.metrics["step"].to_list() == [1, 2, 4, 5, 6]
    assert run.problems == (f"{path.name}, byte {start}: a record does not fit its checksum; it is left out",)


def test_after_a_damaged_length_reading_goes_on_at_the_next_record(tmp_path):
    path = write_events(tmp_path, *losses(STEPS))
    content = bytearray(path.read_bytes())
    size = len(losses(STEPS)[0])
    start = len(header()) + 2 * size
    content[start + 3] ^= 1
    path.write_bytes(content)
    run = load_run(path)
    assert run.metrics["step"].to_list() == [1, 2, 4, 5, 6]
    assert run.problems == (
        f"{path.name}, byte {start}: the length of a record does not fit its checksum; {size} bytes are lost",
    )


def test_a_hole_of_zeros_loses_what_it_covers(tmp_path):
    path = write_events(tmp_path, *losses(STEPS))
    content = bytearray(path.read_bytes())
    size = len(losses(STEPS)[0])
    start = len(header()) + size
    content[start : start + 2 * size] = bytes(2 * size)
    path.write_bytes(content)
    assert load_run(path).metrics["step"].to_list() == [1, 4, 5, 6]


def test_a_record_that_is_no_event_is_said(tmp_path):
    path = write_events(tmp_path, record(b"\xff" * 9), *losses([1]))
    run = load_run(path)
    assert run.metrics["step"].to_list() == [1]
    assert run.problems == (
        f"{path.name}, byte {len(header()) + 12}: a record is no TensorBoard event; it is left out",
    )


@pytest.mark.parametrize(
    ("content", "finding"), [(b"", "byte 0: the file is empty"), (b"log", "byte 0: the file ends")]
)
def test_a_file_without_a_record_is_one_sentence(content, finding, tmp_path):
    (tmp_path / "events.out.tfevents.1.a").write_bytes(content)
    with pytest.raises(DetlabError, match=finding):
        load_run(tmp_path / "events.out.tfevents.1.a")


def test_a_folder_with_one_empty_file_loads_the_other_with_a_problem(tmp_path):
    write_events(tmp_path, *losses(STEPS))
    (tmp_path / "events.out.tfevents.1.a").write_bytes(b"")
    run = load_run(tmp_path)
    assert run.metrics["step"].to_list() == STEPS
    assert len(run.problems) == 1
    assert "the file is empty" in run.problems[0]


@given(st.lists(st.binary(max_size=40), max_size=12), st.data())
def test_records_are_those_that_were_written_and_one_flipped_bit_spoils_one(payloads, data):
    content = bytearray(b"".join(record(payload) for payload in payloads))
    found = find_records(np.frombuffer(content, np.uint8))
    assert [
        bytes(content[at : at + size]) for at, size in zip(found.starts, found.lengths, strict=True)
    ] == payloads
    assert found.problems == ()
    if payloads:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        damaged = find_records(np.frombuffer(bytes(content), np.uint8))
        assert len(damaged.starts) == len(payloads) - 1
        assert len(damaged.problems) == 1
