"""Damage in the files of a trace: cut, changed or taken away, it is named and never passed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import detlab as dl
from detlab.checks.trace import check_trace
from detlab.schema import Phase
from detlab.testing import make_run, save_run
from tests.checks.test_trace import DETERMINISTIC, LAYOUT, PLANTED, breaches, calls_of, sound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_run(sound(), tmp_path / "run")


def cut(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-num_bytes])


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_a_whole_folder_passes(folder: Path) -> None:
    assert breaches(folder) == {}


@pytest.mark.parametrize("num_bytes", [1, 8, 40])
def test_a_cut_stream_is_named(folder: Path, num_bytes: int) -> None:
    cut(folder / "rank00001.events.arrows", num_bytes)
    result = check_trace(folder)
    assert "TRC001" in result.findings["code"].to_list()
    assert result.verdict == "fail"
    (row,) = result.findings.filter(code="TRC001").rows(named=True)
    assert row["ranks"] == [1]
    assert "rank00001.events.arrows stops after" in row["found"]


def test_a_rank_without_its_header_is_missing(folder: Path) -> None:
    (folder / "rank00001.header.json").unlink()
    assert breaches(folder) == {"TRC006": "error"}


def test_a_manifest_that_cannot_be_read_is_damage(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")
    assert breaches(folder)["TRC001"] == "error"


@pytest.mark.parametrize("size", [10**12, 10**30, 0, -5])
def test_a_world_of_an_impossible_size_is_damage(folder: Path, size: int) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"world_size": size}))
    assert check_trace(folder).verdict == "fail"
    assert dl.check_replicas(folder).findings.is_empty()


@pytest.mark.parametrize(
    "recorder", [[], "x", None, {"steps": 3, "ranks": ["a"], "format": [1]}, {"steps": {}}]
)
def test_a_recorder_may_be_stated_as_anything(folder: Path, recorder: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recorder": recorder}))
    assert breaches(folder) == {}


@pytest.mark.parametrize(
    "recipe", [{"arguments": [1], "state": "x", "model": None}, {"state": {"deterministic": 1}}]
)
def test_a_recipe_may_hold_anything(folder: Path, recipe: object) -> None:
    for path in folder.glob("*.header.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": recipe}))
    result = check_trace(folder)
    assert result.findings.is_empty()
    assert [each.what for each in result.not_checked] == ["TRC019"]


def test_changed_events_do_not_have_the_digest_of_their_index(folder: Path) -> None:
    """Change one output where it lies in the stream; its length and the index stay as they were."""
    trace = dl.load_run(folder).ranks[1]
    digest = int(trace.columns(0, 1, ("out_digest",))["out_digest"][0])
    path = folder / "rank00001.events.arrows"
    replace_bytes(path, digest.to_bytes(8, "little"), (digest ^ 1).to_bytes(8, "little"))
    result = check_trace(folder)
    codes = result.findings["code"].to_list()
    assert "TRC002" in codes
    assert set(codes) <= {"TRC002", "TRC018"}  # a forward that was changed is not what was recomputed
    assert "do not have their recorded digest" in result.findings.filter(code="TRC002")["found"][0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"layer", b"leyar", 1)),
        lambda path: path.write_bytes(
            path.read_bytes() + b'{"hash":"0000000000000000","callee":["x","y",""]}\n'
        ),
    ],
)
def test_name_tables_that_make_no_sense_are_damage(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder / "rank00001.names.jsonl")
    result = check_trace(folder)
    assert result.findings["code"].to_list() == ["TRC003"]
    assert result.verdict == "fail"
    assert "rank00001.names.jsonl" in " ".join(result.findings["found"].to_list())


def test_a_number_that_is_missing_in_sealed_files_is_a_call_that_raised(tmp_path: Path) -> None:
    run, _ = PLANTED["a number is missing"]
    folder = save_run(run, tmp_path / "run")
    row = check_trace(folder).findings.row(0, named=True)
    assert (row["code"], row["severity"]) == ("TRC004", "warning")
    assert "calls that began and raised" in row["found"]
    assert breaches(folder, strict=True) == {"TRC004": "error"}


def test_numbers_of_steps_that_were_left_out_are_not_missing(tmp_path: Path) -> None:
    calls = {rank: calls_of(rank, (1, 2, 3)) for rank in (0, 1)}
    recipes = dict.fromkeys(calls, DETERMINISTIC)
    run = make_run(calls, layout=LAYOUT, groups={"dp": [0, 1]}, recipes=recipes)
    folder = save_run(run, tmp_path / "run")
    assert breaches(dl.load_run(folder, steps="1,3")) == {}


BRIDGE_HEADER = {
    "_header": True,
    "coords": {"global_rank": 0, "tp": 0, "pp": 0, "cp": 0, "dp": 0, "ep": 0, "etp": 0, "edp": 0},
    "config": {"world_size": 1, "tp": 1, "pp": 1, "cp": 1, "dp": 1, "ep": 1, "etp": 1},
}


def bridge_record(seq: int, window: int = 1) -> dict[str, object]:
    tensor = {"shape": [3], "dtype": "torch.float32", "digest": f"{seq + 1:016x}", "numel": 3}
    return {
        "seq_id": seq, "window": window, "op": "aten.mm.default", "group": "aten", "align_idx": seq,
        "scope": "layer", "phase": "fwd", "caller": None, "input": [tensor], "output": [tensor],
    }  # fmt: skip


def write_lines(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path.parent


def bridge(tmp_path: Path, *seqs: int) -> Path:
    records = [BRIDGE_HEADER, *(bridge_record(seq) for seq in seqs)]
    return write_lines(tmp_path / "fp" / "stream_pp0_tp0_cp0_dp0.fp", records)


def test_a_bridge_trace_passes_and_a_line_taken_out_of_it_does_not(tmp_path: Path) -> None:
    assert check_trace(bridge(tmp_path, 0, 1, 2)).verdict == "pass"
    row = check_trace(bridge(tmp_path, 0, 2)).findings.row(0, named=True)
    assert (row["code"], row["severity"]) == ("TRC004", "error")
    assert row["found"] == "1 number missing on rank 0: 1"


def test_a_bridge_stream_that_ends_inside_a_line_is_cut(tmp_path: Path) -> None:
    folder = bridge(tmp_path, 0, 1, 2)
    cut(folder / "stream_pp0_tp0_cp0_dp0.fp", 9)
    assert breaches(folder)["TRC001"] == "error"


def rank_local(tmp_path: Path, *sequences: int) -> Path:
    records: list[dict[str, object]] = [
        {
            "schema_version": 1, "rank": 0, "sequence": sequence, "iteration": 1, "microbatch": 0,
            "phase": "forward", "name": f"n{sequence}", "event": "event", "occurrence": 0,
            "fields": {"value": 1.5},
        }
        for sequence in sequences
    ]  # fmt: skip
    return write_lines(tmp_path / "local" / "rank_000000.jsonl", records)


def test_gaps_are_legal_where_the_format_says_so(tmp_path: Path) -> None:
    result = check_trace(rank_local(tmp_path, 0, 5, 9))
    assert "TRC004" not in result.findings["code"].to_list()
    (held,) = [each for each in result.verified if each.what == "TRC004"]
    assert "gaps are legal in this format" in held.says


def test_a_world_that_the_format_does_not_name_is_not_taken_for_whole(tmp_path: Path) -> None:
    folder = rank_local(tmp_path, 0, 1)
    assert "TRC006" in {each.what for each in check_trace(folder).not_checked}
    assert breaches(folder, expect_ranks="0-1")["TRC006"] == "error"


@pytest.mark.parametrize("sample", ["race/a", "race/b", "clean/a", "clean/b"])
def test_real_traces_pass_and_what_is_weaker_is_no_error(sample: str) -> None:
    result = check_trace(dl.samples.sample_path(sample.split("/")[0]) / sample.split("/")[1])
    assert result.verdict == "pass"
    assert result.findings["code"].to_list() == ["TRC019"]
    assert Phase.RECOMPUTE not in dl.load_run(dl.samples.sample_path("race") / "a").ranks[0].index["phase"]
    assert [each.what for each in result.not_checked] == ["TRC018"]
