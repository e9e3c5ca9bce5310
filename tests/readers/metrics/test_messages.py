"""Lines that are no records and still evidence: each wording and what it fills; what is no message."""

import math

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detlab import load_run
from detlab.errors import DetlabError
from detlab.readers.metrics.log import MESSAGE_SCHEMA
from detlab.readers.metrics.messages import FAILURES, MARKERS, PATTERNS, find_messages, place_messages
from tests.readers.metrics.logs import numbers, record, write

NAN = math.nan
TRACKER = (
    "ts=2026-03-02 08:15:00.250000 node=n07 device=5 jobID=77 rank=13 iteration=42 "
    "status=RerunValidationStatus.{} result={} message='loss is NaN'"
)
PLACE = "ERROR:megatron.core.rerun_state_machine:Rank 13, node n07, device 5, iteration #42: "

# (the line, kind, step, rank, node, device, value)
EVERY = [
    (TRACKER.format("INITIAL_RUN", "nan"), "validation tracker", 42, 13, "n07", 5, NAN),
    (
        TRACKER.format("FIRST_RERUN_REPRODUCIBLE", "tensor(1.5e-3, device='cuda:5')"),
        *("validation tracker", 42, 13, "n07", 5, 0.0015),
    ),
    (
        "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel "
        "communication collective. Device: 1, node: n02",
        *("unexpected result", None, 3, "n02", 1, NAN),
    ),
    (
        "[rank6]: AssertionError: Rank 6: found NaN in local forward loss calculation. "
        "Device: 2, node: n1.x.y",
        *("unexpected result", None, 6, "n1.x.y", 2, NAN),
    ),
    (
        "RuntimeError: Rank 5, node n03, device 1, iteration -1: Unexpected result nan (message='found NaN "
        "in local grad norm for bucket #2 in backward pass before data-parallel communication collective')",
        *("unexpected result", None, 5, "n03", 1, NAN),
    ),
    (
        "WARNING:x:Rank 5, node n03, device 1, iteration 17: Unexpected result 9.25 (message='Spiky loss')",
        *("unexpected result", 17, 5, "n03", 1, 9.25),
    ),
    (
        "ERROR:megatron.core.rerun_state_machine:Unexpected result tensor(nan) on rank 13 at iteration #42 "
        "invocation #1 (message='loss is NaN')",
        *("unexpected result", 42, 13, None, None, NAN),
    ),
    (
        "Unexpected result tensor([1., 2.]) on rank 13 at iteration #42 invocation #1 (message='x')",
        *("unexpected result", 42, 13, None, None, None),
    ),
    (
        PLACE + "First rerun: unexpected result is not reproducible within the tolerance (2.25 != nan)!",
        *("first rerun", 42, 13, "n07", 5, 2.25),
    ),
    (
        PLACE + "First rerun: unexpected result is reproducible within the tolerance (tensor(-inf) = "
        "tensor(-inf)). Need to rerun on a different GPU to verify correctness.!",
        *("first rerun", 42, 13, "n07", 5, -math.inf),
    ),
    (
        "[rank13]:WARNING:megatron.core.rerun_state_machine:Second rerun: unexpected result is not "
        "reproducible on a different GPU, therefore was likely incorrect (2.25 != nan)",
        *("second rerun", None, 13, None, None, 2.25),
    ),
    (PLACE + "Possible transient error!!", "validation conclusion", 42, 13, "n07", 5, None),
    (PLACE + "Possible persistent error!", "validation conclusion", 42, 13, "n07", 5, None),
    (
        PLACE + "Correct result (but possible Application error) (loss is NaN)!",
        *("validation conclusion", 42, 13, "n07", 5, None),
    ),
    (
        "Got rescheduled on the same GPU. Need to resume again from the same checkpoint (node: n07, gpu: 5)",
        *("rescheduled on the same device", None, None, "n07", 5, None),
    ),
    (
        "[rank9]:[E318 08:49:08.9 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=2, OpType=BROADCAST, Timeout(ms)=600000) ran for 600081 milliseconds "
        "before timing out.",
        *("timeout", None, 9, None, None, 600081.0),
    ),
    (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=BROADCAST)",
        *("timeout", None, None, None, None, None),
    ),
    (
        "29: [rank29]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        *("cuda error", None, 29, None, None, None),
    ),
    (
        "[default2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        *("cuda error", None, None, None, None, None),
    ),
    ("[exiting program at iteration 600] datetime: 2026-01-01 01:00:51", "exit", 600, None, None, None, None),
    ("[exiting program after 60.5 minutes] datetime: 2026-01-01 ", "exit", None, None, None, None, None),
    ("[exiting program after receiving SIGTERM.] datetime: x", "exit", None, None, None, None, None),
    (
        "Exiting now. Please resume the job from the same checkpoint to rerun the last iteration",
        *("exit", None, None, None, None, None),
    ),
    (
        "Saving a checkpoint and exiting now. Please resume the job from the checkpoint to rerun",
        *("exit", None, None, None, None, None),
    ),
    (
        "E0612 11:30:42.8 33 api.py:869] failed (exitcode: 17) local_rank: 0 (pid: 44) of binary: python",
        *("exit", None, None, None, None, 17.0),
    ),
    ("srun: error: n-04.x: task 3: Exited with exit code 16", "exit", None, None, "n-04.x", None, 16.0),
    (
        "[2026-01-01 00:13:28,261] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 2 "
        "Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
        *("overflow", None, 2, None, None, 65536.0),
    ),
    (
        " [deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1024, reducing to 512.0",
        *("overflow", None, 0, None, None, 1024.0),
    ),
    (
        "[INFO] [logging.py:96:log_dist] [Rank 0] Overflow detected. Skipping step. Attempted loss scale: "
        "64, reducing to 32.0",
        *("overflow", None, 0, None, None, 64.0),
    ),
    (
        "2026-01-01 10:45:38 | INFO | fairseq.trainer | NOTE: overflow detected, setting loss scale to: 32.0",
        *("overflow", None, None, None, None, 32.0),
    ),
    (
        "gradient overflow detected, ignoring gradient, setting loss scale to: 16.0",
        *("overflow", None, None, None, None, 16.0),
    ),
    (
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
        *("overflow", None, None, None, None, 32768.0),
    ),
    (
        "Will skip these iterations from tracker file: [42, 43]",
        *("steps to skip", None, None, None, None, None),
    ),
    ("[before the start of training step] datetime: 2026-01-01", "start", None, None, None, None, None),
    ("Setting rerun_state_machine.current_iteration to 150...", "start", 150, None, None, None, None),
    ("[rank0]:[titan] x - root - INFO - Training starts at step 21", "start", 21, 0, None, None, None),
    ("***** Running training *****", "start", None, None, None, None, None),
    (
        "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 150",
        *("checkpoint loaded", 150, None, None, None, None),
    ),
    (
        "[NeMo I 2026-01-01 14:46:18 nemo_logging:393] Global Checkpoint Load : Rank : 0 : Start time : 1.2s",
        *("checkpoint loaded", None, 0, None, None, None),
    ),
    (
        "Restoring states from the checkpoint path at /ckpt/name--val_loss=0.00-step=18-consumed=9.0.ckpt",
        *("checkpoint loaded", 18, None, None, None, None),
    ),
    (
        "Restoring states from the checkpoint path at /ckpt/last.ckpt",
        *("checkpoint loaded", None, None, None, None, None),
    ),
    (
        "[titan] 2026-01-01 - root - INFO - Loading the checkpoint from out/checkpoint/step-20.",
        *("checkpoint loaded", 20, None, None, None, None),
    ),
    ("Loading the checkpoint at step 20.", "checkpoint loaded", 20, None, None, None, None),
    ("  Continuing training from global step 500", "checkpoint loaded", 500, None, None, None, None),
    ("Loading model from out/checkpoint-500.", "checkpoint loaded", 500, None, None, None, None),
    (
        "INFO - accelerate.accelerator - Loading states from out/checkpoint-500",
        *("checkpoint loaded", 500, None, None, None, None),
    ),
    (
        "[INFO] [Torch] Loaded checkpoint from out/global_step500/mp_rank_00_model_states.pt.",
        *("checkpoint loaded", 500, None, None, None, None),
    ),
    (
        "Loaded checkpoint ckpt/checkpoint_last.pt (epoch 3 @ 1200 updates)",
        *("checkpoint loaded", 1200, None, None, None, None),
    ),
    (
        "  successfully saved checkpoint at iteration     241 to /ckpt",
        *("checkpoint saved", 241, None, None, None, None),
    ),
    (
        "[NeMo I] Successfully saved checkpoint from iteration      24 to /ckpt/step=24.ckpt",
        *("checkpoint saved", 24, None, None, None, None),
    ),
    (
        "[Rank 0] [Torch] Checkpoint global_step10 is ready now!",
        *("checkpoint saved", 10, None, None, None, None),
    ),
    (
        "Finished saving the checkpoint (or staging if async is enabled)in 5.53 seconds.",
        *("checkpoint saved", None, None, None, None, None),
    ),
    (
        "Saved checkpoint ckpt/checkpoint1.pt (epoch 1 @ 600 updates, score 4.2) (writing took 3 seconds)",
        *("checkpoint saved", 600, None, None, None, None),
    ),
    (
        "saving checkpoint at iteration     241 to /ckpt in torch_dist format",
        *("checkpoint save started", 241, None, None, None, None),
    ),
    (
        "Scheduled async checkpoint save for /ckpt/name=0--val_loss=0.00-step=18-consumed=9.0-last.ckpt",
        *("checkpoint save started", 18, None, None, None, None),
    ),
    (
        "Saving the checkpoint (or staging if async is enabled).",
        *("checkpoint save started", None, None, None, None, None),
    ),
    (
        "INFO - accelerate.accelerator - Saving current state to out/step_40",
        *("checkpoint save started", 40, None, None, None, None),
    ),
    (
        "Saving model checkpoint to out/checkpoint-500",
        *("checkpoint save started", 500, None, None, None, None),
    ),
    (
        "Saving model checkpoint: out/global_step7/mp_rank_00_model_states.pt",
        *("checkpoint save started", 7, None, None, None, None),
    ),
    (
        " validation loss at iteration 70 | lm loss value: 7.250000E+00 | lm loss PPL: 1.408E+03 |",
        *("validation", 70, None, None, None, 7.25),
    ),
    (
        " validation loss at iteration 50 on test set | lm loss value: 1.5E-01 | lm loss PPL: 1.1E+00 |",
        *("validation", 50, None, None, None, 0.15),
    ),
    (
        "[titan] x - root - INFO - validate step: 20  loss:  3.1250  ",
        "validation",
        20,
        None,
        None,
        None,
        3.125,
    ),
    (
        "[rank0]:Pipeline Parallel loss is not visible. Please add rank 4 to LOG_RANK environment variable",
        *("loss not visible", None, 0, None, None, 4.0),
    ),
]

ORDINARY = [
    "  successfully saved checkpoint",
    "(after 20 iterations) memory (MB) | allocated: 194.4 | max: 2210.0[Rank 49] (after 20 iterations)",
    "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "    load-checkpoint ................................: (0.28, 26.66)",
    "Loading model from org/name-7b",
    "loading checkpoint from /ckpt at iteration 150",
    "[Torch] Saved out/global_step500/mp_rank_00_model_states.pt.",
    "[Torch] Checkpoint global_step10 is about to be saved!",
    "Will skip these iterations from tracker file: []",
    "WARNING:megatron.core.rerun_state_machine:Result validation enabled",
    "a rank says: exiting program",
    "Second rerun: unexpected result",
    " jobID=77 status=RUNNING",
    record(7),
]


def found(*lines, whole=True):
    """Find messages in lines, whether they have a marker or not."""
    numbered = enumerate(lines, 1)
    frame = pl.DataFrame(list(numbered), {"line": pl.Int64, "text": pl.String}, orient="row")
    return find_messages(frame.with_columns(whole=pl.lit(whole)))


def rows(messages):
    """Give each message without its text, source and line, with a word for NaN, which equals nothing."""
    shown = messages.select("kind", "step", "rank", "node", "device", "value").rows()
    return [tuple("nan" if value != value else value for value in row) for row in shown]  # noqa: PLR0124


@pytest.mark.parametrize("case", EVERY, ids=[f"{case[1]}-{n}" for n, case in enumerate(EVERY)])
def test_each_wording_gives_one_message_with_what_it_names(case):
    messages = found(case[0])
    assert rows(messages) == [tuple("nan" if value is NAN else value for value in case[1:])]
    assert messages["text"].to_list() == [case[0]]
    assert messages.schema == pl.DataFrame(schema=MESSAGE_SCHEMA).schema


def test_every_kind_and_every_wording_of_the_table_has_a_line_here():
    told = [case[0] for case in EVERY]
    assert {case[1] for case in EVERY} == {pattern.kind for pattern in PATTERNS}
    for pattern in PATTERNS:
        fit = pl.Series(told).str.contains(pattern.form) & pl.Series(told).str.contains(
            pattern.marker, literal=True
        )
        assert fit.any(), pattern


def test_kinds_that_are_failures_are_kinds():
    assert {*FAILURES} < {pattern.kind for pattern in PATTERNS}


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_give_none(line):
    assert not len(found(line))


PREFIX = st.one_of(
    st.sampled_from(
        ["[default7]:", "3: ", "[n04:2]: ", "10.0.0.9:  ", "job_x/0  [2026-01-01 00:00:01] ", "ain/0 "]
    ),
    st.text(st.characters(codec="ascii", exclude_characters="\n\r"), max_size=30),
)


@given(case=st.sampled_from(EVERY), prefix=PREFIX)
def test_a_prefix_changes_nothing(case, prefix):
    assume(not any(marker in prefix + " " for marker in MARKERS) and "[rank" not in prefix)
    assert rows(found(prefix + " " + case[0])) == rows(found(case[0]))


@given(case=st.sampled_from(EVERY), rank=st.integers(0, 99_999))
def test_the_rank_of_a_prefix_counts_where_the_line_names_none(case, rank):
    assume("[rank" not in case[0])
    named = case[3]
    assert rows(found(f"29: [rank{rank}]: " + case[0]))[0][2] == (rank if named is None else named)


@pytest.mark.parametrize("prefix", ["[default3]:", "3: ", "[n04:3]: ", "[Rank 3] "])
def test_a_local_rank_is_no_global_one(prefix):
    assert found(prefix + "CUDA error: unspecified launch failure")["rank"].to_list() == [None]


def test_an_iteration_of_minus_one_is_not_known():
    line = "RuntimeError: Rank 5, node n, device 1, iteration {}: Unexpected result nan (message='x')"
    assert found(line.format(-1), line.format(0))["step"].to_list() == [None, 0]


def test_of_several_messages_on_one_line_the_failure_counts():
    glued = EVERY[6][0]
    assert rows(found("saving checkpoint at iteration 241 to /ckpt" + glued)) == rows(found(glued))


def test_colours_and_windows_line_ends_change_nothing(tmp_path):
    log = write(tmp_path, record(1), "\x1b[31mLoading the \x1b[0mcheckpoint at step 20.\r\n", record(2))
    assert rows(load_run(log).log.messages) == [("checkpoint loaded", 20, None, None, None, None)]


def test_a_traceback_of_many_ranks_is_one_message_a_rank(tmp_path):
    lines = [
        f'{rank}: [rank{rank}]:   File "/x/train.py", line 7, in f\n{rank}: [rank{rank}]: RuntimeError: '
        f"Rank {rank}, node n, device {rank}, iteration 9: Unexpected result nan (message='x')\n"
        for rank in range(4)
    ]
    messages = load_run(write(tmp_path, record(8), *lines)).log.messages
    assert messages.select("rank", "step", "line", "source").rows() == [
        (rank, 9, 3 + 2 * rank, "train.log") for rank in range(4)
    ]


def test_a_number_that_the_end_of_the_file_cuts_is_none(tmp_path):
    log = write(tmp_path, record(1), " validation loss at iteration 70 | lm loss value: 7.1")
    assert rows(load_run(log).log.messages) == [("validation", 70, None, None, None, None)]
    log = write(tmp_path, record(1), "saving checkpoint at iteration 70")
    assert not len(load_run(log).log.messages)


def test_messages_are_no_records(tmp_path):
    log = write(tmp_path, record(1), *(case[0] + "\n" for case in EVERY), record(2))
    alone = write(tmp_path, record(1), record(2), name="alone.log")
    assert numbers(log) == numbers(alone)
    assert len(load_run(log).log.messages) == len(EVERY)


@pytest.mark.parametrize("case", [case for case in EVERY if case[1] in ("start", "checkpoint loaded")])
def test_what_says_that_training_starts_or_a_checkpoint_was_loaded_begins_a_segment(case, tmp_path):
    run = load_run(write(tmp_path, record(1), case[0] + "\n", record(2)))
    assert run.log.segments["first_step"].to_list() == [1, 2]


@pytest.mark.parametrize("case", [case for case in EVERY if case[1] not in ("start", "checkpoint loaded")])
def test_nothing_else_begins_a_segment(case, tmp_path):
    run = load_run(write(tmp_path, record(1), case[0] + "\n", record(2)))
    assert run.log.segments["first_step"].to_list() == [1]


# Where messages stand -------------------------------------------------------------------------------------

OVERFLOW = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to 1\n"


def placed(run):
    places = place_messages(run.log.messages, run.metrics)
    return places.select("value", "after_step", "before_step").rows()


def test_an_overflow_is_placed_between_the_records_around_it(tmp_path):
    log = [
        OVERFLOW.format(8),
        record(10),
        OVERFLOW.format(4),
        OVERFLOW.format(2),
        record(20),
        OVERFLOW.format(1),
    ]
    assert placed(load_run(write(tmp_path, *log))) == [
        (8.0, None, 10), (4.0, 10, 20), (2.0, 10, 20), (1.0, 20, None),
    ]  # fmt: skip


def test_a_message_is_placed_among_the_records_of_its_own_file(tmp_path):
    write(tmp_path, record(1), OVERFLOW.format(8), record(2), name="log_1.txt")
    write(tmp_path, record(11), OVERFLOW.format(4), record(12), name="log_2.txt")
    assert placed(load_run(tmp_path)) == [(8.0, 1, 2), (4.0, 11, 12)]


def test_a_restart_between_the_records_around_a_message_shows(tmp_path):
    assert placed(load_run(write(tmp_path, record(10), OVERFLOW.format(8), record(6)))) == [(8.0, 10, 6)]


def test_messages_are_placed_in_their_order_and_keep_their_columns(tmp_path):
    run = load_run(write(tmp_path, record(1), *(case[0] + "\n" for case in EVERY)))
    places = place_messages(run.log.messages, run.metrics)
    assert places.drop("after_step", "before_step").equals(run.log.messages)
    assert places["after_step"].unique().to_list() == [1]


# Logs without a record ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in EVERY if case[1] not in FAILURES])
def test_a_log_with_neither_records_nor_failures_is_said_to_have_none(case, tmp_path):
    with pytest.raises(DetlabError, match="no record of step metrics"):
        load_run(write(tmp_path, case[0] + "\n"))


@pytest.mark.parametrize("case", [case for case in EVERY if case[1] in FAILURES])
def test_a_log_with_nothing_but_a_failure_is_a_run_without_metrics(case, tmp_path):
    run = load_run(write(tmp_path, "hello\n", case[0] + "\n"))
    assert rows(run.log.messages) == rows(found(case[0]))
    assert run.metrics.is_empty()
    assert "no steps" in repr(run)


def test_the_tracker_file_alone_is_a_run(tmp_path):
    lines = [TRACKER.format(status, "nan") + "\n" for status in ("INITIAL_RUN", "FIRST_RERUN_REPRODUCIBLE")]
    run = load_run(write(tmp_path, *lines, name="tracker.txt"), label="t", steps="1-5")
    assert run.log.messages["line"].to_list() == [1, 2]
    assert run.log.files.select("source", "num_records", "why").rows() == [("tracker.txt", 0, "no record")]


def test_the_logs_of_ranks_that_print_no_metrics_are_a_run_when_one_tells_of_a_failure(tmp_path):
    for rank in range(3):
        write(tmp_path, "hello\n", *([EVERY[2][0]] if rank == 1 else []), name=f"rank{rank}.log")
    messages = load_run(tmp_path).log.messages
    assert messages.select("source", "line", "rank").rows() == [("rank1.log", 2, 3)]


def test_a_failure_in_a_log_with_records_changes_no_selection(tmp_path):
    with pytest.raises(DetlabError, match=r"has none of steps=.5.: it has steps 1"):
        load_run(write(tmp_path, record(1), EVERY[2][0] + "\n"), steps="5")
