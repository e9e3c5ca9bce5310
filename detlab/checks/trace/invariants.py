"""The invariants of one trace as data: what holds, how much a breach weighs, why, and where that is from."""

from __future__ import annotations

from typing import Final, NamedTuple


class Invariant(NamedTuple):
    """One thing that has to hold of a trace before a comparison with it means anything.

    Attributes
    ----------
    code
        Its name in findings, ``TRC001`` and so on; a code never changes its meaning.
    holds
        What has to hold.
    severity
        How much a breach weighs, unless the finding says otherwise.
    why
        Why it matters.
    next
        What to do about a breach.
    source
        Where the requirement comes from.
    """

    code: str
    holds: str
    severity: str
    why: str
    next: str
    source: str


_CERTIFIER: Final = "certify_traces.py of the event tracer proposed for Megatron-Core"
_LOADER: Final = "Megatron-LM PR 6610: rules of the loader"
_DEFECTS: Final = "Megatron-Bridge, determinism debug tool: defects met in its tracer"
_TRUTH: Final = "detlab: fail closed; equal digests let equal segments go unread"

_ALL: Final = (
    Invariant("TRC001", "the files are whole", "error",
              "what stands behind a cut is not in the trace, so its absence says nothing",
              "copy the files again, or record the run anew", _LOADER),
    Invariant("TRC002", "the index agrees with the events", "error",
              "equal segments are compared by the digests in the index, without reading an event",
              "copy the rank's files again: they were damaged after they were written", _TRUTH),
    Invariant("TRC003", "the name tables hold every name that the events use", "error",
              "an event without its name cannot be aligned",
              "copy the rank's files again", _TRUTH),
    Invariant("TRC004", "sequence numbers are unique, and none is missing inside a step", "error",
              "a missing number is a call that began and is not in the trace",
              "record the run anew; nothing may be taken out of a trace", _CERTIFIER),
    Invariant("TRC005", "steps never go back", "error",
              "a second run was appended, or two runs wrote into one file",
              "record each run into a folder of its own", _LOADER),
    Invariant("TRC006", "every expected rank is recorded", "error",
              "a cause on a rank that is not recorded cannot be found, and none can be excluded there",
              "give all files of the run, or record the ranks that are missing", _CERTIFIER),
    Invariant("TRC007", "every recorded rank has every expected step", "error",
              "a rank that lacks a step cannot be compared there",
              "record the same steps on all ranks", _CERTIFIER),
    Invariant("TRC008", "all ranks have the same microbatches in a step", "error",
              "every rank of a step works through the same microbatches",
              "see whether a rank was ended inside the step", _CERTIFIER),
    Invariant("TRC009", "ranks, layout and communicators agree with each other", "error",
              "runs align on the place of a rank, and collectives are judged over their members",
              "keep the files of one run in one folder, and record after the groups are initialised", _TRUTH),
    Invariant("TRC010", "every recorded member sees the same collectives in the same order", "error",
              "members are joined by their order on the communicator; a call too many shifts all after it",
              "see whether the tracer missed calls: captured references bypass patches", _DEFECTS),
    Invariant("TRC011", "no collective is pending", "error",
              "a collective that nobody waited for while the trace ran has no recorded result",
              "check without the last step: load_run(…, steps=…), or --steps", _CERTIFIER),
    Invariant("TRC012", "results are hashed when they are there", "warning",
              "a digest of bytes in flight, or of addresses, says more of the observer than of the run",
              "nothing: a comparison sets these aside; detlab.Recorder hashes at the wait", _DEFECTS),
    Invariant("TRC013", "every computing call has evidence of its outputs", "warning",
              "a call without it never counts as identical",
              "trace with digests of outputs", _CERTIFIER),
    Invariant("TRC014", "every computing call has evidence of its inputs", "warning",
              "without it an origin cannot be told from a receiver",
              "record with inputs=True", "Megatron-LM PR 7262: the input test"),
    Invariant("TRC015", "one digest algorithm", "error",
              "digests of different algorithms are never compared",
              "record all ranks with one version of the tracer",
              "Megatron-LM PR 6610: digests of other modes are incomparable"),
    Invariant("TRC016", "no digest is weak", "note",
              "an XOR does not see permutations or values in pairs; equality of such a digest proves little",
              "confirm what rests on it with a digest over every byte",
              "PyTorch PR 154149: torch.hash_tensor"),
    Invariant("TRC017", "no site stands in a rank twice", "error",
              "a site is the identity of a call; twins cannot be aligned",
              "record each run into a folder of its own", _LOADER),
    Invariant("TRC018", "recomputation gives the bits of the forward", "error",
              "a run that disagrees with itself cannot agree with another",
              "see what differs: detlab check recompute", _CERTIFIER),
    Invariant("TRC019", "deterministic mode was on, on every rank", "warning",
              "kernels that are free to vary explain any difference",
              "see the whole recipe: detlab check recipe", _CERTIFIER),
)  # fmt: skip

INVARIANTS: Final[dict[str, Invariant]] = {each.code: each for each in _ALL}
"""Every invariant by its code."""


def page() -> str:
    """Write the invariants as a table for the documentation, in Markdown."""
    head = ["| code | what holds | a breach is | why | source |", "| --- | --- | --- | --- | --- |"]
    rows = [f"| {each.code} | {each.holds} | {each.severity} | {each.why} | {each.source} |" for each in _ALL]
    return "\n".join([*head, *rows]) + "\n"
