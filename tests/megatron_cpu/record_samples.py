"""Record sample_traces/ anew: a race that is really there, the same training without it, spikes, and resumes.

Run it as ``python -m tests.megatron_cpu.record_samples``, with the names of samples for only these. The runs
are kept only when they show what their README says; nothing is planted in the race.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import torch.distributed as dist

from detlab.schema import Callee, Phase, Site
from tests.megatron_cpu.processes import run_on_ranks
from tests.megatron_cpu.record_resume import record_resume
from tests.megatron_cpu.record_spike import record_spike
from tests.megatron_cpu.training import Recipe, train
from tests.record.traces import Event, read_events

SAMPLES = Path(__file__).parents[2] / "sample_traces"
READMES = Path(__file__).parent / "readmes"
WORLD_SIZE = 4
CLEAN = Recipe(
    tp=2,
    num_layers=1,
    hidden=128,
    sequence=256,
    num_tokens_in_use=32,  # the other half is padding, and all of what the second rank of tp has
    microbatch_size=8,
    num_microbatches=1,
    num_steps=2,
    num_threads=4,  # as many as it takes for the race to show every time, with fewer cores too
    overlap=False,
)
RACE = replace(CLEAN, deterministic_mode=True)
PAIRS = {"race": RACE, "clean": CLEAN}
OTHERS = {"spike": record_spike, "resume": record_resume}
SITE = Site(1, 0, Phase.BACKWARD, Callee("embedding.word_embeddings", "aten.index_put.default"), 1)
"""The backward of the word embedding's lookup; call 0 of the same op zeroes the rows of other ranks."""
ORIGINS = [0, 2]
"""The ranks that have the rows of the tokens in use; the others add zeros, which is exact in any order."""


def main(names: Iterable[str]) -> None:
    """Record samples, check them, and put them in the place of the old ones."""
    os.environ["OMP_WAIT_POLICY"] = "passive"  # more threads than cores: waiting ones must not spin
    os.environ["DETLAB_HOST"] = "sample"  # traces that are shared do not name the machine
    with tempfile.TemporaryDirectory(dir=SAMPLES) as folder:
        for name in names:
            new = Path(folder) / name
            if name in OTHERS:
                OTHERS[name](new)
            else:
                record_checked_pair(new, PAIRS[name])
            shutil.rmtree(SAMPLES / name, ignore_errors=True)
            new.replace(SAMPLES / name)


def record_checked_pair(pair: Path, recipe: Recipe) -> None:
    """Record a pair, check it, and describe it."""
    record_pair(pair, recipe)
    check = check_race if recipe.deterministic_mode else check_clean
    check(first_differences(pair))
    (pair / "README.md").write_text(describe(recipe), "utf-8")


def record_pair(folder: Path, recipe: Recipe) -> None:
    """Train twice with the same recipe, into ``a`` and ``b``."""
    for name in "ab":
        run_on_ranks(WORLD_SIZE, train_capturing, recipe, str(folder / name), name == "a", timeout_s=600)


def train_capturing(recipe: Recipe, folder: str, capture: bool) -> list[float]:
    """Train on this rank; rank 0 saves the backward of the word embedding, where there is a race in it."""
    chosen = [str(SITE)] if capture and recipe.deterministic_mode and dist.get_rank() == 0 else []
    return train(recipe, folder, {"steps": "1-2", "capture": chosen})


def first_differences(folder: Path) -> list[tuple[Event, Event] | None]:
    """Give for each rank its first event that differs between ``a`` and ``b``."""
    return [_first(*(read_events(folder / name, rank) for name in "ab")) for rank in range(WORLD_SIZE)]


def _first(a: list[Event], b: list[Event]) -> tuple[Event, Event] | None:
    assert [event.site for event in a] == [event.site for event in b], "the runs do not make the same calls"
    return next(((x, y) for x, y in zip(a, b, strict=True) if x.values != y.values), None)


def check_race(first: list[tuple[Event, Event] | None]) -> None:
    """Make sure that every rank differs, first in the race, or in what another rank sent it."""
    origins = [rank for rank, pair in enumerate(first) if pair and pair[0].site == SITE]
    received = [rank for rank, pair in enumerate(first) if pair and pair[0].site.callee.group]
    assert origins == ORIGINS, f"the race shows on ranks {origins}; run this again"
    assert len(origins) + len(received) == WORLD_SIZE, "something else differs"
    equal_inputs = [pair[0].in_digest == pair[1].in_digest for pair in first if pair]
    assert all(equal_inputs[rank] for rank in ORIGINS), "the race was given other inputs"


def check_clean(first: list[tuple[Event, Event] | None]) -> None:
    """Make sure that nothing differs."""
    assert first == [None] * WORLD_SIZE, "the runs differ"


def describe(recipe: Recipe) -> str:
    """Write the README of a pair."""
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "megatron-core"))
    template = READMES / ("race.md" if recipe.deterministic_mode else "clean.md")
    return template.read_text("utf-8").format(
        site=SITE,
        op=SITE.callee.op,
        versions=versions,
        num_tokens=recipe.microbatch_size * recipe.sequence,
        **asdict(recipe),
    )


if __name__ == "__main__":
    main(sys.argv[1:] or [*PAIRS, *OTHERS])
