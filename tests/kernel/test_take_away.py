"""What is taken away runs where there is no detlab, says what was seen, and tells nothing of this machine."""

from __future__ import annotations

import ast
import getpass
import inspect
import json
import math
import os
import platform
import re
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.captures import Capture, load_capture, save_capture
from detlab.errors import InputError
from detlab.kernel import ReplayClass, load_replay, replay
from detlab.kernel.by_hand import capture as capture_call
from detlab.kernel.by_hand import capture_module
from detlab.kernel.modules import ModuleCall
from detlab.kernel.statistics import summarize
from detlab.kernel.take_away import export, reaching_variables, script
from detlab.kernel.take_away.summary import Scrubber

aten = torch.ops.aten
Captured = Callable[..., Capture]


SERVER = """
import contextlib, io, json, runpy, sys
from pathlib import Path
for line in sys.stdin:
    folder, *sys.argv[1:] = json.loads(line)
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(str(Path(folder) / "reproduce.py"), run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = repr(error)
    refusal = code if isinstance(code, str) else ""
    answer = {"stdout": said.getvalue(), "stderr": refusal, "returncode": 1 if refusal else code}
    print(json.dumps(answer), flush=True)
"""

Done = subprocess.CompletedProcess[str]
Runs = Callable[..., Done]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give an environment where detlab and its libraries cannot be imported."""
    blocked = tmp_path_factory.mktemp("blocked")
    for name in ("detlab", "numpy", "xxhash", "polars", "pyarrow"):
        (blocked / f"{name}.py").write_text("raise ModuleNotFoundError('this machine has torch alone')\n")
    return {**os.environ, "PYTHONPATH": str(blocked)}


@pytest.fixture(scope="module")
def without_detlab(alone: dict[str, str]) -> Iterator[Runs]:
    """Give a function that runs exported files where there is no detlab, in one process for all tests."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-P", "-c", SERVER], env=alone, **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(folder: Path, *options: str) -> Done:
            print(json.dumps([str(folder), *options]), file=server.stdin, flush=True)
            answer = json.loads(server.stdout.readline())
            return subprocess.CompletedProcess([], **answer)

        yield run
        server.stdin.close()


@pytest.fixture
def fresh_process(alone: dict[str, str]) -> Runs:
    """Give a function that runs an exported file in a process of its own, where there is no detlab."""

    def run(folder: Path, *options: str) -> Done:
        command = [sys.executable, str(folder / "reproduce.py"), *options]
        return subprocess.run(command, capture_output=True, text=True, env=alone, check=False)

    return run


def verdict_of(done: Done) -> str:
    found = re.search(r"^verdict +(.+)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found[1]


def counts_of(done: Done) -> list[int]:
    """For each condition the number of distinct results."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("trials ")]
    found = [re.search(r"(\d+) distinct results", line) for line in lines]
    return [int(each[1]) if each else 1 for each in found]


def test_detlab_is_out_of_reach_there(without_detlab: Runs, fresh_process: Runs, tmp_path: Path) -> None:
    (tmp_path / "reproduce.py").write_text("import detlab")
    assert "torch alone" in without_detlab(tmp_path).stderr
    assert "torch alone" in fresh_process(tmp_path).stderr


def test_race_shows_again_with_four_threads_and_not_with_one(
    racing: Capture, without_detlab: Runs, fresh_process: Runs, tmp_path: Path
) -> None:
    report = replay(racing, trials=20, threads=4, conditions=["baseline"])
    taken = report.export(tmp_path / "issue")  # it knows its capture and its threads
    done = fresh_process(taken.folder)
    assert (verdict_of(done), done.returncode) == ("race", 1)
    assert counts_of(done)[0] > 1
    often = "(each came once|the most frequent in)"
    assert re.search(rf"20 trials in this process \(baseline, 4 threads\), {often}", done.stdout)
    assert re.search(
        r"output 0  \d+ distinct, [\d,]+ of 1,000 elements differ, the first at \[\d+\]", done.stdout
    )
    assert re.search(r"exported  race: \d+ distinct results of the same inputs in 20 trials", done.stdout)
    alone = without_detlab(taken.folder, "--threads", "1", "--trials", "5")
    assert (verdict_of(alone), alone.returncode, counts_of(alone)) == ("not seen", 0, [1])
    assert (
        "no mismatch in 5 trials in this process (1 thread); a rate above 45.1 % is excluded" in alone.stdout
    )
    fixed = without_detlab(taken.folder, "--deterministic", "--threads", "4", "--trials", "5")
    assert (verdict_of(fixed), counts_of(fixed)) == ("not seen", [1])
    assert "(4 threads, use_deterministic_algorithms)" in fixed.stdout


@pytest.mark.gpu
def test_race_on_a_device_shows_again_there_and_not_with_fixed_algorithms(
    captured: Captured, fresh_process: Runs, tmp_path: Path
) -> None:
    rows = torch.randint(0, 1000, (1_000_000,), generator=seeded(1)).cuda()
    values = torch.randn(1_000_000, generator=seeded(2)).cuda()
    capture = captured(aten.index_add_.default, torch.zeros(1000).cuda(), 0, rows, values)
    report = replay(capture, trials=20)
    folder = report.export(tmp_path / "issue").folder
    assert (report.outcome, verdict_of(fresh_process(folder))) == (ReplayClass.RACE, "race")
    assert verdict_of(fresh_process(folder, "--deterministic")) == "not seen"


def test_nothing_of_this_machine_is_told(racing: Capture, tmp_path: Path) -> None:
    report = replay(racing, trials=3, threads=1)
    told = (
        f"{racing.path}/x.bin of {getpass.getuser()} on {platform.node()} in {Path.home()}/runs/monday",
        "a worker ended: /usr/lib/torch/a.so, C:\\Users\\u12\\x",
    )
    condition = summarize(f"{platform.node()} of {getpass.getuser()}", ["a"])
    report = replace(report, problems=told, conditions=(*report.conditions, condition))
    taken = export(report, racing, tmp_path / "issue")
    text = "\n".join((taken.folder / name).read_text() for name in ("reproduce.py", "issue.md"))
    for path in (racing.path, racing.path.parent, Path.home(), Path.cwd(), tmp_path, "/usr/lib", "u12"):
        assert str(path) not in text
    for name in (getpass.getuser(), platform.node()):
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
    assert "PATH/x.bin of USER on HOST in PATH" in text
    assert "1/0/backward/embedding/aten.index\\_put\\_.default#0" in text  # a site is no path


def test_scrubber_leaves_sites_numbers_and_parts_of_words(tmp_path: Path) -> None:
    clean = Scrubber(tmp_path)
    for text in ("1/0/backward//aten.mm.default#0", "3/4 of 5", "a rate above 4.9 %", "index_put_/x"):
        assert clean(text) == text
    user = getpass.getuser()
    assert clean(f"{user}ed my{user} {user}") == f"{user}ed my{user} USER"
    assert clean("~/a/b and (/a/b)") == "PATH and (PATH)"


def test_only_variables_that_reach_kernels_are_told() -> None:
    env = {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_PROC_BIND": "true",
        "OMP_NUM_THREADS": "7",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "MKL_LOG": "/home/u12/mkl.log",
        "NCCL_SOCKET_IFNAME": "node17",
        "HOME": "u12",
    }
    assert sorted(reaching_variables(env)) == ["CUBLAS_WORKSPACE_CONFIG", "KMP_AFFINITY", "OMP_PROC_BIND"]


def test_recorded_variables_are_set_before_torch_is_loaded(
    captured: Captured, fresh_process: Runs, tmp_path: Path
) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    capture = replace(capture, state={**capture.state, "env": {"MKL_CBWR": "COMPATIBLE"}})
    taken = export(replay(capture, trials=2), capture, tmp_path / "issue")
    script = taken.folder / "reproduce.py"
    place = "    use_recorded_environment()\n"
    script.write_text(script.read_text().replace(place, f"{place}    print(os.environ['MKL_CBWR'])\n"))
    assert fresh_process(taken.folder).stdout.startswith("COMPATIBLE\nverdict   not seen\n")
    assert "`MKL_CBWR=COMPATIBLE`" in (taken.folder / "issue.md").read_text()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of_bytes(dtype: torch.dtype) -> torch.Tensor:
    raw = torch.randint(0, 256, (12 * dtype.itemsize,), dtype=torch.uint8, generator=seeded(0))
    if dtype is torch.bool:
        raw = raw % 2
    return raw.view(dtype)


NOT_PLAIN = re.compile(r"torch\.(q|u?int[1-7]$|bits)")
DTYPES = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str)
DTYPES = [dtype for dtype in DTYPES if not NOT_PLAIN.match(str(dtype))]


def layouts(base: torch.Tensor) -> list[torch.Tensor]:
    """Give views of one storage: every one aliases every other."""
    views = [
        base,
        base[:0],
        base[3],
        base[5:],
        base[1::3],
        base.view(3, 4).t(),
        base[2:4].view(2, 1).expand(2, 5),
    ]
    views.append(base.as_strided((4, 3), (1, 1), 2))
    if base.is_complex() and base.dtype is not torch.complex32:
        views += [base.conj(), torch._neg_view(base.conj()), base.conj().imag]
    if base.dtype is torch.float32:
        views.append(torch._neg_view(base))
    return views


def geometry(tensor: torch.Tensor) -> list[Any]:
    size = tensor.untyped_storage().nbytes()
    place = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset(), size]
    return [str(tensor.dtype), *place, tensor.is_conj(), tensor.is_neg()]


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    starts = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [starts.index(start) for start in starts]


REBUILD = """
import json, sys
from pathlib import Path
sys.argv = ["reproduce.py"]
found = []
for folder in json.loads(sys.stdin.read()):
    names = {"__file__": str(Path(folder) / "reproduce.py"), "__name__": "taken_away"}
    exec(compile((Path(folder) / "reproduce.py").read_text(), "reproduce.py", "exec"), names)
    call = names["Call"]("cpu")
    tensors = [tensor for _, tensor in call.tensors()]
    starts = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    found.append({
        "sha256": [names["sha256_of"](tensor) for tensor in tensors],
        "geometry": [[str(t.dtype), list(t.shape), list(t.stride()), t.storage_offset(),
                      t.untyped_storage().nbytes(), t.is_conj(), t.is_neg()] for t in tensors],
        "sharing": [starts.index(start) for start in starts],
    })
print(json.dumps(found))
"""


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_every_dtype_and_layout_is_rebuilt_to_the_same_bits(captured: Captured, tmp_path: Path) -> None:
    folders, expected = [], []
    report = replay(captured(aten.neg.default, torch.ones(3)), trials=2)
    report = replace(report, op="aten.cat.default", site="here")
    for dtype in DTYPES:
        tensors = layouts(of_bytes(dtype))
        capture = captured_inputs(tensors, tmp_path / f"capture {dtype}")
        taken = export(report, capture, tmp_path / f"issue {dtype}")
        folders.append(str(taken.folder))
        hashes = [script.sha256_of(tensor) for tensor in tensors]
        expected.append(
            {"sha256": hashes, "geometry": [geometry(t) for t in tensors], "sharing": sharing(tensors)}
        )
    done = subprocess.run(
        [sys.executable, "-c", REBUILD], input=json.dumps(folders), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


def captured_inputs(tensors: list[torch.Tensor], folder: Path) -> Capture:
    """Capture a call that is never made: its inputs alone matter."""
    save_capture(folder, aten.cat.default, (tensors,), {}, site="here", rank=0).complete([])
    return load_capture(folder)


def hard_calls() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Give calls whose arguments are more than tensors: generators, numbers, names, lists, aliases."""
    base = torch.arange(8.0)
    matrix = torch.randn(3, 4, dtype=torch.complex64, generator=seeded(0))
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_1234))[0]
    return {
        "aliased and mutated": (aten.add_.Tensor, (base[:4], base[4:]), {"alpha": 2}),
        "argument twice": (aten.mul_.Tensor, (base, base), {}),
        "conjugate transposed": (aten.mm.default, (matrix, matrix.conj().t()), {}),
        "default generator": (aten.bernoulli_.float, (torch.zeros(64), 0.5), {}),
        "given generator": (aten.normal_.default, (torch.zeros(9),), {"generator": seeded(3)}),
        "optional tensors": (
            aten.index_put_.default,
            (torch.zeros(2, 5), [None, torch.tensor([1, 3])], torch.ones(2), False),
            {},
        ),
        "out": (aten.mm.out, (torch.eye(2), torch.full((2, 2), 0.1)), {"out": torch.full((2, 2), 7.0)}),
        "list of tensors": (
            aten._foreach_add_.List,
            ([base[:2], base[2:4]], [base[4:6], base[5:7]]),
            {},
        ),
        "names": (
            aten.full.default,
            ([2, 3], 0.1),
            {"dtype": torch.float64, "layout": torch.strided, "device": torch.device("cpu")},
        ),
        "memory format": (
            aten.clone.default,
            (torch.ones(1, 2, 3, 4),),
            {"memory_format": torch.channels_last},
        ),
        "infinite": (aten.add.Tensor, (base, -math.inf), {}),
        "NaN": (aten.full_like.default, (base.double(), nan), {}),
        "complex": (aten.mul.Tensor, (matrix, complex(-0.0, 0.1)), {}),
        "text": (aten.div.Tensor_mode, (base, base + 1), {"rounding_mode": "floor"}),
        "number out": (aten._local_scalar_dense.default, (torch.tensor(0.1),), {}),
        "size changed in place": (aten.resize_.default, (torch.ones(3), [2]), {}),
        "float8": (aten._to_copy.default, (base,), {"dtype": torch.float8_e8m0fnu}),
    }


def test_calls_of_every_kind_of_argument_run_again(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    for name, (func, args, kwargs) in hard_calls().items():
        capture = captured(func, *args, **kwargs)
        done = without_detlab(export(replay(capture, trials=2), capture, tmp_path / name).folder)
        assert (name, verdict_of(done), done.returncode) == (name, "not seen", 0)


def test_argument_changed_behind_the_schema_is_put_back(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    state = (torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3))
    image = torch.randn(2, 3, 4, 4, generator=seeded(0))
    capture = captured(aten.native_batch_norm.default, image, *state, True, 0.1, 1e-5)
    done = without_detlab(export(replay(capture, trials=3), capture, tmp_path / "issue").folder)
    assert verdict_of(done) == "not seen"
    assert "the call changes running_mean though its schema says that it only reads" in done.stdout


def test_memory_that_nobody_wrote_is_told_from_a_race(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    capture = captured(aten.empty.memory_format, [100_000])
    report = replay(capture, trials=20, conditions=["poisoned with nan", "poisoned with zeros"])
    done = without_detlab(report.export(tmp_path / "issue").folder)
    assert (report.outcome, verdict_of(done), done.returncode) == (
        ReplayClass.UNINITIALISED,
        "uninitialised",
        1,
    )


def test_sum_that_depends_on_the_threads_is_a_selection(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    capture = captured(aten.sum.default, 3.1 * torch.randn(1_000_000, generator=seeded(0)))
    report = replay(capture, trials=20, conditions=["1 thread", "2 threads", "4 threads"])
    folder = report.export(tmp_path / "issue").folder
    assert (report.outcome, verdict_of(without_detlab(folder))) == (ReplayClass.SELECTION, "selection")
    few = without_detlab(folder, "--trials", "3")
    assert (verdict_of(few), few.returncode) == ("invalid", 2)  # too few to tell it from a race


def test_condition_that_needs_more_than_this_file_is_left_out_and_told(
    captured: Captured, tmp_path: Path
) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    rows = tuple(summarize(name, ["a"] * 7) for name in ("competing load", "fresh process"))
    taken = export(replace(replay(capture, trials=2), conditions=rows), capture, tmp_path / "issue")
    assert taken.left_out == ("competing load", "fresh process")
    assert (
        "does not repeat these conditions: competing load, fresh process"
        in (taken.folder / "issue.md").read_text()
    )
    call = call_in(taken.folder)
    assert [(each["name"], each["trials"]) for each in call["conditions"]] == [("as in training", 7)]


def call_in(folder: Path) -> dict[str, Any]:
    """Read what the runnable file holds, without running it."""
    tree = ast.parse((folder / "reproduce.py").read_text())
    (found,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CALL"
    ]
    assert found is not None
    return ast.literal_eval(found)  # type: ignore[no-any-return]


def test_hostile_text_stays_text(captured: Captured, without_detlab: Runs, tmp_path: Path) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    evil = '"""\'\'\'\nraise SystemExit("taken over")\nKERNEL = print  # <script>|**bold**`'
    hostile = replace(
        capture, site=evil, state={**capture.state, "device_name": evil, "env": {"OMP_X": "$(id)"}}
    )
    report = replace(replay(capture, trials=2), site=evil, problems=(evil,))
    taken = export(report, hostile, tmp_path / "issue")
    assert verdict_of(without_detlab(taken.folder)) == "not seen"
    text = (taken.folder / "issue.md").read_text()
    assert "<script>" not in text.replace("\\<", "")
    assert "OMP_X" not in text
    assert "\nraise" not in text


def test_existing_folder_is_never_written_into(captured: Captured, tmp_path: Path) -> None:
    capture = captured(aten.neg.default, torch.ones(3))
    report = replay(capture, trials=2)
    (tmp_path / "issue").mkdir()  # an empty one is fine
    export(report, capture, tmp_path / "issue")
    before = {path: path.read_bytes() for path in (tmp_path / "issue").iterdir()}
    with pytest.raises(InputError, match="holds something already"):
        export(report, capture, tmp_path / "issue")
    with pytest.raises(InputError, match="holds something already"):
        export(report, capture, tmp_path / "issue" / "reproduce.py")
    assert {path: path.read_bytes() for path in (tmp_path / "issue").iterdir()} == before


def test_report_of_another_call_is_refused(captured: Captured, racing: Capture, tmp_path: Path) -> None:
    report = replay(captured(aten.neg.default, torch.ones(3)), trials=2)
    with pytest.raises(InputError, match="give the capture that was replayed"):
        export(report, racing, tmp_path / "issue")
    assert not (tmp_path / "issue").exists()


def test_changed_blob_is_noticed(captured: Captured, without_detlab: Runs, tmp_path: Path) -> None:
    capture = captured(aten.neg.default, torch.tensor([1.25]))
    taken = export(replay(capture, trials=2), capture, tmp_path / "issue")
    (blob,) = taken.folder.glob("*.bin")
    blob.write_bytes(bytes(4))
    done = without_detlab(taken.folder)
    assert done.returncode == 1
    assert "is not what was exported" in done.stderr


def test_summary_says_what_a_bug_report_needs_and_sizes_are_stated(racing: Capture, tmp_path: Path) -> None:
    report = replay(racing, trials=20, threads=4)
    taken = export(report, racing, tmp_path / "issue")
    text = (taken.folder / "issue.md").read_text()
    assert text.startswith("# `aten.index_put_.default` gives different bits for the same inputs")
    assert re.search(r"\*\*Verdict: race\.\*\* \d+ distinct results of the same inputs in 20 trials", text)
    assert re.search(r"\| 4 threads \| 20 \| \d+ \| [\d.]+ % \|", text)
    assert re.search(r"- output 0: \d+ distinct .*; up to [\d,]+ ULP; always by a multiple of 2\^-\d+", text)
    assert f"torch {torch.__version__}" in text.replace("\\", "")
    assert "self: float32\\[1000\\]" in text
    for name, size in taken.files.items():
        assert (taken.folder / name).stat().st_size == size
        assert name == "issue.md" or f"- `{name}`: {size:,} bytes" in text
    assert "12.0" in repr(taken)  # a million indices and values
    assert sorted(taken.files) == sorted(path.name for path in taken.folder.iterdir())
    assert "deterministic" not in text.replace("use_deterministic_algorithms", "").replace(
        "default algorithms", ""
    )


def test_call_that_does_not_come_with_torch_has_a_marked_place(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    capture = captured(torch.ops.prims.neg.default, torch.tensor([0.5]))
    taken = export(replay(capture, trials=2, allow=["prims"]), capture, tmp_path / "issue")
    script = (taken.folder / "reproduce.py").read_text()
    assert "PUT THE IMPORT OF THE LIBRARY THAT REGISTERS prims.neg.default HERE" in script
    assert "put its import at the marked place" in (taken.folder / "issue.md").read_text()
    assert verdict_of(without_detlab(taken.folder)) == "not seen"  # torch registers this one by itself


def scale(x: torch.Tensor, *, by: dict[str, Any]) -> dict[str, torch.Tensor]:
    by["out"].copy_(x[by["part"]] * by["factor"])
    assert torch.mm(x.detach()[None], x.detach()[:, None]).dtype is torch.bfloat16  # autocast is as it was
    return {"grad": torch.autograd.grad((x * x).sum(), [x])[0]}


def test_python_function_runs_once_its_import_is_in_the_marked_place(
    without_detlab: Runs, tmp_path: Path
) -> None:
    x = torch.tensor([0.5, 2.5, 3.5], requires_grad=True)
    by = {"part": slice(1, 3), "factor": 0.1, "out": torch.zeros(2)}
    with torch.autocast("cpu", torch.bfloat16):
        by_hand = capture_call(scale, x, by=by, mutates=["by"], path=tmp_path / "capture")
    taken = replay(by_hand, call=scale, trials=2).export(tmp_path / "issue", by_hand)
    refused = without_detlab(taken.folder)
    assert refused.returncode == 1
    assert "import it at the marked place" in refused.stderr
    script = taken.folder / "reproduce.py"
    text = script.read_text()
    assert f"PUT THE IMPORT OF {by_hand.op} HERE" in text
    assert "It is called with (x, by)." in text
    own = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(scale))))
    script.write_text(text.replace("KERNEL: Callable[..., Any] | None = None\n", f"{own}\nKERNEL = scale\n"))
    done = without_detlab(taken.folder)
    assert verdict_of(done) == "not seen"
    assert "note" not in done.stdout


def tagged(x: torch.Tensor, tag: str) -> torch.Tensor:
    return -x


def test_text_that_the_call_needs_stays_and_is_told_to_the_one_who_exports(tmp_path: Path) -> None:
    capture = capture_call(tagged, torch.ones(2), tag="/data/u12/x.yaml", path=tmp_path / "capture")
    taken = replay(capture, call=tagged, trials=2).export(tmp_path / "issue", capture)
    assert "holds the text of tag as the call was given it" in repr(taken)
    assert "u12" not in (taken.folder / "issue.md").read_text()
    plain = capture_call(tagged, torch.ones(2), tag="mean", path=tmp_path / "plain")
    assert replay(plain, call=tagged, trials=2).export(tmp_path / "other", plain).notes == ()


def test_result_of_training_that_differs_is_told_and_not_claimed_by_the_file(
    captured: Captured, without_detlab: Runs, tmp_path: Path
) -> None:
    capture = replace(captured(aten.neg.default, torch.tensor([0.1])), output_digests=(0,))
    report = replay(capture, trials=20)
    assert report.differs_from_training
    taken = report.export(tmp_path / "issue", capture)
    text = (taken.folder / "issue.md").read_text()
    assert (
        "**Verdict: race.** Training recorded another result of the same inputs and conditions; here no"
        in text
    )
    assert "does not hold what training recorded" in text
    assert verdict_of(without_detlab(taken.folder)) == "not seen"


def test_report_that_was_read_back_is_taken_away_as_well(captured: Captured, tmp_path: Path) -> None:
    capture = captured(aten.neg.default, torch.tensor([0.1]))
    report = replay(capture, trials=20, conditions=["baseline", "1 thread"])
    here = report.export(tmp_path / "here", capture.path)
    there = load_replay(report.to_json()).export(tmp_path / "there", capture)
    assert (here.folder / "issue.md").read_text() == (there.folder / "issue.md").read_text()
    assert "no mismatch within" not in (here.folder / "issue.md").read_text()


def test_module_says_what_it_is_called_with(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    by_hand = capture_module(module, torch.ones(1, 2), path=tmp_path / "capture")
    taken = replay(by_hand, call=ModuleCall(module), trials=2).export(tmp_path / "issue", by_hand.path)
    assert (
        "KERNEL = detlab.kernel.modules.ModuleCall(my_module)" in (taken.folder / "reproduce.py").read_text()
    )
