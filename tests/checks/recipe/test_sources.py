"""Sources of settings: what a file says is what is read, in whatever format it says it."""

import json
import string

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.checks.recipe import check_recipe
from detlab.checks.recipe.sources import FORMATS, read_settings
from detlab.checks.recipe.sources.values import HIDDEN, literal
from detlab.errors import InputError

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

KEY = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8).map("k{}".format)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=12)
NUMBER = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.none() | st.booleans() | NUMBER | TEXT
TREE = st.dictionaries(
    KEY,
    st.recursive(VALUE, lambda inner: st.dictionaries(KEY, inner, max_size=3) | st.lists(VALUE, max_size=3)),
    min_size=1,
    max_size=4,
)
NAME = st.text(string.ascii_uppercase, min_size=1, max_size=6).map("NCCL_{}".format)
ENVIRONMENT = st.dictionaries(NAME, TEXT, min_size=1, max_size=5)


def said(source, **kwargs):
    """Give the names and values of a source; `repr` tells True from 1."""
    found = read_settings(source, **kwargs)
    return {name: [repr(each.value) for each in all_of] for name, all_of in found.by_name.items()}


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def without_none(tree):
    """TOML has no null."""
    if isinstance(tree, dict):
        return {key: without_none(value) for key, value in tree.items() if value is not None}
    return [value for value in tree if value is not None] if isinstance(tree, list) else tree


def as_toml(tree):
    """Write a tree as TOML: one dotted key a line."""

    def value(item):
        if isinstance(item, dict):
            return "{" + ", ".join(f"{key} = {value(each)}" for key, each in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        if isinstance(item, float):
            return repr(item).replace("e+", "e") if "inf" not in repr(item) else repr(item)
        return json.dumps(item, ensure_ascii=False)

    return "\n".join(f"{key} = {value(item)}" for key, item in tree.items())


@QUICK
@given(TREE)
def test_a_mapping_reads_the_same_from_json(tmp_path, tree):
    path = write(tmp_path, "a.json", json.dumps(tree))
    assert said(path) == said(tree)


@QUICK
@given(TREE)
def test_a_mapping_reads_the_same_from_yaml(tmp_path, tree):
    text = json.dumps(tree, ensure_ascii=False)  # JSON is YAML, with every text in quotes
    assert said(write(tmp_path, "a.yaml", text)) == said(tree)


@QUICK
@given(TREE.map(without_none).filter(bool))
def test_a_mapping_reads_the_same_from_toml(tmp_path, tree):
    assert said(write(tmp_path, "a.toml", as_toml(tree))) == said(tree)


@QUICK
@given(ENVIRONMENT)
def test_an_environment_reads_the_same_from_every_kind_of_dump(tmp_path, environment):
    pairs = [f"{name}={value}" for name, value in environment.items()]
    wanted = {f"env.{name}": [repr(value)] for name, value in environment.items()}
    dumps = {
        "a.env": "\n".join(pairs),
        "b.env": "\0".join(pairs) + "\0",
        "c.json": json.dumps([{"Config": {"Env": pairs}}]),
        "d.json": json.dumps({"process": {"env": pairs}}),
        "e.json": json.dumps(environment),
        "f.yaml": json.dumps({"ENV_VARS": environment}, ensure_ascii=False),
        "g.yaml": json.dumps({"services": {"train": {"environment": pairs}}}, ensure_ascii=False),
        "h.yaml": json.dumps(
            {"env": [{"name": name, "value": value} for name, value in environment.items()]},
            ensure_ascii=False,
        ),
    }
    for name, content in dumps.items():
        assert said(write(tmp_path, name, content)) == wanted, name


def test_a_word_without_quotes_is_a_number_or_a_flag_and_one_in_quotes_is_not(tmp_path):
    path = write(tmp_path, "a.yaml", 'a: 1e-5\nb: "1e-5"\nc: true\nd: "true"\ne: .01\nf: !!str 7\ng:\n')
    assert said(path) == {
        "args.a": ["1e-05"],
        "args.b": ["'1e-5'"],
        "args.c": ["True"],
        "args.d": ["'true'"],
        "args.e": ["0.01"],
        "args.f": ["'7'"],
        "args.g": ["None"],
    }


@pytest.mark.parametrize(
    "word", ["off", "yes", "4096:8", ":4096:8", "0o17", "0x1F", "2024-01-01", "1_000", "007"]
)
def test_what_yaml_1_1_makes_of_words_is_not_made_of_them(tmp_path, word):
    path = write(tmp_path, "a.yaml", f"key: {word}\nENV_VARS:\n  CUBLAS_WORKSPACE_CONFIG: {word}\n")
    assert said(path) == {"args.key": [repr(word)], "env.CUBLAS_WORKSPACE_CONFIG": [repr(word)]}


@pytest.mark.parametrize(("text", "value"), [("0", "0"), ("true", "true"), ("1.0", "1.0"), ('"0"', "0")])
def test_environment_variables_are_text_as_it_is_written(tmp_path, text, value):
    path = write(tmp_path, "a.yaml", f"ENV_VARS:\n  NCCL_X: {text}\n")
    assert read_settings(path).values("env.NCCL_X") == (value,)


def test_a_functional_test_of_megatron_says_all_arguments_and_variables(tmp_path):
    path = write(
        tmp_path,
        "model_config.yaml",
        "ENV_VARS:\n  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\nMODEL_ARGS:\n  --deterministic-mode: true\n"
        "  --no-gradient-accumulation-fusion: true\n  --lr: 1e-2\n  --fp8-format: hybrid\n",
    )
    found = read_settings(path)
    assert found.framework == "megatron-lm"
    assert found.values("args.deterministic_mode") == (True,)
    assert found.values("args.gradient_accumulation_fusion") == (False,)
    assert found.values("args.lr") == (0.01,)
    assert found.values("args.fp8") == ("hybrid",)
    assert found.where("args.lr") == "model_config.yaml: MODEL_ARGS.--lr"
    assert found.says_all_of("env.NCCL_ALGO") and found.says_all_of("args.seed")
    assert found.problems == ()


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("--no-load-rng", "args.no_load_rng", True),
        ("--disable-bias-linear", "args.add_bias_linear", False),
        ("--no-rope-fusion", "args.apply_rope_fusion", False),
        ("--no-persist-layer-norm", "args.no_persist_layer_norm", True),
        ("--use-checkpoint-opt_param-scheduler", "args.use_checkpoint_opt_param_scheduler", True),
    ],
)
def test_flags_are_called_as_megatron_calls_its_arguments(flag, name, value):
    assert read_settings({flag: True}).values(name) == (value,)


BRIDGE = """
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  deterministic_mode: true
  num_moe_experts: 8
  nested: {deterministic_mode: false}
ddp: {_target_: some.Class, check_for_nan_in_grad: true}
rng: {seed: 5}
train: {micro_batch_size: 2}
"""


def test_fields_of_megatron_bridge_are_called_as_megatron_calls_them(tmp_path):
    found = read_settings(write(tmp_path, "run_config.yaml", BRIDGE))
    assert found.framework == "megatron-bridge"
    assert found.values("args.deterministic_mode") == (True,)
    assert found.where("args.deterministic_mode") == "run_config.yaml: model.deterministic_mode"
    assert found.values("args.model.nested.deterministic_mode") == (False,)
    assert found.values("args.num_experts") == (8,)
    assert found.values("args.check_for_nan_in_loss_and_grad") == (True,)
    assert found.values("args.seed") == (5,)
    assert found.says_all_of("args.tp_comm_overlap") and not found.says_all_of("env.NCCL_ALGO")


def test_a_configuration_that_a_person_wrote_leaves_defaults_elsewhere(tmp_path):
    found = read_settings(write(tmp_path, "a.yaml", "trainer: {deterministic: true}\nmodel: {seed: 3}\n"))
    assert found.framework == "nemo"
    assert found.values("torch.deterministic") == (True,)
    assert found.values("args.seed") == (3,)
    assert found.unset_here("args.tp_comm_overlap") and not found.says_all_of("args.tp_comm_overlap")


def test_fields_of_torchtitan_are_called_as_megatron_calls_them(tmp_path):
    text = (
        "[job]\nx = 1\n[training]\nseed = 42\nlocal_batch_size = 8\n[debug]\ndeterministic = true\n"
        "deterministic_warn_only = false\n[parallelism]\ntensor_parallel_degree = 2\n[model]\nseed = 9\n"
    )
    found = read_settings(write(tmp_path, "a.toml", text))
    assert found.framework == "torchtitan"
    assert found.values("args.seed") == (42,)
    assert found.values("args.deterministic_mode") == (True,)
    assert found.values("torch.deterministic_warn_only") == (False,)
    assert found.values("args.micro_batch_size") == (8,)
    assert found.values("args.tensor_model_parallel_size") == (2,)
    assert found.values("args.model.seed") == (9,)


def test_a_mapping_can_say_when_things_were_set():
    found = read_settings(
        {
            "framework": "megatron-lm",
            "args": {"deterministic_mode": True},
            "time": {"cuda_initialized": 3.2, "env": {"CUBLAS_WORKSPACE_CONFIG": 7.5}},
            "module": {"embedding.deterministic_mode": False},
            "versions": {"causal-conv1d": "1.5.0"},
        }
    )
    assert found.framework == "megatron-lm"
    assert found.values("time.cuda_initialized") == (3.2,)
    assert found.values("time.env.CUBLAS_WORKSPACE_CONFIG") == (7.5,)
    assert found.values("module.embedding.deterministic_mode") == (False,)
    assert found.values("version.causal_conv1d") == ("1.5.0",)
    assert found.says_all_of("args.seed") and not found.says_all_of("time.model_built")


def test_dotted_names_say_no_more_than_they_say():
    assert not read_settings({"env.NCCL_ALGO": "Ring"}).says_all_of("env.NVTE_X")
    assert read_settings({"env.NCCL_ALGO": "Ring", "kinds": ["env"]}).says_all_of("env.NVTE_X")
    assert read_settings({"env": {"NCCL_ALGO": "Ring"}}).says_all_of("env.NVTE_X")


def test_only_the_environment_of_a_process_is_whole(tmp_path):
    picked = read_settings(write(tmp_path, "picked", "NCCL_ALGO=Ring\n"))
    whole = read_settings(write(tmp_path, "whole", "NCCL_ALGO=Ring\nPATH=/usr/bin\n"))
    assert picked.unset_here("env.NVTE_X") and not picked.says_all_of("env.NVTE_X")
    assert whole.says_all_of("env.NVTE_X")


def test_a_value_of_several_lines_goes_on_until_the_next_variable(tmp_path):
    text = "A=one\ntwo\nBASH_FUNC_f%%=() {  echo 1\n}\nB=3\n"
    assert said(write(tmp_path, "dump", text)) == {"env.A": [repr("one\ntwo")], "env.B": ["'3'"]}


def test_what_export_prints_is_a_dump(tmp_path):
    text = 'declare -x NCCL_ALGO="Ring"\ndeclare -x A="say \\"x\\"\ny"\ndeclare -x UNSET\n'
    path = write(tmp_path, "exported", text)
    assert said(path) == {"env.NCCL_ALGO": ["'Ring'"], "env.A": [repr('say "x"\ny')]}
    assert read_settings(path).where("env.A") == "exported: line 2"


def test_dotted_keys_are_the_sections_that_they_name(tmp_path):
    text = "model.deterministic_mode: true\nexecutor.env_vars.NCCL_ALGO: Ring\n"
    wanted = {"args.deterministic_mode": ["True"], "env.NCCL_ALGO": ["'Ring'"]}
    assert said(write(tmp_path, "a.yaml", text)) == wanted
    assert said(write(tmp_path, "a.txt", text.replace(": ", "="))) == wanted


def test_overrides_are_read_with_their_lines(tmp_path):
    text = "# for tonight\nmodel.deterministic_mode=true\n++trainer.benchmark=False\n~model.optim.lr\n"
    found = read_settings(write(tmp_path, "overrides.txt", text))
    assert found.values("args.deterministic_mode") == (True,)
    assert found.values("torch.cudnn_benchmark") == (False,)
    assert found.values("args.lr") == (None,)
    assert found.where("args.deterministic_mode") == "overrides.txt: line 2"


LOG = """[default0]:using world size: 8
------------------------ arguments ------------------------
[default0]:  data_path ....................................... ['a', 'b']
[default0]:  deterministic_mode .............................. True
  num_experts ..................................... None
  seed ............................................ 1234
-------------------- end of arguments ---------------------
 iteration 1/ 10 | lm loss: 1.0 |
"""


def test_a_log_of_megatron_says_all_arguments(tmp_path):
    found = read_settings(write(tmp_path, "train.log", LOG))
    assert found.values("args.deterministic_mode") == (True,)
    assert found.values("args.data_path") == ("a,b",)
    assert found.values("args.num_experts") == (None,)
    assert found.where("args.seed") == "train.log: line 6"
    assert found.says_all_of("args.tp_comm_overlap")


def test_a_log_that_was_cut_among_its_arguments_says_so(tmp_path):
    found = read_settings(write(tmp_path, "train.log", LOG[: LOG.index("  seed")]))
    assert not found.says_all_of("args.seed")
    assert found.problems == ("train.log: line 2: the arguments that begin here do not end",)


def test_a_class_that_a_file_names_is_never_imported(tmp_path):
    path = write(
        tmp_path, "a.yaml", "model: {_target_: antigravity.Nothing}\nb: !!python/object/apply:sys.exit [3]\n"
    )
    found = read_settings(path)
    assert found.values("args.model._target_") == ("antigravity.Nothing",)
    assert found.values("args.b") == (3,)
    (problem,) = found.problems
    assert problem.startswith("a.yaml: line 2: the tag") and problem.endswith("is read as data")


def test_a_key_that_stands_twice_is_a_problem_and_the_last_counts(tmp_path):
    found = read_settings(write(tmp_path, "a.yaml", "seed: 1\nother: 2\nseed: 3\n"))
    assert found.values("args.seed") == (3,)
    assert found.problems == ("a.yaml: line 3: seed stands on line 1 already; the last one is taken",)
    twice = read_settings(write(tmp_path, "a.json", '{"seed": 1, "seed": 3}'))
    assert twice.values("args.seed") == (3,)
    assert len(twice.problems) == 1


def test_anchors_and_merged_mappings_are_followed(tmp_path):
    text = "base: &b {lr: 1, seed: 2}\nrun:\n  <<: *b\n  seed: 3\n"
    assert said(write(tmp_path, "a.yaml", text)) == {
        "args.base.lr": ["1"],
        "args.base.seed": ["2"],
        "args.run.lr": ["1"],
        "args.run.seed": ["3"],
    }


def test_documents_of_one_file_are_one_configuration_and_contradictions_are_told(tmp_path):
    found = read_settings(write(tmp_path, "a.yaml", "seed: 1\n---\nlr: 2\n---\nseed: 3\n"))
    assert found.values("args.seed") == (3,) and found.values("args.lr") == (2,)
    assert found.problems == ("a.yaml: document 3: it says seed again; the last one is taken",)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_marks_of_the_byte_order_and_line_ends_are_no_part_of_values(tmp_path, codec):
    for name, text in {
        "a.yaml": "seed: 1\r\nx: y\r\n",
        "a.json": '{"seed": 1,\r\n "x": "y"}',
        "a.toml": 'seed = 1\r\nx = "y"\r\n',
    }.items():
        assert said(write(tmp_path, name, text.encode(codec))) == {"args.seed": ["1"], "args.x": ["'y'"]}, (
            name
        )


def test_bytes_that_are_no_text_are_shown_and_told(tmp_path):
    found = read_settings(write(tmp_path, "a.yaml", b"seed: 1\nx: \xff\xfe!\n"))
    assert found.values("args.x") == ("\\xff\\xfe!",)
    assert found.problems == ("a.yaml: line 2: it is no UTF-8; the bytes are shown as escapes",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("env.WANDB_API_KEY", "x"),
        ("env.HF_TOKEN", "x"),
        ("env.AWS_SECRET_ACCESS_KEY", "x"),
        ("env.DB_PASSWORD", "x"),
        ("args.wandb_token", "x"),
        ("args.logger.api_key", "x"),
    ],
)
def test_secrets_are_hidden(name, value):
    assert read_settings({name: value}).values(name) == (HIDDEN,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("env.NCCL_IB_PKEY", "1"),
        ("env.TOKENIZERS_PARALLELISM", "false"),
        ("args.num_tokens", 3),
        ("args.eod_token", "x"),
    ],
)
def test_what_is_no_secret_is_not_hidden(name, value):
    assert read_settings({name: value}).values(name) == (value,)


def test_a_secret_inside_of_a_text_is_hidden():
    found = read_settings({"env.CMD": "WANDB_API_KEY=planted python x.py --num-tokens=3"})
    assert found.values("env.CMD") == (f"WANDB_API_KEY={HIDDEN} python x.py --num-tokens=3",)


def test_a_login_inside_an_address_is_hidden():
    found = read_settings({"env.https_proxy": "http://ann:pass@proxy:80/"})
    assert found.values("env.https_proxy") == (f"http://{HIDDEN}@proxy:80/",)


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "\n".join(
    f"{this}: &{this} [{','.join(['*' + before] * 9)}]"
    for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", BOMB),
        ("a.yaml", "a: &a [*a]"),
        ("a.yaml", "[" * 5000),
        ("a.yaml", "a: {b"),
        ("a.yaml", "a: b: c"),
        ("a.yaml", "just words"),
        ("a.yaml", "a: \x07"),
        ("a.json", "[" * 100_000),
        ("a.json", '{"a": 1'),
        ("a.json", '{"a": ' + "1" * 5000 + "}"),
        ("a.json", "3"),
        ("a.toml", "a = "),
        ("a.toml", "a = 1\na = 2"),
        ("a.toml", "a = " + "[" * 5000),
        ("a.txt", "a poem"),
        ("a.py", "# torchrun train.py\nimport sys\n"),
        ("a.txt", " \n"),
        ("a.env", ""),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0"),
        ("a.yaml", b"\0" * 100),
        ("a.yaml", "a: 1\n" * 300_000),
        ("a.toml", b"a" * ((8 << 20) + 1)),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_place_and_a_hint(tmp_path, name, content):
    with pytest.raises(InputError) as refused:
        read_settings(write(tmp_path, name, content))
    assert name in refused.value.finding and refused.value.hint


def test_a_deep_mapping_is_refused():
    tree = value = {}
    for _ in range(500):
        value["a"] = value = {}
    with pytest.raises(InputError, match="nested deeper"):
        read_settings(tree)


def test_a_path_to_nothing_and_a_format_of_no_name_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_settings(tmp_path / "nothing")
    with pytest.raises(InputError, match="No format is called 'xml'"):
        read_settings(write(tmp_path, "a.yaml", "a: 1"), format="xml")


def test_a_format_can_be_named(tmp_path):
    path = write(tmp_path, "file", "seed = 4\n")
    with pytest.raises(InputError, match="nothing that detlab knows"):
        read_settings(path)
    assert said(path, format="toml") == {"args.seed": ["4"]}


@QUICK
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode), st.sampled_from(sorted(FORMATS)))
def test_no_file_does_more_than_to_be_refused(tmp_path, content, name):
    path = write(tmp_path, "file", content)
    for format in (None, name):
        try:
            found = read_settings(path, format=format)
        except InputError:
            continue
        json.dumps(
            {key: [each._asdict() for each in all_of] for key, all_of in found.by_name.items()},
            allow_nan=False,
        )


@given(
    st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none()
)
def test_a_number_that_was_written_is_read(value):
    assert repr(literal(str(value))) == repr(value)


@given(TREE)
def test_yaml_that_any_program_wrote_has_the_same_names(tree):
    text = yaml.safe_dump(tree, allow_unicode=True)
    from detlab.checks.recipe.sources.found import Found
    from detlab.checks.recipe.sources.tree import tree_settings
    from detlab.checks.recipe.sources.yaml_file import parse

    (read,) = parse(text, Found("a"))
    assert list(tree_settings(read, Found("a"), "a").by_name) == list(
        tree_settings(yaml.safe_load(text), Found("a"), "a").by_name
    )


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_half_a_character_is_shown_and_two_halves_are_one(tmp_path, name):
    text = r'{"ENV_VARS": {"NCCL_ALGO": "\ud800", "NCCL_X": "\ud800\udc00"}, "MODEL_ARGS": {"--\udc00": 1}}'
    found = read_settings(write(tmp_path, name, text))
    assert found.values("env.NCCL_ALGO") == ("\\ud800",)
    assert found.values("env.NCCL_X") == ("\U00010000",)
    assert check_recipe(found).verdict == "fail"
