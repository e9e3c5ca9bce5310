"""The captured call as a noun, and its form in capture.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from detlab.captures.checks import FORMAT, as_of_today, check_whole
from detlab.captures.decode import decode, generator_spec, storage_spec
from detlab.captures.fields import EDITED_HINT, fields, printable
from detlab.captures.state import STATE_FIELDS
from detlab.captures.values import GeneratorSpec, StorageSpec, TensorSpec, TorchName, Value, encode, leaves
from detlab.digest import ALGORITHM
from detlab.errors import CaptureError

Row = TypeVar("Row")

CAPTURE_JSON: Final = "capture.json"
OP_NAME: Final = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)
"""``namespace.name.overload``, the only form of an op's name."""

_WIDTH: Final = 94
"""How wide names and values may be together in a summary."""

CALLABLE_NAME: Final = re.compile(r"[\w.<>-]{1,200}:[\w.<>-]{1,200}")
"""``module:qualified.name`` of a Python callable; shown to people, never looked up."""


@dataclass(frozen=True, slots=True, repr=False)
class Capture:
    """One call as it was about to be made, and the digests of what it gave.

    Attributes
    ----------
    op, schema
        ``namespace.name.overload`` and torch's schema of it at the time; for a Python callable
        ``module:qualified.name``, which is text only, and no schema.
    arguments
        (name, value) of every argument that was given, in the order of the schema.
    num_positional
        How many of them, from the first, are passed by position; 0 for an op.
    mutates
        Names of the arguments that the call changes, beside those of which the schema says it.
    storages
        What tensors and generator states refer to by position.
    generators
        The default generators that a seeded op may draw from; empty for any other op.
    in_digest
        The recorder's fold of the inputs; None when it gave none.
    input_digests
        One per tensor among the arguments, in order.
    output_digests
        One per output and then per mutated argument, as training saw them; empty when not known.
    state
        Threads, flags, versions and environment, see `detlab.captures.state`.
    path
        The folder that holds it.
    """

    op: str
    schema: str
    arguments: tuple[tuple[str, Value], ...]
    num_positional: int
    mutates: tuple[str, ...]
    storages: tuple[StorageSpec, ...]
    generators: tuple[GeneratorSpec, ...]
    site: str
    rank: int
    in_digest: int | None
    input_digests: tuple[int, ...]
    output_digests: tuple[int, ...]
    state: Mapping[str, Any]
    path: Path

    @property
    def is_op(self) -> bool:
        """Whether it is a call of an op of torch's dispatcher, not of a Python callable."""
        return OP_NAME.fullmatch(self.op) is not None

    @property
    def device(self) -> str:
        """The accelerator that the call used; ``cpu`` when it used none."""
        return main_device([storage.device for storage in self.storages], self.arguments)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a replay must know of the capture itself, one sentence each."""
        cut = sum(storage.full_bytes - storage.num_bytes for storage in self.storages)
        if not cut:
            return ()
        return (f"the capture is compact, without {cut:,} bytes of its storages: layout no longer exact",)

    @property
    def num_bytes(self) -> int:
        """Size of the blobs on disk."""
        return sum({storage.blob: storage.num_bytes for storage in self.storages}.values())

    def __repr__(self) -> str:
        width = max([len(name) for name, _ in self.arguments] + [8])
        rows = [("site", f"{self.site}, rank {self.rank}")]
        rows += [(name, _cut(value_text(value), _WIDTH - width)) for name, value in self.arguments]
        num_blobs = len({storage.blob for storage in self.storages})
        rows.append(("on disk", f"{self.num_bytes / 1e6:,.2f} MB in {num_blobs} blobs"))
        if self.mutates:
            rows.append(("changes", ", ".join(self.mutates)))
        rows += [("note", note) for note in self.notes]
        rows.append(("training", f"{self.device}, {_state_text(self.state)}"))
        return "\n".join([f"capture of {self.op}", *(f"  {name:<{width}}  {text}" for name, text in rows)])

    def to_json(self) -> dict[str, object]:
        """Give the content of capture.json; 64-bit digests are hexadecimal text."""
        return {
            "schema": FORMAT,
            "op": self.op,
            "op_schema": self.schema,
            "site": self.site,
            "rank": self.rank,
            "arguments": [{"name": name, "value": encode(value)} for name, value in self.arguments],
            "num_positional": self.num_positional,
            "mutates": list(self.mutates),
            "storages": [asdict(storage) for storage in self.storages],
            "generators": [asdict(generator) for generator in self.generators],
            "digests": {
                "algorithm": ALGORITHM,
                "in": [] if self.in_digest is None else _hex([self.in_digest]),
                "inputs": _hex(self.input_digests),
                "outputs": _hex(self.output_digests),
            },
            "state": dict(self.state),
        }

    @classmethod
    def from_json(cls, content: object, folder: Path) -> Capture:
        """Read the content of capture.json; the inverse of `to_json`.

        Raises
        ------
        CaptureError
            The content is of another version, or not exactly of this form.
        """
        place = str(folder / CAPTURE_JSON)
        found = fields(as_of_today(content, place), _FIELDS, place)
        if not OP_NAME.fullmatch(found["op"]) and not CALLABLE_NAME.fullmatch(found["op"]):
            raise CaptureError(f"{place}: {found['op']!r} is not the name of an op.", EDITED_HINT)
        digests = fields(found["digests"], _DIGEST_FIELDS, f"{place}: digests")
        if digests["algorithm"] != ALGORITHM:
            raise CaptureError(
                f"{place} has digests of {digests['algorithm']!r}; this detlab computes {ALGORITHM}.",
                "read it with the version of detlab that wrote it",
            )
        in_digest, inputs, outputs = (
            _unhex(digests[k], f"{place}: {k}") for k in ("in", "inputs", "outputs")
        )
        capture = cls(
            op=found["op"],
            schema=found["op_schema"],
            arguments=_rows(found, "arguments", _argument, place),
            num_positional=found["num_positional"],
            mutates=tuple(found["mutates"]),
            storages=_rows(found, "storages", storage_spec, place),
            generators=_rows(found, "generators", generator_spec, place),
            site=found["site"],
            rank=found["rank"],
            in_digest=in_digest[0] if in_digest else None,
            input_digests=inputs,
            output_digests=outputs,
            state=fields(found["state"], STATE_FIELDS, f"{place}: state"),
            path=folder,
        )
        check_whole(capture, place)
        return capture


def main_device(devices: Sequence[str], arguments: Sequence[tuple[str, Value]]) -> str:
    """Give the first device of storages or arguments that is not the CPU; ``cpu`` when there is none."""
    values = leaves([value for _, value in arguments])
    named = [value.name for value in values if isinstance(value, TorchName) and value.kind == "device"]
    return next((device for device in (*devices, *named) if not device.startswith("cpu")), "cpu")


def value_text(value: Value) -> str:
    """Write a value for people, in a few words."""
    if isinstance(value, TensorSpec):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        shown = ", ".join(value_text(item) for item in value[:4])
        return f"[{shown}{f', … {len(value)} in all' if len(value) > 4 else ''}]"
    if isinstance(value, dict):
        shown = ", ".join(f"{name}: {value_text(item)}" for name, item in list(value.items())[:3])
        return f"{{{shown}{f', … {len(value)} in all' if len(value) > 3 else ''}}}"
    if isinstance(value, TorchName):
        return value.name
    return "generator" if isinstance(value, GeneratorSpec) else repr(value)


_FIELDS: Final[dict[str, type]] = {
    "schema": str,
    "op": str,
    "op_schema": str,
    "site": str,
    "rank": int,
    "arguments": list,
    "num_positional": int,
    "mutates": list,
    "storages": list,
    "generators": list,
    "digests": dict,
    "state": dict,
}
_DIGEST_FIELDS: Final[dict[str, type]] = {"algorithm": str, "in": list, "inputs": list, "outputs": list}


def _rows(
    found: Mapping[str, Any], name: str, read: Callable[[object, str], Row], place: str
) -> tuple[Row, ...]:
    return tuple(read(body, f"{place}: {name}[{i}]") for i, body in enumerate(found[name]))


def _argument(body: object, place: str) -> tuple[str, Value]:
    if not isinstance(body, dict) or set(body) != {"name", "value"} or not isinstance(body["name"], str):
        raise CaptureError(f"{place} is not a name with a value.", EDITED_HINT)
    printable(body["name"], f"{place}.name")
    return body["name"], decode(body["value"], f"{place} ({body['name']})")


def _hex(digests: Iterable[int]) -> list[str]:
    return [f"{digest:016x}" for digest in digests]


def _unhex(body: list[object], place: str) -> tuple[int, ...]:
    if not all(isinstance(text, str) and re.fullmatch("[0-9a-f]{16}", text) for text in body):
        raise CaptureError(f"{place} holds what is not a 64-bit digest.", EDITED_HINT)
    return tuple(int(str(text), 16) for text in body)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _state_text(state: Mapping[str, Any]) -> str:
    flags = "deterministic algorithms" if state["deterministic"] else "default algorithms"
    return f"{state['threads']} threads, {flags}, torch {state['versions'].get('torch', 'unknown')}"
