"""Whether two sides did the same work: what their records and recipes say of sizes and layouts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from detlab.comparison.facts import run_facts
from detlab.errors import NotComparable
from detlab.run import Run

_WORK: Final = re.compile(
    r"(^|[._])(global_batch_size|micro_batch_size|per_device_train_batch_size|gradient_accumulation_steps|"
    r"local_batch_size|batch_size|seq_length|seq_len|max_sequence_length|encoder_seq_length|num_layers|"
    r"hidden_size|ffn_hidden_size|num_attention_heads|num_experts|moe_router_topk|vocab_size|world_size|"
    r"tensor_model_parallel_size|pipeline_model_parallel_size|context_parallel_size|expert_model_parallel_size|"
    r"expert_tensor_parallel_size|data_parallel_size|virtual_pipeline_model_parallel_size|train_iters|max_steps|"
    r"train_samples|recompute_granularity|recompute_num_layers|params_dtype|bf16|fp16|fp8)$"
)
"""Settings that decide how much work a step is, or how many steps there are."""

_MODES: Final = re.compile(
    r"(^|[._])(deterministic_mode|use_deterministic_algorithms|deterministic|cudnn_deterministic|NCCL_ALGO|"
    r"NVTE_ALLOW_NONDETERMINISTIC_ALGO|CUBLAS_WORKSPACE_CONFIG|MAMBA_DETERMINISTIC)$"
)
"""Settings that make a run deterministic."""

_LOGGED: Final = ("global batch size", "actual seqlen", "bsz")
"""Metrics that say how much work a step was: Megatron-LM and its forks, fairseq."""


def refuse_other_work(default: Sequence[Run], deterministic: Sequence[Run]) -> None:
    """Refuse runs whose recipes or records say that a step was not the same work.

    Raises
    ------
    NotComparable
        They say so; what they do not say is not known to be the same, see `work_said`.
    """
    runs = [*default, *deterministic]
    stated = [_stated(run) for run in runs]
    for name in sorted(set().union(*stated)):
        values = {run.label: each[name] for run, each in zip(runs, stated, strict=True) if name in each}
        if len(set(values.values())) > 1:
            raise _other_work(name, values)
    for name in _LOGGED:
        _refuse_other_logged(runs, name)


def _refuse_other_logged(runs: Sequence[Run], name: str) -> None:
    """Refuse runs that log another amount of work for the same step; a batch size may ramp up in all."""
    logged = [_logged(run, name) for run in runs]
    for run, each in zip(runs[1:], logged[1:], strict=True):
        both = logged[0].join(each, on="step", how="inner", suffix="_b").sort("step")
        other = both.filter(pl.col("value") != pl.col("value_b"))
        if len(other):
            step, a, b = other.row(0)
            raise _other_work(f"{name} at step {step}", {runs[0].label: f"{a:g}", run.label: f"{b:g}"})


def _logged(run: Run, name: str) -> pl.DataFrame:
    rows = run.metrics.filter(pl.col("name").cast(pl.String) == name, pl.col("value").is_not_null())
    return rows.select("step", "value").unique("step", keep="last", maintain_order=True)


def _other_work(name: str, values: Mapping[str, str]) -> NotComparable:
    said = ", ".join(f"{value} in {label}" for label, value in values.items())
    return NotComparable(
        f"The runs did other work: {name} is {said}.",
        "compare runs of the same recipe that differ in nothing but determinism",
    )


def work_said(runs: Sequence[Run]) -> tuple[str, ...]:
    """List what all runs say of the work of a step."""
    stated = [set(_stated(run)) for run in runs]
    return tuple(sorted(set.intersection(*stated))) if stated else ()


def _stated(run: Run) -> Mapping[str, str]:
    """Give what a run says of its work: settings by their last name, and metrics of each step as one text."""
    found: dict[str, str] = {}
    for path, values in run_facts(run).items():
        named = _WORK.search(path)
        if named and len(values) == 1 and values[0] != json.dumps(None):
            found.setdefault(named[2], values[0])
    world = run.manifest.world_size
    if world:
        found["world_size"] = str(world)
    return found | {name: "logged" for name in _LOGGED if len(_logged(run, name))}


def modes_said(default: Sequence[Run], deterministic: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Give what both sides say of their determinism: for each setting that either states, both values.

    Raises
    ------
    NotComparable
        The default side says that it was deterministic and the deterministic one that it was not.
    """
    sides = [_modes(runs) for runs in (default, deterministic)]
    if not all(sides):
        return {}
    names = sorted(sides[0].keys() | sides[1].keys())
    modes = {name: (sides[0].get(name, "unset"), sides[1].get(name, "unset")) for name in names}
    turned = [name for name, values in modes.items() if values == ("true", "false")]
    if turned and ("false", "true") not in modes.values():
        raise NotComparable(
            f"The sides are swapped: {turned[0]} is true on the default side and false on the other.",
            "give the default side first",
        )
    return modes


def _modes(runs: Sequence[Run]) -> dict[str, str]:
    """Give what all runs of a side say of their determinism."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for path, values in run_facts(run).items():
            named = _MODES.search(path)
            if named:
                found.setdefault(named[2], set()).update(values)
    return {name: ", ".join(sorted(values)) for name, values in found.items()}
