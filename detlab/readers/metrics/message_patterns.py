"""The table of messages: how Megatron, NeMo, torchtitan, HF, DeepSpeed, fairseq and apex word each."""

from __future__ import annotations

from typing import Final, NamedTuple


class Pattern(NamedTuple):
    """One wording of a kind of message.

    Attributes
    ----------
    kind
        Its name in `Log.messages`.
    marker
        A literal text that stands in every such line, and in as few others as can be.
    form
        Regular expression with the named groups that it has of ``step``, ``rank``, ``node``, ``device``
        and ``value``.
    """

    kind: str
    marker: str
    form: str


_NUMBER: Final = r"(?<value>[-+]?(?:(?i:nan|inf)|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
_RESULT: Final = rf"(?:tensor\()?{_NUMBER}"
_PLACE: Final = (
    r"Rank (?<rank>\d+), node (?<node>[^,\s]+), device (?<device>\d+), iteration #?(?<step>-?\d+): "
)

TRACKER: Final = "validation tracker"
UNEXPECTED: Final = "unexpected result"
FIRST_RERUN: Final = "first rerun"
SECOND_RERUN: Final = "second rerun"
SAME_DEVICE: Final = "rescheduled on the same device"
CONCLUSION: Final = "validation conclusion"

_VALIDATED: Final = (  # megatron/core/rerun_state_machine.py, and the assertions before it
    Pattern(
        TRACKER,
        " jobID=",
        r"ts=.+ node=(?<node>\S+) device=(?<device>\d+) jobID=\S+ rank=(?<rank>\d+) "
        rf"iteration=(?<step>-?\d+) status=\S+ result=(?:{_RESULT})?",
    ),
    Pattern(UNEXPECTED, "Unexpected result ", rf"{_PLACE}Unexpected result (?:{_RESULT})?"),
    Pattern(
        UNEXPECTED,
        "Unexpected result ",
        rf"Unexpected result (?:{_RESULT})?.* on rank (?<rank>\d+) at iteration #?(?<step>-?\d+)",
    ),
    Pattern(
        UNEXPECTED,
        "found NaN in local",
        r"Rank (?<rank>\d+): found (?<value>NaN) in local .*Device: (?<device>\d+), node: (?<node>[^,\s]+)",
    ),
    Pattern(FIRST_RERUN, "First rerun: unexpected result", rf"{_PLACE}First rerun: .*?\({_RESULT}"),
    Pattern(SECOND_RERUN, "Second rerun: unexpected result", rf"Second rerun: .*?\({_RESULT}"),
    Pattern(
        SAME_DEVICE,
        "Got rescheduled on the same GPU",
        r"\(node: (?<node>[^,\s]+), gpu: (?<device>\d+)\)",
    ),
    Pattern(CONCLUSION, "Possible transient error", _PLACE + "Possible transient error"),
    Pattern(CONCLUSION, "Possible persistent error", _PLACE + "Possible persistent error"),
    Pattern(CONCLUSION, "Correct result (but possible Application error)", _PLACE + "Correct result"),
)

_CRASHED: Final = (
    # the "Rank n" of the process group counts within the group, so that only the prefix names the rank
    Pattern(
        "timeout",
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout(?:.* ran for (?<value>\d+) milliseconds)?",
    ),
    Pattern("cuda error", "CUDA error: ", "CUDA error: "),
    Pattern("cuda error", "CUDA out of memory", "CUDA out of memory"),
    Pattern("exit", "exiting program ", r"exiting program (?:at iteration +(?<step>\d+)|after )"),
    Pattern("exit", "xiting now. ", r"xiting now\. (?:A checkpoint at|Please resume)"),
    Pattern("exit", "(exitcode: ", r"failed \(exitcode: (?<value>-?\d+)\) local_rank: \d+"),
    Pattern(
        "exit",
        "Exited with exit code ",
        r"error: (?<node>[\w.-]+): tasks? [-\d,]+: Exited with exit code (?<value>\d+)",
    ),
)

_SKIPPED: Final = (
    Pattern(
        "overflow",
        "OVERFLOW!",
        rf"OVERFLOW!(?: Rank (?<rank>\d+))? Skipping step\. Attempted loss scale: {_NUMBER}",
    ),
    Pattern(
        "overflow",
        "Overflow detected. Skipping step.",
        rf"(?:\[Rank (?<rank>\d+)\] )?Overflow detected\. Skipping step\. Attempted loss scale: {_NUMBER}",
    ),
    Pattern("overflow", "verflow detected, ", rf"verflow detected, .*setting loss scale to:? {_NUMBER}"),
    Pattern(
        "overflow",
        "Gradient overflow.  Skipping step, ",
        rf"Skipping step, loss scaler \d+ reducing loss scale to {_NUMBER}",
    ),
    Pattern("steps to skip", "Will skip these iterations from tracker file", r"tracker file: \[\d"),
)

_BOUNDARIES: Final = (
    Pattern("start", "[before the start of training step]", "before the start of training step"),
    Pattern("start", "Setting rerun_state_machine.", r"current_iteration to (?<step>\d+)\.\.\."),
    Pattern("start", "Training starts at step ", r"Training starts at step (?<step>\d+)"),
    Pattern("start", "***** Running training *****", r"\*{5} Running training \*{5}"),
    Pattern(
        "checkpoint loaded",
        "successfully loaded checkpoint",
        r"successfully loaded checkpoint.*at iteration +(?<step>\d+)",
    ),
    Pattern(
        "checkpoint loaded",
        "Global Checkpoint Load ",
        r"Global Checkpoint Load : Rank ?: (?<rank>\d+) ",
    ),
    Pattern(
        "checkpoint loaded",
        "Restoring states from the checkpoint path at ",
        r"Restoring states from the checkpoint path at .*?(?:step=(?<step>\d+).*)?$",
    ),
    Pattern(
        "checkpoint loaded",
        "Loading the checkpoint ",
        r"Loading the checkpoint (?:at step |from .*step-)(?<step>\d+)\.?",
    ),
    Pattern(
        "checkpoint loaded",
        "Continuing training from global step ",
        r"Continuing training from global step (?<step>\d+)",
    ),
    Pattern("checkpoint loaded", "Loading model from ", r"Loading model from .*checkpoint-(?<step>\d+)"),
    Pattern(
        "checkpoint loaded",
        "Loading states from ",
        r"Loading states from .*?(?:(?:checkpoint-|step_)(?<step>\d+).*)?$",
    ),
    Pattern(
        "checkpoint loaded",
        "[Torch] Loaded checkpoint from ",
        r"\[Torch\] Loaded checkpoint from .*?(?:global_step(?<step>\d+).*)?$",
    ),
    Pattern(
        "checkpoint loaded",
        "Loaded checkpoint ",
        r"Loaded checkpoint .* \(epoch \d+ @ (?<step>\d+) updates\)",
    ),
)

_SAVED: Final = (
    Pattern(
        "checkpoint saved",
        "uccessfully saved checkpoint",
        r"uccessfully saved checkpoint.*?(?:at|from) iteration +(?<step>\d+)",
    ),
    Pattern(
        "checkpoint saved",
        "[Torch] Checkpoint ",
        r"\[Torch\] Checkpoint (?:global_step(?<step>\d+)|\S+) is ready now!",
    ),
    Pattern("checkpoint saved", "Finished saving the checkpoint", "Finished saving the checkpoint"),
    Pattern(
        "checkpoint saved",
        "Saved checkpoint ",
        r"Saved checkpoint .* \(epoch \d+ @ (?<step>\d+) updates",
    ),
    Pattern(
        "checkpoint save started",
        "saving checkpoint at iteration ",
        r"saving checkpoint at iteration +(?<step>\d+)",
    ),
    Pattern(
        "checkpoint save started",
        "Scheduled async checkpoint save for ",
        r"Scheduled async checkpoint save for .*?(?:step=(?<step>\d+).*)?$",
    ),
    Pattern("checkpoint save started", "Saving the checkpoint", r"Saving the checkpoint(?: \(or staging|\.)"),
    Pattern(
        "checkpoint save started",
        "Saving current state to ",
        r"Saving current state to .*?(?:(?:checkpoint-|step_)(?<step>\d+).*)?$",
    ),
    Pattern(
        "checkpoint save started",
        "Saving model checkpoint",
        r"Saving model checkpoint(?: to|:) .*?(?:(?:checkpoint-|global_step)(?<step>\d+).*)?$",
    ),
)

_TOLD: Final = (
    Pattern(
        "validation",
        " loss at iteration ",
        r"validation\S* loss at iteration +(?<step>\d+)(?: on \w+ set)? \|"
        rf"(?:[^|]*? value: {_NUMBER})?",
    ),
    Pattern("validation", "validate step:", rf"validate step: +(?<step>\d+) +loss: +{_NUMBER}"),
    Pattern(
        "loss not visible",
        "arallel loss is not visible",
        r"arallel loss is not visible\.(?:.*rank (?<value>\d+))?",
    ),
)

PATTERNS: Final = (*_VALIDATED, *_CRASHED, *_SKIPPED, *_BOUNDARIES, *_SAVED, *_TOLD)
"""Every known wording, in the order in which they are tried: a line has the first kind that fits."""

MARKERS: Final = list(dict.fromkeys(pattern.marker for pattern in PATTERNS))

FAILURES: Final = (
    TRACKER,
    UNEXPECTED,
    FIRST_RERUN,
    SECOND_RERUN,
    SAME_DEVICE,
    CONCLUSION,
    "timeout",
    "cuda error",
)
"""Kinds that say that something went wrong: a log that has one is evidence, even without step metrics."""
