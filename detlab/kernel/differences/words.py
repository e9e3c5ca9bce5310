"""One output of a replay in a few lines for people."""

from __future__ import annotations

from typing import Final

from detlab.kernel.differences import OutputResult
from detlab.kernel.statistics import percent

_MAX_BUCKETS: Final = 4


def describe(output: OutputResult) -> str:
    """Say in one line how many results an output had, which elements differ, and how far.

    For example ``60 distinct (most frequent 1.7 %); scattered, 87 % of 1,000 elements; up to 12 ULP; always
    by a multiple of 2^-20``.
    """
    if output.distinct <= 1:
        return "1 distinct" if output.distinct else "no result"
    parts = [f"{output.distinct:,} distinct (most frequent {percent(output.modal_share)})"]
    parts.append(output.pattern or f"{output.elements_different:,} elements differ")
    if output.num_nan:
        parts.append(f"{output.num_nan:,} times a NaN")
    if output.num_signed_zero:
        parts.append(f"{output.num_signed_zero:,} times 0.0 and -0.0")
    if output.max_ulp:
        parts.append(f"up to {output.max_ulp:,} ULP")
    if output.quantum_log2 is not None:
        parts.append(f"always by a multiple of 2^{output.quantum_log2}")
    return "; ".join(parts)


def details(output: OutputResult) -> list[str]:
    """Give further lines: how the distances are spread, the largest differences, what the quantum implies."""
    found = [histogram_text(output.ulp_histogram)] if output.ulp_histogram else []
    if output.max_abs is not None:
        share = "" if output.max_rel is None else f", as a share of the first {output.max_rel:.3g}"
        found.append(f"largest difference {output.max_abs:.3g}{share}")
    found += [output.quantum_text] if output.quantum_text else []
    if output.num_measured is not None:
        found.append(
            f"these numbers are of {output.num_measured:,} of the {output.distinct - 1:,} other results"
        )
    return found


def histogram_text(histogram: tuple[int, ...]) -> str:
    """Write a histogram of distances, the rest of many buckets together: ``in ULP: 1 80 %, 2..3 20 %``."""
    total = sum(histogram)
    shares = [f"{_span(i)} {percent(n / total)}" for i, n in enumerate(histogram) if n]
    if len(shares) <= _MAX_BUCKETS + 1:
        return f"in ULP: {', '.join(shares)}"
    used = [i for i, n in enumerate(histogram) if n]
    most = sorted(sorted(used, key=lambda i: (-histogram[i], i))[:_MAX_BUCKETS])
    rest = total - sum(histogram[i] for i in most)
    named = ", ".join(f"{_span(i)} {percent(histogram[i] / total)}" for i in most)
    return f"in ULP: {named}, others up to {2 ** len(histogram) - 1:,} {percent(rest / total)}"


def _span(bucket: int) -> str:
    return "1" if bucket == 0 else f"{2**bucket:,}..{2 ** (bucket + 1) - 1:,}"
