"""Record sample_traces/resume/: a training, and three that went on from its checkpoint; one of them is right.

All are real. The second was made to leave one component out; the third leaves nothing out, and Megatron-Core
puts numbers in other places on its own.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from detlab import check_resume
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.resuming import Job, run
from tests.megatron_cpu.training import Recipe

README = Path(__file__).parent / "readmes" / "resume.md"
RECIPE = Recipe(precision="bf16", num_steps=5)
SAVE_AT = 2
LEFT_OUT = "moments"
RESUMED = {
    "resumed": ("dp_reshardable", ()),
    "no_moments": ("dp_reshardable", (LEFT_OUT,)),
    "shifted": ("fully_reshardable", ()),
}
"""Each run that went on: how its checkpoint is sharded, and what it leaves out."""
WRONG = {"resumed": set(), "no_moments": {"moments"}, "shifted": {"moments", "master weights"}}
"""The components that each of them does not have after loading."""


def record_resume(folder: Path) -> None:
    """Train, go on three times, check what the traces show, and describe it."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        shardings = tuple(dict.fromkeys(sharding for sharding, _ in RESUMED.values()))
        train(folder, Path(scratch), "reference", Job(RECIPE, "", shardings, save_at=SAVE_AT))
        for name, (sharding, without) in RESUMED.items():
            checkpoint = Path(scratch) / "reference" / "checkpoint" / sharding
            train(
                folder,
                Path(scratch),
                name,
                Job(RECIPE, "", (sharding,), load=str(checkpoint), without=without),
            )
    check_resumes(folder)
    (folder / "README.md").write_text(describe(), "utf-8")


def train(folder: Path, scratch: Path, name: str, job: Job) -> None:
    """Train in two new processes, and keep the trace."""
    options = {"ops": False, "label": name}
    job = Job(**(vars(job) | {"folder": str(scratch / name), "options": options}))
    run_on_ranks(2, run, job, timeout_s=600)
    shutil.move(scratch / name / "trace", folder / name)


def check_resumes(folder: Path) -> None:
    """Make sure that the traces show what the README says."""
    for name, wrong in WRONG.items():
        result = check_resume(folder / "reference", folder / name)
        errors = result.findings.filter(severity="error", stage="state at load")
        assert set(errors["component"]) == wrong, f"{name}: {result}"
        assert result.verdict == ("fail" if wrong else "pass"), f"{name}: {result}"


def describe() -> str:
    """Write the README of the sample."""
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "megatron-core"))
    return README.read_text("utf-8").format(
        save_at=SAVE_AT,
        next_step=SAVE_AT + 1,
        core=version("megatron-core"),
        versions=versions,
        **asdict(RECIPE),
    )
