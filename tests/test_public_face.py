"""The public names, and that importing them costs nothing until they are used."""

import subprocess
import sys

import pytest

import detlab

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


def test_every_public_name_is_there_and_sorted():
    assert detlab.__all__ == sorted(detlab.__all__)
    assert all(hasattr(detlab, name) for name in detlab.__all__)
    assert dir(detlab) == detlab.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        detlab.compair  # noqa: B018
