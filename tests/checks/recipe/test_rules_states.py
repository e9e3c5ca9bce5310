"""What a rule says of settings that are unset, unknown, filled, or of another version or framework."""

from dataclasses import replace

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.recipe import Setting, check_recipe
from detlab.checks.recipe.rules.requirements import LeavesOut, Tokens, is_older
from tests.checks.recipe.recipes import ALL, MEGATRON, Ranks, make, settings

BERT = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0
  NCCL_ALGO: Ring
  CUBLAS_WORKSPACE_CONFIG: :4096:8
MODEL_ARGS:
  --micro-batch-size: 4
  --tensor-model-parallel-size: 2
  --deterministic-mode: true
  --no-gradient-accumulation-fusion: true
  --bf16: true
  --attention-backend: unfused
TEST_TYPE: ckpt-resume
"""

GPT = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1
MODEL_ARGS:
  --micro-batch-size: 4
  --context-parallel-size: 2
  --no-gradient-accumulation-fusion: true
  --bf16: true
  --attention-backend: flash
TEST_TYPE: ckpt-resume
"""


@pytest.fixture
def recipe(tmp_path):
    """Write a recipe of Megatron's functional tests, and check it."""

    def write(text, name="model_config.yaml"):
        (tmp_path / name).write_text(text, "utf-8")
        return check_recipe(tmp_path / name)

    return write


def state(result, code):
    rows = {row["code"]: row for row in result.table.iter_rows(named=True)}
    return rows[code]["state"], rows[code]["says"]


def found(result):
    return dict(result.findings.select("code", "found").iter_rows())


def test_the_deterministic_recipe_of_megatron_passes(recipe):
    result = recipe(BERT)
    assert (result.verdict, result.findings.height) == ("pass", 0)
    assert {"DET001", "DET002", "DET003", "DET004"} <= {each.what for each in result.verified}


def test_the_other_one_fails_by_what_it_allows_and_by_what_is_unset(recipe):
    result = recipe(GPT)
    assert result.verdict == "fail"
    assert found(result) == {
        "DET001": "deterministic_mode is not set",
        "DET002": "NCCL_ALGO is not set",
        "DET003": "NVTE_ALLOW_NONDETERMINISTIC_ALGO is 1",
        "DET004": "CUBLAS_WORKSPACE_CONFIG is not set",
    }
    expected = dict(result.findings.select("code", "expected").iter_rows())
    assert expected["DET004"] == ":4096:8 or :16:8" and expected["DET001"] == "on"
    assert "NVTE_ALLOW" in result.findings.row(2, named=True)["where"]


def test_what_a_file_cannot_know_is_not_checked_by_its_code(recipe):
    result = recipe(BERT)
    unknown = {each.what: each.why for each in result.not_checked}
    assert "torch.cudnn_benchmark" in unknown["DET033"]
    assert not set(unknown) & {each.what for each in result.verified}


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "CUBLAS_WORKSPACE_CONFIG"])
def test_what_is_unset_is_filled_by_the_deterministic_mode(name):
    result = check_recipe(make(without=[f"env.{name}"]))
    assert result.verdict == "pass"
    assert any(name in each.says and "deterministic mode makes" in each.says for each in result.verified)


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "CUBLAS_WORKSPACE_CONFIG"])
def test_an_older_megatron_fills_nothing(name):
    result = check_recipe(make(without=[f"env.{name}"], version__megatron_core="0.16.1"))
    assert list(found(result).values()) == [f"{name} is not set"]


def test_an_environment_that_is_not_all_known_is_not_taken_for_unset():
    result = check_recipe(make(without=["env.NCCL_ALGO"], kinds=ALL - {"env"}))
    assert state(result, "DET002") == ("not checked", "the source does not say NCCL_ALGO")


def test_what_is_said_to_be_unset_is_unset():
    result = check_recipe(make(env__NCCL_ALGO=None, version__megatron_core="0.16.1", kinds=()))
    assert found(result) == {"DET002": "NCCL_ALGO is not set"}


def test_what_a_script_leaves_to_its_caller_is_not_checked():
    script = replace(make(without=["env.NCCL_ALGO"], kinds=ALL - {"env"}), partly=frozenset({"env"}))
    assert "not set here" in state(check_recipe(script), "DET002")[1]


@pytest.mark.parametrize("value", ["$ALGO", "${ALGO}", "$(cat algorithm)", "Ring,$MORE", "`cat algorithm`"])
@pytest.mark.parametrize(("framework", "code"), [("megatron-lm", "DET002"), ("torch", "DET040")])
def test_a_value_that_the_shell_would_make_is_not_known(value, framework, code):
    result = check_recipe(make(framework, env__NCCL_ALGO=value))
    assert state(result, code)[0] == "not checked"
    assert result.findings.height == 0


def test_a_wrong_value_beside_an_unknown_one_is_found():
    assert set(found(check_recipe(make(env__NCCL_ALGO=Ranks(["$ALGO", "Tree"]))))) == {"DET002", "DET073"}


def test_a_condition_with_an_unknown_value_is_neither_met_nor_not():
    result = check_recipe(make(without=["env.NCCL_ALGO"], args__deterministic_mode="${MODE}"))
    assert {state(result, code)[0] for code in ("DET001", "DET002")} == {"not checked"}


def test_torchs_flag_need_not_be_known_where_the_framework_sets_it():
    result = check_recipe(make(without=["torch.deterministic"], kinds=ALL - {"torch"}))
    assert state(result, "DET030")[0] == "holds"


def test_torchs_flag_that_is_off_is_found_though_the_framework_was_asked():
    assert set(found(check_recipe(make(torch__deterministic=False)))) == {"DET030"}


def test_a_cpu_needs_nothing_of_cuda():
    result = check_recipe(
        make(version__torch="2.13.0+cpu", version__megatron_core="0.16.1", env__NCCL_ALGO="Tree",
             env__CUBLAS_WORKSPACE_CONFIG="", env__NVTE_ALLOW_NONDETERMINISTIC_ALGO="1")
    )  # fmt: skip
    assert result.findings.height == 0
    assert state(result, "DET002")[0] == "does not apply"


def test_a_rule_of_a_framework_is_not_checked_where_none_is_named():
    result = check_recipe(settings({"env.NCCL_ALGO": "Tree"}, "", {"env"}))
    assert "megatron-lm" in state(result, "DET002")[1]
    assert state(result, "DET002")[0] == "not checked"
    assert result.verdict == "invalid"
    assert ["does not name its framework" in each.what for each in result.problems] == [True]


def test_what_torchtitan_sets_itself_need_not_be_known():
    unsaid = ["torch.cudnn_benchmark", "torch.deterministic", "env.CUBLAS_WORKSPACE_CONFIG"]
    result = check_recipe(make("torchtitan", without=unsaid, kinds=()))
    assert {state(result, code)[0] for code in ("DET030", "DET033", "DET038")} == {"holds"}
    plain = check_recipe(make("torch", without=unsaid, kinds=()))
    assert {state(plain, code)[0] for code in ("DET030", "DET033", "DET038")} == {"not checked"}


def test_tree_is_rejected_by_megatron_and_accepted_by_torchtitan():
    choice = "allreduce:tree;reducescatter:tree"
    assert set(found(check_recipe(make(env__NCCL_ALGO=choice)))) == {"DET002"}
    assert found(check_recipe(make("torchtitan", env__NCCL_ALGO=choice))) == {}


def test_nvls_that_is_switched_off_may_stand_in_the_choice():
    assert found(check_recipe(make("torch", env__NCCL_ALGO="NVLS,Ring", env__NCCL_NVLS_ENABLE="0"))) == {}


def test_nothing_is_verified_of_an_empty_recipe():
    result = check_recipe(settings({}, "", ()))
    assert (result.verdict, result.verified) == ("invalid", ())


def test_a_flag_that_reached_half_of_the_model_names_the_modules():
    """Field report O12: the flag came after the model was built, the variable after CUDA was initialised."""
    result = check_recipe(
        make(
            **{
                "module__embedding.deterministic_mode": False,
                "module__attention.deterministic": False,
                "module__mlp.deterministic_mode": True,
                "time__cuda_initialized": 4.0,
                "time__env.CUBLAS_WORKSPACE_CONFIG": 9.0,
            }
        )
    )
    assert result.findings["severity"].to_list() == ["warning", "warning"]
    assert found(result) == {
        "DET070": "set after CUDA was initialised: CUBLAS_WORKSPACE_CONFIG at 9 s, after 4 s",
        "DET072": "requested but not effective for embedding, attention",
    }


def test_modules_are_not_asked_where_nobody_asked_for_determinism():
    result = check_recipe(
        make("torch", **{"module__embedding.deterministic_mode": False}, args__deterministic_mode=False)
    )
    assert state(result, "DET072")[0] == "does not apply"


def test_ranks_that_do_not_agree_are_named():
    result = check_recipe(make(env__NCCL_PROTO=Ranks(["LL", "LL", "Simple"])))
    finding = result.findings.row(0, named=True)
    assert (finding["code"], finding["found"]) == (
        "DET073",
        "ranks do not agree on NCCL_PROTO (LL (rank 0, rank 1); Simple (rank 2))",
    )
    assert "rank 2" in finding["where"]


def test_two_places_that_do_not_agree_are_no_matter_of_ranks():
    """Asked for in the arguments and off in the configuration of the model."""
    said = settings({"args.deterministic_mode": True}).by_name
    both = (*said["args.deterministic_mode"], Setting("args.deterministic_mode", False, "run: model"))
    recipe = make()
    result = check_recipe(replace(recipe, by_name={**recipe.by_name, "args.deterministic_mode": both}))
    assert found(result) == {"DET001": "deterministic_mode is false"}
    assert result.findings["where"][0] == "run: model"


def test_many_values_are_cut():
    result = check_recipe(make(env__NCCL_PROTO=Ranks([f"P{number}" for number in range(40)])))
    assert found(result)["DET073"].endswith("and 34 more values)")


def test_one_rank_with_a_wrong_value_is_enough():
    result = check_recipe(make(torch__cudnn_benchmark=Ranks([False] * 7 + [True])))
    assert set(found(result)) == {"DET033", "DET073"}


def test_folders_of_ranks_are_not_shared():
    """Field report O15: each rank tuned for itself."""
    own = Ranks([f"/lustre/cache/{rank}" for rank in range(8)])
    result = check_recipe(make(env__TRITON_CACHE_AUTOTUNING="1", env__TRITON_CACHE_DIR=own))
    assert set(found(result)) == {"DET052"}


@pytest.mark.parametrize(("hosts", "codes"), [(["n1"], set()), (["n1", "n2"], {"DET052"})])
def test_a_folder_of_a_node_is_shared_by_the_ranks_of_one_host(hosts, codes):
    result = check_recipe(
        make(
            env__TRITON_CACHE_AUTOTUNING="1",
            env__TRITON_CACHE_DIR="/run/triton",
            place__host=Ranks(hosts),
        )
    )
    assert set(found(result)) == codes


def test_a_problem_of_the_source_makes_a_clean_check_invalid():
    result = check_recipe(replace(make(), problems=("line 3: cannot be read",)))
    assert (result.verdict, result.exit_code) == ("invalid", 2)


def test_the_check_is_deterministic_and_changes_nothing():
    recipe = make(without=["env.NCCL_ALGO"], version__megatron_core="0.16.1")
    before = dict(recipe.by_name)
    assert check_recipe(recipe).to_json() == check_recipe(recipe).to_json()
    assert recipe.by_name == before


@pytest.mark.parametrize("is_on", [True, False])
def test_this_process_is_checked_as_it_is(is_on):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_on)
    try:
        result = check_recipe(model=torch.nn.Linear(1, 1), framework="torch")
    finally:
        torch.use_deterministic_algorithms(before)
    assert result.subjects == ("this process",)
    assert state(result, "DET030")[0] == ("holds" if is_on else "broken")


def test_every_rule_has_a_row_whatever_the_recipe():
    full, empty = check_recipe(make()).table, check_recipe(settings({}, "", ())).table
    assert full["code"].to_list() == empty["code"].to_list()
    assert full.schema == empty.schema


ALGORITHMS = ["Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "^NVLS", "PAT", "ring", ""]


@given(st.lists(st.sampled_from(ALGORITHMS), max_size=4))
def test_a_choice_of_algorithms_is_judged_as_megatron_judges_it(items):
    accepted = {"Ring", "CollnetDirect", "CollnetChain", "^NVLS"}
    tokens = [item for item in items if item]
    wanted = Tokens(("Ring", "CollnetDirect", "CollnetChain", "^NVLS"))
    text = ", ".join(items)
    assert wanted.accepts("env.NCCL_ALGO", text, make()) == (
        bool(tokens) and all(t in accepted for t in tokens)
    )


@pytest.mark.parametrize(
    ("text", "is_left_out"),
    [
        ("Ring", True), ("^NVLS", True), ("^nvls,tree", True), ("allreduce:tree;broadcast:ring", True),
        ("^Tree", False), ("NVLS", False), ("ring,NVLSTree", False), ("allreduce:ring;allgather:nvls", False),
    ],
)  # fmt: skip
def test_a_choice_is_read_in_nccls_grammar(text, is_left_out):
    assert LeavesOut("NVLS").accepts("env.NCCL_ALGO", text, make()) is is_left_out


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=4), st.lists(st.integers(0, 40), min_size=1, max_size=4)
)
def test_versions_are_compared_by_their_numbers(a, b):
    width = max(len(a), len(b))
    padded = [each + [0] * (width - len(each)) for each in (a, b)]
    texts = [".".join(map(str, each)) for each in (a, b)]
    assert is_older(*texts) == (padded[0] < padded[1])


def test_the_base_recipe_is_itself_clean():
    assert found(check_recipe(settings(MEGATRON))) == {}


def test_an_unset_choice_of_algorithms_is_one_only_under_a_newer_torch():
    bare = {"without": ["env.NCCL_ALGO"]}
    assert found(check_recipe(make("torch", **bare))) == {}
    assert set(found(check_recipe(make("torch", **bare, version__torch="2.7.1+cu126")))) == {"DET041"}


@pytest.mark.parametrize("framework", ["torch", "nemo"])
def test_the_mode_of_a_framework_without_one_turns_no_flag_of_torch_on(framework):
    result = check_recipe(settings({"args.deterministic_mode": True}, framework, {"args"}))
    assert state(result, "DET030") == ("not checked", "the source does not say torch.deterministic")


def test_a_recipe_that_does_not_speak_of_the_mode_never_passes():
    result = check_recipe(settings({"env.NCCL_ALGO": "Ring"}, "megatron-lm", {"env"}))
    assert not result.findings.filter(pl.col("code") == "DET002").height
    without_env = check_recipe(settings({"env.NCCL_ALGO": "Ring"}, "megatron-lm", ()))
    assert (without_env.verdict, without_env.exit_code) == ("invalid", 2)
    assert "whether deterministic algorithms are on" in without_env.problems[0].what


def test_what_a_version_decides_is_told_where_it_is_not_known():
    says = state(check_recipe(make(without=["env.NCCL_ALGO", "version.megatron_core"])), "DET002")[1]
    assert says.endswith(
        "makes NCCL_ALGO Ring, from megatron_core 0.20 on; the source does not say which this is"
    )
