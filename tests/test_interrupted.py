"""Ctrl-C leaves every file whole, as it was or not there at all."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import torch

from detlab import capture, compare, load_comparison, replay, report
from detlab.testing import Call, make_run, save_run


def cmp_of(folder):
    a, b = (
        save_run(make_run({0: [Call("aten.mm.default", "lin", ["x"], [word])]}, label=word), folder / word)
        for word in "yz"
    )
    return compare(a, b)


def capture_of(folder):
    return capture(torch.ops.aten.add.Tensor, torch.arange(4.0), torch.ones(4), path=folder)


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def interrupt_half_way(monkeypatch):
    """Let every file that is written be interrupted after half of its bytes."""
    write = Path.write_bytes

    def half(self, content):
        write(self, memoryview(content).cast("B")[: memoryview(content).nbytes // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", half)
    monkeypatch.setattr(Path, "write_text", lambda self, text, *_: half(self, text.encode()))


@pytest.mark.parametrize("write", [lambda cmp, path: cmp.save(path), report], ids=["save", "report"])
@pytest.mark.parametrize("before", [None, b"what was there"], ids=["new", "replaced"])
def test_an_interrupted_write_leaves_what_was_there(write, before, tmp_path, monkeypatch):
    cmp, folder = cmp_of(tmp_path), tmp_path / "out"
    folder.mkdir()
    if before:
        (folder / "it").write_bytes(before)
    interrupt_half_way(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        write(cmp, folder / "it")
    assert [path.read_bytes() for path in folder.iterdir()] == ([before] if before else [])


def test_an_interrupted_capture_leaves_no_folder(tmp_path, monkeypatch):
    interrupt_half_way(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        capture_of(tmp_path / "it")
    assert files_in(tmp_path) == []


def test_a_capture_that_is_interrupted_at_a_later_blob_leaves_no_folder(tmp_path, monkeypatch):
    write, seen = Path.write_bytes, []

    def second(self, content):
        seen.append(self)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", second)
    with pytest.raises(KeyboardInterrupt):
        capture_of(tmp_path / "it")
    assert (len(seen), files_in(tmp_path)) == (2, [])


def test_an_interrupted_take_away_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    made = replay(capture_of(tmp_path / "it"), trials=2)
    copyfile = shutil.copyfile

    def half(source, target):
        copyfile(source, target)
        os.truncate(target, Path(target).stat().st_size // 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(KeyboardInterrupt):
        made.export(tmp_path / "away")
    assert [name for name in files_in(tmp_path / "away") if name.endswith((".bin", ".partial"))] == []


# ---------------------------------------------------------------- a real SIGINT

SLOW = """
import sys, time, {module} as module
from pathlib import Path
from detlab import progress
whole = {owner}.{name}

def slow(*args, **options):
    print("now", flush=True)
    {before}
    time.sleep(60)
    return whole(*args, **options)

{owner}.{name} = slow
from detlab.cli import main
sys.exit(main())
"""


def interrupted(code, *args):
    """Run a command, press Ctrl-C when it says that it is at the place, and give its exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize(
    "place",
    [
        {"module": "detlab.comparison.pairwise", "owner": "module", "name": "_gather", "before": ""},
        {
            "module": "detlab.store.layout",
            "owner": "Path",
            "name": "write_bytes",
            "before": "whole(args[0], args[1][:9])",
        },
    ],
    ids=["comparing", "saving"],
)
def test_ctrl_c_during_compare_save_leaves_no_file_and_says_so_in_one_line(place, tmp_path):
    cmp_of(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    args = ("compare", str(tmp_path / "y"), str(tmp_path / "z"), "--save", str(out / "it"))
    code, errors = interrupted(SLOW.format(**place), *args)
    assert (code, errors) == (130, "detlab compare: interrupted\n")
    assert files_in(out) == []


IN_A_TERMINAL = """
import sys, time
from detlab import progress
from detlab.comparison import pairwise
progress.PATIENCE_S = 0.0
compare_one = pairwise._compare_renamed

def slow(*args):
    time.sleep(0.3)
    return compare_one(*args)

pairwise._compare_renamed = slow
from detlab.cli import main
sys.exit(main())
"""


def test_ctrl_c_in_a_terminal_takes_the_bar_away_and_leaves_one_line(tmp_path):
    calls = [Call("aten.mm.default", "lin", ["x"], ["y"])]
    run = str(save_run(make_run(dict.fromkeys(range(200), calls)), tmp_path / "run"))
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, "compare", run, run], stdout=its, stderr=its
    )
    os.close(its)
    shown = b""
    try:
        while b"comparing" not in shown and (part := _read(ours)):
            shown += part
        process.send_signal(signal.SIGINT)
        while part := _read(ours):
            shown += part
        assert process.wait(60) == 130
    finally:
        process.kill()
        os.close(ours)
    before, _, last = shown.decode().rpartition("\r" + " " * 20)
    assert "/200 [" in before and last.strip(" \r\n") == "detlab compare: interrupted"


def _read(terminal):
    """Read on; a terminal that nobody writes to any more gives an error instead of an end."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_a_whole_save_can_be_opened_again(tmp_path):
    cmp_of(tmp_path).save(tmp_path / "it")
    assert load_comparison(tmp_path / "it").verdict == "diverged"
