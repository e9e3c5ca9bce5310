"""The conditions of a replay: what is held otherwise than in training, each with a name and its own N."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from detlab.captures import Capture
from detlab.errors import InputError

if TYPE_CHECKING:
    from detlab.kernel.perturb.settings import Settings

Caches = Literal["cold", "warm"]
Poison = Literal["nan", "max", "zeros"]
MAX_TRIALS: Final = 100_000_000
MAX_THREADS: Final = 65_536
ENV: Final = re.compile(
    r"CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE|NVIDIA_TF32_OVERRIDE|TORCH_BLAS_PREFER_CUBLASLT"
    r"|ATEN_CPU_CAPABILITY|ONEDNN_MAX_CPU_ISA|MKL_(CBWR|DYNAMIC|NUM_THREADS|ENABLE_INSTRUCTIONS)"
    r"|OMP_(NUM_THREADS|PROC_BIND|PLACES|SCHEDULE|DYNAMIC|WAIT_POLICY|THREAD_LIMIT)"
    r"|KMP_(AFFINITY|BLOCKTIME|DETERMINISTIC_REDUCTION)"
    r"|NVTE_(ALLOW_NONDETERMINISTIC_ALGO|FLASH_ATTN|FUSED_ATTN|UNFUSED_ATTN|FUSED_ATTN_BACKEND|BIAS_GELU_NVFUSION)",
    re.ASCII,
)
"""Variables of the environment that reach kernels and that a condition may set; none of them names a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is held otherwise than in training while the trials of one row of the report are made.

    Attributes
    ----------
    name
        What the report calls it.
    trials
        How often the call is made; None: as often as `replay` says.
    threads, deterministic, fill_memory, device, float32_matmul_precision, mkldnn, cudnn_benchmark, blas, tf32
        Number of CPU threads; ``torch.use_deterministic_algorithms``; whether that fills fresh memory; where
        to run; ``torch.set_float32_matmul_precision``; oneDNN; the choice of cuDNN's algorithms by time;
        ``torch.backends.cuda.preferred_blas_library``; TF32 in matrix products and convolutions. None: as in
        training.
    env
        (name, value) of variables of the environment, read when a library starts: needs a process of its own.
    trials_per_process
        After how many trials a new process goes on; None: all in one.
    load
        Other work competes: processes that keep the CPUs busy, side streams on an accelerator.
    caches
        ``cold``: more than the last-level cache is written before every trial; ``warm``: all arguments are
        read.
    poison
        What freshly allocated memory holds, see `detlab.kernel.perturb.memory.poisoned`.
    offset_bytes
        How far into a larger buffer every argument begins.
    """

    name: str
    trials: int | None = None
    threads: int | None = None
    deterministic: bool | None = None
    fill_memory: bool | None = None
    device: str | None = None
    float32_matmul_precision: Literal["highest", "high", "medium"] | None = None
    mkldnn: bool | None = None
    cudnn_benchmark: bool | None = None
    blas: Literal["cublas", "cublaslt"] | None = None
    tf32: bool | None = None
    env: tuple[tuple[str, str], ...] = ()
    trials_per_process: int | None = None
    load: bool = False
    caches: Caches | None = None
    poison: Poison | None = None
    offset_bytes: int = 0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise InputError(f"condition {self.name!r}: {problem}.", "see detlab.kernel.Condition")

    @property
    def needs_process(self) -> bool:
        """Whether it can only be had in a process of its own."""
        return bool(self.env) or self.trials_per_process is not None

    @property
    def changed(self) -> frozenset[str]:
        """What it sets: the names of the fields."""
        return frozenset(
            f.name
            for f in fields(self)
            if f.name not in ("name", "trials") and getattr(self, f.name) != f.default
        )

    def on(self, base: Condition) -> Condition:
        """Give this condition with all that it leaves open as a base condition has it."""
        filled = {name: getattr(base, name) for name in base.changed - self.changed}
        return replace(self, **filled, trials=self.trials or base.trials)

    def to_json(self) -> dict[str, Any]:
        """Give what it sets, by name; the inverse of `condition_from_json`."""
        return {"name": self.name, "trials": self.trials} | {
            n: getattr(self, n) for n in sorted(self.changed)
        }


def condition_from_json(body: object) -> Condition:
    """Read a condition; refuse an unknown field, a wrong type, and a variable that loads something.

    Raises
    ------
    InputError
        It is not exactly of this form.
    """
    known = {f.name for f in fields(Condition)}
    if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not known.issuperset(body):
        raise InputError(
            "a condition is an object with a name and nothing unknown.", "see detlab.kernel.Condition"
        )
    env = body.get("env", ())
    if not isinstance(env, list | tuple) or not all(isinstance(pair, list | tuple) for pair in env):
        raise InputError("env of a condition is a list of pairs.", "see detlab.kernel.Condition")
    return Condition(**{**body, "env": tuple(tuple(pair) for pair in env)})


def conditions_of(asked: object, device: str) -> list[Condition]:
    """Read what the user asked for: names, conditions, several of them, or a number of trials for each.

    Parameters
    ----------
    asked
        A name, such as ``"baseline"`` or ``"standard"``, a `Condition`, a sequence of these, or a mapping
        from these to the number of trials.
    device
        Where the call runs; decides what ``standard`` and ``library selection`` are.

    Raises
    ------
    InputError
        A name that is none, a name twice, or nothing at all.
    """
    pairs: list[tuple[Any, int | None]]
    if isinstance(asked, Mapping):
        pairs = list(asked.items())
    else:
        pairs = [(one, None) for one in ([asked] if isinstance(asked, str | Condition) else _sequence(asked))]
    found: dict[str, Condition] = {}
    for one, trials in pairs:
        for condition in [one] if isinstance(one, Condition) else named(one, device):
            if (
                found.setdefault(condition.name, condition) is not condition
                and found[condition.name] != condition
            ):
                raise InputError(
                    f"two conditions are named {condition.name!r}.", "give each a name of its own"
                )
            if trials is not None:
                found[condition.name] = replace(condition, trials=trials)
    if not found:
        raise InputError("no condition, no trial.", 'say conditions=["baseline"], or leave it out')
    return list(found.values())


def named(name: object, device: str) -> list[Condition]:
    """Give the conditions that a name means; ``standard`` and three others are several.

    Raises
    ------
    InputError
        No condition is named so.
    """
    if not isinstance(name, str):
        raise InputError(f"{name!r} is no condition.", "give a name, or a detlab.kernel.Condition")
    key = " ".join(name.lower().split())
    if key in _SEVERAL:
        return _SEVERAL[key](device)
    for pattern, make in _PATTERNS:
        if found := re.fullmatch(pattern, key, re.ASCII):
            return [make(" ".join(name.split()) if "CUBLAS" in name else key, *found.groups())]
    near = get_close_matches(key, NAMES, _MAX_NEAR, 0.4)
    known = f"is it {' or '.join(map(repr, near))}? All" if near else "all"
    raise InputError(f"no condition is named {name!r}.", f"{known} are in detlab.kernel.conditions.NAMES")


def standard(device: str) -> list[Condition]:
    """Give a sensible list for a device: what hides a race, what provokes one, what tells other causes."""
    return [condition for name in offered(device) for condition in named(name, device)]


def offered(device: str) -> list[str]:
    """Give the names that ``standard`` is made of on a device; two of them are several conditions."""
    names = ["baseline", "fresh process"]
    names += ["1 thread", "2 threads", "4 threads"] if device == "cpu" else []
    names += ["competing load", "cold caches", "poisoned with zeros", "poisoned with nan"]
    names += ["deterministic algorithms with memory fill", "deterministic algorithms without memory fill"]
    return [*names, "allocation offsets", "library selection"]


def condition_for(
    capture: Capture,
    *,
    threads: int | None = None,
    deterministic: bool | None = None,
    device: str | None = None,
) -> Settings:
    """Give the settings of training, changed only where the user says so.

    Raises
    ------
    CaptureError
        The capture's device is not on this machine and the user named no other.
    InputError
        Fewer than one thread.
    """
    from detlab.kernel.perturb.settings import settings_for  # which knows this module

    return settings_for(
        capture, Condition(name="", threads=threads, deterministic=deterministic, device=device)
    )


NAMES: Final = (
    "standard", "baseline", "fresh process", "N threads", "competing load", "cold caches", "warm caches",
    "poisoned with nan", "poisoned with max", "poisoned with zeros", "allocation offsets", "offset N bytes",
    "deterministic algorithms with memory fill", "deterministic algorithms without memory fill",
    "library selection", "mkldnn on|off", "cudnn benchmark on|off", "tf32 on|off", "blas cublas|cublaslt",
    "float32 matmul precision highest|high|medium", "cublas workspace :4096:8|:16:8",
    "cpu capability default|avx2|avx512", "device D",
)  # fmt: skip
"""The names that `named` knows; its error gives the nearest."""

_MAX_NEAR: Final = 3

TRIALS_PER_PROCESS: Final = 4
"""How many trials a process of "fresh process" makes: enough to see a variation inside it, few enough that
many processes are seen; the start of each costs as much as hundreds of small calls."""


def _offsets(device: str) -> list[Condition]:
    return [Condition(name=f"offset {n} bytes", offset_bytes=n) for n in (16, 64, 256)]


def _libraries(device: str) -> list[Condition]:
    names = ["mkldnn off", "cpu capability avx2"]
    if device != "cpu":
        names = ["cudnn benchmark on", "cublas workspace :16:8", "cublas workspace :4096:8"]
        names += ["blas cublaslt", "tf32 on", "tf32 off"]
    return [condition for name in names for condition in named(name, device)]


_SEVERAL: Final[dict[str, Callable[[str], list[Condition]]]] = {
    "standard": standard,
    "allocation offsets": _offsets,
    "library selection": _libraries,
}


def _deterministic(name: str, fill: str | None) -> Condition:
    return Condition(name=name, deterministic=True, fill_memory=fill == "with" if fill else None)


_PATTERNS: Final[Sequence[tuple[str, Callable[..., Condition]]]] = (
    ("baseline", lambda name: Condition(name=name)),
    ("fresh process", lambda name: Condition(name=name, trials_per_process=TRIALS_PER_PROCESS)),
    (r"(\d{1,6}) threads?", lambda name, n: Condition(name=name, threads=int(n))),
    ("competing load", lambda name: Condition(name=name, load=True)),
    ("(cold|warm) caches", lambda name, caches: Condition(name=name, caches=caches)),
    ("poisoned(?: with (nan|max|zeros))?", lambda name, what: Condition(name=name, poison=what or "nan")),
    (r"offset (\d{1,7}) bytes", lambda name, n: Condition(name=name, offset_bytes=int(n))),
    ("deterministic algorithms(?: (with|without) memory fill)?", _deterministic),
    ("mkldnn (on|off)", lambda name, on: Condition(name=name, mkldnn=on == "on")),
    ("cudnn benchmark (on|off)", lambda name, on: Condition(name=name, cudnn_benchmark=on == "on")),
    ("tf32 (on|off)", lambda name, on: Condition(name=name, tf32=on == "on")),
    ("blas (cublas|cublaslt)", lambda name, blas: Condition(name=name, blas=blas)),
    (
        "float32 matmul precision (highest|high|medium)",
        lambda name, precision: Condition(name=name, float32_matmul_precision=precision),
    ),
    (
        r"cublas workspace (:\d+:\d+)",
        lambda name, size: Condition(name=name, env=(("CUBLAS_WORKSPACE_CONFIG", size),)),
    ),
    (
        "cpu capability (default|avx2|avx512)",
        lambda name, isa: Condition(name=name, env=(("ATEN_CPU_CAPABILITY", isa),)),
    ),
    (r"device (cpu|cuda(?::\d+)?)", lambda name, device: Condition(name=name, device=device)),
)


def _sequence(asked: object) -> Sequence[Any]:
    if not isinstance(asked, Sequence):
        raise InputError(f"{asked!r} is no condition.", 'say conditions=["baseline", "1 thread"]')
    return asked


def _problems(condition: Condition) -> list[str]:
    """Say what a condition must not hold; it may come from a file."""
    flags = ("deterministic", "fill_memory", "mkldnn", "cudnn_benchmark", "tf32", "load")
    found = [
        f"{name} is no bool" for name in flags if type(getattr(condition, name)) not in (bool, type(None))
    ]
    bounds = {"trials": MAX_TRIALS, "threads": MAX_THREADS, "trials_per_process": MAX_TRIALS}
    for name, most in bounds.items():
        if (number := getattr(condition, name)) is not None and not _is_count(number, 1, most):
            found.append(f"{number!r} {name} cannot be")
    if not _is_count(condition.offset_bytes, 0, 1 << 20) or condition.offset_bytes % 16:
        found.append("an offset is a multiple of 16 bytes, the size of the largest element, up to 1 MiB")
    if type(condition.device) not in (str, type(None)):
        found.append("a device is named by text")  # whether this machine has it, the trials will tell
    words = {"caches": get_args(Caches), "poison": get_args(Poison), "blas": ("cublas", "cublaslt")}
    words["float32_matmul_precision"] = ("highest", "high", "medium")
    found += [
        f"{name} is one of {', '.join(known)}"
        for name, known in words.items()
        if getattr(condition, name) not in (None, *known)
    ]
    for pair in condition.env:
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair) or not ENV.fullmatch(pair[0]):
            found.append(
                f"it must not set {pair!r}; only variables that reach kernels, such as OMP_PROC_BIND"
            )
    return found


def _is_count(number: object, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most
