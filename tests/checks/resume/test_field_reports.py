"""What people who resume training have reported, each as a small pair of runs with the right answer."""

from detlab.checks.resume import check_resume
from detlab.schema import Phase
from detlab.testing import Call, make_metrics_run, make_run
from tests.checks.resume.stories import STEP, errors, finding, loaded, saved, state, verified

SCALE_INV = "decoder.0.fc1.fp8_meta.scale_inv"


def fp8_calls(result):
    forward = {"step": STEP}
    return [
        Call("aten.embedding.default", "embedding", ["table", "ids"], ["x"], **forward),
        Call("te.fp8_gemm.default", "decoder.0.fc1", ["x"], [result], **forward),
        Call("aten.add.Tensor", "decoder.0", [result, "x"], [f"sum of {result}"], **forward),
    ]


def test_a_scale_that_was_not_restored_is_named_before_the_kernel_that_takes_it():
    a = saved(state(SCALE_INV, "saved", "s"), *fp8_calls("h"))
    b = loaded(state(SCALE_INV, "loaded", "S"), *fp8_calls("H"))
    result = check_resume(a, b)
    assert result.verdict == "fail"
    assert errors(result) == ["fp8 state"]
    found = finding(result, "fp8 state")["found"]
    assert "fp8_meta.scale_inv" in found
    assert "not restored" in found
    assert "1 of 6 state groups" in found
    op = finding(result, "activations")
    assert (op["severity"], op["kind"]) == ("note", "propagated")
    assert "te.fp8_gemm.default in decoder.0.fc1" in op["found"]


def test_a_kernel_without_a_state_that_explains_it_is_not_excused():
    a, b = saved(*fp8_calls("h")), loaded(*fp8_calls("H"))
    result = check_resume(a, b)
    assert errors(result) == ["activations"]
    assert finding(result, "activations")["kind"] == "different"


def test_a_state_of_another_place_excuses_no_kernel():
    a = saved(*fp8_calls("h"))
    b = loaded(*fp8_calls("H"), numbers={"optimizer.param_groups.0.step": "0"})
    result = check_resume(a, b)
    assert errors(result) == ["optimizer step"]
    op = finding(result, "activations")
    assert (op["severity"], op["kind"]) == ("warning", "different")
    assert "untested until that is restored" in op["why"]


LOSS = {9: "2.125", 10: "2.109", 11: "2.094", 12: "2.078"}
NORM = {9: "0.855", 10: "0.930", 11: "0.941", 12: "0.912"}


def curves(loss, norm, *, before=False):
    steps = dict.fromkeys(range(1, 9), "2.5") if before else {}
    return {"loss": steps | loss, "grad_norm": steps | norm}


def test_moments_that_were_reset_are_first_visible_in_the_gradient_norm():
    a = make_metrics_run(curves(LOSS, NORM, before=True), label="reference")
    b = make_metrics_run(curves(LOSS | {12: "2.062"}, NORM | {10: "0.973", 11: "0.951"}), label="resumed")
    result = check_resume(a, b)
    assert result.verdict == "fail"
    assert errors(result) == ["grad norm", "loss"]
    first = finding(result, "grad norm")
    assert first["first_step"] == 10
    assert "first visible here: grad_norm at step 10 (resume+1)" in first["found"]
    assert "loss equal as printed at steps 9-11" in first["found"]
    assert finding(result, "loss")["first_step"] == 12


def test_moments_that_are_in_the_file_and_not_in_memory_are_missing_after_load():
    lost = dict.fromkeys(("exp_avg", "exp_avg_sq"))
    lost = {f"optimizer.state.decoder.0.fc1.weight.{name}": None for name in lost}
    result = check_resume(saved(), loaded(tensors=lost))
    assert errors(result) == ["moments"]
    row = finding(result, "moments")
    assert (row["kind"], row["num_leaves"], row["of_leaves"]) == ("missing", 2, 2)
    assert "2 of 2 moment tensors missing after load" in row["found"]


def test_moments_that_are_all_zero_are_told_so():
    name = "optimizer.state.decoder.0.fc1.weight.exp_avg"
    zero = state(name, "loaded", "0", stats={"0": (0.0, 0.0, 0, 0)})
    result = check_resume(saved(), loaded(zero, tensors={name: None}))
    assert errors(result) == ["moments"]
    assert finding(result, "moments")["kind"] == "zeroed"
    assert "1 of 2 moment tensors all zero after load" in finding(result, "moments")["found"]


def batches(masks):
    calls = []
    for step, mask in masks.items():
        for name, word in (("tokens", f"t{step}"), ("labels", f"l{step}"), ("loss_mask", mask)):
            calls.append(Call("get_batch", name, outputs=[word], step=step, phase=Phase.DATA))
        calls.append(Call("aten.mm.default", "model", [f"t{step}", "w"], [f"y{step}"], step=step))
        calls.append(Call("aten.mul.Tensor", "loss", [f"y{step}", mask], [f"loss {mask}"], step=step))
    return {0: calls}


def test_a_loss_mask_that_was_polluted_is_data_and_no_kernel():
    a = make_run(batches({1: "m1", 2: "m2", 3: "polluted 3", 4: "polluted 4"}), label="reference")
    b = make_run(batches({2: "m2", 3: "m3", 4: "m4"}), label="resumed")
    result = check_resume(a, b)
    assert errors(result) == ["loss mask"]
    assert len(result.findings) == 1
    row = finding(result, "loss mask")
    assert row["first_step"] == 3
    assert "loss_mask differs first at step 3 (resume+1)" in row["found"]
    assert "labels, tokens equal at every step" in row["found"]
    assert "data order" in verified(result)
    assert any(
        "2 calls after the first difference take differing inputs: receivers" in note for note in result.notes
    )


EPOCH_0, EPOCH_1 = [2, 5, 0, 7, 1, 6, 3, 4], [6, 1, 4, 3, 7, 0, 2, 5]


def test_the_order_of_another_epoch_at_the_right_position_is_told_as_a_set():
    result = check_resume({"samples": [*EPOCH_0, *EPOCH_1]}, {"samples": [7, 1, 6, 3, 4]}, offset=11)
    assert errors(result) == ["data order"]
    assert finding(result, "data order")["found"].startswith(
        "same number of batches (5), different samples; within epoch 1, the resumed run repeats ids {1, "
        "4, 6} and "
        "never sees {0, 2, 5}; it is the order of epoch 0 at this position"
    )


def test_the_order_is_verified_where_it_is_equal():
    result = check_resume({"samples": [*EPOCH_0, *EPOCH_1]}, {"samples": [3, 7, 0, 2, 5]}, offset=11)
    assert result.verdict == "pass"
    assert verified(result)["data order"].says.startswith("5 batches after the resume")
    assert result.table["caught"].to_list() == [True, True]


def test_a_generator_that_is_seeded_after_the_load_is_no_nondeterministic_dropout():
    def calls(dropped, generator):
        return [
            Call("aten.mm.default", "fc", ["x", "w"], ["y"], step=STEP),
            Call(
                "aten.native_dropout.default",
                "hidden_dropout",
                ["y"],
                [dropped],
                generator=generator,
                step=STEP,
            ),
        ]

    a = saved(state("rng.cuda", "initial", "r0", step=1), *calls("d", "r5"))
    b = loaded(state("rng.cuda", "first use", "r0"), *calls("D", "r0"))
    result = check_resume(a, b)
    assert [
        (row["component"], row["severity"], row["kind"]) for row in result.findings.iter_rows(named=True)
    ] == [
        ("rng", "error", "overwritten"),
        ("rng", "note", "propagated"),
    ]
    said = finding(result, "rng")["found"]
    assert "rng.cuda: the state was restored but overwritten before first use" in said
    assert "the state that it had before training" in said


def test_a_step_counter_that_was_not_saved_is_the_first_finding():
    result = check_resume(saved(), loaded(numbers={"optimizer.param_groups.0.step": "0"}))
    assert errors(result) == ["optimizer step"]
    assert result.findings["found"][0].startswith("optimizer step 3000 -> 0")
    assert verified(result)["param groups"].says.startswith(
        "1 scalar equal (optimizer.param_groups.0.lr: 0.0001)"
    )
