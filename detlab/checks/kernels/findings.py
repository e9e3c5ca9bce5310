"""Findings of the check: other choices, the same choice with other bits, ranks that disagree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from detlab.checks.kernels.joining import Joined
from detlab.checks.kernels.pairing import Pair
from detlab.checks.kernels.products import short_problem
from detlab.checks.kernels.within import Agreement, Disagreement
from detlab.checks.kernels.words import advice, chooser, reference, split_words
from detlab.run import spans
from detlab.text import capitalized, plural

MORE_COLUMNS: Final[dict[str, Any]] = {
    "instrument": pl.String,
    "kernel": pl.String,
    "problems": pl.List(pl.String),
    "ranks": pl.List(pl.Int64),
    "choice_a": pl.String,
    "choice_b": pl.String,
    "num": pl.Int64,
    "outcome": pl.String,
    "sites": pl.List(pl.String),
    "how": pl.String,
    "confidence": pl.String,
    "comparison_findings": pl.List(pl.Int64),
}
"""What the check adds to the columns of every check's findings.

``instrument``, the source that tells the choice; ``kernel`` and the ``problems`` it was chosen for; ``ranks``
(empty where not known); ``choice_a`` and ``choice_b`` of the first problem; ``num``, uses or calls, or for
ranks that disagree kernels with their problems; ``outcome``, what the comparison shows of the calls (bits: it
differs for equal inputs; values: equal; untested: the inputs differ; unknown; empty: not joined to any call);
``sites`` of some of them; ``how`` they were joined; ``confidence`` (high, medium or low, and why);
``comparison_findings``, row numbers of the comparison's findings that name one of the sites.
"""

_MAX_SHOWN: Final = 3


_UNTIL_REPLAYED: Final = "medium, unless a replay of the call reproduces it"


class Seen(NamedTuple):
    """What a comparison says of the calls of a finding, and the next step."""

    says: str
    next: str


_OTHER: Final = {
    "bits": (
        "error",
        "and the output differs for equal inputs",
        "high: choice and call are joined one by one",
    ),
    "values": ("note", "and the values are equal: information, no divergence", "high"),
    "untested": ("warning", "and the inputs differ already, so that the effect is untested", "low"),
    "unknown": ("warning", "and the comparison does not tell what came of it", "low"),
    "": ("warning", "which may explain a difference", "low: not joined to any call"),
}
"""Severity, what came of it and confidence by what the comparison shows of calls with another choice."""


def selection(pairs: Sequence[Pair], joined: Sequence[Joined]) -> Iterator[dict[str, Any]]:
    """Give findings for every kernel that the runs chose differently for, by what came of it."""
    sure = [each for each in joined if not each.is_ambiguous]
    groups: dict[tuple[str, str, str], list[Joined]] = defaultdict(list)
    for each in sure:
        if each.pair.is_other:
            groups[*each.pair.entry[:2], each.outcome].append(each)
    for (_, _, outcome), members in sorted(groups.items(), key=lambda item: item[0]):
        yield _selected([each.pair for each in members], outcome, members)
    told = {(each.pair.entry, each.pair.rank) for each in sure}
    alone: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.is_other and (pair.entry, pair.rank) not in told:
            alone[pair.entry[:2]].append(pair)
    for _, apart in sorted(alone.items()):
        yield _selected(apart, "", [])


def _selected(pairs: Sequence[Pair], outcome: str, joined: Sequence[Joined]) -> dict[str, Any]:
    severity, came, confidence = _OTHER[outcome]
    first = pairs[0]
    where = first.entry
    ranks = _ranks(pairs, joined)
    num = sum(each.num_calls for each in joined) if joined else sum(pair.num for pair in pairs)
    if joined and not all(each.is_exact for each in joined) and outcome == "bits":
        confidence = f"medium: {joined[0].how}"
    explains = "explained by a different kernel configuration: " if outcome == "bits" else ""
    found = f"{where.kernel}: other choice{_on(ranks)}, {came}"
    why = f"{explains}{chooser(where.source)} chose (selection), and a choice fixes the order of sums"
    return {
        "component": "selection",
        "severity": severity,
        "found": found,
        "expected": "the same choice in both runs",
        "where": _places(pairs),
        "why": _sentences(why, _split_of(first), _given(first), f"confidence: {confidence}"),
        "next": advice(where.source) if severity != "note" else "",
        "source": reference(where.source),
        **_more(pairs, ranks, num, outcome, joined),
        "confidence": confidence,
    }


def execution(joined: Sequence[Joined], seen: Mapping[str, Seen]) -> Iterator[dict[str, Any]]:
    """Give findings for calls that gave other bits while both runs chose the same for them.

    Parameters
    ----------
    joined
        What was joined.
    seen
        What else the comparison says of the op at a site, and the next step.
    """
    groups: dict[tuple[str, str, str], list[Joined]] = defaultdict(list)
    for each in joined:
        if each.pair.is_same and each.outcome == "bits" and not each.is_ambiguous:
            groups[*each.pair.entry[:2], each.pair.a or ""].append(each)
    for _, members in sorted(groups.items()):
        yield _executed(members, seen)


def _executed(members: Sequence[Joined], seen: Mapping[str, Seen]) -> dict[str, Any]:
    pairs = [each.pair for each in members]
    first, ranks = pairs[0], _ranks(pairs, members)
    num = sum(each.num_calls for each in members)
    sites = [site for each in members for site in each.sites if site in seen]
    says, step = seen[sites[0]] if sites else Seen("", "")
    inside = "both runs chose the same, so that the difference is made inside the kernel (execution)"
    return {
        "component": "execution",
        "severity": "warning",
        "found": f"{first.entry.kernel}: same choice{_on(ranks)}, and {num:,} {plural('call', num)} "
        f"{'gives' if num == 1 else 'give'} other bits for equal inputs",
        "expected": "the same bits",
        "where": _places(pairs),
        "why": _sentences(inside, split_words(first.a or ""), says, f"confidence: {_UNTIL_REPLAYED}"),
        "next": step or "capture the call and replay it: detlab replay CAPTURE",
        "source": reference(first.entry.source),
        **_more(pairs, ranks, num, "bits", members),
        "confidence": _UNTIL_REPLAYED,
    }


def ambiguous(joined: Sequence[Joined]) -> Iterator[tuple[str, str]]:
    """Give (what, why) for calls with other bits that no single choice could be joined to."""
    found: dict[str, tuple[str, int]] = {}
    for each in joined:
        if each.is_ambiguous and each.outcome == "bits":
            what = f"{each.pair.entry.kernel} on rank {each.rank}"
            found[what] = (each.how, found.get(what, ("", 0))[1] + each.num_calls)
    for what, (how, num) in sorted(found.items()):
        yield what, f"{num:,} {plural('call', num)} with other bits: {how}"


def within_run(told: Mapping[str, Agreement], run: str) -> Iterator[dict[str, Any]]:
    """Give a finding for each source in which ranks of one run disagree."""
    for source, each in sorted(told.items()):
        if not each.disagreeing:
            continue
        first = each.disagreeing[0]
        num, total = len(each.disagreeing), each.num_entries
        yield {
            "component": f"ranks of {run}",
            "severity": "warning",
            "found": f"ranks chose differently for {num:,} of {total:,} entries of kernel and problem",
            "expected": "one choice on all ranks",
            "where": "; ".join(_disagreement(one) for one in each.disagreeing[:_MAX_SHOWN]),
            "why": f"{chooser(source)} of each process chose by itself: replicas then add in another order",
            "next": advice(source),
            "source": reference(source),
            "instrument": source,
            "kernel": first.entry.kernel,
            "problems": [one.entry.problem for one in each.disagreeing],
            "ranks": [],
            "choice_a": "",
            "choice_b": "",
            "num": num,
            "outcome": "",
            "sites": [],
            "how": "",
            "confidence": "high",
        }


def _disagreement(one: Disagreement) -> str:
    choices = [f"{choice} on {_who(who)}" for choice, who in one.choices.items()]
    more = f" and {len(choices) - _MAX_SHOWN} more choices" if len(choices) > _MAX_SHOWN else ""
    problem = f" ({short_problem(one.entry.problem)})" if one.entry.problem else ""
    return f"{one.entry.kernel}{problem}: {', '.join(choices[:_MAX_SHOWN])}{more}"


def _who(names: Sequence[str]) -> str:
    numbers = [name.removeprefix("rank ") for name in names]
    if all(each.isdigit() for each in numbers):
        return f"{plural('rank', len(numbers))} {spans(sorted(map(int, numbers)))}"
    return ", ".join(names[:_MAX_SHOWN]) + (
        f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    )


def _ranks(pairs: Sequence[Pair], joined: Sequence[Joined]) -> list[int]:
    if joined:
        return sorted({each.rank for each in joined})
    return sorted({pair.rank for pair in pairs if pair.rank is not None})


def _on(ranks: Sequence[int]) -> str:
    return f" on {plural('rank', len(ranks))} {spans(list(ranks))}" if ranks else ""


def _places(pairs: Sequence[Pair]) -> str:
    """Say for which problems, with both choices and where they stand."""
    shown = {pair.entry.problem: pair for pair in reversed(pairs)}
    said = [_place(pair) for pair in [*reversed(shown.values())][:_MAX_SHOWN]]
    more = f"; and {len(shown) - _MAX_SHOWN} more problems" if len(shown) > _MAX_SHOWN else ""
    return "; ".join(said) + more


def _place(pair: Pair) -> str:
    problem = f"{short_problem(pair.entry.problem)}: " if pair.entry.problem else ""
    chosen = f"{pair.a}" if pair.is_same else f"{pair.a} in a, {pair.b} in b"
    a, b = pair.where
    return f"{problem}{chosen} ({f'{a} in both' if a == b else f'{a} in a, {b} in b'})"


def _split_of(pair: Pair) -> str:
    said = [split_words(each or "") for each in (pair.a, pair.b)]
    if said[0] == said[1]:
        return said[0]
    return "; ".join(f"in {run}: {text}" for run, text in zip("ab", said, strict=True) if text)


def _given(pair: Pair) -> str:
    """Say what the caller gave to the choice, where it is not the same in both runs."""
    mine, theirs = (dict(re.findall(r"(\w+)=(\S+)", each)) for each in pair.details)
    differs = [
        f"{name} {mine.get(name, 'unset')} in a and {theirs.get(name, 'unset')} in b"
        for name in ("workSpaceSizeInBytes", "smCountTarget")
        if mine.get(name) != theirs.get(name)
    ]
    return f"what the choice was given differs: {', '.join(differs)}" if differs else ""


def _sentences(*parts: str) -> str:
    return ". ".join(capitalized(part) for part in parts if part)


def _more(
    pairs: Sequence[Pair], ranks: list[int], num: int, outcome: str, joined: Sequence[Joined]
) -> dict[str, Any]:
    first = pairs[0]
    return {
        "instrument": first.entry.source,
        "kernel": first.entry.kernel,
        "problems": list(dict.fromkeys(pair.entry.problem for pair in pairs)),
        "ranks": ranks,
        "choice_a": first.a or "",
        "choice_b": first.b or "",
        "num": num,
        "outcome": outcome,
        "sites": list(dict.fromkeys(site for each in joined for site in each.sites)),
        "how": joined[0].how if joined else "",
    }
