"""What a metric's name says about it."""

import polars as pl
import pytest

from detlab.readers.metrics.names import is_loss, is_measurement, is_norm

LOSSES = [
    "lm loss", "loss", "mtp_1 loss", "seq_load_balancing_loss", "reduced_train_loss",
    "train_loss_epoch", "eval_loss", "loss_metrics/global_avg_loss", "sop loss", "val_ppl", "ppl",
    "train/lm loss", "nll", "cross_entropy",
]  # fmt: skip
NORMS = ["grad norm", "grad-norm", "grad_norm", "params norm", "gnorm", "gradient_norm", "total_norm"]
MEASUREMENTS = [
    "elapsed time per iteration (ms)", "throughput per GPU (TFLOP/s/GPU)", "tps", "mfu", "memory",
    "train_wall", "samples per second", "TFLOPs", "time_metrics/end_to_end(s)", "iteration-time",
    "mem-allocated-bytes", "wps", "train_step_timing in s", "eval_runtime", "step_time",
    "per_device_tps", "gb_free", "energy (J)", "power (W)", "_timestamp",
    "tokens-per-second-per-gpu", "tokens_per_sec_per_gpu", "gpu_mem", "sec_per_step", "data_latency",
]  # fmt: skip
OTHERS = [
    "loss scale", "loss_scale", "learning rate", "lr", "num zeros", "num-zeros", "consumed samples",
    "epoch", "ce_weight", "global batch size", "number of nan iterations", "max attention logit", "bsz",
    "n_tokens_seen", "reward", "second_moment",
]  # fmt: skip


@pytest.mark.parametrize("name", [*LOSSES, *NORMS, *MEASUREMENTS, *OTHERS])
def test_a_name_is_of_the_kind_that_people_take_it_for(name):
    frame = pl.DataFrame({"name": [name]}, {"name": pl.Categorical})
    found = frame.select(
        loss=is_loss(pl.col("name")), norm=is_norm(pl.col("name")), measurement=is_measurement(pl.col("name"))
    )
    assert found.row(0) == (name in LOSSES, name in NORMS, name in MEASUREMENTS)
