"""A small training that is really resumed, with its states recorded: right, and with one part left out."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import detlab
from detlab import check_resume
from tests.checks.resume.stories import errors, finding, verified

BATCHES = torch.randn(8, 4, 8, generator=torch.Generator().manual_seed(7))
FIRST, LAST = 4, 6


def training():
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def train(parts, folder, first, before_step):
    model, optimizer, schedule = parts
    with detlab.Recorder(folder, start_step=first) as recorder:
        recorder.attach(model, optimizer)
        for step in range(first, LAST + 1):
            before_step(recorder, step)
            loss = model(BATCHES[step]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            recorder.metric("loss", loss.item(), step=step)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The run that was not interrupted, and what it saved before its fourth step."""
    folder = tmp_path_factory.mktemp("resume")
    parts = training()
    kept = {}

    def save(recorder, step):
        if step == FIRST:
            recorder.snapshot("saved", *parts[:2], scheduler=parts[2], position=step)
            kept.update({name: part.state_dict() for name, part in zip("mos", parts, strict=True)})
            kept.update(rng=torch.get_rng_state())
            torch.save(kept, folder / "saved.pt")

    train(parts, folder / "reference", 1, save)
    return folder


def resume(folder, tmp_path, *, without="", seed=None):
    parts = training()
    kept = torch.load(folder / "saved.pt", weights_only=True)
    for name, part in zip("mos", parts, strict=True):
        if name != without:
            part.load_state_dict(kept[name])
    if without == "zero":
        for state in parts[1].state.values():
            state["exp_avg"].zero_()
    if without != "rng":
        torch.set_rng_state(kept["rng"])

    def load(recorder, step):
        if step == FIRST:
            recorder.snapshot("loaded", *parts[:2], scheduler=parts[2], position=step)
            if seed is not None:
                torch.manual_seed(seed)
            recorder.snapshot("first use")

    train(parts, tmp_path / "resumed", FIRST, load)
    return check_resume(folder / "reference", tmp_path / "resumed")


def test_a_right_resume_is_verified_bitwise_over_its_later_steps(reference, tmp_path):
    result = resume(reference, tmp_path)
    assert result.verdict == "pass"
    assert set(verified(result)) == {
        "parameters", "moments", "optimizer step", "param groups", "rng", "scheduler", "data position",
        "calls", "loss",
    }  # fmt: skip
    assert result.table["caught"].all()
    assert set(result.table["component"]) == set(verified(result))
    assert {each.evidence.split(":")[0] for each in result.verified} == {"exact"}


@pytest.mark.parametrize(
    ("without", "component", "kind"),
    [
        ("o", "moments", "missing"),
        ("m", "parameters", "different"),
        ("s", "scheduler", "reset"),
        ("rng", "rng", "different"),
        ("zero", "moments", "zeroed"),
    ],
)
def test_the_part_that_was_left_out_is_the_first_finding(reference, tmp_path, without, component, kind):
    result = resume(reference, tmp_path, without=without)
    assert result.verdict == "fail"
    first = result.findings.row(0, named=True)
    assert (first["component"], first["kind"], first["stage"]) == (component, kind, "state at load")
    assert result.problems == ()
    assert not {"activations", "gradients", "update", "data order"} & set(errors(result))


def test_a_generator_that_is_seeded_after_the_load_is_told_so(reference, tmp_path):
    result = resume(reference, tmp_path, seed=5)
    row = finding(result, "rng")
    assert row["kind"] == "overwritten"
    assert row["found"].startswith("rng.cpu: the state was restored but overwritten before first use")
    dropout = [each for each in result.findings.iter_rows(named=True) if "bernoulli" in each["found"]]
    assert [(each["severity"], each["kind"]) for each in dropout] == [("note", "propagated")]
