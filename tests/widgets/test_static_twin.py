"""What widgets show without a kernel: a bundle that stands alone, and a file that opens offline."""

import base64

import ipywidgets
import pytest

from detlab.errors import InputError
from detlab.widgets.static_twin import Snapshot, StaticTwin, Twin

VIEW = "application/vnd.jupyter.widget-view+json"


class Panel(StaticTwin, ipywidgets.VBox):
    """The smallest widget with a twin."""

    def twin(self):
        return Twin("<p>one &lt;origin&gt;</p>", "one <origin>", b"\x89PNG")


def test_the_bundle_holds_the_live_view_and_its_twin():
    data, metadata = Panel()._repr_mimebundle_()
    assert set(data) == {VIEW, "text/html", "text/plain", "image/png"}
    assert base64.b64decode(data["image/png"]) == b"\x89PNG"
    assert metadata == {}


def test_a_twin_without_a_picture_has_no_empty_one():
    assert set(Twin("<p>x</p>", "x").bundle()) == {"text/html", "text/plain"}


def test_a_snapshot_has_no_live_view():
    bundle = Panel().snapshot()._repr_mimebundle_(include=None, exclude=None)
    assert VIEW not in bundle
    assert bundle["text/plain"] == "one <origin>"


def test_a_snapshot_is_saved_as_a_page_that_asks_for_nothing(tmp_path):
    text = Panel().snapshot().save(tmp_path / "s.html").read_text("utf-8")
    assert "<title>one &lt;origin&gt;</title>" in text
    assert "<p>one &lt;origin&gt;</p>" in text
    assert "default-src 'none'" in text
    assert "<script" not in text


def test_a_snapshot_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        Snapshot(Twin("", "")).save(tmp_path / "gone" / "s.html")
