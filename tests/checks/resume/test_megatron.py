"""Real resumes of a tiny Megatron-Core GPT: sound ones are certified, and each thing left out is named."""

from dataclasses import replace

import pytest

from detlab import check_resume
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.resuming import COMPONENTS, Job, run
from tests.megatron_cpu.training import Recipe

SHARDINGS = ("dp_reshardable", "fully_reshardable")
RECIPE = Recipe(tp=2, precision="bf16", hidden=128, overlap=False, num_steps=5)
"""Five steps, saved after the second, in four ranks: tensor parallel 2 x data parallel 2.

Every bucket of gradients ends at a multiple of 128 numbers: where one does not, Megatron-Core 0.16.1 saves
what comes after it in other places in ``fully_reshardable``, as ``sample_traces/resume/shifted`` shows.
"""
ALONE = replace(RECIPE, tp=1, hidden=32)
STATE_ONLY = {"ops": False}


def train(folder, recipe, world_size, **changes):
    """Train in new processes, and give the losses of every rank."""
    job = Job(recipe, str(folder), **({"options": STATE_ONLY} | changes))
    return run_on_ranks(world_size, run, job)


def resume(folder, reference, recipe, world_size, sharding, **changes):
    """Go on in new processes from what the reference saved after its second step."""
    checkpoint = str(reference / "checkpoint" / sharding)
    return train(folder, recipe, world_size, load=checkpoint, shardings=(sharding,), **changes)


def check(reference, resumed, sharding):
    """Check with all that was recorded: checkpoints, states, and metrics of the later steps."""
    a, b = (
        {
            "checkpoint": folder / moment / sharding,
            "later": folder / "end" / sharding,
            "trace": folder / "trace",
        }
        for folder, moment in ((reference, "checkpoint"), (resumed, "loaded"))
    )
    return check_resume(a, b, at="load")


def errors(result, stage):
    """Give the components of which an error was found at a stage."""
    return set(result.findings.filter(severity="error", stage=stage)["component"])


def verified(result):
    """Give the components that hold."""
    return {each.what for each in result.verified}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    return folder, train(folder, RECIPE, 4, shardings=SHARDINGS, save_at=2)


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_correct_resume_is_certified_bitwise_over_three_later_steps(sharding, reference, tmp_path):
    folder, losses = reference
    later = resume(tmp_path, folder, RECIPE, 4, sharding)
    assert later == [each[2:] for each in losses] and len(later[0]) == 3
    result = check(folder, tmp_path, sharding)
    assert result.verdict == "pass", result
    expected = set(COMPONENTS) - {"loss scale"} | {"data order", "loss", "grad norm"}
    assert expected <= verified(result)
    assert {each.evidence.partition(":")[0] for each in result.verified} == {"exact"}
    assert len(result.table) and all(result.table["caught"])


def test_resharded_to_one_tensor_parallel_rank_the_state_at_load_is_certified(reference, tmp_path):
    folder, _ = reference
    recipe = replace(RECIPE, tp=1)
    resume(tmp_path, folder, recipe, 2, "fully_reshardable", without=("rng",))
    a, b = folder / "checkpoint" / "fully_reshardable", tmp_path / "loaded" / "fully_reshardable"
    state = ("parameters", "master weights", "moments", "optimizer step", "param groups", "scheduler")
    result = check_resume(a, b, at="load", only=(*state, "data position"))
    assert result.verdict == "pass", result
    assert {*state, "data position"} <= verified(result)
    assert {each.evidence.partition(":")[0] for each in result.verified} == {"exact"}
    whole = check_resume(a, b, at="load")
    assert "rng" not in verified(whole)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Give a reference of one process and what it was trained with, in bf16 or fp16."""
    done = {}

    def give(precision):
        if precision not in done:
            folder = tmp_path_factory.mktemp(precision)
            recipe = replace(ALONE, precision=precision)
            train(folder, recipe, 1, save_at=2)
            done[precision] = folder, recipe
        return done[precision]

    return give


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_that_was_not_restored_is_named(component, alone, tmp_path):
    folder, recipe = alone("fp16" if component == "loss scale" else "bf16")
    if component == "param groups":  # what the checkpoint says of them is what the script says, but for this
        recipe = replace(recipe, adam_beta2=0.9)
    resume(tmp_path, folder, recipe, 1, "dp_reshardable", without=(component,))
    result = check(folder, tmp_path, "dp_reshardable")
    assert result.verdict == "fail", result
    assert errors(result, "state at load") == {component}, result
    assert errors(result, "state later"), "the steps after it do not show it"


def test_a_generator_that_is_seeded_again_after_the_load_is_found_at_its_first_use(alone, tmp_path):
    folder, recipe = alone("bf16")
    resume(tmp_path, folder, recipe, 1, "dp_reshardable", seeds_again=True)
    result = check(folder, tmp_path, "dp_reshardable")
    assert result.verdict == "fail", result
    assert errors(result, "state at load") == set(), result
    assert errors(result, "first use") == {"rng"}, result


def test_loss_scale_and_changed_arguments_are_restored_when_nothing_is_left_out(alone, tmp_path):
    folder, recipe = alone("fp16")
    resume(tmp_path, folder, replace(recipe, adam_beta2=0.9), 1, "dp_reshardable")
    result = check(folder, tmp_path, "dp_reshardable")
    assert result.verdict == "pass", result
    assert {"loss scale", "param groups"} <= verified(result)


def test_a_resume_recorded_op_by_op_is_certified_though_its_loader_takes_all_data_again(tmp_path):
    recipe = replace(ALONE, num_layers=1)
    folders = {name: tmp_path / name for name in ("reference", "sound", "rewound")}
    train(folders["reference"], recipe, 1, save_at=2, options={"steps": "2-5"})
    for name, without in (("sound", ()), ("rewound", ("data position",))):
        every_op = {"without": without, "options": {}}
        resume(folders[name], folders["reference"], recipe, 1, "dp_reshardable", **every_op)
    reference, sound, rewound = (folder / "trace" for folder in folders.values())
    result = check_resume(reference, sound)
    assert result.verdict == "pass", result
    assert {"calls", "data order", "loss"} <= verified(result)
    result = check_resume(reference, rewound)
    assert result.verdict == "fail", result
    assert errors(result, "data") == {"data order"}, result
