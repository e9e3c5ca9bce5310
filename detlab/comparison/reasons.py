"""Why a call is a root: the class of its finding, and the sentence that explains it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """Why a call is a root: the class of its finding and the sentence that explains it."""

    finding_class: str
    why: str


REASONS: Final = {
    "kernel": Reason(
        "kernel",
        "every recorded input of the call (tensors, scalars, generator) has equal bits in both runs, and its "
        "output has not",
    ),
    "kernel_seen": Reason(
        "kernel",
        "the inputs of the call have equal digests in both runs, as far as these see, and its output has "
        "not: a digest of a sample or a screen can miss a difference",
    ),
    "first_visible": Reason(
        "kernel",
        "first visible here: its inputs have equal digests, but a digest of some of them cannot see every "
        "difference, so that the call which made these may be the real origin",
    ),
    "collective": Reason(
        "collective",
        "what every contributor gives has equal bits in both runs, and the output differs on several "
        "members: algorithm, topology or order of the reduction",
    ),
    "one_member": Reason(
        "rank",
        "what every contributor gives is equal, and the output differs on this rank alone: corruption, "
        "another buffer or hardware there, not the choice of algorithm",
    ),
    "piece": Reason(
        "collective", "it received a piece that its giver did not send: that giver's input is equal"
    ),
    "two_members": Reason(
        "unknown",
        "inputs are equal and outputs differ on both members, but a sum of two has no order: suspect a hash "
        "taken before completion, corruption, or an input that was not recorded",
    ),
    "one_shard": Reason(
        "unknown",
        "one member's shard differs while all inputs are equal: the algorithm and that rank cannot be told "
        "apart where no other member has the same output",
    ),
    "slices": Reason(
        "unknown",
        "a member's input differs, but whether in the slice that this rank receives was not recorded",
    ),
    "contributors": Reason("unknown", "a contributor's call was not recorded, so its input is not known"),
    "seeded": Reason(
        "rng", "a random op gives other numbers; the state of its generator was not recorded or is equal"
    ),
    "weak_random": Reason(
        "rng",
        "first visible here: an input came from a random op, and its digest cannot tell two masks apart: the "
        "seeds or generator states differ",
    ),
    "no_inputs": Reason("data", "the call takes no tensors, so what it gives comes from outside the model"),
    "contradiction": Reason(
        "unknown",
        "this op cannot give other bits for the same bits. In order of likelihood: something wrote to an "
        "input after it was hashed (a side stream, a gather that was not waited for); an unrecorded kernel "
        "made the output; the hardware of this rank",
    ),
    "weak_contradiction": Reason(
        "unknown",
        "this op cannot give other bits for the same bits: the digest of an input missed a difference, so "
        "the origin is a call that made one of its inputs",
    ),
    "open": Reason(
        "unknown", "its recorded inputs are equal, but an input tensor of the call was not recorded"
    ),
    "open_scalar": Reason(
        "unknown",
        "its recorded inputs are equal, but its scalar arguments were not recorded: a learning rate, a loss "
        "scale, a clip coefficient or an offset can carry a difference from Python",
    ),
    "view": Reason(
        "unknown",
        "a view gives the bytes of its input, so its input was written after it was hashed, or the record "
        "is wrong",
    ),
    "in_flight": Reason(
        "unknown",
        "an input is what a collective gives that nobody had waited for: it may have been written after it "
        "was hashed. Hash the inputs again after the call, or wait for the collective before it",
    ),
    "order": Reason(
        "structure",
        "the runs make these calls in another order, and they share what they write to or draw from: the "
        "order is the cause",
    ),
    "permuted": Reason(
        "structure", "it takes the same tensors in another order, which changes the order of what it adds up"
    ),
    "disagree": Reason(
        "rank",
        "what every contributor gives is equal, and members of one reduction hold different results: they "
        "must agree, whatever the algorithm. Corruption, another buffer or hardware on one of them",
    ),
    "statistic": Reason(
        "unknown",
        "only statistics were recorded, such as norms and sums; as float reductions they can differ for "
        "equal bits, so that their difference proves nothing",
    ),
    "unproven": Reason(
        "unknown",
        "its inputs are equal only in what was recorded of them (shapes, rounded numbers or statistics), "
        "which does not prove equal bits",
    ),
    "ambiguous": Reason("unknown", "several calls of the other run fit, and another pairing would match"),
    "padding": Reason(
        "unknown",
        "of its input only rows differ that lie beyond a view of the beginning, perhaps padding; whether it "
        "uses them was not recorded",
    ),
    "no_evidence": Reason(
        "unknown", "its output differs and its inputs were not recorded: this call, or anything before it"
    ),
    "other_digest": Reason(
        "unknown", "the two runs recorded digests of different kinds, which say nothing together"
    ),
    "one_side": Reason("structure", "only one run makes this call: the programs took different paths"),
    "configuration": Reason(
        "environment",
        "the runs chose differently for this call (kernel, tiles, strides), and its values are equal; it is "
        "counted on request",
    ),
    "aside": Reason(
        "observer",
        "it is the first call that differs, and its input comes from one that is set aside: what that gave "
        "was hashed too early, or holds addresses, so that where the difference began was not seen",
    ),
    "uninitialised": Reason("state", "it reads memory that no recorded call has written"),
    "generator": Reason("rng", "the state of the random generator differs before the first random op"),
    "data": Reason("data", "its inputs differ before anything was computed: other samples or another order"),
    "scalar": Reason(
        "upstream",
        "a number passed from Python differs (learning rate, loss scale, clip coefficient, offset), and no "
        "recorded host read before it does",
    ),
    "state": Reason("state", "state that was carried into this step differs"),
    "unrecorded_write": Reason(
        "upstream",
        "an input was equal when it was last used and differs now, with no recorded write in between: an "
        "unrecorded kernel (in place, custom, on a side stream) wrote it",
    ),
    "upstream": Reason(
        "upstream",
        "its inputs differ and no recorded call before it on this rank does: the difference was there before "
        "the first recorded call (parameters, buffers, data), or an unrecorded call made it",
    ),
}
"""Every reason a root can have; rules (a) to (e) of the order of judgement."""
