"""The words for everything that is known of one call: decided here once, drawn as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from detlab.comparison.call.members import Members
from detlab.comparison.call.part_words import numbered, step_words
from detlab.comparison.call.sides import SideState
from detlab.comparison.ignored import WHY
from detlab.comparison.reasons import REASONS
from detlab.comparison.text import PROVES
from detlab.schema import Evidence, Verdict

if TYPE_CHECKING:
    from detlab.comparison.call.details import CallDetails

FLAGS: Final = {
    "view": "it gives the bytes of its input under another shape",
    "fresh_memory": "it meets memory that no recorded call has written",
    "not_waited_for": WHY["not_waited_for"],
    "pointers": WHY["pointers"],
    "copy_in_flight": WHY["copy_in_flight"],
    "weak_input": "a digest of its inputs is weak: it cannot see every difference",
    "weak_output": "a digest of its outputs is weak: it cannot see every difference",
    "open_inputs": "not every input of the call was recorded, so that equal ones do not close it",
    "host_scalar": "numbers that Python passed are part of its inputs",
    "nan": "NaN are among its tensors",
    "inf": "Inf are among its tensors",
    "seeded": "it draws from a random generator",
}
"""What each flag of an event says."""


def headline(details: CallDetails) -> str:
    """Name the verdict, the op, its module and the phase."""
    call = details.call
    group = f" on {details.group}" if details.group else ""
    return f"{call.verdict.upper()}: {call.op}{group} in {call.scope or 'no module'} ({call.phase})"


def place(details: CallDetails) -> str:
    """Say on which rank and where in the step the call is."""
    call = details.call
    batch = f", microbatch {call.microbatch}" if call.microbatch >= 0 else ""
    orders = zip("ab", (call.seq_a, call.seq_b), strict=True)
    order = ", ".join(
        f"not in run {name}" if seq is None else f"{seq:,} in run {name}" for name, seq in orders
    )
    when = f"{step_words(call.step)}{batch}, call {call.call} of its kind"
    return f"rank {call.rank} ({call.coordinate}), {when}; order {order}"


def sentences(details: CallDetails) -> tuple[str, ...]:
    """Say all that needs no table: what the verdict means first, then what it rests on."""
    return tuple(_sentences(details))


def _sentences(details: CallDetails) -> Iterator[str]:
    yield meaning(details)
    if details.call.verdict not in ("only_a", "only_b"):
        yield f"{_capital(side_words('inputs', details.inputs))}."
        yield f"{_capital(side_words('outputs', details.outputs))}."
    yield from _lanes(details)
    if details.members is not None:
        yield from _members(details.members)
    yield from _flags(details)
    yield from (f"{_capital(note)}." for note in details.notes)
    yield from _call_sites(details)
    if details.how in _HOW and details.call.verdict not in ("only_a", "only_b"):
        yield f"The runs' calls were matched by {_HOW[details.how]}."
    yield from _findings(details)


_HOW: Final = {
    "aligned": "alignment, because the runs do not make the same calls in this part of the step",
    "override": "names that you gave",
}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def meaning(details: CallDetails) -> str:
    """Say in one sentence what the verdict means for this call, and never more than was recorded."""
    if not details.set_aside:
        return _MEANING[Verdict[details.call.verdict.upper()]](details)
    why = "; ".join(f"{kind}: {why}" for kind, why in details.set_aside)
    return f"Set aside, and not counted ({why}). By its own record alone it is: {details.call.verdict}."


def _match(details: CallDetails) -> str:
    inputs, outputs = details.inputs.same, details.outputs.same
    if False in (inputs, outputs):
        if details.members is not None:
            return (
                "It matches by what the members gave: what differs here is no input or output of this rank."
            )
        return (
            "It matches: the runs make this call and others like it in another order, and they share nothing."
        )
    if outputs is None:
        return "Nothing is known of what it gave, so that it is not counted as identical."
    if inputs is None:
        return "Its outputs match; of its inputs nothing is known."
    if details.members is not None:
        return "What this rank gave and what it got match, as far as the evidence goes."
    return "The same inputs gave the same outputs, as far as the evidence goes."


def _absorbed(_: CallDetails) -> str:
    return "Its inputs differ and its outputs do not: it passes no difference on, a divergence all the same."


def _receiver(details: CallDetails) -> str:
    because = details.members.because if details.members else ()
    if because:
        return f"It received a difference from {_ranks(because)}: untested, not exonerated."
    if details.inputs.same is False:
        return "Its inputs differ already: it received a difference, and is untested, not exonerated."
    return "It received a difference: untested, not exonerated."


def _origin(details: CallDetails) -> str:
    inputs = details.inputs
    if details.members is None and inputs.is_weak and inputs.same:
        return (
            "First visible here: its inputs have equal digests, and some of these cannot see every "
            "difference, so that the call which made them may be the real origin."
        )
    return f"The difference begins here{_why_origin(details)}."


def _why_origin(details: CallDetails) -> str:
    inputs = details.inputs
    if details.members is not None:
        equal = "what it depends on is equal on every member, and its output differs"
        return f": {details.members.reason or equal}"
    if inputs.same is False:
        lanes = numbered("lane", details.origin_lanes) if details.origin_lanes else ""
        return f": in {lanes} the same inputs gave other outputs" if lanes else f": {REASONS['order'].why}"
    return _with_equal_inputs(details)


def _with_equal_inputs(details: CallDetails) -> str:
    inputs = details.inputs
    if "seeded" in (*details.flags[0], *details.flags[1]):
        return f": {REASONS['seeded'].why}"
    if "state" in (details.kind, details.call.phase):
        return f": {REASONS['state'].why}"
    if not inputs.num_tensors:
        return f": {REASONS['no_inputs'].why}"
    if inputs.evidence == "exact":
        return ": the same bits in gave other bits out"
    return f" as far as the digests see: its inputs match ({inputs.evidence}), and its outputs do not"


def _only(details: CallDetails) -> str:
    run = details.call.verdict[-1]
    return f"Only run {run} makes this call, so that there is nothing to compare it with."


def _changed(details: CallDetails) -> str:
    if details.inputs.same and details.outputs.same:
        return f"Counted on request: {REASONS['configuration'].why.partition('; ')[0]}."
    inputs = "differ" if details.inputs.same is False else "are not known to be equal"
    return f"It gives outputs of another shape, dtype or number, and its inputs {inputs}."


def _unknown(details: CallDetails) -> str:
    return f"Whether the difference begins here cannot be told: {details.why}."


_MEANING: Final = {
    Verdict.MATCH: _match,
    Verdict.ABSORBED: _absorbed,
    Verdict.RECEIVER: _receiver,
    Verdict.ONLY_A: _only,
    Verdict.ONLY_B: _only,
    Verdict.CHANGED: _changed,
    Verdict.UNKNOWN: _unknown,
    Verdict.ORIGIN: _origin,
}


def side_words(what: str, state: SideState) -> str:
    """Say what is known of all inputs or of all outputs."""
    if not state.num_parts:
        return f"it {'takes' if what == 'inputs' else 'gives'} no tensor or number that was recorded"
    if state.same is None:
        return f"of its {what} nothing can be said: {state.why}"
    if not state.same:
        return f"its {what} differ{_how_many(state)}"
    proves = PROVES[Evidence[state.evidence.upper()]]
    weak = ", and some of these are weak" if state.is_weak else ""
    return f"its {'recorded ' if state.is_open else ''}{what} match ({proves}{weak})"


def _how_many(state: SideState) -> str:
    """Count the tensors that differ, where they were recorded one by one."""
    unsaid = f"; of {state.num_unsaid:,} nothing can be said" if state.num_unsaid else ""
    if not state.num_differing:
        return f", and which of them is not known{unsaid}" if unsaid else ", which no digest of theirs shows"
    return f" ({state.num_differing:,} of {state.num_parts:,}{unsaid})"


def _lanes(details: CallDetails) -> Iterator[str]:
    if details.num_lanes and details.differing_lanes:
        lanes = numbered("lane", details.differing_lanes)
        yield f"Of its {details.num_lanes:,} lanes, which are judged one by one, {lanes} differ."


def _ranks(ranks: Sequence[int]) -> str:
    return numbered("rank", ranks)


def _members(members: Members) -> Iterator[str]:
    depends_on = _DEPENDS.get(members.depends_on, members.depends_on)
    if members.num_members < 1:
        yield f"Its output depends on {depends_on}; the members of its communicator are not known."
        return
    yield f"Its output depends on {depends_on}; {members.num_members:,} members take part."
    for gives, says in _GIVES.items():
        ranks = [each.rank for each in members.listed if each.gives == gives]
        if ranks:
            yield says.format(_ranks(ranks))
    if members.num_members > len(members.listed):
        rest = members.num_members - len(members.listed)
        yield f"{rest:,} more members were not asked."


_DEPENDS: Final = {"piece k on member k": "every member, piece by piece"}
_GIVES: Final = {
    "differs": "What {} gave differs between the runs.",
    "unknown": "Whether what {} gave is equal is not known.",
    "only in a": "Only run a makes the call on {}.",
    "only in b": "Only run b makes the call on {}.",
    "not recorded": "The call was not found on {}.",
}


def _flags(details: CallDetails) -> Iterator[str]:
    said = {kind for kind, _ in details.set_aside}
    said |= {"weak_input"} if any(note.startswith("weak inputs") for note in details.notes) else set()
    for name, says in FLAGS.items():
        runs = [run for run, flags in zip("ab", details.flags, strict=True) if name in flags]
        if runs and name not in said:
            only = "" if len(runs) == 2 or details.call.verdict.startswith("only") else f" (in run {runs[0]})"
            yield f"{_capital(says)}{only}."


def _call_sites(details: CallDetails) -> Iterator[str]:
    a, b = details.call_sites
    if a and b and a != b:
        yield f"It was called from {a} in a and from {b} in b."
    elif a or b:
        yield f"It was called from {a or b}."


def _findings(details: CallDetails) -> Iterator[str]:
    for number, kind in zip(details.findings, details.finding_classes, strict=True):
        elsewhere = " on other ranks" if number in details.findings_elsewhere else ""
        yield f"Finding {number} ({kind}) names this site{elsewhere}."
