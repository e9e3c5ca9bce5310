"""What a metric's name says about it: a loss, a norm, or a measurement that proves nothing about the bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

_MEASUREMENT: Final = (
    r"(?i)elapsed|timing|timer|timestamp|seconds|runtime|throughput|flops?\b|tflop|mfu\b|"
    r"per[ _-]?sec|/sec|/s\b|(\b|_)(tps|wps|ups|fps|wall|time|sec|mem|duration|latency)(\b|_)|memory|mem[-_]|"
    r"gigabytes|gb_free|utili[sz]ation|energy|power|watt|joule|temperature|tokens?/|tok/s"
)
"""Timings, throughput, memory and energy: never equal between two runs, and no evidence of anything."""

_LOSS: Final = r"(?i)(\b|_)loss(\b|_)|^ce$|perplexity|(\b|_)(ppl|nll)\b|cross[ _-]?entropy"
_NO_LOSS: Final = r"(?i)loss[ _-]?(scale|mask)|lossless"

_NORM: Final = r"(?i)grad(ient)?s?[ _-]?norm|gnorm|total[ _-]norm|params?[ _-]?norm|weight[ _-]?norm"


def is_measurement(name: pl.Expr) -> pl.Expr:
    """Say whether a metric measures the machine and not the training."""
    return name.cast(pl.String).str.contains(_MEASUREMENT)


def is_loss(name: pl.Expr) -> pl.Expr:
    """Say whether a metric is a loss; the loss scale is none."""
    text = name.cast(pl.String)
    return text.str.contains(_LOSS) & ~text.str.contains(_NO_LOSS)


def is_norm(name: pl.Expr) -> pl.Expr:
    """Say whether a metric is a norm of gradients or parameters."""
    return name.cast(pl.String).str.contains(_NORM)


def choose_names(metrics: pl.DataFrame, holds: Callable[[pl.Expr], pl.Expr]) -> list[str]:
    """List the names for which one of the above holds, in the order of their first row."""
    names = metrics.select(pl.col("name").unique(maintain_order=True).cast(pl.String))
    return names.filter(holds(pl.col("name")))["name"].to_list()
