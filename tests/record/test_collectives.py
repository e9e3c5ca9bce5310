"""Collectives over gloo in real processes: one event each, hashed when complete."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

from detlab.digest import fold, signature, tensor_digest
from detlab.record import Recorder
from detlab.schema import Evidence, Flag, Kind, Phase
from detlab.store import open_rank
from tests.megatron_cpu.processes import run_on_ranks
from tests.record.traces import Event, named, read_events


def folded(*values, scalars=()):
    tensors = [torch.tensor(value) for value in values]
    parts = [(tensor_digest(t), signature("float32", tuple(t.shape))) for t in tensors]
    return fold(parts, scalars)


@dataclass
class Seen:
    """What a rank recorded, and the members of its communicators."""

    events: list[Event]
    groups: dict[str, tuple[int, ...]]

    def one(self, op: str) -> Event:
        (event,) = named(self.events, op)
        return event


def recorded(work, **options):
    """Run ``work`` on this rank inside a recorder and read it back."""
    with tempfile.TemporaryDirectory() as folder:
        with Recorder(folder, **options) as rec:
            work(rec)
        rank = dist.get_rank()
        return Seen(read_events(folder, rank), dict(open_rank(Path(folder), rank).header.groups))


def on_two_ranks(work, **options) -> list[Seen]:
    return run_on_ranks(2, _recorded_with, work, options)


def _recorded_with(work, options):
    return recorded(work, **options)


def all_reduce(rec):
    x = torch.full((2,), float(dist.get_rank()))
    dist.all_reduce(x, op=dist.ReduceOp.MAX)


def test_an_all_reduce_is_one_event_with_both_sides():
    for rank, seen in enumerate(on_two_ranks(all_reduce)):
        event = seen.one("c10d.allreduce_.default")
        assert event.kind is Kind.COLLECTIVE
        assert event.in_digest == folded([float(rank)] * 2, scalars=[None, "reduce_op=max"])
        assert event.out_digest == folded([1.0, 1.0])
        assert event.site.callee.group == "ranks:0,1"
        assert event.meta.attributes == (("reduce_op", "max"),)
        assert seen.groups == {"ranks:0,1": (0, 1)}


def two_at_once(rec):
    a, b = torch.ones(2), torch.full((3,), 2.0)
    first, second = dist.all_reduce(a, async_op=True), dist.all_reduce(b, async_op=True)
    second.wait()
    torch.zeros(1)
    first.wait()


def test_each_of_two_outstanding_works_is_hashed_when_it_is_waited_for():
    for seen in on_two_ranks(two_at_once):
        assert [event.op for event in seen.events[-3:]] == [
            "c10d.allreduce_.default",
            "aten.zeros.default",
            "c10d.allreduce_.default",
        ]
        second, _, first = seen.events[-3:]
        assert (second.out_digest, first.out_digest) == (folded([4.0] * 3), folded([2.0, 2.0]))
        assert second.seq > first.seq
        assert second.site.call == 1


def never_waited(rec):
    dist.all_reduce(torch.ones(2), async_op=True)
    torch.zeros(1)


def test_what_nobody_waits_for_has_no_output_evidence():
    for seen in on_two_ranks(never_waited):
        event = seen.one("c10d.allreduce_.default")
        assert event is seen.events[-1]
        assert event.flags & Flag.NOT_WAITED_FOR
        assert (event.inputs, event.outputs, event.num_out) == (Evidence.EXACT, Evidence.NONE, 1)


def waited_in_the_next_step(rec):
    work = dist.all_reduce(torch.ones(2), async_op=True)
    rec.step(2)
    work.wait()


def test_a_collective_may_be_waited_for_in_the_next_step():
    for seen in on_two_ranks(waited_in_the_next_step):
        event = seen.one("c10d.allreduce_.default")
        assert (event.site.step, event.outputs, event.flags) == (1, Evidence.EXACT, Flag(0))


def looked_at_in_flight(rec):
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    x.view(2, 2)
    work.wait()
    x.view(4, 1)


def test_a_view_of_bytes_in_flight_is_not_hashed():
    for seen in on_two_ranks(looked_at_in_flight):
        before, after = named(seen.events, "aten.view.default")
        assert (before.outputs, after.outputs) == (Evidence.NONE, Evidence.EXACT)
        assert before.flags & Flag.COPY_IN_FLIGHT
        assert not after.flags & Flag.COPY_IN_FLIGHT


def point_to_point(rec):
    other = 1 - dist.get_rank()
    out, into = torch.full((2,), float(dist.get_rank())), torch.empty(2)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, out, other, tag=7), dist.P2POp(dist.irecv, into, other, tag=7)]
    )
    for work in works:
        work.wait()
    into.neg()


def test_messages_tell_their_peers_and_a_receive_has_no_input():
    for rank, seen in enumerate(on_two_ranks(point_to_point)):
        send, receive = seen.one("c10d.send.default"), seen.one("c10d.recv_.default")
        assert send.meta.attributes == (("dst", str(1 - rank)), ("tag", "7"))
        assert receive.meta.attributes == (("src", str(1 - rank)), ("tag", "7"))
        assert (send.num_in, send.num_out, receive.num_in, receive.num_out) == (1, 0, 0, 1)
        assert receive.out_digest == folded([1.0 - rank] * 2)
        assert not seen.one("aten.neg.default").flags & Flag.FRESH_MEMORY


def rooted(rec):
    x = torch.full((2,), float(dist.get_rank()))
    dist.broadcast(x, 1)
    dist.reduce(x, 0)


def test_only_the_source_of_a_broadcast_reads_and_only_the_root_of_a_reduce_gets():
    zero, one = on_two_ranks(rooted)
    for seen, num_in in ((zero, 0), (one, 1)):
        event = seen.one("c10d.broadcast_.default")
        assert (event.num_in, event.num_out) == (num_in, 1)
        assert event.out_digest == folded([1.0, 1.0])
        assert event.meta.attributes == (("root", "1"),)
    assert (zero.one("c10d.reduce_.default").num_in, zero.one("c10d.reduce_.default").num_out) == (1, 1)
    assert (one.one("c10d.reduce_.default").num_in, one.one("c10d.reduce_.default").num_out) == (1, 0)
    assert zero.one("c10d.reduce_.default").out_digest == folded([2.0, 2.0])


def gathering(rec):
    rank = float(dist.get_rank())
    parts = [torch.empty(1), torch.empty(1)]
    dist.all_gather(parts, torch.tensor([rank]))
    dist.all_to_all_single(torch.empty(2), torch.tensor([rank, rank + 10]))
    dist.reduce_scatter(torch.empty(1), [torch.tensor([rank]), torch.tensor([rank])])


def test_what_is_gathered_scattered_and_exchanged_is_only_an_output():
    for rank, seen in enumerate(on_two_ranks(gathering)):
        gather, exchange = seen.one("c10d.allgather_.default"), seen.one("c10d.alltoall_base_.default")
        scatter = seen.one("c10d.reduce_scatter_.default")
        assert (gather.num_in, gather.num_out, gather.out_digest) == (1, 2, folded([0.0], [1.0]))
        assert (exchange.num_in, exchange.num_out) == (2, 1)  # a slice for each member
        assert exchange.out_digest == folded([10.0 * rank, 10.0 * rank + 1])
        assert (scatter.num_in, scatter.num_out, scatter.out_digest) == (2, 1, folded([1.0]))


def in_one_tensor(rec):
    rank = float(dist.get_rank())
    dist.all_gather_into_tensor(torch.empty(4), torch.tensor([rank, rank]))
    dist.reduce_scatter_tensor(torch.empty(1), torch.tensor([rank, rank + 1]))
    sizes = [1, 2] if rank == 0 else [1, 1]
    dist.all_to_all_single(
        torch.empty(2 if rank == 0 else 3), torch.ones(sum(sizes)), [1, 1] if rank == 0 else [2, 1], sizes
    )


def test_the_one_tensor_of_a_collective_is_cut_into_a_piece_for_each_member():
    for rank, seen in enumerate(on_two_ranks(in_one_tensor)):
        gather, scatter = (
            seen.one("c10d._allgather_base_.default"),
            seen.one("c10d._reduce_scatter_base_.default"),
        )
        assert gather.out_digest == folded([0.0, 0.0], [1.0, 1.0])
        assert scatter.in_digest == folded([float(rank)], [rank + 1.0], scalars=["reduce_op=sum"])
        exchange = seen.one("c10d.alltoall_base_.default")
        assert [meta.shape for meta in exchange.meta.inputs] == ([(1,), (2,)] if rank == 0 else [(1,), (1,)])


def coalesced(rec):
    x, y = torch.ones(2), torch.ones(3)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()


def test_coalesced_collectives_are_one_event():
    for seen in on_two_ranks(coalesced):
        event = seen.one("c10d.allreduce_coalesced_.default")
        assert event.out_digest == folded([2.0] * 2, [2.0] * 3)


def coalesced_by_the_backend(rec):
    into = torch.zeros(2)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.isend(torch.ones(2), 1)
        dist.irecv(into, 1)
    torch.zeros(1)
    manager.wait()


@pytest.fixture
def fake_world():
    """Give a world of two whose other member is not there; its backend coalesces as NCCL does."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_what_a_backend_coalesces_is_complete_when_the_one_work_is_waited_for(fake_world):
    seen = recorded(coalesced_by_the_backend)
    assert [event.op for event in seen.events[-3:]] == [
        "aten.zeros.default",
        "c10d.send.default",
        "c10d.recv_.default",
    ]
    assert not any(event.flags & Flag.NOT_WAITED_FOR for event in seen.events)


def functionally(rec):
    x = functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    x.view(1, 2)
    x + 1


def test_a_functional_collective_is_complete_when_its_tensor_is_waited_for():
    for seen in on_two_ranks(functionally):
        event = seen.one("_c10d_functional.all_reduce.default")
        assert event.out_digest == folded([2.0, 2.0])
        assert event.flags == Flag(0)
        assert event.meta.attributes == (("reduce_op", "sum"),)
        assert seen.one("aten.add.Tensor").in_digest == folded([2.0, 2.0], scalars=[1])
        assert not named(seen.events, "_c10d_functional.wait_tensor.default")


def barrier(rec):
    dist.barrier()


def test_a_barrier_has_no_evidence():
    for seen in on_two_ranks(barrier):
        event = seen.one("c10d.barrier.default")
        assert (event.inputs, event.outputs, event.num_in, event.num_out) == (0, 0, 0, 0)


def groups(rec):
    first, second = dist.new_group([1, 0]), dist.new_group([0, 1])
    for group in (None, first, second, first):
        dist.all_reduce(torch.ones(1), group=group)


def test_groups_with_the_same_members_are_told_apart():
    for seen in on_two_ranks(groups):
        found = [event.site.callee.group for event in named(seen.events, "c10d.allreduce_.default")]
        assert found == ["ranks:0,1", "ranks:0,1;2", "ranks:0,1;3", "ranks:0,1;2"]


def data_parallel(rec):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    rec.attach(model)
    model(torch.ones(1, 2)).sum().backward()


def test_a_reduction_that_torch_waits_for_in_its_core_is_said_to_be_not_waited_for():
    for seen in on_two_ranks(data_parallel):
        reductions = [e for e in named(seen.events, "c10d.allreduce_.default") if e.phase is Phase.BACKWARD]
        assert len(reductions) == 1
        assert reductions[0].flags & Flag.NOT_WAITED_FOR
        assert reductions[0].inputs is Evidence.EXACT


def failing(rec):
    raise ValueError("planted")


def test_the_traceback_of_a_rank_is_not_lost():
    with pytest.raises(RuntimeError, match="planted"):
        on_two_ranks(failing)


def gone(rec):
    import os

    if dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()


def test_a_rank_that_dies_is_told():
    with pytest.raises(RuntimeError, match=r"rank [01] (ended|failed)"):
        on_two_ranks(gone)


def two_ranks_one_folder(folder):
    with Recorder(folder):
        all_reduce(None)
    return dist.get_rank()


def test_all_ranks_write_into_one_folder(tmp_path):
    run_on_ranks(2, two_ranks_one_folder, str(tmp_path))
    for rank in range(2):
        assert open_rank(tmp_path, rank).header.coordinate.dp == rank
        assert read_events(tmp_path, rank)
