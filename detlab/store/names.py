"""Name tables: ids of one rank's callees and metas, each with a digest of its content.

Ids mean nothing outside their file. Whatever two runs are compared by is a content digest from here.
The sidecar is JSON lines, appended before the first event that uses a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from detlab.schema import Callee, Meta, TensorMeta


class NameTables:
    """The callees and metas of one rank, interned in order of first use."""

    def __init__(self) -> None:
        self.callees: list[Callee] = []
        self.metas: list[Meta] = []
        self._callee_ids: dict[Callee, int] = {}
        self._meta_ids: dict[Meta, int] = {}
        self._callee_hashes: list[int] = []
        self._meta_hashes: list[int] = []
        self._num_written = (0, 0)

    def callee_id(self, callee: Callee) -> int:
        """Give the id of a callee, a new one at its first use."""
        found = self._callee_ids.get(callee)
        if found is None:
            found = self._callee_ids[callee] = len(self.callees)
            self.callees.append(callee)
            self._callee_hashes.append(callee_hash(callee))
        return found

    def meta_id(self, meta: Meta) -> int:
        """Give the id of a meta, a new one at its first use."""
        found = self._meta_ids.get(meta)
        if found is None:
            found = self._meta_ids[meta] = len(self.metas)
            self.metas.append(meta)
            self._meta_hashes.append(meta_hash(meta))
        return found

    @property
    def callee_hashes(self) -> NDArray[np.uint64]:
        """Content digest of each callee, by id."""
        return np.array(self._callee_hashes, np.uint64)

    @property
    def meta_hashes(self) -> NDArray[np.uint64]:
        """Content digest of each meta (all of it but the call site), by id."""
        return np.array(self._meta_hashes, np.uint64)

    def unwritten_lines(self) -> list[str]:
        """Give the sidecar lines of the names that are new since the last call."""
        done_callees, done_metas = self._num_written
        lines = [
            json.dumps({"callee": list(callee), "hash": f"{digest:016x}"}, ensure_ascii=False)
            for callee, digest in zip(
                self.callees[done_callees:], self._callee_hashes[done_callees:], strict=True
            )
        ]
        lines += [
            json.dumps({"meta": list(meta), "hash": f"{digest:016x}"}, ensure_ascii=False)
            for meta, digest in zip(self.metas[done_metas:], self._meta_hashes[done_metas:], strict=True)
        ]
        self._num_written = (len(self.callees), len(self.metas))
        return lines


def callee_hash(callee: Callee) -> int:
    """Digest a callee by content; the separator cannot occur in JSON-safe names."""
    return int(xxh3_64_intdigest("\x1f".join(callee).encode()))


def meta_hash(meta: Meta) -> int:
    """Digest everything of a meta but the call site, which a moved line of code would change."""
    return int(xxh3_64_intdigest(repr(tuple(meta[:-1])).encode()))


def read_names(path: Path) -> tuple[NameTables, str]:
    """Read a sidecar as far as it is whole.

    Returns
    -------
    The tables, and one sentence about where reading stopped, empty when it did not.
    """
    names = NameTables()
    try:
        raw = path.read_bytes()
    except OSError as error:
        return names, f"{path.name} cannot be read: {error.strerror}"
    for number, line in enumerate(_lines(raw), start=1):
        if not _take(names, line):
            return names, f"{path.name} stops making sense at line {number}"
    cut = raw and not raw.endswith(b"\n")
    return names, f"{path.name} is cut inside its last line" if cut else ""


def _lines(raw: bytes) -> Iterable[bytes]:
    return raw[: raw.rfind(b"\n") + 1].splitlines()


def _take(names: NameTables, line: bytes) -> bool:
    """Add one sidecar line; false when it is damaged: its digest must be that of its content."""
    try:
        content: dict[str, Any] = json.loads(line)
        expected = int(content["hash"], 16)
        if "callee" in content:
            callee = Callee(*map(str, content["callee"]))
            return callee_hash(callee) == expected and names.callee_id(callee) == len(names.callees) - 1
        meta = _meta_from_json(content["meta"])
        return meta_hash(meta) == expected and names.meta_id(meta) == len(names.metas) - 1
    except (KeyError, TypeError, ValueError):
        return False


def _meta_from_json(content: list[Any]) -> Meta:
    inputs, outputs, algorithm, attributes, call_site = content
    return Meta(
        tuple(TensorMeta(d, tuple(shape), tuple(stride)) for d, shape, stride in inputs),
        tuple(TensorMeta(d, tuple(shape), tuple(stride)) for d, shape, stride in outputs),
        str(algorithm),
        tuple((str(key), str(value)) for key, value in attributes),
        str(call_site),
    )
