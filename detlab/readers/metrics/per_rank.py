"""Losses of each rank, not reduced: ``[default0]:ep 55 train, step 1347, ce 0.324, grad_norm:p2 3.388``."""

from __future__ import annotations

from typing import Final

import polars as pl

from detlab.readers.metrics.console import NUMBER, WORD_START, Dialect, Memory, find_records, take_apart

_TAG: Final = r"\[(?:default|rank)\d+\]: *"
_RECORD: Final = rf"(?:(?:{_TAG})+|{WORD_START})ep \d+ train, step \d+, "
"""With the tags of its rank, of which a record that begins in the middle of a line has its own."""

_HEAD: Final = r"ep \d+ train, step (?<step>\d+)(?<fields>, .*)"
_FIELD: Final = rf", (?<name>[A-Za-z][^ ,]*) (?<text>{NUMBER})(?<unit>[KMGT]i?B|s|%)?"
_SPEED: Final = rf", ({NUMBER}) sec/step"

_RANKS: Final = (r"\[rank(\d+)\]", r"\[default(\d+)\]", r"cuda:(\d+)")
"""What tells the rank, the surest first: a device is a local rank, as is the tag of `torchrun --tee`."""


def parse(lines: pl.DataFrame, memory: Memory) -> pl.DataFrame:
    """Take records apart at their commas; every number is of the rank that printed it, reduced or not."""
    ranks = [pl.col("text").str.extract(each).cast(pl.Int64, strict=False) for each in _RANKS]
    named = pl.col("text").str.replace_all(_SPEED, ", sec/step ${1}")
    records = find_records(lines, _RECORD).with_columns(named, rank=pl.coalesce(ranks))
    return take_apart(records, _HEAD, _FIELD)


PER_RANK: Final = Dialect("per-rank losses", ("train, step ",), _RECORD, parse)
