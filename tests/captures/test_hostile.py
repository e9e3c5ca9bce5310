"""A capture that was made to do harm is refused with a sentence: nothing runs, nothing outside is read."""

from __future__ import annotations

import copy
import importlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import detlab as dl
from detlab.captures import save_capture
from detlab.errors import CaptureError

aten = torch.ops.aten


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of a small capture with a bit of everything."""
    path = tmp_path / "capture"
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(3, 4, generator=generator)
    args = (values.t(), [None, torch.tensor([0, 2])], torch.full((4, 2), 0.1))
    save_capture(
        path, aten.index_put_.default, args, {"accumulate": True}, site="1/0/data//x#0", rank=0
    ).complete([])
    return path


def content_of(folder: Path) -> Any:
    return json.loads((folder / "capture.json").read_text())


def write(folder: Path, content: object) -> None:
    (folder / "capture.json").write_text(json.dumps(content))


def blob(folder: Path) -> Path:
    return sorted(folder.glob("*.bin"))[0]


def refusal(folder: Path) -> CaptureError:
    """Give the refusal of loading or replaying a capture."""
    with pytest.raises(CaptureError) as refused:
        dl.replay(dl.load_capture(folder), trials=1)
    assert refused.value.hint
    return refused.value


def test_capture_is_replayed_before_it_is_changed(folder: Path) -> None:
    assert dl.replay(dl.load_capture(folder), trials=2).num_distinct == 1


def test_wrong_digest(folder: Path) -> None:
    content = content_of(folder)
    content["digests"]["inputs"][0] = "0" * 16
    write(folder, content)
    assert "does not restore to its captured digests" in refusal(folder).finding


def test_missing_blob(folder: Path) -> None:
    blob(folder).unlink()
    assert "cannot be read: No such file" in refusal(folder).finding


def test_blob_that_is_a_link_out_of_the_folder(folder: Path) -> None:
    path, secret = blob(folder), folder.parent / "secret"
    path.rename(secret)  # the very bytes that belong there
    path.symlink_to(secret)
    assert "is a link" in refusal(folder).finding


def test_capture_json_that_is_a_link(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere.json"
    (folder / "capture.json").rename(elsewhere)
    (folder / "capture.json").symlink_to(elsewhere)
    assert "is a link" in refusal(folder).finding


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_blob_that_is_a_pipe_does_not_hang(folder: Path) -> None:
    path = blob(folder)
    path.unlink()
    os.mkfifo(path)
    assert "is not a plain file" in refusal(folder).finding


def test_blob_that_is_a_folder(folder: Path) -> None:
    path = blob(folder)
    path.unlink()
    path.mkdir()
    assert refusal(folder).finding.startswith(str(path))


def test_sparse_blob_as_large_as_claimed_is_not_taken_for_memory(folder: Path) -> None:
    content = content_of(folder)
    content["storages"][0] |= {"num_bytes": 2**62, "full_bytes": 2**62}
    write(folder, content)
    assert "the capture says 4611686018427387904" in refusal(folder).finding


TENSORS: dict[str, tuple[dict[str, object], str]] = {
    "negative size": ({"shape": [-4, 3]}, "not a list of integers from 0 up"),
    "negative stride": ({"stride": [1, -4]}, "not a list of integers from 0 up"),
    "negative offset": ({"offset": -1}, "not a list of integers from 0 up"),
    "size beyond 64 bits": ({"shape": [2**63, 3]}, "not a list of integers from 0 up"),
    "huge size": ({"shape": [2**62, 3]}, "larger than its storage"),
    "huge stride": ({"stride": [2**62, 4]}, "larger than its storage"),
    "huge offset": ({"offset": 2**62}, "larger than its storage"),
    "huge by repetition": ({"shape": [2**40, 2**20], "stride": [0, 0]}, "more than this machine's memory"),
    "storage of another": ({"storage": 99}, "names storage 99 of 3"),
    "dtype that is a function": ({"dtype": "load"}, "torch has no dtype 'load'"),
    "dtype that is a module": ({"dtype": "onnx"}, "torch has no dtype 'onnx'"),
    "dtype with a path": ({"dtype": "os.path"}, "not a name"),
    "dtype that is a class": ({"dtype": "quint8"}, "cannot be restored"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_that_cannot_be(name: str, folder: Path) -> None:
    changes, sentence = TENSORS[name]
    content = content_of(folder)
    content["arguments"][0]["value"]["tensor"] |= changes
    write(folder, content)
    assert sentence in refusal(folder).finding


STORAGES: dict[str, tuple[dict[str, object], str]] = {
    "path out of the folder": ({"blob": "../../../etc/passwd"}, "not a sha256"),
    "absolute path": ({"blob": "/etc/passwd"}, "not a sha256"),
    "path and the length of a hash": ({"blob": "../" * 20 + "pass"}, "not a sha256"),
    "null byte": ({"blob": "0" * 63 + "\0"}, "not a sha256"),
    "negative size": ({"num_bytes": -1}, "not a list of integers from 0 up"),
    "larger than it was": ({"num_bytes": 2**40}, "holds more bytes than its storage had"),
    "device of no kind": ({"device": "nowhere"}, "this machine has no nowhere"),
    "device with a path": ({"device": "cuda:../0"}, "not a name"),
    "alignment of no kind": ({"alignment": 3}, "no alignment"),
}


@pytest.mark.parametrize("name", STORAGES)
def test_storage_that_cannot_be(name: str, folder: Path) -> None:
    changes, sentence = STORAGES[name]
    content = content_of(folder)
    content["storages"][1] |= changes  # of an argument that is only read
    write(folder, content)
    assert sentence in refusal(folder).finding


OPS = {
    "aten.nosuch.default": "not registered",
    "aten.save.default": "not registered",
    "aten.from_file.default": "has changed since it was captured",
    "os.system.default": "not one of torch's own",
    "subprocess.run.default": "not one of torch's own",
    "c10d.allreduce_.default": "communicates",
    "os:system": "no file may name what to run",
    "builtins:eval": "no file may name what to run",
    "../op:x": "not the name of an op",
    "os.system('true')": "not the name of an op",
    "aten.neg.default\n": "not the name of an op",
    "": "not the name of an op",
}


@pytest.mark.parametrize("op", OPS)
def test_op_that_must_not_run(op: str, folder: Path) -> None:
    content = content_of(folder)
    content["op"] = op
    write(folder, content)
    assert OPS[op] in refusal(folder).finding


def test_op_that_reads_and_writes_files_under_its_true_schema(folder: Path) -> None:
    content = content_of(folder)
    made = folder.parent / "made"
    content |= {"op": "aten.from_file.default", "op_schema": str(aten.from_file.default._schema)}
    content["arguments"] = [
        {"name": "filename", "value": str(made)},
        {"name": "shared", "value": True},
        {"name": "size", "value": 4},
    ]
    content["digests"]["inputs"] = []
    write(folder, content)
    assert "reads or writes files" in refusal(folder).finding
    assert not made.exists()


@pytest.mark.parametrize("op", ["hostile_module:run", "hostile_module.run.default"])
def test_module_that_a_file_names_is_never_imported(
    op: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = folder.parent / "imported"
    (folder.parent / "hostile_module.py").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    content = content_of(folder)
    write(folder, content | {"op": op, "op_schema": ""})
    refusal(folder)
    assert not mark.exists()
    assert "hostile_module" not in sys.modules
    importlib.import_module("hostile_module")
    assert mark.exists()  # it could have been
    del sys.modules["hostile_module"]


@pytest.mark.parametrize("site", ["\x1b[2J", "a\nverdict   not seen", "\u202e", "\ud800"], ids=ascii)
def test_text_that_steers_a_terminal(site: str, folder: Path) -> None:
    write(folder, content_of(folder) | {"site": site})
    assert "not one line of printable text" in refusal(folder).finding


BOMBS: dict[str, Callable[[str], str]] = {
    "deep lists": lambda text: text.replace('"rank": 0', '"rank": ' + "[" * 200_000),
    "deep objects": lambda text: text.replace('"rank": 0', '"rank": ' + '{"a":' * 200_000),
    "deep argument": lambda text: text.replace('"value": true', f'"value": {"".join(deep(60))}'),
    "number of a million digits": lambda text: text.replace('"rank": 0', '"rank": ' + "9" * 1_000_000),
    "field twice": lambda text: text.replace('"rank": 0', '"rank": 0, "rank": 1'),
    "name twice": lambda text: text.replace('"name": "values"', '"name": "self"'),
    "NaN": lambda text: text.replace('"rank": 0', '"rank": NaN'),
    "infinity": lambda text: text.replace('"rank": 0', '"rank": -Infinity'),
    "rank below zero": lambda text: text.replace('"rank": 0', '"rank": -1'),
    "nothing": lambda text: "",
}


def deep(depth: int) -> Iterator[str]:
    yield from ('{"list": [' for _ in range(depth))
    yield "1"
    yield from ("]}" for _ in range(depth))


@pytest.mark.parametrize("name", BOMBS)
def test_json_that_is_a_trap(name: str, folder: Path) -> None:
    path = folder / "capture.json"
    text = path.read_text()
    changed = BOMBS[name](text)
    assert changed != text
    path.write_text(changed)
    assert "capture.json" in refusal(folder).finding


def test_json_of_enormous_size_is_not_read(folder: Path) -> None:
    os.truncate(folder / "capture.json", 2**40)  # sparse: it has no bytes on disk
    assert "more than any capture needs" in refusal(folder).finding


def test_list_of_a_million_numbers_is_refused_in_a_sentence(folder: Path) -> None:
    content = content_of(folder)
    content["arguments"][0]["value"]["tensor"]["shape"] = [1] * 1_000_000
    write(folder, content)
    assert len(str(refusal(folder))) < 500


@pytest.mark.parametrize(
    "changes",
    [{"num_positional": 99}, {"num_positional": -1}, {"mutates": ["no"]}, {"mutates": [3]}],
    ids=str,
)
def test_arguments_that_the_call_does_not_have(changes: dict[str, object], folder: Path) -> None:
    write(folder, content_of(folder) | changes)
    refusal(folder)


def end_of(folder: Path) -> str:
    """Say how a changed capture ends: refused or replayed; any other end is an error of ours."""
    try:
        capture = dl.load_capture(folder)
        repr(capture)
        dl.replay(capture, trials=1)
    except CaptureError as error:
        assert error.finding
        assert len(str(error)) < 5_000
        return "refused"
    return "replayed"


def nodes(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from nodes(item, (*path, key))


ODD: list[object] = [
    None, True, -1, 0, 2**31, 2**63, 2**200, 0.5, "", "x", "cpu", "0" * 64, [], [[]], {}, {"tuple": []},
    {"float": "nan:00"}, {"dict": [["a", None]]}, {"generator": {"device": "cpu", "state": 0}},
]  # fmt: skip


def test_any_field_may_hold_anything(folder: Path) -> None:
    content = content_of(folder)
    chooser = random.Random(1)  # noqa: S311 - the same cases in every run
    cases = [(path, odd) for path in nodes(content) for odd in ODD]
    ends = []
    for path, odd in chooser.sample(cases, 400):
        changed = copy.deepcopy(content)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = odd
        write(folder, changed)
        ends.append(end_of(folder))
    assert ends.count("refused") > 300


def test_any_byte_may_be_another(folder: Path) -> None:
    path = folder / "capture.json"
    whole = path.read_bytes()
    chooser = random.Random(2)  # noqa: S311 - the same cases in every run
    ends = []
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(chooser.choice([1, 1, 1, 3])):
            changed[chooser.randrange(len(changed))] = chooser.choice(
                [chooser.randrange(256), *b'0123[]{}":,-']
            )
        if chooser.random() < 0.1:
            del changed[chooser.randrange(len(changed)) :]
        path.write_bytes(changed)
        ends.append(end_of(folder))
    assert ends.count("refused") > 300
