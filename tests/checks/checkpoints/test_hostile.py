"""Damaged and hostile files: a sentence or what is whole, never another error, never a call."""

import argparse
import io
import shutil
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.checkpoints import compare_checkpoints, open_checkpoint, plain_pickle
from detlab.checks.checkpoints.files import OpenFiles
from detlab.errors import InputError
from tests.checks.checkpoints.saved import distributed, rezipped, safetensors, saved, states

STATE = {
    "w": torch.arange(12.0).reshape(3, 4),
    "t": torch.arange(12.0).reshape(3, 4).t(),
    "b": torch.ones(3).bfloat16(),
    "step": 3,
    "args": argparse.Namespace(lr=0.1, names=["a", "b"]),
    "rng": np.arange(4),
    "stream": io.BytesIO(b"x"),
}
PLAIN = {name: STATE[name] for name in ("w", "b", "step")}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    saved(folder / "a.pt", STATE)
    distributed(folder / "dcp", PLAIN)
    safetensors(folder / "a.safetensors", {"w": STATE["w"], "b": STATE["b"]})
    return folder


@st.composite
def damage(draw):
    """A way to damage a file of any length: bytes written over it, cut out, put in, or its end cut off."""
    kind = draw(st.sampled_from(["over", "out", "in", "end"]))
    return kind, draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=8))


def damaged(data, how):
    kind, share, extra = how
    place = int(share * len(data))
    if kind == "end":
        return data[:place]
    after = place + (0 if kind == "in" else len(extra))
    return data[:place] + (b"" if kind == "out" else extra) + data[after:]


def read_all(path):
    """Open and compare with itself; nothing but an `InputError` may come of it."""
    try:
        checkpoint = open_checkpoint(path)
    except InputError as error:
        assert error.finding
        return
    frame = compare_checkpoints(checkpoint, checkpoint)
    assert set(frame["state"]) <= {"equal", "unreadable"}


@given(hows=st.lists(damage(), min_size=1, max_size=3))
def test_a_damaged_torch_save_file_is_read_in_part_or_refused(originals, hows):
    data = (originals / "a.pt").read_bytes()
    for how in hows:
        data = damaged(data, how)
    (originals / "damaged.pt").write_bytes(data)
    read_all(originals / "damaged.pt")


@given(how=damage())
def test_a_damaged_pickle_in_a_whole_zip_is_refused_or_read(originals, how):
    path = originals / "pickle.pt"
    shutil.copy(originals / "a.pt", path)
    rezipped(
        path,
        lambda name, data: (damaged(data, how) if name.endswith("data.pkl") else data, zipfile.ZIP_STORED),
    )
    read_all(path)


@given(how=damage(), name=st.sampled_from([".metadata", "__0_0.distcp"]))
def test_a_damaged_distributed_checkpoint_is_read_in_part_or_refused(originals, how, name):
    folder = originals / "damaged"
    shutil.copytree(originals / "dcp", folder, dirs_exist_ok=True)
    (folder / name).write_bytes(damaged((folder / name).read_bytes(), how))
    read_all(folder)


@given(how=damage())
def test_a_damaged_safetensors_file_is_read_in_part_or_refused(originals, how):
    path = originals / "damaged.safetensors"
    path.write_bytes(damaged((originals / "a.safetensors").read_bytes(), how))
    read_all(path)


def planted_pickle(path, pickled):
    """A torch.save file with a pickle of our own and one storage of 16 bytes."""
    with zipfile.ZipFile(path, "w") as made:
        for name, data in (
            ("data.pkl", pickled),
            ("byteorder", b"little"),
            ("version", b"3\n"),
            ("data/0", bytes(16)),
        ):
            made.writestr(f"archive/{name}", data)
    return path


@pytest.mark.parametrize("call", ["os\nsystem", "posix\nsystem", "nt\nsystem", "sys\nexit"])
def test_a_call_into_the_system_is_refused(tmp_path, call):
    mark = tmp_path / "mark"
    pickled = (
        f"c{call}\n(X".encode()
        + len(f"touch {mark}").to_bytes(4, "little")
        + f"touch {mark}".encode()
        + b"tR."
    )
    with pytest.raises(InputError, match="blocked"):
        open_checkpoint(planted_pickle(tmp_path / "a.pt", b"\x80\x02" + pickled))
    assert not mark.exists()


@pytest.mark.parametrize(
    "call", ["builtins\neval", "__builtin__\nexec", "subprocess\ncheck_output", "shutil\nrmtree"]
)
def test_a_call_of_anything_else_is_read_as_the_words_that_it_is(tmp_path, call):
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w')".encode()
    pickled = b"\x80\x02c" + call.encode() + b"\n(X" + len(code).to_bytes(4, "little") + code + b"tR."
    leaves = open_checkpoint(planted_pickle(tmp_path / "a.pt", pickled)).leaves
    assert leaves["__args__.0"].value == code.decode()
    assert not mark.exists()


def test_an_object_that_holds_itself_is_refused(tmp_path):
    loop = []
    loop.append(loop)
    with pytest.raises(InputError, match="holds itself"):
        open_checkpoint(saved(tmp_path / "a.pt", {"w": loop}))


def test_lists_of_lists_that_multiply_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("detlab.checks.checkpoints.objects.MAX_LEAVES", 1000)
    value = ["word"]
    for _ in range(30):
        value = [value, value]
    with pytest.raises(InputError, match="more than 1,000 leaves"):
        open_checkpoint(saved(tmp_path / "a.pt", value))


def test_a_pickle_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("detlab.checks.checkpoints.torch_save.MAX_PICKLE_BYTES", 10_000)
    path = saved(tmp_path / "a.pt", {"w": "x" * 20_000})
    rezipped(path, lambda name, data: (data, zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match=r"its data.pkl has 20,\d+ bytes"):
        open_checkpoint(path)


def test_a_bytearray_of_any_size_is_refused(tmp_path):
    pickled = b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\0\0\0\0\0\x01\x85R."
    with pytest.raises(InputError, match="bytearray"):
        open_checkpoint(planted_pickle(tmp_path / "a.pt", pickled))


def test_a_name_with_line_breaks_and_colours_is_kept_and_shown_escaped(tmp_path):
    name = "w\n\x1b[31m\u202ered"
    path = saved(tmp_path / "a.pt", {name: torch.ones(3, dtype=torch.complex64).conj()})
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.unreadable) == [name]
    assert all(problem.isprintable() for problem in checkpoint.problems)


def test_a_zip_that_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("notes.txt", b"nothing")
    with pytest.raises(InputError, match="no data"):
        open_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"\0" * 1000, b"PK\x05\x06" + b"\0" * 18, b"\x80\x02}q\0."])
def test_a_file_that_is_no_zip_is_refused(tmp_path, content):
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.pt"):
        open_checkpoint(tmp_path / "a.pt")


def test_descriptors_are_closed_again(tmp_path):
    paths = [saved(tmp_path / f"{number}.pt", {"w": number}) for number in range(100)]
    with OpenFiles() as files:
        for path in paths:
            files.read(path, 0, 1)
        assert len(files._open) == 64
    assert not files._open
    assert states(compare_checkpoints(open_checkpoint(tmp_path), open_checkpoint(tmp_path))) == {}


class Eager:
    """A class that does something when it is loaded."""

    ran = False

    def __setstate__(self, state):
        Eager.ran = True


def test_a_class_that_this_process_trusts_does_not_run_either(tmp_path):
    eager = Eager()
    eager.lr = 0.5
    path = saved(tmp_path / "a.pt", eager)
    with torch.serialization.safe_globals([Eager]):
        assert open_checkpoint(path).leaves["lr"].value == 0.5
        assert not Eager.ran
        torch.load(path, weights_only=True)
        assert Eager.ran  # it is trusted still


@pytest.mark.parametrize(
    "use", [b"}h\x28Ns.", b"}(h\x28Nu.", b"ccollections\nOrderedDict\n]h\x28N\x86a\x85R."]
)
def test_a_key_of_tuples_within_tuples_cannot_stop_the_reading(use):
    nested = b"".join(b"h" + bytes([number]) + b"h" + bytes([number]) + b"\x86\x940" for number in range(40))
    with pytest.raises(InputError, match="keys are neither"):
        plain_pickle.load(b"\x80\x04)\x940" + nested + use)


@pytest.mark.parametrize("name", [b"pathlib\nPosixPath\n", b"torch.serialization\n_get_layout\n"])
def test_nothing_nested_is_written_out(name):
    nested = b"".join(b"h" + bytes([number]) + b"h" + bytes([number]) + b"\x86\x940" for number in range(40))
    try:
        found = plain_pickle.load(b"\x80\x04)\x940" + nested + b"c" + name + b"h\x28\x85R.")
    except TypeError:
        return
    assert isinstance(found, tuple)
