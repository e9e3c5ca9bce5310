"""The report as a document: read back equal, checked when read, with frames and the place of the trials."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from detlab.captures import Capture
from detlab.errors import InputError
from detlab.kernel import ReplayClass, ReplayReport, load_replay, replay
from detlab.kernel.statistics import summarize

aten = torch.ops.aten
Captured = Callable[..., Capture]
SCHEMA = json.loads(files("detlab").joinpath("schemas/replay.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def report(racing: Capture) -> ReplayReport:
    """Give a report with every kind of row: several conditions, one refused, outputs that differ."""
    asked = ["4 threads", "1 thread", "device cuda:77"]
    return replay(racing, trials=5, conditions=asked)


def test_report_is_read_back_equal(report: ReplayReport, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report.to_json()), "utf-8")
    assert load_replay(file) == report
    assert load_replay(str(file)) == report
    assert load_replay(report.to_json()) == report
    assert repr(load_replay(file)) == repr(report)


def test_report_with_alternatives_is_read_back_equal(racing: Capture) -> None:
    def ordered(self: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
        return self.index_add_(0, indices[0], values)

    report = replay(racing, trials=3, threads=4, against=ordered)
    assert report.alternatives is not None
    assert "ordered" in repr(report)
    assert load_replay(json.loads(json.dumps(report.to_json()))) == report


def test_report_matches_the_schema(report: ReplayReport) -> None:
    jsonschema.validate(json.loads(json.dumps(report.to_json())), SCHEMA, jsonschema.Draft202012Validator)


def test_document_of_today_minus_what_is_new_is_read(report: ReplayReport) -> None:
    body = report.to_json()
    for name in ("why", "decided_by", "traced_under", "place", "is_place_of_training", "alternatives"):
        del body[name]
    assert load_replay(body).conditions == report.conditions


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "detlab.replay/9"},
        {"class": "green"},
        {"conditions": [{"name": "x"}]},
        {"conditions": {}},
        {"outputs": [3]},
        {"problems": "none"},
        {"problems": [{}]},
        {"traced_output_seen": "yes"},
        {"more": 1},
        {"place": {"device": "cpu", "name": 3, "driver": None, "versions": {}}},
    ],
    ids=str,
)
def test_document_of_another_form_is_refused(report: ReplayReport, change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        load_replay(report.to_json() | change)


def test_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("verdict: race", "utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        load_replay(file)


def test_document_of_a_refusal_says_why_there_were_no_trials() -> None:
    problems = [{"where": "replay", "what": "no capture there"}]
    with pytest.raises(InputError, match="holds no trial: no capture there"):
        load_replay({"schema": "detlab.replay/1", "class": "invalid", "problems": problems})


def test_frame_has_one_row_a_condition(report: ReplayReport) -> None:
    frame = report.frame
    assert frame["name"].to_list() == ["4 threads", "1 thread", "device cuda:77"]
    assert frame["status"].to_list() == ["done", "done", "refused"]
    assert frame["interval_low"][2] is None


def test_elements_that_differ_are_a_frame(report: ReplayReport) -> None:
    frame = report.elements
    assert frame.columns == ["output", "index", "first", "other", "ulp"]
    assert frame.height > 0
    assert frame["ulp"].min() > 0  # type: ignore[operator]


def test_frames_have_one_schema(captured: Captured, report: ReplayReport) -> None:
    nothing = replay(captured(aten.neg.default, torch.ones(3)), trials=2)
    assert nothing.frame.schema == report.frame.schema
    assert nothing.elements.schema == report.elements.schema


def test_place_of_the_trials_is_told_without_host_or_path(report: ReplayReport) -> None:
    assert report.place is not None
    assert report.is_place_of_training is True
    assert report.place.versions["torch"] == torch.__version__
    assert report.place.driver is None
    (line,) = [line for line in repr(report).splitlines() if line.startswith("place")]
    assert line.startswith("place     cpu: ")
    assert not [word for word in line.split() if word.startswith("/")]


def test_other_versions_are_not_the_place_of_training(captured: Captured) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    versions = {**capture.state["versions"], "torch": "2.9.1"}
    content: Any = capture.to_json()
    older = Capture.from_json({**content, "state": {**content["state"], "versions": versions}}, capture.path)
    report = replay(older, trials=2)
    assert report.is_place_of_training is False
    assert "not that of training" in repr(report)


def test_flags_of_training_do_not_change_the_place(captured: Captured) -> None:
    report = replay(captured(aten.neg.default, torch.ones(3)), trials=2, threads=1, deterministic=True)
    assert report.is_place_of_training is True


LONGEST = "deterministic algorithms without memory fill"


def table_of(report: ReplayReport, *rows: Any) -> list[str]:
    lines = repr(dataclasses.replace(report, conditions=rows)).splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("trials")]
    return lines[first : first + 1 + len(rows)]


@pytest.mark.parametrize("number", [8, 1000])
def test_table_of_the_longest_name_fits_100_columns_and_names_its_last(
    report: ReplayReport, number: int
) -> None:
    fresh = summarize("fresh process", range(number), note="in 2 new processes, 4 trials each")
    title, *rows = table_of(report, fresh, summarize(LONGEST, [1] * number))
    assert max(map(len, [title, *rows])) <= 100
    assert title.endswith("trials distinct   modal  other results at 95 %")
    assert [row[: title.rindex("trials") + 6].split()[-1] for row in rows] == [f"{number:,}"] * 2
    assert rows[0][10:].startswith("fresh process, 2 new processes ")
    assert re.search(r"100.0 %  below [\d.]+ %$", rows[1])


def test_table_says_once_that_all_trials_were_made_in_new_processes(report: ReplayReport) -> None:
    one, crashed = (
        summarize("a", [1], note="in 1 new process"),
        summarize("b", [], status="crashed", note="x"),
    )
    title, first, second = table_of(report, one, crashed)
    assert title.startswith("trials    condition, in new processes trials")
    assert first.split() == ["a", "1", "1", "100.0", "%", "below", "95.0", "%"]
    assert second.endswith("0  crashed: x")
    assert len(first[: first.index("1") + 1]) == title.rindex("trials") + 6


def test_results_that_each_came_once_are_told_so(report: ReplayReport) -> None:
    def verdict(*results: int) -> str:
        rows = (summarize("4 threads", results),)
        return repr(dataclasses.replace(report, conditions=rows, why=()))

    assert "in 3 trials in this process (4 threads),\n          each came once\n" in verdict(1, 2, 3)
    assert "the most frequent in 66.7 %" in verdict(1, 1, 2)


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        (1, "1 trial in this process (4 threads) cannot show how often that is"),
        (20, "20 trials in this process (4 threads) gave one result; of others a rate above 13.9 %"),
    ],
)
def test_another_result_in_training_is_not_told_as_no_mismatch(
    report: ReplayReport, trials: int, said: str
) -> None:
    rows = (summarize("4 threads", [1] * trials),)
    facts: Any = {"traced_output_seen": False, "other_conditions": "", "why": ()}
    changed = dataclasses.replace(report, outcome=ReplayClass.RACE, conditions=rows, **facts)
    lines = repr(changed).splitlines()
    assert lines[0].startswith("verdict   differs from training: ")
    assert said in lines[1]
    assert "no mismatch" not in repr(changed)
