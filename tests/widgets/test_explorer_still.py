"""The map as a still: nothing that is rare gets lost in it, and all of it is said in words too."""

import struct
import zlib

import numpy as np

from detlab.comparison import compare
from detlab.schema import Verdict
from detlab.testing import Call, make_run
from detlab.views.cells import MapSource
from detlab.views.tables import Markup, table
from detlab.widgets.static_twin_map import MAX_ROWS, still
from detlab.widgets.static_twin_tables import inlined, plain_table
from tests.views.stories import one_in_a_million, set_aside, story
from tests.widgets.explorer_stories import assert_only_text, diverged, race, read

ORIGIN = 1 + Verdict.ORIGIN


def pixels(picture):
    """Decode a PNG of palette indices as `detlab.views.png` writes it."""
    width, height = struct.unpack(">II", picture[16:24])
    start = picture.index(b"IDAT")
    size = struct.unpack(">I", picture[start - 4 : start])[0]
    lines = np.frombuffer(zlib.decompress(picture[start + 4 : start + 4 + size]), np.uint8)
    return lines.reshape(height, width + 1)[:, 1:]


def drawn(cmp, **state):
    """Draw a still and give what a reader sees of it: its words, its images and its pixels."""
    content, picture = still(MapSource(cmp), state)
    found = read(content)
    return found, [attributes for tag, attributes in found.tags if tag == "img"], pixels(picture)


def test_every_rank_has_a_strip_and_its_numbers():
    found, images, _ = drawn(race())
    assert [image["alt"] for image in images] == [
        "0 · tp0 dp0: 1 origins, 12 calls differ",
        "2 · tp0 dp1: 1 origins, 41 calls differ",
        "1 · tp1 dp0: 0 origins, 0 calls differ",
        "3 · tp1 dp1: 0 origins, 0 calls differ",
    ]
    assert "origin 2" in found.text


def test_one_call_in_a_million_is_seen():
    _, _, picture = drawn(one_in_a_million(123_456))
    rows, columns = np.nonzero(picture == ORIGIN)
    assert len(rows) > 50
    assert abs(columns.mean() / picture.shape[1] - 0.123456) < 0.005


def test_the_phases_are_named_with_their_calls():
    found, _, _ = drawn(diverged())
    assert "call: forward 0-0, backward 1-1, optimizer 2-2" in found.text


def test_a_step_the_worst_of_all_and_a_map_of_steps_say_what_they_are():
    assert drawn(diverged(), step=2)[0].text.startswith("Step 2; calls from left to right")
    assert drawn(diverged(), step=None)[0].text.startswith("Worst over all steps;")
    assert drawn(diverged(), columns="step")[0].text.startswith("Steps 1-3 from left to right.")


def test_cells_of_many_calls_are_not_counted_as_calls():
    words = [[{0: [word] * 3} for word in "yz"]]
    cmp = compare(*(story(label, word) for label, word in zip("ab", *words, strict=True)))
    found, images, _ = drawn(cmp, rows="op", columns="step")
    assert "origins (cells) differ (cells)" in found.text
    assert [image["alt"] for image in images if "mm" in image["alt"]] == [
        "aten.mm.default: 3 cells with an origin, 3 cells differ"
    ]
    assert "cells" not in drawn(cmp, step=1)[0].text


def test_many_ranks_are_pooled_and_it_is_said():
    words = {rank: ["y"] for rank in range(100)}
    found, images, _ = drawn(compare(story("a", words), story("b", words | {70: ["z"]})))
    assert len(images) <= MAX_ROWS
    assert "Each pixel is the worst of 4 ranks x 1 calls." in found.text
    (odd,) = (image["alt"] for image in images if "1 origins" in image["alt"])
    assert odd.startswith("68 · ") and " … 71 · " in odd and odd.endswith(": 1 origins, 2 calls differ")


def test_a_window_and_what_is_hidden_are_said():
    found, _, _ = drawn(diverged(), window=[1, 2, 0, 2], hidden=["receiver"])
    assert "Rows 1 to 1 of 2, columns 0 to 1 of 3." in found.text
    assert "Drawn as matches on request: receiver." in found.text


def test_what_was_set_aside_is_said():
    assert "Set aside and drawn as matches: 1." in drawn(set_aside())[0].text


def test_what_was_not_recorded_is_empty_and_named():
    calls = {
        0: [Call("aten.mm.default", "lin", ["x"], ["y"])] * 2,
        1: [Call("aten.mm.default", "lin", ["x"], ["y"])],
    }
    found, _, picture = drawn(compare(make_run(calls, label="a"), make_run(calls, label="b")))
    assert "empty: no call was recorded" in found.text
    assert not picture[-4, -5]


def test_hostile_ops_stay_text_in_a_still():
    content, _ = still(MapSource(diverged(op='"><script>alert(1)</script>\x1b[2J')), {"rows": "op"})
    assert_only_text(content)


def test_a_table_escapes_text_and_leaves_markup():
    found = plain_table(("a", "b"), [("<i>", Markup("<b>x</b>"))], "<u>", more=3)
    assert "&lt;i&gt;" in found and "<b>x</b>" in found and "&lt;u&gt;" in found and "… and 3 more." in found


def test_tables_of_the_report_get_styles_of_their_own():
    found = inlined(table(("what", "number"), [("<td>", 3)], "words"))
    assert "&lt;td&gt;" in found
    assert '<caption style="' in found
    assert '<th scope="row" style="' in found
    assert "overflow" not in found


def test_long_words_in_tables_break_at_their_joints_and_numbers_do_not():
    found = plain_table(("what", "it"), [("x", "embedding.word_embeddings"), ("y", "1.2131122380508592")])
    assert "<td" in found and "embedding.<wbr>word_<wbr>embeddings" in found
    assert "1.2131122380508592" in found
    assert "<wbr>" not in plain_table(("what", "it"), [("x", "aten.mm.default")])
