"""Which rank said that something is wrong, where it stands, and whether it says so again."""

import pytest

from detlab import load_run
from detlab.comparison.metrics.failures import FAILURE_COLUMNS, find_failures, recurs_at
from detlab.errors import InputError
from detlab.schema import Coordinate
from detlab.testing import Call, make_run
from tests.readers.metrics.logs import record, write

LAYOUT = {"tp": 2, "cp": 1, "ep": 2, "dp": 4, "pp": 2}


def failed(rank, *, node="n01", device=3, step=4):
    """Write what rank `rank` says when the gradients of its step are NaN."""
    return (
        f"[default{device}]:[rank{rank}]: RuntimeError: Rank {rank}, node {node}, device {device}, "
        f"iteration {step}: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in "
        "backward pass')\n"
    )


def run_of(folder, *failures, steps=3, ranks=16, first=1, before=()):
    """Load a run with a log of every rank; the last rank has the records."""
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        records = [record(step) for step in range(first, steps + 1)] if rank == ranks - 1 else []
        said = [text for text in failures if f"[rank{rank}]" in text]
        write(folder, "hello\n", *before, *records, *said, name=f"rank_{rank}.log")
    return load_run(folder, label=folder.name)


def test_of_sixteen_rank_logs_the_one_rank_that_says_nan_is_found_with_its_place(tmp_path):
    found = find_failures(run_of(tmp_path, failed(11)), LAYOUT)
    row = found.drop("text").row(0, named=True)
    assert len(found) == 1
    assert row == {
        "rank": 11, "step": 4, "node": "n01", "device": 3, "kind": "unexpected result",
        "source": "rank_11.log", "line": 2, "after_step": None, "num_ranks": 1,
        "tp": 1, "cp": 0, "ep": 1, "dp": 1, "pp": 1,
    }  # fmt: skip
    assert "bucket #0" in found["text"][0]


def test_how_many_ranks_say_it_at_one_step_is_counted(tmp_path):
    found = find_failures(run_of(tmp_path, failed(3), failed(7), failed(7), failed(9, step=5)))
    assert found.select("rank", "step", "num_ranks").rows() == [(3, 4, 2), (7, 4, 2), (7, 4, 2), (9, 5, 1)]


def test_without_a_layout_the_place_is_not_known(tmp_path):
    found = find_failures(run_of(tmp_path, failed(11)))
    assert found.select("tp", "cp", "ep", "dp", "pp").rows() == [(None,) * 5]
    assert found.columns == list(FAILURE_COLUMNS)


def test_a_rank_that_is_not_in_the_layout_is_refused(tmp_path):
    run = run_of(tmp_path, failed(11))
    with pytest.raises(InputError, match="rank 11 is not in a layout of"):
        find_failures(run, {"tp": 2, "dp": 4})


def test_a_layout_without_its_replicas_is_refused(tmp_path):
    run = run_of(tmp_path, failed(11))
    with pytest.raises(InputError, match="does not say the size of dp"):
        find_failures(run, {"tp": 2, "pp": 8})


def test_another_order_of_ranks_gives_another_place(tmp_path):
    run = run_of(tmp_path, failed(11))
    found = find_failures(run, {"tp": 2, "dp": 4, "pp": 2}, order="tp-cp-ep-pp-dp")
    assert found.select("tp", "dp", "pp").rows() == [(1, 2, 1)]


def test_the_last_record_before_it_in_its_file_is_given(tmp_path):
    run = load_run(write(tmp_path, record(1), record(2), failed(0, step=-1), record(3)))
    assert find_failures(run).select("step", "after_step").rows() == [(None, 2)]


def test_a_message_that_names_no_rank_is_not_listed(tmp_path):
    run = load_run(write(tmp_path, record(1), "CUDA error: unspecified launch failure\n"))
    assert find_failures(run).is_empty()


def test_messages_that_are_no_failures_are_not_listed(tmp_path):
    said = (
        "[rank3]: Loading the checkpoint at step 20.\n",
        "OVERFLOW! Rank 2 Skipping step. Attempted loss scale: 4\n",
    )
    assert find_failures(load_run(write(tmp_path, record(1), *said))).is_empty()


def test_the_tracker_file_names_ranks_as_well(tmp_path):
    said = (
        "ts=2026-03-02 08:15:00 node=n07 device=5 jobID=77 rank=13 iteration=4 "
        "status=RerunValidationStatus.INITIAL_RUN result=nan message='loss is NaN'\n"
    )
    found = find_failures(load_run(write(tmp_path, record(1), said)))
    assert found.select("rank", "step", "node", "device", "kind").rows() == [
        (13, 4, "n07", 5, "validation tracker")
    ]


def test_a_trace_without_a_log_has_none():
    assert find_failures(make_run({0: [Call("aten.mm.default")]})).is_empty()


def test_where_ranks_recorded_their_place_that_is_believed(tmp_path):
    logged = run_of(tmp_path, failed(11))
    traced = make_run(
        {11: [Call("aten.mm.default")]}, coordinates={11: Coordinate(tp=5, ep=3)}, layout={"dp": 16}
    )
    both = type(traced)(**{name: getattr(traced, name) for name in ("label", "source", "manifest", "ranks")},
                        metrics=logged.metrics, log=logged.log)  # fmt: skip
    assert find_failures(both).select("tp", "ep", "dp").rows() == [(5, 3, 0)]


# Reruns ---------------------------------------------------------------------------------------------------


def recurrence(tmp_path, rerun, failure=None):
    """Say of a failure of rank 11 at step 4 on device 3 of n01 whether it comes back."""
    run = run_of(tmp_path / "first", failure or failed(11))
    found = recurs_at(run, [rerun])
    assert found["rerun"].to_list() == [rerun.label]
    return found.select("recurs", "same_device", "conclusion").row(0)


def test_the_same_rank_and_step_again_is_deterministic_and_nothing_again_is_transient(tmp_path):
    run = run_of(tmp_path / "first", failed(11))
    again = run_of(tmp_path / "again", failed(11, node="n02"))
    gone = run_of(tmp_path / "gone", steps=6)
    found = recurs_at(run, [again, gone])
    assert found.select("rank", "step", "rerun", "recurs", "same_device", "conclusion").rows() == [
        (11, 4, "again", "same rank and step", False, "deterministic"),
        (11, 4, "gone", "gone", None, "transient"),
    ]
    assert "the data or the software, as another device had that rank" in found["why"][0]
    assert "a fault of the hardware, or a race" in found["why"][1]


def test_on_the_same_device_again_a_persistent_fault_of_it_is_not_ruled_out(tmp_path):
    again = run_of(tmp_path / "again", failed(11))
    assert recurrence(tmp_path, again) == ("same rank and step", True, "deterministic")
    found = recurs_at(run_of(tmp_path / "first", failed(11)), [again])
    assert "a persistent fault of it" in found["why"][0]
    assert found["next"][0] == "run the step again with another device for rank 11"


@pytest.mark.parametrize(
    ("failure", "recurs"),
    [
        (failed(11, step=5), "same rank, other step"),
        (failed(2), "other rank, same step"),
        (failed(11, step=-1), "same rank, step not printed"),
    ],
)
def test_a_failure_that_comes_back_in_another_way_decides_nothing(failure, recurs, tmp_path):
    rerun = run_of(tmp_path / "again", failure, steps=6)
    assert recurrence(tmp_path, rerun)[::2] == (recurs, "insufficient evidence")


def test_a_failure_whose_step_is_not_printed_is_never_called_deterministic(tmp_path):
    rerun = run_of(tmp_path / "again", failed(11, step=-1))
    found = recurrence(tmp_path, rerun, failed(11, step=-1))
    assert found == ("same rank, step not printed", True, "insufficient evidence")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_rerun_that_never_passed_the_step_does_not_clear_it(steps, tmp_path):
    rerun = run_of(tmp_path / "short", steps=steps)
    assert recurrence(tmp_path, rerun) == ("not reached", None, "insufficient evidence")


def test_a_rerun_from_a_later_checkpoint_does_not_clear_it(tmp_path):
    loaded = "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration {}\n"
    later = run_of(tmp_path / "later", first=5, steps=9, before=[loaded.format(4)])
    earlier = run_of(tmp_path / "earlier", first=4, steps=9, before=[loaded.format(3)])
    assert recurrence(tmp_path, later)[0] == "not reached"
    assert recurrence(tmp_path, earlier)[0] == "gone"


def test_another_kind_of_failure_is_not_the_same_again(tmp_path):
    other = "[rank11]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    rerun = run_of(tmp_path / "again", other, steps=6)
    assert recurrence(tmp_path, rerun)[0] == "gone"


def test_without_failures_or_reruns_there_is_nothing_to_say(tmp_path):
    clean = run_of(tmp_path / "clean")
    assert recurs_at(clean, [clean]).is_empty()
    assert recurs_at(run_of(tmp_path / "first", failed(11)), []).is_empty()


def test_paths_do_as_well_as_runs(tmp_path):
    run = run_of(tmp_path / "first", failed(11))
    gone = run_of(tmp_path / "gone", steps=6)
    assert find_failures(tmp_path / "first").equals(find_failures(run))
    by_path = recurs_at(str(tmp_path / "first"), [tmp_path / "gone"])
    assert by_path.equals(recurs_at(run, [gone]))


@pytest.mark.parametrize(
    ("step", "steps", "recurs"), [(-1, 2, "not reached"), (-1, 3, "gone"), (4, 3, "not reached")]
)
def test_a_step_that_is_not_printed_is_the_one_after_the_last_record(step, steps, recurs, tmp_path):
    run = load_run(write(tmp_path, record(1), record(2), failed(0, step=step), name="run.log"))
    rerun = load_run(write(tmp_path, *(record(each) for each in range(1, steps + 1)), name="rerun.log"))
    assert recurs_at(run, [rerun])["recurs"].to_list() == [recurs]


def test_a_rerun_whose_logs_have_no_record_does_not_clear_it(tmp_path):
    other = "[rank3]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    rerun = load_run(write(tmp_path, other, name="rank3.log"))
    assert recurrence(tmp_path, rerun) == ("not reached", None, "insufficient evidence")
    traced = make_run({0: [Call("aten.mm.default")]})
    assert recurrence(tmp_path, traced) == ("not reached", None, "insufficient evidence")


def test_rank_logs_alone_are_enough_to_find_the_rank(tmp_path):
    for rank in range(16):
        write(tmp_path, "hello\n", *([failed(11)] if rank == 11 else []), name=f"rank_{rank}.log")
    found = find_failures(tmp_path, LAYOUT)
    assert found.select("rank", "step", "num_ranks", "source", "tp", "dp", "pp").rows() == [
        (11, 4, 1, "rank_11.log", 1, 1, 1)
    ]


def test_where_the_device_is_not_known_that_is_said(tmp_path):
    lost = "[rank11]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    runs = [load_run(write(tmp_path, record(1), lost, name=name)) for name in ("a.log", "b.log")]
    found = recurs_at(runs[0], [runs[1]])
    assert found.select("recurs", "same_device").rows() == [("same rank, step not printed", None)]
    named = [failed(11), failed(11).replace("node n01, device 3", "node n01, device 9")]
    nowhere = "Unexpected result nan on rank 11 at iteration #4 invocation #1 (message='x')\n"
    runs = [
        load_run(write(tmp_path, record(1), each, name=f"{n}.log"))
        for n, each in enumerate([*named, nowhere])
    ]
    found = recurs_at(runs[0], runs[1:])
    assert found["same_device"].to_list() == [False, None]
    assert "since the device is not known, a persistent fault of it" in found["why"][1]


@pytest.mark.parametrize(("steps", "recurs"), [(3, "not reached"), (4, "gone")])
def test_o33_where_another_rank_prints_the_records_the_step_is_the_one_after_the_last_of_them(
    steps, recurs, tmp_path
):
    rerun = run_of(tmp_path / "again", steps=steps)
    assert recurrence(tmp_path, rerun, failed(11, step=-1))[0] == recurs


def test_a_restart_leaves_open_after_which_record_of_another_rank_a_failure_is(tmp_path):
    folder = tmp_path / "first"
    run_of(folder, failed(11, step=-1))
    write(folder, *(record(step) for step in (1, 2, 3, 2, 3)), name="rank_15.log")
    assert recurs_at(folder, [run_of(tmp_path / "again", steps=9)])["recurs"].to_list() == ["not reached"]


@pytest.mark.parametrize(("last", "recurs"), [(20, "not reached"), (30, "gone")])
def test_a_step_that_is_not_printed_may_be_any_of_the_log_interval(last, recurs, tmp_path):
    tens = [record(step) for step in range(10, last + 1, 10)]
    run = load_run(write(tmp_path, record(10), record(20), failed(0, step=-1), name="run.log"))
    rerun = load_run(write(tmp_path, *tens, record(last + 1), name="rerun.log"))
    assert recurs_at(run, [rerun])["recurs"].to_list() == [recurs]
