"""One entry of the catalogue of calls that do not repeat their bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Seen = Literal["race", "selection", "uninitialised", "collective"]
"""What it shows as: a class of replay, or a difference that only the members of a collective show."""


class Source(NamedTuple):
    """Where a fact can be read: a title and an address, or a path relative to ``docs/``."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One call, or several that share their cause and their cure.

    Attributes
    ----------
    anchor
        Its name on the page, ``docs/op_catalog.md#anchor``.
    ops
        ``library.name`` as a trace records them; empty where the call is seen under names of other ops.
    calls
        What an engineer calls: functions, modules, settings, separated by commas.
    device
        Where it is known to vary.
    seen
        What it shows as.
    cause
        What makes the bits vary, in one sentence; also says so where no source gives the reason.
    fix
        The deterministic way.
    check
        The command that tests it.
    sources
        Where all this can be read.
    """

    anchor: str
    ops: tuple[str, ...]
    calls: str
    device: str
    seen: Seen
    cause: str
    fix: str
    check: str
    sources: tuple[Source, ...]


REPLAY = "detlab replay CAPTURE"
"""The command that replays a captured call."""

COMPARE = "detlab compare RUN_A RUN_B"
"""The command for what one captured call cannot show: two runs, and for a collective all of its members."""

FLAG = "`torch.use_deterministic_algorithms(True)`"
"""The flag under which torch switches to a deterministic algorithm or raises."""


def aten(names: str) -> tuple[str, ...]:
    """Give the names of torch's own ops in full."""
    return tuple(f"aten.{name}" for name in names.split())


def github(path: str) -> Source:
    """Give an issue or a pull request: ``owner/name#12`` or ``owner/name!12``."""
    repository, mark, number = path.partition("!" if "!" in path else "#")
    kind = "pull" if mark == "!" else "issues"
    return Source(f"{repository}#{number}", f"https://github.com/{repository}/{kind}/{number}")


def shown_by(path: str) -> Source:
    """Give a test of this repository that shows the fact."""
    return Source(f"tests/{path}", f"../tests/{path}")


TORCH_DOCS = Source(
    "torch.use_deterministic_algorithms",
    "https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html",
)
TORCH_ATOMICS = Source(
    "torch 1.3 notes on randomness",
    "https://pytorch.org/docs/1.3.1/_sources/notes/randomness.rst.txt",
)
MEGATRON_OPS = Source(
    "Megatron-LM determinism op catalog",
    "https://github.com/NVIDIA/Megatron-LM/blob/main/docs/developer/determinism/op-catalog.md",
)
MEGATRON_GUIDE = Source(
    "Megatron-LM deterministic training",
    "https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/deterministic-training.html",
)
CUDNN_DOCS = Source(
    "cuDNN: reproducibility", "https://docs.nvidia.com/deeplearning/cudnn/latest/developer/misc.html"
)
CUBLAS_DOCS = Source(
    "cuBLAS: results reproducibility",
    "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility",
)
