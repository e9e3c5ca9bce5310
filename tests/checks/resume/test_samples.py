"""The order of the data: what is equal is verified, what is not is named as order or position."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.checks.resume import check_resume
from detlab.checks.resume.samples import Window, as_samples, judge_order
from detlab.errors import InputError, NotComparable
from tests.checks.resume.stories import errors, finding, verified


def by_step(ids, first):
    return {"samples": {first + at: [each] for at, each in enumerate(ids)}}


EPOCH = list("gbedhacf")


def test_a_position_that_is_one_batch_early_is_no_order():
    result = check_resume(by_step(EPOCH, 1), by_step(EPOCH[2:7], 4))
    assert errors(result) == ["data position"]
    assert (
        "the same order, 1 batch earlier than the reference: {e} is seen twice" in result.findings["found"][0]
    )


def test_a_position_that_is_late_leaves_samples_unseen():
    result = check_resume(by_step(EPOCH, 1), by_step(EPOCH[4:8], 4))
    assert "1 batch later than the reference: {d} is never seen" in result.findings["found"][0]


def test_the_same_samples_in_another_order_are_told_so():
    result = check_resume(by_step(EPOCH, 1), by_step(["d", "h", "c", "a", "f"], 4))
    assert errors(result) == ["data order"]
    assert "the same samples in another order" in finding(result, "data order")["found"]


def test_lists_of_other_lengths_without_steps_ask_for_the_offset():
    with pytest.raises(NotComparable, match="offset=N"):
        check_resume({"samples": EPOCH}, {"samples": EPOCH[3:]})


def test_lists_of_one_length_begin_together():
    result = check_resume({"samples": EPOCH[3:]}, {"samples": EPOCH[3:]})
    assert result.verdict == "pass"
    assert set(verified(result)) == {"data order", "data position"}


def test_text_and_json_say_the_same(tmp_path):
    (tmp_path / "a.txt").write_text("# ids\n1 2\n3, 4\n")
    (tmp_path / "a.json").write_text(json.dumps([[1, 2], [3, 4]]))
    assert (
        as_samples(tmp_path / "a.txt") == as_samples(tmp_path / "a.json") == as_samples([["1", 2], [3, "4"]])
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[[1, 2.5]]", '{"x": [1]}', '"word"', "[[[1]]]", "[null]", "{", "[" * 100_000]
)
def test_what_holds_no_ids_is_refused(tmp_path, content):
    path = tmp_path / "samples.json"
    path.write_text(content)
    with pytest.raises(InputError, match="Hint"):
        as_samples(path)


IDS = st.lists(st.integers(0, 30), unique=True, min_size=2, max_size=12)


@given(IDS, st.data())
def test_another_sequence_is_one_error_and_an_equal_one_is_verified(ids, data):
    batches = tuple((str(each),) for each in ids)
    start = data.draw(st.integers(0, len(ids) - 1))
    other = data.draw(st.permutations(batches[start:]))
    judged = judge_order(Window(batches[:start], batches[start:], tuple(other), all_from_start=True))
    if tuple(other) == batches[start:]:
        told = ["data order", "data position"]
        shown = 2 if len(ids) > 2 and len(other) > 1 else 1
        assert [each.what for each in judged.verified] == told[:shown]
        assert judged.findings == ()
    else:
        assert judged.verified == ()
        assert [row["severity"] for row in judged.findings] == ["error"]
