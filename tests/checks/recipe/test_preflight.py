"""Two recipes: what differs is named, grouped by what it means, and what is not known is said."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run
from detlab.checks.recipe import compare_recipes
from detlab.checks.recipe.settings import KINDS
from detlab.checks.recipe.topics import SEVERITY, TOPICS, topic_of
from detlab.samples import sample_path
from tests.checks.recipe.recipes import ALL, MEGATRON, Ranks, make, settings

BREAKS, EXPLAINS, HARMLESS = SEVERITY


def rows(result):
    return result.findings.select("component", "group", "setting", "a", "b").rows()


def changed(name, value, **options):
    return compare_recipes(
        settings(MEGATRON, label="a"), settings(MEGATRON | {name: value}, label="b", **options)
    )


def test_a_recipe_is_equal_to_itself():
    result = compare_recipes(make(), make())
    assert (result.verdict, result.findings.height, result.table.height) == ("pass", 0, 0)
    assert {"seeds", "choice of kernels", "packages"} <= {each.what for each in result.verified}


@pytest.mark.parametrize(
    ("name", "value", "topic", "group"),
    [
        ("args.seed", 1, "seeds", BREAKS),
        ("args.dataset.random_seed", 1, "seeds", BREAKS),
        ("args.data_path", "/data/other", "data", BREAKS),
        ("args.split", "9,1,0", "data", BREAKS),
        ("args.dataloader.in_order", True, "data", BREAKS),
        ("args.micro_batch_size", 8, "batch sizes", BREAKS),
        ("args.rampup_batch_size", "16,16,300", "batch sizes", BREAKS),
        ("args.tensor_model_parallel_size", 4, "parallel layout", BREAKS),
        ("place.layout.tp", 4, "parallel layout", BREAKS),
        ("place.world_size", 16, "parallel layout", BREAKS),
        ("args.num_layers", 24, "model", BREAKS),
        ("args.lr", 1e-4, "optimizer and schedule", BREAKS),
        ("args.bf16", True, "precision", BREAKS),
        ("torch.float32_matmul_precision", "high", "precision", BREAKS),
        ("env.NCCL_ALGO", "CollnetDirect", "choice of kernels", BREAKS),
        ("torch.deterministic", False, "choice of kernels", BREAKS),
        ("torch.threads", 8, "choice of kernels", BREAKS),
        ("version.torch", "2.12.0", "packages", BREAKS),
        ("place.container", "nemo:26.02", "container", BREAKS),
        ("env.NVIDIA_PYTORCH_VERSION", "26.02", "container", BREAKS),
        ("place.host", "node7", "hosts and topology", EXPLAINS),
        ("place.rack", "r2", "hosts and topology", EXPLAINS),
        ("env.NCCL_IB_HCA", "mlx5_1", "hosts and topology", EXPLAINS),
        ("torch.device_name", "NVIDIA H200", "hosts and topology", EXPLAINS),
        ("env.MY_OWN_SWITCH", "1", "environment", EXPLAINS),
        ("args.an_argument_of_our_own", 3, "other arguments", EXPLAINS),
        ("args.tensorboard_dir", "/logs/b", "paths, logs and ports", HARMLESS),
        ("args.save", "/checkpoints/b", "paths, logs and ports", HARMLESS),
        ("env.MASTER_PORT", "29501", "paths, logs and ports", HARMLESS),
        ("env.SLURM_JOB_ID", "771", "paths, logs and ports", HARMLESS),
        ("time.model_built", 12.5, "paths, logs and ports", HARMLESS),
    ],
)
def test_a_difference_is_named_with_its_topic_and_its_weight(name, value, topic, group):
    result = changed(name, value)
    assert [row[:3] for row in rows(result)] == [(topic, group, name)]
    assert result.findings["severity"].to_list() == [SEVERITY[group]]
    assert result.verdict == ("fail" if group == BREAKS else "pass")
    assert topic not in {each.what for each in result.verified}


def test_runs_that_differ_by_hosts_and_racks_alone_are_a_matter_of_environment():
    """Field report O22: exact inside one rack, exact across two, and not the same."""
    here = MEGATRON | {"place.host": Ranks(["n1", "n2"]), "place.rack": "r1"}
    there = MEGATRON | {"place.host": Ranks(["n3", "n4"]), "place.rack": Ranks(["r1", "r2"])}
    result = compare_recipes(settings(here, label="a"), settings(there, label="b"))
    assert {row[0] for row in rows(result)} == {"hosts and topology"}
    assert (result.verdict, set(result.findings["severity"])) == ("pass", {"warning"})
    note = next(each for each in result.notes if "ENVIRONMENT" in each)
    assert "place.host" in note and "place.rack" in note


def test_another_port_beside_hosts_changes_nothing_about_that():
    a = settings(MEGATRON | {"place.host": "n1", "env.MASTER_PORT": "1"})
    b = settings(MEGATRON | {"place.host": "n2", "env.MASTER_PORT": "2"})
    assert any("ENVIRONMENT" in note for note in compare_recipes(a, b).notes)


def test_another_seed_beside_hosts_is_no_matter_of_environment():
    a, b = (
        settings(MEGATRON | {"place.host": "n1"}),
        settings(MEGATRON | {"place.host": "n2", "args.seed": 5}),
    )
    assert not any("ENVIRONMENT" in note for note in compare_recipes(a, b).notes)


def test_the_same_hosts_in_another_order_are_named_with_their_ranks():
    a, b = (settings(MEGATRON | {"place.host": Ranks(hosts)}) for hosts in (["n1", "n2"], ["n2", "n1"]))
    finding = compare_recipes(a, b).findings.row(0, named=True)
    assert (finding["a"], finding["b"]) == ("n1 (rank 0); n2 (rank 1)", "n2 (rank 0); n1 (rank 1)")


def test_what_is_set_on_no_rank_is_equal_to_what_the_one_rank_read_does_not_set():
    """One run read whole, the other by one rank: settings that are null stay null."""
    whole = load_run(sample_path("clean") / "a")
    assert compare_recipes(whole, load_run(sample_path("clean") / "b", ranks="0")).findings.is_empty()


def test_ranks_that_say_the_same_are_one_value():
    a, b = (settings({"place.host": Ranks(["n1"] * number)}) for number in (2, 4))
    assert compare_recipes(a, b).findings.height == 0


@pytest.mark.parametrize(
    ("one", "other"), [(1e-4, "0.0001"), (True, "true"), (8, "8"), (None, ""), (1.0, 1), ("1e-5", 0.00001)]
)
def test_spellings_of_one_value_are_equal(one, other):
    a, b = settings({"args.x": one, "args.seed": 1}), settings({"args.x": other, "args.seed": 1})
    assert compare_recipes(a, b).findings.height == 0


def test_hosts_of_a_large_run_are_counted():
    runs = [settings({"place.host": Ranks([f"{row}{number}" for number in range(400)])}) for row in "ab"]
    finding = compare_recipes(*runs).findings.row(0, named=True)
    assert finding["a"].startswith("a0 (rank 0); a1") and finding["a"].endswith("and 394 more values")


def test_versions_are_no_numbers():
    a, b = settings({"version.triton": "3.10"}), settings({"version.triton": "3.1"})
    assert [row[2] for row in rows(compare_recipes(a, b))] == ["version.triton"]


def test_what_only_one_side_knows_is_not_checked():
    a = settings({"args.seed": 1, "version.torch": "2.13"}, kinds={"args"})
    b = settings({"args.seed": 1}, kinds={"args"})
    result = compare_recipes(a, b)
    assert result.findings.height == 0
    whys = {each.what: each.why for each in result.not_checked}
    assert whys["packages"] == "only the first says version of torch; the second does not say"


def test_what_one_side_knows_to_be_unset_is_a_difference():
    a, b = settings({"args.seed": 1}, kinds={"args"}), settings({"args.split": "9,1"}, kinds={"args"})
    assert [row[2:] for row in rows(compare_recipes(a, b))] == [
        ("args.seed", "1", "not set"),
        ("args.split", "not set", "9,1"),
    ]


def test_a_flag_that_is_off_or_not_set_may_be_the_same():
    result = changed("args.sequence_parallel", False)
    assert rows(result) == [("parallel layout", EXPLAINS, "args.sequence_parallel", "not set", "false")]


def test_a_variable_that_one_script_leaves_to_its_caller_may_be_the_same():
    scripts = [
        replace(settings(content, kinds={"args"}), partly=frozenset({"env"}))
        for content in ({"env.NCCL_ALGO": "Ring", "args.seed": 1}, {"args.seed": 1})
    ]
    result = compare_recipes(*scripts)
    assert rows(result) == [("choice of kernels", EXPLAINS, "env.NCCL_ALGO", "Ring", "not set here")]


def test_a_path_with_a_variable_is_equal_as_written_only():
    content = {"args.seed": 1, "args.data_path": "${DATA}/text"}
    result = compare_recipes(settings(content), settings(content))
    whys = {each.what: each.why for each in result.not_checked}
    assert whys["data"] == "equal as written, with a variable or a branch that decides in the run: data_path"
    assert [each.what for each in result.verified] == ["seeds"]


def test_a_variable_may_be_what_the_other_says():
    a, b = settings({"args.seed": "${SEED}"}), settings({"args.seed": 42})
    assert rows(compare_recipes(a, b)) == [("seeds", EXPLAINS, "args.seed", "${SEED}", "42")]


def test_what_is_said_to_be_unset_is_unset():
    a, b = settings({"env.NCCL_ALGO": None, "args.seed": 1}), settings({"args.seed": 1})
    assert compare_recipes(a, b).findings.height == 0


def test_what_neither_speaks_of_is_not_checked():
    result = compare_recipes(make(), make())
    assert "neither says anything of it" in {
        each.why for each in result.not_checked if each.what == "container"
    }
    assert {"container", "data", "batch sizes"} <= {each.what for each in result.not_checked}


def test_two_empty_recipes_are_no_pass():
    empty = settings({}, "", ())
    assert (compare_recipes(empty, empty).verdict, compare_recipes(empty, empty).exit_code) == ("invalid", 2)


def test_two_frameworks_cannot_be_compared():
    result = compare_recipes(settings(MEGATRON, "megatron-lm"), settings(MEGATRON, "torchtitan"))
    assert rows(result)[0][:2] == ("framework", BREAKS)
    assert result.verdict == "fail"


def test_two_recorded_runs_of_one_recipe_are_equal():
    race = sample_path("race")
    result = compare_recipes(race / "a", race / "b")
    assert (result.verdict, result.findings.height) == ("pass", 0)


def test_the_worst_stands_first_and_the_table_has_all():
    a = settings({"env.MASTER_PORT": "1", "env.X": "1", "args.seed": 1})
    b = settings({"env.MASTER_PORT": "2", "env.X": "2", "args.seed": 2})
    result = compare_recipes(a, b)
    assert result.findings["severity"].to_list() == ["error", "warning", "note"]
    assert sorted(result.table["setting"]) == sorted(result.findings["setting"])
    assert result.notes[0] == f"1 {BREAKS}; 1 {EXPLAINS}; 1 {HARMLESS}"


NAMES = st.builds(lambda kind, rest: f"{kind}.{rest}", st.sampled_from(KINDS), st.text(max_size=12))
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.text(max_size=8))
RECIPES = st.dictionaries(NAMES, VALUES, max_size=8)


@given(RECIPES)
def test_no_recipe_differs_from_itself(content):
    assert compare_recipes(settings(content), settings(content)).findings.height == 0


@given(RECIPES, RECIPES, st.sets(st.sampled_from(KINDS)))
def test_the_order_of_the_two_changes_only_which_is_which(one, other, kinds):
    a, b = settings(one, kinds=kinds, label="a"), settings(other, kinds=kinds, label="b")
    there, back = compare_recipes(a, b).table, compare_recipes(b, a).table
    assert (
        there.select("setting", "topic", "a", "b").rows() == back.select("setting", "topic", "b", "a").rows()
    )


@given(NAMES)
def test_every_name_has_one_topic(name):
    assert topic_of(name) in TOPICS


def test_no_topic_stands_twice_and_each_says_why():
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(topic.why and not topic.why.endswith(".") for topic in TOPICS)


def test_nothing_of_the_recipes_is_changed():
    a, b = settings(MEGATRON), settings(MEGATRON | {"args.seed": 5}, kinds=ALL)
    before = dict(a.by_name), dict(b.by_name)
    compare_recipes(a, b)
    assert (a.by_name, b.by_name) == before


@pytest.mark.parametrize("name", ["place.nodes", "place.processes_per_node"])
def test_another_number_of_processes_breaks_the_comparison(name):
    result = compare_recipes(settings({name: 8}), settings({name: 16}))
    assert result.findings.select("component", "group").rows() == [("parallel layout", BREAKS)]


@pytest.mark.parametrize(("on", "off"), [(True, False), (1, 0), ("true", "False"), ("1", "0")])
def test_a_flag_is_equal_however_it_is_written(on, off):
    sides = [settings({"args.bf16": True, "args.fp16": False}), settings({"args.bf16": on, "args.fp16": off})]
    assert compare_recipes(*sides).findings.is_empty()
