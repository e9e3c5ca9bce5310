"""Snapshots write the state that a step begins with, by names that another process gives it too."""

import io
from argparse import Namespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from detlab import check_replicas, compare, load_run
from detlab.errors import RecordingError
from detlab.record import Recorder
from detlab.record.snapshot import leaves
from detlab.schema import Evidence, Kind, Phase
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe
from tests.record.traces import read_events, record


def model_and_optimizer(seed=0, **changes):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    return model, torch.optim.AdamW(model.parameters(), **changes)


def step(model, optimizer):
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def snapshot(*args, **states):
    """Give the events of one snapshot by name."""
    events = record(lambda rec: rec.snapshot(*args, **states))
    assert len({event.scope for event in events}) == len(events)
    return {event.scope: event for event in events}


def shown(event):
    return dict(event.meta.attributes).get("value")


def test_parameters_buffers_and_the_state_of_adam_are_named_after_the_parameters():
    model, optimizer = model_and_optimizer(lr=0.25)
    step(model, optimizer)
    events = snapshot("saved", model, optimizer)
    parameters = [name for name, _ in model.named_parameters()]
    of_adam = {
        f"optimizer.state.{name}.{key}" for name in parameters for key in ("exp_avg", "exp_avg_sq", "step")
    }
    of_model = {f"model.{name}" for name in model.state_dict()}
    assert of_adam | of_model <= set(events)
    assert shown(events["optimizer.param_groups.0.lr"]) == "0.25"
    assert shown(events["optimizer.state.0.weight.step"]) == "1.0"
    assert not any(name.endswith(("params", "param_groups.0.step")) for name in events)


def test_a_snapshot_is_of_the_phase_state_has_no_inputs_and_exact_evidence():
    events = snapshot("first use", *model_and_optimizer(), note="a")
    assert "rng.cpu" in events
    for event in events.values():
        assert (event.kind, event.phase, event.op) == (Kind.STATE, Phase.STATE, "first use")
        assert (event.num_in, event.site.microbatch, event.site.step) == (0, -1, 1)
        assert event.outputs is Evidence.EXACT
        assert not event.flags


@pytest.mark.parametrize("name", ["model.0.weight", "model.1.running_mean", "optimizer.state.0.bias.exp_avg"])
def test_one_flipped_bit_is_seen_in_the_state_that_has_it_and_in_no_other(name):
    model, optimizer = model_and_optimizer()
    step(model, optimizer)
    before = snapshot("saved", model, optimizer)
    owner = optimizer.state[model[0].bias]["exp_avg"] if "optimizer" in name else model.state_dict()[name[6:]]
    owner.view(torch.int32).view(-1)[-1] ^= 1
    after = snapshot("saved", model, optimizer)
    assert [key for key in before if before[key].values != after[key].values] == [name]


def test_the_sign_of_a_zero_is_part_of_a_state():
    assert snapshot("a", x=0.0)["x"].values != snapshot("a", x=-0.0)["x"].values
    assert (
        snapshot("a", x=torch.tensor([0.0]))["x"].values != snapshot("a", x=torch.tensor([-0.0]))["x"].values
    )


def test_a_generator_that_has_drawn_has_another_state():
    torch.manual_seed(1)
    before = snapshot("a")
    torch.rand(1)
    np.random.rand(1)
    after = snapshot("a")
    changed = {name for name in before if before[name].values != after[name].values}
    assert "rng.cpu" in changed and any(name.startswith("rng.numpy") for name in changed)
    assert "rng.python" in before and "rng.python" not in changed


def test_what_is_given_is_taken_apart_to_its_leaves():
    schedule = torch.optim.lr_scheduler.StepLR(model_and_optimizer()[1], 3)
    given_states = {
        "nested": {"b": [1, 2.5], "a": [{"x": torch.ones(2)}, b"bytes"]},
        "blob": io.BytesIO(b"bytes"),
        "args": Namespace(samples=8),
        "array": np.arange(3),
        "schedule": schedule,
        "generator": torch.Generator(),
        "dtype": torch.bfloat16,
    }
    events = snapshot("a", **given_states)
    assert {"nested.a.0.x", "nested.a.1", "nested.b", "blob", "args.samples", "array", "generator"} <= set(
        events
    )
    assert shown(events["nested.b"]) == "[1, 2.5]" and shown(events["args.samples"]) == "8"
    assert shown(events["schedule.last_epoch"]) == "0" and shown(events["dtype"]) == "'torch.bfloat16'"
    assert events["blob"].values == events["nested.a.1"].values


def test_what_has_no_bits_to_record_is_written_without_evidence():
    events = snapshot("a", thing={"lambda": lambda: 0, "number": 1})
    event = events["thing.lambda"]
    assert event.outputs is Evidence.NONE and dict(event.meta.attributes) == {"type": "function"}
    assert events["thing.number"].outputs is Evidence.EXACT


@pytest.mark.parametrize(
    "tensor", [torch.eye(2).to_sparse(), torch.ones(1, device="meta")], ids=["sparse", "meta"]
)
def test_a_tensor_without_plain_bytes_has_no_evidence_and_ends_nothing(tensor):
    events = snapshot("a", x=tensor, y=torch.ones(1))
    assert (events["x"].outputs, events["y"].outputs) == (Evidence.NONE, Evidence.EXACT)


def test_a_state_that_holds_itself_ends():
    circle = {}
    circle["again"] = circle
    assert [event.outputs for name, event in snapshot("a", x=circle).items() if "again" in name] == [
        Evidence.NONE
    ]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_the_order_in_which_a_mapping_was_built_does_not_matter(given_states):
    def written(value):
        return [(name, repr(leaf)) for name, leaf in leaves("x", value)]

    turned = dict(reversed(given_states.items()))
    assert sorted(written(turned)) == sorted(written(given_states))


def test_steps_and_ranks_that_are_not_selected_write_nothing(tmp_path):
    def work(rec):
        rec.snapshot("saved")
        rec.step(2)
        rec.snapshot("saved")

    assert {event.site.step for event in record(work, steps="2")} == {2}
    with Recorder(tmp_path / "run", ranks="1") as rec:
        work(rec)
    assert not (tmp_path / "run").exists()


def test_a_snapshot_after_a_step_belongs_to_the_step_that_begins_with_it():
    model, optimizer = model_and_optimizer()

    def train(rec):
        rec.attach(model, optimizer)
        step(model, optimizer)
        rec.snapshot("saved", model)

    events = [event for event in record(train) if event.kind is Kind.STATE]
    assert {event.site.step for event in events} == {2}


def test_without_ops_only_states_and_metrics_are_written(tmp_path):
    model, optimizer = model_and_optimizer()
    with Recorder(tmp_path, ops=False) as rec:
        rec.attach(model, optimizer)
        for _ in range(2):
            rec.snapshot("begun", model, optimizer)
            step(model, optimizer)
            rec.metric("loss", 1.5)
    assert {(event.kind, event.site.step) for event in read_events(tmp_path)} == {
        (Kind.STATE, 1),
        (Kind.STATE, 2),
    }
    assert load_run(tmp_path).metrics["step"].to_list() == [1, 2]


def test_a_snapshot_adds_no_op_and_changes_no_call():
    def work(rec, *, with_snapshot):
        torch.ones(2).add(1)
        if with_snapshot:
            rec.snapshot("a", *model, x=transposed)
        torch.rand(3)

    model, transposed = model_and_optimizer(), torch.arange(6).view(2, 3).t()
    runs = []
    for with_snapshot in (False, True):
        torch.manual_seed(0)
        events = record(lambda rec, now=with_snapshot: work(rec, with_snapshot=now))
        runs.append([(e.site, e.values) for e in events if e.kind is not Kind.STATE])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("wrong", [("",), (3,), ("saved", "model"), ("saved", None, "optimizer")])
def test_what_is_no_moment_model_or_optimizer_is_refused(wrong):
    with pytest.raises(RecordingError, match=r"rec\.snapshot was given"):
        snapshot(*wrong)


def record_run(folder, **changes):
    """Record two steps, the state before each, with something changed."""
    model, optimizer = model_and_optimizer()
    with Recorder(folder, ops=False) as rec:
        for number in (1, 2):
            rec.step(number)
            rec.snapshot("begun", model, optimizer, scale=changes.get("scale", 1.0))
            step(model, optimizer)
            if number == 1 and "flip" in changes:
                model[0].bias.data.view(torch.int32)[0] ^= 1
    return load_run(folder)


@pytest.mark.parametrize(
    ("changes", "where"), [({"scale": 2.0}, (1, "scale")), ({"flip": 1}, (2, "model.0.bias"))]
)
def test_a_comparison_finds_the_state_that_differs_and_calls_it_a_state(changes, where, tmp_path):
    torch.manual_seed(0)
    a = record_run(tmp_path / "a")
    assert compare(a, record_run(tmp_path / "same")).verdict == "match"
    result = compare(a, record_run(tmp_path / "b", **changes))
    first = result.first.row(0, named=True)
    assert result.verdict == "diverged" and (first["step"], first["scope"]) == where
    assert result.findings["class"].to_list()[0] == "state"


def test_a_state_at_a_moment_that_one_run_alone_recorded_is_a_note_of_structure(tmp_path):
    for name, moment in (("a", "saved"), ("b", "loaded")):
        with Recorder(tmp_path / name) as rec:
            rec.snapshot(moment, x=torch.ones(2))
            torch.ones(2).add(1)
    result = compare(load_run(tmp_path / "a"), load_run(tmp_path / "b"))
    assert result.verdict == "match"
    assert [each["kind"] for each in result.to_json()["ignored"]] == ["structure_note"]


def test_a_state_that_one_run_alone_has_at_a_moment_of_both_is_a_divergence(tmp_path):
    for name, states in (("a", {"x": 1, "y": 2}), ("b", {"x": 1})):
        with Recorder(tmp_path / name) as rec:
            rec.snapshot("loaded", **states)
            torch.ones(2).add(1)
    result = compare(load_run(tmp_path / "a"), load_run(tmp_path / "b"))
    assert result.verdict == "diverged"
    assert result.findings["class"].to_list() == ["structure"]
    assert result.first["scope"].to_list() == ["y"]


LAYOUTS = {
    "DistributedOptimizer": (2, Recipe(precision="bf16", num_steps=2)),
    "Float16OptimizerWithFloat16Params": (
        1,
        Recipe(precision="fp16", num_steps=2, distributed_optimizer=False),
    ),
    "FP32Optimizer": (1, Recipe(num_steps=2, distributed_optimizer=False)),
    "DistributedOptimizer in float32": (1, Recipe(num_steps=2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_state_of_megatron_has_the_names_of_its_parameters(layout, tmp_path):
    world_size, recipe = LAYOUTS[layout]
    run_on_ranks(world_size, snapshot_megatron, recipe, str(tmp_path))
    events = {rank: {e.scope: e for e in read_events(tmp_path, rank)} for rank in range(world_size)}
    names = {name[6:] for name in events[0] if name.startswith("model.")}
    for key in ("exp_avg", "exp_avg_sq", "step"):
        found = {n[16:].removesuffix(f".{key}") for e in events.values() for n in e if n.endswith(f".{key}")}
        assert found == names, key
    masters = {
        n[16:].removesuffix(".master_param") for e in events.values() for n in e if "master_param" in n
    }
    assert masters == (names if recipe.precision != "fp32" else set())
    assert ("optimizer.grad_scaler.scale" in events[0]) is (recipe.precision == "fp16")
    assert {"rng.megatron.model-parallel-rng", "optimizer.param_groups.1.lr"} <= set(events[0])
    assert all(event.outputs is Evidence.EXACT for each in events.values() for event in each.values())


def snapshot_megatron(recipe, folder):
    """Make a step, and write the state after it."""
    from tests.megatron_cpu.training import build, random_batches, set_up
    from tests.megatron_cpu.training import step as train_step

    set_up(recipe)
    chunk, optimizer = build(recipe)
    with Recorder(folder, ops=False) as rec:
        train_step(recipe, chunk, optimizer, random_batches(recipe), rec)
        rec.snapshot("saved", [chunk], optimizer)


def test_data_parallel_ranks_that_hold_other_parameters_are_found_in_snapshots(tmp_path):
    recipe = Recipe(precision="bf16", num_steps=3, distributed_optimizer=False)
    for name, odd in (("sound", False), ("odd", True)):
        run_on_ranks(2, train_with_odd_rank, recipe, str(tmp_path / name), odd)
    assert check_replicas(load_run(tmp_path / "sound")).verdict == "pass"
    result = check_replicas(load_run(tmp_path / "odd"))
    assert result.verdict == "fail"
    assert "decoder.layers.1.mlp.linear_fc1.weight" in str(result.findings["where"].to_list())


def train_with_odd_rank(recipe, folder, odd):
    """Train, with the state before each step; one rank flips a bit of its parameters."""
    from tests.megatron_cpu.training import build, random_batches, set_up
    from tests.megatron_cpu.training import step as train_step

    set_up(recipe)
    chunk, optimizer = build(recipe)
    with Recorder(folder, ops=False) as rec:
        rec.attach([chunk], optimizer)
        batches = random_batches(recipe)
        for number in range(recipe.num_steps):
            rec.snapshot("begun", [chunk], optimizer)
            train_step(recipe, chunk, optimizer, batches, rec)
            if odd and number == 1 and torch.distributed.get_rank() == 1:
                weight = dict(chunk.module.module.named_parameters())[
                    "decoder.layers.1.mlp.linear_fc1.weight"
                ]
                weight.data.view(torch.int16)[0] ^= 1
