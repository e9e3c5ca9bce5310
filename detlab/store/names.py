"""Name tables: ids of one rank's callees and metas, each with a digest of its content.

Ids mean nothing outside their file; two runs are compared by the content digests. The sidecar is JSON
lines, appended before the first event that uses a name. A digest covers the JSON text of its name, so
that a table is checked, and compared with another, without being parsed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from detlab.errors import TraceError
from detlab.schema import Callee, Meta, TensorMeta

Name = TypeVar("Name")
Hashes = NDArray[np.uint64]
_Line = tuple[bytes, bytes]

_CALLEE_START: Final = b'","callee":'
_META_START: Final = b'","meta":'
_CALL_SITE: Final = b',"call_site":'
_DIGEST_START: Final = len('{"hash":"')
_CONTENT_START: Final = _DIGEST_START + 16


def callee_text(callee: Callee) -> bytes:
    """Write a callee as the JSON text that its digest covers."""
    return _json(list(callee))


def callee_hash(callee: Callee) -> int:
    """Digest a callee by content."""
    return int(xxh3_64_intdigest(callee_text(callee)))


def meta_text(meta: Meta) -> bytes:
    """Write a meta as the JSON text that its digest covers: all but the call site, which code moves."""
    return _json(list(meta[:-1]))


def _json(content: list[Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


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
        return found

    def meta_id(self, meta: Meta) -> int:
        """Give the id of a meta, a new one at its first use."""
        found = self._meta_ids.get(meta)
        if found is None:
            found = self._meta_ids[meta] = len(self.metas)
            self.metas.append(meta)
        return found

    @property
    def callee_hashes(self) -> Hashes:
        """Content digest of each callee, by id."""
        self._callee_hashes += map(callee_hash, self.callees[len(self._callee_hashes) :])
        return np.array(self._callee_hashes, np.uint64)

    @property
    def meta_hashes(self) -> Hashes:
        """Content digest of each meta, by id."""
        new = self.metas[len(self._meta_hashes) :]
        self._meta_hashes += (xxh3_64_intdigest(meta_text(meta)) for meta in new)
        return np.array(self._meta_hashes, np.uint64)

    def unwritten_lines(self) -> bytes:
        """Give the sidecar lines of the names that are new since the last call."""
        done_callees, done_metas = self._num_written
        lines = []
        for callee in self.callees[done_callees:]:
            text = callee_text(callee)
            lines.append(b'{"hash":"%s%s%s}\n' % (_digest(text), _CALLEE_START, text))
        for meta in self.metas[done_metas:]:
            text, place = meta_text(meta), _json([meta.call_site])[1:-1]
            lines.append(b'{"hash":"%s%s%s%s%s}\n' % (_digest(text), _META_START, text, _CALL_SITE, place))
        self._num_written = (len(self.callees), len(self.metas))
        return b"".join(lines)


def _digest(text: bytes) -> bytes:
    return xxh3_64_hexdigest(text).encode()


class NameFile:
    """The name tables in a sidecar, checked when a digest is needed and parsed name by name.

    Parameters
    ----------
    path
        The sidecar of one rank.
    as_far_as_whole
        Use the names before a damaged line; otherwise damage is an error as soon as a name is needed.
    """

    def __init__(self, path: Path, *, as_far_as_whole: bool = False) -> None:
        self._path, self._as_far_as_whole = path, as_far_as_whole

    def same_as(self, other: object) -> bool:
        """Say whether the other sidecar is the same bytes, so that ids mean the same in both."""
        return isinstance(other, NameFile) and self._raw == other._raw

    @cached_property
    def _raw(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError as error:
            raise TraceError(
                f"{self._path} cannot be read: {error.strerror}", "copy the run again"
            ) from error

    @cached_property
    def _tables(self) -> tuple[list[_Line], list[_Line]]:
        callees, metas, problem = self._read()
        if problem and not self._as_far_as_whole:
            raise TraceError(f"{self._path.parent}: {problem}.", "copy the rank's files again")
        return callees, metas

    def _read(self) -> tuple[list[_Line], list[_Line], str]:
        """Split the whole lines into (digest, text) of callees and metas, up to one that is damaged."""
        callees: list[_Line] = []
        metas: list[_Line] = []
        whole = self._raw[: self._raw.rfind(b"\n") + 1]
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            table, text = _split(line, callees, metas)
            if table is None or _digest(text) != line[_DIGEST_START:_CONTENT_START]:
                return callees, metas, f"{self._path.name} stops making sense at line {number}"
            table.append((line[_DIGEST_START:_CONTENT_START], line[_CONTENT_START:]))
        cut = len(whole) < len(self._raw)
        return callees, metas, f"{self._path.name} is cut inside its last line" if cut else ""

    @property
    def problem(self) -> str:
        """Say where the tables stop making sense; empty when they are whole. Reads all of them."""
        try:
            return self._read()[2]
        except TraceError as error:
            return error.finding

    @property
    def is_cut(self) -> bool:
        """Whether the file is missing or ends inside a line; looks at nothing but its end."""
        try:
            return bool(self._raw) and not self._raw.endswith(b"\n")
        except TraceError:
            return True

    @cached_property
    def callees(self) -> Sequence[Callee]:
        """The callees by id, each parsed when it is asked for."""
        return _Parsed([line for _, line in self._tables[0]], _callee)

    @cached_property
    def metas(self) -> Sequence[Meta]:
        """The metas by id, each parsed when it is asked for."""
        return _Parsed([line for _, line in self._tables[1]], _meta)

    @cached_property
    def callee_hashes(self) -> Hashes:
        """Content digest of each callee, by id."""
        return np.array([int(digest, 16) for digest, _ in self._tables[0]], np.uint64)

    @cached_property
    def meta_hashes(self) -> Hashes:
        """Content digest of each meta, by id."""
        return np.array([int(digest, 16) for digest, _ in self._tables[1]], np.uint64)

    def __getstate__(self) -> dict[str, object]:
        return {"_path": self._path, "_as_far_as_whole": self._as_far_as_whole}


def _split(line: bytes, callees: list[Any], metas: list[Any]) -> tuple[list[Any] | None, bytes]:
    """Give the table that a line belongs to and the text that its digest covers."""
    content = line[_CONTENT_START:]
    if content.startswith(_CALLEE_START):
        return callees, content[len(_CALLEE_START) : -1]
    call_site = content.rfind(_CALL_SITE)
    if content.startswith(_META_START) and call_site > 0:
        return metas, content[len(_META_START) : call_site]
    return None, b""


class _Parsed(Sequence[Name], Generic[Name]):
    """Names by id, parsed on first use."""

    def __init__(self, lines: list[bytes], parse: Any) -> None:
        self._lines = lines
        self._parse = parse
        self._done: dict[int, Name] = {}

    @overload
    def __getitem__(self, number: int) -> Name: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Name]: ...
    def __getitem__(self, number: int | slice) -> Name | Sequence[Name]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if number not in self._done:
            self._done[number] = self._parse(self._lines[number])
        return self._done[number]

    def __len__(self) -> int:
        return len(self._lines)


def _callee(line: bytes) -> Callee:
    return Callee(*json.loads(line[len(_CALLEE_START) : -1].decode("utf-8", "surrogatepass")))


def _meta(line: bytes) -> Meta:
    text = line[len(_META_START) : line.rfind(_CALL_SITE)]
    inputs, outputs, algorithm, attributes = json.loads(text.decode("utf-8", "surrogatepass"))
    call_site = json.loads(
        line[line.rfind(_CALL_SITE) + len(_CALL_SITE) : -1].decode("utf-8", "surrogatepass")
    )
    return Meta(
        tuple(TensorMeta(d, tuple(shape), tuple(stride)) for d, shape, stride in inputs),
        tuple(TensorMeta(d, tuple(shape), tuple(stride)) for d, shape, stride in outputs),
        algorithm,
        tuple((key, value) for key, value in attributes),
        call_site,
    )
