"""How fast two runs are compared: beside a plain Python comparison of JSON, and beside numpy reading them.

All figures are million event pairs per CPU-second, the best of a few repeats in one process. The pair is
synthetic: 723 scopes x 30 ops, incompressible digests, 21 isolated origins and differing values in the
last tenth of run b.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from detlab import compare, load_run
from detlab.comparison.verdicts import JUDGED_COLUMNS
from detlab.schema import EVENT_DTYPE, Callee, Coordinate, Evidence, Meta, TensorMeta, Verdict, pack_evidence
from detlab.store import Manifest, RankHeader, TraceWriter, write_manifest

NUM_EVENTS = 10_000_000
NUM_CALLEES = 723 * 30
STEP_EVENTS = 1_000_000


def events(num_rows: int, segment: int) -> np.ndarray:
    """Make the events of run a in segments of one size."""
    rng = np.random.default_rng(0)
    rows = np.zeros(num_rows, EVENT_DTYPE)
    at = np.arange(num_rows)
    rows["seq"], rows["step"] = at, 1 + at // STEP_EVENTS
    rows["microbatch"] = at % STEP_EVENTS // segment
    rows["phase"], rows["n_in"], rows["n_out"] = 2, 2, 1
    rows["callee"] = at % segment % NUM_CALLEES
    for name in ("in_digest", "out_digest"):
        rows[name] = rng.integers(0, 2**63, num_rows)
    rows["evidence"] = pack_evidence(Evidence.EXACT, Evidence.EXACT)
    return rows


def diverged(rows: np.ndarray) -> np.ndarray:
    """Give run b: 21 isolated origins, and everything different in the last tenth."""
    rng = np.random.default_rng(1)
    other = rows.copy()
    tail = len(rows) * 9 // 10
    other["out_digest"][rng.choice(tail, 21, replace=False)] ^= np.uint64(1)
    for name in ("in_digest", "out_digest"):
        other[name][tail:] ^= np.uint64(1)
    return other


def slipped(rows: np.ndarray, segment: int) -> np.ndarray:
    """Drop five calls and add one in every hundredth segment."""
    keep = np.ones(len(rows), bool)
    starts = np.arange(0, len(rows) - segment, segment * 100)
    for offset in range(5):
        keep[starts + 100 + 7 * offset] = False
    extra = rows[starts + 50]
    return np.insert(rows[keep], starts + 50 - 5 * np.arange(len(starts)), extra)


def write(folder: Path, rows: np.ndarray, *, compress: bool = False) -> Path:
    """Write one rank's trace of these rows."""
    write_manifest(folder, Manifest(folder.name, 1))
    trace = TraceWriter(folder, RankHeader(0, Coordinate(), algorithm="xxh3-64"), compress=compress)
    for number in range(NUM_CALLEES):
        trace.names.callee_id(Callee(f"decoder.layers.{number % 723}", f"aten.op{number // 723}.default"))
    tensor = TensorMeta("float32", (256, 256), (256, 1))
    trace.names.meta_id(Meta((tensor, tensor), (tensor,), "xxh3-64"))
    for start in range(0, len(rows), STEP_EVENTS):
        trace.append(rows[start : start + STEP_EVENTS])
    trace.close()
    return folder


def cpu_rate(work: Callable[[], object], num_rows: int, repeats: int = 5) -> float:
    """Give million rows per CPU-second, the best of some repeats."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return num_rows / best / 1e6


def compare_pair(a: Path, b: Path) -> Any:
    """Compare as `detlab.compare` does, on one thread, so that CPU time is all there is."""
    with ThreadPoolExecutor(1) as executor:
        return compare(a, b, executor=executor)


def read_with_numpy(a: Path, b: Path) -> int:
    """Read every byte of the judged columns of both runs once, in the way that costs numpy least."""
    total = 0
    for path in (a, b):
        (trace,) = load_run(path).ranks
        for _, block in trace.blocks(0, trace.num_events, JUDGED_COLUMNS):
            for column in block.values():
                raw = column.view(np.uint8)
                total += int(np.add.reduce(raw[: len(raw) // 8 * 8].view(np.uint64)))
    return total


def json_lines(rows: np.ndarray) -> list[str]:
    """Write rows as the JSON lines that such tools exchange."""
    names = [f"decoder.layers.{n % 723}/aten.op{n // 723}.default" for n in range(NUM_CALLEES)]
    return [
        json.dumps(
            {
                "step": int(row["step"]), "microbatch": int(row["microbatch"]), "name": names[row["callee"]],
                "call": int(row["call"]),
                "in": [f"{row['in_digest']:016x}"], "out": [f"{row['out_digest']:016x}"],
            }
        )
        for row in rows
    ]  # fmt: skip


def compare_json(a: list[str], b: list[str]) -> dict[str, int]:
    """Compare as a short Python script does: a dictionary by identity, one event at a time."""

    def keyed(lines: list[str]) -> Iterator[tuple[tuple[object, ...], dict[str, Any]]]:
        for line in lines:
            event = json.loads(line)
            yield (event["step"], event["microbatch"], event["name"], event["call"]), event

    theirs = dict(keyed(b))
    counts = {"match": 0, "origin": 0, "receiver": 0, "only_a": 0}
    for key, event in keyed(a):
        other = theirs.get(key)
        if other is None:
            counts["only_a"] += 1
        elif event["out"] == other["out"]:
            counts["match"] += 1
        else:
            counts["origin" if event["in"] == other["in"] else "receiver"] += 1
    return counts


def measure(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Give (what, million event pairs per CPU-second, beside what) line by line."""
    rows = events(NUM_EVENTS, 5_000)
    other = diverged(rows)
    a, b = write(folder / "a", rows), write(folder / "b", other)
    assert compare_pair(a, b).counts[Verdict.ORIGIN] == 21
    full = cpu_rate(lambda: compare_pair(a, b), NUM_EVENTS)
    lines = json_lines(rows[:100_000]), json_lines(other[:100_000])
    plain = cpu_rate(lambda: compare_json(*lines), 100_000, repeats=3)
    numpy_read = cpu_rate(lambda: read_with_numpy(a, b), NUM_EVENTS)
    yield "Python dict of JSON, 1e5 pairs", plain, ""
    yield "numpy reads the same columns once", numpy_read, ""
    yield (
        "equal identities, every value read",
        full,
        f"{full / plain:,.0f}x JSON, {full / numpy_read:.0%} of numpy",
    )
    skip = cpu_rate(lambda: compare_pair(a, a), NUM_EVENTS)
    yield "skipped by equal digests", skip, f"{skip / full:,.0f}x"
    for name, pair in {
        "the same with zstd": {"compress": True},
        "the same in segments of 300 calls": {"segment": 300},
        "1 % of the segments slipped": {"slip": True},
    }.items():
        rate = _variant(folder / name.replace(" ", "-"), rows, other, **pair)
        yield name, rate, f"{rate / full:.2f}x"


def _variant(
    folder: Path,
    rows: np.ndarray,
    other: np.ndarray,
    *,
    compress: bool = False,
    segment: int = 5_000,
    slip: bool = False,
) -> float:
    if segment != 5_000:
        rows = events(NUM_EVENTS, segment)
        other = diverged(rows)
    if slip:
        other = slipped(other, segment)
    a, b = (write(folder / name, part, compress=compress) for name, part in (("a", rows), ("b", other)))
    return cpu_rate(lambda: compare_pair(a, b), NUM_EVENTS, repeats=3)


def main() -> None:
    """Print the table."""
    print(f"\ncomparison of {NUM_EVENTS:,} event pairs, million pairs per CPU-second")
    with tempfile.TemporaryDirectory() as folder:
        for what, rate, beside in measure(Path(folder)):
            print(f"  {what:<42} {rate:>12,.2f}   {beside}")


if __name__ == "__main__":
    main()
