"""Checkpoints before and after a resume: what was not restored is named, and every control is caught."""

import json
import struct

import pytest
import torch

from detlab import check_resume
from detlab.checks.checkpoints import open_checkpoint
from detlab.checks.resume import controls
from detlab.errors import InputError, NotComparable
from tests.checks.resume.stories import errors, finding, verified


def training_state(*, steps=3, seed=1):
    """The state of a small training with bf16 parameters and float32 master weights, as Megatron names it."""
    torch.manual_seed(seed)
    master = torch.nn.Parameter(torch.randn(6, 5))
    optimizer = torch.optim.AdamW([master], lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(steps):
        optimizer.zero_grad()
        (master * torch.randn(6, 5)).square().sum().backward()
        optimizer.step()
        schedule.step()
    inner = optimizer.state_dict()
    name = "decoder.layers.0.mlp.weight"
    return {
        "model": {name: master.detach().bfloat16()},
        "optimizer": {
            "state": {"fp32_param": {name: master.detach().clone()}, **inner["state"]},
            "param_groups": inner["param_groups"],
            "grad_scaler": {"scale": 2.0**20, "_growth_tracker": 7},
        },
        "opt_param_scheduler": schedule.state_dict(),
        "rng_state": [{"cuda_rng_state": torch.get_rng_state()}],
        "iteration": steps,
        "args": {"consumed_train_samples": 12, "lr": 1e-2, "save": "x"},
        "timestamp": "monday",
    }


EVERY = {
    "parameters", "master weights", "moments", "optimizer step", "param groups", "rng", "scheduler",
    "loss scale", "data position",
}  # fmt: skip


@pytest.fixture
def pair(tmp_path):
    """Two files of one state, and a function that saves the second again with something changed."""
    content = training_state()
    torch.save(content, tmp_path / "saved.pt")

    def save(change=None):
        again = training_state() | {"timestamp": "tuesday"}
        if change:
            change(again)
        torch.save(again, tmp_path / "loaded.pt")
        return tmp_path / "saved.pt", tmp_path / "loaded.pt"

    return save


def test_a_resume_that_holds_is_verified_to_the_byte(pair):
    result = check_resume(*pair(), at="load")
    assert result.verdict == "pass"
    assert EVERY | {"runtime parameters"} == set(verified(result))
    assert {each.evidence for each in result.verified} == {"exact: every byte", "exact: every bit"}
    assert [(row["component"], row["severity"]) for row in result.findings.iter_rows(named=True)] == [
        ("bookkeeping", "note")
    ]


def test_every_component_has_a_control_that_is_caught(pair):
    result = check_resume(*pair(), at="load")
    assert set(result.table["component"]) == set(verified(result))
    assert result.table["caught"].all()
    ways = dict(result.table.group_by("component").agg("how").rows())
    assert {"zeroed", "missing"} <= set(ways["moments"])
    assert "reset" in ways["data position"]
    assert len(controls(*pair(), at="load")) == len(result.table)


def zero_moments(state):
    state["optimizer"]["state"][0]["exp_avg"].zero_()


def drop_moments(state):
    for name in ("exp_avg", "exp_avg_sq"):
        del state["optimizer"]["state"][0][name]


def reset_step(state):
    state["optimizer"]["state"][0]["step"] = torch.tensor(0.0)


def seed_again(state):
    torch.manual_seed(5)
    state["rng_state"][0]["cuda_rng_state"] = torch.get_rng_state()


def reset_scale(state):
    state["optimizer"]["grad_scaler"]["scale"] = 65536.0


def reset_schedule(state):
    state["opt_param_scheduler"]["last_epoch"] = 0


def reset_position(state):
    state["args"]["consumed_train_samples"] = 0


def change_rate(state):
    state["optimizer"]["param_groups"][0]["lr"] = 0.5


@pytest.mark.parametrize(
    ("change", "component", "kind", "said"),
    [
        (zero_moments, "moments", "zeroed", "1 of 2 moment tensors all zero after load"),
        (drop_moments, "moments", "missing", "2 of 2 moment tensors missing after load"),
        (reset_step, "optimizer step", "reset", "optimizer step 3 -> 0"),
        (seed_again, "rng", "different", "1 of 1 rng tensor differs after load"),
        (reset_scale, "loss scale", "reset", "loss scale 1048576.0 -> 65536.0"),
        (reset_schedule, "scheduler", "reset", "scheduler 3 -> 0"),
        (reset_position, "data position", "reset", "data position 12 -> 0"),
        (change_rate, "param groups", "different", "param groups 0.001 -> 0.5"),
    ],
)
def test_what_was_not_restored_is_the_only_error(pair, change, component, kind, said):
    result = check_resume(*pair(change), at="load")
    assert result.verdict == "fail"
    assert errors(result) == [component]
    row = finding(result, component)
    assert row["kind"] == kind
    assert said in row["found"]
    assert row["stage"] == "state at load"
    assert component not in verified(result)


def test_parameters_of_another_model_than_their_master_weights_are_found(pair):
    def change(state):
        state["model"]["decoder.layers.0.mlp.weight"][0, 0] += 1

    result = check_resume(*pair(change), at="load")
    assert errors(result) == ["parameters", "parameters"]
    assert "not rounded to nearest even" in result.findings["found"][1]
    assert "in the reference all 1 are" in result.findings["found"][1]


def test_checkpoints_of_different_steps_are_told_so_and_nothing_else(pair, tmp_path):
    saved, _ = pair()
    torch.save(training_state(steps=5), tmp_path / "later.pt")
    result = check_resume(saved, tmp_path / "later.pt")
    assert errors(result) == ["data position"]
    assert "different steps" in {each.what: each.why for each in result.not_checked}["moments"]


def test_a_checkpoint_that_is_given_twice_shows_nothing(pair):
    saved, _ = pair()
    with pytest.raises(NotComparable, match="given twice"):
        check_resume(saved, saved)


def test_that_no_later_step_was_seen_is_said(pair):
    result = check_resume(*pair(), at="load")
    assert "steps after the resume" in {each.what for each in result.not_checked}
    result = check_resume(*pair(), at="later")
    assert "steps after the resume" not in {each.what for each in result.not_checked}


def test_that_nobody_said_when_is_said(pair):
    result = check_resume(*pair())
    assert "moment" in {each.what for each in result.not_checked}


def test_other_names_can_be_given(pair):
    def change(state):
        state["net"] = state.pop("model")

    saved, loaded = pair(change)
    assert errors(check_resume(saved, loaded)) == ["parameters"]
    assert check_resume(saved, loaded, names=lambda name: name.replace("net.", "model.")).verdict == "pass"


def test_both_moments_are_judged_where_both_are_given(pair, tmp_path):
    saved, loaded = pair()
    later = {name: training_state(steps=5) for name in "ab"}
    zero_moments(later["b"])
    for name, content in later.items():
        torch.save(content, tmp_path / f"{name}.pt")
    result = check_resume(
        {"checkpoint": saved, "later": tmp_path / "a.pt"}, {"checkpoint": loaded, "later": tmp_path / "b.pt"},
        at="load",
    )  # fmt: skip
    assert errors(result) == ["moments"]
    assert finding(result, "moments")["stage"] == "state later"
    assert set(verified(result)) >= EVERY


def test_another_layout_is_compared_at_load_and_not_later(pair, tmp_path):
    def change(state):
        state["args"]["tensor_model_parallel_size"] = 1

    first, second = pair(change)
    content = torch.load(first, weights_only=True)
    content["args"]["tensor_model_parallel_size"] = 2
    torch.save(content, first)
    logs = []
    for name, start in (("a", 1), ("b", 4)):
        values = {"lm loss": {"start_step": start, "end_step": 6, "step_interval": 1, "values": {}}}
        values["lm loss"]["values"] = {str(n): 1.5 if name == "a" else 2.5 for n in range(start, 7)}
        logs.append(tmp_path / f"{name}.json")
        logs[-1].write_text(json.dumps(values))
    result = check_resume(
        {"checkpoint": first, "metrics": logs[0]}, {"checkpoint": second, "metrics": logs[1]}, at="load"
    )
    assert result.verdict == "pass"
    assert set(verified(result)) >= EVERY
    assert [each.why for each in result.not_checked if each.what == "later steps"] == [
        "another parallel layout (tp 2 and 1) adds up in another order: later steps are not comparable"
    ]


def write_weights(path, tensors):
    """Write float16-sized tensors as safetensors: the length of the header, the header, the bytes."""
    header, content = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.view(torch.int16).numpy().tobytes()
        place = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": place}
        content += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def test_a_file_of_weights_says_nothing_of_the_optimizer(pair, tmp_path):
    saved, _ = pair()
    weights = {f"model.{name}": each for name, each in training_state()["model"].items()}
    result = check_resume(saved, write_weights(tmp_path / "model.safetensors", weights), at="load")
    assert set(verified(result)) == {"parameters"}
    assert {"moments", "rng", "scheduler"} <= {each.what for each in result.not_checked}


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_damaged_checkpoint_is_never_a_pass(pair, share):
    saved, loaded = pair()
    content = loaded.read_bytes()
    loaded.write_bytes(content[: int(len(content) * share)])
    try:
        verdict = check_resume(saved, loaded).verdict
    except InputError:
        verdict = "refused"
    assert verdict != "pass"


def test_a_tensor_that_lies_beyond_the_end_of_its_file_is_named_and_why(tmp_path):
    for name in "ab":
        weights = {f"model.{key}": each for key, each in training_state()["model"].items()}
        write_weights(tmp_path / f"{name}.safetensors", weights)
    sides = [open_checkpoint(tmp_path / f"{name}.safetensors") for name in "ab"]
    content = sides[1].path.read_bytes()
    sides[1].path.write_bytes(content[:-4])
    result = check_resume(*sides)
    assert result.verdict == "invalid"
    assert "1 tensor of parameters cannot be compared" in result.problems[0].what
