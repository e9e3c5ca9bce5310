"""The catalogue as a page: ``python -m detlab.catalog.page > docs/op_catalog.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from detlab.catalog import CATALOG, Entry

_HEAD: Final = """\
# Calls that are known not to repeat their bits

What makes each of them vary, the deterministic way, and the command that tests it. The page is made from
`detlab.catalog.CATALOG` by `python -m detlab.catalog.page`; `detlab.catalog.known(op)` finds the entry of an
op, and a finding of class kernel or collective names its own. Everything here is published or shown by a
test, and the source stands beside it. A call that is not here is not known to be deterministic, and whether
one that is here varies on your device and at your shapes, only a replay of the captured call tells.

*Shows as* is the class that a replay gives: `race`, `selection` or `uninitialised`; or `collective` for what
only all members of a group show together, in a comparison of two runs.
"""

_COLUMNS: Final = "| entry | calls | known on | shows as |\n| --- | --- | --- | --- |"


def page() -> str:
    """Give the whole page as Markdown."""
    rows = [
        f"| [{entry.anchor}](#{entry.anchor}) | {entry.calls} | {entry.device} | `{entry.seen}` |"
        for entry in CATALOG
    ]
    parts = [_HEAD, "\n".join([_COLUMNS, *rows]), *("\n".join(_section(entry)) for entry in CATALOG)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _section(entry: Entry) -> Iterator[str]:
    yield f"### {entry.anchor}\n"
    yield f"{entry.calls}. Known on: {entry.device}. Shows as: `{entry.seen}`.\n"
    if entry.ops:
        yield f"- **In a trace:** {', '.join(f'`{op}`' for op in entry.ops)}"
    yield f"- **Why it varies:** {entry.cause}."
    yield f"- **The deterministic way:** {entry.fix}."
    yield f"- **Check:** `{entry.check}`"
    yield f"- **Source:** {', '.join(f'[{source.title}]({source.url})' for source in entry.sources)}"


if __name__ == "__main__":
    sys.stdout.write(page())
