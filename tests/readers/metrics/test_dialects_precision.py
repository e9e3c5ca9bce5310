"""What a printed number of each dialect says of the one that was rounded: never more than is so."""

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detlab import load_run

sizes = st.floats(1e-6, 1e6) | st.floats(1e-30, 1e30)
narrow_sizes = st.floats(2.0**-100, 2.0**100, width=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


def read(folder, line, name):
    (folder / "run.log").write_text(line + "\n")
    (row,) = load_run(folder / "run.log").metrics.filter(pl.col("name") == name).iter_rows(named=True)
    return row


@given(norm=narrow_sizes, rate=sizes)
def test_hf_full_digits_give_every_bit(folder, norm, rate):
    line = str({"loss": 1.5, "grad_norm": norm, "learning_rate": rate, "epoch": 0.5})
    row = read(folder, line, "grad_norm")
    assert (row["width"], row["bits"]) == (32, int(np.float32(norm).view(np.uint32)))
    row = read(folder, line, "learning_rate")
    assert (row["width"], row["bits"]) == (64, int(np.float64(rate).view(np.uint64)))


@given(loss=st.floats(1e-3, 1e6))
def test_an_hf_loss_is_rounded_to_four_decimals(folder, loss):
    row = read(folder, str({"loss": round(loss, 4), "epoch": 0.5}), "loss")
    assert (row["width"], row["resolution"]) == (0, 1e-4)
    assert abs(row["value"] - loss) <= row["resolution"] * 0.5000001


@given(loss=sizes | st.integers(-9, 9).map(lambda power: 10.0**power))
@example(9.999999999977026e29)
def test_a_nemo_loss_has_four_digits(folder, loss):
    printed = int(loss) if loss.is_integer() else f"{loss:.4}"
    line = f"Training epoch 0, iteration 3/9 | global_step: 3 | reduced_train_loss: {printed} | lr: 0.5"
    row = read(folder, line, "reduced_train_loss")
    assert row["width"] == 0
    assert abs(row["value"] - loss) <= row["resolution"] * 0.5000001
    assert row["resolution"] == float(f"1e{Decimal(printed).adjusted() - 3}")


@given(loss=sizes | st.integers(-2, 9).map(lambda power: 10.0**power))
def test_a_fairseq_loss_is_rounded_twice(folder, loss):
    printed = f"{round(loss, 3):g}"
    line = f"| INFO | train_inner | epoch 001:      5 / 90 loss={printed}, num_updates=5, lr=5e-07"
    row = read(folder, line, "loss")
    assert row["width"] == 0
    assert abs(row["value"] - loss) <= row["resolution"]
    size = Decimal(printed).adjusted()
    assert row["resolution"] == max(1e-3, float(f"1e{size - 5}"))
