"""Some ranks and steps of a run: what is asked for is a trace of its own, and nothing else is read."""

import numpy as np
import pytest

from detlab import load_run
from detlab.errors import InputError
from detlab.schema import DETAIL_DTYPE, EVENT_DTYPE, Phase
from detlab.store import Selection, spans, writer
from detlab.store.layout import RankFiles
from detlab.testing import Call, make_run, save_run

NAMES = EVENT_DTYPE.names


def call(step, word="y", **fields):
    return Call("aten.mm.default", f"layers.{step}", ["w", f"x{step}"], [word], step=step, **fields)


def calls():
    """Calls of four steps, in batches of a few rows; the last one of step 1 is waited for in step 2."""
    rows = [call(step, f"{step} {n}", phase=phase) for step in range(4) for phase in (Phase.FORWARD,
            Phase.BACKWARD) for n in range(3)]  # fmt: skip
    rows.insert(14, call(1, "late", phase=Phase.BACKWARD))
    return rows


@pytest.fixture(params=[4, 9, 1_000], ids="batches of {} rows".format)
def folder(request, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", request.param)
    return save_run(make_run({rank: calls() for rank in range(4)}), tmp_path / "run")


def rows_of(trace, start=0, stop=None):
    columns = trace.columns(start, trace.num_events if stop is None else stop, NAMES)
    return [tuple(row) for row in zip(*(columns[name].tolist() for name in NAMES), strict=True)]


@pytest.mark.parametrize("steps", [{1}, {0, 2}, {1, 3}, {0, 1, 2, 3}, {3}])
def test_the_steps_asked_for_have_the_same_events_and_details_as_in_the_whole_run(folder, steps):
    whole, part = load_run(folder).ranks[2], load_run(folder, steps=steps).ranks[2]
    everything = rows_of(whole)
    chosen = [at for at, row in enumerate(everything) if row[NAMES.index("step")] in steps]
    assert rows_of(part) == [everything[at] for at in chosen]
    assert rows_of(part, 2, 5) == [everything[at] for at in chosen[2:5]]
    for row, at in enumerate(chosen):
        assert part.details_of(row).tobytes() == whole.details_of(at).tobytes()
    seqs = np.concatenate([part.details.read(n, DETAIL_DTYPE.names)["seq"] for n in range(len(part.details))])
    assert set(seqs.tolist()) == {everything[at][NAMES.index("seq")] for at in chosen}
    part.check(np.arange(len(part.index)))
    assert part.steps == sorted(steps)


def test_files_of_a_rank_that_is_left_out_are_not_opened(folder):
    for rank in (0, 1, 3):
        for path in (RankFiles(folder, rank).events, RankFiles(folder, rank).names):
            path.write_bytes(b"no trace at all")
    run = load_run(folder, ranks=2)
    assert ([rank.header.rank for rank in run.ranks], run.problems) == ([2], ())
    assert run.left_out_ranks == (0, 1, 3)


def test_segments_of_a_step_that_is_left_out_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", 3)
    folder = save_run(make_run({0: calls()}), tmp_path / "run")
    trace = load_run(folder).ranks[0]
    stream = RankFiles(folder, 0).events
    damaged = bytearray(stream.read_bytes())
    for record in trace.index[trace.index["step"] != 3]:
        middle = (int(record["offset"]) + int(record["end"])) // 2
        damaged[middle : record["end"]] = bytes(int(record["end"]) - middle)
    stream.write_bytes(damaged)
    part = load_run(folder, steps="3")
    assert len(rows_of(part.ranks[0])) == 6
    assert (part.left_out_steps, part.problems) == ((0, 1, 2), ())


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ("0,2-3", [0, 2, 3]),
        (2, [2]),
        ([3, 1], [1, 3]),
        (range(1, 3), [1, 2]),
        (np.int64(3), [3]),
        (np.array([0, 3]), [0, 3]),
        (None, [0, 1, 2, 3]),
    ],
)
def test_a_run_is_loaded_with_what_a_recorder_accepts_and_with_numbers(tmp_path, given, numbers):
    folder = save_run(make_run({rank: calls() for rank in range(4)}), tmp_path / "run")
    assert [rank.header.rank for rank in load_run(folder, ranks=given).ranks] == numbers
    assert load_run(folder, steps=given).steps == numbers


@pytest.mark.parametrize("what", ["ranks", "steps"])
def test_an_empty_selection_is_an_error_that_says_what_there_is(tmp_path, what):
    folder = save_run(make_run({rank: calls() for rank in range(4)}), tmp_path / "run")
    with pytest.raises(
        InputError, match=f"has none of {what}='7-9': it has {what} 0-3.\nHint: ask for {what}"
    ):
        load_run(folder, **{what: "7-9"})
    with pytest.raises(InputError, match=f"does not select {what}"):
        load_run(folder, **{what: []})


def test_calls_in_no_step_are_no_part_of_a_span():
    assert spans([-1, 0, 1, 2]) == "-1, 0-2"
    chosen = Selection.parse(spans([-1, 0, 1, 2]), "steps", least=-1)
    assert [n for n in range(-2, 4) if n in chosen] == [-1, 0, 1, 2]


def test_spans_read_back_what_they_write():
    assert [n for n in range(20) if n in Selection.parse(spans([0, 1, 2, 7, 9, 10]), "steps")] == [
        0,
        1,
        2,
        7,
        9,
        10,
    ]


def test_a_run_shows_its_size_and_that_it_is_a_part(tmp_path):
    folder = save_run(make_run({rank: calls() for rank in range(4)}, label="x"), tmp_path / "run")
    whole, part = load_run(folder), load_run(folder, ranks="1")
    assert whole.num_bytes == sum(f.stat().st_size for f in folder.iterdir() if f.name != "manifest.json")
    assert f"100 events, {whole.num_bytes / 1000:.3g} kB)" in repr(whole)
    assert repr(part).startswith("Run('x': 1 of 4 ranks, steps 0-3, 25 events, ")
    assert repr(part).endswith(" kB, the rest left out by request)")
