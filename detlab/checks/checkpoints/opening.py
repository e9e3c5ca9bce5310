"""Opens a checkpoint of any known format: which files it has, and the leaves of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from detlab.checks.checkpoints import safetensors
from detlab.checks.checkpoints.distributed import METADATA, Reader
from detlab.checks.checkpoints.files import OpenFiles, inside
from detlab.checks.checkpoints.layout import Checkpoint, Leaf
from detlab.checks.checkpoints.torch_save import Found, Structures
from detlab.errors import InputError
from detlab.text import visible

_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")
_KNOWN: Final = (
    "give a torch.save file, a folder of them, a folder of torch.distributed.checkpoint or Megatron's "
    "torch_dist, or safetensors"
)
_MAX_FILES: Final = 100_000
_MAX_SAID: Final = 100
"""Unreadable leaves that are each a problem of their own; all are in `Checkpoint.unreadable`."""


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint: name its leaves and find the bytes of each; no data are read.

    Parameters
    ----------
    path
        A torch.save file or a folder of them (Megatron's ``mp_rank_*/model_optim_rng.pt``, DeepSpeed's zero
        files), a folder of torch.distributed.checkpoint or of Megatron's torch_dist, a safetensors file, its
        index or a folder of these. Of a folder of checkpoints the one is taken that its
        ``latest_checkpointed_iteration.txt`` or ``latest`` names.

    Raises
    ------
    InputError
        There is no checkpoint, or none that can be read. What is damaged in part is opened, and
        `Checkpoint.problems` says what is missing.
    """
    place = _latest(Path(path))
    with OpenFiles() as files:
        if place.is_file():
            return _one_file(place, files)
        if (place / METADATA).is_file():
            return _distributed(place, files)
        return _folder(place, files)


def _latest(path: Path) -> Path:
    """Follow the file that names the latest of several checkpoints."""
    if not path.exists():
        raise InputError(f"{path} does not exist", _KNOWN)
    tracker, latest = path / "latest_checkpointed_iteration.txt", path / "latest"
    if tracker.is_file():
        word = tracker.read_text("utf-8", "replace")[:40].strip()
        if not re.fullmatch(r"[0-9]{1,12}|release", word):
            raise InputError(f"{tracker} names no iteration: '{word}'", "give the folder of one iteration")
        return _named(path, word if word == "release" else f"iter_{int(word):07d}")
    if latest.is_file() and not latest.is_symlink():
        return _named(path, latest.read_text("utf-8", "replace")[:200].strip())
    if (path / METADATA).exists() or not path.is_dir():
        return path
    # Megatron's and torchtitan's folders of steps; NeMo keeps the checkpoint in ``weights``
    several = sorted({*path.glob("iter_*"), *(each.parent for each in path.glob(f"*/{METADATA}"))})
    if len(several) > 1:
        hint = f"give one of them, such as {several[-1]}"
        raise InputError(f"{path} holds {len(several)} checkpoints and does not name the latest", hint)
    return several[0] if several else path


def _named(folder: Path, name: str) -> Path:
    if not re.fullmatch(r"[\w.+-]+", name) or name in (".", "..") or not (folder / name).is_dir():
        raise InputError(f"{folder} names '{name}' as its latest checkpoint, which is not there")
    return folder / name


def _one_file(path: Path, files: OpenFiles) -> Checkpoint:
    if path.name.endswith(safetensors.INDEX):
        return _safetensors(path, files)
    if path.name.endswith(".json") or path.name == METADATA:
        raise InputError(f"{path} is no checkpoint by itself", f"give its folder, {path.parent}")
    if path.name.endswith(".safetensors"):
        found = safetensors.read_file(path, files)
        return _checkpoint(path, "safetensors", found)
    return _checkpoint(path, "torch.save", Structures().read(files.whole(path)))


def _checkpoint(path: Path, kind: str, found: Found, problems: Sequence[str] = ()) -> Checkpoint:
    if not found.leaves and not found.unreadable:
        raise InputError(
            f"{path} holds no leaf that could be read: {'; '.join(problems) or 'it is empty'}", _KNOWN
        )
    known = dict.fromkeys(problems)
    said = [visible(f"{name}: {why}") for name, why in found.unreadable.items() if why not in known]
    return Checkpoint(path, kind, found.leaves, (*known, *said[:_MAX_SAID]), found.unreadable)


def _distributed(folder: Path, files: OpenFiles) -> Checkpoint:
    reader = Reader(folder, files)
    reader.read()
    found = Found(reader.leaves, reader.unreadable)
    megatron = (folder / "metadata.json").is_file() or (folder / "common.pt").is_file()
    problems = [*reader.problems]
    if (folder / "common.pt").is_file():
        problems += _add(found, folder, "common.pt", "", files)
    elif megatron:
        problems.append(f"{folder / 'common.pt'} is missing")
    kind = "megatron torch_dist" if megatron else "torch.distributed.checkpoint"
    return _checkpoint(folder, kind, found, problems)


def _add(found: Found, folder: Path, name: str, prefix: str, files: OpenFiles) -> list[str]:
    """Add the leaves of one torch.save file of a folder; give the problems."""
    try:
        path = inside(folder, name)
        more = Structures().read(files.whole(path), prefix)
    except (InputError, OSError) as error:
        why = getattr(error, "finding", str(error))
        found.unreadable[prefix or name] = why
        return [why]
    twice = [key for key in more.leaves if key in found.leaves]
    fresh: dict[str, Leaf] = {key: leaf for key, leaf in more.leaves.items() if key not in found.leaves}
    found.leaves.update(fresh)
    found.unreadable.update(more.unreadable)
    shown = [f"{folder / name}: '{key}' is the name of another leaf too" for key in twice[:10]]
    return [*more.unreadable.values(), *shown]


def _folder(folder: Path, files: OpenFiles) -> Checkpoint:
    """Open a folder of files that are whole each."""
    index = sorted(folder.glob(f"*{safetensors.INDEX}"))
    if len(index) == 1:
        return _safetensors(index[0], files)
    if _backend(folder) not in ("", "torch_dist"):
        raise InputError(f"{folder} was saved with the backend '{_backend(folder)}'", "save it as torch_dist")
    if any(folder.glob("*.distcp")):
        raise InputError(
            f"{folder} holds .distcp files but no .metadata: it was not saved to the end",
            "give a checkpoint that was finished, by all ranks together; .metadata is written last",
        )
    names = sorted(_files(folder))
    tensors = [name for name in names if name.endswith(".safetensors")]
    if tensors:
        return _loose_safetensors(folder, tensors, files)
    pickles = [name for name in names if name.endswith(_SUFFIXES)]
    if not pickles:
        raise InputError(f"{folder} holds no checkpoint of a known format", _KNOWN)
    found, problems = Found({}, {}), []
    for name, prefix in _prefixes(pickles).items():
        problems += _add(found, folder, name, prefix, files)
    zero = any(re.search(r"zero_pp_rank_\d+_mp_rank_\d+", name) for name in pickles)
    return _checkpoint(folder, "deepspeed zero" if zero else "torch.save", found, problems)


def _files(folder: Path) -> Iterable[str]:
    for num, path in enumerate(folder.rglob("*")):
        if num > _MAX_FILES:
            raise InputError(
                f"{folder} holds more than {_MAX_FILES:,} files", "give the folder of one checkpoint"
            )
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _backend(folder: Path) -> str:
    try:
        return str(json.loads((folder / "metadata.json").read_bytes()).get("sharded_backend", ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _prefixes(names: list[str]) -> dict[str, str]:
    """Give what stands before the names of each file's leaves: its place, without what all have in common."""
    parts = {name: [*name.split("/")[:-1], Path(name).stem] for name in names}
    for each in parts.values():
        if each[-1] == "model_optim_rng":  # Megatron's file for all but the distributed optimizer
            each.pop()
    while len(names) > 1 and all(parts.values()) and len({each[0] for each in parts.values()}) == 1:
        for each in parts.values():
            each.pop(0)
    return {name: ".".join(each) if len(names) > 1 else "" for name, each in parts.items()}


def _safetensors(index: Path, files: OpenFiles) -> Checkpoint:
    paths, refused = safetensors.indexed_files(index)
    found, problems = Found({}, dict(refused)), list(refused.values())
    read: dict[Path, Found] = {}
    for name, path in paths.items():
        try:
            part = read.get(path) or read.setdefault(path, safetensors.read_file(path, files))
        except InputError as error:
            part = read.setdefault(path, Found({}, {}))
            problems.append(error.finding)
        if name in part.leaves:
            found.leaves[name] = part.leaves[name]
        else:
            found.unreadable[name] = f"'{name}' is not in {path}"
        if name in part.unreadable:
            found.unreadable[name] = part.unreadable[name]
    return _checkpoint(index.parent, "safetensors", found, problems)


def _loose_safetensors(folder: Path, names: list[str], files: OpenFiles) -> Checkpoint:
    """Read safetensors files without an index: one model in several files, or a file per rank."""
    found, problems = Found({}, {}), []
    parts: dict[str, Found] = {}
    for name in names:
        try:
            parts[name] = safetensors.read_file(inside(folder, name), files)
        except InputError as error:
            problems.append(error.finding)
    total = sum(len(part.leaves) for part in parts.values())
    apart = total == len({key for part in parts.values() for key in part.leaves})
    prefixes = _prefixes(names)
    for name, part in parts.items():
        before = "" if apart else f"{prefixes[name]}."
        found.leaves.update(
            {f"{before}{key}": replace(leaf, name=before + key) for key, leaf in part.leaves.items()}
        )
        found.unreadable.update({f"{before}{key}": why for key, why in part.unreadable.items()})
    return _checkpoint(folder, "safetensors", found, problems)
