"""Where in the model and in the step each call is put."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from detlab.schema import Phase
from tests.record.traces import named, only, record


class Tower(nn.Module):
    """An embedding, whose input needs no gradient, under a block that can be recomputed."""

    def __init__(self, recompute=""):
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        self.recompute = recompute

    def forward(self, tokens):
        x = self.embedding(tokens)
        if not self.recompute:
            return self.block(x)
        return checkpoint(self.block, x, use_reentrant=self.recompute == "reentrant")


def train(model, *, steps=1, microbatches=1):
    """Give the work of a plain loop over one model."""

    def work(rec):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rec.attach(model, optimizer)
        for _ in range(steps):
            for _ in range(microbatches):
                tokens = torch.randint(0, 8, (3,))
                loss = model(tokens).square().mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return work


@pytest.fixture
def tower():
    torch.manual_seed(0)
    return Tower()


def test_forward_ops_belong_to_the_innermost_module(tower):
    events = record(train(tower))
    first = [event for event in events if event.phase is Phase.FORWARD]
    assert [event.scope for event in named(first, "aten.addmm.default")] == ["block.0", "block.2"]
    assert only(first, "aten.gelu.default").scope == "block.1"


def test_backward_ops_belong_to_the_module_whose_forward_they_undo(tower):
    events = record(train(tower))
    assert only(events, "aten.gelu_backward.default").scope == "block.1"
    scopes = [event.scope for event in named(events, "aten.mm.default")]
    assert scopes == ["block.2", "block.2", "block.0", "block.0"]


def test_the_backward_of_an_embedding_belongs_to_the_embedding(tower):
    event = only(record(train(tower)), "aten.embedding_dense_backward.default")
    assert (event.scope, event.phase, event.site.microbatch) == ("embedding", Phase.BACKWARD, 0)
    assert event.meta.call_site == "EmbeddingBackward0"


def test_accumulation_belongs_to_the_parameter(tower):
    events = record(train(tower, microbatches=2))
    sums = [event for event in named(events, "aten.add_.Tensor") if event.phase is Phase.BACKWARD]
    assert sorted(event.scope for event in sums) == sorted(name for name, _ in tower.named_parameters())
    assert {event.site.microbatch for event in sums} == {1}


def test_phases_follow_the_step(tower):
    events = record(train(tower))
    assert only(events, "aten.randint.low").phase is Phase.DATA
    assert only(events, "aten.mean.default").phase is Phase.FORWARD  # the loss, outside of the model
    assert only(events, "aten.mean.default").scope == ""
    order = list(dict.fromkeys(event.phase for event in events if event.site.step == 1))
    assert order == [Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]


def test_the_optimizer_has_no_microbatch_and_ends_the_step(tower):
    events = record(train(tower, steps=2))
    updates = [event for event in events if event.phase is Phase.OPTIMIZER]
    assert {event.site.microbatch for event in updates} == {-1}
    assert {event.site.step for event in updates} == {1, 2}


def test_what_follows_a_backward_is_in_no_known_phase(tower):
    def work(rec):
        rec.attach(tower)
        tower(torch.tensor([1])).sum().backward()
        nn.utils.clip_grad_norm_(tower.parameters(), 1.0)

    norms = [event for event in record(work) if "norm" in event.op]
    assert {(event.phase, event.site.microbatch) for event in norms} == {(Phase.UNSPECIFIED, -1)}


def test_microbatches_count_forwards_and_are_known_in_backward(tower):
    events = record(train(tower, steps=2, microbatches=3))
    for op in ("aten.gelu.default", "aten.gelu_backward.default"):
        places = [(event.site.step, event.site.microbatch) for event in named(events, op)]
        assert places == [(step, number) for step in (1, 2) for number in range(3)]
        assert {event.site.call for event in named(events, op)} == {0}


def test_a_backward_after_later_forwards_keeps_its_microbatch(tower):
    def work(rec):
        rec.attach(tower)
        losses = [tower(torch.tensor([k])).sum() for k in range(3)]
        for loss in losses:
            loss.backward()

    events = named(record(work), "aten.gelu_backward.default")
    assert [event.site.microbatch for event in events] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["reentrant", "non-reentrant"])
def test_recomputation_is_its_own_phase_of_its_own_microbatch(kind):
    model = Tower(kind)
    model.embedding.weight.requires_grad_()

    def work(rec):
        rec.attach(model)
        losses = [model(torch.tensor([k])).sum() for k in range(2)]
        for loss in losses:
            loss.backward()

    events = record(work)
    again = [event for event in named(events, "aten.gelu.default") if event.phase is Phase.RECOMPUTE]
    back = named(events, "aten.gelu_backward.default")
    assert [(event.scope, event.site.microbatch) for event in again] == [("block.1", 0), ("block.1", 1)]
    assert [(event.scope, event.site.microbatch) for event in back] == [("block.1", 0), ("block.1", 1)]
    assert {event.phase for event in back} == {Phase.BACKWARD}


def test_an_exception_in_forward_leaves_no_scope_behind(tower):
    def work(rec):
        rec.attach(tower)
        with pytest.raises(IndexError):
            tower(torch.tensor([99]))
        tower(torch.tensor([1]))

    last = [event for event in record(work) if event.phase is Phase.FORWARD][-1]
    assert (last.scope, last.site.microbatch) == ("block.2", 1)


def test_marks_of_the_user_win():
    def work(rec):
        rec.microbatch(4)
        with rec.phase("data"):
            torch.ones(1)
        with rec.phase("state"):
            torch.zeros(1)
        rec.step(7)
        torch.full((1,), 2.0)

    ones, zeros, full = record(work)
    assert (ones.phase, ones.site.microbatch) == (Phase.DATA, 4)
    assert (zeros.phase, zeros.site.microbatch) == (Phase.STATE, -1)
    assert (full.site.step, full.site.microbatch) == (7, -1)


def test_microbatches_of_the_user_replace_the_count(tower):
    def work(rec):
        rec.attach(tower)
        for number in (3, 5):
            rec.microbatch(number)
            tower(torch.tensor([1])).sum().backward()

    events = named(record(work), "aten.gelu_backward.default")
    assert [event.site.microbatch for event in events] == [3, 5]


def test_chunks_of_a_pipeline_rank_have_their_own_names_and_counts():
    chunks = [nn.Linear(2, 2), nn.Linear(2, 2)]

    def work(rec):
        rec.attach(chunks)
        for _ in range(2):
            chunks[1](chunks[0](torch.ones(1, 2)))

    events = named(record(work), "aten.addmm.default")
    assert [(event.scope, event.site.microbatch) for event in events] == [
        ("model_chunk0", 0),
        ("model_chunk1", 0),
        ("model_chunk0", 1),
        ("model_chunk1", 1),
    ]


def test_names_of_wrappers_are_left_out():
    class Float16Module(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x * 2)

    model = Float16Module(Float16Module(nn.Sequential(nn.Linear(2, 2))))

    def work(rec):
        rec.attach(model)
        model(torch.ones(1, 2)).sum().backward()

    events = record(work)
    assert only(events, "aten.addmm.default").scope == "0"
    assert {event.site.microbatch for event in named(events, "aten.mul.Tensor")} == {0}
    assert "0.bias" in {event.scope for event in events}
