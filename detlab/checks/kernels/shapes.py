"""What a comparison says of matrix products with other bits: which shapes they have, and what that suggests.

Where only products diverge whose m and n are small beside k, the parts of a split sum or the workspace are
the likely cause (maintainers: split-K pays where m and n are relatively small and k is relatively large,
https://github.com/NVIDIA/CUDALibrarySamples/issues/243).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detlab.checks.kernels.calls import RankCalls
from detlab.checks.kernels.findings import Seen
from detlab.checks.kernels.products import Product, is_product
from detlab.checks.kernels.words import SPLIT_SOURCE, advice

if TYPE_CHECKING:
    from detlab.comparison.findings import Finding
    from detlab.comparison.result import Comparison


class Shapes(NamedTuple):
    """Matrix products of an op that diverge, and those that were not seen to.

    Attributes
    ----------
    divergent, clean
        Products of which a call gives other bits, and those of which every tested call matches.
    says
        What the shapes show, in words.
    suggests_split
        Whether just the products diverge whose m and n are small beside k.
    """

    divergent: list[Product]
    clean: list[Product]
    says: str
    suggests_split: bool


def shapes_of(cmp: Comparison, number: int, calls: Mapping[int, RankCalls]) -> Shapes:
    """Ask which products of a finding's op diverge.

    Parameters
    ----------
    cmp
        The comparison.
    number
        Number of one of its findings, which is about a matrix product.
    calls
        Its calls by rank.
    """
    finding = cmp.roots[number]
    divergent: set[Product] = set()
    tested: set[Product] = set()
    for rank in calls.values():
        for product in rank.products():
            group = rank.group(("product", product))
            if group is not None and len(group.with_outcome("bits")) and rank.rank.rank in finding.ranks:
                divergent.add(product)
            elif group is not None and len(group.with_outcome("values")):
                tested.add(product)
    clean = sorted(tested - divergent)
    deep = bool(divergent) and all(each.is_deep for each in divergent)
    suggests = deep and not any(each.is_deep for each in clean)
    return Shapes(sorted(divergent), clean, _says(cmp, number, divergent, clean, suggests), suggests)


def _says(cmp: Comparison, number: int, divergent: set[Product], clean: list[Product], suggests: bool) -> str:
    if not divergent:
        return ""
    shown = ", ".join(map(str, sorted(divergent)[:3]))
    separated = cmp.discriminate(number).filter(axis="shapes", separates=True)
    only = f"only {shown} gives other bits" if clean else f"{shown} gives other bits, and no other was tested"
    chance = (
        f"; chance separates shapes as well in {separated['chance'][0]:.1%} of cases"
        if len(separated)
        else ""
    )
    split = "; its m and n are small beside k, where libraries split the sum: suspect workspace or split-K"
    return f"{only}{chance}{split if suggests else ''}"


def untold(cmp: Comparison, calls: Mapping[int, RankCalls], told: set[str]) -> list[dict[str, Any]]:
    """Give a finding for each matrix product with other bits of which no source tells the algorithm.

    Parameters
    ----------
    cmp, calls
        The comparison and its calls.
    told
        Sites of which the choice is known.
    """
    found = []
    for number, finding in enumerate(cmp.roots):
        if finding.finding_class != "kernel" or not is_product(finding.op) or told & set(finding.sites):
            continue
        shapes = shapes_of(cmp, number, calls)
        if shapes.suggests_split:
            found.append(_untold(finding, shapes))
    return found


def _untold(finding: Finding, shapes: Shapes) -> dict[str, Any]:
    return {
        "component": "selection or execution",
        "severity": "warning",
        "found": f"{finding.op}: other bits for equal inputs, restricted to one class of shapes",
        "expected": "the same bits",
        "where": finding.sites[0] if finding.sites else "",
        "why": f"{shapes.says}. No source tells which algorithm ran: logs of cuBLASLt of both runs would "
        "tell whether they chose the same. Confidence: medium, unless a replay of the call reproduces it",
        "next": finding.next if "replay" in finding.next else f"{finding.next}; {advice('cublaslt')}",
        "source": SPLIT_SOURCE,
        "instrument": "",
        "kernel": finding.op,
        "problems": [str(each) for each in shapes.divergent],
        "ranks": list(finding.ranks),
        "choice_a": "",
        "choice_b": "",
        "num": finding.num_sites,
        "outcome": "bits",
        "sites": list(finding.sites[:4]),
        "how": "",
        "confidence": "medium, unless a replay of the call reproduces it",
    }


def seen_at(cmp: Comparison, calls: Mapping[int, RankCalls], wanted: set[str]) -> dict[str, Seen]:
    """Give what the comparison says at the sites of its findings, and the next step.

    Parameters
    ----------
    cmp, calls
        The comparison and its calls.
    wanted
        Sites; findings that name none of them are passed over.
    """
    found: dict[str, Seen] = {}
    for number, finding in enumerate(cmp.roots):
        if not wanted & set(finding.sites):
            continue
        says = shapes_of(cmp, number, calls).says if is_product(finding.op) else ""
        found |= dict.fromkeys(finding.sites, Seen(says, finding.next))
    return found
