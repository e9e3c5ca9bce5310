"""Small pairs of runs around a resume, with one planted thing."""

from detlab.schema import Kind, Phase
from detlab.testing import Call, make_run

STATES = {
    "model.decoder.0.fc1.weight": "w",
    "optimizer.state.decoder.0.fc1.weight.exp_avg": "m",
    "optimizer.state.decoder.0.fc1.weight.exp_avg_sq": "v",
    "rng.cuda": "r5",
}
"""A training state: names of tensors, and words for their bits."""

NUMBERS = {"optimizer.param_groups.0.step": "3000", "optimizer.param_groups.0.lr": "0.0001"}
STEP = 3001


def state(name, moment, word, *, step=STEP, **more):
    """A tensor of the training state at one moment."""
    return Call(
        moment, name, outputs=[word], phase=Phase.STATE, kind=Kind.STATE, step=step, microbatch=-1, **more
    )


def number(name, moment, value, *, step=STEP):
    """A number of the training state at one moment, as the recorder writes it."""
    return Call(
        moment, name, results=[value], phase=Phase.STATE, kind=Kind.STATE, step=step, microbatch=-1,
        attributes={"value": value},
    )  # fmt: skip


def snapshot(moment, tensors=None, numbers=None):
    """The whole training state at one moment, with some words and numbers changed; None leaves one out."""
    words = STATES | (tensors or {})
    values = NUMBERS | (numbers or {})
    return [
        *(state(name, moment, word) for name, word in words.items() if word is not None),
        *(number(name, moment, value) for name, value in values.items() if value is not None),
    ]


def saved(*calls, label="reference", **changed):
    """A reference that saved its state and went on."""
    return make_run({0: [*snapshot("saved", **changed), *calls]}, label=label)


def loaded(*calls, label="resumed", **changed):
    """A run that loaded that state and went on."""
    return make_run({0: [*snapshot("loaded", **changed), *calls]}, label=label)


def errors(result):
    """Components of the errors of a check, in their order."""
    return [row["component"] for row in result.findings.iter_rows(named=True) if row["severity"] == "error"]


def finding(result, component):
    """The finding about a component."""
    return next(row for row in result.findings.iter_rows(named=True) if row["component"] == component)


def verified(result):
    """What was verified, by component."""
    return {each.what: each for each in result.verified}
