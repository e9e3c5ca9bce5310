"""Dialects of console logs beside Megatron: a fixture of each variant, and exactly the rows that it holds."""

import re

import polars as pl
import pytest

from detlab import load_run

NEMO = """\
Training epoch 0, iteration 7/59 | lr: 1.799e-06 | global_batch_size: 64 | global_step: 7 | \
reduced_train_loss: 10.87 | train_step_timing in s: 3.125 | consumed_samples: 512
[NeMo I 2025-01-02 10:11:12 model_checkpoint:497] name=0--val_loss=0.00-step=9-consumed_samples=640.0.ckpt
Training epoch 1, iteration 0/59 | lr: 2e-06 | global_batch_size: 64 | global_step: 8 | \
reduced_train_loss: 11 | consumed_samples: 576 | val_loss: 9.412
"""

TORCHTITAN = """\
[rank0]:[titan] 2025-03-04 05:06:07,008 - root - INFO - step: 10  loss:  6.5432  grad_norm:  1.2500  \
memory: 12.34GiB(15.67%)  tps: 8,765  tflops: 1,234.50  mfu: N/A
[rank0]:[titan] 2025-03-04 05:06:09,008 - root - INFO - validate step: 10  loss:  5.5555  memory: 2.00GiB
[rank0]:[titan] 2025-03-04 05:06:09,108 - root - INFO - step: 11  loss:      nan  mfu: 41.00%
"""

COLOURED = (
    "[titan] 2026-01-02 03:04:05,678 - root - INFO - \x1b[31mstep:  3  \x1b[32mloss:  7.25125  "
    "\x1b[38;2;180;60;0mgrad_norm: 16.5000  \x1b[34mtps: 9,87{}  \x1b[35mmfu: 13.50%\x1b[39m\n"
)

HF_TRAINER = (
    "  0%|          | 0/400 [00:00<?, ?it/s]\r"
    " 25%|##5       | 100/400 [11:40<35:00,  7.00s/it]\r"
    "{'loss': 9.5, 'grad_norm': 12.300000190734863, 'learning_rate': 2e-05, 'epoch': 0.5}\n"
    " 50%|#####     | 200/400 [23:20<23:20,  7.00s/it]\n"
    "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.0666666666666667e-05, 'epoch': 1.0}\n"
    "100%|##########| 40/40 [00:30<00:00,  1.33it/s]\r"
    "{'eval_loss': 2.5, 'eval_runtime': 30.25, 'eval_samples_per_second': 5.1, 'epoch': 1.0}\n"
    "{'train_runtime': 1400.5, 'train_loss': 4.123456789012345, 'epoch': 1.0}\n"
)

DEEPSPEED = """\
[2025-04-05 06:07:08,910] [INFO] [logging.py:107:log_dist] [Rank 0] step=20, skipped=1, lr=[0.0, 0.0003], mom=[(0.9, 0.95), (0.9, 0.95)]
steps: 20 loss: 6.1250 lm loss: 6.1000 moe loss: 0.0250 iter time (s): 0.512 samples/sec: 62.500
[2025-04-05 06:07:09,910] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
[2025-04-05 06:07:10,910] [INFO] [logging.py:107:log_dist] [Rank 0] rank=0 time (ms) | forward: 101.10 | backward: 202.20
"""  # noqa: E501

MAXTEXT = """\
I0203 04:05:06 metric_logger.py:181] completed step: 0, seconds: 41.500, TFLOP/s/device: 20.125, total_weights: 4096, loss: 11.250
completed step: 1, seconds: 2.500, TFLOP/s/device: 301.000, total_weights: 4096, loss: 11.125
"""  # noqa: E501

FAIRSEQ = """\
2021-02-03 04:05:06 | INFO | train_inner | epoch 001:      5 / 90 loss=8.5, ppl=362.04, wpb=4096, num_updates=5, lr=5e-07, gnorm=1.25
2021-02-03 04:05:07 | INFO | fairseq.trainer | NOTE: overflow detected, setting loss scale to: 32.0
2021-02-03 04:05:07 | INFO | train_inner | epoch 001:      6 / 90 loss_scale=32, train_wall=0, wall=9
2021-02-03 04:05:08 | INFO | train_inner | epoch 001:      7 / 90 loss=8.25, ppl=304.44, wpb=4096, num_updates=6, lr=6e-07, gnorm=1.5
2021-02-03 04:05:09 | INFO | train_inner | epoch 001:      8 / 90 loss_scale=16, train_wall=0, wall=10
"""  # noqa: E501

FAIRSEQ_JSON = (
    '2021-02-03 04:05:06 | INFO | train_inner | {"epoch": 2, "update": 1.25, "loss": "3.5", '
    '"num_updates": "125", "lr": "0.0003"}\n'
)

PER_RANK = """\
[default0]:ep 3 train, step 41, ce 1.125, grad_norm:p2 2.500, mem_usage:cuda:0 12.5GB, 0.250 sec/step
[default1]:ep 3 train, step 41, ce 1.375, grad_norm:p2 2.500, mem_usage:cuda:1 12.6GB, 0.275 sec/step
"""


def load(tmp_path, text, name="run.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_run(path)


def rows(run):
    """Rows as (step, rank, name, value, unit, precision, state): a resolution, or f32, f64 where exact."""
    exact = pl.when(pl.col("width") > 0).then(pl.format("f{}", "width"))
    told = run.metrics.select(
        "step", "rank", pl.col("name", "unit", "state").cast(pl.String), "value", "resolution", exact=exact
    )
    return [
        (
            each["step"],
            each["rank"],
            each["name"],
            "nan" if each["value"] != each["value"] else each["value"],
            each["unit"],
            each["exact"] or each["resolution"],
            each["state"],
        )
        for each in told.iter_rows(named=True)
    ]


def of_no_rank(*expected):
    return [(step, None, *rest) for step, *rest in expected]


def test_nemo_gives_four_digits_and_exact_counts_at_the_global_step(tmp_path):
    run = load(tmp_path, NEMO)
    assert run.log.files["format"].to_list() == ["NeMo"]
    assert rows(run) == of_no_rank(
        (7, "lr", 1.799e-06, None, 1e-09, "value"),
        (7, "global_batch_size", 64, None, "f64", "value"),
        (7, "global_step", 7, None, "f64", "value"),
        (7, "reduced_train_loss", 10.87, None, 0.01, "value"),
        (7, "train_step_timing in s", 3.125, "s", 0.001, "value"),
        (7, "consumed_samples", 512, None, "f64", "value"),
        (8, "lr", 2e-06, None, 1e-09, "value"),
        (8, "global_batch_size", 64, None, "f64", "value"),
        (8, "global_step", 8, None, "f64", "value"),
        (8, "reduced_train_loss", 11, None, 0.01, "value"),
        (8, "consumed_samples", 576, None, "f64", "value"),
        (8, "val_loss", 9.412, None, 0.001, "value"),
    )


def test_a_nemo_record_without_a_global_step_has_no_known_step(tmp_path):
    alone = "Training epoch 0, iteration 3/59 | lr: 1e-06 | reduced_train_loss: 10.5\n"
    assert 3 not in load(tmp_path, alone + NEMO).metrics["step"]


def test_torchtitan_gives_units_shares_and_no_validation(tmp_path):
    run = load(tmp_path, TORCHTITAN)
    assert run.log.files["format"].to_list() == ["torchtitan"]
    assert rows(run) == of_no_rank(
        (10, "loss", 6.5432, None, 1e-4, "value"),
        (10, "grad_norm", 1.25, None, 1e-4, "value"),
        (10, "memory", 12.34, "GiB", 0.01, "value"),
        (10, "memory percent", 15.67, "%", 0.01, "value"),
        (10, "tps", 8765, None, 1.0, "value"),
        (10, "tflops", 1234.5, None, 0.01, "value"),
        (11, "loss", "nan", None, None, "nan"),
        (11, "mfu", 41, "%", 0.01, "value"),
    )


def test_eight_coloured_copies_are_one_record(tmp_path):
    run = load(tmp_path, "".join(COLOURED.format(tps % 2) for tps in range(8)))
    assert run.log.conflicts == ()
    assert rows(run) == of_no_rank(
        (3, "loss", 7.25125, None, 1e-5, "value"),
        (3, "grad_norm", 16.5, None, 1e-4, "value"),
        (3, "tps", 9870, None, 1.0, "value"),
        (3, "mfu", 13.5, "%", 0.01, "value"),
    )


def test_an_altered_copy_is_a_conflict_of_this_metric_and_no_other(tmp_path):
    copies = [COLOURED.format(0)] * 8
    copies[5] = copies[5].replace("7.25125", "7.25126")
    (told,) = load(tmp_path, "".join(copies)).log.conflicts
    assert re.search(r"lines 1 and \d: loss of step 3 is both 7.25125 and 7.25126", told)


PLACEHOLDER = "[titan] 2026-01-02 - root - INFO - step:  {}  loss: {}  grad_norm:  0.5000\n"


def test_the_placeholder_of_a_pipeline_rank_is_an_absent_loss(tmp_path):
    run = load(tmp_path, PLACEHOLDER.format(4, "-1.00000") + PLACEHOLDER.format(5, "-1.50000"))
    assert rows(run) == of_no_rank(
        (4, "loss", None, None, None, "absent"),
        (4, "grad_norm", 0.5, None, 1e-4, "value"),
        (5, "loss", -1.5, None, 1e-5, "value"),
        (5, "grad_norm", 0.5, None, 1e-4, "value"),
    )
    assert "pipeline" in run.metrics["note"].cast(pl.String)[0]


def test_the_loss_of_the_last_stage_stands_before_placeholders_of_the_others(tmp_path):
    run = load(tmp_path, PLACEHOLDER.format(4, "-1.00000") + PLACEHOLDER.format(4, " 7.50000"))
    assert run.log.conflicts == ()
    assert [row for row in rows(run) if row[2] == "loss"] == [(4, None, "loss", 7.5, None, 1e-5, "value")]


def test_hf_trainer_takes_steps_from_the_bar_and_bits_from_full_digits(tmp_path):
    run = load(tmp_path, HF_TRAINER)
    assert run.log.files["format"].to_list() == ["Hugging Face Trainer"]
    assert rows(run) == of_no_rank(
        (100, "loss", 9.5, None, 1e-4, "value"),
        (100, "grad_norm", 12.300000190734863, None, "f32", "value"),
        (100, "learning_rate", 2e-05, None, "f64", "value"),
        (100, "epoch", 0.5, None, 0.01, "value"),
        (200, "loss", None, None, None, "nan"),
        (200, "grad_norm", "nan", None, None, "nan"),
        (200, "learning_rate", 1.0666666666666667e-05, None, "f64", "value"),
        (200, "epoch", 1, None, 0.01, "value"),
        (200, "eval_loss", 2.5, None, "f32", "value"),
        (200, "eval_runtime", 30.25, None, 1e-4, "value"),
        (200, "eval_samples_per_second", 5.1, None, 1e-3, "value"),
        (200, "train_runtime", 1400.5, None, 1e-4, "value"),
        (200, "train_loss", 4.123456789012345, None, "f64", "value"),
    )


def test_a_bar_on_the_line_of_its_record_stands_before_it(tmp_path):
    drawn = " {0}%|##| {0}/100 [01:00<01:00, 7.00s/it]"
    text = (
        f"{drawn.format(10)}{{'loss': 9.5, 'epoch': 0.1}}{drawn.format(20)}{{'loss': 9.25, 'epoch': 0.2}}\n"
    )
    losses = [row[:4] for row in rows(load(tmp_path, text)) if row[2] == "loss"]
    assert losses == [(10, None, "loss", 9.5), (20, None, "loss", 9.25)]


def test_bars_of_other_lengths_are_not_those_of_the_training(tmp_path):
    other = "Loading checkpoint shards: 100%|##| 2/2 [00:01<00:00,  1.10it/s]\n"
    assert rows(load(tmp_path, other + HF_TRAINER)) == rows(load(tmp_path, HF_TRAINER))


def test_a_loss_of_zero_beside_a_nan_grad_norm_was_a_filtered_nan(tmp_path):
    noted = load(tmp_path, HF_TRAINER).metrics.drop_nulls("note")
    assert noted["name"].to_list() == ["loss"]
    assert "logging_nan_inf_filter" in noted["note"].cast(pl.String)[0]


def test_a_loss_of_zero_beside_a_finite_grad_norm_is_zero(tmp_path):
    run = load(tmp_path, HF_TRAINER.replace("'grad_norm': nan", "'grad_norm': 0.25"))
    assert [row[-1] for row in rows(run) if row[2] == "loss"] == ["value", "zero"]


def test_hf_records_without_a_bar_are_numbered_and_say_so(tmp_path):
    bare = "\n".join(line for line in HF_TRAINER.replace("\r", "\n").split("\n") if line.startswith("{"))
    run = load(tmp_path, bare)
    assert run.metrics.filter(pl.col("name") == "loss")["step"].to_list() == [1, 2]
    assert run.metrics.filter(pl.col("name") == "eval_loss")["step"].to_list() == [2]
    notes = run.metrics.filter(pl.col("state") != "nan")["note"].cast(pl.String)
    assert notes.str.contains("numbers of the records").all()


def test_an_evaluation_before_any_training_record_has_no_known_step(tmp_path):
    before = "100%|##| 40/40 [00:30<00:00, 1.33it/s]\n{'eval_loss': 9.5, 'epoch': 0}\n"
    run = load(tmp_path, before + HF_TRAINER)
    assert run.metrics.filter(pl.col("name") == "eval_loss")["value"].to_list() == [2.5]


def test_an_evaluation_is_of_the_last_step_that_the_bar_of_the_training_showed(tmp_path):
    later = " 55%|#####5    | 220/400 [25:40<21:00,  7.00s/it]\n"
    at = HF_TRAINER.index("100%|")
    run = load(tmp_path, HF_TRAINER[:at] + later + HF_TRAINER[at:])
    assert run.metrics.filter(pl.col("name") == "eval_loss")["step"].to_list() == [220]


def test_a_bar_that_is_drawn_less_often_than_steps_are_done_is_said(tmp_path):
    run = load(tmp_path, HF_TRAINER.replace("7.00s/it", "44.10it/s"))
    notes = run.metrics.filter(pl.col("step") == 100)["note"].cast(pl.String).unique().to_list()
    assert notes == ["the step is that of a progress bar which is not drawn at every step"]


@pytest.mark.parametrize(("printed", "value", "precision"), [
    ("'loss': 0.6931471824645996", 0.6931471824645996, "f32"),
    ("'loss': 0.6931471805599453", 0.6931471805599453, "f64"),
    ("'loss': '0.25'", 0.25, 1e-4),
    ("'loss': 12.25", 12.25, 1e-4),
    ("'loss': 1.5, 'grad_norm': 2.17", 2.17, 0.01),
    ("'loss': 1.5, 'grad_norm': np.float64(2.5)", 2.5, "f32"),
    ("'loss': 1.5, 'learning_rate': 2.0000e-05", 2e-5, 1e-9),
    ("'loss': 1.5, 'num_input_tokens_seen': 4096", 4096, "f64"),
    ("'loss': 1.5, 'rewards/margins': 0.5", 0.5, 0.1),
    ("'loss': 1.5, 'rewards/margins': 0.12345670163631439", 0.12345670163631439, "f32"),
])  # fmt: skip
def test_the_digits_of_a_python_number_say_what_is_known_of_it(tmp_path, printed, value, precision):
    run = load(tmp_path, f"{{{printed}, 'epoch': 0.1}}\n")
    (found,) = [row for row in rows(run) if row[2] not in {"epoch", "loss"}] or rows(run)[:1]
    assert (found[3], found[5]) == (value, precision)


def test_deepspeed_gives_losses_and_the_rates_of_each_group(tmp_path):
    run = load(tmp_path, DEEPSPEED)
    assert run.log.files["format"].to_list() == ["DeepSpeed"]
    assert rows(run) == of_no_rank(
        (20, "skipped", 1, None, "f64", "value"),
        (20, "lr[0]", 0, None, "f64", "zero"),
        (20, "lr[1]", 0.0003, None, "f64", "value"),
        (20, "mom[0][0]", 0.9, None, "f64", "value"),
        (20, "mom[0][1]", 0.95, None, "f64", "value"),
        (20, "mom[1][0]", 0.9, None, "f64", "value"),
        (20, "mom[1][1]", 0.95, None, "f64", "value"),
        (20, "loss", 6.125, None, 1e-4, "value"),
        (20, "lm loss", 6.1, None, 1e-4, "value"),
        (20, "moe loss", 0.025, None, 1e-4, "value"),
        (20, "iter time (s)", 0.512, "s", 0.001, "value"),
        (20, "samples/sec", 62.5, None, 0.001, "value"),
    )


def test_a_deepspeed_rate_in_a_constructor_is_not_the_number_in_its_name(tmp_path):
    run = load(tmp_path, "[Rank 0] step=5, skipped=0, lr=[np.float64(0.125)], mom=[0.5]\n")
    assert [row[2:4] for row in rows(run)] == [("skipped", 0), ("lr[0]", 0.125), ("mom[0]", 0.5)]


def test_maxtext_counts_steps_from_zero(tmp_path):
    run = load(tmp_path, MAXTEXT)
    assert run.log.files["format"].to_list() == ["MaxText"]
    assert rows(run) == of_no_rank(
        (0, "seconds", 41.5, None, 0.001, "value"),
        (0, "TFLOP/s/device", 20.125, None, 0.001, "value"),
        (0, "total_weights", 4096, None, "f64", "value"),
        (0, "loss", 11.25, None, 0.001, "value"),
        (1, "seconds", 2.5, None, 0.001, "value"),
        (1, "TFLOP/s/device", 301, None, 0.001, "value"),
        (1, "total_weights", 4096, None, "f64", "value"),
        (1, "loss", 11.125, None, 0.001, "value"),
    )


def test_fairseq_counts_updates_and_an_overflow_that_was_tried_again_leaves_nothing(tmp_path):
    run = load(tmp_path, FAIRSEQ)
    assert run.log.files["format"].to_list() == ["fairseq"]
    assert rows(run) == of_no_rank(
        (5, "loss", 8.5, None, 0.001, "value"),
        (5, "ppl", 362.04, None, 0.01, "value"),
        (5, "wpb", 4096, None, 0.1, "value"),
        (5, "num_updates", 5, None, "f64", "value"),
        (5, "lr", 5e-07, None, 1e-12, "value"),
        (5, "gnorm", 1.25, None, 0.001, "value"),
        (6, "loss", 8.25, None, 0.001, "value"),
        (6, "ppl", 304.44, None, 0.01, "value"),
        (6, "wpb", 4096, None, 0.1, "value"),
        (6, "num_updates", 6, None, "f64", "value"),
        (6, "lr", 6e-07, None, 1e-12, "value"),
        (6, "gnorm", 1.5, None, 0.001, "value"),
        (7, "loss", None, None, None, "skipped"),
    )


def test_an_overflow_at_an_unknown_update_is_left_out(tmp_path):
    first, _, overflow, *_ = FAIRSEQ.splitlines(keepends=True)
    assert set(load(tmp_path, overflow + first).metrics["step"]) == {5}
    back = overflow.replace("      6 / 90", "      2 / 90")  # after a restart from an older checkpoint
    assert set(load(tmp_path, first + back).metrics["step"]) == {5}


@pytest.mark.parametrize(("printed", "step", "precision"), [
    ("999999", 999_999, "f64"), ("1.5e+06", 1_500_000, 10.0), ("1.23457e+06", 1_234_570, 10.0),
])  # fmt: skip
def test_a_million_updates_are_printed_with_six_digits(tmp_path, printed, step, precision):
    run = load(tmp_path, FAIRSEQ.splitlines()[0].replace("num_updates=5", f"num_updates={printed}") + "\n")
    assert set(run.metrics["step"]) == {step}
    assert (step, None, "num_updates", step, None, precision, "value") in rows(run)


def test_a_number_of_updates_that_no_run_reaches_is_no_overflow(tmp_path):
    lines = FAIRSEQ.splitlines()
    endless = lines[3].replace("num_updates=6", f"num_updates={'9' * 30}")
    assert set(load(tmp_path, f"{lines[0]}\n{endless}\n").metrics["step"]) == {5}


def test_fairseq_in_json_is_fairseq(tmp_path):
    assert rows(load(tmp_path, FAIRSEQ_JSON)) == of_no_rank(
        (125, "epoch", 2, None, "f64", "value"),
        (125, "update", 1.25, None, 0.001, "value"),
        (125, "loss", 3.5, None, 0.001, "value"),
        (125, "num_updates", 125, None, "f64", "value"),
        (125, "lr", 0.0003, None, 1e-9, "value"),
    )


def test_unreduced_losses_of_ranks_are_no_conflict(tmp_path):
    run = load(tmp_path, PER_RANK)
    assert run.log.files["format"].to_list() == ["per-rank losses"]
    assert run.log.conflicts == ()
    assert rows(run) == [
        (41, 0, "ce", 1.125, None, 0.001, "value"),
        (41, 0, "grad_norm:p2", 2.5, None, 0.001, "value"),
        (41, 0, "mem_usage:cuda:0", 12.5, "GB", 0.1, "value"),
        (41, 0, "sec/step", 0.25, None, 0.001, "value"),
        (41, 1, "ce", 1.375, None, 0.001, "value"),
        (41, 1, "grad_norm:p2", 2.5, None, 0.001, "value"),
        (41, 1, "mem_usage:cuda:1", 12.6, "GB", 0.1, "value"),
        (41, 1, "sec/step", 0.275, None, 0.001, "value"),
    ]


@pytest.mark.parametrize("tag", ["", "[rank6]: ", "[default1]:[rank6]:"])
def test_the_rank_is_in_the_surest_tag_or_in_the_device(tmp_path, tag):
    run = load(tmp_path, PER_RANK.splitlines()[1].replace("[default1]:", tag) + "\n")
    assert set(run.metrics["rank"]) == {6 if tag else 1}
