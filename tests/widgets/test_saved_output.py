"""What a notebook file holds of a panel: the report that came after the panel was displayed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from detlab.widgets.saved_output import SavedOutput
from detlab.widgets.static_twin import Twin

PANEL = """
import detlab as dl
panel = dl.widgets.replay(dl.samples.sample_path("race") / "a")
panel.controls.isolate.value, panel.controls.trials.value = False, 20
panel
"""
REPLAY = "panel.start(); print(panel.wait(60).conditions[0].trials)"


def test_report_that_comes_later_is_in_the_saved_output(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in (PANEL, "1 + 1", REPLAY)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    view, shown = notebook.cells[0].outputs
    assert notebook.cells[2].outputs[0].text == "20\n"
    assert shown.output_type == "display_data"
    assert "20 trials in this process (baseline)" in shown.data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in view.data


class Still(SavedOutput):
    def twin(self) -> Twin:
        return Twin("<p>still</p>", "still")


def test_what_was_never_displayed_is_not_put_into_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    def fail(*args: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(IPython.display, "update_display", fail)
    Still().save_output()
