"""``detlab record-info``: the size of a run by rank, before any of it is loaded."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main
from detlab.readers import sizes
from detlab.readers.sizes import SIZE_COLUMNS, read_sizes
from detlab.store import writer
from detlab.store.layout import RankFiles
from detlab.testing import Call, make_run, save_run
from tests.readers import streams
from tests.readers.test_rank_local import tensor as local_tensor

SCHEMA = json.loads(files("detlab").joinpath("schemas/record-info.json").read_text("utf-8"))


def native(folder, ranks=2, steps=3):
    calls = [
        Call("aten.mm.default", "lin", ["w"], ["y"], step=step) for step in range(steps) for _ in range(4)
    ]
    return save_run(make_run({rank: calls[: len(calls) - rank] for rank in range(ranks)}), folder)


def test_sizes_of_a_native_run_are_exact_and_no_event_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", 3)
    folder = native(tmp_path / "run")
    for rank in range(2):
        stream = RankFiles(folder, rank).events
        stream.write_bytes(b"x" * stream.stat().st_size)
    found = read_sizes(folder)
    assert dict(found.schema) == SIZE_COLUMNS
    assert found["num_events"].to_list() == [12, 11]
    assert found.select("first_step", "last_step").rows() == [(0, 2), (0, 2)]
    assert found["num_bytes"].sum() == sum(f.stat().st_size for f in folder.glob("rank*"))


def test_a_native_run_without_its_index_says_that_it_does_not_know(tmp_path, capsys):
    folder = native(tmp_path / "run")
    RankFiles(folder, 1).index.unlink()
    assert read_sizes(folder)["num_events"].to_list() == [12, None]
    assert main(["record-info", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "12 events on 1 of them" in " ".join(text.split())
    assert "events unknown" in text


def test_small_files_of_lines_are_counted(tmp_path):
    records = [streams.record("aten.mm.default", ["x"], ["y"]) for _ in range(5)]
    streams.write(tmp_path / "fp", 0, streams.lines(records, rank=0))
    streams.write(tmp_path / "fp", 1, streams.lines(records[:3], rank=1))
    found = read_sizes(tmp_path / "fp").select("rank", "num_events", "is_estimate").rows()
    assert found == [(0, 5, False), (1, 3, False)]


def test_large_files_of_lines_are_estimated_from_their_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(sizes, "_HEAD_BYTES", 4_000)
    lines = [
        json.dumps(local_tensor(f"layer {n:04}", rank=0, sequence=n)) + "\n" for n in range(1_000, 2_000)
    ]
    (tmp_path / "rank_000000.jsonl").write_text("".join(lines), "utf-8")
    (row,) = read_sizes(tmp_path).to_dicts()
    assert row["is_estimate"]
    assert row["num_events"] == pytest.approx(1_000, rel=0.05)


def test_of_a_compressed_file_only_its_bytes_are_known(tmp_path):
    path = streams.write(tmp_path / "fp", 0, streams.lines([streams.record("a")], rank=0), compress=True)
    (row,) = read_sizes(tmp_path / "fp").to_dicts()
    assert (row["num_bytes"], row["num_events"]) == (path.stat().st_size, None)


def test_the_text_lists_some_ranks_and_names_the_largest_of_all(tmp_path, capsys):
    assert main(["record-info", str(native(tmp_path / "run", ranks=20, steps=30))]) == 0
    text = capsys.readouterr().out
    assert "run: 20 ranks, " in " ".join(text.split())
    assert "  rank 15: " in text
    assert "  rank 16: " not in text
    assert "… and 4 more; the largest is rank " in text


def test_the_json_form_follows_its_schema(tmp_path, capsys):
    folder = native(tmp_path / "run")
    assert main(["record-info", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [each["num_events"] for each in document["ranks"]] == [12, 11]


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_place_without_a_trace_is_refused(tmp_path, capsys, name):
    (tmp_path / "empty").mkdir()
    assert main(["record-info", str(tmp_path / name), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == "invalid"


def test_a_file_that_was_cut_is_not_sized_as_a_whole_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", 4)
    folder = native(tmp_path / "run", ranks=40, steps=20)
    stream = RankFiles(folder, 30).events
    stream.write_bytes(stream.read_bytes()[: stream.stat().st_size // 2])
    found = read_sizes(folder)
    assert found.drop_nulls("problem")["rank"].to_list() == [30]
    assert found.row(30, named=True)["num_events"] < found.row(29, named=True)["num_events"]
    assert main(["record-info", str(folder)]) == 0
    assert "was cut" in capsys.readouterr().out
    assert main(["record-info", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    assert [problem["where"] for problem in told["problems"]] == ["rank 30"]
