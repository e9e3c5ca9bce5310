"""The script of the map without a browser: windows, cells, markers and names, as Node computes them."""

import json
import random
import subprocess
from itertools import pairwise

import pytest

from detlab.views.palette import VERDICT_COLOURS
from detlab.views.scripts import joined
from tests.views.offline import node

PARTS = ("map_basics.js", "map_over.js", "map_cells.js", "map_words.js")
NAMES = ["untraced", *(verdict.name.lower() for verdict in VERDICT_COLOURS)]
ORIGIN, RECEIVER = NAMES.index("origin"), NAMES.index("receiver")
META = {
    "state": {"rows": "rank", "columns": "call", "step": 1, "order": "dp", "hidden": [], "window": None},
    "num_rows": 10,
    "num_columns": 100,
    "window": [2, 9, 10, 60],
    "row_factor": 3,
    "column_factor": 20,
}


def run(expression, cases):
    """Evaluate an expression of ``given`` for each case, by the functions of the map."""
    script = (
        f"{joined(PARTS)}\nconst given = {json.dumps(cases)};"
        f"process.stdout.write(JSON.stringify(given.map((given) => ({expression}))));"
    )
    done = subprocess.run(
        [node(), "--input-type=module"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def windows():
    """Give ranges of windows inside maps, and a place in each as a fraction."""
    chance = random.Random(6)  # noqa: S311 - no secret
    sizes = [chance.choice([1, 2, 7, 500, 20_000]) for _ in range(300)]
    starts = [chance.randrange(size) for size in sizes]
    return [
        [start, chance.randint(start + 1, size), size, chance.random()]
        for start, size in zip(starts, sizes, strict=True)
    ]


@pytest.mark.parametrize("factor", [0.4, 0.5, 0.99, 1.01, 2, 2.5])
def test_zooming_stays_inside_the_map_and_keeps_the_place_under_the_pointer(windows, factor):
    cases = [[*window, factor] for window in windows]
    for (start, stop, size, fraction, _), (first, last) in zip(
        cases, run("zoomed(...given)", cases), strict=True
    ):
        assert 0 <= first < last <= size
        at_limit = stop - start == (1 if factor < 1 else size)
        assert at_limit or (last - first < stop - start) == (factor < 1)
        if first > 0 and last < size:
            before, after = start + fraction * (stop - start), first + fraction * (last - first)
            assert abs(before - after) <= 0.5 + 1e-9


def test_moving_keeps_the_size_of_a_window_and_stays_inside(windows):
    cases = [[*window[:3], by] for window in windows for by in (-30_000, -1, 0, 0.4, 3, 30_000)]
    for (start, stop, size, _), (first, last) in zip(cases, run("moved(...given)", cases), strict=True):
        assert last - first == stop - start and 0 <= first <= last <= size


def test_the_numbers_of_an_axis_are_round_in_order_and_few(windows):
    cases = [[start, stop, most] for start, stop, *_ in windows for most in (1, 8)]
    for (start, stop, most), found in zip(cases, run("ticks(...given)", cases), strict=True):
        assert found == sorted(set(found)) and len(found) <= most + 1
        assert all(start <= at < stop and isinstance(at, int) for at in found)
        steps = {second - first for first, second in pairwise(found)}
        assert len(steps) <= 1 and all(str(step).rstrip("0") in ("1", "2", "5") for step in steps)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (99_999, "99,999"),
        (140_000, "140k"),
        (1_250_000, "1.3M"),
        (48_640_000, "48M"),
        (486_400_000, "486M"),
        (2_000_000_000, "2.0G"),
    ],
)
def test_counts_beside_a_row_are_short(count, text):
    assert run("compact(given)", [count]) == [text]


def test_what_steers_a_terminal_or_the_reading_direction_becomes_visible():
    shown = run("visible(given)", ["\x1b[31mred", "a\u202eb", "\ud800", "aten.mm · 層 <b> 🙂"])
    assert shown == ["\\u001b[31mred", "a\\u202eb", "\\ud800", "aten.mm · 層 <b> 🙂"]


def test_every_list_of_names_of_a_tile_is_made_visible():
    bomb = "\x1b[2J"
    meta = META | {
        "row_labels": [bomb],
        "column_labels": [bomb],
        "groups": [[bomb, 0, 1]],
        "layers": [[bomb, 0, 1]],
        "orders": [bomb],
    }
    (shown,) = run("legible(given)", [meta])
    assert bomb not in json.dumps(shown, ensure_ascii=False)
    assert shown["groups"] == [["\\u001b[2J", 0, 1]]


def test_a_tile_of_other_rows_is_not_placed_by_their_numbers():
    wanted = META["state"] | {"window": [0, 5, 0, 5]}
    cases = [[wanted | other, META] for other in ({}, {"order": "tp"}, {"rows": "op"}, {"columns": "step"})]
    assert run("viewOf(...given)", cases) == [[0, 5, 0, 5]] + 3 * [META["window"]]


def test_a_window_beyond_the_map_is_cut_to_it():
    cases = [
        [META["state"] | {"window": window}, META] for window in (None, [0, 99, 50, 999], [20, 30, 0, 10])
    ]
    assert run("viewOf(...given)", cases) == [[0, 10, 0, 100], [0, 10, 50, 100], [9, 10, 0, 10]]


def test_two_states_look_alike_whatever_their_window_and_the_order_of_what_is_hidden():
    alike = [
        META["state"] | {"hidden": ["origin", "receiver"]},
        META["state"] | {"hidden": ["receiver", "origin"], "window": [0, 1, 0, 1]},
    ]
    assert len(set(run("lookOf(given)", alike))) == 1
    others = [META["state"] | {"step": 2}, META["state"] | {"hidden": ["origin"]}]
    assert len(set(run("lookOf(given)", [META["state"], *others]))) == 3


def test_each_cell_of_the_window_lies_in_the_block_of_its_tile_cell():
    cells = [[row, column] for row in range(10) for column in range(0, 100, 7)]
    blocks = run(f"cellOf({json.dumps(META)}, ...given)", cells)
    for (row, column), (r0, r1, c0, c1) in zip(cells, blocks, strict=True):
        assert r0 <= row < r1 and c0 <= column < c1
        if 2 <= row < 9 and 10 <= column < 60:
            assert (r0 - 2) % 3 == 0 and (c0 - 10) % 20 == 0 and r1 <= 9 and c1 <= 60
        else:
            assert (r1 - r0, c1 - c0) == (1, 1)


def test_a_cell_that_the_tile_does_not_hold_has_no_verdict_yet():
    picture = "{code: (row, column) => 10 * row + column}"
    blocks = [[2, 5, 10, 30], [8, 9, 50, 60], [1, 2, 10, 30], [2, 5, 60, 61]]
    assert run(f"codeOf({json.dumps(META)}, {picture}, given)", blocks) == [0, 22, None, None]


def thin(markers, tiny):
    return run(f"thinned(given, {json.dumps(tiny)})", [markers])[0]


def marker(code, x, y):
    return {"code": code, "origin": code == ORIGIN, "x": x, "y": y}


def test_markers_that_are_drawn_never_cover_each_other():
    chance = random.Random(7)  # noqa: S311 - no secret
    places = [(chance.randrange(8, 800), chance.randrange(8, 380)) for _ in range(600)]
    drawn = thin([marker(RECEIVER + at % 2, *place) for at, place in enumerate(places)], False)
    assert 20 < len(drawn) < 600
    for at, one in enumerate(drawn):
        for other in drawn[at + 1 :]:
            assert max(abs(one["x"] - other["x"]), abs(one["y"] - other["y"])) >= 17


def test_the_worst_marker_stays_where_several_meet():
    assert thin([marker(RECEIVER, 100, 100), marker(ORIGIN, 104, 100)], False) == [marker(ORIGIN, 104, 100)]


def test_a_verdict_with_tiny_cells_keeps_a_marker_beside_a_worse_one():
    drawn = thin([marker(RECEIVER, 100, 100), marker(ORIGIN, 104, 100)], True)
    assert [each["code"] for each in drawn] == [ORIGIN, RECEIVER]
