"""Choices that the kernel names of a profiler show: Kineto (torch.profiler) and nsys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from detlab.readers.choices.frame import Process, Use, Uses
from detlab.readers.choices.kernel_names import kernel_name, told_by

if TYPE_CHECKING:
    from detlab.readers.profiles import Profile

_REPORTS: Final = ("cuda_gpu_trace", "cuda_gpu_kern_sum", "nvtx_kern_sum", "cuda_gpu_sum")
"""Reports of nsys that list kernels, the best first; several in one file are about the same launches."""


def add_kernels(uses: Uses, profile: Profile, file: str, rank: int | None) -> int:
    """Take the kernels of a profile; give the number of launches.

    Launches are taken in the order in which they began, and those of a summary, which tells of no order, by
    name.

    Parameters
    ----------
    uses
        Where they go.
    profile
        What a file of a profiler holds.
    file
        Its name as it is shown.
    rank
        The rank that the path of the file names; that in the file itself goes before.
    """
    source = "kineto" if profile.format == "kineto" else "nsys"
    total = 0
    for row in _kernels(profile).iter_rows(named=True):
        own = rank if row["rank"] is None else row["rank"]
        process = Process(own, file if own is None else f"rank {own}")
        num, told = int(row["count"] or 1), kernel_name(row["name"])
        use = Use(told.kernel, _problem(row), told.choice, told_by(told.choice))
        uses.add(source, process, use, file, num)
        total += num
    return total


def _kernels(profile: Profile) -> pl.DataFrame:
    """Give the launches of kernels with the shapes that their op was given, in one order."""
    events = profile.events.with_columns(pl.col("name", "op", "report", "shapes").cast(pl.String))
    kernels = events.filter(pl.col("kind") == "kernel")
    if profile.format != "kineto":
        found = set(kernels["report"].to_list())
        report = next((each for each in _REPORTS if each in found), None)
        return kernels.filter(pl.col("report").eq_missing(report)).sort("start_us", "name", nulls_last=True)
    asked = events.filter(pl.col("shapes").is_not_null() & (pl.col("external") > 0))
    asked = asked.select("external", given="shapes").unique("external", keep="last", maintain_order=True)
    joined = kernels.join(asked, on="external", how="left", maintain_order="left")
    return joined.with_columns(shapes=pl.coalesce("shapes", "given")).sort(
        "start_us", nulls_last=True, maintain_order=True
    )


def _problem(row: dict[str, Any]) -> str:
    """Say for what it ran, as far as the profiler knows: the op that launched it, and what that was given."""
    return " ".join(str(row[name]) for name in ("op", "shapes") if row[name] is not None)
