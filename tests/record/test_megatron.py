"""The recorder on real Megatron-Core training: two equal runs have no event that differs."""

from dataclasses import replace

import pytest

from detlab.schema import Evidence, Flag, Kind, Phase
from detlab.store import open_rank, read_manifest
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe, train
from tests.record.traces import different, named, read_events

LAYOUTS = {
    "DP2": (2, Recipe()),
    "TP2 with sequence parallelism": (2, Recipe(tp=2, sequence_parallel=True)),
    "TP2 x DP2": (4, Recipe(tp=2)),
    "DP2 with recomputation": (2, Recipe(recompute=True, distributed_optimizer=False)),
}


def record_run(folder, world_size, recipe, **options):
    """Train and give the events of each rank."""
    losses = run_on_ranks(world_size, train, recipe, str(folder), options)
    assert all(len(each) == recipe.num_steps for each in losses)
    return [read_events(folder, rank) for rank in range(world_size)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Give the runs of a layout, each trained once for all tests of this module."""
    done = {}

    def give(layout, number):
        if (layout, number) not in done:
            folder = tmp_path_factory.mktemp("run")
            done[layout, number] = folder, record_run(folder, *LAYOUTS[layout], steps="1-3")
        return done[layout, number]

    return give


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_equal_runs_have_no_event_that_differs(run, layout):
    (_, first), (_, second) = run(layout, 0), run(layout, 1)
    for a, b in zip(first, second, strict=True):
        assert not different(a, b)
        assert [event.flags for event in a] == [event.flags for event in b]
        assert {event.site.step for event in a} == {1, 2, 3}


def test_another_seed_is_seen_from_the_first_op_that_reads_a_weight(run, tmp_path):
    _, (first, *_) = run("DP2", 0)
    world_size, recipe = LAYOUTS["DP2"]
    other, *_ = record_run(tmp_path, world_size, replace(recipe, seed=4), steps="1")
    one_step = [event for event in first if event.site.step == 1]
    assert different(one_step, other)[0].scope == "embedding.word_embeddings"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_fresh_memory_lacks_evidence(run, layout):
    for events in run(layout, 0)[1]:
        without = [event for event in events if not event.outputs]
        assert without
        assert all(event.flags & Flag.FRESH_MEMORY for event in without)
        reads = [event for event in events if event.flags & Flag.FRESH_MEMORY and event.outputs]
        assert not reads  # nothing computes with memory that nobody wrote


def test_every_rank_knows_its_place_and_its_groups(run):
    folder, _ = run("TP2 x DP2", 0)
    headers = [open_rank(folder, rank).header for rank in range(4)]
    places = [(header.coordinate.tp, header.coordinate.dp) for header in headers]
    assert places == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert (headers[3].groups["tp"], headers[3].groups["dp"]) == ((2, 3), (1, 3))
    assert headers[0].recipe["model"]["tensor_model_parallel_size"] == 2
    assert headers[0].recipe["optimizer"]["use_distributed_optimizer"] is True
    manifest = read_manifest(folder)
    assert (manifest.world_size, manifest.layout["tp"], manifest.layout["dp"]) == (4, 2, 2)


def test_gradients_are_reduced_in_a_phase_of_their_own(run):
    for events in run("TP2 x DP2", 0)[1]:
        reductions = [event for event in events if "reduce_scatter" in event.op]
        assert reductions
        for event in reductions:
            assert (event.phase, event.site.microbatch) == (Phase.GRAD_REDUCE, -1)
            assert event.site.callee.group == "dp_cp"
            assert dict(event.meta.attributes)["reduce_op"] == "sum"


def test_collectives_are_complete_and_none_was_left(run):
    for layout in LAYOUTS:
        for events in run(layout, 0)[1]:
            collectives = [event for event in events if event.kind is Kind.COLLECTIVE]
            assert collectives
            assert all(event.outputs is Evidence.EXACT for event in collectives if event.num_out)
            assert not any(event.flags & Flag.NOT_WAITED_FOR for event in collectives)


def test_tensor_parallel_collectives_belong_to_the_layer_that_needs_them(run):
    for events in run("TP2 with sequence parallelism", 0)[1]:
        gathers = [e for e in named(events, "c10d._allgather_base_.default") if e.phase is Phase.FORWARD]
        assert "decoder.layers.0.mlp.linear_fc1" in {event.scope for event in gathers}
        assert {event.site.callee.group for event in gathers} == {"tp"}


def test_every_backward_op_of_the_model_has_its_module(run):
    for events in run("DP2", 0)[1]:
        nowhere = [event for event in events if event.phase is Phase.BACKWARD and not event.scope]
        assert len(nowhere) < 0.12 * len(events)  # the loss and the cast around the model
        embedding = [e for e in events if "embedding_dense_backward" in e.op]
        assert {event.scope for event in embedding} == {
            "embedding.word_embeddings",
            "embedding.position_embeddings",
        }
        assert {event.site.microbatch for event in embedding} == {0, 1}


def test_recomputation_repeats_the_forward_of_every_layer(run):
    for events in run("DP2 with recomputation", 0)[1]:
        for phase in (Phase.FORWARD, Phase.RECOMPUTE):
            norms = [e for e in named(events, "aten.native_layer_norm.default") if e.phase is phase]
            scopes = {event.scope for event in norms}
            assert {"decoder.layers.0.input_layernorm", "decoder.layers.1.input_layernorm"} <= scopes
            assert {event.site.microbatch for event in norms} == {0, 1}


def test_a_recording_of_some_ranks_leaves_the_training_as_it_is(run, tmp_path):
    world_size, recipe = LAYOUTS["DP2"]
    options = {"ranks": "1", "steps": "2"}  # scratch memory of Megatron is made in the step before
    losses = run_on_ranks(world_size, train, recipe, str(tmp_path / "some"), options)
    assert losses == run_on_ranks(world_size, train, recipe, str(tmp_path / "none"), {"ranks": "9"})
    events = read_events(tmp_path / "some", 1)
    assert not (tmp_path / "some" / "rank00000.header.json").exists()
    whole = [event for event in run("DP2", 0)[1][1] if event.site.step == 2]
    assert not different(events, whole)
