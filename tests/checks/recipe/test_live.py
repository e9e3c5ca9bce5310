"""Settings of this process: what is set, what modules really have, and what came too late."""

import os
import subprocess
import sys

import pytest
import torch

from detlab.captures import process
from detlab.captures.process import kept_environment, module_flags, package_versions
from detlab.checks.recipe import live
from detlab.checks.recipe.live import Look, live_settings, set_at
from detlab.errors import InputError

NAME = "CUBLAS_WORKSPACE_CONFIG"
BEFORE, AFTER = {}, {NAME: ":4096:8"}


class Embedding(torch.nn.Module):
    """Copies the flag when it is built, as megatron-core's vocabulary-parallel embedding does."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.deterministic_mode = config.deterministic_mode


class Config:
    def __init__(self, deterministic_mode):
        self.deterministic_mode = deterministic_mode


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.layer = torch.nn.Linear(2, 2)


def run_python(code, **environment):
    """Run code in a fresh process with these variables, and give the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, check=True
    )
    return done.stdout.decode().split("\n")


def test_a_module_that_copied_the_flag_before_it_was_set_is_seen():
    config = Config(deterministic_mode=False)
    model = Model(config)
    config.deterministic_mode = True
    settings = live_settings(model)
    assert settings.values("args.deterministic_mode") == (True,)
    assert settings.values("module.embedding.deterministic_mode") == (False,)
    assert [name for name in settings.by_name if name.startswith("module.")] == [
        "module.embedding.deterministic_mode"
    ]


def test_a_module_with_a_configuration_of_its_own_is_seen():
    model = Model(Config(deterministic_mode=True))
    model.layer.config = Config(deterministic_mode=False)
    flags = module_flags([model])
    assert flags == {"embedding.deterministic_mode": True, "layer.deterministic_mode": False}


def test_names_of_modules_hold_no_wrappers_and_tell_chunks_apart():
    inner = Model(Config(deterministic_mode=True))
    wrapper = torch.nn.Module()
    wrapper.module = inner
    assert list(module_flags([wrapper])) == ["embedding.deterministic_mode"]
    assert list(module_flags([inner, wrapper])) == [
        "chunk0.embedding.deterministic_mode",
        "chunk1.embedding.deterministic_mode",
    ]


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match="int is no model"):
        live_settings(3)


def test_flags_of_torch_are_those_of_this_process():
    was = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        settings = live_settings()
    finally:
        torch.use_deterministic_algorithms(was)
    assert settings.values("torch.deterministic") == (True,)
    assert settings.values("torch.deterministic_warn_only") == (True,)
    assert live_settings().values("torch.deterministic") == (was,)


def test_a_live_process_says_all_of_its_environment_flags_and_versions():
    settings = live_settings()
    assert settings.says_all_of("env.NOBODY_SETS_THIS")
    assert settings.says_all_of("version.causal_conv1d")
    assert settings.says_all_of("torch.deterministic")
    assert not settings.says_all_of("args.deterministic_mode")
    assert settings.values("version.torch") == (package_versions()["torch"],)


def test_a_variable_that_the_launcher_set_is_dated_to_the_start():
    code = (
        "from detlab.checks.recipe.live import live_settings as s; n = s();"
        "print(n.values('time.env.NVTE_X')); print(n.where('env.NVTE_X'))"
    )
    time, where, *_ = run_python(code, NVTE_X="1")
    assert time == "(0.0,)"
    assert "after" not in where


def test_a_variable_that_the_program_set_is_said_to_be_late():
    code = (
        "import os; os.environ['NVTE_X'] = '1';"
        "from detlab.checks.recipe.live import live_settings as s; n = s();"
        "print(n.values('time.env.NVTE_X')[0] > 0); print(n.where('env.NVTE_X'))"
    )
    is_later, where, *_ = run_python(code)
    assert is_later == "True"
    assert where == "this process: environment; set after the process began"


def test_versions_of_the_libraries_under_torch_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    found = package_versions([])
    assert (found["cuda"], found["cudnn"], found["nccl"]) == ("13.0", "91002", "2.27.3")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
            "550.54.15",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
        ("nothing of the kind", ""),
    ],
)
def test_the_driver_is_told_by_the_kernel(tmp_path, text, version):
    path = tmp_path / "version"
    path.write_text(text)
    assert process._driver(path) == version
    assert process._driver(tmp_path / "none") == ""


def test_secrets_are_not_kept(monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "planted")
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "planted")
    assert "planted" not in {each.value for said in live_settings().by_name.values() for each in said}
    assert "planted" not in kept_environment(os.environ).values()


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        pytest.param([Look(0, AFTER, False), Look(9, AFTER, True)], 0, id="set by the launcher"),
        pytest.param([Look(0, BEFORE, False), Look(3, AFTER, False)], 3, id="no device yet"),
        pytest.param(
            [Look(0, BEFORE, False), Look(3, AFTER, False), Look(9, AFTER, True)], 3, id="seen before"
        ),
        pytest.param([Look(0, BEFORE, False), Look(9, AFTER, True)], None, id="nobody saw which came first"),
        pytest.param(
            [Look(0, BEFORE, False), Look(5, BEFORE, True), Look(9, AFTER, True)], 9, id="seen too late"
        ),
        pytest.param([Look(5, AFTER, True)], None, id="one late look, and no start"),
        pytest.param([Look(5, AFTER, False)], 5, id="one early look, and no start"),
    ],
)
def test_a_variable_is_dated_where_looks_settle_it(looks, seconds):
    assert set_at(NAME, looks) == seconds


def test_a_variable_set_after_cuda_is_dated_after_it(monkeypatch):
    monkeypatch.setattr(live, "_looks", [Look(0, BEFORE, False), Look(0.001, BEFORE, True)])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(live, "torch_state", lambda device: {})
    monkeypatch.setenv(NAME, ":4096:8")
    settings = live_settings()
    (late,), (cuda,) = settings.values(f"time.env.{NAME}"), settings.values("time.cuda_initialized")
    assert late > cuda
