"""Settings of recorded runs: what every rank saw, and which ranks do not agree."""

import dataclasses

import polars as pl
import pytest
import torch

from detlab import load_run
from detlab.checks.recipe import check_recipe
from detlab.checks.recipe.sources import read_settings
from detlab.checks.recipe.sources.run import FIRST_PREFIXES
from detlab.record import Recorder
from detlab.testing import Call, make_run
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.training import Recipe, build, set_up


def run_of(*recipes, label="monday"):
    """A run whose ranks say these recipes."""
    run = make_run(
        {rank: [Call("aten.mm.default", "lin", ["w"], ["y"])] for rank in range(len(recipes))}, label=label
    )
    ranks = [
        dataclasses.replace(rank, header=dataclasses.replace(rank.header, recipe=recipe))
        for rank, recipe in zip(run.ranks, recipes, strict=True)
    ]
    return dataclasses.replace(run, ranks=tuple(ranks))


BEFORE = {
    "host": "n1",
    "state": {"deterministic": True, "versions": {"torch": "2.13", "transformer-engine": "2.0"}},
    "env": {"NCCL_ALGO": "Ring"},
    "arguments": {"deterministic_mode": True},
    "model": {"tp_comm_overlap": False, "num_moe_experts": 4},
    "optimizer": {"lr": 0.1, "fp16": False},
}
"""A recipe as recorders wrote it that did not say which variables they keep."""


def test_what_all_ranks_say_is_one_setting():
    found = read_settings(run_of(BEFORE, BEFORE))
    (setting,) = found.by_name["env.NCCL_ALGO"]
    assert (setting.value, setting.where) == ("Ring", "monday: every rank: env.NCCL_ALGO")


def test_ranks_that_disagree_are_named():
    other = {**BEFORE, "env": {"NCCL_ALGO": "Tree"}}
    found = read_settings(run_of(BEFORE, other, BEFORE, BEFORE))
    assert {each.value: each.where for each in found.by_name["env.NCCL_ALGO"]} == {
        "Ring": "monday: ranks 0, 2-3: env.NCCL_ALGO",
        "Tree": "monday: rank 1: env.NCCL_ALGO",
    }


def test_true_and_one_are_two_values():
    found = read_settings(run_of({"arguments": {"x": True}}, {"arguments": {"x": 1}}))
    assert [repr(each.value) for each in found.by_name["args.x"]] == ["True", "1"]


def test_parts_of_a_recipe_have_names_of_their_own():
    found = read_settings(run_of(BEFORE))
    assert found.framework == "torch"
    assert {name: found.values(name) for name in found.by_name if not name.startswith("place.")} == {
        "torch.deterministic": (True,),
        "version.torch": ("2.13",),
        "version.transformer_engine": ("2.0",),
        "env.NCCL_ALGO": ("Ring",),
        "args.deterministic_mode": (True,),
        "args.tp_comm_overlap": (False,),
        "args.num_experts": (4,),
        "args.lr": (0.1,),
        "args.optimizer.fp16": (False,),
    }
    assert found.values("place.host") == ("n1",)
    assert found.values("place.world_size") == (1,)


def test_an_old_recorder_says_nothing_of_variables_that_it_did_not_keep():
    found = read_settings(run_of(BEFORE))
    assert found.env_prefixes == FIRST_PREFIXES
    assert found.says_all_of("env.NVTE_ALLOW_NONDETERMINISTIC_ALGO")
    assert not found.says_all_of("env.MAMBA_DETERMINISTIC")
    newer = {**BEFORE, "recorder": {"environment": ["MAMBA_"]}}
    assert read_settings(run_of(newer)).says_all_of("env.MAMBA_DETERMINISTIC")
    assert not read_settings(run_of(newer, BEFORE)).says_all_of("env.MAMBA_DETERMINISTIC")


def test_only_a_dump_of_megatron_says_all_arguments():
    assert not read_settings(run_of(BEFORE)).says_all_of("args.seed")
    dump = dict.fromkeys(["micro_batch_size", "tensor_model_parallel_size", "seed", "train_iters"], 1)
    assert read_settings(run_of({"arguments": dump})).says_all_of("args.tp_comm_overlap")


def test_a_run_without_recipes_has_a_problem_and_says_nothing_whole():
    found = read_settings(run_of({}, {}))
    assert found.problems == ("monday: recipe: no rank says how it was set up",)
    assert not found.kinds


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A recorded run of this process, whose model copied the flag before it was set."""
    monkeypatch.setenv("CAUSAL_CONV1D_DETERMINISTIC", "0")
    monkeypatch.setenv("NCCL_API_KEY", "planted")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].deterministic_mode = False
    with Recorder(tmp_path / "run", arguments={"deterministic_mode": True}) as rec:
        rec.attach(model)
        model(torch.ones(1, 2))
    return tmp_path / "run"


def test_a_recorded_run_says_what_the_rules_ask(recorded):
    found = read_settings(recorded)
    assert found.values("module.0.deterministic_mode") == (False,)
    assert found.values("env.CAUSAL_CONV1D_DETERMINISTIC") == ("0",)
    assert found.says_all_of("env.MAMBA_DETERMINISTIC") and not found.says_all_of("env.HOME")
    assert found.values("torch.deterministic") == (torch.are_deterministic_algorithms_enabled(),)
    assert found.values("torch.allow_bf16_reduced_precision_reduction")
    assert found.values("version.torch") == (torch.__version__,)
    assert found.problems == ()


def test_a_recorded_run_keeps_no_secret(recorded):
    headers = b"".join(path.read_bytes() for path in recorded.glob("*.header.json"))
    assert b"planted" not in headers and b"NCCL_API_KEY" not in headers


def test_a_run_its_folder_and_its_settings_say_the_same(recorded):
    found = read_settings(recorded)
    assert read_settings(load_run(recorded)).by_name == found.by_name
    assert read_settings(found) is found


def flags_of_late_mode():
    """Build Megatron's model without the mode, turn the mode on in its configuration, and look."""
    from detlab.checks.recipe.live import live_settings

    recipe = Recipe()
    set_up(recipe)
    chunk, optimizer = build(recipe)
    for module in chunk.modules():
        if hasattr(module, "config"):
            module.config.deterministic_mode = True
    found = live_settings([chunk], optimizer)
    flags = {name: found.values(name) for name in found.by_name if name.startswith("module.")}
    return (
        found.framework,
        found.values("args.deterministic_mode"),
        flags,
        found.values("args.use_distributed_optimizer"),
    )


def test_megatron_with_the_mode_turned_on_late_is_seen():
    ((framework, mode, flags, distributed),) = run_on_ranks(1, flags_of_late_mode)
    assert framework == "megatron-lm"
    assert mode == (True,)
    assert flags == {"module.embedding.word_embeddings.deterministic_mode": (False,)}
    assert distributed == (True,)


def test_a_variable_that_some_ranks_lack_is_unset_on_those():
    bare = BEFORE | {"env": {}}
    found = read_settings(run_of(BEFORE, BEFORE, bare, bare))
    said = {each.value: each.where for each in found.by_name["env.NCCL_ALGO"]}
    assert said == {"Ring": "monday: ranks 0-1: env.NCCL_ALGO", None: "monday: ranks 2-3: env.NCCL_ALGO"}
    result = check_recipe(found)
    told = result.findings.filter(pl.col("code") == "DET073")["found"].to_list()
    assert told == ["ranks do not agree on NCCL_ALGO (Ring (ranks 0-1); not set (ranks 2-3))"]


def test_two_halves_of_the_ranks_that_do_not_agree_are_seen():
    other = BEFORE | {"env": {"NCCL_ALGO": "Tree"}}
    result = check_recipe(run_of(BEFORE, BEFORE, other, other))
    assert "DET073" in result.findings["code"].to_list()


def test_a_rank_that_says_nothing_is_a_problem():
    assert read_settings(run_of(BEFORE, {})).problems == ("monday: rank 1: no word of how it was set up",)


def test_a_package_that_is_merely_installed_says_nothing_of_what_trained():
    state = {"versions": {"torch": "2.13.0", "megatron-core": "0.16.1"}, "deterministic": True}
    plain = run_of({"state": state, "arguments": {"lr": 0.1}})
    shown = run_of({"state": state, "model": {"tensor_model_parallel_size": 1}})
    assert [read_settings(run).framework for run in (plain, shown)] == ["torch", "megatron-lm"]


def test_warnings_alone_are_off_where_nobody_turned_them_on():
    flags = {"deterministic": True, "cudnn_benchmark": False}
    result = check_recipe({"framework": "torch", "torch": flags, "env": {}})
    assert "DET031" not in result.findings["code"].to_list()
    warned = check_recipe(
        {"framework": "torch", "torch": flags | {"deterministic_warn_only": True}, "env": {}}
    )
    assert "DET031" in warned.findings["code"].to_list()
