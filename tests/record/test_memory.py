"""Memory that nobody has written yet is no evidence, and reading it is told."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.record.geometry import place_of
from detlab.record.memory import UnsettledMemory
from detlab.schema import Evidence, Flag
from tests.record.traces import named, only, record

FRESH = Flag.FRESH_MEMORY


def test_fresh_memory_is_not_hashed():
    event = only(record(lambda rec: torch.empty(3)), "aten.empty.memory_format")
    assert (event.outputs, event.num_out) == (Evidence.NONE, 1)
    assert event.flags & FRESH


def test_a_view_of_fresh_memory_is_not_hashed_either():
    event = only(record(lambda rec: torch.empty(4).view(2, 2)), "aten.view.default")
    assert (event.inputs, event.outputs) == (Evidence.NONE, Evidence.NONE)
    assert event.flags & FRESH


def test_what_overwrites_fresh_memory_has_evidence_again():
    event = only(record(lambda rec: torch.empty(3).fill_(1)), "aten.fill_.Scalar")
    assert (event.num_in, event.outputs, event.flags & FRESH) == (0, Evidence.EXACT, Flag(0))


def test_reading_fresh_memory_is_hashed_and_told():
    event = only(record(lambda rec: torch.empty(3) + 1), "aten.add.Tensor")
    assert (event.inputs, event.outputs) == (Evidence.EXACT, Evidence.EXACT)
    assert event.flags & FRESH


def test_a_partial_write_leaves_the_rest_fresh():
    def work(rec):
        x = torch.empty(4)
        x[:3].fill_(1)
        x[:3].neg()
        x.abs()

    events = record(work)
    assert not only(events, "aten.neg.default").flags & FRESH
    assert only(events, "aten.abs.default").flags & FRESH


def test_partial_writes_that_cover_all_leave_nothing_fresh():
    def work(rec):
        x = torch.empty(4, 4)
        for column in range(4):
            x[:, column].fill_(column)
        x.abs()

    assert not only(record(work), "aten.abs.default").flags & FRESH


def test_a_transposed_write_covers_all():
    def work(rec):
        x = torch.empty(3, 4)
        x.t().fill_(1)
        x.abs()

    assert not only(record(work), "aten.abs.default").flags & FRESH


def test_an_indexed_write_into_fresh_memory_is_no_read_and_settles_nothing():
    def work(rec):
        x = torch.empty(4)
        x.index_fill_(0, torch.tensor([1]), 1.0)
        x.abs()

    events = record(work)
    write = only(events, "aten.index_fill_.int_Scalar")
    assert (write.outputs, write.inputs) == (Evidence.NONE, Evidence.EXACT)  # the index is known
    assert only(events, "aten.abs.default").flags & FRESH


def test_storage_of_a_dead_tensor_says_nothing_of_the_next_one_at_its_address():
    def work(rec):
        for _ in range(20):
            torch.empty(1000)
            torch.ones(1000).abs()

    assert not any(event.flags & FRESH for event in named(record(work), "aten.abs.default"))


def test_memory_grown_by_a_resize_is_fresh():
    def work(rec):
        x = torch.ones(2)
        x.resize_(2000)
        x[:2].neg()
        x.abs()

    events = record(work)
    assert not only(events, "aten.neg.default").flags & FRESH
    assert only(events, "aten.abs.default").flags & FRESH


def test_memory_that_torch_fills_is_not_fresh():
    torch.use_deterministic_algorithms(True)
    try:
        event = only(record(lambda rec: torch.empty(3)), "aten.empty.memory_format")
    finally:
        torch.use_deterministic_algorithms(False)
    assert (event.outputs, event.flags) == (Evidence.EXACT, Flag.HOST_SCALAR)


def test_nothing_is_believed_of_memory_over_a_time_that_was_not_recorded():
    kept = []

    def work(rec):
        kept.append(torch.empty(3))
        rec.step(2)
        kept[0].fill_(1)  # not seen
        rec.step(3)
        kept[0].abs()

    assert not only(record(work, steps="1,3"), "aten.abs.default").flags & FRESH


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=8), st.integers(0, 39))
def test_a_byte_is_fresh_just_when_no_write_has_covered_it(writes, byte):
    buffer = torch.zeros(40, dtype=torch.uint8)
    memory = UnsettledMemory()
    memory.mark(buffer, place_of(buffer), FRESH)
    for start, stop in writes:
        piece = buffer[start:stop]
        memory.settle(piece, place_of(piece))
    written = any(start <= byte < stop for start, stop in writes)
    assert bool(memory.flag(place_of(buffer[byte : byte + 1]))) is not written
