"""What a run and a rank say about themselves: the manifest and the per-rank header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from detlab.errors import TraceError
from detlab.schema import SCHEMA_VERSION, Coordinate
from detlab.store.layout import MANIFEST, RankFiles, write_json


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is true of a whole run; every rank would write the same, so no rank has to ask another.

    Attributes
    ----------
    label
        Name of the run for people.
    world_size
        Number of ranks that trained, recorded or not.
    layout
        Size of each parallel axis: tp, pp, cp, dp, ep, vpp.
    recorder
        Settings of the recorder.
    created
        ISO 8601, UTC.
    racks
        The rack of each host, by the ``host`` in the recipes; empty when nobody stated it here. Ranks that
        were recorded with ``DETLAB_RACK`` state theirs themselves; otherwise, or where that is wrong, write
        ``"racks": {"n0": "r1", …}`` into the manifest.
    """

    label: str
    world_size: int
    layout: Mapping[str, int] = field(default_factory=dict)
    recorder: Mapping[str, object] = field(default_factory=dict)
    created: str = ""
    racks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankHeader:
    """What one rank knows of itself.

    Attributes
    ----------
    rank, coordinate
        Global rank and its place in the parallel layout.
    groups
        For each communicator label its members as global ranks, in group order.
    recipe
        Arguments, environment and versions as seen on this rank, its ``host``, and where they are known
        its ``rack`` and ``local_rank``.
    algorithm
        Name of the digest.
    """

    rank: int
    coordinate: Coordinate
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    recipe: Mapping[str, object] = field(default_factory=dict)
    algorithm: str = ""

    def save(self, folder: Path) -> None:
        """Write the header beside the rank's stream, replacing an earlier one."""
        content = asdict(self) | {"schema_version": SCHEMA_VERSION, "coordinate": self.coordinate._asdict()}
        write_json(RankFiles(folder, self.rank).header, content)

    @classmethod
    def load(cls, folder: Path, rank: int) -> RankHeader:
        """Read the header of one rank; raise `TraceError` when it is not one of this version."""
        path = RankFiles(folder, rank).header
        content = _read_versioned(path)
        try:
            header = cls(
                rank=int(content["rank"]),
                coordinate=Coordinate(**{k: int(v) for k, v in content["coordinate"].items()}),
                groups={k: tuple(map(int, v)) for k, v in content["groups"].items()},
                recipe=dict(content["recipe"]),
                algorithm=str(content["algorithm"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceError(f"{path} is not a rank header: {error!r}", "record the run anew") from error
        if header.rank != rank:
            raise TraceError(
                f"{path} says that it is rank {header.rank}.", "give the file the number of its rank back"
            )
        return header


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest unless a rank was faster; no collective is needed."""
    path = folder / MANIFEST
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():  # two ranks that both get here write the same content
        write_json(path, {"schema_version": SCHEMA_VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run; raise `TraceError` when it is not one of this version."""
    path = folder / MANIFEST
    content = _read_versioned(path)
    content.pop("schema_version")
    try:
        manifest = Manifest(**content)
        sizes = {str(axis): int(size) for axis, size in manifest.layout.items()}
        racks = {str(host): str(rack) for host, rack in manifest.racks.items()}
        return replace(
            manifest,
            label=str(manifest.label),
            world_size=int(manifest.world_size),
            layout=sizes,
            racks=racks,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"{path} is not a manifest: {error}", "record the run anew") from error


def _read_versioned(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise TraceError(f"{path} cannot be read: {error}", "copy the run's folder again, whole") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        found = content.get("schema_version") if isinstance(content, dict) else type(content).__name__
        raise TraceError(
            f"{path} has schema version {found!r}; this detlab reads version {SCHEMA_VERSION}.",
            "read it with the version of detlab that recorded it",
        )
    return content
