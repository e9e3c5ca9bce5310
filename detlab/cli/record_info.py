"""``detlab record-info RUN``: how large a recorded run is, by rank, before any of it is loaded."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from detlab.text import plural

if TYPE_CHECKING:
    import polars as pl

SCHEMA: Final = "detlab.record-info/1"
_MAX_RANKS: Final = 16


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("record-info", help="how large is a recorded run, by rank?")
    parser.add_argument("path", metavar="RUN", help="a run: the folder that a recorder wrote into")
    parser.add_argument("--json", action="store_true", help="print the sizes as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the sizes; exit with 0 when there is a trace."""
    from detlab.cli import print_json
    from detlab.comparison.text import wrapped
    from detlab.readers.sizes import read_sizes

    sizes = read_sizes(args.path)
    if args.json:
        print_json(_document(args.path, sizes))
    else:
        print("\n".join(map(wrapped, _lines(args.path, sizes))))
    return 0


def _document(path: str, sizes: pl.DataFrame) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "path": path,
        "num_bytes": int(sizes["num_bytes"].sum()),
        "ranks": sizes.drop("problem").to_dicts(),
        "problems": [
            {"where": f"rank {rank}", "what": what}
            for rank, what in sizes.select("rank", "problem").drop_nulls().iter_rows()
        ],
    }


def _lines(path: str, sizes: pl.DataFrame) -> list[str]:
    from detlab.run import num_bytes_text

    known = sizes.drop_nulls("num_events")
    lacking = f" on {len(known)} of them" if len(known) < len(sizes) else ""
    about = "about " if sizes["is_estimate"].any() else ""
    ranks = f"{len(sizes)} {plural('rank', len(sizes))}"
    total = f"{num_bytes_text(int(sizes['num_bytes'].sum()))}, {about}{known['num_events'].sum():,} events"
    cut = sizes.slice(_MAX_RANKS).drop_nulls("problem").head(_MAX_RANKS)
    shown = [*sizes.head(_MAX_RANKS).to_dicts(), *cut.to_dicts()]
    lines = [f"{path}: {ranks}, {total}{lacking}", *map(_rank_line, shown)]
    if len(sizes) > len(shown):
        largest = sizes.sort("num_bytes", "rank", descending=[True, False]).row(0, named=True)
        lines.append(f"… and {len(sizes) - len(shown)} more; the largest is {_rank_line(largest).lstrip()}")
    return [*lines, "load a part of it with ranks= and steps=, or --ranks and --steps of detlab compare"]


def _rank_line(row: dict[str, Any]) -> str:
    from detlab.run import num_bytes_text

    about = "about " if row["is_estimate"] else ""
    events = "events unknown" if row["num_events"] is None else f"{about}{row['num_events']:,} events"
    first, last = row["first_step"], row["last_step"]
    steps = "" if first is None else f", steps {first} to {last}"
    problem = f"; {row['problem']}" if row["problem"] else ""
    return f"  rank {row['rank']}: {num_bytes_text(row['num_bytes'])}, {events}{steps}{problem}"
