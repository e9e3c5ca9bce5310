"""The public names, and that importing them costs nothing until they are used."""

import subprocess
import sys

import pytest

import detlab
from detlab.schema import Phase

HEAVY = ("numpy", "polars", "pyarrow", "torch", "plotly", "ipywidgets", "anywidget", "megatron", "xxhash")


def loaded_by(code):
    """Heavy libraries that a fresh process has loaded after running some code."""
    probe = f"{code}\nimport sys\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_detlab_loads_no_library():
    assert loaded_by("import detlab") == []


def test_the_light_import_test_can_fail():
    assert "numpy" in loaded_by("import detlab; detlab.Run")


def test_asking_for_help_loads_no_library():
    assert loaded_by("from detlab.cli import build_parser; build_parser().format_help()") == []


def test_comparing_loads_no_torch_and_no_plotly():
    loaded = loaded_by("import detlab; detlab.compare, detlab.load_run, detlab.views")
    assert not {"torch", "plotly", "ipywidgets"} & set(loaded)


TRIAGE = """
import detlab as dl
logs = dl.samples.sample_path("spike")
dl.triage(logs / "monday.log", reruns=[logs / "rerun.log"])
repr(dl.compare_metrics(logs / "monday.losses.txt", logs / "rerun.losses.txt"))
"""


def test_step_metrics_are_read_compared_and_triaged_without_torch_and_plotly():
    assert not {"torch", "plotly", "ipywidgets", "megatron"} & set(loaded_by(TRIAGE))


def test_synthetic_runs_are_made_without_torch_and_the_pytest_plugin_loads_no_library():
    made = 'from detlab.testing import Call, make_run; make_run({0: [Call("aten.mm.default")]})'
    assert not {"torch", "plotly", "ipywidgets", "megatron"} & set(loaded_by(made))
    assert loaded_by("import detlab.testing.plugin") == []


def test_plotly_is_loaded_when_a_picture_is_asked_for():
    picture = 'dl.views.curves(dl.load_run(logs / "monday.log"), "lm loss")'
    assert "plotly" in loaded_by(TRIAGE + picture)


def test_every_public_name_is_there_and_sorted():
    assert detlab.__all__ == sorted(detlab.__all__)
    assert all(hasattr(detlab, name) for name in detlab.__all__)
    assert dir(detlab) == detlab.__all__


def test_every_check_takes_a_path_as_compare_does(tmp_path):
    a = detlab.samples.sample_path("race") / "a"
    run = detlab.load_run(a)
    assert detlab.check_replicas(a).to_json() == detlab.check_replicas(run).to_json()
    assert detlab.check_replicas(str(a)).to_json() == detlab.check_replicas(run).to_json()
    assert detlab.compare_many([a, str(a)]).verdict == detlab.compare_many([run, run]).verdict
    calls = [
        detlab.testing.Call("aten.mm.default", "lin", ["x"], [word], phase=phase)
        for word, phase in (("y", Phase.FORWARD), ("Y", Phase.RECOMPUTE))
    ]
    recomputing = detlab.testing.make_run({0: calls})
    folder = detlab.testing.save_run(recomputing, tmp_path / "run")
    recomputed = (detlab.check_recompute(each).findings for each in (folder, recomputing))
    assert next(recomputed).equals(next(recomputed))


@pytest.mark.parametrize("check", ["check_recompute", "check_replicas"])
def test_a_check_of_nothing_says_that_the_path_does_not_exist(check, tmp_path):
    with pytest.raises(detlab.DetlabError, match="nowhere does not exist"):
        getattr(detlab, check)(tmp_path / "nowhere")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        detlab.compair  # noqa: B018
