"""The rules: each has a recipe that keeps it, one that breaks it alone, and a source; the page is of them."""

import re
from pathlib import Path

import polars as pl
import pytest

from detlab.checks.recipe import check_recipe
from detlab.checks.recipe.page import page
from detlab.checks.recipe.rules import RULES
from detlab.checks.recipe.topics import TOPICS
from tests.checks.recipe.recipes import ALL, HYBRID, Ranks, make

DOCS = Path(__file__).parents[3] / "docs"
EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
NO_TORCH = ALL - {"torch"}
OP_FUSER = {"args.use_transformer_engine_op_fuser": True, "args.moe_grouped_gemm": True}


def of(framework="megatron-lm", **options):
    """Give the framework and the changes of a case."""
    return framework, options


def spelled(changes):
    return {name.replace(".", "__", 1): value for name, value in changes.items()}


CASES = {
    "DET001": (of(), of(args__deterministic_mode=False)),
    "DET002": (of(env__NCCL_ALGO="CollnetDirect,^NVLS"), of(env__NCCL_ALGO="Ring,Tree")),
    "DET003": (
        of(without=["env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"]),
        of(env__NVTE_ALLOW_NONDETERMINISTIC_ALGO=1),
    ),
    "DET004": (of(env__CUBLAS_WORKSPACE_CONFIG=":16:8"), of(env__CUBLAS_WORKSPACE_CONFIG=":4096:2")),
    "DET005": (
        of(**spelled(HYBRID), env__MAMBA_DETERMINISTIC="1"),
        of(**spelled(HYBRID), env__MAMBA_DETERMINISTIC="0"),
    ),
    "DET006": (
        of(**spelled(HYBRID), env__CAUSAL_CONV1D_DETERMINISTIC="1"),
        of(**spelled(HYBRID), env__CAUSAL_CONV1D_DETERMINISTIC="0"),
    ),
    "DET007": (of(args__cross_entropy_loss_fusion=False), of(args__cross_entropy_loss_fusion=True)),
    "DET008": (of(args__tp_comm_overlap=False), of(args__tp_comm_overlap=True)),
    "DET009": (
        of(args__moe_router_aux_loss_fusion=False, args__moe_router_fusion=True),
        of(args__moe_router_aux_loss_fusion=True, args__moe_router_fusion=True),
    ),
    "DET010": (of(args__moe_router_fusion=False), of(args__moe_router_fusion=True)),
    "DET011": (
        of(version__megatron_core="0.20.0", args__use_flash_attn=True),
        of(version__megatron_core="0.16.1", args__use_flash_attn=True),
    ),
    "DET012": (
        of("megatron-bridge", version__megatron_bridge="0.6.0", args__attention_backend="flash"),
        of("megatron-bridge", version__megatron_bridge="0.2.0", args__attention_backend="flash"),
    ),
    "DET020": (of(**spelled(HYBRID)), of(**spelled(HYBRID | {"version.causal_conv1d": "1.5.4"}))),
    "DET021": (
        of(**spelled(OP_FUSER), version__nvidia_cudnn_frontend="1.28.0"),
        of(**spelled(OP_FUSER), version__nvidia_cudnn_frontend="1.9.0"),
    ),
    "DET030": (of("torch"), of("torch", torch__deterministic=False)),
    "DET031": (of("torch"), of("torch", torch__deterministic_warn_only=True)),
    "DET032": (of(), of(torch__fill_uninitialized_memory=True)),
    "DET033": (of("torch"), of("torch", torch__cudnn_benchmark=True)),
    "DET034": (
        of("torch", kinds=NO_TORCH, without=["torch.deterministic"], torch__cudnn_deterministic=True),
        of("torch", kinds=NO_TORCH, without=["torch.deterministic"], torch__cudnn_deterministic=False),
    ),
    "DET035": (of(), of(torch__float32_matmul_precision="high")),
    "DET036": (
        of(torch__allow_bf16_reduced_precision_reduction=False),
        of(torch__allow_bf16_reduced_precision_reduction=True),
    ),
    "DET037": (of("torchtitan"), of("torchtitan", args__deterministic_mode=False)),
    "DET038": (
        of("torch", without=["env.CUBLAS_WORKSPACE_CONFIG"]),
        of("torch", without=["env.CUBLAS_WORKSPACE_CONFIG"], version__torch="2.8.0"),
    ),
    "DET039": (of("torch"), of("torch", env__NVTE_ALLOW_NONDETERMINISTIC_ALGO="1")),
    "DET040": (
        of("torch", env__NCCL_ALGO="allreduce:tree;reducescatter:ring"),
        of("torch", env__NCCL_ALGO="NVLSTree"),
    ),
    "DET041": (
        of("torch", without=["env.NCCL_ALGO"]),
        of("torch", env__NCCL_ALGO="allreduce:ring;broadcast:ring"),
    ),
    "DET050": (of(**spelled(HYBRID)), of(**spelled(HYBRID | {"env.TRITON_CACHE_AUTOTUNING": "0"}))),
    "DET051": (
        of(env__TRITON_CACHE_AUTOTUNING="1", env__TRITON_CACHE_DIR="/lustre/cache"),
        of(env__TRITON_CACHE_AUTOTUNING="1"),
    ),
    "DET052": (
        of(env__TRITON_CACHE_AUTOTUNING="1", env__TRITON_CACHE_DIR="/lustre/frank/nodes/cache"),
        of(env__TRITON_CACHE_AUTOTUNING="1", env__TRITON_CACHE_DIR="/lustre/cache/${SLURM_PROCID}"),
    ),
    "DET053": (
        of(env__TORCHINDUCTOR_MAX_AUTOTUNE="1", env__TORCHINDUCTOR_DETERMINISTIC="1"),
        of(env__TORCHINDUCTOR_MAX_AUTOTUNE="1"),
    ),
    "DET060": (of("torchtitan", args__seed=0), of("torchtitan", without=["args.seed"])),
    "DET061": (of("torch"), of("torch", env__PYTHONHASHSEED="random")),
    "DET062": (of(args__dataloader__in_order=True), of(**{"args__dataloader.in_order": False})),
    "DET070": (
        of(time__cuda_initialized=9.5, **{"time__env.CUBLAS_WORKSPACE_CONFIG": 1.0}),
        of(time__cuda_initialized=9.5, **{"time__env.CUBLAS_WORKSPACE_CONFIG": 12.0}),
    ),
    "DET071": (
        of(time__model_built=20.0, **{"time__torch.deterministic": 3.0}),
        of(time__model_built=20.0, **{"time__torch.deterministic": 21.5}),
    ),
    "DET072": (
        of(**{"module__embedding.deterministic_mode": True}),
        of(**{"module__embedding.deterministic_mode": False}),
    ),
    "DET073": (of(env__NCCL_PROTO=Ranks(["LL", "LL"])), of(env__NCCL_PROTO=Ranks(["LL", "Simple"]))),
}
"""For each rule a recipe that keeps it and one that breaks it and nothing else."""


PASSES = {"DET034": "invalid"}
"""The rule for recipes that do not say whether deterministic algorithms are on, which never pass."""


def checked(case):
    framework, options = case
    return check_recipe(make(framework, **options))


def test_every_rule_has_a_recipe_that_keeps_it_and_one_that_breaks_it():
    assert [rule.code for rule in RULES] == sorted(CASES)


@EACH
def test_a_recipe_that_keeps_the_rule_breaks_none(rule):
    result = checked(CASES[rule.code][0])
    assert result.findings["code"].to_list() == []
    assert result.verdict == PASSES.get(rule.code, "pass")


@EACH
def test_a_recipe_that_breaks_the_rule_breaks_it_alone(rule):
    result = checked(CASES[rule.code][1])
    assert result.findings.select("code", "severity").rows() == [(rule.code, rule.severity)]
    assert result.verdict == ("fail" if rule.severity == "error" else PASSES.get(rule.code, "pass"))
    finding = result.findings.row(0, named=True)
    assert finding["next"] == rule.fix and rule.sources[0].url in finding["source"]


@EACH
def test_the_state_of_a_rule_is_the_one_of_its_two_recipes(rule):
    kept, broken = (checked(case).table for case in CASES[rule.code])
    states = [
        table.row(by_predicate=pl.col("code") == rule.code, named=True)["state"] for table in (kept, broken)
    ]
    if rule.versions is not None:  # what keeps these is a version they are not for
        assert states == ["does not apply", "broken"]
    else:
        assert states == ["holds", "broken"]


@EACH
def test_a_rule_has_sources_with_an_address(rule):
    assert rule.sources
    assert all(source.title and source.url.startswith("https://") for source in rule.sources)


@EACH
def test_no_sentence_of_a_rule_ends_twice(rule):
    assert not any(text.endswith(".") for text in (rule.why, rule.otherwise, rule.fix))


def test_codes_stand_once_and_in_order():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"DET\d{3}", code) for code in codes)


def test_the_page_is_made_from_the_rules():
    """If it fails: ``python -m detlab.checks.recipe.page > docs/rules.md``."""
    assert (DOCS / "rules.md").read_text("utf-8") == page()


def test_the_page_has_a_heading_for_each_rule_and_a_row_for_each_topic():
    text = page()
    assert re.findall(r"^### (DET\d+)$", text, re.MULTILINE) == [rule.code for rule in RULES]
    assert all(f"\n| {topic.name} |" in text for topic in TOPICS)
