"""What shows no resume is no pass: empty states, other steps, the same file, numbers that cannot differ."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.checkpoints import Checkpoint, Piece, TensorLeaf
from detlab.checks.resume import check_resume
from detlab.checks.resume.negative_controls import order_controls
from detlab.checks.resume.samples import Window, judge_order
from detlab.checks.resume.saved import other_layout
from detlab.errors import InputError, NotComparable
from detlab.schema import Coordinate, Evidence
from detlab.testing import make_metrics_run, make_run
from tests.checks.resume.stories import errors, loaded, saved, snapshot, state, verified


def checkpoints(folder, a, b=None):
    """Two files of torch.save; of one content where a second is not given."""
    for name, content in (("a", a), ("b", a if b is None else b)):
        torch.save(content, folder / f"{name}.pt")
    return folder / "a.pt", folder / "b.pt"


@pytest.mark.parametrize("nothing", [None, {}, [], (), "", torch.empty(0, 3)])
def test_a_state_that_is_empty_on_both_sides_is_not_verified(tmp_path, nothing):
    content = {"model": {"w": torch.ones(3)}, "rng_state": nothing}
    result = check_resume(*checkpoints(tmp_path, content), at="load")
    assert set(verified(result)) == {"parameters"}
    assert any(each.startswith("rng: empty on both sides") for each in result.notes)
    assert any("rng" in each.what for each in result.not_checked)


@pytest.mark.parametrize("content", [{"model": {}}, {"timestamp": "monday"}, {"args": {"lr": 1.0}}])
def test_checkpoints_without_state_are_no_pass(tmp_path, content):
    other = {"timestamp": "tuesday"} if "timestamp" in content else content
    result = check_resume(*checkpoints(tmp_path, content, other))
    assert result.verdict == "invalid"
    assert [each.where for each in result.problems] == ["resume"]


def log(numbers, label):
    return make_metrics_run({"lm loss": numbers}, label=label)


def test_checkpoints_of_other_steps_are_no_pass_though_the_logs_agree(tmp_path):
    a, b = checkpoints(
        tmp_path, {"model": {"w": torch.ones(3)}, "iteration": 3}, {"model": {}, "iteration": 4}
    )
    steps = {step: f"{1 / step:.4f}" for step in range(4, 9)}
    sides = ({"checkpoint": a, "metrics": log(steps, "a")}, {"checkpoint": b, "metrics": log(steps, "b")})
    result = check_resume(*sides, only=["parameters"])
    assert result.verdict == "invalid"
    assert "loss" in verified(result)


def test_a_tensor_among_arguments_is_judged(tmp_path):
    content = [{"model": {"w": torch.ones(3)}, "config": {"alpha": torch.tensor([x])}} for x in (1.0, 2.0)]
    assert errors(check_resume(*checkpoints(tmp_path, *content))) == ["other"]


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_loss_that_is_no_number_throughout_shows_no_resume(word):
    first, second = (
        log(dict.fromkeys(range(start, 9), word), label) for start, label in ((1, "a"), (4, "b"))
    )
    result = check_resume(first, second)
    assert result.verdict == "invalid"
    assert [each.where for each in result.problems] == ["negative control"]


def test_steps_of_an_interval_that_are_counted_anew_are_refused():
    whole = log({step: f"{9 - step / 100:.2f}" for step in range(10, 210, 10)}, "a")
    local = log({step: f"{8 - step / 100:.2f}" for step in range(10, 110, 10)}, "b")
    with pytest.raises(NotComparable, match="counts its steps anew"):
        check_resume(whole, local)
    assert check_resume(whole, local, offset=100).verdict == "pass"


def test_samples_that_are_counted_anew_are_refused():
    whole = {"samples": {step: [step] for step in range(1, 21)}}
    local = {"samples": {step: [step + 10] for step in range(1, 11)}}
    with pytest.raises(NotComparable, match="counts its steps anew"):
        check_resume(whole, local)
    assert check_resume(whole, local, offset=10).verdict == "pass"


def test_steps_without_samples_are_a_problem():
    whole = {step: [step] for step in range(1, 21)}
    holed = {step: ids for step, ids in whole.items() if step > 10 and step != 14}
    result = check_resume({"samples": whole}, {"samples": holed})
    assert result.verdict == "invalid"
    assert "14" in result.problems[0].what
    assert "steps 11-13, 15-20" in verified(result)["data order"].says


def test_a_file_of_samples_that_is_given_twice_is_refused(tmp_path):
    path = tmp_path / "samples.txt"
    path.write_text("1 2\n3 4\n")
    with pytest.raises(NotComparable, match="given twice"):
        check_resume({"samples": path}, {"samples": str(path)})


def test_a_load_of_another_step_than_the_one_that_was_saved_is_refused():
    a = make_run({0: [state("model.w", "saved", "w", step=100)]}, label="a")
    b = make_run({0: [state("model.w", "loaded", "w", step=900)]}, label="b")
    with pytest.raises(NotComparable, match=r"step 100.*loaded at step 900"):
        check_resume(a, b)


def test_what_the_reference_did_not_record_is_not_called_made_anew():
    result = check_resume(saved(tensors={"rng.cuda": None}), loaded())
    assert errors(result) == []
    assert "rng" in {each.what for each in result.not_checked}
    assert "rng" not in verified(result)


def test_a_state_at_first_use_is_verified_under_its_name_and_as_strongly_as_it_is_known():
    def at(moment):
        return state("model.w", moment, "w", evidence=Evidence.SCREEN)

    result = check_resume(
        make_run({0: [at("saved")]}, label="a"), make_run({0: [at("loaded"), at("first use")]}, label="b")
    )
    assert set(verified(result)) == {"parameters"}
    assert not any(each.evidence.startswith("exact") for each in result.verified)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.data())
def test_every_control_of_samples_is_caught_though_batches_come_again(ids, data):
    batches = tuple((str(each),) for each in ids)
    start = data.draw(st.integers(0, len(ids) - 1))
    window = Window(batches[:start], batches[start:], batches[start:])
    ran = list(order_controls(window))
    assert all(each.caught for each in ran)
    assert {each.component for each in ran} == {each.what for each in judge_order(window).verified}


def per_rank(folder, num, of=2):
    """A folder with a file for each of some tensor parallel ranks."""
    for rank in range(num):
        place = folder / f"mp_rank_{rank:02d}"
        place.mkdir(parents=True)
        content = {"model": {"w": torch.ones(3) + rank}, "args": {"tensor_model_parallel_size": of}}
        torch.save(content, place / "model_optim_rng.pt")
    return folder


def test_files_of_other_ranks_are_refused_and_not_called_lost(tmp_path):
    with pytest.raises(NotComparable, match="other ranks"):
        check_resume(per_rank(tmp_path / "a", 2), per_rank(tmp_path / "b", 1, of=1))


def test_one_rank_of_two_says_that_the_other_was_not_given(tmp_path):
    result = check_resume(per_rank(tmp_path / "a", 1), per_rank(tmp_path / "b", 1))
    assert result.verdict == "pass"
    assert "a is of 1 rank of 2 (tp x pp): the others were not given" in {
        each.why for each in result.not_checked
    }
    whole = check_resume(per_rank(tmp_path / "c", 2), per_rank(tmp_path / "d", 2))
    assert "other ranks" not in {each.what for each in whole.not_checked}


def test_a_file_of_the_folder_beside_it_is_the_same_checkpoint(tmp_path):
    folder = per_rank(tmp_path / "a", 1)
    with pytest.raises(NotComparable, match="given twice"):
        check_resume(folder, folder / "mp_rank_00" / "model_optim_rng.pt")


def test_a_name_that_no_leaf_has_is_refused(tmp_path):
    sides = checkpoints(tmp_path, {"model": {"w": torch.ones(3)}})
    with pytest.raises(InputError, match=r"no leaf 'model\.x'"):
        check_resume(*sides, names={"model.x": "model.w"})


@pytest.mark.parametrize("ranks", [((0, 1), (0,)), ((0,), (0, 1))])
def test_a_rank_that_one_run_alone_recorded_is_not_called_lost(ranks):
    runs = [
        make_run(
            {rank: snapshot(moment) for rank in each},
            label=moment,
            layout={"dp": 2},
            world_size=2,
            coordinates={rank: Coordinate(dp=rank) for rank in each},
        )
        for moment, each in zip(("saved", "loaded"), ranks, strict=True)
    ]
    result = check_resume(*runs)
    assert result.verdict == "invalid"
    assert errors(result) == []
    assert "recorded states on rank 1" in result.problems[0].what


def test_shards_of_another_format_are_no_other_layout():
    def side(kind, *starts):
        pieces = tuple(Piece((start,), (4 // len(starts),), Path("x"), 0, (1,)) for start in starts)
        return Checkpoint(Path("x"), kind, {"w": TensorLeaf("w", (4,), "float32", pieces)})

    sharded = side("torch.distributed.checkpoint", 0, 2)
    assert other_layout(sharded, side("torch.distributed.checkpoint", 0)) == "1 tensor in other shards"
    assert other_layout(sharded, side("torch.save", 0)) == ""
