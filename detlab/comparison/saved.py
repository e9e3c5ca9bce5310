"""Save a comparison and open it again: one file of arrays and JSON beside the runs it is about.

The runs stay where they are. Opening a comparison checks that they are still the ones that were compared.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_hexdigest

from detlab.comparison.communication import GroupJudge
from detlab.comparison.findings import Finding
from detlab.comparison.overrides import Pairs
from detlab.comparison.ranks import RankComparison
from detlab.comparison.result import Comparison
from detlab.errors import TraceError
from detlab.readers import load_run
from detlab.run import Run
from detlab.store import RankTrace
from detlab.store.layout import write_bytes

FORMAT: Final = "detlab.saved-comparison/1"
_DOCUMENT: Final = "document"
_SPARSE: Final = ("differing", "verdicts", "masks")


def save_comparison(cmp: Comparison, path: str | PathLike[str]) -> Path:
    """Write a comparison to one file, whole or not at all; give the path back."""
    place = Path(path)
    document = {
        "format": FORMAT,
        "sources": [cmp.a.source, cmp.b.source],
        "labels": [cmp.a.label, cmp.b.label],
        "subsets": [
            {"ranks": each.subset.ranks.text, "steps": each.subset.steps.text} for each in (cmp.a, cmp.b)
        ],
        "indexes": [_digests(rank.a for rank in cmp.ranks), _digests(rank.source_b for rank in cmp.ranks)],
        "steps": list(cmp.steps),
        "ranks": [
            {
                "rank": rank.rank,
                "num_missing": rank.num_missing,
                "num_other_choice": rank.num_other_choice,
                "num_exchanged": rank.num_exchanged,
            }
            for rank in cmp.ranks
        ],
        "findings": [finding.to_json() for finding in cmp.roots],
        "problems": [list(problem) for problem in cmp.problems],
        "notes": list(cmp.notes),
        "counted": list(cmp.counted),
        "pairs": {"scopes": dict(cmp.pairs.scopes), "ops": dict(cmp.pairs.ops)},
    }
    arrays: dict[str, NDArray[Any]] = {_DOCUMENT: np.frombuffer(json.dumps(document).encode(), np.uint8)}
    for rank, alone in zip(cmp.ranks, cmp.judge.ranks, strict=True):
        arrays[f"{rank.rank}/blocks"] = rank.blocks
        for kind, each in (("judged", rank), ("alone", alone)):
            arrays[f"{rank.rank}/{kind}/differing"] = each.differing
            arrays[f"{rank.rank}/{kind}/verdicts"] = each.verdicts[each.differing]
            arrays[f"{rank.rank}/{kind}/masks"] = each.masks[each.differing]
    packed = BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_bytes(place, packed.getvalue())
    return place


def load_comparison(
    path: str | PathLike[str],
    *,
    a: Run | str | PathLike[str] | None = None,
    b: Run | str | PathLike[str] | None = None,
) -> Comparison:
    """Open a saved comparison; nothing is compared again.

    Parameters
    ----------
    path
        What `Comparison.save` wrote.
    a, b
        Where the runs are now, if they were moved.

    Raises
    ------
    TraceError
        The file is none, or a run is not there any more or is another one now.
    """
    document, arrays = _read(Path(path))
    subsets = document.get("subsets", ({}, {}))
    places = zip((a, b), document["sources"], subsets, document["labels"], strict=True)
    runs = [_reopen(given or source, asked, label) for given, source, asked, label in places]
    pairs = Pairs.read(document["pairs"])
    ranks: list[RankComparison] = []
    alone: list[RankComparison] = []
    traces = [{rank.header.coordinate: rank for rank in run.ranks} for run in runs]
    for entry in document["ranks"]:
        mine = next(rank for rank in runs[0].ranks if rank.header.rank == entry["rank"])
        theirs = traces[1][mine.header.coordinate]
        for kind, found in (("judged", ranks), ("alone", alone)):
            found.append(_rank(mine, theirs, pairs, arrays, kind, entry))
    _refuse_other_runs(document, ranks)
    findings = tuple(map(Finding.from_json, document["findings"]))
    problems = tuple((where, what) for where, what in document["problems"])
    return Comparison(
        runs[0], runs[1], tuple(document["steps"]), tuple(ranks), findings, problems, GroupJudge(alone),
        pairs, tuple(document["notes"]), tuple(document.get("counted", ())),
    )  # fmt: skip


def _reopen(run: Run | str | PathLike[str], asked: Mapping[str, str], label: str) -> Run:
    """Load a run as it was loaded then; give one that is loaded as it is."""
    if isinstance(run, Run):
        return run
    ranks, steps = (asked.get(name) or None for name in ("ranks", "steps"))
    return load_run(run, ranks=ranks, steps=steps, label=label)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        document = json.loads(arrays.pop(_DOCUMENT).tobytes())
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror}", "give the file that was saved"
        ) from error
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise TraceError(
            f"{path} is no saved comparison.", "give the file that Comparison.save wrote"
        ) from error
    return document, arrays


def _rank(
    a: RankTrace,
    b: RankTrace,
    pairs: Pairs,
    arrays: Mapping[str, NDArray[Any]],
    kind: str,
    entry: Mapping[str, int],
) -> RankComparison:
    blocks = arrays[f"{entry['rank']}/blocks"]
    starts = np.concatenate([[0], np.cumsum(blocks["num_rows"])])
    differing, verdicts, masks = (arrays[f"{entry['rank']}/{kind}/{part}"] for part in _SPARSE)
    renamed = pairs.renamed(b)
    return RankComparison(
        a=a,
        b=pairs.apply(b),
        blocks=blocks,
        starts=starts,
        verdicts=_dense(verdicts, differing, int(starts[-1])),
        masks=_dense(masks, differing, int(starts[-1])),
        differing=differing,
        any_aside=bool(masks.any()),
        num_missing=entry["num_missing"],
        num_other_choice=entry["num_other_choice"],
        num_exchanged=entry["num_exchanged"],
        renamed=renamed,
        original_b=b if renamed else None,
    )


def _dense(values: NDArray[np.uint8], positions: NDArray[np.intp], size: int) -> NDArray[np.uint8]:
    whole = np.zeros(size, np.uint8)
    whole[positions] = values
    return whole


def _digests(traces: Iterable[RankTrace]) -> list[str]:
    columns = ("num_rows", "identity", "values")
    return [xxh3_64_hexdigest(b"".join(trace.index[name].tobytes() for name in columns)) for trace in traces]


def _refuse_other_runs(document: Mapping[str, Any], ranks: list[RankComparison]) -> None:
    found = [_digests(rank.a for rank in ranks), _digests(rank.source_b for rank in ranks)]
    for label, then, now in zip(document["labels"], document["indexes"], found, strict=True):
        if then != now:
            raise TraceError(
                f"{label} is not the run that was compared: its events have other digests now.",
                "compare the runs again, or give the place of the old ones: load_comparison(path, a=…, b=…)",
            )
