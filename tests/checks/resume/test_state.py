"""Two states as a frame of leaves: what is named, in which order, and what is never called a restore."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.resume.components import BOOKKEEPING, COMPONENTS, RECIPE, RULES, component_of
from detlab.checks.resume.state import STATE_SCHEMA, judge
from detlab.checks.resume.words import AT_LOAD, UNTOLD

EVIDENCE = "exact: every byte"


def leaf(name, state="equal", *, kind="tensor", **more):
    usual = {
        "name": name,
        "component": component_of(name, is_tensor=kind == "tensor"),
        "kind": kind,
        "state": state,
        "zeroed_a": False,
        "zeroed_b": False,
        "num_elements": 4,
        "evidence": EVIDENCE,
    }
    return usual | more


def judged(*leaves, stage=AT_LOAD):
    return judge(pl.DataFrame(leaves, STATE_SCHEMA), stage)


def test_all_state_differs_and_the_books_are_told_in_one_line():
    books = [
        leaf(
            f"args.tensorboard_dir_{n}",
            "different" if n % 2 else "equal",
            kind="scalar",
            value_a="x",
            value_b="y",
        )
        for n in range(5293)
    ]
    weights = [leaf(f"decoder.layers.{n}.weight", "different", num_different=4) for n in range(20)]
    moments = [leaf(f"optimizer.state.exp_avg.decoder.layers.{n}.weight", "different") for n in range(18)]
    found = judged(*books, *weights, *moments, stage=UNTOLD)
    assert [(row["component"], row["severity"]) for row in found.findings] == [
        ("parameters", "error"),
        ("moments", "error"),
        (BOOKKEEPING, "note"),
    ]
    assert "38 of 38 state tensors differ in all" in found.findings[0]["found"]
    assert "2,646 of 5,293 leaves that keep the books" in found.findings[2]["found"]
    assert found.verified == ()


def test_a_step_that_went_back_stands_before_what_only_differs():
    found = judged(
        leaf("decoder.weight", "different"),
        leaf("optimizer.param_groups.0.step", "different", kind="scalar", value_a="3000", value_b="0"),
        leaf("optimizer.param_groups.0.lr", kind="scalar", value_a="0.1", value_b="0.1"),
    )
    assert [row["component"] for row in found.findings] == ["optimizer step", "parameters"]
    assert found.findings[0]["found"].startswith("optimizer step 3000 -> 0")


def test_a_step_tensor_that_went_back_is_told_with_its_number():
    row = leaf(
        "optimizer.state.0.step", "different", num_elements=1, zeroed_b=True, max_abs=3000.0, num_different=1
    )
    assert judged(row).findings[0]["found"].startswith("optimizer step 3000 -> 0")


def test_missing_extra_zeroed_and_reset_stand_in_this_order():
    found = judged(
        leaf("rng_state.0.cuda_rng_state", "different", initial=True),
        leaf("optimizer.state.exp_avg.w", "different", zeroed_b=True),
        leaf("decoder.weight", "only_b"),
        leaf("opt_param_scheduler.num_steps", "only_a", kind="scalar"),
    )
    assert [(row["component"], row["kind"]) for row in found.findings] == [
        ("scheduler", "missing"),
        ("parameters", "extra"),
        ("moments", "zeroed"),
        ("rng", "reset"),
    ]


@pytest.mark.parametrize("scale", ["65536.0", "4294967296.0"])
def test_a_loss_scale_back_at_its_initial_value_is_reset(scale):
    row = leaf("optimizer.grad_scaler.scale", "different", kind="scalar", value_a="131072.0", value_b=scale)
    assert judged(row).findings[0]["kind"] == "reset"


def test_zeros_on_both_sides_show_no_restore():
    row = leaf("optimizer.state.exp_avg.w", zeroed_a=True, zeroed_b=True)
    assert "a restore is not shown" in judged(row).notes[0]


def test_leaves_that_cannot_be_read_are_no_equality():
    found = judged(leaf("decoder.weight", "unreadable"), leaf("decoder.bias"))
    assert found.verified == ()
    assert (
        found.unreadable[0][1].startswith("1 parameters tensor")
        or "cannot be compared" in found.unreadable[0][1]
    )


def test_a_recipe_that_differs_is_a_warning_and_no_failure():
    row = leaf("args.lr", "different", kind="scalar", value_a="0.1", value_b="0.2")
    assert judged(row).findings[0]["severity"] == "warning"


NAMES = (
    "decoder.layers.weight", "optimizer.state.fp32_param.decoder.weight", "optimizer.state.exp_avg.w",
    "optimizer.state.0.step", "optimizer.param_groups.0.lr", "rng_state.0.cuda_rng_state",
    "opt_param_scheduler.x", "grad_scaler.scale", "iteration", "sampler.epoch", "loss_mask",
    "decoder.fc1._extra_state", "stranger",
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(["equal", "different", "only_a", "only_b", "changed", "unreadable"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_a_component_is_verified_just_when_each_of_its_leaves_is_equal(drawn):
    rows = [leaf(name, state, zeroed_a=a, zeroed_b=b) for name, state, a, b in drawn]
    found = judged(*rows)
    by_component = {}
    for row in rows:
        by_component.setdefault(row["component"], []).append(row["state"])
    equal = {component for component, states in by_component.items() if set(states) == {"equal"}}
    wrong = {component for component, states in by_component.items() if set(states) - {"equal", "unreadable"}}
    assert {each.what for each in found.verified} == equal
    assert {row["component"] for row in found.findings} == wrong
    assert len(found.findings) == len(wrong)
    assert all(row["severity"] == "error" for row in found.findings)


SPELLINGS = [
    ("optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight", "moments"),
    ("optimizer.state.fp32_param.decoder.layers.mlp.linear_fc1.weight", "master weights"),
    ("optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, "
    "torch.float32).bucket_idx_0.param",
     "master weights"),
    ("decoder.layers.self_attention.linear_qkv.weight", "parameters"),
    ("decoder.layers.mlp.linear_fc1._extra_state/shard_0_2", "fp8 state"),
    ("rng_state/shard_0.0_1.1.random_rng_state", "rng"),
    ("optimizer.grad_scaler.scale", "loss scale"),
    ("optimizer.fp32_from_fp16_params.0.1", "master weights"),
    ("optimizer_state_dict.single_partition_of_fp32_groups.0", "master weights"),
    ("optimizer_state_dict.base_optimizer_state.state.0.exp_avg", "moments"),
    ("state.3.exp_avg_sq", "moments"),
    ("state.3.step", "optimizer step"),
    ("layers.0.attention.wq.weight", "parameters"),
    ("optimizer.state.layers.0.attention.wq.weight.step", "optimizer step"),
    ("module.transformer.h.0.attn.c_attn.weight", "parameters"),
    ("optimizer.state.decoder.final_layernorm.bias.master_param", "master weights"),
    ("something.strange", "other"),
    ("timestamp", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "component"), SPELLINGS)
def test_a_tensor_belongs_to_its_component(name, component):
    assert component_of(name, is_tensor=True) == component


NUMBERS = [
    ("optimizer.param_groups.0.step", "optimizer step"),
    ("optimizer.optimizer.param_groups.0.betas", "param groups"),
    ("opt_param_scheduler.num_steps", "scheduler"),
    ("_last_lr.0", "scheduler"),
    ("args.consumed_train_samples", "data position"),
    ("iteration", "data position"),
    ("dataloader.dp_rank_0", "data position"),
    ("train_state.step", "data position"),
    ("data.sampler.epoch", "data order"),
    ("args.lr", RECIPE),
    ("args.iteration", BOOKKEEPING),
    ("args.save", BOOKKEEPING),
    ("checkpoint_version", BOOKKEEPING),
    ("timestamp", BOOKKEEPING),
    ("something.strange", "other"),
]


@pytest.mark.parametrize(("name", "component"), NUMBERS)
def test_a_number_belongs_to_its_component(name, component):
    assert component_of(name, is_tensor=False) == component


@given(st.text(max_size=40), st.booleans())
def test_any_name_has_a_component_and_no_tensor_keeps_the_books(name, is_tensor):
    component = component_of(name, is_tensor=is_tensor)
    assert component in COMPONENTS
    assert not (is_tensor and component == BOOKKEEPING)


def test_every_rule_says_whose_names_it_knows():
    assert all(rule.spelled_by for rule in RULES)
    assert {rule.component for rule in RULES} == set(COMPONENTS)
