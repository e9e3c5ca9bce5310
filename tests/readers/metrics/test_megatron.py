"""Records of Megatron-LM and its forks: every shape that has been seen, and what is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run
from tests.readers.metrics.logs import numbers, record, states, write

E3, E6 = 1e-3, 1e-6

SHAPES = {
    "V1 of 2021: no time stamp, short learning rate, a time line after it": (
        " iteration       40/    2000 | consumed samples:          160 |"
        " elapsed time per iteration (ms): 1401.7 | learning rate: 1.400E-04 |"
        " global batch size:     4 | lm loss: 2.512345E+01 | loss scale: 8192.0 |"
        " grad norm: 61.250 | number of skipped iterations:   1 | number of nan iterations:   0 |\n"
        "time (ms) | forward-compute: 80.12 | backward-compute: 200.20 | optimizer: 44.01\n",
        [
            (40, "consumed samples", 160.0, None, "value"),
            (40, "elapsed time per iteration (ms)", 1401.7, 0.1, "value"),
            (40, "learning rate", 1.4e-4, 1e-7, "value"),
            (40, "global batch size", 4.0, None, "value"),
            (40, "lm loss", 25.12345, 1e-5, "value"),
            (40, "loss scale", 8192.0, 0.1, "value"),
            (40, "grad norm", 61.25, E3, "value"),
            (40, "number of skipped iterations", 1.0, None, "value"),
            (40, "number of nan iterations", 0.0, None, "zero"),
        ],
    ),
    "V2 of 2024: stamp in seconds, throughput": (
        " [2024-10-01 12:00:01] iteration       50/  300000 | throughput per GPU (TFLOP/s/GPU): 401.5 |"
        " lm loss: 7.250000E+00 | grad norm: 3.125 |\n",
        [
            (50, "throughput per GPU (TFLOP/s/GPU)", 401.5, 0.1, "value"),
            (50, "lm loss", 7.25, E6, "value"),
            (50, "grad norm", 3.125, E3, "value"),
        ],
    ),
    "V3 of 2026: prefix, microseconds, zeros and norm of the parameters": (
        "[default7]: [2026-10-02 09:00:00.123456] iteration       44/  102400 | lm loss: 6.500000E+00 |"
        " grad norm: 4.000 | num zeros: 760000000.0 | params norm: 2241.500 |\n",
        [
            (44, "lm loss", 6.5, E6, "value"),
            (44, "grad norm", 4.0, E3, "value"),
            (44, "num zeros", 760000000.0, 0.1, "value"),
            (44, "params norm", 2241.5, E3, "value"),
        ],
    ),
    "V4 with losses of experts and of later tokens, and no blank before the total": (
        " [2025-11-01 10:00:00] iteration        1/90000000 | lm loss: 1.200000E+01 |"
        " seq_load_balancing_loss: 1.300000E+00 | mtp_1 loss: 7.925000E+00 | loss scale: 1.0 |\n",
        [
            (1, "lm loss", 12.0, 1e-5, "value"),
            (1, "seq_load_balancing_loss", 1.3, E6, "value"),
            (1, "mtp_1 loss", 7.925, E6, "value"),
            (1, "loss scale", 1.0, 0.1, "value"),
        ],
    ),
    "V5 with a loss of another name, which the loss scale is not": (
        " iteration      200/   10000 | loss: 1.927500E-01 | sop loss: 3.194300E-01 | loss scale: 2.0 |\n",
        [
            (200, "loss", 0.19275, 1e-7, "value"),
            (200, "sop loss", 0.31943, 1e-7, "value"),
            (200, "loss scale", 2.0, 0.1, "value"),
        ],
    ),
    "V8 of Megatron-DeepSpeed: tokens and seconds": (
        "[default7]: iteration    31218/  115311 | consumed tokens:  97800000000 |"
        " elapsed time per iteration (s): 107.53 | lm loss: 2.345250E+00 | grad norm: 145.125 |"
        " samples per second: 19.046 | TFLOPs: 145.82 |\n",
        [
            (31218, "consumed tokens", 97800000000.0, None, "value"),
            (31218, "elapsed time per iteration (s)", 107.53, 0.01, "value"),
            (31218, "lm loss", 2.34525, E6, "value"),
            (31218, "grad norm", 145.125, E3, "value"),
            (31218, "samples per second", 19.046, E3, "value"),
            (31218, "TFLOPs", 145.82, 0.01, "value"),
        ],
    ),
    "V10 with a field before the samples": (
        "      iteration        1/   30000 | current time: 1706860208.25 | lm loss: 1.000000E+01 |\n",
        [(1, "current time", 1706860208.25, 0.01, "value"), (1, "lm loss", 10.0, 1e-5, "value")],
    ),
    "V11 of Megatron-Bridge: its other lines are no records": (
        "Step Time : 7.04s GPU utilization: 24.7MODEL_TFLOP/s/GPU\n"
        "Number of parameters in transformer layers in billions:  0.86\n"
        " [2025-12-05 00:25:41] iteration        1/      10 | lm loss: 6.750000E+00 |\n"
        "[Rank 0] (after 1 iterations) memory (GB) | mem-allocated-gigabytes: 13.367\n",
        [(1, "lm loss", 6.75, E6, "value")],
    ),
    "V12 between validation and checkpoint lines": (
        "----------------------------------------------------------------\n"
        " validation loss at iteration 7000 | lm loss value: 7.174200E+00 | lm loss PPL: 1.305315E+03 |\n"
        "saving checkpoint at iteration   33241 to /ckpt\n"
        "[exiting program after 1190.03 minutes] datetime: 2026-08-08 01:00:51\n"
        " iteration     7010/  159576 | lm loss: 1.142000E+01 |\n"
        " validation loss at iteration 50 on test set | lm loss value: 1.585846E-01 |\n",
        [(7010, "lm loss", 11.42, 1e-5, "value")],
    ),
    "V13 between timers": (
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (4687.59, 4725.48)\n"
        " iteration        2/      10 | lm loss: 6.750000E+00 |\n",
        [(2, "lm loss", 6.75, E6, "value")],
    ),
    "V14 after a print of another rank on its line, and before another record": (
        "[Rank 51] (after 20 iterations) memory (MB) | allocated: 19494.45 | reserved: 26716.0"
        " iteration       20/     500 | lm loss: 2.500000E+00 |"
        "[Rank 49] (after 20 iterations) memory (MB) | allocated: 19494.95 | reserved: 26720.0"
        " iteration       30/     500 | lm loss: 2.250000E+00 |\n\n",
        [(20, "lm loss", 2.5, E6, "value"), (30, "lm loss", 2.25, E6, "value")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_gives_these_numbers_and_no_others(shape, tmp_path):
    """Step, name, value, one unit of the last printed digit (None: exact) and state."""
    text, expected = SHAPES[shape]
    assert numbers(write(tmp_path, text)) == expected


def test_the_unit_is_the_one_that_the_name_states(tmp_path):
    metrics = load_run(write(tmp_path, SHAPES["V8 of Megatron-DeepSpeed: tokens and seconds"][0])).metrics
    units = dict(metrics.select("name", "unit").rows())
    assert units["elapsed time per iteration (s)"] == "s"
    assert units["lm loss"] is None


PREFIXES = [
    "", "7: ", "[nodeA:3]: [2025-03-31 05:54:07]", "10.0.0.9: ", "job_mx/0  [2025-12-22 15:18:33]",
    "i.pretrain/0 [default2]:[rank2]: ",
    "(ActorWorker(train-1) pid=18175, ip=10.0.0.7) [2025-10-11 11:16:52]", "29: [rank29]:", "ain_fp8/0 ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_any_prefix_may_stand_before_a_record(prefix, tmp_path):
    plain = numbers(write(tmp_path, record(7), name="plain.log"))
    assert numbers(write(tmp_path, prefix + record(7), name="prefixed.log")) == plain


@given(step=st.integers(0, 10**9), total=st.integers(0, 10**9), gap=st.sampled_from(["", " ", "     "]))
def test_the_step_is_the_number_before_the_slash(step, total, gap, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("log"), f" iteration {step}/{gap}{total} | lm loss: 1.5 |\n")
    assert numbers(path, "lm loss") == [(step, 1.5)]


# ---------------------------------------------------------------- what is not there


def test_a_loss_that_vanishes_in_bf16_is_nan_suspect(tmp_path):
    path = write(tmp_path, record(1), record(2, lm_loss=None, grad_norm="nan"))
    assert states(path, "lm loss") == [(1, "value"), (2, "nan")]
    assert states(path, "grad norm") == [(1, "value"), (2, "nan")]


def test_a_loss_that_is_not_printed_because_iterations_were_skipped_is_skipped(tmp_path):
    skipped = record(
        10, lm_loss=None, grad_norm=None, loss_scale="8388608.0", number_of_skipped_iterations="10"
    )
    assert states(write(tmp_path, skipped, record(20)), "lm loss") == [(10, "skipped"), (20, "value")]


def test_a_norm_that_is_not_printed_because_the_last_iteration_was_skipped_is_skipped(tmp_path):
    skipped = record(20, grad_norm=None, number_of_skipped_iterations="8")
    path = write(tmp_path, record(10), skipped)
    assert states(path, "grad norm") == [(10, "value"), (20, "skipped")]
    assert states(path, "lm loss") == [(10, "value"), (20, "value")]


def test_a_loss_of_zero_is_not_printed_and_said_to_be_zero_negative_or_nan(tmp_path):
    run = load_run(write(tmp_path, record(1), record(2, lm_loss=None, grad_norm="0.000")))
    (row,) = run.metrics.filter((run.metrics["name"] == "lm loss") & (run.metrics["step"] == 2)).rows(
        named=True
    )
    assert (row["state"], row["value"], row["note"]) == ("absent", None, "not printed: zero, negative or NaN")


def test_a_loss_is_nan_where_the_record_counts_nan_iterations(tmp_path):
    path = write(tmp_path, record(1, lm_loss=None, number_of_nan_iterations="  3"))
    assert states(path, "lm loss") == [(1, "nan")]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"grad_norm": "nan"}, "nan"),
        ({"loss_scale": "8388608.0", "grad_norm": None, "number_of_skipped_iterations": "10"}, "skipped"),
        ({"grad_norm": "0.000"}, "absent"),
    ],
)
def test_three_records_without_any_loss_are_told_apart_by_their_other_fields(fields, state, tmp_path):
    """Field report O37; no record of the log has a loss to learn its name from."""
    assert states(write(tmp_path, record(5, lm_loss=None, **fields)), "lm loss") == [(5, state)]


def test_a_loss_that_vanishes_beside_one_of_the_experts_is_nan_suspect(tmp_path):
    moe = {"load_balancing_loss": "1.300237E+00"}
    lines = [record(1, **moe), *(record(step, lm_loss=None, grad_norm="nan", **moe) for step in (2, 3, 4))]
    path = write(tmp_path, *(line.replace("load balancing loss", "load_balancing_loss") for line in lines))
    assert states(path, "lm loss") == [(1, "value"), (2, "nan"), (3, "nan"), (4, "nan")]


def test_a_loss_that_is_renamed_on_the_way_is_there(tmp_path):
    renamed = [record(step).replace("lm loss", "loss") for step in (3, 4)]
    path = write(tmp_path, record(1), record(2), *renamed)
    assert states(path, "lm loss") == [(1, "value"), (2, "value")]
    assert states(path, "loss") == [(3, "value"), (4, "value")]


def test_a_loss_that_is_not_there_begins_no_segment(tmp_path):
    run = load_run(write(tmp_path, record(1), record(2, lm_loss=None), record(3)))
    assert run.log.segments.select("first_step", "last_step").rows() == [(1, 3)]


def test_a_fork_that_counts_nothing_is_not_taken_for_cut(tmp_path):
    counters = {"number_of_skipped_iterations": None, "number_of_nan_iterations": None}
    path = write(tmp_path, record(1, **counters), record(2, lm_loss=None, grad_norm="nan", **counters))
    assert states(path, "lm loss") == [(1, "value"), (2, "nan")]


def test_a_missing_value_never_shifts_those_after_it(tmp_path):
    """Field report O07."""
    losses = [(1, "1.0E+01"), (2, "9.0E+00"), (3, None), (4, "7.0E+00"), (5, "6.0E+00")]
    lines = [record(step, lm_loss=text) for step, text in losses]
    path = write(tmp_path, *lines[:2], b"nodeA:12:34 [0] NCCL INFO \xff\xfe bad\n", *lines[2:])
    assert numbers(path, "lm loss") == [(1, 10.0), (2, 9.0), (3, None), (4, 7.0), (5, 6.0)]


# ---------------------------------------------------------------- cut, glued and odd


def test_a_number_that_the_end_of_the_file_cut_is_left_out(tmp_path):
    whole = record(2)
    path = write(tmp_path, record(1), whole[: whole.index("2.345000") + 3])
    run = load_run(path)
    cut = run.metrics.filter((run.metrics["step"] == 2) & (run.metrics["name"] == "lm loss"))
    assert cut.select("value", "state", "note").rows() == [
        (None, "absent", "the record is cut before its end")
    ]
    assert (2, 32.0) in numbers(path, "consumed samples")


@given(cut=st.integers(0, 300))
def test_wherever_a_record_is_cut_no_number_of_it_is_made_up(cut, tmp_path_factory):
    whole = record(3, lm_loss="2.345678E+00")
    allowed = {row[:3] for row in numbers(write(tmp_path_factory.mktemp("log"), whole))}
    path = write(tmp_path_factory.mktemp("log"), record(1), whole[:cut])
    found = {row[:3] for row in numbers(path) if row[0] == 3 and row[2] is not None}
    assert found <= allowed


def test_a_number_that_is_not_one_is_left_out_and_the_rest_kept(tmp_path):
    path = write(tmp_path, " iteration 4/ 9 | lm loss: tensor(2.5) | grad norm: 1.5 |\n")
    assert numbers(path, "grad norm") == [(4, 1.5)]
