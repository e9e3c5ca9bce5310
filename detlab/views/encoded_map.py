"""The map of a comparison as a page carries it: every cell of every step, and what each cell is.

The other half is ``static/offline.js``, which answers as `detlab.views.cells.MapSource` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detlab.redaction import redacted
from detlab.schema import Mask, Phase, Verdict
from detlab.views.cells import MapSource
from detlab.views.cells.bands import layer_of
from detlab.views.encoded import as_base64, encode_numbers, encode_plane, encode_text
from detlab.views.map_html import SYMBOLS
from detlab.views.palette import VERDICT_COLOURS, css
from detlab.views.pooling import ORIGIN, Codes
from detlab.views.text import visible

MAX_NAME_BYTES: Final = 90_000
"""Names and order of calls take at most so many bytes, deflated; else cells do not name their calls."""

MAX_CALLS: Final = 2_000_000
"""So many calls of different programs are written at most; of others, cells do not name their calls."""

EMPTY: Final = {"rank": "untraced: no call was recorded", "op": "the op is not called here"}
"""What an empty cell says, by what its row is."""

_NONE: Final = 1 << 40  # more bytes than any map may take


class EncodedMap(NamedTuple):
    """A map as it is written into a page.

    Attributes
    ----------
    payload
        Texts of base64 by name: ``index``, ``calls``, and ``planes`` in the order in which the index lists
        them.
    pooled
        For each map that had to be pooled its name in words and how many columns became one.
    unnamed
        Number of ranks whose cells do not name their calls.
    """

    payload: dict[str, Any]
    pooled: list[tuple[str, int]]
    unnamed: int

    @property
    def num_bytes(self) -> int:
        """Size of the texts."""
        return len(json.dumps(self.payload))


def encode_map(source: MapSource, num_bytes: int) -> EncodedMap:
    """Write the map of a comparison.

    Parameters
    ----------
    source
        The map.
    num_bytes
        So many bytes may the cells take, deflated; columns of maps that are too large are pooled.
    """
    programs = _Programs(source)
    planes = _fit(_planes(source), num_bytes)
    index = {
        "verdicts": [[v.name.lower(), css(VERDICT_COLOURS[v]), SYMBOLS[v], 1 + v] for v in Verdict],
        "phases": [phase.name.lower() for phase in Phase],
        "steps": list(source.cmp.steps),
        "first": source.normal({}),
        "empty": EMPTY,
        "ops": list(source.planes.ops),
        "counts": [source.planes.counts([step]).sum(axis=0).tolist() for step in source.cmp.steps],
        "planes": [plane.entry for plane in planes],
        **_ranks(source),
        **programs.index(),
    }
    payload = {
        "index": as_base64(encode_text(json.dumps(shown(index), ensure_ascii=False, separators=(",", ":")))),
        "calls": as_base64(programs.calls),
        "planes": [as_base64(plane.content or b"") for plane in planes],
    }
    pooled = [(plane.name, plane.factor) for plane in planes if plane.factor > 1]
    return EncodedMap(payload, pooled, programs.num_unnamed)


def shown(content: Any) -> Any:
    """Make every text of some JSON safe to show: nothing hides in it, and what is redacted is taken out."""
    if isinstance(content, str):
        return visible(redacted(content))
    if isinstance(content, dict):
        return {name: shown(value) for name, value in content.items()}
    return [shown(each) for each in content] if isinstance(content, list | tuple) else content


def _ranks(source: MapSource) -> dict[str, Any]:
    """Give the rows of ranks, and how each order arranges them."""
    rows = []
    for row in source.rank_rows:
        usual = f"{row.rank} · {row.coordinate}"
        rows.append([row.rank, str(row.coordinate), row.number, None if row.label == usual else row.label])
    orders = []
    for name in source.orders:
        arranged, groups = source.arranged(name)
        orders.append([name, np.diff(arranged, prepend=0).tolist(), [list(group) for group in groups]])
    return {"ranks": rows, "orders": orders}


class _Programs:
    """Which calls stand at the columns of each step, once for all ranks that run the same program."""

    def __init__(self, source: MapSource) -> None:
        self._source = source
        self._layouts: dict[tuple[tuple[int, ...], ...], int] = {}
        self._sequences: dict[bytes, int] = {}
        self._calls: list[NDArray[np.int32]] = []
        self.num_unnamed = 0
        steps = {step: at for at, step in enumerate(source.cmp.steps)}
        named = self._choose_named()
        self._programs = [
            [
                [steps[step], self._layout(parts), self._sequence(number, parts) if number in named else -1]
                for step, parts in self._steps_of(number)
            ]
            for number in range(len(source.planes.programs))
        ]
        numbers = np.concatenate([np.empty(0, np.int32), *self._calls])
        self.calls = encode_numbers(numbers)
        if len(self.calls) > MAX_NAME_BYTES:
            self._leave_names_out()

    def _choose_named(self) -> set[int]:
        """Choose the programs whose calls are named: those that most ranks run, as many as there is room."""
        programs, left = self._source.planes.programs, MAX_CALLS
        widest = self._source.widest(self._source.cmp.steps)
        order = sorted(programs, key=lambda each: (each is not widest, -len(each.members), each.number))
        named = set()
        for program in order:
            left -= int(program.parts["num_rows"].sum())
            if left >= 0:
                named.add(program.number)
            else:
                self.num_unnamed += len(program.members)
        return named

    def _steps_of(self, number: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        parts = self._source.planes.programs[number].parts
        for step in np.unique(parts["step"]).tolist():
            yield step, parts[parts["step"] == step]

    def _layout(self, parts: NDArray[np.void]) -> int:
        """Give the number of a layout: phase, microbatch, whether run a has it, and calls of each part."""
        names = ["phase", "microbatch", "in_a", "num_rows"]
        return self._layouts.setdefault(tuple(map(tuple, parts[names].tolist())), len(self._layouts))

    def _sequence(self, number: int, parts: NDArray[np.void]) -> int:
        planes = self._source.planes
        callees = planes.callees_of(planes.programs[number])
        ranges = [callees[part["position"] : part["position"] + part["num_rows"]] for part in parts]
        calls = np.concatenate([np.empty(0, np.int32), *ranges])
        key = calls.tobytes()
        if key not in self._sequences:
            self._sequences[key] = len(self._calls)
            self._calls.append(calls)
        return self._sequences[key]

    def _leave_names_out(self) -> None:
        self._programs = [[[step, layout, -1] for step, layout, _ in steps] for steps in self._programs]
        self._calls, self.calls = [], encode_numbers(np.empty(0, np.int32))
        self.num_unnamed = len(self._source.cmp.ranks)

    def index(self) -> dict[str, Any]:
        """Give what the index says of programs."""
        names = self._source.planes.callees.names if self._calls else []
        scopes = list(dict.fromkeys(callee.scope for callee in names))
        at = {scope: number for number, scope in enumerate(scopes)}
        ops = {op: number for number, op in enumerate(self._source.planes.ops)}
        return {
            "scopes": [[scope, layer_of(scope)] for scope in scopes],
            "callees": [[at[each.scope], ops[each.op], each.group] for each in names],
            "layouts": [list(map(list, layout)) for layout in self._layouts],
            "programs": self._programs,
            "program_of": np.diff(self._source.planes.program_of, prepend=0).tolist(),
            "sequences": [len(calls) for calls in self._calls],
        }


class _Plane:
    """One map of cells on its way into the page.

    Parameters
    ----------
    key, name
        What the script and people call it.
    cells
        Gives the cells.
    is_presence
        Whether they hold which verdicts there are, see `detlab.views.cells.presence`, not one code.
    weight
        A map with a small one is pooled later than others.
    """

    def __init__(
        self, key: str, name: str, cells: Callable[[], Codes], is_presence: bool = False, weight: float = 1.0
    ) -> None:
        self._key, self.name, self._cells = key, name, cells
        self._is_presence, self._weight = is_presence, weight
        self.factor, self._shape = 1, (0, 0)
        self.content: bytes | None = None

    @property
    def num_bytes(self) -> int:
        return _NONE if self.content is None else len(self.content)

    @property
    def can_shrink(self) -> bool:
        """Whether there are neighbours left to pool."""
        return self.factor < self._shape[1]

    @property
    def claim(self) -> float:
        """How much this map is to blame when all of them are too large."""
        return self._weight * self.num_bytes

    def encode(self, fewer: int = 1) -> None:
        """Write the map with so many times fewer columns than the time before."""
        cells = self._cells()
        self._shape = cells.shape
        self.factor *= fewer
        self.content = encode_plane(pool_columns(cells, self.factor, self._is_presence))

    @property
    def entry(self) -> list[Any]:
        """What the index says of it: key, rows, columns, columns pooled into one, whether it is presence."""
        return [self._key, *self._shape, self.factor, self._is_presence]


def pool_columns(cells: Codes, factor: int, is_presence: bool) -> Codes:
    """Make one of so many neighbouring columns: their worst code, or every verdict among them."""
    if factor == 1:
        return cells
    whole = np.pad(cells, ((0, 0), (0, -cells.shape[1] % factor))).reshape(len(cells), -1, factor)
    join = np.bitwise_or if is_presence else np.maximum
    pooled: Codes = join.reduce(whole, axis=2)
    return pooled


def _planes(source: MapSource) -> list[_Plane]:
    """List the maps: all steps, each step, what is set aside there, and the two over steps."""
    steps = source.cmp.steps
    found = []
    if len(steps) > 1:
        found.append(
            _Plane("worst", "worst over steps", partial(_presence, source, "rank", "call"), True, 0.5)
        )
    found += [_Plane(str(at), f"step {step}", partial(_cells, source, step)) for at, step in enumerate(steps)]
    if any(rank.any_aside for rank in source.cmp.ranks):
        found += [
            _Plane(f"aside {at}", f"what is set aside in step {step}", partial(_aside, source, step))
            for at, step in enumerate(steps)
        ]
    for rows in ("rank", "op"):
        cells = partial(_presence, source, rows, "step")
        found.append(_Plane(f"{rows}-step", f"{rows}s by steps", cells, True))
    return found


def _cells(source: MapSource, step: int) -> Codes:
    """Give the codes of all compared ranks, without the row of those that were not."""
    return source.planes.cells("rank", "call", (step,))[:-1]


def _presence(source: MapSource, rows: str, columns: str) -> Codes:
    """Give which verdicts each cell of all steps holds."""
    plane = source.planes.plane(rows, columns, source.cmp.steps, (ORIGIN,))  # hiding one asks for all of them
    assert plane.is_presence
    return plane.cells[:-1] if rows == "rank" else plane.cells


def _aside(source: MapSource, step: int) -> Codes:
    """Give the code that each call which is set aside would have; 0 for all others."""
    planes = source.planes
    cells = np.zeros((len(source.cmp.ranks), planes.num_columns("call", (step,))), np.uint8)
    for number, rank in enumerate(source.cmp.ranks):
        if rank.any_aside:
            for part in planes.programs[planes.program_of[number]].slices:
                if part["step"] == step:
                    here = slice(int(part["position"]), int(part["position"] + part["num_rows"]))
                    aside = (rank.masks[here] & Mask.SET_ASIDE) != 0
                    into = cells[number, int(part["column"]) :][: len(aside)]
                    into[aside] = rank.verdicts[here][aside] + 1
    return cells


def _fit(planes: list[_Plane], num_bytes: int) -> list[_Plane]:
    """Write all maps, and pool the largest until they fit or nothing is left to pool."""
    for plane in planes:
        plane.encode()
    while (total := sum(plane.num_bytes for plane in planes)) > num_bytes:
        largest = max(
            (plane for plane in planes if plane.can_shrink), key=lambda plane: plane.claim, default=None
        )
        if largest is None:
            break
        largest.encode(4 if total > 3 * num_bytes else 2)
    return planes
