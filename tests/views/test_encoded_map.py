"""The map in the page answers as the notebook's map does: same windows, same calls, same words."""

import re
from itertools import product

import numpy as np
import pytest

import detlab as dl
from detlab.comparison import compare
from detlab.comparison.places import site_at
from detlab.schema import Coordinate, Flag, Phase
from detlab.testing import Call, make_run
from detlab.views import encoded_map
from detlab.views.cells import MapSource
from detlab.views.encoded_map import encode_map
from tests.views.offline import ask

PLENTY = 1_000_000


def states(source):
    """List states of every kind: steps, orders, hidden verdicts, windows inside and beyond the edges."""
    steps = [*source.cmp.steps, None]
    for order, step in product(source.orders, steps):
        yield {"rows": "rank", "columns": "call", "step": step, "order": order, "hidden": [], "window": None}
    for hidden in (["receiver"], ["origin", "receiver"], ["absorbed", "unknown", "changed"]):
        yield {**source.normal({}), "hidden": hidden}
        yield {**source.normal({}), "step": None, "hidden": hidden}
    for window in ([1, 3, 5, 90], [-5, 2, 3.5, 1e9], [0, 1, 7, 8], [0, 10_000, 0, 10_000]):
        yield {**source.normal({}), "window": window}
    for rows in ("op", "rank"):
        yield source.normal({"rows": rows, "columns": "step"})
        yield {
            **source.normal({"rows": rows, "columns": "step"}),
            "hidden": ["receiver"],
            "window": [1, 4, 0, 1],
        }


def blocks(source, state, rng):
    """Choose blocks of cells of all sizes, some of them beyond the map."""
    rows, columns = source.size(state)
    yield [0, rows, 0, columns]
    for size in (1, 1, 1, 7, 60):
        r, c = int(rng.integers(0, rows)), int(rng.integers(0, columns))
        yield [r, r + size, c, c + size]


def story(words, extra=False):
    """Give the calls of one rank over two steps in which a call may give other words."""
    calls = []
    for step, word in enumerate(words, 1):
        calls.append(Call("aten.embedding.default", "model.emb", ["w"], ["e"], step=step))
        for layer in range(3):
            scope = f"model.layers.{layer}.mlp (é/@)"
            calls.append(Call("aten.mm.default", scope, ["e"], [word if layer == 1 else "m"], step=step))
            calls.append(
                Call("aten.add.Tensor", "model", [word if layer == 1 else "m"], ["s" + word], step=step)
            )
        if extra and step == 2:
            calls.append(Call("aten.relu.default", "model.head", ["s"], ["r"], step=step))
        calls.append(
            Call(
                "aten.copy_.default",
                "opt",
                [word],
                ["p" + word],
                step=step,
                phase=Phase.OPTIMIZER,
                flags=Flag.POINTERS,
            )
        )
        calls.append(
            Call(
                "c10d.allreduce_", "", ["s" + word], ["t"], step=step, phase=Phase.GRAD_REDUCE, group="dp_cp"
            )
        )
    return calls


def small():
    """Compare six ranks: origins, receivers, a call and a rank of one run only, calls set aside."""
    places = {rank: Coordinate(tp=rank % 2, dp=rank // 2) for rank in range(6)}
    options = {"coordinates": places, "layout": {"tp": 2, "dp": 3}, "world_size": 6}
    a = make_run({rank: story(["y", "y"]) for rank in range(6)}, label="a", **options)
    words = {rank: ["y", "z" if rank in (2, 3) else "y"] for rank in range(5)}
    b = make_run({rank: story(each, extra=rank == 4) for rank, each in words.items()}, label="b", **options)
    return compare(a, b)


def race():
    return dl.compare(*(dl.load_run(dl.samples.sample_path("race") / run) for run in "ab"))


def nothing_differs():
    run = make_run({0: story(["y", "y"]), 1: story(["y", "y"])})
    return compare(run, run)


@pytest.fixture(scope="module", params=[small, race, nothing_differs], ids=lambda make: make.__name__)
def source(request):
    return MapSource(request.param())


def test_every_window_is_the_notebooks(source):
    asked = list(states(source))
    sizes = [(500, 1_500), (3, 11)]
    answers = ask(
        encode_map(source, PLENTY).payload, [["window", state, *size] for state in asked for size in sizes]
    )
    for (state, size), answer in zip(product(asked, sizes), answers, strict=True):
        meta, tile = source.window(state, *size)
        assert answer["meta"] == {
            **meta,
            "window": list(meta["window"]),
            "markers": answer["meta"]["markers"],
        }
        assert sorted(answer["meta"]["markers"]) == sorted(map(list, meta["markers"]))
        assert answer["tile"] == tile.ravel().tolist()


def test_every_overview_is_the_notebooks(source):
    asked = list(states(source))
    for state, answer in zip(
        asked, ask(encode_map(source, PLENTY).payload, [["overview", state] for state in asked]), strict=True
    ):
        assert answer == {**(found := source.overview(state)), "tile": list(found["tile"])}


def test_every_cell_is_the_same_call_in_the_same_words(source):
    rng = np.random.default_rng(7)
    asked = [(state, block) for state in states(source) for block in blocks(source, state, rng)]
    payload = encode_map(source, PLENTY).payload
    calls = ask(payload, [["callIn", *each] for each in asked])
    texts = ask(payload, [["describe", *each] for each in asked])
    for (state, block), call, text in zip(asked, calls, texts, strict=True):
        assert text == source.describe(state, block)
        assert call == called(source, source.call_in(state, block))


def called(source, found):
    """Write a call as the page does: rank, number of the step, column."""
    if found is None:
        return None
    step, column = source.planes.programs[source.planes.program_of[found.number]].place_of(found.position)
    return {"rank": found.number, "step": source.cmp.steps.index(step), "column": column}


def test_a_call_is_found_back_on_every_map(source):
    rng = np.random.default_rng(8)
    payload, cmp = encode_map(source, PLENTY).payload, source.cmp
    picks = [
        (n, int(rng.integers(0, len(rank.verdicts)))) for n, rank in enumerate(cmp.ranks) for _ in range(3)
    ]
    asked = [(state, pick) for state in states(source) for pick in picks]
    answers = ask(payload, [["placeOf", state, called(source, Pick(*pick))] for state, pick in asked])
    for (state, pick), answer in zip(asked, answers, strict=True):
        place = source.place_of(state, *pick)
        assert answer == (None if place is None else list(place))


class Pick:
    def __init__(self, number, position):
        self.number, self.position = number, position


def test_a_search_finds_what_the_notebook_finds(source):
    texts = ["mm", "LAYERS.1", "relu", "head", " dp1 ", "no such thing", "", "origin"]
    asked = [(state, text) for state in states(source) for text in texts]
    answers = ask(encode_map(source, PLENTY).payload, [["search", *each] for each in asked])
    for each, answer in zip(asked, answers, strict=True):
        assert answer == [list(found) for found in source.search(*each)]


def test_sites_are_those_of_the_tables(source):
    rng = np.random.default_rng(9)
    cmp = source.cmp
    picks = [
        (n, int(rng.integers(0, len(rank.verdicts)))) for n, rank in enumerate(cmp.ranks) for _ in range(8)
    ]
    found = [called(source, Pick(*pick)) for pick in picks]
    payload = encode_map(source, PLENTY).payload
    answers = ask(payload, [["siteOf", call] for call in found])
    for (number, position), answer in zip(picks, answers, strict=True):
        in_a = cmp.ranks[number].rows_at(position)[0] >= 0
        assert answer == (str(site_at(cmp.ranks[number], position)) if in_a else "")


def test_maps_that_are_too_large_are_pooled_to_their_worst_and_named():
    source = MapSource(race())
    whole, small = encode_map(source, PLENTY), encode_map(source, 200)
    assert whole.pooled == [] and whole.unnamed == 0
    assert sum(len(plane) for plane in small.payload["planes"]) < 300
    factors = dict(small.pooled)
    assert factors["step 1"] > 1 and "worst over steps" in factors
    state = {**source.normal({}), "step": 1, "order": "rank"}
    ((answer,), cells) = ask(small.payload, [["window", state, 500, 1_500]]), source.shown(state).plane.cells
    starts = np.arange(0, cells.shape[1], factors["step 1"])
    pooled = np.maximum.reduceat(cells[:-1], starts, axis=1)
    expected = np.repeat(pooled, factors["step 1"], axis=1)[:, : cells.shape[1]]
    assert answer["tile"] == expected.ravel().tolist()


def test_a_pooled_cell_names_no_call():
    source = MapSource(race())
    state = {**source.normal({}), "step": 1}
    text, call = ask(
        encode_map(source, 200).payload,
        [["describe", state, [0, 1, 301, 302]], ["siteOf", {"rank": 0, "step": 0, "column": 301}]],
    )
    found = re.fullmatch(r"rank 0 · tp0 dp0 · step 1 · one of the calls (\d+) to (\d+) · (.*)", text)
    assert int(found[1]) <= 301 <= int(found[2])
    assert found[3] == f"origin, the worst of {int(found[2]) - int(found[1]) + 1} neighbouring calls"
    assert call == ""


def test_a_map_that_cannot_shrink_any_more_is_written_all_the_same():
    assert len(encode_map(MapSource(small()), 1).payload["planes"]) == 7


@pytest.mark.parametrize("limit", ["MAX_CALLS", "MAX_NAME_BYTES"])
def test_cells_without_names_keep_verdict_and_phase(monkeypatch, limit):
    monkeypatch.setattr(encoded_map, limit, 0)
    source = MapSource(race())
    drawn = encode_map(source, PLENTY)
    assert drawn.unnamed == 4
    state = {**source.normal({}), "step": 1, "order": "rank"}
    text, site, find, found = ask(
        drawn.payload,
        [
            ["describe", state, [0, 1, 301, 302]],
            ["siteOf", {"rank": 0, "step": 0, "column": 301}],
            ["find", 0, "1/0/backward/embedding.word_embeddings/aten.index_put.default#1"],
            ["search", state, "index_put"],
        ],
    )
    assert text == "rank 0 · tp0 dp0 · step 1 · backward · call 301 · origin"
    assert (site, find, found) == ("", None, [])


def test_a_site_leads_back_to_its_call(source):
    rng = np.random.default_rng(10)
    cmp = source.cmp
    picks = [
        (n, int(rng.integers(0, len(rank.verdicts)))) for n, rank in enumerate(cmp.ranks) for _ in range(8)
    ]
    known = [pick for pick in picks if cmp.ranks[pick[0]].rows_at(pick[1])[0] >= 0]
    asked = [["find", cmp.ranks[n].rank, str(site_at(cmp.ranks[n], at))] for n, at in known]
    answers = ask(encode_map(source, PLENTY).payload, asked)
    assert answers == [called(source, Pick(*pick)) for pick in known]


@pytest.mark.parametrize(
    "site", ["", "nonsense", "1/0/forward/x%2/aten.mm.default#0", "9/9/data//x#0", "1/0/x/y/z#0"]
)
def test_what_is_no_site_of_the_rank_leads_nowhere(site):
    payload = encode_map(MapSource(race()), PLENTY).payload
    assert ask(payload, [["find", 0, site], ["find", 77, site]]) == [None, None]
