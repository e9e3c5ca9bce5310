"""Verdicts on chosen ranks and steps: the same answer as in the whole, and never a claim about the rest."""

import json
from importlib.resources import files

import jsonschema
import polars as pl
import pytest

from detlab import compare, compare_many, load_comparison, load_run
from detlab.cli import main
from detlab.testing import make_run, save_run
from tests.comparison.stories import ALL_REDUCE, collective, mm, verdicts_of
from tests.readers import streams
from tests.readers.test_rank_local import tensor as local_tensor

SCHEMA = json.loads(files("detlab").joinpath("schemas/comparison.json").read_text("utf-8"))
PLANTED = 37
EIGHT = {"world_size": 8, "tp": 1, "pp": 1, "cp": 1, "dp": 8, "ep": 1, "etp": 1}


def words(rank, odd):
    """Each of 50 calls in three steps on a rank; what follows from the planted one is marked."""
    taint = "!" if odd and rank == 5 else ""
    return [(step, at, taint if at >= PLANTED or step else "") for step in range(3) for at in range(50)]


def native(folder, odd):
    calls = {
        rank: [
            mm(
                f"x{step}.{at - 1}{mark if (step, at) != (0, PLANTED) else ''}",
                f"x{step}.{at}{mark}",
                step=step,
            )
            for step, at, mark in words(rank, odd)
        ]
        for rank in range(8)
    }
    return save_run(make_run(calls, label=folder.name), folder)


def bridge(folder, odd):
    for rank in range(8):
        records = [
            streams.record("aten.mm.default", [f"{step} {at}"], [f"{step} {at}{mark}"], window=step)
            for step, at, mark in words(rank, odd)
        ]
        streams.write(folder, rank, streams.lines(records, rank=rank, config=EIGHT))
    return folder


def rank_local(folder, odd):
    folder.mkdir(parents=True)
    for rank in range(8):
        records = [
            local_tensor(f"layer.{at}", f"{step} {at}{mark}", iteration=step, rank=rank, sequence=seq)
            for seq, (step, at, mark) in enumerate(words(rank, odd))
        ]
        text = "".join(json.dumps(each) + "\n" for each in records)
        (folder / f"rank_{rank:06d}.jsonl").write_text(text, "utf-8")
    return folder


@pytest.fixture(params=[native, bridge, rank_local], ids=lambda write: write.__name__)
def pair(request, tmp_path):
    """Two runs of eight ranks, of which rank 5 differs from event 37 of step 0 on."""
    return request.param(tmp_path / "a", odd=False), request.param(tmp_path / "b", odd=True)


def test_the_first_divergence_at_event_37_of_rank_5_is_the_same_when_only_rank_5_step_0_is_asked_for(pair):
    whole = compare(*pair)
    part = compare(*(load_run(path, ranks=5, steps=0) for path in pair))
    assert part.first["seq_a"].to_list() == [PLANTED]
    assert part.first.equals(whole.first)
    assert part.first_origin.equals(whole.first_origin)
    assert part.sites(step=0, rank=5).equals(whole.sites(step=0, rank=5))
    assert (part.verdict, part.exit_code, part.num_calls) == ("diverged", 1, 50)
    assert part.evidence == whole.evidence


def test_a_rank_that_does_not_differ_matches_alone_and_says_what_was_left_out(pair):
    part = compare(*(load_run(path, ranks="0-1", steps="1-2") for path in pair))
    assert (part.verdict, part.exit_code, part.problems) == ("match", 0, ())
    assert part.coverage["left_out"] == {"ranks": [2, 3, 4, 5, 6, 7], "steps": [0]}
    text = " ".join(repr(part).split())
    assert text.startswith(
        "MATCH: nothing differs between a and b in the ranks and steps that were asked for."
    )
    assert "compared 2 of 8 ranks, steps 1-2, 200 calls" in text
    assert "Left out by request: ranks 2-7 and step 0" in text


def test_a_later_step_asked_for_alone_has_the_verdicts_that_it_has_in_the_whole(tmp_path):
    pair = native(tmp_path / "a", odd=False), native(tmp_path / "b", odd=True)
    later = compare(*(load_run(path, ranks=5, steps="1-2") for path in pair))
    whole = compare(*pair)
    assert later.verdict == "diverged"
    assert later.sites(step=1, rank=5).equals(whole.sites(step=1, rank=5))


def test_a_whole_comparison_says_nothing_of_requests(pair):
    cmp = compare(*pair)
    assert "left_out" not in cmp.coverage
    assert "request" not in repr(cmp)


GROUPS = {"dp": [0, 1, 2]}


def reduced(folder, odd):
    """Three ranks of which rank 1 contributes other bits to one sum."""
    given = ["g", "H" if odd else "h", "i"]
    sums = [collective(ALL_REDUCE, word, "S" if odd else "s") for word in given]
    calls = {rank: [mm("x", given[rank]), each] for rank, each in enumerate(sums)}
    return save_run(make_run(calls, groups=GROUPS), folder)


@pytest.mark.parametrize(
    ("ranks", "verdicts"),
    [
        (None, {0: ["match", "receiver"], 1: ["origin", "receiver"], 2: ["match", "receiver"]}),
        ("0-1", {0: ["match", "receiver"], 1: ["origin", "receiver"]}),
        ("0,2", {0: ["match", "unknown"], 2: ["match", "unknown"]}),
        ("0", {0: ["match", "unknown"]}),
    ],
)
def test_what_was_received_from_a_member_that_is_left_out_is_unknown_and_never_an_origin(
    tmp_path, ranks, verdicts
):
    pair = [load_run(reduced(tmp_path / word, odd), ranks=ranks) for word, odd in (("a", 0), ("b", 1))]
    cmp = compare(*pair)
    assert {rank.rank: verdicts_of(cmp, rank.rank) for rank in cmp.ranks} == verdicts
    assert cmp.exit_code == 1


def test_the_members_of_a_group_are_known_in_streams_too_when_one_is_left_out(tmp_path):
    for word, given in (("a", "gh"), ("b", "gH")):
        for rank in (0, 1):
            total = streams.record("all_reduce", [given[rank]], [f"sum {given}"], group="dp")
            streams.write(tmp_path / word, rank, streams.lines([total], rank=rank))
    cmp = compare(*(load_run(tmp_path / word, ranks="0") for word in "ab"))
    assert verdicts_of(cmp, 0) == ["unknown"]


def test_the_command_line_takes_ranks_and_steps_and_its_json_follows_the_schema(tmp_path, capsys):
    pair = [str(native(tmp_path / "a", odd=False)), str(native(tmp_path / "b", odd=True))]
    assert main(["compare", *pair, "--ranks", "5", "--steps", "0", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [each["seq_a"] for each in document["first"]] == [PLANTED]
    assert document["coverage"]["left_out"] == {"ranks": [0, 1, 2, 3, 4, 6, 7], "steps": [1, 2]}
    assert main(["compare", *pair, "--ranks", "0-4"]) == 0
    assert main(["report", *pair, "--ranks", "5", "-o", str(tmp_path / "r.html")]) == 0
    assert "Left out by request: ranks 0-4, 6-7" in (tmp_path / "r.html").read_text("utf-8")


def test_the_command_line_refuses_an_empty_selection_with_a_hint(tmp_path, capsys):
    pair = [str(native(tmp_path / "a", odd=False)), str(native(tmp_path / "b", odd=True))]
    assert main(["compare", *pair, "--ranks", "8-9"]) == 2
    assert "has none of ranks='8-9': it has ranks 0-7.\nHint: " in capsys.readouterr().err


def test_a_comparison_of_a_part_is_saved_and_opened_as_that_part(tmp_path):
    pair = native(tmp_path / "a", odd=False), native(tmp_path / "b", odd=True)
    cmp = compare(*(load_run(path, ranks=[5], steps="0") for path in pair))
    again = load_comparison(cmp.save(tmp_path / "c.detlab"))
    assert again.to_json() == cmp.to_json()
    assert again.sites(step=0, rank=5).equals(cmp.sites(step=0, rank=5))
    assert repr(again) == repr(cmp)
    there = load_comparison(tmp_path / "c.detlab", a=pair[0], b=load_run(pair[1], ranks=5, steps=0))
    assert there.to_json() == cmp.to_json()


def test_many_runs_are_partitioned_by_the_part_that_is_asked_for(tmp_path):
    folders = [native(tmp_path / name, odd) for name, odd in (("a", 0), ("b", 1), ("c", 0))]
    whole = compare_many(folders)
    part = compare_many([load_run(folder, ranks="0-4") for folder in folders])
    assert (whole.classes, part.classes) == ((("a", "c"), ("b",)), (("a", "b", "c"),))
    assert "Left out by request: ranks 5-7" in " ".join(repr(part).split())


def test_metrics_of_what_is_left_out_are_left_out(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    lines = [
        local_tensor("x", rank=0, iteration=1, sequence=0),
        *(
            {**local_tensor("x"), "event": "event", "name": "loss", "fields": {"value": 0.5}, "iteration": n}
            | {"sequence": n}
            for n in (1, 2)
        ),
    ]
    for line in lines[1:]:
        line.pop("tensor"), line.pop("metadata")
    (folder / "rank_000000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    metrics = load_run(folder, steps=2).metrics
    assert metrics.filter(pl.col("name") == "loss")["step"].to_list() == [2]
