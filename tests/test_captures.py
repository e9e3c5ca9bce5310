"""Captures on disk: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import detlab as dl
from detlab.captures import Capture, find_capture, load_capture, save_capture
from detlab.captures.decode import decode
from detlab.captures.values import GeneratorSpec, TensorSpec, TorchName, encode
from detlab.digest import scalar_text, tensor_digest
from detlab.errors import CaptureError

aten = torch.ops.aten
SITE = "1/0/forward/head/aten.add.Tensor#0"


def capture_add(folder: Path, *tensors: torch.Tensor) -> Capture:
    """Capture an addition of two tensors into a folder."""
    a, b = tensors or (torch.tensor([1.5, 2.5]), torch.tensor([0.25, 0.5]))
    pending = save_capture(folder, aten.add.Tensor, (a, b), {"alpha": 2}, site=SITE, rank=3, in_digest=7)
    pending.complete([a + 2 * b])
    return load_capture(folder)


def change(folder: Path, edit: Callable[[Any], object]) -> None:
    """Change the content of capture.json in place."""
    path = folder / "capture.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_loading_gives_what_was_saved(tmp_path: Path) -> None:
    a, b = torch.tensor([1.5, 2.5]), torch.tensor([0.25, 0.5])
    capture = capture_add(tmp_path / "x", a, b)
    assert (capture.op, capture.site, capture.rank, capture.in_digest) == ("aten.add.Tensor", SITE, 3, 7)
    assert capture.schema == str(aten.add.Tensor._schema)
    assert [name for name, _ in capture.arguments] == ["self", "other", "alpha"]
    assert capture.input_digests == (tensor_digest(a), tensor_digest(b))
    assert capture.output_digests == (tensor_digest(a + 2 * b),)
    assert capture.state["threads"] == torch.get_num_threads()


def test_equal_storages_share_a_blob(tmp_path: Path) -> None:
    capture = capture_add(tmp_path, torch.ones(4), torch.ones(4))
    assert len(capture.storages) == 2
    assert len(list(tmp_path.glob("*.bin"))) == 1
    assert capture.num_bytes == 16


def test_environment_that_reaches_kernels_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTE_FLASH_ATTN", "0")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    env = capture_add(tmp_path).state["env"]
    assert env["NVTE_FLASH_ATTN"] == "0"
    assert "SECRET_TOKEN" not in env


def test_summary_fits_one_screen(tmp_path: Path) -> None:
    lines = repr(capture_add(tmp_path)).splitlines()
    assert lines[0] == "capture of aten.add.Tensor"
    assert any("float32[2]" in line for line in lines)
    assert len(lines) < 20
    assert max(map(len, lines)) < 100


def test_long_arguments_are_cut_in_the_summary(tmp_path: Path) -> None:
    names = {f"a parameter with a long name {number}": torch.ones(2) for number in range(9)}
    capture = dl.capture(lambda tensors: tensors, names, path=tmp_path)
    assert max(map(len, repr(capture).splitlines())) < 100
    assert "9 in all" not in repr(capture)  # it did not fit


def test_loading_needs_no_torch(tmp_path: Path) -> None:
    capture_add(tmp_path)
    code = (
        "import sys; from detlab.captures import load_capture; "
        "load_capture(sys.argv[1]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text()
NAMES = st.sampled_from([("dtype", "bfloat16"), ("device", "cuda:1"), ("layout", "strided")])
SIZES = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
VALUES = st.recursive(
    SCALARS
    | NAMES.map(lambda pair: TorchName(*pair))
    | st.builds(GeneratorSpec, st.just("cpu"), st.integers(0, 9))
    | SIZES.map(lambda s: TensorSpec(0, "float32", s, s, 1, requires_grad=True, conj=False, neg=True)),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
)


def text_of(value: object) -> str:
    """Write a value so that two texts are equal just when the values are, NaN and -0.0 included."""
    if isinstance(value, list | tuple) and not isinstance(value, TorchName):
        return f"{type(value).__name__}({', '.join(map(text_of, value))})"
    return scalar_text(value)


@given(VALUES)
def test_every_value_survives_json(value: Any) -> None:
    body = json.loads(json.dumps(encode(value), allow_nan=False))
    assert text_of(decode(body, "here")) == text_of(value)


def test_nan_scalar_keeps_its_payload() -> None:
    bits = 0xFFF8_0000_0000_1234
    nan = struct.unpack("<d", struct.pack("<Q", bits))[0]
    back = decode(encode(nan), "here")
    assert isinstance(back, float)
    assert math.isnan(back)
    assert struct.unpack("<Q", struct.pack("<d", back))[0] == bits


class Wrapper(torch.Tensor):
    """A subclass that may hold anything."""


@pytest.mark.parametrize("kind", ["wrapper", "sparse", "meta", "freed"])
def test_tensor_without_bytes_of_its_own_is_refused(kind: str, tmp_path: Path) -> None:
    freed = torch.ones(2)
    tensor = {
        "wrapper": lambda: torch.ones(2).as_subclass(Wrapper),
        "sparse": lambda: torch.eye(2).to_sparse(),
        "meta": lambda: torch.ones(2, device="meta"),
        "freed": lambda: (freed.untyped_storage().resize_(0), freed)[1],
    }[kind]()
    with pytest.raises(CaptureError, match="argument self is a"):
        save_capture(tmp_path, aten.neg.default, (tensor,), {}, site=SITE, rank=0)


def test_argument_that_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="argument self is of type object"):
        save_capture(tmp_path, aten.neg.default, (object(),), {}, site=SITE, rank=0)


def test_memory_shared_without_a_storage_is_refused(tmp_path: Path) -> None:
    memory = bytearray(16)
    whole = torch.frombuffer(memory, dtype=torch.float32)
    part = torch.frombuffer(memory, dtype=torch.float32, offset=4)
    with pytest.raises(CaptureError, match="overlaps another argument"):
        save_capture(tmp_path, aten.add.Tensor, (whole, part), {}, site=SITE, rank=0)


def test_second_capture_into_a_folder_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    with pytest.raises(CaptureError, match="holds a capture already"):
        capture_add(tmp_path)


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="cannot be written"):
        capture_add(tmp_path / "file" / "x")


def test_call_that_never_ended_is_an_unfinished_capture(tmp_path: Path) -> None:
    save_capture(tmp_path, aten.neg.default, (torch.ones(2),), {}, site=SITE, rank=0)
    with pytest.raises(CaptureError, match="ended inside the call"):
        load_capture(tmp_path)


def test_only_capture_of_a_run_is_found(tmp_path: Path) -> None:
    capture_add(tmp_path / "captures" / "x")
    assert find_capture(tmp_path) == find_capture(tmp_path / "captures") == tmp_path / "captures" / "x"


def test_one_of_many_captures_must_be_named(tmp_path: Path) -> None:
    for name in ("x", "y"):
        capture_add(tmp_path / "captures" / name)
    with pytest.raises(CaptureError, match="holds 2 captures: x, y"):
        load_capture(tmp_path)


def test_folder_without_a_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="holds no capture"):
        load_capture(tmp_path / "nowhere")


def first_blob(folder: Path) -> Path:
    return sorted(folder.glob("*.bin"))[0]


def test_missing_blob_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    first_blob(tmp_path).unlink()
    with pytest.raises(CaptureError, match="cannot be read"):
        load_capture(tmp_path)


def test_truncated_blob_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    os.truncate(first_blob(tmp_path), 5)
    with pytest.raises(CaptureError, match="has 5 bytes; the capture says 8"):
        load_capture(tmp_path)


def test_changed_blob_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    first_blob(tmp_path).write_bytes(b"12345678")
    with pytest.raises(CaptureError, match="does not hash to"):
        load_capture(tmp_path)


def test_storage_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    change(tmp_path, lambda content: content["storages"][0].update(num_bytes=2**40, full_bytes=2**40))
    with pytest.raises(CaptureError, match=f"has 8 bytes; the capture says {2**40}"):
        load_capture(tmp_path)


def set_value(value: object) -> Callable[[Any], object]:
    return lambda content: content["arguments"][0].update(value=value)


def set_tensor(**fields: object) -> Callable[[Any], object]:
    return lambda content: content["arguments"][0]["value"]["tensor"].update(fields)


BROKEN: dict[str, tuple[Callable[[Any], object], str]] = {
    "other version": (lambda c: c.update(schema="detlab.captures/9"), "detlab.captures/9"),
    "unknown field": (lambda c: c.update(module="os"), "unknown field 'module'"),
    "missing field": (lambda c: c.pop("rank"), "lacks field 'rank'"),
    "field of another type": (lambda c: c.update(rank=True), "rank is of type bool, not int"),
    "no name of an op": (lambda c: c.update(op="os.system"), "not the name of an op"),
    "op with a path": (lambda c: c.update(op="aten.../x.y"), "not the name of an op"),
    "unknown tag": (set_value({"module": "os"}), "unknown tag 'module'"),
    "two tags": (set_value({"float": "0x1p0", "dtype": "int8"}), "not an object with one tag"),
    "bare float": (set_value(0.5), "bare float"),
    "bare list": (set_value([1]), "bare list"),
    "rounded float": (set_value({"float": "one"}), "not a hexadecimal float"),
    "name with a dot": (set_value({"dtype": "os.path"}), "not a name"),
    "negative size": (set_tensor(shape=[-1]), "not a list of integers from 0 up"),
    "sizes without strides": (set_tensor(shape=[1, 2]), "2 sizes and 1 strides"),
    "storage that is not there": (set_tensor(storage=9), "names storage 9 of 2"),
    "blob with a path": (lambda c: c["storages"][0].update(blob="../../secret"), "not a sha256"),
    "digest of another width": (lambda c: c["digests"].update(inputs=["12"]), "not a 64-bit digest"),
    "digest of another kind": (lambda c: c["digests"].update(algorithm="crc32"), "digests of 'crc32'"),
    "state without threads": (lambda c: c["state"].pop("threads"), "lacks field 'threads'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_content_is_refused(name: str, tmp_path: Path) -> None:
    capture_add(tmp_path)
    edit, sentence = BROKEN[name]
    change(tmp_path, edit)
    with pytest.raises(CaptureError) as refusal:
        load_capture(tmp_path)
    assert sentence in refusal.value.finding
    assert refusal.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": "detlab.capture/1", "schema": 1}', "{", '{"rank": NaN}', "[" * 100_000, "\udcff"],
    ids=["empty", "list", "twice", "cut", "NaN", "deep", "not UTF-8"],
)
def test_text_that_is_no_capture_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "capture.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CaptureError, match=r"capture\.json"):
        load_capture(tmp_path)


def test_deeply_nested_argument_is_refused(tmp_path: Path) -> None:
    capture_add(tmp_path)
    text = '{"list":[' * 700 + "1" + "]}" * 700
    path = tmp_path / "capture.json"
    path.write_text(path.read_text().replace('"value": 2', f'"value": {text}'))
    with pytest.raises(CaptureError, match="nests too deeply"):
        load_capture(tmp_path)
