"""Replicas and recomputation as checks: what drifts is a finding, what agrees is verified."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detlab as dl
from detlab.checks import CheckResult, check_recompute, check_replicas
from detlab.comparison import find_drift
from detlab.errors import InputError, TraceError
from detlab.run import Run
from detlab.schema import Coordinate, Evidence, Kind, Phase
from detlab.testing import Call, make_metrics_run, make_run, save_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/check.json").read_text("utf-8"))
NORM, SHARD, GRAD = (
    "layers.0.input_layernorm.weight",
    "layers.0.mlp.fc1.weight",
    "final_layernorm.weight.grad",
)


def held(name: str, word: str, step: int = 1, phase: Phase = Phase.STATE, **more: Any) -> Call:
    return Call("state", name, [], [word], step=step, phase=phase, kind=Kind.STATE, microbatch=-1, **more)


def placed(hosts: str, device: int | None = None) -> dict[int, dict[str, object]]:
    """Recipes of ranks that ran on these hosts, one for each word; four devices a host."""
    of_rank = {rank: {"host": host} for rank, host in enumerate(hosts.split())}
    if device is None:
        return dict(of_rank)
    return {rank: recipe | {"local_rank": (rank + device) % 4} for rank, recipe in of_rank.items()}


def ranks_of(axis: str, *calls: list[Call], **more: Any) -> Run:
    places = {rank: Coordinate(**{axis: rank}) for rank in range(len(calls))}
    usual: dict[str, Any] = {"coordinates": places, "layout": {axis: len(calls)}}
    return make_run(dict(enumerate(calls)), **usual | more)


def norms(words: str, axis: str = "dp", **more: Any) -> Run:
    """Ranks that hold one parameter over two steps: a letter for each rank in the second."""
    return ranks_of(axis, *([held(NORM, "w"), held(NORM, word, 2)] for word in words), **more)


def only(result: CheckResult) -> dict[str, Any]:
    (row,) = result.findings.rows(named=True)
    return row


def unchecked(result: CheckResult) -> dict[str, str]:
    return {each.what: each.why for each in result.not_checked}


def test_replicas_that_agree_are_verified_with_their_extent_and_evidence() -> None:
    result = check_replicas(norms("aaa"))
    assert (result.verdict, result.findings.is_empty(), result.problems) == ("pass", True, ())
    (said,) = result.verified
    assert said == (
        "replica of a parameter",
        "1 tensor on ranks 0-2 (data parallel) agree in all 2 comparisons (steps 1-2)",
        "exact: a digest over every byte",
    )


def test_one_rank_that_drifts_is_the_finding_and_shards_are_not_reported() -> None:
    """O31: rank 0 clipped its gradients, the others did not."""
    calls = ([held(NORM, "w0" if r == 0 else "w1"), held(SHARD, f"s{r}")] for r in range(4))
    result = check_replicas(ranks_of("tp", *calls))
    row = only(result)
    assert (row["component"], row["severity"], row["outliers"]) == ("replica of a parameter", "error", [0])
    assert row["found"] == "layers.*.input_layernorm.weight: rank 0 drifts from ranks 1-3; first in step 1"
    assert row["expected"] == "the same bits on ranks 0-3 (tensor parallel)"
    assert (row["axis"], row["ranks"], row["first_step"]) == ("tp", [0, 1, 2, 3], 1)
    assert SHARD not in str(result)
    assert "1 other tensor that ranks show under one name" in unchecked(result)


def test_after_a_partial_fix_the_share_that_still_drifts_is_the_finding() -> None:
    """O31: a second bug was left, and a pass would have hidden it."""
    names = [f"layers.{number}.input_layernorm.weight" for number in range(10)]
    calls = ([held(name, f"w{r if at < 4 else 0}") for at, name in enumerate(names)] for r in range(4))
    result = check_replicas(ranks_of("tp", *calls))
    assert result.verdict == "fail"
    assert "4 of 10 tensors of this kind still drift (40%)" in only(result)["found"]
    assert [each.says.split(" on ")[0] for each in result.verified] == ["6 tensors"]


def gradients(after: str) -> Run:
    calls = (
        [held(GRAD, f"partial {rank}", phase=Phase.BACKWARD), held(GRAD, word, phase=Phase.GRAD_REDUCE)]
        for rank, word in enumerate(after)
    )
    return ranks_of("tp", *calls)


def test_a_gradient_that_is_partial_before_its_reduction_is_no_finding() -> None:
    """O32: it differs over tensor-parallel ranks by design."""
    result = check_replicas(gradients("ssss"))
    assert (result.verdict, result.findings.is_empty()) == ("pass", True)
    assert [each.what for each in result.verified] == ["gradient after its reduction"]


def test_a_gradient_that_differs_after_its_reduction_lacks_one() -> None:
    """O32, the variant."""
    row = only(check_replicas(gradients("wxyz")))
    assert (row["component"], row["outliers"]) == ("gradient after its reduction", [])
    assert "a reduction over tp is missing" in row["why"]
    assert "ranks 0-3 disagree" in row["found"]


def test_what_drifts_is_named_by_what_it_is() -> None:
    moment = "optimizer.exp_avg.layers.0.mlp.weight"
    runs = {
        "optimizer state": [[held(moment, "m"), held(moment, w, 2)] for w in "aab"],
        "result of a collective": [
            [Call("c10d.allreduce_.default", "", ["g"], [w], kind=Kind.COLLECTIVE, group="dp")] for w in "aab"
        ],
        "result of the optimizer": [
            [
                Call("aten.add_.Tensor", "", ["p"], [w], step=step, phase=Phase.OPTIMIZER, kind=Kind.OP)
                for step, w in enumerate(["one", "two", word], 1)
            ]
            for word in "aab"
        ],
    }
    for component, calls in runs.items():
        row = only(check_replicas(ranks_of("dp", *calls, groups={"dp": [0, 1, 2]})))
        assert (row["component"], row["outliers"]) == (component, [2])


def test_the_host_and_device_of_an_outlier_are_named_where_they_are_recorded() -> None:
    row = only(check_replicas(norms("aba", recipes=placed("n1 n55 n1", device=2))))
    assert row["places"] == ["n55 device 3"]
    assert "rank 1 on n55 device 3 drifts from ranks 0, 2; first in step 2" in row["found"]
    assert only(check_replicas(norms("aba", recipes=placed("n1 n55 n1"))))["places"] == ["n55"]
    assert only(check_replicas(norms("aba")))["places"] == []


@pytest.mark.parametrize(
    "recipe", [{"host": 3}, {"host": None, "local_rank": 1}, {"local_rank": True, "host": "n1"}, {"host": {}}]
)
def test_a_recipe_is_data_and_may_hold_anything(recipe: dict[str, object]) -> None:
    row = only(check_replicas(norms("aba", recipes=dict.fromkeys(range(3), recipe))))
    assert row["places"] in ([], ["n1"])


def test_what_the_trace_does_not_show_is_said() -> None:
    told = unchecked(check_replicas(norms("aa", world_size=8, layout={"dp": 2, "tp": 4, "ep": 2})))
    assert told["ranks 2-7"] == "not recorded: 2 of 8 ranks are"
    assert told["axis tp"] == "ranks of 1 of its 4 places are recorded"
    assert "axis ep" in told
    assert "the trace shows none" in told["results of collectives"]
    assert "the trace shows none" in told["parameters and gradients that tensor-parallel ranks hold whole"]


def test_steps_that_one_rank_lacks_are_said(tmp_path: Path) -> None:
    run = ranks_of("dp", [held(NORM, "w"), held(NORM, "w", 2)], [held(NORM, "w")])
    assert unchecked(check_replicas(run))["steps 2"] == "not every recorded rank has them"
    folder = save_run(norms("aaa"), tmp_path / "run")
    told = unchecked(check_replicas(dl.load_run(folder, ranks="0-1", steps="1")))
    assert told["steps 2"] == "left out by request"
    assert told["ranks 2"] == "left out by request"


@pytest.mark.parametrize(
    "run",
    [
        norms("a"),
        replace(norms("aaa"), manifest=replace(norms("aaa").manifest, layout={})),
        ranks_of("dp", *([held(NORM, "w", evidence=Evidence.STATISTIC)] for _ in range(3))),
    ],
)
def test_a_run_with_nothing_to_look_at_is_invalid_and_says_what_would_help(run: Run) -> None:
    result = check_replicas(run)
    assert (result.verdict, result.exit_code, result.verified) == ("invalid", 2, ())
    assert result.problems
    assert "record" in result.notes[0]


def test_damage_makes_agreement_invalid_and_leaves_drift_a_failure() -> None:
    for words, verdict in (("aaa", "invalid"), ("aab", "fail")):
        run = replace(norms(words), problems=("rank00001.events.arrows stops after 2 whole batches",))
        assert check_replicas(run).verdict == verdict


def test_no_run_is_refused_and_no_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run to check"):
        check_replicas([])
    with pytest.raises(TraceError, match="does not exist"):
        check_replicas([tmp_path / "nowhere"])


def test_the_document_follows_its_schema_and_has_what_the_check_adds_under_details() -> None:
    runs = [norms("aab", label="one"), norms("aba", label="two"), norms("aaa", label="three")]
    for asked in (runs[0], runs):
        document = json.loads(json.dumps(check_replicas(asked).to_json()))  # type: ignore[arg-type]
        jsonschema.validate(document, SCHEMA)
        assert document["findings"][0]["details"]["outliers"] == [2]


def test_hostile_names_are_shown_and_steer_nothing() -> None:
    name = "x\x1b[31m\nverified: all"
    calls = ([held(name, "w"), held(name, word, 2)] for word in "aab")
    text = str(check_replicas(ranks_of("dp", *calls, label=name, recipes=placed("n1 n1 \x1b]0;n2\x07"))))
    assert "\x1b" not in text
    assert "\nverified: all" not in text


@given(st.integers(3, 7), st.data())
def test_whatever_rank_drifts_is_the_outlier(num: int, data: st.DataObject) -> None:
    outlier = data.draw(st.integers(0, num - 1))
    words = "".join("b" if rank == outlier else "a" for rank in range(num))
    assert only(check_replicas(norms(words)))["outliers"] == [outlier]


@given(st.text("ab", min_size=2, max_size=6))
def test_the_check_finds_what_the_frame_has(words: str) -> None:
    run = norms(words)
    found, frame = check_replicas(run).findings, find_drift(run)
    assert len(found) == len(frame)
    shared = ["axis", "ranks", "scope", "op", "basis", "first_step", "outliers", "num_values"]
    assert found.select(shared).equals(frame.select(shared))


# Several runs ---------------------------------------------------------------------------------------------

HOSTS = {
    "r1": "n55 n12 n101 n102", "r2": "n103 n104 n55 n12", "r3": "n12 n101 n103 n55",
    "r4": "n12 n102 n101 n104", "r5": "n101 n12 n103 n102", "r6": "n104 n103 n12 n101",
    "r7": "n101 n102 n103 n104",
}  # fmt: skip
"""Seven runs of four ranks: n55 is in each of the first three and no other, n12 in all but the last."""


def seven(device: int | None = None) -> list[Run]:
    """In each run the rank on n55, wherever it is, holds other bits."""
    return [
        norms("".join("b" if host == "n55" else "a" for host in hosts.split()), label=label,
              recipes=placed(hosts, device))
        for label, hosts in HOSTS.items()
    ]  # fmt: skip


def test_the_host_of_every_outlier_is_the_common_factor_with_its_counts() -> None:
    """O34: it ranks first, and the answer says that it is no proof and what to do next."""
    result = check_replicas(seven())
    assert result.verdict == "fail"
    assert result.findings["component"].to_list() == ["replica of a parameter"] * 3 + ["common factor"]
    factor = result.findings.row(-1, named=True)
    assert factor["severity"] == "note"
    assert factor["found"] == (
        "n55 is an outlier in 3 of 3 runs that drift, and takes part in 0 of 4 runs that do not"
    )
    assert "association, not proof" in factor["why"]
    assert "p = 0.029" in factor["why"]
    assert factor["next"] == "replay the suspect step on n55 and on another host"


def test_the_table_ranks_the_suspect_first_and_another_host_behind_it() -> None:
    table = check_replicas(seven()).table
    counts = ["place", "num_outlier", "num_drifting", "of_drifting", "num_agreeing", "of_agreeing"]
    rows = table.select(counts).rows()
    assert rows[0] == ("n55", 3, 3, 3, 0, 4)
    assert ("n12", 0, 3, 3, 3, 4) in rows[1:]
    assert table["p"][0] == pytest.approx(1 / 35)


def test_a_device_is_counted_as_well_where_it_is_recorded() -> None:
    """The rank on n55 is another one in each run; so is its device here, and the host stays first."""
    table = check_replicas(seven(device=0)).table
    assert (table["place"][0], table["kind"][0]) == ("n55", "host")
    devices = table.filter(kind="device")
    assert {place: num for place, num in devices.select("place", "num_outlier").rows() if num} == {
        "n55 device 0": 1, "n55 device 2": 1, "n55 device 3": 1
    }  # fmt: skip


def test_where_every_run_drifts_nothing_can_be_held_against_it() -> None:
    factor = check_replicas(seven()[:3]).findings.row(-1, named=True)
    assert "n55 is an outlier in 3 of 3 runs that drift, and no run agrees" in factor["found"]
    assert factor["why"] == "association, not proof"


def test_one_outlier_each_has_no_common_factor() -> None:
    runs = [
        norms("aba", label="x", recipes=placed("n1 n2 n3")),
        norms("aab", label="y", recipes=placed("n1 n2 n3")),
    ]
    result = check_replicas(runs)
    assert result.findings["component"].to_list() == ["replica of a parameter"] * 2
    assert result.table["num_outlier"].to_list() == [1, 1]


def test_runs_that_agree_have_no_table_and_each_says_what_was_verified() -> None:
    result = check_replicas([norms("aaa", label="x"), norms("aaa", label="y")])
    assert (result.verdict, result.table.is_empty()) == ("pass", True)
    assert [each.what for each in result.verified] == [
        "x: replica of a parameter",
        "y: replica of a parameter",
    ]


def test_runs_without_hosts_are_counted_and_that_is_said() -> None:
    result = check_replicas([norms("aab", label="x"), norms("aab", label="y")])
    assert result.table.is_empty()
    assert "not every rank of x, y names its host" in result.notes


def test_runs_of_one_label_are_told_apart() -> None:
    result = check_replicas([norms("aab"), norms("aaa")])
    assert result.findings["run"].to_list() == ["synthetic (1: memory)"]


def test_one_run_without_replicas_makes_agreement_of_the_others_invalid() -> None:
    result = check_replicas([norms("aaa", label="x"), norms("a", label="y")])
    assert (result.verdict, [each.where for each in result.problems]) == ("invalid", ["y"])


# Recomputation --------------------------------------------------------------------------------------------


def recomputing(*words: str | None, recipes: Any = None, **more: Any) -> Run:
    """A rank for each word: its forward gives y, and its recomputation the word; None makes no call again."""
    calls: dict[int, list[Call]] = {}
    for rank, word in enumerate(words):
        first = Call("flash.fwd", "layers.0.attention", ["q"], ["y"], **more)
        again = [] if word is None else [replace(first, outputs=[word], phase=Phase.RECOMPUTE)]
        calls[rank] = [first, *again]
    return make_run(calls, recipes=recipes)


def test_recomputation_with_the_same_bits_is_verified() -> None:
    result = check_recompute(recomputing("y", "y"))
    assert (result.verdict, result.findings.is_empty(), result.not_checked) == ("pass", True, ())
    assert [tuple(each) for each in result.verified] == [
        (
            "recomputation",
            "2 calls made again on ranks 0-1 gave the bits of the forward (steps 1)",
            "exact: a digest over every byte",
        )
    ]


def test_recomputation_with_other_bits_is_one_finding_for_its_op() -> None:
    """O17: a race shows within one run."""
    result = check_recompute(recomputing("Y", "y", "Z"))
    row = only(result)
    assert (row["component"], row["verdict"], row["class"]) == ("recomputation", "origin", "kernel")
    assert (row["ranks"], row["num_calls"], row["scope"]) == ([0, 2], 2, "layers.*.attention")
    assert "equal inputs and other bits in 2 calls made again, on ranks 0, 2 in step 1" in row["found"]
    assert (result.verdict, [each.says[:6] for each in result.verified]) == ("fail", ["1 call"])


def test_the_device_on_which_recomputation_differs_is_named() -> None:
    row = only(check_recompute(recomputing("y", "Y", recipes=placed("n1 n55", device=2))))
    assert row["places"] == ["n55 device 3"]
    assert "on rank 1 on n55 device 3 in step 1" in row["found"]


def test_an_origin_stands_before_what_receives_it() -> None:
    calls = [
        Call("aten.mm.default", "a", ["x"], ["y"]),
        Call("aten.add.Tensor", "b", ["y"], ["z"]),
    ]
    again = [replace(call, phase=Phase.RECOMPUTE) for call in calls]
    again[0] = replace(again[0], outputs=["Y"])
    again[1] = replace(again[1], inputs=["Y"], outputs=["Z"])
    result = check_recompute(make_run({0: [*calls, *again[::-1]]}))
    assert result.findings["verdict"].to_list() == ["origin", "receiver"]
    assert result.findings["severity"].to_list() == ["error", "error"]


def test_a_run_that_recomputes_nothing_is_invalid() -> None:
    result = check_recompute(recomputing(None))
    assert (result.verdict, result.verified) == ("invalid", ())
    assert "makes no call of its forward again" in result.problems[0].what


def test_calls_without_evidence_are_not_verified() -> None:
    result = check_recompute(recomputing("y", evidence=Evidence.NONE))
    assert result.verdict == "invalid"
    assert unchecked(result)["1 call made again"].startswith("no evidence of their outputs")


def test_ranks_that_recompute_nothing_are_said() -> None:
    assert unchecked(check_recompute(recomputing("y", None)))["ranks 1"].startswith("they make no call")


def test_damage_makes_a_recomputation_invalid() -> None:
    run = replace(recomputing("y"), problems=("rank00000.events.arrows stops",))
    assert check_recompute(run).verdict == "invalid"


@pytest.mark.parametrize("check", [check_replicas, check_recompute])
def test_step_metrics_alone_are_no_trace(check: Any) -> None:
    result = check(make_metrics_run({"lm loss": {1: 2.0}}, label="log"))
    assert result.verdict == "invalid"
    assert [each.what for each in result.problems] == ["log has step metrics and no trace."]


def test_the_document_of_a_recomputation_follows_its_schema() -> None:
    for run in (recomputing("y"), recomputing("Y"), recomputing(None)):
        jsonschema.validate(json.loads(json.dumps(check_recompute(run).to_json())), SCHEMA)
