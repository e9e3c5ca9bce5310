"""Take a replayed call away: one runnable file beside its raw blobs, and a summary for a bug report.

The file needs torch and nothing else; it unpickles nothing and imports nothing that a capture names. What is
written names no host, no user and no path.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pprint import pformat
from typing import Any, Final

import torch

from detlab.captures import Capture, load_capture
from detlab.captures.blobs import blob_path
from detlab.captures.values import TensorSpec, encode, leaves
from detlab.errors import InputError
from detlab.kernel.modules import ARGUMENTS
from detlab.kernel.ops import NAMESPACES, gives_fresh_memory, written_arguments
from detlab.kernel.report import ReplayReport
from detlab.kernel.restore import RestoredCall
from detlab.kernel.take_away import script
from detlab.kernel.take_away.conditions import repeated_conditions
from detlab.kernel.take_away.summary import Scrubber, summary_text, verdict_line
from detlab.store.layout import write_bytes, written_whole

SCRIPT: Final = "reproduce.py"
SUMMARY: Final = "issue.md"

_ENV: Final = re.compile(
    r"CUBLAS(LT)?_WORKSPACE\w*|CUDNN_\w+|NVIDIA_TF32_OVERRIDE|(OMP|MKL|KMP|NVTE)_(?!NUM_THREADS)\w+", re.ASCII
)
"""Variables that reach kernels; the number of threads is set by hand."""

_PLAIN_VALUE: Final = re.compile(r"[\w.:,;=+-]{0,200}", re.ASCII)
_NO_CALL: Final = "CALL: dict[str, Any] = {}\n"
_NO_KERNEL: Final = """\
# The function to call; None: the op of torch that CALL names.
KERNEL: Callable[..., Any] | None = None
"""
_LINE: Final = f"# {'=' * 98}\n"
_MARKED_FUNCTION: Final = (
    _LINE
    + """\
# PUT THE IMPORT OF {op} HERE and give it to KERNEL; nothing runs before.
# It is called with ({arguments}).{module}
#
# from my_package import my_kernel
KERNEL: Callable[..., Any] | None = None
"""
    + _LINE
)
_MARKED_LIBRARY: Final = (
    _LINE
    + """\
# PUT THE IMPORT OF THE LIBRARY THAT REGISTERS {op} HERE; torch does not know it by itself.
#
# import my_library
KERNEL: Callable[..., Any] | None = None
"""
    + _LINE
)
_OF_A_MODULE: Final = """
# It is a module, forward and backward: KERNEL = detlab.kernel.modules.ModuleCall(my_module)"""


@dataclass(frozen=True, slots=True, repr=False)
class TakeAway:
    """What was written.

    Attributes
    ----------
    files
        Size in bytes of every file, by name.
    left_out
        Names of the conditions that the runnable file does not repeat.
    notes
        What to look at before it is shown to others, one sentence each.
    """

    folder: Path
    files: Mapping[str, int]
    left_out: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        total = sum(self.files.values()) / 1e6
        lines = [f"{self.folder}: {total:,.2f} MB in {len(self.files)} files; run {SCRIPT}, paste {SUMMARY}"]
        lines += [f"  {name}  {size:,} bytes" for name, size in self.files.items()]
        if self.left_out:
            lines.append(f"  not repeated by {SCRIPT}: {', '.join(self.left_out)}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def export(
    report: ReplayReport,
    capture: Capture | str | Path,
    folder: str | Path,
    *,
    threads: int | None = None,
    deterministic: bool | None = None,
) -> TakeAway:
    """Write a folder that shows the call's verdict again anywhere where torch is.

    Parameters
    ----------
    report
        What a replay of this capture saw, here or on another machine.
    capture
        The capture, or its folder.
    folder
        Where the files go: a new or an empty folder.
    threads, deterministic
        What the replay held in every condition otherwise than training, if it did.

    Raises
    ------
    InputError
        The folder holds something, or the report is of another call.
    CaptureError
        The capture does not hold what it claims.
    """
    folder = Path(folder)
    if not isinstance(capture, Capture):
        capture = load_capture(capture)
    if (report.op, report.site) != (capture.op, capture.site):
        raise InputError(
            f"The report is of {report.op} at {report.site}, the capture of {capture.op} at {capture.site}.",
            "give the capture that was replayed",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} holds something already.", "name a new folder")
    clean = Scrubber(capture.path)
    notes = _telling_texts(capture, clean)
    if not capture.is_op:  # the name is for people alone
        capture = replace(capture, op=clean(capture.op))
    base = {"threads": threads, "deterministic": deterministic}
    held = {name: value for name, value in base.items() if value is not None}
    conditions, left_out = repeated_conditions(report, capture, held)
    env = reaching_variables(capture.state["env"])
    call = _call_of(capture) | {
        "conditions": [{**each, "name": clean(each["name"])} for each in conditions],
        "env": env,
        "exported": clean(verdict_line(report)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {SCRIPT: _write(folder / SCRIPT, _script(call, capture))}
    files |= _copy_blobs(capture, folder)
    text = summary_text(
        report,
        capture,
        clean=clean,
        files=files,
        left_out=left_out,
        env=env,
        needs_import=_marked_place(capture) != _NO_KERNEL,
    )
    files |= {SUMMARY: _write(folder / SUMMARY, text)}
    return TakeAway(folder, files, tuple(left_out), notes)


def reaching_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that reach kernels; none whose value could be a path or a name of a machine."""
    return {
        name: value
        for name, value in sorted(env.items())
        if _ENV.fullmatch(name) and _PLAIN_VALUE.fullmatch(value)
    }


def _telling_texts(capture: Capture, clean: Scrubber) -> tuple[str, ...]:
    """Say which arguments hold text that the call needs as it is, though it tells of this machine."""
    names = [
        name
        for name, value in capture.arguments
        if any(isinstance(leaf, str) and clean(leaf) != " ".join(leaf.split()) for leaf in leaves(value))
    ]
    if not names:
        return ()
    told = f"{SCRIPT} holds the text of {', '.join(names)} as the call was given it"
    return (f"{told}: a path or a name of this machine",)


def _call_of(capture: Capture) -> dict[str, Any]:
    """Describe the call for the runnable file; the inputs are restored, so that their hashes are known."""
    resizable = _storages_of(capture, written_arguments(capture))
    on_its_device = capture.device.startswith("cuda") and torch.cuda.is_available()
    restored = RestoredCall(capture, _never_called, capture.device if on_its_device else "cpu")
    return {
        "op": capture.op,
        "schema": capture.schema,
        "is_op": capture.is_op,
        "gives_fresh_memory": gives_fresh_memory(capture.op),
        "device": capture.device,
        "grad_mode": not capture.is_op and capture.state["grad_mode"],
        "autocast": "" if capture.is_op else capture.state["autocast"],
        "arguments": [[name, encode(value)] for name, value in capture.arguments],
        "num_positional": capture.num_positional,
        "mutates": sorted(written_arguments(capture)),
        "storages": [
            {
                "file": blob_path(Path(), storage.blob).name,
                "sha256": storage.blob,
                "device": storage.device,
                "alignment": storage.alignment,
                "resizable": index in resizable,
            }
            for index, storage in enumerate(capture.storages)
        ],
        "generators": [{"device": each.device, "state": each.state} for each in capture.generators],
        "inputs_sha256": [script.sha256_of(tensor) for tensor in restored.tensors],
    }


def _storages_of(capture: Capture, names: set[str]) -> set[int]:
    values = [value for name, value in capture.arguments if name in names]
    return {leaf.storage for leaf in leaves(values) if isinstance(leaf, TensorSpec)}


def _never_called(*args: object, **kwargs: object) -> None:
    raise AssertionError("an export restores the inputs and makes no call")


def _script(call: Mapping[str, Any], capture: Capture) -> str:
    """Fill the runnable file in; everything from the capture enters as a literal of plain values."""
    text = Path(script.__file__).read_text("utf-8")
    literal = pformat(call, sort_dicts=False, width=100)
    for old, new in ((_NO_CALL, f"CALL: dict[str, Any] = {literal}\n"), (_NO_KERNEL, _marked_place(capture))):
        assert text.count(old) == 1, "the template has each place once"
        text = text.replace(old, new)
    return text


def _marked_place(capture: Capture) -> str:
    op = " ".join(capture.op.split())  # one line, and of the form of a name
    if capture.is_op:
        return _NO_KERNEL if op.partition(".")[0] in NAMESPACES else _MARKED_LIBRARY.format(op=op)
    names = [" ".join(name.split()) for name, _ in capture.arguments]
    module = _OF_A_MODULE if tuple(names) == ARGUMENTS else ""
    return _MARKED_FUNCTION.format(op=op, arguments=", ".join(names), module=module)


def _copy_blobs(capture: Capture, folder: Path) -> dict[str, int]:
    files = {}
    for storage in capture.storages:
        source = blob_path(capture.path, storage.blob)
        with written_whole(folder / source.name) as partial:
            shutil.copyfile(source, partial)
        files[source.name] = storage.num_bytes
    return files


def _write(path: Path, text: str) -> int:
    content = text.encode()
    write_bytes(path, content)
    return len(content)
