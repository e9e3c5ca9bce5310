"""The recorder saves the calls that were asked for, by op, by site, or where a comparison found an origin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import detlab as dl
from detlab.errors import RecordingError
from detlab.record.captures import Selector, read_selectors

SITE = "1/-1/data//aten.index_put_.default#0"


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def racing(folder: Path, **options: Any) -> Path:
    """Record a call that races for real, between two that do not."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 1000, (1_000_000,), generator=generator)
    values = torch.randn(1_000_000, generator=generator)
    with dl.Recorder(folder, **options):
        values.neg_()
        torch.zeros(1000).index_put_([index], values, accumulate=True).neg()
    return folder


def saved(folder: Path) -> list[dl.Capture]:
    return [dl.load_capture(path) for path in sorted((folder / "captures").iterdir())]


@pytest.mark.usefixtures("four_threads")
def test_first_origin_of_a_comparison_is_captured_and_races_alone(tmp_path: Path) -> None:
    monday = racing(tmp_path / "monday")
    for number in range(5):  # until it is seen, bounded
        cmp = dl.compare(monday, racing(tmp_path / f"tuesday{number}"))
        if len(cmp.first_origin):
            break
    (capture,) = saved(racing(tmp_path / "again", capture=cmp))
    assert capture.site == cmp.first_origin["site"][0] == SITE
    assert dl.replay(capture, trials=20, threads=4).num_distinct > 1


def test_origins_of_other_ranks_are_left_to_them(tmp_path: Path) -> None:
    origins = pl.DataFrame({"rank": [1], "site": [SITE]})
    racing(tmp_path, capture=origins)
    assert not (tmp_path / "captures").exists()


def test_comparison_without_an_origin_is_refused(tmp_path: Path) -> None:
    class Same:
        first_origin = pl.DataFrame({"rank": [], "site": []})

    with pytest.raises(RecordingError, match="has no origin"):
        dl.Recorder(tmp_path, capture=Same())


@pytest.mark.parametrize("given", [3, {"a": 1}, [None], "1/0/no site"], ids=str)
def test_what_names_no_call_is_refused(given: object, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="capture= was given"):
        dl.Recorder(tmp_path, capture=given)


def test_ops_sites_and_frames_may_stand_in_one_list() -> None:
    frame = pl.DataFrame({"rank": [3], "site": [SITE], "other": [1]})
    found = read_selectors(["aten.neg.default", frame, SITE])
    assert found == (Selector("aten.neg.default"), Selector(SITE, 3), Selector(SITE))


def test_name_that_fits_nothing_is_told(tmp_path: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="no call was captured for aten.index_put_"),
        dl.Recorder(tmp_path, capture="aten.index_put_"),
    ):
        torch.zeros(3).index_put_([torch.tensor([1])], torch.ones(1), accumulate=True)


def test_call_larger_than_allowed_is_told_with_its_size(tmp_path: Path) -> None:
    whole = torch.ones(1000)
    with (
        pytest.warns(RuntimeWarning, match=r"have 4,000 bytes; max_bytes allows 100"),
        dl.Recorder(tmp_path, capture="aten.neg.default", capture_max_bytes=100),
    ):
        whole[:10].neg()


def test_compact_capture_holds_what_the_call_reads(tmp_path: Path) -> None:
    whole = torch.randn(1000)
    with dl.Recorder(tmp_path, capture="aten.neg.default", capture_max_bytes=100, capture_compact=True):
        whole[:10].neg()
    (capture,) = saved(tmp_path)
    assert capture.num_bytes == 40
    assert "layout no longer exact" in capture.notes[0]


def test_capture_that_cannot_be_ended_is_told_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detlab.captures.save.write_json", full)
    with (
        pytest.warns(RuntimeWarning, match="not captured.*No space left"),
        dl.Recorder(tmp_path, capture="aten.neg.default"),
    ):
        assert torch.ones(2).neg().tolist() == [-1, -1]


def test_compact_capture_is_told_of_in_the_report_of_its_replay(tmp_path: Path) -> None:
    with dl.Recorder(tmp_path, capture="aten.neg.default", capture_compact=True):
        torch.randn(1000)[:10].neg()
    report = dl.replay(saved(tmp_path)[0], trials=2)
    assert report.traced_output_seen is True
    assert any("layout no longer exact" in problem for problem in report.problems)
