"""The invariants of one trace: a sound trace keeps all of them, and each planted breach is found alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detlab as dl
from detlab.checks.trace import INVARIANTS, check_trace
from detlab.checks.trace.invariants import page
from detlab.errors import InputError
from detlab.run import Run
from detlab.schema import Coordinate, Evidence, Flag, Kind, Phase
from detlab.store import memory_trace
from detlab.store.batches import MemoryBatches
from detlab.testing import Call, make_metrics_run, make_run, save_run

ALL_REDUCE = "c10d.allreduce_.default"
DETERMINISTIC = {"arguments": {"deterministic_mode": True}, "state": {"deterministic": True}}
LAYOUT = {"tp": 1, "cp": 1, "dp": 2, "pp": 1}


def computed(rank: int, step: int, microbatch: int, **more: Any) -> list[Call]:
    """A forward, and the same call made again in the backward."""
    place = {"step": step, "microbatch": microbatch}
    word = f"{rank}.{step}.{microbatch}"
    return [
        Call("aten.mm.default", "layer", ["w", word], [f"{word} out"], **place | more),
        Call("aten.mm.default", "layer", ["w", word], [f"{word} out"], phase=Phase.RECOMPUTE, **place | more),
    ]


def reduced(step: int, op: str = ALL_REDUCE, **more: Any) -> Call:
    """The sum of gradients over both ranks."""
    usual: dict[str, Any] = {
        "kind": Kind.COLLECTIVE,
        "group": "dp",
        "phase": Phase.GRAD_REDUCE,
        "microbatch": -1,
        "step": step,
    }
    return Call(op, "", ["g"], [f"sum {step}"], **usual | more)


def calls_of(rank: int, steps: Sequence[int] = (1, 2)) -> list[Call]:
    found: list[Call] = []
    for step in steps:
        for microbatch in (0, 1):
            found += computed(rank, step, microbatch)
        found += [reduced(step), reduced(step, "c10d._allgather_base_.default")]
    return found


def sound(change: Callable[[list[list[Call]]], Any] = lambda calls: None, **more: Any) -> Run:
    """A run that keeps every invariant, unless its calls are changed."""
    calls = [calls_of(rank) for rank in (0, 1)]
    change(calls)
    usual: dict[str, Any] = {
        "layout": LAYOUT,
        "groups": {"dp": [0, 1]},
        "recipes": dict.fromkeys((0, 1), DETERMINISTIC),
    }
    return make_run(dict(enumerate(calls)), **usual | more)


def with_rows(run: Run, change: Callable[[np.ndarray], Any], rank: int = 1) -> Run:
    """Change the rows of one rank where they lie, and index them anew."""
    ranks = list(run.ranks)
    events = ranks[rank].events
    assert isinstance(events, MemoryBatches)
    rows = events.rows[0].copy()
    given_back = change(rows)
    rows = rows if given_back is None else given_back
    names = ranks[rank].names
    ranks[rank] = memory_trace(ranks[rank].header, names, rows)  # type: ignore[arg-type]
    return replace(run, ranks=tuple(ranks))


def with_header(run: Run, rank: int = 1, **changes: Any) -> Run:
    ranks = list(run.ranks)
    ranks[rank] = replace(ranks[rank], header=replace(ranks[rank].header, **changes))
    return replace(run, ranks=tuple(ranks))


def with_recorder(run: Run, **recorder: object) -> Run:
    return replace(run, manifest=replace(run.manifest, recorder=recorder))


def breaches(run: Run | Path, **asked: Any) -> dict[str, str]:
    """Give the codes of what is found, each with its severity."""
    findings = check_trace(run, **asked).findings
    return dict(zip(findings["code"].to_list(), findings["severity"].to_list(), strict=True))


def first(run: Run, **asked: Any) -> dict[str, Any]:
    return check_trace(run, **asked).findings.row(0, named=True)


def test_a_sound_trace_keeps_every_invariant() -> None:
    result = check_trace(sound())
    assert result.findings.is_empty()
    assert {each.what for each in result.verified} == set(INVARIANTS)
    assert (result.not_checked, result.verdict, result.exit_code) == ((), "pass", 0)


def test_invariants_are_numbered_and_say_why_what_next_and_where_from() -> None:
    assert list(INVARIANTS) == [f"TRC{number:03}" for number in range(1, len(INVARIANTS) + 1)]
    assert all(all(law) for law in INVARIANTS.values())
    assert all(f"| {code} |" in page() for code in INVARIANTS)


def append(rank: int, *calls: Call) -> Callable[[list[list[Call]]], Any]:
    return lambda of: of[rank].extend(calls)


def without(rank: int, step: int) -> Callable[[list[list[Call]]], Any]:
    def change(calls: list[list[Call]]) -> None:
        calls[rank] = [call for call in calls[rank] if call.step != step]

    return change


def all_calls(**more: Any) -> Callable[[list[list[Call]]], Any]:
    """Change every call of both ranks."""

    def change(calls: list[list[Call]]) -> None:
        for its in calls:
            its[:] = [replace(call, **more) for call in its]

    return change


def recomputes_otherwise(calls: list[list[Call]]) -> None:
    calls[1][1] = replace(calls[1][1], outputs=["other bits"])


def unwaited(**more: Any) -> Call:
    return reduced(2, flags=Flag.NOT_WAITED_FOR, **more)


def both(call: Call) -> Callable[[list[list[Call]]], Any]:
    return lambda of: [its.append(call) for its in of]


def alone(rank: int, call: Call, at: int = -1) -> Callable[[list[list[Call]]], Any]:
    def change(calls: list[list[Call]]) -> None:
        calls[rank][at] = call

    return change


def make_twin(rows: np.ndarray) -> None:
    """Give a forward call the site of the one before it."""
    for name in ("microbatch", "phase", "callee", "call"):
        rows[name][2] = rows[name][0]


DAMAGED = replace(sound(), problems=("rank00001.events.arrows stops after 3 whole batches",))
CUT = replace(sound(), ranks=(sound().ranks[0], replace(sound().ranks[1], complete=False)))

PLANTED: dict[str, tuple[Run, dict[str, str]]] = {
    "a reader met damage": (DAMAGED, {"TRC001": "error"}),
    "a rank was killed": (CUT, {"TRC001": "error"}),
    "the index is of other events": (
        replace(sound(), ranks=(sound().ranks[0], replace(sound().ranks[1], index=sound().ranks[0].index))),
        {"TRC002": "error"},
    ),
    "a number stands twice": (
        with_rows(sound(), lambda rows: rows["seq"].__setitem__(3, 2)),
        {"TRC004": "error"},
    ),
    "a number is missing": (
        with_rows(sound(), lambda rows: rows["seq"].__setitem__(slice(2, None), rows["seq"][2:] + 1)),
        {"TRC004": "error"},
    ),
    "numbers are missing between steps": (
        with_rows(sound(), lambda rows: rows["seq"].__setitem__(slice(6, None), rows["seq"][6:] + 9)),
        {"TRC004": "warning"},
    ),
    "another run was appended": (sound(append(1, *calls_of(1, [1]))), {"TRC005": "error", "TRC010": "error"}),
    "a rank has no trace": (sound(world_size=3, layout={}), {"TRC006": "error"}),
    "a rank lacks a step": (sound(without(1, 2)), {"TRC007": "error"}),
    "a rank lacks a microbatch": (
        sound(append(1, *computed(1, 2, 2))),
        {"TRC008": "error"},
    ),
    "two ranks stand at one place": (with_header(sound(), coordinate=Coordinate()), {"TRC009": "error"}),
    "a rank stands outside the layout": (
        with_header(sound(), coordinate=Coordinate(dp=7)),
        {"TRC009": "error"},
    ),
    "the layout has another size than the world": (sound(layout=LAYOUT | {"tp": 2}), {"TRC009": "error"}),
    "a rank is no member of its own group": (
        with_header(sound(), groups={"dp": (0, 1), "tp": (0,)}),
        {"TRC009": "error"},
    ),
    "members list other members": (
        with_header(
            with_header(sound(), groups={"dp": (0, 1), "mp": (0, 1)}), 0, groups={"dp": (0, 1), "mp": (0,)}
        ),
        {"TRC009": "error"},
    ),
    "a member makes a call more": (sound(append(1, reduced(2))), {"TRC010": "error"}),
    "a member makes another call": (
        sound(alone(1, reduced(2, "c10d.broadcast_.default"))),
        {"TRC010": "error"},
    ),
    "a message never came in": (
        sound(append(0, reduced(2, "c10d.send.default", attributes={"dst": "1"}))),
        {"TRC010": "error"},
    ),
    "nobody waited for a collective": (
        sound(both(replace(unwaited(), outputs=[None]))),
        {"TRC011": "error"},
    ),
    "a collective was hashed too early": (sound(both(unwaited())), {"TRC012": "warning"}),
    "a copy was in flight": (
        sound(append(0, Call("aten.add.Tensor", "", ["a"], ["b"], step=2, flags=Flag.COPY_IN_FLIGHT))),
        {"TRC012": "warning"},
    ),
    "a call has no evidence of its output": (
        sound(append(0, Call("aten.add.Tensor", "", ["a"], [None], step=2))),
        {"TRC013": "warning"},
    ),
    "a call has no evidence of its input": (
        sound(append(0, Call("aten.add.Tensor", "", [None], ["b"], step=2))),
        {"TRC014": "warning"},
    ),
    "a call reads what is not recorded": (
        sound(append(0, Call("aten.add.Tensor", "", ["a"], ["b"], step=2, flags=Flag.OPEN_INPUTS))),
        {"TRC014": "note"},
    ),
    "ranks make other digests": (
        sound(lambda of: of.__setitem__(1, [replace(call, algorithm="crc32") for call in of[1]])),
        {"TRC015": "error"},
    ),
    "calls have other digests": (
        sound(both(Call("aten.add.Tensor", "", ["a"], ["b"], step=2, algorithm="crc32"))),
        {"TRC015": "note"},
    ),
    "a digest is weak": (
        sound(append(0, Call("aten.add.Tensor", "", ["a"], ["b"], step=2, flags=Flag.WEAK_OUTPUT))),
        {"TRC016": "note"},
    ),
    "a site stands there twice": (
        with_rows(sound(), make_twin),
        {"TRC017": "error"},
    ),
    "recomputation differs": (sound(recomputes_otherwise), {"TRC018": "error"}),
    "deterministic mode is off": (
        sound(recipes={rank: {"arguments": {"deterministic_mode": False}} for rank in (0, 1)}),
        {"TRC019": "warning"},
    ),
    "torch's flag is off": (
        sound(recipes={rank: DETERMINISTIC | {"state": {"deterministic": False}} for rank in (0, 1)}),
        {"TRC019": "warning"},
    ),
    "one rank is not deterministic": (
        sound(recipes={0: DETERMINISTIC, 1: {"state": {"deterministic": False}}}),
        {"TRC019": "error"},
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_breach_is_found_and_nothing_else(planted: str) -> None:
    run, expected = PLANTED[planted]
    result = check_trace(run)
    found = dict(result.findings.select("code", "severity").iter_rows())
    assert found == expected
    assert result.verdict == ("fail" if "error" in expected.values() else "pass")


def test_every_invariant_has_a_planted_breach_in_these_tests() -> None:
    here = {code for _, expected in PLANTED.values() for code in expected}
    assert set(INVARIANTS) - here == {"TRC003"}  # it takes a file: tests/checks/test_trace_files.py


def test_a_breach_names_its_ranks_its_number_and_the_first_place() -> None:
    row = first(sound(append(1, Call("aten.add.Tensor", "x", ["a"], [None], step=2))))
    assert (row["ranks"], row["num"]) == ([1], 1)
    assert row["where"] == "rank 1: 2/0/forward/x/aten.add.Tensor#0"
    assert row["found"] == "1 of 25 computing calls on rank 1 have no evidence of their outputs"
    assert (row["expected"], row["why"]) == (INVARIANTS["TRC013"].holds, INVARIANTS["TRC013"].why)


def test_no_evidence_at_all_is_an_error() -> None:
    assert breaches(sound(all_calls(outputs=[None])))["TRC013"] == "error"
    assert breaches(sound(all_calls(outputs=[])))["TRC013"] == "error"


def test_a_shape_is_no_evidence_of_bits() -> None:
    bare = Call("aten.add.Tensor", "", ["a"], ["b"], step=2, evidence=Evidence.STRUCTURE)
    assert breaches(sound(append(0, bare))) == {"TRC013": "warning", "TRC014": "warning"}


def test_views_and_fresh_memory_compute_nothing() -> None:
    view = Call("aten.view.default", "", ["a"], [None], step=2, flags=Flag.VIEW)
    fresh = Call("aten.empty.memory_format", "", [], [None], step=2, flags=Flag.FRESH_MEMORY)
    assert breaches(sound(append(0, view, fresh))) == {}


def test_strict_lets_a_warning_fail_and_leaves_a_note_alone() -> None:
    assert breaches(PLANTED["a collective was hashed too early"][0], strict=True) == {"TRC012": "error"}
    assert breaches(PLANTED["a digest is weak"][0], strict=True) == {"TRC016": "note"}


def test_messages_that_came_in_are_no_breach() -> None:
    def change(calls: list[list[Call]]) -> None:
        calls[0].append(reduced(2, "c10d.send.default", attributes={"dst": "1"}))
        calls[1].append(reduced(2, "c10d.recv_.default", attributes={"src": "0"}))

    assert breaches(sound(change)) == {}


def test_the_other_order_of_two_collectives_is_found_with_its_place() -> None:
    def change(calls: list[list[Call]]) -> None:
        calls[1][-2:] = calls[1][:-3:-1]

    row = first(sound(change))
    assert row["code"] == "TRC010"
    assert "call 0 on dp in step 2 is _allgather_base_ on rank 1, allreduce_ on rank 0" in row["found"]


def test_the_step_in_which_a_rank_was_cut_is_not_held_against_the_others() -> None:
    def change(calls: list[list[Call]]) -> None:
        calls[1][:] = calls[1][:-3]

    run = sound(change)
    assert breaches(run) == {"TRC010": "error"}
    cut = replace(run, ranks=(run.ranks[0], replace(run.ranks[1], complete=False)))
    assert breaches(cut) == {"TRC001": "error"}


@pytest.mark.parametrize(("expected", "found"), [("0-1", {}), ("0-2", {"TRC006": "error"}), ([1], {})])
def test_expected_ranks_stand_for_all_of_the_run(expected: Any, found: dict[str, str]) -> None:
    assert breaches(sound(), expect_ranks=expected) == found


@pytest.mark.parametrize(("expected", "found"), [("1-2", {}), ("1-3", {"TRC007": "error"}), (2, {})])
def test_expected_steps_have_to_be_there(expected: Any, found: dict[str, str]) -> None:
    assert breaches(sound(), expect_steps=expected) == found


def test_what_the_recorder_was_to_record_is_expected() -> None:
    assert breaches(with_recorder(sound(), steps="1-5", ranks="")) == {"TRC007": "warning"}
    assert breaches(with_recorder(sound(), steps="", ranks="")) == {}
    part = with_recorder(sound(world_size=4, layout={}), ranks="0-1")
    assert breaches(part) == {}
    told = [each for each in check_trace(part).not_checked if each.what.startswith("TRC006")]
    assert [(each.what, each.why) for each in told] == [
        ("TRC006: ranks 2-3", "not expected: those that the recorder was to record")
    ]


@pytest.mark.parametrize("text", ["all of them", "5-1", "1-999999999", "0-99999999999999999999"])
def test_a_hostile_manifest_expects_nothing(text: str) -> None:
    result = check_trace(with_recorder(sound(), steps=text))
    assert set(result.findings["severity"].to_list()) <= {"warning"}


def test_an_expectation_that_is_none_or_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="does not select ranks"):
        check_trace(sound(), expect_ranks="two")
    with pytest.raises(InputError, match="more steps than anybody records"):
        check_trace(sound(), expect_steps="1-99999999")


def test_what_was_left_out_by_request_is_no_breach_and_is_said(tmp_path: Any) -> None:
    folder = save_run(sound(), tmp_path / "run")
    result = check_trace(dl.load_run(folder, ranks="1", steps="2"))
    assert result.findings.is_empty()
    told = {each.what: each.why for each in result.not_checked}
    assert told["TRC006: ranks 0"] == "left out by request"
    assert told["TRC007: steps 1"] == "left out by request"
    assert told["TRC010: 1 communicator"] == "only one member of each is recorded"


def test_a_collective_is_not_pending_once_the_last_step_is_left_out(tmp_path: Any) -> None:
    run, _ = PLANTED["nobody waited for a collective"]
    folder = save_run(run, tmp_path / "run")
    assert breaches(dl.load_run(folder)) == {"TRC011": "error"}
    assert breaches(dl.load_run(folder, steps="1")) == {}


def test_what_a_trace_does_not_say_is_not_checked_and_not_verified() -> None:
    calls = [Call("aten.add.Tensor", "", ["a"], ["b"], microbatch=-1)]
    run = make_run({0: calls})
    result = check_trace(replace(run, manifest=replace(run.manifest, layout={})))
    assert {each.what for each in result.not_checked} == {
        "TRC008", "TRC009", "TRC010", "TRC011", "TRC018", "TRC019"
    }  # fmt: skip
    assert not {each.what for each in result.verified} & {each.what for each in result.not_checked}


def test_a_run_without_a_trace_is_invalid() -> None:
    result = check_trace(make_metrics_run({"lm loss": {1: 2.0}}))
    assert (result.verdict, result.exit_code) == ("invalid", 2)
    assert "no trace" in result.problems[0].what


def test_a_saved_run_gives_the_same(tmp_path: Any) -> None:
    run = sound()
    saved = check_trace(save_run(run, tmp_path / "run"))
    assert saved.findings.is_empty()
    assert [each.what for each in saved.verified] == [each.what for each in check_trace(run).verified]


@given(st.permutations(range(12)))
def test_the_order_of_completion_does_not_matter(order: list[int]) -> None:
    assert breaches(with_rows(sound(), lambda rows: rows[order])) == {}


@given(st.integers(1, 10), st.integers(1, 50))
def test_the_number_of_missing_numbers_is_told(at: int, lost: int) -> None:
    run = with_rows(sound(), lambda rows: rows["seq"].__setitem__(slice(at, None), rows["seq"][at:] + lost))
    row = first(run)
    assert (row["code"], row["num"], row["ranks"]) == ("TRC004", lost, [1])
    assert row["severity"] == ("warning" if at == 6 else "error")


def test_evidence_is_told_with_what_is_verified() -> None:
    told = {each.what: each.evidence for each in check_trace(sound()).verified}
    assert told["TRC013"] == "exact: a digest over every byte"
    weak = sound(all_calls(evidence=Evidence.SCREEN))
    told = {each.what: each.evidence for each in check_trace(weak).verified}
    assert told["TRC013"] == "screen: a digest that misses permutations or pairs"
