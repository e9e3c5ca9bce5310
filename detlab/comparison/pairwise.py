"""Compare two runs: refuse what must not be compared, judge rank by rank, then across ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from os import PathLike
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from detlab.comparison.captured import captured_calls
from detlab.comparison.communication import GroupJudge, Judged, Judgement, judge_communication
from detlab.comparison.contradictions import (
    judge_contradictions,
    judge_exchanges,
    num_exchanged,
    set_fresh_memory_aside,
)
from detlab.comparison.findings import group_findings
from detlab.comparison.ignored import count_configuration, lift, read_kinds
from detlab.comparison.overrides import Pairs, accept, read_accepted
from detlab.comparison.padding import judge_padding
from detlab.comparison.ranks import RankComparison, compare_rank
from detlab.comparison.result import Comparison
from detlab.comparison.roots import find_roots, grouped
from detlab.comparison.structure import set_notes_aside
from detlab.errors import NotComparable, TraceError
from detlab.progress import bar
from detlab.readers import as_run
from detlab.run import Run, spans
from detlab.schema import Mask, Verdict
from detlab.store import RankTrace

Found = TypeVar("Found")


def compare(
    a: Run | str | PathLike[str],
    b: Run | str | PathLike[str],
    *,
    executor: Executor | None = None,
    verify: bool = False,
    pairs: Pairs | Mapping[str, Mapping[str, str]] | str | PathLike[str] | None = None,
    accepted: str | PathLike[str] | None = None,
    count: str | Collection[str] = (),
) -> Comparison:
    """Compare two runs event by event and say where they first differ, on which ranks, and why.

    Parameters
    ----------
    a, b
        Runs, or paths that `detlab.load_run` can read. Ranks are paired by coordinate.
    executor
        Where the ranks are compared: any `concurrent.futures.Executor`, such as that of a Dask client.
        By default a thread per core.
    verify
        Read every event, also where the digests of whole segments say that all are equal.
    pairs
        Names of run b that mean something with another name in run a: a TOML file or a mapping with the
        tables ``scopes`` and ``ops``, from b's name to a's.
    accepted
        A TOML file of differences that are known, each ``[[accept]]`` with a ``reason`` and some of
        ``class``, ``op``, ``scope`` and ``phase``. They stay in the findings; when all findings are
        accepted the exit code is 0.
    count
        Kinds of things to judge like any other call instead of setting them aside, as a collection or a
        text with commas: ``not_waited_for``, ``pointers``, ``copy_in_flight``, ``structure_note``,
        ``fresh_memory``, ``padding``, ``configuration``. A call that is set aside for another reason too
        stays aside. The record is judged as it is: a collective that was hashed too early by that hash,
        and it still stands in the path of a difference; fresh memory only where it was hashed. A call
        of another configuration with equal values is ``changed``.

    Raises
    ------
    InputError
        ``count`` names something that is never set aside.
    NotComparable
        The runs have different parallel layouts, or no rank or step in common.
    TraceError
        A run cannot be read.
    """
    counted = read_kinds(count)
    run_a, run_b = as_run(a), as_run(b)
    _refuse_other_layout(run_a, run_b)
    _refuse_other_counting(run_a, run_b)
    steps = _common_steps(run_a, run_b)
    names = Pairs.read(pairs)
    known = read_accepted(accepted)
    ranks, damaged = _compare_ranks(run_a, run_b, steps, executor, verify, names)
    _refuse_without_evidence(run_a, run_b, ranks, steps)
    exchanges = _judge_each(lambda rank: judge_exchanges(set_notes_aside(rank)), ranks)
    ranks = [rank for rank, _ in exchanges]
    judge = GroupJudge(ranks)
    judged = judge_communication(judge)
    for rank, exchanged in exchanges:
        judged[rank.rank] |= exchanged
    ranks = [set_fresh_memory_aside(_with_judgements(rank, judged)) for rank in ranks]
    for rank, contradicted in zip(ranks, _judge_each(judge_contradictions, ranks), strict=True):
        judged[rank.rank] = contradicted | judged[rank.rank]
    padded = _judge_each(lambda rank: judge_padding(_with_judgements(rank, judged)), ranks)
    ranks = [rank for rank, _ in padded]
    for rank, of_padding in padded:
        judged[rank.rank] = of_padding | judged[rank.rank]
    ranks = [_with_judgements(rank, judged) for rank in ranks]
    before = ranks if counted else []
    if counted:
        ranks, judge = _count_again(ranks, judge, judged, counted)
    ranks = [replace(rank, num_exchanged=num_exchanged(rank, judged[rank.rank])) for rank in ranks]
    roots = find_roots(ranks, judged, judge, before)
    if "configuration" in counted:
        chosen = [count_configuration(rank) for rank in ranks]
        ranks = [rank for rank, _ in chosen]
        for rank, found in chosen:
            roots += grouped(rank, dict.fromkeys(found.tolist(), "configuration"))
    racks = (run_a.manifest.racks, run_b.manifest.racks)
    findings = accept(group_findings(roots, ranks, captured_calls(run_a, run_b), racks), known)
    problems = [*_problems(run_a, run_b), *damaged, *_missing(run_a, run_b, ranks)]
    return Comparison(
        run_a, run_b, tuple(steps), tuple(ranks), tuple(findings), tuple(problems), judge, names,
        counted=counted,
    )  # fmt: skip


def _judge_each(judge: Callable[[RankComparison], Found], ranks: Sequence[RankComparison]) -> list[Found]:
    """Judge one rank after another, and show how many are left."""
    with bar("judging", len(ranks), "rank") as shown:
        return [judge(rank) for rank in shown.over(ranks)]


def _refuse_other_layout(a: Run, b: Run) -> None:
    """Shards of another layout hold other numbers: their bits say nothing about each other."""
    for run in (a, b):
        _refuse_without_trace(run)
    mine = {"world size": a.manifest.world_size, **a.manifest.layout}
    theirs = {"world size": b.manifest.world_size, **b.manifest.layout}
    axes = [axis for axis in mine | theirs if mine.get(axis, 1) != theirs.get(axis, 1)]
    if axes:
        found = ", ".join(f"{axis} {mine.get(axis, 1)} and {theirs.get(axis, 1)}" for axis in axes)
        raise NotComparable(
            f"{a.label} and {b.label} have different parallel layouts ({found}).",
            "compare two runs of one layout; bits of differently sharded tensors never match",
        )
    for run in (a, b):
        _refuse_shared_places(run)
    if not a.by_coordinate.keys() & b.by_coordinate.keys():
        raise NotComparable(
            f"{a.label} and {b.label} have no rank in common: {_places(a)} against {_places(b)}.",
            "record the same ranks in both runs",
        )


def _refuse_without_trace(run: Run) -> None:
    if not run.ranks:
        raise NotComparable(
            f"{run.label} has step metrics and no trace.", "compare the numbers: detlab.compare_metrics(a, b)"
        )


def _refuse_shared_places(run: Run) -> None:
    shared = [place for place, n in Counter(rank.header.coordinate for rank in run.ranks).items() if n > 1]
    if shared:
        raise TraceError(
            f"{run.source} has more than one rank at {shared[0]}.", "keep the files of one run in one folder"
        )


def _places(run: Run) -> str:
    return "; ".join(str(rank.header.coordinate) for rank in run.ranks[:4])


def _refuse_other_counting(a: Run, b: Run) -> None:
    """Refuse a resumed run that counts its steps from one beside a run that did not resume there.

    Megatron keeps the number of iterations of the checkpoint it loaded in its argument ``iteration``.
    """
    loaded = _iterations_loaded(a), _iterations_loaded(b)
    for run, done in zip((a, b), loaded, strict=True):
        if done and loaded[0] != loaded[1] and run.steps and run.steps[0] <= done:
            raise NotComparable(
                f"{run.label} resumed after iteration {done} and counts its steps from {run.steps[0]}: "
                f"they are not the steps of {(b if run is a else a).label}.",
                f"record it with its global step: Recorder(…, start_step={done + 1})",
            )


def _iterations_loaded(run: Run) -> int:
    """Give the iterations that a run had done when its recorder was attached, as far as it states them."""
    arguments = (rank.header.recipe.get("arguments") for rank in run.ranks)
    stated = (each.get("iteration") for each in arguments if isinstance(each, Mapping))
    return max((number for number in stated if isinstance(number, int)), default=0)


def _common_steps(a: Run, b: Run) -> list[int]:
    steps = sorted(set(a.steps) & set(b.steps))
    if not steps:
        raise NotComparable(
            f"{a.label} and {b.label} have no step in common: {spans(a.steps)} against {spans(b.steps)}.",
            "record the same steps; a resumed run needs its global step: Recorder(…, start_step=…)",
        )
    return steps


def _compare_ranks(
    a: Run, b: Run, steps: Sequence[int], executor: Executor | None, verify: bool, names: Pairs
) -> tuple[list[RankComparison], list[tuple[str, str]]]:
    """Compare rank by rank; a rank whose files are damaged is left out and becomes a problem."""
    partners = b.by_coordinate
    pairs = [
        (rank, partners[rank.header.coordinate]) for rank in a.ranks if rank.header.coordinate in partners
    ]
    wanted = np.array(steps, np.int32)
    chosen = executor or ThreadPoolExecutor(os.cpu_count())
    tasks: list[Future[RankComparison]] = []
    try:
        tasks += [chosen.submit(_compare_renamed, *pair, wanted, verify, names) for pair in pairs]
        with bar("comparing", len(tasks), "rank") as shown:
            for task in shown.over(
                as_completed(tasks)
            ):  # this thread counts: a notebook shows no other's bar
                error = task.exception()
                if error is not None and not isinstance(error, TraceError):
                    raise error
        return _gather(tasks, [pair[0].header.rank for pair in pairs])
    finally:
        for task in tasks:
            task.cancel()  # whoever interrupts waits for what is being compared, and not for all the rest
        if executor is None:
            chosen.shutdown()


def _refuse_without_evidence(a: Run, b: Run, ranks: Sequence[RankComparison], steps: Sequence[int]) -> None:
    """Refuse runs of which no output can be compared: none was recorded, or with digests of other kinds."""
    for run, traces in ((a, [rank.a for rank in ranks]), (b, [rank.b for rank in ranks])):
        if not any(_has_outputs(trace, steps) for trace in traces):
            raise NotComparable(
                f"{run.label} has no evidence of any output in steps {spans(list(steps))}.",
                "record it again with digests of the outputs",
            )
    kinds = _kinds_of_digest(ranks)
    if kinds and not kinds[0] & kinds[1]:
        found = f"{', '.join(sorted(kinds[0]))} and {', '.join(sorted(kinds[1]))}"
        raise NotComparable(
            f"{a.label} and {b.label} have digests of different kinds ({found}).",
            "record both runs with the same version and mode of the same tracer",
        )


def _has_outputs(trace: RankTrace, steps: Sequence[int]) -> bool:
    compared = trace.index[np.isin(trace.index["step"], steps)]
    return bool((compared["evidence"] & 15).any())


def _kinds_of_digest(ranks: Sequence[RankComparison]) -> list[set[str]]:
    """Give the kinds of digest of both runs on some rank, one with a kind in common if any has.

    None when nothing differs, or where a rank of one run is empty.
    """
    kinds: list[set[str]] = []
    if not any(len(rank.differing) for rank in ranks):
        return kinds
    for rank in sorted(ranks, key=lambda rank: not len(rank.differing)):
        found = [{meta.algorithm for meta in trace.names.metas} for trace in (rank.a, rank.b)]
        if found[0] & found[1]:
            return found
        kinds = found if all(found) else kinds
    return kinds


def _compare_renamed(
    a: RankTrace, b: RankTrace, steps: NDArray[np.int32], verify: bool, names: Pairs
) -> RankComparison:
    """Compare one rank with the names that the user gave; runs wherever the executor puts it."""
    found = compare_rank(a, names.apply(b), steps, verify)
    renamed = names.renamed(b)
    return replace(found, renamed=renamed, original_b=b) if renamed else found


def _gather(
    tasks: Sequence[Future[RankComparison]], numbers: Sequence[int]
) -> tuple[list[RankComparison], list[tuple[str, str]]]:
    ranks, damaged = [], []
    for task, number in zip(tasks, numbers, strict=True):
        try:
            ranks.append(task.result())
        except TraceError as error:
            damaged.append((f"rank {number}", error.finding))
    if not ranks:
        raise TraceError(damaged[0][1], "not one rank could be compared; copy the runs again")
    return ranks, damaged


def _with_judgements(rank: RankComparison, judged: Judged) -> RankComparison:
    return rank.with_verdicts({position: each.verdict for position, each in judged[rank.rank].items()})


def _count_again(
    ranks: Sequence[RankComparison], judge: GroupJudge, judged: Judged, counted: Collection[str]
) -> tuple[list[RankComparison], GroupJudge]:
    """Count kinds that were set aside, and judge what is counted by that; the judgements are added.

    What is set aside is decided first and without this: a counted difference that comes early moves the
    first divergent step, and must not make a difference of another kind in a later one count as well.
    """
    judge = GroupJudge([lift(rank, counted) for rank in judge.ranks])
    of_groups = judge_communication(judge)
    found = []
    for before in ranks:
        of_rank, number = judged[before.rank], before.rank
        new: Judged = {number: {p: each for p, each in of_groups[number].items() if p not in of_rank}}
        rank = _with_judgements(lift(before, counted), new)
        of_rank |= new[number]
        fresh = rank.counted(Verdict.ORIGIN)
        fresh = fresh[(before.masks[fresh] & Mask.FRESH_MEMORY) != 0]
        of_rank |= {p: Judgement(Verdict.ORIGIN, "uninitialised") for p in fresh.tolist()}
        new = {number: {p: each for p, each in judge_contradictions(rank).items() if p not in of_rank}}
        of_rank |= new[number]
        found.append(_with_judgements(rank, new))
    return found, judge


def _problems(a: Run, b: Run) -> list[tuple[str, str]]:
    return [(run.label, problem) for run in (a, b) for problem in run.problems]


def _missing(a: Run, b: Run, ranks: Sequence[RankComparison]) -> list[tuple[str, str]]:
    """Say which ranks, steps and calls only one run has because the other's files end or lack them."""
    missing = []
    for run, other in ((a, b), (b, a)):
        lost = [str(place) for place in other.by_coordinate if place not in run.by_coordinate]
        if lost:
            named = f"{lost[0]}{'…' * (len(lost) > 1)}"
            missing.append((run.label, f"has no trace of {len(lost)} ranks that {other.label} has: {named}"))
        steps = sorted(set(other.steps) - set(run.steps))
        if steps:
            missing.append((run.label, f"has no step {spans(steps)}, which {other.label} has"))
    cut = sum(rank.num_missing for rank in ranks)
    if cut:
        missing.append(("comparison", f"{cut:,} calls stand after the end of a file that was cut"))
    return missing
