"""Hugging Face Trainer: ``{'loss': 10.5949, 'grad_norm': 188.29049682617188, 'epoch': 0.25}``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import (
    NUMBER,
    Dialect,
    Memory,
    as_fields,
    exact_where,
    rounded_where,
    significant_metrics,
)
from detlab.readers.metrics.frame import METRIC_SCHEMA, printed_metrics

_DICTIONARY: Final = r"\{'[^{}]*\}"
_RECORD: Final = rf"\{{'[^{{}}]*'epoch': '?{NUMBER}'?(?:, [^{{}}]*)?\}}"
_TRAINING: Final = r"[{ ]'loss': "
_BAR: Final = r".*\b(?<count>\d+)/(?<total>\d+) \[(?:\d+:)+\d+<.*?(?:(?<rate>[\d.]+)it/s|s/it|\?)"
_WRAPPED: Final = r"np\.float64\(([^()]*)\)"
_FIELD: Final = rf"'(?<name>[^']+)': (?<text>'?{NUMBER}'?)[,}}]"

_ORDINAL: Final = "there is no progress bar: the steps are the numbers of the records"
_FAST: Final = "the step is that of a progress bar which is not drawn at every step"
_FILTERED: Final = "printed as 0.0 while the grad norm is NaN: logging_nan_inf_filter"

_DRAWS_PER_SECOND: Final = 10
"""tqdm draws a bar at most every 0.1 s."""

_FULL: Final = r"^(?:grad_norm|learning_rate|total_flos|train_loss|eval_.*loss)$"
"""Numbers that are printed with all their digits, if they have few by chance or as a choice."""

_PYTHON: Final = r"^(?:learning_rate|total_flos|train_loss)$"
"""Numbers that are computed in 64 bits."""

_DECIMALS: Final = {4: r"^loss$|_runtime$", 3: r"_per_second$", 2: r"^epoch$"}
"""To how many decimals the Trainer rounds a number, before Python prints it without trailing zeros."""

_SHORTEST: Final = r"^-?(?:\d+\.(?:0|\d*[1-9])|\d(?:\.\d*[1-9])?e[-+]\d\d+)$"
"""What Python can print for a float."""

_MANY_DIGITS: Final = r"\.\d{7}|e-"
"""No number that was rounded to a few decimals looks like this."""


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take dictionaries apart; one without a ``loss`` (evaluation, summary) is of the last step."""
    dictionaries = _placed(_pieces(lines), memory).drop_nulls("step")
    plain = pl.col("text").str.replace_all(_WRAPPED, "${1}")
    rows = (
        dictionaries.with_columns(fields=plain.str.extract_all(_FIELD))
        .drop("text")
        .explode("fields")
        .with_columns(pl.col("fields").str.extract_groups(_FIELD))
        .unnest("fields")
        .drop_nulls("name")
    )
    own = rows.filter(pl.col("training") | (pl.col("name") != "epoch"))  # the bar may stand a little behind
    return as_fields(own).with_columns(own["note"])


def _pieces(lines: pl.DataFrame) -> pl.DataFrame:
    """Cut lines around their dictionaries, and find in every piece a bar, a record or neither."""
    cut = pl.col("text").str.replace_all(_DICTIONARY, "\n${0}\n").str.split("\n")
    pieces = lines.select("line", text=cut).explode("text")
    record = pl.col("text").str.contains(_RECORD)
    bar = pl.col("text").str.extract_groups(_BAR).alias("bar")
    return (
        pieces.with_columns(bar, record=record, training=record & pl.col("text").str.contains(_TRAINING))
        .unnest("bar")
        .with_columns(pl.col("count", "total").cast(pl.Int64, strict=False), pl.col("rate").cast(pl.Float64))
    )


_MEMORY: Final = {"count": pl.Int64, "total": pl.Int64, "rate": pl.Float64, "trained": pl.Int64,
                  "known": pl.Int64, "ordinal": pl.Int64}  # fmt: skip


def _placed(pieces: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Give the dictionaries their ``step`` and its ``note``.

    The bar before a training dictionary is that of the training, and its length tells it from those of
    evaluations. Any other dictionary has the last step that the bar of the training showed.
    """
    before = pl.DataFrame([memory.get("last", (None,) * 5 + (0,))], _MEMORY, orient="row")
    all_pieces = pl.concat([before, pieces], how="diagonal").with_columns(
        pl.col("record", "training").fill_null(False), old=pl.col("total")
    )
    training = pl.col("training")
    bars = all_pieces.with_columns(
        pl.col("count", "total").forward_fill(),
        pl.when(pl.col("old").is_not_null()).then(pl.col("rate").fill_null(0)).forward_fill().alias("rate"),
    )
    trained = pl.when(training).then("total").otherwise("trained").forward_fill()
    of_training = training | (pl.col("old") == pl.col("trained"))
    known = bars.with_columns(
        trained=trained, ordinal=pl.col("ordinal").forward_fill() + training.cum_sum()
    ).with_columns(known=pl.when(of_training).then("count").otherwise("known").forward_fill())
    memory["last"] = known.select(*_MEMORY).row(-1)
    numbered = pl.col("total").is_null() & (pl.col("ordinal") > 0)
    fast = pl.col("rate") > _DRAWS_PER_SECOND
    note = pl.when(numbered).then(pl.lit(_ORDINAL)).when(fast).then(pl.lit(_FAST))
    step = pl.when(numbered).then("ordinal").otherwise("known")
    return known.slice(1).filter("record").select("line", "text", "training", step=step, note=note)


def numbers(fields: pl.DataFrame) -> pl.DataFrame:
    """Take the numbers that are printed with all digits as exact, and the others as rounded by the Trainer.

    A number in quotes has four significant digits. One that a float of 32 bits holds was one.
    """
    quoted = fields["text"].str.starts_with("'")
    bare = fields.with_columns(pl.col("text").str.strip_chars("'"))
    text, name = bare["text"], bare["name"].cast(pl.String)
    few = significant_metrics(bare, 4)["resolution"]
    metrics = rounded_where(printed_metrics(bare), quoted, pl.lit(few))
    for decimals, form in _DECIMALS.items():
        unit = pl.min_horizontal("resolution", pl.lit(10.0**-decimals))
        metrics = rounded_where(metrics, name.str.contains(form) & ~quoted, unit)
    value, wide = metrics["value"], name.str.contains(_PYTHON)
    narrow = (value.cast(pl.Float32).cast(pl.Float64) == value) & ~wide
    full = text.str.contains(_MANY_DIGITS) | (name.str.contains(_FULL) & (narrow | wide))
    full &= ~quoted & text.str.contains(_SHORTEST)
    return exact_where(exact_where(metrics, full & ~narrow), full & narrow, 32)


def conclude(metrics: pl.DataFrame) -> pl.DataFrame:
    """Take a loss of zero with a grad norm that is NaN as a loss that was NaN and filtered."""
    place = ["line", "step"]
    broken = metrics.filter((pl.col("name") == "grad_norm") & pl.col("value").is_nan()).select(place).unique()
    if broken.is_empty():
        return metrics
    marked = metrics.join(broken.with_columns(broken=True), on=place, how="left", maintain_order="left")
    filtered = (pl.col("name") == "loss") & (pl.col("value") == 0) & pl.col("broken")
    nothing = {name: pl.lit(None, METRIC_SCHEMA[name]) for name in ("value", "bits", "resolution")}
    told = {"state": pl.lit("nan", METRIC_SCHEMA["state"]), "note": pl.lit(_FILTERED, pl.Categorical)}
    return marked.with_columns(
        pl.when(filtered).then(expr).otherwise(name).alias(name) for name, expr in (nothing | told).items()
    ).drop("broken")


HF_TRAINER: Final = Dialect("Hugging Face Trainer", ("{'", "it/s", "s/it"), _RECORD, parse, conclude, numbers)
